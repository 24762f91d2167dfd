//! `webdyno observe`: what is watched, and for how long.

use super::{OutputArgs, ServerArgs, duration_us};
use clap::Args;

/// `webdyno observe`.
#[derive(Debug, Args)]
pub struct ObserveArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// The port of the listener that is meant [default: the host and all known services]
    #[arg(long)]
    pub port: Option<u16>,
    /// A URL of the listener that is meant
    #[arg(long, conflicts_with = "port")]
    pub url: Option<String>,
    /// End after this time [default: with Ctrl-C]
    #[arg(long = "for", id = "observe_for", value_name = "TIME", value_parser = duration_us)]
    pub observe_for: Option<u64>,
    /// One look: everything is read twice within a few seconds
    #[arg(long, conflicts_with_all = ["observe_for", "ring"])]
    pub once: bool,
    /// Keep only the last TIME on disk; freeze and diagnose what goes wrong
    #[arg(long, value_name = "TIME", value_parser = duration_us)]
    pub ring: Option<u64>,
    #[command(flatten)]
    pub output: OutputArgs,
}
