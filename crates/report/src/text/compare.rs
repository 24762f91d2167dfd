//! Two loads side by side: first in one line what it comes to, then what else differs, then the figures.

use super::page::{ColumnAlign, TextPage};
use crate::human::{UNKNOWN, percent, quantity, rate, times, times_interval};
use webdyno_model::compare::{CompareReport, ComparedMetric, Difference, IntervalBasis};
use webdyno_model::tune::Verdict;

/// An interval that goes up to this multiple of its ratio is not worth a line.
const WIDE: f64 = 100.0;

/// What the verdicts mean.
const VERDICTS_MEAN: &str = "better, worse: the whole interval lies beyond the noise floor, by how much such figures differ from run to \
     run (3% to 10%). same: within it. inconclusive: the interval is too wide, or there are too few samples for one.";

const COLUMNS: [&str; 6] = ["", "A", "B", "B/A", "95% interval", "verdict"];

/// The comparison for a page: its sentences and cells as the text has them, and the figures.
pub fn compare_data(report: &CompareReport) -> serde_json::Value {
    serde_json::json!({
        "headline": headline(report),
        "differences": report.differences.iter().map(difference_text).collect::<Vec<_>>(),
        "columns": COLUMNS,
        "rows": report.metrics.iter().map(row).collect::<Vec<_>>(),
        "verdicts_mean": VERDICTS_MEAN,
        "report": report,
    })
}

/// The comparison as text, with a final newline.
pub fn compare(report: &CompareReport) -> String {
    let mut page = TextPage::default();
    page.gap();
    for (label, directory, load) in [("A", &report.a, report.a_load), ("B", &report.b, report.b_load)] {
        page.verbatim(&format!("{label}  {directory}{}", load_name(report, label, load)));
    }
    if !report.comparable {
        page.heading("WARNING: more than the server differs");
        report.differences.iter().for_each(|difference| page.item("-", &difference_text(difference)));
    }
    page.gap();
    let rows = std::iter::once(COLUMNS.map(str::to_owned).to_vec());
    let rows: Vec<Vec<String>> = rows.chain(report.metrics.iter().map(row)).collect();
    let number = ColumnAlign::Number;
    page.table(&[ColumnAlign::Words, number, number, number, number, ColumnAlign::Words], &rows);
    page.gap();
    page.paragraph(VERDICTS_MEAN);
    if let Some(text) = basis(report) {
        page.gap();
        page.paragraph(&text);
    }
    // In one line each, however wide: what is read first, also by scripts.
    let regressions = report.max_regression.map(|max| regressions(report, max) + "\n");
    format!("{}\n{}{}", headline(report), regressions.unwrap_or_default(), page.finish())
}

/// What the intervals rest on, where one of the loads was made several times.
fn basis(report: &CompareReport) -> Option<String> {
    let times = |runs: u32| if runs == 1 { "once".to_owned() } else { format!("{runs} times") };
    let (a, b) = (report.a_runs, report.b_runs);
    match report.intervals_from {
        IntervalBasis::Runs => Some(format!(
            "Figures are means over runs (A {a}, B {b}), intervals are from the spread between them."
        )),
        IntervalBasis::Seconds if a.max(b) > 1 => Some(format!(
            "A ran {}, B {}: intervals are from the seconds of one run each, without the spread between runs. It is in them where \
             both have 3 or more valid runs (`webdyno run --repeat 5`).",
            times(a),
            times(b)
        )),
        IntervalBasis::Seconds => None,
    }
}

/// `, load 3, the best`: of one session that is compared with itself.
fn load_name(report: &CompareReport, label: &str, load: u32) -> String {
    let role = if label == "A" { "the baseline" } else { "the best" };
    let is_one_session = report.a == report.b && report.a_load != report.b_load;
    if is_one_session { format!(", load {load}, {role}") } else { String::new() }
}

/// `B serves 1.42x the rate of A (95% interval 1.38 to 1.46); p99 same`.
fn headline(report: &CompareReport) -> String {
    let named = |name: &str| report.metrics.iter().find(|metric| metric.name == name);
    let mut parts: Vec<String> = report.metrics.first().map(rate_text).into_iter().collect();
    parts.extend(named("p99_us").map(|p99| match (p99.verdict, p99.ratio) {
        (Verdict::Better | Verdict::Worse, Some(ratio)) => {
            format!("p99 {} ({})", p99.verdict.name(), factor(ratio))
        }
        (verdict, _) => format!("p99 {}", verdict.name()),
    }));
    // A rate of failures is no gain.
    let failed = named("failed_fraction").filter(|failed| failed.verdict != Verdict::Same);
    parts.extend(failed.filter(|failed| failed.a.is_some() && failed.b.is_some()).map(|failed| {
        let (a, b) = (value(failed, failed.a), value(failed, failed.b));
        format!("failed requests {} ({a} to {b})", failed.verdict.name())
    }));
    parts.join("; ")
}

fn rate_text(metric: &ComparedMetric) -> String {
    let (what, of) = if metric.name == "page_rate" { ("page rate", "pages") } else { ("rate", "requests") };
    let interval = metric.ratio.zip(metric.ci95).map(|(ratio, ci95)| (ratio, times_interval(ratio, ci95)));
    match (interval, metric.verdict) {
        (Some((ratio, interval)), Verdict::Better | Verdict::Worse) => {
            format!("B serves {} the {what} of A (95% interval {interval})", factor(ratio))
        }
        (Some((ratio, interval)), Verdict::Same) => {
            format!("B serves the same {what} as A ({}, 95% interval {interval})", factor(ratio))
        }
        (Some((ratio, interval)), Verdict::Inconclusive) => format!(
            "inconclusive: B serves {} the {what} of A, but the 95% interval is {interval}",
            factor(ratio)
        ),
        (None, Verdict::Worse) => format!("B serves no {of}; A served {}", value(metric, metric.a)),
        (None, Verdict::Better) => format!("B serves {}; A served no {of}", value(metric, metric.b)),
        (None, Verdict::Same) if metric.a == Some(0.0) => format!("neither A nor B serves {of}"),
        (None, Verdict::Same) => format!("B serves the same {what} as A"),
        (None, Verdict::Inconclusive) => {
            format!("inconclusive: too few whole seconds to compare the {what}s")
        }
    }
}

fn regressions(report: &CompareReport, max: f64) -> String {
    if report.regressions.is_empty() {
        // What nothing can be said of is no proof of none.
        let unsure = report.metrics.iter().filter(|metric| metric.verdict == Verdict::Inconclusive);
        let unsure: Vec<String> = unsure.map(|metric| title(&metric.name)).collect();
        let but =
            if unsure.is_empty() { String::new() } else { format!(" (inconclusive: {})", unsure.join(", ")) };
        return format!("No regression beyond {}{but}", percent(max));
    }
    let named = report.regressions.iter().map(|name| title(name)).collect::<Vec<_>>();
    format!("REGRESSION beyond {}: {}", percent(max), named.join(", "))
}

fn difference_text(difference: &Difference) -> String {
    match (&difference.a, &difference.b) {
        (Some(a), Some(b)) => format!("{}: A {a}; B {b}", difference.what),
        _ => format!("other {}", meaning(&difference.what)),
    }
}

/// What a difference that has no values is about.
fn meaning(what: &str) -> &str {
    match what {
        "requests" => "requests (method, headers, body or weight)",
        "sessions" => "pages, sessions or think times",
        "conditions" => {
            "conditions of a successful request (timeout, status, --expect, --redirects, --clock)"
        }
        "transport" => "connections (TLS, addresses)",
        other => other,
    }
}

fn row(metric: &ComparedMetric) -> Vec<String> {
    // One that spans all is none.
    let known = metric.ratio.zip(metric.ci95).filter(|(ratio, ci95)| ci95[1] <= WIDE * ratio);
    let interval = known.map(|(ratio, ci95)| times_interval(ratio, ci95));
    vec![
        title(&metric.name),
        value(metric, metric.a),
        value(metric, metric.b),
        metric.ratio.map_or_else(|| "-".into(), factor),
        interval.unwrap_or_else(|| "-".into()),
        metric.verdict.name().into(),
    ]
}

fn title(name: &str) -> String {
    match name {
        "rate" => "successful requests".into(),
        "page_rate" => "pages".into(),
        "failed_fraction" => "failed requests".into(),
        "cpu_per_request_us" => "CPU per request".into(),
        _ => name.trim_end_matches("_us").replace('_', " "),
    }
}

/// A figure in the unit that its name ends with.
fn value(metric: &ComparedMetric, value: Option<f64>) -> String {
    let Some(value) = value else { return UNKNOWN.into() };
    match metric.name.rsplit('_').next() {
        Some("rate") => rate(value),
        Some(unit) => quantity(value, unit),
        None => UNKNOWN.into(),
    }
}

/// `1.42x`.
fn factor(ratio: f64) -> String {
    times(ratio).replace(" times", "x")
}
