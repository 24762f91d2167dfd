//! The flags of `webdyno fit`.

use clap::Args;
use std::path::PathBuf;

/// `webdyno fit`.
#[derive(Debug, Args)]
pub struct FitArgs {
    /// CSV of value,rate (- for stdin), run directory of a sweep, or directory of several
    ///
    /// Columns by a header or in this order: value, rate; by a header also ci_low, ci_high, p99_us. Rows of one value are its repeats
    #[arg(value_name = "FILE.csv|DIR")]
    pub source: PathBuf,
    /// Write it as JSON to FILE (- for stdout)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}
