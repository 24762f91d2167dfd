//! Sessions that nothing befalls, one by one, and thousands in which things go wrong.

use crate::recording::Recording;
use crate::rounds::{TuneEnding, TuneOptions, tune};
use crate::simulated::checks::Outcome;
use crate::simulated::faults::Faults;
use crate::simulated::layout::ConfigStyle;
use crate::simulated::load::{LoadModel, PLENTY};
use crate::simulated::operator::configuration;
use crate::simulated::server::EffectiveSettings;
use crate::simulated::session::{SimulatedSession, machine, run_session};
use crate::simulated::target::SimulatedTarget;
use crate::view::{Outcome as Shown, View};
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use webdyno_model::Result;
use webdyno_model::tune::{Goal, TuneReport, TuneState, Verdict};

/// How many sessions are played by `make test-all`, if [`SEEDS`] does not say otherwise.
const SEEDS_COUNT: u64 = 5_000;

/// Of these, `make test` plays the first ones.
const SEEDS_ALWAYS: u64 = 1_500;

/// The environment variable that says how many sessions are played.
const SEEDS: &str = "WEBDYNO_SEEDS";

/// The environment variable that plays one session and shows its acts.
const SEED: &str = "WEBDYNO_SEED";

const AT_FIRST: EffectiveSettings = EffectiveSettings { workers: 150, server_limit: 256 };

fn options(goal: Goal) -> TuneOptions {
    TuneOptions { goal, apply: true, allow_restart: true, budget_us: 600_000_000 }
}

/// A session that nothing befell.
struct UndisturbedRun {
    ended: Result<TuneEnding>,
    recording: Recording,
    /// What runs afterwards.
    running: EffectiveSettings,
    applies: u32,
    was_kept: bool,
    /// The rounds whose plans were exported.
    exported: Vec<u32>,
    /// Whether all files are as before.
    as_before: bool,
}

impl UndisturbedRun {
    fn report(&self) -> TuneReport {
        let Shown::Tune(report) = View::of(&self.recording).unwrap().outcome else { panic!("no report") };
        report
    }
}

fn run(model: LoadModel, options: TuneOptions) -> UndisturbedRun {
    run_on(model, options, ConfigStyle::default())
}

/// A session on a server whose settings are written so.
fn run_on(model: LoadModel, options: TuneOptions, style: ConfigStyle) -> UndisturbedRun {
    let machine = machine(42, false);
    {
        let mut state = machine.state();
        state.server.style = style;
        state.faults = Faults::none();
    }
    let before = configuration(&machine.state().files);
    let mut tuning_target = SimulatedTarget::new(&machine, model, 42);
    let ended = tune(&mut tuning_target, options);
    tuning_target.close();
    let state = machine.state();
    assert_eq!(state.violations, Vec::<String>::new());
    UndisturbedRun {
        ended,
        running: state.server.running().unwrap(),
        applies: tuning_target.applies,
        was_kept: tuning_target.kept.is_some(),
        as_before: before == configuration(&state.files),
        recording: tuning_target.recording,
        exported: tuning_target.exported,
    }
}

#[test]
fn exhausted_workers_are_found_and_raised() {
    let run = run(PLENTY, options(Goal::Max));
    let ended = run.ended.clone().unwrap();
    assert_eq!((ended.goal_met, ended.state), (true, TuneState::Applied));
    assert_eq!(run.running, EffectiveSettings { workers: 585, server_limit: 585 });
    assert!(run.was_kept);
    let round = &run.recording.rounds[0].round;
    assert_eq!((round.finding.as_str(), round.kept), ("apache-workers-exhausted", true));
    let ratio = round.ratio.unwrap();
    assert!((2.9..3.1).contains(&ratio), "{ratio}");
    let report = run.report();
    assert_eq!(report.limit.as_deref(), Some("healthy"));
    assert!(report.improvement.ci95.unwrap()[0] > 1.5);
}

#[test]
fn a_goal_that_is_met_changes_nothing() {
    let run = run(PLENTY, options(Goal::Rate(500.0)));
    assert_eq!((run.ended.unwrap().goal_met, run.applies, run.as_before), (true, 0, true));
}

#[test]
fn a_goal_beyond_the_hardware_is_not_met() {
    let slow = LoadModel { cpu_s_per_request: 0.002, ..PLENTY };
    let run = run(slow, options(Goal::Rate(3000.0)));
    assert!(!run.ended.as_ref().unwrap().goal_met);
    assert_eq!(run.report().limit.as_deref(), Some("cpu-saturated"));
}

#[test]
fn a_change_that_does_not_help_is_put_back() {
    let worse = LoadModel { cliff_workers: 160.0, users: 200.0, ..PLENTY };
    let run = run(worse, options(Goal::Max));
    assert_eq!(run.ended.unwrap().state, TuneState::Reverted);
    assert_eq!((run.running, run.was_kept, run.as_before), (AT_FIRST, false, true));
    assert!(!run.recording.rounds[0].round.kept);
}

/// Three times as fast until the kernel kills: that is no gain.
#[test]
fn a_change_that_makes_the_load_do_harm_is_worse_and_put_back() {
    let model = LoadModel { harm_guard_workers: 200.0, ..PLENTY };
    let run = run(model.clone(), options(Goal::Max));
    assert_eq!(run.ended.unwrap().state, TuneState::Reverted);
    assert_eq!((run.running, run.was_kept, run.as_before), (AT_FIRST, false, true));
    let rounds: Vec<_> = run.recording.rounds.iter().map(|record| &record.round).collect();
    assert!(!rounds.is_empty());
    for round in rounds {
        assert_eq!((round.verdict, round.kept), (Some(Verdict::Worse), false));
        assert_eq!(round.brake, model.harm_guard_trip(EffectiveSettings { workers: 256, ..AT_FIRST }));
    }
}

/// The load of a verification is stopped as somebody else's program fills the machine: that says nothing of the change.
#[test]
fn a_verification_that_others_end_is_looked_at_again() {
    let run = run(LoadModel { stopped_by_others: 2, ..PLENTY }, options(Goal::Max));
    assert_eq!(run.ended.as_ref().unwrap().state, TuneState::Applied);
    let first = &run.recording.rounds[0];
    assert_eq!(
        (first.round.verdict, first.round.kept, first.load_after),
        (Some(Verdict::Better), true, Some(3))
    );
    let note = &run.recording.notes[0];
    assert!(note.contains("stopped because memory is being swapped, but the service"), "{note}");
}

/// Too many workers for the memory: what was seen until the load was stopped tells how many fit.
#[test]
fn a_load_that_does_harm_leads_to_fewer_workers() {
    let model = LoadModel { harm_guard_workers: 100.0, shows_memory: true, ..PLENTY };
    let run = run(model.clone(), options(Goal::Max));
    assert_eq!(run.ended.as_ref().unwrap().state, TuneState::Applied);
    assert!(run.was_kept && run.running.workers <= 100 && run.running.workers >= 80, "{:?}", run.running);
    let round = &run.recording.rounds[0].round;
    assert_eq!(
        (round.verdict, round.kept, round.finding.as_str()),
        (Some(Verdict::Better), true, "memory-exhausted")
    );
    let report = run.report();
    assert_eq!((report.baseline.brake, report.best.brake), (model.harm_guard_trip(AT_FIRST), None));
    let only_planned = self::run(model, TuneOptions { apply: false, ..options(Goal::Max) });
    assert_eq!((only_planned.applies, only_planned.recording.rounds.len()), (0, 1));
}

#[test]
fn when_every_load_does_harm_it_ends_with_the_finding() {
    for apply in [true, false] {
        let model = LoadModel { harm_guard_workers: 100.0, ..PLENTY };
        let run = run(model.clone(), TuneOptions { apply, ..options(Goal::Max) });
        assert_eq!((run.ended.as_ref().unwrap().goal_met, run.applies), (false, 0));
        let report = run.report();
        assert_eq!(report.limit.as_deref(), Some("memory-exhausted"));
        assert_eq!(report.baseline.brake, model.harm_guard_trip(AT_FIRST));
        assert!(run.recording.notes[0].starts_with("every load that was tried did harm"));
    }
}

#[test]
fn that_a_lower_load_does_no_harm_is_no_answer_about_the_one_that_was_requested() {
    let harmed = run(LoadModel { harm_guard_workers: 100.0, ..PLENTY }, options(Goal::Max));
    let mut calm = run(LoadModel { users: 20.0, ..PLENTY }, options(Goal::Max));
    assert_eq!(calm.report().limit.as_deref(), Some("healthy"));
    let loads = &mut calm.recording.loads;
    loads.insert(0, harmed.recording.loads[0].clone());
    let lower = loads.len() as u32;
    loads.last_mut().unwrap().load = lower;
    let end = calm.recording.tune_end.as_mut().unwrap();
    (end.baseline_load, end.best_load, end.last_load) = (lower, lower, lower);
    assert_eq!(calm.report().limit.as_deref(), Some("memory-exhausted"));
}

/// Only a person can give the server a faster link; that its workers do not suffice is another limit.
#[test]
fn behind_what_only_a_person_can_lift_the_next_limit_is_lifted() {
    let model = LoadModel { has_slow_link: true, ..PLENTY };
    let run = run(model.clone(), options(Goal::Max));
    assert_eq!(run.ended.as_ref().unwrap().state, TuneState::Applied);
    assert_eq!((run.running.workers, run.was_kept), (585, true));
    let round = &run.recording.rounds[0].round;
    assert_eq!((round.finding.as_str(), round.kept), ("apache-workers-exhausted", true));
    assert_eq!(run.report().limit.as_deref(), Some("nic-negotiated-low"));
    let notes = &run.recording.notes;
    let told = |part: &str| notes.iter().filter(|note| note.contains(part)).count();
    assert_eq!(told("by hand: hardware link speed"), 1, "{notes:?}");
    assert_eq!(told("nic-negotiated-low is not lifted by this session: Interface eth0"), 1, "{notes:?}");
    assert!(notes.last().unwrap().contains("the first limit is still nic-negotiated-low"), "{notes:?}");
    // A second limit that does not help is put back.
    let worse = LoadModel { cliff_workers: 160.0, users: 200.0, ..model };
    let run = self::run(worse, options(Goal::Max));
    assert_eq!((run.ended.unwrap().state, run.running, run.as_before), (TuneState::Reverted, AT_FIRST, true));
}

/// More workers bring nothing, as they fill the table of connections; a larger table brings nothing by itself.
#[test]
fn where_the_next_limit_hides_a_gain_both_are_lifted_and_judged_together() {
    let model = LoadModel { table_workers: 150.0, ..PLENTY };
    let run = run(model, options(Goal::Max));
    let rounds: Vec<_> = run.recording.rounds.iter().map(|record| &record.round).collect();
    assert_eq!(
        run.ended.as_ref().unwrap().state,
        TuneState::Applied,
        "{rounds:#?} {:?}",
        run.recording.notes
    );
    let outcome = |at: usize| (rounds[at].finding.as_str(), rounds[at].verdict, rounds[at].kept);
    assert_eq!(outcome(0), ("apache-workers-exhausted", Some(Verdict::Same), false));
    assert_eq!(outcome(1), ("conntrack-full", Some(Verdict::Better), true));
    let changed: Vec<_> = rounds[1].changes.iter().map(|change| change.setting.name.as_str()).collect();
    assert_eq!(changed, ["net.netfilter.nf_conntrack_max", "MaxRequestWorkers", "ServerLimit"]);
    assert_eq!((run.running.workers, rounds.len(), &run.exported[..]), (585, 2, &[2][..]));
    let told = "with this change conntrack-full limits, which may hide what it brings";
    assert!(run.recording.notes.iter().any(|note| note.starts_with(told)), "{:?}", run.recording.notes);
}

/// A rate that was measured once, and not again when all changes were measured together, is no goal that is met.
#[test]
fn a_goal_that_is_not_met_when_all_is_measured_afresh_is_not_met() {
    for (afresh, state) in
        [(&[1.0, 1.0, 1.0, 0.8], TuneState::Applied), (&[1.0, 1.0, 1.0, 0.3], TuneState::Reverted)]
    {
        let model = LoadModel { table_workers: 150.0, drift: afresh, ..PLENTY };
        let run = run(model, options(Goal::Rate(2000.0)));
        let (ended, notes) = (run.ended.as_ref().unwrap(), &run.recording.notes);
        assert_eq!((ended.goal_met, ended.state), (false, state), "{notes:?}");
        assert!(notes.iter().any(|note| note.starts_with("the goal was met once, and not")), "{notes:?}");
        assert!(run.report().best.rate.unwrap() < 2000.0);
    }
}

/// Seconds that go up and down by a third hide a gain of a half from one look, and not from several pairs.
#[test]
fn what_one_look_does_not_tell_is_switched_off_and_on_again() {
    let model = LoadModel { users: 190.0, wobble: 0.3, ..PLENTY };
    let run = run(model.clone(), options(Goal::Max));
    let round = &run.recording.rounds[0].round;
    assert_eq!((round.verdict, round.kept), (Some(Verdict::Better), true), "{round:?}");
    assert!(round.pairs.is_some_and(|pairs| pairs >= 2), "{round:?}");
    assert_eq!(round.noise_floor, Some(0.1));
    assert!(run.applies >= 2 && run.was_kept && run.running.workers > 200);
    // With no time for it the same is put back.
    let hurried = TuneOptions { budget_us: 40_000_000, ..options(Goal::Max) };
    let run = self::run(model, hurried);
    assert_eq!((run.applies, run.as_before), (1, true));
    assert_eq!(run.recording.rounds[0].round.pairs, None);
}

/// Where each switch starts a pool anew, the original had as long to start as the change: 750 requests a second, and not half of that.
#[test]
fn an_original_is_measured_as_warm_as_the_change() {
    let run = run(LoadModel { users: 190.0, wobble: 0.3, starts_cold: true, ..PLENTY }, options(Goal::Max));
    let round = &run.recording.rounds[0].round;
    assert!(round.pairs.is_some_and(|pairs| pairs >= 2), "{round:?}");
    assert_eq!((round.verdict, round.kept), (Some(Verdict::Better), true), "{round:?}");
    assert!((700.0..800.0).contains(&round.before.unwrap()), "{round:?}");
}

/// A machine that gets slower for a while is no reason to believe in a change, nor to give it up: be it before the change, or while the
/// original is measured again.
#[test]
fn a_pair_in_which_the_machine_changed_is_discarded() {
    let slow: [&'static [f64]; 2] = [&[0.4, 0.4], &[1.0, 1.0, 0.4]];
    for drift in slow {
        let run = run(LoadModel { users: 190.0, wobble: 0.3, drift, ..PLENTY }, options(Goal::Max));
        let notes = &run.recording.notes;
        assert!(notes.iter().any(|note| note.starts_with("a pair of loads was discarded: ")), "{notes:?}");
        let round = &run.recording.rounds[0].round;
        assert!(round.before.unwrap() > 600.0, "{round:?}");
    }
}

/// Where each of many workers makes all others slower, fewer are faster: found by a search, and never by less than the noise.
#[test]
fn past_the_peak_a_search_finds_the_smallest_value_that_is_as_good() {
    let past = LoadModel { crosstalk: 0.02, cpu_s_per_request: 0.001, worker_time_s: 0.02, ..PLENTY };
    let run = run(past.clone(), options(Goal::Max));
    let ended = run.ended.as_ref().unwrap();
    assert_eq!((ended.goal_met, ended.state), (true, TuneState::Applied));
    let rounds: Vec<_> = run.recording.rounds.iter().map(|record| &record.round).collect();
    let tried: Vec<_> = rounds.last().unwrap().search.iter().map(|point| point.value).collect();
    assert_eq!(tried, [150, 75, 38, 19, 27]);
    assert_eq!(run.running.workers, 27);
    assert!(rounds[0].summary.contains("A search: apache MaxRequestWorkers"), "{}", rounds[0].summary);
    assert!(rounds.iter().all(|round| round.finding == "cpu-saturated"));
    assert!(run.recording.notes.iter().any(|note| note.contains("27 stays, the smallest within 3%")));
    // A goal that is a figure wants no more, and a flat curve has no peak.
    let run = self::run(past.clone(), options(Goal::Rate(1e6)));
    assert_eq!((run.applies, run.as_before), (0, true));
    let flat = LoadModel { crosstalk: 1e-9, ..past };
    let run = self::run(flat, options(Goal::Max));
    assert_eq!((run.recording.rounds.len(), run.as_before), (1, true));
    assert!(run.recording.notes[0].contains("nothing gave more"), "{:?}", run.recording.notes);
}

#[test]
fn a_plan_writes_nothing() {
    let run = run(PLENTY, TuneOptions { apply: false, ..options(Goal::Max) });
    assert_eq!((run.ended.unwrap().state, run.applies, run.as_before), (TuneState::Planned, 0, true));
    assert_eq!(run.recording.rounds[0].round.verdict, None);
}

#[test]
fn without_leave_nothing_is_restarted() {
    let run = run(PLENTY, TuneOptions { allow_restart: false, ..options(Goal::Max) });
    // Up to the running ServerLimit a reload does; what is left after it needs the restart.
    assert_eq!((run.ended.unwrap().goal_met, run.applies), (false, 1));
    assert_eq!((run.running, run.was_kept), (EffectiveSettings { workers: 256, server_limit: 256 }, true));
    assert!(run.recording.notes[0].contains("--allow-restart"));
}

#[test]
fn a_remedy_that_cannot_be_carried_out_is_told() {
    let run =
        run_on(PLENTY, options(Goal::Max), ConfigStyle { refuses_restart: true, ..ConfigStyle::default() });
    // Up to the running ServerLimit there is another way, and it helped.
    assert_eq!((run.running, run.was_kept), (EffectiveSettings { workers: 256, server_limit: 256 }, true));
    assert!(run.recording.notes[0].contains("it did not do what it was told"), "{:?}", run.recording.notes);
}

#[test]
fn a_remedy_that_nobody_can_prepare_is_for_a_person_and_the_next_one_tried() {
    let run = run_on(
        PLENTY,
        options(Goal::Max),
        ConfigStyle { preparable_up_to: Some(256), ..ConfigStyle::default() },
    );
    let ended = run.ended.clone().unwrap();
    assert_eq!((ended.goal_met, ended.state), (true, TuneState::Applied));
    assert_eq!((run.running, run.was_kept), (EffectiveSettings { workers: 256, server_limit: 256 }, true));
    let expected = "manual change: apache MaxRequestWorkers 585, apache ServerLimit 585: it cannot set MaxRequestWorkers";
    assert_eq!(run.recording.notes, [expected]);
    // What could not be prepared was no round.
    assert_eq!((run.recording.rounds.len(), run.recording.rounds[0].round.n), (1, 1));
}

#[test]
fn when_nobody_can_prepare_any_remedy_it_ends_well() {
    let style = ConfigStyle { preparable_up_to: Some(0), ..ConfigStyle::default() };
    for (apply, goal, goal_met) in
        [(true, Goal::Max, true), (false, Goal::Max, true), (true, Goal::Rate(2000.0), false)]
    {
        let run = run_on(PLENTY, TuneOptions { apply, ..options(goal) }, style);
        let state = if apply { TuneState::Reverted } else { TuneState::Planned };
        let ended = run.ended.clone().unwrap();
        assert_eq!((ended.goal_met, ended.state, run.applies, run.as_before), (goal_met, state, 0, true));
        assert_eq!(run.report().limit.as_deref(), Some("apache-workers-exhausted"));
        let notes = &run.recording.notes;
        assert!(
            notes.len() == 2 && notes.iter().all(|note| note.starts_with("manual change: ")),
            "{notes:?}"
        );
    }
}

/// A server of which values above this are in files that Puppet manages.
fn managed_above(value: i64) -> ConfigStyle {
    ConfigStyle { managed_above: Some(value), ..ConfigStyle::default() }
}

#[test]
fn what_others_manage_is_proposed_and_the_next_remedy_tried() {
    // Above the running ServerLimit the file is Puppet's; up to it, it is not.
    let run = run_on(PLENTY, options(Goal::Max), managed_above(256));
    let ended = run.ended.unwrap();
    assert_eq!((ended.goal_met, ended.state), (false, TuneState::Applied));
    assert_eq!((run.running, run.was_kept), (EffectiveSettings { workers: 256, server_limit: 256 }, true));
    let rounds: Vec<_> = run.recording.rounds.iter().map(|record| &record.round).collect();
    let reported: Vec<_> =
        rounds.iter().map(|round| (round.managed.len(), round.verdict.is_some(), round.kept)).collect();
    assert_eq!(reported, [(1, false, false), (0, true, true)]);
    assert_eq!(run.exported, [1, 2]);
    let notes = &run.recording.notes;
    assert!(notes[0].contains(".conf is managed by Puppet (it is in its catalog): "), "{notes:?}");
    assert!(notes[1].contains("--export"), "{notes:?}");
}

#[test]
fn when_all_is_managed_nothing_is_written() {
    for apply in [true, false] {
        let run = run_on(PLENTY, TuneOptions { apply, ..options(Goal::Rate(2000.0)) }, managed_above(0));
        let state = if apply { TuneState::Reverted } else { TuneState::Planned };
        let ended = run.ended.unwrap();
        assert_eq!((ended.goal_met, ended.state, run.applies, run.as_before), (false, state, 0, true));
        // The best remedy of the finding, and not each lesser one.
        assert_eq!((run.recording.rounds.len(), run.exported), (1, vec![1]));
        let round = &run.recording.rounds[0].round;
        assert_eq!((round.managed[0].by.as_str(), run.recording.loads.len()), ("Puppet", 1));
    }
}

#[test]
fn a_budget_that_is_used_up_ends_it() {
    let run = run(PLENTY, TuneOptions { budget_us: 0, ..options(Goal::Max) });
    assert_eq!((run.ended.unwrap().goal_met, run.applies), (false, 0));
}

/// However a session and the commands after it are struck, the server ends with the configuration that it had, or with
/// one that was verified better; and nothing is written before its undo is on the disk.
#[test]
fn struck_sessions_end_as_before_or_better() {
    if let Ok(seed) = std::env::var(SEED) {
        let simulated = run_session(seed.parse().unwrap(), true);
        simulated.trace.iter().for_each(|line| println!("{line}"));
        assert_eq!(simulated.violations, Vec::<String>::new());
        return;
    }
    let seeds_count = std::env::var(SEEDS).map_or_else(|_| chosen_count(), |count| count.parse().unwrap());
    let next = AtomicU64::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut totals = SimulationTotals::default();
    std::thread::scope(|scope| {
        let work = || {
            let mut totals = SimulationTotals::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds_count {
                    return totals;
                }
                totals.add(seed, catch_unwind(AssertUnwindSafe(|| run_session(seed, false))));
            }
        };
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| totals.merge(worker.join().unwrap()));
    });
    println!("{totals:?}");
    totals.assert();
}

/// How many sessions are played; scripts/test lists those that are left out.
fn chosen_count() -> u64 {
    if std::env::var_os("WEBDYNO_TEST_ALL").is_some_and(|value| !value.is_empty()) {
        return SEEDS_COUNT;
    }
    if let Some(path) = std::env::var_os("WEBDYNO_LEFT_OUT") {
        let line = format!("{} sessions that are played and struck\n", SEEDS_COUNT - SEEDS_ALWAYS);
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
    SEEDS_ALWAYS
}

/// What many sessions add up to.
#[derive(Debug, Default)]
struct SimulationTotals {
    outcomes: BTreeMap<Outcome, u64>,
    acts_count: u64,
    faults_count: u64,
    /// By seed.
    failures: BTreeMap<u64, String>,
}

impl SimulationTotals {
    fn add(&mut self, seed: u64, played: std::thread::Result<SimulatedSession>) {
        let Ok(played) = played else {
            self.failures.insert(seed, "it panicked".into());
            return;
        };
        *self.outcomes.entry(played.outcome).or_default() += 1;
        self.acts_count += played.acts_count;
        self.faults_count += played.faults_count;
        if !played.violations.is_empty() {
            self.failures.insert(seed, played.violations.join("; "));
        }
    }

    fn merge(&mut self, other: Self) {
        for (outcome, count) in other.outcomes {
            *self.outcomes.entry(outcome).or_default() += count;
        }
        self.acts_count += other.acts_count;
        self.faults_count += other.faults_count;
        self.failures.extend(other.failures);
    }

    fn assert(&self) {
        if let Some((seed, what)) = self.failures.first_key_value() {
            panic!(
                "{} sessions ended badly, the first with seed {seed}: {what}\n\
                 its acts: {SEED}={seed} cargo test -p webdyno-session simulated -- --nocapture",
                self.failures.len()
            );
        }
    }
}
