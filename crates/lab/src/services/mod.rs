//! What runs on the hosts: Debian's programs with their files laid out as its packages do, and started as its services
//! are.
//!
//! A host has an /etc, /var, /srv and /root of its own. They come from three places, the later over the earlier: what
//! every host has of the machine (`borrowed`), the files of its programs (`base`, one folder of `crates/lab/base` for
//! each, and what follows from what is installed), and the scenario's own. Then what is enabled is linked.

mod apache;
mod base;
mod command;
mod in_host;
mod machine_files;
mod mariadb;
mod nginx;
mod packages;
mod php_fpm;
mod tree;

#[cfg(test)]
mod program_tests;
#[cfg(test)]
mod tests;

pub use in_host::CommandHost;
pub use packages::missing_packages;

use crate::scenario::{CLIENT, LabProgram, ScenarioFolder, ScenarioService};
use std::fmt::Write;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use tree::HostFiles;
use webdyno_model::{Result, UserError};

/// The folders that a host has for itself.
const OWN: [&str; 4] = ["etc", "root", "srv", "var"];
/// Where Apache's names are.
pub const ENVVARS: &str = "/etc/apache2/envvars";
/// How long its script may take, seconds.
const ENVVARS_S: &str = "10";

/// Writes a host's files below `root`, which is there: etc/, var/, srv/ and root/, owned by root where nothing else is
/// said. `names` are the hosts' names and addresses. Of the host `client` only etc/hosts, and etc/resolv.conf if the
/// scenario has one. Usage errors: the scenario's files belong elsewhere, or what it enables is not there.
pub fn write_files(
    folder: &ScenarioFolder,
    host: &str,
    root: &Path,
    names: &[(String, String)],
) -> Result<()> {
    let tree = HostFiles::new(root);
    let own = files_of(folder, host)?;
    if host == CLIENT {
        tree.file("/etc/hosts", hosts(host, names).as_bytes(), 0o644)?;
        let given = own.iter().filter(|(path, _)| {
            [Path::new("/etc/hosts"), Path::new("/etc/resolv.conf")].contains(&path.as_path())
        });
        return write_all(&tree, given);
    }
    machine_files::write_files(&tree)?;
    create_folders(&tree)?;
    tree.file("/etc/hostname", format!("{host}\n").as_bytes(), 0o644)?;
    tree.file("/etc/hosts", hosts(host, names).as_bytes(), 0o644)?;
    tree.file("/etc/resolv.conf", b"", 0o644)?;
    let services: Vec<&ScenarioService> =
        folder.scenario.services.iter().filter(|service| service.host == host).collect();
    for service in &services {
        write_program_files(&tree, service.program)?;
    }
    write_all(&tree, own.iter())?;
    for service in services {
        if service.program == LabProgram::Apache {
            apache::enable(&tree, service)?;
        }
    }
    Ok(())
}

fn write_program_files(tree: &HostFiles, program: LabProgram) -> Result<()> {
    match program {
        LabProgram::Apache => apache::write_files(tree),
        LabProgram::PhpFpm => php_fpm::write_files(tree),
        LabProgram::Mariadb => mariadb::write_files(tree),
        LabProgram::Nginx => nginx::write_files(tree),
        LabProgram::Command => Ok(()),
    }
}

/// The folders that base-files makes, and links between them.
fn create_folders(tree: &HostFiles) -> Result<()> {
    for folder in ["/srv", "/var/cache", "/var/lib", "/var/log", "/var/spool", "/var/www/html"] {
        tree.folder(folder)?;
    }
    tree.create_owned_directory("/root", "root", "root", 0o700)?;
    tree.create_owned_directory("/var/tmp", "root", "root", 0o1777)?;
    tree.link("/var/run", Path::new("/run"))?;
    tree.link("/var/lock", Path::new("/run/lock"))
}

/// The file of names. Each host has a name with a domain as well (RFC 2606): Apache asks for one of its own.
fn hosts(host: &str, names: &[(String, String)]) -> String {
    let mut text = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n".to_owned();
    for (name, address) in names {
        let _ = writeln!(text, "{address}\t{name}.test {name}");
    }
    if !names.iter().any(|(name, _)| name == host) {
        // As Debian's installer has it.
        let _ = writeln!(text, "127.0.1.1\t{host}.test {host}");
    }
    text
}

/// The scenario's files of a host. Those beside etc/, root/, srv/ and var/ are the lab's (SQL, rules of nft), and stay out.
fn files_of(folder: &ScenarioFolder, host: &str) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = vec![];
    for (path, bytes) in folder.files_of(host)? {
        let mut parts = path.components().filter(|part| *part != Component::RootDir);
        let (first, is_inner) = (parts.next(), parts.next().is_some());
        let is_own = OWN.iter().any(|own| first == Some(Component::Normal(own.as_ref())));
        if is_own {
            files.push((path, bytes));
        } else if is_inner {
            let message = format!(
                "scenario {}: {host}{} is in no folder of the host's own",
                folder.name,
                path.display()
            );
            return Err(UserError::usage(message).hint("a host has its own /etc, /root, /srv and /var"));
        }
    }
    Ok(files)
}

/// Writes files of the scenario. What begins as a script does can be run: modes are not in the program.
fn write_all<'a>(tree: &HostFiles, files: impl Iterator<Item = &'a (PathBuf, Vec<u8>)>) -> Result<()> {
    for (path, bytes) in files {
        let mode = if bytes.starts_with(b"#!") { 0o755 } else { 0o644 };
        tree.file(&path.display().to_string(), bytes, mode)?;
    }
    Ok(())
}

/// What a shell on a host has in its environment besides what every shell has: the names that Apache's configuration
/// uses, from the host's own envvars, so that `apache2 -k graceful` works as typed. `inside` runs what is added to it on
/// the host: the file is a script of the host's, and nobody else's. Of one that the shell cannot read, or that comes to
/// no end, there is nothing here; the start of Apache tells it.
pub fn environment(mut inside: Command, envvars: &Path) -> Vec<(String, String)> {
    inside.args(["timeout", "-k", "1", ENVVARS_S, "sh", "-c", ". \"$1\" >/dev/null 2>&1 && env -0", "sh"]);
    inside.arg(envvars).stdin(Stdio::null()).stderr(Stdio::null());
    let text = inside.output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let variables = text.split('\0').filter_map(|line| line.split_once('='));
    let wanted = variables.filter(|(name, _)| name.starts_with("APACHE_") || *name == "LANG");
    wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Starts a service on its host and waits until it is ready. An error tells the end of its log.
pub fn start_in(
    inside: &CommandHost,
    folder: &ScenarioFolder,
    service: &ScenarioService,
    deadline: Instant,
) -> Result<()> {
    match service.program {
        LabProgram::Apache => apache::start(inside, service, deadline),
        LabProgram::PhpFpm => php_fpm::start(inside, service, deadline),
        LabProgram::Mariadb => mariadb::start(inside, folder, service, deadline),
        LabProgram::Nginx => nginx::start(inside, service, deadline),
        LabProgram::Command => command::start(inside, folder, service, deadline),
    }
}
