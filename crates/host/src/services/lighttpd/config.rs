//! lighttpd's configuration with what it includes, and what it comes to.
//!
//! Facts: <https://redmine.lighttpd.net/projects/lighttpd/wiki/Docs_ConfigurationOptions>, the pages of mod_fastcgi, mod_proxy
//! and mod_status there. A later value wins; `+=` adds to a list.

use super::syntax::{self, Kind, Statement, Value};
use crate::visibility::process_view::Root;
use std::collections::BTreeMap;
use webdyno_model::service::{LogFile, LogKind, ScopedSetting, SettingInForce, SettingValue};

/// How deep includes may nest.
const DEPTH_MAX: usize = 16;

/// Most files that are read; one that is included from many places counts each time.
const FILES_MAX: usize = 2_000;

/// Most values that are kept.
const VALUES_MAX: usize = 20_000;

/// Most values of parts of the site that are told.
const SCOPED_MAX: usize = 2_000;

/// Most problems that are told.
const PROBLEMS_MAX: usize = 20;

/// Settings that hold no secrets and say something about load, with their defaults where versions agree.
const SETTINGS: [(&str, Option<&str>); 25] = [
    ("accesslog.filename", None),
    ("connection.kbytes-per-second", Some("0")),
    ("deflate.cache-dir", None),
    ("deflate.mimetypes", None),
    ("evasive.max-conns-per-ip", None),
    ("server.bind", None),
    ("server.document-root", None),
    ("server.errorlog", None),
    ("server.event-handler", None),
    ("server.kbytes-per-second", Some("0")),
    ("server.listen-backlog", Some("1024")),
    ("server.max-connections", None),
    ("server.max-fds", None),
    ("server.max-keep-alive-idle", Some("5")),
    ("server.max-keep-alive-requests", None),
    ("server.max-read-idle", Some("60")),
    ("server.max-request-size", None),
    ("server.max-worker", Some("0")),
    ("server.max-write-idle", Some("360")),
    ("server.network-backend", None),
    ("server.port", Some("80")),
    ("server.stat-cache-engine", Some("simple")),
    ("server.stream-request-body", Some("0")),
    ("server.stream-response-body", Some("0")),
    ("status.status-url", None),
];

/// Settings that pass requests on.
const PASSES: [&str; 6] =
    ["fastcgi.server", "proxy.server", "scgi.server", "ajp13.server", "sockproxy.server", "wstunnel.server"];

/// How lines of access logs are written where nothing is said of it (mod_accesslog.c).
const LOG_FORMAT: &str = r#"%h %V %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#;

/// A value with where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Placed {
    key: String,
    value: Value,
    adds: bool,
    /// The conditions around it, from the outside.
    scope: Vec<String>,
    file: String,
    line: u32,
}

/// A configuration as it was read.
#[derive(Debug, Clone, Default)]
pub struct Config {
    values: Vec<Placed>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
}

/// Reads the configuration that begins with a file.
pub fn read(root: &Root, main_file: &str) -> Config {
    let folder = main_file.rsplit_once('/').map_or("/", |(folder, _)| folder).to_owned();
    let mut reader = Reader { root, folder, open: vec![], files_count: 0, config: Config::default() };
    reader.file(main_file, &mut vec![]);
    reader.config.problems.truncate(PROBLEMS_MAX);
    reader.config
}

struct Reader<'a> {
    root: &'a Root,
    folder: String,
    open: Vec<String>,
    files_count: usize,
    config: Config,
}

impl Reader<'_> {
    fn problem(&mut self, message: String) {
        if self.config.problems.len() < PROBLEMS_MAX {
            self.config.problems.push(message);
        }
    }

    fn file(&mut self, path: &str, scope: &mut Vec<String>) {
        self.files_count += 1;
        let text = match self.root.read_text(path) {
            Ok(text) => text,
            Err(error) => return self.problem(webdyno_model::error::io_error("read", path, &error).message),
        };
        if text.contains('\u{fffd}') {
            self.problem(format!("{path} is not UTF-8: what is not is shown as \u{fffd}"));
        }
        let (statements, problems) = syntax::parse(&text);
        for (line, shown) in problems {
            self.problem(format!("{path}:{line}: {shown}"));
        }
        self.open.push(path.to_owned());
        self.take(statements, path, scope);
        self.open.pop();
    }

    fn take(&mut self, statements: Vec<Statement>, file: &str, scope: &mut Vec<String>) {
        for Statement { line, kind } in statements {
            match kind {
                Kind::Set(key, value, adds) if self.config.values.len() < VALUES_MAX => {
                    let (scope, file) = (scope.clone(), file.to_owned());
                    self.config.values.push(Placed { key, value, adds, scope, file, line });
                }
                Kind::Set(..) => {
                    self.problem(format!("more than {VALUES_MAX} values: the others are left out"))
                }
                Kind::Include(pattern) => self.include(&pattern, file, line, scope),
                Kind::Shell => self.problem(format!("{file}:{line}: what include_shell prints is not known")),
                Kind::Block(label, block) if label == "global" => self.take(block, file, scope),
                Kind::Block(label, block) => {
                    scope.push(label);
                    self.take(block, file, scope);
                    scope.pop();
                }
            }
        }
    }

    fn include(&mut self, pattern: &Value, file: &str, line: u32, scope: &mut Vec<String>) {
        let Some(pattern) = pattern.plain() else {
            return self.problem(format!("{file}:{line}: which file is included is known to lighttpd only"));
        };
        let path =
            if pattern.starts_with('/') { pattern.clone() } else { format!("{}/{pattern}", self.folder) };
        if self.open.len() >= DEPTH_MAX || self.files_count >= FILES_MAX {
            return self.problem(format!("{file}:{line}: more files than are read, or deeper"));
        }
        match self.root.glob(&path) {
            Err(error) => self.problem(format!("{file}:{line}: cannot look up {pattern}: {error}")),
            Ok(found) => {
                for path in found {
                    if self.open.contains(&path) {
                        self.problem(format!("{file}:{line} includes {path}, which includes it"));
                    } else {
                        self.file(&path, scope);
                    }
                }
            }
        }
    }
}

impl Config {
    /// The last value of a key that holds everywhere.
    fn global(&self, key: &str) -> Option<&Placed> {
        self.values.iter().rev().find(|placed| placed.key == key && placed.scope.is_empty())
    }

    fn text(&self, key: &str) -> Option<String> {
        self.global(key)?.value.plain().filter(|value| !value.is_empty())
    }

    /// The values that hold everywhere, with defaults.
    pub fn settings(&self) -> BTreeMap<String, SettingInForce> {
        let setting = |(key, default): &(&str, Option<&str>)| {
            let placed = self.global(key).filter(|placed| placed.value.plain().is_some());
            let configured = placed.and_then(|placed| Some(SettingValue::parse(&placed.value.plain()?)));
            let default = default.map(SettingValue::parse);
            (configured.is_some() || default.is_some()).then(|| {
                let file = placed.map(|placed| placed.file.clone());
                let line = placed.map(|placed| placed.line);
                ((*key).to_owned(), SettingInForce { configured, default, running: None, file, line })
            })
        };
        SETTINGS.iter().filter_map(setting).collect()
    }

    /// The values that hold under a condition, and the addresses that requests are passed to, wherever that holds.
    pub fn scoped(&self) -> Vec<ScopedSetting> {
        let known =
            |placed: &&Placed| SETTINGS.iter().any(|(key, _)| *key == placed.key) && !placed.scope.is_empty();
        let scoped = |(placed, value): (&Placed, String)| ScopedSetting {
            setting: placed.key.clone(),
            value,
            scope: placed.scope.iter().map(|label| label.as_str().into()).collect(),
            file: Some(placed.file.clone()),
            line: Some(placed.line),
        };
        let values =
            self.values.iter().filter(known).filter_map(|placed| Some((placed, placed.value.plain()?)));
        let passes = self.passes().flat_map(|placed| {
            let mut addresses = vec![];
            gather(&placed.value, &mut addresses);
            addresses.into_iter().map(move |address| (placed, address))
        });
        values.chain(passes).map(scoped).take(SCOPED_MAX).collect()
    }

    fn passes(&self) -> impl Iterator<Item = &Placed> {
        self.values.iter().filter(|placed| PASSES.contains(&placed.key.as_str()))
    }

    /// Where it listens: the port, and the sockets of conditions.
    pub fn listens(&self) -> Vec<String> {
        let port = self.text("server.port").unwrap_or_else(|| "80".into());
        let bind = self.text("server.bind").unwrap_or_else(|| "0.0.0.0".into());
        let main = match bind.as_str() {
            path if path.starts_with('/') => format!("unix:{path}"),
            six if six.contains(':') && !six.starts_with('[') => format!("[{six}]:{port}"),
            host => format!("{host}:{port}"),
        };
        let socket = |placed: &Placed| {
            let label = placed.scope.first()?.strip_prefix("$SERVER[\"socket\"] == \"")?;
            let address = label.strip_suffix('"')?;
            Some(match address.strip_prefix(':') {
                Some(port) => format!("0.0.0.0:{port}"),
                None if address.starts_with('/') => format!("unix:{address}"),
                None => address.to_owned(),
            })
        };
        let mut others: Vec<String> = self.values.iter().filter_map(socket).collect();
        others.sort();
        others.dedup();
        others.retain(|address| *address != main);
        [vec![main], others].concat()
    }

    /// The logs that are files.
    pub fn logs(&self) -> Vec<LogFile> {
        let kinds = [
            ("server.errorlog", LogKind::Error),
            ("server.breakagelog", LogKind::Error),
            ("accesslog.filename", LogKind::Access),
        ];
        let log = |placed: &Placed| {
            let (_, kind) = kinds.iter().find(|(key, _)| *key == placed.key)?;
            // A `|` begins a program.
            let path = placed.value.plain().filter(|path| path.starts_with('/'))?;
            let scope = (!placed.scope.is_empty()).then(|| placed.scope.join(", "));
            // That of a condition counts before that of all, wherever it stands.
            let own = self.values.iter().rev().find(|one| {
                one.key == "accesslog.format" && !one.scope.is_empty() && placed.scope.starts_with(&one.scope)
            });
            let format = own.and_then(|one| one.value.plain()).or_else(|| self.text("accesslog.format"));
            let format =
                Some(format.unwrap_or_else(|| LOG_FORMAT.to_owned())).filter(|_| *kind == LogKind::Access);
            Some(LogFile { path, kind: *kind, scope, format })
        };
        self.values.iter().filter_map(log).take(SCOPED_MAX).collect()
    }

    /// The modules that are loaded.
    pub fn modules(&self) -> Vec<String> {
        let mut modules: Vec<String> = vec![];
        for placed in self.values.iter().filter(|placed| placed.key == "server.modules") {
            if !placed.adds {
                modules.clear();
            }
            if let Value::List(items) = &placed.value {
                modules.extend(items.iter().filter_map(|(_, item)| item.plain()));
            }
        }
        modules
    }

    /// The path of the status page, wherever it holds; `None` without mod_status.
    pub fn status_path(&self) -> Option<String> {
        let is_loaded = self.modules().iter().any(|module| module == "mod_status");
        let mut found = self.values.iter().rev().filter(|placed| placed.key == "status.status-url");
        found.find_map(|placed| placed.value.plain()).filter(|path| is_loaded && path.starts_with('/'))
    }

    /// The addresses that requests are passed to.
    pub fn backends(&self) -> Vec<String> {
        let mut backends = vec![];
        self.passes().for_each(|placed| gather(&placed.value, &mut backends));
        backends.sort();
        backends.dedup();
        backends.truncate(SCOPED_MAX);
        backends
    }
}

/// The addresses in a list of lists: `( ".php" => (( "socket" => .. ), ( "host" => .., "port" => .. )) )`.
fn gather(value: &Value, backends: &mut Vec<String>) {
    let Value::List(items) = value else { return };
    let plain = |key: &str| value.get(key).and_then(Value::plain);
    match (plain("socket"), plain("host"), plain("port")) {
        (Some(socket), ..) => backends.push(format!("unix:{socket}")),
        (None, Some(path), None) if path.starts_with('/') => backends.push(format!("unix:{path}")),
        (None, Some(host), port) => {
            let host = if host == "localhost" { "127.0.0.1".to_owned() } else { host };
            backends.push(format!("{host}:{}", port.unwrap_or_else(|| "80".into())));
        }
        _ => items.iter().for_each(|(_, item)| gather(item, backends)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_files(files: &[(&str, &str)]) -> Config {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        read(&Root::ours(), &folder.path().join("l.conf").to_string_lossy())
    }

    const MAIN: &str = "server.modules = ( \"mod_access\" )\nserver.port = 8080\nserver.max-connections = 64\n\
        server.errorlog = \"/var/log/l/error.log\"\naccesslog.filename = \"|/usr/bin/log\"\ninclude \"*.inc\"\n\
        $HTTP[\"host\"] == \"a.org\" {\n  server.kbytes-per-second = 100\n  accesslog.filename = \"/var/log/l/a.log\"\n}\n\
        $SERVER[\"socket\"] == \":8443\" { server.max-keep-alive-requests = 4 }\n\
        auth.backend.ldap.bind-pw = \"s3cret\"\n";
    const PHP: &str = "server.modules += ( \"mod_fastcgi\", \"mod_status\" )\nstatus.status-url = \"/st\"\n\
        fastcgi.server += ( \".php\" => (( \"socket\" => \"/run/php.sock\", \"bin-environment\" => ( \"PW\" => \"s3cret\" ) )) )\n\
        proxy.server = ( \"\" => ( ( \"host\" => \"10.0.0.1\", \"port\" => 81 ), ( \"host\" => \"localhost\" ) ) )\n";

    #[test]
    fn a_log_has_the_format_of_its_condition() {
        let text = "accesslog.format = \"%s\"\naccesslog.filename = \"/all\"\n$HTTP[\"host\"] == \"a\" {\n\
            accesslog.filename = \"/a\"\n accesslog.format = \"%s %D\"\n}\n\
            $HTTP[\"host\"] == \"b\" { accesslog.filename = \"/b\" }\n";
        let logs = read_files(&[("l.conf", text)]).logs();
        let formats: Vec<_> = logs.iter().map(|log| (log.path.as_str(), log.format.as_deref())).collect();
        assert_eq!(formats, [("/all", Some("%s")), ("/a", Some("%s %D")), ("/b", Some("%s"))]);
    }

    #[test]
    fn values_backends_and_logs_are_found() {
        let config = read_files(&[("l.conf", MAIN), ("php.inc", PHP)]);
        assert_eq!(config.problems, Vec::<String>::new());
        let settings = config.settings();
        let connections = &settings["server.max-connections"];
        assert_eq!((&connections.configured, connections.line), (&Some(SettingValue::Integer(64)), Some(3)));
        assert_eq!(settings["server.max-worker"].default, Some(SettingValue::Integer(0)));
        assert!(!settings.contains_key("server.max-fds"), "its default differs from version to version");
        let scoped = config.scoped();
        assert_eq!(
            (scoped[0].setting.as_str(), scoped[0].value.as_str()),
            ("server.kbytes-per-second", "100")
        );
        assert_eq!(
            (scoped[0].scope[0].to_string().as_str(), scoped[0].line),
            ("$HTTP[\"host\"] == \"a.org\"", Some(8))
        );
        let passes = scoped.iter().filter(|one| one.setting.ends_with(".server"));
        let passes: Vec<_> = passes.map(|one| (one.setting.as_str(), one.value.as_str())).collect();
        let to_proxy = [("proxy.server", "10.0.0.1:81"), ("proxy.server", "127.0.0.1:80")];
        assert_eq!(passes, [&[("fastcgi.server", "unix:/run/php.sock")][..], &to_proxy].concat());
        assert_eq!(config.backends(), ["10.0.0.1:81", "127.0.0.1:80", "unix:/run/php.sock"]);
        assert_eq!(config.listens(), ["0.0.0.0:8080", "0.0.0.0:8443"]);
        assert_eq!(config.modules(), ["mod_access", "mod_fastcgi", "mod_status"]);
        assert_eq!(config.status_path().as_deref(), Some("/st"));
        let logs: Vec<_> = config.logs().into_iter().map(|log| (log.path, log.format)).collect();
        let format = Some(LOG_FORMAT.to_owned());
        assert_eq!(logs, [("/var/log/l/error.log".into(), None), ("/var/log/l/a.log".into(), format)]);
        let message = format!("{settings:?} {scoped:?} {:?}", config.backends());
        assert!(!message.contains("s3cret"), "{message}");
    }

    #[test]
    fn what_cannot_be_read_is_told_and_the_rest_is_there() {
        for (files, problem) in [
            (vec![("l.conf", "include \"l.conf\"\nserver.port = 81\n")], "which includes it"),
            (vec![("l.conf", "include \"none\"\nserver.port = 81\n")], "cannot read"),
            (vec![("l.conf", "include_shell \"date\"\nserver.port = 81\n")], "include_shell"),
            (vec![("l.conf", "what is this\nserver.port = 81\n")], "no statement"),
            (vec![("l.conf", "x = \"\u{fffd}\"\nserver.port = 81\n")], "not UTF-8"),
        ] {
            let config = read_files(&files);
            assert!(
                config.problems.iter().any(|message| message.contains(problem)),
                "{problem}: {:?}",
                config.problems
            );
            assert_eq!(config.listens(), ["0.0.0.0:81"], "{problem}");
        }
    }
}
