//! A private temporary folder of the session: the only place that observing may write to.
//!
//! It lies in `/tmp` as the process sees it that is to read from it: a service may have a `/tmp` of its own
//! (systemd.exec(5), PrivateTmp=, and containers). Others may open a file in it whose name they were told, and see no other
//! (mode 0711). It goes with its owner; one whose session ended without taking it along goes with the next session that
//! makes one (`sweep`).

use crate::os::process::{ProcessName, boot_id};
use crate::visibility::process_view::Root;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Timespec, Timestamps, mkdirat, openat, unlinkat};
use std::io::{self, Write};
use std::os::fd::OwnedFd;

/// Where they lie.
const PLACE: &str = "/tmp";

/// How their names begin.
const PREFIX: &str = "webdyno-observes-";

/// Seconds since 1970 of the year 2100: see [`Scratch::write`].
const FAR_FUTURE_S: i64 = 4_102_444_800;

/// Other folders that are looked at when one is made.
const SWEPT_MAX: usize = 10_000;

/// A folder that is removed with its files when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    /// The directory that it lies in.
    place: OwnedFd,
    folder: OwnedFd,
    name: String,
}

impl Scratch {
    /// Makes a folder that a process sees whose files these are, and removes those that were left behind. An error when
    /// that may not be.
    pub fn create(root: &Root) -> io::Result<Self> {
        let place = root.open(PLACE, OFlags::RDONLY | OFlags::DIRECTORY)?;
        sweep(&place);
        // Two of one process differ by the time.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let name = format!("{PREFIX}{}-{}{:09}", owner()?, now.tv_sec, now.tv_nsec);
        mkdirat(&place, &name, Mode::from_raw_mode(0o700))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match openat(&place, &name, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(error) => {
                let _ = unlinkat(&place, &name, AtFlags::REMOVEDIR);
                return Err(error.into());
            }
        };
        let scratch = Self { place, folder, name };
        // Whatever our umask is.
        rustix::fs::fchmod(&scratch.folder, Mode::from_raw_mode(0o711))?;
        Ok(scratch)
    }

    /// The path of the folder as that process sees it.
    pub fn path(&self) -> String {
        format!("{PLACE}/{}", self.name)
    }

    /// Writes a file that anyone may read who knows its name. It is dated in the far future: what a cache takes for too new
    /// (opcache.file_update_protection) stays out of it.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, name, flags, Mode::from_raw_mode(0o600))?;
        let mut file = std::fs::File::from(file);
        file.write_all(content)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
        let future = Timespec { tv_sec: FAR_FUTURE_S, tv_nsec: 0 };
        rustix::fs::futimens(&file, &Timestamps { last_access: future, last_modification: future })?;
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.place, &self.name);
    }
}

/// Names this process: boot, pid namespace, pid and start.
fn owner() -> io::Result<String> {
    let this = ProcessName::this().map_err(|error| io::Error::other(error.message))?;
    Ok(format!("{}-{}-{}", space(), this.pid, this.start_ticks))
}

/// The boot and the pid namespace, as short as they can stand in a name.
fn space() -> String {
    let boot: String =
        boot_id().unwrap_or_default().chars().filter(char::is_ascii_hexdigit).take(12).collect();
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let number: String = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("{boot}-{number}")
}

/// Whether a folder of that name has no owner any more.
fn is_left_behind(name: &str, here: &str) -> bool {
    let Some(owner) = name.strip_prefix(PREFIX) else { return false };
    let parts: Vec<&str> = owner.split('-').collect();
    let [boot, space, pid, start_ticks, _] = parts.as_slice() else { return false };
    let Some((this_boot, this_space)) = here.split_once('-') else { return false };
    // Of another pid namespace of this boot nothing is known.
    if *boot == this_boot && *space != this_space {
        return false;
    }
    let process = pid.parse().ok().zip(start_ticks.parse().ok());
    let alive = process.is_some_and(|(pid, start_ticks)| ProcessName { pid, start_ticks }.is_alive());
    *boot != this_boot || !alive
}

fn sweep(place: &OwnedFd) {
    let here = space();
    let Ok(folder) = Dir::read_from(place) else { return };
    for entry in folder.flatten().take(SWEPT_MAX) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_left_behind(&name, &here) {
            remove(place, &name);
        }
    }
}

/// Removes a folder of ours with its files; what is not ours may not be.
fn remove(place: &OwnedFd, name: &str) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(folder) = openat(place, name, flags, Mode::empty()) else { return };
    let own = rustix::process::geteuid().as_raw();
    if rustix::fs::fstat(&folder).map(|found| found.st_uid) != Ok(own) {
        return;
    }
    for entry in Dir::read_from(&folder).into_iter().flatten().flatten() {
        let _ = unlinkat(&folder, entry.file_name(), AtFlags::empty());
    }
    let _ = unlinkat(place, name, AtFlags::REMOVEDIR);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn a_folder_goes_with_its_owner() {
        let scratch = Scratch::create(&Root::ours()).unwrap();
        let path = scratch.path();
        let other = Scratch::create(&Root::ours()).unwrap();
        assert_ne!(path, other.path());
        scratch.write("x.php", b"text").unwrap();
        let file = Path::new(&path).join("x.php");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(Path::new(&path)), mode(&file)), (0o711, 0o644));
        assert!(std::fs::metadata(&file).unwrap().modified().unwrap() > std::time::SystemTime::now());
        assert_eq!(std::fs::read(&file).unwrap(), b"text");
        drop(scratch);
        assert!(!Path::new(&path).exists());
        assert!(Path::new(&other.path()).exists(), "those of the living stay");
    }

    #[test]
    fn what_was_left_behind_is_told_from_what_is_in_use() {
        let this = ProcessName::this().unwrap();
        let here = "b007-4026531836";
        for (name, expected) in [
            (format!("{PREFIX}{here}-{}-{}-1", this.pid, this.start_ticks), false),
            (format!("{PREFIX}{here}-{}-{}-1", this.pid, this.start_ticks + 1), true),
            (format!("{PREFIX}other-4026531836-{}-{}-1", this.pid, this.start_ticks), true),
            (format!("{PREFIX}b007-77-1-1-1"), false),
            (format!("{PREFIX}{here}-1"), false),
            ("webdyno-runs".to_owned(), false),
        ] {
            assert_eq!(is_left_behind(&name, here), expected, "{name}");
        }
        assert_eq!(owner().unwrap().split('-').count(), 4, "the boot has a name: {}", owner().unwrap());
    }

    #[test]
    fn a_folder_of_a_session_that_is_gone_is_swept() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let left = format!("/tmp/{PREFIX}{}-{gone}-1-1", space());
        std::fs::create_dir(&left).unwrap();
        std::fs::write(format!("{left}/x.php"), "").unwrap();
        let _scratch = Scratch::create(&Root::ours()).unwrap();
        assert!(!Path::new(&left).exists());
    }
}
