//! The command line of `webdyno-evaluation`.

use clap::{Args, Parser, Subcommand};
use std::ops::Range;
use std::path::PathBuf;
use webdyno_lab::scenario::Catalogue;

/// What the diagnosis is worth, and the generated pages of docs/: for development.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// Take the scenarios of this folder instead of those in the program
    #[arg(long, value_name = "DIR", global = true)]
    pub scenarios: Option<PathBuf>,
    /// The program that makes hosts and loads [default: webdyno beside this program]
    #[arg(long, value_name = "PROGRAM", global = true)]
    pub webdyno: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Diagnose recordings of scenarios, and compare with what these say
    Judge(JudgeArgs),
    /// Write the generated pages of the user guide: scenarios, metrics, manual
    Pages(PagesArgs),
    /// Write docs/lab.md from what runs wrote
    Table(TableArgs),
    /// Run apache2buddy's rules and MySQLTuner on scenarios as they are found, right after their load
    Rivals(ScenariosArgs),
    /// Diagnose scenarios as they are found from traffic alone: wrk sends the load where it can, our own generator the rest
    Watch(ScenariosArgs),
    /// Tune scenarios as they are found, roll back, mend them by hand, and compare
    Tune(ScenariosArgs),
    /// Run servers drawn at random, measure what limits each, and compare with what the diagnosis says
    Draw(DrawArgs),
}

/// `webdyno-evaluation draw`.
#[derive(Debug, Args)]
pub struct DrawArgs {
    /// Seeds, the last one left out; below 1000 those that rules may be written with
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub seeds: Range<u64>,
    /// Directory of the recordings and of what each seed came to: seeds that are there are not run again
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Write what all seeds came to, a line of JSON for each, to FILE
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a line for each wrong first finding to FILE, by how much of the server is seen
    #[arg(long, value_name = "FILE")]
    pub failures: Option<PathBuf>,
    /// Tune each server, too, and roll back: a minute or two more for each
    #[arg(long)]
    pub tune: bool,
    /// Run nothing: judge the seeds that are there
    #[arg(long, conflicts_with = "tune")]
    pub judge_only: bool,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// A range of seeds.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range
        .filter(|range: &Range<u64>| !range.is_empty())
        .ok_or_else(|| "two whole numbers, as 1000..1200".to_owned())
}

/// `webdyno-evaluation judge`.
#[derive(Debug, Args)]
pub struct JudgeArgs {
    /// Directories of runs, of several of them, or of kept recordings
    #[arg(value_name = "DIR", required = true)]
    pub directories: Vec<PathBuf>,
    /// Keep the recordings in FOLDER, packed, instead of judging them
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Write the page of the diagnosis to FILE: also with signals hidden
    #[arg(long, value_name = "FILE", conflicts_with = "keep")]
    pub out: Option<PathBuf>,
    /// On that page, what advisers said, as `rivals` wrote it to FILE
    #[arg(long, value_name = "FILE", requires = "out")]
    pub rivals: Option<PathBuf>,
    /// On that page, what `watch` wrote to FILE
    #[arg(long, value_name = "FILE", requires = "out")]
    pub watched: Option<PathBuf>,
    /// On that page, what `draw` wrote to FILE
    #[arg(long, value_name = "FILE", requires = "out")]
    pub drawn: Option<PathBuf>,
    /// Compare the ceilings that rounds predict with those that others measured, too
    #[arg(long, conflicts_with = "keep")]
    pub ceilings: bool,
    /// Write the page of what they predict of each other to FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keep", "out"])]
    pub predictions: Option<PathBuf>,
    /// Take the load of each for other clients' traffic, and diagnose what the server alone shows
    #[arg(long, conflicts_with = "keep")]
    pub passive: bool,
}

/// `webdyno-evaluation pages`.
#[derive(Debug, Args)]
pub struct PagesArgs {
    /// Write them below DIR: scenarios/NAME.md, scenarios.md, metrics.md and manual.md
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// `webdyno-evaluation table`.
#[derive(Debug, Args)]
pub struct TableArgs {
    /// What runs wrote with --json; of several runs of a scenario the last ones count
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Write the table to FILE instead of stdout
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `webdyno-evaluation rivals` and `watch`.
#[derive(Debug, Args)]
pub struct ScenariosArgs {
    /// Scenarios, one after the other; `all` is all of them
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Write the results to FILE, a line of JSON for each scenario, in place of what is there of the same ones
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Directory of the recordings, new; with several scenarios each has one of its name in it
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// The scenarios of a folder, or those in the program.
pub fn catalogue(folder: Option<PathBuf>) -> Catalogue {
    folder.map_or(Catalogue::BuiltIn, Catalogue::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn seeds_are_a_range() {
        assert_eq!(seeds("3..5"), Ok(3..5));
        for wrong in ["3", "5..3", "3..3", "a..b", "..5", "-1..2"] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
    }
}
