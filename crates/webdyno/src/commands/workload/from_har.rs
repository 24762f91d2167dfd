//! `webdyno workload from-har`: a workload file of what a browser recorded.

use super::workload_file::new_file;
use crate::cli::workload::FromHarArgs;
use crate::terminal;
use std::fs;
use webdyno_load::workload::file::to_toml;
use webdyno_load::workload::har;
use webdyno_model::error::io_error;
use webdyno_model::number::human::plural;
use webdyno_model::{ErrorKind, Result, UserError};

/// Other hosts that are named, the rest is counted.
const HOSTS_NAMED: usize = 3;

/// Reads the recording, and writes the file. Gives the exit code.
pub fn from_har(arguments: &FromHarArgs) -> Result<u8> {
    let (file, output) = (arguments.file.display().to_string(), arguments.output.display());
    let bytes = fs::read(&arguments.file)
        .map_err(|error| UserError { kind: ErrorKind::Usage, ..io_error("read", &file, &error) })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        UserError::usage(format!("{file} is no HAR file: it is not UTF-8 from byte {at} on"))
            .hint("save one in the browser's developer tools: Network, Save all as HAR")
    })?;
    let mut recorded = har::read(&text, &file, &arguments.host)?;
    if let Some(visits) = &mut recorded.workload.visits {
        visits.users = arguments.users;
    }
    let workload = to_toml(&recorded.workload)?;
    let count = |value: usize, noun: &str| plural(value as u64, noun);
    let what =
        format!("{} and {}", count(recorded.pages_count, "page"), count(recorded.requests_count, "request"));
    new_file(&arguments.output, |to| {
        writeln!(to, "# {what} that a browser recorded, by webdyno workload from-har.\n{workload}")
    })?;
    terminal::print(&format!("{output}: {what} of {file}\n{}", notes(&recorded)))?;
    terminal::print(&format!("load them with: webdyno run --workload {output}\n"))?;
    Ok(0)
}

/// What is no part of the workload, and what of it is to be looked after.
fn notes(recorded: &har::Recorded) -> String {
    let mut notes = String::new();
    if !recorded.other_hosts.is_empty() {
        let count: usize = recorded.other_hosts.values().sum();
        let mut hosts: Vec<_> = recorded.other_hosts.iter().collect();
        hosts.sort_by(|a, b| b.1.cmp(a.1));
        let named: Vec<&str> = hosts.iter().take(HOSTS_NAMED).map(|(host, _)| host.as_str()).collect();
        let more = hosts.len().saturating_sub(HOSTS_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        notes.push_str(&format!(
            "left out: {count} requests to other hosts ({}{more}); --host HOST loads one of them, too\n",
            named.join(", ")
        ));
    }
    if recorded.unanswered_count > 0 {
        notes.push_str(&format!(
            "left out: {} requests that were not answered, or not sent by HTTP\n",
            recorded.unanswered_count
        ));
    }
    if recorded.has_bodies {
        notes.push_str("it holds what was typed into forms, perhaps a password: look before you share it\n");
    }
    notes
}
