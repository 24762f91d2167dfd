//! The published sweep, the coverage of the intervals, and every refusal.

use super::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

fn measured(pairs: &[(f64, f64)]) -> Vec<SweepPoint> {
    let point = |(value, rate): &(f64, f64)| SweepPoint {
        value: Some(*value),
        rate: Some(*rate),
        ..SweepPoint::default()
    };
    pairs.iter().map(point).collect()
}

/// The sweep of MaxClients in "Setting MaxClients" (mod_perl, concurrency 300).
const PUBLISHED: [(f64, f64); 7] = [
    (100.0, 755.0),
    (125.0, 780.0),
    (150.0, 791.0),
    (175.0, 783.0),
    (200.0, 785.0),
    (225.0, 760.0),
    (250.0, 741.0),
];

#[test]
fn the_published_sweep_has_its_peak_and_plateau() {
    let found = curve(&measured(&PUBLISHED));
    let law = found.usl.unwrap();
    let (n_star, peak, [low, high]) = (law.n_star.unwrap(), law.peak_rate.unwrap(), found.plateau.unwrap());
    assert!((n_star - 153.6).abs() < 1.0 && (peak - 791.0).abs() < 2.0, "{n_star} {peak}");
    assert!((low - 126.0).abs() < 2.0 && (high - 187.0).abs() < 2.0, "{low} {high}");
    assert_eq!((found.choice, law.valid_to), (Some(150.0), 500.0));
    let [from, to] = law.n_star_ci95.unwrap();
    assert!(from < 153.6 && 153.6 < to && to / from < 1.3, "{from} {to}");
    assert_eq!(found.notes, ["Smaller than 150 may do: by the law 127 gives 784/s; it was not measured."]);
}

/// Shapes of curves: their values, lambda, sigma, kappa. (Seven doubled values and twenty even ones were tried as well.)
fn shapes() -> Vec<(Vec<f64>, [f64; 3])> {
    let steps =
        |from: u32, to: u32, step: usize| (from..=to).step_by(step).map(f64::from).collect::<Vec<_>>();
    let doubled = |count: i32| (0..count).map(|power| 2f64.powi(power)).collect::<Vec<_>>();
    vec![
        (doubled(8), [50.0, 0.02, 0.0005]),
        (steps(10, 100, 15), [20.0, 0.05, 0.0012]),
        (steps(8, 104, 8), [20.0, 0.05, 0.0008]),
    ]
}

#[test]
fn the_interval_of_the_peak_covers_the_truth() {
    for (values, [lambda, sigma, kappa]) in shapes() {
        let law = Usl([1.0 / lambda, sigma / lambda, kappa / lambda]);
        let truth = law.n_star().unwrap();
        let (mut told, mut covered) = (0, 0);
        for seed in 0..200 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut noisy = |value: &f64| {
                let noise: f64 = StandardNormal.sample(&mut random);
                Observed {
                    value: *value,
                    rate: law.rate(*value) * (1.0 + 0.05 * noise),
                    weight: 1.0,
                    noise: None,
                }
            };
            let points: Vec<Observed> = values.iter().map(&mut noisy).collect();
            let Ok(found) = verified::verified(&points, 120) else { continue };
            told += 1;
            covered += u32::from(found.n_star_ci95[0] <= truth && truth <= found.n_star_ci95[1]);
        }
        assert!(told >= 190, "{} points, N* {truth}: told {told} of 200", values.len());
        let share = f64::from(covered) / f64::from(told);
        assert!((0.90..=0.99).contains(&share), "{} points, N* {truth}: {covered} of {told}", values.len());
    }
}

fn reason(pairs: &[(f64, f64)]) -> (Option<[f64; 2]>, Option<f64>, String) {
    let found = curve(&measured(pairs));
    assert_eq!(found.usl, None, "{pairs:?}");
    (found.plateau, found.choice, found.notes[0].clone())
}

/// Points, the choice all the same, and the reason.
type Refused = (&'static [(f64, f64)], Option<f64>, &'static str);

#[test]
fn points_that_cannot_tell_the_law_say_why() {
    let cases: [Refused; 7] = [
        (&[], None, "no value has a rate"),
        (&[(4.0, 100.0)], None, "6 values are needed, there are 1"),
        (&PUBLISHED[..5], Some(150.0), "6 values are needed, there are 5; measure more between 125 and 175"),
        (
            &[(1.0, 100.0), (2.0, 190.0), (4.0, 370.0), (8.0, 700.0), (16.0, 1300.0), (32.0, 2300.0)],
            None,
            "the rate does not fall up to 32",
        ),
        (
            &[(100.0, 900.0), (150.0, 850.0), (200.0, 800.0), (250.0, 740.0), (300.0, 690.0), (350.0, 640.0)],
            None,
            "the rate does not rise from 100",
        ),
        (
            &[(1.0, 500.0), (2.0, 501.0), (4.0, 499.0), (8.0, 500.0), (16.0, 502.0), (32.0, 500.0)],
            Some(1.0),
            "the rates differ by no more than their noise",
        ),
        (
            &[
                (1.0, 100.0),
                (2.0, 200.0),
                (4.0, 400.0),
                (8.0, 800.0),
                (16.0, 60.0),
                (32.0, 900.0),
                (64.0, 50.0),
            ],
            Some(32.0),
            "something else than contention",
        ),
    ];
    for (pairs, choice, expected) in cases {
        let (_, chosen, note) = reason(pairs);
        assert!(note.starts_with("No scaling law: ") && note.contains(expected), "{note}");
        assert_eq!(chosen, choice, "{note}");
    }
}

#[test]
fn noise_that_hides_the_peak_is_told() {
    let pairs: Vec<(f64, f64)> = PUBLISHED
        .iter()
        .zip([1.06, 0.95, 1.03, 0.94, 1.05, 0.97, 1.02])
        .map(|((n, x), by)| (*n, x * by))
        .collect();
    let found = curve(&measured(&pairs));
    assert!(found.usl.is_none() && found.notes[0].contains("noise"), "{:?}", found.notes);
}

#[test]
fn repeats_of_a_value_are_one_point_and_failures_none() {
    let twice: Vec<(f64, f64)> = PUBLISHED.iter().flat_map(|(n, x)| [(*n, x - 2.0), (*n, x + 2.0)]).collect();
    let mut points = measured(&twice);
    points.push(SweepPoint {
        value: Some(300.0),
        failed: Some("it hung".into()),
        rate: Some(3.0),
        ..SweepPoint::default()
    });
    points.push(SweepPoint { value: None, rate: Some(1.0), ..SweepPoint::default() });
    let (found, once) = (curve(&points), curve(&measured(&PUBLISHED)));
    assert_eq!((found.choice, found.plateau), (once.choice, once.plateau));
    assert_eq!(found.usl.unwrap().valid_to, 500.0);
}

#[test]
fn of_values_that_do_not_differ_the_smallest_is_chosen() {
    let pairs = [(16.0, 524.0), (32.0, 489.0), (48.0, 564.0), (80.0, 573.0), (144.0, 546.0), (256.0, 514.0)];
    let noisy = |half: f64| {
        let mut points = measured(&pairs);
        points.iter_mut().for_each(|point| point.ci95 = point.rate.map(|rate| [rate - half, rate + half]));
        let found = curve(&points);
        (found.plateau, found.choice)
    };
    assert_eq!(noisy(60.0), (Some([16.0, 256.0]), Some(16.0)));
    // Where the intervals tell them apart the best one is.
    assert_eq!(noisy(10.0), (Some([80.0, 80.0]), Some(80.0)));
}

#[test]
fn a_point_whose_interval_reaches_the_plateau_is_named() {
    let mut points = measured(&[(10.0, 400.0), (20.0, 780.0), (40.0, 800.0), (80.0, 795.0)]);
    points[1].ci95 = Some([760.0, 800.0]);
    let found = curve(&points);
    assert_eq!((found.plateau, found.choice), (Some([40.0, 80.0]), Some(40.0)));
    assert!(found.notes[1].starts_with("20 may do as well"), "{:?}", found.notes);
}

#[test]
fn the_order_of_points_does_not_matter_and_nothing_is_drawn_by_chance() {
    let mut reversed = measured(&PUBLISHED);
    reversed.reverse();
    assert_eq!(curve(&reversed), curve(&measured(&PUBLISHED)));
}
