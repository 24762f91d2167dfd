//! Flags of `webdyno lab run` and what belongs to it: showing scenarios, their pages and their table, what others advise, and
//! the load that a run makes or its users send.

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
    /// Watch each as it was found, under users whom nobody knows: wrk sends the load where it can, our own generator the rest
    #[arg(long, hide = true, conflicts_with = "rounds")]
    pub users: bool,
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

/// `webdyno lab pages`.
#[derive(Debug, Args)]
pub struct LabPagesArgs {
    /// Write the pages of the user guide below DIR: scenarios/NAME.md, and the list in scenarios.md
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// `webdyno lab table`.
#[derive(Debug, Args)]
pub struct LabTableArgs {
    /// What runs wrote with --json; of several runs of a scenario the last ones count
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Write the table to FILE instead of stdout
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `webdyno lab judge`.
#[derive(Debug, Args)]
pub struct LabJudgeArgs {
    /// Directories of runs, of several of them, or of kept recordings
    #[arg(value_name = "DIR", required = true)]
    pub directories: Vec<PathBuf>,
    /// Keep the recordings in FOLDER, packed, instead of judging them
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Write the page of the diagnosis to FILE: also with signals hidden
    #[arg(long, value_name = "FILE", conflicts_with = "keep")]
    pub out: Option<PathBuf>,
    /// Put beside it what advisers said, as `lab rivals` wrote it to FILE
    #[arg(long, value_name = "FILE", requires = "out")]
    pub rivals: Option<PathBuf>,
    /// On that page, what runs with --users wrote to FILE
    #[arg(long, value_name = "FILE", requires = "out")]
    pub watched: Option<PathBuf>,
    /// Compare the ceilings that rounds predict with those that others measured, too
    #[arg(long, conflicts_with = "keep")]
    pub ceilings: bool,
    /// Take the load of each for other clients' traffic, and diagnose what the server alone tells
    #[arg(long, conflicts_with = "keep")]
    pub passive: bool,
}

/// `webdyno lab rivals`.
#[derive(Debug, Args)]
pub struct LabRivalsArgs {
    /// Scenarios, one after the other; `all` is all of them
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Write what they said to FILE, a line of JSON for each scenario, in place of what is there of the same ones
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Directory of the recordings, new [default: webdyno-runs/TIME-lab-NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
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
