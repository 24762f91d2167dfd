//! What has to change on the whole machine while a scenario is up: kernel settings of the initial namespace, and swap.
//!
//! Facts: proc_sys(5), swapon(8). A setting is put back only while it still has our value: whoever changed it since meant
//! to.

use crate::hosts::ToolRunner;
use crate::hosts::settings::{plain, read_setting, write_setting};
use crate::journal::{Act, ScenarioLock};
use crate::packages;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use webdyno_model::Result;
use webdyno_model::error::io_error;

/// The value of a setting as a scenario has it: a number, a text, or true and false as 1 and 0.
pub fn value(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => plain(text),
        toml::Value::Boolean(is_set) => u8::from(*is_set).to_string(),
        other => other.to_string(),
    }
}

/// Changes a setting of the initial namespace, where this process is.
pub fn change_setting(claimed: &mut ScenarioLock, name: &str, value: &str) -> Result<()> {
    let (old, new) = (read_setting(name)?, plain(value));
    if old == new {
        return Ok(());
    }
    let mut append_change =
        |new: String| claimed.append(&Act::Setting { name: name.to_owned(), old: old.clone(), new });
    append_change(new.clone())?;
    write_setting(name, value)?;
    // The kernel may have made another value of it: the number of buckets of a table is rounded, a long name is cut.
    let now = read_setting(name)?;
    if now == new { Ok(()) } else { append_change(now) }
}

/// What a setting was before a scenario changed it, and what the scenario made of it.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangedSetting {
    name: String,
    old: String,
    ours: Vec<String>,
}

/// The settings that acts tell of, in the order in which they were changed first.
pub fn changed_settings(acts: &[Act]) -> Vec<ChangedSetting> {
    let mut all: Vec<ChangedSetting> = vec![];
    for act in acts {
        let Act::Setting { name, old, new } = act else { continue };
        match all.iter_mut().find(|known| known.name == *name) {
            Some(known) if known.old == *old || known.ours.contains(old) => known.ours.push(new.clone()),
            // Somebody else set it in between.
            Some(known) => (known.old, known.ours) = (old.clone(), vec![new.clone()]),
            None => {
                all.push(ChangedSetting { name: name.clone(), old: old.clone(), ours: vec![new.clone()] })
            }
        }
    }
    all
}

impl ChangedSetting {
    /// Puts the setting back. A note when it has neither the old value nor one of ours: somebody else set it since.
    pub fn revert(&self) -> Option<String> {
        let Self { name, old, ours } = self;
        match read_setting(name) {
            Ok(now) if now == *old => None,
            Ok(now) if ours.contains(&now) => write_setting(name, old).err().map(|error| error.message),
            Ok(now) => Some(format!(
                "`{name}` is {now}: somebody set it since it became {}; it was {old}, and is left alone",
                ours.last().unwrap_or(old)
            )),
            Err(error) => Some(error.message),
        }
    }
}

/// Adds a file of swap to the machine, in the scenario's folder.
pub fn add_swap(tools: &ToolRunner, claimed: &mut ScenarioLock, bytes: u64) -> Result<()> {
    let path = claimed.place().path().join(format!("swap-{bytes}"));
    let displayed = path.display().to_string();
    if path.exists() {
        return Ok(());
    }
    let reported =
        |error: std::io::Error| io_error("make", format!("{bytes} bytes of swap in {displayed}"), &error);
    // Swap must have all of its blocks: a file with holes is refused.
    let file = File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(reported)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
        .map_err(|error| reported(error.into()))?;
    tools.run(packages::MKSWAP, &[&displayed])?;
    claimed.append(&Act::Swap { file: path.clone() })?;
    // Not on tmpfs, nor on the layers of a container.
    let hint = "swap needs a file system as ext4 or xfs: set WEBDYNO_STATE to a directory on one";
    tools.run(packages::SWAPON, &[&displayed]).map(drop).map_err(|error| error.hint(hint))
}

/// Takes all swap from the machine whose files are below a folder.
pub fn remove_swap(tools: &ToolRunner, folder: &Path) -> Result<()> {
    let path = "/proc/swaps";
    let text = std::fs::read_to_string(path).map_err(|error| io_error("read", path, &error))?;
    for file in swap_files(&text).iter().filter(|file| Path::new(file).starts_with(folder)) {
        tools.run(packages::SWAPOFF, &[file])?;
    }
    Ok(())
}

/// The files of `/proc/swaps`.
fn swap_files(text: &str) -> Vec<String> {
    let first = |line: &str| line.split_ascii_whitespace().next().map(crate::cgroups::unescaped);
    text.lines().skip(1).filter_map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_swap_are_found() {
        let text = "Filename\t\t\tType\t\tSize\n/var/lib/a\\040b/swap-9  file  524284  0  -2\n/dev/sda2 partition 1 0 -3\n";
        assert_eq!(swap_files(text), ["/var/lib/a b/swap-9", "/dev/sda2"]);
        assert!(swap_files("").is_empty());
    }

    #[test]
    fn a_setting_has_one_value_from_before_however_often_it_changes() {
        let acts = |steps: &[(&str, &str, &str)]| -> Vec<Act> {
            let act = |(name, old, new): &(&str, &str, &str)| Act::Setting {
                name: (*name).into(),
                old: (*old).into(),
                new: (*new).into(),
            };
            steps.iter().map(act).collect()
        };
        let displayed = |steps: &[(&str, &str, &str)]| -> Vec<String> {
            let one = |one: &ChangedSetting| format!("{} {} {}", one.name, one.old, one.ours.join(","));
            changed_settings(&acts(steps)).iter().map(one).collect()
        };
        assert_eq!(displayed(&[("a", "0", "1000"), ("a", "0", "1024")]), ["a 0 1000,1024"], "rounded");
        assert_eq!(displayed(&[("a", "1", "2"), ("b", "7", "8"), ("a", "2", "3")]), ["a 1 2,3", "b 7 8"]);
        assert_eq!(displayed(&[("a", "1", "2"), ("a", "5", "3")]), ["a 5 3"], "somebody's own");
    }

    #[test]
    fn values_are_as_the_kernel_takes_them() {
        assert_eq!(value(&toml::Value::Boolean(true)), "1");
        assert_eq!(value(&toml::Value::Integer(7)), "7");
    }
}
