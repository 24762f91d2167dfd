//! The lines of a journal: how a record is written, and what is whole of what was.
//!
//! One JSON object per line: `{"v":1,"seq":0,"sum":"..","record":{"kind":..}}`. `sum` is the beginning of the SHA-256
//! of version, sequence number and the record's own text, so a line that was written in part, or changed, is noticed.
//! A last line that is not whole is left out: its fsync never returned, so what it announces never began. A record
//! that this version does not know is an error: undoing half of what happened may be worse than nothing.

use crate::change::journal::history::{History, Record};
use crate::change::seams::disk::sha256_hex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version of the lines that are written. Older ones stay readable.
pub const VERSION: u32 = 1;

/// Why a journal cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// A line that is not the last one is not whole; its number from 1.
    Line(usize),
    /// A whole line of a version that is not known; the version.
    Version(u32),
    /// A whole line with a record that is not known, or that does not fit; its number from 1 and what it is.
    Record(usize, String),
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    v: u32,
    seq: u64,
    sum: String,
    #[serde(borrow)]
    record: &'a RawValue,
}

/// The line of a record, newline included.
pub fn encode(sequence: u64, record: &Record) -> serde_json::Result<Vec<u8>> {
    let record = serde_json::value::to_raw_value(record)?;
    let line =
        Line { v: VERSION, seq: sequence, sum: checksum(VERSION, sequence, record.get()), record: &record };
    let mut bytes = serde_json::to_vec(&line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Reads a whole journal: what it adds up to, how many lines and how many bytes of it are whole.
pub fn read(bytes: &[u8]) -> Result<(History, u64, u64), Damage> {
    let mut history = History::default();
    let (mut lines, mut whole_bytes) = (0_u64, 0_usize);
    let mut rest = bytes;
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let number = usize::try_from(lines).unwrap_or(usize::MAX).saturating_add(1);
        let (line, after) = (rest.get(..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default());
        match decode(lines, line, number) {
            Ok(record) => history.absorb(record).map_err(|what| Damage::Record(number, what))?,
            // A torn write may leave a newline behind, but nothing whole after it.
            Err(Damage::Line(_)) if !after.contains(&b'\n') => break,
            Err(damage) => return Err(damage),
        }
        lines += 1;
        whole_bytes += end + 1;
        rest = after;
    }
    Ok((history, lines, whole_bytes as u64))
}

fn decode(sequence: u64, line: &[u8], number: usize) -> Result<Record, Damage> {
    #[derive(Deserialize)]
    struct Kind {
        kind: String,
    }
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    let text = std::str::from_utf8(line).map_err(|_| Damage::Line(number))?;
    let version = serde_json::from_str::<Versioned>(text).map_err(|_| Damage::Line(number))?.v;
    if version > VERSION {
        return Err(Damage::Version(version));
    }
    let line: Line<'_> = serde_json::from_str(text).map_err(|_| Damage::Line(number))?;
    let record = line.record.get();
    if line.seq != sequence || line.sum != checksum(line.v, line.seq, record) {
        return Err(Damage::Line(number));
    }
    serde_json::from_str(record).map_err(|error| {
        let kind = serde_json::from_str::<Kind>(record).map_or_else(|_| error.to_string(), |kind| kind.kind);
        Damage::Record(number, kind)
    })
}

fn checksum(version: u32, sequence: u64, record: &str) -> String {
    let mut sum = sha256_hex(format!("{version} {sequence} {record}").as_bytes());
    sum.truncate(16);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::action::{Action, Launch, Launched};
    use crate::change::journal::history::{ClosedBy, Header};
    use crate::change::tuned_machine::TunedMachine;
    use crate::os::process::ProcessName;
    use proptest::prelude::*;

    fn header() -> Record {
        let agent = ProcessName { pid: 1, start_ticks: 2 };
        Record::Header(Header {
            id: "20260101T000000.000000Z-1".into(),
            order: 1,
            started_at_us: 3,
            boot_id: None,
            machine_id: None,
            tool: None,
            agent,
            what: "webdyno tune".into(),
            location: None,
        })
    }

    fn launch(n: u64) -> Record {
        let action = Launch::new(vec!["/bin/x".into()], "/run/x".into(), 80);
        Record::Intent { n, action: Action::Launch(action) }
    }

    fn records() -> Vec<Record> {
        let launched = Launched { process: ProcessName { pid: 9, start_ticks: 8 }, group: Some(9) };
        vec![
            header(),
            launch(1),
            Record::Launched { n: 1, launched },
            Record::Completed { n: 1, control: None },
            Record::Kept {
                through: 1,
                made_for: Some(TunedMachine { cores: Some(2), ..TunedMachine::default() }),
            },
            launch(2),
            Record::Undone { n: 2, control: None },
            Record::Closed { by: ClosedBy::Guardian },
            Record::Told,
        ]
    }

    fn written(records: &[Record]) -> Vec<Vec<u8>> {
        records.iter().enumerate().map(|(i, record)| encode(i as u64, record).unwrap()).collect()
    }

    fn replayed(records: &[Record]) -> History {
        let mut history = History::default();
        records.iter().for_each(|record| history.absorb(record.clone()).unwrap());
        history
    }

    /// A journal cut off at any byte says exactly what its whole lines say.
    #[test]
    fn a_journal_torn_at_any_byte_says_what_its_whole_lines_say() {
        let (records, lines) = (records(), written(&records()));
        let bytes = lines.concat();
        for cut in 0..=bytes.len() {
            let mut whole = 0;
            let mut length = 0;
            while whole < lines.len() && length + lines[whole].len() <= cut {
                length += lines[whole].len();
                whole += 1;
            }
            let (history, count, valid) = read(&bytes[..cut]).unwrap();
            assert_eq!(history, replayed(&records[..whole]), "cut at {cut}");
            assert_eq!((count, valid), (whole as u64, length as u64), "cut at {cut}");
        }
    }

    proptest! {
        /// No damage of a byte is taken for truth: reading fails, or only the last line is missing.
        #[test]
        fn a_changed_byte_is_noticed(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let (records, mut bytes) = (records(), written(&records()).concat());
            let at = at.index(bytes.len());
            prop_assume!(bytes[at] != byte);
            bytes[at] = byte;
            if let Ok((history, count, _)) = read(&bytes) {
                prop_assert_eq!(history, replayed(&records[..count as usize]));
                prop_assert!(count as usize >= records.len() - 2, "{} of {}", count, records.len());
            }
        }
    }

    #[test]
    fn what_is_not_known_is_an_error_that_says_so() {
        let known = encode(0, &header()).unwrap();
        let line = |v: u32, record: &str| {
            let sum = checksum(v, 1, record);
            [
                known.clone(),
                format!("{{\"v\":{v},\"seq\":1,\"sum\":\"{sum}\",\"record\":{record}}}\n").into_bytes(),
            ]
            .concat()
        };
        assert_eq!(read(&line(1, r#"{"kind":"sysctl"}"#)), Err(Damage::Record(2, "sysctl".into())));
        assert_eq!(read(&line(2, r#"{"kind":"told"}"#)), Err(Damage::Version(2)));
        let orphan = r#"{"kind":"undone","n":7,"control":null}"#;
        assert_eq!(read(&line(1, orphan)), Err(Damage::Record(2, "no intent 7".into())));
        assert!(read(&line(1, r#"{"kind":"told"}"#)).unwrap().0.reported);
    }

    /// A journal of the first version, byte for byte as it was written: it stays readable for ever.
    #[test]
    fn the_first_version_stays_readable() {
        let golden = include_bytes!("../../../tests/fixtures/journal-v1.jsonl");
        let (history, lines, bytes) = read(golden).unwrap();
        assert_eq!((lines, bytes), (9, golden.len() as u64));
        // It was not written then on which machine something was kept.
        assert_eq!(history, History { made_for: None, ..replayed(&records()) });
    }
}
