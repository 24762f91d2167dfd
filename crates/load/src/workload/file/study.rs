//! Study files: TOML that says what of a server is varied together, and which loads are made at each point. The format is documented
//! in docs/guide/src/sweeps.md.
//!
//! Its top has settings of a workload file, which count for all contents; a content has everything that a workload file has, or
//! names one. What the axes mean is for whoever knows the server; their places are kept, so that errors can show them.

use super::draft::{Draft, Settings};
use super::keys::{TableKeys, Value};
use super::reader::Reader;
use super::scope::Scope;
use super::settings::{self, TOP_KEYS};
use super::source_span::{FileError, FileResult, Files, SourceSpan};
use super::{ReadFile, draft_over, tree};
use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use webdyno_model::error::io_error;
use webdyno_model::number::quantity;
use webdyno_model::sweep::{CONTENT, PAGE_CACHE, PageCache, STORE};
use webdyno_model::{Result, UserError};

/// Every key at the top of a study file.
const STUDY_KEYS: &[&str] = &[
    "base",
    "users",
    "rate",
    "poisson",
    "connections",
    "duration",
    "think",
    "timeout",
    "keepalive",
    "ok",
    "expect",
    "headers",
    "auth",
    "seed",
    "warmup",
    "repeats",
    "budget",
    PAGE_CACHE,
    "page_cache_paths",
    "axes",
    CONTENT,
];
/// What a content has beside the keys of a workload file.
const OWN_KEYS: [&str; 3] = ["name", "workload", "mean_size"];
/// A content says how much is loaded, and what; how long is the study's.
const NOT_OF_CONTENT: [&str; 6] = ["include", "stage", "ramp", "ramp_down", "slo", "duration"];
/// Every key of a content.
static CONTENT_KEYS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let of_file = TOP_KEYS.iter().filter(|key| !NOT_OF_CONTENT.contains(key));
    OWN_KEYS.iter().chain(of_file).copied().collect()
});
/// Most loads of each point, as `--repeat`.
const REPEATS_MAX: u32 = 20;

/// A study as its file says it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Study {
    /// What is varied, in the order of the file; the contents come first, and the state of the page cache last.
    pub axes: Vec<StudyAxis>,
    /// What is sent, in the order of the axis `content`.
    pub contents: Vec<StudyContent>,
    /// Files and directories on the server of which a cold page cache holds nothing.
    pub page_cache_paths: Vec<String>,
    /// Loads of each point.
    pub repeats: Option<u32>,
    /// What of each load is not measured.
    pub warmup_us: Option<u64>,
    /// After this time no load begins.
    pub budget_us: Option<u64>,
    /// Of the order of the points, and of the loads.
    pub seed: Option<u64>,
}

/// An axis of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct StudyAxis {
    /// `memory`, `content`.
    pub name: String,
    /// Its levels as they were written; no two are the same text.
    pub levels: Vec<String>,
    /// Where it stands: FILE:LINE:COLUMN.
    pub place: String,
}

/// A level of the axis `content`.
#[derive(Debug, Clone, PartialEq)]
pub struct StudyContent {
    /// As the axis names it.
    pub name: String,
    /// What is sent.
    pub draft: Draft,
    /// Mean size of the files that its URLs name, where it follows the axis `store`.
    pub mean_size_bytes: Option<u64>,
    /// Where it stands: FILE:LINE:COLUMN.
    pub place: String,
}

/// How much of the file store is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StoreLevel {
    /// So many bytes.
    Bytes(f64),
    /// This share of all URLs, in percent.
    Percent(f64),
}

impl StoreLevel {
    /// Reads `64M` or `25%`.
    pub fn parse(text: &str) -> Option<Self> {
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
        let bytes = quantity(text).filter(|(_, is_bytes)| *is_bytes).map(|(bytes, _)| Self::Bytes(bytes));
        percent.map(Self::Percent).or(bytes)
    }
}

impl StudyContent {
    /// The same for a store of this size: its first URLs. The error says what is wrong with the size.
    pub fn of_store(&self, level: StoreLevel) -> std::result::Result<Draft, String> {
        let mut draft = self.draft.clone();
        let all = draft.list.as_ref().map_or(draft.entries.len() as u64, |list| list.count);
        let wanted = match level {
            StoreLevel::Percent(percent) => (percent / 100.0 * all as f64).round(),
            StoreLevel::Bytes(bytes) => (bytes / self.mean_size_bytes.unwrap_or(1) as f64).round(),
        };
        if !(1.0..=all as f64).contains(&wanted) {
            return Err(format!("`{}` has {all} URLs, and {wanted} would be asked for", self.name));
        }
        let count = wanted as usize;
        match draft.list.as_mut().and_then(|list| Some((list.entries.clone()?, list))) {
            Some((entries, list)) => {
                let mut entries = (*entries).clone();
                entries.entries.truncate(count);
                entries.weights.truncate(count);
                (list.count, list.entries) = (count as u64, Some(Arc::new(entries)));
            }
            None => draft.entries.truncate(count),
        }
        Ok(draft)
    }
}

/// What the text of a study file means. `path` is where it was read from, `read` reads the files that it names. A usage error
/// for what is wrong, with its place.
pub fn parse_study(text: &str, path: &Path, read: ReadFile<'_>) -> Result<Study> {
    let mut files = Files::default();
    let file = files.add(path.to_owned(), text.to_owned());
    let (files, read) = (&files, RefCell::new(read));
    let fetch = |path: &Path| (read.borrow_mut())(path);
    let top = tree(files, file).map_err(|error| files.user_error(*error))?;
    study(files, &top, &fetch).map_err(|problem| match problem {
        Problem::Here(error) => files.user_error(*error),
        Problem::Elsewhere(error) => error,
    })
}

/// Something wrong in the study, or in a workload file that it names.
enum Problem {
    Here(Box<FileError>),
    Elsewhere(UserError),
}

impl From<Box<FileError>> for Problem {
    fn from(error: Box<FileError>) -> Self {
        Self::Here(error)
    }
}

fn study<'t>(
    files: &'t Files,
    (at, table): &'t (SourceSpan, toml::de::DeTable<'t>),
    fetch: &'t super::ReadShared<'t>,
) -> std::result::Result<Study, Problem> {
    let top = TableKeys::new(*at, table, "a study", STUDY_KEYS)?;
    let scope = Scope::new(files, fetch, &top, None)?;
    let mut base = Settings::default();
    settings::read(&top, &mut base, &mut vec![])?;
    let mut contents = vec![];
    for value in top.required(CONTENT, "[[content]]")?.tables(CONTENT)? {
        let keys = value.keys("a content", &CONTENT_KEYS)?;
        let content = content(&scope, &keys, &base)?;
        if contents.iter().any(|one: &StudyContent| one.name == content.name) {
            let twice = FileError::new(value.at, format!("`{}` is the name of two contents", content.name));
            return Err(twice.hint("give each a name of its own").into());
        }
        contents.push(content);
    }
    let repeats = top.read("repeats", |value| value.u32_in(1..=REPEATS_MAX))?;
    let (warmup_us, budget_us) = (top.read("warmup", warmup)?, top.read("budget", Value::time_us)?);
    let paths = top.read("page_cache_paths", Value::texts)?.unwrap_or_default();
    Ok(Study {
        axes: axes(files, &top, &mut contents)?,
        contents,
        page_cache_paths: paths.into_iter().map(|(_, path)| path.to_owned()).collect(),
        repeats,
        warmup_us,
        budget_us,
        seed: base.seed,
    })
}

/// A time, also none.
fn warmup(value: &Value<'_>) -> FileResult<u64> {
    if value.as_text() == Some("0s") { Ok(0) } else { value.time_us() }
}

fn content<'t>(
    scope: &Scope<'t>,
    keys: &TableKeys<'t>,
    base: &Settings,
) -> std::result::Result<StudyContent, Problem> {
    let name = keys.required("name", "name = \"static\"")?.non_empty_text()?;
    let place = scope.files.position(keys.at);
    let mean_size_bytes = keys.read("mean_size", |value| {
        let size = value.plain().ok().and_then(|text| quantity(&text)).map(|(bytes, _)| bytes as u64);
        size.filter(|bytes| *bytes > 0).ok_or_else(|| value.type_error("a size", "\"64k\""))
    })?;
    let draft = match keys.get("workload") {
        Some(value) => {
            let path = scope.files.resolve_relative(value.at.file, value.non_empty_text()?);
            let unreadable = |error| {
                let error = io_error("read", path.display(), &error);
                FileError::from_user_error(value.at, error, "paths are relative to the file that names them")
            };
            let bytes = (scope.fetch)(&path).map_err(unreadable)?;
            let text = String::from_utf8(bytes)
                .map_err(|_| FileError::new(value.at, format!("{} is not UTF-8", path.display())))?;
            let mut draft = draft_over(&text, &path, &mut |path| (scope.fetch)(path), base)
                .map_err(Problem::Elsewhere)?;
            // How much is loaded: what the study says of a content, it says of this one.
            settings::read(keys, &mut draft.settings, &mut vec![])?;
            draft.settings.duration_us = base.duration_us;
            draft
        }
        None => {
            let inner = Scope::new(scope.files, scope.fetch, keys, Some(scope))?;
            let mut reader = Reader::new(scope.files);
            reader.draft.settings = base.clone();
            reader.definitions(&inner, keys)?;
            reader.read_sessions(&inner, keys)?;
            reader.list(&inner, keys)?;
            reader.finish()?
        }
    };
    if draft.entries.is_empty() && draft.list.is_none() {
        let nothing = FileError::new(keys.at, format!("the content `{name}` has nothing to load"));
        return Err(nothing
            .hint("write [[content.request]], urls = { file = .. } or workload = FILE")
            .into());
    }
    if !draft.settings.stages.is_empty() || draft.settings.ramp_us.or(draft.settings.ramp_down_us).is_some() {
        let stages = FileError::new(keys.at, format!("the content `{name}` has stages or ramps"));
        return Err(stages.hint("a point is one level of load: leave them out").into());
    }
    Ok(StudyContent { name: name.to_owned(), draft, mean_size_bytes, place })
}

/// The axes. Contents that an axis `content` does not name are left out, the others are put into its order.
fn axes(files: &Files, top: &TableKeys<'_>, contents: &mut Vec<StudyContent>) -> FileResult<Vec<StudyAxis>> {
    let mut axes = vec![];
    let written = top.read("axes", |value| value.entries("the axes"))?.unwrap_or_default();
    for (name, at, value) in written {
        let levels = levels(&value)?;
        check_levels(name, &value, &levels, contents)?;
        let levels = levels.into_iter().map(|(_, level)| level).collect();
        axes.push(StudyAxis { name: name.to_owned(), levels, place: files.position(at) });
    }
    match axes.iter().position(|axis| axis.name == CONTENT) {
        Some(at) => {
            let axis = axes.remove(at);
            let named = |level: &String| contents.iter().find(|one| one.name == *level).cloned();
            *contents = axis.levels.iter().filter_map(named).collect();
            axes.insert(0, axis);
        }
        None => {
            let levels = contents.iter().map(|one| one.name.clone()).collect();
            axes.insert(0, StudyAxis { name: CONTENT.into(), levels, place: files.position(top.at) });
        }
    }
    let state = top.get(PAGE_CACHE);
    match (axes.iter().position(|axis| axis.name == PAGE_CACHE), state) {
        (Some(_), Some(value)) => {
            return Err(FileError::new(
                value.at,
                "the state of the page cache is an axis, and also given here",
            )
            .hint("leave one of them out"));
        }
        (Some(_), None) => {}
        (None, state) => {
            let (at, level) = match state {
                Some(value) => (value.at, value.text()?),
                None => (top.at, "as-is"),
            };
            check_cache(at, level)?;
            let (levels, place) = (vec![level.to_owned()], files.position(at));
            axes.push(StudyAxis { name: PAGE_CACHE.into(), levels, place });
        }
    }
    if axes.iter().all(|axis| axis.levels.len() < 2) {
        let at = top.get("axes").map_or(top.at, |value| value.at);
        return Err(FileError::new(at, "every axis has one level: there is nothing to compare")
            .hint("give one of them two levels or more, as in memory = [\"256M\", \"1G\"]"));
    }
    Ok(axes)
}

/// The levels of an axis, each with its place.
fn levels(value: &Value<'_>) -> FileResult<Vec<(SourceSpan, String)>> {
    let list = value.as_list().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| value.type_error("a list of levels", "[1, 2]"))?;
    let mut levels: Vec<(SourceSpan, String)> = vec![];
    for one in list {
        let level = one.plain()?;
        if levels.iter().any(|(_, other)| *other == level) {
            return Err(FileError::new(one.at, format!("`{}` has the level {level} twice", value.key))
                .hint("leave one of them out"));
        }
        if level.is_empty() || level.contains([',', '\n']) || level.contains("..") {
            return Err(one.type_error("one level", "[1, 2]"));
        }
        levels.push((one.at, level));
    }
    Ok(levels)
}

/// What the levels of the axes have to be that are no setting.
fn check_levels(
    axis: &str,
    value: &Value<'_>,
    levels: &[(SourceSpan, String)],
    contents: &[StudyContent],
) -> FileResult<()> {
    if axis == STORE && contents.iter().all(|one| one.mean_size_bytes.is_none()) {
        return Err(FileError::new(value.at, "no content follows the axis `store`")
            .hint("give the mean size of the files that the URLs of one name, as in mean_size = \"64k\""));
    }
    for (at, level) in levels {
        match axis {
            CONTENT if contents.iter().all(|one| one.name != *level) => {
                let unknown = FileError::new(*at, format!("there is no content `{level}`"));
                return Err(unknown.did_you_mean(level, contents.iter().map(|one| one.name.as_str())));
            }
            PAGE_CACHE => check_cache(*at, level)?,
            STORE => {
                let store = StoreLevel::parse(level).ok_or_else(|| {
                    FileError::new(*at, format!("`{level}` is no size of a store"))
                        .hint("a size, as 64M, or a share of the URLs, as 25%")
                })?;
                for content in contents.iter().filter(|one| one.mean_size_bytes.is_some()) {
                    content.of_store(store).map_err(|why| {
                        FileError::new(*at, format!("the store cannot be {level}: {why}"))
                            .hint("give `mean_size` and a list with as many URLs as the largest store")
                    })?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_cache(at: SourceSpan, level: &str) -> FileResult<()> {
    let unknown = || FileError::new(at, format!("`{level}` is no state of the page cache"));
    let known = PageCache::ALL.map(|(_, name)| name);
    PageCache::parse(level).map(|_| ()).ok_or_else(|| unknown().did_you_mean(level, known))
}

#[cfg(test)]
#[path = "study_tests.rs"]
mod tests;
