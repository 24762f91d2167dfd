//! Languages that run inside of Apache's workers: mod_php, mod_perl, and the like. What they need, every worker holds.
//!
//! Facts: proc_pid_maps(5); the names that PHP (`libphp.so` since 8.0, `libphp7.so`, `libphp5.so`; `libphp8.2.so` with
//! Debian), mod_perl, mod_wsgi, mod_python, Passenger and mod_lua give their libraries. The configuration names the
//! modules that it loads; what a running process has mapped is certain, also when a configuration was changed since or
//! can be read in part only. OPcache takes `opcache.memory_consumption`, 8 MB at least, as one shared mapping when PHP
//! starts, and nothing when it is off (ext/opcache/zend_shared_alloc.c; seen so with PHP 8.2).

use crate::os::procfs;
use webdyno_model::service::{ServiceSnapshot, SettingInForce, SettingValue};

/// `(module, how the file's name begins)`.
const LANGUAGES: [(&str, &str); 7] = [
    ("php_module", "libphp"),
    ("php_module", "mod_php"),
    ("perl_module", "mod_perl"),
    ("wsgi_module", "mod_wsgi"),
    ("python_module", "mod_python"),
    ("passenger_module", "mod_passenger"),
    ("lua_module", "mod_lua"),
];

/// PHP's module has its version in its name before PHP 8.
const PHP_NAMES: [&str; 3] = ["php_module", "php7_module", "php5_module"];

/// The least that `opcache.memory_consumption` can be, in bytes: of a smaller piece of memory that workers share something
/// else is the owner.
const OPCACHE_BYTES_MIN: u64 = 8 << 20;

/// Adds languages that a worker runs and the configuration does not name, and of PHP whether it keeps translated scripts.
pub fn add(snapshot: &mut ServiceSnapshot) {
    // The youngest: after a reload older ones have what was before.
    let began = |pid: &u32| procfs::stat(*pid).map(|stat| stat.start_ticks).unwrap_or_default();
    let worker = procfs::children_of(snapshot.pid).into_iter().max_by_key(began).unwrap_or(snapshot.pid);
    // Of one that ended meanwhile nothing is known, and the configuration says it, too.
    let maps = procfs::read_text(format!("/proc/{worker}/maps")).unwrap_or_default();
    if let Some(bytes) = opcache_bytes(&maps) {
        let running = |value: u64| SettingInForce {
            running: i64::try_from(value).ok().map(SettingValue::Integer),
            ..SettingInForce::default()
        };
        snapshot.settings.insert("opcache.enable".into(), running(u64::from(bytes > 0)));
        if bytes > 0 {
            snapshot.settings.insert("opcache.memory_consumption".into(), running(bytes >> 20));
        }
    }
    for module in loaded(&maps) {
        let is_same = |known: &String| {
            known == module || (module == "php_module" && PHP_NAMES.contains(&known.as_str()))
        };
        if !snapshot.modules.iter().any(is_same) {
            snapshot.modules.push(module.to_owned());
            snapshot.warnings.push(format!(
                "the workers run {module} inside of them, and the configuration that was read does not load it"
            ));
        }
    }
}

/// How much memory the OPcache of PHP in a worker has: it is shared by all of them, and there from the start. Zero if it is
/// off; `None` where PHP does not run in there.
fn opcache_bytes(maps: &str) -> Option<u64> {
    if !loaded(maps).contains(&"php_module") {
        return None;
    }
    let shared = |line: &str| {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next()?, words.next()?);
        let (from, to) = range.split_once('-')?;
        let bytes = u64::from_str_radix(to, 16).ok()?.checked_sub(u64::from_str_radix(from, 16).ok()?)?;
        // With its huge pages a part is mapped with other rights.
        (rights.starts_with("rw") && rights.ends_with('s') && bytes >= OPCACHE_BYTES_MIN).then_some(bytes)
    };
    Some(maps.lines().filter_map(shared).max().unwrap_or(0))
}

/// The modules of languages that are mapped, each once.
fn loaded(maps: &str) -> Vec<&'static str> {
    let mut found: Vec<&'static str> = vec![];
    let files = maps.lines().filter_map(|line| line.get(line.find('/')?..)?.rsplit('/').next());
    for file in files.filter(|file| file.contains(".so")) {
        let language = LANGUAGES.iter().find(|(_, begin)| file.starts_with(begin));
        if let Some((module, _)) = language.filter(|(module, _)| !found.contains(module)) {
            found.push(module);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Captured of Debian 12, shortened.
    const MAPS: &str = "\
557a4c0d2000-557a4c0f6000 r--p 00000000 fe:00 1 /usr/sbin/apache2
7f1a2c000000-7f1a2c021000 rw-p 00000000 00:00 0
7f1a30000000-7f1a30100000 r--p 00000000 fe:00 2 /usr/lib/apache2/modules/libphp8.2.so
7f1a30100000-7f1a30200000 r-xp 00100000 fe:00 2 /usr/lib/apache2/modules/libphp8.2.so
7f1a31000000-7f1a31001000 r--p 00000000 fe:00 3 /usr/lib/apache2/modules/mod_perl.so (deleted)
7f1a32000000-7f1a32001000 r--p 00000000 fe:00 4 /usr/lib/php/20220829/opcache.so
7ffd1c000000-7ffd1c021000 rw-p 00000000 00:00 0 [stack]
";

    #[test]
    fn languages_inside_of_workers_are_recognised() {
        assert_eq!(loaded(MAPS), ["php_module", "perl_module"]);
        assert!(loaded("").is_empty());
        // The test's own process runs none.
        let mut snapshot = ServiceSnapshot { pid: std::process::id(), ..ServiceSnapshot::default() };
        add(&mut snapshot);
        assert_eq!((snapshot.modules, snapshot.warnings), (vec![], vec![]));
    }

    #[test]
    fn opcache_in_workers_shows_by_the_memory_that_they_share() {
        let scoreboard = "7f77e2d9e000-7f77e2da8000 rw-s 00000000 00:01 507688 /dev/zero (deleted)\n";
        let cache = "41d1e000-49d1e000 rw-s 00000000 00:01 507690 /dev/zero (deleted)\n";
        assert_eq!(opcache_bytes(&format!("{MAPS}{scoreboard}")), Some(0));
        assert_eq!(opcache_bytes(&format!("{MAPS}{scoreboard}{cache}")), Some(128 << 20));
        assert_eq!(opcache_bytes(cache), None, "no PHP in there");
    }

    proptest! {
        // Any text: never a panic.
        #[test]
        fn any_maps_are_survived(text in "(\\PC|/|\n|libphp|\\.so){0,60}") {
            loaded(&text);
            opcache_bytes(&text);
        }
    }
}
