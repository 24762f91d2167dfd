//! Whole plans against curves that are known, with the noise of real loads.

use super::*;
use crate::scaling::curve;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use webdyno_model::sweep::{KnobValue, SweepLoad, SweepPoint};

/// A server whose rate at each value is known.
#[derive(Debug, Clone, Copy)]
enum Curve {
    /// Contention and coherency.
    Law { sigma: f64, kappa: f64 },
    /// Workers up to a limit of the machine, which costs a little more with each of them.
    Kink { limit: f64, slope: f64 },
}

impl Curve {
    fn rate(self, value: f64) -> f64 {
        match self {
            Self::Law { sigma, kappa } => {
                20.0 * value / (1.0 + sigma * (value - 1.0) + kappa * value * (value - 1.0))
            }
            Self::Kink { limit, slope } => 20.0 * value.min(limit) * (1.0 - slope * (value / limit - 1.0).max(0.0)),
        }
    }
}

struct Noise {
    random: ChaCha8Rng,
    share: f64,
    /// Share of its rate that the server loses from load to load.
    drift: f64,
    made: u32,
}

impl Noise {
    fn of(seed: u64, share: f64) -> Self {
        Self { random: ChaCha8Rng::seed_from_u64(seed), share, drift: 0.0, made: 0 }
    }

    fn load(&mut self, curve: Curve, values: &[KnobValue]) -> SweepPoint {
        self.made += 1;
        let noise: f64 = StandardNormal.sample(&mut self.random);
        let drift = 1.0 - self.drift * f64::from(self.made);
        let value = values[0].number().unwrap();
        let rate = curve.rate(value) * drift * (1.0 + self.share * noise).max(0.1);
        SweepPoint {
            value: Some(value),
            values: values.to_vec(),
            rate: Some(rate),
            ci95: Some([rate * 0.99, rate * 1.01]),
            loads: vec![SweepLoad { load: Some(self.made), rate: Some(rate), ..SweepLoad::default() }],
            ..SweepPoint::default()
        }
    }
}

fn options(text: &str, repeat: u32, seed: u64) -> SweepOptions {
    let (axis, _) = AxisValues::parse(text).unwrap();
    SweepOptions { axes: vec![axis], repeat, seed, budget_s: f64::INFINITY }
}

/// Carries a sweep out.
fn swept(options: SweepOptions, mut load: impl FnMut(&PointSpec) -> SweepPoint) -> Vec<SweepPoint> {
    let mut planner = Planner::new(options);
    while let NextPoint::Measure(spec) = planner.next(0.0) {
        let point = load(&spec);
        planner.add(point);
        assert!(planner.loads().len() < 1000, "it does not come to its end");
    }
    planner.loads().to_vec()
}

#[test]
fn look() {
    let all = "8,9,10,12,14,16,18,20,23,26,30,34,38,43,49,56,64,73,83,95,108,123,140,160,182,208,237,256";
    for noise in [0.005, 0.01, 0.02, 0.035, 0.05] {
        for kind in 0..3 {
            let (mut hits, mut in_noisy, mut good, mut none, mut loads) = (0, 0, 0, 0, 0);
            let total = 24;
            for seed in 0..total {
                let mut random = Noise::of(seed + 7000, 1.0);
                let z: f64 = StandardNormal.sample(&mut random.random);
                let star = (30.0 * (z * 0.5).exp()).clamp(16.0, 120.0);
                let sigma = 0.02;
                let c = match kind {
                    0 => Curve::Law { sigma, kappa: (1.0 - sigma) / star / star },
                    1 => Curve::Kink { limit: star, slope: 0.0 },
                    _ => Curve::Kink { limit: star, slope: 0.02 },
                };
                let mut n = Noise::of(seed, noise);
                let found = swept(options("8..256", 2, seed), |spec| n.load(c, &spec.values));
                let report = curve(&merged_points(&found));
                loads += found.len();
                let peak = (8..=256).map(|v| c.rate(f64::from(v))).fold(0.0, f64::max);
                let noisy = (kind > 0).then(|| curve(&merged_points(&swept(options(all, 2, seed), |spec| n.load(c, &spec.values)))));
                match report.choice {
                    Some(choice) => {
                        hits += usize::from(c.rate(choice) >= 0.99 * peak);
                        in_noisy += usize::from(noisy.and_then(|noisy| noisy.plateau).is_some_and(|[low, high]| low <= choice && choice <= high));
                        good += usize::from(c.rate(choice) >= 0.97 * peak);
                    }
                    None => none += 1,
                }
            }
            println!("noise {noise} kind {kind}: true {hits} noisy {in_noisy} within3% {good} none {none} of {total}; loads {:.2}", loads as f64 / (56 * total) as f64);
        }
    }
}
