//! An observation as HTML: what was watched and what went wrong, the levels, and every metric with its command by hand.

use super::markup::Markup;
use super::parts::{Column, list, table};
use crate::say;
use webdyno_model::observation::{Observation, ObservedHost};
use webdyno_session::view::View;

/// More settings of parts of the site than this nobody reads here; the JSON has all.
const SCOPED_MAX: usize = 200;

/// What was watched, what went wrong, and how the levels went.
pub(super) fn summary(m: &mut Markup, view: &View, seen: &Observation) {
    m.leaf_with("p", &[("class", "quiet")], &format!("until {}", seen.taken_at));
    if !seen.incidents.is_empty() {
        m.leaf("h2", "What went wrong");
        list(m, &seen.incidents.iter().map(say::incident).collect::<Vec<_>>());
    }
    for host in std::iter::once(&seen.observed).chain(&seen.others) {
        m.leaf("h2", &titled("The host and its services", host));
        m.leaf("p", &say::machine(&host.host));
        let services = host.services.services().map(say::observed_service);
        let links = say::links(host).into_iter().map(|link| super::arrows(&link));
        let lines: Vec<String> = services.chain(links).collect();
        if !lines.is_empty() {
            list(m, &lines);
        }
    }
    if !view.series.is_empty() && seen.window_s >= say::LOOK_S_MAX {
        use Column::{Number, Words};
        let kinds = [Words, Number, Number, Number, Number];
        let columns: Vec<_> = say::LEVEL_TITLES.into_iter().zip(kinds).collect();
        m.leaf("h2", "How it went");
        table(m, &columns, &view.series.iter().map(say::level_row).collect::<Vec<_>>());
    }
}

/// Everything else: settings, every metric, the readings, and what could not be read.
pub(super) fn details(m: &mut Markup, seen: &Observation) {
    for host in std::iter::once(&seen.observed).chain(&seen.others) {
        missing(m, host);
        settings(m, host);
        facts(m, host);
        readings(m, host);
    }
}

/// `title`, and of another host its role.
fn titled(title: &str, host: &ObservedHost) -> String {
    host.role.as_ref().map_or_else(|| title.to_owned(), |role| format!("{title} ({role})"))
}

fn missing(m: &mut Markup, host: &ObservedHost) {
    if host.missing.is_empty() {
        return;
    }
    m.leaf("h2", &titled("What could not be read", host));
    let rows = host.missing.iter().map(|m| vec![m.signal.clone(), m.why.clone(), m.how_to_enable.clone()]);
    let columns = [("signal", Column::Words), ("why", Column::Words), ("to have it", Column::Words)];
    table(m, &columns, &rows.collect::<Vec<_>>());
}

fn settings(m: &mut Markup, host: &ObservedHost) {
    for service in host.services.services() {
        let rows = say::setting_rows(service);
        if rows.is_empty() {
            continue;
        }
        m.within("details", &[], |m| {
            m.leaf("summary", &titled(&format!("Settings of {}", service.service), host));
            let columns = [("setting", Column::Code), ("in force", Column::Code), ("from", Column::Code)];
            table(m, &columns, &rows);
            let parts = say::scoped_settings(service);
            if !parts.is_empty() {
                list(m, &parts[..parts.len().min(SCOPED_MAX)]);
            }
        });
    }
}

fn facts(m: &mut Markup, host: &ObservedHost) {
    let columns = [
        ("metric", Column::Code),
        ("value", Column::Number),
        ("rate", Column::Number),
        ("read from", Column::Words),
        ("by hand", Column::Code),
    ];
    for (layer, facts) in say::layers(host) {
        let row = |fact: &&webdyno_model::observation::ObservedFact| {
            let figures = say::fact_row(fact).into_iter();
            figures.chain([fact.source.clone(), fact.reproduce.clone()]).collect()
        };
        m.within("details", &[], |m| {
            m.leaf("summary", &titled(&format!("{layer}: what was read last"), host));
            table(m, &columns, &facts.iter().map(row).collect::<Vec<_>>());
        });
    }
}

fn readings(m: &mut Markup, host: &ObservedHost) {
    let troubles = say::troubles(host);
    if !troubles.is_empty() {
        m.leaf("h2", &titled("Readings that failed or came late", host));
        list(m, &troubles);
    }
    let kinds = std::iter::once(Column::Words).chain(std::iter::repeat(Column::Number));
    let columns: Vec<_> = say::COLLECTOR_TITLES.into_iter().zip(kinds).collect();
    m.within("details", &[], |m| {
        m.leaf("summary", &titled("How the readings went", host));
        table(m, &columns, &host.collectors.iter().map(say::collector_row).collect::<Vec<_>>());
    });
}
