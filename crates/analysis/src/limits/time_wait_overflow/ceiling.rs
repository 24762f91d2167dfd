//! Sockets in TIME_WAIT: the end that closes first keeps one for 60 s. When the table is full the kernel ends them early,
//! which costs nothing by itself.

use crate::facts::{FactId, Facts};
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::utilisation::rate;

/// TCP_TIMEWAIT_LEN.
const LIVES_S: f64 = 60.0;
const FULL_FRACTION: f64 = 0.95;

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let (now, max) = (facts.value(FactId::ahead_time_wait_max)?, facts.value(FactId::ahead_time_wait_limit)?);
    let grows = facts.value(FactId::ahead_time_wait_rise_per_s).filter(|_| now < FULL_FRACTION * max);
    // What has been the same for longer than a socket lives was filled at the same rate.
    let each = grows.filter(|rise| *rise > 0.0).zip(rate(facts)).map(|(rise, rate)| rise / rate);
    let binds_at_rate = each.map(|each| max / LIVES_S / each);
    let known = ResourceUsage { now: Some(now), max: Some(max), binds_at_rate, ..ResourceUsage::default() };
    known.table(Resource::TimeWait, "sockets in TIME_WAIT", "/proc/net/sockstat", None)
}
