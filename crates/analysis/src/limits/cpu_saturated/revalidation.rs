//! Where PHP asks the file system about each script of each request, as OPcache is told to look for changes every time.
//!
//! Facts: <https://www.php.net/manual/en/opcache.configuration.php>: with `opcache.revalidate_freq` 0 each script is looked at
//! for each request, with PHP's own 2 at most every two seconds; without `opcache.validate_timestamps` never, and a new version of
//! the site is in force only after a reload.

use crate::facts::{FactId, Facts};
use crate::limits::manual_remedy::manual;
use crate::resources::syscall_cost::scaled_to_machine_us;
use crate::resources::{php_cost, php_fpm, setting_source};
use crate::wording::{format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

const FREQUENCY: &str = "opcache.revalidate_freq";
const TIMESTAMPS: &str = "opcache.validate_timestamps";
/// PHP's own value, in seconds.
const FREQUENCY_WANTED: i64 = 2;
/// What stat(2) of a script takes at least, some folders deep.
const STAT_US: f64 = 0.5;
/// Below this share of PHP's work nothing would be seen of it.
const SHARE_MIN: f64 = 0.05;

/// Looks for changes less often, where that is some of what PHP computes; never, for a person to decide.
pub(super) fn remedies(facts: &Facts) -> Vec<Remedy> {
    needless_looks(facts).unwrap_or_default()
}

fn needless_looks(facts: &Facts) -> Option<Vec<Remedy>> {
    let pool = php_cost::busiest_pool(facts)?;
    let source = |name| setting_source::pool_setting_source(facts, &pool, name);
    let frequency = source(FREQUENCY).filter(|source| source.number() == Some(0.0))?;
    if source(TIMESTAMPS).is_some_and(|looks| looks.is_off()) {
        return None;
    }
    let work_us = php_cost::php_cost(facts)?.each_us?;
    let scripts = facts.value_of(FactId::opcache_hits_per_s, &pool)? / facts.ended_per_s()?;
    let looks_us = scripts * scaled_to_machine_us(facts, STAT_US);
    (looks_us >= SHARE_MIN * work_us).then_some(())?;
    let why = format!(
        "a request asks the file system about {} scripts, at least {} of the {} of CPU time that PHP takes for it",
        format_number(scripts),
        format_time(looks_us),
        format_time(work_us)
    );
    let setting = |name| SettingId::of_service("php_fpm", name);
    let risk = format!(
        "a changed script is noticed after {FREQUENCY_WANTED} s; {}",
        php_fpm::reload_risk(facts, Some(&pool))
    );
    let mut less_often = Remedy {
        to: Some(SettingValue::Integer(FREQUENCY_WANTED)),
        class: ApplyClass::Reload,
        ..manual(setting(FREQUENCY), &risk, &why)
    };
    setting_source::add_source(&mut less_often, &frequency);
    let never = Remedy {
        to: Some(SettingValue::Integer(0)),
        ..manual(
            setting(TIMESTAMPS),
            "a new version of the site takes a reload of PHP-FPM, which whoever deploys it must know",
            format!("{why}; without it, none"),
        )
    };
    Some(vec![less_often, never])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, with_changes};
    use crate::resources::php_fpm::tests::add_fpm_backend;

    #[test]
    fn scripts_that_are_looked_at_each_time_are_looked_at_less_often() {
        let base = [
            (FactId::fpm_cpu_cores, 1.9),
            (FactId::cores, 2.0),
            (FactId::cpu_busy_fraction, 0.98),
            (FactId::rate, 500.0),
        ];
        // 500 a second of 3.8 ms, and 600 scripts each.
        let with = |changes: &[(FactId, f64)], hits: f64, pool: &[(&str, &str, &str)]| {
            let mut facts = facts(&with_changes(&base, changes), &[]);
            of_pool(&mut facts, "www", &[(FactId::opcache_hits_per_s, hits), (FactId::fpm_queue_mean, 1.0)]);
            add_fpm_backend(&mut facts, &[("opcache.validate_timestamps", "1")], pool);
            remedies(&facts).iter().map(|one| (one.setting.name.clone(), one.class)).collect::<Vec<_>>()
        };
        let each_time = [("www", FREQUENCY, "0")];
        assert_eq!(
            with(&[], 300_000.0, &each_time),
            [(FREQUENCY.to_owned(), ApplyClass::Reload), (TIMESTAMPS.to_owned(), ApplyClass::Manual)]
        );
        for (changes, hits, pool) in [
            // PHP's own value costs nothing; nor do a few scripts, nor others where a page takes long.
            (&[][..], 300_000.0, &[("www", FREQUENCY, "2")][..]),
            (&[], 300_000.0, &[("www", "pm", "static")]),
            (&[], 10_000.0, &each_time),
            (&[(FactId::rate, 50.0)], 30_000.0, &each_time),
            (&[], 300_000.0, &[each_time[0], ("www", TIMESTAMPS, "0")]),
            (&[(FactId::fpm_cpu_cores, f64::NAN)], 300_000.0, &each_time),
        ] {
            assert_eq!(with(changes, hits, pool), [], "{changes:?} {hits} {pool:?}");
        }
    }
}
