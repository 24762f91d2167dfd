//! A workload of a site's own pages: which of them a bounded walk along its links visits next, and what was found. What is fetched is
//! the caller's business.
//!
//! Facts: HTML standard, 4.6.2 (`a`, `area`) and 4.2.3 (`base`); `rel=nofollow` and `meta name=robots` as search engines take
//! them. RFC 9309 for robots.txt.

mod links;
mod robots;
#[cfg(test)]
mod tests;

pub use robots::Robots;

use crate::workload::file::{VISITOR_REDIRECTS_DEFAULT, request_name};
use std::collections::{BTreeMap, VecDeque};
use url::Url;
use webdyno_model::workload::visit::{PageSpec, SessionSpec, StepSpec, Visits};
use webdyno_model::workload::{RequestSpec, Workload};

/// How far a walk goes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Requests.
    pub requests_max: usize,
    /// Links from the first page.
    pub depth_max: usize,
}

/// A response to a request of the walk.
#[derive(Debug, Clone, Default)]
pub struct Fetched {
    /// Status code.
    pub status: u16,
    /// Content-Type, as it was sent.
    pub content_type: String,
    /// Location, as it was sent.
    pub location: Option<String>,
    /// Of HTML, its beginning is enough.
    pub body: Vec<u8>,
}

/// What stands behind a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Page,
    File,
}

/// A walk under way.
#[derive(Debug)]
pub struct Walk {
    site: Url,
    robots: Robots,
    bounds: Bounds,
    /// URLs to be asked for, with their links from the first page.
    frontier: VecDeque<(Url, usize)>,
    /// All URLs that were named: by how many pages, which is how often they are visited.
    named: BTreeMap<Url, u32>,
    found: Vec<(Url, Found)>,
    requests_count: usize,
    /// URLs that robots.txt keeps out, and responses that were errors.
    kept_out_count: usize,
    failed_count: usize,
}

impl Walk {
    /// A walk from `site` on, within its scheme, host and port.
    pub fn new(site: Url, robots: Robots, bounds: Bounds) -> Self {
        let mut walk = Self {
            site: site.clone(),
            robots,
            bounds,
            frontier: VecDeque::new(),
            named: BTreeMap::new(),
            found: vec![],
            requests_count: 0,
            kept_out_count: 0,
            failed_count: 0,
        };
        walk.name(site, 0);
        walk
    }

    /// What to ask for next; `None` at the end.
    pub fn next_url(&mut self) -> Option<(Url, usize)> {
        if self.requests_count >= self.bounds.requests_max {
            return None;
        }
        let next = self.frontier.pop_front()?;
        self.requests_count += 1;
        Some(next)
    }

    /// Takes in the response to a URL that is so many links from the first page; `None` where none came.
    pub fn add(&mut self, (url, depth): (Url, usize), fetched: Option<&Fetched>) {
        let Some(fetched) = fetched.filter(|fetched| fetched.status < 400) else {
            self.failed_count += 1;
            return;
        };
        if let Some(to) = fetched.location.as_deref().filter(|_| fetched.status >= 300) {
            let times = self.named.get(&url).copied().unwrap_or(1);
            if let Ok(to) = url.join(to) {
                (0..times).for_each(|_| self.name(to.clone(), depth));
            }
            return;
        }
        if fetched.status >= 300 {
            return;
        }
        let kind = fetched.content_type.trim_start().to_ascii_lowercase();
        let is_page = kind.starts_with("text/html") || kind.starts_with("application/xhtml");
        self.found.push((url.clone(), if is_page { Found::Page } else { Found::File }));
        if is_page && depth < self.bounds.depth_max {
            links::links(&fetched.body, &url).into_iter().for_each(|link| self.name(link, depth + 1));
        }
    }

    fn name(&mut self, mut url: Url, depth: usize) {
        url.set_fragment(None);
        if url.origin() != self.site.origin() {
            return;
        }
        if let Some(times) = self.named.get_mut(&url) {
            *times += 1;
        } else if self.robots.allows(&url) {
            self.named.insert(url.clone(), 1);
            self.frontier.push_back((url, depth));
        } else {
            self.kept_out_count += 1;
            // It is not counted again.
            self.named.insert(url, 1);
        }
    }

    /// Pages, other files, responses that were errors, URLs that robots.txt keeps out, and URLs that the bounds left out.
    pub fn counts(&self) -> WalkCounts {
        let of = |kind: Found| self.found.iter().filter(|(_, one)| *one == kind).count();
        WalkCounts {
            pages: of(Found::Page),
            files: of(Found::File),
            failed: self.failed_count,
            kept_out: self.kept_out_count,
            left_out: self.frontier.len(),
        }
    }

    /// A workload of all that was found: each a visit of its own, as often as pages link to it. `None` when nothing was.
    pub fn workload(&self, users: u32) -> Option<Workload> {
        let (mut requests, mut sessions) = (vec![], vec![]);
        for (url, kind) in &self.found {
            let name = request_name(url.as_str());
            let page = (*kind == Found::Page).then(PageSpec::default);
            let weight = f64::from(self.named.get(url).copied().unwrap_or(1));
            let step = StepSpec { request: requests.len(), page, ..StepSpec::default() };
            sessions.push(SessionSpec { name: name.clone(), weight, steps: vec![step] });
            requests.push(RequestSpec { name, url: url.as_str().to_owned(), ..RequestSpec::default() });
        }
        (!sessions.is_empty()).then(|| Workload {
            requests,
            visits: Some(Box::new(Visits { sessions, users, ..Visits::default() })),
            redirects_max: VISITOR_REDIRECTS_DEFAULT,
            ..Workload::default()
        })
    }
}

/// What a walk came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkCounts {
    /// HTML documents.
    pub pages: usize,
    /// Anything else.
    pub files: usize,
    /// Errors, and what was not answered.
    pub failed: usize,
    /// URLs that robots.txt keeps out.
    pub kept_out: usize,
    /// URLs that were not asked for, as the walk ended before.
    pub left_out: usize,
}
