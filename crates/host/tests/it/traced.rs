//! What a program changes among the files, as strace(1) writes it down.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use crate::skip::skip;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Whether programs can be traced here; on CI they must be.
pub fn has_strace() -> bool {
    let found = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok();
    assert!(found || std::env::var_os("CI").is_none(), "scripts/setup test installs strace");
    if !found {
        skip("strace is missing");
    }
    found
}

/// Runs a program of these words, which `prepare` gives its environment, and tells each change of a file outside of these
/// places, as lines of strace.
pub fn changes<S: AsRef<std::ffi::OsStr>>(
    words: impl IntoIterator<Item = S>,
    prepare: impl FnOnce(&mut Command),
    places: &[&Path],
) -> (Output, Vec<String>) {
    let logs = tempfile::tempdir().unwrap();
    let log = logs.path().join("trace");
    let mut command = Command::new("strace");
    let traced = "trace=%file,ftruncate,fchmod,fchown,fallocate";
    command.args(["-f", "--seccomp-bpf", "-qq", "-y", "-e", traced, "-o"]).arg(&log).args(words);
    prepare(&mut command);
    let output = command.output().unwrap();
    let trace = String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned();
    assert!(trace.contains("/proc/self/net/") && trace.lines().count() > 1000, "this is no trace");
    let ours = places.iter().map(|place| format!("\"{}", place.display()));
    // No files: devices, and what the kernel is told of the process itself.
    let none = ["/dev/null", "/dev/tty", "/proc/self/oom_score_adj"].map(|place| format!("\"{place}"));
    let ours: Vec<String> = ours.chain(none).collect();
    let allowed = |line: &str| {
        line.contains("webdyno-observes-") || ours.iter().any(|place| line.contains(place.as_str()))
    };
    let written = trace.lines().filter(|line| writes(line) && !allowed(line)).map(str::to_owned).collect();
    (output, written)
}

/// Whether a line of strace is of a call that succeeded and changes a file, or opens it for that.
fn writes(line: &str) -> bool {
    // Lines begin with the thread.
    let call = line.split_once(' ').map_or(line, |(_, call)| call.trim_start());
    let Some((name, arguments)) = call.split_once('(') else { return false };
    let failed = arguments.contains(") = -1 ") || arguments.contains(") = ? ");
    let opens = ["open", "openat", "openat2", "creat"].contains(&name);
    let flags = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND", "O_TMPFILE"];
    let changes = [
        "mkdir",
        "rmdir",
        "rename",
        "unlink",
        "link",
        "symlink",
        "chmod",
        "fchmod",
        "chown",
        "fchown",
        "lchown",
        "truncate",
        "ftruncate",
        "mknod",
        "utime",
        "setxattr",
        "fallocate",
        "creat",
        "mount",
        "umount",
        "swapon",
    ];
    let changed = changes.iter().any(|change| name.starts_with(change)) && !call.starts_with("readlink");
    // Memory files are nobody's.
    let is_memory = name.starts_with("ftruncate") || name.starts_with("fallocate");
    !failed && !is_memory && (changed || (opens && flags.iter().any(|flag| arguments.contains(flag))))
}

#[test]
fn calls_that_change_files_are_told() {
    for (line, expected) in [
        ("12 openat(AT_FDCWD, \"/etc/x\", O_RDONLY|O_CLOEXEC) = 3", false),
        ("12 openat(AT_FDCWD, \"/etc/x\", O_WRONLY|O_CREAT|O_CLOEXEC, 0666) = 3", true),
        ("12 openat(AT_FDCWD, \"/etc/x\", O_RDWR) = -1 EROFS (Read-only file system)", false),
        ("12 openat2(5, \"etc/x\", {flags=O_WRONLY, resolve=RESOLVE_IN_ROOT}, 24) = 3", true),
        ("12 mkdir(\"/var/lib/x\", 0777) = 0", true),
        ("12 renameat2(AT_FDCWD, \"a\", AT_FDCWD, \"b\", 0) = 0", true),
        ("12 readlink(\"/proc/1/exe\", 0x1, 256) = -1 EACCES (Permission denied)", false),
        ("12 readlinkat(3, \"5\", \"socket:[1]\", 256) = 10", false),
        ("12 newfstatat(AT_FDCWD, \"/\", {}, 0) = 0", false),
        ("12 +++ exited with 0 +++", false),
    ] {
        assert_eq!(writes(line), expected, "{line}");
    }
}
