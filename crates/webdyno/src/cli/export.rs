//! The flags that write results for other programs.

use clap::Args;
use std::path::{Path, PathBuf};

/// What is written for other programs, and where.
#[derive(Debug, Clone, Default, Args)]
pub struct ExportArgs {
    /// Write the results as JSON to FILE (- for stdout)
    ///
    /// With - stdout holds nothing else
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write each second as CSV to FILE (- for stdout)
    #[arg(long, value_name = "FILE|-")]
    pub csv: Option<PathBuf>,
    /// Write an HdrHistogram to FILE (- for stdout)
    ///
    /// Of the response times: percentiles as text, or with the suffix .hlog an interval log by name of request
    #[arg(long, value_name = "FILE|-")]
    pub hdr: Option<PathBuf>,
    /// Write objectives as JUnit XML to FILE (- for stdout)
    #[arg(long, value_name = "FILE|-")]
    pub junit: Option<PathBuf>,
}

impl ExportArgs {
    /// Those that were given, with their flags.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all =
            [("--json", &self.json), ("--csv", &self.csv), ("--hdr", &self.hdr), ("--junit", &self.junit)];
        all.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)))
    }

    /// Whether one of them is stdout, which then holds nothing else.
    pub fn takes_stdout(&self) -> bool {
        self.given().any(|(_, path)| is_stdout(path))
    }
}

/// Whether a path stands for stdout.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}
