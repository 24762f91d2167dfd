//! A table of tracked connections that is smaller than what may come.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::config_check::{ConfigFinding, Severity, config_finding, remedy, whole_number};
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::Remedy;
use webdyno_model::setting::SettingId;

/// A table of tracked connections that one client address alone can fill.
pub(crate) fn smaller_than_port_range(facts: &Facts) -> Option<ConfigFinding> {
    let pairs = [
        (FactId::ahead_tracked_service_limit, FactId::ahead_tracked_service_max),
        (FactId::ahead_tracked_limit, FactId::ahead_tracked_max),
    ];
    let known = |(limit, used)| Some((facts.value(limit)?, facts.value(used)?, limit, used));
    let (limit, used, name, used_name) = pairs.into_iter().find_map(known)?;
    let ports = facts.value(FactId::ahead_ports_available)?;
    // Without a firewall nothing is tracked, and the limit limits nothing.
    (used > 0.0 && limit < ports).then_some(())?;
    let per_s = limit / super::ceiling::LIVES_S;
    let summary = format!(
        "The conntrack table has {} entries that live for 120 s: {} new connections/s fill it, and one client address alone may use {} ports.",
        format_number(limit),
        format_number(per_s),
        format_number(ports)
    );
    let remedy: Remedy = remedy(
        SettingId::sysctl("net.netfilter.nf_conntrack_max"),
        (Some(whole_number(limit)), whole_number(262_144.0)),
        ApplyClass::Live,
        (
            "2,184 new connections/s, as the TIME_WAIT table is sized for".into(),
            "about 300 bytes of kernel memory per entry in use",
        ),
    );
    let cited = facts.cite(&[name, used_name, FactId::ahead_ports_available]);
    Some(config_finding((Severity::Fails, 0.6), LimitId::ConntrackFull, summary, cited, remedy))
}
