//! The simulated target: a tool and its agent on a modelled machine. What the rounds of tuning order is carried out by the
//! real code for changing a server.

use crate::recording::Recording;
use crate::simulated::faults::ActKind;
use crate::simulated::layout::STATE;
use crate::simulated::load::LoadModel;
use crate::simulated::machine::{Machine, MachineState, Process, ProcessEnded};
use crate::simulated::operator::configuration;
use crate::simulated::random::Random;
use crate::tuning_target::{AppliedChange, LoadMeasurement, TuningTarget};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use webdyno_host::change::action::OldFile;
use webdyno_host::change::journal::Owner;
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::journal::lines;
use webdyno_host::change::{Changer, StateDir, Tools};
use webdyno_host::services::Tunable;
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, RenderedPlan, SettingChange};
use webdyno_model::environment::Environment;
use webdyno_model::event::{Event, EventBody, VERSION};
use webdyno_model::purpose::Purpose;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::setting::SettingId;
use webdyno_model::tune::Round;
use webdyno_model::{Result, UserError};

/// What a process works with.
pub fn tools(process: &Process) -> Tools {
    Tools {
        helper: None,
        server: None,
        state: StateDir::at(STATE),
        disk: Arc::new(process.clone()),
        programs: Arc::new(process.clone()),
        system: Arc::new(process.clone()),
    }
}

/// The agent.
struct Agent {
    process: Process,
    changer: Changer,
    /// The service as it was read last.
    snapshot: Option<ServiceSnapshot>,
}

/// A tool at work.
pub struct SimulatedTarget {
    /// The tool's own process.
    pub tool: Process,
    agent: Option<Agent>,
    /// What the server gives to its users.
    pub model: LoadModel,
    random: Random,
    /// How many loads were made.
    pub loads: u32,
    /// How many changes were ordered.
    pub applies: u32,
    /// The load that fails, if any.
    pub fail_measure_at: Option<u32>,
    /// What was recorded.
    pub recording: Recording,
    /// The configuration at the moment at which it was ordered to be kept.
    pub kept: Option<BTreeMap<PathBuf, OldFile>>,
    /// The rounds whose plans were exported.
    pub exported: Vec<u32>,
    /// Whether others use the server.
    pub is_live: bool,
    /// Whether something was switched since the last load.
    was_switched: bool,
    /// Everything that a person was told.
    pub reported: Vec<String>,
}

/// An error as a person reads it.
pub fn error_text(error: &UserError) -> String {
    format!("{}\n{}", error.message, error.hint.as_deref().unwrap_or_default())
}

/// Runs a part of a process's life. `None` when the process ended within it.
pub fn live<T>(life: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(life)) {
        Ok(done) => Some(done),
        Err(payload) if payload.is::<ProcessEnded>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

fn tool_gone_error() -> UserError {
    UserError::cannot_run("the agent is gone")
}

/// A guardian to which nothing else happened than that its tool is gone leaves nothing to the next command.
fn check_guardian_reverted(state: &mut MachineState) {
    if state.faults_count > 1 || state.is_down {
        return;
    }
    let journals = state.files.durable_in(&Path::new(STATE).join("journals"));
    let has_unkept = |bytes: &[u8]| lines::read(bytes).is_ok_and(|(history, _, _)| history.has_unkept());
    let left: Vec<String> =
        journals.iter().filter(|(_, bytes)| has_unkept(bytes)).map(|(name, _)| (*name).to_owned()).collect();
    state.violations.extend(left.into_iter().map(|name| format!("its guardian did not put {name} back")));
}

impl SimulatedTarget {
    /// Starts tool and agent. The agent reads the service at once.
    pub fn new(machine: &Machine, model: LoadModel, seed: u64) -> Self {
        let (tool, process) = (machine.start(), machine.start());
        {
            let mut state = machine.state();
            (state.tool, state.worker) = (Some(tool.name), Some(process.name));
        }
        let owner = Owner { tool: Some(tool.name), what: "webdyno tune".into() };
        let changer = Changer::with(tools(&process), owner);
        let snapshot = machine.state().snapshot().ok();
        Self {
            tool,
            agent: Some(Agent { process, changer, snapshot }),
            model,
            random: Random::new(seed, 3),
            loads: 0,
            applies: 0,
            fail_measure_at: None,
            recording: Recording::default(),
            kept: None,
            exported: vec![],
            is_live: false,
            was_switched: false,
            reported: vec![],
        }
    }

    /// Asks the agent. When the tool ended meanwhile, this is its end, too.
    fn call_agent<T>(&mut self, question: impl FnOnce(&mut Agent) -> Result<T>) -> Result<T> {
        let agent = self.agent.as_mut().ok_or_else(tool_gone_error)?;
        let answer = live(|| question(agent));
        let name = agent.process.name;
        let hears = |state: &mut MachineState, _| state.is_connected && state.runs(name);
        let notes = agent.changer.take_notes();
        match answer.filter(|_| self.tool.act(ActKind::Other, || "hear the agent".into(), hears)) {
            Some(answer) => {
                self.reported.extend(notes);
                answer
            }
            None => {
                self.agent_reverts();
                Err(tool_gone_error())
            }
        }
    }

    /// What an agent does when it hears its tool no more: it puts everything back, and tells nobody.
    pub fn agent_reverts(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let name = agent.process.name;
            let is_sound = self.tool.machine().state().runs(name);
            live(|| drop(agent.changer.revert_all(ClosedBy::Guardian)));
            drop(agent);
            let mut state = self.tool.machine().state();
            if is_sound {
                check_guardian_reverted(&mut state);
            }
            if state.runs(name) {
                state.end(name);
            }
        }
    }

    /// What a tool does at its end.
    pub fn close(&mut self) {
        let ended = self.call_agent(|agent| agent.changer.revert_all(ClosedBy::Tool));
        self.reported.extend(ended.err().map(|error| error_text(&error)));
        if let Some(agent) = self.agent.take() {
            self.tool.machine().state().end(agent.process.name);
        }
        self.tool.machine().state().end(self.tool.name);
    }

    fn add(&mut self, t_us: u64, body: EventBody) {
        self.recording.add(Event { v: VERSION, seq: 0, t_us, body });
    }
}

impl Agent {
    fn refresh_snapshot(&mut self) {
        self.snapshot = self.process.machine().state().snapshot().ok().or(self.snapshot.take());
    }
}

impl TuningTarget for SimulatedTarget {
    fn measure(&mut self, purpose: Purpose) -> Result<LoadMeasurement> {
        self.loads += 1;
        if self.fail_measure_at == Some(self.loads) {
            return Err(UserError::interrupted());
        }
        let snapshot = self.call_agent(|agent| {
            agent.process.act(ActKind::Other, || "observe".into(), |state, _| state.snapshot())
        })?;
        let running = self.tool.machine().state().server.running();
        let settings = running.ok_or_else(|| UserError::cannot_run("the server does not answer"))?;
        let (load, begins_us, mut model) = (self.loads, self.elapsed_us(), self.model.clone());
        model.starts_cold &= std::mem::take(&mut self.was_switched);
        model.widen_table(self.tool.machine().state().has_setting("net.netfilter.nf_conntrack_max"));
        self.add(begins_us, EventBody::Service { snapshot: Box::new(snapshot.for_log()) });
        let (environment, collectors) = (Environment::default(), model.collectors());
        if !collectors.is_empty() {
            self.add(begins_us, EventBody::Server { host: None, environment, collectors });
        }
        self.add(
            begins_us,
            EventBody::LoadStart { load, purpose, workload: model.workload().into(), alone_us: None },
        );
        for second in 0..model.length_s {
            let interval = Box::new(model.interval(settings, (load, second), &mut self.random));
            let t_us = begins_us + u64::from(second) * 1_000_000 + 500_000;
            let memory = model.memory(settings);
            for sample in model.samples(settings, f64::from(second) + 0.5).into_iter().chain(memory) {
                self.add(t_us, EventBody::Sample { host: None, sample });
            }
            self.add(t_us + 500_000, EventBody::Interval { load, interval });
        }
        let end_us = begins_us + u64::from(model.length_s) * 1_000_000;
        let others = (model.stopped_by_others == load).then(LoadModel::with_others);
        let others = others.map(|(sample, trip)| {
            self.add(end_us, EventBody::Sample { host: None, sample });
            trip
        });
        if let Some(trip) = others.or_else(|| model.harm_guard_trip(settings)) {
            self.add(end_us, EventBody::Brake { load, brake: trip });
        }
        self.add(
            end_us,
            EventBody::LoadEnd {
                load,
                end: model.end(),
                measured_from_s: 0.0,
                warmup_why: None,
                measured_to_s: None,
            },
        );
        self.tool.act(
            ActKind::Other,
            || format!("load at {settings:?}"),
            |state, _| {
                state.clock_us += u64::from(model.length_s + 3) * 1_000_000;
            },
        );
        let record = self.recording.load(load).ok_or_else(|| UserError::cannot_run("no load"))?;
        Ok(LoadMeasurement { load, measurement: self.recording.measurement(record) })
    }

    fn prepare(&mut self, changes: &[SettingChange]) -> Result<Preparation> {
        // The model has no values that only run: a sysctl stands in the service's files.
        let of_service = |change: &SettingChange| SettingChange {
            setting: SettingId::of_service("apache", &change.setting.name),
            to: change.to.clone(),
        };
        let changes: Vec<_> = changes.iter().map(of_service).collect();
        self.call_agent(|agent| {
            let snapshot = agent.snapshot.as_ref().ok_or_else(tool_gone_error)?;
            let preparation = agent.process.prepare(snapshot, &changes)?;
            if let Preparation::Plan(plan) = &preparation {
                agent.changer.remember(plan);
            }
            Ok(preparation)
        })
    }

    fn apply(&mut self, plan: &RenderedPlan, allow_restart: bool) -> Result<Option<AppliedChange>> {
        self.applies += 1;
        self.was_switched = true;
        assert!(plan.managed.is_empty(), "a file of others was written");
        assert!(allow_restart || plan.class < ApplyClass::Restart, "a restart that was not allowed");
        let options = ApplyOptions { allow_restart, live_traffic: self.is_live, ..ApplyOptions::default() };
        let applied = self.call_agent(|agent| {
            let snapshot = agent.snapshot.clone().ok_or_else(tool_gone_error)?;
            let applied = agent.changer.apply(plan, &snapshot, &options);
            match &applied {
                Ok(applied) => agent.snapshot = Some(applied.snapshot.clone()),
                Err(_) => agent.refresh_snapshot(),
            }
            applied
        });
        let applied = applied?;
        Ok(Some(AppliedChange { mark: applied.mark, outage_us: applied.outage_us }))
    }

    fn revert(&mut self, mark: u64) -> Result<()> {
        self.was_switched = true;
        let is_live = self.is_live;
        let reverted = self.call_agent(|agent| {
            let reverted = agent.changer.revert(mark, is_live);
            agent.refresh_snapshot();
            reverted
        });
        reverted.map(|_| ())
    }

    fn keep(&mut self) -> Result<()> {
        self.kept = Some(configuration(&self.tool.machine().state().files));
        self.call_agent(|agent| agent.changer.keep())
    }

    fn export(&mut self, _: &RenderedPlan, round: &Round) {
        self.exported.push(round.n);
    }

    fn has_live_traffic(&self) -> bool {
        self.is_live
    }

    fn record(&mut self, body: EventBody) -> Result<()> {
        let t_us = self.elapsed_us();
        self.add(t_us, body);
        Ok(())
    }

    fn elapsed_us(&self) -> u64 {
        self.tool.machine().state().clock_us
    }
}
