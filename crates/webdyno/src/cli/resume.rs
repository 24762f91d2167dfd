//! `webdyno resume`: which recording, and how its results are reached.

use super::export::ExportArgs;
use clap::{Args, ColorChoice};
use std::path::PathBuf;

/// `webdyno resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Run directory of the session that was cut off
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// NATS servers that kept the results [default: those of the session]
    #[arg(long, value_name = "WHERE")]
    pub on: Option<String>,
    /// Credentials for NATS: a creds file, or the seed of a user
    #[arg(long, value_name = "FILE")]
    pub nats_creds: Option<PathBuf>,
    /// Certificates (PEM) to trust for tls://
    #[arg(long, value_name = "FILE")]
    pub nats_ca: Option<PathBuf>,
    #[command(flatten)]
    pub exports: ExportArgs,
    /// No lines about what is fetched
    #[arg(short, long)]
    pub quiet: bool,
    /// Evidence, commands and all tables
    #[arg(short, long)]
    pub verbose: bool,
    /// Colours: auto, always or never; auto heeds NO_COLOR
    #[arg(long, value_name = "WHEN", default_value_t, hide_default_value = true)]
    pub color: ColorChoice,
}
