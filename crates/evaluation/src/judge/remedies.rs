//! What is predicted of a remedy, against what was measured once the limit was lifted: the next round of the same load. Pure.

use super::JudgedRound;
use super::ceilings::is_same_load;
use std::fmt::Write as _;
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::limits;
use webdyno_model::Result;
use webdyno_model::diagnosis::{Diagnosis, Predicted};

/// A prediction of the first finding's best remedy, and what the next round measured.
#[derive(Debug, Clone, PartialEq)]
pub struct RemedyForecast {
    /// The scenario.
    pub scenario: String,
    /// The round that predicts, from 1; the next one measures.
    pub number: usize,
    /// Its first finding.
    pub finding: String,
    /// Good answers per second in it.
    pub before: f64,
    /// What is predicted; `None` where nothing is.
    pub predicted: Option<Predicted>,
    /// Good answers per second of the next round.
    pub measured: f64,
}

impl RemedyForecast {
    /// Whether the interval holds what was measured; `None` where nothing was predicted.
    pub fn holds(&self) -> Option<bool> {
        let [least, most] = self.predicted.as_ref()?.ci95;
        // Of a rate that clients decide a few more or fewer answers arrive within the time.
        Some(self.measured >= least * 0.99 && self.measured <= most * 1.01)
    }
}

/// Of each round whose first finding is gone in the next one, under the same load.
pub fn expected(cases: &[JudgedRound]) -> Result<Vec<RemedyForecast>> {
    let mut found = vec![];
    let diagnosed: Vec<(&JudgedRound, Diagnosis)> =
        cases.iter().map(|case| Ok((case, diagnose(&case.measurement)?))).collect::<Result<_>>()?;
    for (case, diagnosis) in &diagnosed {
        let follows = |other: &JudgedRound| {
            other.place.number == case.place.number + 1
                && is_same_load(case, other)
                && load_text(case) == load_text(other)
        };
        let Some((_, next)) = diagnosed.iter().find(|(other, _)| follows(other)) else { continue };
        found.extend(of(case, diagnosis, next));
    }
    Ok(found)
}

/// How many users there are, or which rate is asked for.
fn load_text(case: &JudgedRound) -> Option<String> {
    let workload = case.measurement.workload.as_ref()?;
    let visits = workload.visits.as_ref().map(|visits| (visits.users, &visits.think));
    Some(format!("{:?} {} {visits:?}", workload.arrival, workload.connections))
}

fn of(case: &JudgedRound, diagnosis: &Diagnosis, next: &Diagnosis) -> Option<RemedyForecast> {
    let first = diagnosis.findings.first()?;
    let is_there = next.findings.iter().any(|finding| finding.id == first.id);
    let (before, after) = (diagnosis.run.as_ref()?, next.run.as_ref()?);
    let is_valid = before.client.valid && after.client.valid;
    (!is_there && is_valid && limits::is_fault(&first.id)).then_some(())?;
    Some(RemedyForecast {
        scenario: case.place.scenario.clone(),
        number: case.place.number,
        finding: first.id.clone(),
        before: before.rate?,
        predicted: first.remedies.first().and_then(|remedy| remedy.predicted.clone()),
        measured: after.rate?,
    })
}

/// `(of those predicted the interval holds, predicted, all)`.
pub fn forecast_counts(expected: &[RemedyForecast]) -> (usize, usize, usize) {
    let reported: Vec<bool> = expected.iter().filter_map(RemedyForecast::holds).collect();
    (reported.iter().filter(|holds| **holds).count(), reported.len(), expected.len())
}

/// What stands above the table.
const HEAD: &str = "\
## What remedies are expected to bring

Where arithmetic tells it, the best remedy of the first finding says at which rate good answers will come once it is carried
out, with an interval of 95%. Here that of a faulty round is held against the next round of the same load, in which the finding
is gone.

";

/// The section of docs/diagnosis.md.
pub fn section(expected: &[RemedyForecast]) -> String {
    let (holds, reported, all) = forecast_counts(expected);
    let mut text = HEAD.to_owned();
    let _ = writeln!(
        text,
        "{holds} of {reported} measured rates are within the interval. Of the other {} nothing is predicted: what a request costs \
         without the fault was never seen.\n",
        all - reported
    );
    text.push_str(
        "| scenario | round | finding | before | predicted | then | |\n|---|---|---|---|---|---|---|\n",
    );
    for one in expected {
        let (Some(reported), Some(holds)) = (&one.predicted, one.holds()) else { continue };
        let state = if holds { "within" } else { "**outside**" };
        let (name, [least, most]) = (&one.scenario, reported.ci95);
        let _ = writeln!(
            text,
            "| [{name}](scenarios/{name}.md) | {} | `{}` | {:.1} | {} ({least} to {most}) | {:.1} | {state} |",
            one.number, one.finding, one.before, reported.rate, one.measured
        );
    }
    text.push('\n');
    text
}

/// A line for each, and the sums.
pub fn text(expected: &[RemedyForecast]) -> String {
    let mut text = String::new();
    for one in expected {
        let state = match one.holds() {
            Some(true) => "within ",
            Some(false) => "OUTSIDE",
            None => "untold ",
        };
        let reported = one.predicted.as_ref().map_or("nothing".into(), |reported| {
            format!("{:.1} [{:.1}, {:.1}]", reported.rate, reported.ci95[0], reported.ci95[1])
        });
        let _ = writeln!(
            text,
            "{state}  {} {}  {}: {:.1}/s, predicted {reported}, then {:.1}/s",
            one.scenario, one.number, one.finding, one.before, one.measured
        );
    }
    let (holds, reported, all) = forecast_counts(expected);
    let _ = writeln!(
        text,
        "{holds} of {reported} measured rates are within what was predicted; of {all} something could be"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_rate_is_within_or_outside_and_untold_ones_are_counted() {
        let one = |predicted: Option<[f64; 2]>, measured| RemedyForecast {
            scenario: "x".into(),
            number: 1,
            finding: "log-io".into(),
            before: 10.0,
            predicted: predicted.map(|ci95| Predicted { rate: 90.0, ci95 }),
            measured,
        };
        let all = [
            one(Some([80.0, 100.0]), 100.4),
            one(Some([80.0, 100.0]), 102.0),
            one(Some([80.0, 100.0]), 79.0),
            one(None, 50.0),
        ];
        assert_eq!(forecast_counts(&all), (1, 3, 4));
        let (text, section) = (text(&all), section(&all));
        for part in
            ["within   x 1  log-io: 10.0/s, predicted 90.0 [80.0, 100.0], then 100.4/s", "untold   x 1"]
        {
            assert!(text.contains(part), "{text}");
        }
        for part in [
            "1 of 3 measured rates are within the interval. Of the other 1 nothing",
            "| [x](scenarios/x.md) | 1 | `log-io` | 10.0 | 90 (80 to 100) | 102.0 | **outside** |",
        ] {
            assert!(section.contains(part), "{section}");
        }
    }
}
