//! The settings of PHP-FPM and PHP that webdyno changes: where each stands, and which values it takes.
//!
//! Facts: <https://www.php.net/manual/en/install.fpm.configuration.php>,
//! <https://www.php.net/manual/en/opcache.configuration.php>, <https://www.php.net/manual/en/ini.core.php>. A reload of
//! FPM executes the program anew: all of these are read again, and OPcache begins empty. What would change how the site
//! behaves (`opcache.validate_timestamps`) or needs a new listening socket (`listen.backlog`) is not here.

use crate::services::common::shape::{self, Shape};

/// Where a setting stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the section of a pool.
    Pool,
    /// In `[global]`.
    Global,
    /// In php.ini and the files beside it.
    Ini,
}

/// A setting that webdyno changes.
pub type Setting = shape::Setting<Place>;

/// All of them.
#[rustfmt::skip] // a table, one setting a line
pub const SETTINGS: [Setting; 15] = [
    Setting { name: "pm",                              place: Place::Pool,   shape: Shape::Word(&["static", "dynamic", "ondemand"]) },
    Setting { name: "pm.max_children",                 place: Place::Pool,   shape: Shape::Integer(1, 65_535) },
    Setting { name: "pm.start_servers",                place: Place::Pool,   shape: Shape::Integer(1, 65_535) },
    Setting { name: "pm.min_spare_servers",            place: Place::Pool,   shape: Shape::Integer(1, 65_535) },
    Setting { name: "pm.max_spare_servers",            place: Place::Pool,   shape: Shape::Integer(1, 65_535) },
    Setting { name: "pm.max_requests",                 place: Place::Pool,   shape: Shape::Integer(0, 10_000_000) },
    Setting { name: "rlimit_files",                    place: Place::Pool,   shape: Shape::Integer(64, 1_048_576) },
    Setting { name: "process.max",                     place: Place::Global, shape: Shape::Integer(0, 65_535) },
    Setting { name: "opcache.enable",                  place: Place::Ini,    shape: Shape::Integer(0, 1) },
    Setting { name: "opcache.memory_consumption",      place: Place::Ini,    shape: Shape::Integer(8, 65_536) },
    Setting { name: "opcache.interned_strings_buffer", place: Place::Ini,    shape: Shape::Integer(1, 4_096) },
    Setting { name: "opcache.max_accelerated_files",   place: Place::Ini,    shape: Shape::Integer(200, 1_000_000) },
    Setting { name: "opcache.revalidate_freq",         place: Place::Ini,    shape: Shape::Integer(0, 3_600) },
    Setting { name: "realpath_cache_size",             place: Place::Ini,    shape: Shape::Integer(0, 1 << 30) },
    Setting { name: "realpath_cache_ttl",              place: Place::Ini,    shape: Shape::Integer(0, 86_400) },
];

/// A setting by its name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}
