//! Comparisons of loads that were made several times, on runs that are made up.

use super::percentiles::SplitMix;
use super::runs::ratio_of_runs;
use super::tests::steady;
use super::*;
use IntervalBasis::{Runs, Seconds};
use Verdict::{Better, Inconclusive, Same, Worse};

/// Runs of so many requests a second, and failures, with this time each.
fn repeated(runs: &[(u64, u64, u64)]) -> ComparedRuns {
    let runs: Vec<Measurement> =
        runs.iter().map(|&(rate, failed, time_us)| steady(rate, failed, time_us)).collect();
    ComparedRuns { chosen: runs[0].clone(), runs: if runs.len() > 1 { runs } else { vec![] } }
}

fn compared(a: &[(u64, u64, u64)], b: &[(u64, u64, u64)]) -> LoadComparison {
    compare_runs(&repeated(a), &repeated(b)).unwrap()
}

fn on<'a>(name: &str, found: &'a LoadComparison) -> &'a ComparedMetric {
    found.metrics.iter().find(|metric| metric.name == name).unwrap()
}

/// Normal with a mean of 0 and a deviation of 1 (the sum of twelve uniform numbers).
fn normal(random: &mut SplitMix) -> f64 {
    (0..12).map(|_| random.next() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
}

/// In how many of 200 cases the interval holds the ratio: runs differ by 4%, seconds of a run by 1%, and B serves 1.2 times the rate.
fn held_of_200(runs: usize, interval: impl Fn(&[Vec<f64>], &[Vec<f64>]) -> Option<Ratio>) -> usize {
    let holds = |seed: &u64| {
        let mut random = SplitMix(*seed);
        let mut side = |rate: f64| -> Vec<Vec<f64>> {
            let mut run = || -> Vec<f64> {
                let rate = rate * (0.04 * normal(&mut random)).exp();
                (0..20).map(|_| rate * (1.0 + 0.01 * normal(&mut random))).collect()
            };
            (0..runs).map(|_| run()).collect()
        };
        let (a, b) = (side(1000.0), side(1200.0));
        interval(&a, &b).is_some_and(|ratio| (ratio.ci95[0]..=ratio.ci95[1]).contains(&1.2))
    };
    (0..200).filter(holds).count()
}

#[test]
fn nineteen_in_twenty_intervals_hold_the_ratio() {
    let means = |runs: &[Vec<f64>]| runs.iter().filter_map(|run| mean(run)).collect::<Vec<_>>();
    for runs in [3, 4, 5, 10] {
        let held = held_of_200(runs, |a, b| ratio_of_runs(&means(a), &means(b)));
        assert!((180..=198).contains(&held), "{runs} runs: {held} of 200");
    }
    // Those of the seconds of one run do not know what runs differ by.
    let held = held_of_200(1, |a, b| ratio_of_means(&a[0], &b[0]));
    assert!(held < 100, "{held} of 200");
}

#[test]
fn what_runs_differ_by_is_no_change() {
    let (a, b) = (
        [(500, 0, 10_000), (530, 0, 9_500), (480, 0, 10_400)],
        [(540, 0, 9_200), (490, 0, 10_300), (510, 0, 9_900)],
    );
    let of_one = compared(&a[..1], &b[..1]);
    assert_eq!((of_one.intervals_from, on("rate", &of_one).verdict), (Seconds, Better));
    assert_eq!(on("p50_us", &of_one).verdict, Better);
    let found = compared(&a, &b);
    assert_eq!((found.intervals_from, found.runs), (Runs, [3, 3]));
    for name in ["rate", "p50_us", "p90_us"] {
        let metric = on(name, &found);
        let [low, high] = metric.ci95.unwrap();
        assert!(low < 1.0 && 1.0 < high && ![Better, Worse].contains(&metric.verdict), "{metric:?}");
    }
    // Means of the runs, each a little above its first second.
    assert!((on("rate", &found).a.unwrap() / 503.3 - 1.0).abs() < 0.01, "{found:#?}");
    assert!(on("rate", &compared(&a, &a)).verdict == Same, "runs do not differ from themselves");
}

#[test]
fn what_is_more_than_runs_differ_by_is_one() {
    let a = [(500, 0, 10_000), (510, 0, 9_800), (495, 0, 10_100)];
    let b = [(700, 20, 14_000), (690, 21, 14_200), (705, 19, 13_900)];
    let found = compared(&a, &b);
    let verdicts = ["rate", "p50_us", "failed_fraction"].map(|name| on(name, &found).verdict);
    assert_eq!(verdicts, [Better, Worse, Worse], "{found:#?}");
    let back = compared(&b, &a);
    let verdicts = ["rate", "p50_us", "failed_fraction"].map(|name| on(name, &back).verdict);
    assert_eq!(verdicts, [Worse, Better, Better], "{back:#?}");
    assert!((on("rate", &found).ratio.unwrap() * on("rate", &back).ratio.unwrap() - 1.0).abs() < 1e-4);
    // Failures of a single run are chance.
    let c = [(500, 60, 10_000), (510, 0, 9_800), (495, 0, 10_100)];
    assert_eq!(on("failed_fraction", &compared(&a, &c)).verdict, Inconclusive);
    let dead = [(0, 30, 1), (0, 30, 1), (0, 30, 1)];
    assert_eq!(on("rate", &compared(&a, &dead)).verdict, Worse);
}

#[test]
fn without_enough_valid_runs_on_both_sides_seconds_count() {
    let runs = [(500, 0, 10_000), (510, 0, 9_800), (495, 0, 10_100), (505, 0, 10_000)];
    for (a, b, counts, basis) in
        [(4, 1, [4, 1], Seconds), (1, 3, [1, 3], Seconds), (2, 4, [2, 4], Seconds), (3, 4, [3, 4], Runs)]
    {
        let found = compared(&runs[..a], &runs[..b]);
        assert_eq!((found.runs, found.intervals_from), (counts, basis));
    }
    let mut spoilt = repeated(&runs[..3]);
    // An engine thread that had no time for anything else.
    spoilt.runs[1].intervals.iter_mut().for_each(|second| {
        (second.cpu_us, second.cpu_us_max_thread) = (990_000, 990_000);
    });
    let found = compare_runs(&spoilt, &repeated(&runs)).unwrap();
    assert_eq!((found.runs, found.intervals_from), ([2, 4], Seconds), "what is not valid does not count");
}
