//! Reads php-fpm's configuration: lines of `key = value` in sections, and what it includes.
//!
//! Facts: <https://www.php.net/manual/en/install.fpm.configuration.php> and sapi/fpm/fpm/fpm_conf.c of PHP 8.2: the format
//! is that of php.ini, `include` takes a pattern of glob(3) and may nest five deep, `$pool` stands for the name of the pool,
//! relative paths begin at the prefix.

use crate::visibility::process_view::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How deep includes may nest.
const DEPTH_MAX: usize = 5;

/// Most files that a configuration may consist of.
const FILES_MAX: usize = 4096;

/// Most problems that are told.
const PROBLEMS_MAX: usize = 20;

/// A line of a file in the format of php.ini.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// `[www]`.
    Section(String),
    /// `key = value`, quotes and comment taken off.
    Value(String, String),
    /// Something else.
    Strange,
}

/// Reads the lines of a file in the format of php.ini, each with its number from 1. Comments and empty lines are left out.
pub fn lines(text: &str) -> impl Iterator<Item = (u32, Line)> + '_ {
    (1..).zip(text.lines()).filter_map(|(number, line)| Some((number, line_of(line.trim())?)))
}

/// One line, trimmed; `None` for a comment or an empty one.
pub fn line_of(line: &str) -> Option<Line> {
    if line.is_empty() || line.starts_with([';', '#']) {
        return None;
    }
    if let Some(rest) = line.strip_prefix('[') {
        let name = rest.split_once(']').map(|(name, _)| name.trim());
        return Some(
            name.filter(|name| !name.is_empty()).map_or(Line::Strange, |name| Line::Section(name.to_owned())),
        );
    }
    let Some((key, value)) = line.split_once('=') else { return Some(Line::Strange) };
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() {
        return Some(Line::Strange);
    }
    Some(unquote(value).map_or(Line::Strange, |value| Line::Value(key.to_owned(), value)))
}

/// A value without quotes and comment; `None` when a quote is not closed.
fn unquote(value: &str) -> Option<String> {
    for quote in ['"', '\''] {
        if let Some(rest) = value.strip_prefix(quote) {
            return Some(rest.split_once(quote)?.0.to_owned());
        }
    }
    Some(value.split(';').next().unwrap_or_default().trim().to_owned())
}

/// A value with where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// `pm.max_children`.
    pub key: String,
    /// As it is written, without quotes.
    pub value: String,
    /// The file.
    pub file: String,
    /// Its line, from 1.
    pub line: u32,
}

/// A pool, or `[global]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// `www`.
    pub name: String,
    /// In the order of the files; the last value of a key wins.
    pub values: Vec<Placed>,
}

impl Section {
    /// The value that is in force.
    pub fn get(&self, key: &str) -> Option<&Placed> {
        self.values.iter().rev().find(|placed| placed.key == key)
    }

    /// The value of a key, if it has one.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.get(key).map(|placed| placed.value.as_str()).filter(|value| !value.is_empty())
    }

    /// The value of an array's element: `php_admin_value[memory_limit]`, or as a flag.
    pub fn php(&self, key: &str) -> Option<&Placed> {
        let kinds = ["php_admin_value", "php_admin_flag", "php_value", "php_flag"];
        kinds.iter().find_map(|kind| self.get(&format!("{kind}[{key}]")))
    }
}

/// A configuration as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// `[global]`.
    pub global: Section,
    /// The pools, in the order in which they were found.
    pub pools: Vec<Section>,
    /// The files that were read.
    pub files: BTreeSet<String>,
    /// The directories whose files a pattern takes in.
    pub folders: BTreeSet<String>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
}

impl Config {
    /// A pool by its name.
    pub fn pool(&self, name: &str) -> Option<&Section> {
        self.pools.iter().find(|pool| pool.name == name)
    }
}

/// Texts that files would have, by path without links.
pub type Overlay = BTreeMap<PathBuf, String>;

/// Reads the configuration that begins with a file. What cannot be read is told; the rest is there.
pub fn read(root: &Root, main_file: &str, prefix: &str) -> Config {
    read_with(root, main_file, prefix, &Overlay::new())
}

/// The same with texts that some files would have.
pub fn read_with(root: &Root, main_file: &str, prefix: &str, overlay: &Overlay) -> Config {
    let mut reader = Reader { root, prefix, overlay, config: Config::default(), section: None };
    reader.config.global.name = "global".into();
    reader.file(main_file, 0);
    reader.config.problems.truncate(PROBLEMS_MAX);
    reader.config
}

/// A relative path begins at the prefix.
pub fn absolute(prefix: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", prefix.trim_end_matches('/')) }
}

struct Reader<'a> {
    root: &'a Root,
    prefix: &'a str,
    overlay: &'a Overlay,
    config: Config,
    /// The pool that lines belong to; `None` for `[global]`.
    section: Option<usize>,
}

impl Reader<'_> {
    fn file(&mut self, path: &str, depth: usize) {
        let real = (!self.overlay.is_empty()).then(|| std::fs::canonicalize(path).ok()).flatten();
        let changed = real.and_then(|real| self.overlay.get(&real));
        let text = match changed.map_or_else(|| self.root.read_text(path), |text| Ok(text.clone())) {
            Ok(text) => text,
            Err(error) => {
                let error = webdyno_model::error::io_error("read", path, &error);
                return self.config.problems.push(error.message);
            }
        };
        if text.contains('\u{fffd}') {
            self.config.problems.push(format!("{path} is not UTF-8: what is not is shown as \u{fffd}"));
        }
        self.config.files.insert(path.to_owned());
        for (line, content) in lines(&text) {
            match content {
                Line::Section(name) => self.enter(name),
                Line::Value(key, value) if key == "include" => self.include(&value, path, line, depth),
                Line::Value(key, value) => {
                    let section = self.section.and_then(|at| self.config.pools.get_mut(at));
                    let section = section.unwrap_or(&mut self.config.global);
                    let value = value.replace("$pool", &section.name);
                    section.values.push(Placed { key, value, file: path.to_owned(), line });
                }
                Line::Strange => {
                    self.config
                        .problems
                        .push(format!("{path}:{line} is neither a section nor `key = value`"));
                }
            }
        }
    }

    fn enter(&mut self, name: String) {
        if name.eq_ignore_ascii_case("global") {
            self.section = None;
            return;
        }
        let known = self.config.pools.iter().position(|pool| pool.name == name);
        self.section = Some(known.unwrap_or(self.config.pools.len()));
        if known.is_none() {
            self.config.pools.push(Section { name, values: vec![] });
        }
    }

    fn include(&mut self, pattern: &str, file: &str, line: u32, depth: usize) {
        if depth >= DEPTH_MAX {
            let why = format!("{file}:{line}: includes nest more than {DEPTH_MAX} deep");
            return self.config.problems.push(why);
        }
        let pattern = &absolute(self.prefix, pattern);
        if pattern.contains('*')
            && let Some(folder) = Path::new(pattern).parent()
        {
            self.config.folders.insert(folder.to_string_lossy().into_owned());
        }
        let found = match self.root.glob(pattern) {
            Ok(found) => found,
            Err(error) => {
                return self
                    .config
                    .problems
                    .push(format!("{file}:{line}: cannot look up {pattern}: {error}"));
            }
        };
        for path in found {
            if self.config.files.len() >= FILES_MAX {
                return self
                    .config
                    .problems
                    .push(format!("more than {FILES_MAX} files: the others are left out"));
            }
            // A file that includes itself would be read five times.
            if self.config.files.contains(&path) {
                self.config.problems.push(format!("{file}:{line} includes {path}, which was read before"));
                continue;
            }
            self.file(&path, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_files(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Config) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let text = String::from_utf8_lossy(text).replace("DIR", &folder.path().to_string_lossy());
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            // Bytes that are no text go as they are.
            if text.contains('\u{fffd}') {
                std::fs::write(path, files.iter().find(|(known, _)| known == name).unwrap().1).unwrap();
            } else {
                std::fs::write(path, text).unwrap();
            }
        }
        let main = folder.path().join("fpm.conf").to_string_lossy().into_owned();
        let prefix = folder.path().to_string_lossy().into_owned();
        let config = read(&Root::ours(), &main, &prefix);
        (folder, config)
    }

    #[test]
    fn values_come_from_all_files_and_the_last_one_wins() {
        let (folder, config) = read_files(&[
            ("fpm.conf", b"; comment\n[global]\npid = run/x.pid\nerror_log=\"/var/log/a;b.log\" ; why\ninclude=DIR/pool.d/*.conf\nlog_level = warning\n"),
            ("pool.d/b.conf", b"[two]\nlisten = /run/$pool.sock\n"),
            ("pool.d/a.conf", b"[www]\npm = dynamic\npm.max_children = 5\npm.max_children = 7\nphp_admin_value[memory_limit] = 64M\n"),
        ]);
        assert_eq!(config.problems, Vec::<String>::new());
        assert_eq!(config.global.value("error_log"), Some("/var/log/a;b.log"));
        let names: Vec<_> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
        assert_eq!(names, ["www", "two"]);
        let children = config.pools[0].get("pm.max_children").unwrap();
        assert_eq!((children.value.as_str(), children.line), ("7", 4));
        assert_eq!(children.file, folder.path().join("pool.d/a.conf").to_string_lossy());
        assert_eq!(config.pools[1].value("listen"), Some("/run/two.sock"));
        assert_eq!(config.pools[0].php("memory_limit").unwrap().value, "64M");
        // php-fpm itself puts what follows an include into the section that is open then.
        assert_eq!(config.pools[1].value("log_level"), Some("warning"));
    }

    #[test]
    fn what_cannot_be_read_is_told_and_the_rest_is_there() {
        for (files, problem) in [
            (vec![("fpm.conf", &b"[www\npm = static\n"[..])], "fpm.conf:1 is neither"),
            (vec![("fpm.conf", b"[www]\npm = \"static\nlisten = 9000\n")], "fpm.conf:2 is neither"),
            (vec![("fpm.conf", b"include = DIR/fpm.conf\n[www]\nlisten = 9000\n")], "which was read before"),
            (vec![("fpm.conf", b"include = none/x.conf\n[www]\nlisten=9000\n")], "cannot read"),
            (vec![("fpm.conf", b"[www]\nuser = \xff\xfe\nlisten = 9000\n")], "is not UTF-8"),
        ] {
            let (_folder, config) = read_files(&files);
            assert!(config.problems.iter().any(|message| message.contains(problem)), "{problem}: {config:?}");
            let known = config.pools.first().map_or(&config.global, |pool| pool);
            assert!(known.value("listen").or(known.value("pm")).is_some(), "{config:?}");
        }
    }

    #[test]
    fn a_chain_of_includes_ends() {
        let files: Vec<(String, String)> = (0..9)
            .map(|n| (format!("f{n}.conf"), format!("include = DIR/f{}.conf\n[p{n}]\nlisten = {n}\n", n + 1)))
            .collect();
        let mut all: Vec<(&str, &[u8])> =
            files.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
        all.push(("fpm.conf", b"include = DIR/f0.conf\n"));
        let (_folder, config) = read_files(&all);
        assert_eq!(config.pools.len(), 5);
        assert!(config.problems[0].contains("more than 5 deep"), "{:?}", config.problems);
    }

    proptest! {
        // Any bytes: values, or a problem, and never a panic.
        #[test]
        fn any_text_is_survived(text in "[\\[\\]=;\"'a-z$. \n\u{fffd}]{0,200}") {
            for (number, _) in lines(&text) {
                prop_assert!(number as usize <= text.lines().count());
            }
        }
    }
}
