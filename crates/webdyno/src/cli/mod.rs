//! The command line: flags with their documentation, as docs/contract.md fixes them. `help` arranges what --help shows,
//! `usage` words errors, `other_tools` knows the flags of other tools.

pub mod body;
pub mod capacity;
pub mod check;
pub mod export;
pub mod help;
pub mod lab;
pub mod lab_run;
pub mod list;
pub mod live_metrics;
pub mod load;
pub mod logs;
pub mod observe;
mod other_tools;
pub mod server;
pub mod stages;
pub mod sweep;
pub mod transport;
pub mod tree;
pub mod usage;
mod values;
pub mod visits;
mod without_load;
pub mod workers;
pub mod workload;

pub mod compare;
pub mod fit;
pub mod history;
pub mod predict;
pub mod resume;
pub mod serve;
pub mod size;

use capacity::CapacityArgs;
pub use check::CheckArgs;
use clap::error::ErrorKind;
use clap::{Args, ColorChoice, FromArgMatches, Parser, Subcommand};
use compare::CompareArgs;
use export::{ExportArgs, ExportCommandArgs};
use fit::FitArgs;
use history::HistoryArgs;
use lab::LabArgs;
use lab_run::{LabLoadArgs, LabUsersArgs};
use live_metrics::LiveMetricsArgs;
use load::LoadArgs;
pub use load::open_file_connections_max;
use logs::LogsArgs;
pub use observe::ObserveArgs;
use predict::PredictArgs;
use resume::ResumeArgs;
use serve::ServeArgs;
pub use server::ServerArgs;
use size::SizeArgs;
use stages::StageArgs;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use sweep::SweepArgs;
use values::{ParseResult, duration_us, loopback_address, port, whole};
use webdyno_load::workload::file::Draft;
use webdyno_model::tune::{Goal, GoalRequest};
use workers::{OnArgs, WorkerArgs};
use workload::WorkloadArgs;

#[cfg(target_feature = "crt-static")]
macro_rules! linkage {
    () => {
        "statically"
    };
}
#[cfg(not(target_feature = "crt-static"))]
macro_rules! linkage {
    () => {
        "dynamically"
    };
}

/// What `--version` says behind the name: the build first, since tool and agent must be of one. `-V` says the version alone.
const LONG_VERSION: &str = concat!(
    env!("WEBDYNO_BUILD"),
    "\ncommit:  ",
    env!("WEBDYNO_COMMIT"),
    "\nprofile: ",
    env!("WEBDYNO_PROFILE"),
    "\ntarget:  ",
    env!("WEBDYNO_TARGET"),
    "\nrustc:   ",
    env!("WEBDYNO_RUSTC"),
    "\nlinked:  ",
    linkage!(),
);

/// Load a web server, name what limits it with proof, and tune it
#[derive(Debug, Parser)]
#[command(name = "webdyno", version, long_version = LONG_VERSION, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the command line says. With --help and --version, and without a command, the program ends here.
pub fn parse() -> webdyno_model::Result<Command> {
    parse_words(std::env::args_os().collect())
}

/// What these words say, the program's name first.
pub fn parse_words(words: Vec<OsString>) -> webdyno_model::Result<Command> {
    let shown: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let is_long = shown.iter().any(|word| ["--help", "help"].contains(&word.as_str()));
    let parsed = help::command(is_long).try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = parsed.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => usage::usage_error(&error, &shown),
    })?;
    without_load::refuse_idle_flags(&matches).map(|()| cli.command)
}

/// The commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // there is one of it
pub enum Command {
    /// Load, diagnose and tune a private Apache: no root, no target
    Quickstart(QuickstartArgs),
    /// Load a server; report rate, latency and errors
    Run(RunArgs),
    /// Check limits and settings of a server without load; read-only
    Check(CheckArgs),
    /// Load and observe a server; name what limits it, with proof
    Diagnose(DiagnoseArgs),
    /// Find the highest load that meets the objectives
    Capacity(CapacityArgs),
    /// Measure a setting or load at several values; name the best
    Sweep(SweepArgs),
    /// Record a host without load; diagnose incidents
    Observe(ObserveArgs),
    /// Lift what limits a server, round by round; plans without --apply
    Tune(TuneArgs),
    /// Report a recorded session again: text, HTML, JSON, CSV
    Report(ReportArgs),
    /// Write a recorded session for other programs: CSV, Parquet, HdrHistogram
    Export(ExportCommandArgs),
    /// Compare two recordings: ratio, 95% interval, verdict
    Compare(CompareArgs),
    /// Fit a scaling law to measured points; name the value to choose
    Fit(FitArgs),
    /// Predict other settings or users from a recording; nothing is touched
    Predict(PredictArgs),
    /// Recommend machines for a goal, from recordings
    Size(SizeArgs),
    /// Report what access logs say: rates, mix, sessions, working set
    Logs(LogsArgs),
    /// List the sessions below a directory, newest first
    History(HistoryArgs),
    /// Make parts of loads that others order, over NATS (--on)
    Worker(WorkerArgs),
    /// Finish a recording of --on whose command was cut off
    Resume(ResumeArgs),
    /// Show the sessions below a directory in a browser
    Serve(ServeArgs),
    /// Restore the original configuration
    Rollback(RollbackArgs),
    /// Explain a finding, or a word of the reports
    Explain(ExplainArgs),
    /// Print the JSON Schema of an output
    Schema(SchemaArgs),
    /// Check workload files, or make them
    Workload(WorkloadArgs),
    /// What the program starts of itself
    #[command(flatten)]
    Helper(Helper),
    /// Build, load and fix faulty servers in namespaces
    Lab(LabArgs),
}

/// Commands that the program gives itself, on a server or in a host of the lab.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // there is one of it
pub enum Helper {
    /// Serve a session of --server: framed messages on stdin and stdout
    #[command(hide = true)]
    Agent(AgentArgs),
    /// The load of a scenario's round
    #[command(hide = true)]
    LabLoad(LabLoadArgs),
    /// The users of a scenario that is only watched
    #[command(hide = true)]
    LabUsers(LabUsersArgs),
    /// Write man pages and shell completions below DIR, laid out as in /usr/share
    #[command(hide = true)]
    Packaging(PackagingArgs),
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
            Self::Capacity(arguments) => Some(&arguments.output),
            Self::Sweep(arguments) => Some(&arguments.output),
            Self::Tune(arguments) => Some(&arguments.output),
            Self::Observe(arguments) => Some(&arguments.output),
            Self::Check(arguments) => Some(&arguments.output),
            Self::Report(_)
            | Self::Export(_)
            | Self::Rollback(_)
            | Self::Explain(_)
            | Self::Schema(_)
            | Self::Workload(_)
            | Self::Helper(_)
            | Self::Lab(_)
            | Self::Compare(_)
            | Self::Fit(_)
            | Self::Predict(_)
            | Self::Size(_)
            | Self::Logs(_)
            | Self::History(_)
            | Self::Worker(_)
            | Self::Resume(_)
            | Self::Serve(_) => None,
        }
    }
}

/// Where results go.
#[derive(Debug, Clone, Args)]
pub struct OutputArgs {
    #[command(flatten)]
    pub exports: ExportArgs,
    #[command(flatten)]
    pub live: LiveMetricsArgs,
    /// Run directory [default: webdyno-runs/TIME-COMMAND]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// No progress output
    #[arg(short, long)]
    pub quiet: bool,
    /// Evidence, commands and all tables in the report; a line of progress every second
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Colours: auto, always or never; auto heeds NO_COLOR
    #[arg(long, value_name = "WHEN", default_value_t, hide_default_value = true)]
    pub color: ColorChoice,
    /// Plain lines of progress instead of a live view
    #[arg(long)]
    pub no_tui: bool,
    /// Show the session live in a browser; the URL is printed
    ///
    /// Listens on loopback, on a free port without an address, until the session ends; pages that are open then have up to 5 s
    /// to read its report, which remains as report.html. From elsewhere: ssh -L
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0", value_parser = loopback_address)]
    pub web: Option<SocketAddr>,
}

/// `webdyno quickstart`.
#[derive(Debug, Args)]
pub struct QuickstartArgs {
    /// Goal: max, or a rate such as '500 req/s'
    #[arg(long, value_name = "GOAL", default_value = "max", value_parser = Goal::parse)]
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
    pub on: OnArgs,
    #[command(flatten)]
    pub stages: StageArgs,
    /// Repeat the load N times and report how far the runs differ
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=100, "5"))]
    pub repeat: u32,
    /// Continue when an objective can no longer be met
    #[arg(long, alias = "to-the-end")]
    pub no_early_stop: bool,
    /// Also load the documents of the pages without their resources, alternating with whole pages, and compare both
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
    pub on: OnArgs,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Diagnose the recording in DIR, without load
    #[arg(long, value_name = "DIR", conflicts_with_all = ["urls", "url_list", "workload", "objectives", "watch_for", "prometheus", "otlp", "on"])]
    pub from: Option<PathBuf>,
    /// Moment in the recording of --from: 03:12, or RFC 3339
    #[arg(long, value_name = "TIME", requires = "from")]
    pub at: Option<String>,
    /// Diagnose existing traffic for this long, without load
    #[arg(long = "for", id = "watch_for", value_name = "TIME", conflicts_with_all = ["urls", "url_list", "workload", "objectives", "on"], value_parser = duration_us)]
    pub watch_for: Option<u64>,
    /// Port of the listener to diagnose, with --for
    #[arg(long, value_name = "N", requires = "watch_for", value_parser = port)]
    pub port: Option<u16>,
    /// URL of the listener to diagnose, with --for
    #[arg(long, value_name = "URL", requires = "watch_for", conflicts_with = "port")]
    pub url: Option<String>,
    /// Separate two possible causes by shorter loads
    ///
    /// Up to two more loads with one thing changed: documents only, no keep-alive, half the load, or over loopback
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
    pub on: OnArgs,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Goal: max, '500 req/s', 'p99<200ms'
    ///
    /// Also '70 pages/s', '4250 users' and 'p99<200ms at 300 req/s'
    #[arg(long, value_name = "GOAL", default_value = "max", value_parser = GoalRequest::parse)]
    pub goal: GoalRequest,
    /// Apply the changes; without it nothing is changed
    #[arg(long)]
    pub apply: bool,
    /// Permit changes that need a restart of the service
    #[arg(long)]
    pub allow_restart: bool,
    /// Accept that a reload also activates pending changes of others
    #[arg(long, alias = "yes-reload")]
    pub accept_pending: bool,
    /// Write each plan to DIR: files, diff, scripts
    ///
    /// Each file as planned, change.diff for patch(1), apply.sh and undo.sh; DIR must be new or empty
    #[arg(long, value_name = "DIR")]
    pub export: Option<PathBuf>,
    /// Start no round after this time
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration_us)]
    pub budget: u64,
    /// Do not confirm each change on a terminal
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `webdyno report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run directory of the session
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    #[command(flatten)]
    pub exports: ExportArgs,
    /// Write the HTML report to FILE [default: DIR/report.html]
    ///
    /// Without this and the other output flags, DIR/report.html and DIR/change-record.md are written
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// No progress output: there is none
    #[arg(short, long)]
    pub quiet: bool,
    /// Evidence, commands and all tables
    #[arg(short, long)]
    pub verbose: bool,
    /// Colours: auto, always or never; auto heeds NO_COLOR
    #[arg(long, value_name = "WHEN", default_value_t, hide_default_value = true)]
    pub color: ColorChoice,
}

/// `webdyno rollback`.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Only unverified changes of interrupted sessions
    ///
    /// A session that is running is left alone
    #[arg(long)]
    pub interrupted: bool,
}

/// `webdyno explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Id of a finding, or words to search for; all ids without it
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
}

/// `webdyno schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Such as run, diagnosis, compare; all names without it
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// `webdyno agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Only change settings: what sudo may permit to users who must not become root (docs/sudoers)
    #[arg(long)]
    pub settings_only: bool,
}

/// `webdyno packaging`.
#[derive(Debug, Args)]
pub struct PackagingArgs {
    /// Such as /usr/local/share or ~/.local/share
    #[arg(value_name = "DIR")]
    pub share: PathBuf,
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
}
