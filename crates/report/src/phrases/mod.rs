//! The sentences that text and HTML share: what a run, a change, a round and an end amount to, without any markup.

mod ablation;
mod capacity;
mod client;
mod diagnosis;
mod load;
mod objectives;
mod observation;
mod pages;
mod percentiles;
mod repeats;
mod site;
pub(crate) mod sweep;
mod transport;
mod tune;
mod workers;

use crate::human::{UNKNOWN, count, number, percent, plural, rate, share, time, time_s, time_us};
pub(crate) use ablation::{ABLATION_MEANS, ablation_headline, ablation_table, experiment};
pub(crate) use capacity::{
    capacity_headline, capacity_next, capacity_points, capacity_steps, capacity_steps_title,
};
pub(crate) use client::{generator, generator_details};
pub(crate) use diagnosis::service;
pub(crate) use diagnosis::{
    apply_class_phrase, check_headline, confidence_percent, confidence_text, fact_name, fact_value,
    fact_window, how, limit_title, machine, next_limit, parts, predicted, remedy, saturation_rate_text,
    slow_tail,
};
pub(crate) use load::load;
pub(crate) use objectives::{objective_value, objectives_too_short};
pub use observation::level;
pub(crate) use observation::{
    COLLECTOR_TITLES, LEVEL_TITLES, SNAPSHOT_S_MAX, capitalised, collector_problems, collector_row,
    current_level, fact_row, incident, layers, level_row, links, observation_headline, observed_service,
    scoped_settings, setting_rows, title_with_role, zero_total_count,
};
pub(crate) use pages::{
    CAPTURES_ADVICE, CAPTURES_USUALLY, PAGE_TIME_MEANS, RemainingParts, missed_captures, page_headline,
    pages_by_count, part_failure, parts_shown, rates, requests_by_count, session_headline, sessions,
    trace_summary, traces,
};
pub(crate) use percentiles::{percentiles, too_short_note};
pub(crate) use repeats::{REPEATS_MEAN, repeats_headline, repeats_invalid, repeats_spread, repeats_table};
pub(crate) use site::site;
pub(crate) use tune::{
    applied_text, apply_effect, change, files, gain_text, goal, guard_stop_text, is_proposal, judged_text,
    owners, plans_for_limit, ratio, reverted, round_outcome, surprise_text, tune_headline, will_apply_text,
};
use webdyno_model::distribution::Dist;
use webdyno_model::live_traffic::LiveTraffic;
use webdyno_model::run::{ConnectPeak, Replay, RunReport};
use webdyno_model::service::SettingValue;
use webdyno_model::workload::{Arrival, Clock};
use webdyno_session::view::{SessionEnd, View};
pub(crate) use workers::{WORKERS_MEAN, workers_line, workers_table};

/// What was sent besides the requests themselves, and the handshakes, a sentence each; none where nothing was.
pub(crate) fn extra_requests(run: &RunReport) -> Vec<String> {
    let followed = (run.redirects > 0).then(|| {
        let redirects = plural(run.redirects, "redirect");
        format!("{redirects} followed: status codes and the table of times count each chain as one request")
    });
    let resent = run.connections.resent;
    let again = (resent > 0).then(|| {
        let requests = plural(resent, "request");
        format!("{requests} resent on a new connection: the server closed the first one without a response")
    });
    followed.into_iter().chain(again).chain(transport::handshakes(run)).collect()
}

/// Why a load was stopped, in a sentence; `None` for one that was not.
pub(crate) fn harm_guard_text(run: &RunReport) -> Option<String> {
    let guard_trip = run.brake.as_ref()?;
    Some(format!(
        "Load stopped to prevent harm ({}): {}. Only what was measured until then is shown",
        guard_trip.cause.name(),
        guard_trip.text
    ))
}

/// The result of a run in one line.
pub(crate) fn run_headline(run: &RunReport) -> String {
    let requests = &run.requests;
    // Why there is no good answer, or no whole page, tells more.
    let pages_fail = run.pages.as_ref().is_some_and(|pages| pages.completed == 0 && pages.failed > 0);
    let sessions = session_headline(run).filter(|_| requests.completed > 0 && !pages_fail);
    if let Some(reported) = sessions.or_else(|| page_headline(run)) {
        return reported;
    }
    let ended = requests.completed + requests.failed;
    if requests.started == 0 && ended == 0 {
        return "no request was sent".into();
    }
    if ended == 0 {
        return format!("no response: {} in flight at the end", plural(requests.in_flight_at_end, "request"));
    }
    if requests.completed == 0 {
        return format!("all {} failed", plural(requests.failed, "request"));
    }
    format!("{}, {}", good_response_rate(run.rate), failures(run))
}

/// `2,190 good answers a second`.
pub(crate) fn good_response_rate(per_second: Option<f64>) -> String {
    match per_second {
        Some(value) => format!("{} req/s", number(value)),
        None => "request rate unknown".into(),
    }
}

/// `no request failed`, `120 of 22,020 requests failed (0.54%)`.
pub(crate) fn failures(run: &RunReport) -> String {
    let (failed, ended) = (run.requests.failed, run.requests.completed + run.requests.failed);
    if failed == 0 {
        return "no failures".into();
    }
    format!("{} of {} failed ({})", count(failed), plural(ended, "request"), share(failed, ended))
}

/// How long was measured and what was cut.
pub(crate) fn measured(run: &RunReport) -> String {
    let length = time_s(run.elapsed_s);
    if let Some(parts) = ramped(run) {
        return parts;
    }
    let down = match run.ramp_down_s {
        after if after > 0.0 => format!("; {} of ramp-down excluded", time_s(after)),
        _ => String::new(),
    };
    if run.warmup_s > 0.0 {
        let why = run.warmup_why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("measured for {length}, {} of warm-up excluded{why}{down}", time_s(run.warmup_s))
    } else {
        format!("measured for {length}, no warm-up excluded{down}")
    }
}

/// What was sent of a log, against what it holds; `None` of any other load.
pub fn replay(run: &RunReport) -> Option<String> {
    let replay = run.replay.as_ref()?;
    let peak = replay.peak_rate.map_or_else(|| UNKNOWN.into(), rate);
    let mix = replay.mix_difference.zip(replay.mix_name.as_ref());
    let mix = mix.map_or_else(String::new, |(difference, name)| {
        format!("; shares of the mix within {} ({name})", percent(difference))
    });
    Some(format!(
        "Against the log: {} of {} requests sent, busiest second {peak} (in the log {}){mix}.{}",
        count(replay.started_requests),
        count(replay.planned_requests),
        rate(replay.planned_peak_rate),
        replayed_sessions(replay).unwrap_or_default(),
    ))
}

fn replayed_sessions(replay: &Replay) -> Option<String> {
    let (planned, started) = (replay.planned_sessions?, replay.started_sessions?);
    let each = |requests: u64, sessions: u64| number(requests as f64 / sessions.max(1) as f64);
    Some(format!(
        " {} of {} sessions, {} requests each (in the log {}), at most {} active at once (in the log {}).",
        count(started),
        count(planned),
        each(replay.started_requests, started),
        each(replay.planned_requests, planned),
        replay.active_sessions.map_or_else(|| UNKNOWN.into(), count),
        count(replay.planned_active_sessions?),
    ))
}

/// The parts of a load that has stages: what was not measured before, what was, and what was not behind it.
fn ramped(run: &RunReport) -> Option<String> {
    let stages = run.workload.as_ref().map(|workload| !workload.stages.is_empty());
    if stages != Some(true) || run.warmup_s + run.ramp_down_s <= 0.0 {
        return None;
    }
    // Why seconds were cut tells a ramp from stages that just do not count.
    let before = match run.warmup_why.as_deref() {
        Some("ramp-up") => "ramp-up",
        _ => "not measured",
    };
    let mut parts = vec![format!("measured {}", time_s(run.elapsed_s))];
    if run.warmup_s > 0.0 {
        parts.insert(0, format!("{before} {}", time_s(run.warmup_s)));
    }
    if run.ramp_down_s > 0.0 {
        parts.push(format!("ramp-down {}", time_s(run.ramp_down_s)));
    }
    Some(format!("{}: all figures are of the measured part", parts.join(", ")))
}

/// The times of a run with their names, in the order of a request's life seen from its user. The handshake of TLS is one
/// of them where there was any.
pub(crate) fn times_of(run: &RunReport) -> Vec<(&'static str, &Dist)> {
    let handshake = ("TLS handshake", &run.tls_handshake_us);
    let mut times: Vec<_> = run.pages.iter().map(|pages| ("page time", &pages.time_us)).collect();
    times.extend([
        ("response time", &run.response_time_us),
        ("service time", &run.service_time_us),
        ("connect", &run.connect_time_us),
    ]);
    times.extend(Some(handshake).filter(|(_, dist)| dist.count > 0));
    times.extend([("first byte", &run.first_byte_us), ("client delay", &run.client_delay_us)]);
    times
}

/// What the five times mean.
pub(crate) const TIMES_MEAN: &str = "Response time: from when a request was due to its last byte. Service time: from when \
     it was sent. Client delay: added by this machine before it sent.";

/// Whose clock ended the times, and what answers waited for the generator.
pub(crate) fn clock(run: &RunReport) -> String {
    let (clock, delay) = (&run.clock, &run.receive_delay_us);
    let lay = format!("{} (p50), {} (p99)", time(delay.p50), time(delay.p99));
    let known = delay.count > 0;
    match clock.ended_by {
        Some(Clock::Kernel) => {
            let without = match clock.answers_without_stamp {
                0 => String::new(),
                some => format!(
                    "; {} without a timestamp end when the generator read them",
                    plural(some, "answer")
                ),
            };
            format!(
                "Latency ends when the kernel received the response. The wait in the socket buffer is \
                 excluded: {lay}{without}"
            )
        }
        _ if known => format!(
            "Latency ends when the generator read the response. On {} with kernel timestamps responses \
             waited {lay} in the socket buffer",
            plural(clock.connections_stamped, "connection")
        ),
        _ => "Latency ends when the generator read the response; the wait in the socket buffer is \
              unknown (no kernel timestamps)"
            .into(),
    }
}

/// The network's share: round trips and what was sent again.
pub(crate) fn network(run: &RunReport) -> String {
    let (tcp, trip) = (&run.tcp, &run.round_trip_us);
    let (Some(sent), Some(again)) = (tcp.segments_sent, tcp.segments_retransmitted) else {
        return "round trips and retransmits unknown (no TCP data)".into();
    };
    let trips = match trip.count {
        0 => "round trip time unknown".into(),
        // An acknowledgement that comes with the answer holds the server's own time.
        _ => format!("smoothed RTT (may include server time) p50 {}, p99 {}", time(trip.p50), time(trip.p99)),
    };
    let shortest = tcp.round_trip_min_us.map(|us| format!("minimum RTT {}; ", time(Some(us))));
    let lost = match again {
        0 => format!("0 of {} retransmitted", plural(sent, "segment")),
        _ => {
            format!("{} of {} ({}) retransmitted", count(again), plural(sent, "segment"), share(again, sent))
        }
    };
    format!("{}{trips}; {lost} (a sample of the connections)", shortest.unwrap_or_default())
}

/// Connections that took what lost SYNs cost, a sentence for each number of them.
pub(crate) fn connect_peaks(run: &RunReport) -> Vec<String> {
    let peak = |peak: &ConnectPeak| {
        let lost = match peak.lost_syns {
            1 => "the first SYN was lost".to_owned(),
            many => format!("the first {many} SYNs were lost"),
        };
        format!("{} took about {} s to connect: {lost}", plural(peak.count, "connection"), peak.after_s)
    };
    run.connect_peaks.iter().map(peak).collect()
}

/// Requests without an outcome at the end; `None` when there are none.
pub(crate) fn in_flight(run: &RunReport) -> Option<String> {
    let waiting = run.requests.in_flight_at_end;
    if waiting == 0 {
        return None;
    }
    let so_far = match run.censored_time_us.max {
        Some(longest) => format!(", the longest for {} so far", time_us(longest as f64)),
        None => String::new(),
    };
    let unsent = unsent_requests(run).map_or_else(String::new, |(requests, connections)| {
        format!(
            ". {} not sent yet, waiting for one of {}: raise -c to see whether the server or their number limits",
            plural(requests, "request"),
            plural(connections, "connection"),
        )
    });
    Some(format!(
        "{} in flight at the end{so_far}; excluded from latency{unsent}",
        plural(waiting, "request")
    ))
}

/// How many requests of an open load waited for one of so many connections at its end; `None` when none did.
fn unsent_requests(run: &RunReport) -> Option<(u64, u64)> {
    // The parts of a page wait for a connection of their visitor.
    let workload = run.workload.as_ref().filter(|workload| workload.visits.is_none())?;
    let connections = u64::from(workload.concurrency());
    let unsent = run.requests.in_flight_at_end.checked_sub(connections).filter(|unsent| *unsent > 0)?;
    matches!(workload.arrival, Arrival::Open { .. }).then_some((unsent, connections))
}

/// That the longest response times may be the generator's own doing; `None` when its share of them is small.
pub(crate) fn generator_tail_note(run: &RunReport) -> Option<String> {
    let (own, all) = (run.client_delay_us.p99?, run.response_time_us.p99?);
    (own > TAIL_US_MIN && own * 10 > all).then(|| {
        format!(
            "Of its own delays the 99th percentile is {}, beside {} of the response times: their tail is in part its own",
            time(Some(own)),
            time(Some(all))
        )
    })
}

/// A delay below this is the time that waking up takes on any machine.
const TAIL_US_MIN: u64 = 100;

/// A setting's value, or that it is not known.
pub(crate) fn value(value: Option<&SettingValue>) -> String {
    value.map_or_else(|| crate::human::UNKNOWN.into(), ToString::to_string)
}

/// How a session ended, when it did not end in order.
pub(crate) fn session_end_note(view: &View) -> Option<String> {
    match &view.end {
        SessionEnd::Done(_) => None,
        SessionEnd::Failed(130, _) => Some("The session was interrupted. Measured until then".into()),
        SessionEnd::Failed(_, error) => Some(format!("The session ended with an error: {error}")),
        SessionEnd::Torn => {
            Some("The recording is incomplete: the session was killed or still runs. Measured so far".into())
        }
    }
}

/// Said of a tuning session that was cut off.
pub(crate) const MAY_BE_IN_FORCE: &str =
    "A change may still be in force: webdyno rollback restores the original configuration.";

/// A summary's percentiles for a sentence: `half within 23 ms, 99% within 60 ms`.
pub(crate) fn percentile_phrase(what: &str, dist: &Dist) -> String {
    format!("{what} p50 {}, p99 {}", time(dist.p50), time(dist.p99))
}

/// The name of a load in plots.
pub(crate) fn purpose(load: &webdyno_session::view::LoadView) -> String {
    use webdyno_model::purpose::Purpose;
    match (load.purpose, load.round) {
        (Purpose::Run, _) => "load".into(),
        (Purpose::WithoutResources, _) => "without resources".into(),
        (Purpose::WithoutKeepalive, _) => "without keep-alive".into(),
        (Purpose::HalfLoad, _) => "half the load".into(),
        (Purpose::FromLoopback, _) => "from loopback".into(),
        (Purpose::Diagnose, _) => "diagnosis".into(),
        (Purpose::Baseline, _) => "before".into(),
        (Purpose::Verify, Some(round)) => format!("round {round}"),
        (Purpose::Verify, None) => "verification".into(),
        (Purpose::Sweep, _) => "point".into(),
        (Purpose::Capacity, _) => "step".into(),
        (Purpose::WarmCache, _) => "cache warmed".into(),
    }
}

/// The error statuses that came, as `: 404 x 64,343, 503 x 12`; empty when none did.
pub(crate) fn error_statuses(run: &RunReport) -> String {
    let is_error = |status: &str| status.starts_with(|first: char| matches!(first, '4' | '5' | 'A'..='Z'));
    let codes = run.status.iter().filter(|(status, _)| is_error(status));
    let codes: Vec<_> = codes.map(|(status, answers)| format!("{status} x {}", count(*answers))).collect();
    if codes.is_empty() { String::new() } else { format!(": {}", codes.join(", ")) }
}

/// What other clients did meanwhile; `None` when nobody was seen or that is not known.
pub(crate) fn live_traffic(traffic: Option<&LiveTraffic>) -> Option<String> {
    let traffic = traffic.filter(|traffic| traffic.present)?;
    let requests = traffic.requests_per_s.map(|rate| format!("{} requests/s", number(rate)));
    let connections = traffic.connections_count.filter(|count| *count > 0.0);
    let connections = connections.map(|count| format!("open connections: {}", number(count)));
    let reported: Vec<_> = requests.into_iter().chain(connections).collect();
    let reported = if reported.is_empty() { String::new() } else { format!(" ({})", reported.join("; ")) };
    Some(format!("Other clients used the server during the measurement{reported}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::workload::Workload;

    #[test]
    fn starts_that_waited_for_a_connection_are_told_from_those_that_were_sent() {
        let mut run = RunReport::default();
        let mut workload = Workload { connections: 1, ..Workload::default() };
        run.requests.in_flight_at_end = 241;
        for (arrival, expected) in [
            (OPEN, Some((240, 1))),
            // As many users as connections: each has its own.
            (Arrival::Closed, None),
        ] {
            workload.arrival = arrival;
            run.workload = Some(workload.clone());
            assert_eq!(unsent_requests(&run), expected, "{arrival:?}");
        }
        run.workload = Some(Workload { connections: 241, arrival: OPEN, ..workload });
        assert_eq!(unsent_requests(&run), None);
    }

    const OPEN: Arrival = Arrival::Open { rate_per_s: 100.0, poisson: false };

    #[test]
    fn a_tail_that_the_generator_made_is_said_to_be_its_own() {
        for (own_us, all_us, reported) in
            [(31_000, 52_000, true), (90, 100, false), (200, 2_500, false), (300, 2_500, true)]
        {
            let mut run = RunReport::default();
            (run.client_delay_us.p99, run.response_time_us.p99) = (Some(own_us), Some(all_us));
            assert_eq!(generator_tail_note(&run).is_some(), reported, "{own_us} of {all_us}");
        }
    }
}
