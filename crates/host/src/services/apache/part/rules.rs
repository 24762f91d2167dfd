//! Which changes of a part of a site are made, and why others are for a person to decide.
//!
//! Without FollowSymLinks Apache refuses what lies behind a link: that protects a site where somebody who is not trusted can put
//! links (<https://httpd.apache.org/docs/2.4/mod/core.html#options>). It is switched on only where it protects from nobody. What
//! a `.htaccess` says, and addresses that MultiViews completes, are known by no request of ours.

use super::{tree, type_map};
use crate::os::procfs;
use crate::services::apache::in_force::InForce;
use crate::services::apache::in_force::index_files::choices;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Most files that are named one by one.
const FILES_NAMED_MAX: usize = 20;

/// What is to be known of a change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Why a person has to decide, in sentences; none where it can be made.
    pub to_decide: Vec<String>,
    /// A file that it needs and that is not there yet, with its text.
    pub new_file: Option<(PathBuf, String)>,
}

/// Whether a change from one value to another can be made, of the Apache with this main process. The error says why webdyno does not make it at all.
pub fn decision(
    pid: u32,
    at: &InForce<'_, '_>,
    name: &str,
    (from, to): (&str, &str),
    folder: &Path,
) -> Result<Decision, String> {
    let of = |to_decide| Decision { to_decide, new_file: None };
    match name {
        "Options" => options(pid, (from, to), folder).map(of),
        "DirectoryIndex" => index(at, (from, to), folder),
        "AllowOverride" | "AllowOverrideList" if to.eq_ignore_ascii_case("None") => {
            let names = at.value("AccessFileName").map_or(".htaccess".to_owned(), |value| value.text);
            Ok(of(vec![overrides(&names, folder)]))
        }
        _ => Err(format!("{name} {to} is not a value of a part of a site that webdyno sets")),
    }
}

fn options(pid: u32, (from, to): (&str, &str), folder: &Path) -> Result<Vec<String>, String> {
    let bits = |text: &str| -> BTreeSet<String> {
        let words = text.split_whitespace().map(str::to_ascii_lowercase);
        words.filter(|word| word != "none").collect()
    };
    let (from, to) = (bits(from), bits(to));
    let added: Vec<&str> = to.difference(&from).map(String::as_str).collect();
    let removed: Vec<&str> = from.difference(&to).map(String::as_str).collect();
    let is_known = added.iter().all(|word| *word == "followsymlinks")
        && removed.iter().all(|word| ["symlinksifownermatch", "multiviews"].contains(word));
    if !is_known {
        return Err(
            "of Options webdyno adds FollowSymLinks, and takes nothing away but what it makes needless"
                .into(),
        );
    }
    let mut reasons = vec![];
    if removed.contains(&"symlinksifownermatch") {
        reasons.push(
            "SymLinksIfOwnerMatch keeps links from being followed to files of others, and somebody asked for that"
                .into(),
        );
    } else if !added.is_empty() {
        let trusted = procfs::real_user(pid).unwrap_or(0);
        let links = tree::has_no_links_of_others(folder, trusted);
        reasons
            .extend(links.err().map(|why| format!("links would be followed wherever they lead, and {why}")));
    }
    if removed.contains(&"multiviews") {
        reasons.push("addresses without the ending of their file would no longer work".into());
    }
    Ok(reasons)
}

/// A name in full before those that are tried now: nobody gets another file by it where just one fits, or where it is a list of all
/// that do, and those that are tried now are found again where it is lost.
fn index(at: &InForce<'_, '_>, (from, to): (&str, &str), folder: &Path) -> Result<Decision, String> {
    let name = to.strip_suffix(from).map(str::trim_end).unwrap_or_default();
    let bare = from.split_whitespace().next().unwrap_or_default();
    let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if name.is_empty() || !is_plain(name) || !is_plain(bare) {
        return Err(format!("{to} is no name of a file before {from}"));
    }
    let choices = choices(folder, bare, FILES_NAMED_MAX)
        .map_err(|error| format!("cannot look into {}: {error}", folder.display()))?;
    if name == format!("{bare}.var") && choices.len() > 1 && !folder.join(name).exists() {
        let text = type_map::rendered(at, bare, &choices)?;
        let path = folder.join(name);
        // webdyno writes into configurations, never among the documents.
        let why = format!(
            "it needs a file among the documents, {}, which answers as the search does today",
            path.display()
        );
        return Ok(Decision { to_decide: vec![why], new_file: Some((path, text)) });
    }
    if !folder.join(name).is_file() {
        return Err(format!("there is no {name} in {}", folder.display()));
    }
    let others =
        || format!("visitors get what suits them best of {} today, and {name} only then", choices.join(", "));
    let to_decide = if choices == [name] { vec![] } else { vec![others()] };
    Ok(Decision { to_decide, new_file: None })
}

/// What AllowOverride None, or AllowOverrideList None, loses.
fn overrides(names: &str, folder: &Path) -> String {
    let shown = folder.display();
    let names: Vec<&str> = names.split_whitespace().collect();
    match tree::named(folder, &names) {
        Ok(found) if found.is_empty() => format!(
            "no {} lies in {shown} or below, so nothing is lost now, but one that is put there later would not count",
            names.join(" or ")
        ),
        Ok(found) => {
            let named: Vec<String> =
                found.iter().take(FILES_NAMED_MAX).map(|path| path.display().to_string()).collect();
            let more = found.len() - named.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(
                "the rules in {}{more} would no longer count: move them into <Directory> sections of the server's configuration first",
                named.join(", ")
            )
        }
        Err(why) => {
            format!("the rules in {} below {shown} would no longer count, and {why}", names.join(", "))
        }
    }
}
