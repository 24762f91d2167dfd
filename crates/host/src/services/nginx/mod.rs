//! nginx: how it is recognised, read and changed.
//!
//! Facts: <https://nginx.org/en/docs/switches.html>; the main process calls itself `nginx: master process` and then the
//! command line that it was started with; `nginx -V` tells what is compiled in.

mod config;
mod control;
mod edit;
pub mod log_format;
mod parameters;
mod prepare;
mod settings;
mod syntax;
mod upstream;

use super::common::pending;
use super::{Activation, Observe, PendingChange, Tunable, process_limit};
use crate::os::process::ProcessName;
use crate::os::procfs;
use crate::visibility::process_view::Root;
use crate::visibility::program_query::query_program;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use webdyno_model::change::{ApplyClass, Preparation, SettingChange};
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::{Control, Endpoint, LogFile, LogKind, ServiceSnapshot, SettingValue};
use webdyno_model::{Result, UserError};

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

    fn tunable(&self) -> Option<&dyn Tunable> {
        Some(self)
    }
}

impl Tunable for Nginx {
    fn prepare(&self, snapshot: &ServiceSnapshot, changes: &[SettingChange]) -> Result<Preparation> {
        prepare::prepare(snapshot, changes)
    }

    fn validate(&self, control: &Control) -> Result<()> {
        control::validate(control)
    }

    fn activate(&self, control: &Control, class: ApplyClass, port: u16) -> Result<Activation> {
        match class {
            ApplyClass::Live => Ok(Activation { control: control.clone(), outage_us: None, unsettled: None }),
            // None of its settings that are changed needs more than new workers.
            ApplyClass::Reload | ApplyClass::Restart => control::reload(control, port),
            ApplyClass::Manual => {
                Err(UserError::cannot_run("nginx can only be changed by hand here")
                    .hint("see the plan for how"))
            }
        }
    }

    fn start(&self, control: &Control, port: u16) -> Result<Activation> {
        control::start(control, port)
    }

    fn pending_changes(&self, control: &Control, _port: u16, own: &[PathBuf]) -> Result<Vec<PendingChange>> {
        let sources = control::sources(&main_file(control.pid)?);
        // Its pid file is as old as its start, however often it read its configuration since: its workers tell more.
        let main = ProcessName::from(control);
        Ok(pending::pending("nginx", &sources, (main, pending::read_at(main, None)), own))
    }

    fn locate(&self, control: &Control) -> Option<Control> {
        Path::new(&control.executable).exists().then(|| control.clone())
    }

    fn find_again(&self, before: &Control, port: u16) -> Option<Control> {
        control::find_again(before, port)
    }

    fn init_names(&self) -> &'static [&'static str] {
        &["nginx"]
    }

    fn keeps_until_restart(&self, _setting: &str) -> bool {
        false
    }

    fn running_values(&self, snapshot: &ServiceSnapshot) -> BTreeMap<String, SettingValue> {
        let workers = ProcessName::of(snapshot.pid).map(control::workers).unwrap_or_default();
        let count = i64::try_from(workers.len()).ok().filter(|count| *count > 0);
        let files = workers.first().and_then(|worker| process_limit::open_files(worker.pid).ok());
        let files = files.and_then(|(soft, _)| i64::try_from(soft).ok());
        let shown = [("worker_processes", count), ("worker_rlimit_nofile", files)];
        let known = shown.into_iter().filter_map(|(name, value)| Some((name, value?)));
        known.map(|(name, value)| (name.to_owned(), SettingValue::Integer(value))).collect()
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

/// The prefix and the main file. What was not said when it was compiled is as in nginx's sources (auto/options): so are OpenResty, and
/// who compiles it himself. One that cannot be asked is taken for a distribution's, unless it lies as in the sources.
fn places(title: &[String], compiled: &Compiled, executable: &str) -> (String, String) {
    let own = executable.strip_suffix("/sbin/nginx").filter(|prefix| prefix.ends_with("/nginx"));
    let (prefix, main_file) = match (&compiled.version, own) {
        (Some(_), _) => ("/usr/local/nginx", "conf/nginx.conf"),
        (None, Some(own)) => (own, "conf/nginx.conf"),
        (None, None) => ("/usr/share/nginx", "/etc/nginx/nginx.conf"),
    };
    let prefix = switch(title, "-p").or(compiled.prefix.clone()).unwrap_or_else(|| prefix.into());
    let main_file = switch(title, "-c").or(compiled.main_file.clone()).unwrap_or_else(|| main_file.into());
    let main_file = below(&prefix, &main_file);
    (prefix, main_file)
}

/// A path that may begin at the prefix.
fn below(prefix: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", prefix.trim_end_matches('/')) }
}

/// What a running nginx was started with.
struct Started {
    executable: Option<(String, bool)>,
    compiled: Compiled,
    prefix: String,
    main_file: String,
    missing: Option<MissingSignal>,
}

fn started(pid: u32) -> Result<Started> {
    let title = procfs::arguments(pid)?;
    let executable = procfs::executable(pid).ok();
    let (compiled, missing) = match query_program(NAME, pid, executable.as_ref(), || vec!["-V".into()]) {
        Ok(finished) => (parse_compiled(&finished.stderr), None),
        Err(missing) => (Compiled::default(), Some(missing)),
    };
    let path = executable.as_ref().map_or("", |(path, _)| path.as_str());
    let (prefix, main_file) = places(&title, &compiled, path);
    Ok(Started { executable, compiled, prefix, main_file, missing })
}

/// The file that its configuration begins with.
fn main_file(pid: u32) -> Result<String> {
    Ok(started(pid)?.main_file)
}

fn snapshot(pid: u32) -> Result<ServiceSnapshot> {
    let root = Root::of(pid);
    let Started { executable, compiled, prefix, main_file, missing } = started(pid)?;
    let mut missing: Vec<MissingSignal> = missing.into_iter().collect();
    let config = config::read(&root, &main_file);
    let (mut scoped, complete) = config.scoped();
    let (keys, unreadable) = config.certificate_keys(&root);
    scoped.extend(keys);
    let mut warnings = config.problems.clone();
    warnings.extend(unreadable);
    if !complete {
        warnings.push(format!("{main_file} has more settings for parts of the site than are shown here"));
    }
    let endpoints = match config.status() {
        Ok(page) => vec![Endpoint { name: page.host, address: page.address, path: Some(page.path) }],
        Err(why) => {
            missing.push(MissingSignal::new(NAME, why, HOW_TO_ENABLE));
            vec![]
        }
    };
    let mut logs = config.logs(&prefix);
    let of_sources = |path: &str| compiled.version.is_some().then(|| path.to_owned());
    for (kind, name, path) in [
        (LogKind::Access, "access_log", compiled.access_log.clone().or(of_sources("logs/access.log"))),
        (LogKind::Error, "error_log", compiled.error_log.clone().or(of_sources("logs/error.log"))),
    ] {
        let is_told = config.settings().contains_key(name);
        let path = path.filter(|path| !is_told && config::is_log_file(path));
        let path = path.map(|path| below(&prefix, &path));
        logs.extend(path.map(|path| LogFile { path, kind, ..LogFile::default() }));
    }
    let listens = config.listens();
    Ok(ServiceSnapshot {
        service: NAME.into(),
        pid,
        executable: executable.map(|(path, _)| path),
        version: compiled.version,
        port: listens.iter().find_map(|address| address.rsplit_once(':')?.1.parse().ok()).unwrap_or(0),
        control: control::control(pid, &main_file).ok(),
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
    fn what_was_not_said_when_it_was_compiled_is_as_in_the_sources() {
        let version = "nginx version: openresty/1.21.4.1\nconfigure arguments: ";
        let openresty = format!("{version}--prefix=/usr/local/openresty/nginx --with-pcre-jit\n");
        let debian = format!("{version}--prefix=/usr/share/nginx --conf-path=/etc/nginx/nginx.conf\n");
        for (said, title, executable, prefix, main_file) in [
            (
                openresty.as_str(),
                "",
                "",
                "/usr/local/openresty/nginx",
                "/usr/local/openresty/nginx/conf/nginx.conf",
            ),
            (version, "", "", "/usr/local/nginx", "/usr/local/nginx/conf/nginx.conf"),
            (version, "nginx -p /srv/ -c a.conf", "", "/srv/", "/srv/a.conf"),
            (debian.as_str(), "", "", "/usr/share/nginx", "/etc/nginx/nginx.conf"),
            // In a container it is not asked.
            ("", "", "/usr/sbin/nginx", "/usr/share/nginx", "/etc/nginx/nginx.conf"),
            ("", "", "/opt/nginx/sbin/nginx", "/opt/nginx", "/opt/nginx/conf/nginx.conf"),
        ] {
            let found = places(&[title.to_owned()], &parse_compiled(said), executable);
            assert_eq!(found, (prefix.to_owned(), main_file.to_owned()), "{said} {title} {executable}");
        }
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
