//! A tuning session for somebody who never tuned a server: what was wrong, what was changed, what it brought, what
//! limits now, and how to undo it. A plan says first that nothing was changed.

use super::page::{Column, Page};
use super::{diagnosis, run};
use crate::human::{rate_or_unknown, time};
use crate::{Paths, say, words};
use webdyno_model::tune::{Round, TuneReport, TuneState};
use webdyno_session::view::View;

/// A plan of more lines is in the HTML report and the recording in full.
const DIFF_LINES_MAX: usize = 200;

/// The whole tuning session.
pub(super) fn whole(page: &mut Page, view: &View, tune: &TuneReport, paths: &Paths) {
    page.heading(&format!("{}: {}", name(view), say::tune_headline(tune)));
    invalid(page, tune);
    match tune.state {
        TuneState::Planned => planned(page, tune, paths),
        TuneState::Applied => applied(page, tune),
        TuneState::Reverted => reverted(page, tune),
    }
    if let Some(others) = say::live_traffic(tune.live_traffic.as_ref()) {
        page.para(&others);
    }
    rounds(page, tune);
    limit(page, tune);
    diagnosis::ceilings(page, &tune.ceilings);
}

fn name(view: &View) -> &'static str {
    if view.command == "quickstart" { "Quickstart" } else { "Tuning" }
}

fn invalid(page: &mut Page, tune: &TuneReport) {
    for (which, run) in [("before", &tune.baseline), ("after", &tune.best)] {
        if !run.client.valid {
            page.para(&format!("The measurement {which}: {}.", say::generator(run)));
        }
        if let Some(brake) = say::brake(run) {
            page.para(&format!("The measurement {which}: {brake}."));
        }
        if tune.baseline == tune.best {
            break;
        }
    }
}

fn planned(page: &mut Page, tune: &TuneReport, paths: &Paths) {
    page.para("Nothing was written on the server: this is what would be done.");
    measured(page, tune);
    for round in &tune.rounds {
        page.heading("What is wrong");
        page.para(&format!("{} ({})", round.summary, round.finding));
        page.heading("What would be changed");
        changes(page, round, say::will_take_effect(round));
        match &round.predicted {
            Some(predicted) => page.para(&format!("Expected: {}", say::predicted(predicted))),
            None => page.para("Expected: how much it brings is unknown"),
        }
        if let Some(risk) = &round.risk {
            page.para(&format!("Risk: {risk}"));
        }
        diff(page, &round.diff);
        page.heading("To do it");
        if say::is_proposal(round) {
            say::owners(round).iter().for_each(|owner| page.para(owner));
            continue;
        }
        match &paths.apply {
            Some(command) => page.command(command),
            None => page.para("Give the same command again with --apply."),
        }
        page.para("Each change is tested first, measured after, and put back when it does not help.");
    }
}

/// The server as it is.
fn measured(page: &mut Page, tune: &TuneReport) {
    let run = &tune.baseline;
    page.para(&format!("Today: {}.", say::run_headline(run)));
    if run.response_time_us.count > 0 {
        page.para(&format!("{}.", say::within("answers", &run.response_time_us)));
    }
}

fn diff(page: &mut Page, diff: &str) {
    if diff.is_empty() {
        return;
    }
    page.gap();
    for line in diff.lines().take(DIFF_LINES_MAX) {
        page.verbatim(line);
    }
    let more = diff.lines().count().saturating_sub(DIFF_LINES_MAX);
    if more > 0 {
        page.para(&format!("and {} more, in the HTML report", crate::human::plural(more as u64, "line")));
    }
}

fn applied(page: &mut Page, tune: &TuneReport) {
    let kept: Vec<_> = tune.rounds.iter().filter(|round| round.kept).collect();
    page.heading("What was wrong");
    for round in &kept {
        page.item("-", &format!("{} ({})", round.summary, round.finding));
    }
    page.heading("What was changed");
    for round in &kept {
        changes(page, round, &say::took_effect(round));
    }
    page.heading("What it brought");
    page.para(&say::gain(tune));
    before_and_after(page, tune);
    page.para(&say::goal(tune));
    proposals(page, tune);
}

/// What is left to those whose files it would change, with its diff.
fn proposals(page: &mut Page, tune: &TuneReport) {
    for round in tune.rounds.iter().filter(|round| say::is_proposal(round)) {
        page.heading("What is proposed");
        page.para(&format!("{} ({})", round.summary, round.finding));
        changes(page, round, say::will_take_effect(round));
        say::owners(round).iter().for_each(|owner| page.para(owner));
        diff(page, &round.diff);
    }
}

fn reverted(page: &mut Page, tune: &TuneReport) {
    page.para(say::reverted(tune));
    let tried: Vec<_> = tune.rounds.iter().filter(|round| !say::is_proposal(round)).collect();
    if !tried.is_empty() {
        page.heading("What was tried");
    }
    for round in tried {
        page.item(&format!("Round {}:", round.n), &format!("{} ({})", round.summary, round.finding));
        changes(page, round, &say::took_effect(round));
        if let Some(brake) = say::round_brake(round) {
            page.inner(&brake);
        }
    }
    page.heading("What was measured");
    measured(page, tune);
    page.para(&say::goal(tune));
    proposals(page, tune);
}

/// Old and new value of each setting, the files that hold them, and how they take effect.
fn changes(page: &mut Page, round: &Round, how: &str) {
    for change in &round.changes {
        page.item("-", &format!("{} {}", change.setting.target.name(), say::change(change)));
    }
    if round.changes.is_empty() {
        page.para("nothing that could be written: only a person can do it");
        return;
    }
    for file in say::files(round) {
        page.inner(&format!("in {file}"));
    }
    page.inner(how);
}

fn before_and_after(page: &mut Page, tune: &TuneReport) {
    let (before, after) = (&tune.baseline, &tune.best);
    let row = |name: &str, before: String, after: String| vec![name.to_owned(), before, after];
    let rows = vec![
        row("", "before".into(), "after".into()),
        row("good answers", rate_or_unknown(before.rate), rate_or_unknown(after.rate)),
        row("failed", failed(before), failed(after)),
        row("half answered within", time(before.response_time_us.p50), time(after.response_time_us.p50)),
        row("99% answered within", time(before.response_time_us.p99), time(after.response_time_us.p99)),
    ];
    page.table(&[Column::Words, Column::Number, Column::Number], &rows);
}

fn failed(run: &webdyno_model::run::RunReport) -> String {
    crate::human::share(run.requests.failed, run.requests.completed + run.requests.failed)
}

/// One line a round.
fn rounds(page: &mut Page, tune: &TuneReport) {
    if tune.rounds.is_empty() || tune.state == TuneState::Planned {
        return;
    }
    page.heading("Round by round (good answers a second)");
    let mut rows = vec![];
    for round in &tune.rounds {
        let first = round.changes.first().map(say::change).unwrap_or_else(|| round.finding.clone());
        let others = round.changes.len().saturating_sub(1);
        let what = if others > 0 { format!("{first} (+{others})") } else { first };
        rows.push(vec![
            round.n.to_string(),
            what,
            format!("{} -> {}", rate_or_unknown(round.before), rate_or_unknown(round.after)),
            round.ratio.map_or_else(
                || crate::human::UNKNOWN.into(),
                |ratio| crate::human::times(ratio).replace(" times", "x"),
            ),
            say::round_outcome(tune, round),
        ]);
    }
    page.table(&[Column::Number, Column::Words, Column::Number, Column::Number, Column::Words], &rows);
}

/// What limits now, and what that means.
fn limit(page: &mut Page, tune: &TuneReport) {
    // A plan has said already what is wrong today.
    if say::plan_is_for(tune, tune.limit.as_deref()) {
        return;
    }
    page.heading("What limits now");
    let Some(id) = &tune.limit else {
        page.para("unknown: the session ended before that was measured");
        return;
    };
    match &tune.limit_summary {
        Some(summary) => page.para(&format!("{summary} ({id})")),
        None => page.para(id),
    }
    page.para(&words::limit_meaning(id));
    if tune.best.errors.total() > 0 && tune.state != TuneState::Planned {
        run::failures(page, &tune.best);
    }
}
