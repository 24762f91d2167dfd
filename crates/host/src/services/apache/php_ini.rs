//! php.ini of the PHP that runs inside of Apache's workers: where it is, and changes of its values.
//!
//! Facts: <https://www.php.net/manual/en/configuration.file.php>. Where PHP looks is compiled into its library
//! (PHP_CONFIG_FILE_SCAN_DIR of main/php_ini.c); `PHPIniDir` moves the main file, and the variable PHP_INI_SCAN_DIR the folder.
//! A graceful restart loads the library anew (mod_so.c), which reads all of them again and begins with an empty OPcache.

use super::control::Apache;
use super::pending;
use crate::os::procfs;
use crate::services::common::pending::Sources;
use crate::services::php_fpm::ini;
use crate::services::php_fpm::php::IniFiles;
use crate::visibility::mount_namespace;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use webdyno_model::Result;
use webdyno_model::change::{Obstacle, Preparation, SettingChange};
use webdyno_model::service::Control;

/// Names of folders of .ini files, as distributions have them.
const FOLDERS: [&str; 2] = ["conf.d", "php.d"];

/// The largest library that is looked into.
const LIBRARY_BYTES_MAX: u64 = 256 << 20;

/// Renders changes of php.ini.
pub fn prepare(control: Control, changes: &[SettingChange]) -> Result<Preparation> {
    let apache = Apache::of_control(control)?;
    Ok(files(&apache).and_then(|files| ini::plan(&files, changes)).into())
}

/// The files that its PHP reads.
fn files(apache: &Apache) -> std::result::Result<IniFiles, Obstacle> {
    let pid = apache.control.pid;
    let by_hand = || Some("phpinfo() in a page tells which php.ini it reads: set it there".to_owned());
    if mount_namespace::has_other_root(pid) {
        return Err(("apache runs in a container: its php.ini is not one of this machine".into(), by_hand()));
    }
    if apache.control.environment.contains_key("PHP_INI_SCAN_DIR") {
        return Err(("PHP_INI_SCAN_DIR says where PHP reads its .ini files".into(), by_hand()));
    }
    let maps = procfs::read_text(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Some(library) = library(&maps) else {
        return Err(("apache has not loaded PHP, so it has no php.ini".into(), None));
    };
    let is_small = std::fs::metadata(&library).is_ok_and(|found| found.len() <= LIBRARY_BYTES_MAX);
    let file = is_small.then(|| File::open(&library).ok()).flatten();
    let folders = file.map_or_else(BTreeSet::new, |file| folders(BufReader::new(file)));
    let mut folders = folders.into_iter().filter(|path| path.is_dir());
    let (Some(folder), None) = (folders.next(), folders.next()) else {
        let why = format!("{} does not say which folder of .ini files PHP reads", library.display());
        return Err((why, by_hand()));
    };
    let given = apache.evaluation.global(&["PHPIniDir"]).and_then(|placed| placed.words().into_iter().next());
    let main = given.map(|given| apache.evaluation.path(&given));
    let main = main.unwrap_or_else(|| folder.parent().unwrap_or(Path::new("/")).to_owned());
    Ok(ini::files_of(&main, &folder))
}

/// What Apache reads when it reloads, with what its PHP reads then, where that is known.
pub fn sources(apache: &Apache) -> Sources {
    let mut sources = pending::sources(&apache.evaluation);
    if let Ok(files) = files(apache) {
        sources.files.extend(files.read.into_iter().map(PathBuf::from));
        sources.directories.extend(files.folder.map(PathBuf::from));
    }
    sources
}

/// PHP's library in the memory of a process.
fn library(maps: &str) -> Option<PathBuf> {
    let path = |line: &str| line.find('/').and_then(|at| line.get(at..)).map(str::to_owned);
    let is_php = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        (name.starts_with("libphp") || name.starts_with("mod_php")) && name.ends_with(".so")
    };
    maps.lines().filter_map(path).find(is_php).map(PathBuf::from)
}

/// The texts of a library that name a folder of .ini files. Read text by text: a library has megabytes.
fn folders(mut library: impl BufRead) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut text = vec![];
    while library.read_until(0, &mut text).is_ok_and(|bytes| bytes > 0) {
        let named = std::str::from_utf8(text.strip_suffix(&[0]).unwrap_or(&text)).ok();
        let is_path = |text: &&str| text.starts_with('/') && text.len() < 256;
        if let Some(path) = named.filter(is_path)
            && FOLDERS.iter().any(|name| path.rsplit('/').next() == Some(name))
        {
            found.insert(PathBuf::from(path));
        }
        text.clear();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_in_the_library_that_is_loaded() {
        let maps = "7f1a30000000-7f1a30100000 r--p 00000000 fe:00 2 /usr/lib/apache2/modules/libphp8.2.so\n";
        assert_eq!(library(maps), Some("/usr/lib/apache2/modules/libphp8.2.so".into()));
        assert_eq!(library("x /usr/lib/libphplot.a\n"), None);
        let text = b"\x7fELF\0/etc/php/8.2/apache2\0/etc/php/8.2/apache2/conf.d\0see /etc/conf.d\0/a/php.d\0";
        let expected = ["/a/php.d", "/etc/php/8.2/apache2/conf.d"].map(PathBuf::from);
        assert_eq!(folders(&text[..]), BTreeSet::from(expected));
    }
}
