//! Flags of `webdyno lab run` and `lab show`, and of the load that a run makes or its users send.

use super::load::LoadArgs;
use super::{OutputArgs, ServerArgs, whole};
use clap::Args;
use std::path::PathBuf;

/// `webdyno lab run`.
#[derive(Debug, Args)]
pub struct LabRunArgs {
    /// Scenarios, one after the other; `all` for all
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Run each N times, and report in how many its proof held
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=1000, "10"))]
    pub repeat: u32,
    /// Only the first N rounds
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=u64::MAX, "2"))]
    pub rounds: Option<u32>,
    /// Leave the scenario up at the end
    #[arg(long)]
    pub keep: bool,
    /// Write the outcomes as JSON, one line per run, to FILE (- for stdout)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Directory of the recordings, new [default: webdyno-runs/TIME-lab-NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// No progress output
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
    /// Directory of the files that flags name
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
    /// Directory of the files that flags name
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Where the clients are recorded
    #[arg(long, value_name = "DIR")]
    pub place: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}
