//! README.md and docs/: links lead somewhere, and the summary of the guide has all its pages.

use crate::tidy::root;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// README.md, and all pages below docs.
fn pages() -> Vec<PathBuf> {
    let (mut pages, mut folders) = (vec![root().join("README.md")], vec![root().join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// README.md and the pages of the guide.
pub fn for_newcomers() -> Vec<PathBuf> {
    let (readme, guide) = (root().join("README.md"), root().join("docs/guide"));
    pages().into_iter().filter(|page| *page == readme || page.starts_with(&guide)).collect()
}

/// A page without its blocks of code.
fn prose(page: &Path) -> String {
    let text = read_to_string(page).unwrap();
    text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// Where a page leads to, without what stands in code.
fn targets(prose: &str) -> Vec<String> {
    let plain: String = prose.split('`').step_by(2).collect();
    let targets = plain.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    targets.filter(|target| !target.contains("://")).collect()
}

/// The anchors of a page, as forges and mdBook make them of its headings.
fn anchors(page: &Path) -> Vec<String> {
    let prose = prose(page);
    let headings = prose.lines().filter_map(|line| line.strip_prefix('#'));
    let anchor = |heading: &str| -> String {
        let lower = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        lower.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_somewhere() {
    let (mut complaints, mut count) = (vec![], 0);
    for page in pages() {
        for target in targets(&prose(&page)) {
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            if !path.exists() || !anchor.is_empty() && !anchors(&path).iter().any(|one| one == anchor) {
                complaints.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(count > 100, "only {count} links were found");
    assert!(complaints.is_empty(), "links that lead nowhere:\n{}", complaints.join("\n"));
}

#[test]
fn the_summary_lists_every_page_of_the_guide() {
    let folder = root().join("docs/guide/src");
    let summary = read_to_string(folder.join("SUMMARY.md")).unwrap();
    for entry in read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            !name.ends_with(".md") || name == "SUMMARY.md" || summary.contains(&format!("]({name})")),
            "{name} is not in the summary"
        );
    }
}
