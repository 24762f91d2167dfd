//! When `opcache-off` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::{memory_evidence, php_cost, php_fpm, setting_source};
use crate::wording::{format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Of PHP's processor time, what translating takes: applications were seen to need a half to two thirds less with the cache.
const TRANSLATING_FRACTION: f64 = 0.5;
/// Fires when the cache is off and PHP is what the processors do.
pub fn check(facts: &Facts) -> Option<Finding> {
    finding_in_pool(facts).or_else(|| finding_in_apache(facts))
}

/// Whether PHP runs in Apache's own workers, and keeps no translated scripts: they would share the memory for them.
fn finding_in_apache(facts: &Facts) -> Option<Finding> {
    let enabled = facts.service.as_ref()?.number("opcache.enable")?;
    let requested = facts.request_targets.is_empty()
        || facts.request_targets.iter().any(|target| may_be_php(&target.path));
    if enabled >= 1.0 || !requested || memory_evidence::is_proven(facts) {
        return None;
    }
    let work = php_cost::cost_of(facts, facts.value(FactId::service_cpu_cores)?)?;
    let each = work.each_us.map_or(String::new(), |us| format!(", {} per request", format_time(us)));
    Some(Finding {
        id: LimitId::OpcacheOff.into(),
        summary: format!(
            "OPcache is off in Apache's workers: PHP compiles its scripts for each request. They use {} cores{each}.",
            format_number(work.cores)
        ),
        confidence: 0.85,
        explains_fraction: Some(significant(work.share * TRANSLATING_FRACTION, 3)),
        facts: facts.cite(&fact_ids! {
            service_cpu_cores, cpu_per_request_us, cpu_busy_fraction, cores, in_flight_mean, rate,
            ended_per_s,
        }),
        remedies: vec![Remedy {
            setting: SettingId::of_service("apache", SETTING),
            from: Some(SettingValue::Integer(0)),
            to: Some(SettingValue::Integer(1)),
            class: ApplyClass::Reload,
            risk: "128 MB of memory for all workers together; changed scripts take effect opcache.revalidate_freq (2 s) later".into(),
            why: "compiled scripts stay in memory: the extension is loaded (`zend_extension=opcache`, a package of its own on most systems) and `opcache.enable = 1`, its default, in the php.ini of Apache's PHP (php -i does not show that one, phpinfo() in a page does), and a reload"
                .into(),
            predicted: None,
            together_with: vec![],
        }],
    })
}

/// Of a path without an ending, and of a folder, a program may make the answer.
fn may_be_php(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').is_none_or(|(_, ending)| ending.starts_with("ph")) || path.contains(".php/")
}

fn finding_in_pool(facts: &Facts) -> Option<Finding> {
    let (pool, reported) = pool_without(facts)?;
    let work = php_cost::php_cost(facts).filter(|_| !memory_evidence::is_proven(facts))?;
    let each = work.each_us.map_or(String::new(), |us| format!(", {} per request", format_time(us)));
    let mut cited = facts.cite_of(&[FactId::opcache_enabled], &pool);
    cited.extend(facts.cite(&fact_ids! {
        fpm_cpu_cores, cpu_busy_fraction, cores, in_flight_mean, rate, ended_per_s,
    }));
    Some(Finding {
        id: LimitId::OpcacheOff.into(),
        summary: format!(
            "OPcache is off in pool {pool}: PHP compiles its scripts for each request. It uses {} cores{each}.",
            format_number(work.cores)
        ),
        confidence: if reported { 0.9 } else { 0.8 },
        explains_fraction: Some(significant(work.share * TRANSLATING_FRACTION, 3)),
        facts: cited,
        remedies: vec![remedy(facts, &pool)],
    })
}

fn remedy(facts: &Facts, pool: &str) -> Remedy {
    let known = |setting: &str| setting_source::pool_setting_source(facts, pool, setting);
    let reload = php_fpm::reload_risk(facts, Some(pool));
    let memory = known("opcache.memory_consumption").map_or("128".to_owned(), |size| size.value.to_string());
    let observed = if known("opcache.validate_timestamps").is_some_and(|looks| looks.is_off()) {
        "changed scripts take effect after a reload only, as opcache.validate_timestamps is off".to_owned()
    } else {
        let freq = known("opcache.revalidate_freq").map_or("2".to_owned(), |freq| freq.value.to_string());
        format!("changed scripts take effect opcache.revalidate_freq ({freq} s) later")
    };
    let mut remedy = Remedy {
        setting: SettingId::of_service("php_fpm", SETTING),
        from: Some(SettingValue::Integer(0)),
        to: Some(SettingValue::Integer(1)),
        class: ApplyClass::Reload,
        risk: format!("{memory} MB of memory for all processes together; {observed}; {reload}"),
        why: "compiled scripts stay in memory, for all processes".into(),
        predicted: None,
        together_with: vec![],
    };
    let loaded = facts.backends("php_fpm").find(|service| !service.modules.is_empty());
    if loaded.is_some_and(|service| !service.modules.iter().any(|module| module.contains("OPcache"))) {
        // Without the extension its settings say nothing.
        let why = "the extension is not loaded; with it compiled scripts stay in memory, for all processes";
        return manual(SettingId::of_service("php_fpm", "zend_extension=opcache"), &remedy.risk, why);
    }
    if let Some(source) = known(SETTING) {
        setting_source::add_source(&mut remedy, &source);
    }
    remedy
}

const SETTING: &str = "opcache.enable";

/// The busiest pool, if its cache is off, and whether its own answer says so.
fn pool_without(facts: &Facts) -> Option<(String, bool)> {
    let off = |pool: &str| facts.value_of(FactId::opcache_enabled, pool).map(|enabled| enabled < 1.0);
    let off_by_setting =
        |pool: &str| setting_source::pool_setting_source(facts, pool, SETTING).map(|value| value.is_off());
    let pool = php_cost::busiest_pool(facts)?;
    match (off(&pool), off_by_setting(&pool)) {
        (Some(true), _) => Some((pool, true)),
        (None, Some(true)) => Some((pool, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool};
    use crate::resources::php_fpm::tests::add_fpm_backend;

    #[test]
    fn the_settings_alone_tell_it_and_where_it_is_written() {
        let with = |general: &[(&str, &str)], modules: &[&str]| {
            let load = [
                (FactId::fpm_cpu_cores, 1.8),
                (FactId::cpu_busy_fraction, 0.99),
                (FactId::cores, 2.0),
                (FactId::rate, 50.0),
            ];
            let mut facts = facts(&load, &[]);
            of_pool(&mut facts, "www", &[(FactId::fpm_queue_mean, 9.0)]);
            add_fpm_backend(&mut facts, general, &[("www", "pm", "static")]);
            let modules = modules.iter().map(|name| (*name).to_owned()).collect();
            facts.topology.as_mut().unwrap().backends[0].modules = modules;
            check(&facts)
        };
        let off = [
            ("opcache.enable", "Off"),
            ("opcache.memory_consumption", "64"),
            ("opcache.validate_timestamps", "0"),
        ];
        let finding = with(&off, &["Zend OPcache"]).unwrap();
        let remedy = &finding.remedies[0];
        assert_eq!((finding.confidence, remedy.from.clone()), (0.8, Some(SettingValue::Integer(0))));
        assert!(remedy.why.contains("it is set in /etc/php/fpm.conf:4"), "{}", remedy.why);
        for part in ["64 MB", "after a reload only"] {
            assert!(remedy.risk.contains(part), "{}", remedy.risk);
        }
        assert_eq!(with(&off, &["Core"]).unwrap().remedies[0].setting.name, "zend_extension=opcache");
        assert!(with(&[("opcache.enable", "1")], &["Zend OPcache"]).is_none());
    }

    fn with(enabled: f64, cores: f64, busy: f64, in_flight: f64) -> Option<Finding> {
        let observed = [
            (FactId::fpm_cpu_cores, cores),
            (FactId::cpu_busy_fraction, busy),
            (FactId::cores, 2.0),
            (FactId::in_flight_mean, in_flight),
            (FactId::rate, 50.0),
        ];
        let mut facts = facts(&observed, &[]);
        of_pool(
            &mut facts,
            "www",
            &[(FactId::opcache_enabled, enabled), (FactId::fpm_processes_busy_mean, 9.0)],
        );
        check(&facts)
    }

    #[test]
    fn a_cache_that_is_off_counts_where_php_fills_the_processors() {
        let finding = with(0.0, 1.8, 0.99, 30.0).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.9, Some(0.455)));
        assert!(finding.summary.contains("1.8 cores, 36 ms per request"), "{}", finding.summary);
        // One request at a time, and it computes.
        assert!(with(0.0, 0.9, 0.5, 1.0).is_some());
    }

    #[test]
    fn a_quota_that_is_used_up_is_full() {
        let under = |quota: f64| {
            let observed = [
                (FactId::fpm_cpu_cores, 0.19),
                (FactId::cpu_busy_fraction, 0.12),
                (FactId::cores, 2.0),
                (FactId::in_flight_mean, 90.0),
                (FactId::throttled_fraction, 1.0),
                (FactId::cpu_quota_cores, quota),
                (FactId::group_cpu_cores, 0.2),
                (FactId::rate, 5.0),
            ];
            let mut facts = facts(&observed, &[]);
            of_pool(
                &mut facts,
                "www",
                &[(FactId::opcache_enabled, 0.0), (FactId::fpm_processes_busy_mean, 9.0)],
            );
            check(&facts).and_then(|finding| finding.explains_fraction)
        };
        assert_eq!([under(0.2), under(0.6)], [Some(0.475), None]);
    }

    #[test]
    fn in_apaches_workers_it_is_known_by_their_memory() {
        let of = |enabled: i64, rate: f64, path: &str| {
            let observed = [
                (FactId::service_cpu_cores, 1.8),
                (FactId::cpu_busy_fraction, 0.99),
                (FactId::cores, 2.0),
                (FactId::rate, rate),
            ];
            let mut facts = facts(&observed, &[]);
            let running = Some(SettingValue::Integer(enabled));
            let setting = webdyno_model::service::SettingInForce { running, ..Default::default() };
            facts.service.as_mut().unwrap().settings.insert("opcache.enable".into(), setting);
            facts.request_targets =
                vec![crate::settings::effective::RequestTarget { path: path.into(), ..Default::default() }];
            check(&facts).map(|finding| finding.confidence)
        };
        assert_eq!(of(0, 120.0, "/x.php"), Some(0.85));
        assert_eq!(of(0, 120.0, "/shop/"), Some(0.85));
        for (enabled, rate, path) in [(1, 120.0, "/x.php"), (0, 9000.0, "/x.php"), (0, 120.0, "/big.jpg")] {
            assert_eq!(of(enabled, rate, path), None, "{enabled} {rate} {path}");
        }
    }

    #[test]
    fn one_that_is_on_or_costs_nothing_does_not() {
        for (enabled, cores, busy, in_flight) in
            [(1.0, 1.8, 0.99, 30.0), (0.0, 0.3, 0.99, 30.0), (0.0, 0.2, 0.1, 20.0), (0.0, 0.04, 0.05, 0.05)]
        {
            assert!(with(enabled, cores, busy, in_flight).is_none(), "{enabled} {cores} {busy} {in_flight}");
        }
    }
}
