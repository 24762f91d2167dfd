//! Intervals to what a run says of its pages and visitors, over the measured part.

use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use crate::run_report::percentiles;
use std::collections::BTreeMap;
use webdyno_model::Result;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::number::significant;
use webdyno_model::page::{NamedPageReport, PageInterval, PageReport, PageTrace, VisitCounts};
use webdyno_model::workload::Workload;

/// Whether steps of these visitors are pages.
pub fn has_pages(workload: &Workload) -> bool {
    let steps = workload.visits.iter().flat_map(|visits| &visits.sessions).flat_map(|session| &session.steps);
    steps.into_iter().any(|step| step.page.is_some())
}

/// The pages of the seconds that were measured.
fn measured(measurement: &Measurement) -> impl Iterator<Item = &PageInterval> {
    measurement.measured().filter_map(|interval| interval.pages.as_deref())
}

/// The pages of the measured part, which is so long; `None` for a workload without pages. As for requests, what was in
/// flight when the measured part began counts as started in it. An error when a histogram is damaged.
pub fn report(measurement: &Measurement, elapsed_s: f64) -> Result<Option<PageReport>> {
    let wanted = measurement.workload.as_ref().is_some_and(has_pages);
    if !wanted && measured(measurement).next().is_none() {
        return Ok(None);
    }
    let mut report = PageReport::default();
    for pages in measured(measurement) {
        report.completed += pages.completed;
        report.failed += pages.failed;
        report.in_flight_at_end = pages.in_flight;
    }
    report.started = report.completed + report.failed + report.in_flight_at_end;
    report.rate = rate(report.completed, elapsed_s);
    report.time_us = times(measurement)?.dist();
    let longest: Vec<u64> =
        measured(measurement).filter_map(|pages| Some(pages.time.as_ref()?.max_us)).collect();
    report.percentiles_need = percentiles::unsupported(&report.time_us, &longest, elapsed_s);
    report.unsupported_percentiles = report.percentiles_need.keys().cloned().collect();
    report.by_name = by_name(measurement, elapsed_s)?;
    report.median_page = median_page(measurement, report.time_us.p50).cloned();
    report.slowest_page = slowest_page(measurement).cloned();
    Ok(Some(report))
}

fn rate(completed: u64, elapsed_s: f64) -> Option<f64> {
    (elapsed_s > 0.0).then(|| significant(completed as f64 / elapsed_s, 6))
}

/// The times of the completed pages of the measured part.
pub fn times(measurement: &Measurement) -> Result<TimeHistogram> {
    merged(measured(measurement).filter_map(|pages| pages.time.as_ref()))
}

/// By name of the page: completed ones, failed ones and the merged times of the measured part.
pub fn named_times(measurement: &Measurement) -> Result<BTreeMap<String, (u64, u64, TimeHistogram)>> {
    let mut names: BTreeMap<String, (u64, u64, TimeHistogram)> = BTreeMap::new();
    for (name, named) in measured(measurement).flat_map(|pages| &pages.by_name) {
        let (completed, failed, times) = names.entry(name.clone()).or_default();
        *completed += named.completed;
        *failed += named.failed;
        if let Some(encoded) = &named.time {
            times.merge_encoded(encoded)?;
        }
    }
    Ok(names)
}

fn by_name(measurement: &Measurement, elapsed_s: f64) -> Result<BTreeMap<String, NamedPageReport>> {
    let report = |(name, (completed, failed, times)): (String, (u64, u64, TimeHistogram))| {
        let rate = rate(completed, elapsed_s);
        (name, NamedPageReport { completed, failed, rate, time_us: times.dist() })
    };
    Ok(named_times(measurement)?.into_iter().map(report).collect())
}

/// The completed page of which there is a trace whose time is nearest to the median; the first one of several.
fn median_page(measurement: &Measurement, median_us: Option<u64>) -> Option<&PageTrace> {
    let median_us = median_us?;
    let completed = measured(measurement).flat_map(|pages| &pages.traces).filter(|trace| !trace.failed);
    completed.min_by_key(|trace| trace.time_us.abs_diff(median_us))
}

/// The slowest page of which there is a trace, failed or not; the first one of several.
fn slowest_page(measurement: &Measurement) -> Option<&PageTrace> {
    let traces = measured(measurement).flat_map(|pages| &pages.traces);
    traces.reduce(|slowest, trace| if trace.time_us > slowest.time_us { trace } else { slowest })
}

/// What visitors did in the measured part; `None` for a workload without visitors.
pub fn visits(measurement: &Measurement) -> Option<VisitCounts> {
    let wanted = measurement.workload.as_ref().is_some_and(|workload| workload.visits.is_some());
    let mut counts = VisitCounts::default();
    measurement.measured().for_each(|interval| counts.add(&interval.visits));
    (wanted || !counts.is_empty()).then_some(counts)
}

#[cfg(test)]
mod tests;
