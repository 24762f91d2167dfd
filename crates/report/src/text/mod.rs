//! The report for a terminal: 80 columns of plain text, written for somebody who never tuned a server.

mod ablation;
mod check;
mod diagnosis;
mod histogram;
mod observation;
mod page;
mod pages;
mod run;
mod tune;

use crate::{Paths, say};
use page::Page;
use webdyno_model::diagnosis::CHECK_SCHEMA;
use webdyno_session::view::{Outcome, SessionEnd, View};

/// The session as text, with a final newline.
pub fn text(view: &View, paths: &Paths) -> String {
    let mut page = Page::default();
    if let Some(end) = say::end(view).filter(|_| view.outcome != Outcome::Nothing) {
        page.para(&format!("Note: {end}."));
    }
    if crate::may_have_changed(view) && view.end == SessionEnd::Torn {
        page.para(say::MAY_BE_IN_FORCE);
    }
    match &view.outcome {
        Outcome::Run(run) => run::whole(&mut page, view, run),
        Outcome::Diagnosis(check) if check.schema == CHECK_SCHEMA => check::whole(&mut page, view, check),
        Outcome::Diagnosis(diagnosis) => diagnosis::whole(&mut page, view, diagnosis),
        Outcome::Tune(tune) => tune::whole(&mut page, view, tune, paths),
        Outcome::Observation(seen) => observation::whole(&mut page, view, seen),
        Outcome::Nothing => nothing(&mut page, view),
    }
    notes(&mut page, view);
    closing(&mut page, view, paths);
    page.finish()
}

fn nothing(page: &mut Page, view: &View) {
    page.heading(&format!("webdyno {}: nothing to report", view.command));
    match &view.end {
        SessionEnd::Done(_) => page.para("It ended before there was a result."),
        SessionEnd::Failed(_, error) => page.para(&format!("It ended with an error: {error}.")),
        SessionEnd::Torn => {
            page.para("The recording stops before there was a result: it was killed, or it still runs.");
        }
    }
    for load in &view.loads {
        page.item("-", &format!("{}: {}", say::purpose(load), say::run_headline(&load.report)));
    }
}

fn notes(page: &mut Page, view: &View) {
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

fn closing(page: &mut Page, view: &View, paths: &Paths) {
    let undo = paths.rollback.clone().or_else(|| crate::rollback(view));
    if paths.directory.is_none() && paths.html.is_none() && undo.is_none() {
        return;
    }
    page.heading("Where things are");
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
    }
}
