//! What collectors tell of private, real Apaches while they run: exhausted, rotated, behind a password, leaking.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::apache::server::{MODULES, Server, apache_is_installed};
use crate::skip::{needs, skip};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use webdyno_host::collectors::processes::worker_memory::WorkerMemory;
use webdyno_host::collectors::processes::workers::Workers;
use webdyno_host::collectors::services::access_log::AccessLog;
use webdyno_host::collectors::services::apache_log::ApacheLog;
use webdyno_host::collectors::services::apache_status::ApacheStatus;
use webdyno_host::collectors::{Collector, Reading, Target};

const PATIENCE: Duration = Duration::from_secs(20);

fn target(server: &Server) -> Target {
    let snapshot = server.snapshot();
    Target {
        port: Some(server.port),
        service_pid: Some(snapshot.pid),
        status_url: snapshot.status_url.clone(),
        service: Some(Arc::new(snapshot)),
        ..Target::default()
    }
}

/// Reads until it is as wanted.
fn read_until(collector: &mut dyn Collector, target: &Target, wanted: impl Fn(&Reading) -> bool) -> Reading {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let reading = collector.read(target);
        if wanted(&reading) {
            return reading;
        }
        assert!(Instant::now() < deadline, "{reading:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn at_least(name: &str, count: f64) -> impl Fn(&Reading) -> bool {
    let name = name.to_owned();
    move |reading| reading.value(&name).is_some_and(|value| value >= count)
}

/// The status of an answer; 0 when none came.
fn get(server: &Server, path: &str) -> u16 {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", server.port)) else { return 0 };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let mut answer = vec![];
    let _ = stream.read_to_end(&mut answer);
    let status = answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    status.unwrap_or(0)
}

fn reload(server: &Server) {
    let pid = rustix::process::Pid::from_raw(server.pid().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
}

#[test]
fn workers_that_are_all_held_are_told_by_the_log_and_the_page_that_does_not_come() {
    needs!(apache_is_installed());
    let server =
        Server::debian("prefork", "StartServers 2\nMinSpareServers 2\nMaxRequestWorkers 2\nServerLimit 2\n");
    server.start();
    let target = target(&server);
    let (mut log, mut status) = (ApacheLog::default(), ApacheStatus::default());
    log.read(&target);
    let first = status.read(&target);
    assert!(first.value("apache.uptime_s").is_some() && first.missing.is_empty(), "{first:?}");
    let held: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
            stream
        })
        .collect();
    let message = read_until(&mut log, &target, at_least("apache_log.AH00161.messages_count", 1.0));
    assert_eq!(message.value("apache_log.AH00161.before_count"), None);
    let begun = Instant::now();
    let blocked = status.read(&target);
    assert!(begun.elapsed() < Duration::from_secs(4), "a reading ends in time");
    assert!(blocked.values.is_empty() && blocked.missing[0].signal == "mod_status", "{blocked:?}");
    let again = status.read(&target);
    assert_eq!(blocked.missing, again.missing, "the same words as long as it lasts");
    drop(held);
    read_until(&mut status, &target, |reading| reading.missing.is_empty());
    // Who comes later sees that it was said before.
    let later = ApacheLog::default().read(&target);
    assert_eq!(later.value("apache_log.AH00161.before_count"), Some(1.0), "{later:?}");
    assert_eq!(later.value("apache_log.AH00161.messages_count"), Some(0.0));
}

#[test]
fn a_log_that_is_rotated_and_cut_while_it_is_followed_loses_nothing() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", "StartServers 1\n");
    server.start();
    let target = target(&server);
    let mut log = ApacheLog::default();
    log.read(&target);
    let path = server.path("run/error.log");
    fs::rename(&path, server.path("run/error.log.1")).unwrap();
    // That it reloads it writes to the old file, that it serves to the new one.
    reload(&server);
    let message = read_until(&mut log, &target, at_least("apache_log.AH00163.messages_count", 1.0));
    assert_eq!(message.value("apache_log.AH00171.messages_count"), Some(1.0), "{message:?}");
    fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    reload(&server);
    let message = read_until(&mut log, &target, at_least("apache_log.AH00163.messages_count", 2.0));
    assert_eq!(message.value("apache_log.AH00171.messages_count"), Some(2.0), "{message:?}");
    assert_eq!(message.value("apache_log.unread_bytes"), Some(0.0));
}

/// A status page that is not to be had is told with what helps.
fn check_page(status_conf: &str, why: &str, how: &str) {
    needs!(apache_is_installed());
    let server = Server::debian("event", "StartServers 1\n");
    server.write("mods-enabled/status.conf", status_conf);
    let load = |name: &str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
    let modules = ["auth_basic", "authn_core", "authn_file", "authz_user", "alias"].map(load).concat();
    server.write("mods-enabled/more.load", &modules);
    server.start();
    let target = target(&server);
    let reading = ApacheStatus::default().read(&target);
    let [missing] = &reading.missing[..] else { panic!("{reading:?}") };
    assert!(missing.signal == "mod_status" && missing.why.contains(why), "{missing:?}");
    assert!(missing.how_to_enable.contains(how), "{missing:?}");
    // One that was there and is not any more.
    let url = format!("http://127.0.0.1:{}/server-status", server.port);
    let reading = ApacheStatus::default().read(&Target { status_url: Some(url), ..target });
    assert!(reading.values.is_empty() && reading.missing[0].signal == "mod_status", "{reading:?}");
}

const LOCATION: &str = "<Location /server-status>\nSetHandler server-status\n";

#[test]
fn a_page_behind_a_password_is_told() {
    let conf = format!(
        "{LOCATION}AuthType Basic\nAuthName x\nAuthUserFile /dev/null\nRequire valid-user\n</Location>\n"
    );
    check_page(&conf, "asks for a password", "Require local");
}

#[test]
fn a_page_that_is_forbidden_or_switched_off_is_told() {
    check_page(&format!("{LOCATION}Require all denied\n</Location>\n"), "answers 403", "Require local");
    check_page("", "no <Location>", "SetHandler server-status");
}

#[test]
fn a_page_that_redirects_is_told() {
    check_page(
        &format!("Redirect /server-status https://localhost/x\n{LOCATION}</Location>\n"),
        "redirect",
        "Rewrite",
    );
}

#[test]
fn the_processes_of_event_are_read_from_its_page() {
    needs!(apache_is_installed());
    let server = Server::debian("event", "StartServers 2\nThreadsPerChild 5\nMaxRequestWorkers 10\n");
    server.start();
    let target = target(&server);
    let mut status = ApacheStatus::default();
    // The table is looked at now and then, and told when it was.
    let has_both = at_least("apache.processes_count", 2.0);
    let reading = read_until(&mut status, &target, |reading| {
        has_both(reading) && reading.value("apache.processes_old_count").is_some()
    });
    for (name, expected) in [("not_accepting", 0.0), ("capped", 0.0), ("old", 0.0)] {
        let name = format!("apache.processes_{name}_count");
        assert_eq!(reading.value(&name), Some(expected), "{name} {reading:?}");
    }
    assert!(reading.value("apache.process_connections_max_count").is_some());
    assert_eq!(reading.missing, vec![]);
    // Our own requests are told, also those of a look at the server between two readings: none is taken for a client's.
    let first = status.read(&target);
    assert!(server.snapshot().status_url.is_some());
    let last = status.read(&target);
    let rise = |name: &str| last.value(name).unwrap() - first.value(name).unwrap();
    let (own, accesses) = (rise("apache.own_requests_count"), rise("apache.accesses_count"));
    assert!(own >= 2.0 && (accesses - own).abs() < 0.5, "{own} of {accesses}");
}

#[test]
fn short_lives_of_workers_are_seen() {
    needs!(apache_is_installed());
    let conf = "StartServers 6\nMinSpareServers 6\nMaxSpareServers 9\nMaxRequestWorkers 12\nMaxConnectionsPerChild 5\n";
    let server = Server::debian("prefork", conf);
    server.start();
    let target = target(&server);
    let mut workers = Workers::default();
    let first = workers.read(&target);
    assert!(first.value("workers.count").unwrap() > 0.0, "{first:?}");
    let begun = Instant::now();
    let seen = |reading: &Reading| {
        (0..4).for_each(|_| assert_ne!(get(&server, "/"), 0));
        reading.value("workers.started_count") >= Some(6.0)
            && reading.value("workers.ended_count") >= Some(6.0)
    };
    let last = read_until(&mut workers, &target, seen);
    assert!(last.value("workers.mean_age_s").unwrap() <= begun.elapsed().as_secs_f64() + 60.0);
    let faults = |reading: &Reading| reading.value("workers.reaped_faults_count").unwrap();
    assert!(faults(&last) > faults(&first), "{last:?}");
}

/// Waits until what was asked before stands in the log: Apache writes it after the answer.
fn settle(log: &Path) {
    let lines = || std::fs::read_to_string(log).unwrap_or_default();
    let deadline = Instant::now() + PATIENCE;
    let mut before = String::new();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = lines();
        if !now.is_empty() && now == before {
            return;
        }
        assert!(Instant::now() < deadline, "nothing is logged: {now}");
        before = now;
    }
}

#[test]
fn requests_are_counted_by_the_access_log_of_the_site() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", "StartServers 2\n");
    let load = |name: &str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
    // Compiled in by Debian, a module elsewhere.
    let log_config = Path::new(MODULES).join("mod_log_config.so").exists();
    server.write(
        "mods-enabled/more.load",
        &(load("alias") + &if log_config { load("log_config") } else { String::new() }),
    );
    let format =
        "LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O \\\"%{Referer}i\\\" \\\"%{User-agent}i\\\" %D\" timed\n";
    let format = format.replace("%O", "%B");
    server.write(
        "conf-enabled/log.conf",
        &format!("{format}CustomLog ${{RUN}}/access.log timed\nRedirect 503 /bad\n"),
    );
    server.write("run/page.html", &"x".repeat(1000));
    server.start();
    let target = target(&server);
    settle(&server.path("run/access.log"));
    let mut log = AccessLog::default();
    let first = log.read(&target);
    assert_eq!(first.value("access_log.requests_count"), Some(0.0), "{first:?}");
    let answers: Vec<u16> =
        ["/page.html", "/page.html", "/none", "/bad", "/bad", "/bad"].map(|path| get(&server, path)).into();
    let message = read_until(&mut log, &target, at_least("access_log.requests_count", 6.0));
    let of = |class: u16| answers.iter().filter(|status| **status / 100 == class).count() as f64;
    for class in [2, 3, 4, 5] {
        let name = format!("access_log.status_{class}xx_count");
        assert_eq!(message.value(&name), Some(of(class)), "{name} {answers:?} {message:?}");
    }
    assert_eq!(of(5), 3.0);
    assert!(message.value("access_log.sent_bytes") >= Some(of(2) * 1000.0), "{message:?}");
    assert_eq!(message.value("access_log.timed_count"), Some(6.0));
    assert_eq!(message.value("access_log.unparsed_count"), Some(0.0));
}

#[test]
fn a_handler_that_leaks_shows_as_growth() {
    needs!(apache_is_installed());
    let perl = Path::new(MODULES).join("mod_perl.so");
    if !perl.exists() {
        assert!(std::env::var_os("CI").is_none(), "apt-get install libapache2-mod-perl2");
        return skip("mod_perl.so is missing; install libapache2-mod-perl2");
    }
    let server = Server::debian(
        "prefork",
        "StartServers 3\nMinSpareServers 3\nMaxSpareServers 3\nMaxRequestWorkers 3\n",
    );
    server.write("mods-enabled/perl.load", &format!("LoadModule perl_module {}\n", perl.display()));
    let module = "package Leak;\nuse strict;\nour @kept;\nsub handler { my $r = shift; push @kept, 'x' x 300000; $r->print('ok'); return 0; }\n1;\n";
    server.write("lib/Leak.pm", module);
    let conf = format!(
        "PerlSwitches -I{}\nPerlModule Apache2::RequestIO\nPerlModule Leak\n<Location /leak>\nSetHandler modperl\n\
         PerlResponseHandler Leak\nRequire all granted\n</Location>\n",
        server.path("lib").display()
    );
    server.write("conf-enabled/perl.conf", &conf);
    server.start();
    let target = target(&server);
    assert!(target.service.as_ref().unwrap().modules.iter().any(|module| module == "perl_module"));
    let mut memory = WorkerMemory::default();
    let grown = read_until(&mut memory, &target, |reading| {
        (0..6).for_each(|_| assert_eq!(get(&server, "/leak"), 200));
        reading.value("worker_memory.growth_within_bytes") > Some(50e6)
    });
    let value = |name: &str| grown.value(&format!("worker_memory.{name}")).unwrap();
    assert_eq!((value("workers_count"), value("workers_read_count")), (3.0, 3.0));
    assert!(value("pss_mean_bytes") <= value("pss_max_bytes"), "{grown:?}");
    assert!(
        value("shared_mean_bytes") > 0.0 && value("rss_max_bytes") >= value("pss_max_bytes"),
        "{grown:?}"
    );
}
