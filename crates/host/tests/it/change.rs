//! The promise: however a session ends, the server ends as it was found. Sessions are ended at every single act, by
//! killing their process, by a disk that fills up, and by tearing the journal at every byte.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::booting::booted;
use crate::fake::{
    FILES, FakeServer, FaultInjection, FaultyDisk, PORT, What, empty_folder, victim_of, victim_order,
};
use proptest::prelude::*;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::change::journal::Owner;
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::disk::{Disk, RealDisk};
use webdyno_host::change::undo::rollback::{rollback_with, undo_interrupted_with};
use webdyno_host::change::{Changer, notice, pending};
use webdyno_host::os::process::ProcessName;
use webdyno_model::change::{ApplyClass, ApplyOptions, RenderedPlan};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::{Result, UserError};

/// A session that writes, creates, reloads, restarts, keeps, reverts in part, and ends.
fn session(server: &FakeServer, keep: bool) -> Result<()> {
    let mut changer = server.changer();
    let first = [("a.conf", "Workers 20\n"), ("b.conf", "KeepAlive Off\n"), ("new.conf", "Extra 1\n")];
    changer.apply(
        &server.plan(&first, ApplyClass::Reload),
        &server.snapshot_now(),
        &ApplyOptions::default(),
    )?;
    if keep {
        changer.keep()?;
    }
    let second = [("a.conf", "Workers 30\n")];
    let applied = changer.apply(
        &server.plan(&second, ApplyClass::Restart),
        &server.snapshot_now(),
        &ApplyOptions { allow_restart: true, ..ApplyOptions::default() },
    )?;
    changer.revert(applied.mark, false)?;
    changer.apply(
        &server.plan(&second, ApplyClass::Reload),
        &server.snapshot_now(),
        &ApplyOptions::default(),
    )?;
    changer.end(ClosedBy::Tool)?;
    Ok(())
}

fn rollback(server: &FakeServer) -> Result<Vec<String>> {
    rollback_with(&server.tools(Arc::new(RealDisk)))
}

/// Rolls back, and asserts that everything is as in the picture, and that nothing is left to do.
fn rolled_back(folder: &Path, original: &BTreePicture, context: &str) {
    let server = FakeServer::at(folder);
    rollback(&server).unwrap_or_else(|error| panic!("{context}: {error} {:?}", error.hint));
    assert_eq!(&server.picture(), original, "{context}");
    assert_eq!(
        rollback(&server).unwrap(),
        Vec::<String>::new(),
        "{context}: the second time nothing is pending"
    );
    assert_eq!(pending(&server.state()).unwrap(), [], "{context}");
}

type BTreePicture = std::collections::BTreeMap<String, (Vec<u8>, u32, u32, u32, i64)>;

/// As a test: a session without a kill ends well. By [`victim`]: the process that is killed at an act.
#[test]
fn a_session_that_ends_by_itself_leaves_the_server_as_it_was() {
    if let Some((server, fault, order)) = victim_order() {
        match order[1].as_str() {
            "rollback" => drop(rollback_with(&server.tools(Arc::new(FaultyDisk(fault)))).unwrap()),
            "interrupted" => {
                drop(undo_interrupted_with(&booted(&server, Arc::new(FaultyDisk(fault)))).unwrap())
            }
            _ => session(&server, order[0] == "true").unwrap(),
        }
        std::process::exit(77);
    }
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();
    session(&server, false).unwrap();
    assert_eq!(server.picture(), original);
    assert_eq!(rollback(&server).unwrap(), Vec::<String>::new());
}

/// Runs the process that is killed at an act. False when it ended before it came to that.
pub fn victim(folder: &Path, act: u64, within: bool, keep: bool, what: &str) -> bool {
    let order = format!("{}|{act}|{within}|{keep}|{what}", folder.display());
    let test = "change::a_session_that_ends_by_itself_leaves_the_server_as_it_was";
    victim_of(&[], test, &order)
}

/// A process that is killed before or within any act is undone by a rollback: bytes, modes, owners, times, what runs.
#[test]
fn a_kill_at_any_act_is_rolled_back() {
    let mut kills = 0;
    for (within, keep) in [(false, false), (true, true)] {
        for act in 1.. {
            let folder = empty_folder();
            let original = FakeServer::set_up(folder.path()).picture();
            let killed = victim(folder.path(), act, within, keep, "session");
            rolled_back(folder.path(), &original, &format!("act {act} within {within} keep {keep}"));
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 60, "only {kills} kills");
}

/// A rollback that is killed at any act is completed by the next one.
#[test]
fn a_kill_of_the_rollback_is_rolled_back() {
    let mut kills = 0;
    for act in 1.. {
        let folder = empty_folder();
        let original = FakeServer::set_up(folder.path()).picture();
        let server =
            FakeServer { fault: FaultInjection::at(25, What::Dead(0)), ..FakeServer::at(folder.path()) };
        session(&server, true).unwrap_err();
        let killed = victim(folder.path(), act, act % 2 == 0, false, "rollback");
        rolled_back(folder.path(), &original, &format!("act {act} of the rollback"));
        if !killed {
            break;
        }
        kills += 1;
    }
    assert!(kills > 10, "only {kills} kills");
}

/// The acts of a session that nothing befalls.
fn acts_of_a_session() -> u64 {
    let (_folder, server) = FakeServer::fresh();
    session(&server, false).unwrap();
    server.fault.acts()
}

/// A write that got any number of bytes far, of the journal or of a file, is rolled back.
#[test]
fn a_write_torn_at_any_byte_is_rolled_back() {
    for act in 1..=acts_of_a_session() {
        for bytes in (0..).step_by(13) {
            let folder = empty_folder();
            let original = FakeServer::set_up(folder.path()).picture();
            let server = FakeServer {
                fault: FaultInjection::at(act, What::Dead(bytes)),
                ..FakeServer::at(folder.path())
            };
            session(&server, false).unwrap_err();
            rolled_back(folder.path(), &original, &format!("act {act}, {bytes} bytes"));
            if bytes >= server.fault.length_bytes() {
                break;
            }
        }
    }
}

/// Each single failure of the disk or of the service is told, and everything is as before at the end of the session.
#[test]
fn a_failure_at_any_act_is_undone() {
    for act in 1..=acts_of_a_session() {
        let folder = empty_folder();
        let original = FakeServer::set_up(folder.path()).picture();
        let server =
            FakeServer { fault: FaultInjection::at(act, What::FailOnce), ..FakeServer::at(folder.path()) };
        let ended = session(&server, false);
        rolled_back(folder.path(), &original, &format!("act {act}: {ended:?}"));
    }
}

/// An apply that fails leaves nothing of itself, and the session can go on.
#[test]
fn an_apply_that_fails_is_undone_before_the_error_is_told() {
    let check = |edits: &[(&str, &str)], class: ApplyClass, obeys: bool, message: &str, starts: bool| {
        let (_folder, mut server) = FakeServer::fresh();
        let original = server.picture();
        let pid = server.control().pid;
        server.obeys = obeys;
        let mut changer = server.changer();
        let error = changer
            .apply(
                &server.plan(edits, class),
                &server.snapshot_now(),
                &ApplyOptions { allow_restart: true, ..ApplyOptions::default() },
            )
            .unwrap_err();
        assert!(error.message.contains(message), "{error}");
        assert_eq!(server.picture(), original, "{message}");
        assert_eq!(server.control().pid != pid, starts, "{message}");
        server.obeys = true;
        let mut changer = {
            drop(changer);
            server.changer()
        };
        let plan = server.plan(&[("a.conf", "Workers 11\n")], ApplyClass::Reload);
        changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
        assert!(server.running().contains("Workers 11"));
        changer.end(ClosedBy::Tool).unwrap();
        assert_eq!(server.picture(), original, "{message}");
    };
    check(
        &[("a.conf", "Workers 20\n"), ("new.conf", "INVALID\n")],
        ApplyClass::Reload,
        true,
        "is invalid",
        false,
    );
    check(&[("b.conf", "DEADLY\n")], ApplyClass::Reload, true, "died", true);
    check(&[("a.conf", "DEADLY\n")], ApplyClass::Restart, true, "died", true);
    check(
        &[("a.conf", "Workers 20\n")],
        ApplyClass::Reload,
        false,
        "Workers is 10 in the running fake, not 20",
        false,
    );
}

#[test]
fn what_may_not_be_applied_is_refused_and_nothing_is_written() {
    let (_folder, server) = FakeServer::fresh();
    let mut changer = server.changer();
    let snapshot = server.snapshot_now();
    let refused = |changer: &mut Changer, plan: &RenderedPlan, message: &str, hint: &str| {
        let error: UserError = changer.apply(plan, &snapshot, &ApplyOptions::default()).unwrap_err();
        assert!(error.message.contains(message), "{error}");
        assert!(error.hint.clone().unwrap_or_default().contains(hint), "{error:?}");
    };
    let edits = [("a.conf", "Workers 20\n")];
    let restart = server.plan(&edits, ApplyClass::Restart);
    refused(&mut changer, &restart, "changing Workers needs a restart", "--allow-restart");
    let manual = server.plan(&edits, ApplyClass::Manual);
    refused(&mut changer, &manual, "Workers can only be changed by hand", "");
    let reload = server.plan(&edits, ApplyClass::Reload);
    changer.remember(&reload);
    std::fs::write(server.conf("a.conf"), "Workers 12\n").unwrap();
    refused(&mut changer, &reload, "a.conf changed since the plan was made", "-Workers 10\n+Workers 12");
    std::fs::write(server.conf("b.conf"), "INVALID\n").unwrap();
    let fresh = server.plan(&edits, ApplyClass::Reload);
    refused(&mut changer, &fresh, "was not valid before the change already", "");
    assert!(!server.state().root().exists(), "no journal for a change that was not made");
    assert_eq!(std::fs::read_to_string(server.conf("a.conf")).unwrap(), "Workers 12\n");
}

/// A session that ended without undoing, as after a SIGKILL of tool and agent.
fn killed_session(server: &FakeServer, edits: &[(&str, &str)]) {
    let mut changer = server.changer();
    changer
        .apply(&server.plan(edits, ApplyClass::Reload), &server.snapshot_now(), &ApplyOptions::default())
        .unwrap();
}

#[test]
fn what_an_operator_changed_meanwhile_is_left_alone_and_told_once() {
    let (_folder, server) = FakeServer::fresh();
    killed_session(
        &server,
        &[("a.conf", "Workers 20\n"), ("b.conf", "KeepAlive Off\n"), ("new.conf", "Extra\n")],
    );
    std::fs::write(server.conf("a.conf"), "Workers 99\n").unwrap();
    std::fs::write(server.conf("new.conf"), "Theirs\n").unwrap();
    let error = rollback(&server).unwrap_err();
    let message = format!("{error}\n{}", error.hint.clone().unwrap_or_default());
    assert!(message.contains("a.conf was changed by someone else meanwhile and is left alone"), "{message}");
    assert!(message.contains("new.conf was changed by someone else meanwhile"), "{message}");
    let saved = message.split_whitespace().find(|word| word.contains("/originals/")).unwrap();
    assert_eq!(std::fs::read_to_string(saved).unwrap(), FILES[0].1);
    assert_eq!(std::fs::read_to_string(server.conf("a.conf")).unwrap(), "Workers 99\n");
    assert_eq!(std::fs::read_to_string(server.conf("new.conf")).unwrap(), "Theirs\n");
    assert_eq!(std::fs::read_to_string(server.conf("b.conf")).unwrap(), FILES[1].1);
    assert!(server.running().contains("KeepAlive On"), "what could be restored is in force");
    assert_eq!(rollback(&server).unwrap(), Vec::<String>::new());
}

/// Who closes a file to others while our version is there does not mean to open it again with the original.
#[test]
fn rights_that_an_operator_gave_meanwhile_stay() {
    let (_folder, server) = FakeServer::fresh();
    killed_session(&server, &[("a.conf", "Workers 20\n")]);
    let path = server.conf("a.conf");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let owner = if rustix::process::geteuid().is_root() { 4242 } else { path.metadata().unwrap().uid() };
    std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
    let expected = RealDisk.read(&path).unwrap().unwrap();
    rollback(&server).unwrap();
    let found = RealDisk.read(&path).unwrap().unwrap();
    assert_eq!((found.content.as_slice(), found.mode, found.uid), (FILES[0].1.as_bytes(), 0o600, owner));
    assert_eq!((found.gid, &found.attributes), (expected.gid, &expected.attributes));
}

/// An operator who puts the original back by hand, and one who edits between two of our rounds.
#[test]
fn the_operators_version_is_what_is_reached() {
    let (_folder, server) = FakeServer::fresh();
    killed_session(&server, &[("a.conf", "Workers 20\n")]);
    std::fs::write(server.conf("a.conf"), FILES[0].1).unwrap();
    rollback(&server).unwrap();
    assert_eq!(server.running(), format!("{}{}", FILES[0].1, FILES[1].1));

    let mut changer = server.changer();
    let apply = |changer: &mut Changer, text: &str| {
        let plan = server.plan(&[("a.conf", text)], ApplyClass::Reload);
        changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
    };
    apply(&mut changer, "Workers 20\n");
    std::fs::write(server.conf("a.conf"), "Workers 20\n# theirs\n").unwrap();
    apply(&mut changer, "Workers 30\n# theirs\n");
    let error = changer.end(ClosedBy::Tool).unwrap_err();
    assert!(error.message.contains("a.conf was changed by someone else"), "{error}");
    assert_eq!(std::fs::read_to_string(server.conf("a.conf")).unwrap(), "Workers 20\n# theirs\n");
}

#[test]
fn kept_changes_stay_and_can_be_rolled_back_later_newest_first() {
    let (folder, server) = FakeServer::fresh();
    let original = server.picture();
    for workers in ["Workers 20\n", "Workers 30\n"] {
        let mut changer = server.changer();
        let plan = server.plan(&[("a.conf", workers)], ApplyClass::Reload);
        changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
        changer.keep().unwrap();
        assert_eq!(changer.end(ClosedBy::Tool).unwrap().lines, Vec::<String>::new());
    }
    assert!(server.running().contains("Workers 30"));
    assert_eq!(notice(&server.state()), None, "a kept change is nothing to worry about");
    assert!(pending(&server.state()).unwrap().iter().all(|journal| journal.kept));
    rolled_back(folder.path(), &original, "kept twice");
}

#[test]
fn a_session_that_waits_for_its_rollback_is_told_and_blocks_the_next_one() {
    let (folder, server) = FakeServer::fresh();
    let original = server.picture();
    assert!(victim(folder.path(), 25, false, false, "session"));
    let text = notice(&server.state()).unwrap();
    assert!(
        text.starts_with("a rollback is pending: the session ") && text.ends_with("run `webdyno rollback`"),
        "{text}"
    );
    let plan = server.plan(&[("a.conf", "Workers 40\n")], ApplyClass::Reload);
    let error = server.changer().apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap_err();
    assert!(error.message.contains("was interrupted and is not undone yet"), "{error}");
    rolled_back(folder.path(), &original, "after the refusal");
    assert_eq!(notice(&server.state()), None);
}

#[test]
fn a_journal_of_a_later_version_is_told_and_the_others_are_rolled_back() {
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();
    killed_session(&server, &[("a.conf", "Workers 20\n")]);
    let later = server.state().journal("99990101-1");
    std::fs::write(&later, "{\"v\":2}\n").unwrap();
    let error = rollback(&server).unwrap_err();
    assert!(error.message.contains("has version 2, and this webdyno knows versions up to 1"), "{error}");
    assert_eq!(server.picture(), original);
    assert_eq!(std::fs::read_to_string(&later).unwrap(), "{\"v\":2}\n");
}

/// The service died and was restarted by others since: the rollback finds it on its port, or leaves it as it is.
#[test]
fn a_rollback_finds_the_service_that_runs_now() {
    let (folder, server) = FakeServer::fresh();
    let original = server.picture();
    killed_session(&server, &[("a.conf", "Workers 20\n")]);
    std::fs::write(folder.path().join("alive"), "41").unwrap();
    rolled_back(folder.path(), &original, "another pid");
    assert_eq!((server.control().pid, PORT), (41, 8000));
    killed_session(&server, &[("a.conf", "Workers 20\n")]);
    std::fs::remove_file(folder.path().join("alive")).unwrap();
    let lines = rollback(&server).unwrap();
    assert!(lines.iter().any(|line| line.contains("started fake again")), "{lines:?}");
    assert_eq!(server.picture(), original);
}

/// What was seen at work with our change did not end of it: who stopped it, or put another program in its place, did.
#[test]
fn a_rollback_starts_nothing_that_others_have_stopped() {
    for (kept, other) in [(true, None), (true, Some("/usr/sbin/nginx")), (false, Some("/usr/sbin/nginx"))] {
        let (folder, server) = FakeServer::fresh();
        if kept {
            let mut changer = server.changer();
            let plan = server.plan(&[("a.conf", "Workers 20\n")], ApplyClass::Reload);
            changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
            changer.keep().unwrap();
            changer.end(ClosedBy::Tool).unwrap();
        } else {
            killed_session(&server, &[("a.conf", "Workers 20\n")]);
        }
        server.set_alive(None);
        if let Some(other) = other {
            std::fs::write(folder.path().join("other"), other).unwrap();
        }
        let lines = rollback(&server).unwrap();
        assert!(lines.iter().any(|line| line.contains("fake does not run, and was left so")), "{lines:?}");
        assert_eq!(other.is_some(), lines.iter().any(|line| line.contains("nginx answers")), "{lines:?}");
        assert_eq!(std::fs::read_to_string(server.conf("a.conf")).unwrap(), "Workers 10\n");
        assert_eq!((server.pid(), pending(&server.state()).unwrap()), (None, vec![]));
    }
}

/// A rollback waits for a guardian that still works, and refuses while the tool itself lives.
#[test]
fn a_rollback_never_works_beside_a_session() {
    let (folder, server) = FakeServer::fresh();
    let original = server.picture();
    let apply = |server: &FakeServer, tool: Option<ProcessName>| {
        let mut changer = server.changer();
        changer.set_owner(Owner { tool, what: "webdyno tune".into() });
        let plan = server.plan(&[("a.conf", "Workers 20\n")], ApplyClass::Reload);
        changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
        changer
    };
    let mut orphan = apply(&server, None);
    let guardian = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        orphan.end(ClosedBy::Guardian).unwrap()
    });
    assert_eq!(rollback(&server).unwrap(), Vec::<String>::new(), "the guardian did it");
    assert!(!guardian.join().unwrap().lines.is_empty());
    assert_eq!(server.picture(), original);

    let living = apply(&server, Some(ProcessName::this().unwrap()));
    let error = rollback(&server).unwrap_err();
    let pid = std::process::id();
    assert_eq!(
        error.message,
        format!("`webdyno tune` (agent with pid {pid}) is changing this server already")
    );
    assert!(server.running().contains("Workers 20"));
    drop(living);
    rolled_back(folder.path(), &original, "after the session");
}

/// The environment variable that makes the test below a program that listens: `PORT|PID_FILE`.
pub const PROGRAM: &str = "WEBDYNO_TEST_PROGRAM";

/// A program that was launched does not outlive its session, however that ends, and its service is not reloaded on
/// the way out. With [`PROGRAM`]: that program.
#[test]
fn a_launched_program_never_outlives_its_session() {
    if let Ok(order) = std::env::var(PROGRAM) {
        let (port, pid_file) = order.split_once('|').unwrap();
        let _listener = TcpListener::bind(("127.0.0.1", port.parse().unwrap())).unwrap();
        std::fs::write(pid_file, std::process::id().to_string()).unwrap();
        std::thread::sleep(Duration::from_secs(60));
        std::process::exit(1);
    }
    for end in ["end", "dispose", "kill", "kept"] {
        let (folder, server) = FakeServer::fresh();
        let original = server.picture();
        let mut changer = server.changer();
        let port = crate::ports::free_port();
        let pid_file = folder.path().join("pid").display().to_string();
        let program = std::env::current_exe().unwrap().display().to_string();
        let test = "change::a_launched_program_never_outlives_its_session";
        let order = format!("{PROGRAM}={port}|{pid_file}");
        let command = ["/usr/bin/env", &order, &program, "--exact", test].map(str::to_owned);
        changer.launch(&command, &pid_file, port).unwrap();
        let pid = std::fs::read_to_string(&pid_file).unwrap().parse().unwrap();
        let process = ProcessName::of(pid).unwrap();
        let snapshot = ServiceSnapshot { port, ..server.snapshot_now() };
        changer
            .apply(
                &server.plan(&[("a.conf", "Workers 20\n")], ApplyClass::Reload),
                &snapshot,
                &ApplyOptions::default(),
            )
            .unwrap();
        match end {
            "dispose" => drop(changer.dispose().unwrap()),
            "kept" => {
                changer.keep().unwrap();
                changer.end(ClosedBy::Tool).unwrap();
            }
            "end" => drop(changer.end(ClosedBy::Tool).unwrap()),
            _ => {
                drop(changer);
                assert!(process.is_alive());
                rollback(&server).unwrap();
            }
        }
        assert!(!process.is_alive(), "{end}");
        assert!(server.running().contains("Workers 20"), "{end}: a program that is stopped is not reloaded");
        let restored = server.picture()["a.conf"] == original["a.conf"];
        assert_eq!(restored, matches!(end, "end" | "kill"), "{end}");
        assert_eq!(pending(&server.state()).unwrap(), [], "{end}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Apply then revert is identity, for any files: bytes, modes, owners, times, and what runs.
    #[test]
    fn revert_after_apply_is_identity(
        files in prop::collection::vec(("[ -~\n]{0,40}", 0_u32..0o1000, "[ -~\n]{0,40}", any::<bool>()), 1..5),
        mark in any::<bool>(),
    ) {
        let (_folder, server) = FakeServer::fresh();
        let names: Vec<String> = (0..files.len()).map(|index| format!("x{index}.conf")).collect();
        for (name, (old, mode, _, exists)) in names.iter().zip(&files) {
            if *exists {
                let path = server.conf(name);
                std::fs::write(&path, old).unwrap();
                use std::os::unix::fs::PermissionsExt;
                // Our own user must be able to read it, if it is not root.
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode | 0o400)).unwrap();
            }
        }
        let mut changer = server.changer();
        let nothing = server.plan(&[("a.conf", "Workers 11\n")], ApplyClass::Reload);
        changer.apply(&nothing, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
        let between = server.picture();
        let edits: Vec<(&str, &str)> =
            names.iter().zip(&files).map(|(name, (_, _, new, _))| (name.as_str(), new.as_str())).collect();
        let mut plan = server.plan(&edits, ApplyClass::Reload);
        plan.changes.clear();
        let applied = changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
        for (name, (_, _, new, _)) in names.iter().zip(&files) {
            prop_assert_eq!(&std::fs::read_to_string(server.conf(name)).unwrap(), new);
        }
        if mark {
            changer.revert(applied.mark, false).unwrap();
            prop_assert_eq!(server.picture(), between);
        }
        changer.revert(0, false).unwrap();
        prop_assert_eq!(std::fs::read_to_string(server.conf("a.conf")).unwrap(), FILES[0].1);
        for (name, (old, _, _, exists)) in names.iter().zip(&files) {
            let now = std::fs::read_to_string(server.conf(name)).ok();
            prop_assert_eq!(now, exists.then(|| old.clone()));
        }
    }
}
