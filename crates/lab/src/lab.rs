//! A scenario that is up: its hosts, and how one runs programs on them.
//!
//! Facts: nsenter(1), setpriv(1) (`--pdeathsig`: what runs ends with whoever runs it), prlimit(1), env(1), cgroups(7) (0
//! in cgroup.procs is whoever writes it).

use crate::cgroups::{GroupTree, HostLimits};
use crate::journal::{Act, ScenarioPlace};
use crate::scenario::{CLIENT, Catalogue, Link, SERVER, Scenario, ScenarioFolder, ScenarioService};
use crate::{packages, services};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use webdyno_host::change::seams::state_dir::StateDir;
use webdyno_host::os::process::ProcessName;
use webdyno_model::{Result, UserError};

/// Joins groups, then becomes what is given behind `--`. A group that is gone ends it: nobody may outlive `down`.
const JOIN: &str =
    "while [ \"$1\" != -- ]; do echo 0 > \"$1/cgroup.procs\" || exit 125; shift; done; shift; exec \"$@\"";

/// What every shell on a host has in its environment.
const USUAL: [(&str, &str); 3] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
];

/// Open files as systemd gives them to services and logins: soft and hard.
const OPEN_FILES: (u64, u64) = (1024, 524_288);

/// A scenario that is up, or is coming up.
#[derive(Debug)]
pub struct Lab {
    pub(crate) folder: ScenarioFolder,
    pub(crate) place: ScenarioPlace,
    pub(crate) tree: GroupTree,
    pub(crate) hosts: BTreeMap<String, ProcessName>,
    pub(crate) limits: BTreeMap<String, HostLimits>,
    pub(crate) links: Vec<Link>,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Lab {
    /// One that is up. An error when it is not.
    pub fn open(name: &str) -> Result<Self> {
        Self::open_in(StateDir::of_environment()?.root(), name)
    }

    /// The same below a given state directory.
    pub fn open_in(state: &Path, name: &str) -> Result<Self> {
        let place = ScenarioPlace::of(state, name)?;
        let not_up = || {
            UserError::cannot_run(format!("the scenario `{name}` is not up"))
                .hint(format!("webdyno lab up {name}"))
        };
        let reported =
            place.read()?.filter(crate::journal::JournalContent::is_complete).ok_or_else(not_up)?;
        let mut hosts = BTreeMap::new();
        let mut catalogue = Catalogue::BuiltIn;
        for act in reported.acts {
            match act {
                Act::Host { host, process } => drop(hosts.insert(host, process)),
                Act::Begin { scenarios: Some(directory), .. } => catalogue = Catalogue::Directory(directory),
                _ => {}
            }
        }
        if let Some((host, _)) = hosts.iter().find(|(_, process)| !process.is_alive()) {
            return Err(UserError::cannot_run(format!("the host `{host}` of `{name}` has ended"))
                .hint(format!("webdyno lab down {name}")));
        }
        let mut lab = Self::of(catalogue.open(name)?, place)?;
        lab.hosts = hosts;
        Ok(lab)
    }

    /// One without hosts.
    pub(crate) fn of(folder: ScenarioFolder, place: ScenarioPlace) -> Result<Self> {
        let tree = GroupTree::of_machine(place.name())?;
        let limits =
            |name: &String| folder.scenario.hosts.get(name).map_or(Ok(HostLimits::default()), HostLimits::of);
        let limits = folder
            .scenario
            .host_names()
            .into_iter()
            .map(|name| Ok((name.clone(), limits(&name)?)))
            .collect::<Result<_>>()?;
        let links = links(&folder.scenario);
        Ok(Self { folder, place, tree, hosts: BTreeMap::new(), limits, links, stop: Arc::default() })
    }

    /// The scenario with its files.
    pub fn folder(&self) -> &ScenarioFolder {
        &self.folder
    }

    /// What it describes.
    pub fn scenario(&self) -> &Scenario {
        &self.folder.scenario
    }

    /// Its hosts' names.
    pub fn host_names(&self) -> Vec<String> {
        self.folder.scenario.host_names()
    }

    /// The folder with a host's own files (`etc/`, `var/`, ...), as the machine sees it.
    pub fn root(&self, host: &str) -> PathBuf {
        files(&self.place, host)
    }

    /// A host's process 1, as the machine sees it. An error when there is no such host.
    pub fn pid(&self, host: &str) -> Result<u32> {
        self.hosts.get(host).map(|process| process.pid).ok_or_else(|| {
            let known = self.hosts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            UserError::usage(format!("`{}` has no host `{host}`", self.place.name()))
                .hint(format!("its hosts are {known}"))
        })
    }

    /// An error once the user wants it to end.
    pub fn check_interrupted(&self) -> Result<()> {
        if self.stop.load(Ordering::SeqCst) { Err(UserError::interrupted()) } else { Ok(()) }
    }

    /// The start of a command line that is run on a host: arguments are to be added, program first. It is in all of the
    /// host's namespaces and groups, and ends with whoever waits for it. On `client` it has our own environment and
    /// working directory, on others the host's, and `/`.
    pub fn enter_host(&self, host: &str) -> Result<Command> {
        self.enter_groups(host, None)
    }

    /// The same in the group of a service that has limits of its own; `index` is its place in the scenario.
    pub fn enter_service_group(&self, host: &str, index: usize) -> Result<Command> {
        self.enter_groups(
            host,
            Some(index)
                .filter(|index| service_limits(self.scenario(), host).iter().any(|(at, _)| at == index)),
        )
    }

    fn enter_groups(&self, host: &str, service: Option<usize>) -> Result<Command> {
        let pid = self.pid(host)?;
        let has_services = !service_limits(self.scenario(), host).is_empty();
        let mut command = join_groups(&self.tree.folders(host, has_services, service));
        command.arg(packages::NSENTER.find()?).args(["-t", &pid.to_string(), "-m", "-u", "-i", "-n"]);
        // The clients are among the machine's processes.
        command.args((host != CLIENT).then_some("-p"));
        command.arg(packages::SETPRIV.find()?).args(["--pdeathsig", "KILL"]);
        if host == CLIENT {
            let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
            command.args(["env", "-C"]).arg(here);
            return Ok(command);
        }
        let (soft, hard) = OPEN_FILES;
        // Not everybody who is root may raise it.
        let hard = getrlimit(Resource::Nofile).maximum.map_or(hard, |own| own.min(hard));
        command.arg(packages::PRLIMIT.find()?).arg(format!("-n{}:{hard}", soft.min(hard)));
        command.env_clear().envs(std::env::var_os("TERM").map(|term| ("TERM", term)));
        command.envs(USUAL).envs(self.environment(host, pid)?);
        Ok(command)
    }

    /// The names that Apache's configuration uses, of a host that has it. They are asked for inside of it, but with
    /// nothing of what it may use: asking is not to be seen in what is measured.
    fn environment(&self, host: &str, pid: u32) -> Result<Vec<(String, String)>> {
        if self.root(host).join(&services::ENVVARS[1..]).symlink_metadata().is_err() {
            return Ok(vec![]);
        }
        let mut inside = join_groups(self.tree.builders_folder().as_slice());
        inside.arg(packages::NSENTER.find()?).args(["-t", &pid.to_string(), "-m", "-u", "-i", "-n", "-p"]);
        inside.env_clear().envs(USUAL);
        Ok(services::environment(inside, Path::new(services::ENVVARS)))
    }
}

/// A command line that joins groups before anything else: arguments are to be added.
pub(crate) fn join_groups(groups: &[PathBuf]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", JOIN, "sh"]).args(groups).arg("--");
    command
}

/// Where a host's own files are.
pub(crate) fn files(place: &ScenarioPlace, host: &str) -> PathBuf {
    place.path().join("hosts").join(host)
}

/// All links of a scenario.
fn links(scenario: &Scenario) -> Vec<Link> {
    if !scenario.links.is_empty() {
        return scenario.links.clone();
    }
    let ends = [CLIENT.to_owned(), SERVER.to_owned()];
    vec![Link { ends, rate_there: None, rate_back: None, queue: None }]
}

/// The services of a host that have limits of their own.
pub(crate) fn service_limits<'a>(scenario: &'a Scenario, host: &str) -> Vec<(usize, &'a ScenarioService)> {
    let has_limits = |service: &ScenarioService| {
        service.processes.is_some() || service.memory.is_some() || service.cpus.is_some()
    };
    let all = scenario.services.iter().enumerate();
    all.filter(|(_, service)| service.host == host && has_limits(service)).collect()
}
