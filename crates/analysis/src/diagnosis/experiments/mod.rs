//! Experiments: where two explanations remain, the same load with one thing changed tells them apart.
//!
//! A table says of each experiment what becomes of the load if a limit is the one that binds: without keep-alive a server
//! whose workers idle on kept connections gives more, one that is short of new connections gives less, any other as much.
//! The experiment to make is one in which the two explanations expect different things. What came out makes the one that
//! expected it more likely, and the other less: it is not proof by itself, as the table holds for servers with one limit.

use crate::diagnosis::documents_only::{is_same, is_significant, within};
use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use crate::measurement::statistics;
use crate::measurement::statistics::ratio_of_means;
use crate::run_report::run_report;
use std::collections::BTreeSet;
use webdyno_model::Result;
use webdyno_model::diagnosis::{Experiment, Finding, Outcome};
use webdyno_model::interval::Interval;
use webdyno_model::number::significant;
use webdyno_model::page::AblationFigure;
use webdyno_model::purpose::Purpose;
use webdyno_model::transport::ConnectTo;
use webdyno_model::workload::{Arrival, Workload};

mod expected;
#[cfg(test)]
mod tests;

/// The most experiments that one diagnosis makes: each costs the server a load.
pub const MOST: usize = 2;
/// Two explanations remain while the second one has this share of the first one's weight.
const RIVAL_SHARE: f64 = 0.6;
/// A ratio of figures beyond this is a change: limits that are lifted or removed change a load by more.
const CHANGED: f64 = 1.25;
/// How often what an explanation expects comes out if it is the right one, and how often it fails to if it is not. The
/// table holds for servers with one limit, and servers may have two.
const DISAMBIGUATES: f64 = 0.8;
/// What is not proven by itself is believed no more than this.
const CONFIDENCE_MAX: f64 = 0.95;
/// Of fewer connections than this there is no half that is still a load.
const HALVED_MIN: u32 = 4;

/// An experiment, and the two explanations that it is to tell apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExperimentChoice {
    /// What is changed.
    pub what: Purpose,
    /// Ids of the findings, the likelier one first.
    pub between: [String; 2],
}

/// The same load with one thing changed; `None` when this load has nothing of that.
pub fn changed(workload: &Workload, what: Purpose) -> Option<Workload> {
    let mut copy = workload.clone();
    match what {
        Purpose::WithoutResources => {
            return workload.without_resources().filter(|_| workload.arrival == Arrival::Closed);
        }
        Purpose::WithoutKeepalive => {
            // A connection for each request carries no more than one stream.
            let may_close = workload.keepalive && workload.transport.streams() <= 1;
            copy.keepalive = may_close.then_some(false)?;
        }
        Purpose::HalfLoad => {
            workload.visits.is_none().then_some(())?;
            match &mut copy.arrival {
                Arrival::Open { rate_per_s, .. } => *rate_per_s /= 2.0,
                Arrival::Closed => copy.connections = half(workload.connections)?,
            }
        }
        Purpose::FromLoopback => {
            let transport = &workload.transport;
            let goes_elsewhere = !transport.connect_to.is_empty() || transport.proxy.is_some();
            let is_plain = workload.transport.source_ips.is_empty() && workload.redirects_max == 0;
            (is_plain && !goes_elsewhere).then_some(())?;
            let to_host = Some("127.0.0.1".into());
            let rule = ConnectTo { host: None, port: None, to_host, to_port: None };
            copy.transport.connect_to.push(rule);
        }
        _ => return None,
    }
    Some(copy)
}

fn half(connections: u32) -> Option<u32> {
    (connections >= HALVED_MIN).then_some(connections / 2)
}

/// The experiments that can be made with a load.
pub fn possible(workload: &Workload, over_a_network: bool) -> Vec<Purpose> {
    let all = Purpose::EXPERIMENTS.into_iter();
    let all = all.filter(|what| *what != Purpose::FromLoopback || over_a_network);
    all.filter(|what| changed(workload, *what).is_some()).collect()
}

/// The experiment that tells the first two explanations apart; `None` when only one remains, or none of these would.
pub fn choose_experiment(findings: &[Finding], possible: &[Purpose]) -> Option<ExperimentChoice> {
    let [first, second] = rivals(findings)?;
    let tells = |what: &&Purpose| {
        let expected = |finding: &Finding| expected::of(**what, &finding.id);
        expected(first).zip(expected(second)).is_some_and(|(first, second)| first != second)
    };
    let what = *possible.iter().find(tells)?;
    Some(ExperimentChoice { what, between: [first.id.clone(), second.id.clone()] })
}

/// The first two findings, if the second is nearly as likely as the first and not what that brings about.
fn rivals(findings: &[Finding]) -> Option<[&Finding; 2]> {
    let first = findings.first().filter(|first| expected::is_known(&first.id))?;
    let causes = crate::limits::by_id(&first.id).map_or(&[][..], |limit| limit.causes);
    let independent =
        |other: &&Finding| expected::is_known(&other.id) && !causes.iter().any(|id| other.id == *id);
    let second = findings.iter().skip(1).find(independent)?;
    let weight = crate::diagnosis::ranking::weight;
    (weight(second) >= RIVAL_SHARE * weight(first)).then_some([first, second])
}

/// What an experiment showed, of the load and of the same with one thing changed. An error when a histogram is damaged.
pub fn experiment(
    choice: &ExperimentChoice,
    before: &Measurement,
    after: &Measurement,
) -> Result<Experiment> {
    let figure = figure(choice.what, before, after)?;
    let is_whole = |measurement: &Measurement| {
        Ok::<_, webdyno_model::UserError>(
            run_report(measurement)?.client.valid && measurement.harm_guard_trip.is_none(),
        )
    };
    let outcome = match is_whole(before)? && is_whole(after)? {
        true => outcome(&figure),
        false => None,
    };
    let means = means(choice, outcome);
    Ok(Experiment { what: choice.what, between: choice.between.clone(), figure, outcome, means })
}

/// Whether the load fared better, worse or the same; `None` where chance may decide.
fn outcome(figure: &AblationFigure) -> Option<Outcome> {
    let ratio = figure.ratio?;
    // More of a rate is better, more of a time is worse.
    let ratio = if figure.unit == "us" { 1.0 / ratio } else { ratio };
    match ratio {
        _ if is_same(figure) => Some(Outcome::Same),
        _ if within(ratio, CHANGED) || !is_significant(figure) => None,
        better if better > 1.0 => Some(Outcome::Better),
        _ => Some(Outcome::Worse),
    }
}

/// A figure of a second; `None` where it has none.
type FigureOfSecond = fn(&Interval) -> Result<Option<f64>>;

/// The figure that tells: at half the load, and at a rate that is given, the response time, else the rate.
fn figure(what: Purpose, before: &Measurement, after: &Measurement) -> Result<AblationFigure> {
    let is_closed = before.workload.as_ref().is_none_or(|workload| workload.arrival == Arrival::Closed);
    let (name, unit, of): (_, _, FigureOfSecond) = match what {
        Purpose::WithoutResources => ("pages/s", "1/s", |second| {
            Ok(second.pages.as_ref().and_then(|pages| per_s(pages.completed, second)))
        }),
        Purpose::HalfLoad => ("response time, mean", "us", mean_us),
        _ if is_closed => ("requests/s", "1/s", |second| Ok(per_s(second.completed, second))),
        _ => ("response time, mean", "us", mean_us),
    };
    let series = |measurement: &Measurement| {
        let whole = measurement.measured().filter(|interval| interval.length_us >= 900_000);
        whole.filter_map(|interval| of(interval).transpose()).collect::<Result<Vec<f64>>>()
    };
    let (before, after) = (series(before)?, series(after)?);
    let ratio = ratio_of_means(&before, &after);
    let rounded = |value: f64| significant(value, 4);
    Ok(AblationFigure {
        name: name.into(),
        unit: unit.into(),
        with: statistics::mean(&before).map(rounded),
        without: statistics::mean(&after).map(rounded),
        ratio: ratio.map(|ratio| rounded(ratio.ratio)),
        ci95: ratio.map(|ratio| ratio.ci95.map(rounded)),
    })
}

fn per_s(count: u64, second: &Interval) -> Option<f64> {
    (second.length_us > 0).then(|| count as f64 * 1e6 / second.length_us as f64)
}

fn mean_us(second: &Interval) -> Result<Option<f64>> {
    Ok(merged(second.response_time.iter())?.mean_us())
}

/// What the outcome says of the two.
fn means(choice: &ExperimentChoice, outcome: Option<Outcome>) -> String {
    let [first, second] = &choice.between;
    let changed = expected::name(choice.what);
    let Some(outcome) = outcome else {
        return format!("{changed} the figures do not distinguish {first} from {second}.");
    };
    let expects = |id: &&&String| expected::of(choice.what, id) == Some(outcome);
    let observed = match outcome {
        Outcome::Better => "performed better",
        Outcome::Same => "performed the same",
        Outcome::Worse => "performed worse",
    };
    match [first, second].iter().find(expects) {
        Some(id) => {
            let other = if **id == *first { second } else { first };
            format!("{changed} the load {observed}: as expected for {id}, not for {other}.")
        }
        None => format!("{changed} the load {observed}, which neither {first} nor {second} explains."),
    }
}

/// Believes each finding as much as what an experiment showed makes it likely, by Bayes' rule, and puts them in order anew.
pub fn rerank(findings: Vec<Finding>, experiment: &Experiment) -> Vec<Finding> {
    let Some(outcome) = experiment.outcome else { return findings };
    let reconsidered = findings.into_iter().map(|finding| {
        let Some(expected) = expected::of(experiment.what, &finding.id) else { return finding };
        let likely = if expected == outcome { DISAMBIGUATES } else { 1.0 - DISAMBIGUATES };
        let right = finding.confidence * likely;
        let wrong = (1.0 - finding.confidence) * (1.0 - likely);
        let confidence = (right / (right + wrong)).min(CONFIDENCE_MAX.max(finding.confidence));
        Finding { confidence: significant(confidence, 2), ..finding }
    });
    // What was placed behind memory by its proof alone stays at its own weight: experiments are for what is not proven.
    crate::diagnosis::ranking::ranked(reconsidered.collect(), false)
}

/// What these loads showed, in their order, and the findings by it. A load that tells nothing apart is left out.
pub fn reconsider(
    mut findings: Vec<Finding>,
    before: &Measurement,
    loads: &[(Purpose, Measurement)],
) -> Result<(Vec<Finding>, Vec<Experiment>)> {
    let (mut made, mut observed) = (vec![], BTreeSet::new());
    for (what, after) in loads.iter().take(MOST) {
        let Some(choice) = choose_experiment(&findings, &[*what]).filter(|_| observed.insert(what.name()))
        else {
            continue;
        };
        let experiment = experiment(&choice, before, after)?;
        findings = rerank(findings, &experiment);
        made.push(experiment);
    }
    Ok((findings, made))
}
