//! The agent of a user without rights on the server's processes: it reads what anyone may read, observes, changes
//! nothing, and says what helps.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::agent::Session;
use crate::apache::server::{Server, apache_is_installed};
use crate::skip::needs;
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::agent::protocol::{Framed, FromAgent, PROTOCOL, ToAgent};
use webdyno_host::agent::{BUILD, Options};
use webdyno_host::change::StateDir;
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_model::change::SettingChange;
use webdyno_model::number::Number;
use webdyno_model::sample::Sample;
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

/// The environment variable that makes a test the user without rights, with what it is to do: of the test below `PORT|PID`, pid 0
/// when none is to be seen.
pub const UNPRIVILEGED: &str = "WEBDYNO_TEST_OUTSIDER";

const PREFORK: &str = "<IfModule mpm_prefork_module>\n    StartServers 2\n    MaxRequestWorkers 5\n    ServerLimit 20\n</IfModule>\n";

/// As a test: root, with an Apache whose files anyone may read, and one whose files nobody else may. With
/// [`OUTSIDER`]: nobody.
#[test]
fn a_user_without_rights_sees_what_anyone_may_see() {
    if let Ok(order) = std::env::var(UNPRIVILEGED) {
        let (port, pid) = order.split_once('|').unwrap();
        return unprivileged_agent(port.parse().unwrap(), pid.parse().unwrap());
    }
    needs!(apache_is_installed());
    needs!(rustix::process::geteuid().is_root(), "only root can become another user");
    let server = Server::debian("prefork", PREFORK);
    server.start();
    as_nobody(TEST, &format!("{}|{}", server.port, server.pid().unwrap()));
    std::fs::set_permissions(server.path(""), Permissions::from_mode(0o700)).unwrap();
    as_nobody(TEST, &format!("{}|0", server.port));
    assert_eq!(server.snapshot().number("MaxRequestWorkers"), Some(5.0), "it serves as before");
}

const TEST: &str = "unprivileged::a_user_without_rights_sees_what_anyone_may_see";

/// Runs a test as nobody. Its program comes as a descriptor: nobody may not go where it lies.
pub fn as_nobody(test: &str, order: &str) {
    let setpriv =
        "exec setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/0 --exact \"$0\" --nocapture";
    let output = Command::new("sh")
        .args(["-c", setpriv, test])
        .env(UNPRIVILEGED, order)
        .stdin(Stdio::from(File::open(std::env::current_exe().unwrap()).unwrap()))
        .current_dir("/")
        .output()
        .unwrap();
    let message =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.contains("1 passed"), "{message}");
}

fn unprivileged_agent(port: u16, pid: u32) {
    assert!(!rustix::process::geteuid().is_root());
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        state: StateDir::at(folder.path()),
        host: Arc::new(ThisMachine),
        silence_max: Duration::from_secs(60),
        build: BUILD.to_owned(),
        detach: false,
        settings_only: false,
    };
    let mut session = Session::with(options);
    session.request(ToAgent::Hello {
        protocol: PROTOCOL,
        build: BUILD.into(),
        tool: None,
        reads_only: false,
    });
    let answer = session.request(ToAgent::Discover { port });
    let FromAgent::Discovered { snapshot } = answer else { panic!("{answer:?}") };
    assert_eq!((snapshot.pid, snapshot.port, &snapshot.control), (pid, port, &None), "{snapshot:?}");
    match pid {
        0 => is_unknown(&snapshot),
        _ => is_apache(&snapshot),
    }
    let wanted = SettingChange {
        setting: SettingId::of_service("apache", "MaxRequestWorkers"),
        to: SettingValue::Integer(12),
    };
    let answer = session.request(ToAgent::Prepare { changes: vec![wanted], behind: false });
    let FromAgent::Failed { error } = answer else { panic!("{answer:?}") };
    assert!(error.message.contains("permission denied"), "{error}");
    assert!(error.hint.clone().unwrap().contains("sudo"), "{error:?}");
    let mut wanted = vec!["cpu", "sockets", "memory", "process"];
    if pid != 0 {
        wanted.extend(["apache_status", "worker_memory"]);
    }
    let samples = observed(&mut session, port, &wanted);
    let known = |source: &str, name: &str| samples[source].values.contains_key(name);
    assert!(known("cpu", "cpu.idle_s") && known("sockets", "sockets.accept_queue_count"), "{samples:?}");
    assert!(known("memory", "memory.available_bytes"), "{samples:?}");
    assert!(known("process", "process.foreign_cpu_s"), "{samples:?}");
    for name in ["process.cpu_s", "process.count"] {
        assert_eq!(known("process", name), pid != 0, "{name} {samples:?}");
    }
    if pid != 0 {
        let slots = samples["apache_status"].values.get("apache.slots_count");
        assert_eq!(slots, Some(&Number(5.0)), "{samples:?}");
        assert!(samples["worker_memory"].error.as_ref().unwrap().contains("run as root"));
    }
    session.ended().unwrap();
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing was written");
}

fn is_apache(snapshot: &ServiceSnapshot) {
    assert_eq!(snapshot.service, "apache");
    assert_eq!(snapshot.executable.as_deref(), Some("/usr/sbin/apache2"));
    assert!(snapshot.version.as_ref().unwrap().starts_with("2.4"));
    assert_eq!(snapshot.mode.as_deref(), Some("prefork"));
    let workers = &snapshot.settings["MaxRequestWorkers"];
    assert_eq!(workers.configured, Some(SettingValue::Integer(5)));
    assert_eq!(workers.running, Some(SettingValue::Integer(5)));
    assert!(snapshot.status_url.is_some());
    let [control] = &snapshot.missing[..] else { panic!("{:?}", snapshot.missing) };
    assert!(control.why.contains("permission denied") && control.how_to_enable.contains("sudo"));
    let [rights, inferred] = &snapshot.warnings[..] else { panic!("{:?}", snapshot.warnings) };
    assert!(rights.contains("none can be changed; run webdyno with sudo"), "{rights}");
    assert!(inferred.contains("was read from its configuration"), "{inferred}");
}

fn is_unknown(snapshot: &ServiceSnapshot) {
    assert_eq!(snapshot.service, "unknown");
    let [warning] = &snapshot.warnings[..] else { panic!("{:?}", snapshot.warnings) };
    assert!(warning.contains("cannot see which process listens") && warning.contains("sudo"), "{warning}");
}

/// A sample of each of these collectors, which read beside each other.
fn observed(session: &mut Session, port: u16, wanted: &[&str]) -> BTreeMap<String, Sample> {
    session.send(ToAgent::Observe {
        port: Some(port),
        client_pid: None,
        access: Default::default(),
        in_full: false,
    });
    let mut samples = BTreeMap::new();
    while !wanted.iter().all(|source| samples.contains_key(*source)) {
        match session.receive() {
            Some(Framed { body: FromAgent::Sample { sample, .. }, .. }) => {
                samples.insert(sample.source.clone(), sample);
            }
            Some(Framed { body: FromAgent::Done, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    samples
}
