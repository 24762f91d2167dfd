//! Changes of others that wait for a reload: ours is refused until the operator accepts them, and reverting never is.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::apache::server::{EXECUTABLE, MODULES, Server, apache_is_installed};
use crate::fake::{FakeServer, empty_folder};
use crate::generations::scoreboard;
use crate::skip::needs;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::change::action::{Action, Served, WriteFile};
use webdyno_host::change::journal::history::{ClosedBy, Record};
use webdyno_host::change::journal::{Journal, Owner};
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::change::{Applied, Changer, StateDir, Tools, pending};
use webdyno_host::os::process::wait_until;
use webdyno_host::services::tunable;
use webdyno_model::change::{
    ApplyClass, ApplyOptions, ManagedFile, Preparation, RenderedPlan, SettingChange,
};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;
use webdyno_model::{Result, UserError};

const ACCEPTED: ApplyOptions =
    ApplyOptions { allow_restart: false, yes_reload: true, live_traffic: false, probes: vec![] };

fn wait(server: &FakeServer, names: &str) {
    fs::write(server.folder.join("waiting"), names).unwrap();
}

fn apply(
    server: &FakeServer,
    changer: &mut Changer,
    text: &str,
    class: ApplyClass,
    options: &ApplyOptions,
) -> Result<Applied> {
    let options = ApplyOptions { allow_restart: true, ..options.clone() };
    changer.apply(&server.plan(&[("a.conf", text)], class), &server.snapshot_now(), &options)
}

fn refused(result: Result<Applied>, name: &str) {
    let error = result.unwrap_err();
    let text = format!("{name} was changed 2 min after Fake last read its configuration");
    assert!(
        error.message.contains("would put changes of others in force") && error.message.contains(&text),
        "{error}"
    );
    assert!(error.hint.as_ref().is_some_and(|hint| hint.contains("--accept-pending")), "{error:?}");
}

#[test]
fn a_reload_that_is_not_only_ours_is_refused_before_anything_is_written() {
    let (_folder, server) = FakeServer::fresh();
    let (original, mut changer) = (server.picture(), server.changer());
    wait(&server, "b.conf\n");
    for class in [ApplyClass::Reload, ApplyClass::Restart] {
        refused(apply(&server, &mut changer, "Workers 20\n", class, &ApplyOptions::default()), "b.conf");
        assert_eq!((server.picture(), changer.has_session()), (original.clone(), false));
    }
    // What takes effect without a reload takes nothing else with it.
    let live =
        apply(&server, &mut changer, "Workers 20\n", ApplyClass::Live, &ApplyOptions::default()).unwrap();
    assert_eq!(live.others, Vec::<String>::new());
    changer.end(ClosedBy::Tool).unwrap();
    assert_eq!(pending(&server.state()).unwrap(), []);
}

#[test]
fn what_the_operator_accepts_is_done_and_told() {
    let (_folder, server) = FakeServer::fresh();
    let mut changer = server.changer();
    wait(&server, "b.conf\n");
    let applied = apply(&server, &mut changer, "Workers 20\n", ApplyClass::Reload, &ACCEPTED).unwrap();
    assert!(
        applied.others.len() == 1 && applied.others[0].contains("b.conf was changed"),
        "{:?}",
        applied.others
    );
    assert!(server.running().contains("Workers 20"));
    changer.end(ClosedBy::Tool).unwrap();
}

#[test]
fn many_changes_are_told_bounded() {
    let (_folder, server) = FakeServer::fresh();
    wait(&server, &(0..50).map(|n| format!("{n}.conf\n")).collect::<String>());
    let mut changer = server.changer();
    let error = apply(&server, &mut changer, "Workers 20\n", ApplyClass::Reload, &ApplyOptions::default())
        .unwrap_err();
    assert!(
        error.message.ends_with("; and 40 more") && error.message.matches("Fake").count() == 10,
        "{error}"
    );
}

/// An operator who changes something while we write: nothing of both takes effect.
#[test]
fn what_comes_in_between_is_seen_before_the_reload() {
    let (_folder, server) = FakeServer::fresh();
    let (original, mut changer) = (server.picture(), server.changer());
    let text = "Workers 20\n# WAITS b.conf\n";
    refused(apply(&server, &mut changer, text, ApplyClass::Reload, &ApplyOptions::default()), "b.conf");
    assert_eq!(server.picture(), original);
}

/// What waits of an operator while our change is refused stays as he left it: neither in force nor lost.
#[test]
fn a_refused_change_puts_nothing_of_others_in_force() {
    let folder = empty_folder();
    let server = FakeServer { tells_reads: true, ..FakeServer::set_up(folder.path()) };
    let (running, mut changer) = (server.running(), server.changer());
    // Later than the slack in which what was written counts as read.
    std::thread::sleep(Duration::from_millis(50));
    fs::write(server.conf("b.conf"), "KeepAlive Off\n").unwrap();
    let original = server.picture();
    // Only the look before the reload finds what waits.
    let text = "Workers 20\n# WAITS b.conf\n";
    refused(apply(&server, &mut changer, text, ApplyClass::Reload, &ApplyOptions::default()), "b.conf");
    assert_eq!((server.running(), server.picture()), (running, original.clone()));
    changer.end(ClosedBy::Tool).unwrap();
    assert_eq!((server.picture(), pending(&server.state()).unwrap()), (original, vec![]));
}

#[test]
fn putting_back_is_never_refused() {
    let (_folder, server) = FakeServer::fresh();
    let (original, mut changer) = (server.picture(), server.changer());
    let options = ApplyOptions::default();
    let first = apply(&server, &mut changer, "Workers 20\n", ApplyClass::Reload, &options).unwrap();
    wait(&server, "b.conf\n");
    changer.revert(first.mark, false).unwrap();
    assert_eq!(server.picture(), original);
    fs::remove_file(server.folder.join("waiting")).unwrap();
    apply(&server, &mut changer, "Workers 30\n", ApplyClass::Reload, &options).unwrap();
    wait(&server, "b.conf\n");
    changer.end(ClosedBy::Tool).unwrap();
    assert_eq!(server.picture(), original);
}

/// What this session wrote is its own until it is in force; after that, what is newer is somebody else's.
#[test]
fn a_session_does_not_stand_in_its_own_way() {
    let (_folder, server) = FakeServer::fresh();
    let (mut changer, options) = (server.changer(), ApplyOptions::default());
    // What was reverted after a failure is in force again.
    apply(&server, &mut changer, "INVALID\n", ApplyClass::Reload, &options).unwrap_err();
    assert!(!server.running().contains("INVALID"));
    // Written, and not in force yet: newer than what runs.
    let text = "Workers 20\n# WAITS a.conf\n";
    apply(&server, &mut changer, text, ApplyClass::Reload, &options).unwrap();
    refused(apply(&server, &mut changer, "Workers 30\n", ApplyClass::Reload, &options), "a.conf");
    assert!(server.running().contains("Workers 20"));
    changer.end(ClosedBy::Tool).unwrap();
}

#[test]
fn a_proposal_is_never_written() {
    let (_folder, server) = FakeServer::fresh();
    let (original, mut changer) = (server.picture(), server.changer());
    let managed =
        ManagedFile { path: "/etc/a.conf".into(), by: "Puppet".into(), why: "it is in its catalog".into() };
    let plan = server.plan(&[("a.conf", "Workers 20\n")], ApplyClass::Reload);
    let plan = RenderedPlan { managed: vec![managed], ..plan };
    let error = changer.apply(&plan, &server.snapshot_now(), &ACCEPTED).unwrap_err();
    assert_eq!(error.message, "/etc/a.conf is managed by Puppet, and is not written: it is in its catalog");
    assert!(error.hint.unwrap().contains("--export"));
    let plan = server.plan(&[("a.conf", "Workers 20\n")], ApplyClass::Reload);
    let plan = RenderedPlan { to_decide: vec!["rules would be lost".into()], ..plan };
    let error = changer.apply(&plan, &server.snapshot_now(), &ACCEPTED).unwrap_err();
    assert_eq!(error.message, "the change is for a person to decide: rules would be lost");
    assert_eq!((server.picture(), changer.has_session()), (original, false));
}

/// A real Apache and a session at it.
struct Fixture {
    server: Server,
    changer: Changer,
    state: tempfile::TempDir,
}

const PREFORK: &str = "<IfModule mpm_prefork_module>\n    StartServers 2\n    MinSpareServers 1\n    MaxSpareServers 3\n    \
                       MaxRequestWorkers 5\n    ServerLimit 20\n</IfModule>\n";

/// With a module, a certificate and a program of its own, so that each can be replaced.
fn fixture() -> Fixture {
    let mut server = Server::debian("prefork", PREFORK);
    server.executable = server.path("bin/apache2");
    server.write("tls/cert.pem", "no certificate: nothing is served with it\n");
    fs::create_dir_all(server.path("bin")).unwrap();
    copy(EXECUTABLE, &server.executable);
    copy(&format!("{MODULES}/mod_status.so"), &server.path("mod_status.so"));
    server.write(
        "mods-enabled/status.load",
        &format!("LoadModule status_module {}\n", server.path("mod_status.so").display()),
    );
    server.write("mods-enabled/ssl.load", &format!("LoadModule ssl_module {MODULES}/mod_ssl.so\n"));
    server.write("ports.conf", &format!("Listen 127.0.0.1:{}\n", server.port));
    server.write("mods-enabled/ssl.conf", "SSLCertificateFile tls/cert.pem\n");
    server.write("sites-available/b.conf", "# nothing\n");
    std::os::unix::fs::symlink("../sites-available/b.conf", server.path("sites-enabled/b.conf")).unwrap();
    server.start();
    // Files are stamped in ticks of the kernel's clock: what comes now must not have the time of the start.
    std::thread::sleep(Duration::from_millis(50));
    let state = tempfile::tempdir().unwrap();
    Fixture { server, changer: changer(&state), state }
}

fn changer(state: &tempfile::TempDir) -> Changer {
    let owner = Owner { tool: None, what: "webdyno tune".into() };
    Changer::new(StateDir::at(state.path()), Arc::new(ThisMachine), owner)
}

impl Fixture {
    fn raise(&mut self, workers: i64, options: &ApplyOptions) -> Result<Applied> {
        let snapshot = self.server.snapshot();
        let to = SettingValue::Integer(workers);
        let wanted = SettingChange { setting: SettingId::of_service("apache", "MaxRequestWorkers"), to };
        let plan = tunable("apache")
            .unwrap()
            .prepare(&snapshot, &[wanted])
            .and_then(Preparation::into_plan)
            .unwrap();
        self.changer.apply(&plan, &snapshot, options)
    }

    /// Checks what a change is refused for; the message.
    fn refused(&mut self, expected: &[(&str, &str)]) -> String {
        let error: UserError = self.raise(12, &ApplyOptions::default()).unwrap_err();
        for (name, why) in expected {
            let text = format!("{} {why}", self.server.path(name).display());
            assert!(error.message.contains(&text), "no `{text}` in: {error}");
        }
        assert_eq!(error.message.matches("; ").count() + 1, expected.len(), "{error}");
        assert_eq!(self.server.snapshot().pending.len(), expected.len());
        assert!(!self.server.path("conf-enabled/zzz-webdyno.conf").exists() && !self.changer.has_session());
        error.message
    }

    /// What a session leaves that was killed between writing its file and the reload, and was reverted by its guardian.
    fn killed_before_the_reload(&mut self) {
        self.changer.end(ClosedBy::Tool).unwrap();
        self.changer = changer(&self.state);
        let path = self.server.path("conf-enabled/zzz-webdyno.conf");
        let served = Served {
            service: "apache".into(),
            port: self.server.port,
            control: self.server.snapshot().control.unwrap(),
        };
        let (path_text, after_sha256) = (path.display().to_string(), String::new());
        let (before, class, at_us) = (None, None, None);
        let (folder, makes_folder) = (None, false);
        let write =
            WriteFile { path: path_text, before, after_sha256, served, class, at_us, folder, makes_folder };
        let state = StateDir::at(self.state.path());
        fs::create_dir_all(state.journals()).unwrap();
        let owner = Owner { tool: None, what: "webdyno tune".into() };
        let mut journal = Journal::create(&Tools::of_this_machine(state), &owner).unwrap();
        journal.append(Record::Intent { n: 1, action: Action::WriteFile(write) }).unwrap();
        fs::write(&path, "").unwrap();
        fs::remove_file(&path).unwrap();
        journal.append(Record::Undone { n: 1, control: None }).unwrap();
        journal.append(Record::Closed { by: ClosedBy::Guardian }).unwrap();
    }

    fn end(mut self) {
        self.changer.end(ClosedBy::Tool).unwrap();
    }
}

/// With its times. By another process: while this one has a program open for writing, no other test could start it.
fn copy(from: &str, to: &Path) {
    assert!(Command::new("cp").args(["-p", from]).arg(to).status().unwrap().success());
}

/// Puts another file in the place of one, with its old times, as package managers do.
fn replace(path: &Path) {
    let new = PathBuf::from(format!("{}.new", path.display()));
    copy(path.to_str().unwrap(), &new);
    fs::rename(new, path).unwrap();
}

#[test]
fn a_fresh_apache_waits_for_nothing_and_rounds_follow_each_other() {
    needs!(apache_is_installed());
    let mut fixture = fixture();
    assert_eq!(fixture.server.snapshot().pending, Vec::<String>::new());
    let first = fixture.raise(12, &ApplyOptions::default()).unwrap();
    assert_eq!(first.others, Vec::<String>::new());
    fixture.raise(15, &ApplyOptions::default()).unwrap();
    fixture.changer.revert(first.mark, false).unwrap();
    fixture.raise(8, &ApplyOptions::default()).unwrap();
    assert_eq!(fixture.server.snapshot().pending, Vec::<String>::new());
    fixture.end();
}

/// What a session wrote and put back without a reload is newer than what runs, and nobody else's for the next one.
#[test]
fn a_session_that_was_put_back_stands_in_nobodys_way() {
    needs!(apache_is_installed());
    let mut fixture = fixture();
    fixture.killed_before_the_reload();
    let mut seen = fixture.server.snapshot();
    assert!(seen.pending.len() == 1 && seen.warnings.iter().any(|text| text.starts_with(&seen.pending[0])));
    fixture.changer.forget_ours(&mut seen);
    assert_eq!(seen.pending, Vec::<String>::new());
    let puts_in_force = |text: &String| text.contains("a reload puts that in force");
    assert!(!seen.warnings.iter().any(puts_in_force), "{:?}", seen.warnings);
    let applied = fixture.raise(12, &ApplyOptions::default()).unwrap();
    assert_eq!(applied.others, Vec::<String>::new());
    fixture.changer.revert(0, false).unwrap();
    // What somebody does there after that is his.
    fixture.killed_before_the_reload();
    std::thread::sleep(Duration::from_millis(50));
    fixture.server.write("conf-enabled/mine.conf", "# mine\n");
    let mut seen = fixture.server.snapshot();
    fixture.changer.forget_ours(&mut seen);
    assert!(
        seen.pending.len() == 1 && seen.pending[0].contains("mine.conf was changed"),
        "{:?}",
        seen.pending
    );
    let refused = fixture.raise(12, &ApplyOptions::default()).unwrap_err();
    assert!(refused.message.contains("mine.conf was changed"), "{refused}");
    fixture.end();
}

#[test]
fn a_touched_site_and_a_removed_link_are_named() {
    needs!(apache_is_installed());
    let mut fixture = fixture();
    fixture.server.write("sites-available/b.conf", "# another\n");
    fixture.refused(&[("sites-enabled/b.conf", "was changed ")]);
    fs::remove_file(fixture.server.path("sites-enabled/b.conf")).unwrap();
    fixture.refused(&[("sites-enabled", "got or lost files ")]);
    // Accepted, it is done, and told.
    let applied = fixture.raise(12, &ACCEPTED).unwrap();
    assert!(applied.others[0].contains("sites-enabled got or lost files"), "{:?}", applied.others);
    fixture.end();
}

#[test]
fn a_newer_certificate_and_a_replaced_module_are_named() {
    needs!(apache_is_installed());
    let mut fixture = fixture();
    replace(&fixture.server.path("mod_status.so"));
    fixture.refused(&[("mod_status.so", "was replaced since Apache loaded it")]);
    fixture.server.write("tls/cert.pem", "renewed\n");
    let message = fixture.refused(&[
        ("mod_status.so", "was replaced since Apache loaded it"),
        // Less than 1 s, or more on a machine that is busy.
        ("tls/cert.pem", "was changed "),
    ]);
    assert!(message.contains(" s after Apache last read its configuration"), "{message}");
    fixture.end();
}

#[test]
fn a_replaced_program_is_named() {
    needs!(apache_is_installed());
    let mut fixture = fixture();
    replace(&fixture.server.path("bin/apache2"));
    fixture.refused(&[("bin/apache2", "was replaced since Apache started it")]);
    fixture.end();
}

/// A reload by somebody else, with a request of the old generation still at work, and all workers taken.
#[test]
fn workers_that_finish_do_not_make_a_reload_look_old() {
    needs!(apache_is_installed());
    let mut fixture = fixture();
    let mut held = TcpStream::connect(("127.0.0.1", fixture.server.port)).unwrap();
    held.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let is_read = || scoreboard(&fixture.server).contains('R');
    assert!(wait_until(Duration::from_secs(10), is_read), "{}", scoreboard(&fixture.server));
    let workers = || webdyno_host::os::procfs::children_of(fixture.server.pid().unwrap());
    let (old, pid_file) = (workers(), fixture.server.path("run/apache2.pid"));
    fixture.server.write("sites-available/b.conf", "# another\n");
    let written = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let before = written(&pid_file);
    assert!(fixture.server.run(&["-k", "graceful"]).status.success());
    assert!(wait_until(Duration::from_secs(10), || written(&pid_file) > before));
    assert_eq!(fixture.server.snapshot().pending, Vec::<String>::new());
    assert!(old.iter().any(|old| workers().contains(old)), "no worker was held: nothing was tested");
    drop(held);
    fixture.raise(12, &ApplyOptions::default()).unwrap();
    fixture.end();
}

#[test]
fn a_rollback_is_not_refused_by_what_others_changed() {
    needs!(apache_is_installed());
    let mut fixture = fixture();
    fixture.raise(12, &ApplyOptions::default()).unwrap();
    fixture.server.write("sites-available/b.conf", "# another\n");
    fixture.changer.revert(0, false).unwrap();
    assert!(!fixture.server.path("conf-enabled/zzz-webdyno.conf").exists());
    assert_eq!(fixture.server.snapshot().number("MaxRequestWorkers"), Some(5.0));
    fixture.end();
}
