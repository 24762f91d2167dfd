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
}

/// `webdyno workload check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The workload file
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
}
