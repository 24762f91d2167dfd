//! Keeps what is observed in step with the machine: services come, go, and are started anew.
//!
//! A thread of its own looks again every minute, and at once when the main process is another one, or that of a
//! backend has ended; after that a few times soon, as what is started anew takes its time until others talk to it. So it
//! does at the beginning, and when a load begins: who observes before it sees a quiet service, whose scripts have not yet asked
//! their database, and a load may have to be stopped within a second.
//! The collectors go on meanwhile, and read what they read before until something else was found.

use crate::agent::host::{HarmGuard, Host, Watch};
use crate::agent::outbox::Outbox;
use crate::agent::protocol::FromAgent;
use crate::collectors::Target;
use crate::discovery::survey::SurveyBudget;
use crate::os::process::ProcessName;
use crate::os::procfs;
use crate::services::UNKNOWN;
use crate::visibility::listeners;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use webdyno_model::harm_guard::SiteUnderLoad;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::Topology;

/// How often the main process is looked at.
const TICK: Duration = Duration::from_secs(1);

/// How often the machine is.
const SURVEY_INTERVAL: Duration = Duration::from_secs(60);

/// After the end of a backend it is looked so often so soon.
const SOON_COUNT: u32 = 5;
const SOON: Duration = Duration::from_secs(3);

/// At the beginning it is looked so often each second, for a load to begin.
const BEGINNING_COUNT: u32 = 4;

/// So often, each second, it is looked when a load begins.
const LOAD_COUNT: u32 = 4;

/// How a service tells that its status page is missing.
const STATUS_PAGE: &str = "mod_status";

/// After so many looks the services are read anew, also when their processes are the same: a reload keeps them.
const READ_ANEW_EVERY: u32 = 5;

/// What is observed. Dropping it ends that.
pub struct Following {
    shared: Arc<Mutex<Watched>>,
}

/// What is observed, as it is known.
pub struct Watched {
    /// The collectors.
    pub watch: Box<dyn Watch>,
    /// Whether a load does harm.
    pub harm_guard: Box<dyn HarmGuard>,
    /// What these read.
    target: Target,
    topology: Topology,
    /// Whether it was told already, or is known to who asked.
    is_reported: bool,
    /// The port that was asked for; without one all services of the machine are looked for.
    port: Option<u16>,
    /// The main process, where it is one of this machine.
    main: Option<ProcessName>,
    /// The main processes of its backends.
    backends: Vec<ProcessName>,
    /// Rises with every target, so that what was looked at before is not taken for newer.
    generation: u64,
    /// The looks that are due for a load that began.
    load_looks_count: u32,
    outbox: Outbox,
}

impl Following {
    /// Follows what is observed already, by the port that was asked for. `looked_well` tells whether the topology is one of
    /// more than a glance.
    pub fn start(
        host: Arc<dyn Host>,
        outbox: Outbox,
        (watch, brake): (Box<dyn Watch>, Box<dyn HarmGuard>),
        (target, topology): (Target, Topology),
        (asked, looked_well): (Option<u16>, bool),
    ) -> Self {
        let (main, backends) = mains(&target);
        let is_told = looked_well;
        let watched = Watched {
            watch,
            harm_guard: brake,
            target,
            topology,
            is_reported: is_told,
            port: asked,
            main,
            backends,
            generation: 0,
            load_looks_count: 0,
            outbox,
        };
        let shared = Arc::new(Mutex::new(watched));
        let weak = Arc::downgrade(&shared);
        std::thread::spawn(move || follow(host.as_ref(), &weak, looked_well));
        Self { shared }
    }

    /// What is observed, for the length of a call.
    pub fn watched(&self) -> MutexGuard<'_, Watched> {
        lock(&self.shared)
    }
}

/// Who panicked while he held it left it whole: targets are replaced at once.
fn lock(shared: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    /// The service was read anew.
    pub fn set_service(&mut self, snapshot: &ServiceSnapshot) {
        if self.target.port == Some(snapshot.port) {
            self.topology.front = Some(snapshot.clone());
            self.set(target(Some(snapshot), self.target.clone()));
        }
    }

    /// The service and what stands behind it, as far as that was seen.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// A load begins: gives what cannot be watched of the harm that it may do, and has it looked who works for it.
    pub fn begin_load(&mut self, site: &SiteUnderLoad) -> Vec<MissingSignal> {
        self.load_looks_count = LOAD_COUNT;
        self.harm_guard.begin(site)
    }

    fn set(&mut self, target: Target) {
        self.generation += 1;
        let (main, mut backends) = mains(&target);
        // One that is gone stays the one that is waited for, until there is another: a reload of our own may have replaced it.
        backends.extend(lost(&self.backends, &target));
        (self.main, self.backends) = (main.or(self.main), backends);
        if target != self.target {
            self.target = target;
            self.harm_guard.set_target(&self.target);
            self.watch.set_target(self.target.clone());
        }
    }

    /// Backends that were started anew are read by their new process ids at once: a look takes seconds where CPU is short, and
    /// what they use would be taken for other programs' meanwhile. The topology keeps the former ones, so that a look reads them anew.
    fn follow_successors(&mut self) {
        let pids: Vec<u32> = self.target.backends.iter().map(|backend| backend.pid).collect();
        let is_gone = |pid: u32| self.backends.iter().any(|known| known.pid == pid && !known.is_alive());
        let followed = self.target.backends.iter().map(|backend| {
            // Of a program that is not known the executable may be an interpreter, which runs others, too.
            let is_known = backend.service != UNKNOWN && is_gone(backend.pid);
            let executable = backend.executable.as_deref().filter(|_| is_known);
            let pid = executable.and_then(|executable| successor(executable, &pids)).unwrap_or(backend.pid);
            ServiceSnapshot { pid, ..backend.clone() }
        });
        let next = Target { backends: followed.collect(), ..self.target.clone() };
        self.set(next);
    }

    /// Takes over what a look found; says so when it is the first, or another topology than before.
    fn found(&mut self, mut topology: Topology) {
        keep_status_page(&mut topology, &self.topology);
        let next = Target { backends: topology.backends.clone().into(), ..self.target.clone() };
        let next = match &topology.front {
            Some(front) => target(Some(front), next),
            None => next,
        };
        self.set(next);
        if !std::mem::replace(&mut self.is_reported, true) || differs(&topology, &self.topology) {
            self.outbox.send(FromAgent::Topology { topology: Box::new(topology.clone()) });
        }
        self.topology = topology;
    }
}

/// The main process of a program that was started just now, where there is only one beside those that are known.
fn successor(executable: &str, known_pids: &[u32]) -> Option<u32> {
    let is_same = |pid: &u32| procfs::executable(*pid).is_ok_and(|(path, _)| path == executable);
    let same: Vec<u32> = procfs::pids().into_iter().filter(is_same).collect();
    let is_new = |start_ticks| procfs::age_s(start_ticks) <= SURVEY_INTERVAL.as_secs_f64();
    let is_main = |pid: &&u32| {
        procfs::stat(**pid).is_ok_and(|stat| !same.contains(&stat.ppid) && is_new(stat.start_ticks))
    };
    let mut mains = same.iter().filter(is_main).filter(|pid| !known_pids.contains(pid));
    mains.next().copied().filter(|_| mains.next().is_none())
}

/// Those of known processes that are gone, and that a target still names.
fn lost(known: &[ProcessName], target: &Target) -> Vec<ProcessName> {
    let is_named = |name: &&ProcessName| target.backends.iter().any(|backend| backend.pid == name.pid);
    known.iter().filter(is_named).filter(|name| !name.is_alive()).copied().collect()
}

/// The main processes of a service and of its backends, as far as they are there.
fn mains(target: &Target) -> (Option<ProcessName>, Vec<ProcessName>) {
    let backends = target.backends.iter().map(|backend| backend.pid).filter(|pid| *pid != listeners::NO_PID);
    (target.service_pid.and_then(ProcessName::of), backends.filter_map(ProcessName::of).collect())
}

/// Whether two topologies are of other services or links; how many connections there were just now does not count.
fn differs(a: &Topology, b: &Topology) -> bool {
    let links = |topology: &Topology| -> Vec<_> {
        topology.links.iter().map(|link| (link.from_pid, link.to_pid, link.by.clone())).collect()
    };
    (&a.front, &a.backends, &a.missing, links(a)) != (&b.front, &b.backends, &b.missing, links(b))
}

/// Looks again and again until nobody observes any more.
fn follow(host: &dyn Host, shared: &Weak<Mutex<Watched>>, looked_well: bool) {
    let mut effort = if looked_well { SurveyBudget::BEGINNING } else { SurveyBudget::FIRST };
    let mut due = Instant::now() + if looked_well { TICK } else { Duration::ZERO };
    let mut pause = TICK;
    let (mut looks_count, mut soon_count) = (0, 0);
    loop {
        let Some(held) = shared.upgrade() else { return };
        let (main, backends, is_loaded) = {
            let mut watched = lock(&held);
            let is_loaded = watched.load_looks_count > 0;
            watched.load_looks_count = watched.load_looks_count.saturating_sub(1);
            (watched.main, watched.backends.clone(), is_loaded)
        };
        drop(held);
        if is_loaded {
            (due, effort) = (Instant::now(), SurveyBudget::BEGINNING);
        }
        let has_lost_one = backends.iter().any(|backend| !backend.is_alive());
        if has_lost_one {
            soon_count = SOON_COUNT;
            let Some(held) = shared.upgrade() else { return };
            lock(&held).follow_successors();
        }
        if has_lost_one || main.is_some_and(|main| !main.is_alive()) || Instant::now() >= due {
            looks_count += 1;
            let is_found = survey_once(host, shared, effort, looks_count % READ_ANEW_EVERY == 0);
            let begins = looks_count <= BEGINNING_COUNT;
            effort = if begins { SurveyBudget::BEGINNING } else { SurveyBudget::AGAIN };
            due = Instant::now()
                + match soon_count {
                    _ if begins => Duration::ZERO,
                    0 => SURVEY_INTERVAL,
                    _ => SOON,
                };
            soon_count = soon_count.saturating_sub(1);
            let Some(held) = shared.upgrade() else { return };
            let is_there = lock(&held).main.is_none_or(ProcessName::is_alive);
            // One that stays away is not looked for at the same pace for ever.
            pause = if is_found && is_there { TICK } else { SURVEY_INTERVAL.min(pause * 2) };
        }
        std::thread::sleep(pause);
    }
}

/// Looks once; whether the service was found.
fn survey_once(
    host: &dyn Host,
    shared: &Weak<Mutex<Watched>>,
    effort: SurveyBudget,
    reads_anew: bool,
) -> bool {
    let Some(held) = shared.upgrade() else { return false };
    let (generation, asked, access, mut before) = {
        let watched = lock(&held);
        (watched.generation, watched.port, watched.target.access.clone(), watched.topology.clone())
    };
    drop(held);
    if reads_anew {
        forget_what_was_read(&mut before);
    }
    let look = || host.refresh_topology(asked, &access, &before, effort);
    let Ok(Ok(mut found)) = catch_unwind(AssertUnwindSafe(look)) else { return false };
    let Some(held) = shared.upgrade() else { return false };
    let mut watched = lock(&held);
    if watched.generation == generation {
        if effort != SurveyBudget::FIRST {
            keep_quiet_links(&mut found, &watched.topology);
        }
        watched.found(found);
    }
    true
}

/// Of the service in front remains which process it is: without a port, that is the one that is meant.
fn forget_what_was_read(before: &mut Topology) {
    before.backends.clear();
    before.front = before.front.take().map(|front| ServiceSnapshot {
        pid: front.pid,
        executable: None,
        control: None,
        ..ServiceSnapshot::default()
    });
}

/// Under load the status page may wait behind all others for longer than a look does: a page that is known stays known
/// as long as the process is the same. Whether it answers is told by who reads it.
fn keep_status_page(found: &mut Topology, before: &Topology) {
    let (Some(front), Some(former)) = (&mut found.front, &before.front) else { return };
    let start = |service: &ServiceSnapshot| service.control.as_ref().map(|control| control.start_ticks);
    let is_same = front.pid != listeners::NO_PID && front.pid == former.pid && start(front) == start(former);
    if is_same && front.status_url.is_none() && former.status_url.is_some() {
        front.status_url.clone_from(&former.status_url);
        front.missing.retain(|missing| missing.signal != STATUS_PAGE);
    }
}

/// A short look misses what is quiet just now: links between services that are still there stay, and so do their servers.
fn keep_quiet_links(found: &mut Topology, before: &Topology) {
    let is_alive = |pid: u32| {
        let former = before.services().find(|service| service.pid == pid);
        let start = former.and_then(|service| service.control.as_ref()).map(|control| control.start_ticks);
        ProcessName::of(pid).is_some_and(|now| start.is_none_or(|start| start == now.start_ticks))
    };
    let has = |topology: &Topology, pid: u32| topology.services().any(|service| service.pid == pid);
    let same_link = |a: &webdyno_model::topology::Link, b: &webdyno_model::topology::Link| {
        (a.from_pid, a.to_pid, &a.by) == (b.from_pid, b.to_pid, &b.by)
    };
    for link in &before.links {
        let Some(to) = link.to_pid.filter(|pid| is_alive(*pid) && is_alive(link.from_pid)) else { continue };
        if found.links.iter().any(|known| same_link(known, link)) {
            continue;
        }
        if !has(found, to) {
            found.backends.extend(before.backends.iter().find(|service| service.pid == to).cloned());
        }
        if has(found, link.from_pid) && has(found, to) {
            found.links.push(link.clone());
        }
    }
    found.links.sort_by(|a, b| (a.from_pid, &a.by, a.to_pid).cmp(&(b.from_pid, &b.by, b.to_pid)));
}

/// What is to be read of a service as it is now, the rest as before.
pub fn target(snapshot: Option<&ServiceSnapshot>, before: Target) -> Target {
    Target {
        // Nobody named one: it is the service's own.
        port: before.port.or_else(|| snapshot.map(|snapshot| snapshot.port).filter(|port| *port != 0)),
        // Of a service that may not be looked into, no process is known.
        service_pid: snapshot.map(|snapshot| snapshot.pid).filter(|pid| *pid != listeners::NO_PID),
        status_url: snapshot.and_then(|snapshot| snapshot.status_url.clone()),
        service: snapshot.cloned().map(Arc::new),
        ..before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    // What waits behind thousands of others is not gone; of another process nothing is known.
    #[test]
    fn a_status_page_that_waits_stays_known() {
        let front = |pid, url: Option<&str>| ServiceSnapshot {
            pid,
            status_url: url.map(str::to_owned),
            missing: match url {
                None => vec![MissingSignal::new(STATUS_PAGE, "no answer", "")],
                Some(_) => vec![],
            },
            ..ServiceSnapshot::default()
        };
        let topology = |front| Topology { front: Some(front), ..Topology::default() };
        for (former, found, expected) in [
            (front(7, Some("http://a/s")), front(7, None), Some("http://a/s")),
            (front(7, Some("http://a/s")), front(7, Some("http://b/s")), Some("http://b/s")),
            (front(7, Some("http://a/s")), front(8, None), None),
            (front(7, None), front(7, None), None),
        ] {
            let mut found = topology(found);
            keep_status_page(&mut found, &topology(former));
            let front = found.front.unwrap();
            assert_eq!(front.status_url.as_deref(), expected);
            assert_eq!(front.missing.is_empty(), expected.is_some());
        }
    }

    // What tells that it has to be looked again: the end of any of them, and of those alone that were there.
    #[test]
    fn the_end_of_a_backend_is_seen() {
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        let backend = |pid| ServiceSnapshot { pid, ..ServiceSnapshot::default() };
        let backends: Arc<[ServiceSnapshot]> =
            [backend(process.id()), backend(listeners::NO_PID), backend(u32::MAX)].into();
        let target = Target { service_pid: Some(std::process::id()), backends, ..Target::default() };
        let (main, named) = mains(&target);
        assert!(main.is_some_and(ProcessName::is_alive) && named.len() == 1 && named[0].is_alive());
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(!named[0].is_alive());
        assert_eq!(mains(&target).1.len(), 0);
        // The service in front was read anew meanwhile: the next look still has to find what took its place.
        assert_eq!(lost(&named, &target), named);
        assert_eq!(lost(&named, &Target::default()), [], "it is looked for until a look was made");
    }
    // PHP-FPM that went to the background has another process id after each reload; its children are none of its successors.
    #[test]
    fn what_was_started_anew_is_the_only_main_process_of_its_program() {
        let folder = tempfile::tempdir().unwrap();
        let program = std::fs::canonicalize(folder.path()).unwrap().join("server");
        std::fs::copy(std::fs::canonicalize("/bin/sh").unwrap(), &program).unwrap();
        // The child is the same program; both end with their input.
        let start = || {
            let mut command = Command::new(&program);
            command
                .args(["-c", "exec 3<&0; (read line <&3; :) & echo; read line"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let mut process = command.spawn().unwrap();
            process.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            process
        };
        let executable = program.to_str().unwrap();
        assert_eq!(successor(executable, &[]), None, "nothing runs");
        let mut first = start();
        assert_eq!(successor(executable, &[]), Some(first.id()));
        let mut second = start();
        assert_eq!(successor(executable, &[]), None, "which one is meant is not known");
        assert_eq!(successor(executable, &[second.id()]), Some(first.id()), "a backend of its own");
        for process in [&mut first, &mut second] {
            drop(process.stdin.take());
            process.wait().unwrap();
        }
    }
}
