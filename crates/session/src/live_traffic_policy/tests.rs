//! Whole sessions with others on the server, against a target that plays a script: each load gives the rates that the
//! script has for it, and every order is noted.

use super::*;
use crate::recording::Recording;
use crate::rounds::{TuneEnding, TuneOptions, tune};
use crate::tuning_target::{AppliedChange, LoadMeasurement, TuningTarget};
use proptest::prelude::*;
use std::collections::BTreeMap;
use webdyno_model::change::{ApplyClass, Change, FileEdit, Preparation, RenderedPlan, SettingChange};
use webdyno_model::event::{Event, EventBody, VERSION};
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{Interval, LoadEnd};
use webdyno_model::number::Number;
use webdyno_model::purpose::Purpose;
use webdyno_model::sample::Sample;
use webdyno_model::service::{ServiceSnapshot, SettingInForce, SettingValue};
use webdyno_model::sweep::{KnobValue, SweepPlan};
use webdyno_model::tune::{Goal, TuneState};
use webdyno_model::workload::Workload;
use webdyno_model::{Result, UserError};

const USERS: f64 = 450.0;
const LENGTH_S: usize = 12;

/// Plays a script.
struct ScriptedTarget {
    live: bool,
    /// The rate of each load to come; the last one goes on.
    rates: Vec<f64>,
    /// By how much seconds differ, as a share.
    noise: f64,
    workers: i64,
    server_limit: i64,
    /// Whether every change fails, and is undone.
    fails: bool,
    before: Vec<i64>,
    loads: usize,
    orders: Vec<String>,
    events: Vec<Event>,
}

impl ScriptedTarget {
    fn new(live: bool, rates: &[f64]) -> Self {
        Self {
            live,
            rates: rates.to_vec(),
            noise: 0.01,
            workers: 150,
            server_limit: 4000,
            fails: false,
            before: vec![],
            loads: 0,
            orders: vec![],
            events: vec![],
        }
    }

    fn run(&mut self) -> Result<TuneEnding> {
        let options =
            TuneOptions { goal: Goal::Max, apply: true, allow_restart: true, budget_us: 600_000_000 };
        tune(self, options)
    }

    fn recording(&self) -> Recording {
        Recording::of(self.events.clone())
    }

    fn at(&mut self, t_us: u64, body: EventBody) {
        self.events.push(Event { v: VERSION, seq: self.events.len() as u64, t_us, body });
    }

    /// All workers are busy and many wait: there is always a remedy to try.
    fn samples(&self, rate: f64, elapsed_s: f64) -> [Sample; 2] {
        let of = |source: &str, values: &[(&str, f64)]| Sample {
            source: source.into(),
            duration_us: 10,
            values: values.iter().map(|(name, value)| ((*name).to_owned(), Number(*value))).collect(),
            ..Sample::default()
        };
        let workers = self.workers as f64;
        [
            of(
                "sockets",
                &[("sockets.accept_queue_count", 100.0), ("sockets.accept_queue_max_count", 511.0)],
            ),
            of(
                "apache_status",
                &[
                    ("apache.slots_count", workers),
                    ("apache.slots_open_count", 0.0),
                    ("apache.workers_idle_count", 0.0),
                    ("apache.workers_busy_count", workers),
                    ("apache.workers_writing_count", workers),
                    ("apache.accesses_count", rate * elapsed_s),
                ],
            ),
        ]
    }

    fn snapshot(&self) -> ServiceSnapshot {
        let setting = |value: i64| SettingInForce {
            configured: Some(SettingValue::Integer(value)),
            ..SettingInForce::default()
        };
        let settings =
            [("MaxRequestWorkers", self.workers), ("ServerLimit", self.workers.max(self.server_limit))];
        ServiceSnapshot {
            service: "apache".into(),
            pid: 1,
            port: 80,
            mode: Some("prefork".into()),
            settings: settings.map(|(name, value)| (name.to_owned(), setting(value))).into(),
            ..ServiceSnapshot::default()
        }
    }

    /// A load as the live target makes it: with a best to hold it against it may end early.
    fn load(&mut self, purpose: Purpose, stop_loss: Option<&StopLoss>) -> Result<LoadMeasurement> {
        let rate = self.rates[self.loads.min(self.rates.len() - 1)];
        self.loads += 1;
        let (load, begins_us) = (self.loads as u32, self.elapsed_us());
        self.orders.push(format!("load at {}", self.workers));
        self.at(begins_us, EventBody::Service { snapshot: Box::new(self.snapshot()) });
        self.at(
            begins_us,
            EventBody::LoadStart { load, purpose, workload: workload().into(), alone_us: None },
        );
        let mut intervals: Vec<Interval> = vec![];
        let stopped = |intervals: &[Interval]| stop_loss.is_some_and(|loss| loss.check(intervals).is_some());
        while intervals.len() < LENGTH_S && !stopped(&intervals) {
            let second = intervals.len();
            let uneven = 1.0 + self.noise * [0.0, 1.0, -1.0, 0.5, -0.5][second % 5];
            let completed = (rate * uneven) as u64;
            let mut times = TimeHistogram::new();
            let time_us = (USERS / completed.max(1) as f64 * 1e6) as u64;
            (0..completed).for_each(|_| times.record(time_us));
            let interval = Interval {
                t_s: second as f64,
                length_us: 1_000_000,
                started: completed,
                completed,
                in_flight: USERS as u64,
                in_flight_us: (USERS * 1e6) as u64,
                response_time: times.encode(),
                cpu_us: 100_000,
                cpu_us_max_thread: 100_000,
                ..Interval::default()
            };
            for sample in self.samples(rate, second as f64 + 0.5) {
                self.at(
                    begins_us + second as u64 * 1_000_000 + 500_000,
                    EventBody::Sample { host: None, sample },
                );
            }
            self.at(begins_us, EventBody::Interval { load, interval: Box::new(interval.clone()) });
            intervals.push(interval);
        }
        let reason = if intervals.len() < LENGTH_S { EndReason::StopLoss } else { EndReason::Enough };
        let end = LoadEnd {
            elapsed_us: intervals.len() as u64 * 1_000_000,
            in_flight_at_end: USERS as u64,
            thread_cpu_us: vec![1_200_000],
            reason,
            ..LoadEnd::default()
        };
        self.at(
            begins_us,
            EventBody::LoadEnd { load, end, measured_from_s: 0.0, warmup_why: None, measured_to_s: None },
        );
        let recording = self.recording();
        let record = recording.load(load).ok_or_else(|| UserError::cannot_run("no load"))?;
        Ok(LoadMeasurement { load, measurement: recording.measurement(record) })
    }
}

fn workload() -> Workload {
    Workload { connections: USERS as u32, keepalive: false, ..Workload::default() }
}

impl TuningTarget for ScriptedTarget {
    fn measure(&mut self, purpose: Purpose) -> Result<LoadMeasurement> {
        self.load(purpose, None)
    }

    fn verify(&mut self, best: &Measurement) -> Result<LoadMeasurement> {
        self.load(Purpose::Verify, Some(&StopLoss::new(best)))
    }

    fn has_live_traffic(&self) -> bool {
        self.live
    }

    fn prepare(&mut self, wanted: &[SettingChange]) -> Result<Preparation> {
        let change = |one: &SettingChange| Change {
            setting: one.setting.clone(),
            from: None,
            to: one.to.clone(),
            file: "/etc/apache2/x.conf".into(),
            class: ApplyClass::Reload,
            server: None,
        };
        let path = "/etc/apache2/x.conf".to_owned();
        let file = FileEdit { path, before_sha256: None, before: None, after: String::new() };
        Ok(Preparation::Plan(Box::new(RenderedPlan {
            files: vec![file],
            class: ApplyClass::Reload,
            ..RenderedPlan::live(wanted.iter().map(change).collect(), "+x".into())
        })))
    }

    fn apply(&mut self, plan: &RenderedPlan, _: bool) -> Result<Option<AppliedChange>> {
        if self.fails {
            self.orders.push("fail".into());
            return Err(UserError::cannot_run("the site answers otherwise"));
        }
        self.before.push(self.workers);
        for change in plan.changes.iter().filter(|change| change.setting.name == "MaxRequestWorkers") {
            let SettingValue::Integer(to) = change.to else { panic!("not a number") };
            self.workers = to;
        }
        self.orders.push(format!("apply {}", self.workers));
        Ok(Some(AppliedChange { mark: self.before.len() as u64, outage_us: None }))
    }

    fn revert(&mut self, mark: u64) -> Result<()> {
        // Where nothing was changed there is nothing to put back.
        if let Some(before) = self.before.get((mark as usize).max(1) - 1) {
            self.workers = *before;
        }
        self.orders.push(format!("revert to {}", self.workers));
        Ok(())
    }

    fn keep(&mut self) -> Result<()> {
        self.orders.push("keep".into());
        Ok(())
    }

    fn record(&mut self, body: EventBody) -> Result<()> {
        self.at(self.elapsed_us(), body);
        Ok(())
    }

    fn elapsed_us(&self) -> u64 {
        self.loads as u64 * 15_000_000
    }
}

fn orders(script: &ScriptedTarget) -> Vec<&str> {
    script.orders.iter().map(String::as_str).collect()
}

#[test]
fn with_others_there_is_one_way_back_and_then_an_end() {
    for (rates, expected) in [
        // The same: one more look with the same setting, then the original once.
        (
            &[750.0, 755.0, 750.0][..],
            &["load at 150", "apply A", "load at A", "load at A", "revert to 150"][..],
        ),
        // Worse: no further look.
        (&[750.0, 400.0], &["load at 150", "apply A", "load at A", "revert to 150"]),
        // The second look finds it better.
        (
            &[750.0, 755.0, 1500.0, 1500.0],
            &[
                "load at 150",
                "apply A",
                "load at A",
                "load at A",
                "apply B",
                "load at B",
                "load at B",
                "revert to A",
                "keep",
            ],
        ),
        // What was better before stays.
        (
            &[750.0, 1500.0, 700.0],
            &["load at 150", "apply A", "load at A", "apply B", "load at B", "revert to A", "keep"],
        ),
    ] {
        let mut script = ScriptedTarget::new(true, rates);
        let ended = script.run().unwrap();
        let names: BTreeMap<String, &str> = script
            .orders
            .iter()
            .filter_map(|order| order.strip_prefix("apply "))
            .zip(["A", "B", "C"])
            .map(|(workers, name)| (workers.to_owned(), name))
            .collect();
        let renamed = |order: &str| match order.rsplit_once(' ') {
            Some((what, workers)) => format!("{what} {}", names.get(workers).unwrap_or(&workers)),
            None => order.to_owned(),
        };
        let reported: Vec<String> = orders(&script).into_iter().map(renamed).collect();
        assert_eq!(reported, expected, "{rates:?}");
        let kept = expected.contains(&"keep");
        assert_eq!(ended.state, if kept { TuneState::Applied } else { TuneState::Reverted });
        assert!(!ended.goal_met, "it ended before everything was tried");
        assert!(script.recording().notes.iter().any(|note| note == ENDED), "{:?}", script.recording().notes);
    }
}

/// A change that failed may have been in force for a moment: with others there, no other one is tried on them.
#[test]
fn a_change_that_failed_is_the_last_one_with_others() {
    for (live, tries) in [(true, 1), (false, 2)] {
        // With a low ServerLimit there are two remedies: beyond it, and up to it.
        let mut script =
            ScriptedTarget { fails: true, server_limit: 256, ..ScriptedTarget::new(live, &[750.0; 4]) };
        let ended = script.run().unwrap();
        assert_eq!((ended.goal_met, ended.state), (false, TuneState::Reverted));
        let notes = script.recording().notes;
        assert!(notes.iter().any(|note| note == "not done: the site answers otherwise"), "{notes:?}");
        let failed = orders(&script).iter().filter(|order| **order == "fail").count();
        assert_eq!(failed, tries, "live: {live}");
    }
}

#[test]
fn without_others_the_next_remedy_is_tried() {
    let mut script = ScriptedTarget::new(false, &[750.0, 752.0, 751.0, 750.0]);
    script.run().unwrap();
    let applied = orders(&script).iter().filter(|order| order.starts_with("apply")).count();
    let reverted = orders(&script).iter().filter(|order| order.starts_with("revert")).count();
    assert!(applied >= 1 && applied == reverted, "{:?}", orders(&script));
    // `same` is an answer there: each setting was loaded once.
    assert_eq!(script.loads, 1 + applied, "{:?}", orders(&script));
    assert!(!script.recording().notes.iter().any(|note| note == ENDED));
}

/// With or without others: a change that is clearly worse costs five seconds of load, not all of it.
#[test]
fn a_clear_loss_ends_the_load() {
    for live in [false, true] {
        let mut script = ScriptedTarget::new(live, &[750.0, 300.0, 750.0]);
        script.run().unwrap();
        let recording = script.recording();
        assert_eq!(recording.loads[1].intervals.len(), 5);
        let round = &recording.rounds[0].round;
        assert_eq!((round.verdict, round.kept), (Some(Verdict::Worse), false));
        let reported =
            recording.notes.iter().any(|note| note.contains("was ended after 5 s: 300 successful req/s"));
        assert!(reported, "{:?}", recording.notes);
        assert_eq!(orders(&script)[3], "revert to 150");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Invariant: while others are there, no setting that was left is ever loaded again, at most one change is put back,
    // and what stays was verified better.
    #[test]
    fn no_setting_is_left_and_taken_again(
        rates in prop::collection::vec(50.0..1000.0f64, 1..8),
        noise in 0.0..0.4f64,
    ) {
        let mut script = ScriptedTarget { noise, ..ScriptedTarget::new(true, &rates) };
        let ended = script.run().unwrap();
        let mut loaded: Vec<&str> =
            script.orders.iter().filter_map(|order| order.strip_prefix("load at ")).collect();
        loaded.dedup();
        let mut distinct = loaded.clone();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), loaded.len(), "{:?}", &script.orders);
        let reverts = script.orders.iter().filter(|order| order.starts_with("revert")).count();
        prop_assert!(reverts <= 1, "{:?}", &script.orders);
        let rounds = script.recording().rounds;
        let kept: Vec<_> = rounds.iter().filter(|record| record.round.kept).collect();
        prop_assert!(kept.iter().all(|record| record.round.verdict == Some(Verdict::Better)));
        prop_assert_eq!(ended.state == TuneState::Applied, !kept.is_empty());
    }
}

#[test]
fn no_setting_is_left_and_taken_again_on_live_traffic() {
    for (verdict, live, again) in [
        (Verdict::Better, true, false),
        (Verdict::Worse, true, false),
        (Verdict::Worse, false, false),
        (Verdict::Inconclusive, true, true),
        (Verdict::Inconclusive, false, true),
        (Verdict::Same, true, true),
        (Verdict::Same, false, false),
    ] {
        assert_eq!(needs_remeasure(verdict, live), again, "{verdict:?} {live}");
    }
    assert!(ends_tuning(false, true) && !ends_tuning(true, true) && !ends_tuning(false, false));
}

#[test]
fn unknown_counts_as_others_when_it_must_be_known() {
    let traffic = |present| LiveTraffic {
        present,
        requests_per_s: Some(12.0),
        connections_count: None,
        evidence: vec![],
    };
    for (traffic, must_know, says) in [
        (Some(traffic(true)), false, Some("(12 requests/s of others)")),
        (Some(traffic(false)), true, None),
        (None, true, Some("cannot be told")),
        (None, false, None),
    ] {
        let note = live_traffic_note(traffic.as_ref(), must_know);
        assert_eq!(note.is_some(), says.is_some(), "{note:?}");
        assert!(says.is_none_or(|says| note.unwrap().contains(says)));
    }
}

/// A round that was kept, one that was not, and then what both came to.
#[test]
fn the_sum_of_several_rounds_is_measured_afresh() {
    for (rates, state) in [
        (&[750.0, 1500.0, 1500.0, 1490.0][..], TuneState::Applied),
        (&[750.0, 1500.0, 1500.0, 400.0], TuneState::Reverted),
    ] {
        let mut script = ScriptedTarget::new(false, rates);
        let ended = script.run().unwrap();
        assert_eq!(ended.state, state, "{:?}", orders(&script));
        let tune = script.recording().tune_end.unwrap();
        let is_kept = state == TuneState::Applied;
        assert_eq!(tune.best_load, if is_kept { script.loads as u32 } else { 1 });
        assert_eq!(script.workers == 150, !is_kept, "{:?}", orders(&script));
        let is_told = script.recording().notes.iter().any(|note| note.contains("worse than the original"));
        assert_eq!(is_told, !is_kept);
    }
}

/// Three requests before the first load, beside the readings: others sent them, unless a sweep requested its content alone.
#[test]
fn lone_requests_of_a_sweep_that_varies_the_load_are_nobody_elses() {
    let plan = |original: Option<KnobValue>| SweepPlan {
        knobs: vec![],
        ranges: vec![],
        objectives: vec![],
        workload: workload(),
        repeat: 1,
        seed: 42,
        original: vec![original],
        study: None,
    };
    let reading = |accesses: f64| Sample {
        source: "apache_status".into(),
        values: [("apache.accesses_count".to_owned(), Number(accesses))].into(),
        ..Sample::default()
    };
    let load = EventBody::LoadStart {
        load: 1,
        purpose: Purpose::Sweep,
        workload: workload().into(),
        alone_us: None,
    };
    for (what, plan, is_present) in [
        ("no sweep", None, Some(true)),
        ("of a setting", Some(plan(Some(KnobValue::Number(20.0)))), Some(true)),
        ("of the load", Some(plan(None)), None),
    ] {
        let start = plan.map(|plan| EventBody::SweepStart { plan: plan.into() });
        let bodies = start.into_iter().chain([
            EventBody::Sample { host: None, sample: reading(100.0) },
            EventBody::Sample { host: None, sample: reading(106.0) },
            load.clone(),
        ]);
        let events = bodies.enumerate().map(|(seq, body)| Event {
            v: VERSION,
            seq: seq as u64,
            t_us: seq as u64 * 1_000_000,
            body,
        });
        let traffic = Recording::of(events.collect()).live_traffic();
        assert_eq!(traffic.map(|traffic| traffic.present), is_present, "{what}");
    }
}
