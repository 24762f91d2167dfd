//! The option file that keeps a value: one of our own where a folder is included, as far as that is read last.
//!
//! Facts: <https://mariadb.com/kb/en/configuring-mariadb-with-option-files/>: what is read last wins, and the command line
//! over all files.

use super::options::{self, Given, Options};
use super::{arguments, groups, option_files};
use crate::os::procfs;
use crate::services::common::edit::{DROP_IN_HEAD, Document, Edit};
use crate::visibility::process_view::Root;
use std::path::{Path, PathBuf};
use webdyno_model::Result;
use webdyno_model::change::Change;

/// The name of our own file: it sorts after what people usually have.
pub const NAME: &str = "zzz-webdyno.cnf";

/// The group that every server reads.
const GROUP: &str = "[mysqld]\n";

/// The file in which a value of the server `pid` wins at its next start; else why there is none, and what helps.
pub fn place(pid: u32, name: &str) -> std::result::Result<PathBuf, (String, Option<String>)> {
    let process = procfs::process(pid).map_err(|error| (error.message, error.hint))?;
    let given = arguments(&process.argv);
    if given.contains_key(name) {
        let why = format!("the command line of the server sets {name}, and wins over every file");
        return Err((why, Some("change it where the server is started".into())));
    }
    let (files, _) = option_files(&given);
    let options = Options::read(&files, &groups(), &Root::of(pid));
    winning(&options, name).ok_or_else(|| ("the server reads no option file".into(), None))
}

/// Where a value wins over all that is read: our own file, the one that sets it after that is read, or the last one.
fn winning(options: &Options, name: &str) -> Option<PathBuf> {
    let set = options.value(name);
    if let Some(folder) = options.folders.last() {
        let own = folder.path.join(NAME);
        let is_late = |given: &&Given| {
            given.order > folder.order || (given.file.parent() == own.parent() && given.file > own)
        };
        return Some(set.filter(is_late).map_or(own, |given| given.file.clone()));
    }
    set.map(|given| given.file.clone()).or_else(|| options.files.last().cloned())
}

/// A text with these values: in place of the last line that sets a name for the server, else at the end.
pub fn with_values<'a>(
    path: &Path,
    text: &str,
    values: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut lines = Lines::parse(text);
    for (name, value) in values {
        lines.set(name, value, is_own(path));
    }
    lines.render()
}

fn is_own(path: &Path) -> bool {
    path.file_name().is_some_and(|file| file == NAME)
}

/// A file as lines.
#[derive(Debug, Default)]
pub struct Lines(Vec<String>);

impl Lines {
    fn set(&mut self, name: &str, value: &str, is_own: bool) {
        if is_own && self.0.is_empty() {
            self.0.push(DROP_IN_HEAD.to_owned());
        }
        let line = format!("{name} = {value}\n");
        let groups = groups();
        let mut is_ours = false;
        let mut known = None;
        for (at, text) in self.0.iter().enumerate() {
            match options::group_or_name(text) {
                Some(Ok(group)) => is_ours = groups.contains(&group),
                Some(Err(option)) if is_ours && option == name => known = Some(at),
                _ => {}
            }
        }
        if let Some(known) = known.and_then(|at| self.0.get_mut(at)) {
            *known = line;
            return;
        }
        if let Some(last) = self.0.last_mut().filter(|last| !last.ends_with('\n')) {
            last.push('\n');
        }
        if !is_ours {
            self.0.push(GROUP.to_owned());
        }
        self.0.push(line);
    }
}

impl Document for Lines {
    fn parse(text: &str) -> Self {
        Self(text.split_inclusive('\n').map(str::to_owned).collect())
    }

    fn render(&self) -> String {
        self.0.concat()
    }

    /// Passwords of clients may stand in the same file.
    fn displayed(text: &str) -> String {
        let shown = |line: &str| match options::group_or_name(line) {
            Some(Err(name)) if super::variables::find(&name).is_none() => {
                let end = if line.ends_with('\n') { "\n" } else { "" };
                format!("{name} = ...{end}")
            }
            _ => line.to_owned(),
        };
        text.split_inclusive('\n').map(shown).collect()
    }
}

/// A value that is kept.
#[derive(Debug)]
pub struct Kept {
    file: PathBuf,
    name: String,
    value: String,
}

impl Kept {
    /// By the file of a change.
    pub fn of(change: &Change) -> Self {
        Self {
            file: PathBuf::from(&change.file),
            name: change.setting.name.clone(),
            value: change.to.to_string(),
        }
    }
}

impl Edit for Kept {
    type Document = Lines;

    fn file(&self) -> &Path {
        &self.file
    }

    fn is_drop_in(&self) -> bool {
        is_own(&self.file)
    }

    fn change(&self, document: &mut Lines, _: &Path) -> Result<()> {
        document.set(&self.name, &self.value, self.is_drop_in());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_goes_where_it_wins() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "etc/my.cnf",
            "[mysqld]\nsort_buffer_size=1M\n!includedir /etc/d\n[mysqld]\njoin_buffer_size=2M\n",
        );
        write("etc/d/50-server.cnf", "[mysqld]\nmax_connections=4\n");
        write("etc/d/zzzz.cnf", "[mysqld]\ntable_open_cache=9\n");
        let root = Root::at(root.path()).unwrap();
        let options = Options::read(&["/etc/my.cnf".into()], &groups(), &root);
        for (name, expected) in [
            ("max_connections", "/etc/d/zzz-webdyno.cnf"),
            ("sort_buffer_size", "/etc/d/zzz-webdyno.cnf"),
            ("thread_cache_size", "/etc/d/zzz-webdyno.cnf"),
            ("join_buffer_size", "/etc/my.cnf"),
            ("table_open_cache", "/etc/d/zzzz.cnf"),
        ] {
            assert_eq!(winning(&options, name).as_deref(), Some(Path::new(expected)), "{name}");
        }
        let alone = Options::read(&["/etc/d/50-server.cnf".into()], &groups(), &root);
        assert_eq!(winning(&alone, "x").as_deref(), Some(Path::new("/etc/d/50-server.cnf")));
        assert_eq!(winning(&Options::read(&[], &groups(), &root), "x"), None);
    }

    #[test]
    fn values_are_written_once_and_in_a_group_of_the_server() {
        let own = Path::new("/etc/mysql/conf.d/zzz-webdyno.cnf");
        let first = with_values(own, "", [("max_connections", "76"), ("thread_cache_size", "8")]);
        assert_eq!(first, format!("{DROP_IN_HEAD}[mysqld]\nmax_connections = 76\nthread_cache_size = 8\n"));
        assert_eq!(with_values(own, &first, [("max_connections", "90")]), first.replace("76", "90"));
        let mixed = "[client]\nmax_connections=1\n[mariadb]\nmax-connections=2\n[client]\npassword=x";
        assert_eq!(
            with_values(Path::new("/x"), mixed, [("max_connections", "9"), ("sort_buffer_size", "1")]),
            "[client]\nmax_connections=1\n[mariadb]\nmax_connections = 9\n[client]\npassword=x\n\
             [mysqld]\nsort_buffer_size = 1\n"
        );
    }

    #[test]
    fn a_diff_shows_no_secret() {
        assert_eq!(
            Lines::displayed("[client]\npassword = s3cret\n[mysqld]\nmax-connections=4\n# note\n"),
            "[client]\npassword = ...\n[mysqld]\nmax-connections=4\n# note\n"
        );
    }
}
