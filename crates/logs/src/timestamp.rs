//! Times of access logs: that of the common format, ISO 8601, seconds of the epoch, strftime patterns. Zones and daylight
//! saving are those of the line itself.
//!
//! A line has mostly the second of the line before it, else its minute: both are kept, and only a new minute is worked out.
//! The day from a date: <https://howardhinnant.github.io/date_algorithms.html>.

use crate::number::whole;

/// A moment, and how far the clock that wrote it was from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Seconds since 1970, UTC.
    pub utc_s: i64,
    /// Local time less UTC, seconds.
    pub offset_s: i32,
}

impl Stamp {
    /// What the same clock showed, so far from UTC.
    pub(crate) fn in_zone(self, offset_s: i32) -> Self {
        Self { utc_s: self.utc_s + i64::from(self.offset_s) - i64::from(offset_s), offset_s }
    }
}

/// How a time is written.
#[derive(Debug, Clone, PartialEq)]
pub enum TimeStyle {
    /// `10/Oct/2026:13:55:36 +0200`.
    Common,
    /// `2026-10-10T13:55:36+02:00`, with decimals or without; `Z` or no zone is UTC.
    Iso8601,
    /// Units since 1970, so many to the second; decimals may follow.
    Epoch(u64),
    /// A pattern of strftime(3).
    Pattern(String),
}

/// The longest text that is remembered.
const TEXT_MAX: usize = 26;
/// `10/Oct/2026:13:55:`, up to the seconds.
const MINUTE: usize = 18;

/// Reads times, and remembers the last one.
#[derive(Debug, Clone, Default)]
pub struct TimeReader {
    text: [u8; TEXT_MAX],
    stamp: Option<Stamp>,
}

impl TimeReader {
    /// The moment of a text; `None` when it is none.
    #[inline]
    pub fn read(&mut self, text: &[u8], style: &TimeStyle) -> Option<Stamp> {
        match style {
            TimeStyle::Common => match <&[u8; TEXT_MAX]>::try_from(text) {
                Ok(text) => self.common(text),
                Err(_) => None,
            },
            TimeStyle::Iso8601 => iso8601(text),
            TimeStyle::Epoch(per_second) => epoch(text, *per_second),
            TimeStyle::Pattern(pattern) => by_pattern(text, pattern),
        }
    }

    #[inline]
    fn common(&mut self, text: &[u8; TEXT_MAX]) -> Option<Stamp> {
        if let Some(last) = self.stamp.filter(|_| *text == self.text) {
            return Some(last);
        }
        let same_minute =
            text[..MINUTE] == self.text[..MINUTE] && text[MINUTE + 2..] == self.text[MINUTE + 2..];
        let stamp = match self.stamp.filter(|_| same_minute) {
            Some(last) => {
                let second = |text: &[u8]| two(&text[MINUTE..MINUTE + 2]).filter(|second| *second <= 60);
                Stamp { utc_s: last.utc_s - second(&self.text)? + second(text)?, ..last }
            }
            None => common(text)?,
        };
        (self.text, self.stamp) = (*text, Some(stamp));
        Some(stamp)
    }
}

fn common(text: &[u8; TEXT_MAX]) -> Option<Stamp> {
    let separators = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
    if separators.iter().any(|(at, byte)| text[*at] != *byte) {
        return None;
    }
    let month = month(&text[3..6])?;
    let clock = [two(&text[12..14])?, two(&text[15..17])?, two(&text[18..20])?];
    let date = [whole(&text[7..11])? as i64, month, two(&text[..2])?];
    stamp(date, clock, offset(&text[21..])?)
}

fn month(name: &[u8]) -> Option<i64> {
    const NAMES: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    NAMES.chunks(3).position(|one| one.eq_ignore_ascii_case(name)).map(|at| at as i64 + 1)
}

#[inline]
fn two(text: &[u8]) -> Option<i64> {
    whole(text).map(|number| number as i64)
}

/// `+0200`, `+02:00`, `Z`, or nothing: seconds.
pub(crate) fn offset(text: &[u8]) -> Option<i32> {
    let sign = match text.first() {
        None | Some(b'Z') => return Some(0),
        Some(b'+') => 1,
        Some(b'-') => -1,
        Some(_) => return None,
    };
    let hours = two(text.get(1..3)?)?;
    let minutes =
        text.get(3..).map(|rest| rest.strip_prefix(b":").unwrap_or(rest)).filter(|rest| !rest.is_empty());
    let minutes = minutes.map_or(Some(0), two)?;
    (hours <= 14 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60) as i32)
}

fn stamp(date: [i64; 3], clock: [i64; 3], offset_s: i32) -> Option<Stamp> {
    let ([year, month, day], [hour, minute, second]) = (date, clock);
    let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    // A leap second is written as 60.
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let local_s = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Stamp { utc_s: local_s - i64::from(offset_s), offset_s })
}

/// Days since 1970-01-01 of a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn iso8601(text: &[u8]) -> Option<Stamp> {
    let number = |from: usize, to: usize| text.get(from..to).and_then(two);
    if text.get(4) != Some(&b'-') || !matches!(text.get(10), Some(b'T' | b' ')) {
        return None;
    }
    let date = [number(0, 4)?, number(5, 7)?, number(8, 10)?];
    let clock = [number(11, 13)?, number(14, 16)?, number(17, 19)?];
    let rest = &text[19..];
    let decimals = match rest.first() {
        Some(b'.' | b',') => 1 + rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count(),
        _ => 0,
    };
    stamp(date, clock, offset(rest[decimals..].trim_ascii_start())?)
}

fn epoch(text: &[u8], per_second: u64) -> Option<Stamp> {
    let digits = memchr::memchr(b'.', text).map_or(text, |point| &text[..point]);
    Some(Stamp { utc_s: (whole(digits)? / per_second) as i64, offset_s: 0 })
}

fn by_pattern(text: &[u8], pattern: &str) -> Option<Stamp> {
    let parsed = jiff::fmt::strtime::parse(pattern, text).ok()?;
    let local = parsed.to_datetime().ok()?;
    let offset_s = parsed.offset().map_or(0, |offset| offset.seconds());
    let zoned = local.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Stamp { utc_s: zoned.timestamp().as_second() - i64::from(offset_s), offset_s })
}

/// RFC 3339 of a moment in UTC.
pub fn rfc3339(utc_s: i64) -> Option<String> {
    jiff::Timestamp::from_second(utc_s).ok().map(|moment| moment.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(style: &TimeStyle, text: &str, expected: Option<(&str, i32)>) {
        let read = TimeReader::default().read(text.as_bytes(), style);
        let shown = read.map(|stamp| (rfc3339(stamp.utc_s).unwrap(), stamp.offset_s));
        assert_eq!(shown, expected.map(|(text, offset)| (text.to_owned(), offset)), "{text}");
    }

    #[test]
    fn times_are_read_with_the_zone_of_their_line() {
        let iso = TimeStyle::Iso8601;
        let pattern = TimeStyle::Pattern("%Y%m%d %H:%M:%S %z".into());
        for (style, text, expected) in [
            (&TimeStyle::Common, "10/Oct/2026:13:55:36 +0200", Some(("2026-10-10T11:55:36Z", 7200))),
            (&TimeStyle::Common, "01/Jan/2027:00:15:00 -0330", Some(("2027-01-01T03:45:00Z", -12600))),
            (&TimeStyle::Common, "29/Feb/2024:23:59:59 +0000", Some(("2024-02-29T23:59:59Z", 0))),
            (&TimeStyle::Common, "10/Okt/2026:13:55:36 +0200", None),
            (&TimeStyle::Common, "10/Oct/2026:25:55:36 +0200", None),
            (&TimeStyle::Common, "10/Oct/2026", None),
            (&iso, "2026-10-10T13:55:36+02:00", Some(("2026-10-10T11:55:36Z", 7200))),
            (&iso, "2026-10-10T13:55:36.123Z", Some(("2026-10-10T13:55:36Z", 0))),
            (&iso, "2026-10-10 13:55:36 +0200", Some(("2026-10-10T11:55:36Z", 7200))),
            (&iso, "2026-10-10T13:55", None),
            (&TimeStyle::Epoch(1), "1791640536.123", Some(("2026-10-10T13:55:36Z", 0))),
            (&TimeStyle::Epoch(1000), "1791640536123", Some(("2026-10-10T13:55:36Z", 0))),
            (&pattern, "20261010 13:55:36 +0200", Some(("2026-10-10T11:55:36Z", 7200))),
            (&pattern, "rubbish", None),
        ] {
            check(style, text, expected);
        }
    }

    /// What is remembered changes nothing: seconds of a minute, the hour that daylight saving repeats, rubbish between.
    #[test]
    fn a_reader_that_remembers_reads_as_a_new_one() {
        let texts = [
            "25/Oct/2026:02:59:59 +0200",
            "25/Oct/2026:02:59:59 +0200",
            "25/Oct/2026:02:59:58 +0200",
            "25/Oct/2026:02:59:xx +0200",
            "25/Oct/2026:02:59:58 +0100",
            "25/Oct/2026:02:00:00 +0100",
            "25/Oct/2026:02:00:60 +0100",
            "25/Oct/2026:02:00:61 +0100",
            "24/Oct/2026:02:00:01 +0100",
        ];
        let mut reader = TimeReader::default();
        for text in texts {
            let fresh = TimeReader::default().read(text.as_bytes(), &TimeStyle::Common);
            assert_eq!(reader.read(text.as_bytes(), &TimeStyle::Common), fresh, "{text}");
        }
    }
}
