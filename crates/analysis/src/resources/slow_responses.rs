//! The slow end of the response times: whether users notice it, and where its time goes ([`crate::facts`], `slow_responses`).

use crate::facts::{FactId, Facts, fact_ids};
use crate::wording::{format_number, format_time};
use webdyno_model::number::significant;

/// Fewer are chance.
const SLOW_MIN: f64 = 8.0;
/// One response in a hundred is what a p99 shows;
const SLOW_FRACTION_MIN: f64 = 0.01;
/// of users who wait for one response before they ask for the next few are slow when the server stands still, and for long.
const SLOW_TIME_FRACTION_MIN: f64 = 0.1;
/// Once, for less than anybody notices, something else had the machine.
const HICCUP_S_MAX: f64 = 1.2;
const HICCUP_US_MAX: f64 = 150_000.0;
/// A part of a request that holds so much of the time of slow responses is where they are slow.
const PLACE_FRACTION_MIN: f64 = 0.5;
/// Most of them in so few of the seconds come together.
const TOGETHER_SECONDS_MAX: f64 = 0.5;

/// Slow responses that users notice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SlowResponses {
    /// How many of all, as a share.
    pub fraction: f64,
    /// How long they take, microseconds.
    pub mean_us: f64,
    /// The share of the clients' waiting that is theirs, beyond what the others take.
    pub time_fraction: f64,
    /// Where most of their time lies.
    pub place: Option<SlowPlace>,
}

/// The part of a request in which slow responses are slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlowPlace {
    /// Before the request is sent.
    Generator,
    /// Until the connection is established.
    Connect,
    /// Until the first byte of the response.
    Server,
    /// Until its last byte.
    Transfer,
}

/// The slow responses, if users notice them and they are not the generator's own doing.
pub(crate) fn noticed(facts: &Facts) -> Option<SlowResponses> {
    let count = facts.value(FactId::slow_requests).filter(|count| *count >= SLOW_MIN)?;
    let (fraction, time_fraction) =
        facts.value(FactId::slow_fraction).zip(facts.value(FactId::slow_time_fraction))?;
    let place = place(facts);
    // At a rate that goes on, as many are slow as come while the server stands still.
    let users_wait = facts.value(FactId::offered_rate).is_none();
    let is_noticed = fraction >= SLOW_FRACTION_MIN || (users_wait && time_fraction >= SLOW_TIME_FRACTION_MIN);
    let mean_us = facts.value(FactId::slow_time_mean_us).filter(|_| count > 0.0)?;
    let name = FactId::slow_seconds_fraction;
    let seconds = facts.value(name).zip(facts.window_s(name)).map(|(share, window_s)| share * window_s);
    let is_hiccup = seconds.is_some_and(|seconds| seconds <= HICCUP_S_MAX) && mean_us < HICCUP_US_MAX;
    (is_noticed && !is_hiccup && place != Some(SlowPlace::Generator)).then_some(SlowResponses {
        fraction,
        mean_us,
        time_fraction,
        place,
    })
}

fn place(facts: &Facts) -> Option<SlowPlace> {
    let parts = [
        (FactId::slow_in_client_fraction, SlowPlace::Generator),
        (FactId::slow_in_connect_fraction, SlowPlace::Connect),
        (FactId::slow_in_server_fraction, SlowPlace::Server),
        (FactId::slow_in_transfer_fraction, SlowPlace::Transfer),
    ];
    let known = parts.into_iter().filter_map(|(fact, place)| Some((facts.value(fact)?, place)));
    let largest = known.max_by(|a, b| a.0.total_cmp(&b.0));
    largest.filter(|(share, _)| *share >= PLACE_FRACTION_MIN).map(|(_, place)| place)
}

/// Of a network without loss not one in a thousand packets is sent again.
const RETRANSMITTED_MIN: f64 = 0.005;
/// A packet is sent again after 200 ms and more: quicker responses were not held up by one that was lost.
const RETRANSMIT_US: f64 = 150_000.0;

/// That packets are lost on the way, where so many are sent again that it may be what makes responses slow.
fn lost_packets_text(facts: &Facts, slow: &SlowResponses) -> Option<String> {
    let share = facts.value(FactId::retransmitted_fraction).filter(|share| *share >= RETRANSMITTED_MIN)?;
    (slow.mean_us >= RETRANSMIT_US).then(|| {
        format!(
            " {}% of the packets that the server sends are sent again (retransmits), 200 ms late and more: they are lost on the \
             way to the clients.",
            format_number(significant(share * 100.0, 2))
        )
    })
}

/// A sentence: how many, how slow, where, and whether they come together.
pub(crate) fn text(facts: &Facts, slow: &SlowResponses) -> String {
    let usual = facts
        .value(FactId::usual_time_max_us)
        .map_or(String::new(), |us| format!(", where 80% take at most {}", format_time(us)));
    let place = match slow.place {
        Some(SlowPlace::Connect) => "; their time passes before the connection is established",
        Some(SlowPlace::Server) => "; their time passes in the server, before the first byte",
        Some(SlowPlace::Transfer) => "; their time passes between the first byte and the last",
        Some(SlowPlace::Generator) => "; their time passes in the load generator",
        None => "",
    };
    let seconds = facts.value(FactId::slow_seconds_fraction);
    let together = match seconds.filter(|share| *share <= TOGETHER_SECONDS_MAX) {
        Some(share) => {
            let different = differences(facts).join(", ");
            let different = if different.is_empty() { different } else { format!(": {different}") };
            format!(", and {:.0}% of the seconds have nearly all of them{different}", share * 100.0)
        }
        None => String::new(),
    };
    let lost = lost_packets_text(facts, slow).unwrap_or_default();
    format!(
        "{}% of the responses are slow ({} on average{usual}){place}{together}.{lost}",
        format_number(significant(slow.fraction * 100.0, 2)),
        format_time(slow.mean_us)
    )
}

/// So many cores more, or so much more of the time, is a difference between seconds.
const MORE_CORES_MIN: f64 = 0.3;
const MORE_FRACTION_MIN: f64 = 0.3;
/// A service that uses this share of what it uses else stands still.
const STILL_FRACTION_MAX: f64 = 0.5;
const SERVICE_CORES_MIN: f64 = 0.05;

/// What is different in the seconds in which slow responses come, in words.
fn differences(facts: &Facts) -> Vec<String> {
    let pair = |slow: FactId, others: FactId| facts.value(slow).zip(facts.value(others));
    let service = pair(FactId::slow_seconds_service_cores, FactId::other_seconds_service_cores);
    let foreign = foreign_burst(facts);
    let cores = |(slow, others): (f64, f64)| {
        let rounded = |cores: f64| format_number(significant(cores, 2));
        format!("use {} cores then ({} else)", rounded(slow), rounded(others))
    };
    let more = |one: &(f64, f64)| one.0 - one.1 >= MORE_FRACTION_MIN;
    let share = |(slow, others): (f64, f64), what: &str| {
        format!("{what} {:.0}% of the time ({:.0}% else)", slow * 100.0, others * 100.0)
    };
    let wait = pair(FactId::slow_seconds_cpu_wait_fraction, FactId::other_seconds_cpu_wait_fraction);
    let disk = pair(FactId::slow_seconds_io_fraction, FactId::other_seconds_io_fraction);
    let stands =
        |(slow, others): &(f64, f64)| *others >= SERVICE_CORES_MIN && *slow <= STILL_FRACTION_MAX * others;
    [
        foreign.map(|one| format!("other programs {}", cores(one))),
        wait.filter(more).map(|one| share(one, "tasks wait for a core")),
        disk.filter(more).map(|one| share(one, "all wait for a disk")),
        service
            .filter(|one| one.0 - one.1 >= MORE_CORES_MIN)
            .map(|one| format!("the service's own processes {}", cores(one))),
        service
            .filter(stands)
            .map(|one| format!("the service's processes {}, as if they stood still", cores(one))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Cores that other programs use in the seconds of slow responses and in the others, if these are more.
pub(crate) fn foreign_burst(facts: &Facts) -> Option<(f64, f64)> {
    let pair =
        facts.value(FactId::slow_seconds_foreign_cores).zip(facts.value(FactId::other_seconds_foreign_cores));
    pair.filter(|(slow, others)| slow - others >= MORE_CORES_MIN)
}

/// The names of the facts that all this rests on.
pub(crate) const FACTS: [FactId; 18] = fact_ids! {
    retransmitted_fraction,
    slow_requests, slow_fraction, slow_time_mean_us, slow_time_fraction, usual_time_max_us, slow_seconds_fraction,
    slow_in_connect_fraction, slow_in_server_fraction, slow_in_transfer_fraction, slow_seconds_service_cores,
    other_seconds_service_cores, slow_seconds_foreign_cores, other_seconds_foreign_cores, slow_seconds_cpu_wait_fraction,
    other_seconds_cpu_wait_fraction, slow_seconds_io_fraction, other_seconds_io_fraction,
};

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    /// One response in fifty takes 0.9 s, all of it in the server.
    pub(crate) const SLOW: [(FactId, f64); 9] = [
        (FactId::slow_requests, 12.0),
        (FactId::slow_fraction, 0.02),
        (FactId::slow_time_fraction, 0.7),
        (FactId::slow_time_mean_us, 900_000.0),
        (FactId::usual_time_max_us, 6_000.0),
        (FactId::slow_seconds_fraction, 0.8),
        (FactId::slow_in_connect_fraction, 0.0),
        (FactId::slow_in_server_fraction, 1.0),
        (FactId::slow_in_transfer_fraction, 0.0),
    ];

    #[test]
    fn packets_that_are_lost_are_told_where_they_may_make_responses_slow() {
        let told = |changes: &[(FactId, f64)]| {
            let facts = facts(&with_changes(&SLOW, changes), &[]);
            text(&facts, &noticed(&facts).unwrap())
                .contains("3.3% of the packets that the server sends are sent again")
        };
        let lost = (FactId::retransmitted_fraction, 0.033);
        assert_eq!(
            [told(&[lost]), told(&[]), told(&[lost, (FactId::slow_time_mean_us, 60_000.0)])],
            [true, false, false]
        );
    }

    #[test]
    fn what_users_meet_is_noticed_and_what_the_generator_does_is_not() {
        let with = |changes: &[(FactId, f64)]| noticed(&facts(&with_changes(&SLOW, changes), &[]));
        let is_noticed = |changes: &[(FactId, f64)]| with(changes).is_some();
        assert_eq!(with(&[]).unwrap().place, Some(SlowPlace::Server));
        for (name, changes, noticed) in [
            ("few", vec![(FactId::slow_requests, 5.0)], false),
            ("rare", vec![(FactId::slow_fraction, 0.002), (FactId::slow_time_fraction, 0.03)], false),
            ("rare, but long", vec![(FactId::slow_fraction, 0.002)], true),
            (
                "a hiccup",
                vec![(FactId::slow_seconds_fraction, 0.1), (FactId::slow_time_mean_us, 60_000.0)],
                false,
            ),
            ("a long one", vec![(FactId::slow_seconds_fraction, 0.1)], true),
            ("short ones", vec![(FactId::slow_time_mean_us, 60_000.0)], true),
            ("the generator's", vec![(FactId::slow_in_client_fraction, 1.1)], false),
        ] {
            assert_eq!(is_noticed(&changes), noticed, "{name}");
        }
    }

    #[test]
    fn it_is_told_where_their_time_goes() {
        let of = |changes: &[(FactId, f64)]| {
            let facts = facts(&with_changes(&SLOW, changes), &[]);
            text(&facts, &noticed(&facts).unwrap())
        };
        assert_eq!(
            of(&[]),
            "2% of the responses are slow (900 ms on average, where 80% take at most 6 ms); their time passes in the server, before the first byte."
        );
        let connecting = [(FactId::slow_in_server_fraction, 0.1), (FactId::slow_in_connect_fraction, 0.9)];
        assert!(of(&connecting).contains("before the connection is established"));
        let together = (FactId::slow_seconds_fraction, 0.2);
        assert!(of(&[together]).ends_with("20% of the seconds have nearly all of them."));
        let burst = [(FactId::slow_seconds_foreign_cores, 1.8), (FactId::other_seconds_foreign_cores, 0.1)];
        let still = [(FactId::slow_seconds_service_cores, 0.02), (FactId::other_seconds_service_cores, 0.4)];
        let io = [(FactId::slow_seconds_io_fraction, 0.7), (FactId::other_seconds_io_fraction, 0.02)];
        let all = of(&[&[together][..], &burst, &still, &io].concat());
        assert!(
            all.ends_with(
                ": other programs use 1.8 cores then (0.1 else), all wait for a disk 70% of the time (2% else), the service's processes use 0.02 cores then (0.4 else), as if they stood still."
            ),
            "{all}"
        );
    }
}
