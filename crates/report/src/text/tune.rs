//! A tuning session for somebody who never tuned a server: what was wrong, what was changed, what it brought, what
//! limits now, and how to undo it. A plan says first that nothing was changed.

use super::page::{ColumnAlign, TextPage};
use super::{diagnosis, run};
use crate::human::{rate_or_unknown, time};
use crate::{ResultPaths, phrases, wording};
use webdyno_model::tune::{Round, TuneReport, TuneState};
use webdyno_session::view::View;

/// A plan of more lines is in the HTML report and the recording in full.
const DIFF_LINES_MAX: usize = 200;

/// The whole tuning session.
pub(super) fn write_tune(page: &mut TextPage, view: &View, tune: &TuneReport, paths: &ResultPaths) {
    page.heading(&format!("{}: {}", name(view), phrases::tune_headline(tune)));
    invalid(page, tune);
    match tune.state {
        TuneState::Planned => planned(page, tune, paths),
        TuneState::Applied => applied(page, tune),
        TuneState::Reverted => reverted(page, tune),
    }
    if let Some(others) = phrases::live_traffic(tune.live_traffic.as_ref()) {
        page.paragraph(&others);
    }
    rounds(page, tune);
    limit(page, tune);
    diagnosis::ceilings(page, &tune.ceilings);
}

pub(super) fn name(view: &View) -> &'static str {
    if view.command == "quickstart" { "Quickstart" } else { "Tuning" }
}

fn invalid(page: &mut TextPage, tune: &TuneReport) {
    for (which, run) in [("before", &tune.baseline), ("after", &tune.best)] {
        if !run.client.valid {
            page.paragraph(&format!("The measurement {which}: {}.", phrases::generator(run)));
        }
        if let Some(trip) = phrases::harm_guard_text(run) {
            page.paragraph(&format!("The measurement {which}: {trip}."));
        }
        if tune.baseline == tune.best {
            break;
        }
    }
}

fn planned(page: &mut TextPage, tune: &TuneReport, paths: &ResultPaths) {
    page.paragraph("Plan only: nothing was written on the server.");
    measured(page, tune);
    for round in &tune.rounds {
        page.heading("Limit");
        page.paragraph(&format!("{} ({})", round.summary, round.finding));
        page.heading("Planned change");
        write_changes(page, round, phrases::will_apply_text(round));
        match &round.predicted {
            Some(predicted) => page.paragraph(&format!("Expected: {}", phrases::predicted(predicted))),
            None => page.paragraph("Expected: gain unknown"),
        }
        if let Some(risk) = &round.risk {
            page.paragraph(&format!("Risk: {risk}"));
        }
        diff(page, &round.diff);
        page.heading("To apply");
        if phrases::is_proposal(round) {
            phrases::owners(round).iter().for_each(|owner| page.paragraph(owner));
            continue;
        }
        match &paths.apply {
            Some(command) => page.command(command),
            None => page.paragraph("Run the same command with --apply."),
        }
        page.paragraph("Each change is validated first, measured after, and reverted if it does not help.");
    }
}

/// The server as it is.
fn measured(page: &mut TextPage, tune: &TuneReport) {
    let run = &tune.baseline;
    page.paragraph(&format!("Today: {}.", phrases::run_headline(run)));
    if run.response_time_us.count > 0 {
        page.paragraph(&format!("{}.", phrases::percentile_phrase("response time", &run.response_time_us)));
    }
}

fn diff(page: &mut TextPage, diff: &str) {
    if diff.is_empty() {
        return;
    }
    page.gap();
    for line in diff.lines().take(DIFF_LINES_MAX) {
        page.verbatim(line);
    }
    let more = diff.lines().count().saturating_sub(DIFF_LINES_MAX);
    if more > 0 {
        page.paragraph(&format!(
            "and {} more, in the HTML report",
            crate::human::plural(more as u64, "line")
        ));
    }
}

fn applied(page: &mut TextPage, tune: &TuneReport) {
    let kept: Vec<_> = tune.rounds.iter().filter(|round| round.kept).collect();
    page.heading("What limited");
    for round in &kept {
        page.item("-", &format!("{} ({})", round.summary, round.finding));
    }
    page.heading("What was changed");
    for round in &kept {
        write_changes(page, round, &phrases::applied_text(round));
        write_surprise(page, round);
    }
    page.heading("Gain");
    page.paragraph(&phrases::gain_text(tune));
    comparison(page, tune);
    page.paragraph(&phrases::goal(tune));
    proposals(page, tune);
}

/// What is left to those whose files it would change, with its diff.
fn proposals(page: &mut TextPage, tune: &TuneReport) {
    for round in tune.rounds.iter().filter(|round| phrases::is_proposal(round)) {
        page.heading("Proposed");
        page.paragraph(&format!("{} ({})", round.summary, round.finding));
        write_changes(page, round, phrases::will_apply_text(round));
        phrases::owners(round).iter().for_each(|owner| page.paragraph(owner));
        diff(page, &round.diff);
    }
}

fn reverted(page: &mut TextPage, tune: &TuneReport) {
    page.paragraph(phrases::reverted(tune));
    let tried: Vec<_> = tune.rounds.iter().filter(|round| !phrases::is_proposal(round)).collect();
    if !tried.is_empty() {
        page.heading("What was tried");
    }
    for round in tried {
        page.item(&format!("Round {}:", round.n), &format!("{} ({})", round.summary, round.finding));
        write_changes(page, round, &phrases::applied_text(round));
        write_surprise(page, round);
        if let Some(trip) = phrases::guard_stop_text(round) {
            page.indented_paragraph(&trip);
        }
    }
    page.heading("What was measured");
    measured(page, tune);
    page.paragraph(&phrases::goal(tune));
    proposals(page, tune);
}

/// Old and new value of each setting, the files that hold them, and how they take effect.
fn write_changes(page: &mut TextPage, round: &Round, how: &str) {
    for change in &round.changes {
        page.item("-", &format!("{} {}", change.setting.target.name(), phrases::change(change)));
    }
    if round.changes.is_empty() {
        page.paragraph("nothing to write: manual change");
        return;
    }
    for file in phrases::files(round) {
        page.indented_paragraph(&format!("in {file}"));
    }
    page.indented_paragraph(how);
}

fn write_surprise(page: &mut TextPage, round: &Round) {
    phrases::surprise_text(round).iter().for_each(|text| page.indented_paragraph(text));
}

/// The figures before and after.
pub(super) fn comparison(page: &mut TextPage, tune: &TuneReport) {
    let (before, after) = (&tune.baseline, &tune.best);
    let row = |name: &str, before: String, after: String| vec![name.to_owned(), before, after];
    let rows = vec![
        row("", "before".into(), "after".into()),
        row("req/s", rate_or_unknown(before.rate), rate_or_unknown(after.rate)),
        row("failed", failed(before), failed(after)),
        row("p50", time(before.response_time_us.p50), time(after.response_time_us.p50)),
        row("p99", time(before.response_time_us.p99), time(after.response_time_us.p99)),
    ];
    page.table(&[ColumnAlign::Words, ColumnAlign::Number, ColumnAlign::Number], &rows);
}

fn failed(run: &webdyno_model::run::RunReport) -> String {
    crate::human::share(run.requests.failed, run.requests.completed + run.requests.failed)
}

/// What was tried, round by round.
fn rounds(page: &mut TextPage, tune: &TuneReport) {
    if tune.rounds.is_empty() || tune.state == TuneState::Planned {
        return;
    }
    page.heading("Rounds (req/s)");
    rounds_table(page, tune, tune.rounds.len());
}

/// One line for each of so many rounds.
pub(super) fn rounds_table(page: &mut TextPage, tune: &TuneReport, rows_max: usize) {
    let mut rows = vec![];
    for round in tune.rounds.iter().take(rows_max) {
        let first = round.changes.first().map(phrases::change).unwrap_or_else(|| round.finding.clone());
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
            phrases::round_outcome(tune, round),
        ]);
    }
    use ColumnAlign::{Number, Words};
    page.table(&[Number, Words, Number, Number, Words], &rows);
}

/// What limits now, and what that means.
fn limit(page: &mut TextPage, tune: &TuneReport) {
    // A plan has said already what is wrong today.
    if phrases::plans_for_limit(tune, tune.limit.as_deref()) {
        return;
    }
    page.heading("What limits now");
    let Some(id) = &tune.limit else {
        page.paragraph("unknown: the session ended before it was measured");
        return;
    };
    match &tune.limit_summary {
        Some(summary) => page.paragraph(&format!("{summary} ({id})")),
        None => page.paragraph(id),
    }
    page.paragraph(&wording::limit_meaning(id));
    if tune.best.errors.total() > 0 && tune.state != TuneState::Planned {
        run::failures(page, &tune.best);
    }
}
