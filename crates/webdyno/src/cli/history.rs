//! The flags of `webdyno history`.

use clap::Args;
use std::path::PathBuf;

/// `webdyno history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Directory of the run directories
    #[arg(value_name = "DIR", default_value = "webdyno-runs")]
    pub directory: PathBuf,
    /// Write the list as JSON to FILE (- for stdout)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}
