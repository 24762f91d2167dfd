//! When `file-lock-contention` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::common::alone_words;
use crate::limits::healthy::response_time::slower_than_alone;
use crate::limits::manual_remedy::manual;
use crate::limits::session_lock::finding::{explained_share, is_much};
use crate::resources::memory_evidence;
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

/// Fewer wait by chance.
const WAITING_MIN: f64 = 1.0;
const CONFIDENCE: f64 = 0.9;
/// Without load of our own nobody knows how long one takes that is alone.
const CONFIDENCE_WATCHED: f64 = 0.7;
/// What the names of PHP's session files end in, as the collector tells them.
const SESSION: &str = "/sess_";
/// What the file of Apache's lock around accept begins with (`Mutex fcntl`, `flock`): who waits there has no request.
const ACCEPT: &str = "mpm-accept";
/// By another name it is known by who waits there: about all idle workers, and no fewer than this share of them.
const IDLE_FRACTION_MIN: f64 = 0.5;

/// Fires when a good part of the requests waits for a lock on one file that is no session.
pub fn check(facts: &Facts) -> Option<Finding> {
    let of_requests = |(file, _): &(&str, f64)| {
        !file.ends_with(SESSION) && !file.rsplit('/').next().is_some_and(|name| name.starts_with(ACCEPT))
    };
    let files = facts.each(FactId::file_lock_waiting_mean).filter(of_requests);
    let (file, waiting) = files.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let idle = facts.value(FactId::workers_idle_mean).unwrap_or(0.0);
    let slower = slower_than_alone(facts);
    let may_accept = waiting >= IDLE_FRACTION_MIN * idle && waiting < WAITING_MIN + idle;
    if waiting < WAITING_MIN
        || may_accept
        || !is_much(facts, waiting)
        || (facts.loaded && slower.is_none())
        || memory_evidence::is_proven(facts)
    {
        return None;
    }
    let of = facts.value(FactId::in_flight_mean).map_or(String::new(), |in_flight| {
        format!(" of {} requests in flight", format_number(significant(in_flight, 3)))
    });
    let alone = alone_words(slower);
    let mut cited = facts.cite_of(&[FactId::file_lock_waiting_mean], file);
    cited.extend(facts.cite(&fact_ids! {
        lock_waiting_mean, in_flight_mean, response_time_mean_us, response_time_alone_us, cpu_busy_fraction, rate,
    }));
    Some(Finding {
        id: LimitId::FileLockContention.into(),
        summary: format!(
            "{}{of} wait for a lock on the file {file}: one holds it at a time, and more workers do not help.{alone}",
            format_number(significant(waiting, 3))
        ),
        confidence: if facts.loaded { CONFIDENCE } else { CONFIDENCE_WATCHED },
        explains_fraction: explained_share(facts, waiting),
        facts: cited,
        remedies: vec![manual(
            SettingId::application("file lock"),
            "what the lock protects must stay protected",
            "hold the lock for less long, share it among readers, or have one for each record; SQLite with journal_mode=WAL or a database server; counters in memory",
        )],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts_of_several, with_changes};

    const BASE: [(FactId, f64); 5] = [
        (FactId::lock_waiting_mean, 7.0),
        (FactId::in_flight_mean, 16.0),
        (FactId::cpu_busy_fraction, 0.1),
        (FactId::response_time_mean_us, 774_000.0),
        (FactId::response_time_alone_us, 52_000.0),
    ];

    fn with(file: &str, changes: &[(FactId, f64)]) -> Option<Finding> {
        check(&facts_of_several(
            &with_changes(&BASE, changes),
            &[(FactId::file_lock_waiting_mean, file, 7.0)],
        ))
    }

    #[test]
    fn requests_that_wait_for_a_file_are_told_with_its_name() {
        let found = with("/srv/counter", &[]).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (0.9, Some(0.438)));
        let begins =
            "7 of 16 requests in flight wait for a lock on the file /srv/counter: one holds it at a time";
        assert!(found.summary.starts_with(begins), "{}", found.summary);
        let many_idle = with("/srv/counter", &[(FactId::workers_idle_mean, 40.0)]);
        assert!(many_idle.is_some(), "the workers of the front are idle, and 7 of the backend wait");
        for (what, file, changes) in [
            ("a session has its own finding", "/var/lib/php/sessions/sess_", vec![]),
            ("few of many", "/srv/counter", vec![(FactId::in_flight_mean, 60.0)]),
            ("it costs nobody time", "/srv/counter", vec![(FactId::response_time_mean_us, 60_000.0)]),
            ("idle workers wait to accept", "/run/accept", vec![(FactId::workers_idle_mean, 7.0)]),
            ("nobody tells who is idle", "/run/apache2/mpm-accept.4711", vec![]),
        ] {
            assert!(with(file, &changes).is_none(), "{what}");
        }
    }

    #[test]
    fn nearly_all_workers_that_wait_for_it_are_much_of_a_long_queue() {
        for (workers, queue, found) in [(9.0, 129.0, true), (20.0, 129.0, false), (9.0, 80.0, false)] {
            let full = [
                (FactId::in_flight_mean, 165.0),
                (FactId::accept_queue_mean, queue),
                (FactId::scoreboard_full_fraction, 1.0),
                (FactId::workers_limit, workers),
            ];
            assert_eq!(
                with("/srv/counter", &full).is_some(),
                found,
                "{workers} workers, {queue} in the queue"
            );
        }
    }
}
