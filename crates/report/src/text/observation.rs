//! An observation: what was watched, what went wrong, how the levels went, and what could not be read.

use super::diagnosis;
use super::page::{ColumnAlign, TextPage};
use crate::phrases::{self, title_with_role};
use webdyno_model::observation::{Observation, ObservedHost};
use webdyno_session::view::View;

/// The most settings that are shown of a service; the JSON has all.
const SETTINGS_MAX: usize = 40;

/// The whole observation.
pub(super) fn write_observation(page: &mut TextPage, view: &View, seen: &Observation) {
    page.heading(&phrases::capitalised(&phrases::observation_headline(seen)));
    page.paragraph(&format!("until {}", seen.taken_at));
    if !seen.incidents.is_empty() {
        page.heading("What went wrong");
        seen.incidents.iter().for_each(|incident| page.item("-", &phrases::incident(incident)));
    }
    let is_look = seen.window_s < phrases::SNAPSHOT_S_MAX;
    if is_look {
        write_current_levels(page, view);
    } else {
        levels(page, view);
    }
    for host in std::iter::once(&seen.observed).chain(&seen.others) {
        services(page, host);
        diagnosis::missing(page, &title_with_role(diagnosis::NOT_READ, host), &host.missing);
        if is_look {
            facts(page, host);
        }
        collectors(page, host, is_look);
    }
}

fn levels(page: &mut TextPage, view: &View) {
    if view.series.is_empty() {
        return;
    }
    page.heading("How it went");
    use ColumnAlign::{Number, Words};
    let titles = phrases::LEVEL_TITLES.map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(titles).chain(view.series.iter().map(phrases::level_row)).collect();
    page.table(&[Words, Number, Number, Number, Number], &rows);
}

/// Of one look there is no course, only how it stands.
fn write_current_levels(page: &mut TextPage, view: &View) {
    if view.series.is_empty() {
        return;
    }
    page.heading("How it stands");
    let rows: Vec<_> = view.series.iter().map(phrases::current_level).collect();
    page.table(&[ColumnAlign::Words, ColumnAlign::Number], &rows);
}

fn services(page: &mut TextPage, host: &ObservedHost) {
    page.heading(&title_with_role("The host and its services", host));
    page.paragraph(&phrases::machine(&host.host));
    for service in host.services.services() {
        page.item("-", &phrases::observed_service(service));
        if let Some(file) = &service.config_file {
            page.indented_item("configuration:", file);
        }
    }
    phrases::links(host).iter().for_each(|link| page.item("-", link));
    for service in host.services.services() {
        let rows = phrases::setting_rows(service);
        if rows.is_empty() {
            continue;
        }
        page.heading(&title_with_role(&format!("Settings of {}", service.service), host));
        page.table(&[ColumnAlign::Words; 3], &rows[..rows.len().min(SETTINGS_MAX)]);
        let parts = phrases::scoped_settings(service);
        parts.iter().take(SETTINGS_MAX).for_each(|part| page.item("-", part));
        let more = rows.len().saturating_sub(SETTINGS_MAX) + parts.len().saturating_sub(SETTINGS_MAX);
        if more > 0 {
            page.paragraph(&format!("and {more} more: --json has them all"));
        }
    }
}

fn facts(page: &mut TextPage, host: &ObservedHost) {
    for (layer, facts) in phrases::layers(host) {
        page.heading(&title_with_role(layer, host));
        let rows: Vec<_> = facts.into_iter().map(phrases::fact_row).collect();
        page.table(&[ColumnAlign::Words, ColumnAlign::Number, ColumnAlign::Number], &rows);
    }
    let count = phrases::zero_total_count(host);
    if count > 0 {
        page.gap();
        page.paragraph(&format!(
            "Beside these, {count} totals stand at zero; --json has every fact with its command."
        ));
    }
}

fn collectors(page: &mut TextPage, host: &ObservedHost, all: bool) {
    if all && !host.collectors.is_empty() {
        page.heading(&title_with_role("Readings", host));
        let titles = phrases::COLLECTOR_TITLES.map(str::to_owned).to_vec();
        let rows = std::iter::once(titles).chain(host.collectors.iter().map(phrases::collector_row));
        let mut columns = [ColumnAlign::Number; 6];
        columns[0] = ColumnAlign::Words;
        page.table(&columns, &rows.collect::<Vec<_>>());
    }
    let troubles = phrases::collector_problems(host);
    if !troubles.is_empty() {
        page.heading(&title_with_role("Readings that failed or came late", host));
        troubles.iter().for_each(|trouble| page.item("-", trouble));
    }
}
