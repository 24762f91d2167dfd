//! `webdyno check`: which server is looked at.

use super::{OutputArgs, ServerArgs};
use clap::Args;

/// `webdyno check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A URL as for `diagnose`: told where it belongs
    #[arg(hide = true)]
    pub misplaced: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// The port of the web server that is meant [default: that of the only one]
    #[arg(long, conflicts_with = "url")]
    pub port: Option<u16>,
    /// A URL of the web server that is meant
    #[arg(long)]
    pub url: Option<String>,
    /// Exit with 3 when settings contradict each other
    #[arg(long)]
    pub fail_on_fault: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}
