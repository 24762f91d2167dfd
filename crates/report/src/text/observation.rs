//! An observation: what was watched, what went wrong, how the levels went, and what could not be read.

use super::diagnosis;
use super::page::{Column, Page};
use crate::say;
use webdyno_model::observation::{Observation, ObservedHost};
use webdyno_session::view::View;

/// The most settings that are shown of a service; the JSON has all.
const SETTINGS_MAX: usize = 40;

/// The whole observation.
pub(super) fn whole(page: &mut Page, view: &View, seen: &Observation) {
    page.heading(&capitalised(&say::observation_headline(seen)));
    page.para(&format!("until {}", seen.taken_at));
    if !seen.incidents.is_empty() {
        page.heading("What went wrong");
        seen.incidents.iter().for_each(|incident| page.item("-", &say::incident(incident)));
    }
    let is_look = seen.window_s < say::LOOK_S_MAX;
    if is_look {
        levels_now(page, view);
    } else {
        levels(page, view);
    }
    for host in std::iter::once(&seen.observed).chain(&seen.others) {
        services(page, host);
        diagnosis::missing(page, &titled(diagnosis::NOT_READ, host), &host.missing);
        if is_look {
            facts(page, host);
        }
        collectors(page, host, is_look);
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// `title`, and of another host its role.
fn titled(title: &str, host: &ObservedHost) -> String {
    host.role.as_ref().map_or_else(|| title.to_owned(), |role| format!("{title} ({role})"))
}

fn levels(page: &mut Page, view: &View) {
    if view.series.is_empty() {
        return;
    }
    page.heading("How it went");
    let columns = [Column::Words, Column::Number, Column::Number, Column::Number, Column::Number];
    let titles = say::LEVEL_TITLES.map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(titles).chain(view.series.iter().map(say::level_row)).collect();
    page.table(&columns, &rows);
}

/// Of one look there is no course, only how it stands.
fn levels_now(page: &mut Page, view: &View) {
    if view.series.is_empty() {
        return;
    }
    page.heading("How it stands");
    let rows: Vec<_> = view.series.iter().map(say::level_now).collect();
    page.table(&[Column::Words, Column::Number], &rows);
}

fn services(page: &mut Page, host: &ObservedHost) {
    page.heading(&titled("The host and its services", host));
    page.para(&say::machine(&host.host));
    for service in host.services.services() {
        page.item("-", &say::observed_service(service));
        if let Some(file) = &service.config_file {
            page.inner_item("configuration:", file);
        }
    }
    say::links(host).iter().for_each(|link| page.item("-", link));
    for service in host.services.services() {
        let rows = say::setting_rows(service);
        if rows.is_empty() {
            continue;
        }
        page.heading(&titled(&format!("Settings of {}", service.service), host));
        page.table(&[Column::Words; 3], &rows[..rows.len().min(SETTINGS_MAX)]);
        let parts = say::scoped_settings(service);
        parts.iter().take(SETTINGS_MAX).for_each(|part| page.item("-", part));
        let more = rows.len().saturating_sub(SETTINGS_MAX) + parts.len().saturating_sub(SETTINGS_MAX);
        if more > 0 {
            page.para(&format!("and {more} more: --json has them all"));
        }
    }
}

fn facts(page: &mut Page, host: &ObservedHost) {
    for (layer, facts) in say::layers(host) {
        page.heading(&titled(layer, host));
        let rows: Vec<_> = facts.into_iter().map(say::fact_row).collect();
        page.table(&[Column::Words, Column::Number, Column::Number], &rows);
    }
    let count = say::never_happened_count(host);
    if count > 0 {
        page.gap();
        page.para(&format!(
            "Beside these, {count} totals stand at zero; --json has every fact with its command."
        ));
    }
}

fn collectors(page: &mut Page, host: &ObservedHost, all: bool) {
    if all && !host.collectors.is_empty() {
        page.heading(&titled("Readings", host));
        let titles = say::COLLECTOR_TITLES.map(str::to_owned).to_vec();
        let rows = std::iter::once(titles).chain(host.collectors.iter().map(say::collector_row));
        let mut columns = [Column::Number; 6];
        columns[0] = Column::Words;
        page.table(&columns, &rows.collect::<Vec<_>>());
    }
    let troubles = say::troubles(host);
    if !troubles.is_empty() {
        page.heading(&titled("Readings that failed or came late", host));
        troubles.iter().for_each(|trouble| page.item("-", trouble));
    }
}
