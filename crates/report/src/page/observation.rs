//! An observation: what was watched and what went wrong, the levels, and every metric with its command by hand.

use super::blocks::{Align, Blocks};
use super::{AddSection, diagnosis};
use crate::phrases::{self, title_with_role};
use webdyno_model::observation::{Observation, ObservedFact, ObservedHost};
use webdyno_session::view::View;

/// More settings of parts of the site than this nobody reads here; the JSON has all.
const SCOPED_MAX: usize = 200;

/// What was watched, what went wrong, and how the levels went.
pub(super) fn sections(view: &View, seen: &Observation, section: &mut AddSection<'_>) {
    section("incidents", "What went wrong", &|b| {
        b.list(&seen.incidents.iter().map(phrases::incident).collect::<Vec<_>>());
    });
    section("hosts", "The host and its services", &|b| {
        b.quiet(&format!("until {}", seen.taken_at));
        for host in hosts(seen) {
            host.role.iter().for_each(|role| b.heading(role));
            b.text(&phrases::machine(&host.host));
            let services = host.services.services().map(phrases::observed_service);
            b.list(&services.chain(phrases::links(host)).collect::<Vec<_>>());
        }
    });
    section("levels", "How it went", &|b| {
        if seen.window_s >= phrases::SNAPSHOT_S_MAX {
            use Align::{Number, Words};
            let columns = phrases::LEVEL_TITLES.into_iter().zip([Words, Number, Number, Number, Number]);
            let rows = view.series.iter().map(phrases::level_row).collect();
            b.table("Levels", &columns.collect::<Vec<_>>(), rows);
        }
    });
}

fn hosts(seen: &Observation) -> impl Iterator<Item = &ObservedHost> {
    std::iter::once(&seen.observed).chain(&seen.others)
}

/// Everything else: settings, every metric, the readings, and what could not be read.
pub(super) fn details(seen: &Observation, section: &mut AddSection<'_>) {
    section("settings", "Settings", &|b| hosts(seen).for_each(|host| settings(b, host)));
    section("metrics", "What was read last", &|b| hosts(seen).for_each(|host| facts(b, host)));
    section("missing", "Not measured", &|b| {
        for host in hosts(seen).filter(|host| !host.missing.is_empty()) {
            host.role.iter().for_each(|role| b.heading(role));
            diagnosis::missing(b, &host.missing);
        }
    });
    section("readings", "How the readings went", &|b| hosts(seen).for_each(|host| readings(b, host)));
}

fn settings(b: &mut Blocks, host: &ObservedHost) {
    for service in host.services.services() {
        let rows = phrases::setting_rows(service);
        if rows.is_empty() {
            continue;
        }
        let title = title_with_role(&format!("Settings of {}", service.service), host);
        b.fold(&title, false, |b| {
            let columns = [("setting", Align::Code), ("in force", Align::Code), ("from", Align::Code)];
            b.table(&title, &columns, rows);
            let parts = phrases::scoped_settings(service);
            b.list(&parts[..parts.len().min(SCOPED_MAX)]);
        });
    }
}

fn facts(b: &mut Blocks, host: &ObservedHost) {
    use Align::{Code, Command, Number, Words};
    let columns =
        [("metric", Code), ("value", Number), ("rate", Number), ("read from", Words), ("by hand", Command)];
    for (layer, facts) in phrases::layers(host) {
        let row = |fact: &&ObservedFact| {
            let figures = phrases::fact_row(fact).into_iter();
            figures.chain([fact.source.clone(), fact.reproduce.clone()]).collect()
        };
        let title = title_with_role(layer, host);
        b.fold(&title, false, |b| b.table(&title, &columns, facts.iter().map(row).collect()));
    }
}

fn readings(b: &mut Blocks, host: &ObservedHost) {
    b.list(&phrases::collector_problems(host));
    let aligns = std::iter::once(Align::Words).chain(std::iter::repeat(Align::Number));
    let columns: Vec<_> = phrases::COLLECTOR_TITLES.into_iter().zip(aligns).collect();
    let title = title_with_role("Collectors", host);
    b.fold(&title, false, |b| {
        b.table(&title, &columns, host.collectors.iter().map(phrases::collector_row).collect());
    });
}
