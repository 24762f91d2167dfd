//! The workload file of a log's sessions: a visitor for each of them, who requests what its client did, when it did.

use super::super::workload_file::{new_file, toml_string};
use std::fmt::Write as _;
use std::path::Path;
use webdyno_logs::replay::sessions::{Sessions, Step, Target, active_max};
use webdyno_logs::replay::stages;
use webdyno_model::duration::duration_text;
use webdyno_model::number::human::{count, number, plural};
use webdyno_model::{Result, UserError};

/// Requests that a workload file has steps for: they are part of the recording, too.
pub(super) const REQUESTS_MAX: usize = 200_000;
/// URLs that are counted by their names; all others together.
const NAMES_MAX: usize = 60;
/// What waits at the end for an answer gets one.
const TAIL: &str = "1s@0/s,measured=no";

/// Too many requests, and what helps.
pub(super) fn too_many() -> UserError {
    let most = count(REQUESTS_MAX as u64);
    UserError::usage(format!("--sessions writes a step for each request, and there are more than {most}"))
        .hint("a shorter --length; or leave --sessions out: order and seconds of all requests are those of the log, too")
}

/// No way to tell sessions.
pub(super) fn no_clients() -> UserError {
    UserError::usage("the log names no clients: there is no telling which requests are of one session")
        .hint("leave --sessions out: requests are sent in the order of the log")
}

/// Writes the workload file, and says what is in it.
pub(super) fn write(path: &Path, base: &str, log: &Sessions, length_s: u32, speed: f64) -> Result<String> {
    let sessions = log.sessions();
    let mut begin = vec![0_u64; length_s as usize];
    sessions.iter().for_each(|steps| begin[steps[0].second as usize] += 1);
    let urls: Vec<String> = log.targets().iter().map(|target| reference(base, target)).collect();
    let requests = log.requests() as u64;
    new_file(path, |to| {
        let of = plural(requests, "request");
        let all = plural(sessions.len() as u64, "session");
        writeln!(
            to,
            "# {of} in {all} of {length_s} s of an access log, by webdyno workload from-log --sessions."
        )?;
        writeln!(to, "base = {}\nredirects = 0\nsession_order = \"in turn\"\nstage = [", toml_string(base))?;
        let stages = stages(&begin, speed);
        stages
            .iter()
            .map(String::as_str)
            .chain([TAIL])
            .try_for_each(|stage| writeln!(to, "    \"{stage}\","))?;
        writeln!(to, "]")?;
        // What is requested most comes first: it is counted by its name.
        let mut named: Vec<usize> = (0..urls.len()).filter(|at| !log.targets()[*at].is_head).collect();
        named.sort_by_key(|at| std::cmp::Reverse(log.targets()[*at].count));
        named.iter().take(NAMES_MAX).try_for_each(|at| writeln!(to, "\n[[request]]\nurl = {}", urls[*at]))?;
        sessions
            .iter()
            .try_for_each(|steps| writeln!(to, "\n[[session]]\nstep = [{}]", session(steps, &urls, speed)))
    })?;
    Ok(format!(
        "{}, {} each, at most {} active at once\n",
        plural(sessions.len() as u64, "session"),
        number(requests as f64 / sessions.len() as f64),
        count(active_max(&sessions)),
    ))
}

/// A target as a step calls it. Behind a base, one that begins with two slashes would be another host.
fn reference(base: &str, target: &Target) -> String {
    let base = if target.url.starts_with("//") { base } else { "" };
    let url = toml_string(&format!("{base}{}", target.url));
    if target.is_head { format!("{{ url = {url}, method = \"HEAD\" }}") } else { url }
}

fn session(steps: &[Step], urls: &[String], speed: f64) -> String {
    let mut text = String::new();
    for (number, step) in steps.iter().enumerate() {
        let at_us = (f64::from(step.second - steps[0].second) * 1e6 / speed).round() as u64;
        let at = if at_us > 0 { format!(", at = \"{}\"", duration_text(at_us)) } else { String::new() };
        let between = if number > 0 { ", " } else { "" };
        // Writing to memory does not fail.
        let _ = write!(text, "{between}{{ request = {}{at} }}", urls[step.target as usize]);
    }
    text
}
