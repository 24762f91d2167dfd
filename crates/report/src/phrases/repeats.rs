//! Several runs of one load, as a table and a sentence.

use crate::human::{UNKNOWN, count, number, percent, plural, time, time_us};
use webdyno_model::repeats::{RepeatedRun, Repeats, Spread};

/// Writes a figure in its unit.
type FormatFigure = fn(f64) -> String;

/// What the table means.
pub(crate) const REPEATS_MEAN: &str = "* is the run reported: its rate is the median of the valid runs. Spread: (largest - smallest) / median. \
     Interval of the mean: 95% (Student).";

/// `3 runs of this load`.
pub(crate) fn repeats_headline(repeats: &Repeats) -> String {
    format!("{} of this load", plural(repeats.runs.len() as u64, "run"))
}

/// `their rates lie within 2.1% of each other`: of pages, where there are some.
pub(crate) fn repeats_spread(repeats: &Repeats) -> String {
    let (rates, spread) = match has_pages(repeats) {
        true => ("page rates", repeats.page_rate),
        false => ("rates", repeats.rate),
    };
    match spread.and_then(|rate| rate.relative) {
        Some(_) if repeats.runs.len() < 2 => "no spread of a single run".into(),
        Some(relative) => format!("spread of {rates} {}", percent(relative)),
        None => format!("spread of {rates} unknown"),
    }
}

fn has_pages(repeats: &Repeats) -> bool {
    repeats.runs.iter().any(|run| run.page_rate.is_some())
}

/// A figure of each run, and its spread.
struct RepeatedFigure {
    title: &'static str,
    of: fn(&RepeatedRun) -> String,
    spread: Option<Spread>,
    format: FormatFigure,
}

/// What is told of each run: of pages first, where there are some.
fn figures(repeats: &Repeats) -> Vec<RepeatedFigure> {
    let of_requests = RepeatedFigure {
        title: "requests/s",
        of: |run| run.rate.map_or(UNKNOWN.into(), number),
        spread: repeats.rate,
        format: number,
    };
    if has_pages(repeats) {
        return vec![
            RepeatedFigure {
                title: "pages/s",
                of: |run| run.page_rate.map_or(UNKNOWN.into(), number),
                spread: repeats.page_rate,
                format: number,
            },
            RepeatedFigure {
                title: "page p50",
                of: |run| time(run.page_p50_us),
                spread: repeats.page_p50_us,
                format: time_us,
            },
            RepeatedFigure {
                title: "page p99",
                of: |run| time(run.page_p99_us),
                spread: repeats.page_p99_us,
                format: time_us,
            },
            of_requests,
        ];
    }
    vec![
        of_requests,
        RepeatedFigure { title: "p50", of: |run| time(run.p50_us), spread: repeats.p50_us, format: time_us },
        RepeatedFigure { title: "p99", of: |run| time(run.p99_us), spread: repeats.p99_us, format: time_us },
    ]
}

/// The runs and their spread, a row each, the first one with the titles.
pub(crate) fn repeats_table(repeats: &Repeats) -> Vec<Vec<String>> {
    let figures = figures(repeats);
    let titles = figures.iter().map(|figure| figure.title);
    let titles = std::iter::once("").chain(titles).chain(["failed", "warm-up", "valid"]);
    let run = |run: &RepeatedRun| {
        let mark = if run.run == repeats.chosen { " *" } else { "" };
        let reported = figures.iter().map(|figure| (figure.of)(run));
        let (failed, warmup) = (count(run.failed), format!("{} s", number(run.warmup_s)));
        let rest = [failed, warmup, if run.valid { "yes" } else { "NO" }.into()];
        std::iter::once(format!("run {}{mark}", run.run)).chain(reported).chain(rest).collect::<Vec<_>>()
    };
    let row = |name: &str, of: fn(&Spread, FormatFigure) -> Option<String>| {
        let reported = figures.iter().map(|figure| of(&figure.spread?, figure.format));
        let cells = reported.map(|cell| cell.unwrap_or_else(|| UNKNOWN.into()));
        std::iter::once(name.to_owned()).chain(cells).chain([const { String::new() }; 3]).collect::<Vec<_>>()
    };
    let mut rows = vec![titles.map(str::to_owned).collect()];
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

/// Why runs are not valid, a sentence each.
pub(crate) fn repeats_invalid(repeats: &Repeats) -> Vec<String> {
    let invalid = repeats.runs.iter().filter(|run| !run.valid);
    let why =
        |run: &RepeatedRun| run.why.clone().unwrap_or_else(|| "the generator was the bottleneck".into());
    invalid.map(|run| format!("Run {} is not valid: {}.", run.run, why(run))).collect()
}
