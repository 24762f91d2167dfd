//! The logs that a configuration names, for a snapshot: error logs and logs of requests, of the server and of its hosts.
//!
//! `set_errorlog` in server/core.c, `open_error_log` in server/log.c, modules/loggers/mod_log_config.c: a host without an
//! error log of its own writes that of the server, and the same holds for logs of requests. What goes to a program or to
//! the system's log cannot be followed as a file and is told as missing.

use crate::services::apache::access_log::{format_of, ids, named_logs, not_a_file};
use crate::services::apache::in_force::Site;
use crate::services::apache::in_force::site::named;
use std::collections::BTreeSet;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::{LogFile, LogKind};

/// Most logs that are told.
pub const LOGS_MAX: usize = 64;

/// Most logs that are told as missing.
const MISSING_MAX: usize = 8;

/// The signals that are missing when a log is none that can be read.
const SIGNALS: [(LogKind, &str, &str); 2] =
    [(LogKind::Error, "apache_error_log", "ErrorLog"), (LogKind::Access, "apache_access_log", "CustomLog")];

/// What a configuration says of logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logs {
    /// Those that are files, those of the port first.
    pub files: Vec<LogFile>,
    /// Those that are not.
    pub missing: Vec<MissingSignal>,
    /// How many files were left out.
    pub left_out_count: usize,
    seen: BTreeSet<(LogPlace, String)>,
}

/// Error logs and logs of requests are told apart.
type LogPlace = bool;

/// All logs; `default` is the error log that is compiled in.
pub fn logs(site: &Site<'_>, port: u16, default: Option<&str>) -> Logs {
    let mut logs = Logs::default();
    for id in ids(site, port) {
        let host = site.hosts.by_id(id);
        let scope = host.map(|host| host.scope().to_string());
        let own = named(site.inside(id), &["ErrorLog"]).next_back();
        let of_server = || named(site.inside(0), &["ErrorLog"]).next_back();
        let error = own.or_else(of_server).map(|placed| placed.words());
        let name = match &error {
            Some(words) => words.first().cloned(),
            None => default.map(str::to_owned),
        };
        // One that several write belongs to the server.
        let error_scope = scope.clone().filter(|_| own.is_some());
        if let Some(name) = name {
            logs.add(site, LogKind::Error, &name, error_scope, None);
        }
        let inherits =
            id > 0 && named(site.inside(id), &["CustomLog", "TransferLog", "GlobalLog"]).next().is_none();
        let mut named = named_logs(site, id);
        // One with a condition leaves requests out: who takes the first one of a host has them all if any log does.
        named.sort_by_key(|placed| placed.words().len() > 2);
        for placed in named {
            let Some(name) = placed.words().into_iter().next() else { continue };
            let scope = scope.clone().filter(|_| !inherits);
            logs.add(site, LogKind::Access, &name, scope, Some(format_of(site, id, placed)));
        }
    }
    logs
}

impl Logs {
    fn add(
        &mut self,
        site: &Site<'_>,
        kind: LogKind,
        name: &str,
        scope: Option<String>,
        format: Option<String>,
    ) {
        if !self.seen.insert((kind == LogKind::Error, name.to_owned())) {
            return;
        }
        // syslog and journald without a facility.
        let is_system = kind == LogKind::Error && ["syslog", "journald"].contains(&name);
        let why =
            not_a_file(name).or_else(|| is_system.then(|| format!("{name}: it is not written to a file")));
        if let Some(why) = why {
            return self.missing(kind, why);
        }
        if self.files.len() >= LOGS_MAX {
            self.left_out_count += 1;
            return;
        }
        let path = site.evaluation.path(name).to_string_lossy().into_owned();
        self.files.push(LogFile { path, kind, scope, format });
    }

    fn missing(&mut self, kind: LogKind, why: String) {
        let Some((_, signal, directive)) = SIGNALS.iter().find(|(known, ..)| *known == kind) else { return };
        if self.missing.len() < MISSING_MAX {
            let how = format!("let {directive} name a file");
            self.missing.push(MissingSignal::new(*signal, why, how));
        }
    }
}
