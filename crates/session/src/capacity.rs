//! The search for the capacity of a server: steps until the highest load is known that meets the objectives, then what limits there.
//! Over a trait, so that whole searches run against a simulated server.

use webdyno_analysis::capacity::{
    NextStep, SearchEnd, SearchOptions, StepResult, StepSpec, capacity_report, lowest_missed, next_step,
};
use webdyno_model::capacity::{CapacityReport, LoadUnit};
use webdyno_model::diagnosis::Diagnosis;
use webdyno_model::environment::Environment;
use webdyno_model::event::EventBody;
use webdyno_model::objective::Objective;
use webdyno_model::{ErrorKind, Result};

/// A server whose capacity is looked for.
pub trait CapacityTarget {
    /// Offers a load until it is sure whether it meets the objectives; begins when the server has nothing left of the load before.
    fn offer(&mut self, step: StepSpec) -> Result<StepResult>;
    /// What limits at a load that misses the objectives; `None` where nobody observes the server.
    fn limit_at(&mut self, offered: f64) -> Result<Option<Diagnosis>>;
    /// The machine of the server, where it is observed.
    fn environment(&self) -> Option<Environment>;
    /// Writes an event to the log.
    fn record(&mut self, body: EventBody) -> Result<()>;
    /// Microseconds since the session began.
    fn elapsed_us(&self) -> u64;
}

/// Finds the capacity and records it. After an error in the middle, what was found until then is recorded before it is returned.
pub fn find_capacity(
    target: &mut impl CapacityTarget,
    options: &SearchOptions,
    unit: LoadUnit,
    objectives: &[Objective],
) -> Result<CapacityReport> {
    let began_us = target.elapsed_us();
    let mut steps: Vec<StepResult> = vec![];
    let ended = loop {
        let elapsed_s = target.elapsed_us().saturating_sub(began_us) as f64 / 1e6;
        match next_step(&steps, elapsed_s, options) {
            NextStep::Done(end) => break Ok(end),
            NextStep::Step(spec) => match target.offer(spec) {
                Ok(result) => steps.push(result),
                Err(error) => break Err(error),
            },
        }
    };
    if let (Err(error), true) = (&ended, steps.is_empty()) {
        return Err(error.clone());
    }
    let end = ended.as_ref().map_or_else(|error| SearchEnd::Failed(error.message.clone()), Clone::clone);
    let mut report = capacity_report(&steps, &end, unit, objectives);
    report.environment = target.environment();
    let mut ended = ended.map(|_| ());
    if let (true, Some(offered)) = (ended.is_ok(), lowest_missed(&steps)) {
        match target.limit_at(offered) {
            Ok(diagnosis) => name_limit(&mut report, diagnosis),
            Err(error) => {
                report.notes.push(format!("what limits could not be observed: {}", error.message));
                if error.kind == ErrorKind::Interrupted {
                    ended = Err(error);
                }
            }
        }
    }
    target.record(EventBody::CapacityEnd { report: Box::new(report.clone()) })?;
    ended.map(|()| report)
}

fn name_limit(report: &mut CapacityReport, diagnosis: Option<Diagnosis>) {
    let Some(diagnosis) = diagnosis else { return };
    report.bottleneck_summary = diagnosis.findings.first().map(|finding| finding.summary.clone());
    report.bottleneck = Some(diagnosis.bottleneck.to_string());
}
