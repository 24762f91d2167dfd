//! What is seen of the way between server and clients: how late packets are, what is under way, what is dropped. RFC 6298 has the
//! round trips that a sender measures.

use crate::facts::{FactId, Facts};
use crate::limits::network_saturated;

/// Round trips of so many times the shortest one wait in a queue..
const ROUND_TRIP_RATIO_MIN: f64 = 4.0;
/// ..if it is by this much: a response to a small packet may be held back for 40 ms, and a busy machine is late.
const ROUND_TRIP_EXCESS_US_MIN: f64 = 50_000.0;
/// The same where segments are lost as well (a short queue that overflows all the time adds little), or answers are seen on the way. Of
/// the server's own round trips, which end with a client's confirmation, that is held back, only where most of them are seen there.
const ROUND_TRIP_EXCESS_US_LOST: f64 = 10_000.0;
/// A full line carries the same to a hundredth, whatever is asked for.
pub(super) const SPREAD_EVEN_MAX: f64 = 0.01;
/// Of the connections of a watched server, those that send all the time: nobody waits for something else.
const SENDING_ALL_MIN: f64 = 0.9;
/// Fewer connections are each a line of its own, and fewer answers on each are streams and long downloads.
const CONNECTIONS_MIN: f64 = 5.0;
const ANSWERS_PER_S_MIN: f64 = 0.2;
/// Of the requests in flight, or of the connections, those whose answer was sent and is not confirmed. Each fits into the window that
/// a client's kernel opens with: it is confirmed as it arrives, however late the client itself is.
const ON_THE_WAY_FRACTION_MIN: f64 = 0.6;
pub(super) const WINDOW_BYTES: f64 = 60_000.0;
/// Processors that are busier make connections late themselves; so does a SYN that is lost, by a second.
const BUSY_MAX: f64 = 0.7;
const LOST_SYNS_MAX: f64 = 0.0005;
/// A connect takes so much longer than a request alone, and such a part of the response time.
const CONNECT_EXCESS_US_MIN: f64 = 500.0;
const CONNECT_FRACTION_MIN: f64 = 0.2;
/// So many overflow a short queue all the time: what arrives comes in bursts, and no second carries what another one does.
const RETRANSMITTED_MOSTLY: f64 = 0.05;
/// So many sent again while SYNs are lost as well and round trips are long: most of what is sent does not fit, and the few bytes that
/// arrive tell nothing. Where packets are lost for another reason, those that arrive are not late.
const RETRANSMITTED_MOST: f64 = 0.2;
const RETRANSMITS_MOST: f64 = 100.0;
const LOST_SYNS_MOST: f64 = 0.02;

/// The mean and the shortest round trip: of our own load, else of the clients as the server sees them. Processors that are full are late
/// with what is confirmed.
pub(super) fn round_trips(facts: &Facts) -> Option<(f64, f64)> {
    let own = facts.value(FactId::round_trip_mean_us).zip(facts.value(FactId::round_trip_min_us));
    let of_clients =
        facts.value(FactId::client_round_trip_mean_us).zip(facts.value(FactId::client_round_trip_min_us));
    own.or(of_clients.filter(|_| !facts.loaded && has_idle_processors(facts)))
}

/// Whether round trips take many times as long as the shortest one.
pub(super) fn are_late(facts: &Facts) -> bool {
    round_trips(facts).is_some_and(|(mean, min)| mean >= ROUND_TRIP_RATIO_MIN * min)
}

/// The mean and the shortest round trip where packets wait in a queue, and whether that is doubtful. `again`: whether many segments are
/// sent again.
pub(super) fn queued_round_trips(facts: &Facts, again: bool) -> (Option<(f64, f64)>, bool) {
    let late_by =
        |excess_us: f64| round_trips(facts).filter(|(mean, min)| are_late(facts) && mean - min >= excess_us);
    let tells_little = (again && facts.loaded) || are_on_the_way(facts) || overflows(facts);
    let excess_us = if tells_little { ROUND_TRIP_EXCESS_US_LOST } else { ROUND_TRIP_EXCESS_US_MIN };
    match late_by(excess_us) {
        None if fills_evenly(facts) => (late_by(ROUND_TRIP_EXCESS_US_LOST), true),
        queued => (queued, false),
    }
}

pub(super) fn has_idle_processors(facts: &Facts) -> bool {
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction));
    busy.is_some_and(|busy| busy <= BUSY_MAX)
}

/// How long a TCP connect takes, and a whole request that was alone, if that took less, although it had a round trip, too: what is on the
/// way waits there, and no SYN is lost. In microseconds.
pub(super) fn slow_connect(facts: &Facts) -> Option<(f64, f64)> {
    let (alone_us, usual_us) =
        facts.value(FactId::response_time_alone_us).zip(facts.value(FactId::response_time_mean_us))?;
    let us = facts.value(FactId::connect_time_mean_us)?;
    let is_lost = facts.value(FactId::lost_syn_fraction).is_some_and(|share| share > LOST_SYNS_MAX);
    let is_long = us >= alone_us + CONNECT_EXCESS_US_MIN && us >= CONNECT_FRACTION_MIN * usual_us;
    (is_long && !is_lost && has_idle_processors(facts)).then_some((us, alone_us))
}

/// Whether most of the requests in flight have their answer between server and client.
pub(super) fn are_on_the_way(facts: &Facts) -> bool {
    let fits = facts.value(FactId::answer_bytes_mean).is_some_and(|bytes| bytes <= WINDOW_BYTES);
    let of = [FactId::in_flight_mean, FactId::client_connections_mean];
    let least = of.into_iter().filter_map(|name| facts.value(name)).reduce(f64::min).filter(|_| facts.loaded);
    // Those of other clients may all be on the way.
    let others = facts.value(FactId::other_connections_mean).unwrap_or(0.0);
    let sent = facts.value(FactId::sending_connections_mean).map(|sent| sent - others).zip(least);
    fits && sent.is_some_and(|(sent, least)| sent >= ON_THE_WAY_FRACTION_MIN * least.max(1.0))
}

/// Whether most of the connections of a watched server have something on the way, and much of it is sent again. How large the answers
/// are may not be known: then slow clients look the same.
pub(super) fn overflows(facts: &Facts) -> bool {
    let again = facts.value(FactId::retransmitted_fraction);
    again.is_some_and(|share| share >= RETRANSMITTED_MOSTLY)
        && sending_fraction(facts).is_some_and(|share| share >= ON_THE_WAY_FRACTION_MIN)
}

/// Whether nearly all connections of a watched server have something on the way, answer after answer, and its link carries the same each
/// second. A stream of small packets, each confirmed when the next one is due, or one long download looks the same but for the answers.
fn fills_evenly(facts: &Facts) -> bool {
    let spread = busiest_interface(facts).and_then(|(_, spread)| spread);
    let open = facts.value(FactId::client_connections_mean).filter(|open| *open >= CONNECTIONS_MIN);
    let ended = facts.ended_per_s().zip(open);
    sending_fraction(facts).is_some_and(|share| share >= SENDING_ALL_MIN)
        && ended.is_some_and(|(per_s, open)| per_s >= ANSWERS_PER_S_MIN * open)
        && spread.is_some_and(|spread| spread <= SPREAD_EVEN_MAX)
}

/// Of a watched server's connections, the share that has something on the way.
fn sending_fraction(facts: &Facts) -> Option<f64> {
    let open = facts.value(FactId::client_connections_mean).filter(|_| !facts.loaded)?;
    Some(facts.value(FactId::sending_connections_mean)? / open.max(1.0))
}

/// Whether most of what goes to the clients is dropped on the way, what opens connections, too: clients on slow lines of their own connect
/// at once. How late a packet is only our own load tells for sure.
pub(super) fn drops_most(facts: &Facts) -> bool {
    facts.service.is_some() && loses_data(facts) && loses_syns(facts)
}

/// Whether so much of what is sent is sent again that hardly another reason is left.
pub(super) fn loses_data(facts: &Facts) -> bool {
    let at_least = |name: FactId, min: f64| facts.value(name).is_some_and(|value| value >= min);
    at_least(FactId::retransmitted_fraction, RETRANSMITTED_MOST)
        && at_least(FactId::retransmits, RETRANSMITS_MOST)
}

/// Whether SYNs are lost as well.
pub(super) fn loses_syns(facts: &Facts) -> bool {
    facts.value(FactId::lost_syn_fraction).is_some_and(|share| share >= LOST_SYNS_MOST)
}

/// Of the interface that sends most: bytes a second, and how much they differ from one second to the other.
pub(super) fn busiest_interface(facts: &Facts) -> Option<(f64, Option<f64>)> {
    let outer = facts
        .each(FactId::nic_sent_bits_per_s)
        .filter(|(name, _)| network_saturated::finding::link_name(name) != "lo");
    let (name, bits) = outer.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((bits / 8.0, facts.value_of(FactId::nic_sent_spread_fraction, name)))
}
