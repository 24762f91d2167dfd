//! Rollback after packages and operators were at work: files, directories, programs that are not where they were. What
//! cannot be reverted is told once, with a saved original; it is never a failure for ever.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::apache::server::{EXECUTABLE, Server, apache_is_installed};
use crate::booting::booted;
use crate::fake::{FakeServer, FaultInjection, FaultyDisk, Label, What, empty_folder};
use crate::skip::needs;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::change::journal::Owner;
use webdyno_host::change::seams::disk::RealDisk;
use webdyno_host::change::undo::rollback::rollback_with;
use webdyno_host::change::{Changer, StateDir, Tools, pending_with};
use webdyno_host::os::process::ProcessName;
use webdyno_host::services::tunable;
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

const ORIGINAL: &str = "original\n";

/// A session was killed that had edited `deep/x.conf` and created `deep/y.conf`.
fn killed_session(folder: &Path) -> FakeServer {
    let server = FakeServer::set_up(folder);
    fs::create_dir(server.conf("deep")).unwrap();
    fs::write(server.conf("deep/x.conf"), ORIGINAL).unwrap();
    let plan = server.plan(&[("deep/x.conf", "ours\n"), ("deep/y.conf", "ours too\n")], ApplyClass::Reload);
    server.changer().apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
    server
}

/// Names and texts of all files below `etc`, links as `-> TARGET`, without those of the fake itself.
fn texts(server: &FakeServer) -> BTreeMap<String, String> {
    let etc = server.folder.join("etc");
    let mut found = BTreeMap::new();
    for path in crate::booting::tree(&etc) {
        let name = path.strip_prefix(&etc).unwrap().display().to_string();
        let text = match fs::read_link(&path) {
            Ok(target) => format!("-> {}", target.display()),
            Err(_) if path.is_dir() => continue,
            Err(_) => fs::read(&path)
                .map(|bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(50)]).into_owned())
                .unwrap(),
        };
        found.insert(name, text);
    }
    found.retain(|name, _| name != "a.conf" && name != "b.conf");
    found
}

/// What is done to `deep`, what is there after a rollback, and what is told of it (nothing when all is reverted).
type Case = (&'static str, fn(&FakeServer), &'static [(&'static str, &'static str)], Option<&'static str>);

const PACKAGE: &str = "the package's\n";

const CASES: &[Case] = &[
    ("nothing", |_| {}, &[("deep/x.conf", ORIGINAL)], None),
    (
        "both moved and linked to",
        |server| {
            fs::create_dir(server.conf("available")).unwrap();
            for name in ["x.conf", "y.conf"] {
                let (from, to) = (server.conf("deep").join(name), server.conf("available").join(name));
                fs::rename(&from, &to).unwrap();
                symlink(to, from).unwrap();
            }
        },
        &[("available/x.conf", ORIGINAL), ("deep/x.conf", "-> available/x.conf")],
        None,
    ),
    (
        "the directory has another name",
        |server| fs::rename(server.conf("deep"), server.conf("other")).unwrap(),
        &[("other/x.conf", ORIGINAL)],
        None,
    ),
    (
        "the directory has another name, and its old one leads there",
        |server| {
            fs::rename(server.conf("deep"), server.conf("other")).unwrap();
            symlink(server.conf("other"), server.conf("deep")).unwrap();
        },
        &[("deep", "-> other"), ("other/x.conf", ORIGINAL)],
        None,
    ),
    (
        "the directory was copied and is a part of another one",
        |server| {
            fs::create_dir_all(server.conf("new/conf.d")).unwrap();
            fs::copy(server.conf("deep/x.conf"), server.conf("new/conf.d/x.conf")).unwrap();
            fs::write(server.conf("new/y.conf"), "another one\n").unwrap();
            fs::rename(server.conf("deep"), server.conf("deep.bak")).unwrap();
        },
        &[("deep.bak/x.conf", ORIGINAL), ("new/conf.d/x.conf", ORIGINAL), ("new/y.conf", "another one\n")],
        None,
    ),
    (
        "dpkg took its own version",
        |server| {
            fs::rename(server.conf("deep/x.conf"), server.conf("deep/x.conf.dpkg-old")).unwrap();
            fs::write(server.conf("deep/x.conf"), PACKAGE).unwrap();
        },
        &[("deep/x.conf", PACKAGE), ("deep/x.conf.dpkg-old", "ours\n")],
        Some("x.conf was replaced by a package, which kept webdyno's version as "),
    ),
    (
        "dpkg put its version beside",
        |server| fs::write(server.conf("deep/x.conf.dpkg-dist"), PACKAGE).unwrap(),
        &[("deep/x.conf", ORIGINAL), ("deep/x.conf.dpkg-dist", PACKAGE)],
        None,
    ),
    (
        "rpm removed the package",
        |server| fs::rename(server.conf("deep/x.conf"), server.conf("deep/x.conf.rpmsave")).unwrap(),
        &[("deep/x.conf.rpmsave", "ours\n")],
        Some("x.conf was removed with its package, which kept webdyno's version as "),
    ),
    (
        "the directory is gone",
        |server| fs::remove_dir_all(server.conf("deep")).unwrap(),
        &[],
        Some("x.conf was removed by someone else meanwhile and is left alone"),
    ),
    (
        "a file has the directory's name",
        |server| {
            fs::remove_dir_all(server.conf("deep")).unwrap();
            fs::write(server.conf("deep"), "theirs\n").unwrap();
        },
        &[("deep", "theirs\n")],
        Some("x.conf was removed by someone else meanwhile and is left alone"),
    ),
    (
        "a directory has the file's name",
        |server| {
            fs::remove_file(server.conf("deep/x.conf")).unwrap();
            fs::create_dir(server.conf("deep/x.conf")).unwrap();
        },
        &[],
        Some("x.conf is no file any more and is left alone"),
    ),
    (
        "links that lead nowhere",
        |server| {
            for name in ["deep/x.conf", "deep/y.conf"] {
                fs::remove_file(server.conf(name)).unwrap();
                symlink(server.conf("none"), server.conf(name)).unwrap();
            }
        },
        &[("deep/x.conf", "-> none")],
        Some("x.conf is a link that leads nowhere and is left alone"),
    ),
    (
        "a link to another file",
        |server| {
            fs::write(server.conf("theirs"), "theirs\n").unwrap();
            fs::remove_file(server.conf("deep/x.conf")).unwrap();
            symlink(server.conf("theirs"), server.conf("deep/x.conf")).unwrap();
        },
        &[("deep/x.conf", "-> theirs"), ("theirs", "theirs\n")],
        Some("x.conf is a link to "),
    ),
    (
        "a file that is none of a configuration",
        |server| fs::write(server.conf("deep/x.conf"), vec![b'#'; 5 << 20]).unwrap(),
        &[("deep/x.conf", "##################################################")],
        Some("x.conf was changed by someone else meanwhile and is left alone"),
    ),
];

fn expected(case: &Case, etc: &Path) -> BTreeMap<String, String> {
    let absolute = |text: &str| match text.strip_prefix("-> ") {
        Some(target) => format!("-> {}", etc.join(target).display()),
        None => text.to_owned(),
    };
    case.2.iter().map(|(name, text)| ((*name).to_owned(), absolute(text))).collect()
}

/// A rollback, and what it tells of what it could not revert.
fn rolled_back(tools: &Tools) -> Option<String> {
    let error = rollback_with(tools).err()?;
    Some(format!("{error}\n{}", error.hint.clone().unwrap_or_default()))
}

fn check(case: &Case, server: &FakeServer, tools: &Tools, told_before: Option<String>, context: &str) {
    let message =
        [told_before, rolled_back(tools)].into_iter().flatten().reduce(|first, then| first + "\n" + &then);
    let name = case.0;
    assert_eq!(texts(server), expected(case, &server.folder.join("etc")), "{name}{context}: {message:?}");
    match (case.3, &message) {
        (None, None) => {}
        (Some(expected), Some(message)) => {
            assert!(message.contains(expected), "{name}{context}: {message}");
            let saved = message.split_whitespace().find(|word| word.contains("/originals/")).unwrap();
            assert_eq!(fs::read_to_string(saved).unwrap(), ORIGINAL, "{name}{context}");
        }
        (expected, message) => panic!("{name}{context}: {message:?} instead of {expected:?}"),
    }
    assert_eq!(pending_with(tools).unwrap(), [], "{name}{context}");
    assert_eq!(rollback_with(tools).unwrap(), Vec::<String>::new(), "{name}{context}: it is told once");
}

#[test]
fn what_packages_moved_is_found_and_what_is_lost_is_told() {
    for case in CASES {
        for after_a_boot in [false, true] {
            let folder = empty_folder();
            let server = killed_session(folder.path());
            case.1(&server);
            let disk = Arc::new(RealDisk);
            match after_a_boot {
                true => {
                    fs::remove_file(folder.path().join("alive")).unwrap();
                    check(case, &server, &booted(&server, disk), None, " after a boot");
                    assert!(!folder.path().join("alive").exists(), "{}: nothing is started", case.0);
                }
                false => check(case, &server, &server.tools(disk), None, ""),
            }
        }
    }
}

/// A rollback that ends at any of its acts is completed by the next one, wherever the files are.
#[test]
fn a_kill_while_moved_files_are_put_back_is_completed() {
    let mut kills = 0;
    for case in CASES {
        for act in 1.. {
            let folder = empty_folder();
            let server = killed_session(folder.path());
            case.1(&server);
            let fault = FaultInjection::at(act, What::Dead(usize::try_from(act % 3).unwrap()));
            let first = rolled_back(&server.tools(Arc::new(FaultyDisk(fault.clone()))));
            if fault.acts() < act {
                break;
            }
            kills += 1;
            // What was told before the kill need not be told again; that the disk was gone is told, too.
            let message = first.filter(|message| case.3.is_some_and(|expected| message.contains(expected)));
            check(case, &server, &server.tools(Arc::new(RealDisk)), message, &format!(" act {act}"));
        }
    }
    assert!(kills > 80, "only {kills} kills");
}

/// A label that nobody knows any more does not keep the bytes from being restored.
#[test]
fn a_label_that_cannot_be_set_is_told_and_no_obstacle() {
    let (_folder, server) = FakeServer::fresh();
    let labelled = |label: Label| server.tools(Arc::new(FaultyDisk(FaultInjection::labelling(label))));
    let owner = Owner { tool: None, what: "webdyno tune".into() };
    let original = server.picture();
    let plan = server.plan(&[("a.conf", "Workers 20\n")], ApplyClass::Reload);
    let mut changer = Changer::with(labelled(Label::Known), owner.clone());
    changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
    drop(changer);
    let lines = rollback_with(&labelled(Label::Unknown)).unwrap();
    let line = lines.iter().find(|line| line.contains("restored ")).unwrap();
    assert!(line.contains("a.conf without security.selinux: "), "{line}");
    assert_eq!(server.picture(), original);

    // Neither is it one for the saved original of a file that is left alone.
    let mut changer = Changer::with(labelled(Label::Known), owner);
    changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
    drop(changer);
    fs::write(server.conf("a.conf"), "Workers 99\n").unwrap();
    let message = rolled_back(&labelled(Label::Unknown)).unwrap();
    assert!(message.contains("a.conf was changed by someone else meanwhile and is left alone"), "{message}");
    assert_eq!(rollback_with(&labelled(Label::Unknown)).unwrap(), Vec::<String>::new());
}

const PREFORK: &str = "<IfModule mpm_prefork_module>\n    StartServers 2\n    MaxRequestWorkers 5\n    ServerLimit 20\n</IfModule>\n";

/// The program that was started is gone, as after an update that moved it: the one of the same name is used, to reload
/// what still runs, and to start what does not.
#[test]
fn a_program_that_was_moved_is_found() {
    needs!(apache_is_installed());
    for runs in [true, false] {
        let mut server = Server::debian("prefork", PREFORK);
        fs::create_dir(server.path("sbin")).unwrap();
        let program = server.path("sbin/apache2");
        fs::copy(EXECUTABLE, &program).unwrap();
        server.executable = program.clone();
        server.start();
        let state = tempfile::tempdir().unwrap();
        let tools = Tools::of_this_machine(StateDir::at(state.path()));
        let mut changer = Changer::with(tools.clone(), Owner { tool: None, what: "webdyno tune".into() });
        let snapshot = server.snapshot();
        let setting = SettingId::of_service("apache", "MaxRequestWorkers");
        let wanted = SettingChange { setting, to: SettingValue::Integer(12) };
        let plan = tunable("apache")
            .unwrap()
            .prepare(&snapshot, &[wanted])
            .and_then(Preparation::into_plan)
            .unwrap();
        changer.apply(&plan, &snapshot, &ApplyOptions::default()).unwrap();
        drop(changer);
        let main = ProcessName::of(server.pid().unwrap()).unwrap();
        if !runs {
            webdyno_host::os::process::stop(main, main.led_group(), Duration::from_secs(5)).unwrap();
        }
        fs::remove_file(&program).unwrap();
        let lines = rollback_with(&tools).unwrap();
        let did = if runs { "reloaded apache" } else { "started apache again" };
        assert!(lines.iter().any(|line| line.contains(did)), "{lines:?}");
        let now = ProcessName::of(server.pid().unwrap()).unwrap();
        assert_eq!(now == main, runs);
        let workers = tunable("apache").unwrap().running_values(&snapshot)["MaxRequestWorkers"].clone();
        assert_eq!(workers, SettingValue::Integer(5));
        server.stop();
    }
}
