//! What the engine reports against what a server truly did, on real sockets and the real clock. The server records it
//! (`examples/reference`), so that its own pauses are no error. Counts are checked exactly, and so is that no time is
//! shorter than the truth; what a busy machine can spoil is allowed what a sleeping thread of this process suffered
//! meanwhile, and may be measured again. The exact versions of these checks are in `src/engine/accuracy.rs`, the
//! measured figures in docs/accuracy.md.

use crate::reference::{Reference, Script, Served};
use crate::server::{Outcome, load, workload};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use webdyno_load::EndReason;
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};
use webdyno_model::interval::Interval;
use webdyno_model::workload::{Arrival, Stop, Workload};

/// A figure that this machine disturbs is measured at most so often.
const ATTEMPTS: u32 = 8;
/// What may be added between the server and the engine: 2%, or so much.
const TOLERANCE_US: f64 = 100.0;
/// Times are rounded to a microsecond, here and there.
const ROUNDING_US: f64 = 1.5;

const SERVICE: fn(&Interval) -> &Option<EncodedHistogram> = |interval| &interval.service_time;
const RESPONSE: fn(&Interval) -> &Option<EncodedHistogram> = |interval| &interval.response_time;

fn open(rate_per_s: f64) -> Arrival {
    Arrival::Open { rate_per_s, poisson: false }
}

/// A load, the server's record of it, and how late this machine woke a thread meanwhile.
struct Measured {
    outcome: Outcome,
    served: Vec<Served>,
    /// Sorted, in microseconds.
    noise_us: Vec<f64>,
}

/// Loads a server that follows the script.
fn measure(script: Script, change: impl Fn(&mut Workload)) -> Measured {
    let server = Reference::start(script, 7, false).unwrap();
    let mut load_of = workload(&format!("http://{}/", server.address));
    change(&mut load_of);
    let witness = Witness::start();
    let outcome = load(&load_of);
    let noise_us = witness.stop();
    check_little(&outcome);
    Measured { outcome, served: server.stop().unwrap(), noise_us }
}

impl Measured {
    /// What may be added to a percentile by waking up twice, to send and to receive. What keeps one thread waiting need
    /// not be what keeps the other one, so a higher percentile is granted.
    fn allowance_us(&self, share: f64) -> f64 {
        2.0 * quantile(&self.noise_us, if share > 0.9 { 1.0 } else { 0.9 })
    }
}

/// A thread that does nothing but sleep a millisecond at a time, and notes by how much more it slept.
struct Witness {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<f64>>,
}

impl Witness {
    fn start() -> Self {
        const NAP: Duration = Duration::from_millis(1);
        // The slack of a thread's timers (prctl(2), PR_SET_TIMERSLACK) and a wake-up on an idle machine.
        const USUAL_US: f64 = 70.0;
        let over = Arc::new(AtomicBool::new(false));
        let seen_over = over.clone();
        let thread = thread::spawn(move || {
            let mut late_us = vec![0.0];
            while !seen_over.load(Ordering::Acquire) {
                let begun = Instant::now();
                thread::sleep(NAP);
                late_us.push(((begun.elapsed() - NAP).as_secs_f64() * 1e6 - USUAL_US).max(0.0));
            }
            late_us.sort_unstable_by(f64::total_cmp);
            late_us
        });
        Self { over, thread }
    }

    fn stop(self) -> Vec<f64> {
        self.over.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

/// So many requests, each with its outcome.
fn requests(load_of: &mut Workload, arrival: Arrival, connections: u32, requests: u64) {
    load_of.arrival = arrival;
    load_of.connections = connections;
    load_of.stop = Stop { duration_us: None, requests: Some(requests) };
}

/// Mean in flight = rate x mean time, of all that was started: exactly, in every load.
fn check_little(outcome: &Outcome) {
    let mut times = outcome.merged(RESPONSE);
    times.merge(&outcome.merged(|interval| &interval.failed_time));
    outcome.end.censored_time.iter().for_each(|censored| times.merge_encoded(censored).unwrap());
    let in_flight_us = outcome.sum(|interval| interval.in_flight_us) as f64;
    let told_us = times.mean_us().unwrap_or(0.0) * times.count() as f64;
    assert_eq!(times.count(), outcome.sum(|interval| interval.started));
    let rounding_us = 0.5 * times.count() as f64 + 10.0;
    assert!((in_flight_us - told_us).abs() <= rounding_us, "Little: {in_flight_us} and {told_us}");
}

/// The times that the server truly took, in microseconds.
fn truth_us(served: &[Served]) -> Vec<f64> {
    let times = served
        .iter()
        .filter_map(|served| Some((served.answered_ns?.saturating_sub(served.arrived_ns)) as f64 / 1e3));
    let mut times: Vec<f64> = times.collect();
    times.sort_unstable_by(f64::total_cmp);
    times
}

/// The time that a share of the sorted times does not exceed: the nearest rank.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Measures until `attempt` says that the figures are right; each attempt also asserts what no pause can excuse.
fn right_at_last(what: &str, attempt: impl Fn() -> Result<(), String>) {
    let mut complaints = vec![];
    let right = (0..ATTEMPTS).any(|_| attempt().map_err(|complaint| complaints.push(complaint)).is_ok());
    assert!(right, "{what}, {ATTEMPTS} times:\n{}", complaints.join("\n"));
}

/// Compares percentiles with the truth. Too short is a defect whatever the machine does: every time that the engine
/// takes contains what the server took for it. Too long is a complaint.
fn compare(measured: &Measured, shares: &[f64]) -> Result<(), String> {
    let (told, truth) = (measured.outcome.merged(SERVICE), truth_us(&measured.served));
    assert_eq!(told.count(), truth.len() as u64);
    let mut complaints = vec![];
    for &share in shares {
        let (told_us, true_us) = (told.quantile_us(share).unwrap() as f64, quantile(&truth, share));
        assert!(told_us + ROUNDING_US >= true_us, "q{share}: {told_us} told, {true_us} in truth");
        if told_us > true_us + (0.02 * true_us).max(TOLERANCE_US) + measured.allowance_us(share) {
            complaints.push(format!("q{share}: {told_us} told, {true_us:.0} in truth"));
        }
    }
    let (mean_us, true_us) = (told.mean_us().unwrap(), truth.iter().sum::<f64>() / truth.len() as f64);
    assert!(mean_us + ROUNDING_US >= true_us, "mean: {mean_us} told, {true_us} in truth");
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join(", ")) }
}

#[test]
fn percentiles_are_those_of_the_server() {
    for script in [
        Script::Constant { answer_us: 2000.0 },
        Script::Bimodal { fast_us: 1000.0, slow_us: 20_000.0 },
        Script::Exponential { mean_us: 3000.0 },
    ] {
        right_at_last(&format!("{script:?}"), || {
            let measured = measure(script, |load_of| requests(load_of, Arrival::Closed, 8, 1000));
            assert_eq!(measured.outcome.completed(), 1000);
            // One request in a thousand is always disturbed somewhere: the last percentiles are proved exactly.
            compare(&measured, &[0.1, 0.5, 0.9, 0.99])
        });
    }
}

#[test]
fn a_low_rate_adds_nothing() {
    // A timer of whole milliseconds would make 0.2 ms at least 1 ms.
    right_at_last("50/s against 0.2 ms", || {
        let script = Script::Constant { answer_us: 200.0 };
        let measured = measure(script, |load_of| requests(load_of, open(50.0), 4, 30));
        compare(&measured, &[0.5])?;
        let true_us = quantile(&truth_us(&measured.served), 0.5);
        let response_us = measured.outcome.merged(RESPONSE).quantile_us(0.5).unwrap() as f64;
        match response_us < true_us + 2.0 * TOLERANCE_US + measured.allowance_us(0.5) {
            true => Ok(()),
            false => Err(format!("the response time is {response_us}")),
        }
    });
}

#[test]
fn requests_reach_the_server_when_they_were_meant_to() {
    for threads in [1, 2] {
        right_at_last(&format!("1000/s with {threads} threads"), || {
            let script = Script::Constant { answer_us: 100.0 };
            let measured = measure(script, |load_of| {
                requests(load_of, open(1000.0), 100, 800);
                load_of.threads = Some(threads);
            });
            let (outcome, served) = (&measured.outcome, &measured.served);
            // All of them, evenly, and never before their time: at most one gap is open at either end.
            assert_eq!((outcome.completed(), served.len()), (800, 800));
            let first_ns = served[0].arrived_ns;
            let late = served
                .iter()
                .enumerate()
                .map(|(n, served)| served.arrived_ns as f64 - first_ns as f64 - n as f64 * 1e6);
            let mut late_us: Vec<f64> = late.map(|ns| ns / 1e3).collect();
            late_us.sort_unstable_by(f64::total_cmp);
            // Against the earliest one, as the load's origin is its own secret.
            let error_us = quantile(&late_us, 0.5) - late_us[0];
            let told_us = outcome.merged(|interval| &interval.client_delay).quantile_us(0.5).unwrap() as f64;
            let allowed_us = 100.0 + measured.allowance_us(0.5);
            match error_us < allowed_us && told_us < allowed_us {
                true => Ok(()),
                false => {
                    Err(format!("median error {error_us:.0} us, told {told_us}, {allowed_us:.0} allowed"))
                }
            }
        });
    }
}

/// P(time > 5 ms + w) = 0.25 (1 - w / 500 ms) for a start at any moment of the period.
const FREEZING: Script = Script::Freezing { answer_us: 5000.0, frozen_ms: 500, period_ms: 2000 };

#[test]
fn a_freeze_shows_in_every_request_that_was_due() {
    right_at_last("a freeze, 200/s", || {
        // Two periods.
        let measured = measure(FREEZING, |load_of| requests(load_of, open(200.0), 200, 800));
        let outcome = &measured.outcome;
        // Not one start was left out, whatever the server did.
        assert_eq!(outcome.sum(|interval| interval.started), 800);
        let response = outcome.merged(RESPONSE);
        let mut complaints = vec![];
        for (share, expected_us) in [(0.5, 5000.0_f64), (0.9, 305_000.0), (0.99, 485_000.0)] {
            let told_us = response.quantile_us(share).unwrap() as f64;
            // A start is 5 ms, which is what the shares can be off by.
            let least_us = (expected_us * 0.98 - 5000.0).max(5000.0);
            assert!(told_us >= least_us, "q{share}: {told_us} told, {expected_us} expected");
            // The server's own pauses, too, lie between what is expected and what it gave.
            if told_us > expected_us * 1.1 + 2.0 * measured.allowance_us(share) {
                complaints.push(format!("q{share}: {told_us} told, {expected_us} expected"));
            }
        }
        if complaints.is_empty() { Ok(()) } else { Err(complaints.join(", ")) }
    });
}

#[test]
fn with_few_connections_the_service_time_hides_a_freeze_and_the_response_time_does_not() {
    let Measured { outcome, .. } = measure(FREEZING, |load_of| requests(load_of, open(200.0), 10, 400));
    // Ten connections carry ten of the hundred that are due in a freeze.
    let p90_us = |of| outcome.merged(of).quantile_us(0.9).unwrap();
    assert!(p90_us(RESPONSE) >= 290_000, "{}", p90_us(RESPONSE));
    assert!(p90_us(SERVICE) * 5 < p90_us(RESPONSE), "{}", p90_us(SERVICE));
    let service = outcome.merged(SERVICE);
    assert!(service.mean_us().unwrap() * 3.0 < outcome.merged(RESPONSE).mean_us().unwrap());
}

#[test]
fn a_closed_loop_hides_a_freeze() {
    let Measured { outcome, .. } = measure(FREEZING, |load_of| {
        load_of.connections = 4;
        // However late it begins, the freeze from 2 s to 2.5 s after the server's start is in it.
        load_of.stop.duration_us = Some(2_700_000);
    });
    let response = outcome.merged(RESPONSE);
    // Four users wait once or twice each; everybody else was never asked.
    assert!(response.dist().max.unwrap() >= 300_000, "{:?}", response.dist());
    assert!(response.quantile_us(0.9).unwrap() < 150_000, "{:?}", response.dist());
}

const DEAF: Script = Script::Silent { answer_us: 1000.0, every: 100 };

#[test]
fn each_request_without_response_times_out_once() {
    for arrival in [Arrival::Closed, open(2000.0)] {
        let Measured { outcome, served, .. } = measure(DEAF, |load_of| {
            requests(load_of, arrival, 20, 1000);
            load_of.timeout_us = 1_000_000;
        });
        let unanswered = served.iter().filter(|served| served.answered_ns.is_none()).count();
        assert_eq!((served.len(), unanswered), (1000, 10));
        assert_eq!((outcome.completed(), outcome.failed(), outcome.end.in_flight_at_end), (990, 10, 0));
        assert_eq!(outcome.sum(|interval| interval.errors.timeout), 10, "{arrival:?}");
        let response = outcome.merged(RESPONSE).dist();
        assert_eq!(response.count, 1000);
        assert!(response.max.unwrap() >= 1_000_000, "{response:?}");
    }
}

#[test]
fn a_request_without_response_is_in_flight_at_the_end() {
    for arrival in [Arrival::Closed, open(2000.0)] {
        let Measured { outcome, served, .. } = measure(DEAF, |load_of| {
            requests(load_of, arrival, 20, 1000);
            load_of.stop.duration_us = Some(2_000_000);
            load_of.timeout_us = 60_000_000;
        });
        assert_eq!(served.len(), 1000);
        assert_eq!((outcome.completed(), outcome.failed(), outcome.end.in_flight_at_end), (990, 0, 10));
        assert_eq!((outcome.end.waiting_at_end, outcome.end.reason), (0, EndReason::Duration), "{arrival:?}");
        let mut censored = TimeHistogram::new();
        censored.merge_encoded(outcome.end.censored_time.as_ref().unwrap()).unwrap();
        assert_eq!(censored.count(), 10);
    }
}
