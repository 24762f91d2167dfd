//! The flags of `webdyno logs`.

use super::values::{ParseResult, duration_us, port, whole};
use clap::Args;
use std::path::PathBuf;
use webdyno_logs::format::Format;

/// `webdyno logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Access logs, plain, gzip or zstd, in any order; - for stdin
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// LogFormat, log_format, or combined, common, vhost-combined, json
    ///
    /// Recognised by the first lines without it. Of Apache as in LogFormat (`%h %t "%r" %>s %D`), of nginx as in log_format (`$remote_addr [$time_local] "$request" $status`)
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub format: Option<Format>,
    /// Take the format from the configuration of local, ssh://HOST
    ///
    /// Also exec:COMMAND, any command that runs `webdyno agent` there
    #[arg(long = "server", id = "servers", value_name = "S", conflicts_with = "format")]
    pub server: Option<String>,
    /// Run the agent there as root (sudo -n)
    #[arg(long, requires = "servers")]
    pub sudo: bool,
    /// Port of the web server, where there are several
    #[arg(long, value_name = "N", requires = "servers", value_parser = port)]
    pub port: Option<u16>,
    /// Go on with what is added to the log, until Ctrl-C
    ///
    /// Also when it is rotated or truncated
    #[arg(short, long)]
    pub follow: bool,
    /// How often --follow reports
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration_us, requires = "follow")]
    pub interval: u64,
    /// Report the busiest clients by their addresses
    ///
    /// No address is in the report otherwise
    #[arg(long)]
    pub show_clients: bool,
    /// Tell URLs apart by their query strings
    ///
    /// No query string is in the report otherwise
    #[arg(long)]
    pub keep_query: bool,
    /// Threads [default: one per core]
    #[arg(short, long = "threads", id = "scan_threads", value_name = "N", value_parser = whole::<u16>(1..=256, "2"))]
    pub threads: Option<u16>,
    /// Write it as JSON to FILE (- for stdout)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write a page with plots to FILE
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

pub fn format(text: &str) -> ParseResult<Format> {
    Format::parse(text).map_err(|error| {
        let why = error.message.rsplit_once(": ").map_or(error.message.as_str(), |(_, why)| why);
        format!("a format whose lines can be read ({why})")
    })
}
