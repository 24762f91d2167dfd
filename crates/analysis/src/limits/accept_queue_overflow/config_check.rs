//! The accept queue: what Apache asks for, and what the kernel allows.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, Severity, apache, config_finding, fact, located, remedy, whole_number,
};
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::setting::SettingId;

/// The kernel's own value since Linux 5.4, and before.
const DEFAULTS: [f64; 2] = [4096.0, 128.0];

/// ListenBacklog above net.core.somaxconn: listen(2) caps it silently.
pub(crate) fn capped_by_kernel(facts: &Facts) -> Option<ConfigFinding> {
    let service = apache(facts)?;
    let backlog = located(service, "ListenBacklog")?;
    let number = backlog.number()?;
    let allowed = facts
        .value(FactId::ahead_accept_queue_allowed)
        .or_else(|| facts.value(FactId::accept_queue_limit))?;
    (allowed < number).then_some(())?;
    let summary = format!(
        "ListenBacklog is {}, but net.core.somaxconn caps it at {}: connections beyond that are dropped.",
        backlog.with_location(),
        format_number(allowed)
    );
    let mut cited: Vec<_> = fact("ListenBacklog", "connections", &backlog).into_iter().collect();
    cited.extend(facts.cite(&[FactId::ahead_accept_queue_allowed, FactId::accept_queue_limit]));
    let remedy = remedy(
        SettingId::sysctl("net.core.somaxconn"),
        (Some(whole_number(allowed)), whole_number(number.max(DEFAULTS[0]))),
        ApplyClass::Restart,
        (
            "at least ListenBacklog; 4096 is the kernel default since Linux 5.4".into(),
            "needs an Apache restart: a reload keeps the listening socket and its old limit",
        ),
    );
    Some(config_finding((Severity::Fails, 0.9), LimitId::AcceptQueueOverflow, summary, cited, remedy))
}

/// net.core.somaxconn was raised, and ListenBacklog stayed below.
pub(crate) fn ineffective_somaxconn(facts: &Facts) -> Option<ConfigFinding> {
    let service = apache(facts)?;
    let backlog = located(service, "ListenBacklog")?;
    let number = backlog.number()?;
    let allowed = facts.value(FactId::ahead_accept_queue_allowed)?;
    (allowed > number && !DEFAULTS.contains(&allowed)).then_some(())?;
    let summary = format!(
        "net.core.somaxconn is {}, but ListenBacklog is {}: the smaller value applies, so raising somaxconn had no effect here.",
        format_number(allowed),
        backlog.with_location()
    );
    let mut cited: Vec<_> = fact("ListenBacklog", "connections", &backlog).into_iter().collect();
    cited.extend(facts.cite(&[FactId::ahead_accept_queue_allowed]));
    let remedy = remedy(
        SettingId::of_service("apache", "ListenBacklog"),
        (Some(backlog.value), whole_number(allowed)),
        ApplyClass::Restart,
        (
            "as many as the kernel allows".into(),
            "a longer queue means longer waits while all workers are busy",
        ),
    );
    Some(config_finding((Severity::Vain, 0.9), LimitId::AcceptQueueOverflow, summary, cited, remedy))
}
