//! What has to change on the whole machine while a scenario is up: kernel settings of the initial namespace, and swap.
//!
//! Facts: proc_sys(5), swapon(8). A setting is put back only while it still has our value: whoever changed it since meant
//! to.

use crate::hosts::Tools;
use crate::journal::{Act, Claimed};
use crate::packages;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Where a setting is: `net.core.somaxconn`. A usage error for what leads elsewhere.
pub fn setting_path(name: &str) -> Result<PathBuf> {
    let is_part = |part: &str| {
        let plain = part.chars().all(|c| c.is_ascii_alphanumeric() || "_-:@/".contains(c));
        !part.is_empty() && plain && !part.starts_with('/')
    };
    match name.split('.').all(is_part) && name.contains('.') {
        true => Ok(PathBuf::from("/proc/sys").join(name.replace('.', "/"))),
        false => {
            Err(UserError::usage(format!("`{name}` is no kernel setting"))
                .hint("write it as net.core.somaxconn"))
        }
    }
}

/// A setting's value, blanks as one.
pub fn read_setting(name: &str) -> Result<String> {
    let path = setting_path(name)?;
    let text = std::fs::read_to_string(&path).map_err(|error| io_error("read", path.display(), &error))?;
    Ok(plain(&text))
}

/// Sets it where the calling thread is.
pub fn write_setting(name: &str, value: &str) -> Result<()> {
    let path = setting_path(name)?;
    std::fs::write(&path, format!("{value}\n"))
        .map_err(|error| io_error("write", format!("{value} into {}", path.display()), &error))
}

/// The value of a setting as a scenario has it: a number, a text, or true and false as 1 and 0.
pub fn value(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => plain(text),
        toml::Value::Boolean(is_set) => u8::from(*is_set).to_string(),
        other => other.to_string(),
    }
}

/// Changes a setting of the initial namespace, where this process is.
pub fn change_setting(claimed: &mut Claimed, name: &str, value: &str) -> Result<()> {
    let old = read_setting(name)?;
    if old == plain(value) {
        return Ok(());
    }
    claimed.tell(&Act::Setting { name: name.to_owned(), old, new: plain(value) })?;
    write_setting(name, value)
}

/// Puts a setting back. A note when it has neither value: somebody else set it since.
pub fn put_back(name: &str, old: &str, new: &str) -> Option<String> {
    match read_setting(name) {
        Ok(now) if now == old => None,
        Ok(now) if now == new => write_setting(name, old).err().map(|error| error.message),
        Ok(now) => Some(format!(
            "`{name}` is {now}: somebody set it since it became {new}; it was {old}, and is left alone"
        )),
        Err(error) => Some(error.message),
    }
}

/// Adds a file of swap to the machine, in the scenario's folder.
pub fn add_swap(tools: &Tools, claimed: &mut Claimed, bytes: u64) -> Result<()> {
    let path = claimed.place().path().join(format!("swap-{bytes}"));
    let shown = path.display().to_string();
    if path.exists() {
        return Ok(());
    }
    let told = |error: std::io::Error| io_error("make", format!("{bytes} bytes of swap in {shown}"), &error);
    // Swap must have all of its blocks: a file with holes is refused.
    let file = File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(told)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
        .map_err(|error| told(error.into()))?;
    tools.run(packages::MKSWAP, &[&shown])?;
    claimed.tell(&Act::Swap { file: path.clone() })?;
    tools.run(packages::SWAPON, &[&shown])?;
    Ok(())
}

/// Takes all swap from the machine whose files are below a folder.
pub fn remove_swap(tools: &Tools, folder: &Path) -> Result<()> {
    let path = "/proc/swaps";
    let text = std::fs::read_to_string(path).map_err(|error| io_error("read", path, &error))?;
    for file in swaps(&text).iter().filter(|file| Path::new(file).starts_with(folder)) {
        tools.run(packages::SWAPOFF, &[file])?;
    }
    Ok(())
}

/// The files of `/proc/swaps`.
fn swaps(text: &str) -> Vec<String> {
    let first = |line: &str| line.split_ascii_whitespace().next().map(crate::groups::unescaped);
    text.lines().skip(1).filter_map(first).collect()
}

/// One blank between words, as settings of several numbers have tabs.
fn plain(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_swap_are_found() {
        let text = "Filename\t\t\tType\t\tSize\n/var/lib/a\\040b/swap-9  file  524284  0  -2\n/dev/sda2 partition 1 0 -3\n";
        assert_eq!(swaps(text), ["/var/lib/a b/swap-9", "/dev/sda2"]);
        assert!(swaps("").is_empty());
    }

    #[test]
    fn settings_are_below_their_folder() {
        assert_eq!(
            setting_path("net.core.somaxconn").unwrap().to_str(),
            Some("/proc/sys/net/core/somaxconn")
        );
        for wrong in ["", "x", "net..x", "../x.y", "net./etc/passwd", ".x", "a b.c"] {
            assert!(setting_path(wrong).is_err(), "{wrong}");
        }
        assert_eq!(plain("4096\t16384  4194304\n"), "4096 16384 4194304");
        assert_eq!(value(&toml::Value::Boolean(true)), "1");
        assert_eq!(value(&toml::Value::Integer(7)), "7");
    }
}
