//! When `db-cache-too-small` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::healthy::response_time::slower_than_alone;
use crate::limits::manual_remedy::{database_account, manual};
use crate::limits::working_set_exceeds_memory;
use crate::limits::working_set_exceeds_memory::finding::sent_bytes_per_s;
use crate::resources::{concurrency, memory_evidence, memory_pressure, processors, setting_source};
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Of the pages that were read so many must have taken the place of others. The rest filled what was free.
const REPLACED_FRACTION_MIN: f64 = 0.5;
/// Fewer reads than this per second no disk of today needs a second for.
const READS_PER_S_MIN: f64 = 20.0;
/// What part of the requests that are worked on must wait for the disk to be what limits.
const SHARE_MIN: f64 = 0.25;
/// Statements that have more of a core each compute rather than wait.
const COMPUTING_MAX: f64 = 0.5;
/// InnoDB's page. Other sizes are rare, and smaller or larger by little.
const PAGE_BYTES: f64 = 16_384.0;
/// What is wanted once in this time shall stay.
const KEEP_S: f64 = 60.0;
/// InnoDB takes the size of its pool in steps; whole steps of this size are read easily, too.
const STEP_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
const MEMORY_FRACTION_MAX: f64 = 0.5;

/// Of a database that does not tell: so large a part of the time somebody must wait for the disk.
const IO_FRACTION_MIN: f64 = 0.25;
/// What is read is not what is sent, if that is no more than this part of it.
const SENT_FRACTION_MAX: f64 = 0.25;
/// Somebody must be connected to the database.
const CLIENTS_MIN: f64 = 1.0;
const CONFIDENCE_UNREAD: f64 = 0.5;

/// Fires when statements wait for pages that are read anew.
pub fn check(facts: &Facts) -> Option<Finding> {
    if processors::unread_mariadb_cores(facts).is_some() { without_status(facts) } else { by_status(facts) }
}

/// Where the database does not let webdyno in: requests wait for a disk that reads far more than is sent, and memory is not short.
fn without_status(facts: &Facts) -> Option<Finding> {
    let waiting = concurrency::disk_waits(facts).filter(|part| *part >= IO_FRACTION_MIN)?;
    let read = facts.value(FactId::disk_read_bytes_per_s)?;
    let sent = sent_bytes_per_s(facts).filter(|sent| *sent <= SENT_FRACTION_MAX * read)?;
    if read < READS_PER_S_MIN * PAGE_BYTES
        || memory_evidence::is_proven(facts)
        || memory_pressure::is_short(facts) == Some(true)
        || slower_than_alone(facts).is_none()
        || facts.value(FactId::db_clients_mean).is_some_and(|count| count < CLIENTS_MIN)
        || working_set_exceeds_memory::finding::check(facts).is_some()
    {
        return None;
    }
    Some(Finding {
        id: LimitId::DbCacheTooSmall.into(),
        summary: format!(
            "InnoDB buffer pool probably too small: {}/s are read from disk for {}/s of responses, and tasks waited for the disk {:.0}% of the time (PSI). Only the database can confirm it.",
            format_bytes(read),
            format_bytes(sent),
            waiting * 100.0
        ),
        confidence: CONFIDENCE_UNREAD,
        explains_fraction: Some(significant(waiting.min(1.0), 3)),
        facts: facts.cite(&fact_ids! {
            disk_read_bytes_per_s, served_bytes_per_s, served_bytes_status_per_s, served_bytes_log_per_s,
            pressure_group_io_some_fraction, pressure_io_some_fraction, db_clients_mean, db_cpu_cores,
            response_time_mean_us, response_time_alone_us, rate,
        }),
        remedies: vec![database_account("innodb_buffer_pool_size", "memory", "tells what the pool lacks")],
    })
}

fn by_status(facts: &Facts) -> Option<Finding> {
    let reads_per_s =
        facts.value(FactId::db_cache_disk_reads_per_s).filter(|rate| *rate >= READS_PER_S_MIN)?;
    let reads = facts.value(FactId::db_cache_disk_reads)?;
    let replaced = (reads - facts.value(FactId::db_cache_filled).unwrap_or(0.0)) / reads;
    if replaced < REPLACED_FRACTION_MIN || memory_evidence::is_proven(facts) {
        return None;
    }
    let waiting =
        concurrency::statements_running(facts)? - concurrency::row_lock_waiting(facts).unwrap_or(0.0);
    let computes = facts.value(FactId::db_cpu_cores).is_some_and(|cores| cores > COMPUTING_MAX * waiting);
    let share = concurrency::share_of_requests(facts, waiting).unwrap_or(1.0);
    if waiting < 1.0 || computes || share < SHARE_MIN {
        return None;
    }
    let per_request = facts.ended_per_s().map(|rate| reads_per_s / rate);
    let each = per_request.map_or(String::new(), |reads| format!(", {} per request", format_number(reads)));
    let known = || setting_source::of(facts, "mariadb", "innodb_buffer_pool_size")?.number();
    let size = facts.value(FactId::db_cache_limit_bytes).or_else(known);
    let pool = size.map_or(String::new(), |bytes| format!(" ({})", format_bytes(bytes)));
    Some(Finding {
        id: LimitId::DbCacheTooSmall.into(),
        summary: format!(
            "InnoDB buffer pool{pool} too small: {} pages/s are read from disk repeatedly{each}, and {} statements wait at a time.",
            format_number(reads_per_s),
            format_number(waiting)
        ),
        confidence: if facts.value(FactId::db_cache_filled).is_some() { 0.92 } else { 0.75 },
        explains_fraction: Some(significant(share, 3)),
        facts: facts.cite(&fact_ids! {
            db_cache_disk_reads_per_s, db_cache_disk_reads, db_cache_filled, db_cache_requests_per_s,
            db_cache_limit_bytes, db_threads_running_mean, db_cpu_cores, cpu_iowait_fraction,
            cpu_busy_fraction, in_flight_mean, rate,
        }),
        remedies: remedies(facts, reads_per_s, size),
    })
}

fn remedies(facts: &Facts, reads_per_s: f64, size: Option<f64>) -> Vec<Remedy> {
    let missing = reads_per_s * KEEP_S * PAGE_BYTES;
    let room = memory_pressure::room_bytes(facts, MEMORY_FRACTION_MAX);
    let more = room.map_or(missing, |room| missing.min(room));
    let Some(size) = size else {
        let why = format!("{} more: what is read from disk within a minute", format_bytes(more));
        return vec![manual(SettingId::of_service("mariadb", "innodb_buffer_pool_size"), "memory", &why)];
    };
    let to = ((size + more) / STEP_BYTES).floor() * STEP_BYTES;
    if to <= size {
        let why = "no free memory for a larger pool: it lacks what is read from disk within a minute";
        return vec![manual(SettingId::hardware("memory"), "none", why)];
    }
    let bound = if more < missing { ", bounded by half of the available memory" } else { "" };
    vec![Remedy {
        setting: SettingId::of_service("mariadb", "innodb_buffer_pool_size"),
        from: Some(setting_source::kibibytes(size)),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Live,
        risk: format!("up to {} of memory", format_bytes(to - size)),
        why: format!(
            "{} more, what is read from disk within a minute: pages needed once a minute then stay{bound}",
            format_bytes(more)
        ),
        predicted: None,
        together_with: vec![],
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const SMALL: [(FactId, f64); 9] = [
        (FactId::db_cache_disk_reads_per_s, 400.0),
        (FactId::db_cache_disk_reads, 2400.0),
        (FactId::db_cache_filled, 0.0),
        (FactId::db_cache_limit_bytes, 8_388_608.0),
        (FactId::db_threads_running_mean, 36.0),
        (FactId::db_cpu_cores, 0.05),
        (FactId::in_flight_mean, 36.0),
        (FactId::rate, 18.0),
        (FactId::memory_available_min_bytes, 8e9),
    ];

    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        let values = with_changes(&SMALL, changes);
        check(&facts(&values, &[]))
    }

    #[test]
    fn pages_that_are_read_anew_are_what_statements_wait_for() {
        let finding = with(&[]).unwrap();
        assert_eq!(finding.explains_fraction, Some(0.972));
        // 8 MiB and 400 pages of 16 KiB a second for a minute, in whole steps.
        let to = |finding: &Finding| finding.remedies[0].to.as_ref().and_then(SettingValue::number);
        assert_eq!(
            (to(&finding), finding.remedies[0].class),
            (Some(24.0 * STEP_BYTES - STEP_BYTES), ApplyClass::Live)
        );
        let tight = with(&[(FactId::memory_available_min_bytes, 100e6)]).unwrap();
        assert_eq!(to(&tight), Some(3.0 * STEP_BYTES));
        assert!(tight.remedies[0].why.contains("half of the available memory"));
        // Of the machine's memory there is enough, of the group's half of 100 MB.
        let group = [(FactId::memory_limit_bytes, 400e6), (FactId::memory_used_in_limit_max_bytes, 300e6)];
        assert_eq!(to(&with(&group).unwrap()), Some(3.0 * STEP_BYTES));
        assert_eq!(
            with(&[(FactId::memory_available_min_bytes, 1e6)]).unwrap().remedies[0].setting.target.name(),
            "hardware"
        );
    }

    #[test]
    fn a_cold_cache_and_reads_that_nobody_waits_for_are_none() {
        for changes in [
            vec![(FactId::db_cache_filled, 2000.0)],
            vec![(FactId::db_cache_disk_reads_per_s, 5.0)],
            vec![(FactId::db_threads_running_mean, 1.4)],
            vec![(FactId::db_threads_running_mean, 6.0)],
            vec![(FactId::db_cpu_cores, 30.0)],
            vec![(FactId::db_row_lock_waiting_mean, 33.0)],
        ] {
            assert!(with(&changes).is_none(), "{changes:?}");
        }
    }

    #[test]
    fn of_a_database_that_lets_nobody_in_the_disk_tells() {
        const SEEN: [(FactId, f64); 7] = [
            (FactId::db_cpu_cores, 0.03),
            (FactId::pressure_group_io_some_fraction, 0.85),
            (FactId::disk_read_bytes_per_s, 5.7e6),
            (FactId::served_bytes_per_s, 40e3),
            (FactId::response_time_alone_us, 40_000.0),
            (FactId::response_time_mean_us, 1_200_000.0),
            (FactId::rate, 7.0),
        ];
        let with = |changes: &[(FactId, f64)]| {
            check(&facts(&with_changes(&SEEN, changes), &[])).map(|finding| finding.confidence)
        };
        assert_eq!(with(&[]), Some(CONFIDENCE_UNREAD));
        let of_its_own =
            [(FactId::pressure_group_io_some_fraction, 0.0), (FactId::pressure_io_some_fraction, 0.8)];
        assert_eq!(with(&of_its_own), Some(CONFIDENCE_UNREAD), "it has a control group of its own");
        for (what, change) in [
            ("it tells what it does", (FactId::db_threads_running_mean, 9.0)),
            ("nobody waits for the disk", (FactId::pressure_group_io_some_fraction, 0.1)),
            ("nobody is connected to it", (FactId::db_clients_mean, 0.2)),
            ("files are read, and sent", (FactId::served_bytes_per_s, 5e6)),
            ("hardly anything is read", (FactId::disk_read_bytes_per_s, 200e3)),
            ("nobody is late", (FactId::response_time_mean_us, 42_000.0)),
        ] {
            assert_eq!(with(&[change]), None, "{what}");
        }
    }

    #[test]
    fn requests_that_wait_for_a_worker_wait_for_these_statements() {
        let observed = with_changes(&SMALL, &[(FactId::in_flight_mean, 180.0)]);
        let with_queue = |queue: f64| {
            let mut facts = facts(&observed, &[]);
            crate::facts::testing::of_pool(&mut facts, "www", &[(FactId::fpm_queue_mean, queue)]);
            check(&facts).is_some()
        };
        assert!(with_queue(130.0));
        assert!(!with_queue(178.0), "many of these were given up");
        assert!(!with_queue(0.0), "they wait for something else");
    }
}
