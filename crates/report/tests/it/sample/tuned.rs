//! Tuning sessions: applied, planned, put back.

use super::{ceilings, exhausted, load, machine, run, service, view};
use webdyno_model::change::{ApplyClass, Change, JournalPlace, ManagedFile};
use webdyno_model::diagnosis::{Finding, Predicted};
use webdyno_model::harm_guard::{HarmCause, HarmGuardTrip};
use webdyno_model::number::Number;
use webdyno_model::purpose::Purpose;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;
use webdyno_model::tune::{Goal, Improvement, Round, TuneReport, TuneState, Verdict};
use webdyno_session::recording::{AppliedPlan, PlanAttempt, Reverted};
use webdyno_session::view::{Outcome, SessionEnd, View};

pub fn change(setting: &str, from: i64, to: i64, class: ApplyClass) -> Change {
    Change {
        setting: SettingId::of_service("apache", setting),
        from: Some(SettingValue::Integer(from)),
        to: SettingValue::Integer(to),
        file: "/tmp/quick/conf.d/zz-webdyno.conf".into(),
        class,
        server: None,
    }
}

pub fn round() -> Round {
    Round {
        n: 1,
        finding: "apache-workers-exhausted".into(),
        summary: exhausted().summary,
        changes: vec![
            change("MaxRequestWorkers", 20, 64, ApplyClass::Restart),
            change("ServerLimit", 20, 64, ApplyClass::Restart),
        ],
        risk: Some(exhausted().remedies[0].risk.clone()),
        predicted: Some(Predicted { rate: 2100.0, ci95: [1800.0, 2300.0] }),
        before: Some(750.2),
        after: Some(2190.4),
        ratio: Some(2.92),
        ci95: Some([2.81, 3.02]),
        verdict: Some(Verdict::Better),
        kept: true,
        outage_us: Some(412_000),
        diff: "--- /tmp/quick/conf.d/zz-webdyno.conf\n+++ /tmp/quick/conf.d/zz-webdyno.conf\n@@ -0,0 +1,2 @@\n+ServerLimit 64\n+MaxRequestWorkers 64\n".into(),
        ..Round::default()
    }
}

pub fn tune(state: TuneState, rounds: Vec<Round>) -> TuneReport {
    let best = if state == TuneState::Applied { run(2190.4, 22_000.0) } else { run(750.2, 66_000.0) };
    TuneReport {
        schema: webdyno_model::tune::SCHEMA.into(),
        goal: Goal::Max,
        goal_met: state == TuneState::Applied,
        limit: Some("cpu-saturated".into()),
        limit_summary: Some("Both cores do useful work 98% of the time.".into()),
        baseline: run(750.2, 66_000.0),
        best,
        improvement: Improvement { metric: "rate".into(), ratio: Some(2.92), ci95: Some([2.81, 3.02]) },
        rounds,
        state,
        ceilings: ceilings(),
        live_traffic: None,
        environment: machine(),
    }
}

pub fn tune_applied() -> View {
    let second = Round {
        n: 2,
        finding: "apache-spawn-lag".into(),
        summary: "Workers are started in steps while requests wait.".into(),
        changes: vec![change("StartServers", 5, 50, ApplyClass::Reload)],
        risk: Some("processes that idle in quiet hours".into()),
        before: Some(2190.4),
        after: Some(2185.0),
        ratio: Some(0.998),
        ci95: Some([0.981, 1.015]),
        verdict: Some(Verdict::Same),
        outage_us: Some(0),
        diff: "+StartServers 50\n".into(),
        ..Round::default()
    };
    let report = tune(TuneState::Applied, vec![round(), second]);
    let mut view = view("quickstart", Outcome::Tune(report.clone()));
    view.loads = vec![
        load(1, Purpose::Baseline, None, 1.0, report.baseline.clone()),
        load(2, Purpose::Verify, Some(1), 16.5, report.best.clone()),
        load(3, Purpose::Verify, Some(2), 31.0, run(2185.0, 22_100.0)),
    ];
    view.heat_map = super::long::heat_map(&view.loads);
    view.series = super::long::series(44.0);
    view.service = Some(service());
    view.server = Some(machine());
    view.notes =
        vec!["the generator and the server share one machine: the figures are lower than between two".into()];
    view
}

/// As [`tune_applied`], on a server of somebody's.
pub fn tune_kept() -> View {
    let mut view = View { command: "tune".into(), journal: Some(journal()), ..tune_applied() };
    let Outcome::Tune(tune) = &view.outcome else { return view };
    view.attempts = tune.rounds.iter().map(attempt).collect();
    view.attempts[1].put_back = Some(Reverted { outage_us: Some(0) });
    view
}

/// What led to a round, and that it was in force.
pub fn attempt(round: &Round) -> PlanAttempt {
    let facts = exhausted().facts;
    PlanAttempt {
        n: round.n,
        finding: Finding { id: round.finding.clone(), summary: round.summary.clone(), facts, ..exhausted() },
        changes: round.changes.clone(),
        diff: round.diff.clone(),
        applied: Some(AppliedPlan { mark: u64::from(round.n), outage_us: round.outage_us }),
        put_back: None,
    }
}

/// The same session with another report.
pub fn changed(mut view: View, change: impl FnOnce(&mut TuneReport)) -> View {
    if let Outcome::Tune(tune) = &mut view.outcome {
        change(tune);
    }
    view
}

pub fn journal() -> JournalPlace {
    JournalPlace {
        id: "20261121T202612.345678Z-4242".into(),
        state_directory: "/var/lib/webdyno".into(),
        is_default: true,
    }
}

/// Interrupted while its first change was being verified.
pub fn interrupted() -> View {
    let mut report = tune(TuneState::Reverted, vec![]);
    report.improvement = Improvement { metric: "rate".into(), ratio: None, ci95: None };
    let attempts =
        vec![PlanAttempt { put_back: Some(Reverted { outage_us: Some(380_000) }), ..attempt(&round()) }];
    View {
        attempts,
        journal: Some(journal()),
        end: SessionEnd::Failed(130, "interrupted".into()),
        ..view("tune", Outcome::Tune(report))
    }
}

pub fn tune_planned() -> View {
    let planned = Round {
        after: None,
        ratio: None,
        ci95: None,
        verdict: None,
        kept: false,
        outage_us: None,
        ..round()
    };
    let mut report = tune(TuneState::Planned, vec![planned]);
    report.improvement = Improvement { metric: "rate".into(), ratio: None, ci95: None };
    report.limit = Some("apache-workers-exhausted".into());
    report.limit_summary = Some(exhausted().summary);
    report.ceilings = vec![];
    view("tune", Outcome::Tune(report))
}

pub fn tune_reverted() -> View {
    let reverted = Round {
        after: Some(741.0),
        ratio: Some(0.988),
        ci95: Some([0.97, 1.006]),
        verdict: Some(Verdict::Same),
        kept: false,
        ..round()
    };
    let mut report = tune(TuneState::Reverted, vec![reverted]);
    report.goal = Goal::Rate(5000.0);
    report.ceilings = vec![];
    view("tune", Outcome::Tune(report))
}

/// A change of a file that Puppet manages.
pub fn tune_proposed() -> View {
    let View { outcome: Outcome::Tune(mut report), .. } = tune_planned() else { return tune_planned() };
    let why = "it is in Puppet's catalog".to_owned();
    let path = "/tmp/quick/conf.d/zz-webdyno.conf".to_owned();
    report.rounds[0].managed = vec![ManagedFile { path, by: "Puppet".into(), why }];
    report.state = TuneState::Reverted;
    report.goal_met = false;
    view("tune", Outcome::Tune(report))
}

/// A change under which the load had to be stopped, after a baseline that was measured at half the load.
pub fn tune_braked() -> View {
    let trip = HarmGuardTrip {
        cause: HarmCause::MemoryPressure,
        metric: "pressure.memory_full_us".into(),
        value: Number(132_000.0),
        limit: Number(100_000.0),
        text: "nothing could run for 132 ms of the last second for want of memory".into(),
    };
    let braked = Round {
        after: Some(1200.0),
        ratio: None,
        ci95: None,
        verdict: Some(Verdict::Worse),
        brake: Some(trip.clone()),
        kept: false,
        ..round()
    };
    let mut report = tune(TuneState::Reverted, vec![braked]);
    (report.baseline.brake, report.best.brake) = (Some(trip.clone()), Some(trip));
    let mut view = view("tune", Outcome::Tune(report));
    view.notes =
        vec!["the load was halved from 450 to 225 connections: swapping: memory is being swapped".into()];
    view
}
