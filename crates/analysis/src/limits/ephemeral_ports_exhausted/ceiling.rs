//! Local ports towards a backend: each closed connection holds one for 60 s. Not on the loopback, where the kernel gives
//! them anew.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::utilisation::rate;

/// TCP_TIMEWAIT_LEN.
const LIVES_S: f64 = 60.0;

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let max = facts.value(FactId::ahead_ports_available)?;
    let everywhere_reused = facts.value(FactId::ahead_ports_reuse_mode) == Some(1.0);
    let is_loopback = |remote: &str| remote.starts_with("127.") || remote.starts_with("[::1]");
    // Those in TIME_WAIT are among them.
    let used = facts.each(FactId::ahead_ports_used_max).filter(|(remote, _)| !is_loopback(remote));
    let (remote, now) = used.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let closes = facts.value_of(FactId::ahead_ports_time_wait_per_s, remote).filter(|closes| *closes > 0.0);
    let each = closes.filter(|_| !everywhere_reused).zip(rate(facts)).map(|(closes, rate)| closes / rate);
    let binds_at_rate = each.map(|each| max / LIVES_S / each);
    let known = ResourceUsage { now: Some(now), max: Some(max), binds_at_rate, ..ResourceUsage::default() };
    known.table(
        Resource::LocalPorts,
        &format!("local ports towards {remote}"),
        "sock_diag(7)",
        Some(LimitId::EphemeralPortsExhausted),
    )
}
