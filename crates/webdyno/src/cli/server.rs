//! Which servers, beside the URL: where their agents are started, and with which rights.

use clap::Args;
use webdyno_host::agent::{ServerAddress, ServerList, Start};
use webdyno_model::Result;
use webdyno_model::topology::Access;

/// Which servers, beside the URL.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Host: local, ssh://HOST, exec:COMMAND
    ///
    /// Also ssh://[USER@]HOST[:PORT]; exec: takes any command that runs `webdyno agent` there. Of several hosts as web=S, php=S,
    /// db=S; host=S is the machine that a container or namespace of the web server runs on, where `tune` changes settings of
    /// the whole machine
    #[arg(long = "server", value_name = "S", default_value = "local")]
    pub servers: Vec<String>,
    /// Run the agent there as root (sudo -n)
    #[arg(long)]
    pub sudo: bool,
    /// Option file with user and password of the database
    ///
    /// On its host, in the form of ~/.my.cnf; without it the credentials of the agent's user are used
    #[arg(long, value_name = "FILE")]
    pub db_option_file: Option<String>,
}

impl ServerArgs {
    /// The servers by their roles.
    pub fn list(&self) -> Result<ServerList> {
        ServerList::parse(&self.servers)
    }

    /// What is given for what cannot be read without.
    pub fn access(&self) -> Access {
        Access { db_option_file: self.db_option_file.clone() }
    }

    /// How the agent of one of them is started.
    pub fn start(&self, address: &ServerAddress) -> Result<Start> {
        let own_executable = crate::process::own_executable()?;
        Ok(Start { sudo: self.sudo, ..Start::at(address.clone(), &own_executable) })
    }
}

/// Which servers, where a load may also be of one that nobody observes.
#[derive(Debug, Clone, Args)]
pub struct ObservedArgs {
    /// Also observe the host: local, ssh://HOST, exec:COMMAND
    ///
    /// Also ssh://[USER@]HOST[:PORT]; exec: takes any command that runs `webdyno agent` there. `capacity` then names what limits;
    /// `sweep` of a setting needs it, and takes local without it
    #[arg(long = "server", value_name = "S")]
    pub servers: Vec<String>,
    /// Run the agent there as root (sudo -n)
    #[arg(long)]
    pub sudo: bool,
    /// Option file with user and password of the database
    ///
    /// On its host, in the form of ~/.my.cnf; without it the credentials of the agent's user are used
    #[arg(long, value_name = "FILE", requires = "servers")]
    pub db_option_file: Option<String>,
}

impl ObservedArgs {
    /// The servers to observe; `None` where none is.
    pub fn server(&self) -> Option<ServerArgs> {
        (!self.servers.is_empty()).then(|| self.server_or_local())
    }

    /// The same, of this machine where none was given.
    pub fn server_or_local(&self) -> ServerArgs {
        let local = || vec![ServerAddress::Local.to_string()];
        ServerArgs {
            servers: if self.servers.is_empty() { local() } else { self.servers.clone() },
            sudo: self.sudo,
            db_option_file: self.db_option_file.clone(),
        }
    }
}
