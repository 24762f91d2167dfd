//! nginx: how it is recognised and read. It is not changed.
//!
//! Facts: <https://nginx.org/en/docs/switches.html>; the main process calls itself `nginx: master process` and then the
//! command line that it was started with; `nginx -V` tells what is compiled in.

mod config;
mod syntax;

use super::Observe;
use crate::os::procfs;
use crate::visibility::process_view::Root;
use crate::visibility::program_query::query_program;
use webdyno_model::Result;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::{Endpoint, LogFile, LogKind, ServiceSnapshot};

/// The name in snapshots.
pub const NAME: &str = "nginx";

/// The names of its program.
const EXECUTABLES: [&str; 3] = ["nginx", "nginx-debug", "openresty"];

/// How to have a status page.
const HOW_TO_ENABLE: &str = "in a server that this machine reaches without TLS: \
    `location = /nginx_status { stub_status; allow 127.0.0.1; deny all; }`, and reload nginx";

/// The service.
#[derive(Debug)]
pub struct Nginx;

impl Observe for Nginx {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognises(&self, executable: &str, _arguments: &[String]) -> bool {
        let path = executable.trim_end_matches(" (deleted)");
        path.rsplit('/').next().is_some_and(|name| EXECUTABLES.contains(&name))
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

/// What `-V` tells.
#[derive(Debug, Default, PartialEq, Eq)]
struct Compiled {
    version: Option<String>,
    prefix: Option<String>,
    main_file: Option<String>,
    access_log: Option<String>,
    error_log: Option<String>,
    modules: Vec<String>,
}

/// Reads the output of `-V`.
fn parse_compiled(text: &str) -> Compiled {
    let version = text.lines().find_map(|line| line.strip_prefix("nginx version: ")?.split_once('/'));
    let option = |name: &str| {
        let found = text.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.map(str::to_owned)
    };
    let module = |word: &str| {
        let name = word.strip_prefix("--with-")?.strip_suffix("_module")?;
        Some(format!("{name}_module"))
    };
    Compiled {
        version: version.and_then(|(_, rest)| Some(rest.split_ascii_whitespace().next()?.to_owned())),
        prefix: option("--prefix"),
        main_file: option("--conf-path"),
        access_log: option("--http-log-path"),
        error_log: option("--error-log-path"),
        modules: text.split_ascii_whitespace().filter_map(module).collect(),
    }
}

/// The value of a switch in the title of the main process.
fn switch(title: &[String], name: &str) -> Option<String> {
    let words = title.iter().flat_map(|part| part.split_ascii_whitespace()).collect::<Vec<_>>();
    let at = words.iter().position(|word| *word == name)?;
    words.get(at + 1).map(|word| (*word).to_owned())
}

fn snapshot(pid: u32) -> Result<ServiceSnapshot> {
    let title = procfs::arguments(pid)?;
    let root = Root::of(pid);
    let executable = procfs::executable(pid).ok();
    let (compiled, mut missing) = match query_program(NAME, pid, executable.as_ref(), || vec!["-V".into()]) {
        Ok(finished) => (parse_compiled(&finished.stderr), vec![]),
        Err(missing) => (Compiled::default(), vec![missing]),
    };
    let prefix = switch(&title, "-p").or(compiled.prefix).unwrap_or_else(|| "/usr/share/nginx".into());
    let main_file =
        switch(&title, "-c").or(compiled.main_file).unwrap_or_else(|| "/etc/nginx/nginx.conf".into());
    let main_file = if main_file.starts_with('/') { main_file } else { format!("{prefix}/{main_file}") };
    let config = config::read(&root, &main_file);
    let (scoped, complete) = config.scoped();
    let mut warnings = config.problems.clone();
    if !complete {
        warnings.push(format!("{main_file} says more of parts of the site than is told here"));
    }
    let endpoints = match config.status() {
        Ok(page) => vec![Endpoint { name: page.host, address: page.address, path: Some(page.path) }],
        Err(why) => {
            missing.push(MissingSignal {
                signal: NAME.into(),
                why: why.into(),
                how_to_enable: HOW_TO_ENABLE.into(),
            });
            vec![]
        }
    };
    let mut logs = config.logs(&prefix);
    for (kind, path) in [(LogKind::Access, compiled.access_log), (LogKind::Error, compiled.error_log)] {
        let is_told =
            config.settings().contains_key(if kind == LogKind::Access { "access_log" } else { "error_log" });
        let path = path.filter(|path| !is_told && path.starts_with('/'));
        logs.extend(path.map(|path| LogFile { path, kind, ..LogFile::default() }));
    }
    let listens = config.listens();
    Ok(ServiceSnapshot {
        service: NAME.into(),
        pid,
        executable: executable.map(|(path, _)| path),
        version: compiled.version,
        port: listens.iter().find_map(|address| address.rsplit_once(':')?.1.parse().ok()).unwrap_or(0),
        config_file: Some(main_file),
        settings: config.settings(),
        scoped,
        missing,
        warnings,
        role: Some("web".into()),
        listens,
        modules: [compiled.modules, config.loaded_modules()].concat(),
        endpoints,
        logs,
        ..ServiceSnapshot::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_in_is_read() {
        let text = "nginx version: nginx/1.22.1\nbuilt with OpenSSL\nconfigure arguments: --with-cc-opt='-g -O2' \
            --prefix=/usr/share/nginx --conf-path=/etc/nginx/nginx.conf --http-log-path=/var/log/nginx/access.log \
            --error-log-path=stderr --with-http_stub_status_module --with-threads --with-stream=dynamic\n";
        let compiled = parse_compiled(text);
        assert_eq!(compiled.version.as_deref(), Some("1.22.1"));
        assert_eq!(compiled.main_file.as_deref(), Some("/etc/nginx/nginx.conf"));
        assert_eq!(compiled.modules, ["http_stub_status_module"]);
        assert_eq!(parse_compiled("usage"), Compiled::default());
    }

    #[test]
    fn switches_are_found_in_the_title() {
        let title = ["nginx: master process /usr/sbin/nginx -c /x/n.conf -p /x -g daemon off;".to_owned()];
        assert_eq!(switch(&title, "-c").as_deref(), Some("/x/n.conf"));
        assert_eq!(switch(&title, "-p").as_deref(), Some("/x"));
        let plain = ["nginx".to_owned(), "-c".to_owned(), "/y".to_owned()];
        assert_eq!(switch(&plain, "-c").as_deref(), Some("/y"));
        assert_eq!(switch(&plain, "-p"), None);
    }
}
