//! `webdyno observe`: what is watched, and for how long.

use super::{OutputArgs, ServerArgs, duration_us, port};
use clap::Args;

/// `webdyno observe`.
#[derive(Debug, Args)]
pub struct ObserveArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Port of the listener to observe [default: all services]
    #[arg(long, value_name = "N", value_parser = port)]
    pub port: Option<u16>,
    /// URL of the listener to observe
    #[arg(long, value_name = "URL", conflicts_with = "port")]
    pub url: Option<String>,
    /// Stop after this time [default: with Ctrl-C]
    #[arg(long = "for", id = "observe_for", value_name = "TIME", value_parser = duration_us)]
    pub observe_for: Option<u64>,
    /// One snapshot of a few seconds
    #[arg(long, conflicts_with_all = ["observe_for", "ring"])]
    pub once: bool,
    /// Keep the last TIME on disk; keep and diagnose incidents
    #[arg(long, value_name = "TIME", value_parser = duration_us)]
    pub ring: Option<u64>,
    #[command(flatten)]
    pub output: OutputArgs,
}
