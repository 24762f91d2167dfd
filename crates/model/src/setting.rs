//! Settings by name: which setting of what.
//!
//! In outputs and logs a setting is two words, `service` and `setting`, as docs/contract.md has them.

use serde::{Deserialize, Serialize};

/// What a setting belongs to: decides who can change it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A program, by its name in snapshots: `apache`, `mariadb`.
    Service(String),
    /// The kernel's settings, below /proc/sys.
    Sysctl,
    /// A limit that a service's processes inherit from what starts them; the service's name.
    ProcessLimit(String),
    /// The server's machine.
    Hardware,
    /// The program of the site.
    Application,
    /// The load generator.
    Generator,
    /// Something beyond the server: `clients`, `network`, `protection`.
    External(String),
}

/// The words that name something beyond the server.
const EXTERNAL: [&str; 4] = ["backend", "clients", "network", "protection"];

/// Limits of processes, as systemd names them (systemd.exec(5), systemd.resource-control(5)), and of their listening sockets
/// (listen(2)).
const PROCESS_LIMITS: [&str; 6] =
    ["AllowedCPUs", "LimitNOFILE", "LimitNPROC", "MemoryMax", "TasksMax", "backlog"];

/// Short names that a person may write, and what they stand for.
const SHORT_NAMES: [(&str, &str); 2] = [("cpus", "AllowedCPUs"), ("memory", "MemoryMax")];

impl Target {
    /// The word for it in outputs: a process limit is found under the service that it limits.
    pub fn name(&self) -> &str {
        match self {
            Self::Service(name) | Self::ProcessLimit(name) | Self::External(name) => name,
            Self::Sysctl => "sysctl",
            Self::Hardware => "hardware",
            Self::Application => "application",
            Self::Generator => "generator",
        }
    }
}

/// A setting, by what it belongs to and its name there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "SettingText", into = "SettingText")]
pub struct SettingId {
    /// What it belongs to.
    pub target: Target,
    /// `MaxRequestWorkers`, `net.core.somaxconn`, `memory`.
    pub name: String,
    /// The pool of PHP-FPM, the upstream of nginx or the backend of a proxy whose value it is; `None` for what holds for the whole target.
    pub pool: Option<String>,
    /// The part of a site whose value it is, as host and path of its root: `example.org/shop/`; `None` for what holds for the whole
    /// target.
    pub part: Option<String>,
}

/// A setting as outputs and logs write it.
#[derive(Serialize, Deserialize)]
struct SettingText {
    /// What it belongs to: `apache`, `mariadb`, `sysctl`, `hardware`, ...
    service: String,
    /// `MaxRequestWorkers`, `net.core.somaxconn`, `memory`.
    setting: String,
    /// The pool of PHP-FPM, the upstream of nginx or the backend of a proxy whose value it is; `None` for what holds for the whole service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// The part of a site whose value it is: host, and path of its root (`example.org/shop/`); `None` for what holds for the whole
    /// service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    part: Option<String>,
}

impl SettingId {
    /// A setting of a service; of its processes where the name is that of such a limit.
    pub fn of_service(service: impl Into<String>, name: impl Into<String>) -> Self {
        let (service, name) = (service.into(), name.into());
        let is_limit = PROCESS_LIMITS.contains(&name.as_str());
        let target = if is_limit { Target::ProcessLimit(service) } else { Target::Service(service) };
        Self::of_target(target, name)
    }

    /// A setting of a service by the name that a person writes: `cpus` for `AllowedCPUs`, `memory` for `MemoryMax`.
    pub fn of_service_by_short_name(service: impl Into<String>, name: &str) -> Self {
        let full = SHORT_NAMES.iter().find(|(short, _)| *short == name).map(|(_, full)| *full);
        Self::of_service(service, full.unwrap_or(name))
    }

    fn of_target(target: Target, name: impl Into<String>) -> Self {
        Self { target, name: name.into(), pool: None, part: None }
    }

    /// The same setting of one pool.
    pub fn of_pool(self, pool: impl Into<String>) -> Self {
        Self { pool: Some(pool.into()), ..self }
    }

    /// The same setting of one part of a site.
    pub fn of_part(self, part: impl Into<String>) -> Self {
        Self { part: Some(part.into()), ..self }
    }

    /// `apache MaxRequestWorkers`, `apache Options at example.org/shop/`.
    pub fn full_name(&self) -> String {
        let pool = self.pool.as_ref().map_or(String::new(), |pool| format!(" of pool {pool}"));
        let part = self.part.as_ref().map_or(String::new(), |part| format!(" at {part}"));
        format!("{} {}{pool}{part}", self.target.name(), self.name)
    }

    /// A setting of the kernel.
    pub fn sysctl(name: impl Into<String>) -> Self {
        Self::of_target(Target::Sysctl, name)
    }

    /// Something of the server's machine.
    pub fn hardware(name: impl Into<String>) -> Self {
        Self::of_target(Target::Hardware, name)
    }

    /// Something of the site's program.
    pub fn application(name: impl Into<String>) -> Self {
        Self::of_target(Target::Application, name)
    }

    /// Something of the load generator.
    pub fn generator(name: impl Into<String>) -> Self {
        Self::of_target(Target::Generator, name)
    }

    /// Something beyond the server.
    pub fn external(what: impl Into<String>, name: impl Into<String>) -> Self {
        Self::of_target(Target::External(what.into()), name)
    }
}

impl From<SettingText> for SettingId {
    fn from(SettingText { service, setting, pool, part }: SettingText) -> Self {
        let id = match service.as_str() {
            "sysctl" => Self::sysctl(setting),
            "hardware" => Self::hardware(setting),
            "application" => Self::application(setting),
            "generator" => Self::generator(setting),
            word if EXTERNAL.contains(&word) => Self::external(service, setting),
            _ => Self::of_service(service, setting),
        };
        Self { pool, part, ..id }
    }
}

impl From<SettingId> for SettingText {
    fn from(id: SettingId) -> Self {
        Self { service: id.target.name().to_owned(), setting: id.name, pool: id.pool, part: id.part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::SettingChange;

    #[test]
    fn short_names_stand_for_those_of_systemd() {
        let of = |name| SettingId::of_service_by_short_name("apache", name).full_name();
        assert_eq!(
            ["cpus", "memory", "MemoryMax", "KeepAlive"].map(of),
            ["apache AllowedCPUs", "apache MemoryMax", "apache MemoryMax", "apache KeepAlive"]
        );
    }

    // Old recordings and journals are read, and new ones are written, with these two words.
    #[test]
    fn a_setting_is_two_words_in_json() {
        for (service, setting, target) in [
            ("apache", "MaxRequestWorkers", Target::Service("apache".into())),
            ("php_fpm", "pm.max_children", Target::Service("php_fpm".into())),
            ("unknown", "LimitNOFILE", Target::ProcessLimit("unknown".into())),
            ("apache", "AllowedCPUs", Target::ProcessLimit("apache".into())),
            ("mariadb", "memory", Target::Service("mariadb".into())),
            ("sysctl", "net.core.somaxconn", Target::Sysctl),
            ("hardware", "memory", Target::Hardware),
            ("application", "persistent connections", Target::Application),
            ("generator", "-t", Target::Generator),
            ("clients", "keep-alive", Target::External("clients".into())),
        ] {
            let text = format!(r#"{{"service":"{service}","setting":"{setting}","to":7}}"#);
            let change: SettingChange = serde_json::from_str(&text).unwrap();
            assert_eq!((&change.setting.target, change.setting.name.as_str()), (&target, setting));
            assert_eq!(serde_json::to_string(&change).unwrap(), text);
            let of_pool = text.replace(r#","to""#, r#","pool":"www","to""#);
            let change: SettingChange = serde_json::from_str(&of_pool).unwrap();
            assert_eq!((change.setting.pool.as_deref(), &change.setting.target), (Some("www"), &target));
            assert_eq!(serde_json::to_string(&change).unwrap(), of_pool);
            let of_part = text.replace(r#","to""#, r#","part":"h/shop/","to""#);
            let change: SettingChange = serde_json::from_str(&of_part).unwrap();
            assert!(change.setting.full_name().ends_with(" at h/shop/"));
            assert_eq!(serde_json::to_string(&change).unwrap(), of_part);
        }
    }
}
