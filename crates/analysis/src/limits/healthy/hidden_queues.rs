//! Whether requests wait where no queue of the server shows it: behind it, for one of its threads, or for what cannot be seen.

use crate::facts::{FactId, Facts};
use crate::limits::healthy::response_time::EXCESS_US_MAX;
use crate::resources::{concurrency, processors};

/// Of a good line one segment in a thousand is sent again; where it is one in twenty, clients wait. A few are chance, or for scanners.
const RETRANSMITTED_FRACTION_MIN: f64 = 0.05;
const RETRANSMITS_PER_S_MIN: f64 = 5.0;
/// In front of PHP-FPM: a smaller part of what is in flight is met by chance.
const QUEUE_FRACTION_MIN: f64 = 0.1;
/// Where most of what is in flight are statements that do not compute, they wait for a lock, a disk, or each other, if they
/// take unlike long; if they take equally long, it may be for whoever reads their rows, or as they were told.
const STATEMENTS_FRACTION_MIN: f64 = 0.5;
const UNLIKE_MIN: f64 = 1.3;

/// In so much of the time a thread has a whole core, and in a closed loop requests take so many times as long as alone.
const SATURATED_MIN: f64 = 0.8;
const SATURATED_TIMES_MIN: f64 = 2.0;

/// After a second people begin to think of something else.
const HELD_US_MAX: f64 = 1_000_000.0;
/// Fewer connections that wait for an answer may be met by chance.
const WAITING_MIN: f64 = 3.0;
/// The same where nobody counts requests: they were looked at once or twice.
const WAITING_UNCOUNTED_MIN: f64 = 6.0;
const WORKED_ON_FRACTION_MIN: f64 = 0.5;
/// Responses of this size and more do not fit into a send buffer: workers wait until clients have taken them.
const ANSWER_BYTES_LONG: f64 = 262_144.0;
/// A disk that is waited for in this part of the time.
const DISK_WAITS_MIN: f64 = 0.2;

/// Whether requests wait behind the server: in front of PHP-FPM or another backend, or as statements of the database that are in flight and do
/// not compute, for more than nobody notices.
pub(super) fn is_queued_at_backend(facts: &Facts) -> bool {
    let Some((at_once, per_s)) = concurrency::requests_in_flight(facts).zip(facts.ended_per_s()) else {
        return false;
    };
    let is_much = |waiting: f64, share_min: f64| {
        waiting >= 1.0 && waiting >= share_min * at_once && waiting / per_s * 1e6 >= EXCESS_US_MAX
    };
    let queue: f64 = facts.each(FactId::fpm_queue_mean).map(|(_, queue)| queue).sum();
    let queue = queue.max(facts.value(FactId::backend_queue_mean).unwrap_or(0.0));
    let in_database = concurrency::statements_running(facts).zip(facts.value(FactId::db_cpu_cores));
    let unlike = facts.value(FactId::response_time_inflation).is_some_and(|ratio| ratio >= UNLIKE_MIN);
    let waits_there = |(running, cores): (f64, f64)| is_much(running - cores - 1.0, STATEMENTS_FRACTION_MIN);
    is_much(queue, QUEUE_FRACTION_MIN) || (unlike && in_database.is_some_and(waits_there))
}

/// Whether a noticed part of the requests waits for a lock on a file.
pub(super) fn waits_for_locks(facts: &Facts) -> bool {
    let waiting = facts.value(FactId::lock_waiting_mean).filter(|waiting| *waiting >= 1.0);
    let at_once = concurrency::requests_in_flight(facts);
    waiting.is_some_and(|waiting| at_once.is_none_or(|at_once| waiting >= QUEUE_FRACTION_MIN * at_once))
}

/// Whether requests take longer than alone while a thread of the service has a whole core all the time: more of them wait for it.
pub(super) fn waits_for_a_thread(facts: &Facts) -> bool {
    let is_full = facts.value(FactId::saturated_threads_mean).is_some_and(|threads| threads >= SATURATED_MIN);
    let times = facts.value(FactId::response_time_alone_us).zip(facts.value(FactId::response_time_mean_us));
    is_full
        && facts.value(FactId::offered_rate).is_none()
        && times.is_some_and(|(alone, usual)| usual > SATURATED_TIMES_MIN * alone)
}

/// Without load of our own nobody knows how long answers take when nobody else asks. Those that hold a worker for longer than
/// anybody waits gladly, are not long themselves, and for which nothing works behind the server, wait for something that
/// cannot be seen.
pub(super) fn holds_workers_long(facts: &Facts) -> bool {
    let held_us = facts.value(FactId::service_time_mean_us).unwrap_or(0.0);
    let behind_us = facts.value(FactId::backend_time_mean_us).unwrap_or(0.0);
    let is_short = facts.value(FactId::answer_bytes_mean).is_some_and(|bytes| bytes < ANSWER_BYTES_LONG);
    let is_late = || answers_late(facts) || crate::limits::slow_upstream::finding::check(facts).is_some();
    !facts.loaded && ((is_short && held_us - behind_us > HELD_US_MAX) || is_late())
}

/// Whether much of what was sent had to be sent again. What our own load waits for it measures itself; of others the clients wait for
/// what the server thinks is answered.
pub(super) fn is_lost_on_the_way(facts: &Facts) -> bool {
    let at_least = |name: FactId, min: f64| facts.value(name).is_some_and(|value| value >= min);
    !facts.loaded
        && at_least(FactId::retransmitted_fraction, RETRANSMITTED_FRACTION_MIN)
        && at_least(FactId::retransmits_per_s, RETRANSMITS_PER_S_MIN)
}

/// Whether somebody waits for a disk beside a database that does not let webdyno in: its transactions may, also of a request alone.
pub(super) fn may_wait_for_disk(facts: &Facts) -> bool {
    processors::unread_mariadb_cores(facts).is_some()
        && concurrency::disk_waits(facts).is_some_and(|part| part >= DISK_WAITS_MIN)
}

/// Whether connections on which the last word was the client's wait longer than anybody does gladly, by Little's law; those that
/// are being sent to are not among them.
fn answers_late(facts: &Facts) -> bool {
    let count = |name: FactId| facts.value(name);
    let Some((all, idle)) = count(FactId::client_connections_mean).zip(count(FactId::idle_connections_mean))
    else {
        return false;
    };
    let waiting = all - idle - count(FactId::sending_connections_mean).unwrap_or(0.0);
    if waiting < WAITING_MIN {
        return false;
    }
    match facts.ended_per_s() {
        Some(per_s) => waiting / per_s * 1e6 > HELD_US_MAX,
        // Where nobody counts requests, nobody knows how long it is: but most of them should be worked on.
        None => {
            waiting >= WAITING_UNCOUNTED_MIN
                && concurrency::worked_on_behind(facts) < WORKED_ON_FRACTION_MIN * waiting
        }
    }
}
