//! When a load is stopped, when it is not, and how often it is stopped by chance.

use super::*;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::workload::Workload;

fn second(index: usize, completed: u64, failed: u64, time_us: u64) -> Interval {
    let mut times = TimeHistogram::new();
    times.record(time_us);
    let mut response_time = times.encode();
    if let Some(times) = &mut response_time {
        times.sum_us = (time_us * completed) as f64;
    }
    let (t_s, length_us) = (index as f64, 1_000_000);
    Interval { t_s, length_us, completed, failed, response_time, ..Interval::default() }
}

/// Seconds of these rates, without failures, in a closed loop of so many users.
fn load(rates: &[f64]) -> Vec<Interval> {
    let second = |(index, rate): (usize, &f64)| Interval {
        t_s: index as f64,
        length_us: 1_000_000,
        completed: *rate as u64,
        ..Interval::default()
    };
    rates.iter().enumerate().map(second).collect()
}

fn best(intervals: Vec<Interval>, arrival: Arrival, measured_from_s: f64) -> Measurement {
    let workload = Workload { arrival, connections: 10, timeout_us: 1_000_000, ..Workload::default() };
    Measurement { intervals, workload: Some(workload), measured_from_s, ..Measurement::default() }
}

const STEADY: [f64; 10] = [1000.0, 1010.0, 990.0, 1005.0, 995.0, 1000.0, 1010.0, 990.0, 1005.0, 995.0];

/// The second at which a load is stopped.
fn stopped_at(stop_loss: &StopLoss, intervals: &[Interval]) -> Option<usize> {
    (1..=intervals.len()).find(|&count| stop_loss.check(&intervals[..count]).is_some())
}

#[test]
fn a_clear_loss_of_rate_ends_the_load() {
    let stop_loss = StopLoss::new(&best(load(&STEADY), Arrival::Closed, 0.0));
    let drop_at = |at: usize, rate: f64| {
        let rates: Vec<f64> = (0..30).map(|second| if second < at { 1000.0 } else { rate }).collect();
        stopped_at(&stop_loss, &load(&rates))
    };
    for (at, rate, expected) in [
        (0, 500.0, Some(5)),
        (0, 0.0, Some(5)),
        (12, 300.0, Some(17)),
        // Worse, and not by so much that the rest of the load would hurt.
        (0, 850.0, None),
        (0, 1000.0, None),
    ] {
        assert_eq!(drop_at(at, rate), expected, "{rate} from second {at} on");
    }
}

#[test]
fn what_rises_has_not_arrived_yet() {
    // As Apache's prefork fills up after a reload (measured): nine seconds below what a warm server gave.
    let ramp = [22.0, 34.0, 45.0, 67.0, 110.0, 182.0, 347.0, 515.0, 709.0, 877.0, 1030.0, 1190.0, 1350.0];
    let plateau = [1350.0; 12];
    let filling_up = load(&[&ramp[..], &plateau[..]].concat());
    let warm = best(load(&STEADY), Arrival::Closed, 0.0);
    assert_eq!(stopped_at(&StopLoss::new(&warm), &filling_up), None);
    // Its own load began in the same way: the same second is what counts.
    let slow_start: Vec<f64> = ramp.iter().map(|rate| rate.min(750.0)).chain(STEADY).collect();
    let cold = StopLoss::new(&best(load(&slow_start), Arrival::Closed, 13.0));
    assert_eq!(stopped_at(&cold, &load(&slow_start)), None);
    // Answers that take five seconds: none comes before the sixth.
    let slow: Vec<f64> = [[0.0; 5], [200.0, 210.0, 190.0, 205.0, 195.0], [200.0; 5]].concat();
    let slow_best = StopLoss::new(&best(load(&slow), Arrival::Closed, 5.0));
    assert_eq!(stopped_at(&slow_best, &load(&slow)), None);
    // It stays where it got to: that is all there is.
    let stuck: Vec<f64> = [100.0, 200.0, 400.0].into_iter().chain([500.0; 20]).collect();
    assert_eq!(stopped_at(&StopLoss::new(&warm), &load(&stuck)), Some(8));
}

#[test]
fn failures_end_it_soon() {
    let failing = |share: u64, rate: u64| -> Vec<Interval> {
        (0..20).map(|index| second(index, rate - rate * share / 100, rate * share / 100, 20_000)).collect()
    };
    let good = StopLoss::new(&best(failing(0, 1000), Arrival::Closed, 0.0));
    let small = StopLoss::new(&best(failing(0, 10), Arrival::Closed, 0.0));
    let failing_already = StopLoss::new(&best(failing(10, 1000), Arrival::Closed, 0.0));
    for (stop_loss, share, rate, expected) in [
        (&good, 10, 1000, Some(3)),
        (&good, 2, 1000, None),
        // Two of ten in a second are few.
        (&small, 20, 10, None),
        (&small, 50, 10, Some(3)),
        (&failing_already, 12, 1000, None),
        (&failing_already, 30, 1000, Some(3)),
    ] {
        assert_eq!(stopped_at(stop_loss, &failing(share, rate)), expected, "{share}% of {rate}");
    }
}

#[test]
fn at_a_given_rate_the_times_tell() {
    let times = |times_ms: &[u64]| -> Vec<Interval> {
        times_ms.iter().enumerate().map(|(index, ms)| second(index, 100, 0, ms * 1000)).collect()
    };
    let open = Arrival::Open { rate_per_s: 100.0, poisson: false };
    let steady = [20, 21, 19, 20, 22, 18, 20, 21, 19, 20, 20, 20];
    let known = StopLoss::new(&best(times(&steady), open, 0.0));
    for (now, expected) in [
        (&[90; 12][..], Some(5)),
        (&[20, 20, 20, 20, 20, 20, 90, 90, 95, 90, 92, 90][..], Some(11)),
        (&steady[..], None),
        // A cold start that gets better.
        (&[400, 300, 200, 150, 100, 80, 60, 40, 20, 20, 20, 20][..], None),
        // Twice next to nothing is next to nothing.
        (&[29; 12][..], None),
        // Beyond the best's own seconds nothing is known.
        (&[20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 90, 90, 90, 90, 90, 90][..], None),
    ] {
        assert_eq!(stopped_at(&known, &times(now)), expected, "{now:?}");
    }
    // Behind too high a rate times rise for ever, before as after.
    let increasing: Vec<u64> = (1..=12).map(|second| second * 400).collect();
    let longer: Vec<u64> = (1..=30).map(|second| second * 400).collect();
    assert_eq!(stopped_at(&StopLoss::new(&best(times(&increasing), open, 0.0)), &times(&longer)), None);
    // In a closed loop the rate tells it.
    let closed = StopLoss::new(&best(times(&steady), Arrival::Closed, 0.0));
    assert_eq!(stopped_at(&closed, &times(&[90; 12])), None);
}

#[test]
fn too_little_or_too_uneven_a_best_stops_nothing() {
    let none = load(&[0.0; 20]);
    for rates in [&[][..], &[1000.0, 1000.0, 1000.0], &[100.0, 2000.0, 50.0, 1800.0, 70.0, 1900.0], &[0.0; 9]]
    {
        assert_eq!(stopped_at(&StopLoss::new(&best(load(rates), Arrival::Closed, 0.0)), &none), None);
    }
    // A second that was cut off is none.
    let mut torn = load(&[500.0; 5]);
    torn[4].length_us = 400_000;
    let steady = StopLoss::new(&best(load(&STEADY), Arrival::Closed, 0.0));
    assert_eq!(stopped_at(&steady, &torn), None);
}

/// Noise as servers have it: each second remembers a part of the one before (a process AR(1)).
struct Noise {
    random: u64,
    memory: f64,
    deviation: f64,
    last: f64,
}

impl Noise {
    fn new(seed: u64, memory: f64, deviation: f64) -> Self {
        let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut noise = Self { random, memory, deviation, last: 0.0 };
        // It begins anywhere, not at its mean.
        (0..50).for_each(|_| {
            noise.next();
        });
        noise
    }

    /// Nearly normal, from twelve uniform ones.
    fn normal(&mut self) -> f64 {
        let uniform = |random: &mut u64| {
            *random ^= *random << 13;
            *random ^= *random >> 7;
            *random ^= *random << 17;
            (*random >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..12).map(|_| uniform(&mut self.random)).sum::<f64>() - 6.0
    }

    fn next(&mut self) -> f64 {
        let fresh = (1.0 - self.memory * self.memory).sqrt() * self.normal();
        self.last = self.memory * self.last + fresh;
        (1.0 + self.deviation * self.last).max(0.0)
    }

    fn load(&mut self, rate: f64, seconds: usize) -> Vec<Interval> {
        let rates: Vec<f64> = (0..seconds).map(|_| rate * self.next()).collect();
        load(&rates)
    }
}

/// In how many of a thousand loads of 30 s on a server that is as good as before, or has `share` of its rate, the load
/// is stopped; the best was measured for ten seconds.
fn stopped_of_thousand(memory: f64, deviation: f64, share: f64) -> usize {
    let stopped = |seed: &u64| {
        let mut noise = Noise::new(*seed, memory, deviation);
        let best = best(noise.load(1000.0, 10), Arrival::Closed, 0.0);
        let after = Noise::new(seed + 500_000, memory, deviation).load(1000.0 * share, 30);
        stopped_at(&StopLoss::new(&best), &after).is_some()
    };
    (1..=1000).filter(stopped).count()
}

// Invariant: a server that is as good as before is almost never stopped, however its noise remembers; one that gives
// half of it almost always is, where the noise leaves room to tell.
#[test]
fn chance_stops_hardly_a_load_and_half_the_rate_nearly_all() {
    let mut reported = String::new();
    for (memory, deviation, false_max, half_min) in [
        (0.0, 0.02, 0, 1000),
        (0.0, 0.05, 0, 990),
        (0.0, 0.10, 0, 800),
        (0.5, 0.05, 0, 900),
        (0.5, 0.10, 1, 500),
        (0.8, 0.05, 1, 800),
        (0.8, 0.10, 10, 400),
        (0.9, 0.05, 5, 800),
    ] {
        let wrong = stopped_of_thousand(memory, deviation, 1.0);
        let right = stopped_of_thousand(memory, deviation, 0.5);
        reported.push_str(&format!("memory {memory} deviation {deviation}: wrong {wrong} right {right}\n"));
        assert!(wrong <= false_max && right >= half_min, "{reported}");
    }
}
