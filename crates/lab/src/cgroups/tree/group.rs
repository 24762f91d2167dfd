//! One group as a folder of the kernel's: made, written, emptied, removed.
//!
//! Facts: cgroups(7) (a group is removed by rmdir(2) once it has neither children nor processes), cpusets.rst,
//! cgroup-v2.rst (cgroup.subtree_control, cpu.weight), Documentation/scheduler/sched-design-CFS.rst (cpu.shares).

use crate::cgroups::{FOLDER, GroupWrite, Hierarchy};
use crate::journal::Act;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use webdyno_model::Result;
use webdyno_model::error::io_error;

/// Levels below a scenario's group: host, service. One more, as others may have made groups there.
const DEPTH_MAX: usize = 4;

/// All processes in a group and those below it. Those of other namespaces have the number 0: there are none above ours.
pub(super) fn pids_below(top: &Path) -> BTreeSet<i32> {
    let text = |folder: &PathBuf| std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let texts: Vec<String> = folders_below(top, DEPTH_MAX).iter().map(text).collect();
    texts
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.parse().ok())
        .filter(|pid| *pid > 0)
        .collect()
}

pub(super) fn kill(pids: &BTreeSet<i32>) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Gives all hosts together the share of the processors that four programs have. Else they would have that of one
/// program of the machine among all others that want to run, and a measurement would be one of the neighbours. With the
/// largest that the kernel knows it would be the neighbours that stand still.
pub(super) fn raise_cpu_weight(hierarchy: &Hierarchy) -> Result<()> {
    let (file, most) = if hierarchy.unified { ("cpu.weight", "400") } else { ("cpu.shares", "4096") };
    let path = hierarchy.top.join(FOLDER).join(file);
    // Of version 2 it is there only where hosts have limits of processor time.
    if !path.exists() {
        return Ok(());
    }
    write_all(&[GroupWrite { path, value: most.into() }])
}

/// Makes a group that may use these controllers of version 2.
pub(super) fn make_group(
    hierarchy: &Hierarchy,
    group: &str,
    controllers: &[String],
    progress: &mut impl FnMut(&Act) -> Result<()>,
) -> Result<()> {
    let path = hierarchy.top.join(group);
    let parent = path.parent().unwrap_or(&path);
    enable(parent, controllers, hierarchy.unified, progress)?;
    if !path.is_dir() {
        progress(&Act::Group { path: path.clone() })?;
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(io_error("create", path.display(), &error));
            }
            _ => {}
        }
    }
    if !hierarchy.unified && hierarchy.has("cpuset") {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let own = std::fs::read_to_string(path.join(file)).unwrap_or_default();
            if own.trim().is_empty() {
                let value = std::fs::read_to_string(parent.join(file)).unwrap_or_default();
                write_all(&[GroupWrite { path: path.join(file), value: value.trim().to_owned() }])?;
            }
        }
    }
    Ok(())
}

/// Lets groups below one use controllers that they may not use yet.
fn enable(
    folder: &Path,
    controllers: &[String],
    unified: bool,
    progress: &mut impl FnMut(&Act) -> Result<()>,
) -> Result<()> {
    let path = folder.join("cgroup.subtree_control");
    if !unified || controllers.is_empty() {
        return Ok(());
    }
    let enabled = std::fs::read_to_string(&path).unwrap_or_default();
    let lacking: Vec<&str> = controllers
        .iter()
        .map(String::as_str)
        .filter(|name| !enabled.split_ascii_whitespace().any(|had| had == *name))
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    // What our own groups enable ends with them.
    if !folder.components().any(|part| part.as_os_str() == FOLDER) {
        progress(&Act::Controllers { path: path.clone(), added: lacking.join(" ") })?;
    }
    let value = lacking.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(" ");
    write_all(&[GroupWrite { path, value }])
}

/// Writes values into files of groups, in order.
pub fn write_all(writes: &[GroupWrite]) -> Result<()> {
    for GroupWrite { path, value } in writes {
        // The kernel wants one write, and a newline does no harm.
        match std::fs::write(path, format!("{value}\n")) {
            Ok(()) => {}
            // Without accounting of swap there is no such file, and no group may be kept from it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_swap_file(path) => {}
            Err(error) => {
                let text = format!("{value} into {}", path.display());
                return Err(io_error("write", text, &error));
            }
        }
    }
    Ok(())
}

fn is_swap_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("memory.memsw.") || name.starts_with("memory.swap.")
}

/// A folder and those below it, the deepest last.
fn folders_below(top: &Path, depth: usize) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(top) else { return vec![] };
    let mut found = vec![top.to_owned()];
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        if depth > 0 {
            found.extend(folders_below(&entry.path(), depth - 1));
        }
    }
    found
}

/// Removes a group with those below it. The error names the first that stays.
pub(super) fn remove_tree(top: &Path) -> std::result::Result<(), (PathBuf, io::Error)> {
    for folder in folders_below(top, DEPTH_MAX).into_iter().rev() {
        match std::fs::remove_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err((folder, error)),
            _ => {}
        }
    }
    Ok(())
}
