//! The text of `webdyno compare`, as an operator reads it.

use webdyno_model::compare::{CompareReport, ComparedMetric, Difference, IntervalBasis, SCHEMA};
use webdyno_model::tune::Verdict;
use webdyno_report::compare;

type Figure = (&'static str, f64, f64, Option<(f64, [f64; 2])>, Verdict);

fn report(figures: &[Figure]) -> CompareReport {
    let metric = |&(name, a, b, ratio, verdict): &Figure| ComparedMetric {
        name: name.into(),
        a: Some(a),
        b: Some(b),
        ratio: ratio.map(|(ratio, _)| ratio),
        ci95: ratio.map(|(_, ci95)| ci95),
        verdict,
        noise_floor: 0.03,
    };
    CompareReport {
        schema: SCHEMA.into(),
        a: "webdyno-runs/before".into(),
        b: "webdyno-runs/after".into(),
        a_load: 1,
        b_load: 1,
        a_runs: 1,
        b_runs: 1,
        intervals_from: IntervalBasis::Seconds,
        comparable: true,
        differences: vec![],
        metrics: figures.iter().map(metric).collect(),
        max_regression: None,
        regressions: vec![],
    }
}

const FASTER: [Figure; 6] = [
    ("rate", 815.0, 1157.3, Some((1.42, [1.38, 1.46])), Verdict::Better),
    ("p50_us", 61_300.0, 43_200.0, Some((0.7047, [0.69, 0.72])), Verdict::Better),
    ("p90_us", 80_000.0, 79_100.0, Some((0.989, [0.95, 1.03])), Verdict::Same),
    ("p99_us", 120_000.0, 118_000.0, Some((0.983, [0.91, 1.06])), Verdict::Same),
    ("failed_fraction", 0.0, 0.0, None, Verdict::Same),
    ("cpu_per_request_us", 1_230.0, 1_250.0, Some((1.016, [0.99, 1.04])), Verdict::Same),
];

#[test]
fn two_loads_that_can_be_compared() {
    insta::assert_snapshot!(compare(&report(&FASTER)), @"
    B serves 1.42x the rate of A (95% interval 1.38 to 1.46); p99 same

      A  webdyno-runs/before
      B  webdyno-runs/after

                                 A        B    B/A  95% interval  verdict
      successful requests    815/s  1,157/s  1.42x  1.38 to 1.46  better
      p50                  61.3 ms  43.2 ms  0.70x  0.69 to 0.72  better
      p90                    80 ms  79.1 ms  0.99x  0.95 to 1.03  same
      p99                   120 ms   118 ms  0.98x  0.91 to 1.06  same
      failed requests           0%       0%      -             -  same
      CPU per request      1.23 ms  1.25 ms  1.02x  0.99 to 1.04  same

      better, worse: the whole interval lies beyond the noise floor, by how much
      such figures differ from run to run (3% to 10%). same: within it.
      inconclusive: the interval is too wide, or there are too few samples for one.
    ");
}

#[test]
fn two_loads_that_cannot_with_a_regression() {
    let mut figures = FASTER;
    figures[0] = ("rate", 1157.3, 815.0, Some((0.704, [0.68, 0.72])), Verdict::Worse);
    figures[4] = ("failed_fraction", 0.001, 0.12, Some((120.0, [80.0, 180.0])), Verdict::Worse);
    let difference = |what: &str, sides: Option<(&str, &str)>| Difference {
        what: what.into(),
        a: sides.map(|(a, _)| a.into()),
        b: sides.map(|(_, b)| b.into()),
    };
    let report = CompareReport {
        comparable: false,
        differences: vec![
            difference(
                "concurrency",
                Some(("50 concurrent requests, closed loop", "80 concurrent requests, closed loop")),
            ),
            difference("requests", None),
        ],
        max_regression: Some(0.05),
        regressions: vec!["rate".into(), "failed_fraction".into()],
        ..report(&figures)
    };
    insta::assert_snapshot!(compare(&report), @"
    B serves 0.70x the rate of A (95% interval 0.68 to 0.72); p99 same; failed requests worse (0.1% to 12%)
    REGRESSION beyond 5%: successful requests, failed requests

      A  webdyno-runs/before
      B  webdyno-runs/after

    WARNING: more than the server differs
      - concurrency: A 50 concurrent requests, closed loop; B 80 concurrent
        requests, closed loop
      - other requests (method, headers, body or weight)

                                 A        B    B/A  95% interval  verdict
      successful requests  1,157/s    815/s  0.70x  0.68 to 0.72  worse
      p50                  61.3 ms  43.2 ms  0.70x  0.69 to 0.72  better
      p90                    80 ms  79.1 ms  0.99x  0.95 to 1.03  same
      p99                   120 ms   118 ms  0.98x  0.91 to 1.06  same
      failed requests         0.1%      12%   120x     80 to 180  worse
      CPU per request      1.23 ms  1.25 ms  1.02x  0.99 to 1.04  same

      better, worse: the whole interval lies beyond the noise floor, by how much
      such figures differ from run to run (3% to 10%). same: within it.
      inconclusive: the interval is too wide, or there are too few samples for one.
    ");
}

#[test]
fn the_first_line_says_what_it_comes_to() {
    use Verdict::{Better, Inconclusive, Same, Worse};
    let p99 = ("p99_us", 100.0, 130.0, Some((1.3, [1.2, 1.4])), Worse);
    for (first, expected) in [
        (
            ("rate", 100.0, 101.0, Some((1.01, [0.99, 1.03])), Same),
            "B serves the same rate as A (1.01x, 95% interval 0.99 to 1.03); p99 worse (1.30x)",
        ),
        (
            ("rate", 100.0, 110.0, Some((1.1, [0.8, 1.5])), Inconclusive),
            "inconclusive: B serves 1.10x the rate of A, but the 95% interval is 0.80 to 1.50; p99 worse (1.30x)",
        ),
        (("rate", 815.0, 0.0, None, Worse), "B serves no requests; A served 815/s; p99 worse (1.30x)"),
        (("rate", 0.0, 815.0, None, Better), "B serves 815/s; A served no requests; p99 worse (1.30x)"),
        (("rate", 0.0, 0.0, None, Same), "neither A nor B serves requests; p99 worse (1.30x)"),
        (
            ("rate", 5.0, 6.0, None, Inconclusive),
            "inconclusive: too few whole seconds to compare the rates; p99 worse (1.30x)",
        ),
        (
            ("page_rate", 10.0, 14.2, Some((1.42, [1.38, 1.46])), Better),
            "B serves 1.42x the page rate of A (95% interval 1.38 to 1.46); p99 worse (1.30x)",
        ),
    ] {
        let text = compare(&report(&[first, p99]));
        assert_eq!(text.lines().next(), Some(expected));
    }
}

#[test]
fn what_is_inconclusive_is_named_beside_no_regression() {
    let short = ("rate", 5.0, 6.0, None, Verdict::Inconclusive);
    for (first, expected) in [
        (FASTER[0], "No regression beyond 5%"),
        (short, "No regression beyond 5% (inconclusive: successful requests)"),
    ] {
        let text = compare(&CompareReport { max_regression: Some(0.05), ..report(&[first, FASTER[2]]) });
        assert_eq!(text.lines().nth(1), Some(expected));
    }
}

#[test]
fn a_tuning_is_compared_with_itself() {
    let tuning = CompareReport { b: "webdyno-runs/before".into(), b_load: 3, ..report(&FASTER) };
    let text = compare(&tuning);
    assert!(text.contains("A  webdyno-runs/before, load 1, the baseline"), "{text}");
    assert!(text.contains("B  webdyno-runs/before, load 3, the best"), "{text}");
}

#[test]
fn what_the_intervals_rest_on_is_named_where_a_load_was_made_several_times() {
    for (a_runs, b_runs, intervals_from, expected) in [
        (1, 1, IntervalBasis::Seconds, None),
        (5, 3, IntervalBasis::Runs, Some("Figures are means over runs (A 5, B 3)")),
        (
            5,
            1,
            IntervalBasis::Seconds,
            Some("A ran 5 times, B once: intervals are from the seconds of one run"),
        ),
    ] {
        let text = compare(&CompareReport { a_runs, b_runs, intervals_from, ..report(&FASTER) });
        let found = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(expected.is_none_or(|expected| found.contains(expected)), "{text}");
        assert_eq!(found.contains("intervals are from"), expected.is_some(), "{text}");
    }
}
