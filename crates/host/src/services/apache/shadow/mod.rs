//! A second instance of an Apache, from the same files, that shows what a configuration does before the site has it.
//!
//! Every file of the configuration is copied, and in the copies all that two instances must not share is another:
//! listeners, pid file, logs, sockets, locks, caches ([`directives`]). ServerRoot stays, and so do modules,
//! certificates, documents and `.htaccess` files, the user, and the options of the command line. So what is proved is
//! that this configuration starts, and how it answers. What is not: TLS handshakes, addresses other than the one that is
//! asked, programs that get logs, and the numbers of spare servers, which are kept small to cost little memory (they
//! decide how fast a server grows, not whether it starts or what it answers).
//!
//! Programs that Apache itself starts are started for it too: CGI daemons, FastCGI and WSGI processes, `prg:` maps.

pub mod addresses;
pub mod directives;
pub mod mirror;
pub mod render;

use super::config::model::Source;
use super::control::{Apache, Options, pid_file_name};
use super::status::near;
use crate::os::machine::free_port::hold_free_port;
use crate::os::procfs;
use crate::os::wildcard::is_pattern;
use crate::services::{Shadow, ShadowFolder};
use addresses::Addresses;
use directives::{DEFAULTS, MANAGES_CERTIFICATES};
use mirror::Mirror;
use render::{Renderer, quoted};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use webdyno_model::change::FileEdit;
use webdyno_model::error::io_error;
use webdyno_model::service::Control;
use webdyno_model::{Result, UserError};

/// Defines that keep a server from having children: a second instance is to work as it does in service.
const DEBUGGING: [&str; 2] = ["DEBUG", "ONE_PROCESS"];

/// Variables by which a supervisor talks to the original; a second instance must not answer for it.
const OF_SUPERVISORS: [&str; 6] =
    ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// As few servers as can answer.
const SPARES: [(&str, &str); 3] = [
    ("prefork.c", "StartServers 1\nMinSpareServers 1\nMaxSpareServers 2\n"),
    ("worker.c", "StartServers 1\nMinSpareThreads 1\nMaxSpareThreads 2\n"),
    ("event.c", "StartServers 1\nMinSpareThreads 1\nMaxSpareThreads 2\n"),
];

/// Renders the second instance with these files.
pub fn shadow(control: &Control, edits: &[FileEdit], port: u16, folder: &Path) -> Result<Shadow> {
    let overlay = edits.iter().map(|edit| (PathBuf::from(&edit.path), edit.after.clone())).collect();
    let apache = Apache::with_sources(control.clone(), overlay)?;
    // Held until all are found, so that none is found twice.
    let mut held = vec![];
    let mut free_port = || {
        let found = hold_free_port().and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
        let (port, listener) =
            found.map_err(|error| io_error("find a free port on", Ipv4Addr::LOCALHOST, &error))?;
        held.push(listener);
        Ok(port)
    };
    let mut shadow = render(&apache, port, folder, &mut free_port)?;
    let alive = procfs::stat(control.pid).is_ok_and(|stat| stat.start_ticks == control.start_ticks);
    if alive {
        // The control keeps no secrets, and the site may need some.
        shadow.environment = procfs::environment(control.pid).unwrap_or(shadow.environment);
        let ours = procfs::acts_as(std::process::id());
        shadow.user = procfs::acts_as(control.pid).filter(|theirs| Some(*theirs) != ours);
    }
    shadow.environment.retain(|name, _| !OF_SUPERVISORS.contains(&name.as_str()));
    Ok(shadow)
}

/// Renders an Apache whose sources were kept; `free_port` gives another port with each call.
fn render(
    apache: &Apache,
    port: u16,
    folder: &Path,
    free_port: &mut dyn FnMut() -> Result<u16>,
) -> Result<Shadow> {
    check(apache, folder)?;
    let ports = ports(apache, free_port)?;
    let own_port = *ports.get(&port).ok_or_else(|| {
        UserError::cannot_run(format!("the configuration does not say that apache listens on port {port}"))
    })?;
    let asked = near(&apache.evaluation, port).first().map_or(Ipv4Addr::LOCALHOST.into(), |near| near.ip());
    let (run, files) = (folder.join("run"), folder.join("files"));
    let mut renderer = renderer(apache, folder, Addresses::new(ports, asked), &files);
    let parts = Parts::render(apache, &mut renderer, folder)?;
    let pid_file = renderer.mirror().file(&pid_file_name(&apache.evaluation, &apache.compiled));
    let log = match apache.evaluation.global(&["ErrorLog"]) {
        Some(placed) => renderer.error_log(&placed.arguments),
        None => folder.join("error.log"),
    };
    let first = format!(
        "PidFile {}\nDefaultRuntimeDir {}\nErrorLog {}\n",
        quoted(&pid_file),
        quoted(&run),
        quoted(&log)
    );
    let (copies, mirror) = renderer.finish();
    let command = command(apache, &parts, folder);
    let mut names: Vec<_> =
        copies.iter().map(|copy| (path_text(&copy.path), path_text(&copy.original))).collect();
    names.extend([files, folder.join("missing")].map(|root| (path_text(&root), String::new())));
    let own = [("first.conf", first), ("last.conf", last(apache, &run))];
    let own = own.map(|(name, text)| (folder.join(name), text.into_bytes()));
    names.sort_by_key(|(own, _)| std::cmp::Reverse(own.len()));
    // The instance's workers pass through it, whoever they are.
    let mut folders = vec![ShadowFolder { path: run, mode: 0o755, owner: None }];
    folders.extend(mirror.into_folders());
    Ok(Shadow {
        folders,
        files: copies.into_iter().map(|copy| (copy.path, copy.content)).chain(own).collect(),
        command,
        environment: apache.control.environment.clone(),
        directory: apache.control.directory.clone(),
        user: None,
        inherited: apache.control.inherited.clone(),
        pid_file,
        port: own_port,
        log,
        names,
    })
}

/// What is made of the main file and of the directives of the command line.
struct Parts {
    before: Vec<String>,
    main: PathBuf,
    after: Vec<String>,
}

impl Parts {
    fn render(apache: &Apache, renderer: &mut Renderer<'_>, folder: &Path) -> Result<Self> {
        let name = apache.main_file.file_name().unwrap_or_default();
        let mut parts = Self { before: vec![], main: folder.join("main").join(name), after: vec![] };
        let mut is_after = false;
        for source in outermost(apache) {
            if source.path.is_some() {
                renderer.file(source, parts.main.clone())?;
                is_after = true;
                continue;
            }
            let text = directive(source, renderer)?;
            if is_after { parts.after.push(text) } else { parts.before.push(text) }
        }
        Ok(parts)
    }
}

/// The main file, between the directives of the command line.
fn outermost(apache: &Apache) -> impl Iterator<Item = &Source> {
    apache.evaluation.sources.iter().filter(|source| source.included.is_none())
}

fn directive(source: &Source, renderer: &mut Renderer<'_>) -> Result<String> {
    Ok(String::from_utf8_lossy(&renderer.document(source)?).into_owned())
}

/// What cannot be shown by a second instance, or must not be.
fn check(apache: &Apache, folder: &Path) -> Result<()> {
    if !outermost(apache).any(|source| source.path.is_some()) {
        return Err(UserError::cannot_run(format!("cannot read {}", apache.main_file.display())));
    }
    let of_certificates =
        |name: &str| MANAGES_CERTIFICATES.iter().any(|known| known.eq_ignore_ascii_case(name));
    let mut directives = apache.evaluation.directives.iter();
    let manages = directives.any(|placed| {
        of_certificates(&placed.name) || placed.scope.iter().any(|section| of_certificates(&section.name))
    });
    if manages {
        return Err(UserError::cannot_run(
            "apache gets its certificates itself (mod_md), and a second instance would ask for them, too",
        ));
    }
    let text = folder.to_str().unwrap_or("\"");
    if is_pattern(text) || text.contains(['"', '\\', '$', '\n']) {
        return Err(UserError::cannot_run(format!(
            "apache cannot read configuration below {}: it takes characters of that name for others",
            folder.display()
        ))
        .hint("set WEBDYNO_STATE to a directory with a plain name"));
    }
    Ok(())
}

/// A port for each port that is listened on.
fn ports(apache: &Apache, free_port: &mut dyn FnMut() -> Result<u16>) -> Result<BTreeMap<u16, u16>> {
    let listens = apache.evaluation.all(&["Listen"]);
    let ports: BTreeSet<u16> =
        listens.filter_map(|placed| addresses::port_of(placed.words().first()?)).collect();
    ports.into_iter().map(|port| Ok((port, free_port()?))).collect()
}

fn renderer<'a>(apache: &'a Apache, folder: &'a Path, addresses: Addresses, files: &Path) -> Renderer<'a> {
    let root = apache.evaluation.server_root.clone();
    let runtime = apache.evaluation.global(&["DefaultRuntimeDir"]);
    let runtime = runtime.and_then(|placed| placed.words().into_iter().next());
    let runtime = runtime.map(|directory| apache.evaluation.path(&directory));
    let mirror = Mirror::new(files.to_owned(), std::iter::once(root).chain(runtime).collect());
    Renderer::new(&apache.evaluation, folder, addresses, mirror)
}

/// The command that starts it in the background, unless the original is told to stay in the foreground.
fn command(apache: &Apache, parts: &Parts, folder: &Path) -> Vec<String> {
    let message = Options::parse(&apache.control.arguments);
    let directory = Path::new(&apache.control.directory);
    let include = |name: &str| format!("Include {}", quoted(&folder.join(name)));
    let options = Options {
        config_file: Some(path_text(&parts.main)),
        server_root: message.server_root.map(|root| path_text(&directory.join(root))),
        defines: message.defines.into_iter().filter(|name| !DEBUGGING.contains(&name.as_str())).collect(),
        before: std::iter::once(include("first.conf")).chain(parts.before.iter().cloned()).collect(),
        after: parts.after.iter().cloned().chain([include("last.conf")]).collect(),
        foreground: false,
    };
    let mut command = vec![apache.control.executable.clone()];
    command.extend(options.arguments());
    command.extend(["-k".to_owned(), "start".to_owned()]);
    command
}

/// What is read last: few servers, and places for what modules write that the configuration does not name.
fn last(apache: &Apache, run: &Path) -> String {
    let is_free = |directive: &str| apache.evaluation.all(&[directive]).next().is_none();
    let places = DEFAULTS
        .iter()
        .filter(|(_, directive, _)| is_free(directive))
        .map(|(module, directive, name)| (*module, format!("{directive} {}\n", quoted(&run.join(name)))));
    let spares = SPARES.iter().map(|(module, text)| (*module, (*text).to_owned()));
    let all = spares.chain(places);
    all.map(|(module, text)| format!("<IfModule {module}>\n{text}</IfModule>\n")).collect()
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
