//! Walks a configuration as Apache reads it and keeps every directive with its file, line and context.
//!
//! `ap_build_config` in httpd's server/config.c: files are read in order, conditions, `Include`, `Define`,
//! `LoadModule` and `ServerRoot` act while they are read, everything else afterwards in the same order. So the last
//! directive at server scope wins, wherever it was included from. Where Apache would refuse to start, this goes on
//! and leaves a warning: the server may be running with an older state of the files.

use super::condition::{self, Version};
use super::include::{self, DEPTH_MAX, FILES_MAX, real, would_match};
use super::syntax::{Document, Line, Statement, statement, words};
use super::variables::Variables;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Most directives that are kept.
const DIRECTIVES_MAX: usize = 200_000;

/// Most warnings that are kept.
const WARNINGS_MAX: usize = 50;

/// What evaluation starts from: the command line, the environment and the compiled defaults.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// The main file, absolute.
    pub main_file: PathBuf,
    /// ServerRoot before any directive sets it.
    pub server_root: PathBuf,
    /// Names given as `-D`.
    pub defines: Vec<String>,
    /// The environment of the server.
    pub environment: BTreeMap<String, String>,
    /// Modules that are compiled in.
    pub static_modules: Vec<Module>,
    /// For `<IfVersion>`.
    pub version: Option<Version>,
    /// Directives given as `-C`, which come before the file.
    pub before: Vec<String>,
    /// Directives given as `-c`, which come after it.
    pub after: Vec<String>,
    /// Contents that files would have, by path without links: what a plan would make of the configuration.
    pub overlay: BTreeMap<PathBuf, String>,
    /// Whether what was read is kept in [`Evaluation::sources`].
    pub keeps_sources: bool,
}

/// A module by its two names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// `status_module`.
    pub symbol: String,
    /// `mod_status.c`.
    pub source: String,
    /// The file it was loaded from; `None` when it is compiled in.
    pub file: Option<PathBuf>,
}

/// A section that is not a condition: what is in it does not hold for the whole server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// `VirtualHost`, as it is written.
    pub name: String,
    /// Its arguments.
    pub words: Vec<String>,
    /// Numbers sections of the whole configuration, so that two with the same arguments are told apart.
    pub id: usize,
}

/// Where a section begins.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The section.
    pub section: Section,
    /// The number of the section around it; `None` at server scope.
    pub parent: Option<usize>,
    /// Its file; `None` on the command line.
    pub file: Option<Arc<Path>>,
    /// The line of its `<Name`, as Apache counts it.
    pub line: u32,
    /// How many directives came before it.
    pub order: usize,
}

impl Opened {
    /// Whether it is one of these sections, in any case.
    pub fn is(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.section.name.eq_ignore_ascii_case(name))
    }

    /// `/etc/apache2/apache2.conf:12`.
    pub fn place(&self) -> String {
        place(self.file.as_ref(), self.line)
    }
}

/// A directive at its place.
#[derive(Debug, Clone)]
pub struct Placed {
    /// As it is written.
    pub name: String,
    /// With variables resolved.
    pub arguments: String,
    /// Where it is written; `None` on the command line.
    pub file: Option<Arc<Path>>,
    /// The line as Apache counts it, from 1: of a continued line the last.
    pub line: u32,
    /// Its place in the order of evaluation.
    pub order: usize,
    /// The sections around it from the outside; none at server scope.
    pub scope: Arc<[Section]>,
}

impl Placed {
    /// Its arguments as words.
    pub fn words(&self) -> Vec<String> {
        words(&self.arguments)
    }

    /// Whether it holds for the whole server.
    pub fn is_global(&self) -> bool {
        self.scope.is_empty()
    }

    /// `/etc/apache2/apache2.conf:12`.
    pub fn place(&self) -> String {
        match &self.file {
            Some(file) => format!("{}:{}", file.display(), self.line),
            None => "the command line".into(),
        }
    }
}

/// An `Include` or `IncludeOptional` that was read.
#[derive(Debug, Clone)]
pub struct Included {
    /// Absolute.
    pub pattern: PathBuf,
    /// The file that includes.
    pub file: Option<Arc<Path>>,
    /// Whether it stands at server scope.
    pub is_global: bool,
    /// The order before its first file.
    pub order: usize,
    /// Its files with the order after each.
    pub files: Vec<(PathBuf, usize)>,
}

/// A file as it was read, for who renders a changed copy of it. One that is included twice is there twice, as its
/// variables may have other values each time.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// The file; `None` for a directive of the command line.
    pub path: Option<PathBuf>,
    /// Its lines.
    pub document: Document,
    /// The index of the include that read it; `None` for the main file.
    pub included: Option<usize>,
    /// The lines that count, by the number of their last physical line. Those of skipped sections are not there.
    pub lines: BTreeMap<u32, Counted>,
}

/// A line that counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// With variables resolved.
    pub text: String,
    /// How many directives came before it.
    pub order: usize,
    /// The index of the include that it is.
    pub include: Option<usize>,
}

/// The configuration as it would be in force.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// Every directive outside of skipped sections, in order.
    pub directives: Vec<Placed>,
    /// Every section that makes a scope, in order: the one with the number `id` is at `id - 1`.
    pub sections: Vec<Opened>,
    /// Modules, compiled in and loaded, in order.
    pub modules: Vec<Module>,
    /// Includes, in order.
    pub includes: Vec<Included>,
    /// Files that were read, in order; one that is included twice is there twice.
    pub files: Vec<PathBuf>,
    /// Directories that includes were looked up in: their entries decide which files are read.
    pub directories: BTreeSet<PathBuf>,
    /// What was read, in order: first what the command line says before the files, last what it says after them. Empty
    /// unless it was asked for.
    pub sources: Vec<Source>,
    /// ServerRoot in force.
    pub server_root: PathBuf,
    /// Variables that the files ask for.
    pub variables: BTreeSet<String>,
    /// What could not be read or understood.
    pub warnings: Vec<String>,
}

impl Evaluation {
    /// All directives of these names (in any case), in order, in every context.
    pub fn all<'a>(&'a self, names: &'a [&'a str]) -> impl DoubleEndedIterator<Item = &'a Placed> {
        let named = |placed: &&Placed| names.iter().any(|name| placed.name.eq_ignore_ascii_case(name));
        self.directives.iter().filter(named)
    }

    /// The directive of these names that wins at server scope.
    pub fn global<'a>(&'a self, names: &'a [&'a str]) -> Option<&'a Placed> {
        self.all(names).rfind(|placed| placed.is_global())
    }

    /// Whether a module is there, by symbol or source name.
    pub fn has_module(&self, name: &str) -> bool {
        self.modules.iter().any(|module| module.symbol == name || module.source == name)
    }

    /// A path as directives give it: relative to ServerRoot.
    pub fn path(&self, path: &str) -> PathBuf {
        absolute(&self.server_root, path)
    }
}

/// Evaluates a configuration from the disk.
pub fn evaluate(input: Input) -> Evaluation {
    let mut walker = Walker {
        variables: Variables::new(input.defines, input.environment),
        version: input.version,
        scope: Vec::new(),
        scope_shared: Arc::from([]),
        stack: Vec::new(),
        overlay: input.overlay,
        keeps_sources: input.keeps_sources,
        source: None,
        include: None,
        out: Evaluation {
            server_root: input.server_root,
            modules: input.static_modules,
            ..Evaluation::default()
        },
    };
    walker.command_line(&input.before);
    walker.file(&input.main_file);
    walker.command_line(&input.after);
    let mut out = walker.out;
    out.variables = walker.variables.into_referenced();
    out
}

/// Joins a path to a base and removes `.` and `..` as `apr_filepath_merge` does, without looking at the disk.
pub fn absolute(base: &Path, path: &str) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in base.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean
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
    keeps_sources: bool,
    /// The source that is being read, where sources are kept.
    source: Option<usize>,
    /// The include whose files are being read.
    include: Option<usize>,
    out: Evaluation,
}

/// A section that is open in the file being read.
struct Frame {
    name: String,
    line: u32,
    scoped: bool,
}

impl Walker {
    fn warn(&mut self, text: String) {
        if self.out.warnings.len() < WARNINGS_MAX {
            self.out.warnings.push(text);
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

    fn file(&mut self, path: &Path) {
        if self.stack.iter().any(|open| open == path) {
            return self.warn(format!("{} includes itself", path.display()));
        }
        if self.stack.len() >= DEPTH_MAX || self.out.files.len() >= FILES_MAX {
            return self.warn(format!("{} was not read: too many or too deep includes", path.display()));
        }
        let bytes = match self.read(path) {
            Ok(bytes) => bytes,
            Err(error) => return self.warn(format!("cannot read {}: {error}", path.display())),
        };
        self.out.files.push(path.to_path_buf());
        self.stack.push(path.to_path_buf());
        self.document(Document::parse(&bytes), Some(path));
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
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            at += 1;
            if line.text.is_empty() || line.text.starts_with('#') {
                continue;
            }
            let (text, unknown) = self.variables.resolve(&line.text);
            for name in unknown.iter().filter(|name| !name.contains(':')) {
                self.warn(format!("variable ${{{name}}} is not defined ({})", place(file, line.number_last)));
            }
            self.count(line.number_last, &text);
            match statement(&text) {
                Statement::Blank | Statement::Comment => {}
                Statement::Directive { name, arguments } => {
                    self.directive(&name, &arguments, file, line.number_last)
                }
                Statement::Close { name } => self.close(&mut frames, &name, &place(file, line.number_last)),
                Statement::Open { name, arguments, closed } => {
                    if !closed {
                        self.warn(format!("<{name} has no closing > ({})", place(file, line.number_last)));
                    }
                    match self.opens(&name, &arguments, file, line.number_last) {
                        Some(scoped) => frames.push(Frame { name, line: line.number_last, scoped }),
                        None => at = past(lines, at),
                    }
                }
            }
        }
        while let Some(frame) = frames.pop() {
            self.warn(format!("<{}> was not closed ({})", frame.name, place(file, frame.line)));
            self.leave(frame.scoped);
        }
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
        let place = place(file, line);
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
                self.warn(format!("<{name} {arguments}> is not evaluated; taken as true ({place})"));
                return Some(false);
            }
            "macro" => {
                self.warn(format!(
                    "macro {word} is not evaluated: settings inside it are not seen ({place})"
                ));
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
        });
        self.scope.push(section);
        self.scope_shared = Arc::from(self.scope.as_slice());
    }

    fn directive(&mut self, name: &str, arguments: &str, file: Option<&Arc<Path>>, line: u32) {
        if self.out.directives.len() >= DIRECTIVES_MAX {
            return self.warn(format!("more than {DIRECTIVES_MAX} directives: the rest was not read"));
        }
        self.out.directives.push(Placed {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            file: file.cloned(),
            line,
            order: self.out.directives.len(),
            scope: self.scope_shared.clone(),
        });
        let words = words(arguments);
        match (name.to_ascii_lowercase().as_str(), words.as_slice()) {
            ("include", [pattern]) => self.include(pattern, false, file, line),
            ("includeoptional", [pattern]) => self.include(pattern, true, file, line),
            ("define", [name]) => self.variables.define(name, None),
            ("define", [name, value]) => self.variables.define(name, Some(value)),
            ("undefine", [name]) => self.variables.undefine(name),
            ("serverroot", [path]) => self.out.server_root = absolute(Path::new("/"), path),
            ("loadmodule", [symbol, path]) => self.load_module(symbol, path),
            ("passenv", names) => names.iter().for_each(|name| self.variables.reference(name)),
            _ => {}
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
        let mut expansion = include::expand(&pattern, optional);
        self.out.directories.append(&mut expansion.directories.drain(..).collect());
        for path in self.overlay.keys().filter(|path| !path.exists() && would_match(&pattern, path)) {
            let at = expansion.files.partition_point(|file| real(file) < *path);
            expansion.files.insert(at, path.clone());
        }
        for problem in expansion.problems {
            self.warn(format!("{problem} (included at {})", place(file, line)));
        }
        for path in expansion.files {
            self.file(&path);
            let order = self.out.directives.len();
            self.out.includes[index].files.push((path, order));
        }
        self.include = outer;
    }
}

fn place(file: Option<&Arc<Path>>, line: u32) -> String {
    match file {
        Some(file) => format!("{}:{line}", file.display()),
        None => "the command line".into(),
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
