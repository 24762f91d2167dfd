//! The workers of a load that several machines make: who makes which part of it, and what came of that.

use crate::distribution::Dist;
use crate::histogram::EncodedHistogram;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A machine's part of a load: so many threads of the numbering over the threads of all machines. Arrivals, users, rows and
/// seeds are functions of that number and of the number of threads, so no two machines have one of them in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadShare {
    /// The number of its first thread, from 0.
    pub first_thread: u32,
    /// Its threads, at least one.
    pub threads: u32,
    /// Those of all machines.
    pub total_threads: u32,
}

impl LoadShare {
    /// All of a load, on this machine.
    pub fn whole(threads: u32) -> Self {
        Self { first_thread: 0, threads, total_threads: threads }
    }

    /// Whether another machine makes the rest.
    pub fn is_whole(&self) -> bool {
        self.threads == self.total_threads
    }

    /// Its part of `count` things of which each thread has a T-th.
    pub fn part(&self, count: u32) -> u32 {
        let numbers = self.numbers(u64::from(count));
        (numbers.end - numbers.start) as u32
    }

    /// `count` things on this machine as so many of all machines.
    pub fn scaled(&self, count: u32) -> u32 {
        let all = u64::from(count) * u64::from(self.total_threads) / u64::from(self.threads.max(1));
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// The numbers of its part of `count` things that are dealt out one behind the other.
    pub fn numbers(&self, count: u64) -> Range<u64> {
        let total = u64::from(self.total_threads.max(1));
        let before = |thread: u64| thread * (count / total) + thread.min(count % total);
        before(u64::from(self.first_thread))..before(u64::from(self.first_thread + self.threads))
    }
}

/// What became of one worker's part of a load, over the whole of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerPart {
    /// The worker's name.
    pub name: String,
    /// Which process of that name.
    pub instance: String,
    /// Its share.
    pub share: LoadShare,
    /// The shortest round trip of a message to it and back.
    pub round_trip_us: u64,
    /// How much later than intended its load began, by the measured offset of its clock; `None` when it did not begin.
    pub start_late_us: Option<i64>,
    /// Requests whose intended start fell into its seconds.
    pub started: u64,
    /// Successful requests.
    pub completed: u64,
    /// Everything that was not.
    pub failed: u64,
    /// Neither, at its end, as far as it is known.
    pub in_flight_at_end: u64,
    /// Length of what it reported.
    pub elapsed_us: u64,
    /// Its response times.
    pub response_time: Option<EncodedHistogram>,
    /// CPU of each of its threads.
    pub thread_cpu_us: Vec<u64>,
    /// The sum of what it added before it sent.
    #[serde(serialize_with = "crate::number::serialize")]
    pub client_delay_sum_us: f64,
    /// Where its results end when it was lost, seconds since the load began; `None` when it was not.
    pub lost_at_s: Option<u64>,
    /// Seconds that it reported when they were given up already: they are in no figure.
    pub late_seconds: u64,
    /// The second of the load up to which it is in the figures.
    #[serde(default)]
    pub seconds: u64,
    /// The second of the load from which it has the part of a worker that was lost; 0 for one that had its part from the beginning.
    #[serde(default)]
    pub from_s: u64,
    /// The second from which others have its part, when it was lost.
    #[serde(default)]
    pub taken_over_at_s: Option<u64>,
}

impl WorkerPart {
    /// Seconds of the load that are in the figures of its parts.
    pub fn seconds_of(parts: &[Self]) -> u64 {
        parts.iter().filter(|part| part.elapsed_us > 0).map(|part| part.seconds).max().unwrap_or(0)
    }
}

/// Who is to make a load, and how it is measured: what is needed to finish its recording when the command is gone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkersStart {
    /// Names the results that its workers give: random, of this command alone.
    pub session: String,
    /// Where they are connected, without passwords: `nats://HOST:PORT,..` or `local:N`.
    pub on: String,
    /// Seconds to be cut from the beginning; `None` when that is detected.
    pub warmup_s: Option<f64>,
    /// Seconds to be measured of a load that goes on until it has settled; `None` for one with a fixed end.
    pub measure_s: Option<u32>,
}

/// A worker as the report shows it, over the whole load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its name.
    pub name: String,
    /// Its engine threads.
    pub threads: u32,
    /// Its part of the load, 0 to 1.
    pub share: f64,
    /// Successful requests per second.
    pub rate: Option<f64>,
    /// Successful requests.
    pub completed: u64,
    /// Everything that was not.
    pub failed: u64,
    /// From the intended start.
    pub response_time_us: Dist,
    /// The busiest of its threads, as a share of a core.
    pub cpu_fraction_max_thread: Option<f64>,
    /// What it added to a request before it sent it.
    pub client_delay_mean_us: Option<f64>,
    /// Whether it was the bottleneck of its own part.
    pub saturated: bool,
    /// How much later than the common instant it began.
    pub start_late_us: Option<i64>,
    /// The shortest round trip of a message to it.
    pub round_trip_us: u64,
    /// Where its results end when it was lost, seconds since the load began.
    pub lost_at_s: Option<u64>,
    /// From when it has the part of one that was lost, seconds since the load began; 0: its part is its own.
    #[serde(default)]
    pub from_s: u64,
    /// From when others have its part.
    #[serde(default)]
    pub taken_over_at_s: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Invariant: the shares of a load have all of its numbers, each once, and as many as their threads have.
        #[test]
        fn shares_have_each_number_once(threads in prop::collection::vec(1u32..40, 1..9), count in 0u32..5000) {
            let total_threads: u32 = threads.iter().sum();
            let (mut first_thread, mut next, mut parts) = (0, 0, 0);
            for threads in threads {
                let share = LoadShare { first_thread, threads, total_threads };
                let numbers = share.numbers(u64::from(count));
                prop_assert_eq!(numbers.start, next);
                let by_threads: u32 = (first_thread..first_thread + threads)
                    .map(|thread| count / total_threads + u32::from(thread < count % total_threads)).sum();
                prop_assert_eq!(share.part(count), by_threads);
                (first_thread, next, parts) = (first_thread + threads, numbers.end, parts + share.part(count));
            }
            prop_assert_eq!((next, parts), (u64::from(count), count));
        }
    }
}
