//! Loads that do not count: the machine's processors were used by others, or the load generator was the limit.

use crate::facts::{FactId, facts};
use crate::measurement::Measurement;
use webdyno_model::Result;
use webdyno_model::number::human::percent;
use webdyno_model::run::RunReport;

/// From this share of all processor time on, what the host took away bends a curve whose plateau is 1% wide.
const STEAL_FRACTION_MAX: f64 = 0.02;
/// From this share of the periods on, a quota is at work.
const THROTTLED_FRACTION_MAX: f64 = 0.10;

/// What such reasons begin with.
pub(super) const GENERATOR: &str = "the load generator was the limit";

/// Why a load does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discard {
    /// It never does: as words.
    Never(String),
    /// It does where it is so again at the same point, as then it is how the server is: a quota.
    Once(String),
}

/// Whether a load counts.
pub fn discard(measurement: &Measurement, run: &RunReport) -> Result<Option<Discard>> {
    let client = &run.client;
    if client.saturated || client.kernel_limit_total.is_some() || !client.valid_for.rate {
        let why = client.why.clone().unwrap_or_else(|| "its figures cannot be believed".into());
        return Ok(Some(Discard::Never(format!("{GENERATOR}: {why}"))));
    }
    let facts = facts(measurement, Some(run))?;
    let above = |fact: FactId, most: f64| facts.value(fact).filter(|share| *share >= most);
    let stolen = above(FactId::cpu_steal_fraction, STEAL_FRACTION_MAX)
        .map(|share| Discard::Never(format!("the host took {} of the processors away", percent(share))));
    let throttled = above(FactId::throttled_fraction, THROTTLED_FRACTION_MAX).map(|share| {
        Discard::Once(format!("a CPU quota throttled the service in {} of the periods", percent(share)))
    });
    Ok(stolen.or(throttled))
}
