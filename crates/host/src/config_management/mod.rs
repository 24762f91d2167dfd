//! Who else writes a file: configuration managements, which would take back what we write, or be surprised by it.
//! Such files are proposed to people and never written.
//!
//! Three things tell, from the surest to the weakest:
//!
//! 1. A mark in the file's head ([`marks`]).
//! 2. The list of what an agent on this machine manages ([`lists`]), if the agent is at work: it runs, or it wrote the
//!    list within the last [`IDLE_AFTER`]. A package that is merely installed, or was given up long ago, claims nothing.
//! 3. An agent that runs and whose list cannot be read. It may manage any file below `/etc`, so those that exist are
//!    taken for its own: to write one in vain is worse than to leave a change to its owner, who has the export. A file
//!    that does not exist yet, or that webdyno made itself, is not: no agent rewrites what it does not know. Those that
//!    remove unknown files do so in directories that they list, which is asked under 2.
//!
//! Ansible works from elsewhere and leaves nothing here but marks. An agent that is started by a timer, and has no list,
//! is not seen between its runs.

pub mod lists;
pub mod marks;
mod tuned;

use crate::os::procfs;
use lists::Lists;
use std::path::Path;
use std::time::{Duration, SystemTime};
use webdyno_model::change::ManagedFile;

/// An agent that has left no trace for so long is not at work any more: they come by at least daily.
pub const IDLE_AFTER: Duration = Duration::from_secs(30 * 86_400);

/// The directory that agents manage.
const CONFIGURATION: &str = "/etc";

/// Programs in whose arguments the agent's name comes next.
const INTERPRETERS: [&str; 3] = ["ruby", "python", "perl"];

/// An agent that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// `Puppet`.
    pub tool: &'static str,
    /// As people know the program.
    pub program: String,
    /// Its process.
    pub pid: u32,
}

/// The configuration managements of a machine, as far as they can be seen.
#[derive(Debug)]
pub struct Managers {
    running: Vec<Agent>,
    lists: Lists,
}

impl Managers {
    /// Those of this machine.
    pub fn here() -> Self {
        Self::of(Path::new("/"), running(), SystemTime::now())
    }

    /// Those whose files lie below `root`, with the agents that run.
    pub fn of(root: &Path, running: Vec<Agent>, now: SystemTime) -> Self {
        let lists = Lists::of(root, now, &|tool| running.iter().any(|agent| agent.tool == tool));
        Self { running, lists }
    }

    /// Who manages a file. `text` is what it holds; `None` for one that does not exist yet, or is webdyno's own.
    pub fn owner(&self, path: &Path, text: Option<&str>) -> Option<ManagedFile> {
        let managed = |by: &str, why: String| {
            Some(ManagedFile { path: path.to_string_lossy().into_owned(), by: by.to_owned(), why })
        };
        if let Some(mark) = text.and_then(marks::find) {
            return managed(mark.by, format!("it says `{}`", mark.quote));
        }
        if let Some((by, why)) = self.lists.owner(path, text.is_some()) {
            return managed(by, why);
        }
        let unlisted = |agent: &&Agent| !self.lists.knows(agent.tool);
        let agent = self.running.iter().find(unlisted)?;
        let may_be_its_own = text.is_some() && path.starts_with(CONFIGURATION);
        let why = format!(
            "{} runs (process {}), and what it manages cannot be read: any file below {CONFIGURATION} may be its own",
            agent.program, agent.pid
        );
        if may_be_its_own { managed(agent.tool, why) } else { None }
    }
}

impl Managers {
    /// Who sets a setting of the kernel by its own configuration.
    pub fn sysctl_owner(&self, name: &str) -> Option<ManagedFile> {
        let (path, profile) = self.lists.tuned_sysctl(name)?;
        let why = format!("its profile {profile} sets {name}");
        Some(ManagedFile { path: path.display().to_string(), by: "TuneD".into(), why })
    }
}

/// The agents among the processes of this machine.
fn running() -> Vec<Agent> {
    let agent = |pid: u32| agent(pid, &procfs::arguments(pid).ok()?);
    procfs::pids().into_iter().filter_map(agent).collect()
}

/// The agent behind a command line. Some write a title over theirs: `puppet agent: applying configuration`.
fn agent(pid: u32, arguments: &[String]) -> Option<Agent> {
    let line = arguments.join(" ");
    let mut words = line.split_whitespace();
    let name = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let mut program = name(words.next()?);
    if INTERPRETERS.iter().any(|interpreter| program.starts_with(interpreter)) {
        program = name(words.find(|word| !word.starts_with('-'))?);
    }
    let mut is_agent = || words.next().is_some_and(|word| word.trim_end_matches(':') == "agent");
    let tool = match program.as_str() {
        "puppet" if is_agent() => "Puppet",
        "chef-client" | "cinc-client" => "Chef",
        "salt-minion" => "Salt",
        "cf-execd" | "cf-agent" => "CFEngine",
        "tuned" => "TuneD",
        _ => return None,
    };
    let program = if tool == "Puppet" { "puppet agent".into() } else { program };
    Some(Agent { tool, program, pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_known_by_their_command_lines() {
        for (line, expected) in [
            (
                &[
                    "/opt/puppetlabs/puppet/bin/ruby",
                    "/opt/puppetlabs/puppet/bin/puppet",
                    "agent",
                    "--no-daemonize",
                ][..],
                Some("Puppet"),
            ),
            (&["puppet agent: applying configuration"], Some("Puppet")),
            (&["/usr/bin/ruby3.1", "-W0", "/usr/bin/puppet", "agent"], Some("Puppet")),
            (&["/usr/bin/ruby", "/usr/bin/puppet", "apply", "site.pp"], None),
            (
                &["/opt/chef/embedded/bin/ruby", "--disable-gems", "/usr/bin/chef-client", "-i", "1800"],
                Some("Chef"),
            ),
            (&["cinc-client"], Some("Chef")),
            (&["/usr/bin/python3", "/usr/bin/salt-minion"], Some("Salt")),
            (&["/usr/bin/python3 /usr/bin/salt-minion MultiMinionProcessManager"], Some("Salt")),
            (&["/var/cfengine/bin/cf-execd", "--no-fork"], Some("CFEngine")),
            (&["/usr/bin/python3", "-Es", "/usr/sbin/tuned", "-l", "-P"], Some("TuneD")),
            (&["vi", "/etc/chef/client.rb"], None),
            (&["grep", "puppet", "agent"], None),
            (&["less", "/var/log/salt-minion"], None),
            (&["puppet"], None),
            (&[""], None),
            (&[], None),
        ] {
            let arguments: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
            assert_eq!(agent(7, &arguments).map(|agent| agent.tool), expected, "{line:?}");
        }
    }

    fn with_chef() -> (tempfile::TempDir, Managers) {
        let root = tempfile::tempdir().unwrap();
        let chef = Agent { tool: "Chef", program: "chef-client".into(), pid: 12 };
        let managers = Managers::of(root.path(), vec![chef], SystemTime::now());
        (root, managers)
    }

    #[test]
    fn an_agent_without_a_list_may_own_what_is_there() {
        let (_root, managers) = with_chef();
        let owner = managers.owner(Path::new("/etc/apache2/apache2.conf"), Some("Timeout 5\n")).unwrap();
        assert_eq!((owner.by.as_str(), owner.path.as_str()), ("Chef", "/etc/apache2/apache2.conf"));
        assert!(owner.why.contains("chef-client runs (process 12)"), "{}", owner.why);
        // What nobody knows yet, and what lies elsewhere, is nobody's.
        assert_eq!(managers.owner(Path::new("/etc/apache2/conf-enabled/zzz.conf"), None), None);
        assert_eq!(managers.owner(Path::new("/srv/apache/httpd.conf"), Some("Timeout 5\n")), None);
    }

    #[test]
    fn a_mark_is_the_surest() {
        let (_root, managers) = with_chef();
        let owner = managers.owner(Path::new("/srv/x.conf"), Some("# Managed by Puppet\n")).unwrap();
        assert_eq!((owner.by.as_str(), owner.why.as_str()), ("Puppet", "it says `Managed by Puppet`"));
    }

    #[test]
    fn a_machine_without_agents_has_no_managed_files() {
        let root = tempfile::tempdir().unwrap();
        let managers = Managers::of(root.path(), vec![], SystemTime::now());
        assert_eq!(managers.owner(Path::new("/etc/apache2/apache2.conf"), Some("Timeout 5\n")), None);
        // Whatever runs here: this must be readable.
        assert_eq!(Managers::here().owner(Path::new("/srv/x.conf"), Some("Timeout 5\n")), None);
    }
}
