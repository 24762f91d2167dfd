//! A workload of what a browser recorded: a HAR file becomes one session, of its pages with what they embedded and of the requests
//! that its scripts sent, with the pauses between them.
//!
//! Facts: the HAR 1.2 specification (http://www.softwareishard.com/blog/har-12-spec/); Chrome adds `_resourceType`. Files of
//! Firefox, Chrome and Safari differ in what they leave out, so that only URL and method are taken for granted.

mod document;
mod steps;
#[cfg(test)]
mod tests;

use document::{Document, Entry};
use std::collections::BTreeMap;
use url::Url;
use webdyno_model::workload::Workload;
use webdyno_model::{Result, UserError};

/// What was recorded, and what of it is no part of the workload.
#[derive(Debug)]
pub struct Recorded {
    /// One session.
    pub workload: Workload,
    /// Pages in it.
    pub pages_count: usize,
    /// Requests in it, parts of pages included.
    pub requests_count: usize,
    /// Requests to other hosts, by host: they are not loaded.
    pub other_hosts: BTreeMap<String, usize>,
    /// Requests that were not sent by HTTP, or never answered.
    pub unanswered_count: usize,
    /// Whether bodies are in it that somebody typed, passwords perhaps.
    pub has_bodies: bool,
}

/// Reads a file's text. `hosts` are those that are loaded beside the first one. An error says what is wrong with the file, and where.
pub fn read(text: &str, name: &str, hosts: &[String]) -> Result<Recorded> {
    let document: Document = serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| {
        let at = format!("{name}:{}:{}", error.line(), error.column());
        UserError::usage(format!("{at}: it is no HAR file: {error}"))
            .hint("save one in the browser's developer tools: Network, Save all as HAR")
    })?;
    let log = document.log;
    let sent = log.entries.len();
    let mut entries: Vec<Entry> = log.entries.into_iter().filter_map(Entry::of).collect();
    let unanswered_count = sent - entries.len();
    // Files are sorted by when a request was sent, but not all are.
    entries.sort_by_key(|entry| entry.begins_us);
    let Some(first) = entries.first() else {
        return Err(UserError::usage(format!("{name} has no request that was answered"))
            .hint("record with the developer tools open, and load the page again"));
    };
    let mut wanted = vec![host(&first.url)];
    wanted.extend(hosts.iter().map(|host| host.to_ascii_lowercase()));
    let mut other_hosts = BTreeMap::new();
    entries.retain(|entry| {
        let host = host(&entry.url);
        let is_wanted = wanted.contains(&host) || wanted.iter().any(|one| entry.url.host_str() == Some(one));
        if !is_wanted {
            *other_hosts.entry(host).or_default() += 1;
        }
        is_wanted
    });
    without_targets_of_redirects(&mut entries);
    let has_bodies = entries.iter().any(|entry| !entry.body.is_empty());
    let requests_count = entries.len();
    let workload = steps::workload(&log.pages, entries);
    let sessions = workload.visits.iter().flat_map(|visits| &visits.sessions);
    let pages_count = sessions.flat_map(|session| &session.steps).filter(|step| step.page.is_some()).count();
    Ok(Recorded { workload, pages_count, requests_count, other_hosts, unanswered_count, has_bodies })
}

/// Host and port, as URLs have them.
fn host(url: &Url) -> String {
    url[url::Position::BeforeHost..url::Position::AfterPort].to_owned()
}

/// A user follows redirects: what they led to is loaded without being named.
fn without_targets_of_redirects(entries: &mut Vec<Entry>) {
    let mut targets: Vec<Url> = vec![];
    entries.retain(|entry| {
        let led_to = targets.iter().position(|url| *url == entry.url);
        led_to.map(|place| targets.swap_remove(place));
        targets.extend(entry.redirect.clone());
        led_to.is_none()
    });
}
