//! The end of a session: exit code, report.html and the change record in the run directory, text or JSON on stdout.

use crate::cli::OutputArgs;
use crate::cli::export::{ExportArgs, is_stdout};
use crate::{exports, terminal};
use std::path::Path;
use webdyno_analysis::limits::LimitId;
use webdyno_model::error::io_error;
use webdyno_model::run::RunReport;
use webdyno_model::sweep::SweepPoint;
use webdyno_model::tune::{Goal, TuneReport, TuneState};
use webdyno_model::{ErrorKind, Result, UserError};
use webdyno_report::{ResultPaths, TextStyle};
use webdyno_session::live::{EndedSession, LiveSession};
use webdyno_session::recording::Recording;
use webdyno_session::view::{Outcome, View};

/// What lies beside the recording.
const HTML: &str = "report.html";
const RECORD: &str = "change-record.md";

/// Exit code for a goal or objective that was not met, an invalid run, or one in which every request failed.
pub const NOT_MET: u8 = 3;

/// Ends a session: writes its last event and its report, and shows it. Gives the exit code. `result` is what the work
/// came to; an error of it is returned after everything that was measured is shown.
pub fn finish(
    session: LiveSession,
    result: Result<()>,
    output: &OutputArgs,
    fail_on_fault: bool,
) -> Result<u8> {
    let directory = session.directory().to_owned();
    let error = result.err();
    let code = match &error {
        Some(error) => error.exit_code(),
        None => exit_code(&View::of(session.recording())?.outcome, fail_on_fault),
    };
    let ended = session.end(code, error.as_ref())?;
    let displayed = write_outputs(&ended.recording, &directory, &output.exports, style(output));
    conclude(ended, code, error, displayed)
}

/// The same of a session that only writes its readings, and remembers none.
pub fn finish_from_disk(
    mut session: LiveSession,
    result: Result<()>,
    output: &OutputArgs,
    fail_on_fault: bool,
) -> Result<u8> {
    let directory = session.directory().to_owned();
    let error = result.err();
    let code = match &error {
        Some(error) => error.exit_code(),
        None => exit_code(&View::of(&session.read_back()?)?.outcome, fail_on_fault),
    };
    let ended = session.end(code, error.as_ref())?;
    let displayed = write_outputs_from_disk(&directory, output);
    conclude(ended, code, error, displayed)
}

/// What the program ends with: the error of the session, then that of its results, then the exit code. Where results that cannot be
/// written change the exit code, the recording says so.
pub fn conclude(
    ended: EndedSession,
    code: u8,
    error: Option<UserError>,
    displayed: Result<()>,
) -> Result<u8> {
    match (error, displayed) {
        // An interrupted session shows what it has; that it was interrupted is known to who did it.
        (Some(error), _) if error.kind != ErrorKind::Interrupted => Err(error),
        (_, Ok(())) => Ok(code),
        (_, Err(unwritten)) => {
            // A disk that is full may have no room for that, either.
            let _ = ended.amend(unwritten.exit_code(), format!("results are missing: {}", unwritten.message));
            Err(unwritten)
        }
    }
}

/// How the text looks.
pub fn style(output: &OutputArgs) -> TextStyle {
    terminal::style(output.verbose, output.color)
}

/// Writes and shows what is on disk of a session.
pub fn write_outputs_from_disk(directory: &Path, output: &OutputArgs) -> Result<()> {
    let recording = Recording::read(directory)?;
    write_outputs(&recording, directory, &output.exports, style(output))
}

/// Writes what lies beside the recording, what the flags say for other programs, and the text unless one of these takes
/// stdout.
pub fn write_outputs(
    recording: &Recording,
    directory: &Path,
    exports: &ExportArgs,
    style: TextStyle,
) -> Result<()> {
    let view = View::of(recording)?;
    let reports = write_reports(&view, directory);
    let written = match view.outcome {
        Outcome::Nothing => Ok(()),
        _ => exports::write(exports, recording, &view),
    };
    if !exports.takes_stdout() {
        print(&view, directory, style)?;
    }
    reports.and(written)
}

/// Shows a view as text.
pub fn print(view: &View, directory: &Path, style: TextStyle) -> Result<()> {
    terminal::print_report(&webdyno_report::text(view, &paths(view, directory), style))
}

/// Writes report.html, and for a session that was to change something its change record, into the run directory.
pub fn write_reports(view: &View, directory: &Path) -> Result<()> {
    // First what matters more, on a disk that may be full.
    let record = webdyno_report::record(view).map(|record| write(&directory.join(RECORD), &record));
    let html = write(&directory.join(HTML), &webdyno_report::html(view));
    record.unwrap_or(Ok(())).and(html)
}

/// Writes a whole file.
pub fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| {
        let reported = io_error("write", path.display(), &error);
        match reported.hint {
            Some(_) => reported,
            None => reported.hint("give a file in a directory that exists"),
        }
    })
}

/// Shows what is made from recordings and is no session: its JSON where the flag says, and the text unless that takes stdout.
pub fn show(json: Option<&Path>, rendered: serde_json::Result<String>, text: &str) -> Result<()> {
    let rendered =
        rendered.map_err(|error| UserError::cannot_run(format!("cannot write it as json: {error}")))? + "\n";
    let written = match json {
        Some(path) if is_stdout(path) => return terminal::print(&rendered),
        Some(path) => write(path, &rendered),
        None => Ok(()),
    };
    terminal::print_report(text)?;
    written
}

/// The last lines of the text: where things lie and what acts on them.
pub fn paths(view: &View, directory: &Path) -> ResultPaths {
    let state = match &view.outcome {
        Outcome::Tune(tune) => Some(tune.state),
        _ => None,
    };
    // The private Apache of the quickstart is gone: there is nothing to roll back or to apply.
    let lasting = view.command == "tune";
    let inside = |name: &str| directory.join(name).display().to_string();
    ResultPaths {
        directory: Some(directory.display().to_string()),
        html: Some(inside(HTML)),
        record: webdyno_report::record(view).map(|_| inside(RECORD)),
        rollback: webdyno_report::rollback(view),
        apply: (lasting && state == Some(TuneState::Planned)).then(|| "the same command with --apply".into()),
    }
}

/// The exit code that an outcome deserves.
pub fn exit_code(outcome: &Outcome, fail_on_fault: bool) -> u8 {
    let met = match outcome {
        Outcome::Run(run) => is_run_successful(run),
        Outcome::Diagnosis(diagnosis) => {
            let sound = diagnosis.bottleneck == LimitId::Healthy;
            (sound || !fail_on_fault) && diagnosis.run.as_ref().is_none_or(is_run_successful)
        }
        Outcome::Tune(tune) => is_tune_successful(tune),
        Outcome::Capacity(found) => found.rate.is_some() && found.generator.is_none(),
        Outcome::Sweep(found) => {
            let can_be_chosen =
                |point: &SweepPoint| point.rate.is_some() && point.missed.is_none() && point.failed.is_none();
            found.points.iter().any(can_be_chosen)
        }
        Outcome::Observation(_) => true,
        Outcome::Nothing => false,
    };
    if met { 0 } else { NOT_MET }
}

fn is_run_successful(run: &RunReport) -> bool {
    // Of pages that all lack a part, nobody has seen one.
    let pages_fail = run.pages.as_ref().is_some_and(|pages| pages.completed == 0 && pages.failed > 0);
    // Nor has anybody done what such sessions do.
    let sessions_break = run
        .visits
        .as_ref()
        .is_some_and(|visits| visits.sessions_completed == 0 && visits.sessions_broken > 0);
    let answers = run.requests.completed > 0 && !pages_fail && !sessions_break;
    let objectives = run.objectives.iter().all(|objective| objective.met);
    run.client.valid && run.brake.is_none() && answers && objectives
}

/// A session that only plans has no goal to meet yet; `max` is done when it ended.
fn is_tune_successful(tune: &TuneReport) -> bool {
    let believable = tune.best.client.valid && tune.best.requests.completed > 0 && tune.best.brake.is_none();
    let goal = tune.goal == Goal::Max || tune.goal_met;
    let objectives = tune.best.objectives.iter().all(|objective| objective.met);
    believable && (tune.state == TuneState::Planned || (goal && objectives))
}

/// What a session without any result says.
pub fn no_result_error(directory: &Path) -> UserError {
    UserError::cannot_run(format!("{} holds no load and no observation", directory.display()))
        .hint("the session ended before anything was measured")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measuring::session_info;
    use clap::ColorChoice;
    use serde_json::json;
    use webdyno_model::environment::Environment;
    use webdyno_model::harm_guard::{HarmCause, HarmGuardTrip};
    use webdyno_model::number::Number;
    use webdyno_model::run::ObjectiveResult;
    use webdyno_model::tune::Improvement;

    fn run(completed: u64, valid: bool, met: bool) -> RunReport {
        let mut run = RunReport::default();
        run.requests.completed = completed;
        run.client.valid = valid;
        run.objectives = vec![ObjectiveResult { slo: "p99<1s".into(), met, ..ObjectiveResult::default() }];
        run
    }

    #[test]
    fn a_tuning_whose_every_load_did_harm_exits_with_3() {
        for (trip, code) in [(None, 0), (Some(harm_guard_trip()), 3)] {
            for state in [TuneState::Planned, TuneState::Reverted] {
                let best = RunReport { brake: trip.clone(), ..run(1, true, true) };
                let tune = TuneReport {
                    schema: String::new(),
                    goal: Goal::Max,
                    goal_met: false,
                    limit: None,
                    limit_summary: None,
                    baseline: best.clone(),
                    best,
                    improvement: Improvement { metric: "rate".into(), ratio: None, ci95: None },
                    rounds: vec![],
                    state,
                    ceilings: vec![],
                    live_traffic: None,
                    environment: Environment::default(),
                };
                assert_eq!(exit_code(&Outcome::Tune(tune), false), code, "{state:?}");
            }
        }
    }

    fn harm_guard_trip() -> HarmGuardTrip {
        let (cause, number) = (HarmCause::Unreachable, Number(2.0));
        HarmGuardTrip {
            cause,
            metric: String::new(),
            value: number,
            limit: number,
            text: "it is gone".into(),
        }
    }

    #[test]
    fn a_sweep_without_a_point_to_choose_exits_with_3() {
        for (point, code) in [
            (json!({"values": [1.0], "rate": 5.0}), 0),
            (json!({"values": [1.0], "rate": 5.0, "missed": "p99<1s"}), 3),
            // Of two loads the second one did harm.
            (json!({"values": [1.0], "rate": 5.0, "failed": "the load was stopped"}), 3),
            (json!({"values": [1.0], "failed": "no request succeeded"}), 3),
        ] {
            let report = json!({"schema": "", "knob": "users", "points": [point]});
            let found = Box::new(serde_json::from_value(report).unwrap());
            assert_eq!(exit_code(&Outcome::Sweep(found), false), code, "{point}");
        }
    }

    #[test]
    fn the_recording_of_a_check_ends_with_its_exit_code() {
        let interrupted = || Err(UserError::interrupted());
        for (result, can_be_written, code) in [
            // Nothing was read.
            (Ok(()), true, NOT_MET),
            (Ok(()), false, 1),
            (interrupted(), true, 130),
            (interrupted(), false, 1),
        ] {
            let place = tempfile::tempdir().unwrap();
            let directory = place.path().join("c");
            let info = session_info("check", None, &[]);
            let session = LiveSession::observe(&directory, info, Default::default(), Box::new(|_| {}), None);
            if !can_be_written {
                std::fs::create_dir(directory.join(HTML)).unwrap();
            }
            let is_interrupted = result.is_err();
            let ended = finish_from_disk(session.unwrap(), result, &quiet(), true);
            assert_eq!(ended.unwrap_or_else(|error| error.exit_code()), code);
            let recording = Recording::read(&directory).unwrap();
            let end = recording.end.map(|(recorded, error)| (recorded, error.is_some()));
            assert_eq!(end, Some((code, is_interrupted)));
            let names_it = |note: &String| note.contains(HTML);
            assert_eq!(recording.notes.iter().any(names_it), !can_be_written, "{:?}", recording.notes);
        }
    }

    fn quiet() -> OutputArgs {
        OutputArgs {
            exports: ExportArgs::default(),
            live: Default::default(),
            out: None,
            quiet: true,
            verbose: false,
            color: ColorChoice::Never,
            no_tui: true,
            web: None,
        }
    }

    #[test]
    fn runs_that_prove_nothing_exit_with_3() {
        for (outcome, code) in [
            (run(1, true, true), 0),
            (run(0, true, true), 3),
            (run(1, false, true), 3),
            (run(1, true, false), 3),
        ] {
            assert_eq!(exit_code(&Outcome::Run(outcome), false), code);
        }
        let stopped = RunReport { brake: Some(harm_guard_trip()), ..run(1, true, true) };
        assert_eq!(exit_code(&Outcome::Run(stopped), false), 3);
        for (completed, failed, code) in [(0, 0, 0), (1, 9, 0), (0, 9, 3)] {
            let pages = webdyno_model::page::PageReport { completed, failed, ..Default::default() };
            let report = RunReport { pages: Some(pages), ..run(1, true, true) };
            assert_eq!(exit_code(&Outcome::Run(report), false), code, "{completed} whole, {failed} failed");
        }
        for (sessions_completed, sessions_broken, code) in [(0, 0, 0), (1, 9, 0), (0, 9, 3)] {
            let visits = webdyno_model::page::VisitCounts {
                sessions_completed,
                sessions_broken,
                ..Default::default()
            };
            let report = RunReport { visits: Some(visits), ..run(1, true, true) };
            let reported = format!("{sessions_completed} whole, {sessions_broken} broken");
            assert_eq!(exit_code(&Outcome::Run(report), false), code, "{reported}");
        }
        assert_eq!(exit_code(&Outcome::Nothing, false), 3);
    }
}
