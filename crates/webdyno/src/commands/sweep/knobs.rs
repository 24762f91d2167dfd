//! What a knob names: a quantity of the load, or a setting of one of the services that were found.

use crate::cli::sweep::KnobArg;
use crate::cli::usage::nearest;
use webdyno_load::workload::file::Settings;
use webdyno_model::service::{ServiceSnapshot, SettingScope, SettingValue};
use webdyno_model::setting::{SettingId, Target};
use webdyno_model::sweep::{CONTENT, Knob, KnobValue, PAGE_CACHE, STORE};
use webdyno_model::{Result, UserError};
use webdyno_session::sweep::{Companion, SettingKnob};

/// The folders of the kernel's settings.
const SYSCTL: [&str; 4] = ["net.", "vm.", "fs.", "kernel."];
/// Limits of the processes of a service, which no service lists.
const PROCESS_LIMITS: [&str; 4] = ["LimitNOFILE", "LimitNPROC", "TasksMax", "backlog"];
/// What else every service has, by the short names of the settings of its control group.
const RESOURCES: [&str; 2] = ["cpus", "memory"];
/// Quantities of the load.
const LOAD_KNOBS: [&str; 3] = ["users", "connections", "rate"];
const WORKERS: &str = "MaxRequestWorkers";

/// The axes of a study that are neither of a setting nor of a quantity of the load.
const STUDY_AXES: [&str; 3] = [CONTENT, STORE, PAGE_CACHE];

/// Whether a knob is of a setting of the server.
pub fn is_setting(name: &str) -> bool {
    LoadKnob::of(name).is_none() && !STUDY_AXES.contains(&name)
}

/// A quantity of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadKnob {
    Users,
    Connections,
    Rate,
}

impl LoadKnob {
    /// Of this name.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "users" => Some(Self::Users),
            "connections" => Some(Self::Connections),
            "rate" => Some(Self::Rate),
            _ => None,
        }
    }

    /// Gives a load this much of it.
    pub fn set(self, settings: &mut Settings, value: &KnobValue) -> Result<()> {
        let wrong = || {
            UserError::usage(format!("{self:?} takes numbers above 0").to_lowercase())
                .hint("as in --knob users=1..512")
        };
        let number = value.number().filter(|number| *number > 0.0 && *number <= 1e7).ok_or_else(wrong)?;
        let whole = (number.fract() == 0.0).then_some(number as u32);
        match self {
            Self::Users => settings.users = Some(whole.ok_or_else(wrong)?),
            Self::Connections => settings.connections = Some(whole.ok_or_else(wrong)?),
            Self::Rate => settings.rate_per_s = Some(number),
        }
        Ok(())
    }
}

/// A knob as outputs show it.
pub fn described(argument: &KnobArg, setting: Option<&SettingId>) -> Knob {
    let is_rate = LoadKnob::of(&argument.name) == Some(LoadKnob::Rate);
    let unit = if argument.is_bytes { Some("B") } else { is_rate.then_some("req/s") };
    Knob { name: argument.name.clone(), setting: setting.cloned(), unit: unit.map(str::to_owned) }
}

/// The setting of a name, with what has to go along, and the step that its values have.
pub fn setting_knob(name: &str, services: &[ServiceSnapshot]) -> Result<(SettingKnob, f64)> {
    let setting = setting(name, services)?;
    let owner = services.iter().find(|service| service.service == setting.target.name());
    let workers =
        owner.filter(|owner| owner.service == "apache" && setting.name.eq_ignore_ascii_case(WORKERS));
    let threads = workers.filter(|owner| owner.mode.as_deref() != Some("prefork"));
    let threads = threads.and_then(|owner| owner.number("ThreadsPerChild")).unwrap_or(1.0);
    let companion = workers.and_then(|owner| owner.number("ServerLimit")).map(|now| Companion {
        setting: SettingId::of_service("apache", "ServerLimit"),
        each: threads,
        now,
    });
    Ok((SettingKnob { setting, companion }, threads))
}

/// What a limit of a service is now, where the service tells it: as a number, and not as the list that is written for it.
pub fn running(setting: &SettingId, services: &[ServiceSnapshot]) -> Option<SettingValue> {
    let Target::ProcessLimit(name) = &setting.target else { return None };
    let owner = services.iter().find(|service| service.service == *name)?;
    owner.settings.get(&setting.name)?.running.clone()
}

/// Whether values of a setting may need a restart that the first plan does not show: a reload of prefork frees no places of workers.
pub fn needs_restart_downwards(setting: &SettingId, services: &[ServiceSnapshot]) -> bool {
    let is_prefork =
        |one: &ServiceSnapshot| one.service == "apache" && one.mode.as_deref() == Some("prefork");
    setting.name.eq_ignore_ascii_case(WORKERS) && services.iter().any(is_prefork)
}

fn setting(name: &str, services: &[ServiceSnapshot]) -> Result<SettingId> {
    if let Some(kernel) =
        name.strip_prefix("sysctl.").or(SYSCTL.iter().any(|root| name.starts_with(root)).then_some(name))
    {
        return Ok(SettingId::sysctl(kernel));
    }
    let prefixed =
        |service: &&ServiceSnapshot| name.strip_prefix(&format!("{}.", service.service)).map(str::to_owned);
    if let Some((service, rest)) = services.iter().find_map(|service| Some((service, prefixed(&service)?))) {
        return of_service(service, &rest).ok_or_else(|| unknown(&rest, std::slice::from_ref(service)));
    }
    let mut found: Vec<SettingId> = vec![];
    for id in services.iter().filter_map(|service| of_service(service, name)) {
        if !found.contains(&id) {
            found.push(id);
        }
    }
    match &found[..] {
        [only] => Ok(only.clone()),
        [] => Err(unknown(name, services)),
        several => {
            let named: Vec<String> =
                several.iter().map(|id| format!("{}.{}", id.target.name(), id.name)).collect();
            Err(UserError::usage(format!("{name} is a setting of {} services", several.len()))
                .hint(format!("say which one: {}", named.join(" or "))))
        }
    }
}

/// The setting of this name that a service has, with the name as the service writes it; `pool.setting` is that of a pool.
fn of_service(service: &ServiceSnapshot, name: &str) -> Option<SettingId> {
    let pools: Vec<&str> = service.scoped.iter().filter_map(pool).collect();
    let pool = pools.iter().find(|pool| name.strip_prefix(**pool).is_some_and(|rest| rest.starts_with('.')));
    let name = pool.map_or(name, |pool| &name[pool.len() + 1..]);
    let known = names(service).find(|known| known.eq_ignore_ascii_case(name))?;
    let id = SettingId::of_service_by_short_name(&service.service, known);
    Some(match pool {
        Some(pool) => id.of_pool(*pool),
        None => id,
    })
}

fn pool(setting: &webdyno_model::service::ScopedSetting) -> Option<&str> {
    setting.scope.iter().find_map(|scope| match scope {
        SettingScope::Pool(name) => Some(name.as_str()),
        _ => None,
    })
}

/// The names of its settings.
fn names(service: &ServiceSnapshot) -> impl Iterator<Item = &str> {
    let of_pools = service.scoped.iter().filter(|one| pool(one).is_some()).map(|one| one.setting.as_str());
    service.settings.keys().map(String::as_str).chain(of_pools).chain(PROCESS_LIMITS).chain(RESOURCES)
}

fn unknown(name: &str, services: &[ServiceSnapshot]) -> UserError {
    let programs: Vec<&str> = services.iter().map(|service| service.service.as_str()).collect();
    let near = nearest(name, services.iter().flat_map(names).chain(LOAD_KNOBS).chain(STUDY_AXES));
    UserError::usage(format!("no service that was found ({}) has a setting `{name}`", programs.join(", "))).hint(match near {
        Some(near) => format!("did you mean `{near}`? A setting of the kernel has its whole name, as net.core.somaxconn"),
        None => "`webdyno observe --once --port N -v` lists what was found; the load has users, connections and rate".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::service::{ScopedSetting, SettingInForce};

    fn service(name: &str, settings: &[(&str, i64)]) -> ServiceSnapshot {
        let in_force = |value: i64| SettingInForce {
            configured: Some(SettingValue::Integer(value)),
            ..SettingInForce::default()
        };
        ServiceSnapshot {
            service: name.into(),
            settings: settings.iter().map(|(name, value)| ((*name).to_owned(), in_force(*value))).collect(),
            ..ServiceSnapshot::default()
        }
    }

    fn found() -> Vec<ServiceSnapshot> {
        let apache =
            [("MaxRequestWorkers", 400), ("ServerLimit", 16), ("ThreadsPerChild", 25), ("KeepAlive", 1)];
        let scoped = ScopedSetting {
            setting: "pm.max_children".into(),
            scope: vec![SettingScope::Pool("www".into())],
            ..ScopedSetting::default()
        };
        let fpm = ServiceSnapshot { scoped: vec![scoped], ..service("php_fpm", &[("process.max", 0)]) };
        let event = ServiceSnapshot { mode: Some("event".into()), ..service("apache", &apache) };
        vec![
            event,
            fpm,
            service("mariadb", &[("max_connections", 151)]),
            service("nginx", &[("KeepAlive", 1)]),
        ]
    }

    #[test]
    fn settings_are_found_by_their_names() {
        for (name, expected) in [
            ("maxrequestworkers", "apache MaxRequestWorkers"),
            ("max_connections", "mariadb max_connections"),
            ("pm.max_children", "php_fpm pm.max_children"),
            ("php_fpm.www.pm.max_children", "php_fpm pm.max_children of pool www"),
            ("net.core.somaxconn", "sysctl net.core.somaxconn"),
            ("sysctl.vm.swappiness", "sysctl vm.swappiness"),
            ("apache.KeepAlive", "apache KeepAlive"),
            ("apache.LimitNOFILE", "apache LimitNOFILE"),
            ("apache.cpus", "apache AllowedCPUs"),
            ("mariadb.memory", "mariadb MemoryMax"),
        ] {
            assert_eq!(setting(name, &found()).unwrap().full_name(), expected, "{name}");
        }
        for (name, message, hint) in [
            ("KeepAlive", "is a setting of 2 services", "apache.KeepAlive or nginx.KeepAlive"),
            ("MaxRequestWorker", "has a setting `MaxRequestWorker`", "did you mean `MaxRequestWorkers`?"),
            ("mariadb.max_connection", "(mariadb)", "did you mean `max_connections`?"),
            ("user", "has a setting `user`", "did you mean `users`?"),
        ] {
            let error = setting(name, &found()).unwrap_err();
            assert!(error.message.contains(message), "{name}: {}", error.message);
            assert!(
                error.hint.as_deref().is_some_and(|text| text.contains(hint)),
                "{name}: {:?}",
                error.hint
            );
        }
    }

    #[test]
    fn workers_keep_to_whole_processes() {
        let (knob, step) = setting_knob("MaxRequestWorkers", &found()).unwrap();
        let companion = knob.companion.unwrap();
        assert_eq!((step, companion.each, companion.now), (25.0, 25.0, 16.0));
        assert_eq!(setting_knob("max_connections", &found()).unwrap().1, 1.0);
    }
}
