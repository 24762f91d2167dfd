//! What must hold for every access log, whatever its bytes: shared by the fuzz target in `fuzz/` and by the test that runs it for a
//! short time on stable Rust.
//!
//! Nothing panics; every line is a request, blank or not understood; how the log is cut into blocks changes no count; and no address of a
//! client is in the report.

use crate::format::{Format, recognise};
use crate::ordered::{BlockEvents, Ordered, Sampled};
use crate::redact::Privacy;
use crate::report::report;
use crate::scan::Counts;

/// Checks the reader of logs with these bytes: a format up to the first line end where it begins with `%` or `$`, then lines. An error
/// tells what does not hold.
pub fn access_log(bytes: &[u8]) -> Result<(), String> {
    let (formats, log) = formats(bytes);
    let (whole, ordered) = counted(&[log], &formats);
    let understood = whole.lines - whole.blank - whole.not_understood;
    if whole.sum.requests != understood {
        return Err(format!("{} requests in {understood} lines that are understood", whole.sum.requests));
    }
    let middle = memchr::memchr(b'\n', &log[log.len() / 2..]).map_or(log.len(), |at| log.len() / 2 + at + 1);
    let (cut, _) = counted(&[&log[..middle], &log[middle..]], &formats);
    for (name, figure) in FIGURES {
        if figure(&whole) != figure(&cut) {
            return Err(format!("{name}: {} in one block, {} in two", figure(&whole), figure(&cut)));
        }
    }
    let report = report(&whole, &ordered, vec![]);
    let in_timeline =
        report.rates.timeline.as_ref().map_or(0, |timeline| timeline.requests.iter().sum::<u64>());
    let timed: u64 = report.rates.by_hour.iter().sum();
    if in_timeline != timed {
        return Err(format!("{in_timeline} requests over the log, {timed} by the hour"));
    }
    let has_address = |line: &&String| line.contains("192.0.2.7") || line.contains("192.0.2.8");
    let shown = report.lines.samples.iter().find(has_address);
    shown.map_or(Ok(()), |line| Err(format!("an address is shown: {line}")))
}

/// A count with its name.
type Figure = (&'static str, fn(&Counts) -> u64);
const FIGURES: [Figure; 8] = [
    ("lines", |counts| counts.lines),
    ("blank lines", |counts| counts.blank),
    ("lines not understood", |counts| counts.not_understood),
    ("requests", |counts| counts.sum.requests),
    ("bytes", |counts| counts.sum.bytes),
    ("addresses", |counts| counts.clients.count()),
    ("requests of bots", |counts| counts.bots.requests),
    ("URLs", |counts| counts.urls.len() as u64),
];

fn formats(bytes: &[u8]) -> (Vec<Format>, &[u8]) {
    if bytes.starts_with(b"%") || bytes.starts_with(b"$") {
        let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
        let text = String::from_utf8_lossy(&bytes[..end]);
        return (Format::parse(&text).into_iter().collect(), bytes.get(end + 1..).unwrap_or_default());
    }
    (recognise(bytes.split(|byte| *byte == b'\n')), bytes)
}

fn counted(blocks: &[&[u8]], formats: &[Format]) -> (Counts, Ordered) {
    let (mut counts, mut ordered, mut sampled) =
        (Counts::new(Privacy::default()), Ordered::default(), Sampled::default());
    for block in blocks {
        let mut events = BlockEvents::default();
        counts.block(block, formats, &sampled, &mut events);
        sampled = ordered.add(&events);
    }
    counts.settle();
    (counts, ordered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pieces that readers have opinions on.
    const PIECES: [&str; 34] = [
        "192.0.2.7 - - [10/Oct/2026:13:55:36 +0200] \"GET /a?b=c HTTP/1.1\" 200 512",
        "192.0.2.8 - bob [31/Dec/2026:23:59:60 -0000] \"POST / HTTP/1.0\" 500 -",
        " \"-\" \"Mozilla/5.0 (compatible; Googlebot/2.1)\"",
        " \"http://a/\\\"b\" \"\"",
        " 1234",
        " 0.250",
        "www.example.org:443 192.0.2.7 - - [10/Oct/2026:13:55:36 +0200] \"\\x16\\x03\" 400 0",
        "{\"time\":\"2026-10-10T13:55:36Z\",\"request\":\"GET / HTTP/2.0\",\"status\":200}",
        "{\"status\":",
        "\n",
        "\n\n",
        "\r\n",
        "#",
        "\0",
        "\"",
        "\\",
        " ",
        "[",
        "]",
        "?",
        "-",
        "99999999999999999999",
        "65536",
        "::1",
        "2001:db8::1",
        "\u{feff}",
        "é",
        "/%41/../",
        "%h %l %u %t \"%r\" %>s %b\n",
        "$remote_addr [$time_local] \"$request\" $status $request_time\n",
        "%t %D %U%q %{Host}i\n",
        "%{%s}t %>s\n",
        "10/Feb/0000:00:00:00 +0000",
        "10/Oct/9999:13:55:36 +1459",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn logs_are_read_whatever_their_bytes_are(
            parts in proptest::collection::vec((0..PIECES.len(), 0..200usize, any::<u8>()), 0..30)
        ) {
            let mut bytes = vec![];
            for (piece, at, byte) in parts {
                let piece = PIECES[piece].as_bytes();
                bytes.extend_from_slice(piece);
                // One of three pieces is spoiled.
                if at < 66 && at < piece.len() {
                    let place = bytes.len() - piece.len() + at;
                    bytes[place] = byte;
                }
            }
            prop_assert_eq!(access_log(&bytes), Ok(()));
        }
    }
}
