//! The flags of `webdyno serve`.

use super::values::address;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `webdyno serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Directory of the run directories
    #[arg(value_name = "DIR", default_value = "webdyno-runs")]
    pub directory: PathBuf,
    /// Address to listen on [default: 127.0.0.1 and a free port]
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0", value_parser = address, hide_default_value = true)]
    pub listen: SocketAddr,
    /// Permit an address that other machines reach; not encrypted
    #[arg(long)]
    pub allow_remote: bool,
    /// Permit to start and stop saved workloads
    ///
    /// One at a time, as a webdyno run of its own with a run directory in DIR; what was started ends with the server
    #[arg(long)]
    pub control: bool,
    /// Workload file that may be started (repeatable) [default: those in DIR]
    #[arg(long = "workload", id = "saved_workloads", value_name = "FILE", requires = "control")]
    pub workloads: Vec<PathBuf>,
}
