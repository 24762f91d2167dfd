//! The unit that puts everything back at boot, as the program installs it for a real Apache, and what it runs.

use crate::skip::needs;
use crate::support::{Apache, Place, can_mount};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use webdyno_host::agent::{AgentClient, ServerAddress, Start};
use webdyno_host::change::{StateDir, pending};
use webdyno_host::os::process::{ProcessName, wait_until};

/// The environment variable that makes the test below the one inside of a mount namespace.
const INSIDE: &str = "WEBDYNO_TEST_BOOTING";

/// As a test: runs itself in a mount namespace of its own, as on a machine that systemd has booted. With [`INSIDE`]: in
/// there.
#[test]
fn the_unit_for_the_boot_puts_everything_back() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    needs!(can_mount(), "no directory can be mounted over that of systemd's units");
    // Where a boot leaves it: who empties the directory at boot needs no unit.
    let state = tempfile::tempdir_in("/var/tmp").unwrap();
    let test = "booting::the_unit_for_the_boot_puts_everything_back";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").env("WEBDYNO_STATE", state.path());
    let output = command.output().unwrap();
    let reported = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}", reported.concat());
}

fn inside() {
    webdyno_host::agent::name_build(env!("WEBDYNO_BUILD"));
    let program = assert_cmd::cargo::cargo_bin("webdyno");
    let units = Path::new("/etc/systemd/system");
    for folder in [units, Path::new("/run/systemd")] {
        std::fs::create_dir_all(folder).unwrap();
        assert!(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(folder).status().unwrap().success());
    }
    std::fs::create_dir("/run/systemd/system").unwrap();
    // Also one that was sent there for the session, whose file has no name any more.
    for server in ["local", "exec:sh -c 'exec sh'"] {
        boot_after(&Start::at(ServerAddress::parse(server).unwrap(), &program), units);
    }
}

/// A session changes something and is killed; what the machine runs when it boots puts it back.
fn boot_after(start: &Start, units: &Path) {
    let place = Place::new();
    let apache = Apache::start(&place.path("server"), 20);
    let before = apache.configuration();
    let state = StateDir::of_environment().unwrap();

    let client = AgentClient::start(start).unwrap();
    apache.raise_limit(&client);
    assert!(apache.configuration() != before && apache.has_limit(30));
    let agent = pending(&state).unwrap().remove(0).id.rsplit('-').next().unwrap().parse().unwrap();
    let agent = ProcessName::of(agent).unwrap();
    agent.signal(rustix::process::Signal::KILL).unwrap();
    assert!(wait_until(Duration::from_secs(5), || !agent.is_alive()));

    let installed = files(units);
    let unit = installed.iter().find(|path| path.extension().is_some_and(|end| end == "service")).unwrap();
    assert_eq!(installed.len(), 2, "{installed:?}");
    let unit = std::fs::read_to_string(unit).unwrap();
    let value = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap();
        line.replace('"', "")
    };
    let first: Vec<String> = value("Before").split(' ').map(str::to_owned).collect();
    assert_eq!(first[..2], ["apache2.service", "httpd.service"]);
    // What the session may change besides.
    for other in ["nginx.service", "php8.2-fpm.service"] {
        assert!(first.iter().any(|name| name == other), "{first:?}");
    }
    assert!(Path::new(&value("ConditionPathExists")).exists());
    let run = format!("{} exec {}", value("Environment"), value("ExecStart"));
    let output = Command::new("sh").args(["-c", &run]).env_remove("WEBDYNO_STATE").output().unwrap();
    let reported = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && reported.contains("removed "), "{reported}{:?}", output.stderr);
    apache.assert_unchanged(&before);
    assert_eq!(files(units), Vec::<PathBuf>::new());
    assert!(!units.join("multi-user.target.d").exists());
    assert_eq!(pending(&state).unwrap(), []);
    let left = std::fs::read_dir(state.root()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_str().unwrap().starts_with("webdyno-rollback")));
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}
