//! `opcache-off`: PHP translates its scripts anew for each request, and that fills the processors.
//!
//! PHP reads the text of each script, translates it, and runs it. OPcache keeps what was translated in memory that all
//! processes share. Without it a framework of a hundred files is translated for every page, which takes most of the
//! processor time that the page takes.
//!
//! ## How it is recognised
//! The pool's own answer (`opcache_get_status()`), or else its settings, say that OPcache is off, and PHP is what the
//! processors are full of, or what the requests under way compute.
//!
//! ## What to do
//! `opcache.enable = 1` in the configuration of PHP, and a reload. Where releases are to be seen at once,
//! `opcache.validate_timestamps` (the default) sees to that within `opcache.revalidate_freq` seconds.
//!
//! ## By hand
//! `php-fpm -i | grep opcache.enable`, `opcache_get_status()` from a page; `perf top` shows `zendparse` and `lex_scan`.

use super::{memory_exhausted, say, say_us};
use crate::facts::Facts;
use crate::work;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;

/// Stable id.
pub const ID: &str = "opcache-off";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] =
    &["cpu-saturated", "php-fpm-workers-exhausted", "apache-workers-exhausted", "accept-queue-overflow"];

/// From this share on the processors are full.
const BUSY_FRACTION_MIN: f64 = 0.85;
/// What part of the full processors, or of the requests under way, PHP must be to be what limits.
const SHARE_MIN: f64 = 0.4;
/// Of PHP's processor time, what translating takes: applications were seen to need a half to two thirds less with the cache.
const TRANSLATING_FRACTION: f64 = 0.5;
/// A request that takes less than this translates next to nothing: a script of some lines.
const CPU_PER_REQUEST_US_MIN: f64 = 1000.0;

/// Fires when the cache is off and PHP is what the processors do.
pub fn check(facts: &Facts) -> Option<Finding> {
    let (pool, told) = pool_without(facts)?;
    let work = php_work(facts).filter(|_| !memory_exhausted::is_proven(facts))?;
    let each = work.each_us.map_or(String::new(), |us| format!(", {} for each request", say_us(us)));
    let mut cited = facts.cite_of(&["opcache_enabled"], &pool);
    cited.extend(facts.cite(&[
        "fpm_cpu_cores",
        "cpu_busy_fraction",
        "cores",
        "in_flight_mean",
        "rate",
        "ended_per_s",
    ]));
    Some(Finding {
        id: ID.into(),
        summary: format!(
            "OPcache is off in pool {pool}: PHP translates its scripts anew for each request. It takes {} cores{each}.",
            say(work.cores)
        ),
        confidence: if told { 0.9 } else { 0.8 },
        explains_fraction: Some(significant(work.share * TRANSLATING_FRACTION, 3)),
        facts: cited,
        remedies: vec![Remedy {
            service: "php_fpm".into(),
            setting: "opcache.enable".into(),
            from: Some(SettingValue::Integer(0)),
            to: Some(SettingValue::Integer(1)),
            class: ApplyClass::Reload,
            risk: "128 MB of memory for all processes together; changed scripts are seen opcache.revalidate_freq (2 s) later; with process_control_timeout at 0, its default, a reload ends the requests that are under way: set it first".into(),
            why: "scripts that were translated once stay in memory, for all processes".into(),
            predicted: None,
            together_with: vec![],
        }],
    })
}

/// The busiest pool, if its cache is off, and whether its own answer says so.
fn pool_without(facts: &Facts) -> Option<(String, bool)> {
    let off = |pool: &str| facts.value_of("opcache_enabled", pool).map(|enabled| enabled < 1.0);
    let off_by_setting = |pool: &str| {
        let value = facts.pool_setting(pool, "opcache.enable")?.to_string();
        Some(["0", "off", "no", "false", ""].contains(&value.to_lowercase().as_str()))
    };
    let pool = super::opcache_full::busiest_pool(facts)?;
    match (off(&pool), off_by_setting(&pool)) {
        (Some(true), _) => Some((pool, true)),
        (None, Some(true)) => Some((pool, false)),
        _ => None,
    }
}

/// What PHP takes of the processors.
pub(super) struct Work {
    pub(super) cores: f64,
    /// Its part of the full processors, or of the requests under way.
    pub(super) share: f64,
    /// For each request.
    pub(super) each_us: Option<f64>,
}

/// The work of PHP, if it is what the processors are full of, or what requests do while they are under way.
pub(super) fn php_work(facts: &Facts) -> Option<Work> {
    let cores = facts.value("fpm_cpu_cores").filter(|cores| *cores > 0.0)?;
    let each_us = facts.ended_per_s().map(|rate| cores / rate * 1e6);
    if each_us.is_some_and(|us| us < CPU_PER_REQUEST_US_MIN) {
        return None;
    }
    let of_processors = work::share_of_full_processors(facts, cores, BUSY_FRACTION_MIN);
    let of_requests =
        || work::at_once(facts).filter(|count| *count >= 1.0).map(|count| (cores / count).min(1.0));
    let share = of_processors.or_else(of_requests).filter(|share| *share >= SHARE_MIN)?;
    Some(Work { cores, share, each_us })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool};

    fn with(enabled: f64, cores: f64, busy: f64, in_flight: f64) -> Option<Finding> {
        let seen = [
            ("fpm_cpu_cores", cores),
            ("cpu_busy_fraction", busy),
            ("cores", 2.0),
            ("in_flight_mean", in_flight),
            ("rate", 50.0),
        ];
        let mut facts = facts(&seen, &[]);
        of_pool(&mut facts, "www", &[("opcache_enabled", enabled), ("fpm_processes_busy_mean", 9.0)]);
        check(&facts)
    }

    #[test]
    fn a_cache_that_is_off_counts_where_php_fills_the_processors() {
        let finding = with(0.0, 1.8, 0.99, 30.0).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.9, Some(0.455)));
        assert!(finding.summary.contains("1.8 cores, 36 ms for each request"), "{}", finding.summary);
        // One request at a time, and it computes.
        assert!(with(0.0, 0.9, 0.5, 1.0).is_some());
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
