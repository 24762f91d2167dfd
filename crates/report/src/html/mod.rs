//! The report to keep: one HTML file that needs nothing else, no script, no font, no network.
//!
//! It is written in the XML syntax of HTML (WHATWG HTML 14), so that any XML tool can check it. Light and dark follow
//! the reader's system; on a narrow screen tables and plots scroll sideways in their own frame.

mod ablation;
mod charts;
mod diagnosis;
mod markup;
mod observation;
mod pages;
mod parts;
mod plot;
mod rows;
mod run;
mod tune;

use crate::say;
use markup::Markup;
use parts::{Column, table};
use webdyno_model::diagnosis::CHECK_SCHEMA;
use webdyno_model::run::RunReport;
use webdyno_session::view::{Outcome, SessionEnd, View};

/// The session as one self-contained HTML document.
pub fn html(view: &View) -> String {
    let mut m = Markup::default();
    let headline = headline(view);
    m.doctype();
    m.within("html", &[("lang", "en")], |m| {
        m.within("head", &[], |m| {
            m.empty("meta", &[("charset", "utf-8")]);
            m.empty("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
            m.leaf("title", &format!("webdyno {}: {headline}", view.command));
            m.style(include_str!("style.css"));
        });
        m.within("body", &[], |m| m.within("main", &[], |m| body(m, view, &headline)));
    });
    m.finish()
}

fn body(m: &mut Markup, view: &View, headline: &str) {
    m.within("header", &[], |m| {
        let made = format!("webdyno {} {}, {}", view.webdyno_version, view.command, view.started_at);
        m.leaf_with("p", &[("class", "quiet")], &made);
        m.leaf("h1", &arrows(&capitalised(headline)));
    });
    banners(m, view);
    match &view.outcome {
        Outcome::Run(run) => run_summary(m, run),
        Outcome::Diagnosis(diagnosis) => diagnosis::summary(m, diagnosis),
        Outcome::Tune(tune) => tune::summary(m, tune),
        Outcome::Observation(seen) => observation::summary(m, view, seen),
        Outcome::Nothing => nothing(m, view),
    }
    if let Outcome::Run(run) = &view.outcome {
        pages::waterfalls(m, run);
    }
    charts::all(m, view);
    match &view.outcome {
        Outcome::Run(_) | Outcome::Nothing => {}
        Outcome::Diagnosis(diagnosis) => {
            parts::ceilings(m, &diagnosis.ceilings);
            diagnosis::details(m, diagnosis);
        }
        Outcome::Tune(tune) => {
            parts::ceilings(m, &tune.ceilings);
            tune::record(m, view);
            tune::measurements(m, tune);
        }
        Outcome::Observation(seen) => observation::details(m, seen),
    }
    if !matches!(view.outcome, Outcome::Observation(_)) {
        parts::server(m, view);
    }
    parts::notes(m, view);
    m.within("footer", &[], |m| {
        let again =
            "Every figure comes from the recording; webdyno report DIRECTORY makes this page again from it.";
        m.leaf_with("p", &[("class", "quiet")], again);
    });
}

fn headline(view: &View) -> String {
    match &view.outcome {
        Outcome::Run(run) => say::run_headline(run),
        Outcome::Tune(tune) => say::tune_headline(tune),
        Outcome::Diagnosis(check) if check.schema == CHECK_SCHEMA => say::check_headline(check),
        Outcome::Diagnosis(diagnosis) => match diagnosis.bottleneck.as_str() {
            "healthy" => "healthy, no limit was reached".into(),
            "unknown" => "the limit is not known".into(),
            id => format!("what limits the server: {id}"),
        },
        Outcome::Observation(seen) => say::observation_headline(seen),
        Outcome::Nothing => "nothing to report".into(),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Our own sentences have `->`, so that a terminal without Unicode shows them too; a page can have the real arrow.
fn arrows(text: &str) -> String {
    text.replace(" -> ", " \u{2192} ")
}

/// What spoils the rest: a torn recording, an error, a generator that was the bottleneck.
fn banners(m: &mut Markup, view: &View) {
    let banner = |m: &mut Markup, text: &str| m.leaf_with("p", &[("class", "banner")], text);
    if let Some(end) = say::end(view) {
        banner(m, &format!("{end}."));
    }
    if crate::may_have_changed(view) && view.end == SessionEnd::Torn {
        banner(m, say::MAY_BE_IN_FORCE);
    }
    let runs: Vec<(&str, &RunReport)> = match &view.outcome {
        Outcome::Run(run) => vec![("", run)],
        Outcome::Diagnosis(diagnosis) => diagnosis.run.iter().map(|run| ("", run)).collect(),
        Outcome::Tune(tune) => vec![("Before: ", &tune.baseline), ("After: ", &tune.best)],
        Outcome::Nothing | Outcome::Observation(_) => vec![],
    };
    for (which, run) in runs {
        if let Some(brake) = say::brake(run) {
            banner(m, &format!("{which}{brake}."));
        }
        if !run.client.valid {
            banner(m, &format!("{which}{}.", say::generator(run)));
        }
    }
}

fn run_summary(m: &mut Markup, run: &RunReport) {
    run::cards(m, run);
    if !run.objectives.is_empty() {
        let row = |objective: &webdyno_model::run::ObjectiveResult| {
            let met = if objective.met { "met" } else { "not met" };
            vec![objective.slo.clone(), say::objective_value(objective), met.into()]
        };
        m.leaf("h2", "Objectives");
        let rows: Vec<_> = run.objectives.iter().map(row).collect();
        table(m, &[("objective", Column::Code), ("measured", Column::Number), ("", Column::Words)], &rows);
        if let Some(short) = say::objectives_too_short(run) {
            m.leaf("p", &short);
        }
    }
    if let Some(repeats) = &run.repeats {
        m.leaf("h2", &format!("{}: {}", say::repeats_headline(repeats), say::repeats_spread(repeats)));
        let mut rows = say::repeats_table(repeats);
        let titles = rows.remove(0);
        let column = |(index, title): (usize, &String)| {
            (title.clone(), if index == 0 { Column::Words } else { Column::Number })
        };
        let columns: Vec<(String, Column)> = titles.iter().enumerate().map(column).collect();
        let columns: Vec<(&str, Column)> =
            columns.iter().map(|(title, kind)| (title.as_str(), *kind)).collect();
        table(m, &columns, &rows);
        say::repeats_invalid(repeats).iter().for_each(|told| m.leaf("p", told));
        m.leaf_with("p", &[("class", "quiet")], say::REPEATS_MEAN);
    }
    ablation::whole(m, run);
    m.leaf("h2", "The load");
    run::details(m, run);
}

fn nothing(m: &mut Markup, view: &View) {
    m.leaf("p", "The session ended before there was a result. What was measured:");
    let of = |load: &webdyno_session::view::LoadView| {
        format!("{}: {}", say::purpose(load), say::run_headline(&load.report))
    };
    let loads: Vec<_> = view.loads.iter().map(of).collect();
    if loads.is_empty() {
        m.leaf("p", "nothing");
    } else {
        parts::list(m, &loads);
    }
}
