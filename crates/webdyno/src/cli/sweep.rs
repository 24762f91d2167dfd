//! The flags of `webdyno sweep`.

use super::OutputArgs;
use super::load::LoadArgs;
use super::server::ObservedArgs;
use super::values::{ParseResult, duration_us, whole};
use super::workers::OnArgs;
use clap::Args;
use std::path::PathBuf;
use webdyno_analysis::sweep::AxisValues;

const REPEATS_DEFAULT: u32 = 2;
const BUDGET_US_DEFAULT: u64 = 15 * 60 * 1_000_000;
/// A study says itself how much it measures.
const STUDY_BUDGET_US_DEFAULT: u64 = 12 * 3600 * 1_000_000;

/// `webdyno sweep`.
#[derive(Debug, Clone, Args)]
pub struct SweepArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub on: OnArgs,
    #[command(flatten)]
    pub observed: ObservedArgs,
    /// What to vary: NAME=V1,V2,.. or NAME=A..B (twice: a grid)
    ///
    /// A setting of a service or of the kernel by its name (MaxRequestWorkers, pm.max_children, net.core.somaxconn), where several have
    /// it with the service before it (apache.KeepAlive, php_fpm.POOL.pm.max_children), what a service may use (cpus, memory), or the
    /// load: users, connections, rate. All of a list is measured, of a range what tells most; A..B/STEP keeps to multiples. Sizes: 256M, 2G
    #[arg(long = "knob", value_name = "KNOB", required_unless_present = "study", value_parser = knob)]
    pub knobs: Vec<KnobArg>,
    /// Measure the study in FILE: several knobs, contents, page cache
    ///
    /// A full factorial design in TOML, with the effect of each axis, with intervals, as the result. Other flags count, whatever the
    /// file says
    #[arg(long, value_name = "FILE", conflicts_with = "knobs")]
    pub study: Option<PathBuf>,
    /// Loads of each point; their spread is its error bar [default: 2]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=20, "3"))]
    pub repeat: Option<u32>,
    /// Go on with the interrupted sweep in DIR; measures no point twice
    ///
    /// With the same command line besides; its points are carried over into a new run directory
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// Permit changes that need a restart of the service
    #[arg(long)]
    pub allow_restart: bool,
    /// Accept that a reload also activates pending changes of others
    #[arg(long)]
    pub accept_pending: bool,
    /// Permit a sweep of a setting while others use the server
    #[arg(long)]
    pub allow_live_traffic: bool,
    /// Start no load after this time [default: 15m; study: 12h]
    #[arg(long, value_name = "TIME", value_parser = duration_us)]
    pub budget: Option<u64>,
    /// Do not ask before settings are changed
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl SweepArgs {
    /// Loads of each point.
    pub fn repeats(&self) -> u32 {
        self.repeat.unwrap_or(REPEATS_DEFAULT)
    }

    /// Seconds after which no load begins.
    pub fn budget_s(&self) -> f64 {
        let default = if self.study.is_some() { STUDY_BUDGET_US_DEFAULT } else { BUDGET_US_DEFAULT };
        self.budget.unwrap_or(default) as f64 / 1e6
    }
}

/// What is varied, as it was given.
#[derive(Debug, Clone, PartialEq)]
pub struct KnobArg {
    /// `MaxRequestWorkers`, `users`.
    pub name: String,
    /// `16..256`.
    pub range: String,
    /// The same, understood.
    pub values: AxisValues,
    /// Whether these are bytes.
    pub is_bytes: bool,
}

fn knob(text: &str) -> ParseResult<KnobArg> {
    let (name, range) =
        text.split_once('=').ok_or("a name with its values, as MaxRequestWorkers=16..256 or users=1,2,4")?;
    let (values, is_bytes) = AxisValues::parse(range)?;
    Ok(KnobArg { name: name.trim().to_owned(), range: range.to_owned(), values, is_bytes })
}
