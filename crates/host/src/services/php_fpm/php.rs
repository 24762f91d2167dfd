//! What PHP itself says: version, modules, and the values of php.ini.
//!
//! Facts: `php-fpm -i` prints phpinfo() as text and starts nothing: lines of `name => local value => master value`, and
//! which files were read. It reads the php.ini that is compiled in; one that was given with `-c` is not known.

use super::config::{Line, Placed, lines};
use super::pools::{PHP, in_force};
use crate::visibility::process_view::Root;
use crate::visibility::program_query::query_program;
use crate::visibility::scratch::Scratch;
use std::collections::BTreeMap;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::{SettingInForce, SettingValue};

/// What was found out.
#[derive(Debug, Default)]
pub struct Php {
    /// `8.2.29`.
    pub version: Option<String>,
    /// `Zend OPcache`, `mysqli`.
    pub modules: Vec<String>,
    /// Values of php.ini.
    pub settings: BTreeMap<String, SettingInForce>,
    /// What could not be asked.
    pub missing: Vec<MissingSignal>,
}

/// The prefix that is compiled in: `/usr` for `/usr/sbin/php-fpm8.2`.
pub fn prefix(executable: Option<&str>) -> String {
    let folder = executable.and_then(|path| path.rsplit_once("/sbin/").or_else(|| path.rsplit_once("/bin/")));
    folder.map(|(prefix, _)| prefix).filter(|prefix| !prefix.is_empty()).unwrap_or("/usr").to_owned()
}

/// Asks the program.
pub fn query_version(pid: u32, executable: Option<&(String, bool)>) -> Php {
    // OPcache makes a file to lock by, in `/tmp` unless it is told another place.
    let mut scratch = None;
    let arguments = || {
        scratch = Scratch::create(&Root::ours()).ok();
        let place = scratch.as_ref().map(|scratch| format!("opcache.lockfile_path={}", scratch.path()));
        let place = place.into_iter().flat_map(|place| ["-d".to_owned(), place]);
        ["-i".to_owned()].into_iter().chain(place).collect()
    };
    match query_program("php-fpm", pid, executable, arguments) {
        Ok(finished) => parse(&finished.stdout, |file| Root::ours().read_text(file).ok()),
        Err(missing) => Php { missing: vec![missing], ..Php::default() },
    }
}

/// Reads the output of `-i`; `read` gives the text of a file.
fn parse(info: &str, read: impl Fn(&str) -> Option<String>) -> Php {
    let value = |key: &str| {
        let of_line = |line: &str| Some(line.strip_prefix(key)?.strip_prefix(" => ")?.to_owned());
        info.lines().find_map(of_line)
    };
    let placed = placed(&files(info), read);
    let setting = |key: &&str| {
        let local = value(key)?.split(" => ").next().unwrap_or_default().to_owned();
        let at = placed.get(*key);
        let default = (at.is_none() && local != "no value").then(|| SettingValue::parse(&local));
        (at.is_some() || default.is_some()).then(|| ((*key).to_owned(), in_force(at, default)))
    };
    Php {
        version: value("PHP Version"),
        modules: modules(info),
        settings: PHP.iter().filter_map(setting).collect(),
        missing: vec![],
    }
}

/// The files that were read, in order.
fn files(info: &str) -> Vec<String> {
    let mut lines = info.lines();
    let mut files = vec![];
    while let Some(line) = lines.next() {
        if let Some(file) = line.strip_prefix("Loaded Configuration File => ") {
            files.push(file.trim().to_owned());
        } else if let Some(first) = line.strip_prefix("Additional .ini files parsed => ") {
            let mut file = first;
            loop {
                files.push(file.trim().trim_end_matches(',').to_owned());
                match lines.next() {
                    Some(next) if file.trim_end().ends_with(',') => file = next,
                    _ => return files,
                }
            }
        }
    }
    files
}

/// Where the values that we know stand.
fn placed(files: &[String], read: impl Fn(&str) -> Option<String>) -> BTreeMap<String, Placed> {
    let mut placed = BTreeMap::new();
    for file in files.iter().filter(|file| file.starts_with('/')) {
        let text = read(file).unwrap_or_default();
        let mut of_all = true;
        for (line, content) in lines(&text) {
            match content {
                // Sections of these names hold for some requests only.
                Line::Section(name) => of_all = !name.starts_with("PATH=") && !name.starts_with("HOST="),
                Line::Value(key, value) if of_all && PHP.contains(&key.as_str()) => {
                    placed.insert(key.clone(), Placed { key, value, file: file.clone(), line });
                }
                _ => {}
            }
        }
    }
    placed
}

/// The modules: in the text of phpinfo() the name of each stands alone between empty lines.
fn modules(info: &str) -> Vec<String> {
    let all: Vec<&str> = info.lines().collect();
    let ends = all.iter().position(|line| *line == "Additional Modules").unwrap_or(all.len());
    let name = |at: usize| {
        let line = all[at];
        let alone = at > 0 && all[at - 1].is_empty() && all.get(at + 1).is_some_and(|next| next.is_empty());
        let is_name = line.len() < 40 && line.chars().all(|c| c.is_ascii_alphanumeric() || " _-".contains(c));
        (alone && is_name && !line.is_empty() && line != "Configuration").then(|| line.to_owned())
    };
    (0..ends).filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INFO: &str = "phpinfo()\nPHP Version => 8.2.29\n\nSystem => Linux\n\
        Loaded Configuration File => /etc/php.ini\nScan this dir for additional .ini files => /etc/php.d\n\
        Additional .ini files parsed => /etc/php.d/10-opcache.ini,\n/etc/php.d/20-x.ini\n\nPHP API => 20220829\n\n\
        Configuration\n\nCore\n\nPHP Version => 8.2.29\n\nDirective => Local Value => Master Value\n\
        memory_limit => 256M => 256M\nopen_basedir => no value => no value\nmysqli.default_pw => s3cret => s3cret\n\n\
        Zend OPcache\n\nOpcode Caching => Up and Running\nopcache.enable => On => On\n\
        opcache.max_accelerated_files => 10000 => 10000\n\nAdditional Modules\n\nEnvironment\n\nDB_PASSWORD => s3cret\n";

    #[test]
    fn values_have_their_file_or_are_defaults() {
        let read = |file: &str| match file {
            "/etc/php.ini" => Some("[PHP]\nmemory_limit = 128M\n[HOST=x.org]\nopcache.enable=0\n".to_owned()),
            "/etc/php.d/20-x.ini" => Some("; late\nmemory_limit=256M\n".to_owned()),
            _ => None,
        };
        let php = parse(INFO, read);
        assert_eq!(php.version.as_deref(), Some("8.2.29"));
        let memory = &php.settings["memory_limit"];
        assert_eq!(memory.configured, Some(SettingValue::Text("256M".into())));
        assert_eq!((memory.file.as_deref(), memory.line), (Some("/etc/php.d/20-x.ini"), Some(2)));
        let cache = &php.settings["opcache.enable"];
        assert_eq!((&cache.configured, &cache.default), (&None, &Some(SettingValue::Text("On".into()))));
        assert!(!php.settings.contains_key("open_basedir"), "no value is none");
        assert_eq!(php.modules, ["Core", "Zend OPcache"]);
        assert!(!format!("{php:?}").contains("s3cret"));
    }

    #[test]
    fn the_prefix_is_above_the_program() {
        for (path, expected) in [
            (Some("/usr/sbin/php-fpm8.2"), "/usr"),
            (Some("/usr/local/sbin/php-fpm"), "/usr/local"),
            (Some("/php-fpm"), "/usr"),
            (None, "/usr"),
        ] {
            assert_eq!(prefix(path), expected);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(cut in 0..INFO.len(), noise in "[a-z=>, .\n]{0,80}") {
            parse(&format!("{}{noise}", &INFO[..cut]), |_| Some(noise.clone()));
        }
    }
}
