//! A tuning session as HTML: what was wrong, what was changed, what it brought, round by round, what limits now.

use super::arrows;
use super::markup::Markup;
use super::parts::{self, Column, table};
use super::run;
use crate::human::{UNKNOWN, rate_or_unknown, share, time, times, times_interval};
use crate::{say, words};
use webdyno_model::run::RunReport;
use webdyno_model::tune::{Round, TuneReport, TuneState};
use webdyno_session::view::View;

/// The part that a reader wants first.
pub(super) fn summary(m: &mut Markup, tune: &TuneReport) {
    match tune.state {
        TuneState::Planned => {
            m.leaf_with("p", &[("class", "answer")], "Nothing was written on the server: this is a plan.");
            run::cards(m, &tune.baseline);
        }
        TuneState::Applied => {
            tune.rounds.iter().filter(|round| round.kept).for_each(|round| kept(m, round));
            m.leaf("p", &arrows(&format!("{}.", say::gain(tune))));
            m.leaf("p", &say::goal(tune));
            before_and_after(m, tune);
        }
        TuneState::Reverted => {
            m.leaf_with("p", &[("class", "answer")], say::reverted(tune));
            m.leaf("p", &say::goal(tune));
            run::cards(m, &tune.baseline);
        }
    }
    if let Some(others) = say::live_traffic(tune.live_traffic.as_ref()) {
        m.leaf("p", &others);
    }
    limit(m, tune);
    rounds(m, tune);
}

/// What was wrong and what was changed, for somebody who reads nothing else.
fn kept(m: &mut Markup, round: &Round) {
    let changes: Vec<_> = round.changes.iter().map(say::change).collect();
    let changes = format!("Changed: {}; {}.", changes.join(", "), say::took_effect(round));
    m.within("div", &[("class", "answer")], |m| {
        m.leaf("p", &round.summary);
        m.leaf("p", &arrows(&changes));
    });
}

fn before_and_after(m: &mut Markup, tune: &TuneReport) {
    let failed = |run: &RunReport| share(run.requests.failed, run.requests.completed + run.requests.failed);
    type Figure = fn(&RunReport) -> String;
    let figures: [(&str, Figure); 3] = [
        ("good answers", |run| rate_or_unknown(run.rate)),
        ("half answered within", |run| time(run.response_time_us.p50)),
        ("99% answered within", |run| time(run.response_time_us.p99)),
    ];
    let mut rows: Vec<_> = figures
        .iter()
        .map(|(name, figure)| vec![(*name).to_owned(), figure(&tune.baseline), figure(&tune.best)])
        .collect();
    rows.push(vec!["failed".into(), failed(&tune.baseline), failed(&tune.best)]);
    table(m, &[("", Column::Words), ("before", Column::Number), ("after", Column::Number)], &rows);
}

fn limit(m: &mut Markup, tune: &TuneReport) {
    // A plan says itself what is wrong today.
    if say::plan_is_for(tune, tune.limit.as_deref()) {
        return;
    }
    m.leaf("h2", "What limits now");
    let Some(id) = &tune.limit else {
        m.leaf("p", "Unknown: the session ended before that was measured.");
        return;
    };
    m.within("p", &[], |m| {
        m.leaf("strong", tune.limit_summary.as_deref().unwrap_or(id));
        m.text(" (");
        m.leaf("code", id);
        m.text(")");
    });
    m.leaf("p", &words::limit_meaning(id));
}

fn rounds(m: &mut Markup, tune: &TuneReport) {
    if tune.rounds.is_empty() {
        return;
    }
    if tune.state == TuneState::Planned {
        m.leaf("h2", "The plan");
    } else {
        m.leaf("h2", "Round by round");
        rounds_table(m, tune);
    }
    tune.rounds.iter().for_each(|round| one_round(m, tune, round));
}

fn rounds_table(m: &mut Markup, tune: &TuneReport) {
    use Column::{Number, Words};
    let columns = [
        ("round", Number),
        ("changed", Words),
        ("before", Number),
        ("after", Number),
        ("times", Number),
        ("95% interval", Number),
        ("outcome", Words),
    ];
    let row = |round: &Round| {
        let changes: Vec<_> = round.changes.iter().map(say::change).collect();
        let interval = round.ratio.zip(round.ci95).map(|(ratio, ci95)| times_interval(ratio, ci95));
        vec![
            round.n.to_string(),
            arrows(&changes.join(", ")),
            rate_or_unknown(round.before),
            rate_or_unknown(round.after),
            round.ratio.map_or_else(|| UNKNOWN.into(), |ratio| times(ratio).replace(" times", "×")),
            interval.unwrap_or_else(|| UNKNOWN.into()),
            say::round_outcome(tune, round),
        ]
    };
    table(m, &columns, &tune.rounds.iter().map(row).collect::<Vec<_>>());
}

fn one_round(m: &mut Markup, tune: &TuneReport, round: &Round) {
    m.leaf("h3", &format!("Round {}: {}", round.n, say::round_outcome(tune, round)));
    m.within("p", &[], |m| {
        m.text(&round.summary);
        m.text(" (");
        m.leaf("code", &round.finding);
        m.text(")");
    });
    let planned = tune.state == TuneState::Planned || say::is_proposal(round);
    let how = if planned { say::will_take_effect(round).to_owned() } else { say::took_effect(round) };
    let mut items: Vec<_> = round
        .changes
        .iter()
        .map(|change| arrows(&format!("{} {}", change.setting.target.name(), say::change(change))))
        .collect();
    items.extend(say::files(round).iter().map(|file| format!("in {file}")));
    items.push(how);
    items.extend(say::round_brake(round));
    if let Some(predicted) = &round.predicted {
        items.push(format!("expected: {}", say::predicted(predicted)));
    }
    items.extend(round.risk.as_ref().map(|risk| format!("risk: {risk}")));
    items.extend(say::owners(round));
    parts::list(m, &items);
    if !round.diff.is_empty() {
        let open: &[(&'static str, &str)] = if planned { &[("open", "open")] } else { &[] };
        m.within("details", open, |m| {
            m.leaf("summary", "The change as a diff");
            m.leaf("pre", &round.diff);
        });
    }
}

/// The change record and how to undo it, folded away.
pub(super) fn record(m: &mut Markup, view: &View) {
    let Some(record) = crate::record(view) else { return };
    m.leaf("h2", "The change record");
    m.within("details", &[], |m| {
        m.leaf("summary", "What was changed, the proof, and how to undo it, on a page");
        m.leaf("pre", &record);
    });
}

/// Both measurements in full, folded away.
pub(super) fn measurements(m: &mut Markup, tune: &TuneReport) {
    m.leaf("h2", "The measurements in full");
    let same = tune.baseline == tune.best;
    let pairs = [(if same { "Measured" } else { "Before" }, &tune.baseline), ("After", &tune.best)];
    for (name, run) in pairs.into_iter().take(if same { 1 } else { 2 }) {
        m.within("details", &[], |m| {
            m.leaf("summary", &format!("{name}: {}", say::run_headline(run)));
            run::details(m, run);
        });
    }
}
