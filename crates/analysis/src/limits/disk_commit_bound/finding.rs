//! When `disk-commit-bound` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::healthy::response_time::slower_than_alone;
use crate::limits::manual_remedy::{database_account, manual};
use crate::resources::{concurrency, processors, setting_source};
use crate::wording::{format_number, format_time};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// One that commits just now is how transactions work.
const COMMITTING_MIN: f64 = 1.0;
/// What part of the requests that are worked on must commit to be what limits.
const SHARE_MIN: f64 = 0.3;
/// The same where the disk is slow: few readings meet those that commit, and more of them wait for its next turn.
const SHARE_OF_SLOW_MIN: f64 = 0.2;
const SYNC_SLOW_US_MIN: f64 = 5_000.0;
const CONFIDENCE_OF_SLOW: f64 = 0.6;
/// Where requests are late besides: those that commit do so in one group, which few readings meet.
const SHARE_OF_LATE_MIN: f64 = 0.1;
const CONFIDENCE_OF_LATE: f64 = 0.5;
/// A disk that is this quick is not what is waited for: the state is met by chance.
const SYNC_US_MIN: f64 = 1_000.0;

/// Of a database that does not tell: somebody must wait for the disk half of the time, and as often as this a second what is written
/// must be made safe. A journal of the filesystem does that every few seconds.
const IO_FRACTION_MIN: f64 = 0.5;
const FLUSHES_PER_S_MIN: f64 = 5.0;
const CONFIDENCE_UNREAD: f64 = 0.5;

/// Fires when a good part of what is under way waits for the log of its transaction.
pub fn check(facts: &Facts) -> Option<Finding> {
    if processors::unread_mariadb_cores(facts).is_some() { without_status(facts) } else { by_status(facts) }
}

/// Where the database does not let webdyno in: requests wait for a disk that is written and flushed all the time.
fn without_status(facts: &Facts) -> Option<Finding> {
    let waiting = concurrency::disk_waits(facts).filter(|part| *part >= IO_FRACTION_MIN)?;
    let flushes = facts.value(FactId::disk_flushes_per_s).filter(|per_s| *per_s >= FLUSHES_PER_S_MIN)?;
    let moved =
        [FactId::disk_read_bytes_per_s, FactId::disk_written_bytes_per_s].map(|fact| facts.value(fact));
    let is_unused = facts.value(FactId::db_clients_mean).is_some_and(|count| count < COMMITTING_MIN);
    if moved[0] > moved[1]
        || is_unused
        || concurrency::is_cpu_bound(facts)
        || slower_than_alone(facts).is_none()
    {
        return None;
    }
    let account = database_account("account", "none", "tells how many statements commit at a time");
    Some(Finding {
        id: LimitId::DiskCommitBound.into(),
        summary: format!(
            "The disk is flushed {} times a second, and tasks waited for it {:.0}% of the time (PSI): the database's transactions probably wait until they are on the disk. Only the database can confirm it.",
            format_number(flushes),
            waiting * 100.0
        ),
        confidence: CONFIDENCE_UNREAD,
        explains_fraction: Some(significant(waiting.min(1.0), 3)),
        facts: facts.cite(&fact_ids! {
            disk_flushes_per_s, disk_read_bytes_per_s, disk_written_bytes_per_s, pressure_group_io_some_fraction,
            pressure_io_some_fraction, db_clients_mean, db_cpu_cores, cpu_busy_fraction, response_time_mean_us,
            response_time_alone_us, rate,
        }),
        remedies: std::iter::once(account).chain(remedies(facts)).collect(),
    })
}

fn by_status(facts: &Facts) -> Option<Finding> {
    let committing = facts.value(FactId::db_committing_mean).filter(|count| *count >= COMMITTING_MIN)?;
    let share = concurrency::share_of_requests(facts, committing)?;
    let sync_us = facts.value(FactId::db_disk_syncs_per_s).filter(|rate| *rate > 0.0).map(|rate| 1e6 / rate);
    let is_slow = sync_us.is_some_and(|us| us >= SYNC_SLOW_US_MIN);
    let share_min = match is_slow {
        // What queues elsewhere is late for that.
        true if is_late(facts) && concurrency::requests_queued(facts) <= committing => SHARE_OF_LATE_MIN,
        true => SHARE_OF_SLOW_MIN,
        false => SHARE_MIN,
    };
    if share < share_min || concurrency::is_cpu_bound(facts) || sync_us.is_some_and(|us| us < SYNC_US_MIN) {
        return None;
    }
    let each = sync_us.map_or(String::new(), |us| {
        format!(
            " InnoDB waits for the disk {} times a second ({} each).",
            format_number(1e6 / us),
            format_time(us)
        )
    });
    Some(Finding {
        id: LimitId::DiskCommitBound.into(),
        summary: format!(
            "{} database statements at a time wait until their transaction is on the disk: {:.0}% of the requests in workers.{each}",
            format_number(committing),
            share * 100.0
        ),
        confidence: match sync_us {
            _ if share < SHARE_OF_SLOW_MIN => CONFIDENCE_OF_LATE,
            _ if share < SHARE_MIN => CONFIDENCE_OF_SLOW,
            Some(_) => 0.9,
            None => 0.75,
        },
        explains_fraction: Some(significant(share, 3)),
        facts: facts.cite(&fact_ids! {
            db_committing_mean, db_disk_syncs_per_s, db_cpu_cores, cpu_busy_fraction, in_flight_mean,
            response_time_mean_us, rate,
        }),
        remedies: remedies(facts),
    })
}

/// Whether requests take longer than one that is alone; where nobody knows that, whether somebody waits for a disk half of the time.
fn is_late(facts: &Facts) -> bool {
    let waits = || concurrency::disk_waits(facts).is_some_and(|part| part >= IO_FRACTION_MIN);
    slower_than_alone(facts).is_some() || (!facts.loaded && waits())
}

const FLUSH: &str = "innodb_flush_log_at_trx_commit";

fn remedies(facts: &Facts) -> Vec<Remedy> {
    let disk = manual(
        SettingId::external("mariadb", "transactions"),
        "a code change, or a new disk",
        "commit less often: several statements in one transaction, counters and sessions not in a table; or a disk that is faster at fsync",
    );
    let now = setting_source::of(facts, "mariadb", FLUSH).and_then(|value| value.number());
    let flush = Remedy {
        from: now.map(|value| SettingValue::Integer(value as i64)),
        to: Some(SettingValue::Integer(2)),
        ..manual(
            SettingId::of_service("mariadb", FLUSH),
            "a power failure loses the transactions of the last second",
            "the log is flushed once a second (with innodb_log_file_buffering = ON where MariaDB has that: else each write still waits for the disk); the owner of the data decides whether that is enough",
        )
    };
    let is_set = now.is_some_and(|value| value != 1.0);
    if is_set { vec![disk] } else { vec![disk, flush] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    #[test]
    fn of_a_database_that_lets_nobody_in_the_disk_tells() {
        const SEEN: [(FactId, f64); 8] = [
            (FactId::db_cpu_cores, 0.03),
            (FactId::pressure_group_io_some_fraction, 0.7),
            (FactId::disk_flushes_per_s, 30.0),
            (FactId::disk_read_bytes_per_s, 0.0),
            (FactId::disk_written_bytes_per_s, 600e3),
            (FactId::response_time_alone_us, 40_000.0),
            (FactId::response_time_mean_us, 400_000.0),
            (FactId::rate, 40.0),
        ];
        let with = |changes: &[(FactId, f64)]| {
            check(&facts(&with_changes(&SEEN, changes), &[])).map(|finding| finding.confidence)
        };
        assert_eq!(with(&[]), Some(CONFIDENCE_UNREAD));
        for (what, change) in [
            ("it tells what it does", (FactId::db_threads_running_mean, 9.0)),
            ("nobody waits for the disk", (FactId::pressure_group_io_some_fraction, 0.3)),
            ("it reads", (FactId::disk_read_bytes_per_s, 6e6)),
            ("nobody is connected to it", (FactId::db_clients_mean, 0.2)),
            ("the journal alone", (FactId::disk_flushes_per_s, 0.4)),
            ("nobody is late", (FactId::response_time_mean_us, 42_000.0)),
        ] {
            assert_eq!(with(&[change]), None, "{what}");
        }
    }

    #[test]
    fn commits_that_most_requests_wait_for_are_named() {
        let base = [
            (FactId::db_committing_mean, 36.0),
            (FactId::db_disk_syncs_per_s, 60.0),
            (FactId::in_flight_mean, 40.0),
            (FactId::cpu_busy_fraction, 0.3),
        ];
        let with = |changes: &[(FactId, f64)]| check(&facts(&with_changes(&base, changes), &[]));
        let found = with(&[]).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (0.9, Some(0.9)));
        assert!(found.summary.contains("60 times a second (16.7 ms each)"), "{}", found.summary);
        assert!(
            found.remedies.iter().all(|remedy| remedy.setting_changes().is_empty()),
            "durability is the owner's"
        );
        let quarter = with(&[(FactId::db_committing_mean, 10.0)]).unwrap();
        assert_eq!((quarter.confidence, quarter.explains_fraction), (CONFIDENCE_OF_SLOW, Some(0.25)));
        let late = [(FactId::response_time_alone_us, 90_000.0), (FactId::response_time_mean_us, 170_000.0)];
        for (committing, late, confidence) in [
            (6.0, &late[..], Some(CONFIDENCE_OF_LATE)),
            (6.0, &[], None),
            (3.0, &late, None),
            (6.0, &[late[0], (FactId::response_time_mean_us, 92_000.0)], None),
        ] {
            let found = with(&[&[(FactId::db_committing_mean, committing)], late].concat());
            assert_eq!(found.map(|finding| finding.confidence), confidence, "{committing} {late:?}");
        }
        let queued =
            [&late[..], &[(FactId::db_committing_mean, 6.0), (FactId::accept_queue_mean, 9.0)]].concat();
        assert!(with(&queued).is_none(), "they are late for a queue");
        let of_quick = [(FactId::db_committing_mean, 10.0), (FactId::db_disk_syncs_per_s, 400.0)];
        assert!(with(&of_quick).is_none(), "a quarter of a disk that is not slow");
        for (what, changes) in [
            ("a few", (FactId::db_committing_mean, 3.0)),
            ("not known", (FactId::db_committing_mean, f64::NAN)),
            ("a quick disk", (FactId::db_disk_syncs_per_s, 4000.0)),
            ("no processor is free", (FactId::cpu_busy_fraction, 0.99)),
        ] {
            assert!(with(&[changes]).is_none(), "{what}");
        }
    }
}
