//! The capacity of a server: the highest load that meets the objectives.
//!
//! A ramp finds the first load that misses them, a bracketed search narrows it, and a longer look confirms it. Each load lasts only as
//! long as it takes to be sure ([`StepTest`], a sequential test). No step is more than [`GROWTH_MAX`] times as high as one that met the
//! objectives, so that none is more than one step beyond the knee.

mod chance;
mod knee;
mod report;
mod search;
mod share_test;
mod step_test;

pub use knee::{KneeStep, knee};
pub use report::{SearchEnd, capacity_report, lowest_missed};
pub use search::{
    GROWTH_MAX, NextStep, RESOLUTION, SearchOptions, StepKind, StepResult, StepSpec, next_step,
};
pub use share_test::ShareEvidence;
pub use step_test::{FALLS_BEHIND, StepOutcome, StepTest};

use webdyno_model::objective::{Figure, Objective};
use webdyno_model::{Result, UserError};

/// Without objectives, p99 may be so many times what a request takes alone, but at least so much.
const LONE_TIMES: f64 = 10.0;
const BOUND_US_MIN: f64 = 100_000.0;
/// Bounds of the first load.
const START_MIN: f64 = 0.5;
const START_MAX: f64 = 20.0;

/// What a server has to meet when nothing was named: responses that are not much slower than those to a lone request, and hardly
/// an error; of pages what visitors wait for. As texts that [`Objective::parse`] reads.
pub fn default_objectives(alone_us: Option<u64>, has_pages: bool) -> [String; 2] {
    let lone_us = alone_us.map_or(0.0, |us| us as f64 * LONE_TIMES);
    let bound_us = webdyno_model::number::significant(lone_us.max(BOUND_US_MIN), 2);
    let time = if has_pages { "page: p95<2s".into() } else { format!("p99<{}ms", bound_us / 1e3) };
    [time, "errors<1%".into()]
}

/// The first load, where none is given: a tenth of what one client reaches that sends one request after the other, and low enough for
/// a server whose limit lies far below that.
pub fn default_start(alone_us: Option<u64>) -> f64 {
    let lone_rate = alone_us.map_or(f64::MAX, |us| 1e6 / us.max(1) as f64);
    webdyno_model::number::significant((lone_rate / 10.0).clamp(START_MIN, START_MAX), 2)
}

/// What a server that answers one request after the other can be given: requests per second, or users who think so long.
pub fn lone_capacity(alone_us: Option<u64>, think_us: Option<f64>) -> Option<f64> {
    let alone_us = alone_us?.max(1) as f64;
    Some(think_us.map_or(1e6 / alone_us, |think_us| 1.0 + think_us / alone_us))
}

/// Refuses objectives that no load misses by being too high.
pub fn check_objective(objective: &Objective) -> Result<()> {
    let text = objective.text();
    if objective.figure() == Figure::Rate {
        return Err(UserError::usage(format!("`{text}` is of a rate, which is what capacity looks for"))
            .hint(
                "say what responses shall have, as in --slo 'p99<200ms'; the highest rate with that is found",
            ));
    }
    if !objective.is_upper_bound() {
        return Err(UserError::usage(format!("`{text}` is met by too much load, not missed"))
            .hint("give upper bounds, as in --slo 'p99<200ms' or --slo 'errors<0.1%'"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objective_of_nobody_is_ten_times_a_lone_request() {
        for (alone_us, has_pages, expected) in [
            (None, false, "p99<100ms"),
            (Some(300), false, "p99<100ms"),
            (Some(43_210), false, "p99<430ms"),
            (Some(43_210), true, "page: p95<2s"),
        ] {
            let objectives = default_objectives(alone_us, has_pages);
            assert_eq!(objectives, [expected, "errors<1%"]);
            assert!(objectives.iter().all(|text| check_objective(&Objective::parse(text).unwrap()).is_ok()));
        }
        assert_eq!(
            (lone_capacity(Some(5000), None), lone_capacity(Some(5000), Some(1e6))),
            (Some(200.0), Some(201.0))
        );
        assert_eq!([None, Some(50_000), Some(9_000_000)].map(default_start), [20.0, 2.0, 0.5]);
        for wrong in ["rate>500", "pages/s<5", "p99>1ms", "errors>1%"] {
            let reported = check_objective(&Objective::parse(wrong).unwrap()).unwrap_err();
            assert!(reported.exit_code() == 2 && reported.hint.is_some(), "{wrong}");
        }
    }
}
