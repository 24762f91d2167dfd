//! From a service to the processes behind it: whom it talks to, whom its configuration names, and whom these talk to.
//!
//! Connections may be short (a page that asks a database has one open for a millisecond), so the sockets are looked at
//! several times within a second. What is still open is told by who holds it; what ended before that could be seen, by the
//! user of the socket where no other program acts as him. What is closed by then (TIME_WAIT) may have been anybody's, and
//! proves nothing.

mod reading;

use super::links::{Contact, Party, Space, View, addresses};
use super::processes::{Processes, user_of};
use super::unprivileged::{self, HiddenServer};
use crate::os::{machine, procfs};
use crate::services::{Observe, mariadb, php_fpm};
use crate::visibility::foreign_namespace;
use crate::visibility::listeners::{NEEDS_RIGHTS, NO_PID};
use crate::visibility::mount_namespace::{in_root, root_of};
use crate::visibility::network_namespace::space_of;
use reading::{main_port, nearest_first, read, read_space, unknown};
use rustix::time::{ClockId, clock_gettime};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::{Access, Link, Topology};

/// How far from the front services are looked for.
const DEPTH_MAX: usize = 4;

/// The most services and links of one topology.
const SERVICES_COUNT_MAX: usize = 32;
const LINKS_COUNT_MAX: usize = 200;

/// The most network namespaces whose sockets are read: some 0.3 ms each.
const SPACES_COUNT_MAX: usize = 256;

/// The most addresses on other machines for which it is said what helps.
const REMOTE_COUNT_MAX: usize = 8;

/// The pause between two looks at the sockets.
const SAMPLE_PAUSE: Duration = Duration::from_millis(15);

/// How often the processes are looked at again, for connections that nobody was seen to hold.
const PROCESS_SAMPLES_COUNT_MAX: usize = 3;

/// How much a survey may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SurveyBudget {
    /// How long sockets are looked at.
    pub time: Duration,
    /// How much CPU time looking itself may take.
    pub busy: Duration,
}

/// The CPU time of this thread.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl SurveyBudget {
    /// For the first look.
    pub const FIRST: Self = Self { time: Duration::from_secs(1), busy: Duration::from_millis(150) };

    /// For a glance.
    pub const ONCE: Self = Self { time: Duration::ZERO, busy: Duration::ZERO };

    /// For the looks right after that, when a load begins: connections are short, and there may be few.
    pub const BEGINNING: Self = Self { time: Duration::from_millis(500), busy: Duration::from_millis(60) };

    /// For the looks while a service is observed.
    pub const AGAIN: Self = Self { time: Duration::from_millis(500), busy: Duration::from_millis(15) };
}

/// With more sockets than these, one look is enough while a service is observed: each costs tens of milliseconds, and the
/// next one comes in a minute.
const SOCKETS_COUNT_AGAIN_MAX: usize = 5_000;

/// A service with its place in the topology.
#[derive(Debug)]
struct Known {
    snapshot: ServiceSnapshot,
    depth: usize,
}

/// A look at the machine.
#[derive(Debug)]
pub struct Survey<'a> {
    known_programs: &'a [&'static dyn Observe],
    before: &'a Topology,
    access: &'a Access,
    processes: Processes,
    spaces: Rc<Vec<Space>>,
    own_space: Option<u64>,
    found: BTreeMap<u32, Known>,
    /// Order of discovery.
    order: Vec<u32>,
    links: BTreeMap<(u32, String, Option<u32>), Link>,
    missing: Vec<MissingSignal>,
    hidden_servers: OnceCell<Vec<HiddenServer>>,
}

impl std::fmt::Debug for dyn Observe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Surveys what stands behind a service, or without one all services of the machine that are known programs. Snapshots of
/// `before` are used again for processes that are still there.
pub fn survey(
    front: Option<ServiceSnapshot>,
    known_programs: &[&'static dyn Observe],
    (before, access): (&Topology, &Access),
    effort: SurveyBudget,
) -> Topology {
    let processes = Processes::read();
    let mut survey = Survey {
        known_programs,
        before,
        access,
        own_space: space_of(std::process::id()),
        spaces: Rc::default(),
        processes,
        found: BTreeMap::new(),
        order: vec![],
        links: BTreeMap::new(),
        missing: vec![],
        hidden_servers: OnceCell::new(),
    };
    let front_space = front.as_ref().and_then(|front| survey.processes.get(front.pid)?.space);
    survey.spaces = Rc::new(survey.read_spaces(None, front_space));
    survey.lack_spaces();
    let spaces = Rc::clone(&survey.spaces);
    let view = View::of(&spaces);
    let front_pid = front.as_ref().map(|front| front.pid);
    match front {
        Some(front) => {
            survey.start(front, &view);
            survey.guess_database(&view);
        }
        None => survey.start_with_all(&view),
    }
    survey.sample_repeatedly(effort);
    survey.into_topology(front_pid)
}

impl Survey<'_> {
    fn start(&mut self, mut front: ServiceSnapshot, view: &View<'_>) {
        let pid = front.pid;
        if front.listens.is_empty() {
            front.listens = self.listens(pid, view);
        }
        if pid == NO_PID {
            self.lack(
                "topology",
                "which process serves the port cannot be seen: permission denied",
                NEEDS_RIGHTS,
            );
        } else if self.processes.get(pid).is_none() {
            let why = format!("process {pid} has ended meanwhile");
            self.lack("topology", &why, "look again; `ss -ltnp` shows what listens now");
        } else if self.processes.get(pid).is_some_and(|seen| seen.refused) {
            let why = format!("the sockets of process {pid} cannot be seen: permission denied");
            self.lack("topology", &why, NEEDS_RIGHTS);
        }
        self.order.push(pid);
        self.found.insert(pid, Known { snapshot: front, depth: 0 });
        self.expand(pid, view);
    }

    /// All main processes that listen somewhere and run a program that is known.
    fn start_with_all(&mut self, view: &View<'_>) {
        let mains: BTreeSet<u32> =
            view.listening().filter_map(|inode| self.processes.main_of(&[inode])).collect();
        let refused = self.processes.iter().any(|(_, seen)| seen.refused);
        if refused {
            self.lack(
                "topology",
                "the sockets of other users' processes cannot be seen: permission denied",
                NEEDS_RIGHTS,
            );
        }
        let programs: Vec<u32> = mains.into_iter().filter(|pid| self.program(*pid).1.is_some()).collect();
        for pid in programs {
            self.add(pid, 0, view);
        }
    }

    /// Adds a service that was not known yet, with all that is behind it.
    fn add(&mut self, pid: u32, depth: usize, view: &View<'_>) {
        if self.found.contains_key(&pid) || self.found.len() >= SERVICES_COUNT_MAX || depth > DEPTH_MAX {
            return;
        }
        let Some(snapshot) = self.snapshot(pid, view) else { return };
        self.order.push(pid);
        self.found.insert(pid, Known { snapshot, depth });
        self.expand(pid, view);
    }

    /// Follows what a service is configured to talk to, and whom it talks to.
    fn expand(&mut self, pid: u32, view: &View<'_>) {
        self.follow_configuration(pid, view);
        // Its connections came and went since all processes were read.
        self.processes.refresh(pid);
        for (contact, count) in view.contacts(&self.party_of(pid), &self.processes) {
            self.link(pid, &contact, Some(count), view);
        }
    }

    fn party_of(&self, pid: u32) -> Party {
        let mut party = Party::default();
        for member in self.processes.tree(pid) {
            let Some(seen) = self.processes.get(member) else { continue };
            party.sockets.extend(&seen.sockets);
            party.spaces.extend(seen.space.or(self.own_space));
        }
        party
    }

    /// The users that the processes of a service act as, its main process does not, and nobody else does: whom that gave up
    /// its rights for. Where another program acts as such a user (nginx or a second Apache as `www-data`), a connection of
    /// his may be of either, and is taken for none's.
    fn users_of(&self, pid: u32, others: &BTreeSet<u32>) -> BTreeSet<u32> {
        let common = [Some(0), user_of(pid)];
        let users = self.processes.tree(pid).into_iter().filter_map(user_of);
        users.filter(|user| !common.contains(&Some(*user)) && !others.contains(user)).collect()
    }

    /// The users of all processes that are none of what was found, those that started just now included.
    fn users_of_others(&self) -> BTreeSet<u32> {
        let ours: HashSet<u32> = self.order.iter().flat_map(|pid| self.processes.tree(*pid)).collect();
        procfs::pids().into_iter().filter(|pid| !ours.contains(pid)).filter_map(user_of).collect()
    }

    /// Notes that a service talks to somebody, who is looked at in turn when he is new.
    fn link(&mut self, from: u32, contact: &Contact, count: Option<u64>, view: &View<'_>) {
        let seen = self.processes.main_of(&contact.server);
        let to = seen.or_else(|| self.unseen_server(contact));
        let key = (from, contact.by.clone(), to);
        if self.links.len() >= LINKS_COUNT_MAX && !self.links.contains_key(&key) {
            return;
        }
        let to_name = to.map(|pid| self.name(pid));
        let is_new = !self.links.contains_key(&key);
        let link = self.links.entry(key).or_insert_with(|| Link {
            from_pid: from,
            to_pid: to,
            to: to_name,
            by: contact.by.clone(),
            connections_count: None,
        });
        link.connections_count = link.connections_count.max(count);
        if let (true, Some(elsewhere)) = (is_new, contact.remote) {
            self.lack_remote(&elsewhere.ip().to_string(), &contact.by);
        }
        if let Some(to) = to {
            let depth = self.found.get(&from).map_or(0, |known| known.depth) + 1;
            self.add(to, depth, view);
            if seen.is_none() {
                self.warn_of_guess(to, &contact.by);
            }
        }
    }

    /// Says of a service how it was found.
    fn warn_of_guess(&mut self, pid: u32, by: &str) {
        let Some(Known { snapshot, .. }) = self.found.get_mut(&pid) else { return };
        let warning = match snapshot.service.as_str() {
            mariadb::NAME => format!("that it listens at {by} is told by the user of the socket alone"),
            service => unprivileged::guess(service, pid, &format!("at {by}")),
        };
        if !snapshot.warnings.contains(&warning) {
            snapshot.warnings.push(warning);
        }
    }

    /// Who probably serves an address at which somebody listens, and it may not be seen who.
    fn unseen_server(&self, contact: &Contact) -> Option<u32> {
        let is_hidden = !contact.server.is_empty() && self.processes.iter().any(|(_, seen)| seen.refused);
        let servers = || self.hidden_servers.get_or_init(unprivileged::hidden_servers);
        let probably = is_hidden.then(|| unprivileged::server_at(&contact.by, servers())).flatten()?;
        self.processes.get(probably).is_some_and(|seen| seen.refused).then_some(probably)
    }

    /// Where it may not be seen whom the site's PHP asks: a database that is the only one of this machine is probably its own.
    fn guess_database(&mut self, view: &View<'_>) {
        let Some(from) = self.php().filter(|pid| self.processes.get(*pid).is_some_and(|seen| seen.refused))
        else {
            return;
        };
        let servers = self.hidden_servers.get_or_init(unprivileged::hidden_servers);
        let Some((database, by)) = unprivileged::only_database(servers) else { return };
        let by = by.to_owned();
        let server = view.listening_as(self.own_space.unwrap_or(0), &by, None);
        self.link(from, &Contact { by, server, remote: None }, None, view);
        let why = format!(
            "who is connected to the database, process {database}, cannot be seen: that the site asks it is a guess, as it \
             is the only one of this machine"
        );
        self.lack("database", &why, NEEDS_RIGHTS);
    }

    /// What runs PHP: a service of its own, else the front itself.
    fn php(&self) -> Option<u32> {
        let runs_php = |known: &Known| {
            let is_module = |module: &String| module.starts_with("php") && module.ends_with("_module");
            known.snapshot.role.as_deref() == Some("php") || known.snapshot.modules.iter().any(is_module)
        };
        self.order.iter().copied().find(|pid| self.found.get(pid).is_some_and(runs_php))
    }

    fn follow_configuration(&mut self, pid: u32, view: &View<'_>) {
        let Some(known) = self.found.get(&pid) else { return };
        let Some(service) =
            self.known_programs.iter().find(|service| service.name() == known.snapshot.service)
        else {
            return;
        };
        let space = self.processes.get(pid).and_then(|seen| seen.space).or(self.own_space).unwrap_or(0);
        for by in service.configured_backends(&known.snapshot).into_iter().take(LINKS_COUNT_MAX) {
            let file = by.strip_prefix("unix:").filter(|path| path.starts_with('/'));
            let file = file.map(|path| std::fs::metadata(in_root(&root_of(pid), Path::new(path))));
            let is_absent = matches!(&file, Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound);
            let file = file.and_then(std::io::Result::ok).map(|found| found.ino());
            // Who listens at that path in another mount namespace is not meant.
            let server = if is_absent { vec![] } else { view.listening_as(space, &by, file) };
            let remote = addresses(&by).into_iter().find(|one| !machine::owns(one.ip()));
            let elsewhere = remote.filter(|_| server.is_empty() && Some(space) == self.own_space);
            let is_nowhere = server.is_empty() && elsewhere.is_none();
            let is_told = by.starts_with("unix:") || !addresses(&by).is_empty();
            self.link(pid, &Contact { by: by.clone(), server, remote: elsewhere }, None, view);
            if is_nowhere && is_told && Some(space) == self.own_space {
                let why = format!("the configuration of process {pid} names it, and nothing listens there");
                self.lack(
                    &format!("backend {by}"),
                    &why,
                    "start what is to listen there; `ss -ltnxp` shows what listens",
                );
            }
        }
    }

    /// Looks at the sockets again and again, for connections that are short.
    fn sample_repeatedly(&mut self, effort: SurveyBudget) {
        let sockets_count: usize = self.spaces.iter().map(|space| space.tcp.len()).sum();
        if effort != SurveyBudget::FIRST && sockets_count > SOCKETS_COUNT_AGAIN_MAX {
            return;
        }
        let (begin, begin_cpu) = (Instant::now(), thread_cpu_time());
        let (mut process_looks, mut lost) = (0, BTreeSet::new());
        // Where tasks wait for CPU a look takes long, and costs no more.
        while begin.elapsed() + SAMPLE_PAUSE < effort.time
            && thread_cpu_time().saturating_sub(begin_cpu) < effort.busy
        {
            std::thread::sleep(SAMPLE_PAUSE);
            let mut spaces = self.read_spaces(Some(&self.places()), None);
            // Namespaces that are not read again keep what listens there.
            let is_new = |space: &&Space| !spaces.iter().any(|read| read.id == space.id);
            let former: Vec<Space> = self.spaces.iter().filter(is_new).cloned().collect();
            spaces.extend(former);
            let view = View::of(&spaces);
            self.order.iter().for_each(|pid| self.processes.refresh(*pid));
            let others = self.users_of_others();
            for pid in self.order.clone() {
                let party = self.party_of(pid);
                let users = self.users_of(pid, &others);
                let by_user = Party { sockets: HashSet::new(), users, ..party.clone() };
                lost.extend(view.contacts(&by_user, &self.processes).into_keys());
                for (contact, count) in view.contacts(&party, &self.processes) {
                    let is_lost =
                        !contact.server.is_empty() && self.processes.main_of(&contact.server).is_none();
                    if is_lost && process_looks < PROCESS_SAMPLES_COUNT_MAX {
                        process_looks += 1;
                        self.processes = Processes::read();
                    }
                    self.link(pid, &contact, Some(count), &view);
                }
            }
        }
        self.link_by_user(lost);
    }

    /// Connections that nobody was seen to hold, and whose user is one of a service: to PHP they are the front's, others are
    /// of the service that runs the site's programs.
    fn link_by_user(&mut self, lost: BTreeSet<Contact>) {
        let spaces = Rc::clone(&self.spaces);
        let view = View::of(&spaces);
        for is_php in [true, false] {
            for contact in &lost {
                let Some(to) = self.processes.main_of(&contact.server) else { continue };
                if (self.name(to) == php_fpm::NAME) != is_php {
                    continue;
                }
                let front = self.order.first().copied();
                let from = if is_php { front } else { self.site_program(to) };
                if let Some(from) = from.filter(|from| *from != to) {
                    self.link(from, contact, Some(1), &view);
                }
            }
        }
    }

    /// The network namespaces of what was found.
    fn places(&self) -> BTreeSet<u64> {
        self.order.iter().filter_map(|pid| self.processes.get(*pid)?.space).collect()
    }

    /// The service that runs the site's programs: PHP where it has a process of its own, else the front.
    fn site_program(&self, other_than: u32) -> Option<u32> {
        let is_php = |pid: &&u32| {
            self.found.get(*pid).is_some_and(|known| known.snapshot.role.as_deref() == Some("php"))
        };
        let candidates = || self.order.iter().filter(|pid| **pid != other_than);
        candidates().find(is_php).or_else(|| candidates().next()).copied()
    }

    /// Executable (or name) of a process, and the service that it is.
    fn program(&self, pid: u32) -> (String, Option<&'static dyn Observe>) {
        let Ok(process) = procfs::process(pid) else { return (format!("process {pid}"), None) };
        let program = process.exe.unwrap_or(process.name);
        let service = self.known_programs.iter().find(|service| service.recognises(&program, &process.argv));
        (program, service.copied())
    }

    fn name(&self, pid: u32) -> String {
        let (program, service) = self.program(pid);
        let file =
            || program.trim_end_matches(" (deleted)").rsplit('/').next().unwrap_or_default().to_owned();
        service.map_or_else(file, |service| service.name().to_owned())
    }

    /// Reads a service that others talk to. `None` when its process has ended meanwhile.
    fn snapshot(&mut self, pid: u32, view: &View<'_>) -> Option<ServiceSnapshot> {
        if !self.processes.is_still(pid) {
            return None;
        }
        let former = self.before.services().find(|service| service.pid == pid);
        if let Some(former) = former.filter(|former| self.is_same(former)) {
            return Some(former.clone());
        }
        let listens = self.listens(pid, view);
        let port = main_port(&listens).unwrap_or(0);
        let (program, service) = self.program(pid);
        let mut snapshot =
            match service.and_then(|service| Some((service, read(service, pid, port, self.access)?))) {
                Some((_, Ok(snapshot))) => snapshot,
                Some((service, Err(error))) => {
                    self.lack(service.name(), &error.message, error.hint.as_deref().unwrap_or(NEEDS_RIGHTS));
                    ServiceSnapshot {
                        service: service.name().into(),
                        warnings: vec![error.message],
                        ..unknown(pid, port, program)
                    }
                }
                None => unknown(pid, port, program),
            };
        foreign_namespace::note(&mut snapshot);
        if snapshot.listens.is_empty() {
            snapshot.listens = listens;
        }
        if snapshot.port == 0 {
            snapshot.port = port;
        }
        self.processes.is_still(pid).then_some(snapshot)
    }

    /// Where a service listens.
    fn listens(&self, pid: u32, view: &View<'_>) -> Vec<String> {
        let tree = self.processes.tree(pid);
        let held = tree.iter().filter_map(|pid| self.processes.get(*pid)).flat_map(|seen| &seen.sockets);
        view.addresses_of(&held.copied().collect())
    }

    /// Whether a snapshot of before is of the process that has its number now.
    fn is_same(&self, former: &ServiceSnapshot) -> bool {
        let start = former.control.as_ref().map(|control| control.start_ticks);
        let now = self.processes.get(former.pid).map(|seen| seen.start_ticks);
        let (program, _) = self.program(former.pid);
        start.map_or(former.executable.as_deref() == Some(&*program), |start| Some(start) == now)
    }

    /// The sockets of these network namespaces; when none are named of all, as far as there are not too many.
    fn read_spaces(&self, only: Option<&BTreeSet<u64>>, front: Option<u64>) -> Vec<Space> {
        let mut spaces = self.processes.spaces();
        if let Some(own) = self.own_space {
            spaces.insert(own, std::process::id());
        }
        spaces.retain(|id, _| only.is_none_or(|only| only.contains(id)));
        let wanted = nearest_first(spaces, [self.own_space, front]).into_iter();
        wanted.take(SPACES_COUNT_MAX).map(|(id, pid)| read_space(id, pid)).collect()
    }

    /// Says that there are more network namespaces than are read.
    fn lack_spaces(&mut self) {
        let left_out = self.processes.spaces().len().saturating_sub(SPACES_COUNT_MAX);
        if left_out > 0 {
            let why = format!(
                "{left_out} network namespaces of this machine are not looked into: what listens there is taken for another \
                 machine"
            );
            let how = "observe the service from inside: --server exec:'nsenter -t PID -n webdyno agent'";
            self.lack("topology", &why, how);
        }
    }

    fn lack(&mut self, signal: &str, why: &str, how: &str) {
        let missing = MissingSignal::new(signal, why, how);
        if !self.missing.contains(&missing) {
            self.missing.push(missing);
        }
    }

    fn lack_remote(&mut self, host: &str, by: &str) {
        let signal = format!("backend {by}");
        let remote =
            self.missing.iter().filter(|missing| missing.why.starts_with("it is on another machine")).count();
        if remote < REMOTE_COUNT_MAX {
            let how = format!("observe that machine as well, as with --server db=ssh://{host}");
            self.lack(&signal, "it is on another machine", &how);
        }
    }

    fn into_topology(mut self, front: Option<u32>) -> Topology {
        let front = front.and_then(|pid| self.found.remove(&pid)).map(|known| known.snapshot);
        let order = std::mem::take(&mut self.order);
        let backends =
            order.iter().filter_map(|pid| self.found.remove(pid)).map(|known| known.snapshot).collect();
        Topology { front, backends, links: self.links.into_values().collect(), missing: self.missing }
    }
}
