//! Where the mean response time goes, by Little's law: what stands in a queue at rate X waits (length / X).

use crate::facts::{FactId, Facts};
use webdyno_model::diagnosis::TimeBreakdown;
use webdyno_model::number::significant;

/// Answers of up to this many bytes arrive in the first flight of segments (ten of them, RFC 6928): what lies between the
/// first and the last byte of these is no transfer.
const FIRST_FLIGHT_BYTES: f64 = 14_480.0;

/// Splits the mean response time. Parts that cannot be told are `None`; the rest is `unexplained`. The parts are at no time
/// two things, and never more than the whole.
pub fn breakdown(facts: &Facts) -> TimeBreakdown {
    let Some(response_us) = facts.value(FactId::response_time_mean_us) else {
        return TimeBreakdown::default();
    };
    let held_us = facts.value(FactId::worker_time_mean_us).map(|held| good_share_us(facts, held));
    let backend = facts.value(FactId::backend_time_mean_us).map(|us| good_share_us(facts, us));
    // A worker that waits for a backend is held: what is behind it cannot take longer than it.
    let backend = held_us.zip(backend).map(|(held, backend)| backend.min(held)).or(backend);
    let client = client(facts);
    let connect = connect(facts, response_us - client.unwrap_or(0.0));
    let around = [client, connect, accept_queue_wait_us(facts), backend, network(facts)];
    let sum: f64 = around.iter().flatten().sum();
    // Queues are read once a second, times are the engine's: together they may exceed the whole a little.
    let shrink = if sum > response_us { response_us / sum } else { 1.0 };
    let around = around.map(|part| part.map(|us| us * shrink));
    let left_us = (response_us - around.iter().flatten().sum::<f64>()).max(0.0);
    // A worker is also held while its answer is on its way, as long as the kernel does not take it all.
    let worker = held_us.map(|held| (held - backend.unwrap_or(0.0)).clamp(0.0, left_us));
    let rounded = |part: Option<f64>| part.map(|us| significant(us, 4));
    let [client, connect, accept_queue, backend, network] = around.map(rounded);
    TimeBreakdown {
        client,
        connect,
        accept_queue,
        worker: rounded(worker),
        backend,
        network,
        unexplained: rounded(Some((left_us - worker.unwrap_or(0.0)).max(0.0))),
    }
}

/// What good answers took of a time that is known of all that ended: the response time is that of good answers, and errors
/// are fast. What failed took no longer than until clients saw it fail.
fn good_share_us(facts: &Facts, of_all_us: f64) -> f64 {
    let failed = facts.value(FactId::failed_time_mean_us).zip(facts.value(FactId::failed_fraction));
    let fast = failed.filter(|(failed_us, share)| *failed_us < of_all_us && *share > 0.0 && *share < 1.0);
    fast.map_or(of_all_us, |(failed_us, share)| (of_all_us - share * failed_us) / (1.0 - share))
}

/// The generator's own delay and, of a load at a rate, the wait for one of its connections to come free: no more than lies
/// between when a request was due and when it was sent, as Little's law is none of a queue that grows.
fn client(facts: &Facts) -> Option<f64> {
    let waiting = facts.value(FactId::waiting_in_generator_mean).zip(facts.ended_per_s());
    let times = facts.value(FactId::response_time_mean_us).zip(facts.value(FactId::service_time_mean_us));
    let unsent_us = times.map_or(f64::INFINITY, |(response, service)| (response - service).max(0.0));
    let waiting_us = waiting.map(|(waiting, per_s)| (waiting / per_s * 1e6).min(unsent_us));
    let parts = [facts.value(FactId::client_delay_mean_us), waiting_us];
    parts.iter().any(Option::is_some).then(|| parts.iter().flatten().sum())
}

/// On the way there and back, and for what does not fit into the first flight the time from the first byte to the last.
fn network(facts: &Facts) -> Option<f64> {
    let round_trip_us = facts.value(FactId::round_trip_min_us)?;
    let is_long =
        facts.value(FactId::received_bytes_per_request).is_some_and(|bytes| bytes > FIRST_FLIGHT_BYTES);
    let times = facts.value(FactId::service_time_mean_us).zip(facts.value(FactId::first_byte_mean_us));
    let transfer_us = times.filter(|_| is_long).map(|(whole, first)| (whole - first).max(0.0));
    Some(round_trip_us + transfer_us.unwrap_or(0.0))
}

/// Mean wait in the accept queue per request, by Little's law: a connection waits (queue / connections accepted per
/// second), and of the requests only those wait that open one: the mean over all of them is (queue / requests).
///
/// `None` as well when the queue does not move: with kept connections next to none may be accepted, and what stands in
/// the queue then waits for longer than the window shows.
pub fn accept_queue_wait_us(facts: &Facts) -> Option<f64> {
    let (queue, ended_per_s) = (facts.value(FactId::accept_queue_mean)?, facts.ended_per_s()?);
    let holds = facts.value(FactId::connections_opened_per_s).is_some_and(|opened_per_s| {
        let window_s = facts.window_s(FactId::connections_opened_per_s).unwrap_or(f64::MAX);
        queue > 0.0 && queue > opened_per_s * window_s
    });
    (!holds).then(|| queue / ended_per_s * 1e6)
}

/// A queue below this share of the requests that are in the server costs no one anything: arrivals come in bursts,
/// and a reading may meet one.
const QUEUE_FRACTION_MIN: f64 = 0.05;

/// From this share of its limit on a queue is noticed however many requests there are: those beyond the limit are
/// not in the server but try to connect again.
const QUEUE_FILLED_MIN: f64 = 0.5;

/// The mean length of the accept queue, if it is one that requests notice; `None` when it is not, or not known.
pub fn noticed_queue(facts: &Facts) -> Option<f64> {
    let queue = facts.value(FactId::accept_queue_mean).filter(|queue| *queue >= 1.0)?;
    let in_server = facts
        .value(FactId::in_flight_mean)
        .or(facts.value(FactId::workers_busy_mean).map(|busy| busy + queue));
    let filled =
        facts.value(FactId::accept_queue_limit).is_some_and(|limit| queue >= QUEUE_FILLED_MIN * limit);
    let is_noticed = in_server.is_none_or(|in_server| queue >= QUEUE_FRACTION_MIN * in_server);
    (filled || (is_noticed && !met_a_burst(facts, queue))).then_some(queue)
}

/// Whether few readings met a burst: by their mean, connections would wait for longer than responses take, more of them than there
/// are requests, and all that is asked for is answered.
fn met_a_burst(facts: &Facts, queue: f64) -> bool {
    let per_s = facts.value(FactId::new_connections_per_s).filter(|per_s| *per_s > 0.0);
    let wait_us = per_s.map(|per_s| queue / per_s * 1e6);
    let whole_us = facts.value(FactId::response_time_mean_us);
    keeps_up(facts) == Some(true)
        && facts.value(FactId::in_flight_mean).is_some_and(|requests| queue > requests)
        && wait_us.zip(whole_us).is_some_and(|(wait_us, whole_us)| wait_us > whole_us)
}

/// Of the offered rate, the share that must be answered.
const OFFERED_FRACTION_MIN: f64 = 0.95;
/// What is on its way at the end of a load is missing in its rate; of slow answers no more than this counts so, seconds.
const IN_TRANSIT_MAX_S: f64 = 1.0;

/// Whether as much is answered as is asked for, at a rate that clients decide; `None` where answers set the pace or it is not
/// known. Answers that take half a second are missing in the first half second: that is no loss.
pub fn keeps_up(facts: &Facts) -> Option<bool> {
    let (rate, offered) = (facts.value(FactId::rate)?, facts.value(FactId::offered_rate)?);
    let excess_us = facts.value(FactId::response_time_excess_us).unwrap_or(0.0);
    let quick_us = facts.value(FactId::response_time_mean_us).map_or(0.0, |mean| (mean - excess_us).max(0.0));
    let on_the_way_s = (quick_us / 1e6).min(IN_TRANSIT_MAX_S);
    let window_s = facts.window_s(FactId::rate).filter(|seconds| *seconds > on_the_way_s)?;
    Some(rate >= OFFERED_FRACTION_MIN * offered * (1.0 - on_the_way_s / window_s))
}

/// Connections that were established, per request; and where first packets are lost, the share of the time at the server in
/// which requests connected, with those among them that were given up.
fn connect(facts: &Facts, at_server_us: f64) -> Option<f64> {
    let established = || {
        let (time, opened) =
            (facts.value(FactId::connect_time_mean_us)?, facts.value(FactId::connections_opened_per_s)?);
        Some(time * opened / facts.ended_per_s()?)
    };
    let lost = facts.value(FactId::lost_syn_connections).is_some_and(|lost| lost >= 1.0);
    let share = facts.value(FactId::connecting_fraction).filter(|_| lost);
    let of_share = share.map(|share| share * at_server_us.max(0.0));
    established().into_iter().chain(of_share).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fact_ids;
    use crate::facts::testing::facts;

    #[test]
    fn the_parts_add_up_to_the_whole() {
        let parts = breakdown(&facts(
            &[
                (FactId::response_time_mean_us, 600_000.0),
                (FactId::rate, 750.0),
                (FactId::accept_queue_mean, 300.0),
                (FactId::worker_time_mean_us, 195_000.0),
                (FactId::connect_time_mean_us, 100.0),
                (FactId::connections_opened_per_s, 750.0),
            ],
            &[],
        ));
        assert_eq!(parts.accept_queue, Some(400_000.0));
        assert_eq!((parts.worker, parts.connect, parts.client), (Some(195_000.0), Some(100.0), None));
        assert_eq!(parts.unexplained, Some(4_900.0));
    }

    #[test]
    fn a_backends_time_is_not_also_the_workers_and_a_transfer_is_the_networks() {
        let base = [
            (FactId::response_time_mean_us, 600_000.0),
            (FactId::rate, 100.0),
            (FactId::worker_time_mean_us, 500_000.0),
        ];
        let backend = (FactId::backend_time_mean_us, 480_000.0);
        let network = [(FactId::round_trip_min_us, 20_000.0), (FactId::service_time_mean_us, 590_000.0)];
        let network = [&network[..], &[(FactId::first_byte_mean_us, 190_000.0)]].concat();
        let long = (FactId::received_bytes_per_request, 200_000.0);
        for (more, [worker, behind, way, rest]) in [
            (vec![], [Some(5e5), None, None, Some(1e5)]),
            (vec![backend], [Some(2e4), Some(4.8e5), None, Some(1e5)]),
            (vec![(FactId::backend_time_mean_us, 9e5)], [Some(0.0), Some(5e5), None, Some(1e5)]),
            // The worker waits while the answer is on its way, and what fits into the first flight is there at once.
            ([&network[..], &[long]].concat(), [Some(1.8e5), None, Some(4.2e5), Some(0.0)]),
            (network, [Some(5e5), None, Some(2e4), Some(8e4)]),
            // At a rate: fifty wait for a connection.
            (vec![(FactId::waiting_in_generator_mean, 50.0)], [Some(1e5), None, None, Some(0.0)]),
            // The queue grows: those that were sent waited for less than Little's law has for those of the end.
            (
                vec![
                    (FactId::waiting_in_generator_mean, 5e3),
                    (FactId::service_time_mean_us, 5e5),
                    (FactId::worker_time_mean_us, 4e5),
                ],
                [Some(4e5), None, None, Some(1e5)],
            ),
        ] {
            let parts = breakdown(&facts(&[&base[..], &more].concat(), &[]));
            let observed = [parts.worker, parts.backend, parts.network, parts.unexplained];
            assert_eq!(observed, [worker, behind, way, rest], "{more:?}");
        }
    }

    #[test]
    fn fast_errors_do_not_shorten_what_good_answers_take() {
        let observed = [
            (FactId::response_time_mean_us, 200_000.0),
            (FactId::worker_time_mean_us, 60_000.0),
            (FactId::failed_fraction, 0.75),
            (FactId::rate, 25.0),
        ];
        let worker = |failed_us: f64| {
            let all = [&observed[..], &[(FactId::failed_time_mean_us, failed_us)]].concat();
            breakdown(&facts(&all, &[])).worker
        };
        // Of four that ended three took 20 ms each: 240 ms in all leave 180 for the good one.
        assert_eq!(worker(20_000.0), Some(180_000.0));
        // What fails after a long wait was not in a worker as long.
        assert_eq!(worker(90_000.0), Some(60_000.0));
    }

    #[test]
    fn lost_first_packets_are_time_that_requests_connect() {
        let observed = [
            (FactId::response_time_mean_us, 1_000_000.0),
            (FactId::client_delay_mean_us, 200_000.0),
            (FactId::rate, 10.0),
            (FactId::connect_time_mean_us, 100.0),
            (FactId::connections_opened_per_s, 10.0),
            (FactId::connecting_fraction, 0.9),
        ];
        for (lost, connect) in [(0.0, 100.0), (5.0, 720_000.0)] {
            let all = [&observed[..], &[(FactId::lost_syn_connections, lost)]].concat();
            assert_eq!(breakdown(&facts(&all, &[])).connect, Some(connect), "{lost}");
        }
    }

    #[test]
    fn a_burst_that_few_readings_met_is_no_queue() {
        // Six readings, one of which met 35 that came at once.
        let seen = [
            (FactId::accept_queue_mean, 6.0),
            (FactId::in_flight_mean, 2.2),
            (FactId::response_time_mean_us, 918.0),
            (FactId::new_connections_per_s, 2392.0),
            (FactId::rate, 2392.0),
            (FactId::offered_rate, 2392.0),
        ];
        for (changes, noticed) in [
            (&[][..], false),
            (&[(FactId::in_flight_mean, 9.0)], true),
            (&[(FactId::response_time_mean_us, 4_000.0)], true),
            (&[(FactId::rate, 1900.0)], true),
            (&[(FactId::accept_queue_limit, 8.0)], true),
        ] {
            let seen = facts(&crate::facts::testing::with_changes(&seen, changes), &[]);
            assert_eq!(noticed_queue(&seen).is_some(), noticed, "{changes:?}");
        }
    }

    #[test]
    fn the_parts_never_exceed_the_whole() {
        const NAMES: [FactId; 8] = fact_ids! {
            worker_time_mean_us, backend_time_mean_us, client_delay_mean_us, connect_time_mean_us,
            connections_opened_per_s, accept_queue_mean, round_trip_min_us, waiting_in_generator_mean,
        };
        // Every choice of what is known, each in several sizes.
        for known in 0..(1_u32 << NAMES.len()) {
            for size in [0.0, 3.0, 700.0, 90_000.0] {
                let pick = |(index, name): (usize, &FactId)| {
                    (known >> index & 1 == 1).then_some((*name, size * (index + 1) as f64))
                };
                let mut values: Vec<_> = NAMES.iter().enumerate().filter_map(pick).collect();
                values.extend([(FactId::response_time_mean_us, 40_000.0), (FactId::ended_per_s, 25.0)]);
                let parts = breakdown(&facts(&values, &[]));
                let all = [
                    parts.client,
                    parts.connect,
                    parts.accept_queue,
                    parts.worker,
                    parts.backend,
                    parts.network,
                    parts.unexplained,
                ];
                let sum: f64 = all.iter().flatten().sum();
                assert!((sum - 40_000.0).abs() < 40.0, "{values:?} {parts:?}");
                assert!(all.iter().flatten().all(|part| *part >= 0.0), "{parts:?}");
            }
        }
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
            let values =
                [(FactId::accept_queue_mean, 300.0), (FactId::rate, 750.0), (FactId::ended_per_s, ended)];
            let facts =
                facts(&[&values[..], &[(FactId::connections_opened_per_s, opened)][..]].concat(), &[]);
            assert_eq!(accept_queue_wait_us(&facts), wait, "{opened} opened, {ended} ended");
        }
    }

    #[test]
    fn a_full_queue_is_noticed_among_any_number_of_clients() {
        let observed = [(FactId::accept_queue_mean, 511.0), (FactId::in_flight_mean, 20_000.0)];
        assert_eq!(noticed_queue(&facts(&observed, &[])), None);
        let limited = [&observed[..], &[(FactId::accept_queue_limit, 511.0)][..]].concat();
        assert_eq!(noticed_queue(&facts(&limited, &[])), Some(511.0));
    }

    #[test]
    fn a_passing_burst_is_no_queue() {
        for (queue, in_flight, noticed) in
            [(0.5, 2.0, None), (3.0, 450.0, None), (30.0, 450.0, Some(30.0)), (2.0, 10.0, Some(2.0))]
        {
            let facts =
                facts(&[(FactId::accept_queue_mean, queue), (FactId::in_flight_mean, in_flight)], &[]);
            assert_eq!(noticed_queue(&facts), noticed, "{queue} of {in_flight}");
        }
    }

    #[test]
    fn what_is_on_its_way_at_the_end_is_no_loss() {
        for (rate, mean_us, excess_us, keeps) in [
            (96.0, 20_000.0, 0.0, true),
            (92.0, 20_000.0, 0.0, false),
            // Half a second of the ten: the first answers come then.
            (92.0, 500_000.0, 300.0, true),
            (89.0, 500_000.0, 300.0, false),
            (80.0, 4_000_000.0, 1_500_000.0, false),
            (92.0, 500_000.0, 480_000.0, false),
        ] {
            let observed = [
                (FactId::rate, rate),
                (FactId::offered_rate, 100.0),
                (FactId::response_time_mean_us, mean_us),
                (FactId::response_time_excess_us, excess_us),
            ];
            assert_eq!(keeps_up(&facts(&observed, &[])), Some(keeps), "{rate} after {mean_us} us");
        }
        assert_eq!(keeps_up(&facts(&[(FactId::rate, 5.0)], &[])), None);
    }

    #[test]
    fn without_load_nothing_is_told() {
        assert_eq!(breakdown(&facts(&[(FactId::accept_queue_mean, 3.0)], &[])), TimeBreakdown::default());
    }
}
