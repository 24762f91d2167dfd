//! When requests are due in open arrival. Pure: the n-th start is a function of the rate, the seed and n.
//!
//! Even gaps: request n of all threads starts at `n / rate`; with a rate that changes, where the integral of the rate
//! reaches n. Poisson: gaps are exponential, in units of that integral. Either way thread k of T takes every T-th
//! start, beginning with k: each thread draws all gaps, which costs some nanoseconds each, and so the starts of all
//! threads together are the same whatever their number, to the last one.

use crate::random::SplitMix;
use crate::schedule::rate_profile::RateProfile;
use std::sync::Arc;

const NS_PER_S: f64 = 1e9;

/// The starts of one thread, in order. A copy walks the same starts again, so a request that waits needs no memory.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    gaps: Gaps,
    thread: u64,
    threads: u64,
    /// Requests of all threads together; `None` without a bound.
    requests: Option<u64>,
    taken: u64,
    /// `None`: the load has no start any more.
    next_ns: Option<u64>,
}

#[derive(Debug, Clone)]
enum Gaps {
    Even { rate_per_s: f64 },
    Poisson { mean_ns: f64, at_ns: f64, random: SplitMix },
    RateProfile { rate_profile: Arc<RateProfile>, hint: usize, drawn: Option<Drawn> },
}

/// A sum of unit exponential gaps.
#[derive(Debug, Clone)]
struct Drawn {
    sum: f64,
    random: SplitMix,
}

impl Pacer {
    /// Even gaps.
    pub(crate) fn even(rate_per_s: f64, thread: u64, threads: u64, requests: Option<u64>) -> Self {
        Self::new(Gaps::Even { rate_per_s }, thread, threads, requests)
    }

    /// Exponential gaps.
    pub(crate) fn poisson(
        rate_per_s: f64,
        thread: u64,
        threads: u64,
        requests: Option<u64>,
        seed: u64,
    ) -> Self {
        let gaps = Gaps::Poisson { mean_ns: NS_PER_S / rate_per_s, at_ns: 0.0, random: SplitMix::new(seed) };
        Self::new(gaps, thread, threads, requests)
    }

    /// A rate that changes: even gaps, or exponential ones with a seed.
    pub(crate) fn rate_profile(
        rate_profile: Arc<RateProfile>,
        thread: u64,
        threads: u64,
        requests: Option<u64>,
        seed: Option<u64>,
    ) -> Self {
        let drawn = seed.map(|seed| Drawn { sum: 0.0, random: SplitMix::new(seed) });
        Self::new(Gaps::RateProfile { rate_profile, hint: 0, drawn }, thread, threads, requests)
    }

    fn new(gaps: Gaps, thread: u64, threads: u64, requests: Option<u64>) -> Self {
        let mut pacer = Self { gaps, thread, threads, requests, taken: 0, next_ns: None };
        pacer.next_ns = pacer.compute();
        pacer
    }

    /// How many starts were passed.
    pub(crate) fn taken_count(&self) -> u64 {
        self.taken
    }

    /// The next start, nanoseconds since the load began; `None` after the last request.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.next_ns.filter(|_| !self.is_exhausted())
    }

    /// Whether this thread's part of the requests is used up; never without a bound.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.requests.is_some_and(|requests| self.slot() >= requests)
    }

    fn slot(&self) -> u64 {
        self.taken * self.threads + self.thread
    }

    /// Advances to the following start.
    pub(crate) fn advance(&mut self) {
        self.taken += 1;
        self.next_ns = self.compute();
    }

    fn compute(&mut self) -> Option<u64> {
        let slot = self.slot();
        let draws = if self.taken == 0 { self.thread + 1 } else { self.threads };
        match &mut self.gaps {
            // Exact to the nanosecond below 2^53 ns (104 days); a float beyond u64 saturates.
            Gaps::Even { rate_per_s } => Some((slot as f64 * NS_PER_S / *rate_per_s) as u64),
            Gaps::Poisson { mean_ns, at_ns, random } => {
                for _ in 0..draws {
                    *at_ns += unit_gap(random) * *mean_ns;
                }
                Some(*at_ns as u64)
            }
            Gaps::RateProfile { rate_profile, hint, drawn: None } => rate_profile.due_ns(slot as f64, hint),
            Gaps::RateProfile { rate_profile, hint, drawn: Some(drawn) } => {
                for _ in 0..draws {
                    drawn.sum += unit_gap(&mut drawn.random);
                }
                rate_profile.due_ns(drawn.sum, hint)
            }
        }
    }
}

/// An exponential gap with a mean of 1.
#[inline]
fn unit_gap(random: &mut SplitMix) -> f64 {
    -(1.0 - random.fraction()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn starts(mut pacer: Pacer, count: usize) -> Vec<u64> {
        let mut all = vec![];
        while let Some(next) = pacer.next_ns().filter(|_| all.len() < count) {
            all.push(next);
            pacer.advance();
        }
        all
    }

    proptest! {
        // Invariant: no start is lost or doubled over threads: together they take exactly n / rate for n = 0, 1, 2, ...
        #[test]
        fn threads_share_the_slots(rate in 0.01f64..5e6, threads in 1u64..9, requests in 0u64..400) {
            let each = (0..threads).map(|thread| starts(Pacer::even(rate, thread, threads, Some(requests)), 1000));
            let mut all: Vec<u64> = each.flatten().collect();
            all.sort_unstable();
            let expected: Vec<u64> = (0..requests).map(|n| (n as f64 * 1e9 / rate) as u64).collect();
            prop_assert_eq!(all, expected);
        }

        // Invariant: it never runs ahead: at any time, no more starts are due than the rate allows.
        #[test]
        fn it_never_runs_ahead(rate in 1f64..1e6, threads in 1u64..5, thread in 0u64..5) {
            let thread = thread % threads;
            for (n, start) in starts(Pacer::even(rate, thread, threads, None), 200).into_iter().enumerate() {
                let ideal = (n as u64 * threads + thread) as f64 * 1e9 / rate;
                prop_assert!(start as f64 > ideal - 1.0 && start as f64 <= ideal, "{start} against {ideal}");
            }
        }

        // Invariant: a copy that lags behind sees the same starts; that is how requests wait without memory.
        #[test]
        fn a_copy_walks_the_same_starts(seed: u64, rate in 1f64..1e6, thread in 0u64..4) {
            let pacer = Pacer::poisson(rate, thread, 4, None, seed);
            prop_assert_eq!(starts(pacer.clone(), 100), starts(pacer, 100));
        }
    }

    /// The starts of all threads together, in order.
    fn merged(threads: u64, requests: u64, seed: u64) -> Vec<u64> {
        let each = (0..threads).map(|thread| Pacer::poisson(1000.0, thread, threads, Some(requests), seed));
        let mut all: Vec<u64> = each.flat_map(|pacer| starts(pacer, usize::MAX)).collect();
        all.sort_unstable();
        all
    }

    /// Largest distance between the distribution of the gaps and the exponential one of this mean, times the root of
    /// their number (Kolmogorov-Smirnov; for large numbers it exceeds 1.95 once in a thousand samples).
    fn kolmogorov_smirnov(starts: &[u64], mean_ns: f64) -> f64 {
        let mut gaps: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        gaps.sort_unstable_by(f64::total_cmp);
        let count = gaps.len() as f64;
        let distances = gaps.iter().enumerate().map(|(below, gap)| {
            let share = 1.0 - (-gap / mean_ns).exp();
            (share - below as f64 / count).abs().max((share - (below + 1) as f64 / count).abs())
        });
        distances.fold(0.0, f64::max) * count.sqrt()
    }

    #[test]
    fn poisson_starts_are_a_poisson_process() {
        for seed in 1..8 {
            let all = merged(3, 30_000, seed);
            assert_eq!(all.len(), 30_000);
            let distance = kolmogorov_smirnov(&all, 1e6);
            assert!(distance < 1.95, "seed {seed}: {distance}");
            // Gaps are independent: the starts within windows vary as much as their mean, at every scale.
            for window_ns in [2_000_000u64, 100_000_000] {
                let windows = (all[all.len() - 1] / window_ns) as usize;
                let mut counts = vec![0f64; windows + 1];
                all.iter().for_each(|start| counts[(start / window_ns) as usize] += 1.0);
                // The last window is not whole.
                counts.truncate(windows);
                let mean = counts.iter().sum::<f64>() / windows as f64;
                let variance =
                    counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / windows as f64;
                // The ratio of a Poisson process deviates from 1 by the root of 2 / windows; four times that is far.
                let allowed = 4.0 * (2.0 / windows as f64).sqrt();
                assert!((variance / mean - 1.0).abs() < allowed, "seed {seed}: {}", variance / mean);
            }
        }
    }

    #[test]
    fn poisson_starts_are_the_same_with_any_number_of_threads() {
        for threads in [2, 3, 4, 64] {
            assert_eq!(merged(threads, 1000, 7), merged(1, 1000, 7), "{threads} threads");
        }
    }

    fn rate_profile(texts: &[&str]) -> Arc<RateProfile> {
        let written: Vec<_> =
            texts.iter().map(|text| webdyno_model::workload::stage::parse(text).unwrap()).collect();
        Arc::new(RateProfile::from_stages(
            &webdyno_model::workload::stage::check_stages(&written).unwrap().stages,
        ))
    }

    /// The starts of all threads together, in order.
    fn merged_profile(rate_profile: &Arc<RateProfile>, threads: u64, seed: Option<u64>) -> Vec<u64> {
        let each =
            (0..threads).map(|thread| Pacer::rate_profile(rate_profile.clone(), thread, threads, None, seed));
        let mut all: Vec<u64> = each.flat_map(|pacer| starts(pacer, usize::MAX)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_changing_rate_has_the_same_starts_with_any_number_of_threads() {
        let all = [
            "3s@0..200/s",
            "1s@0/s",
            "2s@50..300/s,period=700ms",
            "1s@20..200..20/s",
            "1s@200..0/s,measured=yes",
        ];
        let rate_profile = rate_profile(&all);
        for seed in [None, Some(7)] {
            let one = merged_profile(&rate_profile, 1, seed);
            assert!(one.len() > 700, "{}", one.len());
            for threads in [2, 3, 7, 64] {
                assert_eq!(merged_profile(&rate_profile, threads, seed), one, "{threads} threads, {seed:?}");
            }
        }
        assert_ne!(merged_profile(&rate_profile, 1, Some(7)), merged_profile(&rate_profile, 1, Some(8)));
    }

    #[test]
    fn a_request_bound_is_distinguished_from_the_end_of_the_stages() {
        let rate_profile = rate_profile(&["1s@4/s"]);
        let mut bounded = Pacer::rate_profile(rate_profile.clone(), 0, 1, Some(2), None);
        (0..2).for_each(|_| bounded.advance());
        assert!(bounded.next_ns().is_none() && bounded.is_exhausted());
        let mut over = Pacer::rate_profile(rate_profile, 0, 1, Some(9), None);
        assert_eq!(starts(over.clone(), 9).len(), 4);
        (0..4).for_each(|_| over.advance());
        assert!(over.next_ns().is_none() && !over.is_exhausted());
    }

    #[test]
    fn poisson_starts_of_a_changing_rate_are_unit_gaps_of_its_integral() {
        let texts = ["20s@0..1000/s", "10s@100..900/s,period=3s", "20s@1000..0/s,measured=yes"];
        let written: Vec<_> =
            texts.iter().map(|text| webdyno_model::workload::stage::parse(text).unwrap()).collect();
        let stages = webdyno_model::workload::stage::check_stages(&written).unwrap().stages;
        for seed in 1..5 {
            let all = merged_profile(&Arc::new(RateProfile::from_stages(&stages)), 3, Some(seed));
            assert!((all.len() as f64 - 25_000.0).abs() < 4.0 * 25_000f64.sqrt(), "{}", all.len());
            let rescaled =
                |&start: &u64| webdyno_model::workload::stage::integral(&stages, start as f64 / 1e9);
            let units: Vec<u64> = all.iter().map(|start| (rescaled(start) * 1e6) as u64).collect();
            let distance = kolmogorov_smirnov(&units, 1e6);
            assert!(distance < 1.95, "seed {seed}: {distance}");
            // Unscaled they are not: the rate does change.
            assert!(kolmogorov_smirnov(&all, 2e6) > 10.0);
        }
    }

    #[test]
    fn even_gaps_are_not_taken_for_poisson_ones() {
        let even = starts(Pacer::even(1000.0, 0, 1, None), 10_000);
        assert!(kolmogorov_smirnov(&even, 1e6) > 10.0);
        // Two threads that draw the same gaps start in pairs.
        let one = merged(1, 10_000, 1);
        let mut paired: Vec<u64> = one.iter().flat_map(|&start| [start, start]).collect();
        paired.truncate(10_000);
        assert!(kolmogorov_smirnov(&paired, 0.5e6) > 10.0);
    }

    #[test]
    fn seeds_and_threads_differ_and_repeat() {
        let of = |thread, seed| starts(Pacer::poisson(100.0, thread, 2, None, seed), 5);
        assert_eq!(of(0, 1), of(0, 1));
        assert_ne!(of(0, 1), of(0, 2));
        assert_ne!(of(0, 1), of(1, 1));
    }
}
