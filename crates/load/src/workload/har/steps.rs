//! The session of what was recorded: its steps, in the order in which they were made, with the pauses between them.

use super::document::{Entry, Kind, Page};
use crate::workload::file::{VISITOR_REDIRECTS_DEFAULT, request_name};
use webdyno_model::workload::body::Body;
use webdyno_model::workload::visit::{PageSpec, Part, Resources, SessionSpec, StepSpec, Think, Visits};
use webdyno_model::workload::{RequestSpec, Workload};

/// Shorter pauses are what a browser takes to go on.
const PAUSE_US_MIN: i64 = 10_000;
/// The visitor who recorded is counted under this name.
const SESSION: &str = "recorded";

/// The workload of these requests, in the order in which they were sent.
pub(super) fn workload(pages: &[Page], entries: Vec<Entry>) -> Workload {
    let mut session = Session::default();
    for entry in entries {
        session.add(pages, entry);
    }
    let session = session.finish();
    let steps = SessionSpec { name: SESSION.into(), weight: 1.0, steps: session.steps };
    Workload {
        requests: session.requests,
        visits: Some(Box::new(Visits { sessions: vec![steps], ..Visits::default() })),
        redirects_max: VISITOR_REDIRECTS_DEFAULT,
        ..Workload::default()
    }
}

#[derive(Default)]
struct Session {
    requests: Vec<RequestSpec>,
    steps: Vec<StepSpec>,
    /// The page whose parts are being listed: its step, and its name in the file.
    open: Option<(usize, Option<String>)>,
    /// When the last step had all that it asked for.
    ends_us: Option<i64>,
}

impl Session {
    fn add(&mut self, pages: &[Page], entry: Entry) {
        // What a page that the file does not list embeds belongs to the last document.
        let is_listed = entry.page.as_ref().is_some_and(|name| pages.iter().any(|page| page.id == *name));
        let of_open = self.open.as_ref().is_some_and(|(_, name)| !is_listed || *name == entry.page);
        let is_part = match entry.kind {
            Kind::Part => entry.method == "GET" && of_open,
            // A frame is a part of its page; a document of a file without pages is a page of its own.
            Kind::Document => entry.method == "GET" && of_open && is_listed,
            Kind::Script => false,
        };
        let begins_us = entry.begins_us;
        let ends_us = entry.ends_us;
        let (kind, page) = (entry.kind, entry.page.clone());
        let request = self.request(entry);
        match &self.open {
            Some((step, _)) if is_part => {
                if let Some(Resources::Listed(parts)) =
                    self.steps[*step].page.as_mut().map(|page| &mut page.resources)
                {
                    // A browser asks once.
                    if parts.iter().all(|part| part.request != request) {
                        parts.push(Part { request, required: true });
                    }
                }
            }
            _ => {
                self.pause(begins_us);
                let is_page = kind == Kind::Document;
                if is_page {
                    self.open = Some((self.steps.len(), page));
                }
                let page = is_page.then(|| PageSpec { resources: Resources::Listed(vec![]) });
                self.steps.push(StepSpec { request, page, ..StepSpec::default() });
            }
        }
        self.ends_us = self.ends_us.max(Some(ends_us));
    }

    /// Ends the step before, with the pause that was made after it.
    fn pause(&mut self, begins_us: i64) {
        let Some((last, ends_us)) = self.steps.last_mut().zip(self.ends_us) else { return };
        let pause_us = begins_us - ends_us;
        last.think = Some(match u64::try_from(pause_us) {
            // Whole milliseconds: no browser tells more.
            Ok(us) if pause_us >= PAUSE_US_MIN => Think::Fixed { time_us: us / 1_000 * 1_000 },
            _ => Think::None,
        });
    }

    /// The place of a request; one that was sent twice is one.
    fn request(&mut self, entry: Entry) -> usize {
        let url = String::from(entry.url);
        let path = request_name(&url);
        let name = if entry.method == "GET" { path } else { format!("{} {path}", entry.method) };
        let spec = RequestSpec {
            name,
            method: entry.method,
            url,
            headers: entry.headers,
            body: Body::from(entry.body.into_bytes()),
            ..RequestSpec::default()
        };
        let same =
            |one: &RequestSpec| one.url == spec.url && one.method == spec.method && one.body == spec.body;
        if let Some(place) = self.requests.iter().position(same) {
            return place;
        }
        let of_name = |name: &str| self.requests.iter().any(|one| one.name == name);
        let name = (2..).map(|n| format!("{} ({n})", spec.name)).find(|name| !of_name(name));
        let name = name.filter(|_| of_name(&spec.name)).unwrap_or_else(|| spec.name.clone());
        self.requests.push(RequestSpec { name, ..spec });
        self.requests.len() - 1
    }

    fn finish(mut self) -> Self {
        for step in &mut self.steps {
            if let Some(page) = step.page.as_mut().filter(|page| page.resources == Resources::Listed(vec![]))
            {
                page.resources = Resources::Left;
            }
        }
        self
    }
}
