//! Several runs of one load, as a table and a sentence.

use crate::human::{UNKNOWN, count, number, percent, plural, time, time_us};
use webdyno_model::repeats::{RepeatedRun, Repeats, Spread};

/// Writes a figure in its unit.
type Show = fn(f64) -> String;

/// What the table means.
pub(crate) const REPEATS_MEAN: &str = "The report is of the run marked with *, whose rate is the median of the valid ones. \
     Spread: largest less smallest, as a share of the median. The interval of the mean holds it in 95 of 100 cases (Student).";

/// `3 runs of this load`.
pub(crate) fn repeats_headline(repeats: &Repeats) -> String {
    format!("{} of this load", plural(repeats.runs.len() as u64, "run"))
}

/// `their rates lie within 2.1% of each other`.
pub(crate) fn repeats_spread(repeats: &Repeats) -> String {
    match repeats.rate.and_then(|rate| rate.relative) {
        Some(_) if repeats.runs.len() < 2 => "one alone has no spread".into(),
        Some(relative) => format!("their rates lie within {} of each other", percent(relative)),
        None => "how far their rates lie apart is unknown".into(),
    }
}

/// The runs and their spread, a row each, the first one with the titles.
pub(crate) fn repeats_table(repeats: &Repeats) -> Vec<Vec<String>> {
    let titles = ["", "rate", "p50", "p99", "failed", "warm-up", "valid"];
    let run = |run: &RepeatedRun| {
        let mark = if run.run == repeats.chosen { " *" } else { "" };
        vec![
            format!("run {}{mark}", run.run),
            run.rate.map_or(UNKNOWN.into(), number),
            time(run.p50_us),
            time(run.p99_us),
            count(run.failed),
            format!("{} s", number(run.warmup_s)),
            if run.valid { "yes" } else { "NO" }.into(),
        ]
    };
    let figures = [
        (repeats.rate, number as Show),
        (repeats.p50_us, time_us as Show),
        (repeats.p99_us, time_us as Show),
    ];
    let row = |name: &str, of: fn(&Spread, Show) -> Option<String>| {
        let told = figures.iter().map(|(spread, show)| spread.and_then(|spread| of(&spread, *show)));
        let cells = told.map(|cell| cell.unwrap_or_else(|| UNKNOWN.into()));
        std::iter::once(name.to_owned()).chain(cells).chain([const { String::new() }; 3]).collect::<Vec<_>>()
    };
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(repeats.runs.iter().map(run));
    if repeats.runs.len() > 1 {
        rows.push(row("median", |spread, show| Some(show(spread.median))));
        rows.push(row("spread", |spread, _| Some(percent(spread.relative?))));
        rows.push(row("mean", |spread, show| Some(show(spread.mean))));
        rows.push(row("mean, from", |spread, show| Some(show(spread.ci95?[0].max(0.0)))));
        rows.push(row("to (95%)", |spread, show| Some(show(spread.ci95?[1]))));
    }
    rows
}
