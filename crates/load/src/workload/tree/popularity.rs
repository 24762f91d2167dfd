//! How often each file of a tree is requested.
//!
//! Zipf's law: the file of rank r is requested in proportion to 1/r^s; for web servers and proxies s lies between 0.6
//! and 1.1 (Breslau, Cao, Fan, Phillips, Shenker: Web Caching and Zipf-like Distributions, INFOCOM 1999).

use crate::random::SplitMix;

/// The stream of random numbers that ranks are drawn with.
const STREAM: u64 = 0x7261_6e6b;

/// A law of popularity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Popularity {
    /// All alike.
    Uniform,
    /// Zipf's.
    Zipf {
        /// Its exponent.
        exponent: f64,
    },
}

/// The weight of each of this many files; ranks have nothing to do with the files' order. The least popular one has 1,
/// as far as it is not further away from the first than numbers go.
pub fn weights(law: Popularity, count: usize, seed: u64) -> Vec<f64> {
    let Popularity::Zipf { exponent } = law else {
        return vec![1.0; count];
    };
    // Fisher and Yates.
    let mut ranks: Vec<usize> = (1..=count).collect();
    let mut random = SplitMix::stream(seed, STREAM, 0);
    for place in (1..count).rev() {
        let other = ((u128::from(random.next()) * (place as u128 + 1)) >> 64) as usize;
        ranks.swap(place, other);
    }
    ranks.into_iter().map(|rank| (count as f64 / rank as f64).powf(exponent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_law_and_not_the_order() {
        let drawn = weights(Popularity::Zipf { exponent: 0.8 }, 1000, 1);
        let mut sorted = drawn.clone();
        sorted.sort_by(|one, other| other.total_cmp(one));
        assert_ne!(drawn, sorted);
        for (index, weight) in sorted.iter().enumerate() {
            let expected = (1000.0 / (index + 1) as f64).powf(0.8);
            assert!((weight / expected - 1.0).abs() < 1e-9);
        }
        assert_eq!(drawn, weights(Popularity::Zipf { exponent: 0.8 }, 1000, 1));
        assert_ne!(drawn, weights(Popularity::Zipf { exponent: 0.8 }, 1000, 2));
        // The first file is as often among the popular half as any other one.
        let high =
            (0..200).filter(|&seed| weights(Popularity::Zipf { exponent: 1.0 }, 100, seed)[0] > 2.0).count();
        assert!((60..140).contains(&high), "{high} of 200");
        assert_eq!(weights(Popularity::Uniform, 2, 1), [1.0, 1.0]);
    }
}
