//! Where sessions belong: the table of what was, what is, and what is seen of the machine.

use crate::change::location::location_match::{LocationMatch, MachineView, location_match};
use crate::change::seams::helper::Entrance;
use crate::change::seams::session_location::SessionLocation;
use std::collections::BTreeMap;
use webdyno_model::service::FileId;

/// The first pid namespace of a kernel.
const INITIAL: u64 = 4_026_531_836;
/// The named network of the session of these tests.
const NAMED: &str = "/run/netns/web";

fn id(inode: u64) -> FileId {
    FileId { device: 4, inode }
}

fn disk(device: u64, inodes: [u64; 2]) -> BTreeMap<String, FileId> {
    let file = |inode| FileId { device, inode };
    [("/".to_owned(), file(inodes[0])), ("/etc".to_owned(), file(inodes[1]))].into()
}

/// The machine itself.
fn machine() -> SessionLocation {
    let namespaces = [("net", 1), ("mnt", 2), ("pid", INITIAL), ("user", 3)];
    SessionLocation {
        namespaces: namespaces.into_iter().map(|(name, inode)| (name.to_owned(), id(inode))).collect(),
        directories: disk(8, [2, 20]),
        first_process: Some(1),
        with_first_process: ["net", "mnt", "pid", "user", "root"].map(str::to_owned).into(),
        state: "/var/lib/webdyno".into(),
        root_of_journal: Some("/".into()),
        ..SessionLocation::default()
    }
}

/// The network namespace `web` of it.
fn in_network() -> SessionLocation {
    let mut there = SessionLocation { network_file: Some(NAMED.into()), ..machine() };
    there.namespaces.insert("net".into(), id(50));
    there.with_first_process.remove("net");
    there
}

/// A container on it.
fn container() -> SessionLocation {
    let namespaces = [("net", 60), ("mnt", 61), ("pid", 62), ("user", 3)];
    SessionLocation {
        namespaces: namespaces.into_iter().map(|(name, inode)| (name.to_owned(), id(inode))).collect(),
        directories: disk(90, [100, 120]),
        first_process: Some(7000),
        ..machine()
    }
}

/// The same after it was started anew: its disk has another number.
fn container_anew() -> SessionLocation {
    let namespaces = [("net", 70), ("mnt", 71), ("pid", 72), ("user", 3)];
    SessionLocation {
        namespaces: namespaces.into_iter().map(|(name, inode)| (name.to_owned(), id(inode))).collect(),
        directories: disk(91, [100, 120]),
        first_process: Some(9000),
        ..container()
    }
}

/// What is seen: processes that are old enough, each where one of these locations is, and files.
#[derive(Default)]
struct PretendedView {
    pids: Vec<u32>,
    processes: BTreeMap<u32, SessionLocation>,
    files: BTreeMap<String, FileId>,
    blind: bool,
}

impl PretendedView {
    fn process(mut self, pid: u32, location: SessionLocation) -> Self {
        self.pids.push(pid);
        let network = location.namespaces["net"];
        self.processes.insert(pid, location);
        self.file(&format!("/proc/{pid}/ns/net"), network.inode)
    }

    fn file(mut self, path: &str, inode: u64) -> Self {
        self.files.insert(path.into(), id(inode));
        self
    }
}

impl MachineView for PretendedView {
    fn old_processes(&self) -> &[u32] {
        &self.pids
    }

    fn namespace(&self, pid: u32, name: &str) -> Option<FileId> {
        self.processes.get(&pid)?.namespaces.get(name).copied()
    }

    fn directories(&self, pid: u32) -> BTreeMap<String, FileId> {
        self.processes[&pid].directories.clone()
    }

    fn file(&self, path: &str) -> Option<FileId> {
        self.files.get(path).copied()
    }

    fn has_full_view(&self) -> bool {
        !self.blind
    }
}

fn enter(process: Option<(u32, u64)>, network: Option<(&str, u64)>) -> LocationMatch {
    LocationMatch::There(Box::new(Entrance {
        process: process.map(|(pid, pids)| (pid, id(pids))),
        network: network.map(|(path, inode)| (path.to_owned(), id(inode))),
        state: "/var/lib/webdyno".into(),
    }))
}

fn unreachable(standing: &LocationMatch) -> bool {
    matches!(standing, LocationMatch::Unreachable(_))
}

#[test]
fn what_was_on_the_machine_is_undone_on_the_machine() {
    let nothing = PretendedView::default();
    assert_eq!(location_match(&machine(), &machine(), true, &[], &nothing), LocationMatch::Here);
    // After a boot, also when disks got other numbers, or an update of the kernel gave its first network another one.
    let mut later = SessionLocation { directories: disk(9, [2, 20]), first_process: Some(2), ..machine() };
    later.namespaces.insert("net".into(), id(11));
    assert_eq!(location_match(&machine(), &later, false, &[], &nothing), LocationMatch::Here);
    // Others may not even look at process 1.
    let without = |of: SessionLocation| SessionLocation { with_first_process: [].into(), ..of };
    let blind = PretendedView { blind: true, ..PretendedView::default() };
    for same_boot in [true, false] {
        assert_eq!(
            location_match(&without(machine()), &without(machine()), same_boot, &[], &blind),
            LocationMatch::Here
        );
    }
    // A shell in a mount namespace with the same files, but for a folder that is covered there.
    let mut covered = machine();
    covered.namespaces.insert("mnt".into(), id(30));
    let folders = [("/srv/conf".to_owned(), id(40))];
    for (now, expected) in [(40, false), (41, true)] {
        let seen = PretendedView::default().file("/srv/conf", now);
        assert_eq!(
            unreachable(&location_match(&machine(), &covered, true, &folders, &seen)),
            expected,
            "{now}"
        );
    }
}

#[test]
fn a_network_namespace_is_entered_by_a_process_or_by_its_name() {
    let process = || PretendedView::default().process(7, in_network());
    let through_process = enter(None, Some(("/proc/7/ns/net", 50)));
    let through_name = |inode| enter(None, Some((NAMED, inode)));
    for (now, seen, expected) in [
        (machine(), process(), through_process),
        (machine(), PretendedView::default().file(NAMED, 50), through_name(50)),
        (in_network(), PretendedView::default().file(NAMED, 50), LocationMatch::Here),
        (in_network(), process(), LocationMatch::Here),
        // Made anew under its name.
        (machine(), PretendedView::default().file(NAMED, 55), through_name(55)),
        (machine(), PretendedView::default(), LocationMatch::FilesOnly),
        (
            machine(),
            PretendedView { blind: true, ..PretendedView::default() },
            LocationMatch::Unreachable("its network is another namespace"),
        ),
    ] {
        assert_eq!(location_match(&in_network(), &now, true, &[], &seen), expected);
    }
    // Its number is another one's now: nothing in there is as old as the session.
    assert_eq!(
        location_match(&in_network(), &in_network(), true, &[], &PretendedView::default()),
        LocationMatch::FilesOnly
    );
    let unnamed = |of: SessionLocation| SessionLocation { network_file: None, ..of };
    let named_elsewhere = PretendedView::default().file("/run/netns/other", 50);
    assert_eq!(
        location_match(&unnamed(in_network()), &machine(), true, &[], &named_elsewhere),
        LocationMatch::FilesOnly
    );
    // After a boot only its name leads there.
    assert_eq!(
        location_match(&in_network(), &machine(), false, &[], &PretendedView::default()),
        LocationMatch::FilesOnly
    );
    assert_eq!(
        location_match(&in_network(), &machine(), false, &[], &PretendedView::default().file(NAMED, 9)),
        through_name(9)
    );
    // The file that the namespace was mounted on.
    let mut file = PretendedView::default();
    file.files.insert(NAMED.into(), FileId { device: 8, inode: 50 });
    assert_eq!(location_match(&in_network(), &machine(), true, &[], &file), LocationMatch::FilesOnly);
    // What was on the machine is not undone from in there, but entered through process 1.
    let first = PretendedView::default().process(1, machine());
    assert_eq!(
        location_match(&machine(), &in_network(), true, &[], &first),
        enter(None, Some(("/proc/1/ns/net", 1)))
    );
}

#[test]
fn a_container_is_entered_or_left_alone() {
    let alive = || PretendedView::default().process(500, container());
    let entered = enter(Some((500, 62)), Some(("/proc/500/ns/net", 60)));
    assert_eq!(location_match(&container(), &machine(), true, &[], &alive()), entered);
    assert_eq!(
        location_match(&container(), &container(), true, &[], &PretendedView::default()),
        LocationMatch::Here
    );
    // Another one, which has the same numbers now that the first one is gone, and another disk.
    let reused =
        SessionLocation { directories: disk(91, [300, 320]), first_process: Some(9000), ..container() };
    for now in [machine(), reused.clone()] {
        for same_boot in [true, false] {
            assert!(
                unreachable(&location_match(&container(), &now, same_boot, &[], &PretendedView::default())),
                "{now:?}"
            );
        }
    }
    let other = PretendedView::default().process(500, reused);
    assert!(unreachable(&location_match(&container(), &machine(), true, &[], &other)));
    // What was on the machine is not undone in a container that shares its journals, whatever it sees.
    assert!(unreachable(&location_match(&machine(), &container(), true, &[], &PretendedView::default())));
}

#[test]
fn a_container_that_was_started_anew_is_the_same_one() {
    let now = container_anew();
    for same_boot in [true, false] {
        assert_eq!(
            location_match(&container(), &now, same_boot, &[], &PretendedView::default()),
            LocationMatch::Here
        );
    }
    // The journal of a directory that several share says nothing of the root.
    let shared = |of: SessionLocation| SessionLocation { root_of_journal: None, ..of };
    let standing = location_match(&shared(container()), &shared(now), true, &[], &PretendedView::default());
    assert!(unreachable(&standing));
}

#[test]
fn the_command_that_helps_is_named_without_secrets() {
    let at = |server: Option<&str>, network_file: Option<&str>| SessionLocation {
        server: server.map(str::to_owned),
        network_file: network_file.map(str::to_owned),
        ..machine()
    };
    for (location, part) in [
        (
            at(Some("exec:nsenter -t 7 -n webdyno agent"), Some(NAMED)),
            "--server 'exec:nsenter -t 7 -n webdyno agent'",
        ),
        (at(Some("ssh://web1"), None), "--server 'ssh://web1'"),
        (
            at(Some("exec:sshpass -p x ssh web webdyno agent"), None),
            "with the --server that it was begun with",
        ),
        (
            at(Some("exec:T=x docker exec -i C webdyno agent"), None),
            "with the --server that it was begun with",
        ),
        (at(Some("local"), Some(NAMED)), "`ip netns exec web webdyno rollback`"),
        (at(None, None), "in the container or the namespaces"),
    ] {
        assert!(location.command().contains(part), "{}", location.command());
    }
}

/// What is written is read again, and a journal of before has none of it.
#[test]
fn it_is_kept_in_journals() {
    let text = serde_json::to_string(&in_network()).unwrap();
    assert_eq!(serde_json::from_str::<SessionLocation>(&text).unwrap(), in_network());
    let here = SessionLocation::of_this_process(std::path::Path::new("/var/lib/webdyno"), Some("local"));
    let folders = std::path::Path::new("/");
    assert!(here.has_our_pids() && here.directories.contains_key(folders.to_str().unwrap()));
    assert_eq!(
        location_match(&here, &here, true, &[], &PretendedView { blind: true, ..PretendedView::default() }),
        LocationMatch::Here
    );
}
