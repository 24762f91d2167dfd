//! What is read in ten seconds: whether the goal is met, what limited, what was changed, how much better it is, and how sure that is.

use super::blocks::{Bar, BarGroup, BarTone, figure, interval};
use super::{headline, pages, with_unicode_arrows};
use crate::human::{UNKNOWN, rate_interval, rate_or_unknown, share, time};
use crate::phrases::{self, capitalised};
use crate::wording;
use serde::Serialize;
use webdyno_analysis::measurement::statistics::mean_ci95;
use webdyno_model::capacity::CapacityReport;
use webdyno_model::diagnosis::{CHECK_SCHEMA, Diagnosis};
use webdyno_model::run::RunReport;
use webdyno_model::sweep::SweepReport;
use webdyno_model::tune::{Goal, Round, TuneReport, TuneState};
use webdyno_session::view::{Outcome, View};

/// The top of a page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Summary {
    tone: Tone,
    /// `Goal met`, `Limit found`.
    status: String,
    pub(super) headline: String,
    pub(super) points: Vec<Point>,
    /// The few figures that matter most, where no bars have them.
    figures: Vec<(String, String)>,
    bars: Vec<BarGroup>,
    /// The changes as a diff.
    pub(super) diff: String,
    /// Commands that act on it.
    commands: Vec<Command>,
}

/// How the verdict is meant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Tone {
    Good,
    Bad,
    Warning,
    Plain,
}

/// `What limited`: a sentence, and what belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Point {
    pub(super) label: String,
    pub(super) text: String,
    pub(super) note: String,
}

/// A command with what it does.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Command {
    label: &'static str,
    command: String,
}

/// The summary of a session.
pub(super) fn summary(view: &View) -> Summary {
    let mut summary = match &view.outcome {
        Outcome::Run(run) => of_run(run),
        Outcome::Diagnosis(check) if check.schema == CHECK_SCHEMA => of_check(check),
        Outcome::Diagnosis(diagnosis) => of_diagnosis(diagnosis),
        Outcome::Tune(tune) => of_tune(tune),
        Outcome::Capacity(found) => of_capacity(found),
        Outcome::Observation(seen) => {
            let went_wrong =
                seen.incidents.iter().map(|one| point("What went wrong", &phrases::incident(one), ""));
            let (tone, status) = match seen.incidents.is_empty() {
                true => (Tone::Plain, "Observed"),
                false => (Tone::Bad, "Incidents"),
            };
            Summary { points: went_wrong.take(3).collect(), ..empty(tone, status) }
        }
        Outcome::Sweep(sweep) => of_sweep(sweep),
        Outcome::Nothing => empty(Tone::Warning, "No result"),
    };
    summary.headline = capitalised(&with_unicode_arrows(&headline(view)));
    let undo = crate::rollback(view).map(|command| Command { label: "Undo:", command });
    let details = view
        .directory
        .as_ref()
        .map(|directory| Command { label: "Show it again:", command: format!("webdyno report {directory}") });
    summary.commands.extend(undo.into_iter().chain(details));
    summary
}

/// The summary of access logs: the lines of the text.
pub(super) fn of_logs(headline: &str, rows: &[Vec<String>]) -> Summary {
    let points = rows.iter().filter_map(|row| Some(point(capitalised(row.first()?), row.get(1)?, "")));
    let (tone, status) =
        if rows.is_empty() { (Tone::Warning, "Nothing found") } else { (Tone::Good, "Counted") };
    Summary { headline: headline.into(), points: points.collect(), ..empty(tone, status) }
}

fn empty(tone: Tone, status: &str) -> Summary {
    Summary {
        tone,
        status: status.into(),
        headline: String::new(),
        points: vec![],
        figures: vec![],
        bars: vec![],
        diff: String::new(),
        commands: vec![],
    }
}

fn point(label: impl Into<String>, text: &str, note: &str) -> Point {
    Point { label: label.into(), text: with_unicode_arrows(text), note: with_unicode_arrows(note) }
}

fn of_sweep(sweep: &SweepReport) -> Summary {
    if sweep.study.is_some() {
        let points = phrases::sweep::why(sweep);
        let points = points.iter().map(|text| point("Effect", text, ""));
        return Summary { points: points.collect(), ..empty(Tone::Good, "Measured") };
    }
    let is_chosen = sweep.choice.is_some() || sweep.best.is_some();
    let (tone, status) = if is_chosen { (Tone::Good, "Choice") } else { (Tone::Warning, "No choice") };
    let points = phrases::sweep::why(sweep);
    Summary { points: points.iter().map(|text| point("Why", text, "")).collect(), ..empty(tone, status) }
}

fn of_capacity(found: &CapacityReport) -> Summary {
    let (tone, status) = match (&found.generator, found.rate) {
        (Some(_), _) => (Tone::Warning, "Not valid"),
        (None, Some(_)) => (Tone::Good, "Capacity found"),
        (None, None) => (Tone::Bad, "Objectives missed"),
    };
    let points = phrases::capacity_points(found);
    let points = points.iter().map(|(label, text)| point(*label, text, ""));
    Summary { points: points.collect(), ..empty(tone, status) }
}

fn of_run(run: &RunReport) -> Summary {
    let missed = run.objectives.iter().any(|objective| !objective.met);
    let (tone, status) = match (run.client.valid, missed, run.objectives.is_empty()) {
        (false, ..) => (Tone::Warning, "Not valid"),
        _ if run.requests.completed == 0 => (Tone::Bad, "Nothing succeeded"),
        _ if run.brake.is_some() => (Tone::Bad, "Stopped to prevent harm"),
        (_, true, _) => (Tone::Bad, "Objective missed"),
        (_, _, false) => (Tone::Good, "Objectives met"),
        _ => (Tone::Plain, "Measured"),
    };
    let objectives = run.objectives.iter().map(|objective| {
        let met = if objective.met { "met" } else { "not met" };
        let measured = format!("measured: {}", phrases::objective_value(objective));
        point("Objective", &format!("{} {met}", objective.slo), &measured)
    });
    let mut points: Vec<Point> = objectives.collect();
    let mut load = run.workload.as_ref().map(phrases::load).unwrap_or_default();
    load.push(phrases::measured(run));
    points.push(point("Load", &load[0], &load[1..].join("; ")));
    let repeats = run.repeats.as_ref().map(|repeats| {
        format!("{}: {}", phrases::repeats_headline(repeats), phrases::repeats_spread(repeats))
    });
    points.push(point("How sure", &phrases::generator(run), &repeats.unwrap_or_default()));
    Summary { points, figures: figures(run), ..empty(tone, status) }
}

/// The figures of a load that matter most.
fn figures(run: &RunReport) -> Vec<(String, String)> {
    let ended = run.requests.completed + run.requests.failed;
    let figures = pages::page_figures(run).unwrap_or_else(|| {
        vec![
            ("req/s", rate_or_unknown(run.rate)),
            ("failed", share(run.requests.failed, ended)),
            ("p50", time(run.response_time_us.p50)),
            ("p99", time(run.response_time_us.p99)),
        ]
    });
    figures.into_iter().map(|(what, figure)| (what.to_owned(), figure)).collect()
}

/// The tone and the word of a limit.
fn verdict(id: &str) -> (Tone, &'static str) {
    match id {
        "healthy" => (Tone::Good, "No limit reached"),
        "unknown" => (Tone::Warning, "Limit unknown"),
        "generator-saturated" | "kernel-limit-total" => (Tone::Warning, "Not valid"),
        _ => (Tone::Bad, "Limit found"),
    }
}

fn of_diagnosis(diagnosis: &Diagnosis) -> Summary {
    let (tone, status) = verdict(&diagnosis.bottleneck);
    let figures = diagnosis.run.as_ref().map(figures).unwrap_or_default();
    let Some(first) = diagnosis.findings.first() else {
        let nothing = point("What limits", "No rule applies to this recording.", "");
        return Summary { points: vec![nothing], figures, ..empty(tone, status) };
    };
    let mut points = vec![point("What limits", &first.summary, &first.id)];
    match first.remedies.first() {
        Some(best) => {
            points.push(point(
                "What to change",
                &phrases::remedy(best),
                phrases::how(best).unwrap_or(&best.why),
            ));
            let expected = best.predicted.as_ref().map_or_else(|| UNKNOWN.into(), phrases::predicted);
            points.push(point("How much better", &expected, &best.risk));
        }
        None => points.push(point("What to do", &wording::limit_meaning(&first.id), "")),
    }
    points.push(point("How sure", &phrases::confidence_text(first.confidence, first.explains_fraction), ""));
    Summary { points, figures, ..empty(tone, status) }
}

fn of_check(check: &Diagnosis) -> Summary {
    let worst = check.findings.iter().filter(|finding| finding.id != "healthy").take(3);
    let of = |finding: &webdyno_model::diagnosis::Finding| {
        let change = finding.remedies.first().map(phrases::remedy).unwrap_or_default();
        point("Contradiction", &finding.summary, &change)
    };
    let points: Vec<Point> = worst.map(of).collect();
    let (tone, status) =
        if points.is_empty() { (Tone::Good, "No contradiction") } else { (Tone::Bad, "Check") };
    Summary { points, ..empty(tone, status) }
}

fn of_tune(tune: &TuneReport) -> Summary {
    let (tone, status) = match (tune.state, tune.goal, tune.goal_met) {
        (TuneState::Planned, ..) => (Tone::Plain, "Plan only: nothing was written on the server"),
        (TuneState::Applied, Goal::Max, _) => (Tone::Good, "Improved"),
        (TuneState::Reverted, Goal::Max, _) => (Tone::Plain, "Unchanged"),
        (_, _, true) => (Tone::Good, "Goal met"),
        (_, _, false) => (Tone::Bad, "Goal not met"),
    };
    let shown: Vec<&Round> = tune.rounds.iter().filter(|round| is_in_summary(tune, round)).collect();
    let mut points = vec![point(
        "Goal",
        &phrases::goal(tune),
        if tune.state == TuneState::Reverted { phrases::reverted(tune) } else { "" },
    )];
    for round in &shown {
        let of = |what: &str| match shown.len() {
            1 => what.to_owned(),
            _ => format!("{what}, round {}", round.n),
        };
        points.push(point(of("What limited"), &phrases::limit_title(&round.finding), &round.summary));
        let changes: Vec<_> = round.changes.iter().map(phrases::change).collect();
        points.push(point(of(changed_label(tune, round)), &changes.join(", "), &how_applied(tune, round)));
    }
    let generator = phrases::generator(&tune.best);
    points.push(match tune.state {
        TuneState::Applied => {
            let judged = shown
                .iter()
                .filter_map(|round| phrases::judged_text(round))
                .next_back()
                .map(|why| capitalised(&why));
            let why: Vec<String> = judged.into_iter().chain([generator]).collect();
            point("How sure", &phrases::gain_text(tune), &why.join(". "))
        }
        _ => point("How sure", &generator, ""),
    });
    let (figures, bars) = match tune.state {
        TuneState::Applied => (vec![], before_and_after(tune)),
        _ => (figures(&tune.baseline), vec![]),
    };
    let diff: Vec<&str> = shown.iter().map(|round| round.diff.as_str()).collect();
    Summary { points, figures, bars, diff: diff.concat(), ..empty(tone, status) }
}

/// What stayed, is planned, or is proposed.
fn is_in_summary(tune: &TuneReport, round: &Round) -> bool {
    tune.state == TuneState::Planned
        || (tune.state == TuneState::Applied && round.kept)
        || phrases::is_proposal(round)
}

fn changed_label(tune: &TuneReport, round: &Round) -> &'static str {
    match (tune.state, phrases::is_proposal(round)) {
        (_, true) => "Proposed, not written",
        (TuneState::Planned, _) => "What would be changed",
        _ => "What was changed",
    }
}

fn how_applied(tune: &TuneReport, round: &Round) -> String {
    let planned = tune.state == TuneState::Planned || phrases::is_proposal(round);
    let how = if planned { phrases::will_apply_text(round).to_owned() } else { phrases::applied_text(round) };
    format!("in {}; {how}", phrases::files(round).join(", "))
}

/// The rates with their intervals, and what most clients waited.
fn before_and_after(tune: &TuneReport) -> Vec<BarGroup> {
    let (before, after) = (&tune.baseline, &tune.best);
    let bar = |label: &str, tone, value: Option<f64>, text: String, ends| Bar {
        label: label.into(),
        value: figure(value),
        interval: interval(ends),
        text,
        tone,
    };
    let p99 = |run: &RunReport| run.response_time_us.p99;
    let of_time =
        |label: &str, tone, us: Option<u64>| bar(label, tone, us.map(|us| us as f64), time(us), None);
    let of_rate = |label: &str, tone, run: &RunReport| {
        let rates: Vec<f64> = run.intervals.iter().map(|second| second.rate).collect();
        let ci95 = mean_ci95(&rates);
        let text = ci95.map_or_else(String::new, |ci95| format!(" ({})", rate_interval(ci95)));
        bar(label, tone, run.rate, format!("{}{text}", rate_or_unknown(run.rate)), ci95)
    };
    let rates = vec![of_rate("before", BarTone::Before, before), of_rate("after", BarTone::After, after)];
    let times =
        vec![of_time("before", BarTone::Before, p99(before)), of_time("after", BarTone::After, p99(after))];
    let group = |title: String, rows| BarGroup { title, most: None, rows };
    vec![
        group("Successful req/s, with 95% intervals".into(), rates),
        group("p99 response time".into(), times),
    ]
}
