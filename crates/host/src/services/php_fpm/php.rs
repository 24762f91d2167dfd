//! What PHP itself says: version, modules, and the values of php.ini.
//!
//! Facts: `php-fpm -i` prints phpinfo() as text and starts nothing: lines of `name => local value => master value`, and
//! which files were read. It reads the php.ini that is compiled in; one that was given with `-c` is not known.

use super::config::{Line, Overlay, Placed, lines};
use super::pools::{PHP, in_force};
use crate::visibility::process_view::Root;
use crate::visibility::program_query::query_program;
use crate::visibility::scratch::Scratch;
use std::collections::BTreeMap;
use std::path::Path;
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

/// The files of php.ini's settings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct IniFiles {
    /// Those that were read, in order.
    pub read: Vec<String>,
    /// The directory whose `*.ini` are read after the main one, by name.
    pub folder: Option<String>,
}

impl IniFiles {
    /// Of the output of `-i`.
    fn parse(info: &str) -> Self {
        let folder =
            info.lines().find_map(|line| line.strip_prefix("Scan this dir for additional .ini files => "));
        let folder = folder.map(str::trim).filter(|folder| folder.starts_with('/') && !folder.contains(':'));
        Self { read: files(info), folder: folder.map(str::to_owned) }
    }

    /// Where a value stands that holds for all requests, with texts that some files would have; the last one wins.
    pub fn placed(&self, name: &str, overlay: &Overlay) -> Option<Placed> {
        let own = overlay.keys().filter_map(|path| path.to_str());
        let mut files: Vec<&str> = self.read.iter().map(String::as_str).collect();
        let is_new = |path: &&str| Path::new(path).parent() == self.folder.as_deref().map(Path::new);
        files.extend(own.filter(|path| !self.read.iter().any(|known| known == path)).filter(is_new));
        let (main, more) = files.split_at(usize::from(!files.is_empty()));
        let mut more = more.to_vec();
        more.sort_unstable();
        let all: Vec<String> = main.iter().chain(&more).map(|file| (*file).to_owned()).collect();
        let text = |file: &str| {
            let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.into());
            overlay.get(&real).cloned().or_else(|| Root::ours().read_text(file).ok())
        };
        placed(&all, text).remove(name)
    }
}

/// Asks the program which files it reads php.ini's settings from.
pub fn query_ini_files(pid: u32, executable: Option<&(String, bool)>) -> Result<IniFiles, MissingSignal> {
    query(pid, executable).map(|info| IniFiles::parse(&info))
}

/// Asks the program.
pub fn query_version(pid: u32, executable: Option<&(String, bool)>) -> Php {
    match query(pid, executable) {
        Ok(info) => parse(&info, |file| Root::ours().read_text(file).ok()),
        Err(missing) => Php { missing: vec![missing], ..Php::default() },
    }
}

/// The output of `-i`.
fn query(pid: u32, executable: Option<&(String, bool)>) -> Result<String, MissingSignal> {
    // OPcache makes a file to lock by, in `/tmp` unless it is told another place.
    let mut scratch = None;
    let arguments = || {
        scratch = Scratch::create(&Root::ours()).ok();
        let place = scratch.as_ref().map(|scratch| format!("opcache.lockfile_path={}", scratch.path()));
        let place = place.into_iter().flat_map(|place| ["-d".to_owned(), place]);
        ["-i".to_owned()].into_iter().chain(place).collect()
    };
    query_program("php-fpm", pid, executable, arguments).map(|finished| finished.stdout)
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
                Line::Section(name) => of_all = holds_for_all(&name),
                Line::Value(key, value) if of_all && PHP.contains(&key.as_str()) => {
                    placed.insert(key.clone(), Placed { key, value, file: file.clone(), line });
                }
                _ => {}
            }
        }
    }
    placed
}

/// Whether the values of a section of php.ini hold for all requests.
pub fn holds_for_all(section: &str) -> bool {
    !section.starts_with("PATH=") && !section.starts_with("HOST=")
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
    fn a_file_of_ours_is_read_late() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let path = |name: &str| root.join(name).display().to_string();
        std::fs::write(path("php.ini"), "opcache.enable=1\n").unwrap();
        std::fs::create_dir(path("conf.d")).unwrap();
        std::fs::write(path("conf.d/99-shop.ini"), "opcache.enable=0\n").unwrap();
        let info = format!(
            "Loaded Configuration File => {}\nScan this dir for additional .ini files => {}\n\
             Additional .ini files parsed => {}\n",
            path("php.ini"),
            path("conf.d"),
            path("conf.d/99-shop.ini")
        );
        let files = IniFiles::parse(&info);
        let in_force = |own: &str| {
            let overlay = Overlay::from([(root.join(own), "opcache.enable = 1\n".to_owned())]);
            files.placed("opcache.enable", &overlay).map(|placed| (placed.value, placed.file))
        };
        assert_eq!(in_force("conf.d/zzz-webdyno.ini"), Some(("1".into(), path("conf.d/zzz-webdyno.ini"))));
        assert_eq!(in_force("conf.d/10-early.ini"), Some(("0".into(), path("conf.d/99-shop.ini"))));
        // What nothing reads.
        assert_eq!(in_force("elsewhere.ini"), Some(("0".into(), path("conf.d/99-shop.ini"))));
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
