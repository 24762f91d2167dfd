//! The flags of loads that several machines make, and of `webdyno worker`.

use super::values::{ParseResult, whole};
use clap::Args;
use std::path::PathBuf;
use webdyno_distributed::admission::AllowedTarget;

/// Who makes the load.
#[derive(Debug, Clone, Default, Args)]
pub struct OnArgs {
    /// Have workers make the load: nats:// or ssh://HOST[,HOST], local:N
    ///
    /// The workers (webdyno worker) that are connected to these NATS servers; or one on each host, where ssh starts it and nothing
    /// stays; or N processes on this machine. The last two need nats-server here alone. The load is dealt out by their threads;
    /// together they send what one machine would
    #[arg(long, value_name = "WHERE")]
    pub on: Option<String>,
    /// Number of workers that must be there [default: those that are]
    #[arg(long, value_name = "N", requires = "on", value_parser = whole::<u32>(1..=10_000, "3"))]
    pub workers: Option<u32>,
    /// When a worker is lost: end the load, or move its part to others [default: end]
    ///
    /// Within 5 s, for loads with a rate (-r): what was due in between is not sent
    #[arg(long, value_name = "WHAT", requires = "on", value_parser = ["end", "move"], hide_possible_values = true)]
    pub on_worker_loss: Option<String>,
    /// Credentials for NATS: a creds file, or the seed of a user
    ///
    /// Its key signs the orders to the workers, which trust it by --trust; webdyno worker --new-key FILE makes one
    #[arg(long, value_name = "FILE")]
    pub nats_creds: Option<PathBuf>,
    /// Certificates (PEM) to trust for tls://
    #[arg(long, value_name = "FILE")]
    pub nats_ca: Option<PathBuf>,
}

impl OnArgs {
    /// Whether others have the part of a worker that was lost.
    pub fn moves(&self) -> bool {
        self.on_worker_loss.as_deref() == Some("move")
    }
}

/// `webdyno worker`.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// NATS servers to connect to: nats://HOST[,HOST] or tls://
    #[arg(long, value_name = "WHERE", required_unless_present = "new_key")]
    pub on: Option<String>,
    /// Public key whose orders are obeyed, U... (repeatable)
    #[arg(long = "trust", value_name = "KEY", required_unless_present = "new_key")]
    pub trusted: Vec<String>,
    /// Server that may be loaded: HOST[:PORT] (repeatable) [default: this machine, over loopback]
    ///
    /// Also those that redirects and pages lead to; '*' allows all
    #[arg(long = "allow-target", value_name = "HOST", value_parser = AllowedTarget::parse)]
    pub targets: Vec<AllowedTarget>,
    /// Most starts per second of its part of a load; closed loops are refused then
    #[arg(long, value_name = "N", value_parser = rate)]
    pub max_rate: Option<f64>,
    /// Longest load
    #[arg(long = "max-seconds", value_name = "N", value_parser = whole::<u64>(1..=31_536_000, "600"))]
    pub seconds_max: Option<u64>,
    /// Name in reports [default: the host name]
    #[arg(long = "name", id = "worker_name", value_name = "NAME")]
    pub name: Option<String>,
    /// Engine threads it offers: its part of a load [default: one per core]
    #[arg(long = "threads", id = "worker_threads", value_name = "N", value_parser = whole::<u32>(1..=256, "2"))]
    pub threads: Option<u32>,
    /// Credentials for NATS: a creds file, or the seed of a user
    #[arg(long, value_name = "FILE")]
    pub nats_creds: Option<PathBuf>,
    /// Certificates (PEM) to trust for tls://
    #[arg(long, value_name = "FILE")]
    pub nats_ca: Option<PathBuf>,
    /// Make a key for --nats-creds, print its public part for --trust, and end
    #[arg(long, value_name = "FILE", conflicts_with_all = ["on", "trusted"])]
    pub new_key: Option<PathBuf>,
    /// End when this process, the parent, is gone
    #[arg(long, value_name = "PID", value_parser = whole::<u32>(1..=4_194_304, "1234"))]
    pub parent: Option<u32>,
}

fn rate(text: &str) -> ParseResult<f64> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "a number above 0, as 500".into())
}
