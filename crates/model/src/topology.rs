//! What stands behind a service: the programs that it talks to, and by which sockets.

use crate::sample::MissingSignal;
use crate::service::ServiceSnapshot;
use serde::{Deserialize, Serialize};

/// A service and its backends on one machine, or all known services of a machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Topology {
    /// The service that listens on the port that was asked for; `None` when no port was.
    pub front: Option<ServiceSnapshot>,
    /// The other services: those that the front talks to, and those that these talk to; all known ones when no port was
    /// asked for.
    pub backends: Vec<ServiceSnapshot>,
    /// Who talks to whom.
    pub links: Vec<Link>,
    /// What could not be seen of it.
    pub missing: Vec<MissingSignal>,
}

/// One program that talks to another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Link {
    /// The main process of the client.
    pub from_pid: u32,
    /// The main process of the server; `None` when it is on another machine or cannot be seen.
    pub to_pid: Option<u32>,
    /// The name of the server's program as far as it is known: `php_fpm`, `mariadb`, `redis-server`.
    pub to: Option<String>,
    /// By which socket: `unix:/run/php/php8.2-fpm.sock`, `127.0.0.1:3306`.
    pub by: String,
    /// Connections when it was looked; `None` when the link is known from the configuration only.
    pub connections_count: Option<u64>,
}

impl Topology {
    /// All services, the front first.
    pub fn services(&self) -> impl Iterator<Item = &ServiceSnapshot> {
        self.front.iter().chain(&self.backends)
    }

    /// As it may be written to the event log.
    #[must_use]
    pub fn for_log(&self) -> Self {
        Self {
            front: self.front.as_ref().map(ServiceSnapshot::for_log),
            backends: self.backends.iter().map(ServiceSnapshot::for_log).collect(),
            ..self.clone()
        }
    }
}

/// What the operator gave, for what cannot be read without.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Access {
    /// A file of options for clients of the database, on the server's machine, in the format of `~/.my.cnf`.
    pub db_option_file: Option<String>,
}
