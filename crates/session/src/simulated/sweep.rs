//! Sweeps of a modelled server: what they find, what becomes of the original, and what a session measures that goes on with one that
//! was killed.

use crate::simulated::faults::{ActKind, Faults, KILLS};
use crate::simulated::files::Files;
use crate::simulated::load::{LoadModel, PLENTY};
use crate::simulated::machine::Machine;
use crate::simulated::operator::{Configuration, configuration};
use crate::simulated::random::Random;
use crate::simulated::recovery::{OperatorHabits, recover, recover_without_faults};
use crate::simulated::session::{machine, run_session_of};
use crate::simulated::target::{SimulatedTarget, live};
use crate::sweep::{Companion, SettingKnob, SweepKnob, SweepOrder, SweepTarget, recorded_report, sweep};
use std::collections::BTreeMap;
use webdyno_analysis::sweep::{AxisValues, SweepOptions, combinations};
use webdyno_model::environment::Environment;
use webdyno_model::harm_guard::HarmCause;
use webdyno_model::setting::SettingId;
use webdyno_model::sweep::{
    CONTENT, Knob, KnobValue, NOT_FOLLOWED, PAGE_CACHE, PageCache, STORE, StudyPlan, SweepPlan, SweepPoint,
    SweepReport,
};
use webdyno_model::workload::Workload;
use webdyno_model::{Result, UserError};

impl SweepTarget for SimulatedTarget {
    fn offer(&mut self, values: &[KnobValue]) -> Result<()> {
        // A study's contents differ in how many users they have.
        let number = |value: &KnobValue| match value {
            KnobValue::Word(word) => word.strip_suffix(" users").and_then(|number| number.parse().ok()),
            KnobValue::Number(number) => Some(*number),
        };
        let users = values.iter().rev().find_map(number);
        self.model.users = users.ok_or_else(|| UserError::usage("users are a number"))?;
        Ok(())
    }

    fn refuse_others(&mut self) -> Result<()> {
        if self.is_live { Err(UserError::cannot_run("others use the server")) } else { Ok(()) }
    }

    fn settle_page_cache(&mut self, _: PageCache) -> Result<Option<String>> {
        self.tool.act(ActKind::Other, || "drop the page cache".into(), |_, _| ());
        Ok(None)
    }

    fn wait_until_well(&mut self) -> Result<Option<String>> {
        let answers =
            self.tool.act(ActKind::Other, || "is it well?".into(), |state, _| state.server.is_running());
        Ok((!answers).then(|| "nothing listens on port 80".into()))
    }

    fn environment(&self) -> Option<Environment> {
        None
    }
}

/// What a server of some workers gives: 150 at first, with a ServerLimit of 256.
fn order(workers: &str, users: Option<&str>, carried: Vec<SweepPoint>) -> SweepOrder {
    let apache = |name: &str| SettingId::of_service("apache", name);
    let companion = Some(Companion { setting: apache("ServerLimit"), each: 1.0, now: 256.0 });
    let setting = SettingKnob { setting: apache("MaxRequestWorkers"), companion };
    let axis = |text: &str| AxisValues::parse(text).unwrap().0;
    let knob = |name: &str| Knob { name: name.into(), setting: None, unit: None };
    let mut order = SweepOrder {
        plan: SweepPlan {
            knobs: vec![knob("MaxRequestWorkers")],
            ranges: vec![workers.into()],
            objectives: vec![],
            workload: Workload::default(),
            repeat: 2,
            seed: 7,
            original: vec![Some(KnobValue::Number(150.0))],
            study: None,
        },
        knobs: vec![SweepKnob::Setting(Box::new(setting))],
        options: SweepOptions {
            axes: vec![axis(workers)],
            load_axes: vec![false, true],
            points: vec![],
            repeat: 2,
            seed: 7,
            budget_s: 1e9,
        },
        allow_restart: true,
        carried,
    };
    if let Some(users) = users {
        order.plan.knobs.push(knob("users"));
        order.knobs.push(SweepKnob::Load);
        order.options.axes.push(axis(users));
    }
    order
}

/// A study: two contents, one of which follows the store, with a cold page cache before each load.
fn study(carried: Vec<SweepPoint>) -> SweepOrder {
    let mut order = order("50,100", None, carried);
    let word = |text: &str| KnobValue::Word(text.into());
    let [workers, sizes] = [[50.0, 100.0], [1.0, 2.0]].map(|both| both.map(KnobValue::Number).to_vec());
    let contents = ["40 users", "80 users"].map(word).to_vec();
    for name in [STORE, PAGE_CACHE, CONTENT] {
        order.plan.knobs.push(Knob { name: name.into(), setting: None, unit: None });
        order.plan.original.push(None);
        order.knobs.push(if name == PAGE_CACHE { SweepKnob::PageCache } else { SweepKnob::Load });
    }
    let levels = vec![workers, sizes, vec![word("cold")], contents];
    let mut points = combinations(levels.clone());
    points
        .iter_mut()
        .filter(|point| point[3] == word("40 users"))
        .for_each(|point| point[1] = word(NOT_FOLLOWED));
    points.sort_by_key(|point| format!("{point:?}"));
    points.dedup();
    order.options.points = points;
    order.plan.study = Some(StudyPlan { levels, ..StudyPlan::default() });
    order
}

/// A sweep that nothing befalls, on a server of this model. The original is back after it.
fn swept(model: LoadModel, order: SweepOrder) -> (Result<SweepReport>, SimulatedTarget) {
    let machine = plain_machine(42);
    let before = files(&machine);
    let mut target = SimulatedTarget::new(&machine, model, 42);
    let ended = sweep(&mut target, order);
    target.close();
    assert_eq!(files(&machine), before);
    assert_eq!(machine.state().server.running().map(|now| now.workers), Some(150));
    assert_eq!(machine.state().violations, Vec::<String>::new());
    (ended, target)
}

/// One whose files are written without tricks.
fn plain_machine(seed: u64) -> Machine {
    let machine = machine(seed, false);
    machine.state().server.style = Default::default();
    machine
}

fn files(machine: &Machine) -> Configuration {
    let files = |files: &Files| configuration(files);
    files(&machine.state().files)
}

fn rates(report: &SweepReport) -> Vec<(Vec<f64>, Option<f64>)> {
    let numbers = |point: &SweepPoint| point.values.iter().filter_map(KnobValue::number).collect();
    report.points.iter().map(|point| (numbers(point), point.rate.map(f64::round))).collect()
}

#[test]
fn every_value_of_a_list_is_measured_with_its_repeats() {
    let (ended, target) = swept(PLENTY, order("50,100,300", None, vec![]));
    let report = ended.unwrap();
    // 0.2 s in a worker: 250/s of 50, 500/s of 100; 450 users and 300 workers: 1500/s.
    for (point, expected) in report.points.iter().zip([250.0, 500.0, 1500.0]) {
        assert!((point.rate.unwrap() / expected - 1.0).abs() < 0.02, "{point:?}");
        assert_eq!((point.loads.len(), point.ci95.is_some()), (2, true));
    }
    assert_eq!((target.loads, report.original.clone()), (6, Some(KnobValue::Number(150.0))));
    assert_eq!(target.recording.sweep, Some(report));
}

#[test]
fn a_range_is_measured_where_it_bends_and_its_plateau_is_found() {
    // Six workers for each core that computes a tenth of the time: 160 of them keep all cores busy.
    let model = LoadModel { cpu_s_per_request: 0.0025, cores: 2.0, ..PLENTY };
    let (ended, target) = swept(model, order("16..256", None, vec![]));
    let report = ended.unwrap();
    let choice = report.choice.unwrap();
    assert!((155.0..=256.0).contains(&choice), "{choice}: {:#?}", rates(&report));
    assert!(target.loads <= 22, "{} loads", target.loads);
}

#[test]
fn two_knobs_make_a_grid_with_a_best_point() {
    let (ended, target) = swept(PLENTY, order("50,100", Some("40,80"), vec![]));
    let report = ended.unwrap();
    assert_eq!(report.points.len(), 4);
    assert_eq!(report.best, Some(vec![KnobValue::Number(100.0), KnobValue::Number(80.0)]));
    assert_eq!((report.choice, target.loads), (None, 8));
}

#[test]
fn a_study_measures_each_point_in_its_state() {
    let (ended, target) = swept(PLENTY, study(vec![]));
    let report = ended.unwrap();
    // Of the content that does not follow the store there is one point for each number of workers.
    assert_eq!((report.points.len(), target.loads), (6, 12));
    let effects = report.study.unwrap().effects;
    let main = effects.iter().find(|one| one.axis == "MaxRequestWorkers" && one.at.len() == 1).unwrap();
    assert!(main.ratio > 0.9 && main.ci95.is_some(), "{main:?}");
}

#[test]
fn a_point_that_does_harm_is_marked_and_the_others_are_measured() {
    let model = LoadModel { harm_guard_workers: 200.0, ..PLENTY };
    let report = swept(model, order("50,100,300", None, vec![])).0.unwrap();
    let failed: Vec<bool> = report.points.iter().map(|point| point.failed.is_some()).collect();
    assert_eq!(failed, [false, false, true], "{report:#?}");
    let harm: Vec<_> = report.points.iter().map(|point| point.harm).collect();
    assert_eq!(harm, [None, None, Some(HarmCause::OutOfMemory)], "{report:#?}");
    assert_ne!(report.choice, Some(300.0));
}

#[test]
fn where_a_restart_is_not_permitted_a_point_that_needs_one_fails() {
    let restricted = SweepOrder { allow_restart: false, ..order("50,100,300", None, vec![]) };
    let report = swept(PLENTY, restricted).0.unwrap();
    let why = report.points[2].failed.clone().unwrap();
    assert!(why.contains("apache ServerLimit 300 needs a restart"), "{why}");
}

#[test]
fn others_who_use_the_server_end_it_before_anything_is_changed() {
    let machine = plain_machine(42);
    let mut target = SimulatedTarget::new(&machine, PLENTY, 42);
    target.is_live = true;
    assert!(sweep(&mut target, order("50,100", None, vec![])).is_err());
    assert_eq!((target.applies, target.loads), (0, 0));
}

/// What was measured of each point, beside what a session found before it.
fn loads_of(target: &SimulatedTarget) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for load in &target.recording.sweep_loads {
        *counts.entry(format!("{:?}", load.values)).or_default() += 1;
    }
    counts
}

#[test]
fn killed_anywhere_the_original_is_back_and_nothing_is_measured_twice() {
    killed_anywhere(&|carried| order("50,100,200", None, carried), 6);
}

#[test]
fn a_study_that_is_killed_anywhere_goes_on_as_well() {
    killed_anywhere(&study, 12);
}

/// Kills at every act of a sweep, of the tool, of its agent, of both in turn (each of them at every act with WEBDYNO_SEEDS): the
/// original is back after the next command, and a session that goes on measures no point again that was measured.
fn killed_anywhere(order: &dyn Fn(Vec<SweepPoint>) -> SweepOrder, loads: usize) {
    let acts = |machine: &Machine| machine.state().acts_count;
    let undisturbed = plain_machine(42);
    let mut target = SimulatedTarget::new(&undisturbed, PLENTY, 42);
    let begun = acts(&undisturbed);
    sweep(&mut target, order(vec![])).unwrap();
    let count = acts(&undisturbed) - begun;
    assert!(count > 100, "{count} acts");
    let mut was_resumed = 0;
    let is_whole = std::env::var_os("WEBDYNO_SEEDS").is_some();
    let all = (0..count).flat_map(|at| (0..KILLS.len()).map(move |victim| (at, victim)));
    let is_chosen = |(at, victim): &(u64, usize)| is_whole || (at % KILLS.len() as u64) as usize == *victim;
    for (at, victim) in all.filter(is_chosen) {
        let machine = plain_machine(42);
        let before = files(&machine);
        let mut target = SimulatedTarget::new(&machine, PLENTY, 42);
        machine.state().faults = Faults::kill(at, victim);
        let life = live(|| {
            let ended = sweep(&mut target, order(vec![]));
            target.close();
            ended
        });
        if life.is_none() {
            target.agent_reverts();
        }
        let (tool, agent) = (target.tool.name, machine.state().worker);
        let carried = target.recording.sweep_loads.clone();
        let measured: Vec<SweepPoint> = carried.into_iter().filter(|load| load.failed.is_none()).collect();
        assert_eq!(recorded_report(&target.recording).is_some(), !target.recording.sweep_loads.is_empty());
        drop(target);
        machine.state().end(tool);
        let habits = OperatorHabits { rolls_back: false, rolls_back_kept: false };
        let told = recover(&machine, vec![], agent, habits);
        recover_without_faults(&machine, told);
        let state = || format!("kill {victim} at {at}");
        assert_eq!(machine.state().violations, Vec::<String>::new(), "{}", state());
        assert_eq!(files(&machine), before, "{}", state());
        assert_eq!(machine.state().server.running().map(|now| now.workers), Some(150), "{}", state());

        machine.state().is_connected = true;
        let mut next = SimulatedTarget::new(&machine, PLENTY, 43);
        was_resumed += usize::from(!measured.is_empty());
        let found = sweep(&mut next, order(measured.clone())).unwrap();
        next.close();
        assert_eq!(next.loads as usize + measured.len(), loads, "{}", state());
        assert!(loads_of(&next).values().all(|count| *count == 2), "{}: {:?}", state(), loads_of(&next));
        assert!(found.points.iter().all(|point| point.loads.len() == 2), "{}", state());
        assert_eq!(files(&machine), before, "{}", state());
    }
    assert!(was_resumed > 100, "{was_resumed} sessions went on with something");
}

/// Sweeps of many seeds in which things go wrong: kills, full disks, a service that refuses, power that fails, other people's edits.
#[test]
fn whatever_goes_wrong_the_original_is_back() {
    fn work(target: &mut SimulatedTarget, random: &mut Random) -> Result<()> {
        target.is_live = false;
        let allowed = SweepOrder { allow_restart: !random.one_in(4), ..order("60,110,300", None, vec![]) };
        sweep(target, allowed).map(|_| ())
    }
    let mut wrong = vec![];
    for seed in 0..300 {
        let played = run_session_of(seed, false, work);
        if !played.violations.is_empty() {
            wrong.push((seed, played.violations));
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), wrong.iter().take(3).collect::<Vec<_>>());
}
