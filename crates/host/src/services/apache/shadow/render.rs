//! Renders the copies of configuration files: line by line, each on the line where it was, so that what Apache says of
//! a copy is true of the original.
//!
//! Directives of sections that do not count are rewritten too, without their variables: should Apache take them in
//! after all, nothing of the original is touched.

use super::addresses::Addresses;
use super::directives::{Kind, kind};
use super::mirror::Mirror;
use crate::services::apache::config::model::Counted;
use crate::services::apache::config::syntax::{Line, Statement, next_word, statement, words};
use crate::services::apache::config::{Evaluation, Source};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use webdyno_model::{Result, UserError};

/// The file of what was written to programs and to the system's log.
const OTHER_LOG: &str = "other.log";

/// The copies as they are made.
pub struct Renderer<'a> {
    evaluation: &'a Evaluation,
    /// The sources of each include, in order.
    of_include: BTreeMap<usize, Vec<usize>>,
    folder: &'a Path,
    addresses: Addresses,
    mirror: Mirror,
    /// The copies, with the originals.
    copies: Vec<Copy>,
    /// The port of the server's name so far, with the order at which it was given.
    server_ports: Vec<(usize, Option<u16>)>,
}

/// A copy of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// Where it is to be written.
    pub path: PathBuf,
    /// What it is a copy of.
    pub original: PathBuf,
    /// Its bytes.
    pub content: Vec<u8>,
}

impl<'a> Renderer<'a> {
    /// For a configuration whose sources were kept.
    pub fn new(evaluation: &'a Evaluation, folder: &'a Path, addresses: Addresses, mirror: Mirror) -> Self {
        let mut of_include: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, source) in evaluation.sources.iter().enumerate() {
            if let Some(include) = source.included {
                of_include.entry(include).or_default().push(at);
            }
        }
        let server_ports = server_ports(evaluation);
        Self { evaluation, of_include, folder, addresses, mirror, copies: vec![], server_ports }
    }

    /// Renders a file and all that it includes.
    pub fn file(&mut self, source: &Source, path: PathBuf) -> Result<()> {
        let content = self.document(source)?;
        let original = source.path.clone().unwrap_or_default();
        self.copies.push(Copy { path, original, content });
        Ok(())
    }

    /// Renders the lines of a source.
    pub fn document(&mut self, source: &Source) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        let mut in_macro = false;
        for line in &source.document.lines {
            match line.statement() {
                Statement::Open { name, .. } if name.eq_ignore_ascii_case("Macro") => in_macro = true,
                Statement::Close { name } if name.eq_ignore_ascii_case("Macro") => in_macro = false,
                _ => {}
            }
            let counted = source.lines.get(&line.number_last);
            match self.line(line, counted, in_macro)? {
                Some(text) => content.extend(in_place(line, &text, source.document.line_end())),
                None => content.extend_from_slice(&line.raw),
            }
        }
        Ok(content)
    }

    /// The copies so far, and the directories that they write to.
    pub fn finish(self) -> (Vec<Copy>, Mirror) {
        (self.copies, self.mirror)
    }

    /// The directories that the copies write to.
    pub fn mirror(&mut self) -> &mut Mirror {
        &mut self.mirror
    }

    /// What stands in the copy instead of a line; `None` when it stays.
    fn line(&mut self, line: &Line, counted: Option<&Counted>, in_macro: bool) -> Result<Option<String>> {
        let text = counted.map_or(line.text.as_str(), |counted| counted.text.as_str());
        Ok(match statement(text) {
            Statement::Open { name, arguments, .. } => (kind(&name) == Some(Kind::Addresses)).then(|| {
                let port = counted.and_then(|counted| self.server_port(counted.order));
                format!("<{name} {}>", self.virtual_hosts(&arguments, port))
            }),
            Statement::Directive { name, arguments } => match (kind(&name), counted) {
                (None, _) => None,
                (Some(Kind::Include), None) if in_macro => {
                    return Err(UserError::cannot_run(format!("a macro includes files: `{}`", line.text)));
                }
                (Some(kind), Some(counted)) => self.counted(kind, &name, &arguments, counted)?,
                (Some(kind), None) => Some(self.skipped(kind, &name, &arguments)),
            },
            Statement::Blank | Statement::Comment | Statement::Close { .. } => None,
        })
    }

    /// A directive that counts.
    fn counted(
        &mut self,
        kind: Kind,
        name: &str,
        arguments: &str,
        counted: &Counted,
    ) -> Result<Option<String>> {
        let (first, rest) = next_word(arguments);
        let message = match kind {
            Kind::Listen => match self.addresses.listen(&words(arguments)) {
                Some(message) => message,
                None => return Ok(Some(left_out(name))),
            },
            Kind::Addresses => self.virtual_hosts(arguments, self.server_port(counted.order)),
            Kind::Include => return self.include(name, arguments, counted).map(Some),
            Kind::File => format!("{} {rest}", quoted(&self.mirror.file(&first))),
            Kind::Log => format!("{} {rest}", quoted(&self.log(&first))),
            Kind::ErrorLog => quoted(&self.error_log(arguments)),
            Kind::Folder => format!("{} {rest}", quoted(&self.mirror.folder(&first))),
            Kind::Cache => format!("{} {rest}", self.cache(&first)),
            Kind::Mutex => format!("{} {rest}", self.mutex(&first)),
            Kind::Php => match (first.as_str(), next_word(rest)) {
                ("error_log", (value, _)) => format!("error_log {}", quoted(&self.log(&value))),
                _ => return Ok(None),
            },
            Kind::LeftOut => return Ok(Some(left_out(name))),
        };
        Ok(Some(format!("{name} {}", message.trim_end())))
    }

    /// A directive that should not count: its paths may hold variables that have no value here.
    fn skipped(&mut self, kind: Kind, name: &str, arguments: &str) -> String {
        let (_, rest) = next_word(arguments);
        let log = quoted(&self.other_log());
        match kind {
            Kind::File | Kind::Log => format!("{name} {log} {rest}").trim_end().to_owned(),
            Kind::ErrorLog => format!("{name} {log}"),
            Kind::Folder => format!("{name} {} {rest}", quoted(self.folder)).trim_end().to_owned(),
            Kind::Addresses => format!("{name} {}", self.virtual_hosts(arguments, None)),
            Kind::Listen | Kind::Include | Kind::Cache | Kind::Mutex | Kind::Php | Kind::LeftOut => {
                left_out(name)
            }
        }
    }

    fn virtual_hosts(&mut self, arguments: &str, server_port: Option<u16>) -> String {
        let words = words(arguments);
        let message: Vec<_> =
            words.iter().map(|word| self.addresses.virtual_host(word, server_port)).collect();
        message.join(" ")
    }

    /// The port of the main server's name when a directive is read: what virtual hosts without a port get.
    fn server_port(&self, order: usize) -> Option<u16> {
        self.server_ports.iter().rfind(|(at, _)| *at < order).and_then(|(_, port)| *port)
    }

    /// Points an include to the copies of its files. They are in a directory of their own, which Apache reads in the
    /// order of their names.
    fn include(&mut self, name: &str, arguments: &str, counted: &Counted) -> Result<String> {
        let unread =
            || UserError::cannot_run(format!("not all files of `{name} {}` can be read", arguments.trim()));
        let index = counted.include.ok_or_else(unread)?;
        let sources = self.of_include.get(&index).cloned().unwrap_or_default();
        let files = self.evaluation.includes.get(index).map_or(0, |include| include.files.len());
        if sources.len() != files {
            return Err(unread());
        }
        let folder = self.folder.join("conf").join(index.to_string());
        let evaluation = self.evaluation;
        for (at, source) in sources.into_iter().filter_map(|at| evaluation.sources.get(at)).enumerate() {
            let name = source.path.as_deref().and_then(Path::file_name).unwrap_or_default();
            let mut copy = std::ffi::OsString::from(format!("{at:04}-"));
            copy.push(name);
            self.file(source, folder.join(copy))?;
        }
        Ok(match (files, name.eq_ignore_ascii_case("Include")) {
            // Without a match it is an error there, and is to be one here.
            (0, true) => format!("{name} {}", quoted(&folder.join("*.conf"))),
            _ => format!("{name} {}", quoted(&folder)),
        })
    }

    fn other_log(&self) -> PathBuf {
        self.folder.join(OTHER_LOG)
    }

    /// Where a log is written; programs that would get it are not started. One that is not there would end the start of
    /// the original: so would the directory of its log here.
    fn log(&mut self, word: &str) -> PathBuf {
        let Some(program) = word.strip_prefix('|') else { return self.mirror.file(word) };
        // `||program` and `|program` run it, `|$command` a shell.
        let (program, _) = next_word(program.trim_start_matches('|'));
        let is_missing = program.starts_with('/') && !Path::new(&program).exists();
        if is_missing {
            self.folder.join("missing").join(program.trim_start_matches('/'))
        } else {
            self.other_log()
        }
    }

    /// Where an error log is written, by the arguments of its directive.
    pub fn error_log(&mut self, arguments: &str) -> PathBuf {
        let (first, rest) = next_word(arguments);
        match (first.as_str(), next_word(rest).0) {
            ("file", path) if !path.is_empty() => self.mirror.file(&path),
            (_, second) if !second.is_empty() => self.other_log(),
            _ if first.starts_with("syslog") => self.other_log(),
            _ => self.log(&first),
        }
    }

    /// `shmcb:/path(size)`, `dbm:/path`; other providers keep nothing in files.
    fn cache(&mut self, word: &str) -> String {
        let in_files = |provider: &&str| ["shmcb", "dbm", "shm", "shmht"].contains(provider);
        let Some((provider, argument)) = word.split_once(':').filter(|(provider, _)| in_files(provider))
        else {
            return quoted(Path::new(word));
        };
        let (path, size) = argument.find('(').map_or((argument, ""), |at| argument.split_at(at));
        let path = self.mirror.file(path);
        quoted(Path::new(&format!("{provider}:{}{size}", path.display())))
    }

    /// `file:/directory`; the name of a semaphore is no path.
    fn mutex(&mut self, word: &str) -> String {
        match word.split_once(':') {
            Some((mechanism, path)) if !["posixsem", "sem", "sysvsem"].contains(&mechanism) => {
                let path = self.mirror.folder(path);
                quoted(Path::new(&format!("{mechanism}:{}", path.display())))
            }
            _ => quoted(Path::new(word)),
        }
    }
}

/// The ports of the main server's name, in order (`set_server_name` in server/core.c).
fn server_ports(evaluation: &Evaluation) -> Vec<(usize, Option<u16>)> {
    let port = |arguments: &str| {
        let name = next_word(arguments).0;
        name.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
    };
    let named = evaluation.all(&["ServerName"]).filter(|placed| placed.is_global());
    named.map(|placed| (placed.order, port(&placed.arguments))).collect()
}

/// Text in the place of a line: it ends where the line ended, so that its number stays.
fn in_place(line: &Line, text: &str, end: &str) -> Vec<u8> {
    let above = end.repeat((line.number_last - line.number) as usize);
    let end = if line.raw.ends_with(b"\n") { end } else { "" };
    format!("{above}{text}{end}").into_bytes()
}

/// A word that Apache reads as this path.
pub fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"").replace("${", "$_{");
    format!("\"{text}\"")
}

fn left_out(name: &str) -> String {
    format!("# {name}: not done twice")
}
