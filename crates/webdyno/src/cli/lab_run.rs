//! Flags of `webdyno lab run` and `lab show`, and of the load that a run makes or its users send.

use super::load::LoadArgs;
use super::{OutputArgs, ServerArgs};
use clap::Args;
use std::path::PathBuf;

/// `webdyno lab run`.
#[derive(Debug, Args)]
pub struct LabRunArgs {
    /// Scenarios, one after the other; `all` is all of them
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Run each so many times, and tell in how many its proof held
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Only the first N rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Leave the scenario up at the end
    #[arg(long)]
    pub keep: bool,
    /// Write what came out as JSON, a line for each run, to FILE, or to stdout with -
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Directory of the recordings, new [default: webdyno-runs/TIME-lab-NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// `webdyno lab show`.
#[derive(Debug, Args)]
pub struct LabShowArgs {
    /// The scenario
    pub name: String,
}

/// `webdyno lab-load`: the load of a round, made from the host of the clients.
#[derive(Debug, Args)]
pub struct LabLoadArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Where files that flags name lie
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `webdyno lab-users`: the load of a round, sent by users whom nobody knows, from the host of the clients.
#[derive(Debug, Args)]
pub struct LabUsersArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Where files that flags name lie
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Where it is said who sends
    #[arg(long, value_name = "DIR")]
    pub place: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}
