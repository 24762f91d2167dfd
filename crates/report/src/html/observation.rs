//! An observation as HTML: what was watched and what went wrong, the levels, and every metric with its command by hand.

use super::markup::Markup;
use super::parts::{ColumnAlign, list, table};
use crate::phrases;
use webdyno_model::observation::{Observation, ObservedHost};
use webdyno_session::view::View;

/// More settings of parts of the site than this nobody reads here; the JSON has all.
const SCOPED_MAX: usize = 200;

/// What was watched, what went wrong, and how the levels went.
pub(super) fn summary(m: &mut Markup, view: &View, seen: &Observation) {
    m.text_element_with("p", &[("class", "quiet")], &format!("until {}", seen.taken_at));
    if !seen.incidents.is_empty() {
        m.text_element("h2", "What went wrong");
        list(m, &seen.incidents.iter().map(phrases::incident).collect::<Vec<_>>());
    }
    for host in std::iter::once(&seen.observed).chain(&seen.others) {
        m.text_element("h2", &title_with_role("The host and its services", host));
        m.text_element("p", &phrases::machine(&host.host));
        let services = host.services.services().map(phrases::observed_service);
        let links = phrases::links(host).into_iter().map(|link| super::with_unicode_arrows(&link));
        let lines: Vec<String> = services.chain(links).collect();
        if !lines.is_empty() {
            list(m, &lines);
        }
    }
    if !view.series.is_empty() && seen.window_s >= phrases::SNAPSHOT_S_MAX {
        use ColumnAlign::{Number, Words};
        let kinds = [Words, Number, Number, Number, Number];
        let columns: Vec<_> = phrases::LEVEL_TITLES.into_iter().zip(kinds).collect();
        m.text_element("h2", "How it went");
        table(m, &columns, &view.series.iter().map(phrases::level_row).collect::<Vec<_>>());
    }
}

/// Everything else: settings, every metric, the readings, and what could not be read.
pub(super) fn write_details(m: &mut Markup, seen: &Observation) {
    for host in std::iter::once(&seen.observed).chain(&seen.others) {
        missing(m, host);
        settings(m, host);
        facts(m, host);
        write_readings(m, host);
    }
}

/// `title`, and of another host its role.
fn title_with_role(title: &str, host: &ObservedHost) -> String {
    host.role.as_ref().map_or_else(|| title.to_owned(), |role| format!("{title} ({role})"))
}

fn missing(m: &mut Markup, host: &ObservedHost) {
    if host.missing.is_empty() {
        return;
    }
    m.text_element("h2", &title_with_role("Not measured", host));
    let rows = host.missing.iter().map(|m| vec![m.signal.clone(), m.why.clone(), m.how_to_enable.clone()]);
    let columns =
        [("signal", ColumnAlign::Words), ("why", ColumnAlign::Words), ("to enable", ColumnAlign::Words)];
    table(m, &columns, &rows.collect::<Vec<_>>());
}

fn settings(m: &mut Markup, host: &ObservedHost) {
    for service in host.services.services() {
        let rows = phrases::setting_rows(service);
        if rows.is_empty() {
            continue;
        }
        m.element("details", &[], |m| {
            m.text_element("summary", &title_with_role(&format!("Settings of {}", service.service), host));
            let columns = [
                ("setting", ColumnAlign::Code),
                ("in force", ColumnAlign::Code),
                ("from", ColumnAlign::Code),
            ];
            table(m, &columns, &rows);
            let parts = phrases::scoped_settings(service);
            if !parts.is_empty() {
                list(m, &parts[..parts.len().min(SCOPED_MAX)]);
            }
        });
    }
}

fn facts(m: &mut Markup, host: &ObservedHost) {
    let columns = [
        ("metric", ColumnAlign::Code),
        ("value", ColumnAlign::Number),
        ("rate", ColumnAlign::Number),
        ("read from", ColumnAlign::Words),
        ("by hand", ColumnAlign::Code),
    ];
    for (layer, facts) in phrases::layers(host) {
        let row = |fact: &&webdyno_model::observation::ObservedFact| {
            let figures = phrases::fact_row(fact).into_iter();
            figures.chain([fact.source.clone(), fact.reproduce.clone()]).collect()
        };
        m.element("details", &[], |m| {
            m.text_element("summary", &title_with_role(&format!("{layer}: what was read last"), host));
            table(m, &columns, &facts.iter().map(row).collect::<Vec<_>>());
        });
    }
}

fn write_readings(m: &mut Markup, host: &ObservedHost) {
    let troubles = phrases::collector_problems(host);
    if !troubles.is_empty() {
        m.text_element("h2", &title_with_role("Readings that failed or came late", host));
        list(m, &troubles);
    }
    let kinds = std::iter::once(ColumnAlign::Words).chain(std::iter::repeat(ColumnAlign::Number));
    let columns: Vec<_> = phrases::COLLECTOR_TITLES.into_iter().zip(kinds).collect();
    m.element("details", &[], |m| {
        m.text_element("summary", &title_with_role("How the readings went", host));
        table(m, &columns, &host.collectors.iter().map(phrases::collector_row).collect::<Vec<_>>());
    });
}
