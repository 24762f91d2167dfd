//! The report to keep, and the page of a session that runs: what it shows as data, whose layout and plots are a bundle that is
//! built from `web/` and committed there. All sentences are made here, by the phrases that the terminal's text has too; the bundle
//! lays them out as text, so that no string of a recording becomes markup.

mod blocks;
mod capacity;
mod curve;
mod diagnosis;
mod flame;
mod logs;
mod observation;
mod pages;
mod parts;
mod plots;
mod run;
mod shell;
mod summary;
mod tune;

use crate::phrases;
use blocks::{Blocks, Section};
use plots::TimeAxis;
use serde::Serialize;
pub use shell::{html, live_page, logs_html};
use summary::Summary;
use webdyno_model::diagnosis::CHECK_SCHEMA;
use webdyno_model::run::RunReport;
use webdyno_session::view::{Outcome, SessionEnd, View};

/// Everything that a page shows, for `web/src/report` (data.ts has the same shapes).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PageData {
    /// Of the window.
    title: String,
    /// Program, command, time, machine.
    meta: Vec<String>,
    /// What spoils the figures.
    banners: Vec<String>,
    /// What is read in ten seconds.
    summary: Summary,
    /// Everything else, in order.
    sections: Vec<Section>,
    /// The common axis of all plots over time.
    time: TimeAxis,
}

impl PageData {
    /// The same of a session that goes on: that it has no end yet spoils nothing.
    #[must_use]
    pub fn under_way(mut self) -> Self {
        self.banners.clear();
        self.meta.push("under way".into());
        self
    }
}

/// `2026-11-24 20:08 UTC`.
fn began(at: &str) -> String {
    let time = at.parse::<jiff::Timestamp>();
    time.map_or_else(|_| at.to_owned(), |time| time.strftime("%F %R UTC").to_string())
}

/// What a session's page shows.
pub fn page_data(view: &View) -> PageData {
    let made = format!("webdyno {} {}", view.webdyno_version, view.command);
    let host = view.server.as_ref().and_then(|server| server.hostname.clone());
    let summary = summary::summary(view);
    PageData {
        title: format!("webdyno {}: {}", view.command, summary.headline),
        meta: [Some(made), Some(began(&view.started_at)), host].into_iter().flatten().collect(),
        banners: banners(view),
        sections: sections(view),
        summary,
        time: plots::time_axis(view),
    }
}

/// What to change, where the time goes, plots, then the evidence.
fn sections(view: &View) -> Vec<Section> {
    let mut page = vec![];
    let mut section = |id: &'static str, title: &str, write: &dyn Fn(&mut Blocks)| {
        page.extend(Section::of(id, title, write));
    };
    match &view.outcome {
        Outcome::Run(run) => run::sections(run, &mut section),
        Outcome::Diagnosis(diagnosis) => diagnosis::sections(diagnosis, &mut section),
        Outcome::Tune(tune) => tune::sections(tune, &mut section),
        Outcome::Capacity(found) => capacity::sections(found, &mut section),
        Outcome::Observation(observed) => observation::sections(view, observed, &mut section),
        Outcome::Sweep(sweep) => curve::sections(sweep, &mut section),
        Outcome::Nothing => section("measured", "What was measured", &|b| no_result(b, view)),
    }
    plots::sections(view, &mut section);
    match &view.outcome {
        Outcome::Run(run) => run::details(run, &mut section),
        Outcome::Capacity(_) | Outcome::Sweep(_) | Outcome::Nothing => {}
        Outcome::Diagnosis(diagnosis) => diagnosis::details(diagnosis, &mut section),
        Outcome::Tune(tune) => tune::details(view, tune, &mut section),
        Outcome::Observation(observed) => observation::details(observed, &mut section),
    }
    if !matches!(view.outcome, Outcome::Observation(_)) {
        section("server", "The server", &|b| parts::server(b, view));
    }
    section("notes", "Notes", &|b| b.list(&parts::notes(view)));
    page
}

/// Adds a section, unless nothing is written in it.
type AddSection<'a> = dyn FnMut(&'static str, &str, &dyn Fn(&mut Blocks)) + 'a;

/// What spoils the rest: a torn recording, an error, a generator that was the bottleneck.
fn banners(view: &View) -> Vec<String> {
    let mut banners: Vec<String> =
        phrases::session_end_note(view).map(|end| format!("{end}.")).into_iter().collect();
    if crate::may_have_changed_server(view) && view.end == SessionEnd::Torn {
        banners.push(phrases::MAY_BE_IN_FORCE.into());
    }
    let runs: Vec<(&str, &RunReport)> = match &view.outcome {
        Outcome::Run(run) => vec![("", run)],
        Outcome::Diagnosis(diagnosis) => diagnosis.run.iter().map(|run| ("", run)).collect(),
        Outcome::Tune(tune) => vec![("Before: ", &tune.baseline), ("After: ", &tune.best)],
        Outcome::Nothing | Outcome::Observation(_) | Outcome::Capacity(_) | Outcome::Sweep(_) => vec![],
    };
    for (which, run) in runs {
        banners.extend(phrases::harm_guard_text(run).map(|trip| format!("{which}{trip}.")));
        if !run.client.valid {
            banners.push(format!("{which}{}.", phrases::generator(run)));
        }
    }
    banners
}

fn no_result(b: &mut Blocks, view: &View) {
    b.text("The session ended before there was a result. What was measured:");
    let of = |load: &webdyno_session::view::LoadView| {
        format!("{}: {}", phrases::purpose(load), phrases::run_headline(&load.report))
    };
    let loads: Vec<_> = view.loads.iter().map(of).collect();
    if loads.is_empty() {
        b.text("nothing");
    }
    b.list(&loads);
}

/// Our own sentences have `->`, so that a terminal without Unicode shows them too; a page can have the real arrow.
fn with_unicode_arrows(text: &str) -> String {
    text.replace(" -> ", " \u{2192} ")
}

/// The headline of the outcome.
fn headline(view: &View) -> String {
    match &view.outcome {
        Outcome::Run(run) => phrases::run_headline(run),
        Outcome::Tune(tune) => phrases::tune_headline(tune),
        Outcome::Diagnosis(check) if check.schema == CHECK_SCHEMA => phrases::check_headline(check),
        Outcome::Diagnosis(diagnosis) => phrases::limit_title(&diagnosis.bottleneck),
        Outcome::Capacity(found) => phrases::capacity_headline(found),
        Outcome::Observation(observed) => phrases::observation_headline(observed),
        Outcome::Sweep(sweep) => phrases::sweep::headline(sweep),
        Outcome::Nothing => "nothing to report".into(),
    }
}
