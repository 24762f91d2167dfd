//! Walks a configuration as Apache reads it and keeps every directive with its file, line and context.
//!
//! `ap_build_config` in httpd's server/config.c: files are read in order, conditions, `Include`, `Define`,
//! `LoadModule` and `ServerRoot` act while they are read, everything else afterwards in the same order. So the last
//! directive at server scope wins, wherever it was included from. Where Apache would refuse to start, this goes on
//! and leaves a warning: the server may be running with an older state of the files.

use super::condition::{self, Version};
use super::include::{self, DEPTH_MAX, FILES_MAX, real, would_match};
use super::macros::{self, Macro};
use super::model::{
    Counted, Evaluation, Included, Input, Module, Opened, Placed, Section, Source, absolute, place,
};
use super::syntax::{Document, Line, Statement, statement, words};
use super::variables::Variables;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most directives that are kept: 10,000 virtual hosts of a hundred lines.
const DIRECTIVES_MAX: usize = 1_000_000;

/// Most lines that macros may give: each may use others many times.
const EXPANDED_LINES_MAX: usize = 500_000;

/// How deep macros may use each other.
const MACRO_DEPTH_MAX: usize = 32;

/// Most bytes of all files together.
const BYTES_MAX: usize = 256 << 20;

/// Most warnings that are kept.
const WARNINGS_MAX: usize = 30;

/// Evaluates a configuration from the disk.
pub fn evaluate(input: Input) -> Evaluation {
    let mut walker = Walker {
        variables: Variables::new(input.defines, input.environment),
        version: input.version,
        scope: Vec::new(),
        scope_shared: Arc::from([]),
        stack: Vec::new(),
        overlay: input.overlay,
        is_isolated: input.is_isolated,
        keeps_sources: input.keeps_sources,
        source: None,
        include: None,
        macros: HashMap::new(),
        used: Vec::new(),
        via: None,
        expanded_lines: 0,
        bytes: 0,
        is_full: false,
        warnings_left_out: 0,
        out: Evaluation {
            server_root: input.server_root,
            modules: input.static_modules,
            ..Evaluation::default()
        },
    };
    walker.command_line(&input.before);
    walker.file(&input.main_file, None);
    walker.command_line(&input.after);
    let mut out = walker.out;
    if walker.warnings_left_out > 0 {
        out.warnings
            .push(format!("{} more problems of the configuration are left out", walker.warnings_left_out));
    }
    out.variables = walker.variables.into_referenced();
    out
}

struct Walker {
    variables: Variables,
    version: Option<Version>,
    scope: Vec<Section>,
    /// The same, as directives share it.
    scope_shared: Arc<[Section]>,
    /// Files that are being read: one in it must not be read again.
    stack: Vec<PathBuf>,
    overlay: BTreeMap<PathBuf, String>,
    is_isolated: bool,
    keeps_sources: bool,
    /// The source that is being read, where sources are kept.
    source: Option<usize>,
    /// The include whose files are being read.
    include: Option<usize>,
    macros: HashMap<String, Arc<Macro>>,
    /// Macros that are being expanded: one in it must not be used again.
    used: Vec<String>,
    /// The macro whose lines are being read, in words.
    via: Option<Arc<str>>,
    expanded_lines: usize,
    bytes: usize,
    /// Whether a bound was reached that is told once.
    is_full: bool,
    warnings_left_out: usize,
    out: Evaluation,
}

/// A section that is open in the file being read.
struct Frame {
    name: String,
    place: String,
    scoped: bool,
}

/// Directives that take effect while they are read.
const ACTING: [&str; 8] =
    ["Include", "IncludeOptional", "Define", "UnDefine", "ServerRoot", "LoadModule", "UndefMacro", "PassEnv"];

impl Walker {
    fn warn(&mut self, text: String) {
        if self.out.warnings.len() < WARNINGS_MAX {
            self.out.warnings.push(text);
        } else {
            self.warnings_left_out += 1;
        }
    }

    /// Says once that a bound was reached.
    fn full(&mut self, text: String) {
        if !std::mem::replace(&mut self.is_full, true) {
            // It weighs more than any other problem.
            self.out.warnings.insert(0, text);
        }
    }

    /// Where a line is, with the macro that it is of.
    fn place(&self, file: Option<&Arc<Path>>, line: u32) -> String {
        match &self.via {
            Some(via) => format!("{} ({via})", place(file, line)),
            None => place(file, line),
        }
    }

    fn command_line(&mut self, directives: &[String]) {
        for directive in directives {
            self.document(Document::parse(directive.as_bytes()), None);
        }
    }

    fn document(&mut self, document: Document, path: Option<&Path>) {
        let outer = self.source;
        if self.keeps_sources {
            self.source = Some(self.out.sources.len());
            self.out.sources.push(Source {
                path: path.map(Path::to_path_buf),
                document: document.clone(),
                included: self.include,
                lines: BTreeMap::new(),
            });
        }
        self.lines(&document.lines, path.map(Arc::from).as_ref());
        self.source = outer;
    }

    /// Where sources are kept, notes a line that counts.
    fn count(&mut self, line: u32, text: &str) {
        let order = self.out.directives.len();
        if let Some(source) = self.source.and_then(|at| self.out.sources.get_mut(at)) {
            source.lines.insert(line, Counted { text: text.to_owned(), order, include: None });
        }
    }

    /// Reads a file; `from` is where it is included.
    fn file(&mut self, path: &Path, from: Option<&str>) {
        let from = from.map(|from| format!(" (included at {from})")).unwrap_or_default();
        if self.stack.iter().any(|open| open == path) {
            return self.warn(format!("{} includes itself{from}", path.display()));
        }
        if self.stack.len() >= DEPTH_MAX {
            return self.warn(format!("{} was not read: too deep includes{from}", path.display()));
        }
        if self.out.files.len() >= FILES_MAX || self.bytes >= BYTES_MAX {
            return self.full(format!(
                "{} and what follows was not read: the configuration has more than {FILES_MAX} files or \
                 {BYTES_MAX} bytes{from}",
                path.display()
            ));
        }
        let bytes = match self.read(path) {
            Ok(bytes) => bytes,
            Err(error) => return self.warn(format!("cannot read {}: {error}{from}", path.display())),
        };
        self.bytes += bytes.len();
        self.out.files.push(path.to_path_buf());
        self.stack.push(path.to_path_buf());
        let via = self.via.take();
        self.document(Document::parse(&bytes), Some(path));
        self.via = via;
        self.stack.pop();
    }

    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        if !self.overlay.is_empty() {
            let real = real(path);
            if let Some(text) = self.overlay.get(&real) {
                return Ok(text.clone().into_bytes());
            }
        }
        include::read(path)
    }

    fn lines(&mut self, lines: &[Line], file: Option<&Arc<Path>>) {
        let mut frames: Vec<Frame> = Vec::new();
        self.run(lines, file, &mut frames);
        while let Some(frame) = frames.pop() {
            // What follows was not read: its end may be there.
            if !self.is_full {
                self.warn(format!("<{}> was not closed ({})", frame.name, frame.place));
            }
            self.leave(frame.scoped);
        }
    }

    /// Reads lines. A macro may open a section that what follows its use closes, so sections are the caller's.
    fn run(&mut self, lines: &[Line], file: Option<&Arc<Path>>, frames: &mut Vec<Frame>) {
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            at += 1;
            if line.text.is_empty() || line.text.starts_with('#') || self.is_full {
                continue;
            }
            self.odd(line, file);
            let (text, unknown) = self.variables.resolve(&line.text);
            for name in unknown.iter().filter(|name| !name.contains(':')) {
                let place = self.place(file, line.number_last);
                self.warn(format!("variable ${{{name}}} is not defined ({place})"));
            }
            self.count(line.number_last, &text);
            match statement(&text) {
                Statement::Blank | Statement::Comment => {}
                Statement::Directive { name, arguments } if name.eq_ignore_ascii_case("Use") => {
                    self.expand(&arguments, file, line.number_last, frames);
                }
                Statement::Directive { name, arguments } => {
                    self.directive(&name, &arguments, file, line.number_last)
                }
                Statement::Close { name } => {
                    let place = self.place(file, line.number_last);
                    self.close(frames, &name, &place);
                }
                Statement::Open { name, arguments, closed } => {
                    let place = || self.place(file, line.number_last);
                    if !closed {
                        self.warn(format!("<{name} has no closing > ({})", place()));
                    }
                    if name.eq_ignore_ascii_case("Macro") && self.out.has_module("macro_module") {
                        at += self.define(&arguments, &lines[at..], file, line.number_last);
                        continue;
                    }
                    let place = self.place(file, line.number_last);
                    match self.opens(&name, &arguments, file, line.number_last) {
                        Some(scoped) => frames.push(Frame { name, place, scoped }),
                        None => at = past(lines, at),
                    }
                }
            }
        }
    }

    /// Says what Apache reads otherwise than it looks.
    fn odd(&mut self, line: &Line, file: Option<&Arc<Path>>) {
        if self.via.is_some() || !(line.is_cut || line.text.contains(['\u{fffd}', '\u{feff}'])) {
            return;
        }
        let place = self.place(file, line.number_last);
        if line.is_cut {
            self.warn(format!("what follows a NUL byte in a line does not count ({place})"));
        }
        if line.text.starts_with('\u{feff}') {
            self.warn(format!(
                "the file begins with a byte order mark, which Apache takes for a directive ({place})"
            ));
        } else if line.text.contains('\u{fffd}') {
            self.warn(format!("the line is not valid UTF-8: its value is not told exactly ({place})"));
        }
    }

    /// Takes in a macro, and tells how many lines it has with its end.
    fn define(&mut self, arguments: &str, lines: &[Line], file: Option<&Arc<Path>>, line: u32) -> usize {
        let length = macros::length(lines);
        let own = &lines[..length.unwrap_or(lines.len())];
        match (length, Macro::new(arguments, own, file)) {
            (Some(_), Some(defined)) => {
                self.macros.insert(defined.name.clone(), Arc::new(defined));
            }
            _ => {
                let place = self.place(file, line);
                self.warn(format!("<Macro {arguments}> has no name or no end ({place})"));
            }
        }
        own.len() + 1
    }

    /// `Use name values`.
    fn expand(&mut self, arguments: &str, file: Option<&Arc<Path>>, line: u32, frames: &mut Vec<Frame>) {
        let place = self.place(file, line);
        let mut words = words(arguments).into_iter();
        let name = words.next().unwrap_or_default().to_ascii_lowercase();
        let Some(defined) = self.macros.get(&name).cloned() else {
            return self.warn(format!("macro {name} is not defined: what it holds is not seen ({place})"));
        };
        if self.used.contains(&name) || self.used.len() >= MACRO_DEPTH_MAX {
            return self.warn(format!("macro {name} uses itself or too many others ({place})"));
        }
        let lines = match defined.expand(&words.collect::<Vec<_>>()) {
            Ok(lines) => lines,
            Err(why) => return self.warn(format!("{why} ({place})")),
        };
        self.expanded_lines += lines.len();
        if self.expanded_lines > EXPANDED_LINES_MAX {
            return self.full(format!(
                "macros give more than {EXPANDED_LINES_MAX} lines: what follows was not read ({place})"
            ));
        }
        // Its lines are not those of the file that is read.
        let source = self.source.take();
        let via = self.via.replace(Arc::from(format!("macro {name}, used at {place}")));
        self.used.push(name);
        self.run(&lines, defined.file.as_ref(), frames);
        self.used.pop();
        self.via = via;
        self.source = source;
    }

    fn close(&mut self, frames: &mut Vec<Frame>, name: &str, place: &str) {
        match frames.pop() {
            Some(frame) => {
                if !frame.name.eq_ignore_ascii_case(name) {
                    self.warn(format!("expected </{}> but saw </{name}> ({place})", frame.name));
                }
                self.leave(frame.scoped);
            }
            None => self.warn(format!("</{name}> closes nothing ({place})")),
        }
    }

    fn leave(&mut self, scoped: bool) {
        if scoped {
            self.scope.pop();
            self.scope_shared = Arc::from(self.scope.as_slice());
        }
    }

    /// Opens a section: `Some(true)` when it makes a scope, `Some(false)` when it is a condition that holds, `None`
    /// when its content does not count.
    fn opens(&mut self, name: &str, arguments: &str, file: Option<&Arc<Path>>, line: u32) -> Option<bool> {
        let place = self.place(file, line);
        let (negated, word) = condition::negatable(arguments);
        let holds = match name.to_ascii_lowercase().as_str() {
            "ifdefine" => self.variables.is_defined(&word),
            "ifmodule" => self.out.has_module(&word),
            "iffile" => self.out.path(&word).exists(),
            "ifversion" => match condition::version_holds(arguments, self.version) {
                Ok(holds) => return holds.then_some(false),
                Err(why) => {
                    self.warn(format!("{why}; taken as true ({place})"));
                    return Some(false);
                }
            },
            "ifdirective" | "ifsection" => {
                let is_section = name.eq_ignore_ascii_case("IfSection");
                match condition::exists(&word, is_section, &|module| self.out.has_module(module)) {
                    Some(exists) => exists,
                    None => {
                        self.warn(format!(
                            "<{name} {arguments}>: whether {word} is known to Apache is not known here; taken as true ({place})"
                        ));
                        return Some(false);
                    }
                }
            }
            "macro" => {
                self.warn(format!(
                    "macro {word} is not evaluated, as mod_macro is not loaded before it ({place})"
                ));
                return None;
            }
            "perl" => {
                self.warn(format!("<Perl> may set anything, and is not evaluated ({place})"));
                return None;
            }
            _ => {
                self.enter(name, arguments, file, line);
                return Some(true);
            }
        };
        (holds != negated).then_some(false)
    }

    fn enter(&mut self, name: &str, arguments: &str, file: Option<&Arc<Path>>, line: u32) {
        let id = self.out.sections.len() + 1;
        let section = Section { name: name.to_owned(), words: words(arguments), id };
        self.out.sections.push(Opened {
            section: section.clone(),
            parent: self.scope.last().map(|outer| outer.id),
            file: file.cloned(),
            line,
            order: self.out.directives.len(),
            via: self.via.clone(),
        });
        self.scope.push(section);
        self.scope_shared = Arc::from(self.scope.as_slice());
    }

    fn directive(&mut self, name: &str, arguments: &str, file: Option<&Arc<Path>>, line: u32) {
        if self.out.directives.len() >= DIRECTIVES_MAX {
            let place = self.place(file, line);
            return self
                .full(format!("more than {DIRECTIVES_MAX} directives: what follows was not read ({place})"));
        }
        self.out.directives.push(Placed {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            file: file.cloned(),
            line,
            order: self.out.directives.len(),
            scope: self.scope_shared.clone(),
            via: self.via.clone(),
        });
        if ACTING.iter().any(|acting| acting.eq_ignore_ascii_case(name)) {
            self.act(&name.to_ascii_lowercase(), &words(arguments), file, line);
        }
    }

    /// What takes effect while it is read.
    fn act(&mut self, name: &str, words: &[String], file: Option<&Arc<Path>>, line: u32) {
        match (name, words) {
            ("include", [pattern]) => self.include(pattern, false, file, line),
            ("includeoptional", [pattern]) => self.include(pattern, true, file, line),
            ("define", [name]) => self.variables.define(name, None),
            ("define", [name, value]) => self.variables.define(name, Some(value)),
            ("undefine", [name]) => self.variables.undefine(name),
            ("serverroot", [path]) => self.out.server_root = absolute(Path::new("/"), path),
            ("loadmodule", [symbol, path]) => self.load_module(symbol, path),
            ("undefmacro", [name]) => {
                self.macros.remove(&name.to_ascii_lowercase());
            }
            ("passenv", names) => names.iter().for_each(|name| self.variables.reference(name)),
            _ => {
                let place = self.place(file, line);
                self.warn(format!("{name} has {} arguments, which Apache refuses ({place})", words.len()));
            }
        }
    }

    fn load_module(&mut self, symbol: &str, path: &str) {
        if self.out.has_module(symbol) {
            return;
        }
        self.out.modules.push(Module {
            symbol: symbol.to_owned(),
            source: condition::source_file(symbol, path),
            file: Some(self.out.path(path)),
        });
    }

    fn include(&mut self, pattern: &str, optional: bool, file: Option<&Arc<Path>>, line: u32) {
        let pattern = self.out.path(pattern);
        let index = self.out.includes.len();
        self.out.includes.push(Included {
            pattern: pattern.clone(),
            file: file.cloned(),
            is_global: self.scope.is_empty(),
            order: self.out.directives.len(),
            files: Vec::new(),
        });
        let source = self.source.and_then(|at| self.out.sources.get_mut(at));
        if let Some(counted) = source.and_then(|source| source.lines.get_mut(&line)) {
            counted.include = Some(index);
        }
        let outer = self.include.replace(index);
        let mut expansion = match self.is_isolated {
            true => include::Expansion::default(),
            false => include::expand(&pattern, optional),
        };
        self.out.directories.append(&mut expansion.directories.drain(..).collect());
        for path in self.overlay.keys().filter(|path| !path.exists() && would_match(&pattern, path)) {
            let at = expansion.files.partition_point(|file| real(file) < *path);
            expansion.files.insert(at, path.clone());
        }
        let from = self.place(file, line);
        for problem in expansion.problems {
            self.warn(format!("{problem} (included at {from})"));
        }
        for path in expansion.files {
            self.file(&path, Some(&from));
            let order = self.out.directives.len();
            self.out.includes[index].files.push((path, order));
        }
        self.include = outer;
    }
}

/// The index after the end of the section that was just opened; nested sections are skipped with it.
fn past(lines: &[Line], from: usize) -> usize {
    let mut depth = 1_usize;
    for (at, line) in lines.iter().enumerate().skip(from) {
        match line.statement() {
            Statement::Open { .. } => depth += 1,
            Statement::Close { .. } => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    lines.len()
}
