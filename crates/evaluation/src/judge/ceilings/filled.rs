//! Tables whose entries stay for minutes: no load of ours lasts long enough to show the rate that they bear for ever, but how
//! they fill is seen. What the round before tells of entries per answer says at which rate the table is full when it was.

use super::{CeilingPrediction, CeilingRound, PredictionKind, prediction};
use webdyno_analysis::measurement::series::SeriesSet;

/// `(entries, size)` of the table of tracked connections: of the service's network, and of the machine.
const TABLES: [[&str; 2]; 2] = [
    ["conntrack.service.entries_count", "conntrack.service.max_count"],
    ["conntrack.entries_count", "conntrack.max_count"],
];
/// The life of an entry whose connection has ended.
const LIVES_S: f64 = 120.0;
/// A table with more than this share of entries from before: those of the same clients are taken again.
const OLD_FRACTION_MAX: f64 = 0.05;
/// From here on entries are given up for others.
const FULL_FRACTION: f64 = 0.95;
/// Readings come once a second: what filled faster was not seen to fill.
const FILLING_S_MIN: f64 = 3.0;

/// From the round before: at which rate the table, empty at first, was full when it was.
pub(super) fn fill_rate(
    other: &CeilingRound,
    bound: &CeilingRound,
) -> Option<Result<CeilingPrediction, String>> {
    let finding = bound.case.round.finding.as_str();
    let follows = other.case.place.number + 1 == bound.case.place.number;
    let (there, here) = (other.ceiling(finding)?, bound.ceiling(finding)?);
    (follows && here.fills.is_some()).then_some(())?;
    // Entries per answer, as the limit has it.
    let each = there.ceiling.max? / LIVES_S / there.ceiling.binds_at_rate?;
    Some(filling(bound).map(|observed| {
        let predicted = observed.entries / observed.seconds / each;
        CeilingPrediction {
            measured: observed.answers / observed.seconds,
            ..prediction(other, bound, PredictionKind::Filled, predicted)
        }
    }))
}

/// How a table filled.
struct TableFilling {
    entries: f64,
    answers: f64,
    seconds: f64,
}

fn filling(observed: &CeilingRound) -> Result<TableFilling, String> {
    let measurement = &observed.case.measurement;
    let series = SeriesSet::of(measurement);
    let table = TABLES.iter().find_map(|[entries, max]| {
        let max = series.all(max).last().map(|(_, max)| *max)?;
        Some((series.all(entries), max)).filter(|(all, _)| !all.is_empty())
    });
    let (levels, max) = table.ok_or("the table was not read")?;
    let old =
        levels.iter().rfind(|(at_s, _)| *at_s <= 0.0).or(levels.first()).map_or(0.0, |(_, level)| *level);
    if old > OLD_FRACTION_MAX * max {
        return Err(format!("{old:.0} of {max:.0} entries were there before"));
    }
    let filling = || levels.iter().filter(|(at_s, level)| *at_s >= 1.0 && *level < FULL_FRACTION * max);
    let ends = filling().next().zip(filling().next_back());
    let ((from_s, from), (to_s, to)) = ends.ok_or("the table was not seen to fill")?;
    if to_s - from_s < FILLING_S_MIN {
        return Err(format!("it was full within {FILLING_S_MIN} s"));
    }
    let answers = measurement.intervals.iter().map(|interval| {
        let length_s = interval.length_us as f64 / 1e6;
        let within_s = (interval.t_s + length_s).min(*to_s) - interval.t_s.max(*from_s);
        interval.completed as f64 * (within_s / length_s).max(0.0)
    });
    Ok(TableFilling { entries: to - from, answers: answers.sum(), seconds: to_s - from_s })
}
