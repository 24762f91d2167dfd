//! The flags that write results for other programs, and the command that only does that.

use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use webdyno_model::{Result, UserError};
use webdyno_report::{CacheProgram, Table};

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
    /// Write each second as Parquet to FILE (- for stdout)
    ///
    /// The columns of --csv with their types, null for unknown
    #[arg(long, value_name = "FILE|-")]
    pub parquet: Option<PathBuf>,
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
        let all = [
            ("--json", &self.json),
            ("--csv", &self.csv),
            ("--parquet", &self.parquet),
            ("--hdr", &self.hdr),
            ("--junit", &self.junit),
        ];
        all.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)))
    }

    /// An error for one that is of a load, where `without` makes none: told before there is something to wait for.
    pub fn refuse_of_load(&self, without: &str, hint: &str) -> Result<()> {
        let of_a_load = self.given().find(|(flag, _)| *flag != "--json");
        of_a_load.map_or(Ok(()), |(flag, _)| {
            Err(UserError::usage(format!("{flag} is for a load, and {without} makes none")).hint(hint))
        })
    }

    /// Whether one of them is stdout, which then holds nothing else.
    pub fn takes_stdout(&self) -> bool {
        self.given().any(|(_, path)| is_stdout(path))
    }
}

/// `webdyno export`.
#[derive(Debug, Args)]
pub struct ExportCommandArgs {
    /// Run directory of the session
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    #[command(flatten)]
    pub exports: ExportArgs,
    /// What --csv and --parquet hold: seconds, samples or points
    ///
    /// Each second of each load (the default), or each reading of the observed hosts (docs/metrics.md), as by default of a
    /// session without load; or each point of a sweep, as `webdyno fit` reads them
    #[arg(long, value_name = "TABLE", hide_possible_values = true)]
    pub table: Option<TableChoice>,
    /// Write the configuration of a cache in front
    ///
    /// To FILE (- for stdout). It keeps for one second what the diagnosis saw to be cacheable, and nothing else
    #[arg(long, value_name = "FILE|-")]
    pub cache_config: Option<PathBuf>,
    /// The program that --cache-config is for: nginx, mod_cache or varnish
    ///
    /// By default the one that serves the site
    #[arg(long, value_name = "PROGRAM", hide_possible_values = true, requires = "cache_config")]
    pub cache_for: Option<CacheChoice>,
}

/// Programs that keep answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CacheChoice {
    /// In front, or in the one that is there.
    Nginx,
    /// Of Apache.
    #[value(name = "mod_cache")]
    ModCache,
    /// In front.
    Varnish,
}

impl From<CacheChoice> for CacheProgram {
    fn from(choice: CacheChoice) -> Self {
        match choice {
            CacheChoice::Nginx => Self::Nginx,
            CacheChoice::ModCache => Self::ModCache,
            CacheChoice::Varnish => Self::Varnish,
        }
    }
}

/// The tables of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableChoice {
    /// Of the loads.
    Seconds,
    /// Of the observed hosts.
    Samples,
    /// Of a curve.
    Points,
}

impl From<TableChoice> for Table {
    fn from(choice: TableChoice) -> Self {
        match choice {
            TableChoice::Seconds => Self::Seconds,
            TableChoice::Samples => Self::Samples,
            TableChoice::Points => Self::Points,
        }
    }
}

/// Whether a path stands for stdout.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}
