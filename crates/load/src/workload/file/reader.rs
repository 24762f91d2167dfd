//! Reads the tables of all files of a workload, in two rounds: steps may refer to later definitions.

use super::captures;
use super::draft::{Draft, Entry};
use super::keys::{TableKeys, Value};
use super::requests::{self, PAGE_KEYS, ParsedRequest, ParsedResources, REQUEST_KEYS};
use super::scope::Scope;
use super::settings;
use super::settings::weight;
use super::source_span::{FileError, FileResult, Files, SourceSpan};
use super::tables;
use crate::workload::urls;
use crate::workload::urls::{ListContext, UrlList};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use webdyno_model::Result;
use webdyno_model::error::io_error;
use webdyno_model::workload::visit::{PageSpec, Resources, RowOrder, SessionSpec, StepSpec};

/// Every key of a list.
pub(super) const LIST_KEYS: &[&str] = &["file", "pattern", "order"];
/// Most URLs that a pattern stands for.
const PATTERN_COUNT_MAX: u64 = 1_000_000;

/// A request or page at the top of a file.
pub(super) struct TopLevel {
    pub(super) request: usize,
    pub(super) page: Option<PageSpec>,
    weight: Option<f64>,
    /// Whether a step names it.
    pub(super) is_named: bool,
}

/// What was read so far.
pub(super) struct Reader<'t> {
    pub(super) files: &'t Files,
    pub(super) draft: Draft,
    pub(super) tops: Vec<TopLevel>,
    pub(super) sessions: Vec<(SourceSpan, Entry)>,
    /// What they are called, and where.
    pub(super) session_names: HashMap<String, SourceSpan>,
    /// What all captures are called.
    pub(super) captured: Vec<(SourceSpan, String)>,
    /// The variables of each request.
    uses: Vec<Vec<(String, SourceSpan)>>,
    /// Requests by name, method and URL.
    known: HashMap<(String, String, String), Vec<usize>>,
    /// User-defined names, and where.
    named: HashMap<String, SourceSpan>,
    /// Variables and columns, and where they are defined.
    variables: BTreeMap<String, SourceSpan>,
}

impl<'t> Reader<'t> {
    pub(super) fn new(files: &'t Files) -> Self {
        Self {
            files,
            draft: Draft::default(),
            tops: vec![],
            sessions: vec![],
            session_names: HashMap::new(),
            captured: vec![],
            uses: vec![],
            known: HashMap::new(),
            named: HashMap::new(),
            variables: BTreeMap::new(),
        }
    }

    /// Everything of one file but its sessions.
    pub(super) fn definitions(&mut self, scope: &Scope<'t>, top: &TableKeys<'t>) -> FileResult<()> {
        let mut objectives = vec![];
        settings::read(top, &mut self.draft.settings, &mut objectives)?;
        for (at, objective) in objectives {
            self.draft.objectives.push(objective);
            self.draft.objective_places.push(self.files.position(at));
        }
        for (name, at, value) in
            top.read("variables", |value| value.entries("variables"))?.unwrap_or_default()
        {
            captures::new_name(at, name)?;
            self.new_variable(at, name)?;
            self.draft.variables.insert(name.to_owned(), value.plain()?);
        }
        for value in top.read("table", |value| value.tables("table"))?.unwrap_or_default() {
            let (at, table) = tables::read(scope, &value.keys("a table of rows", tables::TABLE_KEYS)?)?;
            for column in &table.columns {
                self.new_variable(at, column)?;
            }
            self.draft.tables.push(table);
        }
        for value in top.read("request", |value| value.tables("request"))?.unwrap_or_default() {
            let keys = value.keys("a request", REQUEST_KEYS)?;
            let weight = weight(&keys)?;
            let request = self.request(scope, &keys)?;
            self.tops.push(TopLevel { request, page: None, weight, is_named: false });
        }
        for value in top.read("page", |value| value.tables("page"))?.unwrap_or_default() {
            let keys = value.keys("a page", PAGE_KEYS)?;
            let weight = weight(&keys)?;
            let (request, page) = self.page(scope, &keys)?;
            self.tops.push(TopLevel { request, page: Some(page), weight, is_named: false });
        }
        Ok(())
    }

    pub(super) fn list(&mut self, scope: &Scope<'t>, top: &TableKeys<'t>) -> FileResult<()> {
        let Some(value) = top.get("urls") else { return Ok(()) };
        let keys = value.keys("a list of URLs", LIST_KEYS)?;
        let source = match keys.one_of(&["file", "pattern"])? {
            Some(source) => source,
            None => keys.required("file", "file = \"urls.txt\" or pattern = \"/files/[001-250].html\"")?,
        };
        let is_random = keys.read("order", tables::order)? == Some(RowOrder::Random);
        if !self.draft.requests.is_empty() || !self.sessions.is_empty() || self.draft.list.is_some() {
            return Err(FileError::new(
                value.at,
                "a list is all that is loaded, and there are other requests",
            )
            .hint("write them into the list, or leave it out"));
        }
        let written = source.non_empty_text()?;
        let (name, list) = if source.key == "pattern" {
            let text = pattern_lines(scope, &source, written)?;
            (written.to_owned(), read_list(scope, Path::new(written), text.into_bytes()))
        } else {
            let path = scope.files.resolve_relative(source.at.file, written);
            let read_error = |error: io::Error| io_error("read the list", path.display(), &error);
            let text = (scope.fetch)(&path).map_err(read_error);
            (path.display().to_string(), text.and_then(|text| read_list(scope, &path, text)))
        };
        let list = list.map_err(|error| {
            let hint =
                error.hint.clone().unwrap_or_else(|| "paths are relative to the file that names them".into());
            FileError::from_user_error(source.at, error, &hint)
        })?;
        // Weights draw, whatever the order.
        let is_random = is_random && list.entries.weights.is_empty();
        let Draft { requests, list, .. } = Draft::from_list(list, &name, &scope.headers, is_random);
        (self.draft.requests, self.draft.list) = (requests, list);
        self.draft.requests.iter_mut().for_each(|request| request.auth.clone_from(&scope.auth));
        self.uses = vec![vec![]; self.draft.requests.len()];
        Ok(())
    }

    fn new_variable(&mut self, at: SourceSpan, name: &str) -> FileResult<()> {
        if let Some(before) = self.variables.insert(name.to_owned(), at) {
            let other = self.files.position(before);
            return Err(FileError::new(at, format!("`{name}` is the name of another variable, at {other}"))
                .hint("variables and columns of tables need different names"));
        }
        Ok(())
    }

    /// Adds a request, unless it is there already.
    fn add(&mut self, found: ParsedRequest) -> FileResult<usize> {
        let ParsedRequest { spec, named, uses, .. } = found;
        let key = (spec.name.clone(), spec.method.clone(), spec.url.clone());
        let alike = self.known.entry(key).or_default();
        if let Some(&same) = alike.iter().find(|&&index| self.draft.requests[index] == spec) {
            if let Some(at) = named {
                self.named.entry(spec.name).or_insert(at);
            }
            return Ok(same);
        }
        if let Some(at) = named
            && let Some(before) = self.named.insert(spec.name.clone(), at)
        {
            let other = self.files.position(before);
            let message =
                format!("two different requests are called `{}`; the other one is at {other}", spec.name);
            return Err(
                FileError::new(at, message).hint("give them different names: they are counted by name")
            );
        }
        let index = self.draft.requests.len();
        alike.push(index);
        self.draft.requests.push(spec);
        self.uses.push(uses);
        Ok(index)
    }

    pub(super) fn request(&mut self, scope: &Scope<'t>, keys: &TableKeys<'t>) -> FileResult<usize> {
        let found = requests::read(scope, keys, scope.base.as_ref())?;
        self.add(found)
    }

    pub(super) fn page(&mut self, scope: &Scope<'t>, keys: &TableKeys<'t>) -> FileResult<(usize, PageSpec)> {
        let found = requests::read(scope, keys, scope.base.as_ref())?;
        let listed = requests::resources(scope, keys, &found.spec.url)?;
        let request = self.add(found)?;
        let page = match listed {
            ParsedResources::Rule(resources) => PageSpec { resources },
            ParsedResources::Parts(parts) => {
                let add = |(found, required)| Ok((self.add(found)?, required));
                requests::page_from_parts(parts.into_iter().map(add).collect::<FileResult<_>>()?)
            }
        };
        Ok((request, page))
    }

    pub(super) fn request_at(&mut self, scope: &Scope<'t>, at: SourceSpan, url: &str) -> FileResult<usize> {
        let found = requests::read_url(scope, at, url, scope.base.as_ref())?;
        self.add(found)
    }

    pub(super) fn page_at(
        &mut self,
        scope: &Scope<'t>,
        at: SourceSpan,
        url: &str,
    ) -> FileResult<(usize, PageSpec)> {
        Ok((self.request_at(scope, at, url)?, PageSpec::default()))
    }

    /// The whole: what is chosen between, with everything checked that takes all of it.
    pub(super) fn finish(mut self) -> FileResult<Draft> {
        for (at, name) in &self.captured {
            // A variable may be given a first value, which a capture replaces; a column is the session's for good.
            if let Some(before) = self.variables.get(name)
                && !self.draft.variables.contains_key(name)
            {
                let message = format!("`{name}` is a column of a table, at {}", self.files.position(*before));
                return Err(FileError::new(*at, message).hint("capture it under another name"));
            }
        }
        let tops = std::mem::take(&mut self.tops);
        for top in tops.into_iter().filter(|top| !top.is_named || top.weight.is_some()) {
            let is_request = top.page.is_none();
            let step = StepSpec { request: top.request, page: top.page, ..StepSpec::default() };
            let name = self.draft.requests[top.request].name.clone();
            let session = SessionSpec { name, weight: top.weight.unwrap_or(1.0), steps: vec![step] };
            self.draft.entries.push(Entry { session, is_request });
        }
        let sessions = std::mem::take(&mut self.sessions);
        self.draft.entries.extend(sessions.into_iter().map(|(_, entry)| entry));
        self.draft.entries.iter().try_for_each(|entry| self.check_variables(&entry.session))?;
        Ok(self.draft)
    }

    /// Every variable must have been captured before, or be known from the beginning.
    fn check_variables(&self, session: &SessionSpec) -> FileResult<()> {
        let mut known: Vec<&str> =
            self.variables.keys().map(String::as_str).chain(captures::BUILT_IN).collect();
        for (number, step) in session.steps.iter().enumerate() {
            let parts = step.page.as_ref().map(parts).unwrap_or_default();
            for (name, at) in parts.iter().chain([&step.request]).flat_map(|&request| &self.uses[request]) {
                if known.contains(&name.as_str()) {
                    continue;
                }
                let later = &session.steps[number..];
                let captures = |step: &StepSpec| step.captures.iter().any(|capture| capture.name == *name);
                if let Some(after) = later.iter().position(captures) {
                    let message = format!(
                        "`${{{name}}}` is used in step {} of `{}`, and step {} captures it",
                        number + 1,
                        session.name,
                        number + after + 1
                    );
                    return Err(FileError::new(*at, message)
                        .hint("a value can be used in the steps behind the one that captures it"));
                }
                return Err(self.unknown(session, *at, name, &known));
            }
            known.extend(step.captures.iter().map(|capture| capture.name.as_str()));
        }
        Ok(())
    }

    fn unknown(&self, session: &SessionSpec, at: SourceSpan, name: &str, known: &[&str]) -> Box<FileError> {
        let elsewhere = self.captured.iter().any(|(_, captured)| captured == name);
        if elsewhere && !known.contains(&name) {
            let message =
                format!("`${{{name}}}` has no value in `{}`: another session captures it", session.name);
            return FileError::new(at, message).hint("sessions share no values; capture it in this one, too");
        }
        FileError::new(at, format!("`${{{name}}}` is not a variable"))
            .did_you_mean(name, known.iter().copied())
    }
}

/// Understands a list, with the files of its bodies, which are in its directory.
fn read_list(scope: &Scope<'_>, path: &Path, text: Vec<u8>) -> Result<UrlList> {
    let list_directory = path.parent().unwrap_or(Path::new(""));
    // As --urls does: where webdyno runs, and then beside the list.
    let mut read = |body: &Path| match (scope.fetch)(body) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => (scope.fetch)(&list_directory.join(body)),
        other => other,
    };
    let variable = |name: &str| std::env::var(name).ok();
    let context = ListContext { method: "GET", variable: &variable, read: &mut read };
    urls::parse(&path.display().to_string(), &text, context)
}

/// The URLs of a pattern, a line each: `/files/[001-250].html` stands for 250, as curl writes it.
fn pattern_lines(scope: &Scope<'_>, value: &Value<'_>, pattern: &str) -> FileResult<String> {
    let wrong = |why: &str| {
        FileError::new(value.at, format!("`{pattern}` {why}"))
            .hint("a pattern has one range of numbers in brackets, as in \"/files/[001-250].html\"")
    };
    let range = |(at, _): (usize, &str)| {
        let (inside, rest) = pattern[at + 1..].split_once(']')?;
        let (low, high) = inside.split_once('-')?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let numbers = is_number(low) && is_number(high);
        let (from, to) = numbers.then(|| low.parse::<u64>().ok().zip(high.parse::<u64>().ok())).flatten()?;
        Some((&pattern[..at], low.len(), from..=to, rest))
    };
    let found = pattern.match_indices('[').find_map(range);
    let (before, digits, numbers, rest) = found.ok_or_else(|| wrong("has no range of numbers"))?;
    let count = numbers.end().checked_sub(*numbers.start()).map(|count| count.saturating_add(1));
    if count.is_none_or(|count| count > PATTERN_COUNT_MAX) {
        return Err(wrong(&format!("stands for no URL, or for more than {PATTERN_COUNT_MAX}")));
    }
    let mut lines = String::new();
    for number in numbers {
        let url = format!("{before}{number:0digits$}{rest}");
        let url = match &scope.base {
            Some(base) => base.join(&url).map_err(|error| wrong(&format!("is no URL: {error}")))?.to_string(),
            None => url,
        };
        lines.push_str(&url);
        lines.push('\n');
    }
    Ok(lines)
}

/// The requests of a page's listed parts.
fn parts(page: &PageSpec) -> Vec<usize> {
    match &page.resources {
        Resources::Listed(parts) => parts.iter().map(|part| part.request).collect(),
        _ => vec![],
    }
}

/// The paths that a file includes, with their places.
pub(super) fn includes(top: &TableKeys<'_>) -> FileResult<Vec<(SourceSpan, String)>> {
    let list = top.read("include", Value::texts)?.unwrap_or_default();
    Ok(list.into_iter().map(|(at, path)| (at, path.to_owned())).collect())
}
