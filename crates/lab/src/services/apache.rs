//! Debian's Apache on a host: modules with what they depend on, links as a2enmod(8), a2enconf and a2ensite make them,
//! and the start as apache2ctl(8) does it.
//!
//! The modules' dependencies are those of Debian's mods-available/*.load; what is enabled is what the installation of
//! the package apache2 enables.

use super::base;
use super::in_host::CommandHost;
use super::php_fpm;
use super::tree::HostFiles;
use crate::scenario::{LabProgram, ScenarioService};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Where the distribution has the modules.
pub const MODULES: &str = "/usr/lib/apache2/modules";
/// What the package enables.
const USUAL_MODULES: [&str; 18] = [
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_host",
    "authz_user",
    "autoindex",
    "deflate",
    "dir",
    "env",
    "filter",
    "mime",
    "negotiation",
    "reqtimeout",
    "setenvif",
    "status",
];
const USUAL_CONFS: [&str; 5] =
    ["charset", "localized-error-pages", "other-vhosts-access-log", "security", "serve-cgi-bin"];
const USUAL_SITE: &str = "000-default";
const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("access_compat", &["authn_core"]),
    ("asis", &["mime"]),
    ("auth_basic", &["authn_core"]),
    ("auth_digest", &["authn_core"]),
    ("auth_form", &["session", "authn_core"]),
    ("authn_dbd", &["dbd"]),
    ("authnz_ldap", &["ldap"]),
    ("authz_dbd", &["dbd", "authz_core"]),
    ("authz_dbm", &["authz_core"]),
    ("authz_groupfile", &["authz_core"]),
    ("authz_host", &["authz_core"]),
    ("authz_user", &["authz_core"]),
    ("cache_disk", &["cache"]),
    ("cache_socache", &["cache"]),
    ("dav_fs", &["dav"]),
    ("deflate", &["filter"]),
    ("file_cache", &["cache"]),
    ("include", &["mime"]),
    ("lbmethod_bybusyness", &["proxy_balancer"]),
    ("lbmethod_byrequests", &["proxy_balancer"]),
    ("lbmethod_bytraffic", &["proxy_balancer"]),
    ("lbmethod_heartbeat", &["proxy_balancer"]),
    ("proxy_ajp", &["proxy"]),
    ("proxy_balancer", &["proxy", "alias", "slotmem_shm"]),
    ("proxy_connect", &["proxy"]),
    ("proxy_express", &["proxy"]),
    ("proxy_fcgi", &["proxy"]),
    ("proxy_fdpass", &["proxy"]),
    ("proxy_ftp", &["proxy"]),
    ("proxy_hcheck", &["proxy"]),
    ("proxy_html", &["proxy", "xml2enc"]),
    ("proxy_http", &["proxy"]),
    ("proxy_http2", &["proxy", "http2"]),
    ("proxy_scgi", &["proxy"]),
    ("proxy_uwsgi", &["proxy"]),
    ("proxy_wstunnel", &["proxy"]),
    ("ratelimit", &["env"]),
    ("session_cookie", &["session"]),
    ("session_crypto", &["session"]),
    ("session_dbd", &["session"]),
    ("ssl", &["setenvif", "mime", "socache_shmcb"]),
];
/// Where the sites have their certificate and its key.
const CERTIFICATE: &str = "/etc/ssl/certs/ssl-cert-snakeoil.pem";
const KEY: &str = "/etc/ssl/private/ssl-cert-snakeoil.key";
/// PHP inside of Apache, whose files are not named as others are.
pub const PHP: (&str, &str) = ("php8.2", "/usr/lib/apache2/modules/libphp8.2.so");

/// The files of the program.
pub fn write_files(tree: &HostFiles) -> Result<()> {
    base::write_files(tree, "apache")?;
    for (name, text) in load_files(&installed()) {
        tree.file(&format!("/etc/apache2/mods-available/{name}.load"), text.as_bytes(), 0o644)?;
    }
    if Path::new(PHP.1).exists() {
        php_fpm::write_module_files(tree)?;
    }
    tree.create_owned_directory("/var/log/apache2", "root", "adm", 0o750)?;
    for name in ["access", "error", "other_vhosts_access"] {
        let path = format!("/var/log/apache2/{name}.log");
        tree.file(&path, b"", 0o640)?;
        tree.change_owner(&path, "root", "adm", 0o640)?;
    }
    tree.create_owned_directory("/var/cache/apache2/mod_cache_disk", "www-data", "www-data", 0o755)?;
    tree.folder("/var/lib/apache2")
}

/// The links to what is enabled, once all files are there. Usage error: something is not there.
pub fn enable(tree: &HostFiles, service: &ScenarioService) -> Result<()> {
    for module in enabled_modules(service) {
        let conf = format!("{module}.conf");
        link(tree, "mods", &format!("{module}.load"))?;
        if tree.has(&format!("/etc/apache2/mods-available/{conf}")) {
            link(tree, "mods", &conf)?;
        }
    }
    for conf in USUAL_CONFS.into_iter().chain(service.confs.iter().map(String::as_str)) {
        link(tree, "conf", &format!("{conf}.conf"))?;
    }
    let usual = [USUAL_SITE.to_owned()];
    for site in service.sites.as_deref().unwrap_or(&usual) {
        link(tree, "sites", &format!("{site}.conf"))?;
    }
    for folder in ["mods", "conf", "sites"] {
        tree.folder(&format!("/etc/apache2/{folder}-enabled"))?;
    }
    if uses(service, "ssl") && !tree.has(KEY) { make_certificate(tree, &service.host) } else { Ok(()) }
}

/// A certificate of the host's own with its key, where Debian's package ssl-cert puts them and default-ssl looks for
/// them: RSA of 2048 bits, ten years, as make-ssl-cert(8) makes it. The machine's own is never taken.
fn make_certificate(tree: &HostFiles, host: &str) -> Result<()> {
    tree.create_owned_directory("/etc/ssl/private", "root", "root", 0o700)?;
    tree.file(KEY, b"", 0o600)?;
    tree.file(CERTIFICATE, b"", 0o644)?;
    let names = format!("subjectAltName=DNS:{host},DNS:{host}.test,DNS:localhost");
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-batch"]);
    command.args([
        "-subj",
        &format!("/CN={host}"),
        "-addext",
        &names,
        "-addext",
        "basicConstraints=CA:FALSE",
    ]);
    command.arg("-keyout").arg(tree.machine_path(KEY)?).arg("-out").arg(tree.machine_path(CERTIFICATE)?);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        io_error("run", "openssl", &error).hint("a server with TLS needs it: apt-get install openssl")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let last = printed.lines().last().unwrap_or("it said nothing");
    Err(UserError::cannot_run(format!("openssl makes no certificate for {host}: {last}")))
}

fn link(tree: &HostFiles, kind: &str, file: &str) -> Result<()> {
    if !tree.has(&format!("/etc/apache2/{kind}-available/{file}")) {
        let message = format!("Apache has no {kind}-available/{file}");
        return Err(UserError::usage(message).hint(match kind {
            "mods" => "`ls /usr/lib/apache2/modules` shows the modules that are installed",
            _ => "a file of the scenario's brings it: HOST/etc/apache2/...",
        }));
    }
    let path = format!("/etc/apache2/{kind}-enabled/{file}");
    // A file that the scenario has put there stays.
    if tree.has(&path) {
        return Ok(());
    }
    tree.link(&path, &Path::new("..").join(format!("{kind}-available")).join(file))
}

/// All modules that are enabled: the usual ones, those asked for, and what they depend on.
pub fn enabled_modules(service: &ScenarioService) -> BTreeSet<String> {
    let mpm = service.mpm.as_deref().unwrap_or("event");
    let mut modules: BTreeSet<String> = USUAL_MODULES.iter().map(|name| (*name).to_owned()).collect();
    modules.insert(format!("mpm_{mpm}"));
    let mut requested: Vec<&str> =
        service.modules.iter().map(String::as_str).filter(|name| !name.starts_with('-')).collect();
    while let Some(name) = requested.pop() {
        // As a2enmod does: programs are started by a daemon where the server has threads.
        let name = if name == "cgi" && mpm != "prefork" { "cgid" } else { name };
        modules.insert(name.to_owned());
        let needs = DEPENDENCIES.iter().find(|(module, _)| *module == name);
        requested.extend(needs.map_or(&[][..], |(_, needs)| needs));
    }
    for name in service.modules.iter().filter_map(|name| name.strip_prefix('-')) {
        modules.remove(name);
    }
    modules
}

/// The modules' files.
fn installed() -> Vec<String> {
    let entries = std::fs::read_dir(MODULES).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The names and texts of the files that load them.
fn load_files(installed: &[String]) -> Vec<(String, String)> {
    let load = |file: &String| {
        let stem = file.strip_suffix(".so")?;
        let (name, symbol) = match stem.strip_prefix("lib") {
            Some(php) => (php, php.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')),
            None => (stem.strip_prefix("mod_")?, stem.strip_prefix("mod_")?),
        };
        let needs = DEPENDENCIES.iter().find(|(module, _)| *module == name);
        let comment = needs.map(|(_, needs)| format!("# Depends: {}\n", needs.join(" ")));
        let text = format!("{}LoadModule {symbol}_module {MODULES}/{file}\n", comment.unwrap_or_default());
        // The one whose file is named otherwise.
        let name = if name == "dumpio" { "dump_io" } else { name };
        Some((name.to_owned(), text))
    };
    installed.iter().filter_map(load).collect()
}

/// Starts it, and waits until it has written its process id, which it does when it listens.
pub fn start(inside: &CommandHost, service: &ScenarioService, deadline: Instant) -> Result<()> {
    inside.run(service, "Apache", include_str!("apache.sh"), &[], deadline)
}

/// Whether a service is an Apache that has a module enabled.
pub fn uses(service: &ScenarioService, module: &str) -> bool {
    service.program == LabProgram::Apache && enabled_modules(service).contains(module)
}
