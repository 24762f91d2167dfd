//! What a scenario that is up did to the machine: one line of JSON before each act that outlives the program, in
//! `STATE/lab/NAME/journal.jsonl`. Whoever is killed at whichever line leaves enough for `down`.
//!
//! Lines need not reach the disk: all that they tell of ends with the machine, but for files, which are found by name.
//! The folder itself is locked (flock(2)) by whoever builds or removes; the kernel drops the lock with its holder.

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use webdyno_host::os::process::{ProcessName, boot_id};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The most that is read of a journal: a thousand times what the largest scenario writes.
const JOURNAL_BYTES_MAX: u64 = 16 << 20;

/// How long somebody is waited for who is at work on a scenario: a killed one holds its lock until its last child runs
/// its own program.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// An act on the machine, told before it is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "kebab-case")]
pub enum Act {
    /// The first line.
    Begin {
        /// Between which two boots all of this is true.
        boot_id: Option<String>,
        /// Where the scenario is from: a folder of folders; `None` for those in the program.
        scenarios: Option<PathBuf>,
        /// Settings of the whole machine that it changes in any of its rounds.
        settings: Vec<String>,
    },
    /// A control group.
    Group {
        /// Its folder.
        path: PathBuf,
    },
    /// Controllers that groups below one of others may use from now on (version 2).
    Controllers {
        /// Its cgroup.subtree_control.
        path: PathBuf,
        /// As `memory pids`.
        added: String,
    },
    /// A host is there: told behind the act, as only that tells the process. Until then its groups tell.
    Host {
        /// Its name.
        host: String,
        /// Its process 1, as the machine sees it.
        process: ProcessName,
    },
    /// A loop device on a file of ours.
    Loop {
        /// The file.
        file: PathBuf,
    },
    /// Swap in a file of ours.
    Swap {
        /// The file.
        file: PathBuf,
    },
    /// A kernel setting of the whole machine.
    Setting {
        /// As `net.netfilter.nf_conntrack_max`.
        name: String,
        /// What it was.
        old: String,
        /// What it becomes.
        new: String,
    },
    /// All is there.
    Up {},
}

/// What a journal says.
#[derive(Debug, Default, PartialEq)]
pub struct JournalContent {
    /// Its acts in their order.
    pub acts: Vec<Act>,
    /// Lines that cannot be read, from 1. A torn last one is none: its act was never done.
    pub damaged: Vec<usize>,
}

impl JournalContent {
    /// Reads a journal's text.
    pub fn parse(text: &[u8]) -> Self {
        let mut reported = Self::default();
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for (at, line) in text[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
            match serde_json::from_slice(line) {
                Ok(act) => reported.acts.push(act),
                Err(_) => reported.damaged.push(at + 1),
            }
        }
        reported
    }

    /// Whether everything was there when the last line was written, and the machine was not started anew since.
    pub fn is_complete(&self) -> bool {
        let ends_well = self.acts.contains(&Act::Up {});
        ends_well && self.is_of_this_boot()
    }

    /// Whether the machine was not started anew since.
    pub fn is_of_this_boot(&self) -> bool {
        self.acts.iter().any(|act| matches!(act, Act::Begin { boot_id: then, .. } if *then == boot_id()))
    }

    /// Whether the machine was started anew since: not where the line is damaged that would tell.
    pub fn is_of_another_boot(&self) -> bool {
        self.acts.iter().any(|act| matches!(act, Act::Begin { boot_id: then, .. } if *then != boot_id()))
    }

    /// The first line's settings of the machine.
    pub fn settings(&self) -> &[String] {
        let begin = self.acts.iter().find_map(|act| match act {
            Act::Begin { settings, .. } => Some(settings.as_slice()),
            _ => None,
        });
        begin.unwrap_or(&[])
    }
}

/// A scenario's folder below the state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioPlace {
    root: PathBuf,
    name: String,
}

impl ScenarioPlace {
    /// The one of a scenario, below a state directory. A usage error for a name that is none.
    pub fn of(state: &Path, name: &str) -> Result<Self> {
        Self::below(canonical_path(&state.join("lab")), name)
    }

    fn below(root: PathBuf, name: &str) -> Result<Self> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_name) {
            return Err(UserError::usage(format!("`{name}` is no name of a scenario"))
                .hint("`webdyno lab list` names them"));
        }
        Ok(Self { root, name: name.to_owned() })
    }

    /// All scenarios that have a folder.
    pub fn all(state: &Path) -> Result<Vec<Self>> {
        Self::all_below(&canonical_path(&state.join("lab")))
    }

    /// All others that have a folder beside this one's.
    pub fn others(&self) -> Result<Vec<Self>> {
        Ok(Self::all_below(&self.root)?.into_iter().filter(|other| other != self).collect())
    }

    /// The one whose folder this is; `None` where it cannot be one.
    pub fn at(folder: &Path) -> Option<Self> {
        Self::below(canonical_path(folder.parent()?), folder.file_name()?.to_str()?).ok()
    }

    fn all_below(root: &Path) -> Result<Vec<Self>> {
        let entries = match std::fs::read_dir(root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            Err(error) => return Err(io_error("read", root.display(), &error)),
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut all: Vec<Self> = names.filter_map(|name| Self::below(root.to_owned(), &name).ok()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// The scenario's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder.
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    /// Where all scenarios have their folders.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the folder. The state directory itself is nobody's secret: others keep other things there.
    fn create(&self) -> io::Result<()> {
        std::fs::create_dir_all(self.root.parent().unwrap_or(&self.root))?;
        DirBuilder::new().recursive(true).mode(0o700).create(self.path())
    }

    /// An error where somebody else could exchange what is built for something of the machine, as root would not see.
    fn check_private(&self) -> Result<()> {
        let wrong = |path: &Path, why: &str| {
            UserError::cannot_run(format!("nothing is built in {}: {why}", path.display()))
                .hint("set WEBDYNO_STATE to a directory that only you can write")
        };
        let look = |path: &Path| {
            std::fs::symlink_metadata(path).map_err(|error| io_error("read", path.display(), &error))
        };
        for path in [self.root.clone(), self.path()] {
            let found = look(&path)?;
            if !found.is_dir() {
                return Err(wrong(&path, "it is no directory of its own"));
            }
            if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
                return Err(wrong(&path, "others can write there"));
            }
        }
        let state = self.root.parent().unwrap_or(&self.root);
        // With the sticky bit everybody moves only what is theirs.
        match look(state)?.mode() & 0o1002 {
            0o0002 => Err(wrong(state, "others can write there")),
            _ => Ok(()),
        }
    }

    /// What its journal says; `None` without any.
    pub fn read(&self) -> Result<Option<JournalContent>> {
        let path = self.path().join("journal.jsonl");
        let displayed = path.display();
        let text = match std::fs::metadata(&path) {
            Ok(found) if found.len() > JOURNAL_BYTES_MAX => {
                return Err(UserError::cannot_run(format!("{displayed} is no journal: it is too large"))
                    .hint("look into it, and remove it: then what it tells of is found by name"));
            }
            Ok(_) => std::fs::read(&path),
            Err(error) => Err(error),
        };
        match text {
            Ok(text) => Ok(Some(JournalContent::parse(&text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("read", displayed, &error)),
        }
    }
}

/// The right to build or remove a scenario; it ends with this value, and with the process in any case.
#[derive(Debug)]
pub struct ScenarioLock {
    place: ScenarioPlace,
    _folder: File,
    journal: Option<File>,
}

impl ScenarioLock {
    /// Takes it, making the folder if there is none. An error when somebody else is at work on the scenario.
    pub fn acquire(place: &ScenarioPlace) -> Result<Self> {
        let until = Instant::now() + LOCK_WAIT;
        loop {
            let folder = place.path();
            match place.create() {
                // Whoever removes it was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < until => continue,
                made => made.map_err(|error| io_error("create", folder.display(), &error))?,
            }
            match lock(&folder) {
                Ok(Some(locked)) => {
                    place.check_private()?;
                    return Ok(Self { place: place.clone(), _folder: locked, journal: None });
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error("lock", folder.display(), &error));
                }
                _ if Instant::now() > until => {
                    let text = format!("another webdyno is building or removing `{}`", place.name);
                    return Err(UserError::cannot_run(text).hint("wait until it has ended"));
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Whose it is.
    pub fn place(&self) -> &ScenarioPlace {
        &self.place
    }

    /// Adds a line to the journal. Called before the act.
    pub fn append(&mut self, act: &Act) -> Result<()> {
        let path = self.place.path().join("journal.jsonl");
        let reported = |error: io::Error| io_error("write", path.display(), &error);
        if self.journal.is_none() {
            let opened = File::options().create(true).append(true).open(&path);
            self.journal = Some(opened.map_err(reported)?);
        }
        let mut line = serde_json::to_vec(act).map_err(|error| reported(error.into()))?;
        line.push(b'\n');
        self.journal.as_mut().map_or(Ok(()), |file| file.write_all(&line)).map_err(reported)
    }

    /// Removes the folder, and the one of all scenarios if it is empty.
    pub fn remove(self) -> Result<()> {
        let folder = self.place.path();
        std::fs::remove_dir_all(&folder).map_err(|error| io_error("remove", folder.display(), &error))?;
        // Another scenario may be there, or may be coming.
        let _ = std::fs::remove_dir(&self.place.root);
        Ok(())
    }
}

/// A path without links, as the kernel tells those of swap, loop devices and mounts: of what is there, and the rest as it
/// is.
fn canonical_path(path: &Path) -> PathBuf {
    let with_rest = |there: &Path| {
        let rest = path.strip_prefix(there).ok()?;
        let real = there.canonicalize().ok()?;
        Some(rest.components().fold(real, |all, part| all.join(part)))
    };
    path.ancestors().find_map(with_rest).unwrap_or_else(|| path.to_owned())
}

/// Locks a folder; `None` when somebody else has it, or when it was removed and made anew meanwhile.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let opened = File::open(folder)?;
    match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let (ours, there) = (opened.metadata()?, std::fs::metadata(folder)?);
    Ok((ours.ino() == there.ino() && ours.dev() == there.dev()).then_some(opened))
}

/// Holds off everybody else who begins a scenario, so that two never miss each other's settings of the machine.
pub fn lock_all_scenarios(place: &ScenarioPlace) -> Result<File> {
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match lock(place.root()) {
            Ok(Some(locked)) => return Ok(locked),
            Err(error) => return Err(io_error("lock", place.root().display(), &error)),
            Ok(None) if Instant::now() > until => {
                return Err(UserError::cannot_run(
                    "another scenario is beginning, and does not come to an end",
                ));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_was_never_done_and_damage_before_it_is_told() {
        let text = b"{\"act\":\"up\"}\nnonsense\n{\"act\":\"loop\",\"file\":\"/x\"}\n{\"act\":\"swa";
        let reported = JournalContent::parse(text);
        assert_eq!(reported.acts, [Act::Up {}, Act::Loop { file: "/x".into() }]);
        assert_eq!(reported.damaged, [2]);
        assert!(
            !reported.is_complete() && !reported.is_of_another_boot(),
            "nobody knows of which boot it is"
        );
        let before =
            b"{\"act\":\"begin\",\"boot_id\":\"x\",\"scenarios\":null,\"settings\":[]}\n{\"act\":\"up\"}\n";
        assert!(
            !JournalContent::parse(before).is_complete()
                && JournalContent::parse(before).is_of_another_boot()
        );
        assert_eq!(JournalContent::parse(b""), JournalContent::default());
    }

    #[test]
    fn what_is_told_is_read_again_and_goes_with_the_folder() {
        let state = tempfile::tempdir().unwrap();
        let place = ScenarioPlace::of(state.path(), "s1-siege").unwrap();
        assert_eq!(place.read(), Ok(None));
        let mut claimed = ScenarioLock::acquire(&place).unwrap();
        let begin = Act::Begin { boot_id: boot_id(), scenarios: None, settings: vec!["vm.x".into()] };
        for act in [&begin, &Act::Up {}] {
            claimed.append(act).unwrap();
        }
        let reported = place.read().unwrap().unwrap();
        assert!(reported.is_complete());
        assert_eq!((reported.settings(), reported.acts.len()), (&["vm.x".to_owned()][..], 2));
        assert_eq!(ScenarioPlace::all(state.path()).unwrap(), std::slice::from_ref(&place));
        claimed.remove().unwrap();
        assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
        assert_eq!(ScenarioPlace::all(state.path()), Ok(vec![]));
    }

    #[test]
    fn a_place_has_no_links_in_its_path() {
        let top = tempfile::tempdir().unwrap();
        let real = top.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("disk")).unwrap();
        std::os::unix::fs::symlink("disk", real.join("link")).unwrap();
        let path = |state: &str| ScenarioPlace::of(&real.join(state), "x").unwrap().path();
        assert_eq!(path("link/state"), real.join("disk/state/lab/x"));
        assert_eq!(path("link"), real.join("disk/lab/x"));
        std::os::unix::fs::symlink(real.join("disk"), real.join("disk/lab")).unwrap();
        assert_eq!(path("link"), real.join("disk/x"), "the folder of all may be a link, too");
        std::fs::create_dir(real.join("disk/y")).unwrap();
        let other = ScenarioPlace::of(&real.join("link"), "y").unwrap();
        assert!(ScenarioPlace::all(&real.join("link")).unwrap().contains(&other));
        assert!(ScenarioPlace::of(&real.join("link"), "x").unwrap().others().unwrap().contains(&other));
    }

    #[test]
    fn what_others_can_write_is_no_place_to_build() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().unwrap();
        let place = ScenarioPlace::of(state.path(), "x").unwrap();
        let mode = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let reported = || ScenarioLock::acquire(&place).map(drop).map_err(|error| error.message);
        assert_eq!(reported(), Ok(()));
        for path in [state.path().to_owned(), place.root().to_owned(), place.path()] {
            mode(&path, 0o777);
            assert_eq!(
                reported(),
                Err(format!("nothing is built in {}: others can write there", path.display()))
            );
            mode(&path, 0o700);
        }
        mode(state.path(), 0o1777);
        assert_eq!(reported(), Ok(()), "as /tmp is");
        std::fs::remove_dir(place.path()).unwrap();
        std::os::unix::fs::symlink("/", place.path()).unwrap();
        assert!(reported().is_err_and(|reported| reported.ends_with("it is no directory of its own")));
    }

    #[test]
    fn two_never_build_one_scenario() {
        let state = tempfile::tempdir().unwrap();
        let place = ScenarioPlace::of(state.path(), "x").unwrap();
        let first = ScenarioLock::acquire(&place).unwrap();
        let refused = ScenarioLock::acquire(&place).unwrap_err();
        assert_eq!(refused.message, "another webdyno is building or removing `x`");
        drop(first);
        ScenarioLock::acquire(&place).unwrap();
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        for name in ["", ".", "..", "a/b", ".x", "a b", "a\nb"] {
            assert!(ScenarioPlace::of(Path::new("/x"), name).is_err(), "{name}");
        }
    }

    proptest::proptest! {
        /// Any bytes: never a panic.
        #[test]
        fn any_bytes_are_a_journal(text: Vec<u8>) {
            let reported = JournalContent::parse(&text);
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            proptest::prop_assert_eq!(reported.acts.len() + reported.damaged.len(), lines);
        }
    }
}
