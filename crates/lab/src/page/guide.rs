//! All pages of the guide about scenarios: the list with the schema, the metrics, and a page for each scenario.

use super::{MADE, group, page};
use crate::figures;
use crate::scenario::{Catalogue, Group};
use std::fmt::Write as _;
use webdyno_model::Result;
use webdyno_model::sample::MetricKind;

/// What a scenario holds, for whoever writes one.
const SCHEMA: &str = include_str!("schema.md");
/// The parts of the list, in their order, with their headings.
const GROUPS: [(Group, &str); 4] = [
    (Group::Story, "Stories"),
    (Group::Fault, "Faults"),
    (Group::Stacked, "Faults that hide others"),
    (Group::Healthy, "Healthy servers"),
];

/// Every page by its path below the guide's folder.
pub fn guide(catalogue: &Catalogue) -> Result<Vec<(String, String)>> {
    let mut folders = vec![];
    for name in catalogue.names()? {
        folders.push(catalogue.open(&name)?);
    }
    let mut list = format!("{MADE}\n# Scenarios\n\n");
    list.push_str("Faulty servers, each in a folder of its own. `webdyno lab run NAME` shows one, as root; `webdyno lab show NAME` prints its page.\n");
    for (part, heading) in GROUPS {
        let of_it: Vec<_> = folders.iter().filter(|folder| folder.scenario.group == part).collect();
        if of_it.is_empty() {
            continue;
        }
        let _ = writeln!(list, "\n## {heading}\n\n{}.\n", first_upper(group(part)));
        for folder in of_it {
            let (name, title) = (&folder.name, &folder.scenario.title);
            let _ = writeln!(list, "- [{title}](scenarios/{name}.md): `{name}`");
        }
    }
    let _ = write!(list, "\n{SCHEMA}\n## Figures of a load\n\n| figure | what it is |\n|---|---|\n");
    for (name, what) in figures::NAMES {
        let _ = writeln!(list, "| `{name}` | {what} |");
    }
    let mut pages = vec![("scenarios.md".to_owned(), list), ("metrics.md".to_owned(), metrics())];
    for folder in &folders {
        pages.push((format!("scenarios/{}.md", folder.name), format!("{MADE}\n{}", page(folder)?)));
    }
    Ok(pages)
}

fn first_upper(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// What collectors read of a host.
pub fn metrics() -> String {
    let mut text = String::from(
        "<!-- Made by `webdyno lab pages` from the catalogue of the collectors. -->\n# Metrics\n\n\
         What is read of a host, each second or more rarely. Of several things of a kind the name of each stands for the \
         star. Counters only rise.\n",
    );
    for collector in webdyno_host::collectors::catalogue() {
        let _ = write!(
            text,
            "\n## {}\n\n| metric | unit | kind | source | by hand |\n|---|---|---|---|---|\n",
            collector.name
        );
        for metric in collector.metrics {
            let kind = match metric.kind {
                MetricKind::Gauge => "level",
                MetricKind::Counter => "counter",
            };
            let by_hand = cell(&metric.reproduce.replace('`', "'"));
            let (name, unit, source) = (&metric.name, &metric.unit, cell(&metric.source));
            let _ = writeln!(text, "| `{name}` | {unit} | {kind} | {source} | `{by_hand}` |");
        }
    }
    text
}

/// Text within a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
