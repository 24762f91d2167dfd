//! Numbers from a seed: the same on every machine and in every version (ChaCha with 8 rounds, of the crate `rand_chacha`).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A source of numbers.
#[derive(Debug, Clone)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// One of the streams of a seed: they have nothing to do with each other.
    pub fn of(seed: u64, stream: u64) -> Self {
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(stream);
        Self(numbers)
    }

    /// A whole number from `from` to `to`, both included.
    pub fn whole(&mut self, from: u64, to: u64) -> u64 {
        let count = u128::from(to.saturating_sub(from)) + 1;
        from + ((u128::from(self.0.next_u64()) * count) >> 64) as u64
    }

    /// A number from `from` to `to`, each order of magnitude as likely as another.
    pub fn log(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.share())
    }

    /// A number from 0 to 1.
    pub fn share(&mut self) -> f64 {
        self.whole(0, 1 << 52) as f64 / (1u64 << 52) as f64
    }

    /// Whether something is so that is so in this share of cases.
    pub fn chance(&mut self, share: f64) -> bool {
        self.share() < share
    }

    /// One of several, each as likely as another.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.whole(0, of.len() as u64 - 1) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_within_their_bounds_and_the_same_again() {
        let draw = |stream| {
            let mut random = Random::of(7, stream);
            (0..200).map(|_| (random.whole(3, 5), random.log(2.0, 200.0))).collect::<Vec<_>>()
        };
        let numbers = draw(0);
        assert!(numbers.iter().all(|(whole, log)| (3..=5).contains(whole) && (2.0..=200.0).contains(log)));
        assert!((3..=5).all(|whole| numbers.iter().any(|(drawn, _)| *drawn == whole)));
        let small = numbers.iter().filter(|(_, log)| *log < 20.0).count();
        assert!((70..130).contains(&small), "{small} of 200 below the middle decade");
        assert!(draw(0) == numbers && draw(1) != numbers);
        // As it was when this was written: another generator would make another server of each seed.
        let mut random = Random::of(7, 0);
        assert_eq!([0; 4].map(|_| random.whole(0, 999)), [157, 167, 704, 726]);
    }
}
