//! Groups of both versions as folders of files.

use super::*;
use proptest::prelude::*;

/// The texts of files in the format of both versions, as Linux 6.18 and 3.10 write them.
const STAT_V1: &str = "nr_periods 40\nnr_throttled 12\nthrottled_time 2500000000\n";
const STAT_V2: &str = "usage_usec 7000000\nuser_usec 4000000\nsystem_usec 3000000\nnr_periods 40\nnr_throttled 12\nthrottled_usec 2500000\nnr_bursts 0\nburst_usec 0\n";
const EVENTS: &str = "low 0\nhigh 7\nmax 5\noom 2\noom_kill 1\noom_group_kill 0\n";

/// Writes `(path, text)` under a folder that stands for the mount, and looks at the group `a/b` in it.
fn check<T: PartialEq + std::fmt::Debug>(files: &[(&str, &str)], look: impl Fn(&Group) -> T, expected: T) {
    let mount = tempfile::tempdir().unwrap();
    let directory = mount.path().join("a/b");
    std::fs::create_dir_all(&directory).unwrap();
    for (path, text) in files {
        std::fs::write(mount.path().join(path), text).unwrap();
    }
    let group = Group { directory, mount: mount.path().into() };
    assert_eq!(look(&group), expected, "{files:?}");
}

#[test]
fn the_tightest_quota_counts_and_throttling_adds_up() {
    let expected = |quota, periods, throttled, s| Cpu {
        quota_cores: quota,
        periods_count: periods,
        throttled_count: throttled,
        throttled_s: s,
    };
    let v2 = |group: &Group| Cpu::read(group, Version::Two);
    let v1 = |group: &Group| Cpu::read(group, Version::One);
    let own = [("a/b/cpu.max", "50000 100000\n"), ("a/b/cpu.stat", STAT_V2), ("a/cpu.max", "max 100000\n")];
    check(&own, v2, expected(Some(0.5), Some(40), Some(12), Some(2.5)));
    // The group above is the tighter one, and both hold the service back.
    let both = [&own[..2], &[("a/cpu.max", "20000 100000"), ("a/cpu.stat", STAT_V2)]].concat();
    check(&both, v2, expected(Some(0.2), Some(80), Some(24), Some(5.0)));
    let old = [
        ("a/b/cpu.cfs_quota_us", "-1\n"),
        ("a/b/cpu.cfs_period_us", "100000\n"),
        ("a/b/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"),
        ("a/cpu.cfs_quota_us", "150000\n"),
        ("a/cpu.cfs_period_us", "100000\n"),
        ("a/cpu.stat", STAT_V1),
    ];
    check(&old, v1, expected(Some(1.5), Some(40), Some(12), Some(2.5)));
    check(&old[..3], v1, Cpu::default());
    check(&[("a/b/cpu.stat", STAT_V2)], v2, Cpu::default());
    check(&own, |group| cpu_used_s(group, Version::Two), Some(7.0));
    check(&[("a/b/cpuacct.usage", "1500000000\n")], |group| cpu_used_s(group, Version::One), Some(1.5));
}

#[test]
fn memory_of_version_2_is_read_where_the_limit_is() {
    let files = [
        ("a/b/memory.max", "max\n"),
        ("a/b/memory.high", "900\n"),
        ("a/b/memory.current", "100\n"),
        ("a/b/memory.events", EVENTS),
        ("a/b/memory.swap.max", "0\n"),
        ("a/b/memory.swap.current", "0\n"),
        ("a/memory.max", "1000\n"),
        ("a/memory.high", "max\n"),
        ("a/memory.current", "800\n"),
        ("a/memory.events", "low 0\nhigh 0\nmax 9\noom 0\noom_kill 3\n"),
        ("a/memory.swap.max", "max\n"),
        ("a/b/memory.swap.events", "high 0\nmax 11\nfail 2\n"),
    ];
    let expected = Memory {
        limit_bytes: Some(1000),
        used_bytes: Some(800),
        high_bytes: Some(900),
        swap_limit_bytes: Some(0),
        swap_used_bytes: Some(0),
        limit_hits_count: Some(9),
        swap_limit_hits_count: Some(11),
        high_hits_count: Some(7),
        oom_kills_count: Some(1),
    };
    check(&files, |group| Memory::read(group, Version::Two), expected);
    let unlimited = Memory { used_bytes: Some(100), ..Memory::default() };
    check(&files[2..3], |group| Memory::read(group, Version::Two), unlimited);
}

#[test]
fn memory_of_version_1_is_read_and_no_limit_is_none() {
    let none = "9223372036854771712\n";
    let files = [
        ("a/b/memory.limit_in_bytes", "4096\n"),
        ("a/b/memory.usage_in_bytes", "100\n"),
        ("a/b/memory.failcnt", "6\n"),
        ("a/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"),
        ("a/b/memory.memsw.limit_in_bytes", "8192\n"),
        ("a/b/memory.memsw.usage_in_bytes", "130\n"),
        ("a/b/memory.memsw.failcnt", "3\n"),
        ("a/memory.limit_in_bytes", none),
        ("memory.limit_in_bytes", none),
    ];
    let expected = Memory {
        limit_bytes: Some(4096),
        used_bytes: Some(100),
        swap_limit_bytes: Some(4096),
        swap_used_bytes: Some(30),
        limit_hits_count: Some(6),
        swap_limit_hits_count: Some(3),
        oom_kills_count: Some(4),
        ..Memory::default()
    };
    check(&files, |group| Memory::read(group, Version::One), expected);
    check(&files[7..], |group| Memory::read(group, Version::One), Memory::default());
}

#[test]
fn the_limit_of_tasks_with_least_room_counts() {
    let tasks = |count, limit, refused| Tasks { count, limit_count: limit, refused_count: refused };
    let files = [
        ("a/b/pids.max", "100\n"),
        ("a/b/pids.current", "10\n"),
        ("a/b/pids.events", "max 2\n"),
        ("a/pids.max", "500\n"),
        ("a/pids.current", "495\n"),
        ("a/pids.events", "max 3\n"),
    ];
    for version in [Version::One, Version::Two] {
        let look = |group: &Group| Tasks::read(group, version);
        check(&files, look, tasks(Some(495), Some(500), Some(3)));
        check(&[("a/b/pids.max", "max\n"), ("a/b/pids.current", "7\n")], look, tasks(Some(7), None, None));
        check(&[], look, Tasks::default());
    }
}

#[test]
fn processors_that_may_be_used_are_online() {
    let own = usable_cpus(std::process::id()).unwrap();
    assert!(!own.usable.is_empty() && own.usable.len() <= own.online_count);
    assert!(Cpus { usable: [1].into(), online_count: 2 }.are_some());
    assert!(!Cpus { usable: [0, 1].into(), online_count: 2 }.are_some());
    assert_eq!(usable_cpus(u32::MAX), None);
}

proptest! {
    // Any text is survived.
    #[test]
    fn any_text_is_survived(text in "[0-9,-]{0,30}|.{0,20}") {
        parse_cpu_max(&text);
    }
}
