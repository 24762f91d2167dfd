//! The option file that keeps a value: one of our own where a folder is included, as far as that is read last.
//!
//! Facts: <https://mariadb.com/kb/en/configuring-mariadb-with-option-files/>: what is read last wins, and the command line
//! over all files.

use super::options::{self, Given, Options};
use super::{arguments, group_suffix, groups, groups_of, option_files, series};
use crate::os::procfs;
use crate::services::common::edit::Document;
use crate::services::common::kept_values::{Lines, ValueFile};
use crate::visibility::process_view::Root;
use std::collections::BTreeMap;
use std::path::PathBuf;
use webdyno_model::change::Obstacle;

/// The name of our own file: it sorts after what people usually have.
pub const NAME: &str = "zzz-webdyno.cnf";

/// The group that every server reads.
const GROUP: &str = "[mysqld]\n";

/// The file in which a value of the server `pid` wins at its next start; else why there is none, and what helps.
pub fn place(pid: u32, name: &str) -> std::result::Result<PathBuf, Obstacle> {
    let process = procfs::process(pid).map_err(|error| (error.message, error.hint))?;
    let given = arguments(&process.argv);
    if given.contains_key(name) {
        let why = format!("the command line of the server sets {name}, and wins over every file");
        return Err((why, Some("change it where the server is started".into())));
    }
    shared(&given, name).map_or(Ok(()), Err)?;
    let (files, _) = option_files(&given);
    let options = Options::read(&files, &groups_of(&given, series(pid).as_deref()), &Root::of(pid));
    let Some(file) = winning(&options, name) else {
        return Err(("the server reads no option file".into(), None));
    };
    // Plans show and export whole files.
    if std::fs::read_to_string(&file).is_ok_and(|text| has_password(&text)) {
        let why = format!("{name} would have to be set in {}, which holds a password", file.display());
        return Err((why, Some("set it there by hand".into())));
    }
    Ok(file)
}

/// One of several servers that read the same files: what is written for every server would be the others' at their next start.
fn shared(given: &BTreeMap<String, Option<String>>, name: &str) -> Option<Obstacle> {
    let suffix = group_suffix(given)?;
    let why =
        format!("the server reads groups of its own (`{suffix}`) in files that other servers read, too");
    Some((why, Some(format!("set {name} in its group by hand: [mysqld{suffix}]"))))
}

/// Whether an option file holds a password of anybody.
fn has_password(text: &str) -> bool {
    text.lines().filter_map(options::group_or_name).any(|found| found.is_err_and(|name| name == "password"))
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

/// An option file.
#[derive(Debug, Default)]
pub struct OptionFile(Lines);

impl ValueFile for OptionFile {
    const OWN: &'static str = NAME;

    fn lines(&mut self) -> &mut Lines {
        &mut self.0
    }

    /// For the server: a group of another program may have an option of the same name.
    fn set(&mut self, name: &str, value: &str) {
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
        self.0.put(known, if is_ours { "" } else { GROUP }, format!("{name} = {value}\n"));
    }
}

impl Document for OptionFile {
    fn parse(text: &str) -> Self {
        Self(Lines::parse(text))
    }

    fn render(&self) -> String {
        self.0.render()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::common::edit::DROP_IN_HEAD;
    use crate::services::common::kept_values;
    use std::path::Path;

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
    fn one_of_several_servers_is_left_to_a_person() {
        let of_instance = arguments(&["mariadbd".into(), "--defaults-group-suffix=.b".into()]);
        let (_, hint) = shared(&of_instance, "max_connections").unwrap();
        assert_eq!(hint.as_deref(), Some("set max_connections in its group by hand: [mysqld.b]"));
        assert_eq!(shared(&BTreeMap::new(), "max_connections"), None);
    }

    #[test]
    fn values_are_written_once_and_in_a_group_of_the_server() {
        let own = Path::new("/etc/mysql/conf.d/zzz-webdyno.cnf");
        let first = kept_values::with_values::<OptionFile>(
            own,
            "",
            [("max_connections", "76"), ("thread_cache_size", "8")],
        );
        assert_eq!(first, format!("{DROP_IN_HEAD}[mysqld]\nmax_connections = 76\nthread_cache_size = 8\n"));
        assert_eq!(
            kept_values::with_values::<OptionFile>(own, &first, [("max_connections", "90")]),
            first.replace("76", "90")
        );
        let mixed = "[client]\nmax_connections=1\n[mariadb]\nmax-connections=2\n[client]\npassword=x";
        assert_eq!(
            kept_values::with_values::<OptionFile>(
                Path::new("/x"),
                mixed,
                [("max_connections", "9"), ("sort_buffer_size", "1")]
            ),
            "[client]\nmax_connections=1\n[mariadb]\nmax_connections = 9\n[client]\npassword=x\n\
             [mysqld]\nsort_buffer_size = 1\n"
        );
    }

    #[test]
    fn a_file_with_a_password_is_recognised() {
        for (text, expected) in [
            ("[client]\npassword = s3cret\n", true),
            ("[mysqld]\nloose-password=\n", true),
            ("[mysqld]\n# password = x\nmax-connections=4\n", false),
            ("", false),
        ] {
            assert_eq!(has_password(text), expected, "{text}");
        }
    }

    #[test]
    fn a_diff_shows_no_secret() {
        assert_eq!(
            OptionFile::displayed("[client]\npassword = s3cret\n[mysqld]\nmax-connections=4\n# note\n"),
            "[client]\npassword = ...\n[mysqld]\nmax-connections=4\n# note\n"
        );
    }
}
