//! A moment of a recording, as its user names it: `03:12` by the clock of this place, or RFC 3339.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

/// A moment named by its minute is that minute; one with seconds has half a minute on both sides.
const MINUTE: SignedDuration = SignedDuration::from_secs(60);
const HALF: SignedDuration = SignedDuration::from_secs(30);

/// The window of a recording that a moment means; times of day are of the last day on which something was recorded then.
/// A usage error when it is no time, or nothing was recorded.
pub fn window(recording: &Recording, text: &str, zone: &TimeZone) -> Result<(u64, u64)> {
    let found = recording.extent_us().and_then(|(first, last)| {
        Some((
            recording.wall(first)?.min(recording.wall(last)?),
            recording.wall(first)?.max(recording.wall(last)?),
        ))
    });
    let Some((first, last)) = found else {
        return Err(UserError::usage("the recording does not say when anything was read"));
    };
    let windows = candidate_windows(text, (first, last), zone).ok_or_else(|| {
        UserError::usage(format!("`{text}` is no time"))
            .hint("write the time of day as 03:12 or 03:12:30, or a whole time as 2026-11-21T03:12:30Z")
    })?;
    let within = windows.into_iter().find_map(|(from, to)| recording.window_between(from, to));
    within.ok_or_else(|| {
        let displayed = |at: Timestamp| at.to_zoned(zone.clone()).strftime("%F %T").to_string();
        UserError::usage(format!("nothing was recorded at {text}")).hint(format!(
            "the recording is from {} to {}",
            displayed(first),
            displayed(last)
        ))
    })
}

/// The windows that a text may mean, the most likely first; `None` when it is no time.
fn candidate_windows(
    text: &str,
    (first, last): (Timestamp, Timestamp),
    zone: &TimeZone,
) -> Option<Vec<(Timestamp, Timestamp)>> {
    let around = |at: Timestamp, to_the_minute: bool| match to_the_minute {
        true => Some((at, at.checked_add(MINUTE).ok()?)),
        false => Some((at.checked_sub(HALF).ok()?, at.checked_add(HALF).ok()?)),
    };
    let colons = text.matches(':').count();
    if let Ok(at) = text.parse::<Timestamp>() {
        return around(at, false).map(|window| vec![window]);
    }
    if text.contains(['T', ' ', '-']) {
        let local = text.parse::<DateTime>().ok()?;
        return around(local.to_zoned(zone.clone()).ok()?.timestamp(), colons == 1)
            .map(|window| vec![window]);
    }
    let time: Time = text.parse().ok().filter(|_| colons > 0)?;
    let day = |at: Timestamp| at.to_zoned(zone.clone()).date();
    let mut days: Vec<Date> =
        day(first).series(jiff::ToSpan::days(1)).take_while(|date| *date <= day(last)).collect();
    days.reverse();
    let at = |date: Date| date.to_datetime(time).to_zoned(zone.clone()).ok().map(|at| at.timestamp());
    Some(days.into_iter().filter_map(at).filter_map(|at| around(at, colons == 1)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_moment_is_told_in_several_ways() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let recorded = (at("2026-11-20T22:30:00Z"), at("2026-11-21T03:00:00Z"));
        let windows = |text: &str| candidate_windows(text, recorded, &zone);
        let minute = (at("2026-11-21T02:12:00Z"), at("2026-11-21T02:13:00Z"));
        // By the clock of the place the recording begins and ends on the 21st too.
        assert_eq!(windows("03:12").unwrap()[0], minute);
        assert_eq!(windows("2026-11-21 03:12").unwrap(), [minute]);
        let seconds = (at("2026-11-21T02:12:00Z"), at("2026-11-21T02:13:00Z"));
        for text in ["03:12:30", "2026-11-21T02:12:30Z", "2026-11-21T03:12:30+01:00", "2026-11-21T03:12:30"] {
            assert_eq!(windows(text).unwrap()[0], seconds, "{text}");
        }
        assert_eq!(windows("23:45").unwrap().len(), 2, "on each day of the recording");
        for text in ["", "noon", "25:00", "3", "2026-11-21", "2026-13-21T00:00:00Z", "-03:12"] {
            let reported = windows(text);
            assert!(reported.is_none() || text == "2026-11-21", "{text}: {reported:?}");
        }
    }

    #[test]
    fn what_was_not_recorded_is_told_with_what_was() {
        let error = window(&Recording::default(), "03:12", &TimeZone::UTC).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }
}
