//! A disk that fails, or ends its process, at the act that a test chooses.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use webdyno_host::change::action::OldFile;
use webdyno_host::change::seams::disk::{Disk, LockedFile, PathInfo, RealDisk};
use webdyno_host::change::seams::tree::Tree;
use webdyno_host::os::cancellation::Cancellation;

/// When acts are counted, and what happens at the chosen one.
#[derive(Clone, Default)]
pub struct FaultInjection(Arc<FaultState>);

#[derive(Default)]
struct FaultState {
    acts: AtomicU64,
    /// The act at which it happens, from 1; 0 never.
    at: AtomicU64,
    what: std::sync::Mutex<What>,
    dead: AtomicBool,
    /// The length of what was written by the act at which it happened.
    length_bytes: AtomicU64,
    label: Label,
    gone: Cancellation,
}

/// Whether files have a security label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Label {
    /// They have none.
    #[default]
    None,
    /// They have one.
    Known,
    /// They have one that cannot be set any more: the policy does not know it.
    Unknown,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum What {
    /// The process ends before the act.
    #[default]
    AbortBefore,
    /// The process ends in the middle of the act, or after it where it is atomic.
    AbortWithin,
    /// This act fails once, as on a full disk.
    FailOnce,
    /// From this act on the process is as good as dead: nothing works any more. A write has got that many bytes far.
    Dead(usize),
    /// The tool is gone from then on, and the act is done.
    ToolGone,
}

impl FaultInjection {
    pub fn at(at: u64, what: What) -> Self {
        let fault = Self::default();
        fault.0.at.store(at, Ordering::SeqCst);
        *fault.0.what.lock().unwrap() = what;
        fault
    }

    /// Nothing happens, but files have labels.
    pub fn labelling(label: Label) -> Self {
        Self(Arc::new(FaultState { label, ..FaultState::default() }))
    }

    /// Whether the tool is gone.
    pub fn gone(&self) -> Cancellation {
        self.0.gone.clone()
    }

    /// How many acts there were.
    pub fn acts(&self) -> u64 {
        self.0.acts.load(Ordering::SeqCst)
    }

    /// How many bytes the act was to write at which it happened; 0 when it writes none.
    pub fn length_bytes(&self) -> usize {
        self.0.length_bytes.load(Ordering::SeqCst) as usize
    }

    /// Does an act; `partly` does the given number of bytes of it.
    pub fn act<T>(
        &self,
        whole: impl FnOnce() -> io::Result<T>,
        partly: impl FnOnce(Option<usize>),
    ) -> io::Result<T> {
        let gone = || io::Error::other("the process is gone");
        if self.0.dead.load(Ordering::SeqCst) {
            return Err(gone());
        }
        if self.0.acts.fetch_add(1, Ordering::SeqCst) + 1 != self.0.at.load(Ordering::SeqCst) {
            return whole();
        }
        let what = *self.0.what.lock().unwrap();
        match what {
            What::AbortBefore => std::process::abort(),
            What::AbortWithin => {
                partly(None);
                std::process::abort()
            }
            What::ToolGone => {
                self.0.gone.set();
                whole()
            }
            What::FailOnce => Err(io::ErrorKind::StorageFull.into()),
            What::Dead(bytes) => {
                partly(Some(bytes));
                self.0.dead.store(true, Ordering::SeqCst);
                Err(gone())
            }
        }
    }
}

/// The real disk, with a fault.
pub struct FaultyDisk(pub FaultInjection);

impl Disk for FaultyDisk {
    fn read(&self, path: &Path) -> io::Result<Option<OldFile>> {
        let mut file = RealDisk.read(path)?;
        if let Some(file) = file.as_mut().filter(|_| self.0.0.label != Label::None) {
            file.attributes.insert("security.selinux".into(), "bGFiZWw=".into());
        }
        Ok(file)
    }

    fn create(&self, path: &Path, file: &OldFile) -> io::Result<()> {
        let partly = |bytes: Option<usize>| {
            self.0.0.length_bytes.store(file.content.len() as u64, Ordering::SeqCst);
            let bytes = bytes.unwrap_or(file.content.len() / 2).min(file.content.len());
            std::fs::write(path, &file.content[..bytes]).unwrap();
        };
        if self.0.0.label == Label::Unknown && !file.attributes.is_empty() {
            std::fs::write(path, &file.content).unwrap();
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the label is unknown"));
        }
        let mut file = file.clone();
        file.attributes.remove("security.selinux");
        self.0.act(|| RealDisk.create(path, &file), partly)
    }

    fn copy_program(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.act(|| RealDisk.copy_program(from, to), |_| std::fs::write(to, "half").unwrap())
    }

    fn rename(&self, from: &Path, to: &Path, may_replace: bool) -> io::Result<()> {
        self.0.act(
            || RealDisk.rename(from, to, may_replace),
            |_| RealDisk.rename(from, to, may_replace).unwrap(),
        )
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.act(|| RealDisk.remove(path), |_| RealDisk.remove(path).unwrap())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.0.act(|| RealDisk.sync_directory(path), |_| ())
    }

    fn path_info(&self, path: &Path) -> io::Result<Option<PathInfo>> {
        RealDisk.path_info(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        RealDisk.resolve(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Option<Vec<OsString>>> {
        RealDisk.list(folder)
    }

    fn owner_of_new(&self, folder: &Path) -> io::Result<(u32, u32)> {
        RealDisk.owner_of_new(folder)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.act(|| RealDisk.create_directory(path), |_| RealDisk.create_directory(path).unwrap())
    }

    fn remove_empty_directory(&self, path: &Path) -> io::Result<bool> {
        self.0.act(
            || RealDisk.remove_empty_directory(path),
            |_| assert!(RealDisk.remove_empty_directory(path).is_ok()),
        )
    }

    fn create_private(&self, path: &Path) -> io::Result<()> {
        self.0.act(|| RealDisk.create_private(path), |_| RealDisk.create_private(path).unwrap())
    }

    fn read_start(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        RealDisk.read_start(path, bytes_max)
    }

    fn append(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let partly = |count: Option<usize>| {
            self.0.0.length_bytes.store(bytes.len() as u64, Ordering::SeqCst);
            let count = count.unwrap_or(bytes.len() / 2).min(bytes.len());
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(&bytes[..count], offset).unwrap();
        };
        self.0.act(|| RealDisk.append(path, offset, bytes), partly)
    }

    fn reserve(&self, path: &Path, offset: u64, length: u64) -> io::Result<()> {
        self.0.act(|| RealDisk.reserve(path, offset, length), |_| ())
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        self.0.act(|| RealDisk.truncate(path, length), |_| ())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockedFile>>> {
        RealDisk.lock(path)
    }

    fn passable_directory(&self, path: &Path) -> io::Result<()> {
        self.0.act(|| RealDisk.passable_directory(path), |_| RealDisk.passable_directory(path).unwrap())
    }

    fn plant(&self, tree: &Tree<'_>) -> io::Result<()> {
        self.0.act(|| RealDisk.plant(tree), |_| std::fs::create_dir(tree.root).unwrap())
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        self.0.act(|| RealDisk.remove_tree(path), |_| RealDisk.remove_tree(path).unwrap())
    }
}
