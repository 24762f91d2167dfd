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

use crate::phrases;
use markup::Markup;
use parts::{ColumnAlign, table};
use webdyno_model::diagnosis::CHECK_SCHEMA;
use webdyno_model::run::RunReport;
use webdyno_session::view::{Outcome, SessionEnd, View};

/// The session as one self-contained HTML document.
pub fn html(view: &View) -> String {
    let mut m = Markup::default();
    let headline = headline(view);
    m.doctype();
    m.element("html", &[("lang", "en")], |m| {
        m.element("head", &[], |m| {
            m.empty("meta", &[("charset", "utf-8")]);
            m.empty("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
            m.text_element("title", &format!("webdyno {}: {headline}", view.command));
            m.style(include_str!("style.css"));
        });
        m.element("body", &[], |m| m.element("main", &[], |m| body(m, view, &headline)));
    });
    m.finish()
}

fn body(m: &mut Markup, view: &View, headline: &str) {
    m.element("header", &[], |m| {
        let made = format!("webdyno {} {}, {}", view.webdyno_version, view.command, view.started_at);
        m.text_element_with("p", &[("class", "quiet")], &made);
        m.text_element("h1", &with_unicode_arrows(&capitalised(headline)));
    });
    banners(m, view);
    match &view.outcome {
        Outcome::Run(run) => run_summary(m, run),
        Outcome::Diagnosis(diagnosis) => diagnosis::summary(m, diagnosis),
        Outcome::Tune(tune) => tune::summary(m, tune),
        Outcome::Observation(observed) => observation::summary(m, view, observed),
        Outcome::Nothing => write_no_result(m, view),
    }
    if let Outcome::Run(run) = &view.outcome {
        pages::write_waterfalls(m, run);
    }
    charts::write_charts(m, view);
    match &view.outcome {
        Outcome::Run(_) | Outcome::Nothing => {}
        Outcome::Diagnosis(diagnosis) => {
            parts::ceilings(m, &diagnosis.ceilings);
            diagnosis::write_details(m, diagnosis);
        }
        Outcome::Tune(tune) => {
            parts::ceilings(m, &tune.ceilings);
            tune::write_change_record(m, view);
            tune::measurements(m, tune);
        }
        Outcome::Observation(observed) => observation::write_details(m, observed),
    }
    if !matches!(view.outcome, Outcome::Observation(_)) {
        parts::server(m, view);
    }
    parts::notes(m, view);
    m.element("footer", &[], |m| {
        let again =
            "Every figure comes from the recording; webdyno report DIRECTORY makes this page again from it.";
        m.text_element_with("p", &[("class", "quiet")], again);
    });
}

fn headline(view: &View) -> String {
    match &view.outcome {
        Outcome::Run(run) => phrases::run_headline(run),
        Outcome::Tune(tune) => phrases::tune_headline(tune),
        Outcome::Diagnosis(check) if check.schema == CHECK_SCHEMA => phrases::check_headline(check),
        Outcome::Diagnosis(diagnosis) => match diagnosis.bottleneck.as_str() {
            id @ ("healthy" | "unknown") => phrases::limit_title(id),
            id => format!("limit: {}", phrases::limit_title(id)),
        },
        Outcome::Observation(observed) => phrases::observation_headline(observed),
        Outcome::Nothing => "nothing to report".into(),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Our own sentences have `->`, so that a terminal without Unicode shows them too; a page can have the real arrow.
fn with_unicode_arrows(text: &str) -> String {
    text.replace(" -> ", " \u{2192} ")
}

/// What spoils the rest: a torn recording, an error, a generator that was the bottleneck.
fn banners(m: &mut Markup, view: &View) {
    let banner = |m: &mut Markup, text: &str| m.text_element_with("p", &[("class", "banner")], text);
    if let Some(end) = phrases::session_end_note(view) {
        banner(m, &format!("{end}."));
    }
    if crate::may_have_changed_server(view) && view.end == SessionEnd::Torn {
        banner(m, phrases::MAY_BE_IN_FORCE);
    }
    let runs: Vec<(&str, &RunReport)> = match &view.outcome {
        Outcome::Run(run) => vec![("", run)],
        Outcome::Diagnosis(diagnosis) => diagnosis.run.iter().map(|run| ("", run)).collect(),
        Outcome::Tune(tune) => vec![("Before: ", &tune.baseline), ("After: ", &tune.best)],
        Outcome::Nothing | Outcome::Observation(_) => vec![],
    };
    for (which, run) in runs {
        if let Some(trip) = phrases::harm_guard_text(run) {
            banner(m, &format!("{which}{trip}."));
        }
        if !run.client.valid {
            banner(m, &format!("{which}{}.", phrases::generator(run)));
        }
    }
}

fn run_summary(m: &mut Markup, run: &RunReport) {
    run::write_cards(m, run);
    if !run.objectives.is_empty() {
        let row = |objective: &webdyno_model::run::ObjectiveResult| {
            let met = if objective.met { "met" } else { "not met" };
            vec![objective.slo.clone(), phrases::objective_value(objective), met.into()]
        };
        m.text_element("h2", "Objectives");
        let rows: Vec<_> = run.objectives.iter().map(row).collect();
        table(
            m,
            &[("objective", ColumnAlign::Code), ("measured", ColumnAlign::Number), ("", ColumnAlign::Words)],
            &rows,
        );
        if let Some(short) = phrases::objectives_too_short(run) {
            m.text_element("p", &short);
        }
    }
    if let Some(repeats) = &run.repeats {
        m.text_element(
            "h2",
            &format!("{}: {}", phrases::repeats_headline(repeats), phrases::repeats_spread(repeats)),
        );
        let mut rows = phrases::repeats_table(repeats);
        let titles = rows.remove(0);
        let column = |(index, title): (usize, &String)| {
            (title.clone(), if index == 0 { ColumnAlign::Words } else { ColumnAlign::Number })
        };
        let columns: Vec<(String, ColumnAlign)> = titles.iter().enumerate().map(column).collect();
        let columns: Vec<(&str, ColumnAlign)> =
            columns.iter().map(|(title, kind)| (title.as_str(), *kind)).collect();
        table(m, &columns, &rows);
        phrases::repeats_invalid(repeats).iter().for_each(|reported| m.text_element("p", reported));
        m.text_element_with("p", &[("class", "quiet")], phrases::REPEATS_MEAN);
    }
    ablation::write_ablation(m, run);
    m.text_element("h2", "The load");
    run::write_details(m, run);
}

fn write_no_result(m: &mut Markup, view: &View) {
    m.text_element("p", "The session ended before there was a result. What was measured:");
    let of = |load: &webdyno_session::view::LoadView| {
        format!("{}: {}", phrases::purpose(load), phrases::run_headline(&load.report))
    };
    let loads: Vec<_> = view.loads.iter().map(of).collect();
    if loads.is_empty() {
        m.text_element("p", "nothing");
    } else {
        parts::list(m, &loads);
    }
}
