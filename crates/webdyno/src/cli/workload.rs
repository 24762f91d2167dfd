//! The flags of `webdyno workload`: what is done with workload files, without any load.

use super::tree::{FromTreeArgs, FromUrlsArgs, MakeTreeArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `webdyno workload`.
#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: WorkloadCommand,
}

/// What is done with workload files.
#[derive(Debug, Subcommand)]
pub enum WorkloadCommand {
    /// Read a workload file and print what it means; nothing is sent
    Check(CheckArgs),
    /// Make a tree of files to serve, from a seed
    MakeTree(MakeTreeArgs),
    /// Write a workload file that loads the files of a tree
    FromTree(FromTreeArgs),
    /// Write a workload file from a list of URLs
    FromUrls(FromUrlsArgs),
    /// Write a workload file from what a browser recorded
    FromHar(FromHarArgs),
}

/// `webdyno workload check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The workload file
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
}

/// `webdyno workload from-har`.
#[derive(Debug, Args)]
pub struct FromHarArgs {
    /// The recording: in the browser's developer tools, Network, Save all as HAR
    #[arg(value_name = "FILE.har")]
    pub file: PathBuf,

    /// Workload file to write, new
    #[arg(short, long, value_name = "FILE.toml", default_value = "workload.toml")]
    pub output: PathBuf,

    /// Load this host, too (repeatable) [default: only that of the first request]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub host: Vec<String>,

    /// Users who do what was recorded
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub users: u32,
}
