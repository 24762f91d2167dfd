//! What a machine looks like from outside of all hosts, to be compared before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Everything that a scenario could leave behind, where nobody else is: each thing with what is to be the same again.
pub type MachineState = BTreeMap<String, String>;

/// Settings that move by themselves, and those of the machine that every network shows and that others may set.
const MOVING: &[&str] = &[
    "fs/aio-nr",
    "fs/dentry-state",
    "fs/file-nr",
    "fs/inode-nr",
    "fs/inode-state",
    "fs/quota",
    "kernel/ns_last_pid",
    "kernel/pty/nr",
    "kernel/random",
    "kernel/sched_domain",
    "net/netfilter/nf_conntrack_buckets",
    "net/netfilter/nf_conntrack_count",
    "net/netfilter/nf_conntrack_expect_max",
    "net/netfilter/nf_conntrack_max",
];

/// Looks at namespaces, processes, mounts, interfaces, settings, swap, loop devices, groups and files. `state` is the
/// state directory, `names` are those of the scenarios.
pub fn observe(state: &Path, names: &[&str]) -> MachineState {
    let mut look = MachineState::new();
    // The kernel tells paths without links.
    let state = &state.canonicalize().unwrap_or_else(|_| state.to_owned());
    processes(&mut look);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    // Names of namespaces come from the machine, whoever gives them.
    for line in mounts.lines().filter(|line| !line.contains(" - nsfs ")) {
        look.insert(format!("mount {line}"), String::new());
    }
    // Of this network namespace: /sys/class/net lists those of the machine, to which other tests add theirs.
    let interfaces = fs::read_to_string("/proc/self/net/dev").unwrap();
    for (name, _) in interfaces.lines().filter_map(|line| line.split_once(':')) {
        look.insert(format!("interface {}", name.trim()), String::new());
    }
    settings(&mut look);
    let swaps = fs::read_to_string("/proc/swaps").unwrap();
    for line in swaps.lines().filter(|line| line.starts_with(&state.display().to_string())) {
        look.insert(format!("swap {line}"), String::new());
    }
    for file in loops().into_iter().filter(|file| file.starts_with(&state.display().to_string())) {
        look.insert(format!("loop device on {file}"), String::new());
    }
    for folder in groups(names) {
        look.insert(format!("group {}", folder.display()), String::new());
    }
    for folder in [Path::new("/etc"), Path::new("/run"), &std::env::temp_dir(), state] {
        files(folder, &mut look);
    }
    look
}

/// Those that were there before and those that are there now, as lines to be read.
pub fn differences(before: &MachineState, after: &MachineState) -> Vec<String> {
    let all: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let displayed = |look: &MachineState, key: &String| {
        look.get(key).map_or("not there".to_owned(), |value| format!("`{value}`"))
    };
    let differ = |key: &&&String| before.get(**key) != after.get(**key);
    all.iter()
        .filter(differ)
        .map(|key| format!("{key}: {} -> {}", displayed(before, key), displayed(after, key)))
        .collect()
}

/// The files that loop devices are on.
pub fn loops() -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    let file = |path: PathBuf| fs::read_to_string(path.join("loop/backing_file")).ok();
    devices.filter_map(|device| file(device.path())).map(|file| file.trim().to_owned()).collect()
}

fn processes(look: &mut MachineState) {
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        for space in ["mnt", "net", "pid", "uts", "ipc", "cgroup", "user"] {
            if let Ok(inode) = fs::read_link(entry.path().join("ns").join(space)) {
                look.insert(format!("namespace {}", inode.display()), String::new());
            }
        }
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        look.insert(format!("process {name}"), String::from_utf8_lossy(&command).replace('\0', " "));
    }
}

fn settings(look: &mut MachineState) {
    for part in ["net", "vm", "kernel", "fs"] {
        let mut folders = vec![Path::new("/proc/sys").join(part)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                let name = path.strip_prefix("/proc/sys").unwrap().display().to_string();
                if MOVING.iter().any(|moving| name.starts_with(moving)) {
                    continue;
                }
                match fs::read(&path) {
                    Ok(value) => {
                        drop(look.insert(format!("setting {name}"), String::from_utf8_lossy(&value).into()))
                    }
                    Err(_) if path.is_dir() => folders.push(path),
                    Err(_) => {}
                }
            }
        }
    }
}

/// Whether groups can be made in every hierarchy: in many containers they cannot.
pub fn has_groups() -> bool {
    let name = format!("webdyno-test-{}", std::process::id());
    let folders: Vec<PathBuf> = tops().iter().map(|top| top.join(&name)).collect();
    let made = folders.iter().all(|folder| fs::create_dir(folder).is_ok());
    folders.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    made && !folders.is_empty()
}

/// Where hierarchies of control groups are mounted.
fn tops() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let groups = mounts.lines().filter(|line| line.contains(" - cgroup"));
    groups.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect()
}

/// The groups of these scenarios, in all hierarchies.
fn groups(names: &[&str]) -> Vec<PathBuf> {
    let of_top =
        |top: PathBuf| names.iter().map(|name| top.join("webdyno-lab").join(name)).collect::<Vec<_>>();
    tops().into_iter().flat_map(of_top).filter(|path| path.exists()).collect()
}

fn files(folder: &Path, look: &mut MachineState) {
    use std::os::unix::fs::MetadataExt;
    for entry in walkdir::WalkDir::new(folder).into_iter().flatten() {
        if let Ok(found) = entry.metadata() {
            let value = match found.is_dir() {
                true => format!("{:o}", found.mode()),
                false => format!("{:o} {} bytes, {}", found.mode(), found.len(), found.mtime()),
            };
            look.insert(format!("file {}", entry.path().display()), value);
        }
    }
}
