//! The program on a machine that systemd runs: what it does to a service goes through the service's unit, and what a
//! session left that died with its machine is put back by the next boot, before the service starts.
//!
//! Facts: systemctl(1), systemd.service(5), systemd.exec(5) for `$INVOCATION_ID` and `LimitNOFILE`, bootup(7).

mod machine;
mod packaging;
mod sudo;

use crate::debian::Tree;
use crate::extent::{leave_out, runs_all};
use crate::skip::needs;
use crate::support::{shared_turn, turn, wait_until};
use machine::{Machine, PROGRAM, Unit, can_boot};
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
    needs!(can_boot());
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
    needs!(can_boot());
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
    needs!(can_boot());
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

/// Has the agent prepare another number for a setting of a service.
fn prepared(client: &AgentClient, service: &str, name: &str, count: i64) -> Preparation {
    client.discover(80).unwrap();
    let (setting, to) = (SettingId::of_service(service, name), SettingValue::Integer(count));
    client.prepare(&[SettingChange { setting, to }]).unwrap()
}

/// The same, applied; what that took.
fn set(client: &AgentClient, service: &str, name: &str, count: i64) -> ApplyClass {
    let plan = prepared(client, service, name, count).into_plan().unwrap();
    client.apply(&plan, &ApplyOptions::default()).unwrap();
    plan.class
}

/// The soft and the hard limit of open files of a unit's main process.
fn open_files(machine: &Machine, unit: &str) -> String {
    let limits =
        format!("awk '/^Max open files/ {{print $4, $5}}' /proc/{}/limits", machine.unit(unit).main_pid);
    machine.shell(&limits).trim().to_owned()
}

/// The unit of Debian's Apache grants more open files than apachectl takes: what raises them is in the file that this reads.
#[test]
fn what_keeps_a_limit_of_open_files_is_where_debian_has_it() {
    let _turn = shared_turn();
    needs!(can_boot());
    let machine = Machine::boot();
    let before = machine.configuration();
    let client = agent(&machine);
    const LINE: &str = "APACHE_ULIMIT_MAX_FILES='ulimit -n 16384'";
    match prepared(&client, "apache", "LimitNOFILE", 16_384) {
        Preparation::Plan(plan) => {
            client.apply(&plan, &ApplyOptions::default()).unwrap();
            client.keep().unwrap();
        }
        // In containers as a rule nobody may raise limits, and it is left to a person.
        Preparation::NotPreparable { why, hint } => {
            let told = format!("{why}: {}", hint.unwrap_or_default());
            assert!(told.contains(&format!("{LINE} in /etc/apache2/envvars")), "{told}");
            machine.shell("systemctl restart apache2");
            assert_eq!(open_files(&machine, "apache2"), "8192 8192");
            machine.shell(&format!("echo \"{LINE}\" >>/etc/apache2/envvars"));
        }
    }
    client.close().unwrap();
    assert!(machine.shell("cat /etc/apache2/envvars").ends_with(&format!("\n{LINE}\n")));
    machine.shell("systemctl restart apache2");
    assert_eq!(open_files(&machine, "apache2"), "16384 16384");
    machine
        .shell(&format!("{PROGRAM} rollback && sed -i '/^APACHE_ULIMIT_MAX_FILES/d' /etc/apache2/envvars"));
    let changed = before.differences(&machine.configuration());
    assert!(changed.iter().all(|path| path.contains("apache2/envvars")), "{changed:?}");
}

/// What units get unless they say otherwise: whatever the host grants, there is room to raise it.
const GRANTED: (&str, &str) =
    ("/etc/systemd/system.conf.d/limits.conf", "[Manager]\nDefaultLimitNOFILE=1024:8192\n");

/// nginx in place of Apache. Its workers are root: limits of others may be raised by few containers.
const NGINX: &str = "systemctl stop apache2 && sed -i 's/^user .*/user root;/' /etc/nginx/nginx.conf && systemctl start nginx";

/// A file of others that sets a limit, after all that webdyno would write.
const OF_OTHERS: &str = "mkdir /etc/systemd/system/nginx.service.d
printf '# Ansible managed\n[Service]\nLimitNOFILE=1024:8192\n' >/etc/systemd/system/nginx.service.d/zzzz.conf
systemctl daemon-reload";

#[test]
fn a_limit_is_added_to_its_unit_and_nginx_reloaded_through_it() {
    let _turn = shared_turn();
    needs!(can_boot());
    let machine = Machine::boot_with(&[GRANTED]);
    machine.shell(NGINX);
    let (before, first) = (machine.configuration(), machine.unit("nginx"));
    let client = agent(&machine);
    // What cannot be kept is told before anything is touched.
    let units = "/etc/systemd/system";
    machine.shell(&format!("mount --bind {units} {units} && mount -o remount,bind,ro {units}"));
    let Preparation::NotPreparable { why, .. } = prepared(&client, "nginx", "LimitNOFILE", 4096) else {
        panic!("it would write to a file system that is read-only")
    };
    assert!(why.contains(units) && why.to_lowercase().contains("read-only"), "{why}");
    machine.shell(&format!("umount {units} && {OF_OTHERS}"));
    let plan = prepared(&client, "nginx", "LimitNOFILE", 4096).into_plan().unwrap();
    assert_eq!((plan.class, plan.managed[0].by.as_str()), (ApplyClass::Manual, "Ansible"));
    machine.shell(&format!("rm -r {units}/nginx.service.d && systemctl daemon-reload"));

    assert_eq!(set(&client, "nginx", "LimitNOFILE", 4096), ApplyClass::Live);
    assert_eq!(open_files(&machine, "nginx"), "4096 8192");
    assert_eq!(before.differences(&machine.configuration()), Vec::<String>::new());
    client.keep().unwrap();
    client.close().unwrap();
    let changed = before.differences(&machine.configuration());
    assert!(
        !changed.is_empty() && changed.iter().all(|path| path.contains("nginx.service.d")),
        "{changed:?}"
    );
    // Nothing was restarted for it, and systemd knows it.
    assert_eq!(machine.unit("nginx"), first);
    let known = |soft: u32| format!("LimitNOFILE=8192\nLimitNOFILESoft={soft}\nNeedDaemonReload=no\n");
    let shown = "systemctl show nginx -p LimitNOFILE -p LimitNOFILESoft -p NeedDaemonReload";
    assert_eq!(machine.shell(shown), known(4096));
    machine.shell("systemctl restart nginx");
    assert_eq!(open_files(&machine, "nginx"), "4096 8192");
    let second = machine.unit("nginx");
    roll_back(&machine);
    // Also of the process that was started since.
    assert_eq!((open_files(&machine, "nginx").as_str(), machine.shell(shown)), ("1024 8192", known(1024)));
    assert_eq!(machine.unit("nginx"), second);
    assert_eq!(before.differences(&machine.configuration()), Vec::<String>::new());

    let client = agent(&machine);
    assert_eq!(set(&client, "nginx", "worker_connections", 900), ApplyClass::Reload);
    assert_eq!(machine.unit("nginx"), Unit { reloads: second.reloads + 1, ..second.clone() });
    client.close().unwrap();
    assert_eq!(machine.unit("nginx"), Unit { reloads: second.reloads + 2, ..second });
    assert_eq!(before.differences(&machine.configuration()), Vec::<String>::new());
}

/// A MariaDB behind Apache, as its package has it.
const MARIADB: &str = "mariadb-install-db --user=mysql --skip-test-db >/dev/null && systemctl start mariadb && a2enmod -q proxy_http
echo 'ProxyPass /db http://127.0.0.1:3306/' >/etc/apache2/conf-available/db.conf
a2enconf -q db && systemctl reload apache2";

#[test]
fn a_database_is_given_connections_that_its_unit_starts_with() {
    let _turn = shared_turn();
    needs!(can_boot());
    let machine = Machine::boot();
    machine.shell(MARIADB);
    let (before, first) = (machine.configuration(), machine.unit("mariadb"));
    let connections = || machine.shell("mariadb -Ne 'SELECT @@max_connections'").trim().to_owned();
    assert_eq!(connections(), "151");
    let client = agent(&machine);
    assert_eq!(set(&client, "mariadb", "max_connections", 300), ApplyClass::Live);
    assert_eq!(connections(), "300");
    assert_eq!(before.differences(&machine.configuration()), Vec::<String>::new());
    client.keep().unwrap();
    client.close().unwrap();
    let changed = before.differences(&machine.configuration());
    assert!(changed.len() == 1 && changed[0].contains("mysql/mariadb.conf.d/zzz-webdyno.cnf"), "{changed:?}");
    assert_eq!(machine.unit("mariadb"), first);
    machine.shell("systemctl restart mariadb");
    assert_eq!(connections(), "300");
    let second = machine.unit("mariadb");
    roll_back(&machine);
    assert_eq!((connections().as_str(), machine.unit("mariadb")), ("151", second));
    machine.shell("systemctl restart mariadb");
    assert_eq!(connections(), "151");
    assert_restored(&machine, &before);
}

/// Somebody shuts the machine down in the middle of a session, which is then told to end while its service is stopped.
#[test]
fn a_shutdown_is_not_held_up_and_leaves_nothing_of_a_change() {
    let _turn = shared_turn();
    needs!(can_boot());
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
    needs!(can_boot());
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
    // By ssh and sudo it is (`sudo`), and what its agent does in there is above.
    if !runs_all() {
        return leave_out(1, "tunings of a service of systemd");
    }
    let _turn = turn();
    needs!(can_boot());
    let machine = Machine::boot();
    tune_and_roll_back(&machine, |words| machine.webdyno(words));
}
