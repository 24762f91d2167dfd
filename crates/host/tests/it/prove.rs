//! What an apply makes of its shadow instances and of the site's answers, on a simulated system; and that whatever is
//! killed while a shadow runs, nothing of it stays.
//!
//! The configuration of the simulated server says what it does: `NOSTART` and `SHADOWLESS` its shadows, `STATUS N` and
//! `LENGTH N` its answers, `SHADOWLENGTH N` those of shadows, `LIVESTATUS N` those of the server itself; `SILENT` that this
//! one answers nothing, `MORTAL` that it ends with the next question, `STUMBLE` that the first shadow does not start, `BRIEF` that a
//! shadow ends when it is asked, `MUTE` that it does not answer.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::booting::BootWorld;
use crate::fake::{
    FakeServer, FaultInjection, FaultyDisk, PORT, What, empty_folder, victim_of, victim_order,
};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::change::action::{Launch, Launched};
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::claim::Claimed;
use webdyno_host::change::seams::disk::RealDisk;
use webdyno_host::change::seams::init_system::Booting;
use webdyno_host::change::seams::processes::{Running, System};
use webdyno_host::change::undo::rollback::rollback_with;
use webdyno_host::change::{StateDir, pending};
use webdyno_host::os::process::ProcessName;
use webdyno_host::probes::site::Answer;
use webdyno_host::services::{Shadow, ShadowFolder};
use webdyno_model::change::{ApplyClass, ApplyOptions, SiteProbe};
use webdyno_model::{Result, UserError};

/// Where shadows answer.
const SHADOW_PORT: u16 = 8001;

/// The process that a shadow is told to be.
const SHADOW: ProcessName = ProcessName { pid: 1, start_ticks: 1 };

/// This machine, but shadows and requests are pretended, and waiting takes no time. A shadow that runs is a file.
pub struct PretendedWorld(pub FakeServer, pub BootWorld);

/// The shadow of a configuration.
pub fn shadow(configuration: &str, folder: &Path) -> Result<Shadow> {
    if configuration.contains("SHADOWLESS") {
        return Err(UserError::cannot_run("there is none here"));
    }
    Ok(Shadow {
        folders: vec![ShadowFolder { path: folder.join("run"), mode: 0o755, owner: None }],
        files: vec![(folder.join("conf"), configuration.into())],
        command: vec!["/fake-shadow".into()],
        environment: Default::default(),
        directory: "/".into(),
        user: None,
        inherited: None,
        pid_file: folder.join("run/pid"),
        port: SHADOW_PORT,
        log: folder.join("log"),
        names: vec![(folder.display().to_string(), "/etc".into())],
    })
}

/// The number behind a word.
fn number(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().rfind(|line| line.split(' ').next() == Some(word))?;
    line.split(' ').nth(1)?.parse().ok()
}

impl PretendedWorld {
    /// Names the configuration of the shadow that runs.
    fn marker(&self) -> PathBuf {
        self.0.folder.join("shadow-runs")
    }

    fn answer_of(&self, port: u16) -> io::Result<Answer> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        if port == SHADOW_PORT {
            let text = fs::read_to_string(fs::read_to_string(self.marker()).map_err(|_| refused())?)?;
            if text.contains("BRIEF") {
                fs::remove_file(self.marker())?;
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            if text.contains("MUTE") {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let length_bytes = number(&text, "SHADOWLENGTH").or(number(&text, "LENGTH")).unwrap_or(100);
            return Ok(Answer {
                status: number(&text, "STATUS").unwrap_or(200) as u16,
                length_bytes,
                certificate: None,
            });
        }
        let text = self.0.running();
        if text.contains("MORTAL") && self.0.pid().is_some() {
            self.0.set_alive(None);
        }
        self.0.pid().filter(|_| !text.contains("SILENT")).ok_or_else(refused)?;
        let status = number(&text, "LIVESTATUS").or(number(&text, "STATUS")).unwrap_or(200) as u16;
        Ok(Answer { status, length_bytes: number(&text, "LENGTH").unwrap_or(100), certificate: None })
    }
}

struct PretendedShadow {
    server: FakeServer,
    marker: PathBuf,
    configuration: PathBuf,
}

impl Running for PretendedShadow {
    fn wait_until_ready(&mut self, _: &Launch, found: &mut dyn FnMut(Launched) -> Result<()>) -> Result<()> {
        found(Launched { process: SHADOW, group: None })?;
        self.server.act(|| ())?;
        let text = fs::read_to_string(&self.configuration).unwrap();
        // What passes is there once only.
        let passing = self.server.folder.join("stumbled");
        if text.contains("STUMBLE") && !passing.exists() {
            fs::write(passing, "").unwrap();
            return Err(UserError::cannot_run("it stumbled"));
        }
        match text.contains("NOSTART") {
            true => Err(UserError::cannot_run("it says nothing")),
            false => Ok(()),
        }
    }

    fn stderr_text(&self) -> Option<String> {
        Some(format!("no start in {}", self.configuration.display()))
    }

    fn end(&mut self) -> bool {
        fs::remove_file(&self.marker).is_ok()
    }
}

impl System for PretendedWorld {
    fn this_process(&self) -> Result<ProcessName> {
        self.1.this_process()
    }

    fn is_running(&self, process: ProcessName) -> bool {
        if process == SHADOW { self.marker().exists() } else { self.1.is_running(process) }
    }

    fn end_process(&self, process: ProcessName, own_group: Option<u32>, patience: Duration) -> Result<()> {
        self.1.end_process(process, own_group, patience)
    }

    fn booting(&self, state: &StateDir) -> Option<Booting> {
        self.1.booting(state)
    }

    fn claim(&self, name: &str) -> io::Result<Claimed> {
        self.1.claim(name)
    }

    fn boot_id(&self) -> Option<String> {
        self.1.boot_id()
    }

    fn now_us(&self) -> i64 {
        self.1.now_us()
    }

    fn monotonic(&self) -> Duration {
        self.1.monotonic()
    }

    fn pause(&self, _: Duration) {}

    fn check_launch(&self, _: &Launch) -> Result<()> {
        Ok(())
    }

    fn launch(&self, launch: &Launch) -> Result<Box<dyn Running>> {
        let configuration = Path::new(launch.folder.as_ref().unwrap()).join("conf");
        self.0.act(|| fs::write(self.marker(), configuration.to_str().unwrap()).unwrap())?;
        Ok(Box::new(PretendedShadow { server: self.0.clone(), marker: self.marker(), configuration }))
    }

    fn stop_launched(&self, _: &Launch, _: Option<Launched>, _: ProcessName) -> Result<bool> {
        let stops = self.marker().exists();
        self.0.act(|| drop(fs::remove_file(self.marker())))?;
        Ok(stops)
    }

    fn request_site(&self, address: SocketAddr, _: &SiteProbe, _: Duration) -> io::Result<Answer> {
        assert!([PORT, SHADOW_PORT].contains(&address.port()) && address.ip().is_loopback(), "{address}");
        self.answer_of(address.port())
    }
}

fn set_up(folder: &Path, current: &str) -> FakeServer {
    let server = FakeServer { shadows: true, ..FakeServer::set_up(folder) };
    let text = format!("Workers 10\n{current}");
    fs::write(server.conf("a.conf"), &text).unwrap();
    fs::write(folder.join("running"), format!("{text}KeepAlive On\n# é\n")).unwrap();
    server
}

/// Nothing of a shadow: no process, no file.
fn is_clear(server: &FakeServer) -> bool {
    let entries = fs::read_dir(server.state().shadows()).into_iter().flatten();
    !server.folder.join("shadow-runs").exists() && entries.count() == 0
}

/// Applies `new` to a server whose configuration holds `current`: what is noted, or the error.
fn apply(current: &str, new: &str, class: ApplyClass) -> std::result::Result<Vec<String>, String> {
    let folder = empty_folder();
    let server = set_up(folder.path(), current);
    let original = server.picture();
    let mut changer = server.changer();
    let plan = server.plan(&[("a.conf", &format!("Workers 20\n{new}"))], class);
    let applied = changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default());
    assert!(is_clear(&server), "{current:?} {new:?}");
    let applied = applied.map_err(|error| {
        assert_eq!(server.picture(), original, "{current:?} {new:?}");
        format!("{} | {}", error.message, error.hint.unwrap_or_default())
    });
    let notes = changer.take_notes();
    changer.end(ClosedBy::Tool).unwrap();
    assert_eq!(server.picture(), original, "{current:?} {new:?}");
    applied.map(|_| notes)
}

fn check(current: &str, new: &str, expected: std::result::Result<Option<&str>, &str>) {
    let message = apply(current, new, ApplyClass::Reload);
    match (&message, expected) {
        (Ok(notes), Ok(None)) => assert!(notes.is_empty(), "{current:?} {new:?}: {notes:?}"),
        (Ok(notes), Ok(Some(note))) => assert!(notes.len() == 1 && notes[0].contains(note), "{notes:?}"),
        (Err(error), Err(expected)) => assert!(error.contains(expected), "{current:?} {new:?}: {error}"),
        _ => panic!("{current:?} {new:?}: {message:?}"),
    }
}

#[test]
fn what_the_shadows_do_decides() {
    let refused = "| this was seen on a shadow instance; nothing of the server itself was changed";
    check("", "", Ok(None));
    let started = format!("fake does not start with the new configuration: no start in /etc/conf {refused}");
    check("", "NOSTART\n", Err(&started));
    let otherwise = format!(
        "fake answers otherwise with the new configuration: GET / answered 200 with 100 bytes before, and 500 with 100 bytes now {refused}"
    );
    check("", "STATUS 500\n", Err(&otherwise));
    // It ended while it was asked, also when there is nothing to compare.
    check("", "BRIEF\n", Err(&started));
    check("SILENT\n", "SILENT\nBRIEF\n", Err(&started));
    check("", "LENGTH 10\n", Err("200 with 100 bytes before, and 200 with 10 bytes now"));
    // What passes is no reason.
    check("", "STUMBLE\n", Ok(None));
    // None starts here.
    check(
        "NOSTART\n",
        "NOSTART\n",
        Ok(Some("none starts here, not even with the old one: no start in /etc/conf")),
    );
    check("NOSTART\n", "", Ok(None));
    // A shadow answers otherwise than the server for reasons of its own: then the old one's answers count.
    check("SHADOWLENGTH 9000\n", "SHADOWLENGTH 9000\n", Ok(None));
    check(
        "SHADOWLENGTH 9000\n",
        "SHADOWLENGTH 900\n",
        Err("200 with 9,000 bytes before, and 200 with 900 bytes now"),
    );
    check("SHADOWLENGTH 9000\n", "NOSTART\n", Err("does not start with the new configuration"));
    // None answers here.
    check("MUTE\n", "MUTE\n", Ok(Some("starts, and answers nothing here, as with the old one")));
    check("MUTE\n", "MUTE\nNOSTART\n", Err("does not start with the new configuration"));
    check("", "MUTE\n", Err("200 with 100 bytes before, and not at all now (timed out)"));
    // There can be none.
    check(
        "",
        "SHADOWLESS\n",
        Ok(Some("was not proved on a shadow instance before it was put in force: there is none here")),
    );
    check("SHADOWLESS\n", "NOSTART\n", Ok(Some("there is none here")));
}

#[test]
fn what_no_shadow_showed_is_taken_back_and_the_server_started_again() {
    check(
        "",
        "LIVESTATUS 500\n",
        Err("the change made the site answer otherwise: GET / answered 200 with 100 bytes before, and 500"),
    );
    check("", "MORTAL\n", Err("and not at all now (connection refused)"));
    // It had answered so before, or it had not answered: nothing is compared.
    check("LIVESTATUS 500\nSTATUS 500\n", "LIVESTATUS 500\nSTATUS 500\n", Ok(None));
    check(
        "SILENT\n",
        "SILENT\n",
        Ok(Some("the site did not answer before the change, so its answers are not compared")),
    );
}

#[test]
fn what_takes_effect_at_once_needs_no_shadow() {
    assert_eq!(apply("", "NOSTART\n", ApplyClass::Live).unwrap(), Vec::<String>::new());
}

/// Whenever the tool is gone during an apply, it goes no further and everything is reverted; what had not taken effect
/// by then never does.
#[test]
fn an_apply_whose_tool_is_gone_goes_no_further() {
    let mut activated = vec![];
    for act in 1.. {
        let folder = empty_folder();
        let server =
            FakeServer { fault: FaultInjection::at(act, What::ToolGone), ..set_up(folder.path(), "") };
        let original = server.picture();
        let mut changer = server.changer();
        let plan = server.plan(&[("a.conf", "Workers 20\n")], ApplyClass::Reload);
        let applied = changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default());
        if server.fault.acts() < act {
            applied.unwrap();
            break;
        }
        assert_eq!(applied.unwrap_err().message, "the tool is gone", "act {act}");
        assert!(is_clear(&server), "act {act}");
        let journal = changer.journal_place().map(|place| format!("{}.jsonl", place.id));
        let journal = journal.map(|name| fs::read_to_string(server.state().journals().join(name)).unwrap());
        activated.push(journal.is_some_and(|text| text.contains("\"activate\"")));
        changer.end(ClosedBy::Guardian).unwrap();
        assert_eq!(server.picture(), original, "act {act}");
        let error = changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap_err();
        assert_eq!((error.message.as_str(), changer.has_session()), ("the tool is gone", false));
    }
    let before = activated.iter().filter(|activated| !**activated).count();
    assert!(before > 10 && activated.is_sorted() && activated.ends_with(&[true]), "{activated:?}");
}

fn session(server: &FakeServer, new: &str) -> Result<()> {
    let mut changer = server.changer();
    let plan = server.plan(&[("a.conf", &format!("Workers 20\n{new}"))], ApplyClass::Reload);
    let applied = changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default());
    changer.end(ClosedBy::Tool)?;
    applied.map(|_| ())
}

/// As a test: a process that is killed before or within any act leaves nothing of its shadow after a rollback, which
/// may be killed, too. By [`victim`]: the process that is killed.
#[test]
fn a_kill_while_a_shadow_runs_leaves_nothing_of_it() {
    if let Some((server, fault, order)) = victim_order() {
        let server = FakeServer { shadows: true, ..server };
        match order[0].as_str() {
            "rollback" => drop(rollback_with(&server.tools(Arc::new(FaultyDisk(fault)))).unwrap()),
            new => drop(session(&server, new)),
        }
        std::process::exit(77);
    }
    let mut kills = 0;
    for (within, new) in [(false, ""), (true, ""), (true, "NOSTART")] {
        for act in 1.. {
            let folder = empty_folder();
            let original = set_up(folder.path(), "").picture();
            let killed = victim(folder.path(), act, within, new);
            // A rollback that is killed in turn, somewhere.
            victim(folder.path(), 1 + act % 7, within, "rollback");
            let server = FakeServer { shadows: true, ..FakeServer::at(folder.path()) };
            let context = format!("act {act} within {within} {new:?}");
            rollback_with(&server.tools(Arc::new(RealDisk))).unwrap();
            assert!(is_clear(&server), "{context}");
            assert_eq!(server.picture(), original, "{context}");
            assert_eq!(pending(&server.state()).unwrap(), [], "{context}");
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 60, "only {kills} kills");
}

/// Runs the process that is killed at an act. False when it ended before it came to that.
fn victim(folder: &Path, act: u64, within: bool, new: &str) -> bool {
    let test = "prove::a_kill_while_a_shadow_runs_leaves_nothing_of_it";
    victim_of(&[], test, &format!("{}|{act}|{within}|{new}", folder.display()))
}
