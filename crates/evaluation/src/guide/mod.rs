//! The generated pages of the guide: the list of scenarios with the schema and a page for each, the metrics, the manual, and the schemas.

use crate::{cell, schemas};
use std::fmt::Write as _;
use webdyno_analysis::limits;
use webdyno_lab::figures;
use webdyno_lab::page::{group_title, page};
use webdyno_lab::scenario::{Catalogue, Group};
use webdyno_model::Result;
use webdyno_model::sample::MetricKind;
use webdyno_report::CHAPTERS;

/// The first line of what is made of a scenario.
const MADE: &str = "<!-- Made by `make pages` from the folder of the scenario: change that instead. -->";
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
        let _ = writeln!(list, "\n## {heading}\n\n{}.\n", first_upper(group_title(part)));
        for folder in of_it {
            let (name, title) = (&folder.name, &folder.scenario.title);
            let _ = writeln!(list, "- [{title}](scenarios/{name}.md): `{name}`");
        }
    }
    let _ = write!(list, "\n{SCHEMA}\n## Figures of a load\n\n| figure | what it is |\n|---|---|\n");
    for (name, what) in figures::NAMES {
        let _ = writeln!(list, "| `{name}` | {what} |");
    }
    let mut pages = vec![
        ("scenarios.md".to_owned(), list),
        ("metrics.md".to_owned(), metrics()),
        ("manual.md".to_owned(), manual()),
    ];
    pages.extend(schemas::pages()?);
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
fn metrics() -> String {
    let mut text = String::from(
        "<!-- Made by `make pages` from the catalogue of the collectors. -->\n# Metrics\n\n\
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

/// All chapters that `webdyno explain` prints, as one page: findings, then words.
fn manual() -> String {
    let mut text = String::from(
        "<!-- Made by `make pages` from the heads of the rules. -->\n# Manual\n\nWhat limits a server, and the words \
         of the reports: the chapters that `webdyno explain ID` prints.\n",
    );
    let findings = limits::ALL.iter().map(|limit| (limit.id.as_str(), limit.manual()));
    let words = CHAPTERS.iter().map(|(word, text)| (*word, (*text).to_owned()));
    for (part, chapters) in [("Findings", findings.collect::<Vec<_>>()), ("Words", words.collect())] {
        text.push_str(&format!("\n## {part}\n"));
        for (id, chapter) in chapters {
            let deeper: Vec<String> = chapter
                .trim_end()
                .lines()
                .map(|line| if line.starts_with("## ") { format!("##{line}") } else { line.to_owned() })
                .collect();
            text.push_str(&format!("\n### {id}\n\n{}\n", deeper.join("\n")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    fn docs() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
    }

    /// Renewed with `make pages`, or with `WEBDYNO_UPDATE_GOLDEN=1`.
    #[test]
    fn the_pages_of_the_guide_are_up_to_date() {
        let pages = guide(&Catalogue::BuiltIn).unwrap();
        let renews = std::env::var_os("WEBDYNO_UPDATE_GOLDEN").is_some();
        let mut stale = vec![];
        for (path, text) in &pages {
            let place = docs().join(path);
            if std::fs::read_to_string(&place).ok().as_ref() == Some(text) {
                continue;
            }
            stale.push(path.clone());
            if renews {
                std::fs::create_dir_all(place.parent().unwrap()).unwrap();
                std::fs::write(place, text).unwrap();
            }
        }
        // A page of a scenario that is gone.
        let known: BTreeSet<&str> =
            pages.iter().filter_map(|(path, _)| path.strip_prefix("scenarios/")).collect();
        for entry in std::fs::read_dir(docs().join("scenarios")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !known.contains(name.as_str()) {
                stale.push(format!("scenarios/{name} (remove it)"));
            }
        }
        let reported = "`make pages` renews";
        assert!(renews || stale.is_empty(), "{reported}: {}", stale.join(", "));
    }

    #[test]
    fn every_finding_and_word_stands_in_the_manual() {
        let manual = manual();
        let words = CHAPTERS.iter().map(|(word, _)| *word);
        for id in limits::ALL.iter().map(|limit| limit.id.as_str()).chain(words) {
            assert!(manual.contains(&format!("\n### {id}\n")), "{id}");
        }
    }
}
