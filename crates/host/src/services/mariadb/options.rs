//! Option files of MariaDB and MySQL: groups of `name = value`, with includes.
//!
//! Facts: <https://mariadb.com/kb/en/configuring-mariadb-with-option-files/> and `my_search_option_files` in
//! mysys/my_default.c: the last line wins, `-` and `_` in names are the same, names may be shortened with `loose_` before
//! them, values may be quoted and have escapes, `#` within a value begins a comment unless it is quoted.

use crate::visibility::process_view::Root;
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Includes within includes.
const DEPTH_MAX: usize = 10;

/// Files that are read at most.
const FILES_MAX: usize = 200;

/// Options that are kept at most.
const OPTIONS_MAX: usize = 10_000;

/// A value, and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Unquoted; `None` when the name stands alone.
    pub value: Option<String>,
    /// The file.
    pub file: PathBuf,
    /// From 1.
    pub line: u32,
    /// How many lines of all files were read before it.
    pub order: u32,
}

/// A folder of which all option files are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncludedFolder {
    /// As it is written.
    pub path: PathBuf,
    /// How many lines of all files were read when its own had been.
    pub order: u32,
}

/// What option files say to a program.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The last value of each option, names with `_`.
    pub given: BTreeMap<String, Given>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// The folders of which all files were read, in their order.
    pub folders: Vec<IncludedFolder>,
    /// What could not be read or understood, in words, without values.
    pub warnings: Vec<String>,
    lines_count: u32,
}

/// One line of an option file.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Nothing,
    Group(&'a str),
    Include(&'a str),
    IncludeFolder(&'a str),
    Option(String, Option<String>),
    Strange,
}

impl Options {
    /// Reads files in their order, as a program does that reads these groups. A file that is not there is no problem. Paths
    /// mean those that the program sees.
    pub fn read(files: &[PathBuf], groups: &[String], root: &Root) -> Self {
        let mut options = Self::default();
        for file in files {
            options.file(file, groups, root, 0);
        }
        options
    }

    /// A value by its name with `_`; names may be given with `loose_`.
    pub fn value(&self, name: &str) -> Option<&Given> {
        self.given.get(name)
    }

    fn file(&mut self, path: &Path, groups: &[String], root: &Root, depth: usize) {
        if depth > DEPTH_MAX || self.files.len() >= FILES_MAX {
            return self.warn(format!("{} is not read: too many includes", path.display()));
        }
        let path = &Path::new("/").join(path);
        // Who wants no options at all names this one.
        if path == Path::new("/dev/null") {
            return;
        }
        let text = match root.read_text(&path.to_string_lossy()) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound && depth == 0 => return,
            Err(error) => return self.warn(format!("cannot read {}: {error}", path.display())),
        };
        self.files.push(path.to_owned());
        let mut is_ours = false;
        for (number, line) in (1..).zip(text.lines()) {
            self.lines_count += 1;
            let order = self.lines_count;
            match parse(line) {
                Line::Nothing => {}
                Line::Group(name) => is_ours = groups.iter().any(|group| group == name),
                Line::Include(other) => self.file(Path::new(other), groups, root, depth + 1),
                Line::IncludeFolder(folder) => self.folder(Path::new(folder), groups, root, depth + 1),
                Line::Option(name, value) if is_ours && self.given.len() < OPTIONS_MAX => {
                    self.given.insert(name, Given { value, file: path.to_owned(), line: number, order });
                }
                Line::Option(..) => {}
                Line::Strange => self.warn(format!("{}:{number} is not understood", path.display())),
            }
        }
    }

    /// The files `*.cnf` of a folder, in the order of their names.
    fn folder(&mut self, folder: &Path, groups: &[String], root: &Root, depth: usize) {
        let folder = Path::new("/").join(folder).to_string_lossy().trim_end_matches('/').to_owned();
        let found = root.open(&format!("{folder}/"), OFlags::PATH | OFlags::DIRECTORY);
        match found.and_then(|_| root.glob(&format!("{folder}/*.cnf"))) {
            Ok(files) => {
                files.iter().for_each(|file| self.file(Path::new(file), groups, root, depth));
                self.folders.push(IncludedFolder { path: folder.into(), order: self.lines_count });
            }
            Err(error) => self.warn(format!("cannot read {folder}: {error}")),
        }
    }

    fn warn(&mut self, text: String) {
        const WARNINGS_MAX: usize = 20;
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(text);
        }
    }
}

fn parse(line: &str) -> Line<'_> {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Line::Nothing;
    }
    if let Some(rest) = line.strip_prefix('!') {
        return match rest.split_once(char::is_whitespace) {
            Some(("include", path)) => Line::Include(path.trim()),
            Some(("includedir", path)) => Line::IncludeFolder(path.trim()),
            _ => Line::Strange,
        };
    }
    if let Some(rest) = line.strip_prefix('[') {
        return rest.split_once(']').map_or(Line::Strange, |(name, _)| Line::Group(name.trim()));
    }
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim_end(), Some(unquote(value.trim_start()))),
        None => (before_comment(line).trim_end(), None),
    };
    let name = normal(name);
    match name.is_empty() || name.contains(char::is_whitespace) {
        true => Line::Strange,
        false => Line::Option(name, value),
    }
}

/// The group that a line begins, or the name of the option that it sets; `None` for any other line.
pub fn group_or_name(line: &str) -> Option<std::result::Result<String, String>> {
    match parse(line) {
        Line::Group(name) => Some(Ok(name.to_owned())),
        Line::Option(name, _) => Some(Err(name)),
        _ => None,
    }
}

/// A name as the server shows it.
pub fn normal(name: &str) -> String {
    let name = name.replace('-', "_").to_ascii_lowercase();
    name.strip_prefix("loose_").map_or(name.clone(), str::to_owned)
}

fn before_comment(text: &str) -> &str {
    text.split_once('#').map_or(text, |(before, _)| before)
}

/// A value without its quotes, its comment and its escapes.
fn unquote(text: &str) -> String {
    let quote = text.chars().next().filter(|first| matches!(first, '"' | '\''));
    let inside = match quote {
        Some(quote) => quoted(&text[1..], quote),
        None => before_comment(text).trim_end(),
    };
    let mut value = String::with_capacity(inside.len());
    let mut letters = inside.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            value.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => value.push('\n'),
            Some('t') => value.push('\t'),
            Some('r') => value.push('\r'),
            Some('b') => value.push('\u{8}'),
            Some('s') => value.push(' '),
            Some(other @ ('\\' | '"' | '\'')) => value.push(other),
            Some(other) => value.extend(['\\', other]),
            None => value.push('\\'),
        }
    }
    value
}

/// The text up to the quote that ends it.
fn quoted(text: &str, quote: char) -> &str {
    let mut escaped = false;
    let ends = |(_, letter): &(usize, char)| {
        let ends = *letter == quote && !escaped;
        escaped = *letter == '\\' && !escaped;
        ends
    };
    let end = text.char_indices().find(ends).map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or(text)
}

/// A number with its unit as the server reads it: `16M`.
pub fn number(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1_i64 << 40,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_read_as_the_server_reads_them() {
        let option = |name: &str, value: Option<&str>| Line::Option(name.into(), value.map(str::to_owned));
        for (text, expected) in [
            ("", Line::Nothing),
            ("  # max_connections=1", Line::Nothing),
            ("; x", Line::Nothing),
            ("[mysqld]", Line::Group("mysqld")),
            ("[ client ] # x", Line::Group("client")),
            ("[broken", Line::Strange),
            ("max-connections = 151 # as it is", option("max_connections", Some("151"))),
            ("loose-innodb_x", option("innodb_x", None)),
            ("password = \"a#b c\" # x", option("password", Some("a#b c"))),
            ("password='it\\'s'", option("password", Some("it's"))),
            ("path = C\\:\\sx", option("path", Some("C\\: x"))),
            ("!include /a b.cnf", Line::Include("/a b.cnf")),
            ("!includedir /etc/mysql/conf.d/", Line::IncludeFolder("/etc/mysql/conf.d/")),
            ("!other", Line::Strange),
            ("two words", Line::Strange),
            ("= 5", Line::Strange),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [
            ("151", Some(151)),
            ("16M", Some(16 << 20)),
            ("1g", Some(1 << 30)),
            ("ON", None),
            ("9999999T", None),
            ("", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }

    #[test]
    fn the_last_line_of_our_groups_wins_over_includes() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "etc/my.cnf",
            "[client]\nmax_connections=1\n[mysqld]\nmax_connections=2\n!includedir /etc/d\n!include /etc/none.cnf\n",
        );
        write("etc/d/b.cnf", "[mysqld]\nmax_connections=4\n");
        write("etc/d/a.cnf", "[mariadb]\nmax_connections=3\nport=7\n!include /etc/my.cnf\n");
        write("etc/d/c.txt", "[mysqld]\nmax_connections=9\n");
        let groups = ["mysqld", "mariadb"].map(str::to_owned);
        let files = [PathBuf::from("/none.cnf"), PathBuf::from("/etc/my.cnf")];
        // Debian has such links; they mean what the database sees.
        std::os::unix::fs::symlink("/etc/my.cnf", root.path().join("etc/link.cnf")).unwrap();
        let files = [files.as_slice(), &["/etc/link.cnf".into()]].concat();
        let options = Options::read(&files, &groups, &Root::at(root.path()).unwrap());
        assert!(options.files.iter().any(|file| file.ends_with("link.cnf")), "{:?}", options.files);
        let won = options.value("max_connections").unwrap();
        assert_eq!((won.value.as_deref(), won.file.to_str(), won.line), (Some("4"), Some("/etc/d/b.cnf"), 2));
        assert_eq!(options.value("port").unwrap().value.as_deref(), Some("7"));
        assert!(
            options.warnings.iter().any(|message| message.contains("/etc/none.cnf")),
            "{:?}",
            options.warnings
        );
        assert!(
            options.warnings.iter().any(|message| message.contains("too many includes")),
            "{:?}",
            options.warnings
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(?s).{0,200}") {
            for line in text.lines() {
                parse(line);
            }
            number(&text);
        }
    }
}
