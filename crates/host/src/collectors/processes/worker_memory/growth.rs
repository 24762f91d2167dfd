//! A straight line through readings of memory against age, by least squares.
//!
//! Sums of deviations from running means (Welford 1962), so that large values with small differences keep their digits.

/// Readings of one worker, or of many.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Trend {
    count: f64,
    mean_age_s: f64,
    mean_bytes: f64,
    line: Line,
}

/// What a line follows from: sums of squared deviations and of their products.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Line {
    age_age: f64,
    age_bytes: f64,
    bytes_bytes: f64,
}

impl Trend {
    /// Adds a reading.
    pub fn add(&mut self, age_s: f64, bytes: f64) {
        self.count += 1.0;
        let age_off = age_s - self.mean_age_s;
        let bytes_off = bytes - self.mean_bytes;
        self.mean_age_s += age_off / self.count;
        self.mean_bytes += bytes_off / self.count;
        let age_left = age_s - self.mean_age_s;
        self.line.age_age += age_off * age_left;
        self.line.age_bytes += bytes_off * age_left;
        self.line.bytes_bytes += bytes_off * (bytes - self.mean_bytes);
    }

    /// What these readings tell of a line.
    pub fn line(&self) -> Line {
        self.line
    }
}

impl Line {
    /// Adds what other readings tell, each group against its own mean.
    pub fn add(&mut self, other: Self) {
        self.age_age += other.age_age;
        self.age_bytes += other.age_bytes;
        self.bytes_bytes += other.bytes_bytes;
    }

    /// Bytes per second; `None` when all readings were at one age.
    pub fn slope(&self) -> Option<f64> {
        (self.age_age > 0.0).then(|| self.age_bytes / self.age_age)
    }

    /// The share of the differences in memory that the line explains, from 0 to 1.
    pub fn explained_fraction(&self) -> Option<f64> {
        let all = self.age_age * self.bytes_bytes;
        (all > 0.0).then(|| (self.age_bytes * self.age_bytes / all).clamp(0.0, 1.0))
    }

    /// The squared deviations of ages, added up.
    pub fn seconds_squared(&self) -> f64 {
        self.age_age
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Points on a line give that line, whatever the order, and however large the values are.
        #[test]
        fn a_line_is_found(base in 1e6f64..1e9, slope in -1e4f64..1e4, ages in prop::collection::vec(0.0f64..1e5, 3..40)) {
            prop_assume!(ages.iter().any(|age| (age - ages[0]).abs() > 10.0));
            let mut trend = Trend::default();
            ages.iter().for_each(|age| trend.add(*age, base + slope * age));
            let found = trend.line().slope().unwrap();
            prop_assert!((found - slope).abs() < 1e-3 + slope.abs() * 1e-6, "{found}");
        }
    }

    // Workers of different sizes that each grow alike: within them the growth is seen, over them it is not.
    #[test]
    fn growth_within_workers_does_not_depend_on_their_sizes() {
        let (mut within, mut over) = (Line::default(), Trend::default());
        for (worker, size) in [(0.0, 9e6), (100.0, 1e6)] {
            let mut trend = Trend::default();
            for age_s in [0.0, 10.0, 20.0] {
                trend.add(worker + age_s, size + 50.0 * age_s);
                over.add(worker + age_s, size + 50.0 * age_s);
            }
            within.add(trend.line());
        }
        assert!((within.slope().unwrap() - 50.0).abs() < 1e-6);
        assert!(over.line().slope().unwrap() < 0.0);
        assert_eq!((Line::default().slope(), Line::default().explained_fraction()), (None, None));
        let fit = within.explained_fraction().unwrap();
        assert!((fit - 1.0).abs() < 1e-9, "{fit}");
    }
}
