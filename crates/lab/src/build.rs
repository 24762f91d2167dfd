//! Builds a scenario: groups, hosts, cables, firewalls, settings, disks, services, in this order. What fails leaves
//! nothing behind.

use crate::cgroups::HostLimits;
use crate::hosts::host_init::OWN;
use crate::hosts::links::{LinkEnds, in_network_of, set};
use crate::hosts::{ToolRunner, disks, start};
use crate::journal::{Act, JournalContent, ScenarioLock, ScenarioPlace, lock_all_scenarios};
use crate::lab::{Lab, service_limits};
use crate::machine;
use crate::packages;
use crate::preconditions::{check_not_on_lab_host, check_root, check_same_state_directory};
use crate::remove::take_down;
use crate::scenario::{
    CLIENT, Link, MachineSettings, Scenario, ScenarioFolder, ScenarioHost, ScenarioService,
};
use crate::{services, units};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use webdyno_host::os::process::boot_id;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// How long it may take until all services are ready: twice what it takes on a machine that does nothing else.
const UP_MAX: Duration = Duration::from_secs(20);

/// How often is looked whether the user wants an end.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// Rules that track connections and refuse nothing, as those that most distributions' firewalls begin with.
const FIREWALL: &str = "table inet webdyno {\n\
    chain input { type filter hook input priority 0; policy accept; ct state established,related accept; ct state new accept; }\n\
    chain output { type filter hook output priority 0; policy accept; ct state established,related accept; }\n\
    chain forward { type filter hook forward priority 0; policy accept; ct state established,related accept; }\n}\n";

/// What building needs to know besides the scenario.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Our own program, which runs as process 1 of hosts.
    pub program: PathBuf,
    /// The state directory.
    pub state: PathBuf,
    /// Set by whoever wants it to end.
    pub stop: Arc<AtomicBool>,
}

/// Builds a scenario. Nothing of it is left when that fails, or is interrupted.
pub fn build(folder: &ScenarioFolder, options: &BuildOptions) -> Result<Lab> {
    check_root("up", &folder.name)?;
    check_not_on_lab_host("up")?;
    packages::check(&folder.scenario)?;
    let place = ScenarioPlace::of(&options.state, &folder.name)?;
    let mut lab = Lab::of(folder.clone(), place.clone())?;
    lab.stop = options.stop.clone();
    // What cannot be is told before anything is made.
    let net = LinkEnds::of(&lab.host_names(), &lab.links)?;
    lab.tree.check(&controllers(&folder.scenario)?)?;
    check_same_state_directory(&place, &lab.tree)?;
    let mut claimed = ScenarioLock::acquire(&place)?;
    let reported = place.read()?;
    if reported.as_ref().is_some_and(JournalContent::is_complete) {
        return Err(UserError::cannot_run(format!("the scenario `{}` is up already", folder.name))
            .hint(format!("webdyno lab down {}", folder.name)));
    }
    // Half of it, from somebody who was killed, or from before the machine was started anew; or all of it, whose files
    // somebody removed.
    if reported.is_some() || lab.tree.exists() {
        take_down(claimed)?;
        claimed = ScenarioLock::acquire(&place)?;
    }
    let built = begin(&lab, &mut claimed).and_then(|()| {
        let mut building = Building { lab: &mut lab, claimed: &mut claimed, net, program: &options.program };
        building.all()
    });
    match built {
        Ok(()) => Ok(lab),
        Err(error) => {
            let is_stopped = lab.check_interrupted().is_err();
            let error = if is_stopped { UserError::interrupted() } else { with_disk_space_hint(error) };
            Err(match take_down(claimed) {
                Ok(_) => error,
                Err(also) => {
                    UserError { message: format!("{}; and {}", error.message, also.message), ..error }
                }
            })
        }
    }
}

/// Where the disk was full it was that of the state directory: nothing else is written while a scenario is built.
fn with_disk_space_hint(error: UserError) -> UserError {
    match error.message.to_lowercase().contains("no space left") {
        true => error.hint("free space there, or set WEBDYNO_STATE to a directory on another disk"),
        false => error,
    }
}

/// Writes the journal's first line, unless another scenario needs the same setting of the machine.
fn begin(lab: &Lab, claimed: &mut ScenarioLock) -> Result<()> {
    let settings = machine_settings(lab.scenario());
    let place = claimed.place().clone();
    let _only = lock_all_scenarios(&place)?;
    let here = place.others()?;
    // Those of other state directories change the same machine.
    let elsewhere =
        lab.tree.others().iter().filter_map(|folder| ScenarioPlace::at(folder)).collect::<Vec<_>>();
    for other in here.iter().chain(elsewhere.iter().filter(|other| !here.contains(other))) {
        let Some(reported) = other.read()? else { continue };
        if let Some(common) =
            reported.settings().iter().find(|name| reported.is_of_this_boot() && settings.contains(name))
        {
            let (name, folder) = (other.name(), other.path());
            let text = format!("the scenario `{name}` is up, and needs `{common}` of this machine, too");
            let down = format!("webdyno lab down {name}");
            return Err(UserError::cannot_run(text).hint(match other.root() == place.root() {
                true => down,
                false => format!("its files are in {}: with that WEBDYNO_STATE, {down}", folder.display()),
            }));
        }
    }
    let scenarios = lab.folder.directory().map(std::path::absolute).transpose();
    let scenarios = scenarios.map_err(|error| io_error("find", "the working directory", &error))?;
    claimed.append(&Act::Begin { boot_id: boot_id(), scenarios, settings })
}

/// All settings of the machine that a scenario has in any round.
fn machine_settings(scenario: &Scenario) -> Vec<String> {
    let rounds = scenario.rounds.iter().flat_map(|round| round.machine.sysctl.keys());
    let all: BTreeSet<String> = scenario.machine.sysctl.keys().chain(rounds).cloned().collect();
    all.into_iter().collect()
}

/// The controllers that limits need, in any round.
fn controllers(scenario: &Scenario) -> Result<BTreeSet<&'static str>> {
    let mut needed = BTreeSet::new();
    let rounds = scenario.rounds.iter().flat_map(|round| round.hosts.values());
    for host in scenario.hosts.values().chain(rounds) {
        needed.extend(HostLimits::of(host)?.controllers());
        if host.disks.iter().any(|disk| disks::limits(disk).is_ok_and(|limits| limits != Default::default()))
        {
            needed.insert("io");
        }
    }
    for service in &scenario.services {
        needed.extend(service.memory.as_ref().map(|_| "memory"));
        needed.extend(service.processes.map(|_| "pids"));
        needed.extend(service.cpus.map(|_| "cpu"));
    }
    Ok(needed)
}

/// A scenario that is coming up.
struct Building<'a> {
    lab: &'a mut Lab,
    claimed: &'a mut ScenarioLock,
    net: LinkEnds,
    program: &'a Path,
}

impl Building<'_> {
    fn all(&mut self) -> Result<()> {
        let deadline = Instant::now() + UP_MAX;
        self.groups()?;
        self.hosts()?;
        let pids = self.lab.pids();
        let tools = self.lab.tools();
        self.net.connect(&tools, &pids)?;
        for link in &self.lab.links {
            self.net.shape(&tools, link, &pids)?;
        }
        for host in self.lab.host_names() {
            self.lab.check_interrupted()?;
            self.configure_host(&host)?;
        }
        let machine = self.lab.scenario().machine.clone();
        self.lab.apply_machine_change(self.claimed, &machine)?;
        for service in &self.lab.scenario().services {
            self.lab.check_interrupted()?;
            self.lab.start_service(service, deadline)?;
        }
        self.lab.check_interrupted()?;
        self.claimed.append(&Act::Up {})
    }

    fn groups(&mut self) -> Result<()> {
        let scenario = &self.lab.folder.scenario;
        let controllers = controllers(scenario)?;
        let mut progress = |act: &Act| self.claimed.append(act);
        self.lab.tree.make(&controllers, &mut progress)?;
        for host in scenario.host_names() {
            let own = service_limits(scenario, &host).into_iter().map(|(index, service)| {
                let memory_bytes = service.memory.as_deref().map(units::bytes).transpose()?;
                let (processes, cpus) = (service.processes, service.cpus);
                Ok((index, HostLimits { memory_bytes, processes, cpus, ..HostLimits::default() }))
            });
            self.lab.tree.make_host(&host, &controllers, &own.collect::<Result<Vec<_>>>()?, &mut progress)?;
            if let Some(limits) = self.lab.limits.get(&host) {
                self.lab.tree.limit(&host, limits)?;
            }
        }
        Ok(())
    }

    fn hosts(&mut self) -> Result<()> {
        for host in self.lab.host_names() {
            self.lab.check_interrupted()?;
            let root = self.lab.root(&host);
            folder(&root, 0o755)?;
            if host != CLIENT {
                OWN.iter().try_for_each(|name| folder(&root.join(name), mode(name)))?;
            }
            services::write_files(&self.lab.folder, &host, &root, &self.net.names(&host))?;
            let process = start(self.lab, &host, self.program)?;
            self.claimed.append(&Act::Host { host: host.clone(), process })?;
            self.lab.hosts.insert(host, process);
        }
        Ok(())
    }

    /// Firewall, settings and disks of a host.
    fn configure_host(&mut self, host: &str) -> Result<()> {
        let Some(wanted) = self.lab.scenario().hosts.get(host).cloned() else { return Ok(()) };
        let pid = self.lab.pid(host)?;
        let tools = self.lab.tools();
        if wanted.firewall {
            in_network_of(pid, || tools.run_with_input(packages::NFT, &["-f", "-"], FIREWALL))?;
        }
        if let Some(path) = &wanted.nft {
            let name = format!("{host}/{}", path.trim_start_matches('/'));
            let rules = self.lab.folder.file(&name)?.ok_or_else(|| {
                UserError::usage(format!("the scenario `{}` has no file {name}", self.lab.folder.name))
            })?;
            let rules = String::from_utf8_lossy(&rules).into_owned();
            in_network_of(pid, || tools.run_with_input(packages::NFT, &["-f", "-"], &rules))?;
        }
        for (name, value) in &wanted.sysctl {
            set(pid, name, &machine::value(value))?;
        }
        for (number, disk) in wanted.disks.iter().enumerate() {
            disks::attach(self.lab, self.claimed, host, number, disk)?;
        }
        Ok(())
    }
}

fn mode(name: &str) -> u32 {
    match name {
        "root" => 0o700,
        "tmp" => 0o1777,
        _ => 0o755,
    }
}

/// Makes a folder with a mode, whatever the umask is.
fn folder(path: &Path, mode: u32) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    let made = made.and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(mode)));
    made.map_err(|error| io_error("create", path.display(), &error))
}

impl Lab {
    /// The hosts' processes 1.
    pub(crate) fn pids(&self) -> BTreeMap<String, u32> {
        self.hosts.iter().map(|(host, process)| (host.clone(), process.pid)).collect()
    }

    /// What runs programs of others for this scenario.
    pub(crate) fn tools(&self) -> ToolRunner {
        ToolRunner { group: self.tree.builders_folder() }
    }

    /// Starts a service, and waits until it is ready.
    fn start_service(&self, service: &ScenarioService, deadline: Instant) -> Result<()> {
        let index = self.scenario().services.iter().position(|other| std::ptr::eq(other, service));
        let enter = || match index {
            Some(index) => self.enter_service_group(&service.host, index),
            None => self.enter_host(&service.host),
        };
        let scratch = self.place.path();
        let inside = services::CommandHost { host: &service.host, scratch: &scratch, enter: &enter };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // What waits in the host ends with it: nobody who wants an end waits for a service.
            let watch = || {
                while !is_over.load(Ordering::SeqCst) {
                    if self.check_interrupted().is_err() {
                        self.tree.kill_host(&service.host);
                    }
                    std::thread::sleep(POLL_EVERY);
                }
            };
            let watcher = std::thread::Builder::new().spawn_scoped(scope, watch);
            let started = watcher
                .map_err(|error| io_error("start", "a thread", &error))
                .and_then(|_| services::start_in(&inside, &self.folder, service, deadline));
            is_over.store(true, Ordering::SeqCst);
            started
        })
    }

    /// New limits of a host: what is given replaces what was.
    pub fn change_host(&mut self, host: &str, change: &ScenarioHost) -> Result<()> {
        self.pid(host)?;
        let change = HostLimits::of(change)?;
        let limits = self.limits.get(host).cloned().unwrap_or_default().merged_with(change);
        self.tree.limit(host, &limits)?;
        self.limits.insert(host.to_owned(), limits);
        Ok(())
    }

    /// New rates of the link with the same ends.
    pub fn change_link(&mut self, change: &Link) -> Result<()> {
        let net = LinkEnds::of(&self.host_names(), &self.links)?;
        net.shape(&self.tools(), change, &self.pids())
    }

    /// New settings of the whole machine. They are put back by `down`, like the first ones.
    pub fn change_machine(&mut self, change: &MachineSettings) -> Result<()> {
        let mut claimed = ScenarioLock::acquire(&self.place)?;
        self.apply_machine_change(&mut claimed, change)
    }

    fn apply_machine_change(&self, claimed: &mut ScenarioLock, change: &MachineSettings) -> Result<()> {
        if let Some(size) = &change.swap {
            machine::add_swap(&self.tools(), claimed, units::bytes(size)?)?;
        }
        for (name, value) in &change.sysctl {
            self.check_interrupted()?;
            machine::change_setting(claimed, name, &machine::value(value))?;
        }
        Ok(())
    }
}
