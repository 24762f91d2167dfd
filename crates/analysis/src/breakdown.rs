//! Where the mean response time goes, by Little's law: what stands in a queue at rate X waits (length / X).

use crate::facts::Facts;
use webdyno_model::diagnosis::TimeBreakdown;
use webdyno_model::number::significant;

/// Splits the mean response time. Parts that cannot be told are `None`; the rest is `unexplained`.
pub fn breakdown(facts: &Facts) -> TimeBreakdown {
    let Some(response_us) = facts.value("response_time_mean_us") else {
        return TimeBreakdown::default();
    };
    let client = facts.value("client_delay_mean_us");
    let connect = connect_per_request(facts);
    let accept_queue = accept_queue_wait_us(facts);
    let worker = facts.value("worker_time_mean_us");
    // The worker's own clock and the queue's reading are not of the same instant: together they may exceed the whole.
    let known: f64 = [client, connect, accept_queue, worker].into_iter().flatten().sum();
    let rounded = |part: Option<f64>| part.map(|us| significant(us, 4));
    TimeBreakdown {
        client: rounded(client),
        connect: rounded(connect),
        accept_queue: rounded(accept_queue),
        worker: rounded(worker),
        backend: None,
        network: None,
        unexplained: rounded(Some((response_us - known).max(0.0))),
    }
}

/// Mean wait in the accept queue per request, by Little's law: a connection waits (queue / connections accepted per
/// second), and of the requests only those wait that open one: the mean over all of them is (queue / requests).
///
/// `None` as well when the queue does not move: with kept connections next to none may be accepted, and what stands in
/// the queue then waits for longer than the window shows.
pub fn accept_queue_wait_us(facts: &Facts) -> Option<f64> {
    let (queue, ended_per_s) = (facts.value("accept_queue_mean")?, facts.ended_per_s()?);
    let stands = facts.value("connections_opened_per_s").is_some_and(|opened_per_s| {
        let window_s = facts.window_s("connections_opened_per_s").unwrap_or(f64::MAX);
        queue > 0.0 && queue > opened_per_s * window_s
    });
    (!stands).then(|| queue / ended_per_s * 1e6)
}

/// A queue below this share of the requests that are in the server costs no one anything: arrivals come in bursts,
/// and a reading may meet one.
const QUEUE_FRACTION_MIN: f64 = 0.05;

/// From this share of its limit on a queue is noticed however many requests there are: those beyond the limit are
/// not in the server but try to connect again.
const QUEUE_FILLED_MIN: f64 = 0.5;

/// The mean length of the accept queue, if it is one that requests notice; `None` when it is not, or not known.
pub fn noticed_queue(facts: &Facts) -> Option<f64> {
    let queue = facts.value("accept_queue_mean").filter(|queue| *queue >= 1.0)?;
    let in_server =
        facts.value("in_flight_mean").or(facts.value("workers_busy_mean").map(|busy| busy + queue));
    let filled = facts.value("accept_queue_limit").is_some_and(|limit| queue >= QUEUE_FILLED_MIN * limit);
    (filled || in_server.is_none_or(|in_server| queue >= QUEUE_FRACTION_MIN * in_server)).then_some(queue)
}

fn connect_per_request(facts: &Facts) -> Option<f64> {
    let (time, opened) = (facts.value("connect_time_mean_us")?, facts.value("connections_opened_per_s")?);
    Some(time * opened / facts.ended_per_s()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    #[test]
    fn the_parts_add_up_to_the_whole() {
        let parts = breakdown(&facts(
            &[
                ("response_time_mean_us", 600_000.0),
                ("rate", 750.0),
                ("accept_queue_mean", 300.0),
                ("worker_time_mean_us", 195_000.0),
                ("connect_time_mean_us", 100.0),
                ("connections_opened_per_s", 750.0),
            ],
            &[],
        ));
        assert_eq!(parts.accept_queue, Some(400_000.0));
        assert_eq!((parts.worker, parts.connect, parts.client), (Some(195_000.0), Some(100.0), None));
        assert_eq!(parts.unexplained, Some(4_900.0));
    }

    #[test]
    fn a_queue_that_stands_tells_no_wait_and_failures_wait_too() {
        // (opened per second, ended per second, wait): the window is ten seconds.
        for (opened, ended, wait) in [
            (0.0, 750.0, None),
            (20.0, 750.0, None),
            (40.0, 750.0, Some(400_000.0)),
            (750.0, 1500.0, Some(200_000.0)),
        ] {
            let values = [("accept_queue_mean", 300.0), ("rate", 750.0), ("ended_per_s", ended)];
            let facts = facts(&[&values[..], &[("connections_opened_per_s", opened)][..]].concat(), &[]);
            assert_eq!(accept_queue_wait_us(&facts), wait, "{opened} opened, {ended} ended");
        }
    }

    #[test]
    fn a_full_queue_is_noticed_among_any_number_of_clients() {
        let seen = [("accept_queue_mean", 511.0), ("in_flight_mean", 20_000.0)];
        assert_eq!(noticed_queue(&facts(&seen, &[])), None);
        let limited = [&seen[..], &[("accept_queue_limit", 511.0)][..]].concat();
        assert_eq!(noticed_queue(&facts(&limited, &[])), Some(511.0));
    }

    #[test]
    fn a_passing_burst_is_no_queue() {
        for (queue, in_flight, noticed) in
            [(0.5, 2.0, None), (3.0, 450.0, None), (30.0, 450.0, Some(30.0)), (2.0, 10.0, Some(2.0))]
        {
            let facts = facts(&[("accept_queue_mean", queue), ("in_flight_mean", in_flight)], &[]);
            assert_eq!(noticed_queue(&facts), noticed, "{queue} of {in_flight}");
        }
    }

    #[test]
    fn without_load_nothing_is_told() {
        assert_eq!(breakdown(&facts(&[("accept_queue_mean", 3.0)], &[])), TimeBreakdown::default());
    }
}
