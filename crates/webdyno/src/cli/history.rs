//! The flags of `webdyno history`.

use clap::Args;
use std::path::PathBuf;

/// `webdyno history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The directory that run directories lie in
    #[arg(value_name = "DIR", default_value = "webdyno-runs")]
    pub directory: PathBuf,
    /// Write the list as JSON to FILE, or to stdout with `-` (then nothing else is written there)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}
