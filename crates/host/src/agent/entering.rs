//! Undoing a session in the namespaces where it was at work: an agent of our own is started in there by nsenter(1), and
//! does it. We stay where we are.
//!
//! nsenter is what enters them, as a namespace of users or processes can only be entered by a process with one thread, and
//! then takes a child. It gets them as files that are open here: they cannot change beneath it. Where only the network is
//! another one, our own program is run; in another root it is sent, as over any other connection.

use crate::agent::address::ServerAddress;
use crate::agent::client::AgentClient;
use crate::agent::connect::Start;
use crate::change::seams::helper::{Entrance, Helper, RollbackOutcome};
use crate::change::{StateDir, Tools};
use crate::os::process_location::namespace;
use rustix::fs::{Mode, OFlags, open};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The namespaces of a process that are entered with it, with their options of nsenter(1). The network is another matter.
const NAMESPACES: [(&str, &str); 6] =
    [("user", "U"), ("cgroup", "C"), ("ipc", "i"), ("uts", "u"), ("pid", "p"), ("mnt", "m")];

/// This machine, with other namespaces of it.
pub fn tools_that_enter(state: &StateDir) -> Tools {
    Tools { helper: Some(Arc::new(Entering)), ..Tools::of_this_machine(state.clone()) }
}

/// Enters by nsenter(1).
pub struct Entering;

impl Helper for Entering {
    fn undo(&self, entrance: &Entrance, journal: &str, only_unkept: bool) -> Result<RollbackOutcome> {
        let (command, held) = command(entrance)?;
        let own = std::env::current_exe().map_err(|error| io_error("find", "this program", &error))?;
        let agent = AgentClient::start(&Start::at(ServerAddress::Exec(command), &own))?;
        // They are entered by now.
        drop(held);
        agent.roll_back(Some(journal), only_unkept)
    }
}

/// The command that starts an agent there, and what must stay open until it has.
fn command(entrance: &Entrance) -> Result<(String, Vec<OwnedFd>)> {
    let mut held = vec![];
    let mut words = vec!["nsenter".to_owned()];
    let mut hold = |path: &str, flags: OFlags| -> Result<String> {
        let file = open(path, flags | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| io_error("enter", path, &error.into()))?;
        let name = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        held.push(file);
        Ok(name)
    };
    if let Some((path, _)) = &entrance.network {
        words.push(format!("-n{}", hold(path, OFlags::RDONLY)?));
    }
    let Some((pid, _)) = entrance.process else {
        check(entrance)?;
        words.push(format!("/proc/{}/exe agent", std::process::id()));
        return Ok((words.join(" "), held));
    };
    let own = std::process::id();
    for (name, option) in NAMESPACES.iter().filter(|(name, _)| namespace(pid, name) != namespace(own, name)) {
        words.push(format!("-{option}{}", hold(&format!("/proc/{pid}/ns/{name}"), OFlags::RDONLY)?));
    }
    words.push(format!("-r{}", hold(&format!("/proc/{pid}/root"), OFlags::RDONLY | OFlags::DIRECTORY)?));
    words.push("-w/".into());
    check(entrance)?;
    words.push(format!("env WEBDYNO_STATE='{}'", entrance.state.replace('\'', "'\\''")));
    Ok((words.join(" "), held))
}

/// What is open by now must be what was found.
fn check(entrance: &Entrance) -> Result<()> {
    match entrance.is_still_there() {
        true => Ok(()),
        false => {
            Err(UserError::cannot_run("its namespaces ended just now").hint("run `webdyno rollback` again"))
        }
    }
}
