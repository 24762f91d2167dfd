//! `webdyno check`: which server is looked at.

use super::{OutputArgs, ServerArgs, port};
use clap::Args;

/// `webdyno check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A URL as for `diagnose`: the error names the flag for it
    #[arg(hide = true)]
    pub misplaced: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Port of the web server to check [default: of the only one]
    #[arg(long, value_name = "N", conflicts_with = "url", value_parser = port)]
    pub port: Option<u16>,
    /// URL of the web server to check
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Exit with 3 when settings contradict each other
    #[arg(long)]
    pub fail_on_fault: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}
