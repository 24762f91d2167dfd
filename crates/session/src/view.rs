//! What a session amounts to: the value that text, JSON and HTML are made from. A pure function of the recording.

use crate::heat_map::{HeatMap, heat_map};
pub use crate::observation::Series;
use crate::observation::{levels, observation};
use crate::recording::{LoadRecord, PlanAttempt, Recording, TuneEnd};
use crate::sweep::recorded_report;
use std::collections::BTreeMap;
use webdyno_analysis::diagnosis::check::check;
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::diagnosis::documents_only::ablation;
use webdyno_analysis::limits::LimitId;
use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::run_report::pages::times as page_times;
use webdyno_analysis::run_report::repeats::repeats;
use webdyno_analysis::run_report::{interval_report, response_times, run_report};
use webdyno_analysis::tuning::verdict::compare;
use webdyno_model::Result;
use webdyno_model::capacity::{CapacityReport, CapacityStep};
use webdyno_model::change::{ChangedHost, JournalPlace};
use webdyno_model::diagnosis::Diagnosis;
use webdyno_model::environment::Environment;
use webdyno_model::histogram::EncodedHistogram;
use webdyno_model::interval::EndReason;
use webdyno_model::number::significant;
use webdyno_model::observation::Observation;
use webdyno_model::purpose::Purpose;
use webdyno_model::run::{IntervalReport, RunReport};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::sweep::SweepReport;
use webdyno_model::tune::{Goal, Improvement, SCHEMA, TuneReport, TuneState};

/// A whole session, ready to be shown.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// `run`, `diagnose`, `check`, `tune`, `quickstart`, `observe`, `capacity`.
    pub command: String,
    /// Wall clock, RFC 3339.
    pub started_at: String,
    /// The version of webdyno that recorded it.
    pub webdyno_version: String,
    /// Who gave the command.
    pub operator: Option<String>,
    /// The run directory in which it was recorded.
    pub directory: Option<String>,
    /// What it came to.
    pub outcome: Outcome,
    /// The load that the outcome's figures are of: the chosen one of several runs, the best of a tuning.
    pub reported_load: Option<u32>,
    /// Every plan of a tuning session, and what became of it on the server.
    pub attempts: Vec<PlanAttempt>,
    /// Where the undo of the changes is; `None` when there were none.
    pub journal: Option<JournalPlace>,
    /// Other hosts that were changed, and where the undo of that is.
    pub other_journals: BTreeMap<ChangedHost, Option<JournalPlace>>,
    /// Every load, in order.
    pub loads: Vec<LoadView>,
    /// Latency over the session; `None` where no response was timed.
    pub heat_map: Option<HeatMap>,
    /// Readings of the server over the session, for plots.
    pub series: Vec<Series>,
    /// The service as it was last read.
    pub service: Option<ServiceSnapshot>,
    /// The machine of the server.
    pub server: Option<Environment>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Whether the session ended in order; `Some(error)` when it ended with one.
    pub end: SessionEnd,
}

/// How the session ended.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionEnd {
    /// In order, with this exit code.
    Done(u8),
    /// With an error.
    Failed(u8, String),
    /// The log stops in the middle: it was killed, or it still runs.
    Torn,
}

/// What a session came to, by its command.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // there is one of it
pub enum Outcome {
    /// `run`.
    Run(RunReport),
    /// `diagnose`, `check`.
    Diagnosis(Diagnosis),
    /// `tune`, `quickstart`.
    Tune(TuneReport),
    /// `sweep`.
    Sweep(Box<SweepReport>),
    /// `capacity`.
    Capacity(Box<CapacityReport>),
    /// `observe`.
    Observation(Box<Observation>),
    /// It ended before there was anything to report.
    Nothing,
}

/// One load with all its seconds, warm-up included.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadView {
    /// From 1.
    pub load: u32,
    /// Why it was made.
    pub purpose: Purpose,
    /// The round that it verifies, for verifying loads.
    pub round: Option<u32>,
    /// When it began, seconds since the session began.
    pub begins_s: f64,
    /// Start of the measured part, seconds since the load began.
    pub measured_from_s: f64,
    /// Every whole second of it.
    pub intervals: Vec<IntervalReport>,
    /// Response times of the measured part: `(time in microseconds, share of requests not slower)`, rising.
    pub response_time_cumulative: Vec<(u64, f64)>,
    /// Times of the completed pages of the measured part, in the same way; empty without pages.
    pub page_time_cumulative: Vec<(u64, f64)>,
    /// The report of its measured part.
    pub report: RunReport,
}

impl View {
    /// The load that the report of a run is of: the chosen one of several, else the last one with answers.
    pub fn reported_load(&self) -> Option<&LoadView> {
        let of = |load: u32| self.loads.iter().find(|view| view.load == load);
        let answered = |load: &&LoadView| !load.response_time_cumulative.is_empty();
        match (&self.outcome, self.reported_load.and_then(of)) {
            (Outcome::Run(_) | Outcome::Capacity(_), Some(load)) => Some(load),
            _ => self.loads.iter().rev().find(answered),
        }
    }

    /// What a recording amounts to. An error when a histogram of it is damaged.
    pub fn of(recording: &Recording) -> Result<Self> {
        let (outcome, reported_load) = outcome(recording)?;
        Ok(Self {
            command: recording.command.clone(),
            started_at: recording.started_at.clone(),
            webdyno_version: recording.client.webdyno.clone(),
            operator: recording.operator.clone(),
            directory: recording.directory.clone(),
            outcome,
            reported_load,
            attempts: recording.attempts.clone(),
            journal: recording.journal.clone(),
            other_journals: recording.other_journals.clone(),
            loads: recording.loads.iter().map(|load| load_view(recording, load)).collect::<Result<_>>()?,
            heat_map: heat_map(&timed_seconds(recording))?,
            series: series(recording),
            service: recording.services.last().map(|(_, snapshot)| snapshot.clone()),
            server: recording.server.clone(),
            notes: recording.notes.clone(),
            end: match &recording.end {
                None => SessionEnd::Torn,
                Some((code, None)) => SessionEnd::Done(*code),
                Some((code, Some(error))) => SessionEnd::Failed(*code, error.clone()),
            },
        })
    }
}

/// What it came to, and the load that its figures are of.
fn outcome(recording: &Recording) -> Result<(Outcome, Option<u32>)> {
    if let Some(end) = recording.tune_end.or_else(|| ending_of_killed_session(recording)) {
        let report = tune_report(recording, &end)?;
        return Ok(
            report.map_or((Outcome::Nothing, None), |report| (Outcome::Tune(report), Some(end.best_load)))
        );
    }
    if recording.command == "sweep" {
        let swept = recorded_report(recording).map(Box::new);
        return Ok((swept.map_or(Outcome::Nothing, Outcome::Sweep), None));
    }
    if recording.command == "capacity" {
        let found = recording.capacity.clone().map(Box::new);
        let load = found.as_ref().and_then(|found| load_of_capacity(found));
        return Ok((found.map_or(Outcome::Nothing, Outcome::Capacity), load));
    }
    // The recording of an incident names the window that is to be diagnosed.
    if recording.command == "observe" && recording.watches.is_empty() {
        let observed = observation(recording).map(Box::new);
        return Ok((observed.map_or(Outcome::Nothing, Outcome::Observation), None));
    }
    if recording.command == "check" {
        let measurement = recording.last_measurement();
        let checked = measurement.map(|measurement| check(&measurement)).transpose()?;
        return Ok((checked.map_or(Outcome::Nothing, Outcome::Diagnosis), None));
    }
    if recording.command == "run" && recording.last_load().is_some() {
        return run_outcome(recording);
    }
    let diagnosis = recording.diagnosis()?;
    let load = recording.last_load().filter(|_| diagnosis.is_some()).map(|load| load.load);
    Ok((diagnosis.map_or(Outcome::Nothing, Outcome::Diagnosis), load))
}

/// The step that stands for a capacity: of those that met the objectives the one nearest to it, as a capacity that was fitted lies
/// between the steps; of several the last.
fn load_of_capacity(found: &CapacityReport) -> Option<u32> {
    let rate = found.rate?;
    let is_met =
        |step: &&CapacityStep| step.discarded.is_none() && step.missed.is_none() && step.met != Some(false);
    let distance = |step: &CapacityStep| (step.offered - rate).abs();
    let met = found.steps.iter().rev().filter(is_met);
    met.min_by(|a, b| distance(a).total_cmp(&distance(b))).map(|step| step.load)
}

/// Of a load that was made several times, the run that stands for all: those that were not seen to their end are left
/// out, as long as there is another.
fn run_outcome(recording: &Recording) -> Result<(Outcome, Option<u32>)> {
    let (without, made): (Vec<&LoadRecord>, Vec<&LoadRecord>) =
        recording.loads.iter().partition(|load| load.purpose == Purpose::WithoutResources);
    let measured = |loads: &[&LoadRecord]| {
        let whole = |load: &&&LoadRecord| {
            load.end.as_ref().is_some_and(|(end, _)| end.reason != EndReason::Interrupted)
        };
        let whole = loads.iter().filter(whole);
        whole.map(|load| (load.load, recording.measurement(load))).unzip::<_, _, Vec<u32>, Vec<Measurement>>()
    };
    let (numbers, whole) = measured(&made);
    let ablation = ablation(&whole, &measured(&without).1)?;
    let reports: Vec<RunReport> = whole.iter().map(run_report).collect::<Result<_>>()?;
    let repeated = repeats(&reports.iter().collect::<Vec<_>>()).filter(|_| made.len() > 1);
    let (load, mut run) = match (repeated, recording.last_load()) {
        (Some((mut repeats, mut chosen)), _) => {
            // One that ended as an objective was lost is the answer, whatever those before it were like.
            if let Some(place) = whole.iter().position(missed_objective) {
                (chosen, repeats.chosen) = (place, place as u32 + 1);
            }
            (numbers[chosen], RunReport { repeats: Some(repeats), ..reports[chosen].clone() })
        }
        (None, Some(last)) => (last.load, run_report(&recording.measurement(last))?),
        (None, None) => return Ok((Outcome::Nothing, None)),
    };
    run.ablation = ablation;
    Ok((Outcome::Run(run), Some(load)))
}

fn missed_objective(measurement: &Measurement) -> bool {
    measurement.end.as_ref().is_some_and(|end| end.reason == EndReason::ObjectiveLost)
}

/// The end of a tuning session that has none because it was cut off: what was not kept is reverted by its guardian.
fn ending_of_killed_session(recording: &Recording) -> Option<TuneEnd> {
    let tunes = matches!(recording.command.as_str(), "tune" | "quickstart");
    let first = recording.loads.first().filter(|load| tunes && !load.intervals.is_empty())?;
    let (load, state) = (first.load, TuneState::Reverted);
    Some(TuneEnd { baseline_load: load, best_load: load, last_load: load, goal_met: false, state })
}

fn tune_report(recording: &Recording, end: &TuneEnd) -> Result<Option<TuneReport>> {
    let measured = |load: u32| recording.load(load).map(|record| recording.measurement(record));
    let measured = (measured(end.baseline_load), measured(end.best_load), measured(end.last_load));
    let (Some(baseline), Some(best), Some(last)) = measured else {
        return Ok(None);
    };
    let comparison = compare(&baseline.measured_rates(), &best.measured_rates());
    // The best may be the baseline itself: then nothing was gained, and there is no interval to speak of.
    let ratio = comparison.ratio.filter(|_| end.best_load != end.baseline_load);
    let diagnosis = diagnose(&last)?;
    let requested = if is_healthy(&diagnosis) { requested_load_diagnosis(recording, end)? } else { None };
    let limits = requested.as_ref().unwrap_or(&diagnosis);
    Ok(Some(TuneReport {
        schema: SCHEMA.into(),
        goal: recording.goal.unwrap_or(Goal::Max),
        goal_met: end.goal_met,
        limit_summary: limits.findings.first().map(|finding| finding.summary.clone()),
        limit: Some(limits.bottleneck.clone()),
        baseline: run_report(&baseline)?,
        best: run_report(&best)?,
        improvement: Improvement {
            metric: "rate".into(),
            ratio: ratio.map(|ratio| significant(ratio.ratio, 4)),
            ci95: ratio.map(|ratio| ratio.ci95.map(|bound| significant(bound, 4))),
        },
        rounds: recording.rounds.iter().map(|record| record.round.clone()).collect(),
        state: end.state,
        ceilings: diagnosis.ceilings,
        live_traffic: recording.live_traffic(),
        environment: recording.server.clone().unwrap_or_default(),
    }))
}

fn is_healthy(diagnosis: &Diagnosis) -> bool {
    diagnosis.bottleneck == LimitId::Healthy
}

/// What limited the load that was requested, where it did harm and all was measured at a lower one: that the server keeps up with that
/// says nothing of it.
fn requested_load_diagnosis(recording: &Recording, end: &TuneEnd) -> Result<Option<Diagnosis>> {
    let first = recording.loads.first().filter(|first| first.load != end.baseline_load);
    match first.map(|first| recording.measurement(first)) {
        Some(stopped) if stopped.harm_guard_trip.is_some() => {
            Ok(Some(diagnose(&stopped)?).filter(|diagnosis| !is_healthy(diagnosis)))
        }
        _ => Ok(None),
    }
}

fn load_view(recording: &Recording, record: &LoadRecord) -> Result<LoadView> {
    let measurement = recording.measurement(record);
    let verified = recording.rounds.iter().find(|round| round.load_after == Some(record.load));
    Ok(LoadView {
        load: record.load,
        purpose: record.purpose,
        round: verified.map(|round| round.round.n),
        begins_s: record.begins_us as f64 / 1e6,
        measured_from_s: measurement.measured_from_s,
        intervals: complete_intervals(record).map(interval_report).collect::<Result<_>>()?,
        response_time_cumulative: response_times(&measurement)?.cumulative(),
        page_time_cumulative: page_times(&measurement)?.cumulative(),
        report: run_report(&measurement)?,
    })
}

/// The last interval is torn: the rate of a few milliseconds is no rate to plot.
fn complete_intervals(record: &LoadRecord) -> impl Iterator<Item = &webdyno_model::interval::Interval> {
    record.intervals.iter().filter(|interval| interval.length_us >= 500_000)
}

/// The seconds of all loads in which a response was timed, with their starts since the session began.
fn timed_seconds(recording: &Recording) -> Vec<(f64, &EncodedHistogram)> {
    let of = |load: &'_ LoadRecord| load.begins_us as f64 / 1e6;
    let seconds = recording
        .loads
        .iter()
        .flat_map(|load| load.intervals.iter().map(move |second| (of(load) + second.t_s, second)));
    seconds.filter_map(|(start_s, second)| Some((start_s, second.response_time.as_ref()?))).collect()
}

/// Readings since the session began; of an observation since its first reading.
fn series(recording: &Recording) -> Vec<Series> {
    let first_us =
        recording.extent_us().filter(|_| recording.command == "observe").map_or(0, |(first_us, _)| first_us);
    levels(recording, first_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(load: u32, offered: f64, missed: Option<&str>) -> CapacityStep {
        CapacityStep {
            load,
            offered,
            rate: Some(offered),
            missed: missed.map(str::to_owned),
            measured_s: 3.0,
            ..CapacityStep::default()
        }
    }

    #[test]
    fn a_step_that_met_the_objectives_stands_for_a_capacity() {
        let spoilt = CapacityStep { discarded: Some("a core was full".into()), ..step(5, 1241.0, None) };
        let steps = vec![
            step(1, 1000.0, None),
            step(2, 1237.0, None),
            step(3, 1242.0, Some("p99<1s")),
            step(4, 1237.0, None),
            spoilt,
            step(6, 1300.0, Some("p99<1s")),
        ];
        for (rate, load) in [(Some(1240.0), Some(4)), (Some(1000.0), Some(1)), (None, None)] {
            let found = CapacityReport { rate, steps: steps.clone(), ..CapacityReport::default() };
            assert_eq!(load_of_capacity(&found), load, "{rate:?}");
        }
    }
}
