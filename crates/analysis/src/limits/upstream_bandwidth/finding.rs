//! When `upstream-bandwidth` is found, what proves it, and what to change.

use super::path::{
    SPREAD_EVEN_MAX, WINDOW_BYTES, are_late, are_on_the_way, busiest_interface, drops_most,
    has_idle_processors, loses_data, loses_syns, overflows, queued_round_trips, round_trips, slow_connect,
};
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::network_saturated;
use crate::resources::time_breakdown::{keeps_up, noticed_queue};
use crate::resources::workers;
use crate::wording::{format_bytes, format_number, format_time};
use webdyno_model::diagnosis::Finding;

/// What a line that is full carries differs by no more than this from one second to the other.
const SPREAD_MAX: f64 = 0.15;
/// The share of segments that are sent again from which on a queue overflows: on a good line it is below a thousandth.
const RETRANSMITTED_MIN: f64 = 0.002;
/// The share that is much by itself: on the internet one in a hundred is a bad day.
const RETRANSMITTED_MUCH: f64 = 0.01;
/// Of the busy workers, those that wait for the end of a connection whose answer is still sent again.
const CLOSING_FRACTION_MIN: f64 = 0.3;
/// Fewer of them are chance.
const RETRANSMITS_MIN: f64 = 10.0;
/// Responses that take this many times as long as the quickest ones wait for something.
const INFLATION_MIN: f64 = 1.3;
/// Of answers alone, without headers: less than this, of half a Mbit/s, is no line that anybody has.
const BYTES_PER_S_MIN: f64 = 50_000.0;
/// The same where no round trip was seen to wait: a few lost packets of a quiet server prove no line.
const BYTES_PER_S_MIN_UNSEEN: f64 = 125_000.0;
/// Of a response's time, what passes while it arrives, or while packets wait.
const RECEIVING_FRACTION_MIN: f64 = 0.3;
const WAITING_FRACTION_MIN: f64 = 0.1;
const CONFIDENCE_UNSEEN: f64 = 0.5;
/// What of the lost throughput goes with it.
const EXPLAINS: f64 = 0.85;

/// What the finding rests on.
const CITED: &[FactId] = &fact_ids! {
    received_bytes_per_s, received_spread_fraction, received_bytes_per_answer, nic_sent_bits_per_s,
    client_round_trip_mean_us, client_round_trip_min_us, nic_sent_spread_fraction, round_trip_mean_us, round_trip_min_us, connect_time_mean_us, response_time_alone_us,
    retransmits, retransmits_per_s, retransmitted_fraction, receiving_fraction, response_time_inflation, sending_connections_mean, in_flight_mean,
    accept_queue_mean, workers_idle_mean, workers_closing_mean, other_connections_mean, rate,
};

/// Fires when the way to the visitors is full and nothing of the server is.
pub fn check(facts: &Facts) -> Option<Finding> {
    let holds_workers = holds_workers(facts);
    if !holds_workers && is_server_at_limit(facts) {
        return None;
    }
    let again = facts.value(FactId::retransmitted_fraction).is_some_and(|share| share >= RETRANSMITTED_MIN)
        && facts.value(FactId::retransmits).is_some_and(|count| count >= RETRANSMITS_MIN);
    let much = facts.value(FactId::retransmitted_fraction).is_some_and(|share| share >= RETRANSMITTED_MUCH);
    let on_the_way = are_on_the_way(facts);
    let (waits, is_doubtful) = queued_round_trips(facts, again);
    let busiest = busiest_interface(facts);
    let bytes = facts.value(FactId::received_bytes_per_s).or(busiest.map(|(bytes, _)| bytes))?;
    let spread = facts.value(FactId::received_spread_fraction).or(busiest.and_then(|(_, spread)| spread));
    let flat = spread.is_some_and(|spread| spread <= SPREAD_MAX);
    let connect = slow_connect(facts).filter(|_| spread.is_some_and(|spread| spread <= SPREAD_EVEN_MAX));
    // Where a queue is as long all the time, all answers are as late.
    let slow = on_the_way
        || connect.is_some()
        || facts.value(FactId::response_time_inflation).is_none_or(|ratio| ratio >= INFLATION_MIN);
    // Requests that are given up all together make seconds differ, and so do segments that are sent again for seconds.
    let uneven = again && waits.is_some() && (on_the_way || overflows(facts));
    let bytes_min = if waits.is_some() { BYTES_PER_S_MIN } else { BYTES_PER_S_MIN_UNSEEN };
    let is_late = are_late(facts);
    let is_dropped = holds_workers || (drops_most(facts) && (is_late || !facts.loaded));
    let is_quiet = !facts.loaded && bytes < BYTES_PER_S_MIN;
    if is_quiet || (!is_dropped && (bytes < bytes_min || !(flat || uneven) || !slow)) {
        return None;
    }
    let confidence: f64 = match (waits, again) {
        // Workers that wait for clients which have gone look the same: those lose no SYN.
        _ if is_dropped => {
            let is_sure = if holds_workers { loses_syns(facts) } else { is_late };
            if is_sure { 0.9 } else { 0.7 }
        }
        (Some(_), true) => 0.9,
        (Some(_), false) => 0.7,
        (None, _) if connect.is_some() => 0.7,
        // Seen from the server alone; or what is too much is dropped where no queue makes the others late.
        (None, true) if (round_trips(facts).is_none() && much) || loses_data(facts) => CONFIDENCE_UNSEEN,
        _ => return None,
    };
    // At a rate that is kept the bytes of each second are the same because the requests are.
    let takes_time =
        is_what_takes_time(facts) || ((connect.is_some() || on_the_way) && facts.service.is_some());
    let is_sure =
        is_dropped || (takes_time && !is_doubtful && (flat || on_the_way) && keeps_up(facts) != Some(true));
    let confidence = if is_sure { confidence } else { confidence.min(CONFIDENCE_UNSEEN) };
    Some(Finding {
        id: LimitId::UpstreamBandwidth.into(),
        summary: summary(facts, bytes, &wait_text(waits, connect), again),
        confidence,
        explains_fraction: Some(EXPLAINS),
        facts: facts.cite(CITED),
        remedies: network_saturated::finding::remedies(facts, true),
    })
}

/// How long packets wait: the mean and the shortest round trip, or a TCP connect and a request that was alone.
fn wait_text(round_trips: Option<(f64, f64)>, connect: Option<(f64, f64)>) -> String {
    let round = round_trips.map(|(mean, min)| {
        format!(" Round trips take {} instead of {}", format_time(mean), format_time(min))
    });
    let connect = || {
        connect.map(|(us, alone_us)| {
            let (us, alone_us) = (format_time(us), format_time(alone_us));
            format!(" A TCP connect takes {us}, a whole request alone took {alone_us}")
        })
    };
    round.or_else(connect).map_or(String::new(), |text| format!("{text}: packets queue on the path."))
}

/// What is said of it. `again`: whether many segments are sent again.
fn summary(facts: &Facts, bytes: f64, waits: &str, again: bool) -> String {
    let again = facts
        .value(FactId::retransmits)
        .filter(|_| again)
        .map_or(String::new(), |count| format!(" {} retransmits.", format_number(count)));
    let server = match facts.service {
        Some(_) if holds_workers(facts) => {
            "and the workers wait until what is dropped on the way was sent again"
        }
        Some(_) => "while no queue on the server is full",
        None => "and whether the server is at a limit of its own was not observed",
    };
    format!(
        "Network path to the clients saturated: together they receive {}/s, {server}.{waits}{again}",
        format_bytes(bytes)
    )
}

/// Whether the workers are busy because much of what they sent is dropped on the way: a worker that closes a connection waits until the
/// client has all of it. A point that drops what is too much has no queue, so nothing that arrives is late.
pub(crate) fn holds_workers(facts: &Facts) -> bool {
    let closing = facts.value(FactId::workers_closing_mean).zip(facts.value(FactId::workers_busy_mean));
    workers::is_limit_reached(facts)
        && loses_data(facts)
        && closing.is_some_and(|(closing, busy)| closing >= CLOSING_FRACTION_MIN * busy)
        && has_idle_processors(facts)
        && !is_path_here_full(facts)
        && crate::limits::conntrack_full::finding::is_full(facts) != Some(true)
}

/// Whether answers are slow on the way: while they arrive, or by what packets wait, of a long answer in each window. Of a server that is
/// not seen nobody knows what else it waits for, nor whose link it is.
fn is_what_takes_time(facts: &Facts) -> bool {
    let bytes = facts.value(FactId::answer_bytes_mean).filter(|_| !facts.loaded);
    let windows = bytes.map_or(1.0, |bytes| (bytes / WINDOW_BYTES).max(1.0));
    let of_response = round_trips(facts).zip(facts.value(FactId::response_time_mean_us));
    let is_way =
        of_response.is_none_or(|((mean, min), us)| windows * (mean - min) >= WAITING_FRACTION_MIN * us);
    let arrives =
        facts.value(FactId::receiving_fraction).is_some_and(|share| share >= RECEIVING_FRACTION_MIN);
    facts.service.is_some() && (is_way || arrives)
}

/// Whether something of the server itself is known to make answers wait.
fn is_server_at_limit(facts: &Facts) -> bool {
    is_path_here_full(facts)
        || noticed_queue(facts).is_some()
        || workers::is_limit_reached(facts)
        || crate::limits::conntrack_full::finding::is_full(facts) == Some(true)
}

/// Whether what is dropped is dropped here: a link of the server is full, or its queue of connections.
fn is_path_here_full(facts: &Facts) -> bool {
    network_saturated::finding::fullest_link(facts).is_some()
        || facts.value(FactId::listen_drops_per_s).is_some_and(|drops| drops >= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts_of_several, with_changes};

    const FULL: &[(FactId, f64)] = &[
        (FactId::received_bytes_per_s, 1.2e6),
        (FactId::received_spread_fraction, 0.02),
        (FactId::round_trip_mean_us, 400_000.0),
        (FactId::round_trip_min_us, 900.0),
        (FactId::retransmits, 40.0),
        (FactId::retransmitted_fraction, 0.006),
        (FactId::response_time_inflation, 2.0),
        (FactId::accept_queue_mean, 0.0),
    ];

    const FAST: &[(FactId, f64)] = &[
        (FactId::received_bytes_per_s, 35.5e6),
        (FactId::received_spread_fraction, 0.001),
        (FactId::round_trip_mean_us, 2_900.0),
        (FactId::round_trip_min_us, 1_700.0),
        (FactId::connect_time_mean_us, 3_200.0),
        (FactId::response_time_mean_us, 9_700.0),
        (FactId::response_time_alone_us, 2_000.0),
        (FactId::response_time_inflation, 1.07),
        (FactId::usable_busy_fraction, 0.17),
        (FactId::accept_queue_mean, 0.5),
    ];

    const LINKS: [(FactId, &str, f64); 4] = [
        (FactId::nic_sent_bits_per_s, "eth0", 1e7),
        (FactId::nic_sent_spread_fraction, "eth0", 0.03),
        (FactId::nic_sent_bits_per_s, "lo", 3e7),
        (FactId::nic_sent_spread_fraction, "lo", 0.9),
    ];

    const ON_THE_WAY: &[(FactId, f64)] = &[
        (FactId::round_trip_mean_us, 18_000.0),
        (FactId::retransmits, 0.0),
        (FactId::answer_bytes_mean, 6_000.0),
        (FactId::sending_connections_mean, 22.0),
        (FactId::in_flight_mean, 28.0),
        (FactId::response_time_inflation, 1.1),
    ];
    const GIVEN_UP: &[(FactId, f64)] = &[
        (FactId::received_spread_fraction, 0.4),
        (FactId::answer_bytes_mean, 6_000.0),
        (FactId::sending_connections_mean, 112.0),
        (FactId::client_connections_mean, 114.0),
        (FactId::in_flight_mean, 213.0),
    ];

    const DROPPED: &[(FactId, f64)] = &[
        (FactId::lost_syn_fraction, 0.14),
        (FactId::received_bytes_per_s, 36_000.0),
        (FactId::received_spread_fraction, 0.5),
        (FactId::retransmits, 1_200.0),
        (FactId::retransmitted_fraction, 0.37),
    ];

    #[test]
    fn a_line_that_drops_most_of_what_is_sent_is_full_however_little_arrives() {
        for (what, changed, confidence) in [
            ("as it is", (FactId::retransmits, 1_200.0), Some(0.9)),
            ("SYNs alone", (FactId::retransmitted_fraction, 0.02), None),
            ("no SYN", (FactId::lost_syn_fraction, 0.0), None),
            ("what arrives is not late", (FactId::round_trip_mean_us, 1_800.0), None),
        ] {
            let values = with_changes(FULL, &with_changes(DROPPED, &[changed]));
            let found = check(&facts_of_several(&values, &LINKS)).map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{what}");
        }
        // Watched: nobody's round trips are known, and slow clients lose no SYN.
        for (lost_syns, confidence) in [(0.08, Some(0.7)), (0.0, None)] {
            let watched = [
                (FactId::lost_syn_fraction, lost_syns),
                (FactId::round_trip_mean_us, f64::NAN),
                (FactId::received_bytes_per_s, f64::NAN),
                (FactId::received_spread_fraction, f64::NAN),
                (FactId::response_time_inflation, f64::NAN),
            ];
            let mut links = LINKS;
            links[1].2 = 0.5;
            let values = with_changes(&with_changes(FULL, DROPPED), &watched);
            let mut facts = facts_of_several(&values, &links);
            facts.loaded = false;
            assert_eq!(check(&facts).map(|finding| finding.confidence), confidence, "{lost_syns}");
        }
    }

    #[test]
    fn a_point_that_drops_what_is_too_much_makes_nothing_late_that_arrives() {
        for (again, spread, confidence) in
            [(0.3, 0.02, Some(CONFIDENCE_UNSEEN)), (0.1, 0.02, None), (0.3, 0.4, None)]
        {
            let changed = [
                (FactId::round_trip_mean_us, 1_800.0),
                (FactId::retransmits, 9_000.0),
                (FactId::retransmitted_fraction, again),
                (FactId::received_spread_fraction, spread),
            ];
            let found = check(&facts_of_several(&with_changes(FULL, &changed), &LINKS));
            assert_eq!(found.map(|finding| finding.confidence), confidence, "{again} {spread}");
        }
    }

    #[test]
    fn workers_that_close_connections_over_a_path_that_drops_are_held_by_it() {
        const HELD: &[(FactId, f64)] = &[
            (FactId::round_trip_mean_us, 54_000.0),
            (FactId::round_trip_min_us, 50_000.0),
            (FactId::retransmits, 8_900.0),
            (FactId::retransmitted_fraction, 0.4),
            (FactId::scoreboard_full_fraction, 1.0),
            (FactId::workers_when_full, 107.0),
            (FactId::accept_queue_mean, 66.0),
            (FactId::workers_busy_mean, 107.0),
            (FactId::workers_closing_mean, 54.0),
            (FactId::usable_busy_fraction, 0.16),
        ];
        for (what, changed, confidence) in [
            ("as it is", (FactId::retransmits, 8_900.0), Some(0.7)),
            ("SYNs are lost as well", (FactId::lost_syn_fraction, 0.04), Some(0.9)),
            ("the server's own queue drops", (FactId::listen_drops_per_s, 20.0), None),
            ("a good line", (FactId::retransmitted_fraction, 0.02), None),
            ("programs that work", (FactId::workers_closing_mean, 12.0), None),
            ("processors are late", (FactId::usable_busy_fraction, 0.9), None),
            ("a table of connections that is full", (FactId::conntrack_full_fraction, 0.9), None),
        ] {
            let values = with_changes(FULL, &with_changes(HELD, &[changed]));
            let found = check(&facts_of_several(&values, &LINKS));
            assert_eq!(found.as_ref().map(|finding| finding.confidence), confidence, "{what}");
            assert!(
                found
                    .is_none_or(|finding| finding.summary.contains("the workers wait until what is dropped"))
            );
        }
    }

    #[test]
    fn only_small_answers_that_are_not_confirmed_are_on_the_way() {
        for changed in [
            (FactId::answer_bytes_mean, 400_000.0),
            (FactId::sending_connections_mean, 4.0),
            (FactId::other_connections_mean, 10.0),
        ] {
            let values = with_changes(FULL, &with_changes(ON_THE_WAY, &[changed]));
            assert!(check(&facts_of_several(&values, &LINKS)).is_none(), "{changed:?}");
        }
    }

    #[test]
    fn where_most_answers_are_on_the_way_that_is_what_takes_the_time() {
        let late = [GIVEN_UP, &[(FactId::response_time_mean_us, 9_000_000.0)]].concat();
        let found = check(&facts_of_several(&with_changes(FULL, &late), &LINKS)).unwrap();
        assert_eq!(
            found.confidence, 0.9,
            "round trips are short, as the queue is, and what it drops is sent again"
        );
    }

    #[test]
    fn on_a_fast_line_a_connect_takes_longer_than_a_request_that_was_alone() {
        let found = check(&facts_of_several(FAST, &LINKS)).unwrap();
        assert_eq!(found.confidence, 0.7);
        let says = "A TCP connect takes 3.2 ms, a whole request alone took 2 ms: packets queue";
        assert!(found.summary.contains(says), "{}", found.summary);
        for (what, changed) in [
            ("a server that varies", (FactId::received_spread_fraction, 0.04)),
            ("acknowledgements wait for answers", (FactId::connect_time_mean_us, 400.0)),
            ("most of the time passes elsewhere", (FactId::response_time_mean_us, 40_000.0)),
            ("as alone", (FactId::response_time_alone_us, 9_000.0)),
            ("not known alone", (FactId::response_time_alone_us, f64::NAN)),
            ("lost SYNs", (FactId::lost_syn_fraction, 0.01)),
            ("processors are late", (FactId::usable_busy_fraction, 0.9)),
            ("the server is slow to accept", (FactId::accept_queue_mean, 12.0)),
        ] {
            // The round trip is long in all of them.
            let values = with_changes(FAST, &[(FactId::round_trip_mean_us, 38_000.0), changed]);
            let values = with_changes(&values, &[(FactId::round_trip_min_us, 10_000.0)]);
            assert!(check(&facts_of_several(&values, &LINKS)).is_none(), "{what}");
        }
        let mut outside = facts_of_several(FAST, &[]);
        outside.service = None;
        assert_eq!(check(&outside).unwrap().confidence, CONFIDENCE_UNSEEN);
    }

    #[test]
    fn of_a_watched_server_the_round_trips_of_its_clients_tell_it() {
        const UNKNOWN: f64 = f64::NAN;
        const WATCHED: &[(FactId, f64)] = &[
            (FactId::round_trip_mean_us, UNKNOWN),
            (FactId::received_bytes_per_s, UNKNOWN),
            (FactId::received_spread_fraction, UNKNOWN),
            (FactId::response_time_inflation, UNKNOWN),
            (FactId::client_round_trip_mean_us, 300_000.0),
            (FactId::client_round_trip_min_us, 13_000.0),
            (FactId::usable_busy_fraction, 0.2),
        ];
        for (what, changed, loaded, confidence) in [
            ("queued packets, and lost ones", (FactId::retransmits, 40.0), false, Some(0.9)),
            ("a long queue", (FactId::retransmits, 0.0), false, Some(0.7)),
            ("a queue of 68 ms", (FactId::client_round_trip_mean_us, 81_000.0), false, Some(0.9)),
            ("clients that are far", (FactId::client_round_trip_min_us, 150_000.0), false, None),
            ("processors are late", (FactId::usable_busy_fraction, 0.9), false, None),
            ("our own load has its own", (FactId::retransmits, 40.0), true, None),
            ("confirmations are held back", (FactId::client_round_trip_mean_us, 61_000.0), false, None),
            ("a backend takes the time", (FactId::response_time_mean_us, 9_000_000.0), false, Some(0.5)),
        ] {
            let mut facts = facts_of_several(&with_changes(&with_changes(FULL, WATCHED), &[changed]), &LINKS);
            facts.loaded = loaded;
            assert_eq!(check(&facts).map(|finding| finding.confidence), confidence, "{what}");
        }
        // Of a long answer packets wait in each window.
        let long = [
            (FactId::retransmits, 40.0),
            (FactId::answer_bytes_mean, 600_000.0),
            (FactId::response_time_mean_us, 9_000_000.0),
        ];
        let mut facts = facts_of_several(&with_changes(&with_changes(FULL, WATCHED), &long), &LINKS);
        facts.loaded = false;
        assert_eq!(check(&facts).unwrap().confidence, 0.9);
        // A short queue that overflows all the time.
        let uneven = [
            (FactId::client_round_trip_mean_us, 38_000.0),
            (FactId::client_round_trip_min_us, 130.0),
            (FactId::client_connections_mean, 33.0),
        ];
        for (sending, again, confidence) in
            [(26.0, 0.44, Some(CONFIDENCE_UNSEEN)), (8.0, 0.44, None), (26.0, 0.03, None)]
        {
            let seen = [(FactId::sending_connections_mean, sending), (FactId::retransmitted_fraction, again)];
            let values = with_changes(&with_changes(FULL, WATCHED), &[&uneven[..], &seen].concat());
            let mut links = LINKS;
            links[1].2 = 0.49;
            let mut facts = facts_of_several(&values, &links);
            facts.loaded = false;
            assert_eq!(check(&facts).map(|finding| finding.confidence), confidence, "{sending:?}");
        }
    }

    #[test]
    fn of_a_watched_server_all_of_whose_connections_send_evenly_a_short_queue_tells_it() {
        for (what, sending, rate, spread, round_trip_us, confidence) in [
            ("as it is", 22.0, 700.0, 0.009, 28_000.0, Some(CONFIDENCE_UNSEEN)),
            ("a long queue", 22.0, 700.0, 0.009, 80_000.0, Some(0.7)),
            ("some wait for the server", 15.0, 700.0, 0.009, 28_000.0, None),
            ("streams", 22.0, 1.0, 0.009, 28_000.0, None),
            ("seconds differ", 22.0, 700.0, 0.03, 28_000.0, None),
            ("hardly a queue", 22.0, 700.0, 0.009, 6_000.0, None),
        ] {
            let values = [
                (FactId::rate, rate),
                (FactId::client_round_trip_mean_us, round_trip_us),
                (FactId::client_round_trip_min_us, 10.0),
                (FactId::client_connections_mean, 22.0),
                (FactId::sending_connections_mean, sending),
                (FactId::usable_busy_fraction, 0.2),
                (FactId::accept_queue_mean, 0.0),
            ];
            let mut links = LINKS;
            links[1].2 = spread;
            let mut facts = facts_of_several(&values, &links);
            facts.loaded = false;
            assert_eq!(check(&facts).map(|finding| finding.confidence), confidence, "{what}");
        }
    }

    #[test]
    fn a_full_line_somewhere_makes_packets_wait_and_be_lost() {
        const UNKNOWN: f64 = f64::NAN;
        for (changes, confidence) in [
            (&[][..], Some(0.9)),
            (&[(FactId::retransmits, 2.0)][..], Some(0.7)),
            // Most of the time passes elsewhere.
            (&[(FactId::response_time_mean_us, 9_000_000.0)][..], Some(0.5)),
            // Clients ask evenly, and get all that they ask for.
            (&[(FactId::rate, 100.0), (FactId::offered_rate, 100.0)][..], Some(0.5)),
            (&[(FactId::rate, 60.0), (FactId::offered_rate, 100.0)][..], Some(0.9)),
            // Seen from the server alone.
            (
                &[
                    (FactId::round_trip_mean_us, UNKNOWN),
                    (FactId::received_bytes_per_s, UNKNOWN),
                    (FactId::received_spread_fraction, UNKNOWN),
                    (FactId::response_time_inflation, UNKNOWN),
                    (FactId::retransmitted_fraction, 0.03),
                ][..],
                Some(0.5),
            ),
            // The same of less than 1 Mbit/s: a quiet server whose packets were lost.
            (
                &[
                    (FactId::round_trip_mean_us, UNKNOWN),
                    (FactId::received_bytes_per_s, 100_000.0),
                    (FactId::retransmitted_fraction, 0.03),
                ][..],
                None,
            ),
            // A short queue that overflows all the time.
            (&[(FactId::round_trip_mean_us, 15_000.0)][..], Some(0.9)),
            (&[(FactId::round_trip_mean_us, 15_000.0), (FactId::retransmits, 2.0)][..], None),
            // A long queue that loses nothing: the answers are in it.
            (ON_THE_WAY, Some(0.7)),
            // A short one, and clients that give up.
            (GIVEN_UP, Some(0.9)),
            (&GIVEN_UP[..1], None),
            // A line that loses packets without a queue, one that is far, and one that nothing waits for.
            (&[(FactId::round_trip_mean_us, 3000.0)][..], None),
            (&[(FactId::round_trip_min_us, 390_000.0)][..], None),
            (&[(FactId::response_time_inflation, 1.1)][..], None),
            (&[(FactId::received_spread_fraction, 0.5)][..], None),
            (&[(FactId::received_bytes_per_s, 20_000.0)][..], None),
            // A line of 1 Mbit/s, less its headers.
            (&[(FactId::received_bytes_per_s, 100_000.0)][..], Some(0.9)),
            // The server itself makes them wait.
            (&[(FactId::accept_queue_mean, 300.0)][..], None),
            (&[(FactId::conntrack_full_fraction, 0.9)][..], None),
        ] {
            let values = with_changes(FULL, changes);
            let found = check(&facts_of_several(&values, &LINKS)).map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{changes:?}");
        }
        let mut outside = facts_of_several(FULL, &[]);
        outside.service = None;
        let found = check(&outside).unwrap();
        assert_eq!(found.confidence, CONFIDENCE_UNSEEN);
        assert!(found.summary.contains("was not observed"), "{}", found.summary);
    }
}
