//! How many requests took how long at which moment of a session: the histograms of its seconds on a grid that is bounded however
//! long the session was and however wide its latencies lie.

use webdyno_model::Result;
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};

/// More columns than this a screen does not show apart.
const COLUMNS_MAX: f64 = 300.0;
/// Rows over all decades of the latencies there are.
const ROWS_MAX: f64 = 40.0;
/// Rows of a decade where there are few of them.
const ROWS_PER_DECADE_MAX: f64 = 20.0;

/// Requests by moment and latency.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HeatMap {
    /// Start of the first column, seconds since the session began.
    pub from_s: f64,
    /// Width of a column.
    pub step_s: f64,
    /// Bounds of the rows in microseconds, rising: one more than there are rows.
    pub edges_us: Vec<u64>,
    /// Requests by column, then by row.
    pub counts: Vec<Vec<u64>>,
}

/// The heat map of seconds, each with its start in seconds since the session began; `None` where no response was timed.
pub fn heat_map(seconds: &[(f64, &EncodedHistogram)]) -> Result<Option<HeatMap>> {
    let least_us = seconds.iter().map(|(_, times)| times.min_us).min();
    let most_us = seconds.iter().map(|(_, times)| times.max_us).max();
    let Some((least_us, most_us)) = least_us.zip(most_us) else { return Ok(None) };
    let starts = || seconds.iter().map(|(start_s, _)| *start_s);
    let from_s = starts().fold(f64::INFINITY, f64::min);
    let to_s = starts().fold(from_s, f64::max) + 1.0;
    let step_s = ((to_s - from_s) / COLUMNS_MAX).ceil().max(1.0);
    let edges_us = edges(least_us, most_us);
    let mut counts = vec![vec![0; edges_us.len() - 1]; ((to_s - from_s) / step_s).ceil() as usize];
    let mut histogram = TimeHistogram::new();
    for (start_s, times) in seconds {
        // Seconds of one load lie a second apart but for rounding.
        let column = ((start_s - from_s + 1e-6) / step_s) as usize;
        histogram.clear();
        histogram.merge_encoded(times)?;
        for step in histogram.buckets().iter_recorded() {
            let us = step.value_iterated_to().clamp(least_us, most_us);
            let row = edges_us[1..].partition_point(|edge| *edge <= us).min(edges_us.len() - 2);
            counts[column][row] += step.count_since_last_iteration();
        }
    }
    Ok(Some(HeatMap { from_s, step_s, edges_us, counts }))
}

/// Bounds that divide each decade evenly on a logarithmic axis; where microseconds do not tell two of them apart, one.
fn edges(least_us: u64, most_us: u64) -> Vec<u64> {
    let (low, high) = ((least_us.max(1) as f64).log10(), (most_us.max(1) as f64 + 1.0).log10());
    let per_decade = (ROWS_MAX / (high - low)).floor().clamp(1.0, ROWS_PER_DECADE_MAX);
    let (first, last) =
        ((low * per_decade).floor(), (high * per_decade).ceil().max((low * per_decade).floor() + 1.0));
    let bound = |step: u64| 10f64.powf((first + step as f64) / per_decade).round() as u64;
    let mut edges: Vec<u64> = (0..=(last - first) as u64).map(bound).collect();
    edges.dedup();
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(times_us: &[u64]) -> EncodedHistogram {
        let mut histogram = TimeHistogram::new();
        times_us.iter().for_each(|us| histogram.record(*us));
        histogram.encode().unwrap()
    }

    #[test]
    fn each_request_is_in_the_cell_of_its_second_and_its_latency() {
        let (first, last) = (second(&[90, 5_000, 5_000]), second(&[70_000]));
        let map = heat_map(&[(1.2, &first), (9.5, &last)]).unwrap().unwrap();
        assert_eq!((map.from_s, map.step_s, map.counts.len()), (1.2, 1.0, 10));
        let mut found = vec![];
        for (column, rows) in map.counts.iter().enumerate() {
            let counted = rows.iter().enumerate().filter(|(_, count)| **count > 0);
            found.extend(
                counted.map(|(row, count)| (column, map.edges_us[row], map.edges_us[row + 1], *count)),
            );
        }
        assert_eq!(found.len(), 3, "{found:?}");
        for ((column, from_us, to_us, count), (expected, us, requests)) in
            found.iter().zip([(0, 90, 1), (0, 5_000, 2), (8, 70_000, 1)])
        {
            assert_eq!((*column, *count), (expected, requests), "{found:?}");
            assert!((*from_us..*to_us).contains(&us) && *to_us < *from_us * 14 / 10, "{found:?}");
        }
        assert_eq!(heat_map(&[]).unwrap(), None);
    }

    #[test]
    fn it_is_bounded_whatever_was_measured() {
        for (seconds, times) in
            [(4_000, vec![1, 3_600_000_000]), (1, vec![0]), (1, vec![7]), (20, vec![999, 1_000])]
        {
            let histogram = second(&times);
            let all: Vec<_> = (0..seconds).map(|t| (f64::from(t), &histogram)).collect();
            let map = heat_map(&all).unwrap().unwrap();
            let edges = &map.edges_us;
            assert!(
                map.counts.len() <= 300 && (2..=44).contains(&edges.len()),
                "{} {edges:?}",
                map.counts.len()
            );
            assert!(edges.windows(2).all(|pair| pair[0] < pair[1]), "{edges:?}");
            let total: u64 = map.counts.iter().flatten().sum();
            assert_eq!(total, seconds as u64 * times.len() as u64, "{times:?}");
        }
    }
}
