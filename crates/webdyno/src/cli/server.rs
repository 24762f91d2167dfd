//! Which servers, beside the URL: where their agents are started, and with which rights.

use clap::Args;
use webdyno_host::agent::{ServerAddress, ServerList, Start};
use webdyno_model::Result;

/// Which servers, beside the URL.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// A server's host: local, ssh://[USER@]HOST[:PORT], or exec:COMMAND (any command that runs `webdyno agent` there);
    /// of several as web=S, php=S, db=S
    #[arg(long = "server", value_name = "S", default_value = "local")]
    pub servers: Vec<String>,
    /// Run the agent with root's rights there (sudo -n)
    #[arg(long)]
    pub sudo: bool,
}

impl ServerArgs {
    /// The servers by their roles.
    pub fn list(&self) -> Result<ServerList> {
        ServerList::parse(&self.servers)
    }

    /// How the agent of one of them is started.
    pub fn start(&self, address: &ServerAddress) -> Result<Start> {
        let own_executable = crate::commands::own_executable()?;
        Ok(Start { sudo: self.sudo, ..Start::at(address.clone(), &own_executable) })
    }
}
