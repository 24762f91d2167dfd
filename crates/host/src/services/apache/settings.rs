//! The settings of Apache that webdyno knows: their names, defaults and how a change takes effect.
//!
//! Sources: https://httpd.apache.org/docs/2.4/mod/mpm_common.html, core.html, event.html, mod_log_config.html, mod_deflate.html; the
//! defaults of the MPMs from server/mpm/*/*.c and include/ap_listen.h. What a graceful reload ignores is in the same
//! files (AH00179, AH00501, AH00506); ListenBacklog is given to listen(2), and a reload keeps the listening socket.

use crate::services::common::shape::Shape;
use webdyno_model::change::ApplyClass;
use webdyno_model::service::SettingValue;

/// A processing module of Apache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpm {
    /// A process per connection.
    Prefork,
    /// Threads in processes, a thread per connection.
    Worker,
    /// Threads in processes, idle connections without a thread.
    Event,
}

impl Mpm {
    /// Reads `prefork`, `worker`, `event`.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "prefork" => Some(Self::Prefork),
            "worker" => Some(Self::Worker),
            "event" => Some(Self::Event),
            _ => None,
        }
    }

    /// `prefork`, `worker`, `event`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefork => "prefork",
            Self::Worker => "worker",
            Self::Event => "event",
        }
    }

    /// The symbol that `<IfModule>` finds.
    pub fn module(self) -> &'static str {
        match self {
            Self::Prefork => "mpm_prefork_module",
            Self::Worker => "mpm_worker_module",
            Self::Event => "mpm_event_module",
        }
    }
}

/// A setting of Apache.
#[derive(Debug)]
pub struct Setting {
    /// The name that webdyno uses: today's.
    pub name: &'static str,
    /// All names of its directive, today's first.
    pub names: &'static [&'static str],
    /// What a value may be.
    pub shape: Shape,
    /// How a change takes effect at least.
    pub class: ApplyClass,
    /// Defaults under prefork, worker, event; `None` when that MPM does not know it.
    defaults: [Option<&'static str>; 3],
    /// Whether it belongs to the MPM.
    pub of_mpm: bool,
    /// The modules that it needs beside that: they must be loaded, and where they are not one day it is skipped.
    pub modules: &'static [&'static str],
}

impl Setting {
    /// The default under an MPM; `None` when that MPM does not know the setting.
    pub fn default(&self, mpm: Mpm) -> Option<SettingValue> {
        self.defaults[mpm as usize].map(SettingValue::parse)
    }
}

/// Finds a setting by any of its names, in any case.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.names.iter().any(|known| known.eq_ignore_ascii_case(name)))
}

const ON_OFF: Shape = Shape::Word(&["On", "Off"]);
/// MAX_SERVER_LIMIT of prefork; worker and event stop at 20000.
const PROCESSES_MAX: i64 = 200_000;
const COUNT_MAX: i64 = i32::MAX as i64;

const fn mpm(
    names: &'static [&'static str],
    min: i64,
    max: i64,
    class: ApplyClass,
    defaults: [Option<&'static str>; 3],
) -> Setting {
    Setting {
        name: names[0],
        names,
        shape: Shape::Integer(min, max),
        class,
        defaults,
        of_mpm: true,
        modules: &[],
    }
}

const fn core(
    names: &'static [&'static str],
    shape: Shape,
    class: ApplyClass,
    default: &'static str,
) -> Setting {
    Setting { name: names[0], names, shape, class, defaults: [Some(default); 3], of_mpm: false, modules: &[] }
}

use ApplyClass::{Reload, Restart};

/// All settings.
pub const SETTINGS: &[Setting] = &[
    mpm(
        &["MaxRequestWorkers", "MaxClients"],
        1,
        PROCESSES_MAX,
        Reload,
        [Some("256"), Some("400"), Some("400")],
    ),
    mpm(&["ServerLimit"], 1, PROCESSES_MAX, Restart, [Some("256"), Some("16"), Some("16")]),
    mpm(&["ThreadsPerChild"], 1, 20_000, Reload, [None, Some("25"), Some("25")]),
    mpm(&["ThreadLimit"], 1, 20_000, Restart, [None, Some("64"), Some("64")]),
    mpm(&["StartServers"], 1, PROCESSES_MAX, Reload, [Some("5"), Some("3"), Some("3")]),
    mpm(&["MinSpareServers"], 1, PROCESSES_MAX, Reload, [Some("5"), None, None]),
    mpm(&["MaxSpareServers"], 1, PROCESSES_MAX, Reload, [Some("10"), None, None]),
    mpm(&["MinSpareThreads"], 1, PROCESSES_MAX, Reload, [None, Some("75"), Some("75")]),
    mpm(&["MaxSpareThreads"], 1, PROCESSES_MAX, Reload, [None, Some("250"), Some("250")]),
    mpm(
        &["MaxConnectionsPerChild", "MaxRequestsPerChild"],
        0,
        COUNT_MAX,
        Reload,
        [Some("0"), Some("0"), Some("0")],
    ),
    Setting {
        name: "AsyncRequestWorkerFactor",
        names: &["AsyncRequestWorkerFactor"],
        shape: Shape::Factor,
        class: Reload,
        defaults: [None, None, Some("2")],
        of_mpm: true,
        modules: &[],
    },
    mpm(&["ListenBacklog"], 1, COUNT_MAX, Restart, [Some("511"); 3]),
    core(&["KeepAlive"], ON_OFF, Reload, "On"),
    core(&["KeepAliveTimeout"], Shape::Time, Reload, "5"),
    core(&["MaxKeepAliveRequests"], Shape::Integer(0, COUNT_MAX), Reload, "100"),
    core(&["Timeout"], Shape::Integer(1, 1_000_000), Reload, "60"),
    core(&["HostnameLookups"], Shape::Word(&["On", "Off", "Double"]), Reload, "Off"),
    core(&["ExtendedStatus"], ON_OFF, Reload, "Off"),
    core(
        &["LogLevel"],
        Shape::Word(&["emerg", "alert", "crit", "error", "warn", "notice", "info"]),
        Reload,
        "warn",
    ),
    core(&["BufferedLogs"], ON_OFF, Reload, "Off"),
    core(&["EnableSendfile"], ON_OFF, Reload, "Off"),
    core(&["EnableMMAP"], ON_OFF, Reload, "On"),
    Setting {
        modules: &["deflate_module"],
        // The default of zlib.
        ..core(&["DeflateCompressionLevel"], Shape::Integer(1, 9), Reload, "6")
    },
    Setting {
        modules: &["ssl_module", "socache_shmcb_module"],
        ..core(&["SSLSessionCache"], Shape::Word(&[SESSION_CACHE, "none"]), Reload, "none")
    },
];

/// Half a megabyte of shared memory, below DefaultRuntimeDir.
const SESSION_CACHE: &str = "shmcb:ssl_scache(512000)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_mpm() {
        for (name, mpm, expected) in [
            ("MaxRequestWorkers", Mpm::Prefork, Some(256)),
            ("maxclients", Mpm::Event, Some(400)),
            ("ServerLimit", Mpm::Worker, Some(16)),
            ("MinSpareServers", Mpm::Event, None),
            ("ThreadsPerChild", Mpm::Prefork, None),
            ("MaxRequestsPerChild", Mpm::Prefork, Some(0)),
            ("ListenBacklog", Mpm::Event, Some(511)),
        ] {
            let setting = find(name).unwrap();
            assert_eq!(setting.default(mpm), expected.map(SettingValue::Integer), "{name}");
        }
        assert!(find("DocumentRoot").is_none());
    }

    #[test]
    fn values_must_have_the_shape_of_the_setting() {
        for (name, value, expected) in [
            ("MaxRequestWorkers", "150", true),
            ("MaxRequestWorkers", "0", false),
            ("MaxRequestWorkers", "many", false),
            ("KeepAlive", "off", true),
            ("KeepAlive", "maybe", false),
            ("KeepAliveTimeout", "3", true),
            ("KeepAliveTimeout", "300ms", true),
            ("KeepAliveTimeout", "3\nUser root", false),
            ("AsyncRequestWorkerFactor", "2.5", true),
            ("AsyncRequestWorkerFactor", "-1", false),
            ("LogLevel", "warn", true),
            ("LogLevel", "trace8", false),
            ("SSLSessionCache", "shmcb:ssl_scache(512000)", true),
            ("SSLSessionCache", "shmcb:/etc/passwd", false),
            ("EnableSendfile", "on", true),
            ("DeflateCompressionLevel", "10", false),
        ] {
            let setting = find(name).unwrap();
            assert_eq!(setting.shape.accepts(&SettingValue::parse(value)), expected, "{name} {value:?}");
            assert!(!setting.shape.expects().is_empty());
        }
    }
}
