//! Whose an address is: the programs that run, and the files that are mapped into them.
//!
//! Facts: proc_pid_maps(5): `BEGIN-END PERMISSIONS OFFSET DEVICE INODE PATH`, in octal escapes for a line feed; of memory
//! without a file, such as code that an interpreter translates while it runs, there is no path. Files are opened below
//! `/proc/PID/root`, as a process in a container has names of its own; open(2): what is opened with O_PATH is not opened for what it
//! is, and can be through `/proc/self/fd`.

use super::symbols::SharedObject;
use crate::os::procfs;
use crate::visibility::process_view::Root;
use rustix::fs::{OFlags, major, minor};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Processes that are remembered.
const PROCESSES_MAX: usize = 4_096;
/// Shared objects whose names are remembered.
const OBJECTS_MAX: usize = 256;
/// Parents between a worker and the main process of its program.
const PARENTS_MAX: usize = 8;
/// What stands for code without a file.
const ANONYMOUS: &str = "[anon]";
const UNKNOWN: &str = "[unknown]";

/// A part of a process's memory with code in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::collectors::processes) struct Region {
    pub(in crate::collectors::processes) begin: u64,
    end: u64,
    pub(in crate::collectors::processes) offset: u64,
    /// Device and inode: the same file below several names is read once.
    file: String,
    pub(in crate::collectors::processes) path: String,
}

impl Region {
    /// The mapped file, for reading. An error where something else has its name by now: that is not opened, as it may be a FIFO, on
    /// which one waits, or a device.
    pub(in crate::collectors::processes) fn open(&self, pid: u32) -> io::Result<File> {
        let held = File::from(Root::of(pid).open(&self.path, OFlags::PATH)?);
        if !self.is_file(&held.metadata()?) {
            return Err(io::Error::other(format!("{} was replaced since it was mapped", self.path)));
        }
        File::open(format!("/proc/self/fd/{}", held.as_raw_fd()))
    }

    /// File systems of layers and of subvolumes (overlayfs, btrfs) have devices of their own for stat(2), of the major number 0: there
    /// the inode alone tells.
    fn is_file(&self, found: &Metadata) -> bool {
        let (major, minor) = (major(found.dev()), minor(found.dev()));
        let is_device = |device: &str| major == 0 || device == format!("{major:02x}:{minor:02x}");
        let is_it = |(device, inode): (&str, &str)| inode == found.ino().to_string() && is_device(device);
        found.is_file() && self.file.split_once(' ').is_some_and(is_it)
    }
}

/// The parts with code in the text of `/proc/PID/maps`.
pub(in crate::collectors::processes) fn regions(text: &str) -> Vec<Region> {
    text.lines().filter_map(region).collect()
}

fn region(line: &str) -> Option<Region> {
    let mut words = line.splitn(6, ' ');
    let (begin, end) = words.next()?.split_once('-')?;
    let is_code = words.next()?.contains('x');
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = number(words.next()?)?;
    let (device, inode) = (words.next()?, words.next()?);
    let path = words.next().unwrap_or_default().trim_start();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path).to_owned();
    let region =
        Region { begin: number(begin)?, end: number(end)?, offset, file: format!("{device} {inode}"), path };
    is_code.then_some(region)
}

/// The last part of a path.
pub(in crate::collectors::processes) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A process as it was seen last.
#[derive(Debug, Clone)]
struct Process {
    program: String,
    regions: Vec<Region>,
    is_service: bool,
    read_in: u64,
}

/// The processes of the machine as far as samples hit them.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: BTreeMap<u32, Process>,
    objects: BTreeMap<String, SharedObject>,
    mains: BTreeSet<u32>,
    readings_count: u64,
    /// Parents and names that the kernel told: all that is left of a process that has ended.
    parents: BTreeMap<u32, u32>,
    names: BTreeMap<u32, String>,
}

impl Processes {
    /// Begins a reading, about the programs of these main processes.
    pub(super) fn begin(&mut self, mains: BTreeSet<u32>) {
        if self.mains != mains || self.known.len() > PROCESSES_MAX {
            self.known.clear();
        }
        if self.parents.len().max(self.names.len()) > PROCESSES_MAX {
            self.parents.clear();
            self.names.clear();
        }
        self.mains = mains;
        self.readings_count += 1;
    }

    /// What the kernel told since: the children with their parents, and what processes are called. Whoever was forked or executes
    /// another program is no longer who had that number.
    pub(super) fn learn(&mut self, forks: Vec<(u32, u32)>, names: Vec<(u32, String)>) {
        for (pid, _) in &forks {
            self.known.remove(pid);
            self.names.remove(pid);
        }
        for (pid, _) in &names {
            self.known.remove(pid);
        }
        self.parents.extend(forks);
        self.names.extend(names);
    }

    fn read(&self, pid: u32) -> Process {
        let told =
            |pid: &u32| procfs::stat(*pid).ok().map(|stat| stat.ppid).or(self.parents.get(pid).copied());
        let parents =
            || std::iter::successors(Some(pid), |pid| told(pid).filter(|pid| *pid > 1)).take(PARENTS_MAX);
        let name = || procfs::stat(pid).ok().map(|stat| kernel_thread(&stat));
        let program = procfs::executable(pid).ok().map(|(path, _)| base_name(&path).to_owned());
        let ended = || parents().find_map(|pid| self.names.get(&pid).cloned());
        let is_service = parents().any(|pid| self.mains.contains(&pid));
        let maps = || procfs::read_text(format!("/proc/{pid}/maps")).ok();
        Process {
            program: program.or_else(name).or_else(ended).unwrap_or_else(|| UNKNOWN.into()),
            regions: is_service.then(maps).flatten().map_or(vec![], |text| regions(&text)),
            is_service,
            read_in: self.readings_count,
        }
    }

    fn process(&mut self, pid: u32) -> &Process {
        if !self.known.contains_key(&pid) {
            let read = self.read(pid);
            self.known.insert(pid, read);
        }
        &self.known[&pid]
    }

    /// The name of the program, and whether it is of the service.
    pub(super) fn program(&mut self, pid: u32) -> (String, bool) {
        let process = self.process(pid);
        (process.program.clone(), process.is_service)
    }

    /// The shared object that an address of a process is in, and the function, if it has a name.
    pub(super) fn place(&mut self, pid: u32, address: u64) -> (String, Option<String>) {
        let Some(region) = self.region(pid, address) else { return (UNKNOWN.into(), None) };
        if !region.path.starts_with('/') {
            let name = if region.path.is_empty() { ANONYMOUS } else { &region.path };
            return (name.to_owned(), None);
        }
        let object = self.object(pid, &region);
        let function = object.name(address - region.begin + region.offset);
        (base_name(&region.path).to_owned(), function)
    }

    fn object(&mut self, pid: u32, region: &Region) -> &SharedObject {
        if self.objects.len() >= OBJECTS_MAX {
            self.objects.clear();
        }
        self.objects
            .entry(region.file.clone())
            .or_insert_with(|| region.open(pid).map_or_else(|_| SharedObject::default(), SharedObject::of))
    }

    /// Reads the names of the objects of the main processes: while a load saturates the processors, there is no time for it.
    pub(super) fn read_objects(&mut self) {
        for pid in self.mains.clone() {
            let regions = self.process(pid).regions.clone();
            for region in regions.iter().filter(|region| region.path.starts_with('/')).take(OBJECTS_MAX / 2) {
                self.object(pid, region);
            }
        }
    }

    /// An address that was not there may have been mapped since, or be that of another process of the same number.
    fn region(&mut self, pid: u32, address: u64) -> Option<Region> {
        let is_in = |region: &&Region| (region.begin..region.end).contains(&address);
        let found = self.process(pid).regions.iter().find(is_in).cloned();
        if found.is_some() || self.process(pid).read_in == self.readings_count {
            return found;
        }
        self.known.remove(&pid);
        self.process(pid).regions.iter().find(is_in).cloned()
    }
}

/// A kernel thread is told by what it does, on whatever core.
fn kernel_thread(stat: &procfs::Stat) -> String {
    match stat.group {
        0 => format!("[{}]", stat.name.split(['/', ':']).next().unwrap_or_default()),
        _ => stat.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_a_process_is_told_from_its_data() {
        let text = "55d0c0a00000-55d0c0a21000 r--p 00000000 fe:00 131 /usr/sbin/apache2\n\
            55d0c0a21000-55d0c0a80000 r-xp 00021000 fe:00 131                        /usr/sbin/apache2\n\
            7f0000000000-7f0000001000 r-xp 00002000 fe:00 77 /usr/lib/my lib.so (deleted)\n\
            7f0000100000-7f0000200000 rwxp 00000000 00:00 0 \n\
            7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]\n\
            nonsense\n";
        let found = regions(text);
        let paths: Vec<_> = found.iter().map(|region| (region.path.as_str(), region.offset)).collect();
        let expected =
            [("/usr/sbin/apache2", 0x21000), ("/usr/lib/my lib.so", 0x2000), ("", 0), ("[vdso]", 0)];
        assert_eq!(paths, expected);
        assert_eq!((found[0].begin, found[0].file.as_str()), (0x55d0_c0a2_1000, "fe:00 131"));
    }

    #[test]
    fn this_process_is_found_with_its_program_and_its_parent() {
        let mut processes = Processes::default();
        processes.begin(BTreeSet::from([std::os::unix::process::parent_id()]));
        let own = std::process::id();
        let (program, is_service) = processes.program(own);
        assert!(program.contains("webdyno_host") && is_service, "{program}");
        let code = processes.known[&own].regions.clone();
        let text = code.iter().find(|region| region.path.contains("webdyno_host")).unwrap();
        assert_eq!(processes.place(own, text.begin + 1).0, program);
        assert_eq!(processes.place(own, 1), (UNKNOWN.to_owned(), None));
        processes.learn(vec![(4_000_002, 4_000_001)], vec![(4_000_001, "cgi".into())]);
        assert_eq!(processes.program(4_000_002), ("cgi".to_owned(), false), "it has ended");
    }

    #[test]
    fn of_a_number_that_is_taken_again_the_new_program_is_told() {
        let (own, ended) = (std::process::id(), 4_000_002);
        let former = Process { program: "former".into(), regions: vec![], is_service: false, read_in: 0 };
        for (forks, names) in [(vec![(own, 1)], vec![]), (vec![], vec![(own, "new".to_owned())])] {
            let mut processes = Processes::default();
            processes.known.insert(own, former.clone());
            assert_eq!(processes.program(own).0, "former");
            processes.learn(forks, names);
            assert_ne!(processes.program(own).0, "former");
        }
        let mut processes = Processes::default();
        processes.learn(vec![(ended, 4_000_001)], vec![(ended, "former".into()), (4_000_001, "cgi".into())]);
        assert_eq!(processes.program(ended).0, "former");
        processes.learn(vec![(ended, 4_000_001)], vec![]);
        assert_eq!(
            processes.program(ended).0,
            "cgi",
            "it is called as its parent until it is told otherwise"
        );
    }

    // Both ends of the FIFO are open, so that opening it would not wait.
    #[test]
    fn what_has_the_name_of_a_mapped_file_by_now_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("mapped.so"), "code").unwrap();
        std::fs::write(at("other.so"), "code").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo.so"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let _ends = File::options().read(true).write(true).open(at("fifo.so")).unwrap();
        let region = |name: &str, inode_of: &str| {
            let found = std::fs::metadata(at(inode_of)).unwrap();
            let file = format!("{:02x}:{:02x} {}", major(found.dev()), minor(found.dev()), found.ino());
            Region { begin: 0, end: 1, offset: 0, file, path: at(name).display().to_string() }
        };
        for (name, inode_of, is_opened) in [
            ("mapped.so", "mapped.so", true),
            ("other.so", "mapped.so", false),
            ("fifo.so", "mapped.so", false),
            ("fifo.so", "fifo.so", false),
        ] {
            let opened = region(name, inode_of).open(std::process::id());
            assert_eq!(opened.is_ok(), is_opened, "{name} for {inode_of}: {opened:?}");
        }
        let text = procfs::read_text("/proc/self/maps").unwrap();
        let own = regions(&text).into_iter().find(|region| region.path.contains("webdyno_host")).unwrap();
        assert!(own.open(std::process::id()).is_ok(), "as the kernel writes it: {own:?}");
    }
}
