//! The command line: flags with their documentation, as docs/contract.md fixes them. Help, suggestions for mistyped
//! words and exit code 2 come from clap.

pub mod body;
pub mod check;
pub mod export;
pub mod lab;
pub mod lab_run;
pub mod list;
pub mod load;
pub mod observe;
pub mod server;
pub mod stages;
pub mod transport;
pub mod tree;
pub mod visits;
pub mod workload;

pub mod compare;
pub mod history;

pub use check::CheckArgs;
use clap::{Args, Parser, Subcommand};
use compare::CompareArgs;
use export::ExportArgs;
use history::HistoryArgs;
use lab::LabArgs;
use lab_run::{LabLoadArgs, LabUsersArgs};
use load::LoadArgs;
pub use load::open_file_connections_max;
pub use observe::ObserveArgs;
pub use server::ServerArgs;
use stages::StageArgs;
use std::path::PathBuf;
use webdyno_load::workload::file::Draft;
use webdyno_model::duration::parse_duration_us;
use webdyno_model::tune::{Goal, GoalRequest};
use workload::WorkloadArgs;

/// What `--version` says behind the name: tool and agent must be of one build.
const LONG_VERSION: &str = env!("WEBDYNO_BUILD");

/// A dynamometer for web servers: load it, see what limits it, change that safely, prove the gain.
#[derive(Debug, Parser)]
#[command(name = "webdyno", version, long_version = LONG_VERSION, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "New here? `webdyno quickstart` shows the whole loop on a private Apache in about a minute.\n\
    Exit codes: 0 done, 1 could not run, 2 wrong usage, 3 a goal or objective was not met, 130 interrupted."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // there is one of it
pub enum Command {
    /// Show the whole loop on a private Apache of its own: no root, no target, no configuration
    Quickstart(QuickstartArgs),
    /// Load a server and report what was measured
    Run(RunArgs),
    /// Look at a server without traffic: its ceilings, and settings that contradict each other; reads only
    Check(CheckArgs),
    /// Load and observe a server, and name what limits it
    Diagnose(DiagnoseArgs),
    /// Watch a host and its services without load: record them, take one look, or keep the last while and freeze what goes
    /// wrong
    Observe(ObserveArgs),
    /// Change what limits a server, round by round, until the goal is met; only plans without --apply
    Tune(TuneArgs),
    /// Rebuild text, JSON, HTML and change record from the recording of a session
    Report(ReportArgs),
    /// Restore the original configuration
    Rollback(RollbackArgs),
    /// Print the manual's chapter on a finding
    Explain(ExplainArgs),
    /// Check a workload file, or make one
    Workload(WorkloadArgs),
    /// What the program starts of itself
    #[command(flatten)]
    Helper(Helper),
    /// Faulty servers of our own, in namespaces: build them, load them, mend them
    Lab(LabArgs),
    /// Compare two recordings figure by figure: ratio, 95% interval, verdict
    Compare(CompareArgs),
    /// List the sessions below a directory, newest first
    History(HistoryArgs),
}

/// Commands that the program gives itself, on a server or in a host of the lab.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // there is one of it
pub enum Helper {
    /// The server's end of --server: speaks framed messages on stdin and stdout
    Agent(AgentArgs),
    /// The load of a scenario's round
    #[command(hide = true)]
    LabLoad(LabLoadArgs),
    /// The users of a scenario that is only watched
    #[command(hide = true)]
    LabUsers(LabUsersArgs),
}

impl Command {
    /// Whether it loads or changes a server, and so must find it as it was. The others only read.
    pub fn needs_reverted_server(&self) -> bool {
        self.output().is_some() && !matches!(self, Self::Observe(_) | Self::Check(_))
    }

    /// Where its results go, of a command that begins a session.
    pub fn output(&self) -> Option<&OutputArgs> {
        match self {
            Self::Quickstart(arguments) => Some(&arguments.output),
            Self::Run(arguments) => Some(&arguments.output),
            Self::Diagnose(arguments) => Some(&arguments.output),
            Self::Tune(arguments) => Some(&arguments.output),
            Self::Observe(arguments) => Some(&arguments.output),
            Self::Check(arguments) => Some(&arguments.output),
            Self::Report(_)
            | Self::Rollback(_)
            | Self::Explain(_)
            | Self::Workload(_)
            | Self::Helper(_)
            | Self::Lab(_)
            | Self::Compare(_)
            | Self::History(_) => None,
        }
    }
}

/// Where results go.
#[derive(Debug, Args)]
pub struct OutputArgs {
    #[command(flatten)]
    pub exports: ExportArgs,
    /// Run directory [default: webdyno-runs/TIME-COMMAND]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
    /// A line of progress every second
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Plain lines of progress instead of one that is rewritten
    #[arg(long)]
    pub no_tui: bool,
}

/// `webdyno quickstart`.
#[derive(Debug, Args)]
pub struct QuickstartArgs {
    /// Where to stop: `max`, or a rate as in '500 req/s'
    #[arg(long, default_value = "max", value_parser = |text: &str| with_hint(Goal::parse(text)))]
    pub goal: Goal,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `webdyno run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub stages: StageArgs,
    /// Make the same load so many times, and tell how far the runs lie apart
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Go on also when an objective can no longer be met
    #[arg(long, alias = "to-the-end")]
    pub no_early_stop: bool,
    /// Also load the documents of the pages alone, in turns with the whole pages, and compare both
    #[arg(long, alias = "without-resources")]
    pub compare_documents_only: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl RunArgs {
    /// What is to be loaded, as all flags change it.
    pub fn draft(&self) -> webdyno_model::Result<Draft> {
        let mut draft = self.load.draft()?;
        self.stages.apply_flags(&mut draft.settings);
        Ok(draft)
    }
}

/// `webdyno diagnose`.
#[derive(Debug, Args)]
pub struct DiagnoseArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Diagnose the recording in DIR instead
    #[arg(long, value_name = "DIR", conflicts_with_all = ["urls", "url_list", "workload", "watch_for"])]
    pub from: Option<PathBuf>,
    /// With --from: the moment that is meant, a time of day as 03:12, or RFC 3339
    #[arg(long, value_name = "TIME", requires = "from")]
    pub at: Option<String>,
    /// Watch the traffic that is there for this long, without load of our own
    #[arg(long = "for", id = "watch_for", value_name = "TIME", conflicts_with_all = ["urls", "url_list", "workload"], value_parser = duration_us)]
    pub watch_for: Option<u64>,
    /// With --for: the port of the listener that is meant
    #[arg(long, requires = "watch_for")]
    pub port: Option<u16>,
    /// With --for: a URL of the listener that is meant
    #[arg(long, requires = "watch_for", conflicts_with = "port")]
    pub url: Option<String>,
    /// Where two explanations remain, tell them apart by up to two more, shorter loads with one thing changed: documents
    /// only, no keep-alive, half the load, over loopback
    #[arg(long, alias = "ablate")]
    pub disambiguate: bool,
    /// Exit with 3 when a fault is found
    #[arg(long)]
    pub fail_on_fault: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `webdyno tune`.
#[derive(Debug, Args)]
pub struct TuneArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub server: ServerArgs,
    /// What to reach: `max`, '500 req/s', '70 pages/s', '4250 users', 'p99<200ms', or 'p99<200ms at 300 req/s'
    #[arg(long, default_value = "max", value_parser = |text: &str| with_hint(GoalRequest::parse(text)))]
    pub goal: GoalRequest,
    /// Carry the plan out; without it nothing is changed
    #[arg(long)]
    pub apply: bool,
    /// Permit changes that need a restart of the service
    #[arg(long)]
    pub allow_restart: bool,
    /// Accept that a reload also puts pending changes of others in force
    #[arg(long, alias = "yes-reload")]
    pub accept_pending: bool,
    /// Write the plans as files to DIR, new or empty: each file as it should be, and change.diff for patch(1)
    #[arg(long, value_name = "DIR")]
    pub export: Option<PathBuf>,
    /// Begin no round after this time
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration_us)]
    pub budget: u64,
    /// Do not ask before each change (it is asked only on a terminal)
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `webdyno report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run directory
    pub directory: PathBuf,
    #[command(flatten)]
    pub exports: ExportArgs,
    /// Write the HTML report to FILE [default: DIR/report.html with DIR/change-record.md, unless one of the others is
    /// given]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// No progress: there is none, so it changes nothing
    #[arg(short, long)]
    pub quiet: bool,
}

/// `webdyno rollback`.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Only what was never kept, of sessions that were cut off; a session that is at work is left to itself
    #[arg(long)]
    pub interrupted: bool,
}

/// `webdyno explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Id of a finding, such as apache-workers-exhausted; without it, all ids are listed
    pub id: Option<String>,
}

/// `webdyno agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Change settings and do nothing else as its user: what sudo may permit to who must not become root (docs/sudoers)
    #[arg(long)]
    pub settings_only: bool,
}

/// What reading the value of a flag gives; clap adds the flag and the value to the error.
pub type ParseResult<T> = Result<T, String>;

/// An error of the model with its hint, in the one line that clap gives it.
pub fn with_hint<T>(result: webdyno_model::Result<T>) -> ParseResult<T> {
    result.map_err(|error| match error.hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message,
    })
}

/// A time with its unit, in microseconds.
pub fn duration_us(text: &str) -> ParseResult<u64> {
    match time_us(text, "500ms, 10s or 2m")? {
        0 => Err("it must be longer than nothing, as 500ms, 10s or 2m".into()),
        us => Ok(us),
    }
}

/// A time with its unit, 0 as well; `such_as` are examples.
pub fn time_us(text: &str, such_as: &str) -> ParseResult<u64> {
    if let Some(us) = parse_duration_us(text) {
        return Ok(us);
    }
    let (negative, size) = match text.strip_prefix('-') {
        Some(size) => (true, size),
        None => (false, text),
    };
    let unit = size.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let has_both = unit.len() < size.len() && parse_duration_us(&format!("1{unit}")).is_some();
    Err(match (has_both, negative) {
        (true, true) => "a time is not below 0".into(),
        (true, false) if size[..size.len() - unit.len()].parse::<f64>().is_ok() => {
            "that is too long: 277777h is the most".into()
        }
        _ => format!("write a time with its unit, as {such_as}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Scripts of before go on; help names the new ones alone.
    #[test]
    fn flags_that_were_renamed_keep_their_old_names() {
        for (words, is_set) in [
            (
                "run http://h/ --to-the-end",
                (|one| matches!(one, Command::Run(a) if a.no_early_stop)) as fn(&Command) -> bool,
            ),
            ("run http://h/ --no-early-stop", |one| matches!(one, Command::Run(a) if a.no_early_stop)),
            (
                "run http://h/ --without-resources",
                |one| matches!(one, Command::Run(a) if a.compare_documents_only),
            ),
            (
                "run http://h/ --compare-documents-only",
                |one| matches!(one, Command::Run(a) if a.compare_documents_only),
            ),
            ("diagnose http://h/ --ablate", |one| matches!(one, Command::Diagnose(a) if a.disambiguate)),
            (
                "diagnose http://h/ --disambiguate",
                |one| matches!(one, Command::Diagnose(a) if a.disambiguate),
            ),
            ("tune http://h/ --yes-reload", |one| matches!(one, Command::Tune(a) if a.accept_pending)),
            ("tune http://h/ --accept-pending", |one| matches!(one, Command::Tune(a) if a.accept_pending)),
        ] {
            let command =
                Cli::try_parse_from(["webdyno"].into_iter().chain(words.split(' '))).unwrap().command;
            assert!(is_set(&command), "{words}");
        }
    }

    #[test]
    fn a_time_needs_its_unit() {
        assert_eq!(duration_us("10s"), Ok(10_000_000));
        assert!(duration_us("10").unwrap_err().contains("unit"));
        assert!(duration_us("0s").is_err());
        for (text, part) in [
            ("99999999999h", "too long"),
            ("-1s", "not below 0"),
            ("-d", "unit"),
            ("1.2.3s", "unit"),
            ("1 parsec", "unit"),
            ("s", "unit"),
        ] {
            assert!(duration_us(text).unwrap_err().contains(part), "{text}: {:?}", duration_us(text));
        }
        assert_eq!(duration_us("277777h").map(|us| us / 3_600_000_000), Ok(277_777));
    }
}
