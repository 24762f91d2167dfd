//! The same pages with their resources and without: what is the same in both is what limits.
//!
//! Documents alone are many more pages a second where the limit is not the document. What the server then gives no more
//! of than before (bytes, requests, new connections a second) is what it has no more of; that the difference comes from
//! the resources is all that can be said where nothing is the same. After the comparison by which a connection limit was
//! told from a full pipe in the tuning of a LAMP server: PHP only, and the same number of connections at failure.

use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use crate::measurement::statistics;
use crate::measurement::statistics::ratio_of_means;
use crate::run_report::run_report;
use webdyno_model::Result;
use webdyno_model::interval::Interval;
use webdyno_model::number::significant;
use webdyno_model::page::{Ablation, AblationFigure};
use webdyno_model::run::RunReport;
use webdyno_model::workload::Arrival;

/// What is left out, as it is named.
pub const RESOURCES: &str = "resources";

/// Figures this near to each other are the same: limits hold to a few percent, and what does not limit changes by factors.
pub(crate) const SAME: f64 = 1.1;
/// With an interval that reaches beyond this on either side nothing is told.
const CONCLUSIVE: f64 = 1.25;
/// The median of fewer pages than this is no figure of a second.
const PAGES_MIN: u64 = 10;

/// A figure of a second; `None` where it has none.
type FigureOfSecond = fn(&Interval) -> Result<Option<f64>>;

/// A figure of a load.
struct FigureKind {
    name: &'static str,
    unit: &'static str,
    /// Of the whole measured part.
    of: fn(&RunReport, &[&Interval]) -> Option<f64>,
    /// Of a second, where an interval is made from seconds.
    second: Option<FigureOfSecond>,
}

const PAGES: &str = "pages/s";
const PAGE_P50: &str = "page time, p50";
const REQUESTS: &str = "requests/s";
const BYTES: &str = "bytes/s";
const CONNECTIONS: &str = "connections opened/s";

const KINDS: [FigureKind; 10] = [
    FigureKind { name: PAGES, unit: "1/s", of: |run, _| run.pages.as_ref()?.rate, second: Some(pages_per_s) },
    FigureKind { name: PAGE_P50, unit: "us", of: |run, _| p50(run), second: Some(median_us) },
    FigureKind { name: "page time, p95", unit: "us", of: |run, _| p95(run), second: None },
    FigureKind {
        name: REQUESTS,
        unit: "1/s",
        of: |run, _| run.rate,
        second: Some(|second| Ok(per_s(second.completed, second))),
    },
    FigureKind {
        name: BYTES,
        unit: "bytes/s",
        of: |run, _| of_elapsed(run.bytes.received as f64, run),
        second: Some(|second| Ok(per_s(second.bytes_received, second))),
    },
    FigureKind {
        name: CONNECTIONS,
        unit: "1/s",
        of: |run, _| of_elapsed(run.connections.opened as f64, run),
        second: Some(|second| Ok(per_s(second.connections.opened, second))),
    },
    FigureKind {
        name: "connections at once",
        unit: "count",
        of: |run, _| Some(run.connections.peak as f64),
        second: None,
    },
    FigureKind {
        name: "failed requests",
        unit: "fraction",
        of: |run, _| fraction(run.requests.failed, run.requests.completed),
        second: None,
    },
    FigureKind {
        name: "failed pages",
        unit: "fraction",
        of: |run, _| run.pages.as_ref().and_then(|pages| fraction(pages.failed, pages.completed)),
        second: None,
    },
    FigureKind {
        name: "client CPU",
        unit: "cores",
        of: |run, seconds| of_elapsed(seconds.iter().map(|second| second.cpu_us as f64 / 1e6).sum(), run),
        second: Some(|second| Ok(per_s(second.cpu_us, second).map(|us| us / 1e6))),
    },
];

/// Compares loads with everything and without the resources, made in turns: the first of one kind with the first of the
/// other. `None` without a pair; an error when a histogram is damaged.
pub fn ablation(with: &[Measurement], without: &[Measurement]) -> Result<Option<Ablation>> {
    let pairs = with.len().min(without.len());
    if pairs == 0 {
        return Ok(None);
    }
    let with: Vec<LoadFigures> = with[..pairs].iter().map(LoadFigures::of).collect::<Result<_>>()?;
    let without: Vec<LoadFigures> = without[..pairs].iter().map(LoadFigures::of).collect::<Result<_>>()?;
    let figures: Vec<AblationFigure> =
        KINDS.iter().map(|kind| figure(kind, &with, &without)).collect::<Result<_>>()?;
    let means = means(&figures, &with, &without);
    Ok(Some(Ablation { without: RESOURCES.into(), runs: pairs as u32, means, figures }))
}

/// One load.
struct LoadFigures<'a> {
    run: RunReport,
    seconds: Vec<&'a Interval>,
}

impl<'a> LoadFigures<'a> {
    fn of(measurement: &'a Measurement) -> Result<Self> {
        Ok(Self { run: run_report(measurement)?, seconds: measurement.measured().collect() })
    }

    /// Second by second; a torn last one is left out.
    fn series(&self, second: FigureOfSecond) -> Result<Vec<f64>> {
        let whole = self.seconds.iter().filter(|interval| interval.length_us >= 900_000);
        whole.filter_map(|interval| second(interval).transpose()).collect()
    }
}

/// Of one load each, the interval comes from their seconds; of several, from the loads.
fn figure(kind: &FigureKind, with: &[LoadFigures], without: &[LoadFigures]) -> Result<AblationFigure> {
    let values = |sides: &[LoadFigures]| {
        sides.iter().filter_map(|side| (kind.of)(&side.run, &side.seconds)).collect::<Vec<_>>()
    };
    let (before, after) = (values(with), values(without));
    let (mean_before, mean_after) = (statistics::mean(&before), statistics::mean(&after));
    let ratio = mean_before.zip(mean_after).filter(|(before, after)| *before > 0.0 && *after > 0.0);
    let ratio = ratio.map(|(before, after)| after / before);
    let spread = match (with, without, kind.second) {
        ([with], [without], Some(second)) => ratio_of_means(&with.series(second)?, &without.series(second)?),
        ([_], [_], None) => None,
        _ => ratio_of_means(&before, &after),
    };
    // Around the ratio of the figures themselves, which for medians is not quite that of their seconds.
    let ci95 = ratio
        .zip(spread)
        .map(|(ratio, spread)| spread.ci95.map(|bound| significant(ratio * bound / spread.ratio, 4)));
    let rounded = |value: Option<f64>| value.map(|value| significant(value, 6));
    Ok(AblationFigure {
        name: kind.name.into(),
        unit: kind.unit.into(),
        with: rounded(mean_before),
        without: rounded(mean_after),
        ratio: ratio.map(|ratio| significant(ratio, 4)),
        ci95,
    })
}

/// What the comparison says, no more than the figures do.
fn means(figures: &[AblationFigure], with: &[LoadFigures], without: &[LoadFigures]) -> String {
    let spoiled = |side: &LoadFigures| !side.run.client.valid;
    if with.iter().chain(without).any(spoiled) {
        return "A load of the comparison is not valid (load generator): the difference says nothing about the server.".into();
    }
    if with.iter().all(is_documents_only) {
        return "The pages have no resources that were requested: both loads are the same.".into();
    }
    let Some(pages) = named(figures, PAGES).filter(|pages| pages.ratio.is_some()) else {
        return "In one of the loads no page completed: there is nothing to compare.".into();
    };
    if is_same(pages) {
        return page_rate_text(figures, with.iter().any(is_open));
    }
    match pages.ratio.map(|ratio| (ratio, is_significant(pages))) {
        Some((ratio, true)) if ratio > SAME => limit(figures),
        Some((_, true)) => {
            "Without the resources there are fewer pages/s, although there is less work: something else changed \
                            between the loads."
                .into()
        }
        _ => "The interval is too wide for a conclusion: use longer loads, or more of them (--repeat)."
            .into(),
    }
}

/// Where the rate is ordered, or users take their time, pages differ in their times alone.
fn page_rate_text(figures: &[AblationFigure], is_open: bool) -> String {
    match named(figures, PAGE_P50).and_then(|figure| figure.ratio) {
        Some(ratio) if ratio < 1.0 / SAME => format!(
            "Both loads have about the same pages/s, all that were requested, so the page times decide: the document is \
             {:.0}% of the p50 page time.",
            ratio * 100.0
        ),
        _ if is_open => {
            "Both loads served the requested pages/s, and without the resources the pages took as long."
                .into()
        }
        _ => "Without the resources there are hardly more pages/s: the limit is in the documents.".into(),
    }
}

/// What both loads have as much of.
fn limit(figures: &[AblationFigure]) -> String {
    let kinds = [
        (BYTES, "bytes/s", "bandwidth, of the network or of the storage of the files"),
        (REQUESTS, "requests/s", "the cost of each request, whatever its target"),
        (CONNECTIONS, "new connections/s", "the cost of each connection, or a limit on them"),
    ];
    let same: Vec<_> = kinds.iter().filter(|(name, ..)| named(figures, name).is_some_and(is_same)).collect();
    let list = |pick: fn(&(&str, &'static str, &'static str)) -> &'static str, and: &str| {
        same.iter().map(|kind| pick(kind)).collect::<Vec<_>>().join(and)
    };
    match same.len() {
        0 => "Neither bytes/s nor requests/s nor new connections/s are the same in both: the resources account for the \
              difference, but these figures do not show which of their costs limits."
            .into(),
        1 => format!(
            "Both loads have about the same {}, which points to {} as the limit, not to the CPU time of the documents.",
            list(|kind| kind.1, ""),
            list(|kind| kind.2, "")
        ),
        _ => format!(
            "Both loads have about the same {}, which points not to the CPU time of the documents but to one of: {}.",
            list(|kind| kind.1, " and "),
            list(|kind| kind.2, "; ")
        ),
    }
}

fn named<'a>(figures: &'a [AblationFigure], name: &str) -> Option<&'a AblationFigure> {
    figures.iter().find(|figure| figure.name == name)
}

pub(crate) fn within(ratio: f64, factor: f64) -> bool {
    (1.0 / factor..=factor).contains(&ratio)
}

/// Whether the figures are the same, and the interval leaves no room for a change.
pub(crate) fn is_same(figure: &AblationFigure) -> bool {
    let narrow = |ci95: [f64; 2]| ci95.iter().all(|bound| within(*bound, CONCLUSIVE));
    figure.ratio.is_some_and(|ratio| within(ratio, SAME)) && figure.ci95.is_none_or(narrow)
}

/// Whether the interval lies on one side.
pub(crate) fn is_significant(figure: &AblationFigure) -> bool {
    figure.ci95.is_some_and(|[low, high]| low > 1.0 || high < 1.0)
}

/// Whether each page was a request alone.
fn is_documents_only(side: &LoadFigures) -> bool {
    let ended = side.run.requests.completed + side.run.requests.failed;
    side.run.pages.as_ref().is_some_and(|pages| pages.completed + pages.failed >= ended)
}

fn is_open(side: &LoadFigures) -> bool {
    let workload = side.run.workload.as_ref();
    workload.is_some_and(|workload| matches!(workload.arrival, Arrival::Open { .. }))
}

fn p50(run: &RunReport) -> Option<f64> {
    run.pages.as_ref()?.time_us.p50.map(|us| us as f64)
}

fn p95(run: &RunReport) -> Option<f64> {
    run.pages.as_ref()?.time_us.p95.map(|us| us as f64)
}

fn of_elapsed(amount: f64, run: &RunReport) -> Option<f64> {
    (run.elapsed_s > 0.0).then(|| amount / run.elapsed_s)
}

fn fraction(failed: u64, completed: u64) -> Option<f64> {
    (failed + completed > 0).then(|| failed as f64 / (failed + completed) as f64)
}

fn per_s(count: u64, second: &Interval) -> Option<f64> {
    (second.length_us > 0).then(|| count as f64 * 1e6 / second.length_us as f64)
}

fn pages_per_s(second: &Interval) -> Result<Option<f64>> {
    Ok(second.pages.as_ref().and_then(|pages| per_s(pages.completed, second)))
}

fn median_us(second: &Interval) -> Result<Option<f64>> {
    let Some(pages) = second.pages.as_ref().filter(|pages| pages.completed >= PAGES_MIN) else {
        return Ok(None);
    };
    Ok(merged(pages.time.iter())?.quantile_us(0.5).map(|us| us as f64))
}

#[cfg(test)]
mod tests;
