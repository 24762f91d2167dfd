//! Choices by weight in constant time: the alias method (Walker 1977; Vose, A Linear Algorithm for Generating Random
//! Numbers with a Given Distribution, 1991).

use crate::random::SplitMix;

/// Weights that can be drawn by; 8 bytes each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Weighted {
    /// The probability, of 2^32, that a draw keeps its index, and the alternative index.
    places: Vec<(u32, u32)>,
}

impl Weighted {
    /// A table of these weights, which are not negative. Those that are no number, or infinite, count as 0; when
    /// nothing is left, all are equally likely.
    pub(crate) fn new(weights: &[f64]) -> Self {
        Self::from_weights(weights.iter().copied())
    }

    /// As [`Weighted::new`], of an iterator of weights. At most 2^32 - 1 of them.
    pub(crate) fn from_weights(weights: impl ExactSizeIterator<Item = f64>) -> Self {
        let count = weights.len();
        let mut share: Vec<f64> =
            weights.map(|weight| if weight.is_finite() { weight.max(0.0) } else { 0.0 }).collect();
        // Scaled down first, so that the sum of large ones is finite.
        let largest = share.iter().copied().fold(0.0, f64::max);
        let sum: f64 = share.iter().map(|weight| weight / largest).sum();
        for weight in &mut share {
            *weight = if largest > 0.0 { *weight / largest * count as f64 / sum } else { 1.0 };
        }
        let mut places: Vec<(u32, u32)> = (0..count).map(|place| (u32::MAX, place as u32)).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..count as u32).partition(|&place| share[place as usize] < 1.0);
        while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
            let kept = share[poor as usize];
            places[poor as usize] = ((kept * 4_294_967_296.0) as u32, rich);
            share[rich as usize] -= 1.0 - kept;
            if share[rich as usize] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        // What is left is 1 but for rounding, and keeps all of its draws.
        Self { places }
    }

    /// One of the places; 0 when there are none. Takes one random number.
    pub(crate) fn draw(&self, random: &mut SplitMix) -> usize {
        let number = random.next();
        let place = (((number >> 32) * self.places.len() as u64) >> 32) as usize;
        match self.places.get(place) {
            Some(&(kept, other)) if (number as u32) >= kept && kept != u32::MAX => other as usize,
            _ => place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DRAWS: u64 = 100_000;

    fn counts(weights: &[f64]) -> Vec<u64> {
        let weighted = Weighted::new(weights);
        let mut random = SplitMix::new(7);
        let mut counts = vec![0; weights.len()];
        (0..DRAWS).for_each(|_| counts[weighted.draw(&mut random)] += 1);
        counts
    }

    #[test]
    fn choices_follow_their_weights() {
        for weights in
            [&[1.0][..], &[1.0, 1.0], &[70.0, 20.0, 10.0], &[0.0, 5.0, 0.0], &[1e-300, 1e300], &[1e308; 4]]
        {
            let sum: f64 = weights.iter().map(|weight| weight / 1e300).sum();
            for (count, weight) in counts(weights).into_iter().zip(weights) {
                let expected = weight / 1e300 / sum;
                let deviation = (expected * (1.0 - expected) / DRAWS as f64).sqrt();
                let share = count as f64 / DRAWS as f64;
                assert!(
                    (share - expected).abs() <= 4.0 * deviation + 1e-12,
                    "{weights:?}: {share} of {expected}"
                );
            }
        }
    }

    #[test]
    fn weights_that_are_none_leave_a_choice() {
        assert_eq!(Weighted::new(&[]).draw(&mut SplitMix::new(1)), 0);
        for weights in [[0.0, 0.0], [f64::NAN, -1.0], [f64::INFINITY, 0.0]] {
            let counts = counts(&weights);
            assert!(counts.iter().all(|&count| count > DRAWS / 3), "{weights:?}: {counts:?}");
        }
    }

    proptest! {
        /// Over all that can be drawn each place has its weight: chi-squared of many draws stays within six deviations.
        #[test]
        fn any_weights_are_kept(weights in prop::collection::vec(0.0f64..100.0, 2..40)) {
            prop_assume!(weights.iter().sum::<f64>() > 1.0);
            let sum: f64 = weights.iter().sum();
            for (count, weight) in counts(&weights).into_iter().zip(&weights) {
                let expected = weight / sum * DRAWS as f64;
                prop_assert!((count as f64 - expected).abs() <= 6.0 * expected.sqrt() + 10.0);
                prop_assert!(*weight > 0.0 || count == 0);
            }
        }
    }
}
