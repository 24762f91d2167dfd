//! Several runs of one load: the one that stands for them, and how far they lie apart.
//!
//! The report is of one run as it was, the one with the median rate: figures merged over runs would belong to none, and a
//! run that something disturbed would leave its mark on all of them. Runs are independent of each other, so that the
//! interval of their mean is the plain one of Student.

use crate::measurement::statistics;
use webdyno_model::number::significant;
use webdyno_model::repeats::{RepeatedRun, Repeats, Spread};
use webdyno_model::run::RunReport;

/// What several runs amount to, in the order in which they were made, and the place of the chosen one among them. `None`
/// without runs.
pub fn repeats(reports: &[&RunReport]) -> Option<(Repeats, usize)> {
    let chosen = chosen(reports)?;
    let run = |(index, report): (usize, &&RunReport)| RepeatedRun {
        run: index as u32 + 1,
        rate: report.rate,
        p50_us: report.response_time_us.p50,
        p99_us: report.response_time_us.p99,
        failed: report.requests.failed,
        warmup_s: report.warmup_s,
        valid: report.client.valid,
        why: report.client.why.clone().filter(|_| !report.client.valid),
        page_rate: report.pages.as_ref().and_then(|pages| pages.rate),
        page_p50_us: report.pages.as_ref().and_then(|pages| pages.time_us.p50),
        page_p99_us: report.pages.as_ref().and_then(|pages| pages.time_us.p99),
    };
    let runs: Vec<RepeatedRun> = reports.iter().enumerate().map(run).collect();
    let of =
        |pick: fn(&RepeatedRun) -> Option<f64>| spread(&runs.iter().filter_map(pick).collect::<Vec<_>>());
    let repeats = Repeats {
        chosen: chosen as u32 + 1,
        rate: of(|run| run.rate),
        p50_us: of(|run| run.p50_us.map(|us| us as f64)),
        p99_us: of(|run| run.p99_us.map(|us| us as f64)),
        page_rate: of(|run| run.page_rate),
        page_p50_us: of(|run| run.page_p50_us.map(|us| us as f64)),
        page_p99_us: of(|run| run.page_p99_us.map(|us| us as f64)),
        runs,
    };
    Some((repeats, chosen))
}

/// The place of the run with the median rate: of the valid ones, if there are any.
fn chosen(reports: &[&RunReport]) -> Option<usize> {
    let valid: Vec<usize> = (0..reports.len()).filter(|index| reports[*index].client.valid).collect();
    let mut places = if valid.is_empty() { (0..reports.len()).collect() } else { valid };
    let rate = |index: &usize| reports[*index].rate.unwrap_or(0.0);
    places.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    places.get(places.len().checked_sub(1)? / 2).copied()
}

fn spread(values: &[f64]) -> Option<Spread> {
    let (mean, median) = (statistics::mean(values)?, statistics::median(values)?);
    let (min, max) = values.iter().fold((f64::MAX, f64::MIN), |(min, max), v| (v.min(min), v.max(max)));
    let count = values.len() as f64;
    let half = (values.len() > 1).then(|| {
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        statistics::t_95(count - 1.0) * (variance / count).sqrt()
    });
    let rounded = |value: f64| significant(value, 6);
    Some(Spread {
        median: rounded(median),
        min,
        max,
        relative: (median > 0.0).then(|| significant((max - min) / median, 4)),
        mean: rounded(mean),
        ci95: half.map(|half| [rounded((mean - half).max(0.0)), rounded(mean + half)]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report(rate: f64, valid: bool) -> RunReport {
        let mut report = RunReport { rate: Some(rate), ..RunReport::default() };
        (report.client.valid, report.response_time_us.p99) = (valid, Some((1e6 / rate) as u64));
        report
    }

    fn chosen_rate(runs: &[(f64, bool)]) -> f64 {
        let reports: Vec<_> = runs.iter().map(|&(rate, valid)| report(rate, valid)).collect();
        let (repeats, place) = repeats(&reports.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(repeats.chosen as usize, place + 1);
        runs[place].0
    }

    #[test]
    fn the_median_of_the_valid_runs_stands_for_all() {
        for (runs, rate) in [
            (&[(100.0, true)][..], 100.0),
            (&[(300.0, true), (100.0, true), (200.0, true)], 200.0),
            (&[(400.0, true), (100.0, true), (300.0, true), (200.0, true)], 200.0),
            (&[(100.0, false), (110.0, false), (300.0, true), (200.0, true), (400.0, true)], 300.0),
            (&[(100.0, false), (300.0, false), (200.0, false)], 200.0),
        ] {
            assert_eq!(chosen_rate(runs), rate, "{runs:?}");
        }
        assert_eq!(repeats(&[]), None);
    }

    #[test]
    fn the_spread_is_that_of_the_runs() {
        let reports = [8.0, 12.0, 9.0, 11.0, 10.0].map(|rate| report(rate, true));
        let (repeats, _) = repeats(&reports.iter().collect::<Vec<_>>()).unwrap();
        let rate = repeats.rate.unwrap();
        assert_eq!(
            (rate.median, rate.min, rate.max, rate.mean, rate.relative),
            (10.0, 8.0, 12.0, 10.0, Some(0.4))
        );
        // Deviation 1.581, five values: 2.776 x 1.581 / sqrt(5).
        assert_eq!(rate.ci95, Some([8.03707, 11.9629]));
        assert_eq!(repeats.p50_us, None);
        // No time and no rate is below nothing.
        assert_eq!(spread(&[1.0, 60.0]).unwrap().ci95.unwrap()[0], 0.0);
        assert_eq!(spread(&[5.0]).unwrap().ci95, None);
    }

    #[test]
    fn pages_and_what_spoils_a_run_are_told() {
        let mut first = report(100.0, false);
        first.client.why = Some("it stood still".into());
        first.pages = Some(webdyno_model::page::PageReport { rate: Some(5.0), ..Default::default() });
        let (repeats, _) = repeats(&[&first, &report(100.0, true)]).unwrap();
        assert_eq!(repeats.runs[0].why.as_deref(), Some("it stood still"));
        assert_eq!((repeats.runs[0].page_rate, repeats.runs[1].page_rate), (Some(5.0), None));
        assert_eq!(repeats.page_rate.map(|spread| spread.median), Some(5.0));
    }

    proptest! {
        // Invariant: median, mean and their interval lie where they must, whatever the order of the runs.
        #[test]
        fn spreads_hold_their_values(mut values in prop::collection::vec(0.001..1e6f64, 1..12)) {
            let found = spread(&values).unwrap();
            prop_assert!(found.min <= found.median * 1.00001 && found.median <= found.max * 1.00001);
            if let Some([low, high]) = found.ci95 {
                prop_assert!(low <= found.mean && found.mean <= high);
            }
            values.reverse();
            let again = spread(&values).unwrap();
            prop_assert!((again.mean / found.mean - 1.0).abs() < 1e-4 && again.median == found.median);
        }
    }
}
