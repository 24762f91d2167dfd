//! The memory that a service may use: the limit of its control group. What it cannot get for programs it takes from its page
//! cache; when nothing is left to take, the kernel ends one of its processes.
//!
//! The limit of a group that the service shares would be one of others as well. Then its processes are moved into a group of
//! ours, and back: one below its own in version 1, where what limits that holds on; one below the next group that shares out
//! memory in version 2, where no group has both processes and such groups. Memory that they hold already stays charged where
//! they were: what they get from now on counts, and pages of files that are in memory belong to who read them first.
//!
//! Facts: Documentation/admin-guide/cgroup-v2.rst (memory.max below what is used reclaims, then ends processes; "no internal
//! process"; migration moves no charges) and cgroup-v1/memory.rst (a limit below what cannot be reclaimed is refused, EBUSY);
//! proc_pid_smaps(5), for what cannot be dropped: anonymous and shared memory.

use super::{Controlled, NO_LIMIT, Obstacle, Planned, group, main_process, not_writable, write_to};
use crate::os::control_group::{self, Controller, Group, NO_LIMIT_BYTES};
use crate::os::key_values::meminfo_bytes;
use crate::os::process::{ProcessName, unless_gone, wait_until};
use crate::os::procfs;
use crate::services::common::kept_values::check_name;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use webdyno_model::number::prose::format_binary_bytes;
use webdyno_model::service::{ServiceSnapshot, SettingValue};

/// The name of the holder in journals.
pub const NAME: &str = "memory_max";

/// The setting, as systemd names it.
pub const SETTING: &str = "MemoryMax";

/// Where a group of version 1 has it, and one of version 2.
const FILES: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];

/// What else a group of version 2 may limit, which its processes would leave with it.
const OTHER_LIMITS: [&str; 6] =
    ["memory.max", "memory.high", "memory.swap.max", "cpu.max", "pids.max", "cpuset.cpus"];

/// So often processes are looked for that were started meanwhile.
const LOOKS_MAX: usize = 50;

/// How long a group may take to be empty whose processes have left it.
const EMPTY_MAX: Duration = Duration::from_secs(2);

/// The least that a service needs beyond what it holds and cannot drop, to go on at all.
const MARGIN_BYTES: u64 = 32 << 20;

/// The limit of the memory of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// The file of the group that has it.
    pub file: PathBuf,
    /// Where that group is one of ours: who is moved into it, and from where.
    pub moved: Option<Moved>,
}

/// Processes that are moved into a group of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The main process of the service.
    pub process: ProcessName,
    /// The directory of the group that they are in, and come back to.
    pub home: PathBuf,
}

impl MemoryLimit {
    /// The limit; `None` when the group is gone, or the service for which there would be one.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        check_name(name, SETTING, "no limit of memory")?;
        match (procfs::read_text(&self.file), &self.moved) {
            (Ok(text), moved) => {
                let limit = limit_text(text.trim());
                if moved.is_some() && limit == NO_LIMIT {
                    // Whoever was killed between making it and limiting it has put nothing into it.
                    let _ = std::fs::remove_dir(self.directory());
                }
                Ok(Some(limit))
            }
            (Err(error), moved) if error.kind() == io::ErrorKind::NotFound => {
                let is_there = |moved: &Moved| moved.process.is_alive();
                Ok(moved.as_ref().filter(|moved| is_there(moved)).map(|_| NO_LIMIT.to_owned()))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Replaces the limit. A group of ours is made for it, and removed with it.
    pub fn write(&self, name: &str, value: &str) -> io::Result<()> {
        check_name(name, SETTING, "no limit of memory")?;
        if value != NO_LIMIT && value.parse::<u64>().is_err() {
            return Err(io::Error::other(format!("`{value}` is no limit")));
        }
        match &self.moved {
            Some(moved) if value == NO_LIMIT => self.move_back(moved),
            Some(moved) => self.move_in(moved, value),
            None => write_to(&self.file, self.written(value)),
        }
    }

    fn directory(&self) -> &Path {
        self.file.parent().unwrap_or(&self.file)
    }

    fn written<'a>(&self, value: &'a str) -> &'a str {
        if value == NO_LIMIT && self.file.ends_with(FILES[0]) { "-1" } else { value }
    }

    /// The limit is there before anyone is moved: who reads it knows that there may be processes to be moved back.
    fn move_in(&self, moved: &Moved, value: &str) -> io::Result<()> {
        match std::fs::create_dir(self.directory()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => write_to(&self.file, value)?,
        }
        move_all(self.directory(), || {
            let at_home = control_group::members(&moved.home);
            procfs::tree_of(moved.process.pid).into_iter().filter(|pid| at_home.contains(pid)).collect()
        })
    }

    fn move_back(&self, moved: &Moved) -> io::Result<()> {
        let directory = self.directory();
        if !directory.exists() {
            return Ok(());
        }
        if !moved.home.exists() {
            // systemd removes groups that are empty: there is no way back, and the limit is all that can go.
            return write_to(&self.file, self.written(NO_LIMIT));
        }
        move_all(&moved.home, || control_group::all_members(directory))?;
        let mut removed = Ok(());
        // It is in use for a moment yet by those that have ended.
        wait_until(EMPTY_MAX, || {
            removed = std::fs::remove_dir(directory);
            removed.is_ok() || !directory.exists()
        });
        removed
    }
}

/// Moves processes to a group until there are none to be moved any more.
fn move_all(to: &Path, who: impl Fn() -> Vec<u32>) -> io::Result<()> {
    let list = to.join("cgroup.procs");
    for _ in 0..LOOKS_MAX {
        let found: Vec<u32> = who().into_iter().filter(|pid| ProcessName::of(*pid).is_some()).collect();
        if found.is_empty() {
            return Ok(());
        }
        for pid in found {
            unless_gone(write_to(&list, &pid.to_string()))?;
        }
    }
    Err(io::Error::other("processes are started faster than they are moved"))
}

/// A limit as both versions have it.
fn limit_text(limit: &str) -> String {
    let is_none = limit == NO_LIMIT || limit.parse::<u64>().is_ok_and(|bytes| bytes >= NO_LIMIT_BYTES);
    if is_none { NO_LIMIT.into() } else { limit.into() }
}

/// The limit in a file; `None` where there is none.
fn limit_in(file: &Path) -> Option<u64> {
    limit_text(procfs::read_text(file).ok()?.trim()).parse().ok()
}

/// Where the memory of a service is limited.
struct MemoryState {
    limit: MemoryLimit,
    /// The most that it can be given: what a group above it may have, or the machine has.
    most_bytes: u64,
}

fn memory_state(service: &ServiceSnapshot) -> std::result::Result<MemoryState, Obstacle> {
    let (group, is_own) = group(service, Controller::Memory)?;
    let is_v1 = group.directory.join(FILES[0]).exists();
    let file = if is_v1 { FILES[0] } else { FILES[1] };
    let (directory, moved) = if is_own && group.directory.join(file).exists() {
        (group.directory.clone(), None)
    } else {
        let process = main_process(service)?;
        let above = if is_v1 { group.directory.clone() } else { sharing_group(service, &group)? };
        let name = format!("webdyno-{}-{}", process.pid, process.start_ticks);
        (above.join(name), Some(Moved { process, home: group.directory.clone() }))
    };
    let above = directory.parent().unwrap_or(&directory).to_owned();
    let levels = Group { directory: above, mount: group.mount };
    let limits = levels.levels().filter_map(|level| limit_in(&level.join(file)));
    let most_bytes = limits.chain(machine_bytes()).min();
    let unread = || ("the memory of the machine cannot be read".to_owned(), None);
    let most_bytes = most_bytes.ok_or_else(unread)?;
    Ok(MemoryState { limit: MemoryLimit { file: directory.join(file), moved }, most_bytes })
}

/// The group of version 2 below which one of ours can be, for processes that are in a given one and share that with others.
fn sharing_group(service: &ServiceSnapshot, home: &Group) -> std::result::Result<PathBuf, Obstacle> {
    let name = &service.service;
    let shares_out = |level: &&Path| {
        procfs::read_text(level.join("cgroup.subtree_control")).is_ok_and(|text| {
            text.split_whitespace().any(|controller| controller == Controller::Memory.name())
        })
    };
    let own_start =
        || Some(format!("start {name} in a group of its own: as a unit of systemd, or by systemd-run"));
    let Some(found) = home.levels().find(shares_out) else {
        let why = format!("no control group above {name} shares out memory, and others are in its own");
        return Err((why, own_start()));
    };
    let is_limit = |file: &PathBuf| {
        procfs::read_text(file).is_ok_and(|text| !text.trim().is_empty() && !text.starts_with("max"))
    };
    let left = home.levels().take_while(|level| *level != found);
    let limit = left.flat_map(|level| OTHER_LIMITS.map(|file| level.join(file))).find(is_limit);
    match limit {
        None => Ok(found.to_owned()),
        Some(file) => {
            let why =
                format!("{name} shares its control group, and would leave the limit {}", file.display());
            Err((why, own_start()))
        }
    }
}

/// The memory of the machine.
fn machine_bytes() -> Option<u64> {
    let text = procfs::read_text("/proc/meminfo").ok()?;
    meminfo_bytes(&text, "MemTotal")
}

/// What processes hold that cannot be dropped: pages of no file. Pages that several share count once.
fn held_bytes(pids: &[u32]) -> u64 {
    const KEYS: [&str; 2] = ["Pss_Anon", "Pss_Shmem"];
    // Older kernels tell it of each process by itself.
    const OLDER: [&str; 2] = ["RssAnon", "RssShmem"];
    let of = |file: &str, keys: [&str; 2]| {
        let text = procfs::read_text(file).ok()?;
        let found: Vec<u64> = keys.iter().filter_map(|key| meminfo_bytes(&text, key)).collect();
        (!found.is_empty()).then(|| found.iter().sum::<u64>())
    };
    let held = |pid: &u32| {
        of(&format!("/proc/{pid}/smaps_rollup"), KEYS).or_else(|| of(&format!("/proc/{pid}/status"), OLDER))
    };
    pids.iter().filter_map(held).sum()
}

/// The least that a service may be given: what it holds and cannot drop, and a quarter of it, or 32 MiB, to go on.
fn least_bytes(held_bytes: u64) -> u64 {
    held_bytes.saturating_add(MARGIN_BYTES.max(held_bytes / 4))
}

/// The limit of a service now, and the most that it can be; `None` where that cannot be seen.
pub(super) fn in_force(service: &ServiceSnapshot) -> Option<(SettingValue, u64)> {
    let MemoryState { limit, most_bytes } = memory_state(service).ok()?;
    Some((SettingValue::parse(&limit.read(SETTING).ok()??), most_bytes))
}

/// The change to so much memory.
pub(super) fn planned(
    service: &ServiceSnapshot,
    to: &SettingValue,
) -> std::result::Result<Planned, Obstacle> {
    let MemoryState { limit, most_bytes } = memory_state(service)?;
    let held_bytes = held_bytes(&procfs::tree_of(service.pid));
    let range = (least_bytes(held_bytes), most_bytes);
    let bytes = wanted(to).filter(|bytes| (range.0..=range.1).contains(bytes));
    let bytes = bytes.ok_or_else(|| out_of_range(service, to, held_bytes, range))?;
    let writable = match &limit.moved {
        // Where it is made.
        Some(_) => limit.directory().parent().unwrap_or(limit.directory()),
        None => limit.file.as_path(),
    };
    not_writable(writable).map_or(Ok(()), Err)?;
    if let Some(high) = limit_in(&limit.file.with_file_name("memory.high")).filter(|high| *high < bytes) {
        let why =
            format!("memory.high of {} slows it down from {high} bytes on", limit.directory().display());
        return Err((why, Some("raise that, or ask for less".into())));
    }
    let unread = |error| (format!("the limit of {} cannot be read: {error}", service.service), None);
    let from = limit.read(SETTING).map_err(unread)?.unwrap_or_else(|| NO_LIMIT.into());
    let remark = limit.moved.as_ref().map(|moved| {
        format!(
            "what its processes hold already stays charged to {}: {held_bytes} bytes",
            moved.home.display()
        )
    });
    let file = limit.file.display().to_string();
    Ok(Planned { holder: Controlled::Memory(limit), file, from, to: bytes.to_string(), remark })
}

/// A number of bytes, in whole pages: `256M`, `2G`, `1.5G`, `268435456`.
fn wanted(to: &SettingValue) -> Option<u64> {
    let text = to.to_string();
    let unit = text.trim_start_matches(|digit: char| digit.is_ascii_digit() || digit == '.');
    let number: f64 = text[..text.len() - unit.len()].parse().ok()?;
    let scale = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1u64,
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        "T" | "TIB" => 1 << 40,
        _ => return None,
    };
    let bytes = number * scale as f64;
    let page = rustix::param::page_size() as u64;
    (bytes < NO_LIMIT_BYTES as f64).then_some(bytes as u64 / page * page)
}

fn out_of_range(
    service: &ServiceSnapshot,
    to: &SettingValue,
    held_bytes: u64,
    (least, most): (u64, u64),
) -> Obstacle {
    let shown = |bytes: u64| format_binary_bytes(bytes as f64);
    let name = &service.service;
    let why =
        format!("{SETTING} (memory) of {name} cannot be `{}`", to.to_string().replace(['\r', '\n'], " "));
    let hint = format!(
        "a size from {} to {}, as 512M: its processes hold {} that cannot be dropped, and with little more the kernel would end them",
        shown(least),
        shown(most),
        shown(held_bytes)
    );
    (why, Some(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hierarchy of version 2 in a folder: `a` shares out memory, `a/shared` is where the service is with others.
    #[test]
    fn a_group_of_ours_is_where_memory_is_shared_out_and_no_limit_is_left() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("a/shared");
        std::fs::create_dir_all(&home).unwrap();
        let group = Group { directory: home.clone(), mount: root.path().to_owned() };
        let service = ServiceSnapshot { service: "apache".into(), ..ServiceSnapshot::default() };
        let (why, hint) = sharing_group(&service, &group).unwrap_err();
        assert!(why.contains("shares out memory") && hint.is_some_and(|hint| hint.contains("systemd-run")));
        std::fs::write(root.path().join("a/cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        std::fs::write(home.join("memory.max"), "max\n").unwrap();
        std::fs::write(home.join("cpuset.cpus"), "\n").unwrap();
        assert_eq!(sharing_group(&service, &group), Ok(root.path().join("a")));
        std::fs::write(home.join("cpu.max"), "50000 100000\n").unwrap();
        let (why, _) = sharing_group(&service, &group).unwrap_err();
        assert!(why.contains("would leave the limit") && why.ends_with("cpu.max"), "{why}");
    }

    #[test]
    fn a_limit_goes_also_where_the_group_of_before_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let process = ProcessName::of(std::process::id()).unwrap();
        for (file, none) in [(FILES[0], "-1"), (FILES[1], "max")] {
            let file = root.path().join(file);
            std::fs::write(&file, "1").unwrap();
            std::fs::write(root.path().join("cgroup.procs"), process.pid.to_string()).unwrap();
            let moved = Some(Moved { process, home: root.path().join("gone") });
            MemoryLimit { file: file.clone(), moved }.write(SETTING, NO_LIMIT).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), none);
        }
    }

    #[test]
    fn sizes_are_whole_pages() {
        for (text, expected) in [
            ("256M", Some(256 << 20)),
            ("1.5G", Some(3 << 29)),
            ("2GiB", Some(2 << 30)),
            ("536870912", Some(512 << 20)),
            ("536870913", Some(512 << 20)),
            ("2X", None),
            ("", None),
            ("inf", None),
            ("99999999T", None),
        ] {
            assert_eq!(wanted(&SettingValue::parse(text)), expected, "{text}");
        }
    }
}
