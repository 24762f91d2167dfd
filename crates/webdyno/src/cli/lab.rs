//! Flags of `webdyno lab`.

use super::lab_run::{LabRunArgs, LabShowArgs};
use super::whole;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// `webdyno lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    /// Use the scenarios in DIR instead of the built-in ones
    #[arg(long, value_name = "DIR", global = true)]
    pub scenarios: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: LabCommand,
}

/// What the lab does.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List the scenarios, and which of them are up
    List,
    /// Build a scenario: its hosts, links and services
    Up(UpArgs),
    /// Draw a server at random, with its load and what is wrong with it, and build it
    Draw(DrawArgs),
    /// Build scenarios, load them round by round, judge and remove them
    Run(LabRunArgs),
    /// Print the page of a scenario: story, files, commands
    Show(LabShowArgs),
    /// Run a command on a host of a scenario that is up; a shell without one
    Exec(ExecArgs),
    /// Remove a scenario completely
    Down(DownArgs),
    /// What hosts are made of
    #[command(hide = true)]
    Host(HostArgs),
}

/// `webdyno lab up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// The scenario
    pub name: String,
}

/// `webdyno lab draw`.
#[derive(Debug, Args)]
pub struct DrawArgs {
    /// The server: the same seed draws the same one, on every machine
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX, "17"), allow_negative_numbers = true)]
    pub seed: u64,
    /// The N-th server in place of the first, as where the faults of that one do not limit it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u32>(0..=1000, "1"), allow_negative_numbers = true)]
    pub attempt: u32,
    /// Write it as a scenario below DIR, and build nothing; the description holds the truth
    #[arg(long, value_name = "DIR")]
    pub write: Option<PathBuf>,
    /// Print what is wrong with it, too
    #[arg(long)]
    pub show_truth: bool,
}

/// `webdyno lab exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The scenario
    pub name: String,
    /// The host [default: server], and the command with its arguments
    #[arg(value_name = "HOST] [--] [COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// `webdyno lab down`.
#[derive(Debug, Args)]
#[command(override_usage = "webdyno lab down <NAME|--all>")]
pub struct DownArgs {
    /// The scenario
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub name: Option<String>,
    /// Remove all of them
    #[arg(long)]
    pub all: bool,
}

/// `webdyno lab host`.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// Which of the two processes that a host begins with
    #[arg(value_parser = ["first", "second"])]
    pub process: String,
    /// Whether the host sees the machine's processes
    #[arg(long)]
    pub sees_processes: bool,
}
