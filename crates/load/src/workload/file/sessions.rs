//! Sessions of a workload file, and the names by which their steps call requests and pages.

use super::captures;
use super::draft::Entry;
use super::keys::{TableKeys, Value};
use super::reader::{Reader, TopLevel};
use super::requests::{PAGE_KEYS, REQUEST_KEYS};
use super::scope::Scope;
use super::settings::{think, weight};
use super::source_span::{FileError, FileResult, SourceSpan};
use webdyno_model::workload::visit::{PageSpec, SessionSpec, StepSpec};

/// Every key of a session.
pub(super) const SESSION_KEYS: &[&str] = &["name", "weight", "step"];
/// Every key of a step.
pub(super) const STEP_KEYS: &[&str] = &["request", "page", "capture", "think", "at"];

impl<'t> Reader<'t> {
    pub(super) fn read_sessions(&mut self, scope: &Scope<'t>, top: &TableKeys<'t>) -> FileResult<()> {
        let list = top.read("session", |value| value.tables("session"))?.unwrap_or_default();
        list.iter().try_for_each(|value| self.session(scope, &value.keys("a session", SESSION_KEYS)?))
    }

    /// Reads a session.
    pub(super) fn session(&mut self, scope: &Scope<'t>, keys: &TableKeys<'t>) -> FileResult<()> {
        let number = self.sessions.len() + 1;
        let name = match keys.get("name") {
            Some(value) => value.non_empty_text()?.to_owned(),
            None => format!("session {number}"),
        };
        let at = keys.get("name").map_or(keys.at, |value| value.at);
        if let Some(before) = self.session_names.insert(name.clone(), at) {
            let message = format!(
                "two sessions are called `{name}`; the other one is at {}",
                self.files.position(before)
            );
            return Err(FileError::new(at, message).hint("give them different names"));
        }
        let steps = keys.required("step", "[[session.step]] with request = \"/path\" or page = \"/path\"")?;
        let list = steps.tables("session.step")?;
        if list.is_empty() {
            return Err(FileError::new(steps.at, format!("the session `{name}` has no steps"))
                .hint("give it at least one [[session.step]]"));
        }
        let weight = weight(keys)?.unwrap_or(1.0);
        let steps = list.iter().map(|step| self.step(scope, step)).collect::<FileResult<Vec<StepSpec>>>()?;
        let session = SessionSpec { name, weight, steps };
        self.sessions.push((at, Entry { session, is_request: false }));
        Ok(())
    }

    fn step(&mut self, scope: &Scope<'t>, value: &Value<'t>) -> FileResult<StepSpec> {
        let keys = value.keys("a step", STEP_KEYS)?;
        let Some(what) = keys.one_of(&["request", "page"])? else {
            return Err(FileError::new(keys.at, "a step needs `request` or `page`").hint(
                "as in request = \"login\", page = \"/\" or request = { url = \"/cart\", json = { id = 1 } }",
            ));
        };
        let captures = keys.read("capture", captures::read)?.unwrap_or_default();
        let think = keys.read("think", think)?;
        let at_us = keys.read("at", Value::time_us)?;
        let is_page = what.key == "page";
        let (request, page) = match what.as_text() {
            Some(text) => self.resolve_reference(scope, what.at, text, is_page)?,
            None if is_page => {
                let keys = what.keys("a page", PAGE_KEYS)?;
                no_weight(&keys)?;
                let (request, page) = self.page(scope, &keys)?;
                (request, Some(page))
            }
            None => {
                let keys = what.keys("a request", REQUEST_KEYS)?;
                no_weight(&keys)?;
                (self.request(scope, &keys)?, None)
            }
        };
        for (at, capture) in &captures {
            self.captured.push((*at, capture.name.clone()));
        }
        Ok(StepSpec {
            request,
            page,
            captures: captures.into_iter().map(|(_, capture)| capture).collect(),
            think,
            at_us,
        })
    }

    /// What a step calls by its name, or else by its URL.
    fn resolve_reference(
        &mut self,
        scope: &Scope<'t>,
        at: SourceSpan,
        text: &str,
        is_page: bool,
    ) -> FileResult<(usize, Option<PageSpec>)> {
        let named: Vec<usize> = (0..self.tops.len()).filter(|&index| self.name_of(index) == text).collect();
        let of_kind: Vec<usize> =
            named.iter().copied().filter(|&index| self.tops[index].page.is_some() == is_page).collect();
        let kind = if is_page { "page" } else { "request" };
        let what = |top: &TopLevel| (top.request, top.page.clone());
        let different = of_kind.iter().map(|&index| what(&self.tops[index])).collect::<Vec<_>>();
        if let Some(first) = different.first().filter(|first| different.iter().all(|other| other == *first)) {
            of_kind.iter().for_each(|&index| self.tops[index].is_named = true);
            return Ok(first.clone());
        }
        if of_kind.len() > 1 {
            return Err(FileError::new(at, format!("{} {kind}s are called `{text}`", of_kind.len()))
                .hint("give each a `name` of its own"));
        }
        let is_url = text.starts_with('/') || text.contains("://") || text.starts_with("${");
        if is_url {
            return if is_page {
                self.page_at(scope, at, text).map(|(request, page)| (request, Some(page)))
            } else {
                self.request_at(scope, at, text).map(|request| (request, None))
            };
        }
        let error = FileError::new(at, format!("no {kind} is called `{text}`"))
            .hint(format!("write [[{kind}]] with that name, or a URL, as in {kind} = \"/path\""));
        if named.is_empty() {
            let of_kind = self.tops.iter().filter(|top| top.page.is_some() == is_page);
            let names: Vec<String> =
                of_kind.map(|top| self.draft.requests[top.request].name.clone()).collect();
            return Err(error.did_you_mean(text, names.iter().map(String::as_str)));
        }
        let other = if is_page { "request" } else { "page" };
        Err(error.hint(format!("`{text}` is a {other}: write {other} = \"{text}\"")))
    }

    fn name_of(&self, top: usize) -> &str {
        &self.draft.requests[self.tops[top].request].name
    }
}

/// Within a session, each step is made once.
fn no_weight(keys: &TableKeys<'_>) -> FileResult<()> {
    match keys.get("weight") {
        None => Ok(()),
        Some(value) => Err(FileError::new(value.at, "a step is always made, and its request has a `weight`")
            .hint("leave it out here; the session has one")),
    }
}
