//! A modelled queue whose capacity is known: requests at a rate or of users who think, workers that each hold one for a time, a token
//! bucket before them. Requests are served in the order in which they come.

use crate::simulated::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::Interval;
use webdyno_model::workload::{Arrival, Workload};

/// A server with a capacity that can be computed.
#[derive(Debug, Clone, Copy)]
pub struct QueueServer {
    /// Requests that are served at once.
    pub workers: usize,
    /// How long a request holds a worker, seconds.
    pub service_s: f64,
    /// Whether that is an exponential time with this mean.
    pub is_exponential: bool,
    /// Requests per second that are let in, and how many at once; others fail.
    pub bucket: Option<(f64, f64)>,
    /// Share of the requests that fail, whatever the load.
    pub failed_fraction: f64,
}

/// One worker of a fixed time.
pub const FIXED: QueueServer =
    QueueServer { workers: 1, service_s: 0.005, is_exponential: false, bucket: None, failed_fraction: 0.0 };

/// A request that ended: when, and what it took; `None` for one that failed.
type FinishedRequest = (f64, Option<f64>);

/// A load on such a server, which gives second after second.
pub struct QueueLoad {
    server: QueueServer,
    random: Random,
    /// When the next requests start.
    next: BinaryHeap<Reverse<u64>>,
    gap_s: Option<f64>,
    is_poisson: bool,
    think_s: f64,
    /// When each worker is free.
    free: BinaryHeap<Reverse<u64>>,
    tokens: (f64, f64),
    under_way: Vec<FinishedRequest>,
    second: u32,
}

/// Whole nanoseconds have an order.
const NS: f64 = 1e9;

impl QueueLoad {
    /// The load of this workload. Users come within their think time, and at least a tenth of a second.
    pub fn new(server: QueueServer, workload: &Workload, seed: u64) -> Self {
        let mut random = Random::new(seed, 7);
        let visits = workload.visits.as_ref();
        let think_s = visits.map_or(0.0, |visits| visits.think.mean_us() / 1e6);
        let (gap_s, is_poisson, first) = match workload.arrival {
            Arrival::Open { rate_per_s, poisson } => (Some(1.0 / rate_per_s), poisson, vec![0.0]),
            Arrival::Closed => {
                let users = visits.map_or(workload.concurrency(), |visits| visits.users);
                let within = think_s.max(0.1);
                (None, false, (0..users).map(|_| uniform(&mut random) * within).collect())
            }
        };
        Self {
            server,
            random,
            next: first.into_iter().map(|at| Reverse((at * NS) as u64)).collect(),
            gap_s,
            is_poisson,
            think_s,
            free: (0..server.workers).map(|_| Reverse(0)).collect(),
            tokens: (0.0, server.bucket.map_or(0.0, |(_, depth)| depth)),
            under_way: vec![],
            second: 0,
        }
    }

    /// What a load generator sees in the next second.
    pub fn second(&mut self) -> Interval {
        let (begins_s, ends_s) = (f64::from(self.second), f64::from(self.second + 1));
        let mut started = 0;
        while self.next.peek().is_some_and(|at| at.0 < (ends_s * NS) as u64) {
            let at_s = self.next.pop().map_or(0.0, |at| at.0 as f64 / NS);
            started += 1;
            let ended = self.serve(at_s);
            self.under_way.push(ended);
            let after_s = match self.gap_s {
                Some(gap_s) if self.is_poisson => at_s - uniform(&mut self.random).ln() * gap_s,
                Some(gap_s) => at_s + gap_s,
                None => ended.0 + self.think_s,
            };
            self.next.push(Reverse((after_s * NS).ceil() as u64));
        }
        self.second += 1;
        let (ended, left): (Vec<FinishedRequest>, Vec<FinishedRequest>) =
            self.under_way.iter().partition(|one| one.0 < ends_s);
        self.under_way = left;
        let mut times = TimeHistogram::new();
        ended.iter().filter_map(|one| one.1).for_each(|took_s| times.record((took_s * 1e6) as u64));
        let failed = ended.iter().filter(|one| one.1.is_none()).count() as u64;
        Interval {
            t_s: begins_s,
            length_us: 1_000_000,
            started,
            completed: ended.len() as u64 - failed,
            failed,
            in_flight: self.under_way.len() as u64,
            response_time: times.encode(),
            ..Interval::default()
        }
    }

    fn serve(&mut self, at_s: f64) -> FinishedRequest {
        let server = self.server;
        if let Some((rate, depth)) = server.bucket {
            let (since_s, tokens) = self.tokens;
            let tokens = (tokens + (at_s - since_s) * rate).min(depth);
            self.tokens = (at_s, if tokens >= 1.0 { tokens - 1.0 } else { tokens });
            if tokens < 1.0 {
                return (at_s + 0.0001, None);
            }
        }
        if uniform(&mut self.random) < server.failed_fraction {
            return (at_s + 0.0001, None);
        }
        let takes_s = match server.is_exponential {
            true => -uniform(&mut self.random).ln() * server.service_s,
            false => server.service_s,
        };
        let free_s = self.free.pop().map_or(0.0, |at| at.0 as f64 / NS);
        let ends_s = free_s.max(at_s) + takes_s;
        self.free.push(Reverse((ends_s * NS) as u64));
        (ends_s, Some(ends_s - at_s))
    }
}

/// Above 0, up to 1.
fn uniform(random: &mut Random) -> f64 {
    (random.next() >> 11) as f64 / (1u64 << 53) as f64 + f64::EPSILON
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_analysis::queueing::{Load, Network, Pool};
    use webdyno_model::workload::visit::{Think, Visits};

    /// The queueing model of predictions against requests that are served one by one: users with and without a pause, arrivals at
    /// random, workers that are few and many.
    #[test]
    fn the_model_of_predictions_gives_what_a_queue_does() {
        for (workers, service_ms, load) in [
            (5, 100.0, Load::Closed { users: 20.0, think_us: 0.0 }),
            (20, 100.0, Load::Closed { users: 20.0, think_us: 0.0 }),
            (10, 50.0, Load::Closed { users: 40.0, think_us: 150_000.0 }),
            (30, 50.0, Load::Closed { users: 40.0, think_us: 150_000.0 }),
            (4, 20.0, Load::Open { rate: 150.0, connections: 500.0 }),
            (8, 20.0, Load::Open { rate: 150.0, connections: 500.0 }),
        ] {
            let pools = vec![Pool { places: f64::from(workers), own_us: 0.0 }];
            let network = Network { pools, rest_us: service_ms * 1e3, ..Network::default() };
            let (rate, response_us) = simulated(workers as usize, service_ms, load);
            let solved = network.solve(load);
            let near = |predicted: f64, measured: f64| (predicted / measured - 1.0).abs();
            assert!(near(solved.rate, rate) < 0.03, "{workers} {load:?}: {} then {rate}", solved.rate);
            let predicted_us = solved.response_us.unwrap();
            assert!(
                near(predicted_us, response_us) < 0.08,
                "{workers} {load:?}: {predicted_us} then {response_us}"
            );
        }
    }

    /// Rate and mean response time, microseconds, of five minutes after the first half.
    fn simulated(workers: usize, service_ms: f64, load: Load) -> (f64, f64) {
        let server = QueueServer { workers, service_s: service_ms / 1e3, is_exponential: true, ..FIXED };
        let workload = match load {
            Load::Closed { users, think_us } => {
                let think = Think::Fixed { time_us: think_us as u64 };
                let visits = Visits { users: users as u32, think, ..Visits::default() };
                Workload { visits: Some(Box::new(visits)), ..Workload::default() }
            }
            Load::Open { rate, .. } => {
                Workload { arrival: Arrival::Open { rate_per_s: rate, poisson: true }, ..Workload::default() }
            }
        };
        let mut queue = QueueLoad::new(server, &workload, 11);
        let seconds: Vec<Interval> = (0..330).map(|_| queue.second()).skip(30).collect();
        let mut times = TimeHistogram::new();
        seconds
            .iter()
            .filter_map(|one| one.response_time.as_ref())
            .for_each(|one| times.merge_encoded(one).unwrap());
        let completed: u64 = seconds.iter().map(|one| one.completed).sum();
        (completed as f64 / 300.0, times.dist().mean.unwrap())
    }
}
