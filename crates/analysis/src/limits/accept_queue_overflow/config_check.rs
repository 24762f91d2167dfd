//! The accept queue: what Apache asks for, and what the kernel allows.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, LocatedSetting, Severity, all_located_settings, apache, config_finding, fact, located,
    located_in, remedy, whole_number,
};
use crate::wording::format_number;
use std::cmp::Ordering;
use webdyno_model::change::ApplyClass;
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

/// Queues shorter than this are named: half of the smallest that any kernel has by default. A browser opens six connections to a site, so
/// that ten visitors at once fill it, and a graceful reload of a server leaves it unread for some hundredths of a second.
const SHORT: f64 = 64.0;
/// The default of Apache, nginx and PHP-FPM: <https://httpd.apache.org/docs/2.4/mod/mpm_common.html#listenbacklog>,
/// <https://nginx.org/en/docs/http/ngx_http_core_module.html#listen>, and `listen.backlog` of php-fpm.conf.
const USUAL: f64 = 511.0;
/// Where a service says how long its queue may be.
const BACKLOGS: [(&str, &str); 3] =
    [("apache", "ListenBacklog"), ("nginx", "listen backlog"), ("php_fpm", "listen.backlog")];

/// A queue that a few connections at once overflow. Negative values leave it to the kernel.
pub(crate) fn short_queue(facts: &Facts) -> Option<ConfigFinding> {
    let backends = facts.topology.iter().flat_map(|topology| &topology.backends);
    let of_service = |service: &ServiceSnapshot| {
        let (name, setting) = BACKLOGS.into_iter().find(|(name, _)| service.service == *name)?;
        let all = match name {
            "nginx" => located_in(service, "listen", |_| true).into_iter().filter_map(with_length).collect(),
            _ => all_located_settings(service, setting),
        };
        let short =
            all.into_iter().filter(|one| one.number().is_some_and(|length| (0.0..SHORT).contains(&length)));
        let first = short.min_by(|a, b| a.number().partial_cmp(&b.number()).unwrap_or(Ordering::Equal))?;
        Some((name, setting, first))
    };
    let (service, setting, found) = facts.service.iter().chain(backends).find_map(of_service)?;
    let summary = format!(
        "{setting} of {service} is {}: that few connections may wait to be accepted; more that come at once are dropped, and tried again after 1 s.",
        found.with_location()
    );
    let class = if service == "nginx" { ApplyClass::Reload } else { ApplyClass::Restart };
    let remedy = remedy(
        SettingId::of_service(service, setting),
        (Some(found.value.clone()), whole_number(USUAL)),
        class,
        (
            "the default; net.core.somaxconn bounds it".into(),
            "a longer queue means longer waits while all workers are busy",
        ),
    );
    let cited = fact(setting, "connections", &found).into_iter().collect();
    Some(config_finding((Severity::Fails, 0.8), LimitId::AcceptQueueOverflow, summary, cited, remedy))
}

/// A `listen` of nginx with its length as the value: `4` of `80 backlog=4`.
fn with_length(mut listen: LocatedSetting) -> Option<LocatedSetting> {
    let text = listen.value.to_string();
    let length = text.split_ascii_whitespace().find_map(|word| word.strip_prefix("backlog="))?;
    listen.value = SettingValue::parse(length);
    Some(listen)
}

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
    // A queue that is too short for anything is what is to be said.
    (allowed > number && number >= SHORT && !DEFAULTS.contains(&allowed)).then_some(())?;
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
