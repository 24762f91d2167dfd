//! A service as it was discovered: which program serves the port, and the values of its settings that are in force.

use crate::sample::MissingSignal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A discovered service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ServiceSnapshot {
    /// `apache`, or `unknown` with the name of the executable in `executable`.
    pub service: String,
    /// The process whose end would end the service; 0 when it cannot be seen without rights.
    pub pid: u32,
    /// Its executable.
    pub executable: Option<String>,
    /// Version as the program tells it.
    pub version: Option<String>,
    /// The port under load, or the first one that a backend listens on; 0, written as null, when it has none (it listens
    /// on a unix socket, or it was not told).
    #[serde(with = "port_or_null", default)]
    pub port: u16,
    /// `prefork`, `worker`, `event` for Apache.
    pub mode: Option<String>,
    /// The main configuration file.
    pub config_file: Option<String>,
    /// The URL of the status page, without query.
    pub status_url: Option<String>,
    /// Settings by name.
    pub settings: BTreeMap<String, SettingInForce>,
    /// Signals that this service could give and does not.
    pub missing: Vec<MissingSignal>,
    /// Problems found while reading it, in words.
    pub warnings: Vec<String>,
    /// What waits for the next reload and would take effect with any change of ours: file and why, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// What it does for the site: `web`, `php`, `db`; `None` when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Where it listens: `127.0.0.1:3306`, `unix:/run/php/php8.2-fpm.sock`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listens: Vec<String>,
    /// Modules that are loaded, by the names that the program gives them: `mpm_event_module`, `php_module`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Where the program tells about itself, beside `status_url`: the pools of PHP-FPM, the socket of a database.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// The logs that it writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<LogFile>,
    /// Values of settings that hold in a part of the site only: in a virtual host, a directory, a pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scoped: Vec<ScopedSetting>,
    /// The statements that took a database longest since it began to count them, without their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<Statement>,
    /// How it was started and how it is told to reload. Stays on the server and in its journal: the event log gets
    /// [`ServiceSnapshot::for_log`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
}

/// What a database did for all statements of one form.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Statement {
    /// Names the form: the instance in the metrics of statements. Empty where the database does not count statements and this
    /// one was only seen to run.
    pub digest: String,
    /// The form, a question mark in place of each value.
    pub text: String,
    /// How often it was executed; without a digest, how often it was seen to run.
    pub executions_count: u64,
    /// How long that took in all.
    pub time_us: u64,
    /// Rows that were looked at in all.
    pub rows_examined_count: u64,
    /// How often no index was used.
    pub without_index_count: u64,
}

/// A place where a program tells about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Endpoint {
    /// What it is of: the name of a pool, `server`.
    pub name: String,
    /// Where to connect: `127.0.0.1:9000`, `unix:/run/mysqld/mysqld.sock`.
    pub address: String,
    /// The path to ask for, where there is one: `/status`.
    pub path: Option<String>,
}

/// A log file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogFile {
    /// Absolute.
    pub path: String,
    /// What is written there.
    pub kind: LogKind,
    /// The part of the site that it is of; `None` for the whole server.
    pub scope: Option<String>,
    /// How its lines are built, where that is told: the format of an access log.
    pub format: Option<String>,
}

/// What is written to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogKind {
    /// What went wrong.
    #[default]
    Error,
    /// Each request.
    Access,
    /// Requests or statements that took long.
    Slow,
}

/// A part of the site, or of a program, to which a setting is limited. It is written as its kind and its name in one string:
/// `Directory /var/www`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum SettingScope {
    /// The addresses and the name of a host: `*:80 example.org`.
    VirtualHost(String),
    /// The root of a host's documents: what holds there, wherever it is written.
    DocumentRoot(String),
    /// A directory, or a pattern of them.
    Directory(String),
    /// A file's name, or a pattern.
    Files(String),
    /// The beginning of a URL's path.
    Location(String),
    /// A pool of PHP-FPM.
    Pool(String),
    /// A part of another kind, in the words of the service.
    Other(String),
}

impl From<String> for SettingScope {
    fn from(text: String) -> Self {
        let (kind, name) = text.split_once(' ').unwrap_or_default();
        match kind {
            "VirtualHost" => Self::VirtualHost(name.to_owned()),
            "DocumentRoot" => Self::DocumentRoot(name.to_owned()),
            "Directory" => Self::Directory(name.to_owned()),
            "Files" => Self::Files(name.to_owned()),
            "Location" => Self::Location(name.to_owned()),
            "pool" => Self::Pool(name.to_owned()),
            _ => Self::Other(text),
        }
    }
}

impl From<&str> for SettingScope {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl fmt::Display for SettingScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VirtualHost(name) => write!(f, "VirtualHost {name}"),
            Self::DocumentRoot(path) => write!(f, "DocumentRoot {path}"),
            Self::Directory(path) => write!(f, "Directory {path}"),
            Self::Files(name) => write!(f, "Files {name}"),
            Self::Location(path) => write!(f, "Location {path}"),
            Self::Pool(name) => write!(f, "pool {name}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl From<SettingScope> for String {
    fn from(scope: SettingScope) -> Self {
        scope.to_string()
    }
}

/// The value of a setting in a part of the site.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScopedSetting {
    /// `AllowOverride`.
    pub setting: String,
    /// As it is written in the file.
    pub value: String,
    /// The part, from the outside.
    pub scope: Vec<SettingScope>,
    /// The file.
    pub file: Option<String>,
    /// Its line, from 1.
    pub line: Option<u32>,
}

impl ScopedSetting {
    /// The parts as they are written, from the outside.
    pub fn parts(&self) -> Vec<String> {
        self.scope.iter().map(ToString::to_string).collect()
    }

    /// The innermost part as it is written; empty for the whole server.
    pub fn innermost(&self) -> String {
        self.scope.last().map(ToString::to_string).unwrap_or_default()
    }
}

/// A port that is not known is null in JSON.
mod port_or_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(port: &u16, serializer: S) -> Result<S::Ok, S::Error> {
        Some(*port).filter(|port| *port != 0).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
        Ok(Option::<u16>::deserialize(deserializer)?.unwrap_or(0))
    }
}

/// How a service was started, and by what it is controlled: all that is needed to reload it, or to start it again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Control {
    /// The main process.
    pub pid: u32,
    /// Its start time in clock ticks since boot: with the pid it names one process for ever.
    pub start_ticks: u64,
    /// Absolute path of the executable.
    pub executable: String,
    /// The arguments it was started with, the program's name first.
    pub arguments: Vec<String>,
    /// The environment variables that its configuration needs.
    pub environment: BTreeMap<String, String>,
    /// Its working directory.
    pub directory: String,
    /// The file that holds the main process id.
    pub pid_file: Option<String>,
    /// The systemd unit that runs it, where systemd does.
    pub unit: Option<String>,
    /// Whether something else would start it again (it runs in the foreground of a supervisor).
    pub supervised: bool,
    /// What else it has from whoever started it; `None` where that was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Inherited>,
}

/// What a process has from whoever started it, beside its arguments, environment and directory. What could not be read
/// is left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Inherited {
    /// The permission bits that new files do not get.
    pub umask: Option<u32>,
    /// Its nice value: from -20, the most favoured, to 19.
    pub nice: Option<i32>,
    /// How likely it is to be ended when memory runs out: from -1000, never, to 1000.
    pub oom_score_adj: Option<i32>,
    /// Soft limits by their names in proc_pid_limits(5); `None` is unlimited.
    pub limits: BTreeMap<String, Option<u64>>,
    /// In which of the kernel's name spaces and groups it runs, and as whom; `None` in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<ProcessLocation>,
}

/// Where a process runs, as far as that is not where the reader ran, and as whom.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessLocation {
    /// Its namespaces that were not the reader's, by their names in proc_pid_ns(5).
    pub namespaces: BTreeMap<String, FileId>,
    /// The directories of its control groups that were not the reader's.
    pub control_groups: Vec<String>,
    /// User and groups that were not the reader's.
    pub user: Option<UserIds>,
}

/// A file or directory, or a namespace, named as long as it exists: inode numbers are given away again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileId {
    /// The device that it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// As whom a process acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserIds {
    /// Its effective user.
    pub user: u32,
    /// Its effective group.
    pub group: u32,
    /// Its other groups.
    pub others: Vec<u32>,
}

/// Services whose process is known, each with the name that its values have: further ones of a program have a number
/// (`unknown_2`).
pub fn numbered(services: &[ServiceSnapshot]) -> impl Iterator<Item = (String, &ServiceSnapshot)> {
    let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
    services.iter().filter(|service| service.pid != 0).map(move |service| {
        let number = numbers.entry(&service.service).or_default();
        *number += 1;
        let name = match number {
            1 => service.service.clone(),
            number => format!("{}_{number}", service.service),
        };
        (name, service)
    })
}

impl ServiceSnapshot {
    /// The snapshot as it may be written to the event log: without the environment it was started in, and of the formats
    /// of logs only what is told by their directives, as the text between them may be anything.
    #[must_use]
    pub fn for_log(&self) -> Self {
        let format = |log: &LogFile| LogFile { format: log.format.as_deref().map(directives), ..log.clone() };
        Self { control: None, logs: self.logs.iter().map(format).collect(), ..self.clone() }
    }

    /// The number that the configuration gives a setting, or the program's default.
    pub fn configured_number(&self, setting: &str) -> Option<f64> {
        let found = self.settings.get(setting)?;
        found.configured.as_ref().or(found.default.as_ref())?.number()
    }

    /// Each `listen` of nginx that names its port, in their order.
    pub fn listens_at_port(&self) -> impl Iterator<Item = &ScopedSetting> {
        let port = self.port.to_string();
        self.scoped.iter().filter(move |one| {
            let address = one.value.split_ascii_whitespace().next().unwrap_or_default();
            one.setting == "listen" && port_of(address) == Some(port.as_str())
        })
    }

    /// The backlog that it asks for at its port; 511 where nginx is told none.
    pub fn requested_backlog(&self) -> Option<f64> {
        if self.service != "nginx" {
            return self.number("ListenBacklog");
        }
        let words = self.listens_at_port().flat_map(|one| one.value.split_ascii_whitespace());
        let asked = words.filter_map(|word| word.strip_prefix("backlog=")?.parse().ok());
        Some(asked.reduce(f64::max).unwrap_or(511.0))
    }

    /// The number in force for a setting: the running value where it is known, else the configured or default one.
    pub fn number(&self, setting: &str) -> Option<f64> {
        let found = self.settings.get(setting)?;
        let value = found.running.as_ref().or(found.configured.as_ref()).or(found.default.as_ref())?;
        value.number()
    }
}

/// The port of a `listen` of nginx, 80 where only an address is given; `None` for a socket in the file system.
fn port_of(address: &str) -> Option<&str> {
    let is_number = |last: &&str| !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    let given = address.rsplit(':').next().filter(is_number);
    given.or((!address.is_empty() && !address.starts_with("unix:")).then_some("80"))
}

/// The directives of the format of a log, without the text between them: `%h "%r" key %{Cookie}i` becomes `%h %r %{Cookie}i`.
fn directives(format: &str) -> String {
    let mut found = vec![];
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        rest = &rest[at..];
        let modifiers = rest[1..].find(|letter: char| !"!<>,^".contains(letter) && !letter.is_ascii_digit());
        let Some(start) = modifiers.map(|length| 1 + length) else { break };
        // What stands in braces is the name of a header or variable, else it is left out.
        let name =
            rest[start..].strip_prefix('{').and_then(|inner| inner.split_once('}')).map(|(name, _)| name);
        let end = start + name.map_or(0, |name| name.len() + 2);
        let plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_:%".contains(c));
        let length = rest[end..].chars().next().map_or(0, char::len_utf8);
        if length > 0 && name.is_none_or(plain) && rest[end..].starts_with(|c: char| c.is_ascii_alphabetic())
        {
            found.push(&rest[..end + length]);
        }
        rest = &rest[end + length..];
    }
    found.join(" ")
}

/// One setting and where its value comes from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SettingInForce {
    /// The value that the configuration files give, the last one that wins.
    pub configured: Option<SettingValue>,
    /// The value the program takes without any configuration.
    pub default: Option<SettingValue>,
    /// The value that the running program shows, where it shows it.
    pub running: Option<SettingValue>,
    /// The file of the configured value.
    pub file: Option<String>,
    /// Its line, from 1.
    pub line: Option<u32>,
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// A whole number.
    Integer(i64),
    /// Anything else, as it is written in the file.
    Text(String),
}

impl SettingValue {
    /// Reads a value as it is written in a file.
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Text(text.to_owned()), Self::Integer)
    }

    /// The value as a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

impl std::fmt::Display for SettingValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_between_the_directives_of_a_log_stays_on_the_server() {
        for (format, expected) in [
            ("%h \"%r\" key=secret %>s %{Cookie}i", "%h %r %>s %{Cookie}i"),
            ("%!200,304{User-agent}i%%%D", "%!200,304{User-agent}i %D"),
            ("%{secret text}t %{%Y-%m-%d}t", "%{%Y-%m-%d}t"),
            ("secret", ""),
            ("%", ""),
            ("%{open", ""),
            ("%ä%b", "%b"),
        ] {
            assert_eq!(directives(format), expected, "{format}");
        }
    }

    #[test]
    fn nginx_listens_at_80_where_no_port_is_given() {
        for (address, port) in [
            ("8080", Some("8080")),
            ("192.0.2.1:8080", Some("8080")),
            ("[::]:443", Some("443")),
            ("192.0.2.1", Some("80")),
            ("[::1]", Some("80")),
            ("unix:/run/nginx.sock", None),
        ] {
            assert_eq!(port_of(address), port, "{address}");
        }
    }

    #[test]
    fn scopes_are_written_as_they_were_read() {
        let known = [
            "VirtualHost *:80 a.example",
            "DocumentRoot /srv/a b/",
            "Directory /srv",
            "Files x.php",
            "Location /a",
            "pool www",
        ];
        for (text, is_known) in
            known.map(|text| (text, true)).into_iter().chain([("server a.example", false), ("pool", false)])
        {
            let json = serde_json::to_string(text).unwrap();
            let scope: SettingScope = serde_json::from_str(&json).unwrap();
            assert_eq!(!matches!(scope, SettingScope::Other(_)), is_known, "{text}");
            assert_eq!(serde_json::to_string(&scope).unwrap(), json);
        }
    }
}
