//! The flags of `webdyno workload`: what is done with workload files, without any load.

use super::tree::{FromTreeArgs, FromUrlsArgs, MakeTreeArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use webdyno_logs::format::Format;

/// `webdyno workload`.
#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: WorkloadCommand,
}

/// What is done with workload files.
#[derive(Debug, Subcommand)]
pub enum WorkloadCommand {
    /// Read a workload file and print what it means; nothing is sent
    Check(CheckArgs),
    /// Make a tree of files to serve, from a seed
    MakeTree(MakeTreeArgs),
    /// Write a workload file that loads the files of a tree
    FromTree(FromTreeArgs),
    /// Write a workload file from a list of URLs
    FromUrls(FromUrlsArgs),
    /// Write a workload file from what a browser recorded
    FromHar(FromHarArgs),
    /// Write a workload file from the pages of a site, found along its links
    FromSite(FromSiteArgs),
    /// Write a workload file that sends what an access log has, second by second
    FromLog(FromLogArgs),
}

/// `webdyno workload check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The workload file
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
}

/// `webdyno workload from-har`.
#[derive(Debug, Args)]
pub struct FromHarArgs {
    /// The recording: in the browser's developer tools, Network, Save all as HAR
    #[arg(value_name = "FILE.har")]
    pub file: PathBuf,

    /// Workload file to write, new
    #[arg(short, long, value_name = "FILE.toml", default_value = "workload.toml")]
    pub output: PathBuf,

    /// Load this host, too (repeatable) [default: only that of the first request]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub host: Vec<String>,

    /// Users who do what was recorded
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub users: u32,
}

/// `webdyno workload from-site`.
#[derive(Debug, Args)]
pub struct FromSiteArgs {
    /// Where to begin; only this scheme, host and port are asked, as its robots.txt allows
    #[arg(value_name = "URL")]
    pub url: String,

    /// Workload file to write, new
    #[arg(short, long, value_name = "FILE.toml", default_value = "workload.toml")]
    pub output: PathBuf,

    /// At most so many requests
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = requests)]
    pub requests: usize,

    /// At most so many links from the first page
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub depth: usize,

    /// At most so many requests a second; fewer where robots.txt has a Crawl-delay
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = rate)]
    pub rate: f64,

    /// Users who look at the pages
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub users: u32,
}

fn requests(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=10_000).contains(count));
    count.ok_or_else(|| "a number of requests from 1 to 10000".into())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.1..=100.0).contains(rate));
    rate.ok_or_else(|| "requests per second, from 0.1 to 100".into())
}

/// `webdyno workload from-log`.
#[derive(Debug, Args)]
pub struct FromLogArgs {
    /// Access logs, plain, gzip or zstd, in any order
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Where the requests are sent: scheme, host and port
    #[arg(long, value_name = "BASE")]
    pub url: String,

    /// Workload file to write, new; the list of URLs goes beside it, as FILE.urls
    #[arg(short, long, value_name = "FILE.toml", default_value = "workload.toml")]
    pub output: PathBuf,

    /// LogFormat, log_format, or combined, common, vhost-combined, json [default: recognised]
    #[arg(long, value_name = "FORMAT", value_parser = super::logs::format)]
    pub format: Option<Format>,

    /// The busiest stretch of this length; all of a shorter log
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = super::values::duration_us)]
    pub length: u64,

    /// So many times as fast
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,

    /// A visitor for each session of the log: each client's requests in its order and at its times, with cookies
    #[arg(long)]
    pub sessions: bool,

    /// Only requests for this site, of logs that name it
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,

    /// Send query strings, too; they are then in the list of URLs
    #[arg(long)]
    pub keep_query: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| (0.01..=1000.0).contains(speed));
    speed.ok_or_else(|| "a number from 0.01 to 1000, as 2 for twice as fast".into())
}
