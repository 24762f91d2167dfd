//! When the OPcache of PHP inside of Apache is full: told from outside, by what workers read of scripts that should be in it.

use super::finding::{DEFAULT_BYTES, MEGABYTE, TRANSLATING_FRACTION};
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::{memory_evidence, php_cost, processor_time};
use crate::wording::{format_bytes, format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::processor_time::ProcessorWork;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// What a request reads of scripts that are not kept: ten of some kilobytes.
const READ_BYTES_MIN: f64 = 50_000.0;
/// Pages that send files read as much as they send.
const READ_PER_ANSWER_MIN: f64 = 2.0;
/// One worker uses no page of scripts that it was never asked for: half of the cache in one means that it is full.
const RESIDENT_FRACTION_MIN: f64 = 0.4;
/// Strings have memory of their own in there, 8 MB as PHP comes: of a small cache few megabytes are for scripts. Where so much of the CPU
/// time goes to translating, those that one worker uses are enough.
const RESIDENT_TRANSLATING_FRACTION_MIN: f64 = 0.25;
const TRANSLATING_MIN: f64 = 0.25;
const CONFIDENCE: f64 = 0.8;
/// Translating takes most of what a request costs: it may be what limits where processors idle for a part of the time, too.
const BUSY_FRACTION_MIN: f64 = 0.6;
const CONFIDENCE_WITH_ROOM: f64 = 0.6;

/// Fires where OPcache is on, a worker uses much of it, and scripts are read for each request while PHP is what the processors do.
pub(super) fn check(facts: &Facts) -> Option<Finding> {
    facts.service.as_ref()?.number("opcache.enable").filter(|enabled| *enabled >= 1.0)?;
    let (size, resident) =
        (facts.value(FactId::opcache_mapping_bytes)?, facts.value(FactId::opcache_resident_bytes)?);
    let read = facts.value(FactId::opcache_read_bytes_per_s)? / facts.ended_per_s()?;
    let answer = facts.value(FactId::answer_bytes_mean).unwrap_or(0.0);
    let is_full = resident >= resident_fraction_min(facts) * size
        && read >= READ_BYTES_MIN.max(READ_PER_ANSWER_MIN * answer)
        && !memory_evidence::is_proven(facts);
    let cores = facts.value(FactId::service_cpu_cores).filter(|_| is_full)?;
    let (work, confidence) = match php_cost::cost_of(facts, cores) {
        Some(work) => (work, CONFIDENCE),
        None => (php_cost::cost_at(facts, cores, BUSY_FRACTION_MIN)?, CONFIDENCE_WITH_ROOM),
    };
    let each = work.each_us.map_or(String::new(), |us| format!(", {} per request", format_time(us)));
    Some(Finding {
        id: LimitId::OpcacheFull.into(),
        summary: format!(
            "OPcache is full in Apache's workers: each request reads {} of scripts, while one worker uses {} of the {} cache. They use {} cores{each}.",
            format_bytes(read),
            format_bytes(resident),
            format_bytes(size),
            format_number(work.cores)
        ),
        confidence,
        explains_fraction: Some(significant(work.share * TRANSLATING_FRACTION, 3)),
        facts: facts.cite(&fact_ids! {
            opcache_mapping_bytes, opcache_resident_bytes, opcache_read_bytes_per_s, service_cpu_cores, cpu_per_request_us,
            cpu_busy_fraction, cores, rate, ended_per_s,
        }),
        remedies: vec![remedy(size)],
    })
}

fn resident_fraction_min(facts: &Facts) -> f64 {
    let translating = processor_time::share(facts, ProcessorWork::PhpCompilation);
    match translating {
        Some(share) if share >= TRANSLATING_MIN => RESIDENT_TRANSLATING_FRACTION_MIN,
        _ => RESIDENT_FRACTION_MIN,
    }
}

fn remedy(size: f64) -> Remedy {
    let whole = |bytes: f64| SettingValue::Integer((bytes / MEGABYTE).round() as i64);
    Remedy {
        setting: SettingId::of_service("apache", "opcache.memory_consumption"),
        from: Some(whole(size)),
        to: Some(whole((2.0 * size).max(DEFAULT_BYTES))),
        class: ApplyClass::Reload,
        risk: "memory, shared by all workers; a reload, after which each script is compiled once more".into(),
        why: "room for all scripts: PHP's own default, or twice as much as there is; in the php.ini of Apache's PHP. opcache_get_status() in a page shows what it holds".into(),
        predicted: None,
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{add_samples, facts, with_changes};

    #[test]
    fn scripts_that_are_read_for_each_request_find_no_room() {
        let base = [
            (FactId::opcache_mapping_bytes, 8e6),
            (FactId::opcache_resident_bytes, 4.9e6),
            (FactId::opcache_read_bytes_per_s, 9e6),
            (FactId::ended_per_s, 20.0),
            (FactId::answer_bytes_mean, 500.0),
            (FactId::service_cpu_cores, 0.95),
            (FactId::cores, 1.0),
            (FactId::cpu_busy_fraction, 0.99),
        ];
        let with = |changes: &[(FactId, f64)], enabled: i64| {
            check(&facts(&with_changes(&base, changes), &[("opcache.enable", enabled)]))
        };
        let found = with(&[], 1).unwrap();
        let remedy = &found.remedies[0];
        assert_eq!(
            (found.confidence, remedy.to.clone(), remedy.class),
            (CONFIDENCE, Some(SettingValue::Integer(128)), ApplyClass::Reload)
        );
        assert!(with(&[], 0).is_none(), "that is opcache-off");
        let some_room = [(FactId::service_cpu_cores, 0.7), (FactId::cpu_busy_fraction, 0.78)];
        assert_eq!(with(&some_room, 1).map(|found| found.confidence), Some(CONFIDENCE_WITH_ROOM));
        for (what, change) in [
            ("all is kept", (FactId::opcache_read_bytes_per_s, 2e4)),
            ("a cache that is hardly used", (FactId::opcache_resident_bytes, 1e6)),
            ("files are sent", (FactId::answer_bytes_mean, 400_000.0)),
            ("room", (FactId::service_cpu_cores, 0.1)),
        ] {
            assert!(with(&[change], 1).is_none(), "{what}");
        }
        let translates = |share: u64| {
            let strings = with_changes(&base, &[(FactId::opcache_resident_bytes, 2.7e6)]);
            let mut facts = facts(&strings, &[("opcache.enable", 1)]);
            let places = [("zendparse", share), ("execute_ex", 1000 - share)]
                .map(|(function, samples)| (format!("apache2;libphp8.2.so;{function}"), samples));
            add_samples(&mut facts, &places.each_ref().map(|(place, samples)| (place.as_str(), *samples)));
            check(&facts).is_some()
        };
        assert_eq!([600, 100].map(translates), [true, false], "most of the cache is for strings");
    }
}
