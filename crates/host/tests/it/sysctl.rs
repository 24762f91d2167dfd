//! Settings of the kernel: whoever is killed at whatever act, the running value and the files are as before, or as they were
//! kept. With pretended settings, and with the kernel's own in a network namespace of the test.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::booting::booted;
use crate::fake::{FakeServer, FaultInjection, FaultyDisk, What, empty_folder, victim_of, victim_order};
use crate::skip::skip;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::disk::RealDisk;
use webdyno_host::change::undo::rollback::{rollback_with, undo_interrupted_with};
use webdyno_host::change::{Changer, Tools};
use webdyno_host::services::sysctl::{prepare, space};
use webdyno_host::visibility::network_namespace::on_own_thread;
use webdyno_model::change::{ApplyClass, ApplyOptions, Change, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;
use webdyno_model::{Result, UserError};

const QUEUE: &str = "net.ipv4.tcp_max_syn_backlog";
const COOKIES: &str = "net.ipv4.tcp_syncookies";
const TRACKED: &str = "net.netfilter.nf_conntrack_max";

fn set_up(folder: &Path) -> FakeServer {
    let server = FakeServer::set_up(folder);
    std::fs::create_dir(folder.join("sysctls")).unwrap();
    for (name, value) in [(QUEUE, "512"), (COOKIES, "0"), (TRACKED, "1000")] {
        std::fs::write(folder.join("sysctls").join(name), value).unwrap();
    }
    server
}

/// A plan as the target renders it, with a drop-in in the folder of the simulated server.
fn plan(server: &FakeServer, changes: &[(&str, i64, i64)]) -> RenderedPlan {
    let change = |(name, from, to): &(&str, i64, i64)| Change {
        setting: SettingId::sysctl(*name),
        from: Some(SettingValue::Integer(*from)),
        to: SettingValue::Integer(*to),
        file: server.conf("zzz-webdyno.conf").display().to_string(),
        class: ApplyClass::Live,
        server: None,
    };
    RenderedPlan::live(changes.iter().map(change).collect(), String::new())
}

fn apply(changer: &mut Changer, server: &FakeServer, changes: &[(&str, i64, i64)]) -> Result<u64> {
    let options = ApplyOptions::default();
    changer.apply(&plan(server, changes), &server.snapshot_now(), &options).map(|applied| applied.mark)
}

/// A session that sets, reverts, sets again, keeps, and ends.
fn session(server: &FakeServer, from: i64, keep: bool) -> Result<()> {
    let mut changer = server.changer();
    apply(&mut changer, server, &[(QUEUE, from, 2 * from), (COOKIES, 0, 1)])?;
    let second = apply(&mut changer, server, &[(QUEUE, 2 * from, 4 * from)])?;
    changer.revert(second, false)?;
    if keep {
        changer.keep()?;
    }
    apply(&mut changer, server, &[(QUEUE, 2 * from, 8 * from)])?;
    changer.end(ClosedBy::Tool)?;
    Ok(())
}

/// Runs a session in a process that ends at an act; false when it came to its end before that.
fn victim(prefix: &[&str], order: &str) -> bool {
    victim_of(prefix, "sysctl::a_session_that_ends_by_itself_leaves_what_it_kept", order)
}

fn tools(server: &FakeServer) -> Tools {
    server.tools(Arc::new(RealDisk))
}

/// The settings, and what the file that keeps them says of them.
fn picture(server: &FakeServer, read: &dyn Fn(&str) -> String) -> BTreeMap<String, String> {
    let mut picture: BTreeMap<String, String> =
        [QUEUE, COOKIES].map(|name| (name.to_owned(), read(name))).into();
    let kept = std::fs::read_to_string(server.conf("zzz-webdyno.conf")).unwrap_or_default();
    let lines = kept.lines().filter(|line| line.starts_with("net."));
    picture.insert("kept".into(), lines.collect::<Vec<_>>().join(", "));
    picture
}

fn expected(from: i64, factor: i64, cookies: i64, kept: &str) -> BTreeMap<String, String> {
    let values =
        [(QUEUE, (factor * from).to_string()), (COOKIES, cookies.to_string()), ("kept", kept.into())];
    values.map(|(name, value)| (name.to_owned(), value)).into()
}

#[test]
fn a_session_that_ends_by_itself_leaves_what_it_kept() {
    if let Some((server, fault, order)) = victim_order() {
        match order[2].as_str() {
            "rollback" => drop(rollback_with(&server.tools(Arc::new(FaultyDisk(fault)))).unwrap()),
            _ => session(&server, order[0].parse().unwrap(), order[1] == "true").unwrap(),
        }
        std::process::exit(77);
    }
    for keep in [false, true] {
        let folder = empty_folder();
        let server = set_up(folder.path());
        session(&server, 512, keep).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join("sysctls").join(name)).unwrap();
        let kept = expected(512, 2, 1, &format!("{QUEUE} = 1024, {COOKIES} = 1"));
        let original = expected(512, 1, 0, "");
        assert_eq!(picture(&server, &read), if keep { kept } else { original.clone() });
        rollback_with(&tools(&server)).unwrap();
        assert_eq!(picture(&server, &read), original);
        assert!(!server.conf("zzz-webdyno.conf").exists());
        assert_eq!(rollback_with(&tools(&server)).unwrap(), Vec::<String>::new());
    }
}

/// Kills a session at every act, and has the next command and a rollback come after it, elsewhere than the session ran.
fn kill_everywhere(
    prefix: &[&str],
    from: i64,
    set_up: &dyn Fn(&Path),
    read: &dyn Fn(&Path, &str) -> String,
) -> u32 {
    let mut kills = 0;
    for (within, keep) in [(false, true), (true, true), (true, false)] {
        for act in 1.. {
            let folder = empty_folder();
            set_up(folder.path());
            let context = format!("act {act} within {within} keep {keep}");
            let order = format!("{}|{act}|{within}|{from}|{keep}|session", folder.path().display());
            let killed = victim(prefix, &order);
            let server = FakeServer::at(folder.path());
            let seen = || picture(&server, &|name| read(folder.path(), name));
            let interrupted = undo_interrupted_with(&tools(&server)).unwrap();
            assert!(interrupted.problem.is_none(), "{context}: {interrupted:?}");
            let original = expected(from, 1, 0, "");
            let kept = expected(from, 2, 1, &format!("{QUEUE} = {}, {COOKIES} = 1", 2 * from));
            let is_kept = seen() == kept;
            assert!(keep && is_kept || seen() == original, "{context}: {:?}", seen());
            rollback_with(&tools(&server))
                .unwrap_or_else(|error| panic!("{context}: {error} {:?}", error.hint));
            assert_eq!(seen(), original, "{context}");
            if !killed {
                assert_eq!(is_kept, keep, "{context}");
                break;
            }
            kills += 1;
        }
    }
    kills
}

#[test]
fn a_kill_at_any_act_leaves_settings_as_before_or_kept() {
    let read =
        |folder: &Path, name: &str| std::fs::read_to_string(folder.join("sysctls").join(name)).unwrap();
    let kills = kill_everywhere(&["env"], 512, &|folder| drop(set_up(folder)), &read);
    assert!(kills > 60, "only {kills} kills");
}

/// A rollback that is killed at any act is completed by the next one.
#[test]
fn a_rollback_of_settings_that_is_killed_is_completed() {
    for act in 1.. {
        let folder = empty_folder();
        let server = set_up(folder.path());
        session(&server, 512, true).unwrap();
        let killed = victim(&["env"], &format!("{}|{act}|true|512|true|rollback", folder.path().display()));
        rollback_with(&tools(&server)).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join("sysctls").join(name)).unwrap();
        assert_eq!(picture(&server, &read), expected(512, 1, 0, ""), "act {act}");
        if !killed {
            return;
        }
    }
}

/// The machine loses power at any act, and boots with what the file has in it that keeps settings.
#[test]
fn a_loss_of_power_at_any_act_leaves_settings_as_before_or_kept() {
    for act in 1.. {
        let folder = empty_folder();
        let fault = FaultInjection::at(act, What::Dead(0));
        let ended = session(&FakeServer { fault, ..set_up(folder.path()) }, 512, true);
        let server = FakeServer::at(folder.path());
        let file = std::fs::read_to_string(server.conf("zzz-webdyno.conf")).unwrap_or_default();
        for (name, original) in [(QUEUE, "512"), (COOKIES, "0")] {
            let kept = file.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            std::fs::write(folder.path().join("sysctls").join(name), kept.unwrap_or(original)).unwrap();
        }
        let interrupted = undo_interrupted_with(&booted(&server, Arc::new(RealDisk))).unwrap();
        assert!(interrupted.problem.is_none(), "act {act}: {interrupted:?}");
        let read = |name: &str| std::fs::read_to_string(folder.path().join("sysctls").join(name)).unwrap();
        let kept = expected(512, 2, 1, &format!("{QUEUE} = 1024, {COOKIES} = 1"));
        let seen = picture(&server, &read);
        assert!(seen == kept || seen == expected(512, 1, 0, ""), "act {act}: {seen:?}");
        if ended.is_ok() {
            return;
        }
    }
}

/// A network namespace of the test's own, with a process in it.
struct Network {
    name: String,
    process: Child,
}

impl Network {
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("wdsysctl{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let ip = |words: &[&str]| {
            Command::new("ip").args(words).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        let process = || Command::new("ip").args(["netns", "exec", &name, "sleep", "600"]).spawn().unwrap();
        ip(&["netns", "add", &name]).then(|| Self { process: process(), name: name.clone() })
    }

    /// Runs something in it, once its process is there.
    fn within<T: Send>(&self, work: impl Fn() -> T + Send + Sync) -> T {
        loop {
            let is_other = on_own_thread(self.process.id(), || !space::is_initial_here());
            if is_other.is_ok_and(|is_other| is_other) {
                return on_own_thread(self.process.id(), &work).unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait());
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// Sessions in a namespace, which are undone from another one.
#[test]
fn a_kill_at_any_act_leaves_the_kernel_as_before_or_kept() {
    let Some(network) = Network::new() else { return skip("ip netns add is not permitted") };
    let set = |name: &str, value: &str| network.within(|| std::fs::write(space::path(name), value).unwrap());
    let here = [QUEUE, COOKIES].map(|name| space::read_here(name).unwrap());
    let set_up = |folder: &Path| {
        set(QUEUE, "300");
        set(COOKIES, "0");
        drop(FakeServer::set_up(folder));
    };
    let read = |_: &Path, name: &str| network.within(|| space::read_here(name).unwrap());
    let kills = kill_everywhere(&["ip", "netns", "exec", &network.name], 300, &set_up, &read);
    assert!(kills > 60, "only {kills} kills");
    assert_eq!([QUEUE, COOKIES].map(|name| space::read_here(name).unwrap()), here, "those of this network");
}

fn prepared(name: &str, to: i64) -> Result<Preparation> {
    prepare(&[SettingChange { setting: SettingId::sysctl(name), to: SettingValue::Integer(to) }])
}

#[test]
fn a_namespace_sets_its_own_and_nothing_of_the_machine() {
    let Some(network) = Network::new() else { return skip("ip netns add is not permitted") };
    let now: i64 = network.within(|| space::read_here(QUEUE).unwrap()).parse().unwrap();
    let Ok(Preparation::Plan(plan)) = network.within(|| prepared(QUEUE, now + 1)) else { panic!("no plan") };
    assert_eq!((plan.class, plan.files.len()), (ApplyClass::Live, 0), "no boot makes this namespace");
    assert_eq!(plan.changes[0].file, "/proc/sys/net/ipv4/tcp_max_syn_backlog");
    for name in [TRACKED, "net.core.netdev_max_backlog"] {
        if space::read_here(name).is_ok() {
            let refused = network.within(|| prepared(name, 99_999)).unwrap().into_plan().unwrap_err();
            assert!(refused.message.contains("belongs to the whole machine"), "{refused}");
        }
    }
    // Here, where files are read at boot, it comes with the file that will keep it.
    if space::is_set_at_boot() && Path::new("/etc/sysctl.d").is_dir() {
        let now: i64 = space::read_here(QUEUE).unwrap().parse().unwrap();
        let plan = prepared(QUEUE, now + 1).unwrap().into_plan().unwrap();
        assert!(plan.diff.contains(&format!("+{QUEUE} = {}", now + 1)), "{}", plan.diff);
        assert_eq!(space::read_here(QUEUE).unwrap(), now.to_string(), "nothing is written");
    }
}

#[test]
fn what_somebody_else_set_since_is_left_alone() {
    let folder = empty_folder();
    let server = set_up(folder.path());
    let queue = folder.path().join("sysctls").join(QUEUE);
    let mut changer = server.changer();
    apply(&mut changer, &server, &[(QUEUE, 512, 1024), (COOKIES, 0, 1)]).unwrap();
    std::fs::write(&queue, "777").unwrap();
    let error = changer.end(ClosedBy::Tool).unwrap_err();
    let expected =
        format!("{QUEUE} was set to 777 by someone else meanwhile and is left alone; it was 512 before");
    assert_eq!(error.message, expected);
    drop(changer);
    let again = rollback_with(&tools(&server)).map_or_else(|error| error.message, |lines| lines.join("; "));
    assert!(!again.contains("restored"), "{again}");
    assert_eq!(std::fs::read_to_string(&queue).unwrap(), "777");
    assert_eq!(std::fs::read_to_string(folder.path().join("sysctls").join(COOKIES)).unwrap(), "0");
}

#[test]
fn a_plan_that_is_out_of_date_changes_nothing() {
    let folder = empty_folder();
    let server = set_up(folder.path());
    let mut changer = server.changer();
    let error = apply(&mut changer, &server, &[(COOKIES, 0, 1), (QUEUE, 100, 200)]).unwrap_err();
    assert!(error.message.contains("changed since the plan was made: it is 512"), "{error}");
    assert_eq!(std::fs::read_to_string(folder.path().join("sysctls").join(COOKIES)).unwrap(), "0");
}

#[test]
fn connections_that_others_have_are_not_dropped_for_it() {
    let folder = empty_folder();
    let server = set_up(folder.path());
    std::fs::write(folder.path().join("sysctls/net.netfilter.nf_conntrack_count"), "1500").unwrap();
    let mut changer = server.changer();
    let mark = apply(&mut changer, &server, &[(TRACKED, 1000, 2000)]).unwrap();
    let error: UserError = changer.revert(mark, true).unwrap_err();
    assert!(error.message.contains("stays 2000 for now: with 1000 1500 connections are tracked"), "{error}");
    std::fs::write(folder.path().join("sysctls/net.netfilter.nf_conntrack_count"), "10").unwrap();
    changer.end(ClosedBy::Tool).unwrap();
    assert_eq!(std::fs::read_to_string(folder.path().join("sysctls").join(TRACKED)).unwrap(), "1000");
}
