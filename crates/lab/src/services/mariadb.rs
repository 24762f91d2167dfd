//! Debian's MariaDB on a host: a fresh data directory, the server, and the scenario's SQL.
//!
//! Its root is the system's root by its socket, without a password (mariadb-install-db(1)). A fresh data directory is
//! written without waiting for the disk, for which it would wait most of the time: nothing is lost with it.

use super::base;
use super::in_host::CommandHost;
use super::tree::HostFiles;
use crate::scenario::{ScenarioFolder, ScenarioService};
use std::path::Path;
use std::time::Instant;
use webdyno_model::{Result, UserError};

/// The files of the program.
pub fn write_files(tree: &HostFiles) -> Result<()> {
    base::write_files(tree, "mariadb")?;
    tree.link("/etc/mysql/my.cnf", Path::new("mariadb.cnf"))?;
    tree.create_owned_directory("/var/lib/mysql", "mysql", "mysql", 0o755)?;
    tree.create_owned_directory("/var/log/mysql", "mysql", "adm", 0o2750)
}

/// Starts it, waits until it answers, and gives it the SQL. Usage error: the file of SQL is not there.
pub fn start(
    inside: &CommandHost,
    folder: &ScenarioFolder,
    service: &ScenarioService,
    deadline: Instant,
) -> Result<()> {
    let sql = match &service.sql {
        None => vec![],
        Some(path) => {
            let place = format!("{}/{}", service.host, path.trim_start_matches('/'));
            folder.file(&place)?.ok_or_else(|| {
                UserError::usage(format!("scenario {} has no file {place}", folder.name))
                    .hint("`sql` of a service names a file in its host's folder")
            })?
        }
    };
    inside.run_with(service, "MariaDB", include_str!("mariadb.sh"), &[], &sql, deadline)
}
