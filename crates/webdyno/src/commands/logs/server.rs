//! `--server S`: the formats of access logs, as the server's configuration has them in force. Nothing but that is read there.

use crate::cli::logs::LogsArgs;
use std::path::Path;
use webdyno_host::agent::{ServerList, Start};
use webdyno_logs::format::Format;
use webdyno_model::service::{LogFile, LogKind};
use webdyno_model::{Result, UserError};
use webdyno_session::live::{ObservedHosts, Servers};

/// The formats of the server's access logs, those of logs with a name like the given ones first; none where the lines tell more.
pub fn formats(arguments: &LogsArgs, server: &str) -> Result<Vec<Format>> {
    let list = ServerList::parse(&[server.to_owned()])?;
    let own_executable = crate::process::own_executable()?;
    let how =
        Start { reads_only: true, sudo: arguments.sudo, ..Start::at(list.web()?.clone(), &own_executable) };
    let servers = Servers::connect(&list, &how)?;
    let found =
        servers.front_topology(&ObservedHosts { port: arguments.port, access: Default::default() })?;
    let mut logs: Vec<(LogFile, String)> = vec![];
    for service in found.services() {
        let access = service.logs.iter().filter(|log| log.kind == LogKind::Access);
        logs.extend(access.map(|log| (log.clone(), service.service.clone())));
    }
    if logs.is_empty() {
        return Err(UserError::cannot_run(format!("no web server with an access log was found on {server}"))
            .hint("reading its configuration may take --sudo; or give --format"));
    }
    logs.sort_by_key(|(log, _)| !arguments.files.iter().any(|file| is_of(file, &log.path)));
    if logs
        .iter()
        .any(|log| has_no_format(log) && arguments.files.iter().any(|file| is_of(file, &log.0.path)))
    {
        return Ok(vec![]);
    }
    let mut formats: Vec<Format> = vec![];
    let mut unreadable = None;
    for (log, _) in &logs {
        match log.format.as_deref().map(Format::parse) {
            Some(Ok(format)) if !formats.contains(&format) => formats.push(format),
            // Of logs of another kind, perhaps.
            Some(Err(error)) => unreadable = unreadable.or(Some(error)),
            _ => {}
        }
    }
    let none = || {
        UserError::cannot_run(format!("the configuration of {server} names no format of its access logs"))
            .hint("give --format")
    };
    match formats.is_empty() && !logs.iter().any(has_no_format) {
        true => Err(unreadable.unwrap_or_else(none)),
        false => Ok(formats),
    }
}

/// Whether nginx's configuration does not tell here how a log is written: one that comes in blocks (`buffer=`) is not followed, and has
/// no format in a snapshot, whatever it is called; one that nothing names has the default.
fn has_no_format((log, service): &(LogFile, String)) -> bool {
    service == "nginx" && log.format.is_none()
}

/// Whether a file is a log or one of its rotated ones: `access.log.2.gz` is one of `/var/log/nginx/access.log`.
fn is_of(file: &Path, log: &str) -> bool {
    let name =
        |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name(file).starts_with(&name(Path::new(log)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_the_format_that_a_snapshot_of_nginx_does_not_have() {
        let log = |service: &str, format: Option<&str>| {
            (LogFile { format: format.map(str::to_owned), ..LogFile::default() }, service.to_owned())
        };
        assert!(has_no_format(&log("nginx", None)));
        assert!(!has_no_format(&log("nginx", Some("combined"))) && !has_no_format(&log("php_fpm", None)));
    }

    #[test]
    fn rotated_logs_are_those_of_their_name() {
        for (file, log, is) in [
            ("access.log", "/var/log/nginx/access.log", true),
            ("/copy/access.log.2.gz", "/var/log/nginx/access.log", true),
            ("shop.log", "/var/log/nginx/access.log", false),
            ("-", "/var/log/nginx/access.log", false),
        ] {
            assert_eq!(is_of(Path::new(file), log), is, "{file}");
        }
    }
}
