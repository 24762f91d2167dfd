//! The static program needs nothing but a kernel and /proc: an older distribution, or none, is as good as ours.

use super::{can_run, exec, program, start};
use crate::skip::needs;
use crate::support::{Place, shared_turn, skip, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The static program of the same build, which scripts/test makes beside ours.
fn static_program() -> Option<PathBuf> {
    let path = assert_cmd::cargo::cargo_bin("webdyno").with_file_name("webdyno-static");
    let reported = Command::new(&path).arg("--version").output().ok()?;
    String::from_utf8_lossy(&reported.stdout).contains(env!("WEBDYNO_BUILD")).then_some(path)
}

/// A command in another root, with /proc.
fn in_root(root: &Path, command: &str) -> String {
    let root = root.display();
    format!(
        "unshare --mount --propagation private sh -c 'mount -t proc proc {root}/proc; exec chroot {root} {command}'"
    )
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_static_program_runs_in_an_empty_root() {
    let _turn = shared_turn();
    needs!(can_run());
    let Some(ours) = static_program() else {
        return skip("needs webdyno-static of this build (scripts/test makes it)");
    };
    let place = Place::new();
    let root = place.path("root");
    fs::create_dir_all(root.join("proc")).unwrap();
    fs::copy(&ours, root.join("webdyno")).unwrap();
    let reported = Command::new("sh").args(["-c", &in_root(&root, "/webdyno --version")]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&reported.stdout).lines().next(),
        Some(concat!("webdyno ", env!("WEBDYNO_BUILD")))
    );
    let client = exec(&format!("{} # agent", in_root(&root, "/webdyno agent"))).unwrap();
    assert!(client.hello().environment.kernel.is_some());
    let samples = client.observe(None, None, Default::default()).unwrap();
    samples.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    client.close().unwrap();
    assert_eq!(names(&root), ["proc", "webdyno"], "who only reads writes nothing");
}

/// A machine with busybox and nothing else, as small containers are: the static program is what is sent there, and
/// without one it is told what is missing.
#[test]
fn the_static_program_is_what_is_sent() {
    let _turn = shared_turn();
    needs!(can_run());
    let Some(ours) = static_program() else {
        return skip("needs webdyno-static of this build (scripts/test makes it)");
    };
    let place = Place::new();
    let root = place.path("root");
    for name in ["bin", "dev", "proc", "tmp"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::write(root.join("dev/null"), "").unwrap();
    fs::copy("/usr/bin/busybox", root.join("bin/busybox")).unwrap();
    for applet in ["sh", "head", "wc", "rm", "mkdir", "chmod", "uname", "df", "id"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    let command = in_root(&root, "/bin/sh");
    let error = start(&command, false, program()).err().unwrap();
    assert!(error.message.contains("it has another C library, or none"), "{error}");
    assert!(error.hint.unwrap().contains("make static"));
    let beside = place.path("beside");
    fs::create_dir(&beside).unwrap();
    fs::copy(program(), beside.join("webdyno")).unwrap();
    fs::copy(&ours, beside.join("webdyno-static")).unwrap();
    // A child of another test that has not begun its program yet holds the copy open for writing (ETXTBSY).
    let runs = || Command::new(beside.join("webdyno-static")).arg("--version").output().is_ok();
    assert!(wait_until(Duration::from_secs(5), runs));
    start(&command, false, &beside.join("webdyno")).unwrap().close().unwrap();
    assert_eq!(
        (names(&root), names(&root.join("tmp"))),
        (["bin", "dev", "proc", "tmp"].map(String::from).into(), vec![])
    );
}
