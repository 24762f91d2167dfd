//! A tuning session as HTML: what was wrong, what was changed, what it brought, round by round, what limits now.

use super::markup::Markup;
use super::parts::{self, ColumnAlign, table};
use super::run;
use super::with_unicode_arrows;
use crate::human::{UNKNOWN, rate_or_unknown, share, time, times, times_interval};
use crate::{phrases, wording};
use webdyno_model::run::RunReport;
use webdyno_model::tune::{Round, TuneReport, TuneState};
use webdyno_session::view::View;

/// The part that a reader wants first.
pub(super) fn summary(m: &mut Markup, tune: &TuneReport) {
    match tune.state {
        TuneState::Planned => {
            m.text_element_with("p", &[("class", "answer")], "Plan only: nothing was written on the server.");
            run::write_cards(m, &tune.baseline);
        }
        TuneState::Applied => {
            tune.rounds.iter().filter(|round| round.kept).for_each(|round| write_kept_change(m, round));
            m.text_element("p", &with_unicode_arrows(&format!("{}.", phrases::gain_text(tune))));
            m.text_element("p", &phrases::goal(tune));
            write_comparison(m, tune);
        }
        TuneState::Reverted => {
            m.text_element_with("p", &[("class", "answer")], phrases::reverted(tune));
            m.text_element("p", &phrases::goal(tune));
            run::write_cards(m, &tune.baseline);
        }
    }
    if let Some(others) = phrases::live_traffic(tune.live_traffic.as_ref()) {
        m.text_element("p", &others);
    }
    limit(m, tune);
    rounds(m, tune);
}

/// What was wrong and what was changed, for somebody who reads nothing else.
fn write_kept_change(m: &mut Markup, round: &Round) {
    let changes: Vec<_> = round.changes.iter().map(phrases::change).collect();
    let changes = format!("Changed: {}; {}.", changes.join(", "), phrases::applied_text(round));
    m.element("div", &[("class", "answer")], |m| {
        m.text_element("p", &round.summary);
        m.text_element("p", &with_unicode_arrows(&changes));
    });
}

fn write_comparison(m: &mut Markup, tune: &TuneReport) {
    let failed = |run: &RunReport| share(run.requests.failed, run.requests.completed + run.requests.failed);
    type FigureText = fn(&RunReport) -> String;
    let figures: [(&str, FigureText); 3] = [
        ("req/s", |run| rate_or_unknown(run.rate)),
        ("p50", |run| time(run.response_time_us.p50)),
        ("p99", |run| time(run.response_time_us.p99)),
    ];
    let mut rows: Vec<_> = figures
        .iter()
        .map(|(name, figure)| vec![(*name).to_owned(), figure(&tune.baseline), figure(&tune.best)])
        .collect();
    rows.push(vec!["failed".into(), failed(&tune.baseline), failed(&tune.best)]);
    table(
        m,
        &[("", ColumnAlign::Words), ("before", ColumnAlign::Number), ("after", ColumnAlign::Number)],
        &rows,
    );
}

fn limit(m: &mut Markup, tune: &TuneReport) {
    // A plan says itself what is wrong today.
    if phrases::plans_for_limit(tune, tune.limit.as_deref()) {
        return;
    }
    m.text_element("h2", "What limits now");
    let Some(id) = &tune.limit else {
        m.text_element("p", "Unknown: the session ended before it was measured.");
        return;
    };
    m.element("p", &[], |m| {
        m.text_element("strong", tune.limit_summary.as_deref().unwrap_or(id));
        m.text(" (");
        m.text_element("code", id);
        m.text(")");
    });
    m.text_element("p", &wording::limit_meaning(id));
}

fn rounds(m: &mut Markup, tune: &TuneReport) {
    if tune.rounds.is_empty() {
        return;
    }
    if tune.state == TuneState::Planned {
        m.text_element("h2", "The plan");
    } else {
        m.text_element("h2", "Rounds");
        rounds_table(m, tune);
    }
    tune.rounds.iter().for_each(|round| write_round(m, tune, round));
}

fn rounds_table(m: &mut Markup, tune: &TuneReport) {
    use ColumnAlign::{Number, Words};
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
        let changes: Vec<_> = round.changes.iter().map(phrases::change).collect();
        let interval = round.ratio.zip(round.ci95).map(|(ratio, ci95)| times_interval(ratio, ci95));
        vec![
            round.n.to_string(),
            with_unicode_arrows(&changes.join(", ")),
            rate_or_unknown(round.before),
            rate_or_unknown(round.after),
            round.ratio.map_or_else(|| UNKNOWN.into(), |ratio| times(ratio).replace(" times", "×")),
            interval.unwrap_or_else(|| UNKNOWN.into()),
            phrases::round_outcome(tune, round),
        ]
    };
    table(m, &columns, &tune.rounds.iter().map(row).collect::<Vec<_>>());
}

fn write_round(m: &mut Markup, tune: &TuneReport, round: &Round) {
    m.text_element("h3", &format!("Round {}: {}", round.n, phrases::round_outcome(tune, round)));
    m.element("p", &[], |m| {
        m.text(&round.summary);
        m.text(" (");
        m.text_element("code", &round.finding);
        m.text(")");
    });
    let planned = tune.state == TuneState::Planned || phrases::is_proposal(round);
    let how = if planned { phrases::will_apply_text(round).to_owned() } else { phrases::applied_text(round) };
    let mut items: Vec<_> = round
        .changes
        .iter()
        .map(|change| {
            with_unicode_arrows(&format!("{} {}", change.setting.target.name(), phrases::change(change)))
        })
        .collect();
    items.extend(phrases::files(round).iter().map(|file| format!("in {file}")));
    items.push(how);
    items.extend(phrases::guard_stop_text(round));
    if let Some(predicted) = &round.predicted {
        items.push(format!("expected: {}", phrases::predicted(predicted)));
    }
    items.extend(phrases::surprise_text(round));
    items.extend(phrases::judged_text(round));
    items.extend(round.risk.as_ref().map(|risk| format!("risk: {risk}")));
    items.extend(phrases::owners(round));
    parts::list(m, &items);
    if !round.diff.is_empty() {
        let open: &[(&'static str, &str)] = if planned { &[("open", "open")] } else { &[] };
        m.element("details", open, |m| {
            m.text_element("summary", "The change as a diff");
            m.text_element("pre", &round.diff);
        });
    }
}

/// The change record and how to undo it, folded away.
pub(super) fn write_change_record(m: &mut Markup, view: &View) {
    let Some(record) = crate::record(view) else { return };
    m.text_element("h2", "The change record");
    m.element("details", &[], |m| {
        m.text_element("summary", "Changes, proof and rollback on one page");
        m.text_element("pre", &record);
    });
}

/// Both measurements in full, folded away.
pub(super) fn measurements(m: &mut Markup, tune: &TuneReport) {
    m.text_element("h2", "The measurements in full");
    let same = tune.baseline == tune.best;
    let pairs = [(if same { "Measured" } else { "Before" }, &tune.baseline), ("After", &tune.best)];
    for (name, run) in pairs.into_iter().take(if same { 1 } else { 2 }) {
        m.element("details", &[], |m| {
            m.text_element("summary", &format!("{name}: {}", phrases::run_headline(run)));
            run::write_details(m, run);
        });
    }
}
