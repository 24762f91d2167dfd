//! Lists of URLs as siege(1) has them: text in, requests out, a million lines in a fraction of a second.
//!
//! One URL a line, without `http://` too; `URL METHOD`, `URL POST BODY`, `URL POST <FILE`, `URL POST -T TYPE BODY`;
//! lines that begin with `#`, and what follows a blank and `#` behind a URL, are comments; `NAME=value` and after it
//! `${NAME}` or `$(NAME)`, else of the environment; `\$` is a `$`. Facts: siege 4.1.7, its manual and src/cfg.c,
//! eval.c, url.c, load.c. A fragment is never sent, with siege neither: `#weight=2.5` in its place defines how often
//! the line is drawn.
//!
//! Only what is new on a line is read by the url crate: the host, and a path or query that is not plain.

mod content;
mod files;
mod line;
mod line_errors;
mod names;
mod target;
#[cfg(test)]
mod tests;

use crate::plan::parse_url;
use content::{FORM, of_file};
pub use files::read;
use line::{Line, LineBody};
use line_errors::{LineError, LineErrors};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;
use webdyno_model::workload::body::Body;
use webdyno_model::workload::visit::{ListEntries, ListEntry, RequestList};
use webdyno_model::workload::{RequestSpec, Workload, redact_query};
use webdyno_model::{Result, UserError};

/// Longest line: a body in it is one that can be sent.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Most bytes of all files that are sent.
const BODIES_BYTES_MAX: u64 = 1 << 30;
/// Most kinds of requests: each is a server, a method and a type of content.
const KINDS_MAX: usize = 4096;

/// The context of a list: default method, environment, and the files of bodies.
pub struct ListContext<'a> {
    /// Method of lines that name none.
    pub method: &'a str,
    /// The environment, for variables that the list does not define.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Reads the file of a body.
    pub read: &'a mut dyn FnMut(&Path) -> io::Result<Vec<u8>>,
}

/// The result of reading a line.
type LineResult<T> = std::result::Result<T, LineError>;
/// Server, method, and type of content and 1, or 0 for none.
type KindKey = (u32, usize, usize);

/// A list that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct UrlList {
    /// Its requests.
    pub entries: ListEntries,
    /// What they have in common: [`ListEntry::kind`] is a place in here.
    pub kinds: Vec<Kind>,
}

/// What requests of a list have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// `GET`, `POST`, ...
    pub method: String,
    /// The URL of the first of them.
    pub url: String,
    /// What its bodies are.
    pub content_type: Option<String>,
    /// Which of the list's servers it goes to.
    server: u32,
}

impl UrlList {
    /// Makes it what a workload sends, with these headers on every request. `file` is what it is called; `random`: it
    /// is not taken in turn.
    pub fn apply_to(self, workload: &mut Workload, file: &str, headers: &[(String, String)], random: bool) {
        let is_given = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let request = |kind: &Kind| {
            let content_type = kind.content_type.clone().filter(|_| !is_given);
            let content_type = content_type.map(|value| ("Content-Type".to_owned(), value));
            let path = kind.url.splitn(4, '/').nth(3).unwrap_or_default();
            RequestSpec {
                name: redact_query(&format!("/{path}")),
                method: kind.method.clone(),
                url: kind.url.clone(),
                headers: headers.iter().cloned().chain(content_type).collect(),
                ..RequestSpec::default()
            }
        };
        workload.requests = self.kinds.iter().map(request).collect();
        let mut by_name = BTreeMap::new();
        for name in
            self.entries.entries.iter().filter_map(|entry| self.entries.names.get(usize::from(entry.name)))
        {
            *by_name.entry(name.clone()).or_default() += 1;
        }
        workload.list = Some(RequestList {
            file: file.to_owned(),
            count: self.entries.entries.len() as u64,
            random,
            weighted: !self.entries.weights.is_empty(),
            by_name,
            entries: Some(Arc::new(self.entries)),
        });
    }
}

/// Reads a whole list. `file` is what errors call it.
pub fn parse(file: &str, text: &[u8], context: ListContext<'_>) -> Result<UrlList> {
    let mut reader = Reader::new(file, context);
    reader.feed(text);
    reader.finish()
}

/// A list that is being read, piece by piece.
pub struct Reader<'a> {
    file: String,
    context: ListContext<'a>,
    lines: u64,
    /// A line of which not all has come.
    partial_line: Vec<u8>,
    /// A line whose variables were replaced.
    expanded: Vec<u8>,
    variables: HashMap<Vec<u8>, Vec<u8>>,
    servers: target::Servers,
    methods: Vec<String>,
    /// That of lines which name none.
    method: usize,
    types: Vec<String>,
    kinds: Vec<Kind>,
    kind_by: HashMap<KindKey, u32>,
    last_kind: Option<(KindKey, u32)>,
    body_by: HashMap<String, (u32, usize)>,
    bodies_bytes: u64,
    list: ListEntries,
    line_errors: LineErrors,
}

impl<'a> Reader<'a> {
    /// Nothing read yet.
    pub fn new(file: &str, context: ListContext<'a>) -> Self {
        let mut methods: Vec<String> = line::METHODS.iter().map(ToString::to_string).collect();
        let known = methods.iter().position(|known| known == context.method);
        let method = known.unwrap_or(methods.len());
        if known.is_none() {
            methods.push(context.method.to_owned());
        }
        Self {
            file: file.to_owned(),
            context,
            lines: 0,
            partial_line: vec![],
            expanded: vec![],
            variables: HashMap::new(),
            servers: target::Servers::default(),
            methods,
            method,
            types: vec![],
            kinds: vec![],
            kind_by: HashMap::new(),
            last_kind: None,
            body_by: HashMap::new(),
            bodies_bytes: 0,
            list: ListEntries::default(),
            line_errors: LineErrors::default(),
        }
    }

    /// Adds the next bytes, split anywhere.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            match self.partial_line.is_empty() {
                true => self.line(line),
                false => {
                    self.keep(line);
                    let partial_line = std::mem::take(&mut self.partial_line);
                    self.line(&partial_line);
                    self.partial_line = partial_line;
                    self.partial_line.clear();
                }
            }
            bytes = rest;
        }
        self.keep(bytes);
    }

    /// Keeps what came of a line; one byte too many shows that it is too long.
    fn keep(&mut self, bytes: &[u8]) {
        let room = (LINE_BYTES_MAX + 1).saturating_sub(self.partial_line.len());
        self.partial_line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// The list. A usage error that names the first wrong lines, or reports an empty list.
    pub fn finish(mut self) -> Result<UrlList> {
        let partial_line = std::mem::take(&mut self.partial_line);
        if !partial_line.is_empty() {
            self.line(&partial_line);
        }
        drop(partial_line);
        self.line_errors.end(&self.file)?;
        if self.list.entries.is_empty() {
            return Err(UserError::usage(format!("{} holds no URL", self.file))
                .hint("write one a line, as http://localhost:8080/path"));
        }
        names::assign(&mut self.list, &self.kinds, &self.servers);
        self.list.text.shrink_to_fit();
        self.list.entries.shrink_to_fit();
        Ok(UrlList { entries: self.list, kinds: self.kinds })
    }

    fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        // A mark of the encoding (UTF-8), as editors of Windows write it.
        let line = match (self.lines, line.strip_prefix(b"\xEF\xBB\xBF")) {
            (1, Some(rest)) => rest,
            _ => line,
        };
        if let Err(error) = self.read_line(line) {
            self.line_errors.add(self.lines, line, error);
        }
    }

    fn read_line(&mut self, line: &[u8]) -> LineResult<()> {
        if line.len() > LINE_BYTES_MAX {
            return Err(LineError::at_byte(0, format!("the line is longer than {LINE_BYTES_MAX} bytes")));
        }
        let (text, begin) = line::trimmed(line);
        if text.is_empty() || text[0] == b'#' {
            return Ok(());
        }
        let mut expanded = std::mem::take(&mut self.expanded);
        let done = self.read_text(text, begin, &mut expanded);
        self.expanded = expanded;
        done
    }

    /// A line with content; it begins at byte `begin` of the file's line.
    fn read_text(&mut self, text: &[u8], begin: usize, expanded: &mut Vec<u8>) -> LineResult<()> {
        let assignment = line::parse_assignment(text).map_err(|error| error.shifted(begin))?;
        let plain = match assignment {
            Some((_, value)) => &text[value..],
            None => text,
        };
        let at = begin + text.len() - plain.len();
        let is_written = memchr::memchr(b'$', plain).is_none();
        let plain = if is_written {
            plain
        } else {
            expanded.clear();
            let value = |name: &[u8]| self.value(name);
            line::expand(plain, value, expanded).map_err(|error| error.shifted(at))?;
            line::trimmed(expanded).0
        };
        match assignment {
            Some((name, _)) => {
                let value = line::strip_comment(plain);
                self.variables.insert(text[..name].to_vec(), value.to_vec());
                Ok(())
            }
            None => self.entry(plain).map_err(|error| match is_written {
                true => error.shifted(begin),
                // What follows something that was replaced has no column.
                false => LineError { at: begin, ..error },
            }),
        }
    }

    /// The value of a variable.
    fn value(&self, name: &[u8]) -> Option<Vec<u8>> {
        let own = self.variables.get(name).cloned();
        own.or_else(|| Some((self.context.variable)(std::str::from_utf8(name).ok()?)?.into_bytes()))
    }

    /// A line that is a request. Nothing of a wrong one stays.
    fn entry(&mut self, text: &[u8]) -> LineResult<()> {
        let begin = self.list.text.len();
        let added = self.add(line::split(text)?, begin);
        if added.is_err() {
            self.list.text.truncate(begin);
        }
        added
    }

    /// Adds a request whose target is to lie at `begin`.
    fn add(&mut self, line: Line<'_>, begin: usize) -> LineResult<()> {
        let place = target::split(line.url)?;
        let weight = target::weight(&place)?;
        let server = self.servers.of(&place, |text| parse_url(text).map(drop))?;
        self.servers.push_target(server, &place, &mut self.list.text)?;
        let end = self.list.text.len();
        let target_bytes = u16::try_from(end - begin).map_err(|_| {
            LineError::at_byte(
                0,
                format!("path and query have {} bytes, at most {} are sent", end - begin, u16::MAX),
            )
        })?;
        let (body, content_type) = self.body(&line)?;
        let method = line.method.unwrap_or(self.method);
        let kind = (server, method, content_type.map_or(0, |number| number + 1));
        let kind = self.kind(kind, begin..end)?;
        let too_much = || LineError::at_byte(0, "the list has more than 4 GB of text, or 4 billion requests");
        u32::try_from(self.list.text.len().max(self.list.entries.len() + 1)).map_err(|_| too_much())?;
        self.list.entries.push(ListEntry { kind, begin: begin as u32, body, target_bytes, name: 0 });
        self.record_weight(weight);
        Ok(())
    }

    /// The body of an entry, which follows its target, and the number of its type of content.
    fn body(&mut self, line: &Line<'_>) -> LineResult<(u32, Option<usize>)> {
        match line.sent {
            LineBody::Nothing => Ok((0, None)),
            LineBody::Text(text) => {
                self.list.text.extend_from_slice(text);
                let content_type = line.content_type.unwrap_or(FORM.as_bytes());
                Ok((text.len() as u32, (!text.is_empty()).then(|| self.type_of(content_type))))
            }
            LineBody::File { path, at } => {
                let (number, content_type) = self.file(path).map_err(|error| error.shifted(at))?;
                let given = line.content_type.map(|given| self.type_of(given));
                Ok((ListEntry::SHARED + number, Some(given.unwrap_or(content_type))))
            }
        }
    }

    fn record_weight(&mut self, weight: Option<f32>) {
        let weights = &mut self.list.weights;
        if weight.is_some() && weights.is_empty() {
            weights.resize(self.list.entries.len() - 1, 1.0);
        }
        if weight.is_some() || !weights.is_empty() {
            weights.push(weight.unwrap_or(1.0));
        }
    }

    /// The number of a type of content.
    fn type_of(&mut self, given: &[u8]) -> usize {
        let known = self.types.iter().position(|known| known.as_bytes() == given);
        known.unwrap_or_else(|| {
            self.types.push(String::from_utf8_lossy(given).into_owned());
            self.types.len() - 1
        })
    }

    /// The body that a file holds, and the number of its type.
    fn file(&mut self, path: &str) -> LineResult<(u32, usize)> {
        if let Some(&known) = self.body_by.get(path) {
            return Ok(known);
        }
        let (content_type, is_text) = of_file(path);
        let mut bytes = (self.context.read)(Path::new(path)).map_err(|error| {
            let error = webdyno_model::error::io_error("read", format!("`{path}`"), &error);
            LineError::at_byte(0, error.message)
        })?;
        if is_text {
            // As siege does: the line end at the end of such a file is no part of a form.
            let (trimmed, begin) = line::trimmed(&bytes);
            let length = trimmed.len();
            bytes.truncate(begin + length);
            bytes.drain(..begin);
        }
        self.bodies_bytes += bytes.len() as u64;
        if self.bodies_bytes > BODIES_BYTES_MAX {
            return Err(LineError::at_byte(
                0,
                format!("with `{path}` the files to send hold more than 1 GB"),
            ));
        }
        let number = self.list.bodies.len() as u32;
        self.list.bodies.push(Body::from(bytes));
        let content_type = self.type_of(content_type.as_bytes());
        self.body_by.insert(path.to_owned(), (number, content_type));
        Ok((number, content_type))
    }

    /// The kind of these. The entry with the target that lies there is its first when it is new.
    fn kind(&mut self, of: KindKey, target: std::ops::Range<usize>) -> LineResult<u32> {
        if let Some((last, kind)) = self.last_kind
            && last == of
        {
            return Ok(kind);
        }
        let kind = match self.kind_by.get(&of) {
            Some(&kind) => kind,
            None if self.kinds.len() == KINDS_MAX => {
                let message = format!("the list has more than {KINDS_MAX} kinds of requests");
                return Err(LineError::at_byte(0, message).hint(
                    "each server, method and type of content makes a kind: load fewer servers at once",
                ));
            }
            None => {
                let (server, method, content_type) = of;
                let target = String::from_utf8_lossy(&self.list.text[target]);
                let url = format!("{}{target}", self.servers.name(server));
                let content_type = content_type.checked_sub(1).map(|number| self.types[number].clone());
                self.kinds.push(Kind { method: self.methods[method].clone(), url, content_type, server });
                let kind = (self.kinds.len() - 1) as u32;
                self.kind_by.insert(of, kind);
                kind
            }
        };
        self.last_kind = Some((of, kind));
        Ok(kind)
    }
}
