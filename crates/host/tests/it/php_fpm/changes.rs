//! Changes of a real PHP-FPM: whoever is killed at whatever act, its files and the number of its processes are as before, or
//! as they were kept; nobody's request is cut off by a reload, and a request that takes too long prevents it.

use super::server::{Fpm, fpm_is_installed};
use crate::fake::{FakeServer, acts_apart, empty_folder, leave_out_between, victim_of, victim_order};
use crate::skip::needs;
use rustix::process::Signal;
use std::sync::Arc;
use std::time::{Duration, Instant};
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::disk::RealDisk;
use webdyno_host::change::undo::rollback::{rollback_with, undo_interrupted_with};
use webdyno_host::change::{Applied, Changer, Tools};
use webdyno_host::os::process::{ProcessName, wait_until};
use webdyno_host::probes::fastcgi::Request;
use webdyno_host::services::php_fpm::{PhpFpm, controllable, pool_of};
use webdyno_host::services::{Observe, Tunable};
use webdyno_model::Result;
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

fn wanted(children: i64) -> [SettingChange; 1] {
    let setting = SettingId::of_service("php_fpm", "pm.max_children").of_pool("www");
    [SettingChange { setting, to: SettingValue::Integer(children) }]
}

fn planned(pid: u32, children: i64) -> (ServiceSnapshot, RenderedPlan) {
    let backend = controllable(&PhpFpm.backend(pid).unwrap().unwrap()).unwrap();
    match PhpFpm.prepare(&backend, &wanted(children)).unwrap() {
        Preparation::Plan(plan) => (backend, *plan),
        other => panic!("{other:?}"),
    }
}

fn apply(changer: &mut Changer, server: &FakeServer, pid: u32, children: i64) -> Result<Applied> {
    apply_with(changer, server, (pid, children), &ApplyOptions::default())
}

fn apply_with(
    changer: &mut Changer,
    server: &FakeServer,
    (pid, children): (u32, i64),
    options: &ApplyOptions,
) -> Result<Applied> {
    let (backend, plan) = planned(pid, children);
    assert_eq!(plan.class, ApplyClass::Reload);
    changer.remember(&plan);
    changer.remember_backend(backend);
    changer.apply(&plan, &server.snapshot_now(), options)
}

/// A session that makes a change, and keeps it or not.
fn session(server: &FakeServer, pid: u32, keep: bool) -> Result<()> {
    let mut changer = server.changer();
    // What an earlier one restored is newer than what runs, and its journal is elsewhere.
    let options = ApplyOptions { yes_reload: true, ..ApplyOptions::default() };
    let applied = apply_with(&mut changer, server, (pid, 4), &options)?;
    assert_eq!(applied.snapshot.service, "fake", "the service under load is still the one in front");
    if keep {
        changer.keep()?;
    }
    changer.end(ClosedBy::Tool)?;
    Ok(())
}

fn tools(server: &FakeServer) -> Tools {
    server.tools(Arc::new(RealDisk))
}

const POOL: &str = "pm = static\npm.max_children = 2\n";

impl Fpm {
    fn children(&self) -> Vec<ProcessName> {
        let children = ProcessName::of(self.pid).map(ProcessName::children).unwrap_or_default();
        children.into_iter().filter(|child| pool_of(child.pid).as_deref() == Some("www")).collect()
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    }

    /// What its file says, and how many processes it has once they are there.
    fn check(&self, children: usize, context: &str) {
        let text = std::fs::read_to_string(self.path("pools.conf")).unwrap();
        assert!(text.contains(&format!("pm.max_children = {children}\n")), "{context}: {text}");
        let is_so = || self.children().len() == children;
        let has_as_many = wait_until(Duration::from_secs(10), is_so);
        assert!(has_as_many, "{context}: {:?}, not {children}", self.children());
    }
}

/// The process that is killed, and a session that nobody kills.
#[test]
fn a_pool_is_changed_kept_and_rolled_back() {
    if let Some((server, _, order)) = victim_order() {
        session(&server, order[0].parse().unwrap(), order[1] == "true").unwrap();
        std::process::exit(77);
    }
    needs!(fpm_is_installed());
    let fpm = Fpm::start(&[("www", POOL)]);
    let original = std::fs::read(fpm.path("pools.conf")).unwrap();
    for keep in [false, true] {
        let folder = empty_folder();
        let server = FakeServer::set_up(folder.path());
        session(&server, fpm.pid, keep).unwrap();
        fpm.check(if keep { 4 } else { 2 }, &format!("keep {keep}"));
        rollback_with(&tools(&server)).unwrap();
        fpm.check(2, &format!("keep {keep}"));
        assert_eq!(std::fs::read(fpm.path("pools.conf")).unwrap(), original);
    }
    let mut kills = 0;
    for keep in [false, true] {
        for act in (1..).step_by(acts_apart()) {
            let folder = empty_folder();
            drop(FakeServer::set_up(folder.path()));
            let context = format!("act {act} keep {keep}");
            let order = format!("{}|{act}|{}|{}|{keep}", folder.path().display(), act % 2 == 0, fpm.pid);
            let name = "php_fpm::changes::a_pool_is_changed_kept_and_rolled_back";
            let killed = victim_of(&["env"], name, &order);
            let server = FakeServer::at(folder.path());
            let interrupted = undo_interrupted_with(&tools(&server)).unwrap();
            assert!(interrupted.problem.is_none(), "{context}: {interrupted:?}");
            let is_kept = keep && std::fs::read(fpm.path("pools.conf")).unwrap() != original;
            fpm.check(if is_kept { 4 } else { 2 }, &context);
            rollback_with(&tools(&server)).unwrap_or_else(|error| panic!("{context}: {error}"));
            fpm.check(2, &context);
            assert_eq!(std::fs::read(fpm.path("pools.conf")).unwrap(), original, "{context}");
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    leave_out_between(kills);
    assert!(kills * acts_apart() > 20, "only {kills} kills");
}

#[test]
fn a_reload_cuts_nobody_off() {
    needs!(fpm_is_installed());
    // With process_control_timeout at its default of 0, by which FPM itself would end them.
    let fpm = Fpm::start(&[("www", POOL)]);
    let folder = empty_folder();
    let server = FakeServer::set_up(folder.path());
    let mut changer = server.changer();
    // Whoever asks reads the answer and hangs up: FPM waits for that.
    let answered = |mut request: Request| {
        let answer = request.wait(Instant::now() + Duration::from_secs(30)).unwrap();
        assert_eq!(answer.map(|answer| answer.status), Some(200));
    };
    let under_way = fpm.hold("www", 2);
    std::thread::sleep(Duration::from_millis(300));
    let applied = std::thread::scope(|scope| {
        under_way.into_iter().for_each(|request| drop(scope.spawn(|| answered(request))));
        let applying = scope.spawn(|| apply(&mut changer, &server, fpm.pid, 4));
        assert!(wait_until(Duration::from_secs(20), || fpm.is_stopped()), "the reload does not wait");
        // This one comes while the reload waits.
        let late = fpm.request("www", "hold.php");
        scope.spawn(|| answered(late));
        std::thread::sleep(Duration::from_millis(200));
        fpm.let_go();
        applying.join().unwrap()
    });
    let applied = applied.unwrap();
    assert!(applied.outage_us.is_some_and(|us| us > 100_000), "{applied:?}");
    fpm.check(4, "after the reload");
    changer.end(ClosedBy::Tool).unwrap();
    fpm.check(2, "after the end");
}

#[test]
fn a_request_that_takes_too_long_prevents_a_reload() {
    needs!(fpm_is_installed());
    let fpm = Fpm::start(&[("www", POOL)]);
    let folder = empty_folder();
    let server = FakeServer::set_up(folder.path());
    let mut changer = server.changer();
    let mut under_way = fpm.hold("www", 1);
    std::thread::sleep(Duration::from_millis(300));
    let error = apply(&mut changer, &server, fpm.pid, 4).unwrap_err();
    assert!(error.message.contains("1 request(s) of php-fpm did not end within 5 s"), "{error}");
    fpm.check(2, "after the refusal");
    assert!(!changer.has_unkept());
    fpm.let_go();
    let answer = under_way[0].wait(Instant::now() + Duration::from_secs(10)).unwrap();
    assert_eq!(answer.map(|answer| answer.status), Some(200));
    changer.end(ClosedBy::Tool).unwrap();
}

/// What is undone may be why requests take so long: they do not keep it in force.
#[test]
fn a_long_request_does_not_prevent_an_undo() {
    needs!(fpm_is_installed());
    let fpm = Fpm::start(&[("www", POOL)]);
    let original = std::fs::read(fpm.path("pools.conf")).unwrap();
    let folder = empty_folder();
    let server = FakeServer::set_up(folder.path());
    let mut changer = server.changer();
    apply(&mut changer, &server, fpm.pid, 4).unwrap();
    let _under_way = fpm.hold("www", 1);
    std::thread::sleep(Duration::from_millis(300));
    let undone = changer.end(ClosedBy::Tool).unwrap();
    let told = undone.lines.iter().any(|line| line.contains("ended the requests of php_fpm: 1 request(s)"));
    assert!(told, "{undone:?}");
    fpm.check(2, "after the undo");
    assert_eq!(std::fs::read(fpm.path("pools.conf")).unwrap(), original);
}

/// Both have sockets and no port: the journal could not tell them apart.
#[test]
fn of_two_that_have_no_port_one_is_changed_in_a_session() {
    needs!(fpm_is_installed());
    let (first, second) = (Fpm::start(&[("www", POOL)]), Fpm::start(&[("www", POOL)]));
    let folder = empty_folder();
    let server = FakeServer::set_up(folder.path());
    let mut changer = server.changer();
    apply(&mut changer, &server, first.pid, 4).unwrap();
    let refused = apply(&mut changer, &server, second.pid, 4).unwrap_err();
    assert!(refused.message.contains("another php_fpm is changed by this session"), "{refused}");
    second.check(2, "after the refusal");
    // Another session may, at the same time.
    let folder = empty_folder();
    let other = FakeServer::set_up(folder.path());
    let mut beside = other.changer();
    apply(&mut beside, &other, second.pid, 4).unwrap();
    for (changer, fpm) in [(&mut beside, &second), (&mut changer, &first)] {
        changer.end(ClosedBy::Tool).unwrap();
        fpm.check(2, "after the end");
    }
}

/// Killed while the main process is stopped: it goes on by itself, and the next command puts all back.
#[test]
fn who_is_killed_while_a_reload_waits_leaves_a_service_that_goes_on() {
    const NAME: &str = "php_fpm::changes::who_is_killed_while_a_reload_waits_leaves_a_service_that_goes_on";
    if let Some((server, _, order)) = victim_order() {
        let mut changer = server.changer();
        let _ = apply(&mut changer, &server, order[0].parse().unwrap(), 4);
        std::process::exit(77);
    }
    needs!(fpm_is_installed());
    let fpm = Fpm::start(&[("www", POOL)]);
    let folder = empty_folder();
    drop(FakeServer::set_up(folder.path()));
    let mut under_way = fpm.hold("www", 1);
    std::thread::sleep(Duration::from_millis(300));
    let order = format!("{}|1000000|false|{}", folder.path().display(), fpm.pid);
    let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env("WEBDYNO_TEST_VICTIM", &order)
        .spawn()
        .unwrap();
    assert!(wait_until(Duration::from_secs(30), || fpm.is_stopped()));
    ProcessName::of(victim.id()).unwrap().signal(Signal::KILL).unwrap();
    victim.wait().unwrap();
    assert!(fpm.is_stopped());
    // Nobody is left, and no command follows.
    assert!(wait_until(Duration::from_secs(30), || !fpm.is_stopped()));
    fpm.let_go();
    let answer = under_way[0].wait(Instant::now() + Duration::from_secs(10)).unwrap();
    assert_eq!(answer.map(|answer| answer.status), Some(200));
    let interrupted = undo_interrupted_with(&tools(&FakeServer::at(folder.path()))).unwrap();
    assert!(interrupted.problem.is_none(), "{interrupted:?}");
    fpm.check(2, "after the undo");
}

#[test]
fn what_waits_for_a_reload_is_told() {
    needs!(fpm_is_installed());
    let fpm = Fpm::start(&[("www", POOL)]);
    let control = controllable(&fpm.snapshot()).unwrap().control.unwrap();
    assert_eq!(PhpFpm.pending_changes(&control, 0, &[]).unwrap(), []);
    std::thread::sleep(Duration::from_millis(50));
    let text = std::fs::read_to_string(fpm.path("pools.conf")).unwrap();
    std::fs::write(fpm.path("pools.conf"), format!("{text}; somebody's\n")).unwrap();
    let found = PhpFpm.pending_changes(&control, 0, &[]).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].to_string().contains("after PHP-FPM last read its configuration"), "{}", found[0]);
    let folder = empty_folder();
    let server = FakeServer::set_up(folder.path());
    let refused = apply(&mut server.changer(), &server, fpm.pid, 4).unwrap_err();
    assert!(refused.message.contains("would put changes of others in force"), "{refused}");
    fpm.check(2, "after the refusal");
}
