//! Which sections count for a request, in the order in which a later one wins.
//!
//! server/request.c of httpd: `ap_directory_walk`, `ap_file_walk`, `ap_location_walk`, `ap_if_walk`, and `proxy_walk` of
//! mod_proxy.c; `ap_core_reorder_directories` in server/core.c. What the server itself and the virtual host say is the
//! base; then `<Directory>` from the root down, those of the server before those of the host; then `<DirectoryMatch>`, by
//! the number of slashes in each; then `<Files>`; then `<Location>`, in the order of the configuration. What is passed to a backend has `<Proxy>` in
//! the place of directories and files. <https://httpd.apache.org/docs/2.4/sections.html#merging>

use super::merge;
use super::site::Site;
use crate::os::wildcard;
use crate::services::apache::config::model::Opened;
use crate::services::apache::config::pattern;
use crate::services::apache::config::section_kind::Kind;
use std::path::Path;

/// The sections that count, and what could not be told.
#[derive(Debug, Clone, Default)]
pub struct Walk<'a> {
    /// In order; the server itself (0) and the virtual host are not among them.
    pub sections: Vec<&'a Opened>,
    /// Those of them that are `<Directory>` without a regular expression, each with the number of slashes in its path: in
    /// these alone AllowOverride counts.
    pub directories: Vec<(&'a Opened, usize)>,
    /// Sections whose condition is not evaluated.
    pub undecided: Vec<&'a Opened>,
    /// What could not be told, in words.
    pub undetermined: Vec<String>,
}

/// What a request asks for, as the walks see it.
#[derive(Debug, Clone, Copy)]
pub struct RequestTarget<'a> {
    /// The path of the URL.
    pub path: &'a str,
    /// The file; one that ends with a slash is a directory. `None` when it is not one of the server's files.
    pub file: Option<&'a str>,
    /// The URL at the backend, where it is passed to one.
    pub passed_to: Option<&'a str>,
}

/// The text that a section is matched by, and whether it is a regular expression.
pub fn matched_by(opened: &Opened) -> Option<(&str, bool)> {
    let words = &opened.section.words;
    let first = words.first()?;
    let by_name = opened.section.name.len() > 5
        && opened.section.name[opened.section.name.len() - 5..].eq_ignore_ascii_case("Match");
    match first.as_str() {
        "~" => Some((words.get(1)?, true)),
        _ => Some((first, by_name)),
    }
}

impl<'a> Walk<'a> {
    /// Walks the sections of the server and of a virtual host.
    pub fn of(site: &Site<'a>, host: Option<usize>, asked: RequestTarget<'_>) -> Self {
        let mut walk = Self::default();
        let bases: Vec<usize> = [0].into_iter().chain(host).collect();
        match (asked.passed_to, asked.file) {
            (Some(url), _) => walk.proxies(site, &bases, url),
            (None, Some(file)) => {
                walk.directories(site, &bases, file);
                walk.files(site, &bases, file);
            }
            (None, None) => {}
        }
        walk.locations(site, &bases, asked.path);
        let counted: Vec<usize> =
            bases.into_iter().chain(walk.sections.iter().map(|opened| opened.section.id)).collect();
        for id in counted {
            walk.conditions(site, id);
        }
        walk
    }

    fn directories(&mut self, site: &Site<'a>, bases: &[usize], file: &str) {
        let ancestors = ancestors(file);
        let mut plain: Vec<(usize, &Opened)> = vec![];
        let mut expressions: Vec<&Opened> = vec![];
        let mut deeper: Vec<(usize, &Opened)> = vec![];
        let as_directory = format!("{file}/");
        for opened in bases.iter().flat_map(|base| site.children(*base, Kind::Directory)) {
            match matched_by(opened) {
                Some((text, true)) if self.decides(opened, text, file) => expressions.push(opened),
                Some((text, false)) => {
                    let Some(path) = directory(text) else { continue };
                    let slashes = path.matches('/').count();
                    plain.extend(depth(&path, &ancestors).map(|depth| (depth, opened)));
                    if slashes == ancestors.len() + 1 && is_directory_match(&path, &as_directory) {
                        deeper.push((slashes, opened));
                    }
                }
                _ => {}
            }
        }
        plain.sort_by_key(|(depth, _)| *depth);
        // Where links need not be looked at, Apache takes the file itself for a directory at first.
        let before = bases.iter().copied().chain(plain.iter().map(|(_, opened)| opened.section.id));
        if !file.ends_with('/') && merge::follows_links(site, &before.collect::<Vec<_>>()) {
            plain.extend(deeper);
        }
        // Expressions, too, come by the slashes in them.
        let slashes = |opened: &&Opened| matched_by(opened).map_or(0, |(text, _)| text.matches('/').count());
        expressions.sort_by_key(slashes);
        self.directories = plain.iter().map(|(depth, opened)| (*opened, *depth)).collect();
        self.sections.extend(plain.into_iter().map(|(_, opened)| opened).chain(expressions));
    }

    fn files(&mut self, site: &Site<'a>, bases: &[usize], file: &str) {
        let name = file.rsplit('/').next().unwrap_or(file);
        let around: Vec<usize> =
            bases.iter().copied().chain(self.sections.iter().map(|opened| opened.section.id)).collect();
        self.matching(site, &around, (Kind::Files, name), wildcard::matches_any, |text, name| text == name);
    }

    fn locations(&mut self, site: &Site<'a>, bases: &[usize], path: &str) {
        self.matching(site, bases, (Kind::Location, path), pattern::is_path_match, is_below);
    }

    fn proxies(&mut self, site: &Site<'a>, bases: &[usize], url: &str) {
        self.matching(site, bases, (Kind::Proxy, url), pattern::is_match, |text, url| url.starts_with(text));
    }

    /// Adds the sections of a kind whose text meets a value: as a regular expression, by its wildcards, or as it is.
    fn matching(
        &mut self,
        site: &Site<'a>,
        parents: &[usize],
        (kind, value): (Kind, &str),
        by_wildcards: fn(&str, &str) -> bool,
        as_it_is: fn(&str, &str) -> bool,
    ) {
        for opened in parents.iter().flat_map(|parent| site.children(*parent, kind)) {
            let counts = match matched_by(opened) {
                Some((text, true)) => self.decides(opened, text, value),
                Some((text, false)) if wildcard::is_pattern(text) => by_wildcards(text, value),
                Some((text, false)) => as_it_is(text, value),
                None => false,
            };
            if counts {
                self.sections.push(opened);
            }
        }
    }

    /// Notes the conditions in a section that counts, and those in them.
    fn conditions(&mut self, site: &Site<'a>, id: usize) {
        for opened in site.children(id, Kind::If) {
            self.undecided.push(opened);
            for kind in [Kind::If, Kind::Files] {
                self.undecided.extend(site.children(opened.section.id, kind));
            }
        }
    }

    /// Whether an expression matches; one that cannot be evaluated is told and does not count.
    fn decides(&mut self, opened: &'a Opened, expression: &str, text: &str) -> bool {
        match pattern::expression(expression) {
            Ok(expression) => expression.is_match(text),
            Err(why) => {
                self.undetermined.push(format!("{why} ({})", opened.place()));
                self.undecided.push(opened);
                false
            }
        }
    }
}

/// The directories above a file from the root, each with a slash at its end.
pub fn ancestors(file: &str) -> Vec<&str> {
    file.match_indices('/').map(|(at, _)| &file[..=at]).collect()
}

/// How many slashes the path of a `<Directory>` has, if it is one of the ancestors; the root has none.
fn depth(path: &str, ancestors: &[&str]) -> Option<usize> {
    if path == "/" {
        return Some(0);
    }
    let depth = path.matches('/').count();
    let ancestor = ancestors.get(depth.checked_sub(1)?)?;
    is_directory_match(path, ancestor).then_some(depth)
}

fn is_directory_match(path: &str, directory: &str) -> bool {
    match wildcard::is_pattern(path) {
        true => pattern::is_path_match(path, directory),
        false => path == directory,
    }
}

/// The path of a `<Directory>` as httpd keeps it: cleaned and with a slash at its end.
pub fn directory(text: &str) -> Option<String> {
    if !text.starts_with('/') {
        return None;
    }
    let clean = crate::services::apache::config::model::absolute(Path::new("/"), text);
    let clean = clean.to_string_lossy();
    Some(if clean.ends_with('/') { clean.into_owned() } else { format!("{clean}/") })
}

/// Whether a path is at or below the path of a `<Location>`.
fn is_below(location: &str, path: &str) -> bool {
    let Some(rest) = path.strip_prefix(location) else { return false };
    location.is_empty() || location.ends_with('/') || rest.is_empty() || rest.starts_with('/')
}

/// Whether a URL is below the path of an `Alias` or `ProxyPass`, and what is left of it (`alias_matches`).
pub fn alias_rest<'b>(alias: &str, path: &'b str) -> Option<&'b str> {
    let rest = path.strip_prefix(alias)?;
    (alias.ends_with('/') || rest.is_empty() || rest.starts_with('/')).then_some(rest)
}
