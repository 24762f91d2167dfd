//! Debian's nginx on a host.

use super::base;
use super::in_host::CommandHost;
use super::tree::HostFiles;
use crate::scenario::ScenarioService;
use std::path::Path;
use std::time::Instant;
use webdyno_model::Result;

/// Where packages put the lines that load their modules.
const MODULES: &str = "/usr/share/nginx/modules-available";

/// The files of the program; its default site is enabled, and all modules that are installed.
pub fn write_files(tree: &HostFiles) -> Result<()> {
    base::write_files(tree, "nginx")?;
    tree.link("/etc/nginx/sites-enabled/default", Path::new("/etc/nginx/sites-available/default"))?;
    tree.folder("/etc/nginx/modules-enabled")?;
    for entry in std::fs::read_dir(MODULES).into_iter().flatten().flatten() {
        let link = format!("/etc/nginx/modules-enabled/50-{}", entry.file_name().display());
        tree.link(&link, &entry.path())?;
    }
    tree.folder("/var/lib/nginx")?;
    tree.create_owned_directory("/var/log/nginx", "root", "adm", 0o755)
}

/// Starts it; its first process goes to the background when it listens.
pub fn start(inside: &CommandHost, service: &ScenarioService, deadline: Instant) -> Result<()> {
    inside.run(service, "nginx", include_str!("nginx.sh"), &[], deadline)
}
