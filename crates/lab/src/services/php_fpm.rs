//! Debian's PHP-FPM on a host, and PHP's extensions, which serve Apache's module and the command line as well.
//!
//! The extensions' files and their order are those of phpenmod(8): what others need comes first.

use super::base;
use super::in_host::CommandHost;
use super::tree::HostFiles;
use crate::scenario::ScenarioService;
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;
use webdyno_model::Result;

/// Where the distribution has the extensions of this version.
const EXTENSIONS: &str = "/usr/lib/php/20220829";
/// Extensions that come before the others.
const FIRST: [&str; 3] = ["mysqlnd", "opcache", "pdo"];
/// Who reads the settings.
const READERS: [&str; 3] = ["apache2", "cli", "fpm"];

/// The files of FPM.
pub fn write_files(tree: &HostFiles) -> Result<()> {
    base::write_files(tree, "php_fpm")?;
    write_php_files(tree)
}

/// The files of PHP inside of Apache.
pub fn write_module_files(tree: &HostFiles) -> Result<()> {
    base::write_files(tree, "mod_php")?;
    write_php_files(tree)
}

/// What every PHP has: all extensions that are installed, and a place for sessions.
fn write_php_files(tree: &HostFiles) -> Result<()> {
    let entries = std::fs::read_dir(EXTENSIONS).into_iter().flatten().flatten();
    for entry in entries {
        let file = entry.file_name().display().to_string();
        let Some(name) = file.strip_suffix(".so") else { continue };
        let available = format!("/etc/php/8.2/mods-available/{name}.ini");
        let (text, priority) = extension_file(name);
        tree.file(&available, text.as_bytes(), 0o644)?;
        for reader in READERS {
            let link = format!("/etc/php/8.2/{reader}/conf.d/{priority}-{name}.ini");
            tree.link(&link, Path::new(&available))?;
        }
    }
    tree.folder("/var/lib/php/modules")?;
    // Anybody may add a session; nobody may list them.
    tree.create_owned_directory("/var/lib/php/sessions", "root", "root", 0o1733)
}

/// The settings file of an extension, and its place in the order.
fn extension_file(name: &str) -> (String, u32) {
    let priority = if FIRST.contains(&name) { 10 } else { 20 };
    let mut text = format!("; priority={priority}\n");
    let _ = match name {
        // Debian switches the compiler off, which is not ready on all of its architectures.
        "opcache" => writeln!(text, "zend_extension=opcache.so\nopcache.jit=off"),
        _ => writeln!(text, "extension={name}.so"),
    };
    (text, priority)
}

/// Starts it; its first process goes to the background when the pools listen.
pub fn start(inside: &CommandHost, service: &ScenarioService, deadline: Instant) -> Result<()> {
    inside.run(service, "PHP-FPM", include_str!("php_fpm.sh"), &[], deadline)
}
