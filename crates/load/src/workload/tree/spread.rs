//! A summary of a tree: the distribution of its sizes, that of the requested bytes, and the memory that holds most of
//! what is requested.

/// The distribution of some bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Of all.
    pub mean: f64,
    /// The 1st, 25th, 50th, 75th, 90th, 99th percentile.
    pub percentiles: [u64; 6],
    /// The largest.
    pub max: u64,
}

/// The percentiles of a [`Spread`].
pub const PERCENTILES: [f64; 6] = [0.01, 0.25, 0.5, 0.75, 0.9, 0.99];

/// The distribution of sizes where each counts by its weight; `None` without any.
pub fn spread(sizes: &[u64], weights: &[f64]) -> Option<Spread> {
    let mut both: Vec<(u64, f64)> = sizes.iter().copied().zip(weights.iter().copied()).collect();
    both.sort_unstable_by_key(|(size, _)| *size);
    let total: f64 = weights.iter().sum();
    let max = both.last()?.0;
    let mean = both.iter().map(|(size, weight)| *size as f64 * weight).sum::<f64>() / total;
    let mut percentiles = [max; 6];
    let (mut reached, mut next) = (0.0, 0);
    for (size, weight) in both {
        reached += weight;
        while next < PERCENTILES.len() && reached >= PERCENTILES[next] * total * (1.0 - 1e-12) {
            percentiles[next] = size;
            next += 1;
        }
    }
    Some(Spread { mean, percentiles, max })
}

/// How many of the most popular files, and how many bytes of them, make this share of the requests.
pub fn share_by_count(sizes: &[u64], weights: &[f64], share: f64) -> (usize, u64) {
    let mut both: Vec<(u64, f64)> = sizes.iter().copied().zip(weights.iter().copied()).collect();
    both.sort_by(|one, other| other.1.total_cmp(&one.1));
    let wanted = share * weights.iter().sum::<f64>() * (1.0 - 1e-12);
    let (mut reached, mut bytes) = (0.0, 0);
    for (number, (size, weight)) in both.iter().enumerate() {
        if reached >= wanted {
            return (number, bytes);
        }
        reached += weight;
        bytes += size;
    }
    (both.len(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_count_as_so_many_files() {
        let sizes: Vec<u64> = (1..=100).collect();
        let alike = spread(&sizes, &[1.0; 100]).unwrap();
        assert_eq!((alike.mean, alike.percentiles, alike.max), (50.5, [1, 25, 50, 75, 90, 99], 100));
        let one = spread(&[10, 20], &[3.0, 1.0]).unwrap();
        assert_eq!((one.mean, one.percentiles, one.max), (12.5, [10, 10, 10, 10, 20, 20], 20));
        assert_eq!(spread(&[], &[]), None);
    }

    #[test]
    fn the_popular_files_are_the_working_set() {
        let (sizes, weights) = ([100, 5, 1000], [1.0, 8.0, 1.0]);
        assert_eq!(share_by_count(&sizes, &weights, 0.8), (1, 5));
        assert_eq!(share_by_count(&sizes, &weights, 0.9), (2, 105));
        assert_eq!(share_by_count(&sizes, &weights, 1.0), (3, 1105));
    }
}
