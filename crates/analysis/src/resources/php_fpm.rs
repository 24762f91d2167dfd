//! What it takes to change PHP-FPM: how a change takes effect, and what that costs the requests under way.
//!
//! Facts: <https://www.php.net/manual/en/install.fpm.configuration.php> (`process_control_timeout`, `process.max`, `pm`).

use crate::facts::{FactId, Facts};
use crate::resources::setting_source;
use crate::wording::format_number;
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// How long a reload shall wait for the requests under way: longer than nearly all pages take, and not so long that those who
/// come meanwhile, and wait for the new processes, give up.
const CONTROL_TIMEOUT: &str = "10s";
const CONTROL_TIMEOUT_SETTING: &str = "process_control_timeout";

/// How a change takes effect.
pub(crate) struct ApplyMethod {
    /// A reload that ends requests is as bad as a restart, and is called one.
    pub class: ApplyClass,
    /// What it costs, as a part of a sentence.
    pub risk: String,
    /// What is to be set in the same go.
    pub together_with: Vec<SettingChange>,
}

/// How PHP-FPM takes a change over, in words for the pool that it is of.
pub(crate) fn apply_method(facts: &Facts, pool: Option<&str>) -> ApplyMethod {
    let of_pool =
        pool.and_then(|pool| setting_source::pool_setting_source(facts, pool, CONTROL_TIMEOUT_SETTING));
    let known = of_pool.or_else(|| setting_source::of(facts, "php_fpm", CONTROL_TIMEOUT_SETTING));
    let busy = pool
        .and_then(|pool| facts.value_of(FactId::fpm_processes_busy_mean, pool))
        .filter(|busy| *busy >= 1.0);
    let busy = busy.map_or(String::new(), |busy| format!(" (about {} at a time)", format_number(busy)));
    match known {
        Some(timeout) if is_time(&timeout.value) => ApplyMethod {
            class: ApplyClass::Reload,
            risk: format!(
                "the reload waits up to {CONTROL_TIMEOUT_SETTING} = {} for the requests under way, and new ones wait meanwhile",
                timeout.value
            ),
            together_with: vec![],
        },
        Some(timeout) => ApplyMethod {
            class: ApplyClass::Restart,
            risk: format!(
                "{CONTROL_TIMEOUT_SETTING} is 0 ({}), so that the reload that takes this over ends the requests under way{busy}: choose a quiet moment. With {CONTROL_TIMEOUT_SETTING} = {CONTROL_TIMEOUT} beside it, later reloads wait for them",
                timeout.to_text()
            ),
            together_with: vec![SettingChange {
                setting: SettingId::of_service("php_fpm", CONTROL_TIMEOUT_SETTING),
                to: SettingValue::Text(CONTROL_TIMEOUT.into()),
            }],
        },
        None => ApplyMethod {
            class: ApplyClass::Restart,
            risk: format!(
                "where {CONTROL_TIMEOUT_SETTING} is 0, its default, a reload ends the requests under way{busy}: choose a quiet moment"
            ),
            together_with: vec![],
        },
    }
}

/// Whether a value as FPM writes times (`0`, `10`, `10s`, `1m`) is any time at all.
fn is_time(value: &SettingValue) -> bool {
    value.to_string().chars().any(|digit| ('1'..='9').contains(&digit))
}

/// The processes that all pools together may have must be raised, too, where a pool gets so many.
pub(crate) fn processes_of_all(facts: &Facts, pool: &str, to: f64) -> Option<SettingChange> {
    const SETTING: &str = "process.max";
    let most =
        setting_source::pool_setting_source(facts, pool, SETTING)?.number().filter(|most| *most >= 1.0)?;
    let others = setting_source::pools(facts).into_iter().filter(|other| other != pool);
    let others = others
        .filter_map(|other| setting_source::pool_setting_source(facts, &other, "pm.max_children")?.number());
    let wanted = others.sum::<f64>() + to;
    (wanted > most).then(|| SettingChange {
        setting: SettingId::of_service("php_fpm", SETTING),
        to: SettingValue::Integer(wanted as i64),
    })
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
    fn a_reload_that_ends_requests_is_called_a_restart() {
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
            apply_method(&facts, Some("www"))
        };
        for (timeout, class, part, changes_count) in [
            (Some("0"), ApplyClass::Restart, "about 5 at a time", 1),
            (Some("0s"), ApplyClass::Restart, "/etc/php/fpm.conf:4", 1),
            (Some("10s"), ApplyClass::Reload, "waits up to process_control_timeout = 10s", 0),
            (Some("30"), ApplyClass::Reload, "= 30", 0),
            (None, ApplyClass::Restart, "its default", 0),
        ] {
            let takeover = with(timeout);
            assert_eq!((takeover.class, takeover.together_with.len()), (class, changes_count), "{timeout:?}");
            assert!(takeover.risk.contains(part), "{}", takeover.risk);
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
