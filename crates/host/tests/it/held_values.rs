//! Values that only running processes hold, and no file of ours: the backlog of listening sockets, the limit of open files.
//! Whoever is killed at whatever act, they are as before, or as they were kept; a rollback gives them back.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::fake::{FakeServer, empty_folder, victim_of, victim_order};
use std::net::TcpListener;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::disk::RealDisk;
use webdyno_host::change::undo::rollback::{rollback_with, undo_interrupted_with};
use webdyno_host::change::{Changer, Tools};
use webdyno_host::os::process::{ProcessName, wait_until};
use webdyno_host::os::procfs;
use webdyno_host::services::listen_backlog::ListeningSockets;
use webdyno_host::services::value_holder::ValueHolder;
use webdyno_host::services::{listen_backlog, process_limit};
use webdyno_model::Result;
use webdyno_model::change::{ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

const OPEN_FILES: &str = "LimitNOFILE";

/// What a session is about: the setting, its original, and the values that it sets one after the other.
struct Held {
    setting: &'static str,
    original: i64,
    values: [i64; 3],
}

const BACKLOG: Held = Held { setting: listen_backlog::SETTING, original: 7, values: [30, 60, 90] };
const FILES: Held = Held { setting: OPEN_FILES, original: 100, values: [200, 250, 300] };

impl Held {
    fn of(setting: &str) -> Self {
        if setting == OPEN_FILES { FILES } else { BACKLOG }
    }

    fn apply(&self, changer: &mut Changer, server: &FakeServer, place: (u32, u16), to: i64) -> Result<u64> {
        let (pid, port) = place;
        let service = ServiceSnapshot { service: "apache".into(), pid, port, ..ServiceSnapshot::default() };
        let setting = SettingId::of_service("apache", self.setting);
        let change = SettingChange { setting, to: SettingValue::Integer(to) };
        let (plan, holder) = if self.setting == OPEN_FILES {
            let (Preparation::Plan(plan), Some(process)) = process_limit::prepare(&service, &[change])?
            else {
                panic!("no plan")
            };
            (*plan, ValueHolder::Limits(process))
        } else {
            let (plan, sockets) = listen_backlog::prepare(&service, &change, None).unwrap();
            (plan, ValueHolder::Listener(sockets))
        };
        changer.remember(&plan);
        changer.remember_holder(holder);
        let options = ApplyOptions::default();
        changer.apply(&plan, &server.snapshot_now(), &options).map(|applied| applied.mark)
    }

    /// A session that sets, sets again, reverts that, keeps or not, sets a last time, and ends.
    fn session(&self, server: &FakeServer, place: (u32, u16), keep: bool) -> Result<()> {
        let mut changer = server.changer();
        self.apply(&mut changer, server, place, self.values[0])?;
        let second = self.apply(&mut changer, server, place, self.values[1])?;
        changer.revert(second, false)?;
        if keep {
            changer.keep()?;
        }
        self.apply(&mut changer, server, place, self.values[2])?;
        changer.end(ClosedBy::Tool)?;
        Ok(())
    }

    /// Kills a session at every act, and has the next command and a rollback come after it.
    fn kill_everywhere(&self, test: &str, place: (u32, u16), read: &dyn Fn() -> Vec<i64>) {
        let is = |value: i64| read().into_iter().all(|seen| seen == value);
        let mut kills = 0;
        for (within, keep) in [(false, true), (true, true), (true, false)] {
            for act in 1.. {
                let folder = empty_folder();
                drop(FakeServer::set_up(folder.path()));
                let context = format!("{} act {act} within {within} keep {keep}", self.setting);
                let order = format!(
                    "{}|{act}|{within}|{}|{}|{}|{keep}",
                    folder.path().display(),
                    self.setting,
                    place.0,
                    place.1
                );
                let killed = victim_of(&["env"], test, &order);
                let server = FakeServer::at(folder.path());
                let interrupted = undo_interrupted_with(&tools(&server)).unwrap();
                assert!(interrupted.problem.is_none(), "{context}: {interrupted:?}");
                let is_kept = is(self.values[0]);
                assert!((keep && is_kept) || is(self.original), "{context}: {:?}", read());
                rollback_with(&tools(&server)).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(is(self.original), "{context}: {:?} after the rollback", read());
                if !killed {
                    assert_eq!(is_kept, keep, "{context}");
                    break;
                }
                kills += 1;
            }
        }
        assert!(kills > 40, "only {kills} kills");
    }
}

fn tools(server: &FakeServer) -> Tools {
    server.tools(Arc::new(RealDisk))
}

/// The process that is killed, where this is one.
fn end_as_victim() {
    let Some((server, _, order)) = victim_order() else { return };
    let place = (order[1].parse().unwrap(), order[2].parse().unwrap());
    Held::of(&order[0]).session(&server, place, order[3] == "true").unwrap();
    std::process::exit(77);
}

#[test]
fn a_backlog_is_as_before_or_as_it_was_kept() {
    end_as_victim();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 7).unwrap();
    let port = listener.local_addr().unwrap().port();
    let process = ProcessName::of(std::process::id()).unwrap();
    let sockets = ListeningSockets { process, port, to_keep: None };
    let backlog = || vec![sockets.read(listen_backlog::SETTING).unwrap().unwrap().parse().unwrap()];
    let test = "held_values::a_backlog_is_as_before_or_as_it_was_kept";
    BACKLOG.kill_everywhere(test, (std::process::id(), port), &backlog);
}

/// A shell with a child; both end with the test.
struct Family(Child);

impl Family {
    fn start() -> Self {
        let script = "ulimit -Sn 100; ulimit -Hn 400; sleep 600 & wait";
        let family = Self(Command::new("/bin/sh").args(["-c", script]).spawn().unwrap());
        let is_ready = || family.limits().len() == 2 && family.limits().iter().all(|limit| *limit == 100);
        assert!(wait_until(Duration::from_secs(10), is_ready), "{:?}", family.limits());
        family
    }

    /// The soft limits of both; the hard one is never touched where there is room below it.
    fn limits(&self) -> Vec<i64> {
        let pid = self.0.id();
        let all = procfs::children_of(pid).into_iter().chain([pid]);
        let limits = all.filter_map(|pid| process_limit::open_files(pid).ok());
        limits.map(|(soft, hard)| if hard == 400 { i64::try_from(soft).unwrap() } else { -1 }).collect()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for pid in procfs::children_of(self.0.id()) {
            let child = ProcessName::of(pid);
            child.map(|child| child.signal(rustix::process::Signal::KILL));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_limit_of_open_files_is_as_before_or_as_it_was_kept() {
    end_as_victim();
    let family = Family::start();
    let test = "held_values::a_limit_of_open_files_is_as_before_or_as_it_was_kept";
    FILES.kill_everywhere(test, (family.0.id(), 80), &|| family.limits());
}
