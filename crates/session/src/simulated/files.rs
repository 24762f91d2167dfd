//! A modelled file system: what programs see, and what a power loss would leave of it.
//!
//! The model: a file's content and mode are on the disk after fsync of the file, a directory's entries after fsync of
//! the directory (fsync(2)). What was not brought there may be lost or kept, each on its own, and a file may have any part of
//! what was written since. Writes can fail at any byte; disks fill up, and become read-only.

use crate::simulated::random::Random;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use webdyno_host::change::action::OldFile;
use webdyno_host::change::seams::disk::sha256_hex;
use webdyno_host::change::seams::tree::Tree;

/// Free space of a disk that nobody filled up.
const PLENTY_BYTES: u64 = 1 << 30;

/// Which disk a path is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The configuration.
    Etc = 0,
    /// The journals.
    Var = 1,
}

/// How far an act gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteProgress {
    /// It is done.
    Whole,
    /// Nothing of it happens.
    None,
    /// So much of it, in 65536ths, and nothing is brought to the disk.
    Part(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    File(usize),
    Directory,
}

/// Entries that change together; `None` for a name that goes.
type DirectoryUpdate = Vec<(String, Option<Node>)>;

#[derive(Debug, Clone, Default)]
struct Directory {
    entries: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    /// What was done since the directory was last brought to the disk.
    pending: Vec<DirectoryUpdate>,
}

#[derive(Debug, Clone)]
struct Inode {
    file: OldFile,
    durable: Option<OldFile>,
    device: Device,
    /// Room is set aside up to here.
    reserved_to: u64,
    /// What was written and cut off again since the file was last brought to the disk: it may be there all the same.
    ghost: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy)]
struct FreeSpace {
    free_bytes: u64,
    read_only: bool,
}

/// All files of a machine.
#[derive(Debug, Clone)]
pub struct Files {
    directories: BTreeMap<PathBuf, Directory>,
    inodes: Vec<Inode>,
    spaces: [FreeSpace; 2],
    /// Whether journals and configuration are on one disk.
    is_single_disk: bool,
}

impl Files {
    /// With some directories, their parents first, and nothing in them.
    pub fn new(directories: &[&str], one_disk: bool) -> Self {
        let space = FreeSpace { free_bytes: PLENTY_BYTES, read_only: false };
        let mut files = Self {
            directories: BTreeMap::new(),
            inodes: vec![],
            spaces: [space; 2],
            is_single_disk: one_disk,
        };
        for path in directories {
            let path = Path::new(path);
            files.directories.insert(path.to_owned(), Directory::default());
            if let Some((parent, name)) = split(path) {
                let parent = files.directories.entry(parent).or_default();
                parent.entries.insert(name.clone(), Node::Directory);
                parent.durable.insert(name, Node::Directory);
            }
        }
        files
    }

    fn device(&self, path: &Path) -> Device {
        if self.is_single_disk || path.starts_with("/etc") { Device::Etc } else { Device::Var }
    }

    /// Another program leaves that little space.
    pub fn set_free_bytes(&mut self, path: &Path, free_bytes: u64) {
        let device = self.device(path);
        self.spaces[device as usize].free_bytes = free_bytes;
    }

    /// The kernel remounts it read-only after an error.
    pub fn make_read_only(&mut self, path: &Path) {
        let device = self.device(path);
        self.spaces[device as usize].read_only = true;
    }

    /// The operator makes room and mounts everything again.
    pub fn repair(&mut self) {
        self.spaces = [FreeSpace { free_bytes: PLENTY_BYTES, read_only: false }; 2];
    }

    fn writable(&self, path: &Path) -> io::Result<Device> {
        let device = self.device(path);
        match self.spaces[device as usize].read_only {
            true => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            false => Ok(device),
        }
    }

    fn node(&self, path: &Path) -> Option<Node> {
        let (parent, name) = split(path)?;
        self.directories.get(&parent)?.entries.get(&name).copied()
    }

    fn inode(&mut self, path: &Path) -> io::Result<&mut Inode> {
        match self.node(path) {
            Some(Node::File(index)) => Ok(&mut self.inodes[index]),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The file at a path.
    pub fn read(&self, path: &Path) -> Option<&OldFile> {
        match self.node(path)? {
            Node::File(index) => Some(&self.inodes[index].file),
            Node::Directory => None,
        }
    }

    /// Whether there is such a directory.
    pub fn is_directory(&self, path: &Path) -> bool {
        self.directories.contains_key(path)
    }

    /// The names in a directory.
    pub fn list(&self, folder: &Path) -> Option<Vec<&str>> {
        Some(self.directories.get(folder)?.entries.keys().map(String::as_str).collect())
    }

    /// All files below a directory, with their paths.
    pub fn below(&self, folder: &Path) -> BTreeMap<PathBuf, OldFile> {
        let within = self.directories.iter().filter(|(path, _)| path.starts_with(folder));
        let all =
            within.flat_map(|(path, found)| found.entries.iter().map(move |(name, node)| (path, name, node)));
        let file = |(path, name, node): (&PathBuf, &String, &Node)| match node {
            Node::File(index) => Some((path.join(name), self.inodes[*index].file.clone())),
            Node::Directory => None,
        };
        all.filter_map(file).collect()
    }

    fn change(&mut self, folder: &Path, step: DirectoryUpdate) -> io::Result<()> {
        let found = self.directories.get_mut(folder).ok_or(io::ErrorKind::NotFound)?;
        for (name, node) in &step {
            match node {
                Some(node) => drop(found.entries.insert(name.clone(), *node)),
                None => drop(found.entries.remove(name)),
            }
        }
        found.pending.push(step);
        Ok(())
    }

    /// Takes space; gives how much of it there was.
    fn take_space(&mut self, device: Device, bytes: u64) -> u64 {
        let free = &mut self.spaces[device as usize].free_bytes;
        let taken = bytes.min(*free);
        *free -= taken;
        taken
    }

    fn release_space(&mut self, device: Device, bytes: u64) {
        self.spaces[device as usize].free_bytes += bytes;
    }

    /// Creates a file that must not exist yet.
    pub fn create(&mut self, path: &Path, file: &OldFile, progress: WriteProgress) -> io::Result<()> {
        let device = self.writable(path)?;
        let (folder, name) = split(path).ok_or(io::ErrorKind::InvalidInput)?;
        if self.node(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if progress == WriteProgress::None {
            return Ok(());
        }
        let length = part(file.content.len(), progress);
        let fits = self.take_space(device, length as u64) as usize;
        let whole = progress == WriteProgress::Whole && fits == length;
        let file = match whole {
            true => with_checksum(file.clone()),
            false => with_checksum(OldFile {
                content: file.content[..fits].to_vec(),
                mode: 0o600,
                modified: None,
                attributes: BTreeMap::new(),
                ..file.clone()
            }),
        };
        let durable = whole.then(|| file.clone());
        self.inodes.push(Inode { file, durable, device, reserved_to: 0, ghost: None });
        self.change(&folder, vec![(name, Some(Node::File(self.inodes.len() - 1)))])?;
        if fits < length { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Gives a file another name in its directory.
    pub fn rename(
        &mut self,
        from: &Path,
        to: &Path,
        may_replace: bool,
        progress: WriteProgress,
    ) -> io::Result<()> {
        self.writable(to)?;
        let node = self.node(from).ok_or(io::ErrorKind::NotFound)?;
        if self.node(to).is_some() && !may_replace {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (folder, old) = split(from).ok_or(io::ErrorKind::InvalidInput)?;
        let (_, new) = split(to).ok_or(io::ErrorKind::InvalidInput)?;
        if progress == WriteProgress::None {
            return Ok(());
        }
        self.release(to);
        self.change(&folder, vec![(old, None), (new, Some(node))])
    }

    /// Removes a file; one that is not there is no error.
    pub fn remove(&mut self, path: &Path, progress: WriteProgress) -> io::Result<()> {
        self.writable(path)?;
        if progress == WriteProgress::None || self.read(path).is_none() {
            return Ok(());
        }
        let (folder, name) = split(path).ok_or(io::ErrorKind::InvalidInput)?;
        self.release(path);
        self.change(&folder, vec![(name, None)])
    }

    /// Gives back the space of a file that goes.
    fn release(&mut self, path: &Path) {
        let Some(Node::File(index)) = self.node(path) else { return };
        let inode = &self.inodes[index];
        self.release_space(inode.device, (inode.file.content.len() as u64).max(inode.reserved_to));
    }

    /// Brings the entries of a directory to the disk.
    pub fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        let found = self.directories.get_mut(path).ok_or(io::ErrorKind::NotFound)?;
        found.durable.clone_from(&found.entries);
        found.pending.clear();
        Ok(())
    }

    /// Creates a directory, if it is not there yet.
    pub fn create_directory(&mut self, path: &Path) -> io::Result<()> {
        if self.directories.contains_key(path) {
            return Ok(());
        }
        self.writable(path)?;
        let (parent, name) = split(path).ok_or(io::ErrorKind::InvalidInput)?;
        self.change(&parent, vec![(name, Some(Node::Directory))])?;
        self.directories.insert(path.to_owned(), Directory::default());
        Ok(())
    }

    /// Removes a directory if nothing is in it; whether it was so.
    pub fn remove_empty_directory(&mut self, path: &Path) -> io::Result<bool> {
        self.writable(path)?;
        if self.directories.get(path).is_none_or(|found| !found.entries.is_empty()) {
            return Ok(false);
        }
        let (parent, name) = split(path).ok_or(io::ErrorKind::InvalidInput)?;
        self.change(&parent, vec![(name, None)])?;
        self.directories.remove(path);
        Ok(true)
    }

    /// Creates a tree of files that nothing brings to the disk.
    pub fn create_tree(&mut self, tree: &Tree<'_>, progress: WriteProgress) -> io::Result<()> {
        if self.is_directory(tree.root) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let folders = tree.files.iter().filter_map(|(path, _)| path.parent());
        let folders = folders.chain(tree.folders.iter().map(|folder| folder.path.as_path()));
        for folder in folders {
            let mut missing: Vec<&Path> =
                folder.ancestors().take_while(|path| !self.is_directory(path)).collect();
            missing.reverse();
            missing.into_iter().try_for_each(|path| self.create_directory(path))?;
        }
        for (path, content) in tree.files.iter().take(part(tree.files.len(), progress)) {
            self.create(path, &new_file(content.clone(), 0o600), WriteProgress::Part(65536))?;
        }
        Ok(())
    }

    /// Removes a directory with all that is in it.
    pub fn remove_tree(&mut self, path: &Path, progress: WriteProgress) -> io::Result<()> {
        let files: Vec<PathBuf> = self.below(path).into_keys().collect();
        let count = part(files.len(), progress);
        files.iter().take(count).try_for_each(|file| self.remove(file, WriteProgress::Whole))?;
        if progress != WriteProgress::Whole {
            return Ok(());
        }
        let mut folders: Vec<PathBuf> =
            self.directories.keys().filter(|at| at.starts_with(path)).cloned().collect();
        folders.reverse();
        folders.iter().try_for_each(|folder| self.remove_empty_directory(folder).map(drop))
    }

    /// Writes at an offset and brings it to the disk.
    pub fn append(
        &mut self,
        path: &Path,
        offset: u64,
        bytes: &[u8],
        progress: WriteProgress,
    ) -> io::Result<()> {
        let device = self.writable(path)?;
        let inode = self.inode(path)?;
        let (length, room) = (inode.file.content.len() as u64, inode.reserved_to);
        let end = offset + part(bytes.len(), progress) as u64;
        let fits = match end.saturating_sub(length.max(room)) {
            0 => end,
            more => end - (more - self.take_space(device, more)),
        };
        let inode = self.inode(path)?;
        inode.file.content.resize(offset as usize, 0);
        inode.file.content.extend_from_slice(&bytes[..(fits.max(offset) - offset) as usize]);
        if progress == WriteProgress::Whole && fits == end {
            inode.durable = Some(inode.file.clone());
            inode.ghost = None;
        }
        if fits < end { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Sets room aside.
    pub fn reserve(&mut self, path: &Path, to: u64) -> io::Result<()> {
        let device = self.writable(path)?;
        let inode = self.inode(path)?;
        let more = to.saturating_sub((inode.file.content.len() as u64).max(inode.reserved_to));
        let taken = self.take_space(device, more);
        if taken < more {
            self.release_space(device, taken);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inode = self.inode(path)?;
        inode.reserved_to = inode.reserved_to.max(to);
        Ok(())
    }

    /// Cuts a file off, and gives back the room behind it. Not brought to the disk.
    pub fn truncate(&mut self, path: &Path, length: u64) -> io::Result<()> {
        let device = self.writable(path)?;
        let inode = self.inode(path)?;
        let had = (inode.file.content.len() as u64).max(inode.reserved_to);
        if inode.file.content.len() as u64 > length {
            inode.ghost = Some(inode.file.content.clone());
        }
        inode.file.content.truncate(length as usize);
        inode.reserved_to = 0;
        self.release_space(device, had.saturating_sub(length));
        Ok(())
    }

    /// Content that is not brought to the disk, in a file that is created if need be: what nobody relies on.
    pub fn write_volatile(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.writable(path)?;
        if self.node(path).is_none() {
            let file = new_file(vec![], 0o600);
            self.create(path, &file, WriteProgress::Part(65536))?;
        }
        self.inode(path)?.file.content = content.to_vec();
        Ok(())
    }

    /// What an operator does: a file gets this content, or goes, and that is on the disk at once.
    pub fn write_durable(&mut self, path: &Path, file: Option<OldFile>) {
        let Some((folder, name)) = split(path) else { return };
        let node = file.map(|file| {
            let file = with_checksum(file);
            let device = self.device(path);
            self.inodes.push(Inode {
                durable: Some(file.clone()),
                file,
                device,
                reserved_to: 0,
                ghost: None,
            });
            Node::File(self.inodes.len() - 1)
        });
        let Some(found) = self.directories.get_mut(&folder) else { return };
        for entries in [&mut found.entries, &mut found.durable] {
            match node {
                Some(node) => drop(entries.insert(name.clone(), node)),
                None => drop(entries.remove(&name)),
            }
        }
        // What others did to this name before is overtaken.
        found.pending.iter_mut().for_each(|step| step.retain(|(changed, _)| *changed != name));
    }

    /// What surely survives a power loss of a directory's files: names and contents.
    pub fn durable_in(&self, folder: &Path) -> Vec<(&str, &[u8])> {
        let is_there = |path: &Path| {
            split(path).is_none_or(|(parent, name)| {
                self.directories.get(&parent).is_some_and(|found| found.durable.contains_key(&name))
            })
        };
        let Some(found) = self.directories.get(folder).filter(|_| folder.ancestors().all(is_there)) else {
            return vec![];
        };
        let mut all = vec![];
        for (name, node) in &found.durable {
            let Node::File(index) = node else { continue };
            let durable = self.inodes[*index].durable.as_ref();
            all.extend(durable.map(|file| (name.as_str(), file.content.as_slice())));
        }
        all
    }

    /// The power fails: what was not brought to the disk is lost or kept, as it happens.
    pub fn lose_power(&mut self, random: &mut Random) {
        for found in self.directories.values_mut() {
            for step in std::mem::take(&mut found.pending) {
                if random.one_in(2) {
                    continue;
                }
                for (name, node) in step {
                    match node {
                        Some(node) => drop(found.durable.insert(name, node)),
                        None => drop(found.durable.remove(&name)),
                    }
                }
            }
            found.entries.clone_from(&found.durable);
        }
        let kept: Vec<PathBuf> =
            self.directories.keys().filter(|path| self.is_reachable(path)).cloned().collect();
        self.directories.retain(|path, _| kept.contains(path));
        for inode in &mut self.inodes {
            if let Some(ghost) = inode.ghost.take().filter(|_| random.one_in(2)) {
                inode.file.content = ghost;
            }
            if inode.durable.as_ref() != Some(&inode.file) {
                inode.file = torn_file(inode, random);
            }
            inode.durable = Some(inode.file.clone());
            inode.reserved_to = 0;
        }
    }

    fn is_reachable(&self, path: &Path) -> bool {
        path.ancestors().all(|path| {
            split(path).is_none_or(|(parent, name)| {
                self.directories.get(&parent).is_some_and(|found| found.entries.contains_key(&name))
            })
        })
    }
}

/// What is left of a file that was not brought to the disk whole.
fn torn_file(inode: &Inode, random: &mut Random) -> OldFile {
    let written = &inode.file;
    let old = inode.durable.clone().unwrap_or_else(|| new_file(vec![], 0o600));
    let length = written.content.len();
    // What was on the disk before stays there, if it was not overwritten.
    let kept = written.content.iter().zip(&old.content).take_while(|(new, old)| new == old).count();
    let cut = kept + random.up_to(length - kept);
    with_checksum(match random.below(4) {
        0 => old,
        1 => written.clone(),
        2 => OldFile { content: written.content[..cut].to_vec(), ..written.clone() },
        // The length reached the disk, and not all of the bytes.
        _ => {
            let mut content = written.content.clone();
            let end = cut + random.up_to(length - cut);
            content[cut..end].fill(0);
            OldFile { content, ..written.clone() }
        }
    })
}

/// A file of root's.
pub fn new_file(content: Vec<u8>, mode: u32) -> OldFile {
    let sha256 = String::new();
    with_checksum(OldFile {
        content,
        sha256,
        mode,
        uid: 0,
        gid: 0,
        modified: None,
        attributes: BTreeMap::new(),
    })
}

fn with_checksum(file: OldFile) -> OldFile {
    OldFile { sha256: sha256_hex(&file.content), ..file }
}

fn part(length: usize, progress: WriteProgress) -> usize {
    match progress {
        WriteProgress::Whole => length,
        WriteProgress::None => 0,
        WriteProgress::Part(share) => (length as u64 * share.min(65536) / 65536) as usize,
    }
}

fn split(path: &Path) -> Option<(PathBuf, String)> {
    Some((path.parent()?.to_owned(), path.file_name()?.to_str()?.to_owned()))
}
