//! Trees of real processes, and the arithmetic of what was read of them.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

fn stat(pid: u32, cpu_ticks: u64, reaped_cpu_ticks: u64) -> Stat {
    let (name, state, ppid, group, threads_count, start_ticks) = ("apache2".into(), 'S', 1, 0, 2, 7);
    Stat { pid, name, state, ppid, group, cpu_ticks, reaped_cpu_ticks, threads_count, start_ticks }
}

#[test]
fn time_below_a_tick_is_not_lost() {
    let ms = 1_000_000;
    for (stat, clock_ns, expected) in [
        (stat(1, 0, 0), Some(8 * ms), 8 * ms),
        (stat(1, 0, 0), None, 0),
        (stat(1, 3, 0), None, ns_of(3)),
        // Children that ended come on top.
        (stat(1, 0, 5), Some(8 * ms), 8 * ms + ns_of(5)),
        (stat(1, 2, 5), Some(ns_of(2) + 7), ns_of(7) + 7),
    ] {
        assert_eq!(cpu_ns(&stat, clock_ns), expected, "{stat:?}");
    }
}

#[test]
fn the_process_nearest_to_its_limit_counts() {
    let mut tree = Tree::default();
    for (open, limit) in [
        (Some(100), Some(1000)),
        (Some(60), Some(64)),
        (Some(500), None),
        (None, Some(1)),
        (Some(0), Some(0)),
    ] {
        tree.files(open, limit);
    }
    assert_eq!((tree.open_files_max, tree.fullest), (Some(500), Some((60, 64))));
}

/// A shell that does what its input says, and says a line when it has done so.
fn shell(script: &str) -> (Child, impl FnMut(&str)) {
    let mut child =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let step = move |say: &str| {
        writeln!(input, "{say}").unwrap();
        lines.next().unwrap().unwrap();
    };
    (child, step)
}

/// More workers than are looked at in one reading: one is started, one ends, and one gets a child, which is found when it
/// is its turn.
#[test]
fn a_large_tree_is_followed() {
    let workers = IN_TURN_COUNT + 20;
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe").display().to_string();
    let script = format!(
        "mkfifo {pipe}; sh -c 'read -r _ <{pipe}; sleep 60 & echo done; wait' & \
         n=1; while [ $n -lt {workers} ]; do sleep 60 & n=$((n+1)); done; last=$!; \
         while read -r word; do case $word in more) sleep 60 & ;; less) kill $last; wait $last ;; \
         deeper) echo >{pipe}; continue ;; esac; echo done; done; exec sleep 60"
    );
    let (mut child, mut step) = shell(&script);
    let mut tracker = Tracker::default();
    let mut count = || tracker.read(child.id()).unwrap().count as usize;
    step("begin");
    let mut counts = vec![count()];
    for word in ["more", "less"] {
        step(word);
        counts.push(count());
    }
    step("deeper");
    counts.push((0..3).map(|_| count()).max().unwrap());
    end(&mut child);
    let all = workers + 1;
    assert_eq!(counts, [all, all + 1, all, all + 1]);
    assert_eq!(tracker.read(child.id()), None, "it has ended");
}

/// Ends a process and its descendants.
fn end(child: &mut Child) {
    for pid in procfs::tree_of(child.id()) {
        crate::os::process::ProcessName::of(pid).map(|it| it.signal(rustix::process::Signal::KILL));
    }
    child.wait().unwrap();
}

/// The time of a grandchild goes to its parent when it ends: the sum does not fall and rise again.
#[test]
fn the_time_of_what_ended_is_kept() {
    let burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let script = format!("sh -c '({burn}; echo burnt; exec sleep 0.2) & wait; exec sleep 60' & wait");
    let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let mut tracker = Tracker::default();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut sums = vec![];
    while std::time::Instant::now() < deadline {
        let tree = tracker.read(child.id()).unwrap();
        sums.push(tree.cpu_ns);
        if tree.count == 2 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    end(&mut child);
    let (first, last) = (sums[0], *sums.last().unwrap());
    assert!(first > 20_000_000, "the child used {first} ns: too little to tell");
    // Whole ticks of user and system time are what is left of a process that ended.
    assert!(last + 3 * ns_of(1) >= first, "{sums:?}");
}

#[test]
fn limits_and_user_are_read_in_turn() {
    let (mut child, mut step) = shell("sleep 60 & while read -r _; do echo; done; kill $!");
    step("begin");
    let mut tracker = Tracker::default();
    let trees: Vec<Tree> = (0..3).map(|_| tracker.read(child.id()).unwrap()).collect();
    end(&mut child);
    assert_eq!(trees[0].fullest, None, "nothing is known of limits yet");
    let limit = procfs::open_files_limit(std::process::id()).unwrap();
    assert_eq!(trees[2].fullest.map(|(_, limit)| limit), limit);
    assert!(trees[2].open_files_max >= Some(3));
    let root = rustix::process::getuid().is_root();
    assert_eq!(trees[2].user.is_none(), root, "root has no limit");
}

/// Limits are read of a few at a time: until then a worker counts for the user that the others have.
#[test]
fn workers_whose_user_was_not_read_yet_count() {
    let limits = Limits { tasks: Some(900), ..Limits::default() };
    let worker = |pid: u32, user: Option<u32>| Known {
        stat: stat(pid, 0, 0),
        children: vec![],
        is_parent: [pid == 1, false],
        turns_count: 0,
        listed_at: 0,
        open_files: None,
        details: user.map(|user| Details { limits, user: Some(user), at_turn: 0 }),
    };
    let users = [(1, Some(0)), (2, Some(33)), (3, Some(33)), (4, None), (5, None)];
    let known = users.into_iter().map(|(pid, user)| (pid, worker(pid, user))).collect();
    let mut tree = Tree::default();
    Tracker { known, ..Tracker::default() }.sum_up(&mut tree);
    // Two threads each, without those of root's main process.
    assert_eq!(tree.user, Some(User { id: 33, tasks_count: 8, limit_count: Some(900) }));
}
