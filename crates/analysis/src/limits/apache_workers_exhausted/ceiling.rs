//! Workers of Apache, by Little's law: workers = rate x time that a request holds one.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::utilisation::combined_error;
use crate::resources::workers::{busy_workers, hold_time_us, workers_max};

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let max = workers_max(facts);
    let holds_us = hold_time_us(facts);
    let known = ResourceUsage {
        now: busy_workers(facts),
        max,
        binds_at_rate: max.zip(holds_us).map(|(max, us)| max * 1e6 / us),
        error: combined_error(&[
            facts.value(FactId::rate_ci95_fraction),
            facts.value(FactId::ahead_workers_busy_ci95_fraction),
        ]),
        ..ResourceUsage::default()
    };
    known.ceiling(Resource::Workers, "apache workers", "mod_status", Some(LimitId::ApacheWorkersExhausted))
}
