//! What was measured for objectives, and what of it chance decided.

use super::percentiles::MARK;
use crate::human::{count, number, quantity};
use webdyno_model::distribution::PercentileNeed;
use webdyno_model::objective::Objective;
use webdyno_model::run::ObjectiveResult;
use webdyno_model::run::RunReport;

/// What was measured for an objective, in the unit of its figure, with a mark where chance decided.
pub(crate) fn objective_value(result: &ObjectiveResult) -> String {
    let Some(value) = result.value else { return "not measured".into() };
    let unit = Objective::parse(&result.slo).map(|objective| objective.figure().unit());
    let reported = unit.map_or_else(|_| number(value), |unit| quantity(value, unit));
    let in_flight = match result.in_flight_beyond {
        0 => String::new(),
        more => format!(", and {} in flight beyond it", count(more)),
    };
    reported + if result.unsupported { MARK } else { "" } + &in_flight
}

/// What the mark at objectives means; `None` when none has it.
pub(crate) fn objectives_too_short(run: &RunReport) -> Option<String> {
    run.objectives.iter().any(|objective| objective.unsupported).then(|| {
        format!(
            "{MARK}: the run is too short for this percentile (fewer than {} samples lie beyond it, or all in fewer than \
             {} seconds): whether the objective is met may be chance.",
            PercentileNeed::BEYOND_MIN,
            PercentileNeed::SECONDS_MIN
        )
    })
}
