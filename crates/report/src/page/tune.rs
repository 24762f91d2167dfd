//! A tuning session: what was tried round by round and what it brought, what limits now, and the measurements in full.

use super::blocks::{Align, Bar, BarGroup, BarTone, Blocks, figure, interval};
use super::{AddSection, parts, run, with_unicode_arrows};
use crate::human::{UNKNOWN, rate_or_unknown, share, time, times, times_interval};
use crate::{phrases, wording};
use webdyno_model::run::RunReport;
use webdyno_model::tune::{Round, TuneReport, TuneState};
use webdyno_session::view::View;

/// What stands before the plots.
pub(super) fn sections(tune: &TuneReport, section: &mut AddSection<'_>) {
    let rounds = if tune.state == TuneState::Planned { "The plan" } else { "Rounds" };
    section("rounds", rounds, &|b| write_rounds(b, tune));
    section("comparison", "Before and after", &|b| comparison(b, tune));
    section("limit", "What limits now", &|b| limit(b, tune));
    section("clients", "Other clients", &|b| {
        phrases::live_traffic(tune.live_traffic.as_ref()).iter().for_each(|others| b.text(others));
    });
}

/// Limits ahead, the change record, and both measurements in full.
pub(super) fn details(view: &View, tune: &TuneReport, section: &mut AddSection<'_>) {
    section("ceilings", "Limits ahead", &|b| parts::ceilings(b, &tune.ceilings));
    section("record", "The change record", &|b| {
        if let Some(record) = crate::record(view) {
            b.fold("Changes, proof and rollback on one page", false, |b| b.code("Change record", &record));
        }
    });
    section("measurements", "The measurements in full", &|b| {
        let same = tune.baseline == tune.best;
        let pairs = [(if same { "Measured" } else { "Before" }, &tune.baseline), ("After", &tune.best)];
        for (name, run) in pairs.into_iter().take(if same { 1 } else { 2 }) {
            b.fold(&format!("{name}: {}", phrases::run_headline(run)), false, |b| {
                run::failures(b, run);
                run::write_details(b, run);
            });
        }
    });
}

fn comparison(b: &mut Blocks, tune: &TuneReport) {
    if tune.state != TuneState::Applied {
        return;
    }
    let failed = |run: &RunReport| share(run.requests.failed, run.requests.completed + run.requests.failed);
    type FigureText<'a> = &'a dyn Fn(&RunReport) -> String;
    let figures: [(&str, FigureText<'_>); 4] = [
        ("req/s", &|run| rate_or_unknown(run.rate)),
        ("p50", &|run| time(run.response_time_us.p50)),
        ("p99", &|run| time(run.response_time_us.p99)),
        ("failed", &failed),
    ];
    let row = |(name, figure): &(&str, FigureText<'_>)| {
        vec![(*name).to_owned(), figure(&tune.baseline), figure(&tune.best)]
    };
    let columns = [("", Align::Words), ("before", Align::Number), ("after", Align::Number)];
    b.table("Before and after", &columns, figures.iter().map(row).collect());
}

fn limit(b: &mut Blocks, tune: &TuneReport) {
    // A plan says itself what is wrong today.
    if phrases::plans_for_limit(tune, tune.limit.as_deref()) {
        return;
    }
    let Some(id) = &tune.limit else {
        b.text("Unknown: the session ended before it was measured.");
        return;
    };
    b.strong(&format!("{} ({id})", phrases::limit_title(id)));
    tune.limit_summary.iter().for_each(|summary| b.text(summary));
    b.text(&wording::limit_meaning(id));
}

fn write_rounds(b: &mut Blocks, tune: &TuneReport) {
    if tune.rounds.is_empty() {
        return;
    }
    if tune.state != TuneState::Planned {
        b.bars("Gain of each round", vec![gains(tune)]);
        rounds_table(b, tune);
    }
    for round in &tune.rounds {
        let title = format!("Round {}: {}", round.n, phrases::round_outcome(tune, round));
        b.fold(&title, tune.state == TuneState::Planned, |b| write_round(b, tune, round));
    }
}

/// The ratio of each round with its interval: what lies above one is a gain.
fn gains(tune: &TuneReport) -> BarGroup {
    let bar = |round: &Round| {
        let told = round
            .ratio
            .zip(round.ci95)
            .map(|(ratio, ci95)| format!("{} ({})", times(ratio), times_interval(ratio, ci95)));
        Bar {
            label: format!("round {}", round.n),
            value: figure(round.ratio),
            interval: interval(round.ci95),
            text: told.unwrap_or_else(|| UNKNOWN.into()),
            tone: if round.kept { BarTone::After } else { BarTone::Before },
        }
    };
    let rows: Vec<Bar> = tune.rounds.iter().filter(|round| round.ratio.is_some()).map(bar).collect();
    BarGroup {
        title: "req/s after, as a multiple of before; the line is the 95% interval".into(),
        most: None,
        rows,
    }
}

fn rounds_table(b: &mut Blocks, tune: &TuneReport) {
    use Align::{Number, Words};
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
    b.table("Rounds", &columns, tune.rounds.iter().map(row).collect());
}

fn write_round(b: &mut Blocks, tune: &TuneReport, round: &Round) {
    b.text(&format!("{} ({})", round.summary, round.finding));
    let planned = tune.state == TuneState::Planned || phrases::is_proposal(round);
    let how = if planned { phrases::will_apply_text(round).to_owned() } else { phrases::applied_text(round) };
    let changes = round.changes.iter();
    let mut items: Vec<_> = changes
        .map(|change| format!("{} {}", change.setting.target.name(), phrases::change(change)))
        .collect();
    items.extend(phrases::files(round).iter().map(|file| format!("in {file}")));
    items.push(how);
    items.extend(phrases::guard_stop_text(round));
    items.extend(round.predicted.as_ref().map(|one| format!("expected: {}", phrases::predicted(one))));
    items.extend(phrases::surprise_text(round));
    items.extend(phrases::judged_text(round));
    items.extend(round.risk.as_ref().map(|risk| format!("risk: {risk}")));
    items.extend(phrases::owners(round));
    b.list(&items);
    if !round.diff.is_empty() {
        b.diff("The change as a diff", &round.diff);
    }
}
