//! The Debian package that `make deb` makes, here of the program under test: installed on a machine, looked at, and
//! removed.
//!
//! Facts: dpkg(1), debian-policy 9.3 (no service of ours is started), systemd.exec(5) for the unit in the examples.

use super::machine::{Machine, can_boot};
use crate::skip::needs;
use crate::support::{shared_turn, wait_until};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const EXAMPLES: &str = "/usr/share/doc/webdyno/examples";

/// All files but logs, and what dpkg and systemd write about themselves.
const FILES: &str = "find / -xdev '(' -path /var/log -o -path /var/lib/systemd -o -path '/var/lib/dpkg/*-old' ')' \
    -prune -o -print | sort";

/// The package; compressed as fast as can be.
fn package(folder: &Path) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(workspace.join("scripts/deb"));
    command.arg(assert_cmd::cargo::cargo_bin("webdyno")).arg(folder).args(["-Zgzip", "-z1"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().last().unwrap().into()
}

/// The unit in the examples: it observes with the few rights that it leaves itself, and ends well.
fn assert_the_unit_observes(machine: &Machine) {
    machine.shell(&format!(
        "cp {EXAMPLES}/webdyno-observe.service /etc/systemd/system/ && systemctl daemon-reload && systemctl start webdyno-observe"
    ));
    let samples = "grep -rlq --include='*.jsonl' apache /var/lib/webdyno-observe";
    let observes = wait_until(Duration::from_secs(20), || machine.typed(samples).0 == 0);
    let journal = machine.typed("systemctl stop webdyno-observe; journalctl -q -o cat -u webdyno-observe").1;
    assert!(observes, "{journal}");
    assert_eq!(machine.shell("systemctl show webdyno-observe -P Result").trim(), "success", "{journal}");
    machine.shell(
        "rm -r /etc/systemd/system/webdyno-observe.service /var/lib/webdyno-observe && systemctl daemon-reload",
    );
}

#[test]
fn the_package_installs_and_leaves_nothing() {
    let _turn = shared_turn();
    needs!(can_boot());
    let machine = Machine::boot();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(package(folder.path()), machine.path("/root/webdyno.deb")).unwrap();
    let units =
        "systemctl list-unit-files --no-legend; systemctl list-units --type service --plain --no-legend";
    let (files, services) = (machine.shell(FILES), machine.shell(units));

    machine.shell("dpkg -i /root/webdyno.deb");
    assert_eq!(machine.shell(units), services);
    let version = machine.shell("/usr/bin/webdyno --version");
    assert_eq!(version.lines().next(), Some(concat!("webdyno ", env!("WEBDYNO_BUILD"))));
    assert!(version.contains("\nrustc:   1."), "{version}");
    assert_eq!(machine.shell("/usr/bin/webdyno -V"), concat!("webdyno ", env!("CARGO_PKG_VERSION"), "\n"));
    assert!(machine.shell("/usr/bin/webdyno run -h").contains("Examples:"));
    machine.shell("cd / && md5sum --check --quiet /var/lib/dpkg/info/webdyno.md5sums");
    for (page, flag) in
        [("webdyno", "version"), ("webdyno-run", "no\\\\-early\\\\-stop"), ("webdyno-lab-up", "help")]
    {
        machine.shell(&format!("zcat /usr/share/man/man1/{page}.1.gz | grep -q '\\-{flag}'"));
    }
    let completions = "/usr/share/bash-completion/completions/webdyno";
    machine.shell(&format!("bash -n {completions} && bash -c '. {completions} && complete -p webdyno'"));
    machine.shell(&format!("visudo -cf {EXAMPLES}/sudoers && ! grep local/bin/webdyno {EXAMPLES}/sudoers"));
    assert_the_unit_observes(&machine);

    machine.shell("dpkg -r webdyno");
    assert_eq!(machine.shell(FILES), files);
    assert_eq!(machine.shell(units), services);
}
