//! When `working-set-exceeds-memory` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::healthy::response_time::slower_than_alone;
use crate::resources::memory_pressure;
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

const PAGE_BYTES: f64 = 4096.0;

/// A megabyte a second: any disk gives that beside its other work.
const REFAULTS_PER_S_MIN: f64 = 250.0;

/// Below this share of time in which somebody waits for the disk, it is not what limits.
const IO_FRACTION_MIN: f64 = 0.2;

/// More of it that programs' own pages have, and programs are short of memory themselves.
const SWAPPED_SHARE_MAX: f64 = 0.2;

/// What is read again must be what is served: a database that sorts reads far more than its answers have. The other way
/// round the kernel reads ahead, several times as much as is asked for at worst.
const SERVED_SHARE_MIN: f64 = 0.25;

/// And a good part of it: files that are served from memory nearly always do not wait for the disk.
const MISSED_SHARE_MIN: f64 = 0.05;

/// What a share from which nothing is left would divide by.
const MISSED_SHARE_MAX: f64 = 0.95;

/// Where only requests wait for the disk, there are at least as many in the server as that lasts; readings of them vary.
const REQUESTS_OF_WAITS_MIN: f64 = 0.5;

/// At most so sure without load of our own, as nobody sees whether requests are late: a backup or a copy reads old files again as
/// well. By whether the waits and the pages are those of the service's own group.
const CONFIDENCE_WATCHED_OWN: f64 = 0.8;
const CONFIDENCE_WATCHED_OWN_WAITS: f64 = 0.7;
const CONFIDENCE_WATCHED_MACHINE: f64 = 0.6;

/// Responses that take so many times as long as the quickest of their kind wait for something.
const INFLATION_MIN: f64 = 1.5;

/// Fires when files are read again and again, and requests wait for it.
pub fn check(facts: &Facts) -> Option<Finding> {
    let refaults = refaults(facts).filter(|pages| *pages >= REFAULTS_PER_S_MIN)?;
    let waiting = waiting_share(facts).filter(|share| *share >= IO_FRACTION_MIN)?;
    if memory_pressure::is_full(facts) == Some(false) && memory_pressure::is_limited(facts) != Some(false)
        || memory_pressure::is_short(facts) == Some(true)
        || programs_swap(facts)
        || !has_late_requests(facts)
        || disk_wait_is_elsewhere(facts, waiting)
        || facts.value(FactId::file_refaults_median_per_s).is_some_and(|pages| pages < REFAULTS_PER_S_MIN)
        || facts.value(FactId::group_oom_kills).is_some_and(|kills| kills >= 1.0)
    {
        return None;
    }
    let again = refault_bytes(facts, refaults);
    let served = sent_bytes_per_s(facts);
    if served.is_some_and(|served| served < SERVED_SHARE_MIN * again || again < MISSED_SHARE_MIN * served) {
        return None;
    }
    Some(Finding {
        id: LimitId::WorkingSetExceedsMemory.into(),
        summary: format!(
            "Requested files do not fit in the page cache: {} evicted pages/s are read again, and tasks waited for the disk \
             {:.0}% of the time (PSI). Programs are not short of memory; the server is as fast as the disk.",
            format_number(refaults),
            waiting * 100.0
        ),
        confidence: confidence(facts, served),
        explains_fraction: Some(significant(waiting.min(1.0), 3)),
        facts: facts.cite(CITED),
        remedies: vec![remedy(facts, again, served)],
    })
}

const CITED: &[FactId] = &fact_ids! {
    group_file_refaults_per_s, file_refaults_per_s, file_refaults_median_per_s, pressure_group_io_some_fraction,
    pressure_io_some_fraction, disk_read_bytes_per_s, disk_busy_fraction, served_bytes_per_s,
    served_bytes_status_per_s, served_bytes_log_per_s, group_page_cache_mean_bytes,
    group_memory_used_max_bytes, memory_used_in_limit_max_bytes, memory_limit_bytes,
    memory_available_min_bytes, swapped_in_pages_per_s, response_time_inflation, offered_rate, rate,
};

fn confidence(facts: &Facts, served: Option<f64>) -> f64 {
    let own_waits = facts.value(FactId::pressure_group_io_some_fraction).is_some();
    let own_pages = facts.value(FactId::group_file_refaults_per_s).is_some();
    let confidence: f64 = match (own_waits, served, memory_pressure::is_short(facts)) {
        (true, Some(_), Some(false)) => 0.9,
        (_, Some(_), Some(false)) => 0.8,
        (_, Some(_), None) => 0.6,
        _ => 0.5,
    };
    match (own_waits, own_pages) {
        _ if facts.loaded => confidence,
        (true, true) => confidence.min(CONFIDENCE_WATCHED_OWN),
        (true, false) => confidence.min(CONFIDENCE_WATCHED_OWN_WAITS),
        (false, _) => confidence.min(CONFIDENCE_WATCHED_MACHINE),
    }
}

/// Whether fewer requests are in a server that is only watched than tasks wait for the disk: then it is others who wait.
fn disk_wait_is_elsewhere(facts: &Facts, waiting: f64) -> bool {
    let requests = facts.value(FactId::in_flight_mean).filter(|_| !facts.loaded);
    requests.is_some_and(|requests| requests < REQUESTS_OF_WAITS_MIN * waiting)
}

fn refaults(facts: &Facts) -> Option<f64> {
    facts.value(FactId::group_file_refaults_per_s).or_else(|| facts.value(FactId::file_refaults_per_s))
}

fn waiting_share(facts: &Facts) -> Option<f64> {
    facts
        .value(FactId::pressure_group_io_some_fraction)
        .or_else(|| facts.value(FactId::pressure_io_some_fraction))
}

/// Bytes that go out to visitors, by whoever tells.
pub(crate) fn sent_bytes_per_s(facts: &Facts) -> Option<f64> {
    let known =
        [FactId::served_bytes_per_s, FactId::served_bytes_status_per_s, FactId::served_bytes_log_per_s];
    known.into_iter().find_map(|name| facts.value(name))
}

/// What is read again in bytes a second. The machine's counter has neighbours in it, but no more than its disks read.
fn refault_bytes(facts: &Facts, refaults: f64) -> f64 {
    let bytes = refaults * PAGE_BYTES;
    let read = facts
        .value(FactId::disk_read_bytes_per_s)
        .filter(|_| facts.value(FactId::group_file_refaults_per_s).is_none());
    read.map_or(bytes, |read| bytes.min(read))
}

/// Whether pages of programs travel as well, more than a few that nobody had needed for long.
fn programs_swap(facts: &Facts) -> bool {
    let own = facts
        .value(FactId::group_anonymous_refaults_per_s)
        .zip(facts.value(FactId::group_file_refaults_per_s));
    let machine =
        || facts.value(FactId::swapped_in_pages_per_s).zip(facts.value(FactId::file_refaults_per_s));
    own.or_else(machine).is_some_and(|(swapped, files)| swapped > SWAPPED_SHARE_MAX * files)
}

/// Whether requests are late or left out; without load of our own nobody tells.
fn has_late_requests(facts: &Facts) -> bool {
    if !facts.loaded {
        return true;
    }
    let behind = facts
        .value(FactId::rate)
        .zip(facts.value(FactId::offered_rate))
        .is_some_and(|(rate, offered)| rate < 0.95 * offered);
    behind
        || facts.value(FactId::response_time_inflation).is_none_or(|times| times >= INFLATION_MIN)
        || slower_than_alone(facts).is_some()
}

/// Memory that would hold all files that are asked for, if all are asked for alike: of them the share that is found in
/// memory is what the page cache is of them.
fn memory_needed(facts: &Facts, again: f64, served: Option<f64>) -> Option<f64> {
    let missed = (again / served?).min(MISSED_SHARE_MAX);
    let limit = memory_pressure::limit_bytes(facts)?;
    let machine = || {
        (memory_pressure::is_limited(facts) == Some(false))
            .then(|| facts.value(FactId::memory_available_min_bytes))?
    };
    let cached = facts.value(FactId::group_page_cache_mean_bytes).or_else(machine)?;
    Some(significant(limit + cached * missed / (1.0 - missed), 2))
}

fn remedy(facts: &Facts, again: f64, served: Option<f64>) -> Remedy {
    let needed = memory_needed(facts, again, served);
    let why = match needed {
        Some(needed) => format!(
            "by the share served from disk, the files need {} of memory if all are requested equally often; \
             less if few get most requests",
            format_bytes(needed)
        ),
        None => "the requested files have to fit beside the programs".into(),
    };
    Remedy {
        setting: SettingId::hardware("memory"),
        from: memory_pressure::limit_bytes(facts).map(|limit| SettingValue::Integer(limit as i64)),
        to: needed.map(|needed| SettingValue::Integer(needed as i64)),
        class: ApplyClass::Manual,
        risk: "none; until then, smaller files, a cache in front, or a faster disk help as well".into(),
        why,
        predicted: None,
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const MISSING: [(FactId, f64); 11] = [
        (FactId::file_refaults_per_s, 4000.0),
        (FactId::swapped_in_pages_per_s, 10.0),
        (FactId::pressure_group_io_some_fraction, 0.9),
        (FactId::memory_limit_bytes, 80e6),
        (FactId::memory_total_bytes, 16e9),
        (FactId::group_memory_used_max_bytes, 79.9e6),
        (FactId::memory_used_in_limit_max_bytes, 30e6),
        (FactId::group_page_cache_mean_bytes, 50e6),
        (FactId::disk_read_bytes_per_s, 20e6),
        (FactId::served_bytes_per_s, 24e6),
        (FactId::response_time_inflation, 5.0),
    ];

    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        let values = with_changes(&MISSING, changes);
        check(&facts(&values, &[]))
    }

    #[test]
    fn what_is_missing_follows_from_the_share_that_is_read() {
        let finding = with(&[]).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.9, Some(0.9)));
        // 4000 pages are 16.4 MB of 24 MB: the 50 MB that are in memory serve a third, all of them are 158 MB.
        assert_eq!(finding.remedies[0].to, Some(SettingValue::Integer(190_000_000)));
        assert!(with(&[(FactId::served_bytes_per_s, f64::NAN)]).unwrap().remedies[0].to.is_none());
    }

    #[test]
    fn a_server_that_is_only_watched_may_have_others_who_read() {
        let (unseen, own) = (f64::NAN, (FactId::group_file_refaults_per_s, 4000.0));
        let of_machine =
            [(FactId::pressure_group_io_some_fraction, unseen), (FactId::pressure_io_some_fraction, 0.9)];
        for (changes, confidence) in [
            (&[own][..], Some(CONFIDENCE_WATCHED_OWN)),
            (&[], Some(CONFIDENCE_WATCHED_OWN_WAITS)),
            (&of_machine, Some(CONFIDENCE_WATCHED_MACHINE)),
            (&[(FactId::served_bytes_per_s, unseen)], Some(0.5)),
            (&[(FactId::in_flight_mean, 30.0)], Some(CONFIDENCE_WATCHED_OWN_WAITS)),
            // A backup waits for the disk nearly all the time, and hardly a request is there.
            (&[(FactId::in_flight_mean, 0.3)], None),
            // Old logs were read in a few of the seconds.
            (&[(FactId::file_refaults_median_per_s, 20.0)], None),
            (&[(FactId::file_refaults_median_per_s, 3900.0)], Some(CONFIDENCE_WATCHED_OWN_WAITS)),
        ] {
            let mut facts = facts(&with_changes(&MISSING, changes), &[]);
            facts.loaded = false;
            assert_eq!(check(&facts).map(|finding| finding.confidence), confidence, "{changes:?}");
        }
    }

    #[test]
    fn others_reading_and_programs_without_memory_are_told_apart() {
        let unseen = f64::NAN;
        for (changes, confidence) in [
            (
                vec![
                    (FactId::pressure_group_io_some_fraction, unseen),
                    (FactId::pressure_io_some_fraction, 0.9),
                ],
                Some(0.8),
            ),
            (vec![(FactId::group_file_refaults_per_s, 10.0)], None),
            (vec![(FactId::response_time_inflation, 1.4)], None),
            (
                vec![
                    (FactId::response_time_inflation, 1.4),
                    (FactId::response_time_alone_us, 900.0),
                    (FactId::response_time_mean_us, 137_000.0),
                ],
                Some(0.9),
            ),
            (
                vec![
                    (FactId::pressure_group_io_some_fraction, 0.05),
                    (FactId::pressure_io_some_fraction, 0.9),
                ],
                None,
            ),
            (vec![(FactId::memory_used_in_limit_max_bytes, 78e6)], None),
            (vec![(FactId::group_memory_used_max_bytes, 60e6)], None),
            (vec![(FactId::swapped_in_pages_per_s, 3000.0)], None),
            // Sorts on disk: far more is read than goes out.
            (vec![(FactId::served_bytes_per_s, 1e6)], None),
            (vec![(FactId::response_time_inflation, 1.01)], None),
            (
                vec![
                    (FactId::response_time_inflation, 1.2),
                    (FactId::rate, 40.0),
                    (FactId::offered_rate, 60.0),
                ],
                Some(0.9),
            ),
        ] {
            assert_eq!(with(&changes).map(|finding| finding.confidence), confidence, "{changes:?}");
        }
    }
}
