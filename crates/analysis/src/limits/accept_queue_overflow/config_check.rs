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

/// ListenBacklog above net.core.somaxconn: listen(2) cuts it without a word.
pub(crate) fn capped_by_kernel(facts: &Facts) -> Option<ConfigFinding> {
    let service = apache(facts)?;
    let backlog = located(service, "ListenBacklog")?;
    let number = backlog.number()?;
    let allowed = facts
        .value(FactId::ahead_accept_queue_allowed)
        .or_else(|| facts.value(FactId::accept_queue_limit))?;
    (allowed < number).then_some(())?;
    let summary = format!(
        "ListenBacklog is {}, and the kernel cuts it to net.core.somaxconn, which is {}: so many connections may wait, and \
         the next ones are dropped.",
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
            "at least ListenBacklog; 4096 is the kernel's own value since Linux 5.4".into(),
            "Apache must be stopped and started: a reload keeps the listening socket with its old limit",
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
        "net.core.somaxconn was set to {}, and ListenBacklog is {}: the smaller one holds, so that raising the other one \
         changed nothing for this server.",
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
            "a longer queue is a longer wait when the workers are all busy",
        ),
    );
    Some(config_finding((Severity::Vain, 0.9), LimitId::AcceptQueueOverflow, summary, cited, remedy))
}
