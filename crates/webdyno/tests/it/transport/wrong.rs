//! What can be wrong with a server, its way and its machine is told in plain words, each with what helps.

use super::sshd::{Sshd, program as script};
use super::{can_run, diagnose, exec, program, start};
use crate::refusing::Refusing;
use crate::skip::needs;
use crate::support::{Place, run, shared_turn};
use std::fs;
use webdyno_model::UserError;

fn check(error: Option<UserError>, message: &str, hint: &str) {
    let error = error.expect(message);
    assert!(error.message.contains(message), "no `{message}` in {error:?}");
    assert!(error.hint.clone().unwrap_or_default().contains(hint), "no `{hint}` in {error:?}");
    assert_eq!(error.exit_code(), 1);
}

#[test]
fn what_keeps_ssh_from_a_server_is_told() {
    let _turn = shared_turn();
    needs!(can_run());
    let (place, sshd) = (Place::new(), Sshd::start());
    let closed = Refusing::start();
    for (server, message, hint) in [
        ("ssh://refused", "the host takes none of our keys", "ssh-copy-id refused"),
        ("ssh://stranger", "the key of the host is not known", "`ssh stranger` shows it"),
        ("ssh://no.such.host.invalid", "the name of the host is not known", "getent hosts"),
        (
            &format!("ssh://web1:{}", closed.address.port()),
            "nothing there takes ssh connections",
            "is sshd running",
        ),
        ("ssh://nobody@web1", "the user may not log in there", "ssh://USER@web1"),
    ] {
        run(&mut diagnose(&place, &sshd, 1, &["--for", "1s", "--server", server]))
            .with_code(1)
            .assert_error(message, hint);
    }
    // Another key than the one that is known may be somebody in between.
    let other = fs::read_to_string(sshd.path("other_key.pub")).unwrap();
    fs::write(sshd.path("known_hosts"), format!("web1 {other}")).unwrap();
    let flags = ["--for", "1s", "--server", "ssh://web1"];
    run(&mut diagnose(&place, &sshd, 1, &flags))
        .with_code(1)
        .assert_error("another key than the one", "ssh-keygen -R web1");
    let mut without_ssh = diagnose(&place, &sshd, 1, &flags);
    without_ssh.env("PATH", place.path(""));
    run(&mut without_ssh).with_code(1).assert_error("there is no ssh on this machine", "openssh-client");
    assert!(!place.path("run").exists(), "nothing was begun");
}

#[test]
fn wrong_servers_are_wrong_usage() {
    let place = Place::new();
    for (flags, message) in [
        (&["--server", "ssh://-oProxyCommand=id"][..], "does not begin with `-`"),
        (&["--server", "cache=local"], "`cache` is not the role of a server"),
        (&["--server", "local", "--server", "web=ssh://a"], "two servers with the role web"),
        (&["--server", "db=local"], "no web server was given"),
        (&["--server", "ssh://a/b"], "`/` stands in no name"),
        (&["--server", "exec:"], "without a command"),
    ] {
        let mut command = place.webdyno();
        command.args(["diagnose", "--for", "1s", "--port", "1"]).args(flags);
        run(&mut command).with_code(2).assert_error(message, "hint: ");
    }
}

/// A mount namespace in which a command is run before the shell.
fn with_mounts(before: &str) -> String {
    format!("unshare --mount --propagation private sh -c '{before}; exec sh'")
}

#[test]
fn what_a_machine_lacks_is_told() {
    let _turn = shared_turn();
    needs!(can_run());
    let place = Place::new();
    let tmpfs = |options: &str, paths: &[&str]| {
        let mounts = paths.iter().map(|path| format!("mount -t tmpfs -o {options} none {path}"));
        let unset = "unset TMPDIR XDG_RUNTIME_DIR HOME".to_owned();
        with_mounts(&mounts.chain([unset]).collect::<Vec<_>>().join("; "))
    };
    let all = ["/tmp", "/var/tmp", "/dev/shm"];
    check(
        exec(&tmpfs("noexec", &all)).err(),
        "/tmp is mounted noexec, /var/tmp is mounted noexec, /dev/shm",
        "TMPDIR",
    );
    // One that is fit is enough.
    exec(&tmpfs("noexec", &all[..2])).unwrap().close().unwrap();
    check(exec(&tmpfs("size=1m", &all)).err(), "/tmp has only 1024 kB left, /var/tmp has", "TMPDIR");
    check(exec(&tmpfs("ro", &all)).err(), "/tmp cannot be written", "TMPDIR");
    check(
        exec(&with_mounts("mount -t tmpfs none /proc")).err(),
        "/proc is not mounted there",
        "mount -t proc",
    );
    // The room that is told is not always the room that is there (quotas).
    fs::create_dir(place.path("bin")).unwrap();
    let bin = |name: &str, text: &str| {
        script(&place.path(&format!("bin/{name}")), text);
        format!("env PATH={}:$PATH webdyno agent", place.path("bin").display())
    };
    let quota =
        with_mounts("mount --bind /bin/false /bin/df; mount -t tmpfs -o size=1m none /tmp; unset TMPDIR");
    check(exec(&quota).err(), "bytes of the program arrived, or there was no room", "df /tmp");
    check(
        exec(&bin("uname", "[ \"$1\" = -s ] && echo Linux || echo aarch64")).err(),
        "the machine is Linux aarch64",
        "build webdyno",
    );
    fs::remove_file(place.path("bin/uname")).unwrap();
    check(exec(&bin("sha256sum", "echo 0123")).err(), "the program was changed on its way", "no terminal");
    fs::remove_file(place.path("bin/sha256sum")).unwrap();
    let headless = with_mounts("mount --bind /dev/null /usr/bin/head");
    check(exec(&headless).err(), "there is no `head` there", "put webdyno there");
    check(exec("echo hello; exit 3;").err(), "(exit status: 3): hello", "need -i");
}

#[test]
fn a_program_that_does_not_run_there_is_told() {
    let _turn = shared_turn();
    needs!(can_run());
    let place = Place::new();
    let own = place.path("own");
    for (text, message, hint) in [
        (
            "echo \"/lib/libc.so.6: version \\`GLIBC_2.99' not found\" >&2; exit 1",
            "`GLIBC_2.99' not found",
            "make static",
        ),
        ("exit 127", "another C library", "make static"),
        ("exit 9", "fails there with status 9", ""),
    ] {
        script(&own, text);
        check(start("webdyno agent", false, &own).err(), message, hint);
    }
    // Another build.
    script(
        &own,
        "[ \"$1\" = --version ] || exec @PROGRAM agent"
            .replace("@PROGRAM", &assert_cmd::cargo::cargo_bin("webdyno").display().to_string())
            .as_str(),
    );
    start("webdyno agent", false, &own).unwrap().close().unwrap();
    let other = fs::read(program()).unwrap();
    let build = env!("WEBDYNO_BUILD").as_bytes();
    let at: Vec<_> = other
        .windows(build.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == build)
        .map(|(at, _)| at)
        .collect();
    let mut other = other;
    at.iter().for_each(|at| other[at + build.len() - 1] ^= 1);
    fs::write(&own, other).unwrap();
    let error = start(&format!("{} agent", own.display()), false, program()).err().unwrap();
    assert!(
        !at.is_empty()
            && error.message.contains("the tool is webdyno")
            && error.message.contains(env!("WEBDYNO_BUILD")),
        "{error}"
    );
}

/// As somebody who is not root, with a sudo that says what sudo says.
#[test]
fn what_sudo_refuses_is_told() {
    let _turn = shared_turn();
    needs!(can_run());
    let place = Place::new();
    fs::create_dir(place.path("bin")).unwrap();
    let command = format!(
        "env PATH={}:$PATH setpriv --reuid 65534 --regid 65534 --clear-groups",
        place.path("bin").display()
    );
    check(start(&command, true, program()).err(), "there is no sudo there", "leave --sudo out");
    for (output, message, hint) in [
        ("sudo: a password is required", "sudo asks for a password there", "NOPASSWD"),
        ("sudo: sorry, you must have a tty to run sudo", "sudo wants a terminal there", "requiretty"),
        ("nobody is not in the sudoers file.", "the user may not use sudo there", "sudoers"),
    ] {
        script(&place.path("bin/sudo"), &format!("echo '{output}' >&2; exit 1"));
        check(start(&command, true, program()).err(), message, hint);
    }
    // One that lets us in: the words behind -n are run.
    script(&place.path("bin/sudo"), "[ \"$1\" = -n ] && shift && exec \"$@\"");
    start(&command, true, program()).unwrap().close().unwrap();
    exec(&command).unwrap().close().unwrap();
}
