//! `webdyno workload`: what is done with workload files, without any load. One file for each command.

mod check;
mod from_har;
mod from_log;
mod from_site;
mod from_tree;
mod from_urls;
mod make_tree;
mod workload_file;

use crate::cli::workload::{WorkloadArgs, WorkloadCommand};
use webdyno_model::Result;

/// Runs one of them. Gives the exit code.
pub fn workload(arguments: &WorkloadArgs) -> Result<u8> {
    match &arguments.command {
        WorkloadCommand::Check(arguments) => check::check(arguments),
        WorkloadCommand::MakeTree(arguments) => make_tree::make_tree(arguments),
        WorkloadCommand::FromTree(arguments) => from_tree::from_tree(arguments),
        WorkloadCommand::FromHar(arguments) => from_har::from_har(arguments),
        WorkloadCommand::FromSite(arguments) => from_site::from_site(arguments),
        WorkloadCommand::FromLog(arguments) => from_log::from_log(arguments),
        WorkloadCommand::FromUrls(arguments) => from_urls::from_urls(arguments),
    }
}
