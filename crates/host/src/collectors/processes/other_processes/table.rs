//! All processes of the machine, from look to look.

use crate::os::procfs::{self, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::Bound;

/// Processes whose files are read at one look, beside new ones.
const IN_TURN_COUNT: usize = 60;

/// New processes whose files are read at one look. The others are looked at later, and their time counts then.
const NEW_COUNT_MAX: usize = 1_000;

/// Processes that are followed at most.
const PROCESSES_MAX: usize = 20_000;

/// Names that totals are kept of.
const NAMES_MAX: usize = 500;

/// Where the totals of further names go.
const OTHERS: &str = "_others";

/// The parent of the kernel's threads.
const KTHREADD: u32 = 2;

/// The most steps from a process to the root of its tree.
const DEPTH_MAX: usize = 64;

/// Whose a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The service's, a backend's, the agent's or the load generator's.
    Known,
    /// A thread of the kernel.
    Kernel,
    /// Anyone else's.
    Foreign,
}

/// What processes of a name use.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Since the first look, also by those that ended.
    pub cpu_ns: u64,
    /// Now.
    pub memory_bytes: u64,
    /// Read and written since the first look; `None` where that may not be looked at.
    pub disk_bytes: Option<u64>,
    /// Now.
    pub processes_count: u64,
}

/// One process.
#[derive(Debug, Clone)]
struct Known {
    name: String,
    parent: u32,
    start_ticks: u64,
    threads_count: u64,
    cpu_ns: u64,
    memory_bytes: u64,
    disk_bytes: Option<u64>,
    user: Option<u32>,
    /// How often its files were read: right after it was started it has the name of its parent.
    samples_count: u64,
}

/// What one look at all processes gives.
#[derive(Debug, Default, Clone)]
pub struct TableSample {
    /// All other processes.
    pub others: Used,
    /// By name.
    pub names: BTreeMap<String, Used>,
    /// Since the first look; `None` where the kernel's threads are not visible (in containers).
    pub kernel_ns: Option<u64>,
    /// Threads of other processes that run as the user of the service's workers.
    pub user_tasks_count: Option<u64>,
    /// Whether what others read and write may not be looked at.
    pub io_refused: bool,
    /// Whether processes of others are hidden.
    pub hidden: bool,
    counts: BTreeMap<Group, u64>,
}

impl TableSample {
    /// How many processes there are of a group.
    pub fn groups_count(&self, group: Group) -> u64 {
        self.counts.get(&group).copied().unwrap_or(0)
    }
}

/// Totals by name, since the first look.
#[derive(Debug, Default, Clone, Copy)]
struct Total {
    cpu_ns: u64,
    disk_bytes: Option<u64>,
}

/// All processes.
#[derive(Debug, Default)]
pub struct Table {
    known: BTreeMap<u32, Known>,
    totals: BTreeMap<String, Total>,
    kernel_ns: u64,
    turn: u32,
    begun: bool,
    io_refused: bool,
}

impl Table {
    /// Looks at all processes. `roots` are those whose trees are not foreign.
    pub fn sample(&mut self, roots: &BTreeSet<u32>, service_pid: Option<u32>) -> TableSample {
        let pids = procfs::pids();
        let alive: BTreeSet<u32> = pids.iter().copied().take(PROCESSES_MAX).collect();
        self.known.retain(|pid, _| alive.contains(pid));
        let in_turn = self.in_turn();
        let mut new_left = NEW_COUNT_MAX;
        for pid in alive {
            let rose_ns = self.visit(pid, in_turn.contains(&pid), &mut new_left);
            if let Some(rise) = rose_ns {
                self.add(pid, rise, roots);
            }
        }
        self.begun = true;
        self.sum_up(roots, service_pid)
    }

    fn in_turn(&mut self) -> BTreeSet<u32> {
        let after = self.known.range((Bound::Excluded(self.turn), Bound::Unbounded));
        let around = self.known.range(..=self.turn);
        let turn: Vec<u32> = after.chain(around).map(|(pid, _)| *pid).take(IN_TURN_COUNT).collect();
        self.turn = turn.last().copied().unwrap_or(0);
        turn.into_iter().collect()
    }

    /// Looks at one process: how much more it has used. `None` when it is gone, or not looked at yet.
    fn visit(&mut self, pid: u32, due: bool, new_left: &mut usize) -> Option<Total> {
        let clock_ns = procfs::run_time_ns(pid);
        let former = self.known.get(&pid);
        // A clock that went back is that of another process with the same number.
        let same = former.is_some_and(|known| clock_ns.is_some_and(|ns| ns >= known.cpu_ns));
        let young = former.is_some_and(|known| known.samples_count < 2);
        if same && !due && !young {
            let known = self.known.get_mut(&pid)?;
            let rise = clock_ns?.saturating_sub(known.cpu_ns);
            known.cpu_ns = clock_ns?;
            return Some(Total { cpu_ns: rise, disk_bytes: None });
        }
        if !same {
            *new_left = new_left.checked_sub(1)?;
        }
        let stat = procfs::stat(pid).ok()?;
        let former = self.known.remove(&pid).filter(|known| known.start_ticks == stat.start_ticks);
        let now = self.read(pid, stat, clock_ns, former.as_ref());
        let rise = self.rise(&now, former.as_ref());
        self.known.insert(pid, now);
        Some(rise)
    }

    /// Reads the files of a process. The kernel's threads have neither memory nor files of their own.
    fn read(&mut self, pid: u32, stat: Stat, clock_ns: Option<u64>, former: Option<&Known>) -> Known {
        let kernel = stat.ppid == KTHREADD || pid == KTHREADD;
        let looks_count = former.map_or(0, |former| former.samples_count) + 1;
        let text = |file: &str| (!kernel).then(|| procfs::read_text(format!("/proc/{pid}/{file}")));
        let memory = text("statm").and_then(|text| parse_own_bytes(&text.ok()?));
        let disk = match text("io") {
            Some(Ok(text)) => parse_disk_bytes(&text),
            Some(Err(error)) => {
                self.io_refused |= error.kind() == ErrorKind::PermissionDenied;
                None
            }
            None => None,
        };
        let user = former.filter(|known| known.samples_count > 2).and_then(|known| known.user);
        let user = user.or_else(|| (!kernel).then(|| procfs::real_user(pid)).flatten());
        Known {
            parent: stat.ppid,
            start_ticks: stat.start_ticks,
            threads_count: stat.threads_count,
            cpu_ns: clock_ns.unwrap_or_else(|| {
                stat.cpu_ticks.saturating_mul(1_000_000_000 / procfs::clock_ticks_per_s().max(1))
            }),
            memory_bytes: memory.unwrap_or(0),
            disk_bytes: disk.or(former.and_then(|known| known.disk_bytes)),
            user,
            samples_count: looks_count,
            name: instance_of(&stat.name),
        }
    }

    /// How much more a process has used. What one had used before the first look counts for none.
    fn rise(&self, now: &Known, former: Option<&Known>) -> Total {
        let before = |value: Option<u64>, of: fn(&Known) -> Option<u64>| match (former, self.begun) {
            (Some(former), _) => of(former).or(value),
            (None, true) => Some(0),
            (None, false) => value,
        };
        let cpu = before(Some(now.cpu_ns), |known| Some(known.cpu_ns)).unwrap_or(0);
        let disk = now.disk_bytes.zip(before(now.disk_bytes, |known| known.disk_bytes));
        Total {
            cpu_ns: now.cpu_ns.saturating_sub(cpu),
            disk_bytes: disk.map(|(now, before)| now.saturating_sub(before)),
        }
    }

    /// Adds what a process used to the total of its name, or of the kernel.
    fn add(&mut self, pid: u32, rise: Total, roots: &BTreeSet<u32>) {
        match self.group_of(pid, roots) {
            Group::Known => {}
            Group::Kernel => self.kernel_ns += rise.cpu_ns,
            Group::Foreign => {
                let Some(known) = self.known.get(&pid) else { return };
                let room = self.totals.len() < NAMES_MAX || self.totals.contains_key(&known.name);
                let name = if room { known.name.clone() } else { OTHERS.to_owned() };
                let total = self.totals.entry(name).or_default();
                total.cpu_ns += rise.cpu_ns;
                if let Some(bytes) = rise.disk_bytes {
                    *total.disk_bytes.get_or_insert(0) += bytes;
                }
            }
        }
    }

    /// Whose a process is, by its forebears.
    fn group_of(&self, pid: u32, roots: &BTreeSet<u32>) -> Group {
        let mut at = pid;
        for _ in 0..DEPTH_MAX {
            if roots.contains(&at) {
                return Group::Known;
            }
            let Some(known) = self.known.get(&at) else { break };
            if at == KTHREADD || known.parent == KTHREADD {
                // In a container this number is anyone's.
                let kernel = self.known.get(&KTHREADD).is_some_and(|known| known.name == "kthreadd");
                return if kernel { Group::Kernel } else { Group::Foreign };
            }
            at = known.parent;
        }
        Group::Foreign
    }

    fn sum_up(&self, roots: &BTreeSet<u32>, service_pid: Option<u32>) -> TableSample {
        let mut look = TableSample { io_refused: self.io_refused, ..TableSample::default() };
        for (name, total) in &self.totals {
            let used = Used { cpu_ns: total.cpu_ns, disk_bytes: total.disk_bytes, ..Used::default() };
            look.names.insert(name.clone(), used);
            look.others.cpu_ns += total.cpu_ns;
            let disk = look.others.disk_bytes.into_iter().chain(total.disk_bytes).reduce(u64::saturating_add);
            look.others.disk_bytes = disk;
        }
        let user = self.user_of_workers(service_pid);
        look.user_tasks_count = user.map(|_| 0);
        for (pid, known) in &self.known {
            let group = self.group_of(*pid, roots);
            *look.counts.entry(group).or_default() += 1;
            if group != Group::Foreign {
                continue;
            }
            let name = if look.names.contains_key(&known.name) { known.name.as_str() } else { OTHERS };
            for used in [Some(&mut look.others), look.names.get_mut(name)].into_iter().flatten() {
                used.memory_bytes = used.memory_bytes.saturating_add(known.memory_bytes);
                used.processes_count += 1;
            }
            if known.user.is_some() && known.user == user {
                look.user_tasks_count = look.user_tasks_count.map(|count| count + known.threads_count);
            }
        }
        let kernel_is_seen = look.groups_count(Group::Kernel) > 0;
        look.kernel_ns = kernel_is_seen.then_some(self.kernel_ns);
        look.hidden = !self.known.contains_key(&1);
        look
    }

    /// The user of most children of the service's main process. Root's processes are not limited.
    fn user_of_workers(&self, service_pid: Option<u32>) -> Option<u32> {
        let main = service_pid?;
        let mut users: BTreeMap<u32, u32> = BTreeMap::new();
        for known in self.known.values().filter(|known| known.parent == main) {
            if let Some(user) = known.user {
                *users.entry(user).or_default() += 1;
            }
        }
        users.into_iter().max_by_key(|(_, count)| *count).map(|(user, _)| user).filter(|user| *user != 0)
    }
}

/// The name of a process as it may stand in the name of a metric.
fn instance_of(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:/+-".contains(c);
    let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// Resident memory without what may be shared, in `/proc/PID/statm`.
fn parse_own_bytes(statm: &str) -> Option<u64> {
    let mut pages = statm.split_ascii_whitespace().skip(1).map(|word| word.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    resident.saturating_sub(shared).checked_mul(rustix::param::page_size() as u64)
}

/// What a process read from and wrote to disks, in `/proc/PID/io`.
fn parse_disk_bytes(io: &str) -> Option<u64> {
    let value = |key| crate::os::key_values::value_of(io, key);
    Some(value("read_bytes")?.saturating_add(value("write_bytes")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_parse() {
        let page = rustix::param::page_size() as u64;
        for (text, expected) in
            [("5000 300 100 1 0 200 0\n", Some(200 * page)), ("5 1 2 0", Some(0)), ("5 1", None), ("", None)]
        {
            assert_eq!(parse_own_bytes(text), expected, "{text}");
        }
        let io = "rchar: 5\nwchar: 6\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n";
        assert_eq!(parse_disk_bytes(io), Some(12_288));
        assert_eq!(parse_disk_bytes("read_bytes: 1\n"), None);
        for (name, expected) in
            [("gcc", "gcc"), ("php-fpm: pool w", "php-fpm:_pool_w"), ("\u{fffd}*", "__"), ("", "_")]
        {
            assert_eq!(instance_of(name), expected);
        }
    }

    proptest! {
        // Any text is survived, and a name never has what would spoil the name of a metric.
        #[test]
        fn any_text_is_survived(text in ".{0,40}") {
            parse_own_bytes(&text);
            parse_disk_bytes(&text);
            prop_assert!(instance_of(&text).bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*'));
        }
    }
}
