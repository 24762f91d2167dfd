//! Whether workers, all of which are busy, wait for something behind them that serves no more: then others like them would
//! only wait there as well.
//!
//! Facts: sock_diag(7) tells how many connections wait in the queues of other programs that listen. What is on another
//! machine, or a lock in the program, has no such queue; the first responses of the load show it (`worker_time_first_us`).

use crate::facts::{FactId, Facts};
use crate::limits::conntrack_full;
use crate::resources::concurrency::has_lasting_queue;
use crate::wording::{format_number, format_time};

/// A queue that is at least this share of the workers holds these; a shorter one is a burst.
const QUEUE_FRACTION_MIN: f64 = 0.2;
const QUEUE_MIN: f64 = 3.0;
/// So many of the workers wait for connections that the machine drops itself.
const DROPPED_FRACTION_MIN: f64 = 0.5;

/// What the workers wait for, in a sentence; `None` where nothing shows that they wait in turn. The queues of PHP-FPM are told
/// apart by rules of their own.
pub(crate) fn serialized_wait(facts: &Facts, workers: f64) -> Option<String> {
    if facts.value(FactId::fpm_queue_behind_mean).is_some() {
        return None;
    }
    queue(facts, workers).or_else(|| at_start(facts, workers))
}

/// Whether workers wait for connections to backends whose packets this machine drops, as its table of connections is full: others
/// like them would wait as well.
pub(crate) fn are_connections_dropped(facts: &Facts, workers: f64) -> bool {
    let connecting: f64 = facts.each(FactId::upstream_connecting_mean).map(|(_, count)| count).sum();
    conntrack_full::finding::is_full(facts) == Some(true) && connecting >= DROPPED_FRACTION_MIN * workers
}

/// Connections that wait until another program on this machine takes them.
fn queue(facts: &Facts, workers: f64) -> Option<String> {
    let long = facts.each(FactId::backend_queue_mean).filter(|(listener, queue)| {
        *queue >= QUEUE_MIN && *queue >= QUEUE_FRACTION_MIN * workers && has_lasting_queue(facts, listener)
    });
    let (listener, queue) = long.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        " All {} workers are busy, and {} connections wait behind them in the accept queue of {listener}: that backend is at its limit, and more workers would only wait as well.",
        format_number(workers),
        format_number(queue)
    ))
}

/// The first responses came as fast as later ones, when none had waited for a worker yet.
fn at_start(facts: &Facts, workers: f64) -> Option<String> {
    let (first, rate) = facts.value(FactId::worker_time_first_us).zip(facts.ended_per_s())?;
    Some(format!(
        " All {} workers are busy, each for {} per request; the first responses of the load took {}, and the rate did not rise since: workers wait for each other, on something that serves {} req/s.",
        format_number(workers),
        format_time(workers / rate * 1e6),
        format_time(first),
        format_number(rate)
    ))
}

#[cfg(test)]
mod tests {
    use crate::facts::FactId;
    use crate::facts::testing::{facts, facts_of_several};

    #[test]
    fn a_queue_behind_or_the_first_answers_tell() {
        let queue = |queue: f64, share: f64| {
            let app = "127.0.0.1:8000";
            let observed =
                [(FactId::backend_queue_mean, app, queue), (FactId::backend_waiting_fraction, app, share)];
            super::serialized_wait(&facts_of_several(&[], &observed), 40.0)
        };
        let reported = queue(38.0, 1.0).unwrap();
        assert!(
            reported.contains("38 connections wait behind them in the accept queue of 127.0.0.1:8000"),
            "{reported}"
        );
        for (waiting, share) in [(4.0, 1.0), (38.0, 0.2)] {
            assert_eq!(queue(waiting, share), None, "{waiting} in {share}");
        }
        let first = [(FactId::worker_time_first_us, 25_000.0), (FactId::rate, 45.0)];
        let reported = super::serialized_wait(&facts(&first, &[]), 40.0).unwrap();
        assert!(reported.contains("on something that serves 45 req/s"), "{reported}");
        let pool = [&first[..], &[(FactId::fpm_queue_behind_mean, 30.0)]].concat();
        assert_eq!(super::serialized_wait(&facts(&pool, &[]), 40.0), None, "PHP-FPM has a rule");
    }
}
