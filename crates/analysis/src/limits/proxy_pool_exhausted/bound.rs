//! Bounds on the connections to a backend: as lines say them, what is in use, how many are needed, and the settings that allow them:
//! those of one backend, and of the others of its balancer.
//!
//! What is in flight at once (Little's law) and room for what chance gives one of several processes; no more than a process of Apache has threads, which bound it anyway, and no
//! more than the backend serves at once, where that is known: what it gets beyond that waits in its own queue.

use crate::facts::{FactId, Facts};
use crate::limits::app_workers_exhausted::full_application::{has_rule_of_its_own, processes_of_one_thread};
use crate::limits::manual_remedy::manual;
use crate::limits::php_fpm_workers_exhausted::ceiling::children_max;
use crate::resources::workers::HEADROOM;
use crate::settings::backends::{self, addresses};
use crate::wording::format_number;
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::Remedy;
use webdyno_model::number::significant;
use webdyno_model::service::{ScopedSetting, ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

/// A bound on the connections to a backend, as a line says it: `/app http://127.0.0.1:8000/app max=4`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bound<'a> {
    pub setting: &'a ScopedSetting,
    parameter: &'static str,
    /// As the line has it.
    pub address: String,
    pub max: f64,
}

impl<'a> Bound<'a> {
    /// What a setting bounds by this parameter.
    pub fn of(setting: &'a ScopedSetting, parameter: &'static str) -> Option<Self> {
        let mut words = setting.value.split_whitespace();
        let value = |word: &'a str| word.split_once('=').filter(|(name, _)| *name == parameter);
        let max = setting.value.split_whitespace().find_map(value)?.1.parse::<f64>().ok()?;
        let address = match setting.setting.as_str() {
            "server" => words.next().map(str::to_owned),
            _ => addresses(&setting.value).into_iter().map(|(address, _)| address).find(|at| !at.is_empty()),
        };
        (max >= 1.0).then_some(Self { setting, parameter, address: address?, max })
    }

    /// The bounds of the other backends between which requests are balanced.
    pub fn siblings(&self, service: &'a ServiceSnapshot) -> Vec<Self> {
        let is_balanced = ["BalancerMember", "server"].contains(&self.setting.setting.as_str());
        let all = service.scoped.iter().filter(|other| {
            is_balanced && other.setting == self.setting.setting && other.scope == self.setting.scope
        });
        let bounds = all.filter_map(|other| Self::of(other, self.parameter));
        bounds.filter(|other| other.address != self.address).collect()
    }

    fn change(&self, service: &str, to: f64) -> SettingChange {
        let name = format!("{} {}", self.setting.setting, self.parameter);
        let setting = SettingId::of_service(service, name).of_pool(&self.address);
        SettingChange { setting, to: SettingValue::Integer(to as i64) }
    }
}

/// What is needed of a bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need<'a> {
    /// Requests that are in flight at once.
    pub in_flight: f64,
    /// Processes that each may have so many connections.
    pub processes: f64,
    /// The most that a process has a use for.
    pub most: f64,
    pub why: &'a str,
}

/// As many as are needed, for all that requests are balanced between; by hand where the backend would have to serve more at once first.
pub(super) fn remedy(facts: &Facts, bound: &Bound<'_>, need: Need<'_>) -> Remedy {
    let service = facts.service.as_ref();
    let siblings = service.map_or(vec![], |service| bound.siblings(service));
    let all_max: f64 = bound.max + siblings.iter().map(|other| other.max).sum::<f64>();
    let wanted = wanted_of_each(need.in_flight, need.processes);
    let served = |address: &str| served_at_once(facts, address).map(|count| count / need.processes);
    let to = |one: &Bound<'_>| {
        let share = ((wanted / all_max).max(HEADROOM) * one.max).ceil();
        let share = share.min(served(&one.address).map_or(f64::INFINITY, f64::floor));
        share.clamp(one.max, need.most.max(one.max))
    };
    let program = service.map_or("apache", |service| &service.service);
    let SettingChange { setting, to: value } = bound.change(program, to(bound));
    let risk = "the backend gets more requests at once";
    if to(bound) <= bound.max {
        let why = format!(
            "{} serves {} requests at once, and may have as many connections: let it serve more first",
            bound.address,
            format_number(significant(served_at_once(facts, &bound.address).unwrap_or(bound.max), 3))
        );
        return manual(
            SettingId::external("backend", "requests at once"),
            "the backend needs more memory",
            why,
        );
    }
    let raised = siblings.iter().filter(|other| to(other) > other.max);
    Remedy {
        setting,
        from: Some(SettingValue::Integer(bound.max as i64)),
        to: Some(value),
        class: ApplyClass::Reload,
        risk: risk.into(),
        why: need.why.into(),
        predicted: None,
        together_with: raised.map(|other| other.change(program, to(other))).collect(),
    }
}

/// Requests fall to processes by chance: of a mean m the square root of m is the spread (Poisson), and more than three of it are rare.
const SPREADS: f64 = 3.0;

/// What each of so many processes needs of what is in flight.
fn wanted_of_each(in_flight: f64, processes: f64) -> f64 {
    let mean = in_flight / processes;
    let by_chance = if processes > 1.0 { (mean + SPREADS * mean.sqrt()).min(in_flight) } else { mean };
    (HEADROOM * mean).max(by_chance)
}

/// How many requests what listens there serves at once, where that is known: children of PHP-FPM, workers of an Apache, processes of
/// one thread.
fn served_at_once(facts: &Facts, address: &str) -> Option<f64> {
    let topology = facts.topology.as_ref()?;
    let (name, service) = backends::listening_at(topology, address)?;
    match service.service.as_str() {
        "php_fpm" => {
            let pool = service.endpoints.iter().find(|pool| pool.address == address)?;
            children_max(facts, &pool.name)
        }
        "apache" => service.number("MaxRequestWorkers"),
        _ if has_rule_of_its_own(facts, address) => None,
        _ => processes_of_one_thread(facts, &name),
    }
}

/// The connections to it.
pub(super) fn upstream<'a>(facts: &'a Facts, address: &str) -> Option<(&'a str, f64)> {
    facts.each(FactId::upstream_waiting_mean).find(|(at, _)| may_be(address, at))
}

/// Whether connections to `at` may be those that a line means: a name may be any address with that port, and without one it is HTTP's.
pub(super) fn may_be(address: &str, at: &str) -> bool {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "80"));
    let is_name = !host.starts_with('[') && host.parse::<core::net::IpAddr>().is_err();
    let parts = at.rsplit_once(':');
    at == address || parts.is_some_and(|(own, own_port)| own_port == port && (is_name || own == host))
}
