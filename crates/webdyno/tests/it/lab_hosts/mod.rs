//! Scenarios come and go without a trace, whoever is killed and whatever fails. Everything runs where nobody else is: in
//! a network, with processes and mounts of its own.

mod machine;

use crate::support::{Place, can_mount, run, shared_turn, skip, wait_until};
use machine::{MachineState, differences, observe};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use webdyno_lab::build::BuildOptions;
use webdyno_lab::scenario::{Catalogue, ScenarioHost};
use webdyno_lab::{Lab, build, remove};

/// Settings of the machine belong to one test at a time.
static MACHINE: Mutex<()> = Mutex::new(());

/// A setting of the machine that hurts nobody.
const SETTING: &str = "kernel.printk_ratelimit_burst";

/// A scenario with all that there is, and one service without any program of others.
const ALL_OF_IT: &str = r#"
title = "All of it"
group = "fault"
story = "It has everything."
load = { urls = ["http://server/"], flags = "-c 1 -d 1s" }
[hosts.server]
memory = "200M"
swap = "8M"
cpus = 0.9
processes = 200
firewall = true
sysctl = { "net.core.somaxconn" = 77 }
disks = [{ path = "/srv/data", size = "8M", sync = true, writes_per_s = 1000 }]
[hosts.database]
[[links]]
ends = ["client", "server"]
rate_there = "50mbit"
[[links]]
ends = ["server", "database"]
[machine]
sysctl = { "kernel.printk_ratelimit_burst" = 11 }
swap = "8M"
[[services]]
program = "command"
command = "touch /tmp/there; exec sleep 1000"
ready = "/tmp/there"
processes = 20
[[rounds]]
name = "one"
finding = "healthy"
binds = [{ metric = "load.failed_fraction", at_most = 0.01 }]
"#;

/// Two hosts and hardly anything on them.
const SMALL: &str = r#"
title = "Small"
group = "healthy"
story = "It has nothing."
load = { urls = ["http://server/"], flags = "-c 1 -d 1s" }
[[services]]
program = "command"
command = "touch /tmp/there; exec sleep 1000"
ready = "/tmp/there"
[[rounds]]
name = "one"
finding = "healthy"
binds = [{ metric = "load.failed_fraction", at_most = 0.01 }]
"#;

/// Runs a test again, alone on its machine; false outside of that, and where it is not possible.
fn is_alone(test: &str) -> bool {
    const INSIDE: &str = "WEBDYNO_TEST_ALONE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if !can_mount() {
        skip("needs root and mount(8)");
        return false;
    }
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if !machine::has_groups() {
        skip("needs control groups that can be made");
        return false;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("unshare");
    command.args([
        "--net",
        "--uts",
        "--pid",
        "--mount",
        "--fork",
        "--mount-proc",
        "--kill-child",
        "sh",
        "-c",
    ]);
    // The shell stays process 1, and takes note of everybody who ends.
    command.arg("ip link set lo up && mount -t tmpfs none /run && \"$0\" \"$@\"; exit $?");
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let output = command.env(INSIDE, "1").env("TMPDIR", folder.path()).output().unwrap();
    let reported = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}", reported.concat());
    false
}

/// A place with scenarios, and how the machine was before any of them. Their names are of this process: their groups are
/// everybody's.
struct Bench {
    place: Place,
    names: Vec<String>,
    before: MachineState,
}

impl Bench {
    fn new(scenarios: &[&str]) -> Self {
        let place = Place::new();
        let mut names = vec![];
        for (number, text) in scenarios.iter().enumerate() {
            let name =
                format!("test-{}-{number}", std::fs::metadata(place.path(".")).map(|it| inode(&it)).unwrap());
            std::fs::create_dir_all(place.path("scenarios").join(&name)).unwrap();
            std::fs::write(place.path("scenarios").join(&name).join("scenario.toml"), text).unwrap();
            names.push(name);
        }
        std::fs::create_dir(place.path("state")).unwrap();
        let before = MachineState::new();
        let mut bench = Self { place, names, before };
        bench.before = bench.observe();
        bench
    }

    fn observe(&self) -> MachineState {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        observe(&self.place.path("state"), &names)
    }

    /// `webdyno lab` with these words.
    fn lab(&self, words: &[&str]) -> assert_cmd::Command {
        let mut command = self.place.webdyno();
        command.args(["lab", "--scenarios", "scenarios"]).args(words);
        command
    }

    fn child(&self, words: &[&str]) -> std::process::Child {
        self.place.child(&[&["lab", "--scenarios", "scenarios"], words].concat())
    }

    fn output_of(&self, words: &[&str]) -> String {
        run(&mut self.lab(words)).with_code(0).stdout.trim().to_owned()
    }

    fn state(&self, name: &str, file: &str) -> std::path::PathBuf {
        self.place.path("state/lab").join(name).join(file)
    }

    /// Nothing is left; processes may take a moment to be gone.
    fn assert_clean(&self, when: &str) {
        let mut left = vec![];
        wait_until(Duration::from_secs(5), || {
            left = differences(&self.before, &self.observe());
            left.is_empty()
        });
        assert!(left.is_empty(), "{when}:\n{}", left.join("\n"));
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = self.lab(&["down", name]).output();
        }
    }
}

fn inode(found: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(found)
}

/// A scenario that needs a setting which another one has is refused, also with a state directory of its own.
fn assert_refused(bench: &Bench, rival: &str, all: &str) {
    run(&mut bench.lab(&["up", rival]))
        .with_code(1)
        .assert_error(&format!("the scenario `{all}` is up, and needs `{SETTING}`"), all);
    let elsewhere = format!("{}: with that WEBDYNO_STATE", bench.place.path("state/lab").join(all).display());
    run(bench.lab(&["up", rival]).env("WEBDYNO_STATE", bench.place.path("state/other")))
        .with_code(1)
        .assert_error(&format!("the scenario `{all}` is up, and needs `{SETTING}`"), &elsewhere);
    std::fs::remove_dir_all(bench.place.path("state/other")).unwrap();
}

/// Whether this process may have others spared when memory is used up: CAP_SYS_RESOURCE, capabilities(7).
fn may_spare() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    u64::from_str_radix(effective, 16).unwrap() & (1 << 24) != 0
}

fn setting() -> String {
    std::fs::read_to_string(Path::new("/proc/sys").join(SETTING.replace('.', "/"))).unwrap().trim().to_owned()
}

#[test]
fn a_scenario_comes_and_goes_without_a_trace() {
    let _turn = shared_turn();
    if !is_alone("lab_hosts::a_scenario_comes_and_goes_without_a_trace") {
        return;
    }
    let rival = format!("{SMALL}[machine]\nsysctl = {{ \"{SETTING}\" = 12 }}\n");
    let bench = Bench::new(&[ALL_OF_IT, SMALL, &rival]);
    let [all, small, rival] = [0, 1, 2].map(|at| bench.names[at].as_str());
    assert_eq!(bench.output_of(&["down", all]), format!("{all} is not up: nothing to do"));
    bench.assert_clean("nothing to do");

    assert!(bench.output_of(&["up", all]).starts_with(&format!("{all} is up after ")));
    run(&mut bench.lab(&["up", all])).with_code(1).assert_error("is up already", "webdyno lab down");
    assert_refused(&bench, rival, all);
    assert_eq!(setting(), "11");
    let spared = if may_spare() { "-1000\n0" } else { "0\n0" };
    for (words, printed) in [
        (&["hostname"][..], "server"),
        (&["database", "hostname"], "database"),
        (&["--", "sh", "-c", "kill -0 1 && echo $HOME"], "/root"),
        (&["cat", "/proc/sys/net/core/somaxconn"], "77"),
        // What is started there is not spared when its memory is used up, but the host is.
        (&["cat", "/proc/1/oom_score_adj", "/proc/self/oom_score_adj"], spared),
        (&["sh", "-c", "echo 5 > /proc/sys/vm/swappiness || touch /usr/x || echo refused"], "refused"),
        (&["sh", "-c", "echo 78 > /proc/sys/net/core/somaxconn && touch /etc/x /var/x && echo may"], "may"),
        (&["stat", "-f", "-c", "%T", "/srv/data"], "ext2/ext3"),
        (&["client", "getent", "hosts", "database"], "10.80.1.2       database.test database"),
    ] {
        let whole: Vec<&str> = ["exec", all].into_iter().chain(words.iter().copied()).collect();
        assert_eq!(bench.output_of(&whole), printed, "{words:?}");
    }
    assert_eq!(run(&mut bench.lab(&["exec", all, "sh", "-c", "exit 7"])).code, 7);
    bench.output_of(&["up", small]);
    assert!(bench.output_of(&["list"]).contains(&format!("{small}  up")));
    for command in ["exec", "down"] {
        let unknown = run(&mut bench.lab(&[command, "nobody"])).with_code(2);
        unknown.assert_error("there is no scenario `nobody`", "lab list");
    }
    let mistyped = run(&mut bench.lab(&["exec", all, "servr", "true"])).with_code(2);
    mistyped.assert_error("there is neither a host nor a program `servr`", "did you mean `server`?");
    bench.output_of(&["down", small]);
    assert_eq!(bench.output_of(&["exec", all, "hostname"]), "server", "the other one stays");

    assert_eq!(bench.output_of(&["down", all]), format!("{all} is removed"));
    bench.assert_clean("after its end");
    let mut both = [bench.child(&["up", small]), bench.child(&["up", small])];
    let codes = both.each_mut().map(|child| child.wait().unwrap().code());
    assert!(codes == [Some(0), Some(1)] || codes == [Some(1), Some(0)], "of two at once one wins: {codes:?}");
    assert_eq!(bench.output_of(&["exec", small, "hostname"]), "server");
    bench.output_of(&["down", small]);
    let removed = run(&mut bench.lab(&["exec", all, "true"])).with_code(1);
    removed.assert_error("is not up", &format!("webdyno lab up {all}"));
    bench.output_of(&["up", rival]);
    std::fs::write(Path::new("/proc/sys").join(SETTING.replace('.', "/")), "13").unwrap();
    let changed = run(&mut bench.lab(&["down", "--all"])).with_code(0);
    changed.assert_error(&format!("`{SETTING}` is 13: somebody set it since"), "");
    assert_eq!(setting(), "13", "who changed it meant to");
    std::fs::write(Path::new("/proc/sys").join(SETTING.replace('.', "/")), "10").unwrap();
    bench.assert_clean("after all");
}

/// Whoever is killed at whichever line of the journal leaves enough for `down`, and for the next `up`.
#[test]
fn a_half_built_scenario_is_removed_whole() {
    let _turn = shared_turn();
    if !is_alone("lab_hosts::a_half_built_scenario_is_removed_whole") {
        return;
    }
    let bench = Bench::new(&[ALL_OF_IT]);
    let name = bench.names[0].as_str();
    bench.output_of(&["up", name]);
    let journal = std::fs::read_to_string(bench.state(name, "journal.jsonl")).unwrap();
    bench.output_of(&["down", name]);
    let is_group = |line: &&str| line.contains("\"act\":\"group\"");
    let lines: Vec<&str> = journal.lines().collect();
    // Of groups there are many, and one is like the other.
    let points = (0..lines.len()).filter(|at| !is_group(&lines[*at]) || at % 12 == 5);
    for lines_before in points {
        let mut child = bench.child(&["up", name]);
        let reported = || std::fs::read(bench.state(name, "journal.jsonl")).unwrap_or_default();
        wait_until(Duration::from_secs(20), || {
            reported().iter().filter(|byte| **byte == b'\n').count() > lines_before
                || child.try_wait().unwrap().is_some()
        });
        child.kill().unwrap();
        child.wait().unwrap();
        bench.output_of(&["down", name]);
        bench.assert_clean(&format!("killed behind {}", lines[lines_before]));
    }
    let mut child = bench.child(&["up", name]);
    wait_until(Duration::from_secs(20), || bench.state(name, "hosts/server/tmp").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    bench.output_of(&["up", name]);
    bench.output_of(&["down", name]);
    bench.assert_clean("after an end that the next beginning made");
}

/// What the rounds of a scenario do.
#[test]
fn limits_links_and_settings_change_while_it_is_up() {
    let _turn = shared_turn();
    if !is_alone("lab_hosts::limits_links_and_settings_change_while_it_is_up") {
        return;
    }
    let bench = Bench::new(&[ALL_OF_IT]);
    let options = BuildOptions {
        program: assert_cmd::cargo::cargo_bin("webdyno"),
        state: bench.place.path("state"),
        stop: Arc::default(),
    };
    let folder = Catalogue::Directory(bench.place.path("scenarios")).open(&bench.names[0]).unwrap();
    let mut lab = build::build(&folder, &options).unwrap();
    let printed = |lab: &Lab, host: &str, script: &str| {
        let output = lab.enter_host(host).unwrap().args(["sh", "-c", script]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    // Of each version what there is, through the host's own eyes.
    let limits = "g=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup); cd /sys/fs/cgroup/memory$g 2>/dev/null \
        && cat memory.limit_in_bytes memory.memsw.limit_in_bytes \
        || { cd /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/.. && cat memory.max memory.swap.max; }";
    let (with_swap, alone) = (208 << 20, 8 << 20);
    let first = printed(&lab, "server", limits);
    let displayed = |memory: u64, sum: u64| [format!("{memory}\n{sum}"), format!("{memory}\n{alone}")];
    assert!(displayed(200 << 20, with_swap).contains(&first), "{first}");
    let change = |text: &str| toml::from_str::<ScenarioHost>(text).unwrap();
    for (memory_bytes, text) in [(90 << 20, "memory = \"90M\"\ncpus = 0.5"), (300 << 20, "memory = \"300M\"")]
    {
        lab.change_host("server", &change(text)).unwrap();
        let now = printed(&lab, "server", limits);
        assert!(displayed(memory_bytes, memory_bytes + alone).contains(&now), "{now}");
    }
    assert!(printed(&lab, "client", "tc qdisc show dev eth0").contains("rate 50Mbit"));
    let mut link = folder.scenario.links[0].clone();
    link.rate_there = Some("9mbit".into());
    lab.change_link(&link).unwrap();
    assert!(printed(&lab, "client", "tc qdisc show dev eth0").contains("rate 9Mbit"));
    lab.change_machine(&toml::from_str(&format!("sysctl = {{ \"{SETTING}\" = 14 }}")).unwrap()).unwrap();
    assert_eq!(setting(), "14");
    let unknown = lab.change_host("nobody", &change("")).unwrap_err();
    assert_eq!(unknown.exit_code(), 2);
    remove::down(&options.state, &bench.names[0]).unwrap();
    bench.assert_clean("after changes");
}

#[test]
fn what_fails_or_is_interrupted_leaves_nothing() {
    let _turn = shared_turn();
    if !is_alone("lab_hosts::what_fails_or_is_interrupted_leaves_nothing") {
        return;
    }
    let never = ALL_OF_IT.replace("touch /tmp/there; exec sleep 1000", "echo it broke >&2; exit 3");
    let waits = ALL_OF_IT.replace("touch /tmp/there", "touch /tmp/begun");
    let bench = Bench::new(&[&never, &waits]);
    let [never, waits] = [0, 1].map(|at| bench.names[at].as_str());
    run(&mut bench.lab(&["up", never])).with_code(1).assert_error("it broke", "");
    bench.assert_clean("after a service that does not start");
    let mut child = bench.child(&["up", waits]);
    assert!(wait_until(Duration::from_secs(20), || bench.state(waits, "hosts/server/tmp/begun").exists()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    bench.assert_clean("interrupted");
}

/// What stands in the way of an end: swap behind a link and a mount, a setting that the kernel cut, a script of the host's own, and
/// somebody who sits on a host.
#[test]
fn what_is_in_the_way_of_an_end_is_no_hindrance() {
    let _turn = shared_turn();
    if !is_alone("lab_hosts::what_is_in_the_way_of_an_end_is_no_hindrance") {
        return;
    }
    let (long, script) =
        ("n".repeat(100), "export APACHE_TEST=$(hostname); touch /root/was-here; sleep 0.1\n");
    let machine =
        format!("{SMALL}[machine]\nswap = \"4M\"\nsysctl = {{ \"kernel.domainname\" = \"{long}\" }}\n");
    let mut bench = Bench::new(&[&machine]);
    let name = bench.names[0].clone();
    let name = name.as_str();
    let envvars = bench.place.path("scenarios").join(name).join("server/etc/apache2/envvars");
    std::fs::create_dir_all(envvars.parent().unwrap()).unwrap();
    std::fs::write(envvars, script).unwrap();
    for folder in ["disk", "mounted"] {
        std::fs::create_dir(bench.place.path(folder)).unwrap();
    }
    let folders = ["disk", "mounted"].map(|folder| bench.place.path(folder));
    assert!(std::process::Command::new("mount").arg("--bind").args(folders).status().unwrap().success());
    std::fs::remove_dir(bench.place.path("state")).unwrap();
    std::os::unix::fs::symlink("mounted", bench.place.path("state")).unwrap();
    bench.before = bench.observe();
    let domain = || std::fs::read_to_string("/proc/sys/kernel/domainname").unwrap();
    let before = domain();

    bench.output_of(&["up", name]);
    assert!(domain().starts_with("nnnn") && domain().len() < 100, "the kernel takes all of it: {}", domain());
    let home = std::path::PathBuf::from("/root/was-here");
    assert_eq!(
        bench.output_of(&["exec", name, "sh", "-c", "echo $APACHE_TEST; ls /root"]),
        "server\nwas-here"
    );
    assert!(!home.exists(), "a script of the host's ran on the machine");
    let program = assert_cmd::cargo::cargo_bin("webdyno");
    let from_inside = ["exec", name, "client", program.to_str().unwrap(), "lab", "down", name];
    run(&mut bench.lab(&from_inside)).with_code(1).assert_error("was typed on the host `client`", "`exit`");
    let removed = run(&mut bench.lab(&["down", name])).with_code(0);
    assert_eq!(removed.stderr, "", "nobody else set anything");
    assert_eq!(domain(), before);
    bench.assert_clean("behind a link");
}

/// A disk without room, and one that cannot hold swap.
#[test]
fn a_disk_that_does_not_suffice_is_told_with_what_helps() {
    let _turn = shared_turn();
    if !is_alone("lab_hosts::a_disk_that_does_not_suffice_is_told_with_what_helps") {
        return;
    }
    let mut bench = Bench::new(&[SMALL, &format!("{SMALL}[machine]\nswap = \"1M\"\n")]);
    let [small, swaps] = [0, 1].map(|at| bench.names[at].clone());
    let state = bench.place.path("state");
    for (size, name, message) in [("200k", small, "no space left"), ("30M", swaps, "swapon")] {
        let mut command = std::process::Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("mode=755,size={size}"), "none"]).arg(&state);
        assert!(command.status().unwrap().success());
        bench.before = bench.observe();
        run(&mut bench.lab(&["up", &name]))
            .with_code(1)
            .assert_error(message, "set WEBDYNO_STATE to a directory on");
        bench.assert_clean(message);
    }
}

#[test]
fn a_damaged_journal_costs_only_what_it_told() {
    let _turn = shared_turn();
    if !is_alone("lab_hosts::a_damaged_journal_costs_only_what_it_told") {
        return;
    }
    let bench = Bench::new(&[ALL_OF_IT]);
    let name = bench.names[0].as_str();
    bench.output_of(&["up", name]);
    let path = bench.state(name, "journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let line = text.lines().position(|line| line.contains("\"swap\"")).unwrap();
    let damaged = text.replace("{\"act\":\"swap\"", "\u{0}\u{0}{\"a");
    std::fs::write(&path, damaged).unwrap();
    run(&mut bench.lab(&["down", name]))
        .with_code(1)
        .assert_error(&format!("line {} of the journal", line + 1), "sysctl -a");
    bench.assert_clean("a damaged line");
    bench.output_of(&["up", name]);
    std::fs::write(bench.state(name, "hosts/server/tmp/of-the-first"), "").unwrap();
    std::fs::remove_file(&path).unwrap();
    // What runs without a journal is found by its name, also by the next `up`.
    bench.output_of(&["up", name]);
    assert_eq!(bench.output_of(&["exec", name, "ls", "/tmp"]), "there");
    bench.output_of(&["down", name]);
    assert_eq!(setting(), "11", "nobody knows any more");
    std::fs::write(Path::new("/proc/sys").join(SETTING.replace('.', "/")), "10").unwrap();
    bench.assert_clean("without a journal");
}

#[test]
fn without_root_the_lab_says_so() {
    let place = Place::new();
    let program = assert_cmd::cargo::cargo_bin("webdyno");
    let is_reachable = || {
        let words = ["--reuid", "65534", "--clear-groups", "test", "-x"];
        std::process::Command::new("setpriv")
            .args(words)
            .arg(&program)
            .status()
            .is_ok_and(|ended| ended.success())
    };
    if rustix::process::geteuid().is_root() && !is_reachable() {
        return skip("the program cannot be reached by others");
    }
    for words in [["up", "workers-exhausted-prefork"], ["exec", "workers-exhausted-prefork"]] {
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let mut command = assert_cmd::Command::new("setpriv");
                command.args(["--reuid", "65534", "--clear-groups"]).arg(&program);
                command
            }
            false => assert_cmd::Command::new(&program),
        };
        command.arg("lab").args(words).env("WEBDYNO_STATE", place.path("state")).current_dir(place.path("."));
        let message = format!("`webdyno lab {}` needs root", words[0]);
        run(&mut command).with_code(1).assert_error(&message, "sudo webdyno lab");
    }
}
