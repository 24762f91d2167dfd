//! Hosts: processes 1 in namespaces of their own, with files, addresses and disks of their own.
//!
//! A host begins as two processes of ours. The first joins the host's groups, leaves its namespaces behind and starts the
//! second, which is process 1 of the new ones: it arranges the files (`inside`), says that it is ready, and from then on
//! only reaps. When it is killed, the kernel ends everything else in there (pid_namespaces(7)).

pub mod disks;
pub mod host_init;
pub mod links;
pub mod settings;
mod tools;

pub use tools::ToolRunner;

use crate::Lab;
use crate::cgroups::host_group;
use crate::lab::{join_groups, service_limits};
use crate::scenario::CLIENT;
use host_init::{HostReply, HostSpec};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use webdyno_host::os::process::ProcessName;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The words behind `webdyno lab` that make a process the first or the second of a host.
pub const FIRST: [&str; 2] = ["host", "first"];
/// The second.
pub const SECOND: [&str; 2] = ["host", "second"];

/// Starts a host whose groups and files are there. `program` is ours.
pub fn start(lab: &Lab, host: &str, program: &Path) -> Result<ProcessName> {
    let failed = |why: String| UserError::cannot_run(format!("the host `{host}` does not start: {why}"));
    let has_services = !service_limits(lab.scenario(), host).is_empty();
    let mut command = join_groups(&lab.tree.folders(host, has_services, None));
    command.arg(program).arg("lab").args(FIRST).env_clear().current_dir("/");
    command.args((host == CLIENT).then_some("--sees-processes"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| io_error("start", program.display(), &error))?;
    let spec = HostSpec {
        host: host.to_owned(),
        keeps_files: host == CLIENT,
        files: lab.root(host),
        groups: host_group(lab.place.name(), host).into(),
    };
    let output = start_host_init(&mut child, &spec);
    let ended = child.wait().map_err(|error| io_error("wait for", "the first process of a host", &error))?;
    match output {
        Ok((pid, HostReply::Ready)) => {
            ProcessName::of(pid).ok_or_else(|| failed("its process 1 has ended".into()))
        }
        Ok((_, HostReply::Failed { why })) => Err(failed(why)),
        Err(why) => {
            let mut reported = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                let _ = std::io::Read::read_to_string(&mut stderr, &mut reported);
            }
            let last = reported.lines().last().map(|line| format!(", {line}")).unwrap_or_default();
            Err(failed(format!("{why} ({ended}{last})")))
        }
    }
}

/// Tells the second process what it is, and hears its number from the first and how it went from itself.
fn start_host_init(child: &mut Child, spec: &HostSpec) -> std::result::Result<(u32, HostReply), String> {
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("it has no pipes".into());
    };
    let text = serde_json::to_vec(spec).map_err(|error| error.to_string())?;
    stdin.write_all(&text).map_err(|error| error.to_string())?;
    drop(stdin);
    let mut lines = BufReader::new(stdout).lines();
    let mut line = || match lines.next() {
        Some(Ok(line)) => Ok(line),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("it said nothing".to_owned()),
    };
    // Two processes write, and either may be the first.
    let (one, other) = (line()?, line()?);
    let (pid, output) = match one.parse() {
        Ok(pid) => (pid, other),
        Err(_) => (other.parse().map_err(|_| "it told no number".to_owned())?, one),
    };
    Ok((pid, serde_json::from_str(&output).map_err(|error| error.to_string())?))
}
