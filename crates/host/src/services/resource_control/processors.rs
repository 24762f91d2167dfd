//! The processors that a service may use. `cpus=N` is the first N of those that it uses now, and of those that its control group
//! may use when these are not enough.
//!
//! A service in a control group of its own has them from `cpuset.cpus`. The threads of one that shares its group, or whose group
//! has no such file, are given an affinity each, which their children inherit. Threads with another one than the main process
//! (nginx's `worker_cpu_affinity`) are somebody's work: then nothing is changed.
//!
//! Facts: Documentation/admin-guide/cgroup-v2.rst (`cpuset.cpus` may be empty: then the group has what those above it have) and
//! cgroup-v1/cpusets.rst (it is never empty where there are tasks; `cpuset.effective_cpus`); sched_setaffinity(2), capabilities(7).

use super::{Controlled, Obstacle, Planned, group, main_process, not_writable, write_to};
use crate::os::control_group::{Controller, Group};
use crate::os::process::{self, ProcessName};
use crate::os::processors::Processors;
use crate::os::procfs;
use crate::services::common::kept_values::check_name;
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use webdyno_model::service::{ServiceSnapshot, SettingValue};

/// The name of the holder in journals.
pub const NAME: &str = "allowed_cpus";

/// The setting, as systemd names it.
pub const SETTING: &str = "AllowedCPUs";

/// Where a group has them.
const FILE: &str = "cpuset.cpus";

/// Where it shows which of them are online and granted, in both versions.
const EFFECTIVE: [&str; 2] = ["cpuset.cpus.effective", "cpuset.effective_cpus"];

/// What a group of version 2 has that was given none of its own.
const INHERITED: &str = "inherited";

/// So often threads are looked for that were started meanwhile.
const LOOKS_MAX: usize = 50;

/// What decides which processors a service uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllowedProcessors {
    /// Its own control group.
    Group(PathBuf),
    /// The affinity of its threads.
    Threads(ThreadAffinity),
}

/// The threads of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadAffinity {
    /// Its main process.
    pub process: ProcessName,
    /// What all of them had, as the kernel writes it.
    pub original: String,
    /// All that its control group may use: to be given these is to be given no mask.
    pub all: String,
}

impl AllowedProcessors {
    /// Where the kernel shows them.
    pub fn shown_in(&self) -> PathBuf {
        match self {
            Self::Group(directory) => directory.join(FILE),
            Self::Threads(threads) => PathBuf::from(format!("/proc/{}/status", threads.process.pid)),
        }
    }

    /// The processors; `None` when the group or the process is gone.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        check_name(name, SETTING, "no set of processors")?;
        match self {
            Self::Group(directory) => match procfs::read_text(directory.join(FILE)) {
                Ok(text) if text.trim().is_empty() => Ok(Some(INHERITED.into())),
                Ok(text) => Ok(Some(text.trim().to_owned())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
            Self::Threads(threads) => threads.read(),
        }
    }

    /// Replaces them.
    pub fn write(&self, name: &str, value: &str) -> io::Result<()> {
        check_name(name, SETTING, "no set of processors")?;
        let wrong = || io::Error::other(format!("`{value}` is no set of processors"));
        let is_inherited = value == INHERITED && matches!(self, Self::Group(_));
        let set = Processors::parse(value).filter(|set| set.count() > 0);
        match (self, set) {
            // An empty write is none: it takes a line.
            (Self::Group(directory), None) if is_inherited => write_to(&directory.join(FILE), "\n"),
            (Self::Group(directory), Some(set)) => write_to(&directory.join(FILE), &set.to_string()),
            (Self::Threads(threads), Some(set)) => threads.write(&set),
            (_, None) => Err(wrong()),
        }
    }
}

impl ThreadAffinity {
    /// What a thread has that has not the original, as all had that: whoever was killed half-way finds that there is more to do.
    fn read(&self) -> io::Result<Option<String>> {
        if !self.process.is_alive() {
            return Ok(None);
        }
        let threads = threads_of(self.process.pid);
        let shown = threads.iter().filter_map(|thread| Processors::of_thread(*thread).ok());
        let other = shown.map(|set| set.to_string()).find(|set| *set != self.original);
        Ok(Some(other.unwrap_or_else(|| self.original.clone())))
    }

    /// Gives these to all threads that have what was found, or the original. Those of who starts others come first; who was started
    /// by one that had not been given them yet is found by the next look.
    fn write(&self, set: &Processors) -> io::Result<()> {
        let gone = || io::Error::other("the process is gone");
        let now = self.read()?.ok_or_else(gone)?;
        let unreadable = || io::Error::other(format!("`{}` is no set of processors", self.all));
        let all = Processors::parse(&self.all).ok_or_else(unreadable)?;
        let wanted = set.to_string();
        for _ in 0..LOOKS_MAX {
            let mut is_done = true;
            for thread in threads_of(self.process.pid) {
                let Ok(own) = Processors::of_thread(thread) else { continue };
                let own = own.to_string();
                if own == wanted || (own != now && own != self.original) {
                    continue;
                }
                is_done = false;
                process::unless_gone(set.give_to(thread, &all))?;
            }
            if is_done {
                return Ok(());
            }
        }
        Err(io::Error::other("threads are started faster than they are given their processors"))
    }
}

/// All threads of a process and of those below it, each parent's before its children's.
fn threads_of(pid: u32) -> Vec<u32> {
    procfs::tree_of(pid).into_iter().flat_map(procfs::threads_of).collect()
}

/// The processors that a group grants; of one without a cpuset all that are online.
fn granted(directory: &Path) -> Option<Processors> {
    let shown = |file| procfs::read_text(directory.join(file)).ok();
    let found = EFFECTIVE.into_iter().find_map(shown).and_then(|text| Processors::parse(&text));
    found.filter(|set| set.count() > 0).or_else(Processors::online)
}

/// What a service uses now, and what it could be given.
struct ProcessorState {
    group: Group,
    /// Whether the group is the service's own, and has processors.
    is_of_group: bool,
    now: Processors,
    all: Processors,
}

fn processor_state(service: &ServiceSnapshot) -> std::result::Result<ProcessorState, Obstacle> {
    let unread = |what: &str| (format!("the processors of {what} cannot be read"), None);
    let (group, is_own) = group(service, Controller::Cpuset)?;
    let is_of_group = is_own && group.directory.join(FILE).exists();
    // What a group of its own may be given is what the one above it has.
    let directory = group.directory.parent().filter(|_| is_of_group).unwrap_or(&group.directory);
    let all = granted(directory).ok_or_else(|| unread(&directory.display().to_string()))?;
    let now = match is_of_group {
        true => granted(&group.directory),
        false => Processors::of_thread(service.pid).ok(),
    };
    let now = now.ok_or_else(|| unread(&service.service))?;
    Ok(ProcessorState { group, is_of_group, now, all })
}

/// How many processors a service uses, and how many it could; `None` where that cannot be seen.
pub(super) fn in_force(service: &ServiceSnapshot) -> Option<(SettingValue, u64)> {
    let ProcessorState { now, all, .. } = processor_state(service).ok()?;
    Some((super::integer(now.count() as u64), all.count() as u64))
}

/// The change to so many processors.
pub(super) fn planned(
    service: &ServiceSnapshot,
    to: &SettingValue,
) -> std::result::Result<Planned, Obstacle> {
    let ProcessorState { group, is_of_group, now, all } = processor_state(service)?;
    let count = to.to_string().parse().ok().filter(|count| (1..=all.count()).contains(count));
    let count = count.ok_or_else(|| out_of_range(to, &all))?;
    let holder = match is_of_group {
        true => AllowedProcessors::Group(group.directory),
        false => AllowedProcessors::Threads(of_threads(service, &now, &all)?),
    };
    let obstacle = match &holder {
        AllowedProcessors::Group(directory) => not_writable(&directory.join(FILE)),
        AllowedProcessors::Threads(_) => not_permitted(service),
    };
    obstacle.map_or(Ok(()), Err)?;
    let unread = |error| (format!("the processors of {} cannot be read: {error}", service.service), None);
    let from = holder.read(SETTING).map_err(unread)?.unwrap_or_default();
    let wanted = now.first(count, &all);
    // What a group inherits and is to have is in force.
    let to = if wanted == now { from.clone() } else { wanted.to_string() };
    let file = holder.shown_in().display().to_string();
    Ok(Planned { holder: Controlled::Processors(holder), file, from, to, remark: None })
}

fn out_of_range(to: &SettingValue, all: &Processors) -> Obstacle {
    let why = format!("{SETTING} (cpus) cannot be `{}`", to.to_string().replace(['\r', '\n'], " "));
    let hint =
        format!("a whole number from 1 to {}, as the service may use the processors {all}", all.count());
    (why, Some(hint))
}

fn of_threads(
    service: &ServiceSnapshot,
    now: &Processors,
    all: &Processors,
) -> std::result::Result<ThreadAffinity, Obstacle> {
    let process = main_process(service)?;
    let has_own = |thread: &u32| Processors::of_thread(*thread).is_ok_and(|own| own != *now);
    let own_count = threads_of(service.pid).iter().filter(|thread| has_own(thread)).count();
    if own_count > 0 {
        let why = format!(
            "{own_count} threads of {} have processors of their own, and not the {now} of the main process",
            service.service
        );
        return Err((
            why,
            Some("a setting gives them, as nginx's worker_cpu_affinity: take it out first".into()),
        ));
    }
    Ok(ThreadAffinity { process, original: now.to_string(), all: all.to_string() })
}

/// Why the processors of threads may not be replaced; `None` where they may: of one's own user, or with CAP_SYS_NICE, which root
/// of a container often has not.
fn not_permitted(service: &ServiceSnapshot) -> Option<Obstacle> {
    let own = rustix::process::geteuid().as_raw();
    let is_own = |pid: &u32| procfs::acts_as(*pid).is_some_and(|(user, _)| user == own);
    if process::has_capability(CapabilitySet::SYS_NICE) || procfs::tree_of(service.pid).iter().all(is_own) {
        return None;
    }
    let why = format!("the processors of {} cannot be changed: CAP_SYS_NICE is missing", service.service);
    Some((
        why,
        Some("run the agent as root (--sudo); a container is given SYS_NICE where it is started".into()),
    ))
}
