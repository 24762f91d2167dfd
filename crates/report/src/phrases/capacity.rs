//! What a search for the capacity found, in sentences and rows.

use super::limit_title;
use crate::human::{UNKNOWN, count, number, time, time_s};
use webdyno_model::capacity::{CapacityReport, CapacityStep, LoadUnit};
use webdyno_model::objective::Objective;
use webdyno_session::view::View;

/// `capacity 1,240 req/s (1,210-1,260)`.
pub(crate) fn capacity_headline(found: &CapacityReport) -> String {
    let unit = found.unit.name();
    match (found.rate, found.ci95, &found.generator) {
        (None, _, Some(_)) => "no capacity: the load generator was the limit, not the server".into(),
        (None, ..) if found.limited_by.is_none() => "no capacity: no load counts".into(),
        (None, ..) => "no capacity: the lowest load misses the objectives".into(),
        (Some(rate), _, Some(_)) => {
            format!("at least {} {unit}: the load generator was the limit", number(rate))
        }
        (Some(rate), Some([low, high]), None) => {
            format!("capacity {} {unit} ({}-{})", number(rate), number(low), number(high))
        }
        (Some(rate), None, None) if found.limited_by.is_none() => {
            format!("capacity at least {} {unit}", number(rate))
        }
        (Some(rate), None, None) => format!("capacity about {} {unit}", number(rate)),
    }
}

/// What stands below: each with its label.
pub(crate) fn capacity_points(found: &CapacityReport) -> Vec<(&'static str, String)> {
    let unit = found.unit.name();
    // What a pause made miss below the capacity, or a later step met, is not where it is limited.
    let is_beyond = |step: &&CapacityStep| found.rate.is_none_or(|rate| step.offered > rate);
    let missed = found.steps.iter().filter(|step| step.missed.is_some() && step.missed == found.limited_by);
    let missed = missed.filter(is_beyond);
    let lowest = missed.map(|step| step.offered).reduce(f64::min);
    let limited = found.limited_by.as_ref().map(|slo| match lowest {
        Some(offered) => format!("{slo}, missed at {} {unit}", number(offered)),
        None => slo.clone(),
    });
    let held: Vec<&str> = found.objectives.iter().map(Objective::text).collect();
    let knee = found.knee.map(|load| {
        format!("{} {unit}: beyond it more load costs response time instead of giving more", number(load))
    });
    let summary = found.bottleneck_summary.as_ref().map(|summary| format!(": {summary}"));
    let bottleneck = found
        .bottleneck
        .as_ref()
        .map(|id| format!("{} ({id}){}", limit_title(id), summary.unwrap_or_default()));
    let generator = found.generator.as_ref().map(|why| format!("{why}: this is no figure of the server"));
    let points = [
        ("Generator", generator),
        ("Limited by", limited),
        ("Objectives", Some(held.join(", ")).filter(|held| !held.is_empty())),
        ("Knee", knee),
        ("What limits", bottleneck),
    ];
    points.into_iter().filter_map(|(label, text)| Some((label, text?))).collect()
}

/// What to do next: the command that lifts the limit, or that names it.
pub(crate) fn capacity_next(view: &View, found: &CapacityReport) -> Option<String> {
    let workload = view.loads.first()?.report.workload.as_ref()?;
    let url = &workload.requests.first().filter(|_| workload.list.is_none())?.url;
    match (&found.bottleneck, &found.generator) {
        (_, Some(_)) => None,
        (Some(id), None) if id == "healthy" || id == "unknown" => None,
        (Some(_), None) => Some(format!("webdyno tune {url}")),
        (None, None) => Some(format!("webdyno capacity --server local {url}")),
    }
}

/// The title of the table of steps.
pub(crate) fn capacity_steps_title(found: &CapacityReport) -> &'static str {
    match found.unit {
        LoadUnit::Users => "Latency against users",
        LoadUnit::PagesPerSecond => "Page time against rate",
        LoadUnit::RequestsPerSecond => "Latency against rate",
    }
}

/// The steps by what they offered, the first row says what the columns are; at most so many, those nearest to the capacity.
pub(crate) fn capacity_steps(found: &CapacityReport, rows_max: usize) -> Vec<Vec<String>> {
    let head = ["offered", "successful/s", "p50", "p99", "failed", "for", "objectives"];
    let near = found.rate.unwrap_or(0.0).max(f64::MIN_POSITIVE).ln();
    let far = |step: &&CapacityStep| (step.offered.ln() - near).abs();
    let mut steps: Vec<&CapacityStep> = found.steps.iter().collect();
    steps.sort_by(|a, b| far(a).total_cmp(&far(b)));
    steps.truncate(rows_max);
    steps.sort_by(|a, b| a.offered.total_cmp(&b.offered).then(a.load.cmp(&b.load)));
    let row = |step: &&CapacityStep| {
        vec![
            number(step.offered),
            step.rate.map_or(UNKNOWN.into(), number),
            time(step.p50_us),
            time(step.p99_us),
            step.errors.map_or(UNKNOWN.into(), count),
            time_s(step.measured_s),
            verdict(step),
        ]
    };
    std::iter::once(head.map(str::to_owned).to_vec()).chain(steps.iter().map(row)).collect()
}

fn verdict(step: &CapacityStep) -> String {
    match (step.met, &step.missed, &step.discarded) {
        (_, _, Some(_)) => "does not count: the generator".into(),
        (Some(true), ..) => "met".into(),
        (Some(false), Some(slo), _) => format!("missed: {slo}"),
        (Some(false), None, _) => "missed".into(),
        (None, Some(slo), _) => format!("not sure: {slo}"),
        (None, None, _) => "not sure: seem met".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(offered: f64, missed: Option<&str>) -> CapacityStep {
        CapacityStep {
            load: 1,
            offered,
            rate: Some(offered),
            met: Some(missed.is_none()),
            missed: missed.map(str::to_owned),
            measured_s: 3.0,
            ..CapacityStep::default()
        }
    }

    fn found(rate: Option<f64>, limited_by: Option<&str>, generator: Option<&str>) -> CapacityReport {
        CapacityReport {
            rate,
            limited_by: limited_by.map(str::to_owned),
            generator: generator.map(str::to_owned),
            ..CapacityReport::default()
        }
    }

    #[test]
    fn the_limit_is_above_the_capacity() {
        for (rate, text) in [
            (Some(250.0), "p99<1s, missed at 300 req/s"),
            (None, "p99<1s, missed at 100 req/s"),
            (Some(400.0), "p99<1s"),
        ] {
            let steps = [(100.0, Some("p99<1s")), (250.0, None), (300.0, Some("p99<1s"))];
            let steps = steps.map(|(offered, missed)| step(offered, missed)).to_vec();
            let report = CapacityReport { steps, ..found(rate, Some("p99<1s"), None) };
            let points = capacity_points(&report);
            assert_eq!(points.iter().find(|(label, _)| *label == "Limited by").unwrap().1, text, "{rate:?}");
        }
    }

    #[test]
    fn without_a_capacity_the_server_is_blamed_only_for_what_it_missed() {
        for (limited_by, generator, part) in [
            (Some("p99<1s"), None, "the lowest load misses the objectives"),
            (None, Some("a core was full"), "the load generator was the limit"),
            (None, None, "no load counts"),
        ] {
            let headline = capacity_headline(&found(None, limited_by, generator));
            assert!(headline.contains(part), "{headline}");
        }
    }
}
