//! How sure the percentiles of a load are, by how its seconds differ: the variance of their logarithm, from a bootstrap of the
//! seconds (Efron, Annals of Statistics 7, 1979), each taken as a whole, since slow answers come together. Seconds that follow each
//! other are alike: the variance grows as their correlation takes information away, as in
//! [`crate::measurement::statistics`]. The seed is fixed, so that the same recording gives the same interval.

use crate::measurement::histograms::merged;
use crate::measurement::statistics::describe;
use webdyno_model::Result;
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};

/// The percentiles that are compared, rising.
pub const QUANTILES: [f64; 3] = [0.50, 0.90, 0.99];

/// Seconds of a long load are taken together until there are so many batches.
const BATCHES_MAX: usize = 60;
/// The standard deviation of a standard deviation from so many is 5% of it.
const RESAMPLES: usize = 200;
const SEED: u64 = 0x5eed;

/// How a percentile differs between the batches of seconds of one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// The percentile of each batch.
    pub batches_us: Vec<f64>,
    /// Variance of the logarithm of the percentile of all, and its degrees of freedom.
    pub log_error: (f64, f64),
}

/// The spreads of [`QUANTILES`]; `None` for fewer than two seconds. An error when a histogram is damaged.
pub fn spreads(seconds: &[&EncodedHistogram]) -> Result<Option<[Spread; 3]>> {
    let size = seconds.len().div_ceil(BATCHES_MAX).max(1);
    let batches = seconds.chunks(size).map(|batch| merged(batch.iter().copied()));
    let batches: Vec<TimeHistogram> = batches.collect::<Result<_>>()?;
    if batches.len() < 2 {
        return Ok(None);
    }
    let variances = resampled_variances(&batches);
    let count = batches.len() as f64;
    Ok(Some(std::array::from_fn(|at| {
        let quantile = |batch: &TimeHistogram| batch.quantile_us(QUANTILES[at]).map(|us| us as f64);
        let batches_us: Vec<f64> = batches.iter().filter_map(quantile).collect();
        let effective = describe(&batches_us).map_or(count, |series| series.effective);
        let log_error = (variances[at] * count / effective, effective - 1.0);
        Spread { batches_us, log_error }
    })))
}

/// So often a count of this time in this batch.
struct Entry {
    time_us: u64,
    batch: usize,
    count: u64,
}

/// The variance of the logarithm of each percentile over sets of batches that are drawn with replacement.
fn resampled_variances(batches: &[TimeHistogram]) -> [f64; 3] {
    let entries = |(batch, times): (usize, &TimeHistogram)| {
        let recorded = times.buckets().iter_recorded();
        let entry = recorded.map(|step| Entry {
            time_us: step.value_iterated_to(),
            batch,
            count: step.count_since_last_iteration(),
        });
        entry.collect::<Vec<_>>()
    };
    let mut entries: Vec<Entry> = batches.iter().enumerate().flat_map(entries).collect();
    entries.sort_by_key(|entry| entry.time_us);
    let mut random = SplitMix(SEED);
    let mut logarithms: [Vec<f64>; 3] = Default::default();
    for _ in 0..RESAMPLES {
        let mut drawn = vec![0u64; batches.len()];
        for _ in batches {
            drawn[(random.next() % batches.len() as u64) as usize] += 1;
        }
        let total = batches.iter().zip(&drawn).map(|(batch, drawn)| batch.count() * drawn).sum();
        for (logarithms, time_us) in logarithms.iter_mut().zip(drawn_quantiles(&entries, &drawn, total)) {
            logarithms.push((time_us.max(1) as f64).ln());
        }
    }
    // A draw of n from n varies less than the n did, by one part in n.
    let unbiased = batches.len() as f64 / (batches.len() as f64 - 1.0);
    logarithms.map(|values| describe(&values).map_or(0.0, |series| series.variance * unbiased))
}

/// The percentiles of what was drawn, in one pass over the times in order.
fn drawn_quantiles(entries: &[Entry], drawn: &[u64], total: u64) -> [u64; 3] {
    let mut found = [0; 3];
    let (mut at, mut passed) = (0, 0);
    for entry in entries {
        passed += entry.count * drawn[entry.batch];
        while at < QUANTILES.len() && passed > 0 && passed as f64 >= QUANTILES[at] * total as f64 {
            found[at] = entry.time_us;
            at += 1;
        }
    }
    found
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn second(times_us: &[u64]) -> EncodedHistogram {
        let mut times = TimeHistogram::new();
        times_us.iter().for_each(|time_us| times.record(*time_us));
        times.encode().unwrap()
    }

    fn errors(seconds: &[EncodedHistogram]) -> [(f64, f64); 3] {
        let seconds: Vec<&EncodedHistogram> = seconds.iter().collect();
        spreads(&seconds).unwrap().unwrap().map(|spread| spread.log_error)
    }

    #[test]
    fn fewer_than_two_seconds_tell_nothing() {
        let one = second(&[1000]);
        assert_eq!(spreads(&[]).unwrap(), None);
        assert_eq!(spreads(&[&one]).unwrap(), None);
        let damaged = EncodedHistogram { v2: "AAAA".into(), ..one.clone() };
        assert!(spreads(&[&one, &damaged]).is_err());
    }

    #[test]
    fn seconds_that_are_alike_are_sure_and_a_stall_is_not() {
        let steady: Vec<EncodedHistogram> = (0..10).map(|_| second(&[1000; 200])).collect();
        assert!(errors(&steady).iter().all(|error| error.0 < 1e-12 && error.1 == 9.0));
        let mut stalled = steady.clone();
        stalled[3] = second(&[[1000; 100], [80_000; 100]].concat());
        let [median, _, p99] = errors(&stalled);
        assert!(median.0 < 1e-6 && p99.0.sqrt() > 1.0, "{median:?} {p99:?}");
        // Ten minutes are as many batches as one.
        let long: Vec<EncodedHistogram> = (0..600).map(|at| second(&[1000 + at % 7; 20])).collect();
        let long: Vec<&EncodedHistogram> = long.iter().collect();
        assert_eq!(spreads(&long).unwrap().unwrap()[0].batches_us.len(), BATCHES_MAX);
    }

    // Independent seconds: the bootstrap comes near what theory says of a median, 1.2533 sigma / sqrt(n) of a normal one.
    #[test]
    fn the_error_of_a_median_is_that_of_theory() {
        let mut random = SplitMix(7);
        let normal = |random: &mut SplitMix| -> f64 {
            (0..12).map(|_| random.next() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
        };
        let times = |random: &mut SplitMix| -> Vec<u64> {
            (0..100).map(|_| (100_000.0 * (0.1 * normal(random)).exp()) as u64).collect()
        };
        let seconds: Vec<EncodedHistogram> = (0..40).map(|_| second(&times(&mut random))).collect();
        let expected = 1.2533 * 0.1 / f64::from(40 * 100).sqrt();
        let error = errors(&seconds)[0].0.sqrt();
        assert!((0.6..1.6).contains(&(error / expected)), "{error} {expected}");
    }

    proptest! {
        // Invariant: variances are finite and not negative, there is one freedom or more, and the same seconds give the same.
        #[test]
        fn errors_are_finite(seconds in prop::collection::vec(prop::collection::vec(0..10_000_000u64, 1..20), 2..12)) {
            let seconds: Vec<EncodedHistogram> = seconds.iter().map(|times| second(times)).collect();
            let found = errors(&seconds);
            prop_assert!(found.iter().all(|(variance, freedom)| variance.is_finite() && *variance >= 0.0 && *freedom >= 1.0));
            prop_assert_eq!(found, errors(&seconds));
        }
    }
}
