//! The tuning target: what a tuning session needs of a server. Implemented by the live target (engine and agent) and by the
//! simulated one, so that whole sessions can be tested in milliseconds.

use webdyno_analysis::measurement::Measurement;
use webdyno_model::Result;
use webdyno_model::change::{Preparation, RenderedPlan, SettingChange};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::event::EventBody;
use webdyno_model::purpose::Purpose;
use webdyno_model::tune::Round;

/// A load that was made and observed.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadMeasurement {
    /// Its number in the log.
    pub load: u32,
    /// What was seen.
    pub measurement: Measurement,
}

/// A change that is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedChange {
    /// Names the state before it, for [`TuningTarget::revert`].
    pub mark: u64,
    /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
    pub outage_us: Option<u64>,
}

/// A server that is tuned.
pub trait TuningTarget {
    /// Loads the server until the rate has settled and enough of it was measured.
    fn measure(&mut self, purpose: Purpose) -> Result<LoadMeasurement>;
    /// After a first load that had to be stopped: the same at half of it, and so on, until one does no harm. The session goes on
    /// with that load. Gives back the last one where there is no less.
    fn measure_lower(&mut self, stopped: LoadMeasurement) -> Result<LoadMeasurement> {
        Ok(stopped)
    }
    /// Measures a change. The load may end as soon as it is clear that it is worse than the best so far.
    fn verify(&mut self, best: &Measurement) -> Result<LoadMeasurement> {
        let _ = best;
        self.measure(Purpose::Verify)
    }
    /// Whether others use the server, as far as it is known; true also when that cannot be told.
    fn has_live_traffic(&self) -> bool {
        false
    }
    /// Lets the target of these changes render them, or say why it cannot. Writes nothing on the server.
    fn prepare(&mut self, changes: &[SettingChange]) -> Result<Preparation>;
    /// Makes a plan take effect. When it fails, nothing of it stays; `None` when the operator declined it.
    fn apply(&mut self, plan: &RenderedPlan, allow_restart: bool) -> Result<Option<AppliedChange>>;
    /// The same of a plan that was in force already, as somebody agreed to.
    fn apply_again(&mut self, plan: &RenderedPlan, allow_restart: bool) -> Result<Option<AppliedChange>> {
        self.apply(plan, allow_restart)
    }
    /// Whether what failed last failed because an agent was lost: no other remedy would fare better.
    fn has_lost_agent(&self) -> bool {
        false
    }
    /// Puts everything back to the state before the change that answered this mark; 0 is the state at the start.
    fn revert(&mut self, mark: u64) -> Result<()>;
    /// All changes in force are verified: they stay.
    fn keep(&mut self) -> Result<()>;
    /// Keeps a plan for people who want it as files: one that was only planned, proposed, or kept.
    fn export(&mut self, plan: &RenderedPlan, round: &Round) {
        let _ = (plan, round);
    }
    /// Keeps what only a person can do for those who want it as files.
    fn propose(&mut self, finding: &Finding, remedy: &Remedy) {
        let _ = (finding, remedy);
    }
    /// Writes an event to the log.
    fn record(&mut self, body: EventBody) -> Result<()>;
    /// Microseconds since the session began.
    fn elapsed_us(&self) -> u64;
}
