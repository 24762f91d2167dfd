//! A tuning session on one screen: what was gained, what was changed, how it was verified, what limits now.

use super::super::page::{TextPage, Tone};
use super::super::tune::{comparison, name, rounds_table};
use super::Room;
use crate::phrases;
use webdyno_model::tune::{Round, TuneReport, TuneState};
use webdyno_session::view::View;

pub(super) fn write_tune(page: &mut TextPage, view: &View, tune: &TuneReport, room: Room) {
    let tone = match tune.state {
        TuneState::Applied => Tone::Good,
        TuneState::Planned => Tone::Title,
        TuneState::Reverted if tune.goal_met => Tone::Good,
        TuneState::Reverted => Tone::Warning,
    };
    page.title(tone, &format!("{}: {}", name(view), phrases::tune_headline(tune)), "");
    for run in [&tune.baseline, &tune.best] {
        if !run.client.valid {
            page.short_item("", &format!("{}.", phrases::generator(run)), room.text_lines);
        } else if let Some(trip) = phrases::harm_guard_text(run) {
            page.short_item("", &format!("{trip}."), room.text_lines);
        }
        if tune.baseline == tune.best {
            break;
        }
    }
    if let Some(others) = phrases::live_traffic(tune.live_traffic.as_ref()) {
        page.short_item("", &others, 2);
    }
    if tune.state == TuneState::Reverted {
        page.short_item("", phrases::reverted(tune), 2);
    }
    changes(page, tune, room);
    if tune.state == TuneState::Applied {
        let gain = phrases::ratio(&tune.improvement);
        page.heading(&format!("Gain: {}", gain.trim_start_matches("gain ")));
        comparison(page, tune);
        page.short_item("", &phrases::goal(tune), 2);
    } else {
        super::load(page, &tune.baseline, room);
        if tune.state == TuneState::Reverted {
            page.short_item("", &phrases::goal(tune), 1);
        }
    }
    if tune.rounds.len() > 1 && tune.state != TuneState::Planned {
        page.heading("Rounds (req/s)");
        rounds_table(page, tune, room.rows.max(3));
    }
    limit(page, tune, room);
}

/// The changes that are kept, planned or proposed; of a session that kept nothing those that were tried are in its rounds.
fn changes(page: &mut TextPage, tune: &TuneReport, room: Room) {
    let is_shown = |round: &&Round| match tune.state {
        TuneState::Planned => true,
        TuneState::Applied => round.kept || phrases::is_proposal(round),
        TuneState::Reverted => phrases::is_proposal(round),
    };
    for round in tune.rounds.iter().filter(is_shown).take(room.extras.max(2)) {
        let (what, how) = match (tune.state, phrases::is_proposal(round)) {
            (TuneState::Planned, _) => ("Planned", phrases::will_apply_text(round).to_owned()),
            (_, true) => ("Proposed", "manual change, not written".into()),
            _ => ("Changed", phrases::applied_text(round)),
        };
        page.heading(&format!("{what}: {}", phrases::limit_title(&round.finding)));
        for change in &round.changes {
            page.short_item("", &format!("{} {}", change.setting.target.name(), phrases::change(change)), 2);
        }
        for file in phrases::files(round) {
            page.verbatim(&format!("in {file}"));
        }
        page.short_item("", &how, 1);
        if let Some(predicted) = round.predicted.as_ref().filter(|_| tune.state == TuneState::Planned) {
            page.short_item("expect:", &phrases::predicted(predicted), 1);
        }
        if tune.state == TuneState::Planned {
            let lines = round.diff.lines().filter(|line| line.starts_with(['+', '-', '@']));
            lines.take(3 * room.rows).for_each(|line| page.verbatim(line));
        }
    }
}

fn limit(page: &mut TextPage, tune: &TuneReport, room: Room) {
    if phrases::plans_for_limit(tune, tune.limit.as_deref()) {
        return;
    }
    let Some(id) = &tune.limit else { return };
    let now = if id == "healthy" { "Now" } else { "Limit now" };
    page.heading(&format!("{now}: {} ({id})", phrases::limit_title(id)));
    if let Some(summary) = &tune.limit_summary {
        page.short_item("", summary, room.text_lines.min(3));
    }
}
