//! The flags of `webdyno sweep`.

use super::OutputArgs;
use super::load::LoadArgs;
use super::server::ObservedArgs;
use super::values::{ParseResult, duration_us, whole};
use clap::Args;
use std::path::PathBuf;
use webdyno_analysis::sweep::AxisValues;

/// `webdyno sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub observed: ObservedArgs,
    /// What to vary: NAME=V1,V2,.. or NAME=A..B (twice: a grid)
    ///
    /// A setting of a service or of the kernel by its name (MaxRequestWorkers, pm.max_children, net.core.somaxconn), where several have
    /// it with the service before it (apache.KeepAlive, php_fpm.POOL.pm.max_children), what a service may use (cpus, memory), or the
    /// load: users, connections, rate. All of a list is measured, of a range what tells most; A..B/STEP keeps to multiples. Sizes: 256M, 2G
    #[arg(long = "knob", value_name = "KNOB", required = true, value_parser = knob)]
    pub knobs: Vec<KnobArg>,
    /// Loads of each point; their spread is its error bar
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole::<u32>(1..=20, "3"))]
    pub repeat: u32,
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
    /// Start no load after this time
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = duration_us)]
    pub budget: u64,
    /// Do not ask before settings are changed
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub output: OutputArgs,
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
