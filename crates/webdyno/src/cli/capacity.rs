//! The flags of `webdyno capacity`.

use super::OutputArgs;
use super::load::LoadArgs;
use super::server::ObservedArgs;
use super::values::{ParseResult, duration_us};
use super::workers::OnArgs;
use clap::Args;

/// `webdyno capacity`.
#[derive(Debug, Args)]
pub struct CapacityArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub on: OnArgs,
    #[command(flatten)]
    pub observed: ObservedArgs,
    /// First load, per second or users [default: low]
    ///
    /// Nothing lower is tried. By default a tenth of what one client reaches that sends one request after the other, at most 20 per second
    #[arg(long, value_name = "N", value_parser = level, allow_negative_numbers = true)]
    pub start: Option<f64>,
    /// Offer no more than this
    #[arg(long, value_name = "N", value_parser = level, allow_negative_numbers = true)]
    pub max: Option<f64>,
    /// Start no step after this time
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = duration_us)]
    pub budget: u64,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn level(text: &str) -> ParseResult<f64> {
    let level = text.parse().ok().filter(|level: &f64| *level > 0.0 && *level <= 1e7);
    level.ok_or_else(|| "a load above 0, at most 10000000, as 500".into())
}
