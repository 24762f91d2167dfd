//! What limits a server that was drawn, by measuring: its load with all faults, without each, and without any. Pure.
//!
//! A removal counts when it raises the rate beyond its interval, or shortens response times by more than loads of the same
//! server differ and leaves hardly any request to fail; the fault whose removal brings most is the first, and one that brings as
//! much within the noise counts as well.

use serde::{Deserialize, Serialize};
use webdyno_lab::draw::DrawnServer;
use webdyno_lab::run::outcome::{RoundOutcome, ScenarioOutcome};

/// A rate that rises by less is noise; of its interval, the lower end.
const RATE_RATIO_MIN: f64 = 1.08;
const RATE_LOW_MIN: f64 = 1.02;
/// One that is three times as high needs no interval: of a server that starts its workers under the load, seconds differ by more than that.
const RATE_RATIO_CLEAR: f64 = 3.0;
/// Of fewer answers a second that is chance.
const RATE_CLEAR_MIN: f64 = 2.0;
/// Times that fall by less are noise: ratios, and differences in microseconds.
const P50_RATIO_MIN: f64 = 1.3;
const P99_RATIO_MIN: f64 = 1.6;
const P50_US_MIN: f64 = 3_000.0;
const P99_US_MIN: f64 = 15_000.0;
/// Where more requests than this still fail, the times of the others are those of the lucky ones.
const FAILED_TIMES_MAX: f64 = 0.05;
/// Removals whose gains (as logarithms) differ by less bring the same.
const TIE: f64 = 0.12;
/// What a server may be like with which nothing is wrong.
const FAILED_MAX: f64 = 0.01;
const OFFERED_MIN: f64 = 0.9;
const SLOWER_MAX: f64 = 2.0;
const SLOWER_US: f64 = 15_000.0;
/// A generator that is so busy is what limits, and its run is not valid (run reports say so from there on).
const CLIENT_BUSY_MAX: f64 = 0.7;

/// What was proven.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The faults that count as the first: those whose removal brings most. None where nothing is wrong.
    pub first: Vec<String>,
    /// Ids of findings that are right.
    pub findings: Vec<String>,
    /// Of each fault by how much its removal raises the rate.
    pub rate_ratios: Vec<Option<f64>>,
    /// The rate as found, and with everything mended.
    pub rates: [Option<f64>; 2],
    /// The median response times of the same, microseconds.
    pub p50_us: [Option<f64>; 2],
}

/// The truth of a run of all its rounds; why there is none, where faults do not bind or nothing can be said.
pub fn truth(server: &DrawnServer, outcome: &ScenarioOutcome) -> Result<Truth, String> {
    let rounds = &outcome.rounds;
    let (Some(found), Some(mended)) = (rounds.first(), rounds.last()) else {
        return Err("no round was made".into());
    };
    if rounds
        .iter()
        .any(|round| round.figure("load.client_busy_fraction").is_some_and(|busy| busy > CLIENT_BUSY_MAX))
    {
        return Err("the generator was the limit".into());
    }
    let first = match server.faults.len() {
        0 => {
            check_healthy(server, found)?;
            vec![]
        }
        1 => {
            gain(found, mended).ok_or_else(|| "its removal brings nothing".to_owned())?;
            vec![0]
        }
        _ => first_of_two(rounds)?,
    };
    let rate = |round: &RoundOutcome| round.figure("load.rate");
    let ratio = |after: &RoundOutcome| Some(rate(after)? / rate(found)?.max(0.01));
    let of_faults = (1..=server.faults.len()).map(|index| rounds.get(index).and_then(ratio));
    let faults: Vec<_> = first.iter().map(|index| &server.faults[*index]).collect();
    let p50 = |round: &RoundOutcome| round.figure("load.p50_us");
    Ok(Truth {
        first: faults.iter().map(|fault| fault.id.to_owned()).collect(),
        findings: match faults.is_empty() {
            true => of_nothing(server),
            false => faults.iter().flat_map(|fault| fault.findings).map(|id| (*id).to_owned()).collect(),
        },
        rate_ratios: of_faults.collect(),
        rates: [rate(found), rate(mended)],
        p50_us: [p50(found), p50(mended)],
    })
}

/// What may be said of a server with which nothing is wrong.
fn of_nothing(server: &DrawnServer) -> Vec<String> {
    let ids: &[&str] = match (server.is_full, server.greets) {
        (false, _) => &["healthy"],
        (true, false) => &["cpu-saturated"],
        (true, true) => &["cpu-saturated", "tls-handshakes"],
    };
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// An error where a server without faults is short of something all the same.
fn check_healthy(server: &DrawnServer, found: &RoundOutcome) -> Result<(), String> {
    if found.figure("load.failed_fraction").is_none_or(|failed| failed > FAILED_MAX) {
        return Err("without faults, and yet requests fail".into());
    }
    let p50_us = found.figure("load.p50_us").unwrap_or(f64::INFINITY);
    if !server.is_full && p50_us > server.alone_ms * 1000.0 * SLOWER_MAX + SLOWER_US {
        return Err(format!("without faults, and yet slow: p50 {:.0} ms", p50_us / 1000.0));
    }
    let rate = found.figure("load.rate").unwrap_or(0.0);
    match server.offered_per_s {
        Some(offered) if rate < offered * OFFERED_MIN => {
            Err("without faults, and yet behind its load".into())
        }
        _ => Ok(()),
    }
}

/// Which of two faults is the first, by their places: rounds are as found, without the one, without the other, without both.
fn first_of_two(rounds: &[RoundOutcome]) -> Result<Vec<usize>, String> {
    let [found, without_one, without_other, mended] = rounds else {
        return Err("not all rounds were made".into());
    };
    let gains = [gain(found, without_one), gain(found, without_other)];
    // What is left when the first is mended must bind, too.
    let left = [gain(without_one, mended), gain(without_other, mended)];
    match gains {
        [Some(one), Some(other)] if (one - other).abs() <= TIE => Ok(vec![0, 1]),
        [Some(one), Some(other)] => Ok(vec![usize::from(other > one)]),
        [Some(_), None] if left[0].is_some() => Ok(vec![0]),
        [None, Some(_)] if left[1].is_some() => Ok(vec![1]),
        [None, None] if left[0].is_some() && left[1].is_some() => Ok(vec![0, 1]),
        [None, None] => Err("no removal brings anything".into()),
        _ => Err("one of its faults never binds".into()),
    }
}

/// What mending brought, as a logarithm; `None` where it is within the noise.
fn gain(before: &RoundOutcome, after: &RoundOutcome) -> Option<f64> {
    let both = |name: &str| Some((before.figure(name)?, after.figure(name)?));
    // A load of which nothing succeeded has a rate, and no times.
    let (rate_before, rate_after) = both("load.rate")?;
    let rate = (rate_after.max(0.01) / rate_before.max(0.01)).ln();
    let times = ["load.p50_us", "load.p99_us"]
        .map(|name| both(name).map(|(long, short)| (long / short.max(1.0), long - short)));
    let [p50, p99] = times.map(|time| time.unwrap_or((1.0, 0.0)));
    let low = after
        .gains
        .iter()
        .find(|gain| gain.metric == "load.rate")
        .and_then(|gain| gain.ci95)
        .map(|[low, _]| low);
    let is_first = after.gains.iter().any(|gain| gain.over == before.name);
    let is_clear = (rate >= RATE_RATIO_CLEAR.ln() && rate_after >= RATE_CLEAR_MIN)
        || low.filter(|_| is_first).is_none_or(|low| low >= RATE_LOW_MIN);
    let is_faster = rate >= RATE_RATIO_MIN.ln() && is_clear;
    let are_answered = after.figure("load.failed_fraction").is_none_or(|failed| failed <= FAILED_TIMES_MAX);
    let is_sooner =
        are_answered && p50.0 >= P50_RATIO_MIN && p50.1 >= P50_US_MIN && rate > -RATE_RATIO_MIN.ln();
    let is_steadier =
        are_answered && p99.0 >= P99_RATIO_MIN && p99.1 >= P99_US_MIN && rate > -RATE_RATIO_MIN.ln();
    let counted = |is_so: bool, gain: f64| if is_so { gain } else { 0.0 };
    let sooner = counted(is_sooner, p50.0.ln()).max(counted(is_steadier, p99.0.ln() / 2.0));
    (is_faster || is_sooner || is_steadier).then_some(counted(is_faster, rate).max(sooner))
}

#[cfg(test)]
#[path = "truth_tests.rs"]
mod tests;
