//! What the error log said before observing began: Apache says some things once in the life of its main process.
//!
//! Only the end of the log is read. Lines older than the main process are of an earlier one: their time is told without
//! a zone (`log_ctime` in server/log.c: local time), so the zone is taken from the last line, whose time as the file's
//! last change is known in UTC. Where times cannot be read, what follows the first line in which this process says that
//! it serves counts.

use super::codes::RESUMES;
use super::line::{self, ParsedLine};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Zones differ by whole quarters of an hour.
const ZONE_STEP_S: i64 = 15 * 60;

/// No zone is further from UTC.
const ZONE_MAX_S: i64 = 14 * 3600;

/// What is written when a server starts is written before its process has its last start time.
const START_SLACK_S: i64 = 3;

/// Reads the lines that a main process and its children wrote so far, of those in the last `bytes_max` bytes before a
/// place in a log.
pub fn read_before(
    path: &Path,
    end: u64,
    bytes_max: u64,
    is_custom: bool,
    main: Main,
) -> io::Result<Vec<ParsedLine>> {
    // Of what is no file nothing was read up to there: opening a pipe would wait for somebody who writes to it.
    if end == 0 {
        return Ok(vec![]);
    }
    let file = File::open(path)?;
    let found = file.metadata()?;
    let end = end.min(found.len());
    let from = end.saturating_sub(bytes_max);
    let mut bytes = vec![0; usize::try_from(end - from).unwrap_or(0)];
    let count = file.read_at(&mut bytes, from)?;
    bytes.truncate(count);
    Ok(since_start(&bytes, from > 0, is_custom, main, found.modified().ok()))
}

/// The main process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Main {
    /// Its id, in the pid namespace that it sees itself.
    pub pid: u32,
    /// When it started.
    pub started: Option<SystemTime>,
}

fn since_start(
    bytes: &[u8],
    is_torn: bool,
    is_custom: bool,
    main: Main,
    changed: Option<SystemTime>,
) -> Vec<ParsedLine> {
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    if is_torn && !lines.is_empty() {
        lines.remove(0);
    }
    let times: Vec<Option<i64>> = lines.iter().map(|line| local_time_s(line)).collect();
    let last_s = times.iter().rev().find_map(|time| *time);
    let read = |lines: &[&[u8]]| lines.iter().map(|line| line::read(line, is_custom)).collect::<Vec<_>>();
    let zone_s = last_s.zip(changed.and_then(unix_s)).map(|(local_s, utc_s)| {
        let apart_s = local_s - utc_s;
        (apart_s + ZONE_STEP_S / 2).div_euclid(ZONE_STEP_S) * ZONE_STEP_S
    });
    // Of a file whose time was set by hand nothing is known.
    let zone_s = zone_s.filter(|zone_s| zone_s.abs() <= ZONE_MAX_S);
    if let Some((zone_s, started_s)) = zone_s.zip(main.started.and_then(unix_s)) {
        let begins =
            |time: &Option<i64>| time.is_some_and(|time_s| time_s - zone_s >= started_s - START_SLACK_S);
        return times.iter().position(begins).map_or_else(Vec::new, |first| read(&lines[first..]));
    }
    let message = read(&lines);
    let serves = |message: &ParsedLine| {
        message.pid == Some(main.pid) && message.code.is_some_and(|code| RESUMES.contains(&code))
    };
    message.iter().position(serves).map_or_else(Vec::new, |first| message[first..].to_vec())
}

fn unix_s(time: SystemTime) -> Option<i64> {
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// The time of `[Sun Nov 22 09:07:36.123456 2026]`, as if it were UTC.
fn local_time_s(line: &[u8]) -> Option<i64> {
    let inside = line.strip_prefix(b"[")?;
    let inside =
        std::str::from_utf8(inside.get(..memchr::memchr(b']', &inside[..inside.len().min(40)])?)?).ok()?;
    let words: Vec<&str> = inside.split_ascii_whitespace().collect();
    let [_, month, day, time, year] = words[..] else { return None };
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = i8::try_from(MONTHS.iter().position(|known| *known == month)? + 1).ok()?;
    let mut clock = time.split(['.', ':']).map(|part| part.parse::<i8>().ok());
    let date = jiff::civil::Date::new(year.parse().ok()?, month, day.parse().ok()?).ok()?;
    let time = jiff::civil::Time::new(clock.next()??, clock.next()??, clock.next()??, 0).ok()?;
    Some(date.to_datetime(time).to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const START_S: u64 = 1_795_338_456; // Sun Nov 22 09:07:36 2026 UTC

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    fn codes(text: &str, is_torn: bool, main: Main, changed: Option<SystemTime>) -> Vec<u32> {
        let message = since_start(text.as_bytes(), is_torn, false, main, changed);
        message.iter().filter_map(|message| message.code).collect()
    }

    // Two lives in one log, of a server in another zone.
    #[test]
    fn lines_of_an_earlier_life_do_not_count() {
        let text = "[Sun Nov 22 10:07:00.1 2026] [a:error] [pid 1] AH00161: reached\n\
                    [Sun Nov 22 10:07:36.1 2026] [a:notice] [pid 9] AH00163: resumes\n\
                    [Sun Nov 22 10:07:40.1 2026] [a:error] [pid 9] AH00484: reached\n";
        let main = Main { pid: 9, started: Some(at(START_S)) };
        assert_eq!(local_time_s(text.as_bytes()), Some(START_S as i64 + 3600 - 36));
        assert_eq!(codes(text, false, main, Some(at(START_S + 4))), [163, 484]);
        assert_eq!(codes(text, false, Main { started: None, ..main }, None), [163, 484]);
        assert_eq!(codes(text, false, Main { started: None, pid: 8 }, None), [0; 0]);
        // All of it is of this life, and the first line is torn.
        let old = Main { started: Some(at(START_S - 100)), ..main };
        assert_eq!(codes(text, true, old, Some(at(START_S + 4))), [163, 484]);
        assert_eq!(codes(text, false, old, Some(at(START_S + 4))), [161, 163, 484]);
        assert_eq!(codes("", false, main, None), [0; 0]);
    }

    proptest! {
        // Any bytes: never a panic.
        #[test]
        fn any_log_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\[[A-Z][a-z]{2} [JFM][a-z]{2} [0-9]{1,3} [0-9:.]{0,20} [0-9]{0,12}\\]\n") {
            let all = [text.as_bytes(), &bytes].concat();
            since_start(&all, false, false, Main::default(), Some(at(START_S)));
        }
    }
}
