//! Times in microseconds as an HdrHistogram: constant memory, no allocation per sample, mergeable in any order.
//!
//! The buckets keep three significant digits up to one hour. Minimum, maximum, sum and sum of squares are kept
//! exactly beside them, so that no reported percentile lies outside of what was measured and means carry no bucket
//! error. Exchange format: HdrHistogram V2, compressed, base64 (the `HISTF...` text that other tools read too);
//! <https://github.com/HdrHistogram/HdrHistogram>.

use crate::distribution::Dist;
use crate::error::{Result, UserError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::bufread::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use std::io::Read;

/// The longest time that is told apart: one hour. Longer ones count at this bound.
pub const TIME_US_MAX: u64 = 3_600_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// A histogram of times in microseconds.
#[derive(Debug, Clone)]
pub struct TimeHistogram {
    buckets: Histogram<u64>,
    min_us: u64,
    max_us: u64,
    sum_us: f64,
    sum_squares_us2: f64,
}

/// A histogram as the event log holds it. Without any sample it is absent, not an empty text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EncodedHistogram {
    /// Exact smallest sample.
    pub min_us: u64,
    /// Exact largest sample.
    pub max_us: u64,
    /// Exact sum of the samples.
    #[serde(serialize_with = "crate::number::serialize")]
    pub sum_us: f64,
    /// Exact sum of the squared samples.
    #[serde(serialize_with = "crate::number::serialize")]
    pub sum_squares_us2: f64,
    /// HdrHistogram V2, compressed, base64.
    pub v2: String,
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl TimeHistogram {
    /// An empty histogram; all the memory it will ever need is allocated here (about 190 kB).
    #[allow(clippy::expect_used)] // the bounds are constants, and a test proves that they are accepted
    pub fn new() -> Self {
        let buckets =
            Histogram::new_with_bounds(1, TIME_US_MAX, SIGNIFICANT_DIGITS).expect("constant bounds");
        Self { buckets, min_us: u64::MAX, max_us: 0, sum_us: 0.0, sum_squares_us2: 0.0 }
    }

    /// Records the same time so often.
    pub fn record_many(&mut self, time_us: u64, count: u64) {
        let time_us = time_us.min(TIME_US_MAX);
        self.buckets.saturating_record_n(time_us, count);
        if count > 0 {
            self.min_us = self.min_us.min(time_us);
            self.max_us = self.max_us.max(time_us);
        }
        let (value, count) = (time_us as f64, count as f64);
        self.sum_us += value * count;
        self.sum_squares_us2 += value * value * count;
    }

    /// Records one time. Never allocates, never fails: longer than an hour counts as an hour.
    #[inline]
    pub fn record(&mut self, time_us: u64) {
        let time_us = time_us.min(TIME_US_MAX);
        self.buckets.saturating_record(time_us);
        self.min_us = self.min_us.min(time_us);
        self.max_us = self.max_us.max(time_us);
        let value = time_us as f64;
        self.sum_us += value;
        self.sum_squares_us2 += value * value;
    }

    /// Adds all samples of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        // Both have the same bounds, so adding cannot fail.
        let _ = self.buckets.add(&other.buckets);
        self.min_us = self.min_us.min(other.min_us);
        self.max_us = self.max_us.max(other.max_us);
        self.sum_us += other.sum_us;
        self.sum_squares_us2 += other.sum_squares_us2;
    }

    /// Forgets all samples and keeps the memory.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.buckets.clear();
        }
        (self.min_us, self.max_us, self.sum_us, self.sum_squares_us2) = (u64::MAX, 0, 0.0, 0.0);
    }

    /// The number of samples.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// How many samples lie between two times, to the width of a bucket (a thousandth).
    pub fn count_between(&self, from_us: u64, to_us: u64) -> u64 {
        self.buckets.count_between(from_us, to_us)
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The buckets themselves, for what reads them.
    pub fn buckets(&self) -> &Histogram<u64> {
        &self.buckets
    }

    /// The exact mean, or `None` without samples.
    pub fn mean_us(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum_us / self.count() as f64)
    }

    /// The time that a share `quantile` (0 to 1) of the samples does not exceed, never outside of min and max.
    pub fn quantile_us(&self, quantile: f64) -> Option<u64> {
        (!self.is_empty()).then(|| self.buckets.value_at_quantile(quantile).clamp(self.min_us, self.max_us))
    }

    /// The distribution as reports show it; all figures are `None` without samples.
    pub fn dist(&self) -> Dist {
        let some = !self.is_empty();
        let count = self.count() as f64;
        let variance = (self.sum_squares_us2 - self.sum_us * self.sum_us / count) / (count - 1.0);
        Dist {
            count: self.count(),
            min: some.then_some(self.min_us),
            mean: self.mean_us().map(|mean| crate::number::significant(mean, 6)),
            stdev: (self.count() > 1).then(|| crate::number::significant(variance.max(0.0).sqrt(), 6)),
            p50: self.quantile_us(0.50),
            p75: self.quantile_us(0.75),
            p90: self.quantile_us(0.90),
            p95: self.quantile_us(0.95),
            p99: self.quantile_us(0.99),
            p999: self.quantile_us(0.999),
            max: some.then_some(self.max_us),
        }
    }

    /// The form for the event log; `None` without samples.
    pub fn encode(&self) -> Option<EncodedHistogram> {
        if self.is_empty() {
            return None;
        }
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.buckets, &mut bytes).ok()?;
        Some(EncodedHistogram {
            min_us: self.min_us,
            max_us: self.max_us,
            sum_us: self.sum_us,
            sum_squares_us2: self.sum_squares_us2,
            v2: STANDARD.encode(bytes),
        })
    }

    /// Adds the samples of an encoded histogram. An error when the text is not one.
    pub fn merge_encoded(&mut self, encoded: &EncodedHistogram) -> Result<()> {
        Self::merge_encoded_into(encoded, &mut [self])
    }

    /// The same to several, read once.
    pub fn merge_encoded_into(encoded: &EncodedHistogram, all: &mut [&mut Self]) -> Result<()> {
        let wrong = || UserError::usage("a histogram in the event log is damaged");
        let bytes = STANDARD.decode(&encoded.v2).map_err(|_| wrong())?;
        match sparse_counts(&bytes) {
            Some(counts) => {
                for to in all.iter_mut() {
                    counts
                        .iter()
                        .for_each(|(time_us, count)| to.buckets.saturating_record_n(*time_us, *count));
                }
            }
            // Of other bounds, or damaged.
            None => {
                let buckets: Histogram<u64> =
                    Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|_| wrong())?;
                all.iter_mut().try_for_each(|to| to.buckets.add(&buckets)).map_err(|_| wrong())?;
            }
        }
        for to in all {
            to.min_us = to.min_us.min(encoded.min_us);
            to.max_us = to.max_us.max(encoded.max_us);
            to.sum_us += encoded.sum_us;
            to.sum_squares_us2 += encoded.sum_squares_us2;
        }
        Ok(())
    }

    /// Upper bounds and cumulative shares for plots: `(time_us, share of samples not above it)`.
    pub fn cumulative(&self) -> Vec<(u64, f64)> {
        let total = self.count() as f64;
        let mut observed = 0u64;
        self.buckets
            .iter_recorded()
            .map(|step| {
                observed += step.count_since_last_iteration();
                (step.value_iterated_to().clamp(self.min_us, self.max_us), observed as f64 / total)
            })
            .collect()
    }
}

/// The buckets that have samples, of a histogram with our bounds: by their lowest times, with their counts. `None` for any other
/// text. A load of a thousand workers has five thousand histograms a second, each with some hundred of 23,000 buckets: to build each one
/// first, as `hdrhistogram` does, takes three times as long. The format: "HdrHistogram V2 encoding" in its `doc`.
fn sparse_counts(bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    const COMPRESSED: u32 = 0x1c84_9314;
    const PLAIN: u32 = 0x1c84_9313;
    const HEADER_BYTES: usize = 40;
    // Three digits are told apart by 2048 buckets for the first power of two, and half as many for each further one.
    const HALF: u64 = 1024;
    let number = |at: usize, bytes: &[u8]| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize, bytes: &[u8]| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if number(0, bytes)? != COMPRESSED {
        return None;
    }
    let mut plain = Vec::with_capacity(8192);
    ZlibDecoder::new(bytes.get(8..)?).take(1 << 19).read_to_end(&mut plain).ok()?;
    let is_ours = number(0, &plain)? == PLAIN
        && number(8, &plain)? == 0
        && number(12, &plain)? == u32::from(SIGNIFICANT_DIGITS)
        && (long(16, &plain)?, long(24, &plain)?) == (1, TIME_US_MAX)
        && long(32, &plain)? == 1f64.to_bits();
    let mut rest =
        plain.get(HEADER_BYTES..).filter(|rest| is_ours && Some(rest.len() as u32) == number(4, &plain))?;
    let (mut counts, mut index) = (Vec::with_capacity(rest.len() / 2), 0u64);
    while !rest.is_empty() {
        let zigzag = varint(&mut rest)?;
        let value = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        if value < 0 {
            index = index.checked_add(value.unsigned_abs())?;
            continue;
        }
        if value > 0 {
            let power = (index / HALF).saturating_sub(1);
            let within = if index < 2 * HALF { index } else { index % HALF + HALF };
            let time_us = within.checked_shl(u32::try_from(power).ok()?).filter(|us| *us <= TIME_US_MAX)?;
            counts.push((time_us, value as u64));
        }
        index += 1;
    }
    Some(counts)
}

/// A number of seven bits a byte, the lowest first; the ninth byte has eight.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..9 {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        let bits = if place == 8 { *byte } else { byte & 0x7f };
        value |= u64::from(bits) << (7 * place);
        if place == 8 || byte & 0x80 == 0 {
            break;
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(times: &[u64]) -> TimeHistogram {
        let mut histogram = TimeHistogram::new();
        times.iter().for_each(|&time| histogram.record(time));
        histogram
    }

    #[test]
    fn without_samples_everything_is_unknown() {
        let dist = TimeHistogram::new().dist();
        assert_eq!((dist.count, dist.min, dist.mean, dist.p99, dist.max), (0, None, None, None, None));
        assert!(TimeHistogram::new().encode().is_none());
    }

    #[test]
    fn many_times_are_one_time_often() {
        let mut many = TimeHistogram::new();
        many.record_many(7, 3);
        many.record_many(9, 0);
        assert_eq!(many.dist(), of(&[7, 7, 7]).dist());
    }

    #[test]
    fn a_damaged_text_is_an_error() {
        let mut encoded = of(&[5]).encode().unwrap();
        encoded.v2 = "AAAA".into();
        assert!(TimeHistogram::new().merge_encoded(&encoded).is_err());
    }

    proptest! {
        // Invariant: merging in any order, directly or through the log's text, gives the same distribution.
        #[test]
        fn merging_is_order_free(a in prop::collection::vec(0..TIME_US_MAX, 0..50),
                                 b in prop::collection::vec(0..TIME_US_MAX, 1..50)) {
            let (first, second) = (of(&a), of(&b));
            let mut forward = first.clone();
            forward.merge(&second);
            let mut backward = TimeHistogram::new();
            backward.merge_encoded(&second.encode().unwrap()).unwrap();
            backward.merge(&first);
            prop_assert_eq!(forward.dist(), backward.dist());
            prop_assert_eq!(&forward.buckets, &backward.buckets);
        }

        // Invariant: what is read bucket by bucket is what the library reads, also counts of many bytes.
        #[test]
        fn sparse_counts_are_those_of_the_library(
            times in prop::collection::vec((0..TIME_US_MAX, 1u64..1 << 40), 1..50)
        ) {
            let mut histogram = TimeHistogram::new();
            times.iter().for_each(|(time_us, count)| histogram.record_many(*time_us, *count));
            let bytes = STANDARD.decode(histogram.encode().unwrap().v2).unwrap();
            let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            let library: Vec<(u64, u64)> = read
                .iter_recorded()
                .map(|step| (read.lowest_equivalent(step.value_iterated_to()), step.count_at_value()))
                .collect();
            prop_assert_eq!(sparse_counts(&bytes), Some(library));
            // Damage is never taken for something else than an error or a histogram.
            let mut torn = bytes.clone();
            torn.truncate(bytes.len() / 2);
            prop_assert!(sparse_counts(&torn).is_none());
        }

        // Invariant: percentiles rise, and none lies outside of the exact minimum and maximum.
        #[test]
        fn percentiles_are_ordered(times in prop::collection::vec(0..TIME_US_MAX, 1..200)) {
            let dist = of(&times).dist();
            let row = [dist.min, dist.p50, dist.p75, dist.p90, dist.p95, dist.p99, dist.p999, dist.max];
            prop_assert!(row.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert_eq!(dist.max, times.iter().max().copied());
            prop_assert_eq!(dist.min, times.iter().min().copied());
        }
    }
}
