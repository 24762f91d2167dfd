//! What a command prints by itself: the answer first, on one screen of 40 lines and 80 columns. Evidence, commands and the other
//! tables are in the long text (`-v`) and in the HTML report.

mod capacity;
mod check;
mod diagnosis;
mod run;
mod tune;

use super::page::{TextPage, Tone};
use crate::{ResultPaths, TextStyle, phrases};
use webdyno_model::diagnosis::{CHECK_SCHEMA, Diagnosis, Finding, Remedy};
use webdyno_model::run::RunReport;
use webdyno_session::view::{Outcome, SessionEnd, View};

/// The lines that a screen has.
pub(super) const LINES_MAX: usize = 40;

/// How much of each part is shown: what does not fit on the screen is shown with less.
#[derive(Clone, Copy)]
struct Room {
    /// Lines of a sentence or two.
    text_lines: usize,
    /// Rows of a table.
    rows: usize,
    /// Notes, and other findings.
    extras: usize,
}

/// From all that is useful to what is needed.
const ROOMS: [Room; 4] = [
    Room { text_lines: 4, rows: 8, extras: 4 },
    Room { text_lines: 3, rows: 5, extras: 3 },
    Room { text_lines: 3, rows: 3, extras: 2 },
    Room { text_lines: 2, rows: 2, extras: 1 },
];

/// The screen of an outcome; `None` for one that has none, which is shown in full.
pub(super) fn screen(view: &View, paths: &ResultPaths, style: TextStyle) -> Option<String> {
    if matches!(view.outcome, Outcome::Observation(_) | Outcome::Nothing) {
        return None;
    }
    let pages = ROOMS.iter().map(|room| write(view, paths, style, *room));
    let mut shortest = String::new();
    for page in pages {
        shortest = page;
        if shortest.lines().count() <= LINES_MAX {
            break;
        }
    }
    Some(shortest)
}

fn write(view: &View, paths: &ResultPaths, style: TextStyle, room: Room) -> String {
    let mut page = TextPage::new(style);
    if let Some(end) = phrases::session_end_note(view) {
        page.title(Tone::Warning, &format!("Note: {end}."), "");
    }
    if crate::may_have_changed_server(view) && view.end == SessionEnd::Torn {
        page.paragraph(phrases::MAY_BE_IN_FORCE);
    }
    match &view.outcome {
        Outcome::Run(run) => run::write_run(&mut page, view, run, room),
        Outcome::Diagnosis(check) if check.schema == CHECK_SCHEMA => {
            check::write_check(&mut page, check, room);
        }
        Outcome::Diagnosis(found) => diagnosis::write_diagnosis(&mut page, found, room),
        Outcome::Tune(tune) => tune::write_tune(&mut page, view, tune, room),
        Outcome::Sweep(found) => super::sweep::write_sweep(&mut page, found, room.rows),
        Outcome::Capacity(found) => capacity::write_capacity(&mut page, view, found, room),
        Outcome::Observation(_) | Outcome::Nothing => {}
    }
    notes(&mut page, view, room);
    closing(&mut page, view, paths);
    page.finish()
}

/// What a run was, and how far it is valid.
fn load(page: &mut TextPage, run: &RunReport, room: Room) {
    page.heading(&format!("Load: {}", phrases::run_headline(run)));
    let latency = (run.response_time_us.count > 0)
        .then(|| phrases::percentile_phrase("response time", &run.response_time_us));
    let conditions = run.workload.as_ref().map(phrases::load).unwrap_or_default();
    let lines = latency.into_iter().chain([conditions.join("; ")]).filter(|line| !line.is_empty());
    lines.for_each(|line| page.short_item("", &line, room.text_lines.min(3)));
    if !run.client.valid || !run.client.valid_for.latency {
        page.short_item("", &format!("{}.", phrases::generator(run)), room.text_lines);
    }
}

/// What to change first: setting, file and line, how it takes effect, what to expect.
fn change(page: &mut TextPage, finding: &Finding, room: Room) {
    let Some((best, others)) = finding.remedies.split_first() else { return };
    page.heading("Change");
    page.short_item("", &phrases::remedy(best), room.text_lines);
    details(page, best, room);
    for other in others.iter().take(room.extras.saturating_sub(1).min(2)) {
        page.short_item("or", &phrases::remedy(other), 1);
    }
}

fn details(page: &mut TextPage, remedy: &Remedy, room: Room) {
    if let Some(how) = phrases::how(remedy) {
        page.short_item("how: ", how, 1);
    }
    page.short_item("why: ", &remedy.why, room.text_lines);
    if !remedy.risk.is_empty() {
        page.short_item("risk:", &remedy.risk, room.text_lines.min(2));
    }
    if let Some(predicted) = &remedy.predicted {
        page.short_item("expect:", &phrases::predicted(predicted), 1);
    }
}

/// Other findings, by their titles.
fn also(page: &mut TextPage, others: &[Finding], room: Room) {
    if others.is_empty() {
        return;
    }
    let named: Vec<String> = others
        .iter()
        .map(|finding| {
            let sure = phrases::confidence_percent(finding.confidence);
            format!("{} ({}, confidence {sure})", phrases::limit_title(&finding.id), finding.id)
        })
        .collect();
    page.gap();
    page.short_item("Also found:", &named.join("; "), room.extras);
}

/// The first notes; all are in the long text.
fn notes(page: &mut TextPage, view: &View, room: Room) {
    let warnings = view.service.iter().flat_map(|service| &service.warnings);
    let mut notes: Vec<&String> = vec![];
    for note in view.notes.iter().chain(warnings) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    if notes.is_empty() {
        return;
    }
    page.heading("Notes");
    for note in notes.iter().take(room.extras) {
        page.short_item("-", note, room.text_lines.min(2));
    }
    if let Some(more) = notes.len().checked_sub(room.extras).filter(|more| *more > 0) {
        page.paragraph(&format!("and {more} more: -v shows them"));
    }
}

/// Where to look on, and how to undo.
fn closing(page: &mut TextPage, view: &View, paths: &ResultPaths) {
    let undo = paths.rollback.clone().or_else(|| crate::rollback(view));
    if paths.directory.is_some() || undo.is_some() {
        page.gap();
    }
    if let Some(apply) = &paths.apply {
        page.verbatim(&format!("Apply:   {apply}"));
    }
    if let Some(undo) = undo {
        page.verbatim(&format!("Undo:    {undo}"));
        for (on, command) in crate::change_record::rollback_of_others(view) {
            page.verbatim(&format!("         {on}: {command}"));
        }
    }
    if let Some(record) = &paths.record {
        page.verbatim(&format!("Record:  {record}"));
    }
    if let Some(directory) = &paths.directory {
        page.verbatim(&format!("Details: webdyno report {directory} -v"));
    }
    if let Some(html) = &paths.html {
        page.verbatim(&format!("Plots:   {html}"));
    }
}

/// The title of a diagnosis, in the tone of its verdict.
fn verdict(page: &mut TextPage, found: &Diagnosis) {
    let sure = found
        .findings
        .first()
        .map(|first| format!("confidence {}", phrases::confidence_percent(first.confidence)));
    let tone = match found.bottleneck.as_str() {
        "healthy" => Tone::Good,
        "unknown" | "generator-saturated" | "kernel-limit-total" => Tone::Warning,
        _ => Tone::Bad,
    };
    let title = phrases::limit_title(&found.bottleneck);
    let title = if tone == Tone::Bad { format!("Limit: {title}") } else { title };
    page.title(tone, &title, sure.as_deref().unwrap_or_default());
}
