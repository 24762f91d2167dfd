//! Where things are on the modelled machine, and how its service is configured.

use std::path::{Path, PathBuf};

/// Where the journals are.
pub const STATE: &str = "/var/lib/webdyno";

/// Where the configuration is.
pub const ETC: &str = "/etc/apache2";

/// The time of day at the first boot: 2026-01-01.
pub const BEGIN_US: i64 = 1_767_225_600_000_000;

/// A line that the program does not know.
pub const INVALID: &str = "NoSuchDirective";

/// A line that passes every test, and ends the program when it sets itself up.
pub const DEADLY: &str = "CustomLog /no/such/folder/log";

/// Where it answers.
pub const PORT: u16 = 80;

/// The executable.
pub const PROGRAM: &str = "/usr/sbin/apache2";

/// How setting changes are written, and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConfigStyle {
    /// Whether MaxRequestWorkers is written where it is, and not into a late drop-in.
    pub workers_in_place: bool,
    /// Whether ServerLimit is.
    pub limit_in_place: bool,
    /// Values above this cannot be prepared.
    pub preparable_up_to: Option<i64>,
    /// Values above this are in files that Puppet manages.
    pub managed_above: Option<i64>,
    /// Whether the service does not do what it is told the next time that that is a restart.
    pub refuses_restart: bool,
    /// A line that spoils it.
    pub poison: Option<&'static str>,
}

impl ConfigStyle {
    /// What a test and a start make of such a line.
    pub const POISONS: [&'static str; 2] = [INVALID, DEADLY];

    /// Where a setting is written.
    pub fn path(self, setting: &str) -> PathBuf {
        let in_place = if setting == "ServerLimit" { self.limit_in_place } else { self.workers_in_place };
        Path::new(ETC).join(if in_place { "mods-enabled/mpm.conf" } else { "conf-enabled/zz-webdyno.conf" })
    }
}
