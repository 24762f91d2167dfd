//! What a curve amounts to: the choice, the plateau, the peak by the law, and how sure that is.

pub(crate) mod study;

use crate::human::{UNKNOWN, bytes, count, number, percent, rate, rate_interval, rate_or_unknown, time};
use crate::plain::shorten_middle;
use webdyno_model::objective::Objective;
use webdyno_model::sweep::{KnobValue, ScalingLaw, SweepPoint, SweepReport};

/// Longer names and words are shortened in columns.
const NAME_MAX: usize = 24;

/// `MaxRequestWorkers: choose 150`.
pub(crate) fn headline(sweep: &SweepReport) -> String {
    let knob = &sweep.knob;
    if let Some(study) = &sweep.study {
        return study::headline(sweep, study);
    }
    let unsure = sweep.unsure.as_ref().map_or(String::new(), |why| format!(" (not sure: {why})"));
    match (sweep.choice, &sweep.best) {
        (Some(choice), _) => format!("{knob}: choose {}{unsure}", value_label(sweep, choice)),
        (None, Some(best)) => {
            let all = sweep.knobs.iter().map(|knob| knob.name.as_str()).zip(best);
            let named: Vec<String> =
                all.map(|(name, value)| format!("{name} {}", knob_value(sweep, name, value))).collect();
            format!("Best: {}{unsure}", named.join(", "))
        }
        (None, None) if misses_everywhere(sweep) => {
            let held: Vec<&str> = sweep.objectives.iter().map(Objective::text).collect();
            format!("{knob}: no choice, no point meets {}", held.join(" and "))
        }
        (None, None) => format!("{knob}: no choice, the points cannot tell"),
    }
}

/// Whether there are figures, and all of them miss an objective.
fn misses_everywhere(sweep: &SweepReport) -> bool {
    let mut rated = sweep.points.iter().filter(|point| point.rate.is_some()).peekable();
    rated.peek().is_some() && rated.all(|point| point.missed.is_some())
}

/// Why that is the choice, and how sure it is; where there is no law, why there is none.
pub(crate) fn why(sweep: &SweepReport) -> Vec<String> {
    if let Some(study) = &sweep.study {
        return study::findings(sweep, study);
    }
    let plateau = sweep.plateau.map(|[low, high]| {
        let from_to = match low == high {
            true => format!("only at {}", value_label(sweep, low)),
            false => format!("from {} to {}", ends_label(sweep, low), ends_label(sweep, high)),
        };
        let smallest = if low == high {
            ""
        } else {
            "; the smallest of these values takes least memory for the same rate"
        };
        match is_within_noise(sweep, [low, high]) {
            true => format!("No value {from_to} is proven better than another (the plateau){smallest}."),
            false => format!("Within 1% of the peak {from_to} (the plateau){smallest}."),
        }
    });
    let law = sweep.usl.as_ref().map(|law| law_sentence(sweep, law));
    plateau
        .into_iter()
        .chain(law)
        .chain(sweep.notes.first().filter(|_| sweep.usl.is_none()).cloned())
        .collect()
}

/// Whether values belong to the plateau that have less than 99% of the peak: by their intervals alone.
fn is_within_noise(sweep: &SweepReport, [low, high]: [f64; 2]) -> bool {
    let within =
        sweep.points.iter().filter(|point| point.value.is_some_and(|value| (low..=high).contains(&value)));
    let rates: Vec<f64> = within.filter_map(|point| point.rate).collect();
    let peak = rates.iter().copied().fold(0.0, f64::max);
    sweep.usl.is_none() && rates.iter().any(|rate| *rate < 0.99 * peak)
}

/// The notes that [`why`] has not told.
pub(crate) fn other_notes(sweep: &SweepReport) -> &[String] {
    if sweep.usl.is_some() || sweep.study.is_some() {
        &sweep.notes
    } else {
        sweep.notes.get(1..).unwrap_or_default()
    }
}

fn law_sentence(sweep: &SweepReport, law: &ScalingLaw) -> String {
    let interval = |ci95: Option<[f64; 2]>, show: &dyn Fn([f64; 2]) -> String| {
        ci95.map_or_else(String::new, |ci95| format!(" (95% interval {})", show(ci95)))
    };
    let peak = law.peak_rate.map_or(UNKNOWN.into(), rate);
    let place = law.n_star.map_or(UNKNOWN.into(), |n_star| ends_label(sweep, n_star));
    format!(
        "Peak {peak}{} at {place}{}, by the universal scalability law: contention {}, coherency {}; the points lie {} off it \
         (standard deviation). It holds up to {}.",
        interval(law.peak_rate_ci95, &rate_interval),
        interval(law.n_star_ci95, &|ends| format!(
            "{} to {}",
            ends_label(sweep, ends[0]),
            ends_label(sweep, ends[1])
        )),
        number(law.sigma),
        number(law.kappa),
        percent(law.residual_sd / law.peak_rate.unwrap_or(f64::NAN)),
        value_label(sweep, law.valid_to),
    )
}

/// A value that was fitted, not set: whole from 10 on.
fn ends_label(sweep: &SweepReport, value: f64) -> String {
    value_label(sweep, if value >= 10.0 { value.round() } else { value })
}

/// A value of the first knob.
pub(crate) fn value_label(sweep: &SweepReport, value: f64) -> String {
    match sweep.knobs.first().and_then(|knob| knob.unit.as_deref()) {
        Some("B") => bytes(value),
        _ => number(value),
    }
}

/// The values of a point, of all knobs.
pub(crate) fn values_label(sweep: &SweepReport, point: &SweepPoint) -> String {
    let named = sweep.knobs.iter().map(|knob| knob.name.as_str()).zip(&point.values);
    let values: Vec<String> = named.map(|(name, value)| knob_value(sweep, name, value)).collect();
    match (values.is_empty(), point.value) {
        (false, _) if sweep.study.is_some() => values.join(", "),
        (false, _) => shorten_middle(&values.join(", "), NAME_MAX),
        (true, Some(value)) => value_label(sweep, value),
        (true, None) => UNKNOWN.into(),
    }
}

pub(super) fn knob_value(sweep: &SweepReport, name: &str, value: &KnobValue) -> String {
    let is_bytes = sweep.knobs.iter().any(|knob| knob.name == name && knob.unit.as_deref() == Some("B"));
    match value {
        KnobValue::Number(value) if is_bytes && sweep.study.is_some() => study::size(*value),
        KnobValue::Number(value) if is_bytes => bytes(*value),
        KnobValue::Number(value) => number(*value),
        KnobValue::Word(word) => shorten_middle(word, NAME_MAX),
    }
}

/// The points, a row each, the first one with the titles; columns that none of them has are left out.
pub(crate) fn points_table(sweep: &SweepReport) -> Vec<Vec<String>> {
    let has = |of: fn(&SweepPoint) -> bool| sweep.points.iter().any(of);
    let columns = [
        (true, shorten_middle(&sweep.knob, NAME_MAX)),
        (true, "req/s".into()),
        (has(|point| point.ci95.is_some()), "95% interval".into()),
        (has(|point| point.p99_us.is_some()), "p99".into()),
        (has(|point| point.errors.is_some_and(|errors| errors > 0)), "failed".into()),
        (has(|point| point.memory_bytes.is_some()), "memory".into()),
        (true, String::new()),
    ];
    let kept = |cells: [String; 7]| {
        let cells = cells.into_iter().zip(&columns);
        cells.filter(|(_, (is_kept, _))| *is_kept).map(|(cell, _)| cell).collect::<Vec<_>>()
    };
    let row = |point: &SweepPoint| {
        let unknown = || UNKNOWN.to_owned();
        kept([
            values_label(sweep, point),
            rate_or_unknown(point.rate),
            point.ci95.map_or_else(unknown, rate_interval),
            time(point.p99_us),
            point.errors.map_or_else(unknown, count),
            point.memory_bytes.map_or_else(unknown, |memory| bytes(memory as f64)),
            remark(sweep, point),
        ])
    };
    let titles = kept(std::array::from_fn(|at| columns[at].1.clone()));
    std::iter::once(titles).chain(sweep.points.iter().map(row)).collect()
}

fn remark(sweep: &SweepReport, point: &SweepPoint) -> String {
    if let Some(why) = &point.failed {
        return why.clone();
    }
    let is_in = |value: f64| sweep.plateau.is_some_and(|[low, high]| (low..=high).contains(&value));
    let discarded = point.loads.iter().filter(|load| load.discarded.is_some()).count();
    let mut remarks = Vec::new();
    match point.value {
        Some(value) if sweep.choice == Some(value) => remarks.push("choice".to_owned()),
        Some(value) if is_in(value) && point.missed.is_none() => remarks.push("plateau".into()),
        _ if sweep.best.as_ref() == Some(&point.values) => remarks.push("best".into()),
        _ => {}
    }
    if let Some(slo) = &point.missed {
        remarks.push(format!("misses {slo}"));
    }
    if discarded > 0 {
        remarks.push(format!("{discarded} of {} loads discarded", point.loads.len()));
    }
    remarks.join(", ")
}
