//! The program on a machine that systemd runs: what it does to a service goes through the service's unit, and what a
//! session left that died with its machine is put back by the next boot, before the service starts.
//!
//! Facts: systemctl(1), systemd.service(5), systemd.exec(5) for `$INVOCATION_ID`, bootup(7).

mod machine;
mod sudo;

use crate::debian::Tree;
use crate::support::{shared_turn, turn, wait_until};
use machine::{Machine, PROGRAM, Unit, skips};
use std::path::Path;
use std::time::Duration;
use webdyno_host::agent::{AgentClient, ServerAddress, Start};
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// The limit of workers in its own place, where more of them take a restart.
const BOUND: &str =
    "echo ServerLimit 10 >>/etc/apache2/mods-available/mpm_prefork.conf && systemctl restart apache2";

/// What limits them.
const WORKERS: &str = "MaxRequestWorkers";

/// An agent of the program on the machine, as a service of its own.
fn agent(machine: &Machine) -> AgentClient {
    started(machine, &format!("{PROGRAM} agent"), Path::new(PROGRAM))
}

/// The same of a program that is not installed there, and sent.
fn sent_agent(machine: &Machine) -> AgentClient {
    started(machine, "env", crate::transport::program())
}

fn started(machine: &Machine, command: &str, program: &Path) -> AgentClient {
    webdyno_host::agent::name_build(env!("WEBDYNO_BUILD"));
    let run = "systemd-run --quiet --pipe --wait --collect";
    let address = ServerAddress::parse(&format!("exec:{} {run} {command}", machine.entrance())).unwrap();
    AgentClient::start(&Start::at(address, program)).unwrap()
}

/// Has the agent give these settings of Apache a number; what that took.
fn change(client: &AgentClient, names: &[&str], count: i64) -> ApplyClass {
    client.discover(80).unwrap();
    let setting = |name: &&str| SettingId::of_service("apache", *name);
    let to = SettingValue::Integer(count);
    let wanted: Vec<SettingChange> =
        names.iter().map(|name| SettingChange { setting: setting(name), to: to.clone() }).collect();
    let plan = client.prepare(&wanted).and_then(Preparation::into_plan).unwrap();
    client.apply(&plan, &ApplyOptions { allow_restart: true, ..ApplyOptions::default() }).unwrap();
    plan.class
}

/// Workers of the old generation may be at their last request.
fn assert_workers(machine: &Machine, count: usize) {
    assert!(wait_until(Duration::from_secs(10), || machine.workers() == count), "{}", machine.workers());
}

/// All is as it was, and systemd content.
fn assert_restored(machine: &Machine, before: &Tree) {
    assert_eq!(before.differences(&machine.configuration()), Vec::<String>::new());
    assert_workers(machine, 10);
    assert_eq!(machine.shell("systemctl is-system-running").trim(), "running");
}

fn roll_back(machine: &Machine) {
    let (code, printed) = machine.webdyno("rollback");
    assert_eq!(code, 0, "{printed}");
}

#[test]
fn a_reload_and_a_restart_go_through_the_unit() {
    let _turn = shared_turn();
    if skips() {
        return;
    }
    let machine = Machine::boot();
    let (before, first) = (machine.configuration(), machine.unit("apache2"));
    assert_workers(&machine, 10);
    let client = agent(&machine);
    assert_eq!(change(&client, &[WORKERS], 20), ApplyClass::Reload);
    // The same process of the same start, which systemd reloaded.
    assert_eq!(machine.unit("apache2"), Unit { reloads: first.reloads + 1, ..first.clone() });
    assert_workers(&machine, 20);
    client.keep().unwrap();
    client.close().unwrap();
    assert_workers(&machine, 20);
    roll_back(&machine);
    assert_eq!(machine.unit("apache2"), Unit { reloads: first.reloads + 2, ..first });
    assert_restored(&machine, &before);

    machine.shell(BOUND);
    let (before, first) = (machine.configuration(), machine.unit("apache2"));
    let client = agent(&machine);
    assert_eq!(change(&client, &[WORKERS, "ServerLimit"], 20), ApplyClass::Restart);
    let second = machine.unit("apache2");
    assert_started_once(&first, &second);
    assert_workers(&machine, 20);
    client.keep().unwrap();
    client.close().unwrap();
    roll_back(&machine);
    assert_started_once(&second, &machine.unit("apache2"));
    assert_restored(&machine, &before);
}

/// Stopped and started by systemd, once and because it was told to: it is its main process that runs.
fn assert_started_once(before: &Unit, after: &Unit) {
    let Unit { main_pid, invocation, .. } = after.clone();
    assert_eq!(after, &Unit { main_pid, invocation, starts: before.starts + 1, ..before.clone() });
    assert!(after.main_pid != before.main_pid && after.invocation != before.invocation);
    assert_eq!((after.restarts, after.state.as_str()), (0, "active"));
}

/// systemd refuses the sixth start within ten seconds (StartLimitBurst of systemd.unit(5)), and has stopped the service by
/// then: an administrator who has just restarted it some times must not lose it by ours.
#[test]
fn a_restart_after_many_leaves_the_service_up() {
    let _turn = shared_turn();
    if skips() {
        return;
    }
    let machine = Machine::boot();
    machine.shell(BOUND);
    let before = machine.configuration();
    let client = agent(&machine);
    machine.shell(
        "systemctl reset-failed apache2; for i in 1 2 3 4 5; do systemctl restart apache2 || exit 1; done",
    );
    assert_eq!(change(&client, &[WORKERS, "ServerLimit"], 20), ApplyClass::Restart);
    assert_workers(&machine, 20);
    // The session ends without having kept it: one start more.
    client.close().unwrap();
    assert_eq!(machine.unit("apache2").state, "active");
    assert_restored(&machine, &before);
}

/// The power fails while a change is tried out: neither the tool nor its guardian can put it back.
#[test]
fn a_boot_puts_back_what_was_not_kept_before_the_service_starts() {
    let _turn = shared_turn();
    if skips() {
        return;
    }
    let mut machine = Machine::boot();
    let client = agent(&machine);
    change(&client, &[WORKERS], 15);
    client.keep().unwrap();
    client.close().unwrap();
    let kept = machine.configuration();
    for start in [agent, sent_agent] {
        let client = start(&machine);
        change(&client, &[WORKERS], 30);
        assert_workers(&machine, 30);
        assert!(!kept.differences(&machine.configuration()).is_empty());
        machine.power_off();
        drop(client);
        machine.power_on();
        let journal = machine.shell("journalctl -b -q -o cat --no-pager _PID=1");
        let position = |start: &str| journal.lines().position(|line| line.starts_with(start)).unwrap();
        assert!(position("Finished webdyno-rollback-") < position("Starting apache2.service"), "{journal}");
        assert_eq!(kept.differences(&machine.configuration()), Vec::<String>::new(), "{journal}");
        assert_workers(&machine, 15);
    }
    // It was the boot's only one: the next one has nothing to do.
    machine.power_off();
    machine.power_on();
    let journal = machine.shell("journalctl -b -q -o cat --no-pager _PID=1");
    assert!(!journal.contains("webdyno-rollback"), "{journal}");
    roll_back(&machine);
    assert_workers(&machine, 10);
}

/// The unit of Debian's Apache grants more open files than apachectl takes: what is told to raise them must do it.
#[test]
fn what_keeps_a_limit_of_open_files_is_where_debian_has_it() {
    let _turn = shared_turn();
    if skips() {
        return;
    }
    let machine = Machine::boot();
    let client = agent(&machine);
    client.discover(80).unwrap();
    let setting = SettingId::of_service("apache", "LimitNOFILE");
    let wanted = SettingChange { setting, to: SettingValue::Integer(16_384) };
    // Here as a rule nobody may raise limits, and it is left to a person; else a person is told when it is kept.
    let told = match client.prepare(&[wanted]).unwrap() {
        Preparation::Plan(plan) => {
            client.apply(&plan, &ApplyOptions::default()).unwrap();
            client.keep().unwrap();
            client.warnings().join("\n")
        }
        Preparation::NotPreparable { why, hint } => format!("{why}: {}", hint.unwrap_or_default()),
    };
    client.close().unwrap();
    let line = "APACHE_ULIMIT_MAX_FILES='ulimit -n 16384'";
    assert!(told.contains(&format!("{line} in /etc/apache2/envvars")), "{told}");
    let open_files = || {
        let limits = format!("cat /proc/{}/limits", machine.unit("apache2").main_pid);
        machine.shell(&limits).lines().find(|line| line.starts_with("Max open files")).unwrap().to_owned()
    };
    machine.shell("systemctl restart apache2");
    assert!(open_files().contains(" 8192 "), "{}", open_files());
    machine.shell(&format!("echo \"export {line}\" >>/etc/apache2/envvars && systemctl restart apache2"));
    assert!(open_files().contains(" 16384 "), "{}", open_files());
}

/// Somebody shuts the machine down in the middle of a session, which is then told to end while its service is stopped.
#[test]
fn a_shutdown_is_not_held_up_and_leaves_nothing_of_a_change() {
    let _turn = shared_turn();
    if skips() {
        return;
    }
    let mut machine = Machine::boot();
    machine.shell(BOUND);
    let before = machine.configuration();
    let client = agent(&machine);
    assert_eq!(change(&client, &[WORKERS, "ServerLimit"], 20), ApplyClass::Restart);
    assert_workers(&machine, 20);
    let took = machine.shut_down();
    drop(client);
    machine.power_on();
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_restored(&machine, &before);
}

/// A pool of PHP-FPM behind Apache, whose unit is told by FPM itself when it is ready (sd_notify(3)).
#[test]
fn a_pool_is_reloaded_and_its_unit_stays_up() {
    let _turn = shared_turn();
    if skips() {
        return;
    }
    let machine = Machine::boot();
    machine.shell("a2enmod -q proxy_fcgi setenvif && a2enconf -q php8.2-fpm && systemctl reload apache2");
    let (before, first) = (machine.configuration(), machine.unit("php8.2-fpm"));
    let client = agent(&machine);
    client.discover(80).unwrap();
    let setting = SettingId::of_service("php_fpm", "pm.max_children").of_pool("www");
    let wanted = SettingChange { setting, to: SettingValue::Integer(20) };
    let plan = client.prepare(&[wanted]).and_then(Preparation::into_plan).unwrap();
    client.apply(&plan, &ApplyOptions::default()).unwrap();
    client.keep().unwrap();
    client.close().unwrap();
    let changed = before.differences(&machine.configuration());
    assert!(changed.len() == 1 && changed[0].contains("php/8.2/fpm/pool.d/"), "{changed:?}");
    // By a signal, as its unit does it, but after its children have finished: it is the same start of the same process.
    assert_eq!(machine.unit("php8.2-fpm"), first);
    roll_back(&machine);
    assert_eq!(machine.unit("php8.2-fpm"), first);
    assert_restored(&machine, &before);
}

/// How often a session is started that found nothing to keep: what else the machine does counts too.
const TRIES_MAX: usize = 3;

/// Too few workers are found under load, more are given, which takes a restart, and taken back.
fn tune_and_roll_back(machine: &Machine, webdyno: impl Fn(&str) -> (i32, String)) {
    machine.shell(BOUND);
    let before = machine.configuration();
    let load = "-c 30 --no-keepalive -d 2s --warmup 0s -q --json -";
    let tune = format!("tune http://127.0.0.1/app --apply --allow-restart --goal '150 req/s' {load}");
    let mut tries = vec![];
    let first = loop {
        assert!(tries.len() < TRIES_MAX, "{tries:?}");
        let first = machine.unit("apache2");
        let (code, printed) = webdyno(&tune);
        if code == 0 {
            break first;
        }
        tries.push(printed);
    };
    assert_started_once(&first, &machine.unit("apache2"));
    assert!(machine.workers() > 10);
    let changed = before.differences(&machine.configuration());
    assert!(changed.len() == 1 && changed[0].contains("zzz-webdyno.conf"), "{changed:?}");
    let (code, printed) = webdyno("rollback");
    assert!(code == 0 && printed.contains("zzz-webdyno.conf"), "{printed}");
    assert_restored(machine, &before);
}

#[test]
fn a_service_of_systemd_is_tuned_and_rolled_back() {
    let _turn = turn();
    if skips() {
        return;
    }
    let machine = Machine::boot();
    tune_and_roll_back(&machine, |words| machine.webdyno(words));
}
