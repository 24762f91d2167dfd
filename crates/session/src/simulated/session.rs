//! One simulated session from a seed: a tuning in which things go wrong, whatever the next commands make of it, and then
//! the look at what is left.

use crate::rounds::{TuneOptions, tune};
use crate::simulated::checks::{Outcome, check};
use crate::simulated::faults::Faults;
use crate::simulated::files::Files;
use crate::simulated::layout::{ConfigStyle, ETC};
use crate::simulated::load::LoadModel;
use crate::simulated::machine::Machine;
use crate::simulated::operator::{Configuration, Operator, configuration, original};
use crate::simulated::random::Random;
use crate::simulated::recovery::{OperatorHabits, recover, recover_without_faults};
use crate::simulated::target::{SimulatedTarget, error_text, live, tools};
use webdyno_host::change::Changer;
use webdyno_host::change::journal::Owner;
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::os::process::ProcessName;
use webdyno_host::services::Tunable;
use webdyno_model::Result;
use webdyno_model::change::{ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;
use webdyno_model::tune::Goal;

/// What became of a session.
pub struct SimulatedSession {
    /// What must not be, one line each.
    pub violations: Vec<String>,
    /// Everything that happened, when it was asked for.
    pub trace: Vec<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// How many acts it had.
    pub acts_count: u64,
    /// How many of them were struck.
    pub faults_count: u64,
}

/// A machine with its files, before anything happens.
pub fn machine(seed: u64, traced: bool) -> Machine {
    let mut random = Random::new(seed, 4);
    let folders =
        ["/", "/etc", ETC, "/etc/apache2/mods-enabled", "/etc/apache2/conf-enabled", "/var", "/var/lib"];
    let folders = [&folders[..], &["/etc/systemd", "/etc/systemd/system"]].concat();
    let mut files = Files::new(&folders, random.one_in(2));
    let original = original(random.one_in(2));
    for (path, file) in &original {
        files.write_durable(path, Some(file.clone()));
    }
    let operator = Operator { original, ..Operator::default() };
    let machine = Machine::new(files, operator, Faults::none(), traced);
    {
        let mut state = machine.state();
        state.has_init = random.one_in(2);
        state.has_shadow = random.one_in(2);
        state.server.style = ConfigStyle {
            workers_in_place: random.one_in(2),
            limit_in_place: random.one_in(2),
            refuses_restart: false,
            managed_above: random.one_in(6).then(|| 200 + random.below(8) as i64 * 60),
            poison: random.one_in(8).then(|| *random.pick(&ConfigStyle::POISONS)),
            ..ConfigStyle::default()
        };
    }
    machine
}

/// What a session does. `random` decides what it may.
pub type Work = fn(&mut SimulatedTarget, random: &mut Random) -> Result<()>;

/// Plays a tuning.
pub fn run_session(seed: u64, traced: bool) -> SimulatedSession {
    run_session_of(seed, traced, run_tuning)
}

/// Plays a session that does this.
pub fn run_session_of(seed: u64, traced: bool, work: Work) -> SimulatedSession {
    let machine = machine(seed, traced);
    let mut random = Random::new(seed, 5);
    let first = configuration(&machine.state().files);
    if random.one_in(6) {
        run_kept_session(&machine);
    }
    let before = configuration(&machine.state().files);
    machine.state().operator.original.clone_from(&before);
    machine.state().faults = Faults::of(seed);
    let model = LoadModel::of(seed);
    let (report_text, kept, agent) = run_work(&machine, &model, seed, work);
    if machine.state().faults_count == 0 {
        ended_well(&machine, &before, kept.as_ref());
    }
    let habits = OperatorHabits { rolls_back: random.one_in(2), rolls_back_kept: random.one_in(3) };
    let report_text = recover(&machine, report_text, agent, habits);
    let report_text = recover_without_faults(&machine, report_text);
    let outcome = check(&machine, [&first, &before], kept.as_ref(), &model, &report_text);
    let mut state = machine.state();
    SimulatedSession {
        violations: std::mem::take(&mut state.violations),
        trace: state.trace.take().unwrap_or_default(),
        outcome,
        acts_count: state.acts_count,
        faults_count: state.faults_count,
    }
}

/// A session that nothing befell leaves the server as it was or as it kept it: nobody has to come after it.
fn ended_well(machine: &Machine, before: &Configuration, kept: Option<&Configuration>) {
    let mut state = machine.state();
    let now = configuration(&state.files);
    if now != *before && Some(&now) != kept {
        state.violations.push(format!("nothing befell it, and it left its changes: {now:?}"));
    }
    if state.is_locked() {
        state.violations.push("nothing befell it, and its lock is held".into());
    }
}

/// An earlier session whose change was kept, and that nothing befell.
fn run_kept_session(machine: &Machine) {
    let process = machine.start();
    let snapshot = machine.state().snapshot().unwrap();
    let style = std::mem::take(&mut machine.state().server.style);
    let more = SettingChange {
        setting: SettingId::of_service("apache", "MaxRequestWorkers"),
        to: SettingValue::Integer(160),
    };
    let plan = process.prepare(&snapshot, &[more]).and_then(Preparation::into_plan).unwrap();
    let mut changer = Changer::with(tools(&process), Owner { tool: None, what: "webdyno tune".into() });
    changer.apply(&plan, &snapshot, &ApplyOptions::default()).unwrap();
    changer.keep().unwrap();
    changer.end(ClosedBy::Tool).unwrap();
    drop(changer);
    let mut state = machine.state();
    state.end(process.name);
    state.server.style = style;
}

/// The session itself: what a person was told, the configuration that was to be kept, and the agent.
fn run_work(
    machine: &Machine,
    model: &LoadModel,
    seed: u64,
    work: Work,
) -> (Vec<String>, Option<Configuration>, Option<ProcessName>) {
    let mut random = Random::new(seed, 6);
    let mut tuning_target = SimulatedTarget::new(machine, model.clone(), seed);
    tuning_target.is_live = random.one_in(4);
    machine.state().is_live = tuning_target.is_live;
    tuning_target.fail_measure_at = random.one_in(8).then(|| 1 + random.below(3) as u32);
    let life = live(|| {
        let ended = work(&mut tuning_target, &mut random);
        tuning_target.reported.extend(ended.err().map(|error| error_text(&error)));
        tuning_target.close();
    });
    if life.is_none() {
        tuning_target.agent_reverts();
    }
    let mut report_text = std::mem::take(&mut tuning_target.reported);
    report_text.append(&mut tuning_target.recording.notes);
    let (tool, kept) = (tuning_target.tool.name, tuning_target.kept.take());
    drop(tuning_target);
    let mut state = machine.state();
    state.end(tool);
    state.tool = None;
    (report_text, kept, state.worker)
}

fn run_tuning(target: &mut SimulatedTarget, random: &mut Random) -> Result<()> {
    let goal = if random.one_in(4) { Goal::Rate(1000.0) } else { Goal::Max };
    let options = TuneOptions { goal, apply: true, allow_restart: !random.one_in(5), budget_us: 600_000_000 };
    tune(target, options).map(|_| ())
}
