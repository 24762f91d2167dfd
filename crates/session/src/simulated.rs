//! A modelled server on a modelled stand: workers, a queue, cores, and seeded faults. Whole tuning sessions run
//! against it in milliseconds; a failure prints its seed, which replays it.
//!
//! The model: N users in a closed loop, W workers that each hold a request for S seconds, C cores and D seconds of
//! CPU per request. The rate is the least of min(W, N) / S and C / D; what does not fit waits in the accept queue.

use crate::recording::Recording;
use crate::rounds::{Ended, Options, tune};
use crate::stand::{InForce, Measured, Stand};
use webdyno_analysis::measurement::TimedSample;
use webdyno_model::brake::{Brake, BrakeCause};
use webdyno_model::change::{ApplyClass, Change, FileEdit, Managed, RenderedPlan, Wish};
use webdyno_model::event::{Event, EventBody, Purpose, VERSION};
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{Interval, LoadEnd};
use webdyno_model::number::Number;
use webdyno_model::sample::Sample;
use webdyno_model::service::{ServiceSnapshot, SettingInForce, SettingValue};
use webdyno_model::tune::{Goal, Round, TuneState, Verdict};
use webdyno_model::workload::{Arrival, StatusSet, Stop, Workload};
use webdyno_model::{Result, UserError};

/// What the modelled server is, and what goes wrong with it.
#[derive(Debug, Clone)]
struct Model {
    users: f64,
    worker_time_s: f64,
    cpu_s_per_request: f64,
    cores: f64,
    /// Each worker above this many halves the rate (memory that does not suffice, unseen).
    cliff_workers: f64,
    fail_apply_at: Option<u32>,
    fail_measure_at: Option<u32>,
    fail_revert: bool,
    /// Settings above this are in a file that Puppet manages.
    managed_above: Option<i64>,
    /// Above so many workers in use the load is stopped: memory does not suffice, and that is seen.
    brake_workers: f64,
}

const PLENTY: Model = Model {
    users: 450.0,
    worker_time_s: 0.2,
    cpu_s_per_request: 0.0004,
    cores: 2.0,
    cliff_workers: 1e9,
    fail_apply_at: None,
    fail_measure_at: None,
    fail_revert: false,
    managed_above: None,
    brake_workers: 1e9,
};

/// The settings that are in force: what must never be worse than at the start, unless it was verified better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settings {
    workers: i64,
    server_limit: i64,
}

struct SimulatedStand {
    model: Model,
    now: Settings,
    before_marks: Vec<Settings>,
    kept: Option<Settings>,
    applies: u32,
    loads: u32,
    events: Vec<Event>,
    exported: Vec<u32>,
    random: u64,
}

impl SimulatedStand {
    fn new(model: Model, seed: u64) -> Self {
        let now = Settings { workers: 150, server_limit: 256 };
        Self {
            model,
            now,
            before_marks: vec![],
            kept: None,
            applies: 0,
            loads: 0,
            events: vec![],
            exported: vec![],
            random: seed | 1,
        }
    }

    /// xorshift64: enough randomness for noise of a few per cent.
    fn noise(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % 1000) as f64 / 1000.0 - 0.5
    }

    fn rate(&self) -> f64 {
        let workers = self.now.workers as f64;
        let by_workers = workers.min(self.model.users) / self.model.worker_time_s;
        let by_cpu = self.model.cores / self.model.cpu_s_per_request;
        let fits = if workers > self.model.cliff_workers { 0.5 } else { 1.0 };
        by_workers.min(by_cpu) * fits
    }

    fn interval(&mut self, second: u32) -> Interval {
        let rate = self.rate() * (1.0 + 0.02 * self.noise());
        let mut times = TimeHistogram::new();
        let response_us = self.model.users / rate * 1e6;
        (0..rate as u64).for_each(|_| times.record(response_us as u64));
        Interval {
            t_s: f64::from(second),
            length_us: 1_000_000,
            started: rate as u64,
            completed: rate as u64,
            in_flight: self.model.users as u64,
            in_flight_us: (rate as u64 as f64 * response_us) as u64,
            response_time: times.encode(),
            cpu_us: 100_000,
            cpu_us_max_thread: 100_000,
            ..Interval::default()
        }
    }

    fn samples(&self, second: f64) -> Vec<TimedSample> {
        let rate = self.rate();
        let busy = (rate * self.model.worker_time_s).min(self.now.workers as f64);
        let cpu = (rate * self.model.cpu_s_per_request / self.model.cores).min(1.0);
        let idle = if busy >= self.now.workers as f64 - 0.5 { 0.0 } else { 5.0 };
        let queue = (self.model.users - busy).max(0.0);
        let of = |source: &str, values: &[(&str, f64)]| TimedSample {
            t_s: second,
            sample: Sample {
                source: source.into(),
                duration_us: 10,
                values: values.iter().map(|(name, value)| ((*name).to_owned(), Number(*value))).collect(),
                error: None,
            },
        };
        let elapsed = 100.0 + second;
        vec![
            of(
                "cpu",
                &[
                    ("cpu.user_s", cpu * self.model.cores * elapsed),
                    ("cpu.idle_s", (1.0 - cpu) * self.model.cores * elapsed),
                    ("cpu.nice_s", 0.0),
                    ("cpu.system_s", 0.0),
                    ("cpu.irq_s", 0.0),
                    ("cpu.softirq_s", 0.0),
                    ("cpu.steal_s", 0.0),
                    ("cpu.cores_count", self.model.cores),
                    ("cpu.run_queue_count", if cpu >= 0.999 { 9.0 } else { 1.0 }),
                ],
            ),
            of(
                "sockets",
                &[("sockets.accept_queue_count", queue), ("sockets.accept_queue_max_count", 511.0)],
            ),
            of(
                "apache_status",
                &[
                    ("apache.slots_count", self.now.workers as f64),
                    ("apache.slots_open_count", 0.0),
                    ("apache.workers_idle_count", idle),
                    ("apache.workers_busy_count", busy),
                    ("apache.accesses_count", rate * elapsed),
                    ("apache.busy_duration_ms", rate * elapsed * self.model.worker_time_s * 1e3),
                ],
            ),
        ]
    }

    fn snapshot(&self) -> ServiceSnapshot {
        let setting = |value: i64| SettingInForce {
            configured: Some(SettingValue::Integer(value)),
            ..SettingInForce::default()
        };
        ServiceSnapshot {
            service: "apache".into(),
            pid: 1,
            executable: None,
            version: None,
            port: 80,
            mode: Some("prefork".into()),
            config_file: None,
            status_url: None,
            settings: [
                ("MaxRequestWorkers".to_owned(), setting(self.now.workers)),
                ("ServerLimit".to_owned(), setting(self.now.server_limit)),
            ]
            .into(),
            missing: vec![],
            warnings: vec![],
            pending: vec![],
            control: None,
        }
    }
}

fn brake() -> Brake {
    Brake {
        cause: BrakeCause::OutOfMemory,
        metric: "memory.oom_kills_count".into(),
        value: Number(1.0),
        limit: Number(1.0),
        text: "the kernel killed 1 process for want of memory".into(),
    }
}

fn workload(users: f64) -> Workload {
    Workload {
        requests: vec![],
        arrival: Arrival::Closed,
        stop: Stop { duration_us: None, requests: None },
        connections: users as u32,
        threads: None,
        timeout_us: 10_000_000,
        keepalive: false,
        ok_status: StatusSet::default(),
        expect: vec![],
        seed: 0,
    }
}

impl Stand for SimulatedStand {
    fn measure(&mut self, purpose: Purpose) -> Result<Measured> {
        self.loads += 1;
        if self.model.fail_measure_at == Some(self.loads) {
            return Err(UserError::interrupted());
        }
        let load = self.loads;
        self.record(EventBody::Service { snapshot: self.snapshot() })?;
        self.record(EventBody::LoadStart { load, purpose, workload: workload(self.model.users) })?;
        let begins_us = self.elapsed_us();
        for second in 0..12 {
            let interval = Box::new(self.interval(second));
            for timed in self.samples(f64::from(second) + 0.5) {
                let t_us = begins_us + (timed.t_s * 1e6) as u64;
                let body = EventBody::Sample { sample: timed.sample };
                self.events.push(Event { v: VERSION, seq: self.events.len() as u64, t_us, body });
            }
            self.record(EventBody::Interval { load, interval })?;
        }
        let end = LoadEnd {
            elapsed_us: 12_000_000,
            in_flight_at_end: self.model.users as u64,
            waiting_at_end: 0,
            censored_time: None,
            thread_cpu_us: vec![1_200_000],
            reason: webdyno_model::interval::EndReason::Enough,
        };
        if (self.now.workers as f64).min(self.model.users) > self.model.brake_workers {
            self.record(EventBody::Brake { load, brake: brake() })?;
        }
        self.record(EventBody::LoadEnd { load, end, measured_from_s: 0.0 })?;
        let mut recording = Recording::of(self.events.clone());
        recording.goal = None;
        let record = recording.load(load).cloned().ok_or_else(|| UserError::cannot_run("no load"))?;
        Ok(Measured { load, measurement: recording.measurement(&record) })
    }

    fn prepare(&mut self, wishes: &[Wish]) -> Result<RenderedPlan> {
        let change = |wish: &Wish| Change {
            service: wish.service.clone(),
            setting: wish.setting.clone(),
            from: None,
            to: wish.to.clone(),
            file: "/etc/apache2/x.conf".into(),
            class: if wish.setting == "ServerLimit" { ApplyClass::Restart } else { ApplyClass::Reload },
        };
        let changes: Vec<_> = wishes.iter().map(change).collect();
        let class = changes.iter().map(|change| change.class).max().unwrap_or(ApplyClass::Reload);
        let file = FileEdit {
            path: "/etc/apache2/x.conf".into(),
            before_sha256: None,
            before: None,
            after: String::new(),
        };
        let above = |wish: &Wish| {
            wish.to.number().zip(self.model.managed_above).is_some_and(|(to, above)| to > above as f64)
        };
        let owner =
            || Managed { path: file.path.clone(), by: "Puppet".into(), why: "it is in its catalog".into() };
        let managed: Vec<_> = wishes.iter().any(above).then(owner).into_iter().collect();
        let class = if managed.is_empty() { class } else { ApplyClass::Manual };
        Ok(RenderedPlan { changes, files: vec![file], class, diff: "+x".into(), managed })
    }

    fn apply(&mut self, plan: &RenderedPlan, allow_restart: bool) -> Result<Option<InForce>> {
        self.applies += 1;
        if self.model.fail_apply_at == Some(self.applies) {
            return Err(UserError::cannot_run("the reload failed"));
        }
        assert!(plan.managed.is_empty(), "a file of others was written");
        assert!(allow_restart || plan.class < ApplyClass::Restart, "a restart that was not allowed");
        self.before_marks.push(self.now);
        for change in &plan.changes {
            let SettingValue::Integer(to) = change.to else { panic!("not a number") };
            match change.setting.as_str() {
                "MaxRequestWorkers" => self.now.workers = to,
                "ServerLimit" => self.now.server_limit = to,
                other => panic!("unknown setting {other}"),
            }
        }
        Ok(Some(InForce { mark: self.before_marks.len() as u64, outage_us: None }))
    }

    fn revert(&mut self, mark: u64) -> Result<()> {
        if self.model.fail_revert {
            return Err(UserError::cannot_run("the reload failed while it was put back"));
        }
        self.now = self.before_marks[(mark as usize).max(1) - 1];
        Ok(())
    }

    fn keep(&mut self) -> Result<()> {
        self.kept = Some(self.now);
        Ok(())
    }

    fn export(&mut self, _: &RenderedPlan, round: &Round) {
        self.exported.push(round.n);
    }

    fn record(&mut self, body: EventBody) -> Result<()> {
        let t_us = self.elapsed_us();
        self.events.push(Event { v: VERSION, seq: self.events.len() as u64, t_us, body });
        Ok(())
    }

    fn elapsed_us(&self) -> u64 {
        u64::from(self.loads) * 15_000_000
    }
}

fn options(goal: Goal) -> Options {
    Options { goal, apply: true, allow_restart: true, budget_us: 600_000_000 }
}

fn run(model: Model, options: Options) -> (SimulatedStand, Result<Ended>) {
    let mut stand = SimulatedStand::new(model, 42);
    let ended = tune(&mut stand, options);
    (stand, ended)
}

#[test]
fn exhausted_workers_are_found_and_raised() {
    let (stand, ended) = run(PLENTY, options(Goal::Max));
    let ended = ended.unwrap();
    assert_eq!((ended.goal_met, ended.state), (true, TuneState::Applied));
    assert_eq!(stand.now, Settings { workers: 585, server_limit: 585 });
    assert_eq!(stand.kept, Some(stand.now));
    let recording = Recording::of(stand.events);
    let round = &recording.rounds[0].round;
    assert_eq!((round.finding.as_str(), round.kept), ("apache-workers-exhausted", true));
    let ratio = round.ratio.unwrap();
    assert!((2.9..3.1).contains(&ratio), "{ratio}");
    let crate::view::Outcome::Tune(report) = crate::view::View::of(&recording).unwrap().outcome else {
        panic!("no report")
    };
    assert_eq!(report.limit.as_deref(), Some("healthy"));
    assert!(report.improvement.ci95.unwrap()[0] > 1.5);
}

#[test]
fn a_goal_that_is_met_changes_nothing() {
    let (stand, ended) = run(PLENTY, options(Goal::Rate(500.0)));
    assert_eq!((ended.unwrap().goal_met, stand.applies), (true, 0));
}

#[test]
fn a_goal_beyond_the_hardware_is_not_met() {
    let slow = Model { cpu_s_per_request: 0.002, ..PLENTY };
    let (stand, ended) = run(slow, options(Goal::Rate(3000.0)));
    assert!(!ended.unwrap().goal_met);
    let recording = Recording::of(stand.events);
    let crate::view::Outcome::Tune(report) = crate::view::View::of(&recording).unwrap().outcome else {
        panic!("no report")
    };
    assert_eq!(report.limit.as_deref(), Some("cpu-saturated"));
}

#[test]
fn a_change_that_does_not_help_is_put_back() {
    let cliff = Model { cliff_workers: 300.0, users: 200.0, ..PLENTY };
    let worse = Model { cliff_workers: 160.0, ..cliff };
    let (stand, ended) = run(worse, options(Goal::Max));
    assert_eq!(ended.unwrap().state, TuneState::Reverted);
    assert_eq!((stand.now, stand.kept), (Settings { workers: 150, server_limit: 256 }, None));
    assert!(!Recording::of(stand.events).rounds[0].round.kept);
}

/// Three times as fast until the kernel kills: that is no gain.
#[test]
fn a_change_that_makes_the_load_do_harm_is_worse_and_put_back() {
    let (stand, ended) = run(Model { brake_workers: 200.0, ..PLENTY }, options(Goal::Max));
    assert_eq!(ended.unwrap().state, TuneState::Reverted);
    assert_eq!((stand.now, stand.kept), (Settings { workers: 150, server_limit: 256 }, None));
    let recording = Recording::of(stand.events);
    let rounds: Vec<_> = recording.rounds.iter().map(|record| &record.round).collect();
    assert!(!rounds.is_empty());
    for round in rounds {
        assert_eq!((round.verdict, round.kept), (Some(Verdict::Worse), false));
        assert_eq!(round.brake, Some(brake()));
    }
}

#[test]
fn when_every_load_does_harm_it_ends_with_the_finding() {
    for apply in [true, false] {
        let model = Model { brake_workers: 100.0, ..PLENTY };
        let (stand, ended) = run(model, Options { apply, ..options(Goal::Max) });
        assert_eq!((ended.unwrap().goal_met, stand.applies), (false, 0));
        let recording = Recording::of(stand.events);
        let crate::view::Outcome::Tune(report) = crate::view::View::of(&recording).unwrap().outcome else {
            panic!("no report")
        };
        assert_eq!(report.limit.as_deref(), Some("memory-exhausted"));
        assert_eq!(report.baseline.brake, Some(brake()));
        assert!(recording.notes[0].starts_with("every load that was tried did harm"));
    }
}

#[test]
fn a_plan_writes_nothing() {
    let (stand, ended) = run(PLENTY, Options { apply: false, ..options(Goal::Max) });
    assert_eq!((ended.unwrap().state, stand.applies), (TuneState::Planned, 0));
    assert_eq!(Recording::of(stand.events).rounds[0].round.verdict, None);
}

#[test]
fn without_leave_nothing_is_restarted() {
    let (stand, ended) = run(PLENTY, Options { allow_restart: false, ..options(Goal::Max) });
    // Up to the running ServerLimit a reload does; what is left after it needs the restart.
    assert_eq!((ended.unwrap().goal_met, stand.applies), (false, 1));
    assert_eq!(stand.kept, Some(Settings { workers: 256, server_limit: 256 }));
    assert!(Recording::of(stand.events).notes[0].contains("--allow-restart"));
}

#[test]
fn a_remedy_that_cannot_be_carried_out_is_told() {
    let (stand, ended) = run(Model { fail_apply_at: Some(1), ..PLENTY }, options(Goal::Max));
    // Up to the running ServerLimit there is another way, and it helped.
    assert_eq!(stand.kept, Some(Settings { workers: 256, server_limit: 256 }));
    // Either another remedy helped, or the refusal is the error; in both cases it stands in the notes.
    if let Err(error) = ended {
        assert_eq!(error.message, "the reload failed");
    }
    assert!(Recording::of(stand.events).notes[0].contains("the reload failed"));
}

#[test]
fn what_others_manage_is_proposed_and_the_next_remedy_tried() {
    // Above the running ServerLimit the file is Puppet's; up to it, it is not.
    let (stand, ended) = run(Model { managed_above: Some(256), ..PLENTY }, options(Goal::Max));
    let ended = ended.unwrap();
    assert_eq!((ended.goal_met, ended.state), (false, TuneState::Applied));
    assert_eq!(stand.kept, Some(Settings { workers: 256, server_limit: 256 }));
    let recording = Recording::of(stand.events);
    let rounds: Vec<_> = recording.rounds.iter().map(|record| &record.round).collect();
    let told: Vec<_> =
        rounds.iter().map(|round| (round.managed.len(), round.verdict.is_some(), round.kept)).collect();
    assert_eq!(told, [(1, false, false), (0, true, true)]);
    assert_eq!(stand.exported, [1, 2]);
    assert!(recording.notes[0].contains("/etc/apache2/x.conf is managed by Puppet (it is in its catalog): "));
    assert!(recording.notes[1].contains("--export"), "{:?}", recording.notes);
}

#[test]
fn when_all_is_managed_nothing_is_written() {
    for apply in [true, false] {
        let model = Model { managed_above: Some(0), ..PLENTY };
        let (stand, ended) = run(model, Options { apply, ..options(Goal::Rate(2000.0)) });
        let state = if apply { TuneState::Reverted } else { TuneState::Planned };
        let ended = ended.unwrap();
        assert_eq!((ended.goal_met, ended.state, stand.applies, stand.now.workers), (false, state, 0, 150));
        let recording = Recording::of(stand.events);
        // The best remedy of the finding, and not each lesser one.
        assert_eq!((recording.rounds.len(), stand.exported), (1, vec![1]));
        assert_eq!((recording.rounds[0].round.managed[0].by.as_str(), recording.loads.len()), ("Puppet", 1));
    }
}

#[test]
fn a_budget_that_is_used_up_ends_it() {
    let (stand, ended) = run(PLENTY, Options { budget_us: 0, ..options(Goal::Max) });
    assert_eq!((ended.unwrap().goal_met, stand.applies), (false, 0));
}

/// Invariant: whatever the server is like and wherever it fails, what is kept was verified better than the start, and
/// an error leaves nothing kept (the agent then puts back what is in force).
#[test]
fn seeded_sessions_never_keep_what_was_not_verified() {
    for seed in 0..300u64 {
        let pick = |shift: u32, of: u64| (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) % of;
        let model = Model {
            users: 50.0 + pick(8, 800) as f64,
            worker_time_s: 0.02 + pick(16, 40) as f64 / 100.0,
            cpu_s_per_request: 0.0001 + pick(24, 20) as f64 / 10_000.0,
            cores: 1.0 + pick(32, 8) as f64,
            cliff_workers: if pick(40, 3) == 0 { 151.0 + pick(42, 300) as f64 } else { 1e9 },
            fail_apply_at: (pick(50, 4) == 0).then_some(1 + pick(51, 2) as u32),
            fail_measure_at: (pick(52, 4) == 0).then_some(1 + pick(54, 3) as u32),
            fail_revert: pick(57, 5) == 0,
            managed_above: (pick(59, 4) == 0).then_some(200 + pick(60, 8) as i64 * 60),
            brake_workers: if pick(36, 4) == 0 { 100.0 + pick(44, 300) as f64 } else { 1e9 },
        };
        let mut stand = SimulatedStand::new(model.clone(), seed);
        let original = stand.now;
        let rate_before = stand.rate();
        let ended = tune(&mut stand, options(Goal::Max));
        match ended {
            Err(error) if error.message.contains("put back") => {
                // The agent tries again when it ends; until then the report must not claim that all is as it was.
                let end = Recording::of(stand.events).tune_end.unwrap();
                assert_eq!((end.state, stand.kept), (TuneState::Applied, None), "seed {seed}: {model:?}");
            }
            Err(_) => assert_eq!((stand.now, stand.kept), (original, None), "seed {seed}: {model:?}"),
            Ok(ended) if ended.state == TuneState::Applied => {
                assert_eq!(stand.kept, Some(stand.now), "seed {seed}: {model:?}");
                assert!(stand.rate() > rate_before, "seed {seed}: {model:?}");
                let in_use = (stand.now.workers as f64).min(model.users);
                assert!(in_use <= model.brake_workers, "seed {seed}: {model:?}");
            }
            Ok(_) => assert_eq!((stand.now, stand.kept), (original, None), "seed {seed}: {model:?}"),
        }
    }
}
