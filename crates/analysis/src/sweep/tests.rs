//! Whole plans against curves that are known, with the noise of real loads.

use super::*;
use crate::scaling::curve;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use webdyno_model::harm_guard::HarmCause;
use webdyno_model::objective::Objective;
use webdyno_model::sweep::{Knob, KnobValue, SweepLoad, SweepPlan, SweepPoint};
use webdyno_model::workload::Workload;

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
            Self::Kink { limit, slope } => {
                20.0 * value.min(limit) * (1.0 - slope * (value / limit - 1.0).max(0.0))
            }
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
    SweepOptions { axes: vec![axis], repeat, seed, budget_s: f64::INFINITY, ..Default::default() }
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

/// Values of an exhaustive sweep of 8 to 256, in equal ratios.
const EXHAUSTIVE: usize = 28;
/// The bar: so much of its loads.
const LOADS_SHARE: f64 = 0.4;

/// What a sweep of 8 to 256 chooses on curves that are drawn, as shares of the peak's rate at the choice; 0 without a choice.
fn choices(noise: f64, count: u64, draw: impl Fn(f64) -> Curve) -> Vec<f64> {
    let choice = |seed: u64| {
        let z: f64 = StandardNormal.sample(&mut ChaCha8Rng::seed_from_u64(seed + 7000));
        let curve_of = draw((30.0 * (z * 0.5).exp()).clamp(16.0, 120.0));
        let mut loads = Noise::of(seed, noise);
        let found = swept(options("8..256", 2, seed), |spec| loads.load(curve_of, &spec.values));
        assert!(found.len() as f64 <= LOADS_SHARE * 2.0 * EXHAUSTIVE as f64, "{} loads", found.len());
        let peak = (8..=256).map(|value| curve_of.rate(f64::from(value))).fold(0.0, f64::max);
        curve(&merged_points(&found)).choice.map_or(0.0, |choice| curve_of.rate(choice) / peak)
    };
    (0..count).map(choice).collect()
}

fn reaching(shares: &[f64], share: f64) -> usize {
    shares.iter().filter(|one| **one >= share).count()
}

/// Invariant of issue 19: with two fifths of the loads of an exhaustive sweep the choice lies in the true plateau. Loads of 2% to 5% noise
/// leave it to chance at its edge, which a tenth of the sweeps may miss.
#[test]
fn the_choice_lies_in_the_plateau_of_a_law() {
    for noise in [0.01, 0.02, 0.05] {
        let sigma = 0.02;
        let shares = choices(noise, 16, |peak| Curve::Law { sigma, kappa: (1.0 - sigma) / peak.powi(2) });
        let least = if noise > 0.02 { 14 } else { 15 };
        assert!(reaching(&shares, 0.99) >= least, "{noise}: {shares:?}");
    }
}

/// The same where a limit of the machine cuts the curve off, and more costs a little: no law helps there. Of such points with 2% noise
/// none is 3% off.
#[test]
fn the_choice_lies_where_a_limit_is_reached() {
    for (noise, slope, share) in
        [(0.005, 0.02, 0.985), (0.01, 0.0, 0.99), (0.01, 0.02, 0.98), (0.02, 0.0, 0.98), (0.02, 0.02, 0.97)]
    {
        let shares = choices(noise, 24, |limit| Curve::Kink { limit, slope });
        assert_eq!(reaching(&shares, share), shares.len(), "{noise} {slope}: {shares:?}");
    }
}

/// A range that makes no difference is known as such after two fifths of the loads of 16 values, even with noise as of busy machines.
#[test]
fn a_flat_curve_needs_few_loads() {
    let flat = Curve::Kink { limit: 1.0, slope: 0.0 };
    let swept_of = |seed| {
        let mut loads = Noise::of(seed, 0.08);
        swept(options("16..256/16", 2, seed), |spec| loads.load(flat, &spec.values))
    };
    let all: Vec<Vec<SweepPoint>> = (0..20).map(swept_of).collect();
    let is_short = |found: &&Vec<SweepPoint>| found.len() as f64 <= LOADS_SHARE * 2.0 * 16.0;
    assert!(all.iter().filter(is_short).count() >= 18, "{:?}", all.iter().map(Vec::len).collect::<Vec<_>>());
    let chosen = all.iter().filter(|found| curve(&merged_points(found)).choice == Some(16.0));
    assert!(chosen.count() >= 18);
}

/// Every other pass goes backwards: what the server loses from load to load is lost by all points alike.
#[test]
fn a_server_that_becomes_slower_makes_no_curve() {
    let flat = Curve::Kink { limit: 1.0, slope: 0.0 };
    let mut loads = Noise { drift: 0.01, ..Noise::of(1, 0.0) };
    let found = merged_points(&swept(options("8,16,32,64,128", 2, 3), |spec| loads.load(flat, &spec.values)));
    let rates: Vec<f64> = found.iter().filter_map(|point| point.rate).collect();
    assert!(rates.iter().all(|rate| (rate / rates[0] - 1.0).abs() < 1e-6), "{rates:?}");
}

/// Whoever goes on with some of the loads measures the others, in whatever state the first one was.
#[test]
fn a_plan_goes_on_from_any_of_its_loads() {
    let law = Curve::Law { sigma: 0.02, kappa: 0.001 };
    let mut noise = Noise::of(5, 0.02);
    let whole = swept(options("8..256", 2, 5), |spec| noise.load(law, &spec.values));
    for cut in 0..whole.len() {
        let mut planner = Planner::new(options("8..256", 2, 5));
        whole[..cut].iter().for_each(|load| planner.add(load.clone()));
        for load in &whole[cut..] {
            let NextPoint::Measure(spec) = planner.next(0.0) else { panic!("{cut}") };
            assert_eq!(spec.values, load.values, "{cut}");
            planner.add(load.clone());
        }
        assert_eq!(planner.next(0.0), NextPoint::Done(SweepEnd::Measured));
    }
}

#[test]
fn loads_that_do_not_count_are_repeated_a_few_times() {
    let law = Curve::Law { sigma: 0.02, kappa: 0.001 };
    let mut noise = Noise::of(5, 0.02);
    let found = swept(options("8,16,32", 2, 5), |spec| {
        let mut load = noise.load(law, &spec.values);
        let is_bad = spec.values == [KnobValue::Number(16.0)] || noise.made == 1;
        load.loads[0].discarded = is_bad.then(|| "the host took 9% of the processors away".into());
        load
    });
    let points = merged_points(&found);
    let counts: Vec<usize> = points
        .iter()
        .map(|point| point.loads.iter().filter(|load| load.discarded.is_none()).count())
        .collect();
    assert_eq!(counts, [2, 0, 2]);
    assert_eq!(
        points[1].failed.as_deref(),
        Some("none of 4 loads counts: the host took 9% of the processors away")
    );
    assert_eq!(points[1].rate, None);
}

#[test]
fn a_server_that_fails_everywhere_is_left_alone() {
    let failed = |spec: &PointSpec| SweepPoint {
        values: spec.values.clone(),
        failed: Some("it is gone".into()),
        ..SweepPoint::default()
    };
    let found = swept(options("8..256", 2, 5), failed);
    assert_eq!(found.len(), 3);
    let mut planner = Planner::new(options("8..256", 2, 5));
    found.into_iter().for_each(|load| planner.add(load));
    assert_eq!(planner.next(0.0), NextPoint::Done(SweepEnd::ServerFailed("it is gone".into())));
}

/// A load at 40 does harm, after some that did none: what lies beyond it is left out, on whichever side that is.
#[test]
fn what_lies_beyond_harm_is_left_out() {
    let load = |value: f64| SweepPoint {
        values: vec![KnobValue::Number(value)],
        rate: Some(100.0),
        failed: (value == 40.0).then(|| "any words".into()),
        harm: (value == 40.0).then_some(HarmCause::Swapping),
        ..SweepPoint::default()
    };
    for (is_load, harmless, left_out) in [
        (true, &[10.0][..], 2),
        (true, &[], 2),
        // Of a setting the first value that does no harm tells on which side the harm is.
        (false, &[], 2),
        (false, &[10.0], 2),
        (false, &[80.0], 2),
        (false, &[10.0, 80.0], 0),
    ] {
        let list = options("10,20,40,80,160", 1, 5);
        let mut planner = Planner::new(SweepOptions { load_axes: vec![is_load], ..list });
        harmless.iter().chain(&[40.0]).for_each(|value| planner.add(load(*value)));
        let mut made = planner.loads().len();
        while let NextPoint::Measure(spec) = planner.next(0.0) {
            planner.add(SweepPoint { failed: None, ..load(spec.values[0].number().unwrap()) });
            made += 1;
        }
        let end = match left_out {
            0 => SweepEnd::Measured,
            count => SweepEnd::BeyondHarm(count),
        };
        assert_eq!((made, planner.next(0.0)), (5 - left_out, NextPoint::Done(end)), "{is_load} {harmless:?}");
    }
}

#[test]
fn no_load_begins_that_would_end_after_the_budget() {
    let mut planner = Planner::new(SweepOptions { budget_s: 30.0, ..options("1,2,3,4", 2, 5) });
    let mut noise = Noise::of(5, 0.02);
    for made in 0..3 {
        let NextPoint::Measure(spec) = planner.next(f64::from(made) * 10.0) else { panic!("{made}") };
        assert_eq!((spec.n, spec.expected), (made as u32 + 1, 8));
        planner.add(noise.load(Curve::Law { sigma: 0.0, kappa: 0.01 }, &spec.values));
    }
    assert_eq!(planner.next(30.0), NextPoint::Done(SweepEnd::Budget));
}

/// With an objective the choice is among the points that meet it, and is an answer also where the rate rises up to the last of them.
#[test]
fn what_misses_an_objective_is_not_chosen() {
    let plan = SweepPlan {
        study: None,
        knobs: vec![Knob { name: "MaxRequestWorkers".into(), setting: None, unit: None }],
        ranges: vec!["10,20,40,80".into()],
        objectives: vec![Objective::parse("p99<200ms").unwrap()],
        workload: Workload::default(),
        repeat: 1,
        seed: 1,
        original: vec![None],
    };
    let mut noise = Noise::of(1, 0.0);
    let mut loads = |missed_from: f64| -> Vec<SweepPoint> {
        let point = |value: f64| SweepPoint {
            missed: (value >= missed_from).then(|| "p99<200ms".into()),
            ..noise.load(Curve::Kink { limit: 1000.0, slope: 0.0 }, &[KnobValue::Number(value)])
        };
        [10.0, 20.0, 40.0, 80.0].map(point).to_vec()
    };
    let report = sweep_report(&plan, &loads(40.0), &SweepEnd::Measured);
    assert_eq!((report.choice, report.plateau, &report.unsure), (Some(20.0), Some([20.0, 20.0]), &None));
    assert!(
        report.notes.iter().any(|note| note.contains("2 of 4 points miss p99<200ms")),
        "{:?}",
        report.notes
    );
    let cut = sweep_report(&plan, &loads(40.0), &SweepEnd::Budget);
    assert!(cut.unsure.is_some());
    let open = sweep_report(&plan, &loads(f64::INFINITY), &SweepEnd::Measured);
    assert!(open.choice == Some(80.0) && open.unsure.is_some(), "{open:?}");
    let none = sweep_report(&plan, &loads(0.0), &SweepEnd::Measured);
    assert_eq!((none.choice, none.unsure), (None, None));
    assert!(none.notes.iter().any(|note| note.contains("No point meets")), "{:?}", none.notes);
}
