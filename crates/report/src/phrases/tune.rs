//! Sentences about changes, rounds and tuning sessions.

use super::{apply_class_phrase, value};
use crate::human::{UNKNOWN, number, rate, rate_or_unknown, time_us, times, times_interval};
use webdyno_model::change::{ApplyClass, Change, ManagedFile};
use webdyno_model::tune::{Goal, Improvement, Round, TuneReport, TuneState, Verdict};

/// `MaxRequestWorkers 150 -> 400`, or `max_connections 20 -> 90 on the host db`.
pub(crate) fn change(change: &Change) -> String {
    let on = change.server.as_ref().map(|role| format!(" on {role}")).unwrap_or_default();
    format!("{} {} -> {}{on}", change.setting.name, value(change.from.as_ref()), change.to)
}

/// The files of a round's changes, each once.
pub(crate) fn files(round: &Round) -> Vec<&str> {
    let mut files: Vec<&str> = round.changes.iter().map(|change| change.file.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// How the changes of a round will take effect: as the most disruptive of them does.
pub(crate) fn will_apply_text(round: &Round) -> &'static str {
    round.changes.iter().map(|change| change.class).max().map_or("nothing is written", apply_class_phrase)
}

/// Whether a round's change is left to others, whose files it would change.
pub(crate) fn is_proposal(round: &Round) -> bool {
    !round.managed.is_empty() || !round.to_decide.is_empty()
}

/// Whose files a round would change, what a person has to decide, and what to do about it.
pub(crate) fn owners(round: &Round) -> Vec<String> {
    let owner = |file: &ManagedFile| {
        let ManagedFile { path, by, why } = file;
        format!("{path} is managed by {by} ({why}): make the change there; --export DIR writes it as files")
    };
    let decision = |why: &String| format!("manual change: {why}; --export DIR writes it as files");
    round.managed.iter().map(owner).chain(round.to_decide.iter().map(decision)).collect()
}

/// How the changes of a round took effect, and for how long nobody was answered.
pub(crate) fn applied_text(round: &Round) -> String {
    if is_proposal(round) {
        return "proposed, not written".into();
    }
    apply_effect(round.changes.iter().map(|change| change.class).max(), round.outage_us)
}

/// How changes of a class took effect, and for how long nobody was answered.
pub(crate) fn apply_effect(class: Option<ApplyClass>, outage_us: Option<u64>) -> String {
    let how = match class {
        Some(ApplyClass::Live) if outage_us.is_none() => return "applied live".into(),
        Some(ApplyClass::Live) => "applied live",
        Some(ApplyClass::Reload) => "applied by graceful reload",
        Some(ApplyClass::Restart) => "applied by restart",
        Some(ApplyClass::Manual) => "changed manually",
        None => "nothing was written",
    };
    match outage_us {
        Some(0) => format!("{how}, no downtime"),
        Some(outage) => format!("{how}, downtime {}", time_us(outage as f64)),
        None => format!("{how}, downtime unknown"),
    }
}

/// `better, kept`, `same, put back`, `planned`; a change that was never measured says so.
pub(crate) fn round_outcome(tune: &TuneReport, round: &Round) -> String {
    let fate = match (round.kept, round.judged_with_next) {
        (true, _) => "kept",
        (false, true) => "judged with the next",
        (false, false) => "reverted",
    };
    if let (Some(verdict), Some(trip)) = (round.verdict, &round.brake) {
        return format!("{}, {fate}: {}", verdict.name(), trip.cause.name());
    }
    match round.verdict {
        None if is_proposal(round) => "proposed, not written".into(),
        Some(verdict) => format!("{}, {fate}", verdict.name()),
        None if tune.state == TuneState::Planned => "planned".into(),
        None => format!("not measured, {fate}"),
    }
}

/// Why the load after a round's change was stopped; `None` when it was not.
pub(crate) fn guard_stop_text(round: &Round) -> Option<String> {
    let trip = round.brake.as_ref()?;
    Some(format!("the load after this change was stopped: {}", trip.text))
}

/// `750 -> 2,190 good answers a second: 2.9 times, 95% interval 2.8 to 3.0`.
pub(crate) fn gain_text(tune: &TuneReport) -> String {
    format!("{}: {}", gained_text(tune), ratio(&tune.improvement))
}

fn gained_text(tune: &TuneReport) -> String {
    let known = |value: Option<f64>| value.map_or_else(|| UNKNOWN.into(), number);
    format!("{} -> {} req/s", known(tune.baseline.rate), known(tune.best.rate))
}

/// `2.9 times, 95% interval 2.8 to 3.0`, or that it is not known.
pub(crate) fn ratio(improvement: &Improvement) -> String {
    match (improvement.ratio, improvement.ci95) {
        (Some(ratio), Some(ci95)) => {
            format!("{}, 95% interval {}", times(ratio), times_interval(ratio, ci95))
        }
        (Some(ratio), None) => format!("{}, interval unknown", times(ratio)),
        (None, _) => "gain unknown".into(),
    }
}

/// By how much a change came out otherwise than expected, in a sentence; `None` where it did not, or was not measured to the end.
pub(crate) fn surprise_text(round: &Round) -> Option<String> {
    let (predicted, after) = round.predicted.as_ref().zip(round.after)?;
    round.verdict.filter(|_| round.brake.is_none())?;
    let [low, high] = predicted.ci95;
    let how = if after < low { "less" } else { "more" };
    if (low..=high).contains(&after) {
        return None;
    }
    let expected = super::predicted(predicted);
    Some(format!("{how} than expected: measured {}, expected {expected}", rate(after)))
}

/// On what the verdict of a round rests, in a sentence; `None` where that was not kept.
pub(crate) fn judged_text(round: &Round) -> Option<String> {
    let floor = round.noise_floor?;
    let pairs = round.pairs.map_or(String::new(), |pairs| {
        format!(
            "judged by {} of loads without and with the change; ",
            crate::human::plural(u64::from(pairs), "pair")
        )
    });
    Some(format!("{pairs}a change below {:.0}% counts as noise here", 100.0 * floor))
}

/// The result of a tuning session in one line.
pub(crate) fn tune_headline(tune: &TuneReport) -> String {
    match tune.state {
        TuneState::Applied => {
            let ratio = tune.improvement.ratio.map(|ratio| format!(", {}", times(ratio)));
            format!("{}{}", gained_text(tune), ratio.unwrap_or_default())
        }
        TuneState::Planned if tune.rounds.is_empty() => "nothing to change was found".into(),
        TuneState::Planned => "planned, nothing was changed".into(),
        TuneState::Reverted if tune.rounds.is_empty() && tune.goal_met && tune.goal != Goal::Max => {
            "goal met, nothing was changed".into()
        }
        TuneState::Reverted if tune.rounds.is_empty() => "nothing was changed".into(),
        TuneState::Reverted if tune.rounds.iter().all(|round| !round.to_decide.is_empty()) => {
            "proposal for a manual change; nothing was changed".into()
        }
        TuneState::Reverted if tune.rounds.iter().all(is_proposal) => {
            "proposal for files managed by other tools; nothing was changed".into()
        }
        TuneState::Reverted if tune.rounds.iter().all(did_not_help) => {
            "no change helped; original configuration restored".into()
        }
        TuneState::Reverted => "all changes reverted; original configuration restored".into(),
    }
}

/// What a session that left nothing behind did, in a sentence.
pub(crate) fn reverted(tune: &TuneReport) -> &'static str {
    if tune.rounds.is_empty() && tune.goal_met && tune.goal != Goal::Max {
        "The goal is met: the server was not changed."
    } else if tune.rounds.is_empty() && tune.goal == Goal::Max && !tune.goal_met {
        "No change was kept (see the notes): the server is unchanged."
    } else if tune.rounds.is_empty() {
        "Nothing was found to change: the server was not changed."
    } else if tune.rounds.iter().all(|round| !round.to_decide.is_empty()) {
        "The remedy is a manual change: proposed only, the server was not changed."
    } else if tune.rounds.iter().all(is_proposal) {
        "The remedy is in files managed by other tools: proposed only, the server was not changed."
    } else if tune.rounds.iter().all(did_not_help) {
        "All changes were measured, none helped, all were reverted."
    } else {
        "All changes were reverted, including those that may have helped."
    }
}

/// Measured, and not found better; a proposal was never tried.
fn did_not_help(round: &Round) -> bool {
    is_proposal(round) || round.verdict.is_some_and(|verdict| verdict != Verdict::Better)
}

/// Whether the goal was met, in a sentence.
pub(crate) fn goal(tune: &TuneReport) -> String {
    let reached = rate_or_unknown(tune.best.rate);
    match (tune.goal, tune.goal_met) {
        (Goal::Max, true) => "Goal max: nothing else was found that helps.".into(),
        (Goal::Max, false) => "Goal max: tuning ended before that was certain.".into(),
        (Goal::Objectives, true) => "Goal met: all objectives met.".into(),
        (Goal::Objectives, false) => {
            let objectives = &tune.best.objectives;
            let are_met = !objectives.is_empty() && objectives.iter().all(|objective| objective.met);
            let why = if are_met {
                "not at the load that was requested (see the notes)"
            } else {
                "an objective was missed"
            };
            format!("Goal not met: {why}.")
        }
        (Goal::Rate(goal), true) => format!("Goal of {} met: {reached} measured.", rate(goal)),
        (Goal::Rate(goal), false) => {
            format!("Goal of {} not met: {reached} measured.", rate(goal))
        }
    }
}

/// Whether a planned round is about this limit.
pub(crate) fn plans_for_limit(tune: &TuneReport, limit: Option<&str>) -> bool {
    tune.state == TuneState::Planned && tune.rounds.iter().any(|round| Some(round.finding.as_str()) == limit)
}
