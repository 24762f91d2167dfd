//! A process and its descendants, followed from reading to reading at a small part of what reading all of them costs.
//!
//! Facts: proc_pid_stat(5), proc_pid_task(5), clock_getcpuclockid(3), proc_pid_fd(5), proc_pid_limits(5).
//!
//! Each reading takes the time of every process from its clock, which is one call. Files cost ten times that and are read
//! of some processes at a time, in turn: all of a small tree, some of a large one. The main process, those that have
//! children, and new ones are read each time.
//!
//! A process's time moves to its parent when it ends and is waited for, so the tree's total is the time of those alive
//! and of those they waited for. Parents are read before their children: a worker that ends in between is missed until
//! the next reading, and never counted twice.

use crate::os::procfs;
use crate::os::procfs::{Limits, Stat};
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::ops::Bound;

/// Processes whose files are read in one reading, beside those that are read each time.
const IN_TURN_COUNT: usize = 24;

/// Processes whose descriptors are counted in one reading, about, beside those whose files are read.
const FILES_COUNT: u64 = 128;

/// Processes whose limits and user are read in one reading.
const DETAILS_COUNT: usize = 4;

/// After so many of its turns the limits of a process are read again.
const DETAILS_TURNS: u64 = 16;

/// Children are listed by thread: so many threads are asked in one reading, on average.
const THREADS_READ_COUNT: u64 = 64;

/// Once in so many readings all processes are looked at, where the kernel lists no children.
const ALL_READINGS: u64 = 10;

const NS_PER_S: u64 = 1_000_000_000;

/// Clock ticks in nanoseconds.
pub fn ns_of(ticks: u64) -> u64 {
    ticks.saturating_mul(NS_PER_S / procfs::clock_ticks_per_s().max(1))
}

/// Names a process for ever.
pub fn identity(stat: &Stat) -> u64 {
    stat.start_ticks ^ (u64::from(stat.pid) << 40)
}

/// The processor time of a process and of those that it waited for. Its clock tells nanoseconds; `stat` tells whole ticks
/// of 10 ms, in which the time of hundreds of workers rounds to nothing, but it is there where the clock is not.
pub fn cpu_ns(stat: &Stat, clock_ns: Option<u64>) -> u64 {
    let own = ns_of(stat.cpu_ticks).max(clock_ns.unwrap_or(0));
    own.saturating_add(ns_of(stat.reaped_cpu_ticks))
}

/// What is known of one process.
#[derive(Debug, Clone)]
struct Known {
    /// As it was read last.
    stat: Stat,
    children: Vec<u32>,
    /// Whether it had children when they were listed last, and the time before.
    is_parent: [bool; 2],
    turns_count: u64,
    /// The reading in which its children were listed.
    listed_at: u64,
    open_files: Option<u64>,
    details: Option<Details>,
}

#[derive(Debug, Clone, Copy)]
struct Details {
    limits: Limits,
    user: Option<u32>,
    at_turn: u64,
}

/// What was read of a tree.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Tree {
    /// Names the main process for ever.
    pub identity: u64,
    /// Living processes.
    pub count: u64,
    /// Their threads.
    pub threads_count: u64,
    /// Processor time of all of them, and of those that ended and were waited for.
    pub cpu_ns: u64,
    /// Processes that run or want to, as they were read last.
    pub running_count: u64,
    /// Processes that wait for a disk, as they were read last.
    pub disk_wait_count: u64,
    /// The most descriptors of one process.
    pub open_files_max: Option<u64>,
    /// Descriptors and limit of the process that is nearest to its limit.
    pub fullest: Option<(u64, u64)>,
    /// The user that most processes run as, their threads, and the limit of that user's processes and threads.
    pub user: Option<User>,
    /// Why descriptors could not be counted.
    pub refused: Option<String>,
}

/// What counts against the limit of a user's processes. Root has none.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The real user id.
    pub id: u32,
    /// Threads of the tree that run as this user.
    pub tasks_count: u64,
    /// The smallest limit of a process of this user; `None` for none.
    pub limit_count: Option<u64>,
}

/// Follows one tree.
#[derive(Debug, Default)]
pub struct Tracker {
    known: BTreeMap<u32, Known>,
    /// The process whose turn was last.
    turn: u32,
    readings_count: u64,
    /// Threads of the whole tree.
    threads_count: u64,
    /// Children by parent of all processes, where the kernel does not list those of one (no CONFIG_PROC_CHILDREN).
    of_all: Option<BTreeMap<u32, Vec<u32>>>,
}

impl Tracker {
    /// Reads the tree; `None` when the main process has ended.
    pub fn read(&mut self, main_pid: u32) -> Option<Tree> {
        let main = procfs::stat(main_pid).ok().filter(|stat| !stat.has_ended())?;
        let same = |known: &Known| identity(&known.stat) == identity(&main);
        if !self.known.get(&main_pid).is_some_and(same) {
            self.known.clear();
        }
        self.readings_count += 1;
        self.read_all(main_pid);
        let (in_turn, processes_count) = (self.in_turn(), self.known.len() as u64);
        let mut tree = Tree { identity: identity(&main), ..Tree::default() };
        let mut seen = BTreeMap::new();
        let mut queue = VecDeque::from([main_pid]);
        while let Some(pid) = queue.pop_front() {
            if seen.len() >= procfs::TREE_PROCESSES_MAX || seen.contains_key(&pid) {
                continue;
            }
            let due = pid == main_pid || in_turn.binary_search(&pid).is_ok();
            if let Some(known) = self.visit(pid, due, processes_count, &mut tree) {
                queue.extend(known.children.iter().copied());
                seen.insert(pid, known);
            }
        }
        self.known = seen;
        self.threads_count = tree.threads_count;
        self.details();
        for known in self.known.values().filter(|known| !known.stat.has_ended()) {
            tree.files(known.open_files, known.details.and_then(|details| details.limits.open_files));
        }
        self.sum_up(&mut tree);
        Some(tree)
    }

    /// Reads the parents of all processes now and then, where that is the only way.
    fn read_all(&mut self, main_pid: u32) {
        if self.of_all.is_none() && procfs::listed_children(main_pid).is_ok() {
            return;
        }
        if self.of_all.is_none() || self.readings_count.is_multiple_of(ALL_READINGS) {
            self.of_all = Some(procfs::all_children());
        }
    }

    fn children_of(&self, stat: &Stat) -> Vec<u32> {
        match (&self.of_all, stat.threads_count) {
            (Some(children), _) => children.get(&stat.pid).cloned().unwrap_or_default(),
            (None, 1) => procfs::listed_by_first_thread(stat.pid).unwrap_or_default(),
            (None, _) => procfs::listed_children(stat.pid).unwrap_or_default(),
        }
    }

    /// The processes whose turn it is, rising.
    fn in_turn(&mut self) -> Vec<u32> {
        let after = self.known.range((Bound::Excluded(self.turn), Bound::Unbounded));
        let around = self.known.range(..=self.turn);
        let mut turn: Vec<u32> = after.chain(around).map(|(pid, _)| *pid).take(IN_TURN_COUNT).collect();
        self.turn = turn.last().copied().unwrap_or(0);
        turn.sort_unstable();
        turn
    }

    /// Whether the descriptors of a process are counted in this reading.
    fn files_are_due(&self, pid: u32, processes_count: u64) -> bool {
        let every = processes_count / FILES_COUNT + 1;
        u64::from(pid) % every == self.readings_count % every
    }

    /// Adds one process to the tree, and gives what is known of it now. `None` when it is gone.
    fn visit(&mut self, pid: u32, due: bool, processes_count: u64, tree: &mut Tree) -> Option<Known> {
        let mut known = self.known.remove(&pid);
        let is_parent = known.as_ref().is_some_and(|known| known.is_parent.contains(&true));
        let mut clock_ns = procfs::run_time_ns(pid);
        // Where nobody's clock can be read, all depends on the files.
        if due || is_parent || clock_ns.is_none() || known.is_none() {
            let mut looked = self.read_process(pid, known, is_parent)?;
            looked.open_files = open_files(pid, tree);
            (known, clock_ns) = (Some(looked), procfs::run_time_ns(pid));
        } else if let Some(known) = known.as_mut().filter(|_| self.files_are_due(pid, processes_count)) {
            known.open_files = open_files(pid, tree);
        }
        let known = known?;
        tree.cpu_ns = tree.cpu_ns.saturating_add(cpu_ns(&known.stat, clock_ns));
        // What ended and is not waited for yet has its time still, but is no process of the service any more.
        if !known.stat.has_ended() {
            tree.count += 1;
            tree.threads_count += known.stat.threads_count;
            tree.running_count += u64::from(known.stat.state == 'R');
            tree.disk_wait_count += u64::from(known.stat.state == 'D');
        }
        Some(known)
    }

    /// Reads the files of a process.
    fn read_process(&self, pid: u32, former: Option<Known>, is_parent: bool) -> Option<Known> {
        let stat = procfs::stat(pid).ok()?;
        let former = former.filter(|former| former.stat.start_ticks == stat.start_ticks);
        let every = self.threads_count / THREADS_READ_COUNT;
        let few_threads = stat.threads_count <= THREADS_READ_COUNT;
        let is_due = |former: &Known| {
            is_parent && few_threads
                || self.readings_count - former.listed_at >= every
                || stat.threads_count == 1
        };
        let (children, listed_at) = match &former {
            Some(former) if !is_due(former) => (former.children.clone(), former.listed_at),
            _ => (self.children_of(&stat), self.readings_count),
        };
        Some(Known {
            is_parent: [!children.is_empty(), former.as_ref().is_some_and(|former| former.is_parent[0])],
            children,
            listed_at,
            turns_count: former.as_ref().map_or(0, |former| former.turns_count + 1),
            open_files: None,
            details: former.and_then(|former| former.details),
            stat,
        })
    }

    /// Reads limits and user of a few that have waited for it longest. A process that was started just now has the ones
    /// of its parent still.
    fn details(&mut self) {
        let waits = |known: &Known| match known.details {
            None => known.turns_count > 0,
            Some(details) => known.turns_count >= details.at_turn + DETAILS_TURNS,
        };
        let waiting = self.known.iter_mut().filter(|(_, known)| waits(known)).take(DETAILS_COUNT);
        for (pid, known) in waiting {
            if let Ok(limits) = procfs::limits(*pid) {
                let at_turn = known.turns_count;
                known.details = Some(Details { limits, user: procfs::real_user(*pid), at_turn });
            }
        }
    }

    /// Adds what counts against the limit of a user. Workers whose user was not read yet have that of the others.
    fn sum_up(&self, tree: &mut Tree) {
        let mut users: BTreeMap<u32, (usize, User)> = BTreeMap::new();
        for known in self.known.values().filter(|known| !known.stat.has_ended()) {
            let Some((id, limits)) = known.details.and_then(|it| Some((it.user?, it.limits))) else {
                continue;
            };
            let (processes, user) = users.entry(id).or_default();
            *processes += 1;
            user.id = id;
            user.tasks_count += known.stat.threads_count;
            user.limit_count = user.limit_count.into_iter().chain(limits.tasks).min();
        }
        // Root is not limited (getrlimit(2)).
        let limited = users.into_values().filter(|(_, user)| user.id != 0);
        let unread = self.known.values().filter(|known| known.details.is_none() && !known.is_parent[0]);
        let unread = unread.filter(|known| !known.stat.has_ended());
        let unread_tasks: u64 = unread.map(|known| known.stat.threads_count).sum();
        let most = limited.max_by_key(|(processes, _)| *processes);
        tree.user = most.map(|(_, user)| User { tasks_count: user.tasks_count + unread_tasks, ..user });
    }
}

impl Tree {
    /// Adds the descriptors of one process, and its limit where that is known.
    fn files(&mut self, open: Option<u64>, limit: Option<u64>) {
        self.open_files_max = self.open_files_max.max(open);
        let Some((open, limit)) = open.zip(limit) else { return };
        let fuller =
            |(of, its): (u64, u64)| u128::from(open) * u128::from(its) > u128::from(of) * u128::from(limit);
        if self.fullest.is_none_or(fuller) {
            self.fullest = Some((open, limit));
        }
    }
}

fn open_files(pid: u32, tree: &mut Tree) -> Option<u64> {
    match procfs::open_files_count(pid) {
        Ok(count) => Some(count),
        Err(error) => {
            // Any other error is that of a process that ended meanwhile.
            if error.kind() == ErrorKind::PermissionDenied && tree.refused.is_none() {
                tree.refused = Some(super::io_error_text("read", &format!("/proc/{pid}/fd"), &error));
            }
            None
        }
    }
}

#[cfg(test)]
mod tests;
