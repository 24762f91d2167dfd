//! Sessions on two machines, each with an agent and a journal of its own: a front that can change nothing, and the server behind
//! it that limits.

use crate::rounds::{TuneOptions, tune};
use crate::several_hosts::{HostMarks, both};
use crate::simulated::checks::{Outcome, check};
use crate::simulated::faults::Faults;
use crate::simulated::layout::ConfigStyle;
use crate::simulated::load::{LoadModel, PLENTY};
use crate::simulated::machine::Machine;
use crate::simulated::operator::{Configuration, configuration};
use crate::simulated::recovery::{OperatorHabits, recover, recover_without_faults};
use crate::simulated::session::machine;
use crate::simulated::target::{SimulatedTarget, error_text, live, tools};
use crate::tuning_target::{AppliedChange, LoadMeasurement, TuningTarget};
use webdyno_host::change::undo::rollback::rollback_with;
use webdyno_model::Result;
use webdyno_model::change::{Preparation, RenderedPlan, SettingChange};
use webdyno_model::event::EventBody;
use webdyno_model::purpose::Purpose;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;
use webdyno_model::tune::{Goal, TuneState};

const ROLE: &str = "php";

/// The front and the host behind it. What is measured is the one behind.
struct TwoHosts {
    hosts: [SimulatedTarget; 2],
    marks: HostMarks,
}

/// Two machines, where the front cannot prepare values above this.
fn machines(front_up_to: Option<i64>, faults: Faults) -> [Machine; 2] {
    let both = [machine(42, false), machine(43, false)];
    let styles =
        [ConfigStyle { preparable_up_to: front_up_to, ..ConfigStyle::default() }, ConfigStyle::default()];
    for (machine, style) in both.iter().zip(styles) {
        let mut state = machine.state();
        (state.server.style, state.faults) = (style, Faults::none());
        state.operator.original = configuration(&state.files);
    }
    both[1].state().faults = faults;
    both
}

impl TwoHosts {
    fn new(machines: &[Machine; 2], model: &LoadModel, seed: u64) -> Self {
        let hosts = machines.each_ref().map(|machine| SimulatedTarget::new(machine, model.clone(), seed));
        Self { hosts, marks: HostMarks::default() }
    }

    /// As an agent hears it: the tool is gone.
    fn agents_revert(&mut self) {
        self.hosts.iter_mut().for_each(SimulatedTarget::agent_reverts);
    }

    fn close(&mut self) {
        self.hosts.iter_mut().for_each(SimulatedTarget::close);
    }

    /// Raises the workers of one of them. Gives the mark.
    fn raise(&mut self, host: usize, workers: i64) -> u64 {
        let setting = SettingId::of_service("apache", "MaxRequestWorkers");
        let change = SettingChange { setting, to: SettingValue::Integer(workers) };
        let plan = self.hosts[host].prepare(&[change]).and_then(Preparation::into_plan).unwrap();
        self.apply(&plan.on((host > 0).then_some(ROLE)), true).unwrap().unwrap().mark
    }
}

impl TuningTarget for TwoHosts {
    fn measure(&mut self, purpose: Purpose) -> Result<LoadMeasurement> {
        self.hosts[1].measure(purpose)
    }

    fn prepare(&mut self, changes: &[SettingChange]) -> Result<Preparation> {
        Ok(match self.hosts[0].prepare(changes)? {
            Preparation::NotPreparable { .. } => match self.hosts[1].prepare(changes)? {
                Preparation::Plan(plan) => Preparation::Plan(Box::new(plan.on(Some(ROLE)))),
                refused => refused,
            },
            plan => plan,
        })
    }

    fn apply(&mut self, plan: &RenderedPlan, allow_restart: bool) -> Result<Option<AppliedChange>> {
        let host = usize::from(plan.server() == Some(ROLE));
        self.marks.record_request(host);
        let applied = self.hosts[host].apply(&plan.clone().on(None), allow_restart)?;
        Ok(applied.map(|applied| AppliedChange { mark: self.marks.applied(host, applied.mark), ..applied }))
    }

    fn revert(&mut self, mark: u64) -> Result<()> {
        self.marks.revert(mark, |host, mark_there| self.hosts[host].revert(mark_there))
    }

    fn keep(&mut self) -> Result<()> {
        self.marks.keep(|host| self.hosts[host].keep())
    }

    fn record(&mut self, body: EventBody) -> Result<()> {
        self.hosts[1].record(body)
    }

    fn elapsed_us(&self) -> u64 {
        self.hosts[1].elapsed_us()
    }
}

fn workers(machine: &Machine) -> i64 {
    machine.state().server.running().unwrap().workers
}

fn files(machines: &[Machine; 2]) -> [Configuration; 2] {
    machines.each_ref().map(|machine| configuration(&machine.state().files))
}

fn options() -> TuneOptions {
    TuneOptions { goal: Goal::Max, apply: true, allow_restart: true, budget_us: 600_000_000 }
}

#[test]
fn what_the_front_cannot_prepare_is_changed_on_the_host_behind_it() {
    for (model, state, behind) in [
        (PLENTY, TuneState::Applied, 585),
        (LoadModel { cliff_workers: 160.0, users: 200.0, ..PLENTY }, TuneState::Reverted, 150),
    ] {
        let machines = machines(Some(0), Faults::none());
        let before = files(&machines);
        let mut hosts = TwoHosts::new(&machines, &model, 42);
        assert_eq!(tune(&mut hosts, options()).unwrap().state, state);
        hosts.close();
        assert_eq!(machines.each_ref().map(workers), [150, behind]);
        let [front, other] = files(&machines);
        assert_eq!((front == before[0], other == before[1]), (true, state == TuneState::Reverted));
        let round = &hosts.hosts[1].recording.rounds[0].round;
        assert!(round.changes.iter().all(|change| change.server.as_deref() == Some(ROLE)));
        assert!(round.diff.starts_with("# on the host php\n"), "{}", round.diff);
    }
}

#[test]
fn marks_name_the_state_of_both_and_a_failed_keep_leaves_the_originals() {
    let machines = machines(None, Faults::none());
    let before = files(&machines);
    let mut hosts = TwoHosts::new(&machines, &PLENTY, 42);
    hosts.raise(1, 200);
    let second = hosts.raise(0, 210);
    hosts.raise(1, 220);
    hosts.raise(0, 230);
    hosts.revert(second).unwrap();
    assert_eq!(machines.each_ref().map(workers), [150, 200]);
    hosts.raise(0, 240);
    hosts.keep().unwrap();
    // A later error, as a keep that failed somewhere: also what was kept already goes.
    hosts.revert(0).unwrap();
    assert_eq!(files(&machines), before);
    hosts.raise(1, 200);
    hosts.raise(0, 210);
    // The agent of the front is gone, and its guardian has put everything back.
    hosts.hosts[0].agent_reverts();
    let kept = hosts.keep();
    // Had it been gone a moment later, it would have kept: the other one keeps its room for that.
    assert!(both(kept, hosts.revert(0)).is_err());
    hosts.close();
    assert_eq!((&files(&machines)[0], machines.each_ref().map(workers)), (&before[0], [150, 200]));
    rollback_with(&tools(&machines[1].start())).unwrap();
    assert_eq!((files(&machines), workers(&machines[1])), (before, 150));
}

/// Whatever befalls the machine behind, each of the two ends with its original or with what was verified.
#[test]
fn sessions_with_faults_on_two_hosts_end_as_before_or_better() {
    let mut kept_count = 0;
    for seed in 0..400 {
        let machines = machines(Some(0), Faults::of(seed));
        let before = files(&machines);
        let mut hosts = TwoHosts::new(&machines, &PLENTY, seed);
        let mut reported = vec![];
        let life = live(|| {
            reported.extend(tune(&mut hosts, options()).err().map(|error| error_text(&error)));
            hosts.close();
        });
        if life.is_none() {
            hosts.agents_revert();
        }
        let kept = hosts.hosts[1].kept.take();
        let tools = hosts.hosts.each_ref().map(|host| host.tool.name);
        for host in &mut hosts.hosts {
            reported.append(&mut host.reported);
            reported.append(&mut host.recording.notes);
        }
        drop(hosts);
        for (at, machine) in machines.iter().enumerate() {
            let agent = {
                let mut state = machine.state();
                state.end(tools[at]);
                state.tool = None;
                state.worker
            };
            let habits = OperatorHabits { rolls_back: seed % 2 == 0, rolls_back_kept: false };
            let reported = recover(machine, reported.clone(), agent, habits);
            let reported = recover_without_faults(machine, reported);
            let kept = kept.as_ref().filter(|_| at == 1);
            let outcome = check(machine, [&before[at]; 2], kept, &PLENTY, &reported);
            let mut state = machine.state();
            assert_eq!(std::mem::take(&mut state.violations), Vec::<String>::new(), "seed {seed} host {at}");
            kept_count += u32::from(outcome == Outcome::Kept);
        }
    }
    assert!(kept_count > 40, "{kept_count}");
}
