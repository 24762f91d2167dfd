//! Points: what one load came to, and what the loads of a point come to together.

use super::conditions::{Discard, discard};
use crate::facts::{FactId, facts};
use crate::measurement::Measurement;
use crate::measurement::statistics::{mean, mean_ci95, median, t_95};
use crate::run_report::run_report;
use webdyno_model::Result;
use webdyno_model::number::significant;
use webdyno_model::sweep::{KnobValue, SweepLoad, SweepPoint};

/// Fewer degrees of freedom say next to nothing of how far repeats lie apart.
const FREEDOM_MIN: f64 = 3.0;

/// The point of one load alone. `before` are those that were measured: a quota that throttles at the same point again is how the server
/// is.
pub fn load_point(
    values: &[KnobValue],
    load: u32,
    measurement: &Measurement,
    before: &[SweepPoint],
) -> Result<SweepPoint> {
    let run = run_report(measurement)?;
    let facts = facts(measurement, Some(&run))?;
    let failed = match &measurement.harm_guard_trip {
        Some(trip) => Some(format!("the load was stopped: {}: {}", trip.cause.name(), trip.text)),
        None if run.requests.completed == 0 => Some("no request succeeded".into()),
        None => None,
    };
    let was_discarded = |point: &SweepPoint| {
        point.values == values && point.loads.iter().any(|load| load.discarded.is_some())
    };
    let discarded = match discard(measurement, &run)?.filter(|_| failed.is_none()) {
        Some(Discard::Never(why)) => Some(why),
        Some(Discard::Once(why)) => (!before.iter().any(was_discarded)).then_some(why),
        None => None,
    };
    let ci95 = mean_ci95(&measurement.measured_rates()).map(|ends| ends.map(|end| significant(end, 6)));
    let whole = |value: Option<f64>| value.map(|value| value as u64);
    Ok(SweepPoint {
        value: values.first().and_then(KnobValue::number),
        values: values.to_vec(),
        rate: run.rate,
        ci95,
        p50_us: run.response_time_us.p50,
        p99_us: run.response_time_us.p99,
        errors: Some(run.requests.failed),
        memory_bytes: whole(facts.value(FactId::worker_memory_sum_bytes)),
        cpu_fraction: facts.value(FactId::cpu_busy_fraction).map(|share| significant(share, 3)),
        loads: vec![SweepLoad {
            load: Some(load),
            rate: run.rate,
            p99_us: run.response_time_us.p99,
            discarded,
        }],
        missed: run.objectives.iter().find(|one| !one.met).map(|one| one.slo.clone()),
        failed,
        harm: measurement.harm_guard_trip.as_ref().map(|trip| trip.cause),
    })
}

/// Whether a load counts.
pub(super) fn counts(point: &SweepPoint) -> bool {
    point.failed.is_none()
        && point.rate.is_some_and(|rate| rate > 0.0)
        && point.loads.iter().all(|load| load.discarded.is_none())
}

/// The points of these loads, in order of their values.
pub fn merged_points(loads: &[SweepPoint]) -> Vec<SweepPoint> {
    let mut all: Vec<Vec<&SweepPoint>> = vec![];
    for load in loads {
        match all.iter_mut().find(|group| group[0].values == load.values) {
            Some(group) => group.push(load),
            None => all.push(vec![load]),
        }
    }
    // Words keep the order in which they were first measured.
    let order = |point: &SweepPoint| point.values.iter().map(KnobValue::number).collect::<Vec<_>>();
    all.sort_by(|a, b| order(a[0]).partial_cmp(&order(b[0])).unwrap_or(std::cmp::Ordering::Equal));
    let spread = spread(&all);
    all.iter().map(|group| merged(group, spread)).collect()
}

/// How far repeats lie apart, as a share of their mean (standard deviation), with its degrees of freedom. Pooled over all points: two
/// loads alone say next to nothing.
fn spread(groups: &[Vec<&SweepPoint>]) -> Option<(f64, f64)> {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for group in groups {
        let rates = counted_rates(group);
        let Some(mean) = mean(&rates).filter(|_| rates.len() > 1) else { continue };
        squares += rates.iter().map(|rate| (rate / mean - 1.0).powi(2)).sum::<f64>();
        freedom += rates.len() as f64 - 1.0;
    }
    (freedom >= FREEDOM_MIN).then(|| ((squares / freedom).sqrt(), freedom))
}

fn counted_rates(group: &[&SweepPoint]) -> Vec<f64> {
    group.iter().filter(|load| counts(load)).filter_map(|load| load.rate).collect()
}

fn merged(group: &[&SweepPoint], spread: Option<(f64, f64)>) -> SweepPoint {
    let counted: Vec<&&SweepPoint> = group.iter().filter(|load| counts(load)).collect();
    let rates = counted_rates(group);
    let rate = mean(&rates).map(|rate| significant(rate, 6));
    let of = |figure: fn(&SweepPoint) -> Option<f64>| {
        counted.iter().filter_map(|load| figure(load)).collect::<Vec<f64>>()
    };
    let middle = |figure| median(&of(figure));
    let by_spread = |(spread, freedom): (f64, f64)| {
        let half = rate? * t_95(freedom) * spread / (rates.len() as f64).sqrt();
        rate.map(|rate| [rate - half, rate + half].map(|end| significant(end, 6)))
    };
    let ci95 = spread.and_then(by_spread).or_else(|| match &counted[..] {
        [only] => only.ci95,
        _ => mean_ci95(&rates).map(|ends| ends.map(|end| significant(end, 6))),
    });
    let errors = of(|load| load.errors.map(|errors| errors as f64));
    SweepPoint {
        value: group[0].value,
        values: group[0].values.clone(),
        rate,
        ci95,
        p50_us: middle(|load| load.p50_us.map(|us| us as f64)).map(|us| us as u64),
        p99_us: middle(|load| load.p99_us.map(|us| us as f64)).map(|us| us as u64),
        errors: (!errors.is_empty()).then(|| errors.iter().sum::<f64>() as u64),
        memory_bytes: middle(|load| load.memory_bytes.map(|bytes| bytes as f64)).map(|bytes| bytes as u64),
        cpu_fraction: middle(|load| load.cpu_fraction),
        loads: group.iter().flat_map(|load| load.loads.clone()).collect(),
        missed: missed(&counted),
        failed: failed(group, counted.is_empty()),
        harm: group.iter().rev().find_map(|load| load.harm),
    }
}

/// The objective that more than half of the loads missed, or that was missed by one of two.
fn missed(counted: &[&&SweepPoint]) -> Option<String> {
    let all: Vec<&String> = counted.iter().filter_map(|load| load.missed.as_ref()).collect();
    all.first().filter(|_| 2 * all.len() >= counted.len()).map(|slo| (*slo).clone())
}

/// Why a point has no figure. A server that failed once at a value is none to be set to it.
fn failed(group: &[&SweepPoint], is_empty: bool) -> Option<String> {
    let last = group.iter().rev().find_map(|load| load.failed.clone());
    last.or_else(|| {
        let loads = || group.iter().flat_map(|load| &load.loads);
        let why = loads().rev().find_map(|load| load.discarded.clone()).filter(|_| is_empty)?;
        // The details stand in a note of the report.
        let short = why.split(": ").next().unwrap_or_default();
        Some(format!("none of {} loads counts: {short}", loads().count()))
    })
}
