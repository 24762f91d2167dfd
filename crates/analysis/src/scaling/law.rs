//! The universal scalability law (Gunther, Guerrilla Capacity Planning, 2007, chapter 4) through points, by bounded least squares.
//!
//! Written as X(N) = N / (a + b (N - 1) + c N (N - 1)), with a = 1 / lambda, b = sigma / lambda, c = kappa / lambda, the time that a
//! unit takes is linear in what is sought, and the bounds are those of a box. Residuals are those of logarithms: the noise of a rate
//! grows with the rate. A point counts as often as it was measured.

use basin::{
    BoxBounds, ConstraintDescription, ConstraintSet, Constraints, DenseMatrix, Executor, Jacobian, Residual,
    TrustRegionReflective,
};
use std::convert::Infallible;

/// A coefficient whose share in the time of a unit is below this at every point is one at its bound: the solver keeps off it.
const AT_BOUND: f64 = 1e-5;
const ITERATIONS_MAX: u64 = 200;

/// A point as the fit sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Observed {
    /// N, 1 or more.
    pub value: f64,
    /// Above 0.
    pub rate: f64,
    /// How often it was measured.
    pub weight: f64,
    /// Half of its 95% interval, as a share of the rate.
    pub noise: Option<f64>,
}

/// The coefficients a, b, c.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usl(pub [f64; 3]);

impl Usl {
    /// The rate at N.
    pub fn rate(self, value: f64) -> f64 {
        value / terms(value).iter().zip(self.0).map(|(term, coefficient)| term * coefficient).sum::<f64>()
    }

    /// lambda, sigma, kappa.
    pub fn parameters(self) -> [f64; 3] {
        let [a, b, c] = self.0;
        [1.0 / a, b / a, c / a]
    }

    /// Where the rate is highest; `None` where it has no peak beyond N = 0.
    pub fn n_star(self) -> Option<f64> {
        let [a, b, c] = self.0;
        (c > 0.0 && a > b).then(|| ((a - b) / c).sqrt())
    }

    /// The N around the peak between which the rate is at least `share` of it: where the time of a unit, a quadratic over N, is the
    /// peak's divided by the share.
    pub fn within(self, share: f64) -> Option<[f64; 2]> {
        let (n_star, [a, b, c]) = (self.n_star()?, self.0);
        let linear = b - c - 1.0 / (share * self.rate(n_star));
        let root = (linear.powi(2) - 4.0 * c * (a - b)).max(0.0).sqrt();
        Some([(-linear - root) / (2.0 * c), (-linear + root) / (2.0 * c)])
    }

    /// Logarithms of the measured over the law's rate.
    pub fn residuals(self, points: &[Observed]) -> Vec<f64> {
        points.iter().map(|point| (point.rate / self.rate(point.value)).ln()).collect()
    }
}

/// What a, b and c are multiplied with in the time of N units.
fn terms(value: f64) -> [f64; 3] {
    [1.0, value - 1.0, value * (value - 1.0)]
}

/// The law through three or more points; `None` where the solver fails.
pub(super) fn fit(points: &[Observed]) -> Option<Usl> {
    let largest = points.iter().map(|point| point.value).fold(1.0, f64::max);
    let slowest = points.iter().map(|point| point.value / point.rate).fold(0.0, f64::max);
    // Each coefficient in units of the slowest point's time at the largest N: all are then between 0 and little above 1.
    let scale = terms(largest).map(|term| slowest / term.max(1.0));
    let problem = Fit::new(points, scale);
    let solver = TrustRegionReflective::new().with_absolute_scaled_gradient_tolerance(1e-12);
    let solved = Executor::from_start(problem, solver, vec![0.3; 3]).max_iter(ITERATIONS_MAX).run().ok()?;
    let found = solved.param();
    let coefficient = |at: usize| if at > 0 && found[at] < AT_BOUND { 0.0 } else { found[at] * scale[at] };
    let law = Usl(std::array::from_fn(coefficient));
    (law.0.iter().all(|one| one.is_finite()) && law.0[0] > 0.0).then_some(law)
}

/// The least squares: a row for each point.
struct Fit {
    /// Logarithm of the time of a unit, the scaled terms, the root of the weight.
    rows: Vec<(f64, [f64; 3], f64)>,
    lower: Vec<f64>,
    upper: Vec<f64>,
}

impl Fit {
    fn new(points: &[Observed], scale: [f64; 3]) -> Self {
        let row = |point: &Observed| {
            let terms = terms(point.value);
            let scaled = std::array::from_fn(|at| terms[at] * scale[at]);
            ((point.value / point.rate).ln(), scaled, point.weight.sqrt())
        };
        Self { rows: points.iter().map(row).collect(), lower: vec![0.0; 3], upper: vec![f64::INFINITY; 3] }
    }
}

/// The time of a unit by the law.
fn time(terms: &[f64; 3], coefficients: &[f64]) -> f64 {
    terms.iter().zip(coefficients).map(|(term, coefficient)| term * coefficient).sum()
}

impl Residual for Fit {
    type Param = Vec<f64>;
    type Output = Vec<f64>;
    type Error = Infallible;

    fn residual(&self, sought: &Vec<f64>) -> Result<Vec<f64>, Infallible> {
        Ok(self
            .rows
            .iter()
            .map(|(measured, terms, weight)| weight * (time(terms, sought).ln() - measured))
            .collect())
    }
}

impl Jacobian for Fit {
    type Jacobian = DenseMatrix;

    fn jacobian(&self, sought: &Vec<f64>) -> Result<DenseMatrix, Infallible> {
        let row = |(_, terms, weight): &(f64, [f64; 3], f64)| {
            let time = time(terms, sought);
            terms.map(|term| weight * term / time)
        };
        let entries: Vec<f64> = self.rows.iter().flat_map(row).collect();
        Ok(DenseMatrix::from_row_slice(self.rows.len(), 3, &entries))
    }
}

impl Constraints for Fit {
    type Set = ConstraintSet<BoxBounds<Vec<f64>>>;

    fn constraints(&self) -> <Self::Set as ConstraintDescription>::Borrowed<'_> {
        ConstraintSet::new().with_bounds(BoxBounds::new(Some(&self.lower), Some(&self.upper)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(law: Usl, values: &[f64]) -> Vec<Observed> {
        values
            .iter()
            .map(|value| Observed { value: *value, rate: law.rate(*value), weight: 1.0, noise: None })
            .collect()
    }

    proptest! {
        // Invariant: points of a law give that law back, bounds included, in whatever unit the rate is.
        #[test]
        fn a_law_is_found_again(lambda in 0.01..1e6f64, sigma in prop_oneof![Just(0.0), 0.001..0.5f64], kappa in prop_oneof![Just(0.0), 1e-4..0.01f64]) {
            let law = Usl([1.0 / lambda, sigma / lambda, kappa / lambda]);
            let values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
            let found = fit(&points(law, &values)).unwrap();
            for value in values {
                prop_assert!((found.rate(value) / law.rate(value) - 1.0).abs() < 1e-4, "{found:?} {law:?}");
            }
            prop_assert_eq!(found.0[2] > 0.0, kappa > 0.0);
            if let (Some(found), Some(n_star)) = (found.n_star(), law.n_star()) {
                prop_assert!((found / n_star - 1.0).abs() < 1e-3, "{} {}", found, n_star);
            }
        }
    }

    #[test]
    fn the_plateau_is_where_the_rate_is_a_share_of_the_peak() {
        let law = Usl([0.05, 0.0006, 2e-6]);
        let [low, high] = law.within(0.99).unwrap();
        let peak = law.rate(law.n_star().unwrap());
        for end in [low, high] {
            assert!((law.rate(end) / peak - 0.99).abs() < 1e-9);
        }
        assert!(low < law.n_star().unwrap() && law.n_star().unwrap() < high);
        assert_eq!(Usl([0.05, 0.0006, 0.0]).within(0.99), None);
    }
}
