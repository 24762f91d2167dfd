//! lighttpd: how it is recognised and read. It is not changed.
//!
//! Facts: lighttpd(8), <https://redmine.lighttpd.net/projects/lighttpd/wiki/Docs_ConfigurationOptions>, and the defaults in
//! server.c and configfile.c of lighttpd 1.4.69. Commands of `include_shell` are not run: what they print is not known.

mod config;
mod syntax;

use super::Observe;
use crate::os::procfs;
use crate::visibility::process_view::Root;
use crate::visibility::program_query::query_program;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::{Endpoint, ServiceSnapshot};
use webdyno_model::{Result, UserError};

/// The name in snapshots.
pub const NAME: &str = "lighttpd";

/// How to have a status page.
const HOW_TO_ENABLE: &str = "`server.modules += ( \"mod_status\" )` and `status.status-url = \"/server-status\"` where \
    $HTTP[\"remote-ip\"] is 127.0.0.1, and restart lighttpd";

/// The service.
#[derive(Debug)]
pub struct Lighttpd;

impl Observe for Lighttpd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognises(&self, executable: &str, _arguments: &[String]) -> bool {
        let path = executable.trim_end_matches(" (deleted)");
        path.rsplit('/').next() == Some(NAME)
    }

    fn snapshot(&self, pid: u32, port: u16) -> Result<ServiceSnapshot> {
        Ok(ServiceSnapshot { port, ..snapshot(pid)? })
    }

    fn backend(&self, pid: u32) -> Option<Result<ServiceSnapshot>> {
        Some(snapshot(pid))
    }

    fn configured_backends(&self, snapshot: &ServiceSnapshot) -> Vec<String> {
        let main_file = snapshot.config_file.as_deref();
        main_file.map(|file| config::read(&Root::of(snapshot.pid), file).backends()).unwrap_or_default()
    }
}

/// The file behind `-f`, absolute.
fn main_file(pid: u32, arguments: &[String]) -> Option<String> {
    let at = arguments.iter().position(|argument| argument.starts_with("-f"))?;
    let behind = arguments.get(at)?.strip_prefix("-f").filter(|file| !file.is_empty());
    let file = behind.or_else(|| arguments.get(at + 1).map(String::as_str))?;
    if file.starts_with('/') {
        return Some(file.to_owned());
    }
    // A daemon has left for the root directory: then it is not known where it began.
    let folder = procfs::directory(pid).ok()?;
    Some(format!("{}/{file}", folder.trim_end_matches('/')))
}

fn snapshot(pid: u32) -> Result<ServiceSnapshot> {
    let arguments = procfs::arguments(pid)?;
    let Some(main_file) = main_file(pid, &arguments) else {
        return Err(UserError::cannot_run(format!(
            "lighttpd (process {pid}) does not say which file it read"
        ))
        .hint("it is started with `-f FILE`"));
    };
    let root = Root::of(pid);
    let executable = procfs::executable(pid).ok();
    let (version, mut missing) = match query_program(NAME, pid, executable.as_ref(), || vec!["-v".into()]) {
        Ok(finished) => (parse_version(&finished.stdout), vec![]),
        Err(missing) => (None, vec![missing]),
    };
    let config = config::read(&root, &main_file);
    let listens = config.listens();
    let endpoints = match config.status_path() {
        Some(path) => {
            let address = listens.first().cloned().unwrap_or_default();
            vec![Endpoint { name: "localhost".into(), address, path: Some(path) }]
        }
        None => {
            missing.push(MissingSignal::new(NAME, "status.status-url is not set", HOW_TO_ENABLE));
            vec![]
        }
    };
    Ok(ServiceSnapshot {
        service: NAME.into(),
        pid,
        executable: executable.map(|(path, _)| path),
        version,
        port: listens.iter().find_map(|address| address.rsplit_once(':')?.1.parse().ok()).unwrap_or(0),
        config_file: Some(main_file),
        settings: config.settings(),
        scoped: config.scoped(),
        logs: config.logs(),
        modules: config.modules(),
        warnings: config.problems,
        missing,
        role: Some("web".into()),
        listens,
        endpoints,
        ..ServiceSnapshot::default()
    })
}

/// Reads the output of `-v`: `lighttpd/1.4.69 (ssl) - a light and fast webserver`.
fn parse_version(text: &str) -> Option<String> {
    let word = text.lines().next()?.strip_prefix("lighttpd/")?.split_ascii_whitespace().next()?;
    Some(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_found_in_the_arguments() {
        let arguments = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let pid = std::process::id();
        assert_eq!(
            main_file(pid, &arguments(&["lighttpd", "-D", "-f", "/x.conf"])).as_deref(),
            Some("/x.conf")
        );
        assert_eq!(main_file(pid, &arguments(&["lighttpd", "-f/x.conf"])).as_deref(), Some("/x.conf"));
        assert_eq!(main_file(pid, &arguments(&["lighttpd", "-f"])), None);
        assert_eq!(parse_version("lighttpd/1.4.69 (ssl) - a light"), Some("1.4.69".into()));
        assert_eq!(parse_version("nginx"), None);
    }
}
