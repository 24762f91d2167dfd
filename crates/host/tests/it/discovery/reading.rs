//! Observing writes nothing on the server but in the session's own folder, and withstands what vanishes.
//!
//! A whole session runs in a program of its own (this one, once more): where everything but its folder is read-only, with
//! each of its file accesses traced by strace(1), and as a user without rights.

use crate::agent::Session;
use crate::mounts::can_mount;
use crate::skip::needs;
use crate::traced::{changes, has_strace};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use webdyno_host::agent::protocol::{Framed, FromAgent, PROTOCOL, ToAgent};
use webdyno_host::agent::{BUILD, Options};
use webdyno_host::change::StateDir;
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::discovery::survey::{SurveyBudget, survey};
use webdyno_host::services::php_fpm::controllable;
use webdyno_host::services::{self, snapshot_unknown};
use webdyno_model::topology::{Access, Topology};

/// The environment variable that makes a test the observer: `PORT|FOLDER|USER`.
pub const OBSERVER: &str = "WEBDYNO_TEST_OBSERVER";

/// Where the session's state would be, if it had any.
const STATE: &str = "/var/lib/webdyno-test-that-only-reads";

/// How long is observed.
const WATCHED: Duration = Duration::from_millis(2500);
/// On a machine where others are at work, too.
const WATCHED_AT_MOST: Duration = Duration::from_secs(30);
/// Of each of these collectors something must be heard.
const EXPECTED: [&str; 5] = ["cpu", "memory", "process", "sockets", "apache_status"];

/// A whole session that only reads.
pub fn observe(order: &str) {
    let [port, folder, user] = order.split('|').collect::<Vec<_>>()[..] else { panic!("{order}") };
    let port = port.parse().unwrap();
    let options = Options {
        state: StateDir::at(Path::new(STATE)),
        host: Arc::new(ThisMachine),
        silence_max: Duration::from_secs(60),
        build: BUILD.to_owned(),
        detach: false,
        settings_only: false,
    };
    let mut session = Session::with(options);
    session.request(ToAgent::Hello { protocol: PROTOCOL, build: BUILD.into(), tool: None, reads_only: true });
    let access = Access::default();
    let answer = session.request(ToAgent::Discover { port });
    let FromAgent::Discovered { snapshot } = answer else { panic!("{answer:?}") };
    assert_eq!(snapshot.service, "apache");
    let answer = session.request(ToAgent::Topology { port: Some(port), access: access.clone() });
    let FromAgent::Topology { topology } = answer else { panic!("{answer:?}") };
    match user {
        "root" => {
            assert!(topology.missing.iter().all(|missing| missing.signal != "topology"), "{topology:#?}")
        }
        _ => {
            let lacking = topology.missing.iter().find(|missing| missing.signal == "topology").unwrap();
            assert!(lacking.why.contains("permission denied") && lacking.how_to_enable.contains("sudo"));
            fpm_is_read_from_its_configuration(&topology);
        }
    }
    let all = session.request(ToAgent::Topology { port: None, access: access.clone() });
    assert!(matches!(all, FromAgent::Topology { .. }), "{all:?}");
    let refused = session.request(ToAgent::Keep);
    assert!(matches!(refused, FromAgent::Failed { .. }), "{refused:?}");
    let observe = ToAgent::Observe { port: Some(port), client_pid: None, access, in_full: true };
    let asked = session.send(observe);
    let (begin, mut sources) = (Instant::now(), BTreeSet::new());
    let has_all = |sources: &BTreeSet<_>| EXPECTED.iter().all(|source| sources.contains(*source));
    while begin.elapsed() < WATCHED || (!has_all(&sources) && begin.elapsed() < WATCHED_AT_MOST) {
        match session.receive() {
            Some(Framed { body: FromAgent::Sample { sample, .. }, .. }) => _ = sources.insert(sample.source),
            Some(Framed { id, body: FromAgent::Done }) if id == asked => {}
            other => panic!("{other:?}"),
        }
    }
    for source in EXPECTED {
        assert!(sources.contains(source), "{source} {sources:?}");
    }
    session.ended().unwrap();
    assert!(!Path::new(STATE).exists());
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(left.is_empty(), "the session's folder is left as it was found: {left:?}");
}

/// Who may not see which process holds PHP-FPM's sockets takes it from its configuration, says so, and can change nothing.
fn fpm_is_read_from_its_configuration(topology: &Topology) {
    let fpm: Vec<_> = topology.backends.iter().filter(|backend| backend.service == "php_fpm").collect();
    let [fpm] = fpm[..] else { panic!("{topology:#?}") };
    let pools: BTreeSet<&str> = fpm.endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
    assert_eq!(pools, BTreeSet::from(["a", "b"]), "{fpm:?}");
    let linked = topology.links.iter().filter(|link| link.to_pid == Some(fpm.pid));
    for by in linked.map(|link| &link.by) {
        let is_told =
            |warning: &&String| warning.contains(&format!("at {by} was read from its configuration"));
        assert_eq!(fpm.warnings.iter().filter(is_told).count(), 1, "{by} {:?}", fpm.warnings);
    }
    let error = controllable(fpm).unwrap_err();
    assert!(error.hint.clone().unwrap_or_default().contains("sudo"), "{error:?}");
}

/// The command by which this program becomes the observer: its words, to be run by something else.
fn observer(port: u16, folder: &Path, user: &str) -> (Vec<String>, String) {
    let test = "discovery::whom_a_site_talks_to_is_found";
    let program = std::env::current_exe().unwrap().display().to_string();
    let words = [program.as_str(), "--exact", test, "--nocapture"].map(str::to_owned).into();
    (words, format!("{port}|{}|{user}", folder.display()))
}

fn run(command: &mut Command, order: &str, folder: &Path) {
    is_well(&command.env(OBSERVER, order).env("TMPDIR", folder).output().unwrap());
}

/// Whether it did what it was to do.
fn is_well(output: &Output) {
    let message = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.contains("1 passed"), "{message}");
    assert!(!message.contains("writable:"), "{message}");
}

/// In a mount namespace where nothing can be written but the session's folder.
pub fn with_everything_read_only(port: u16) {
    needs!(can_mount(), "nothing can be mounted here");
    let folder = tempfile::tempdir().unwrap();
    let (words, order) = observer(port, folder.path(), "root");
    // Devices stay writable on a read-only mount (mount(8)); proc and sysfs keep no files.
    let inside = r#"mount -t tmpfs none "$TMPDIR" || exit 1
        awk '{print $5}' /proc/self/mountinfo | sort -u | while read -r place; do
            [ "$place" = "$TMPDIR" ] || mount -o remount,bind,ro "$place" 2>/dev/null
        done
        for place in / /etc /var/lib /var/log /tmp /run /dev/shm /root; do
            [ ! -d "$place" ] || ! touch "$place/webdyno-test" 2>/dev/null || echo "writable: $place"
        done
        exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", inside, "sh"]).args(words);
    run(&mut command, &order, folder.path());
}

/// With each access to a file written down.
pub fn with_every_file_traced(port: u16) {
    needs!(has_strace());
    let folder = tempfile::tempdir().unwrap();
    let (words, order) = observer(port, folder.path(), "root");
    let prepare = |command: &mut Command| {
        command.env(OBSERVER, &order).env("TMPDIR", folder.path());
    };
    let (output, written) = changes(words, prepare, &[folder.path()]);
    is_well(&output);
    assert!(written.is_empty(), "{}", written.join("\n"));
}

/// As nobody, who may not look into the service's processes.
pub fn without_rights(port: u16) {
    let folder = tempfile::tempdir().unwrap();
    let (words, order) = observer(port, folder.path(), "nobody");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    // Its program comes as a descriptor: nobody may not go where it lies.
    let become_nobody = "exec setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/0 \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", become_nobody, "sh"]).args(&words[1..]).current_dir("/");
    command.stdin(Stdio::from(File::open(std::env::current_exe().unwrap()).unwrap()));
    run(&mut command, &order, folder.path());
}

/// Processes come and go all the time while others are looked at.
#[test]
fn processes_that_vanish_disturb_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, port) = (std::process::id(), listener.local_addr().unwrap().port());
    let look = |pid: u32| {
        let front = snapshot_unknown(pid, port, Some("/x".into()));
        survey(Some(front), services::all(), (&Topology::default(), &Access::default()), SurveyBudget::ONCE)
    };
    const LOOKS_COUNT: usize = 20;
    let (done, mut listens) = (AtomicBool::new(false), vec![]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                Command::new("true").status().unwrap();
            }
        });
        for _ in 0..LOOKS_COUNT {
            let seen = look(own);
            listens.push(seen.front.unwrap().listens);
        }
        done.store(true, Ordering::Relaxed);
    });
    let is_told = |listens: &&Vec<String>| listens.contains(&format!("127.0.0.1:{port}"));
    assert_eq!(listens.iter().filter(is_told).count(), LOOKS_COUNT, "{listens:?}");
    // The service itself has ended.
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let seen = look(ended.id());
    assert_eq!(seen.front.unwrap().pid, ended.id());
    assert!(seen.missing[0].why.contains("has ended"), "{:?}", seen.missing);
}
