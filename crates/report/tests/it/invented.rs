//! Views with other figures and other strings than the samples have: every leaf of their JSON replaced.

use proptest::prelude::*;
use serde_json::Value;
use webdyno_session::view::{LoadView, Outcome, Series, View};

/// Strings that are words of a fixed set and not free text.
const FIXED: [&str; 12] = [
    "schema",
    "goal",
    "ok_status",
    "kind",
    "class",
    "cause",
    "verdict",
    "state",
    "v2",
    "ended_by",
    "resources",
    "order",
];
/// How a part was fetched; `by` may be a name elsewhere.
const FETCHED_BY: [&str; 3] = ["new_connection", "kept_connection", "cache"];
/// Whole numbers of few bits.
const SMALL: [&str; 11] = [
    "connections",
    "threads",
    "n",
    "cores",
    "port",
    "line",
    "pid",
    "Status",
    "status",
    "users",
    "connections_per_host",
];

/// What replaces the leaves.
pub struct Leaves<'a> {
    /// In place of each free text.
    pub text: Option<&'a str>,
    /// In place of whole numbers, in turn; at most an hour in microseconds.
    pub whole: &'a [u64],
    /// In place of decimals, in turn.
    pub decimals: &'a [f64],
}

/// The same view with other leaves.
pub fn replaced(view: &View, leaves: &Leaves<'_>) -> serde_json::Result<View> {
    let mut turn = 0;
    let mut view = view.clone();
    view.outcome = match &view.outcome {
        Outcome::Run(run) => Outcome::Run(other(run, leaves, &mut turn)?),
        Outcome::Diagnosis(diagnosis) => Outcome::Diagnosis(other(diagnosis, leaves, &mut turn)?),
        Outcome::Tune(tune) => Outcome::Tune(other(tune, leaves, &mut turn)?),
        Outcome::Capacity(found) => Outcome::Capacity(other(found, leaves, &mut turn)?),
        Outcome::Observation(observation) => Outcome::Observation(other(observation, leaves, &mut turn)?),
        Outcome::Sweep(sweep) => Outcome::Sweep(other(sweep, leaves, &mut turn)?),
        Outcome::Nothing => Outcome::Nothing,
    };
    for load in &mut view.loads {
        other_load(load, leaves, &mut turn)?;
    }
    for series in &mut view.series {
        other_series(series, leaves);
    }
    other_attempts(&mut view, leaves, &mut turn)?;
    view.service = other(&view.service, leaves, &mut turn)?;
    view.server = other(&view.server, leaves, &mut turn)?;
    if let Some(text) = leaves.text {
        view.command = text.into();
        view.started_at = text.into();
        view.webdyno_version = text.into();
        view.notes = vec![text.into()];
    }
    Ok(view)
}

fn other_load(load: &mut LoadView, leaves: &Leaves<'_>, turn: &mut usize) -> serde_json::Result<()> {
    load.report = other(&load.report, leaves, turn)?;
    load.intervals = other(&load.intervals, leaves, turn)?;
    if let Some(first) = leaves.decimals.first() {
        load.begins_s = *first;
        load.measured_from_s = leaves.decimals[leaves.decimals.len() - 1];
    }
    if !leaves.whole.is_empty() {
        let mut times = leaves.whole.to_vec();
        times.sort_unstable();
        let count = times.len() as f64;
        load.response_time_cumulative =
            times.into_iter().enumerate().map(|(index, us)| (us, (index + 1) as f64 / count)).collect();
    }
    Ok(())
}

fn other_attempts(view: &mut View, leaves: &Leaves<'_>, turn: &mut usize) -> serde_json::Result<()> {
    for attempt in &mut view.attempts {
        attempt.finding = other(&attempt.finding, leaves, turn)?;
        attempt.changes = other(&attempt.changes, leaves, turn)?;
        attempt.diff = leaves.text.map_or_else(|| attempt.diff.clone(), str::to_owned);
    }
    view.journal = other(&view.journal, leaves, turn)?;
    if let Some(text) = leaves.text {
        (view.operator, view.directory) = (Some(text.into()), Some(text.into()));
    }
    Ok(())
}

fn other_series(series: &mut Series, leaves: &Leaves<'_>) {
    if let Some(text) = leaves.text {
        series.name = text.into();
        series.unit = text.into();
    }
    for (point, value) in series.points.iter_mut().zip(leaves.decimals) {
        *point = (point.0, *value);
    }
}

fn other<T: serde::Serialize + serde::de::DeserializeOwned>(
    value: &T,
    leaves: &Leaves<'_>,
    turn: &mut usize,
) -> serde_json::Result<T> {
    let mut json = serde_json::to_value(value)?;
    walk("", &mut json, leaves, turn);
    serde_json::from_value(json)
}

fn walk(key: &str, value: &mut Value, leaves: &Leaves<'_>, turn: &mut usize) {
    match value {
        Value::Object(members) => members.iter_mut().for_each(|(key, value)| walk(key, value, leaves, turn)),
        Value::Array(items) => items.iter_mut().for_each(|item| walk(key, item, leaves, turn)),
        Value::String(text) if !FIXED.contains(&key) && !FETCHED_BY.contains(&text.as_str()) => {
            if let Some(other) = leaves.text {
                *text = other.to_owned();
            }
        }
        Value::Number(number) if number.is_u64() && !leaves.whole.is_empty() => {
            *turn += 1;
            let other = leaves.whole[*turn % leaves.whole.len()];
            *value = if SMALL.contains(&key) { other % 60_000 } else { other }.into();
        }
        Value::Number(number) if number.is_f64() && !leaves.decimals.is_empty() => {
            *turn += 1;
            // What is not finite cannot be in JSON; the reports are given such figures directly.
            let other = leaves.decimals[*turn % leaves.decimals.len()];
            *value = if other.is_finite() { other.into() } else { 0.0.into() };
        }
        _ => {}
    }
}

/// Whole numbers as measurements have them, 0 and the longest time included.
pub fn whole() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![Just(0), Just(3_600_000_000), 0..2000u64, 0..3_600_000_000u64], 1..40)
}

/// Decimals as measurements have them.
pub fn decimals() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop_oneof![Just(0.0), Just(-0.0), 0.0..1.0f64, 0.0..1e7f64, -10.0..10.0f64], 1..40)
}

/// Any decimals at all.
pub fn any_decimals() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(any_decimal(), 1..40)
}

/// Any decimal, also the three that `any::<f64>()` leaves out.
pub fn any_decimal() -> impl Strategy<Value = f64> {
    prop_oneof![6 => any::<f64>(), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(f64::NEG_INFINITY)]
}

/// Puts figures that are not finite where JSON cannot have them.
pub fn spoil(view: &mut View, figure: f64) {
    match &mut view.outcome {
        Outcome::Run(run) => (run.rate, run.elapsed_s) = (Some(figure), figure),
        Outcome::Diagnosis(diagnosis) => {
            diagnosis.time_breakdown_us.worker = Some(figure);
            diagnosis.findings.iter_mut().for_each(|finding| finding.confidence = figure);
            diagnosis.ceilings.iter_mut().for_each(|ceiling| ceiling.max = Some(figure));
        }
        Outcome::Tune(tune) => {
            (tune.improvement.ratio, tune.improvement.ci95) = (Some(figure), Some([figure, figure]));
            tune.best.rate = Some(figure);
            tune.rounds
                .iter_mut()
                .for_each(|round| (round.ratio, round.ci95) = (Some(figure), Some([figure; 2])));
        }
        Outcome::Sweep(sweep) => {
            sweep
                .points
                .iter_mut()
                .step_by(2)
                .for_each(|point| (point.rate, point.ci95) = (Some(figure), Some([figure; 2])));
            (sweep.plateau, sweep.choice) = (Some([figure; 2]), Some(figure));
            sweep
                .usl
                .iter_mut()
                .for_each(|law| (law.n_star, law.sigma, law.residual_sd) = (Some(figure), figure, figure));
        }
        Outcome::Capacity(found) => (found.rate, found.knee) = (Some(figure), Some(figure)),
        Outcome::Observation(_) | Outcome::Nothing => {}
    }
    for load in &mut view.loads {
        load.intervals.iter_mut().step_by(2).for_each(|interval| interval.rate = figure);
    }
}
