//! When `opcache-full` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::{memory_evidence, php_cost, php_fpm, setting_source};
use crate::wording::{format_bytes, format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Scripts missed for each request, without those that were added: each of several processes may translate a new one first.
const MISSES_PER_REQUEST_MIN: f64 = 0.5;
const MISSES_PER_ADDED: f64 = 5.0;
/// Of PHP's processor time, what translating takes when most of the scripts are not kept.
pub(super) const TRANSLATING_FRACTION: f64 = 0.5;
pub(super) const DEFAULT_BYTES: f64 = 128.0 * MEGABYTE;
pub(super) const MEGABYTE: f64 = 1024.0 * 1024.0;
const HEADROOM: f64 = 1.5;
/// OPcache keeps a fifth of its table of keys free, more or less: it takes the next prime number.
const KEYS_FULL_FRACTION: f64 = 0.98;

/// With so much of its memory free every script finds room.
const ROOM_FRACTION_MIN: f64 = 0.25;

/// Fires when scripts find no room and PHP is what the processors do.
pub fn check(facts: &Facts) -> Option<Finding> {
    let pool = php_cost::busiest_pool(facts)?;
    let of = |name: FactId| facts.value_of(name, &pool);
    if of(FactId::opcache_enabled).is_some_and(|enabled| enabled < 1.0) {
        return None;
    }
    let misses = misses_per_request(facts, &pool);
    let missed = misses.filter(|missed| *missed >= MISSES_PER_REQUEST_MIN && !has_room(facts, &pool));
    let restarts: f64 =
        [FactId::opcache_oom_restarts, FactId::opcache_hash_restarts].into_iter().filter_map(of).sum();
    let says_full = of(FactId::opcache_full).is_some_and(|full| full >= 1.0);
    // One that is full and has all that is asked for costs nothing.
    if missed.is_none() && restarts < 1.0 && (!says_full || misses.is_some()) {
        return None;
    }
    let work = php_cost::php_cost(facts).filter(|_| !memory_evidence::is_proven(facts))?;
    let how = match (missed, restarts >= 1.0) {
        (Some(missed), _) => {
            format!("{} scripts are compiled again for each request", format_number(missed))
        }
        (None, true) => format!("it restarted {} times in this window", format_number(restarts)),
        (None, false) => {
            format!(
                "it holds {} scripts and accepts no more",
                format_number(of(FactId::opcache_scripts).unwrap_or(0.0))
            )
        }
    };
    let each = work.each_us.map_or(String::new(), |us| format!(", {} per request", format_time(us)));
    let mut cited = facts.cite_of(OF_POOL, &pool);
    cited.extend(facts.cite(&fact_ids! {
        fpm_cpu_cores, cpu_busy_fraction, cores, rate, ended_per_s,
    }));
    Some(Finding {
        id: LimitId::OpcacheFull.into(),
        summary: format!(
            "OPcache is full in pool {pool}: {how}. PHP uses {} cores{each}.",
            format_number(work.cores)
        ),
        confidence: if missed.is_some() || restarts >= 1.0 { 0.92 } else { 0.8 },
        explains_fraction: Some(significant(work.share * TRANSLATING_FRACTION, 3)),
        facts: cited,
        remedies: vec![remedy(facts, &pool, missed)],
    })
}

const OF_POOL: &[FactId] = &fact_ids! {
    opcache_full, opcache_misses_per_s, opcache_misses, opcache_scripts, opcache_scripts_added, opcache_keys,
    opcache_keys_limit, opcache_memory_used_bytes, opcache_memory_free_bytes, opcache_memory_wasted_bytes,
    opcache_oom_restarts, opcache_hash_restarts,
};

/// Whether it has memory and keys for more: what it does not keep then are files that change all the time, or that it may not keep.
fn has_room(facts: &Facts, pool: &str) -> bool {
    let of = |name: FactId| facts.value_of(name, pool);
    let sizes = || {
        let free = of(FactId::opcache_memory_free_bytes)?;
        Some((free, free + of(FactId::opcache_memory_used_bytes)? + of(FactId::opcache_memory_wasted_bytes)?))
    };
    let keys = of(FactId::opcache_keys).zip(of(FactId::opcache_keys_limit));
    of(FactId::opcache_full).is_some_and(|full| full < 1.0)
        && sizes().is_some_and(|(free, size)| free >= ROOM_FRACTION_MIN * size)
        && keys.is_some_and(|(keys, limit)| keys < KEYS_FULL_FRACTION * limit)
}

/// Scripts that are translated for each request and not kept.
fn misses_per_request(facts: &Facts, pool: &str) -> Option<f64> {
    let of = |name: FactId| facts.value_of(name, pool);
    let misses = of(FactId::opcache_misses)?;
    let per_s = of(FactId::opcache_misses_per_s)?;
    let kept = MISSES_PER_ADDED * of(FactId::opcache_scripts_added).unwrap_or(0.0);
    let lasting = ((misses - kept) / misses.max(1.0)).max(0.0);
    Some(per_s * lasting / facts.ended_per_s().or(facts.value(FactId::server_requests_per_s))?)
}

fn remedy(facts: &Facts, pool: &str, missed: Option<f64>) -> Remedy {
    let of = |name: FactId| facts.value_of(name, pool);
    let keys = of(FactId::opcache_keys).zip(of(FactId::opcache_keys_limit));
    let by_keys = keys.filter(|(keys, limit)| *limit > 0.0 && *keys >= KEYS_FULL_FRACTION * limit);
    let reload = php_fpm::reload_risk(facts, Some(pool));
    let remedy = |setting: &str, observed: Option<f64>, to: f64, why: String| {
        let source = setting_source::pool_setting_source(facts, pool, setting);
        // The table of keys takes the next prime number: the setting is less than what was seen.
        let from = source.as_ref().and_then(setting_source::SettingSource::number).or(observed);
        let mut remedy = Remedy {
            setting: SettingId::of_service("php_fpm", setting),
            from: from.map(|value| SettingValue::Integer(value as i64)),
            to: Some(SettingValue::Integer(to as i64)),
            class: ApplyClass::Reload,
            risk: format!("memory, shared by all processes; {reload}"),
            why,
            predicted: None,
            together_with: vec![],
        };
        if let Some(source) = source {
            setting_source::add_source(&mut remedy, &source);
        }
        remedy
    };
    if let Some((keys, limit)) = by_keys {
        let why = format!("all {} keys are used: twice as many", format_number(keys));
        return remedy("opcache.max_accelerated_files", Some(limit), 2.0 * limit, why);
    }
    let parts = fact_ids! {
        opcache_memory_used_bytes, opcache_memory_free_bytes, opcache_memory_wasted_bytes,
    };
    let size = parts.into_iter().filter_map(of).sum::<f64>();
    let scripts = of(FactId::opcache_scripts).filter(|scripts| *scripts >= 1.0);
    let each = of(FactId::opcache_memory_used_bytes).zip(scripts).map(|(used, scripts)| used / scripts);
    let wanted = each.zip(scripts).map(|(each, scripts)| each * (scripts + missed.unwrap_or(0.0)) * HEADROOM);
    let to = wanted.unwrap_or(0.0).max(2.0 * size).max(DEFAULT_BYTES);
    let why = format!(
        "room for the cached and the missed scripts, plus 50%; at least PHP's own default. It has {}",
        format_bytes(size)
    );
    let whole = |bytes: f64| (bytes / MEGABYTE).ceil();
    remedy("opcache.memory_consumption", (size > 0.0).then(|| (size / MEGABYTE).round()), whole(to), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, with_changes};

    const FULL: [(FactId, f64); 11] = [
        (FactId::opcache_enabled, 1.0),
        (FactId::opcache_full, 0.0),
        (FactId::opcache_misses_per_s, 7200.0),
        (FactId::opcache_misses, 72_000.0),
        (FactId::opcache_scripts_added, 30.0),
        (FactId::opcache_scripts, 30.0),
        (FactId::opcache_memory_used_bytes, 8e6),
        (FactId::opcache_memory_free_bytes, 0.388e6),
        (FactId::opcache_keys, 31.0),
        (FactId::opcache_keys_limit, 16_229.0),
        (FactId::fpm_processes_busy_mean, 9.0),
    ];

    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        let load = [
            (FactId::fpm_cpu_cores, 1.8),
            (FactId::cpu_busy_fraction, 0.99),
            (FactId::cores, 2.0),
            (FactId::rate, 80.0),
        ];
        let mut facts = facts(&load, &[]);
        let values = with_changes(&FULL, changes);
        of_pool(&mut facts, "www", &values);
        check(&facts)
    }

    fn to(finding: &Finding) -> (&str, Option<f64>) {
        let remedy = &finding.remedies[0];
        (remedy.setting.name.as_str(), remedy.to.as_ref().and_then(SettingValue::number))
    }

    #[test]
    fn scripts_that_are_missed_again_and_again_find_no_room() {
        let finding = with(&[]).unwrap();
        assert!(finding.summary.contains("89.8 scripts are compiled again"), "{}", finding.summary);
        assert_eq!((finding.confidence, to(&finding)), (0.92, ("opcache.memory_consumption", Some(128.0))));
        // 300 MB for 1000 scripts, and as many again are missed.
        let large = [
            (FactId::opcache_memory_used_bytes, 300e6),
            (FactId::opcache_scripts, 1000.0),
            (FactId::opcache_misses_per_s, 80_000.0),
        ];
        assert_eq!(to(&with(&large).unwrap()).1, Some(858.0));
        let keys = with(&[(FactId::opcache_keys, 16_229.0)]).unwrap();
        assert_eq!(to(&keys), ("opcache.max_accelerated_files", Some(32_458.0)));
    }

    #[test]
    fn what_is_missed_beside_much_free_memory_is_not_for_want_of_room() {
        let room = [(FactId::opcache_memory_free_bytes, 80e6), (FactId::opcache_memory_wasted_bytes, 0.0)];
        assert!(with(&room).is_none());
        for changed in [
            (FactId::opcache_memory_free_bytes, 1e6),
            (FactId::opcache_keys, 16_229.0),
            (FactId::opcache_full, 1.0),
            (FactId::opcache_oom_restarts, 2.0),
        ] {
            assert!(with(&with_changes(&room, &[changed])).is_some(), "{changed:?}");
        }
    }

    #[test]
    fn a_short_look_sees_that_it_is_full() {
        let once = [(FactId::opcache_misses_per_s, f64::NAN), (FactId::opcache_misses, f64::NAN)];
        assert!(with(&once).is_none());
        let full = with(&[&once[..], &[(FactId::opcache_full, 1.0)]].concat()).unwrap();
        assert_eq!(full.confidence, 0.8);
    }

    #[test]
    fn a_cache_that_fills_or_is_off_is_not_full() {
        for changes in [
            [
                (FactId::opcache_misses_per_s, 12.0),
                (FactId::opcache_misses, 120.0),
                (FactId::opcache_scripts_added, 120.0),
            ],
            [(FactId::opcache_enabled, 0.0), (FactId::opcache_full, 0.0), (FactId::opcache_scripts, 0.0)],
            // Full, and what is asked for is in it.
            [(FactId::opcache_full, 1.0), (FactId::opcache_misses_per_s, 0.0), (FactId::opcache_misses, 0.0)],
        ] {
            assert!(with(&changes).is_none(), "{changes:?}");
        }
    }
}
