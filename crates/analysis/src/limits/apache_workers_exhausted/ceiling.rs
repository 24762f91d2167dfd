//! Workers of Apache, by Little's law: workers = rate x time that a request holds one.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, Usage};
use crate::resources::utilisation::together;
use crate::resources::workers::{allowed, hold_time_us, taken};

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let max = allowed(facts);
    let holds_us = hold_time_us(facts);
    let known = Usage {
        now: taken(facts),
        max,
        binds_at_rate: max.zip(holds_us).map(|(max, us)| max * 1e6 / us),
        error: together(&[
            facts.value(FactId::rate_ci95_fraction),
            facts.value(FactId::ahead_workers_busy_ci95_fraction),
        ]),
        ..Usage::default()
    };
    known.ceiling(Resource::Workers, "apache workers", "mod_status", Some(LimitId::ApacheWorkersExhausted))
}
