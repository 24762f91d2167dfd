//! The report for a terminal, 80 columns wide: one screen with the answer first, or all of it.

mod ablation;
mod capacity;
mod check;
pub mod compare;
mod curve_plot;
mod diagnosis;
mod histogram;
pub mod history;
pub mod logs;
mod observation;
mod page;
mod pages;
pub mod predict;
mod run;
mod screen;
pub mod size;
mod study;
pub mod sweep;
mod tune;

use crate::{ResultPaths, TextStyle, phrases};
use page::TextPage;
use webdyno_model::diagnosis::CHECK_SCHEMA;
use webdyno_session::view::{Outcome, SessionEnd, View};

/// The session as text, with a final newline.
pub fn text(view: &View, paths: &ResultPaths, style: TextStyle) -> String {
    if let Some(screen) = (!style.is_verbose).then(|| screen::screen(view, paths, style)).flatten() {
        return screen;
    }
    let mut page = TextPage::new(style);
    if let Some(end) = phrases::session_end_note(view).filter(|_| view.outcome != Outcome::Nothing) {
        page.paragraph(&format!("Note: {end}."));
    }
    if crate::may_have_changed_server(view) && view.end == SessionEnd::Torn {
        page.paragraph(phrases::MAY_BE_IN_FORCE);
    }
    match &view.outcome {
        Outcome::Run(run) => run::write_run(&mut page, view, run),
        Outcome::Diagnosis(check) if check.schema == CHECK_SCHEMA => {
            check::write_check(&mut page, view, check)
        }
        Outcome::Diagnosis(diagnosis) => diagnosis::write_diagnosis(&mut page, view, diagnosis),
        Outcome::Tune(tune) => tune::write_tune(&mut page, view, tune, paths),
        Outcome::Capacity(found) => capacity::write_capacity(&mut page, view, found),
        Outcome::Observation(observed) => observation::write_observation(&mut page, view, observed),
        Outcome::Sweep(found) => sweep::write_sweep(&mut page, found, usize::MAX),
        Outcome::Nothing => write_no_result(&mut page, view),
    }
    notes(&mut page, view);
    write_closing(&mut page, view, paths);
    page.finish()
}

fn write_no_result(page: &mut TextPage, view: &View) {
    page.heading(&format!("webdyno {}: nothing to report", view.command));
    match &view.end {
        SessionEnd::Done(_) => page.paragraph("It ended before there was a result."),
        SessionEnd::Failed(_, error) => page.paragraph(&format!("It ended with an error: {error}.")),
        SessionEnd::Torn => {
            page.paragraph("The recording has no result yet: the session was killed or still runs.");
        }
    }
    for load in &view.loads {
        page.item("-", &format!("{}: {}", phrases::purpose(load), phrases::run_headline(&load.report)));
    }
}

fn notes(page: &mut TextPage, view: &View) {
    let warnings = view.service.iter().flat_map(|service| &service.warnings);
    let notes: Vec<_> = view.notes.iter().chain(warnings).collect();
    if notes.is_empty() {
        return;
    }
    page.heading("Notes");
    for note in notes {
        page.item("-", note);
    }
}

fn write_closing(page: &mut TextPage, view: &View, paths: &ResultPaths) {
    let undo = paths.rollback.clone().or_else(|| crate::rollback(view));
    if paths.directory.is_none() && paths.html.is_none() && undo.is_none() {
        return;
    }
    page.heading("Files and commands");
    if let Some(html) = &paths.html {
        page.verbatim(&format!("Report with plots:  {html}"));
    }
    if let Some(record) = &paths.record {
        page.verbatim(&format!("Change record:      {record}"));
    }
    if let Some(directory) = &paths.directory {
        page.verbatim(&format!("Recording:          {directory}"));
        page.verbatim(&format!("Show it again:      webdyno report {directory}"));
    }
    if let Some(undo) = undo {
        page.verbatim(&format!("Undo the changes:   {undo}"));
        for (on, command) in crate::change_record::rollback_of_others(view) {
            page.verbatim(&format!("  {on}: {command}"));
        }
    }
}
