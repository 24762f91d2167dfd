//! nginx's configuration with what it includes, and what it comes to: settings, logs, listeners, backends, status page.
//!
//! Facts: <https://nginx.org/en/docs/>: values of `http` hold in each `server` and `location` that does not give its own.

mod addresses;
mod certificates;
mod places;
mod reading;

use super::syntax::Directive;
use crate::services::common::pending::Sources;
use crate::services::nginx::log_format::COMBINED;
use addresses::passed_to;
pub use addresses::{authority, listen_address};
pub use places::{Occurrence, Opening, distinct};
use reading::address;
pub use reading::{Overlay, read, read_with};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use webdyno_model::service::{LogFile, LogKind, ScopedSetting, SettingInForce, SettingValue};

/// Most directives that are looked at: files that are included from many places count each time.
const VISITS_MAX: usize = 500_000;

/// Directives of one block that are searched.
const WITHIN_MAX: usize = 1_000;

/// Most values of parts of the site that are told.
const SCOPED_MAX: usize = 2_000;

/// Directives that hold no secrets and say something about load, with nginx's defaults.
const SETTINGS: [(&str, Option<&str>); 51] = [
    ("accept_mutex", Some("off")),
    ("access_log", None),
    ("aio", Some("off")),
    ("client_body_timeout", Some("60s")),
    ("client_header_timeout", Some("60s")),
    ("client_max_body_size", Some("1m")),
    ("error_log", None),
    ("fastcgi_buffering", Some("on")),
    ("fastcgi_connect_timeout", Some("60s")),
    ("fastcgi_keep_conn", Some("off")),
    ("fastcgi_read_timeout", Some("60s")),
    ("gzip", Some("off")),
    ("gzip_comp_level", Some("1")),
    ("gzip_min_length", Some("20")),
    ("gzip_types", Some("text/html")),
    ("http2", Some("off")),
    ("keepalive", None),
    ("keepalive_requests", Some("1000")),
    ("keepalive_time", Some("1h")),
    ("keepalive_timeout", Some("75s")),
    ("limit_conn", None),
    ("limit_conn_dry_run", None),
    ("limit_conn_status", None),
    ("limit_conn_zone", None),
    ("limit_rate", Some("0")),
    ("limit_rate_after", Some("0")),
    ("limit_req", None),
    ("limit_req_dry_run", None),
    ("limit_req_status", None),
    ("limit_req_zone", None),
    ("listen", None),
    ("master_process", Some("on")),
    ("multi_accept", Some("off")),
    ("open_file_cache", Some("off")),
    ("proxy_buffering", Some("on")),
    ("proxy_connect_timeout", Some("60s")),
    ("proxy_http_version", Some("1.0")),
    ("proxy_read_timeout", Some("60s")),
    ("reset_timedout_connection", Some("off")),
    ("send_timeout", Some("60s")),
    ("sendfile", Some("off")),
    ("ssl_session_cache", Some("none")),
    ("ssl_session_tickets", Some("on")),
    ("ssl_session_timeout", Some("5m")),
    ("tcp_nodelay", Some("on")),
    ("tcp_nopush", Some("off")),
    ("use", None),
    ("worker_connections", Some("512")),
    ("worker_cpu_affinity", None),
    ("worker_processes", Some("1")),
    ("worker_rlimit_nofile", None),
];

/// Directives that pass requests on.
const PASSES: [&str; 6] =
    ["proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass"];

/// Directives that hold for all of the site together where several of them stand: the settings have the last one only.
const REPEATED: [&str; 4] = ["limit_conn", "limit_conn_zone", "limit_req", "limit_req_zone"];

/// A configuration as it was read.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The directives of the main file; those of other files in the `include` that names them.
    directives: Rc<Vec<Directive>>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
    /// The file that each `include` leads to, by the address of its block.
    files: BTreeMap<usize, String>,
    /// Folders whose entries decide what is included.
    folders: BTreeSet<PathBuf>,
    main_file: String,
}

/// Whether a directive holds no secrets and says something about load.
pub fn is_known(name: &str) -> bool {
    SETTINGS.iter().any(|(known, _)| *known == name)
}

/// A directive with where it stands.
struct Placed<'a> {
    directive: &'a Directive,
    file: &'a str,
    /// The blocks around it, from the outside, each with the file that opens it.
    scope: &'a [(&'a Directive, &'a str)],
}

impl Placed<'_> {
    fn value(&self) -> String {
        self.directive.words.join(" ")
    }

    /// What is told of it, with a value that may be shown.
    fn scoped(&self, value: String) -> ScopedSetting {
        let blocks = self.scope.iter().map(|(block, _)| block).filter(|block| block.name != "http");
        ScopedSetting {
            setting: self.directive.name.clone(),
            value,
            scope: blocks.map(|block| label(block).into()).collect(),
            file: Some(self.file.to_owned()),
            line: Some(self.directive.line),
        }
    }

    /// Whether it holds for all of the site.
    fn is_global(&self) -> bool {
        matches!(
            self.scope.iter().map(|(block, _)| block.name.as_str()).collect::<Vec<_>>()[..],
            [] | ["events" | "http"]
        )
    }

    /// The innermost block of that name around it.
    fn within(&self, name: &str) -> Option<&Directive> {
        self.scope.iter().rev().map(|(block, _)| *block).find(|block| block.name == name)
    }
}

impl Config {
    /// Looks at all directives in their order. False when there were more than are looked at.
    fn each(&self, mut see: impl FnMut(&Placed<'_>)) -> bool {
        let mut left = VISITS_MAX;
        self.visit(&self.directives, &self.main_file, &mut vec![], &mut left, &mut see);
        left > 0
    }

    fn visit<'a>(
        &'a self,
        block: &'a [Directive],
        file: &'a str,
        scope: &mut Vec<(&'a Directive, &'a str)>,
        left: &mut usize,
        see: &mut impl FnMut(&Placed<'_>),
    ) {
        for directive in block {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return;
            }
            let inner = directive.block.as_ref();
            if directive.name == "include"
                && let Some(inner) = inner
            {
                let file = self.files.get(&address(inner)).map_or(file, String::as_str);
                self.visit(inner, file, scope, left, see);
                continue;
            }
            see(&Placed { directive, file, scope });
            if let Some(inner) = inner {
                scope.push((directive, file));
                self.visit(inner, file, scope, left, see);
                scope.pop();
            }
        }
    }

    /// The words of the directives of a block that have this name, also those that it includes.
    fn within(block: &Directive, name: &str) -> Vec<Vec<String>> {
        let (mut found, mut left) = (vec![], WITHIN_MAX);
        Self::gather(block, name, &mut left, &mut found);
        found
    }

    fn gather(block: &Directive, name: &str, left: &mut usize, found: &mut Vec<Vec<String>>) {
        for directive in block.block.iter().flat_map(|block| block.iter()) {
            if *left == 0 {
                return;
            }
            *left -= 1;
            match directive.name.as_str() {
                "include" => Self::gather(directive, name, left, found),
                known if known == name => found.push(directive.words.clone()),
                _ => {}
            }
        }
    }

    /// The main file.
    pub fn main_file(&self) -> &str {
        &self.main_file
    }

    /// What is read when it reloads: its files, certificates with their keys, and the folders that it includes from.
    pub fn sources(&self) -> Sources {
        let mut files: BTreeSet<PathBuf> = self.files.values().map(PathBuf::from).collect();
        for name in ["ssl_certificate", "ssl_certificate_key", "ssl_dhparam", "ssl_trusted_certificate"] {
            let named = self.occurrences(name);
            files.extend(named.iter().filter_map(|one| self.named_file(&one.value)));
        }
        Sources { files, directories: self.folders.clone() }
    }

    /// A file that is named relative to the folder of the main one; `None` for a name with variables, and for what is given as
    /// text, or kept elsewhere (`data:`, `engine:`).
    fn named_file(&self, name: &str) -> Option<PathBuf> {
        let folder = Path::new(&self.main_file).parent().unwrap_or(Path::new("/"));
        (!name.contains(['$', ':'])).then(|| folder.join(name))
    }

    /// The values that hold everywhere, with defaults.
    pub fn settings(&self) -> BTreeMap<String, SettingInForce> {
        let default = |(name, default): &(&str, Option<&str>)| {
            let setting =
                SettingInForce { default: default.map(SettingValue::parse), ..SettingInForce::default() };
            ((*name).to_owned(), setting)
        };
        let mut settings: BTreeMap<String, SettingInForce> = SETTINGS
            .iter()
            .filter(|(name, default)| default.is_some() || *name == "worker_rlimit_nofile")
            .map(default)
            .collect();
        self.each(|placed| {
            let name = placed.directive.name.as_str();
            if placed.is_global()
                && placed.directive.block.is_none()
                && SETTINGS.iter().any(|(known, _)| *known == name)
            {
                let setting = settings.entry(name.to_owned()).or_default();
                setting.configured = Some(SettingValue::parse(&placed.value()));
                setting.file = Some(placed.file.to_owned());
                setting.line = Some(placed.directive.line);
            }
        });
        settings
    }

    /// The values of parts of the site, and those of which all of it may have several; and whether all are there.
    pub fn scoped(&self) -> (Vec<ScopedSetting>, bool) {
        let mut scoped = vec![];
        let mut left_out = false;
        let all_seen = self.each(|placed| {
            let name = placed.directive.name.as_str();
            let is_known = SETTINGS.iter().any(|(known, _)| *known == name) || PASSES.contains(&name);
            let is_member = name == "server" && placed.within("upstream").is_some();
            let is_in_settings = placed.is_global() && !REPEATED.contains(&name);
            if is_in_settings || placed.directive.block.is_some() || !(is_known || is_member) {
                return;
            }
            if scoped.len() >= SCOPED_MAX {
                left_out = true;
                return;
            }
            let value = placed.value();
            // A path may hold anything, a token too.
            let value =
                if PASSES.contains(&name) { passed_to(&value).unwrap_or_else(|| "..".into()) } else { value };
            scoped.push(placed.scoped(value));
        });
        (scoped, all_seen && !left_out)
    }

    /// Where it listens.
    pub fn listens(&self) -> Vec<String> {
        let mut listens = vec![];
        self.each(|placed| {
            if placed.directive.name == "listen"
                && let Some(word) = placed.directive.words.first()
            {
                listens.push(listen_address(word));
            }
        });
        listens.sort();
        listens.dedup();
        listens.truncate(SCOPED_MAX);
        listens
    }

    /// The logs that are files, those that leave requests out last; relative paths begin at the prefix.
    pub fn logs(&self, prefix: &str) -> Vec<LogFile> {
        let mut logs: Vec<(bool, LogFile)> = vec![];
        let formats = self.formats();
        self.each(|placed| {
            let kind = match placed.directive.name.as_str() {
                // Those of `stream` are of connections, and their formats have names of their own.
                "access_log" if placed.within("stream").is_none() => LogKind::Access,
                "error_log" => LogKind::Error,
                _ => return,
            };
            let Some(path) = placed.directive.words.first() else { return };
            if !is_log_file(path) || logs.len() >= SCOPED_MAX {
                return;
            }
            let path = if path.starts_with('/') {
                path.clone()
            } else {
                format!("{}/{path}", prefix.trim_end_matches('/'))
            };
            // Servers for http and https have one name, and a log each.
            let server = placed.scope.iter().rev().find(|(block, _)| block.name == "server");
            let scope = server.map(|(block, file)| format!("{} ({file}:{})", label(block), block.line));
            let name = placed.directive.words.get(1).map_or(COMBINED, String::as_str);
            let built_in = || (name == COMBINED).then(|| COMBINED.to_owned());
            // Lines that come in blocks, or compressed, tell nobody how many requests there are now.
            let is_late =
                |word: &String| ["buffer=", "gzip", "flush="].iter().any(|held| word.starts_with(held));
            let is_prompt = !placed.directive.words.iter().skip(2).any(is_late);
            let format = formats.get(name).cloned().or_else(built_in).filter(|_| is_prompt);
            let log = LogFile { path, kind, scope, format: format.filter(|_| kind == LogKind::Access) };
            // Who takes the first one of a server has all its requests, if any log does.
            let is_part = placed.within("location").is_some()
                || placed.directive.words.iter().any(|word| word.starts_with("if="));
            if !logs.iter().any(|(_, known)| *known == log) {
                logs.push((is_part, log));
            }
        });
        logs.sort_by_key(|(is_part, _)| *is_part);
        logs.into_iter().map(|(_, log)| log).collect()
    }

    fn formats(&self) -> BTreeMap<String, String> {
        let mut formats = BTreeMap::new();
        self.each(|placed| {
            if placed.directive.name == "log_format"
                && placed.within("stream").is_none()
                && let Some((name, parts)) = placed.directive.words.split_first()
            {
                let parts = parts.iter().filter(|part| !part.starts_with("escape="));
                formats.insert(name.clone(), parts.map(String::as_str).collect());
            }
        });
        formats
    }

    /// The addresses that requests are passed to.
    pub fn backends(&self) -> Vec<String> {
        let mut upstreams: BTreeMap<String, Vec<String>> = BTreeMap::new();
        self.each(|placed| {
            if placed.directive.name == "server"
                && let (Some(upstream), Some(server)) =
                    (placed.within("upstream"), placed.directive.words.first())
            {
                let name = upstream.words.first().cloned().unwrap_or_default();
                upstreams.entry(name).or_default().extend(passed_to(server));
            }
        });
        let mut backends = vec![];
        self.each(|placed| {
            if !PASSES.contains(&placed.directive.name.as_str()) {
                return;
            }
            let Some(word) = placed.directive.words.first() else { return };
            match upstreams.get(authority(word)) {
                Some(servers) => backends.extend(servers.iter().cloned()),
                None => backends.extend(passed_to(word)),
            }
        });
        backends.sort();
        backends.dedup();
        backends.truncate(SCOPED_MAX);
        backends
    }

    /// Where the status page is, and why not elsewhere.
    pub fn status(&self) -> Result<StatusPage, &'static str> {
        let mut found = Err("no location has `stub_status`");
        self.each(|placed| {
            if placed.directive.name != "stub_status" || found.is_ok() {
                return;
            }
            found = status_page(placed);
        });
        found
    }

    /// The modules that are loaded.
    pub fn loaded_modules(&self) -> Vec<String> {
        let mut modules = vec![];
        self.each(|placed| {
            if placed.directive.name == "load_module"
                && let Some(path) = placed.directive.words.first()
            {
                modules.push(path.rsplit('/').next().unwrap_or_default().trim_end_matches(".so").to_owned());
            }
        });
        modules
    }
}

/// Whether a log goes to a file whose name is known.
pub fn is_log_file(path: &str) -> bool {
    let is_elsewhere = ["off", "stderr"].contains(&path)
        || ["syslog:", "memory:", "pipe:"].iter().any(|kind| path.starts_with(kind));
    !is_elsewhere && !path.contains('$')
}

/// A page that tells about nginx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusPage {
    /// Where to connect to.
    pub address: String,
    /// The name to ask for.
    pub host: String,
    /// Its path.
    pub path: String,
}

fn status_page(placed: &Placed<'_>) -> Result<StatusPage, &'static str> {
    let (Some(server), Some(location)) = (placed.within("server"), placed.within("location")) else {
        return Err("`stub_status` stands in no location");
    };
    let path = match location.words.as_slice() {
        [path] if path.starts_with('/') => path,
        [how, path] if ["=", "^~"].contains(&how.as_str()) => path,
        _ => return Err("`stub_status` stands in a location of a pattern, whose path is not known"),
    };
    let listens = Config::within(server, "listen");
    let plain = |words: &&Vec<String>| {
        !words.iter().any(|word| ["ssl", "quic", "proxy_protocol"].contains(&word.as_str()))
    };
    let address = match listens.iter().find(plain) {
        Some(words) => listen_address(words.first().map_or("80", String::as_str)),
        None if listens.is_empty() => "0.0.0.0:80".into(),
        None => return Err("`stub_status` is in a server that speaks TLS only"),
    };
    let name = Config::within(server, "server_name").into_iter().flatten().next();
    let name = name.filter(|name| !name.is_empty() && !name.starts_with(['~', '*', '.', '_']));
    Ok(StatusPage { address, host: name.unwrap_or_else(|| "localhost".into()), path: path.clone() })
}

/// How a block is called.
fn label(block: &Directive) -> String {
    let words = match block.name.as_str() {
        "server" => {
            let name = Config::within(block, "server_name").into_iter().flatten().next();
            let listen = || Config::within(block, "listen").into_iter().flatten().next();
            name.filter(|name| !name.is_empty()).or_else(listen).unwrap_or_default()
        }
        _ => block.words.join(" "),
    };
    format!("{} {words}", block.name).trim().to_owned()
}

#[cfg(test)]
mod tests;
