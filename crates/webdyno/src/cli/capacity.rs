//! The flags of `webdyno capacity`.

use super::load::LoadArgs;
use super::values::{ParseResult, duration_us};
use super::{OutputArgs, ServerArgs};
use clap::Args;

/// `webdyno capacity`.
#[derive(Debug, Args)]
pub struct CapacityArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Also observe the host, to name what limits: local, ssh://HOST, exec:COMMAND
    ///
    /// Also ssh://[USER@]HOST[:PORT]; exec: takes any command that runs `webdyno agent` there
    #[arg(long = "server", value_name = "S")]
    pub servers: Vec<String>,
    /// Run the agent there as root (sudo -n)
    #[arg(long, requires = "servers")]
    pub sudo: bool,
    /// Option file with user and password of the database
    ///
    /// On its host, in the form of ~/.my.cnf; without it the credentials of the agent's user are used
    #[arg(long, value_name = "FILE", requires = "servers")]
    pub db_option_file: Option<String>,
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

impl CapacityArgs {
    /// The servers to observe; `None` where none is.
    pub fn server(&self) -> Option<ServerArgs> {
        (!self.servers.is_empty()).then(|| ServerArgs {
            servers: self.servers.clone(),
            sudo: self.sudo,
            db_option_file: self.db_option_file.clone(),
        })
    }
}

fn level(text: &str) -> ParseResult<f64> {
    let level = text.parse().ok().filter(|level: &f64| *level > 0.0 && *level <= 1e7);
    level.ok_or_else(|| "a load above 0, at most 10000000, as 500".into())
}
