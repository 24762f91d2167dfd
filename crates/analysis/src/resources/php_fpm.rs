//! What it takes to change PHP-FPM: how a change takes effect, and what that costs the requests under way.
//!
//! Facts: <https://www.php.net/manual/en/install.fpm.configuration.php> (`process_control_timeout`, `process.max`, `pm`).

use crate::facts::{FactId, Facts};
use crate::resources::setting_source;
use crate::wording::format_number;
use webdyno_model::change::SettingChange;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// How long a reload shall wait for the requests under way: longer than nearly all pages take, and not so long that those who
/// come meanwhile, and wait for the new processes, give up.
const CONTROL_TIMEOUT: &str = "10s";
const CONTROL_TIMEOUT_SETTING: &str = "process_control_timeout";

/// A setting of PHP-FPM, of one pool where that is known.
pub(crate) fn setting_of(pool: Option<&str>, name: &str) -> SettingId {
    let setting = SettingId::of_service("php_fpm", name);
    pool.map_or(setting.clone(), |pool| setting.of_pool(pool))
}

/// What it costs when PHP-FPM takes a change over by a reload, as a part of a sentence for the pool that it is of.
pub(crate) fn reload_risk(facts: &Facts, pool: Option<&str>) -> String {
    let of_pool =
        pool.and_then(|pool| setting_source::pool_setting_source(facts, pool, CONTROL_TIMEOUT_SETTING));
    let known = of_pool.or_else(|| setting_source::of(facts, "php_fpm", CONTROL_TIMEOUT_SETTING));
    let busy = pool
        .and_then(|pool| facts.value_of(FactId::fpm_processes_busy_mean, pool))
        .filter(|busy| *busy >= 1.0);
    let busy = busy.map_or(String::new(), |busy| format!(" (about {} at a time)", format_number(busy)));
    match known {
        Some(timeout) if is_time(&timeout.value) => format!(
            "the reload waits up to {CONTROL_TIMEOUT_SETTING} = {} for requests in flight, and new ones wait meanwhile",
            timeout.value
        ),
        Some(timeout) => format!(
            "{CONTROL_TIMEOUT_SETTING} is 0 ({}), so a reload by hand ends requests in flight{busy}; `tune --apply` lets them finish first, and new ones wait meanwhile. With {CONTROL_TIMEOUT_SETTING} = {CONTROL_TIMEOUT} every reload waits for them",
            timeout.to_text()
        ),
        None => format!(
            "if {CONTROL_TIMEOUT_SETTING} is 0, its default, a reload by hand ends requests in flight{busy}; `tune --apply` lets them finish first, and new ones wait meanwhile"
        ),
    }
}

/// Whether a value as FPM writes times (`0`, `10`, `10s`, `1m`) is any time at all.
fn is_time(value: &SettingValue) -> bool {
    value.to_string().chars().any(|digit| ('1'..='9').contains(&digit))
}

/// What bounds the processes of all pools together.
pub(crate) const OF_ALL_SETTING: &str = "process.max";

fn most_of_all(facts: &Facts, pool: &str) -> Option<f64> {
    let set = setting_source::pool_setting_source(facts, pool, OF_ALL_SETTING)?;
    set.number().filter(|most| *most >= 1.0)
}

/// How many processes all pools together may have, where so many run: no pool gets another one then. Pools of other sites are only
/// counted with the whole program, of which one process leads the others.
pub(crate) fn reached_bound_of_all(facts: &Facts, pool: &str) -> Option<f64> {
    let of_pools: f64 = facts.each(FactId::fpm_processes_max).map(|(_, processes)| processes).sum();
    let of_program = facts.value(FactId::fpm_program_processes).map_or(0.0, |all| all - 1.0);
    most_of_all(facts, pool).filter(|most| of_pools.max(of_program) >= *most)
}

/// The processes that all pools together may have must be raised, too, where a pool gets so many.
pub(crate) fn processes_of_all(facts: &Facts, pool: &str, to: f64) -> Option<SettingChange> {
    let most = most_of_all(facts, pool)?;
    let others = setting_source::pools(facts).into_iter().filter(|other| other != pool);
    let others = others
        .filter_map(|other| setting_source::pool_setting_source(facts, &other, "pm.max_children")?.number());
    let wanted = others.sum::<f64>() + to;
    (wanted > most).then(|| SettingChange {
        setting: SettingId::of_service("php_fpm", OF_ALL_SETTING),
        to: SettingValue::Integer(wanted as i64),
    })
}

/// PHP-FPM does not start a dynamic pool that has fewer processes than are to be idle (fpm_conf.c): these go down with them.
pub(crate) fn spare_to_lower(facts: &Facts, pool: &str, to: f64) -> Vec<SettingChange> {
    let of = |name: &str| setting_source::pool_setting_source(facts, pool, name);
    if of("pm").is_none_or(|mode| mode.value.to_string() != "dynamic") {
        return vec![];
    }
    let lowered = |name: &str| {
        of(name)?.number().filter(|now| *now > to)?;
        Some(SettingChange { setting: setting_of(Some(pool), name), to: SettingValue::Integer(to as i64) })
    };
    ["pm.start_servers", "pm.min_spare_servers", "pm.max_spare_servers"]
        .into_iter()
        .filter_map(lowered)
        .collect()
}

/// In so much of the samples all children are busy.
const FULL_FRACTION_MIN: f64 = 0.9;
/// So many requests fail that what is left of them hardly queues.
const FAILED_FRACTION_MIN: f64 = 0.05;

/// Whether all children of this pool are busy nearly all the time behind a front that has no connections or files left, and turns
/// requests away for it: the pool decides how many are answered, though hardly any gets as far as its queue.
pub(crate) fn is_full_behind_errors(facts: &Facts, pool: &str) -> bool {
    let turns_away =
        [FactId::nginx_open_files_messages, FactId::nginx_connections_messages, FactId::open_files_messages]
            .into_iter()
            .any(|name| facts.value(name).is_some_and(|times| times >= 1.0));
    turns_away
        && facts.value(FactId::failed_fraction).is_some_and(|failed| failed >= FAILED_FRACTION_MIN)
        && facts.value_of(FactId::fpm_full_fraction, pool).is_some_and(|full| full >= FULL_FRACTION_MIN)
}

/// Whether that is so of any pool.
pub(crate) fn is_any_full_behind_errors(facts: &Facts) -> bool {
    facts.each(FactId::fpm_full_fraction).any(|(pool, _)| is_full_behind_errors(facts, pool))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool};
    use webdyno_model::service::{Endpoint, ScopedSetting, ServiceSnapshot, SettingInForce, SettingScope};
    use webdyno_model::topology::Topology;

    /// PHP-FPM behind the service, with settings of all pools, and of the pools `www` and `api`.
    pub(crate) fn add_fpm_backend(facts: &mut Facts, general: &[(&str, &str)], pools: &[(&str, &str, &str)]) {
        let general = general.iter().map(|(name, value)| {
            let configured = Some(SettingValue::parse(value));
            let file = Some("/etc/php/fpm.conf".to_owned());
            (
                (*name).to_owned(),
                SettingInForce { configured, file, line: Some(4), ..SettingInForce::default() },
            )
        });
        let scoped = pools.iter().map(|(pool, name, value)| ScopedSetting {
            setting: (*name).into(),
            value: (*value).into(),
            scope: vec![SettingScope::Pool((*pool).to_owned())],
            file: Some(format!("/etc/php/{pool}.conf")),
            line: Some(12),
        });
        let service = ServiceSnapshot {
            service: "php_fpm".into(),
            settings: general.collect(),
            scoped: scoped.collect(),
            endpoints: vec![Endpoint { name: "www".into(), address: "unix:/run/x.sock".into(), path: None }],
            ..ServiceSnapshot::default()
        };
        facts.topology = Some(Topology { backends: vec![service], ..Topology::default() });
    }

    #[test]
    fn what_a_reload_costs_is_told() {
        let with = |timeout: Option<&str>| {
            let mut facts = facts(&[], &[]);
            of_pool(&mut facts, "www", &[(FactId::fpm_processes_busy_mean, 5.0)]);
            if let Some(timeout) = timeout {
                add_fpm_backend(
                    &mut facts,
                    &[("process_control_timeout", timeout)],
                    &[("www", "pm", "static")],
                );
            }
            reload_risk(&facts, Some("www"))
        };
        for (timeout, part) in [
            (Some("0"), "about 5 at a time"),
            (Some("0s"), "/etc/php/fpm.conf:4"),
            (Some("10s"), "waits up to process_control_timeout = 10s"),
            (Some("30"), "= 30"),
            (None, "its default"),
        ] {
            let risk = with(timeout);
            assert!(risk.contains(part), "{risk}");
        }
    }

    #[test]
    fn the_limit_of_all_pools_goes_along() {
        let pools = [("www", "pm.max_children", "5"), ("api", "pm.max_children", "20")];
        for (most, wanted) in [("0", None), ("80", None), ("30", Some(72))] {
            let mut facts = facts(&[], &[]);
            add_fpm_backend(&mut facts, &[("process.max", most)], &pools);
            let change = processes_of_all(&facts, "www", 52.0);
            assert_eq!(change.map(|change| change.to), wanted.map(SettingValue::Integer), "{most}");
        }
    }
}
