//! From a port to the processes behind it, on real servers: PHP-FPM, a database, a program that nobody knows, itself.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod foreign_namespace;
mod reading;
mod stack;

use crate::apache::server::{Server, apache_is_installed};
use crate::skip::{needs, skip};
use stack::{Stack, get, until};
use std::sync::atomic::{AtomicBool, Ordering};
use webdyno_host::agent::host::Host;
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_model::topology::{Access, Link, Topology};

/// As often the topology is looked at.
const LOOKS_COUNT_MAX: usize = 20;

/// Whether a stack can be run here; on CI it must.
fn can_run() -> bool {
    if !apache_is_installed() {
        return false;
    }
    let installed = Stack::is_installed();
    assert!(installed || std::env::var_os("CI").is_none(), "scripts/setup test installs what is missing");
    let root = rustix::process::geteuid().is_root();
    if !(installed && root) {
        skip("needs root, php8.2-fpm, php8.2-mysql, mariadb-server-core and python3");
    }
    installed && root
}

fn topology(port: u16) -> Topology {
    ThisMachine.topology(Some(port), &Access::default()).unwrap()
}

/// Looks until all is seen: requests are slow where the machine is busy.
fn found_with(port: u16, is_whole: impl Fn(&Topology) -> bool) -> Topology {
    let mut seen = topology(port);
    for _ in 0..LOOKS_COUNT_MAX {
        if is_whole(&seen) {
            break;
        }
        seen = topology(port);
    }
    seen
}

fn links_from<'a>(topology: &'a Topology, pid: u32, to: &str) -> Vec<&'a Link> {
    topology.links.iter().filter(|link| link.from_pid == pid && link.to.as_deref() == Some(to)).collect()
}

/// Requests that come one after the other while something else is done.
fn under<T>(port: u16, paths: &[&str], work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for path in paths {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    get(port, path);
                }
            });
        }
        // The first ones are on their way.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        result.unwrap()
    })
}

#[test]
fn whom_a_site_talks_to_is_found() {
    if let Ok(order) = std::env::var(reading::OBSERVER) {
        return reading::observe(&order);
    }
    needs!(can_run());
    let stack = Stack::start();
    let port = stack.apache.port;
    let (apache, fpm, db, store) =
        (stack.apache.pid().unwrap(), stack.fpm.pid(), stack.db.pid(), stack.store.pid());
    let at = |name: &str| format!("unix:{}", stack.apache.path(name).display());
    let fpm_tcp = format!("127.0.0.1:{}", stack.fpm_port);
    let seen = under(
        port,
        &["/a/unix.php?150000", "/b/store.php?150000", "/b/tcp.php?150000", "/self/a/hold.php?150000"],
        || {
            found_with(port, |seen| {
                let is_linked = |from: u32, by: &str| {
                    seen.links.iter().any(|link| link.from_pid == from && link.by == by)
                };
                let fpm_links = [at("db.sock"), at("store.sock"), format!("127.0.0.1:{}", stack.db_port)];
                let own_links = [at("a.sock"), fpm_tcp.clone(), format!("127.0.0.1:{port}")];
                own_links.iter().all(|by| is_linked(apache, by))
                    && fpm_links.iter().all(|by| is_linked(fpm, by))
            })
        },
    );
    let front = seen.front.clone().unwrap();
    assert_eq!((front.service.as_str(), front.pid, front.port), ("apache", apache, port));
    let backend = |pid: u32| {
        seen.backends.iter().find(|service| service.pid == pid).unwrap_or_else(|| panic!("{pid} {seen:#?}"))
    };
    assert_eq!((backend(fpm).service.as_str(), backend(fpm).role.as_deref()), ("php_fpm", Some("php")));
    assert_eq!((backend(db).service.as_str(), backend(db).role.as_deref()), ("mariadb", Some("db")));
    assert_eq!(backend(db).port, stack.db_port);
    assert_eq!(backend(store).service, "unknown");
    assert!(backend(store).executable.as_ref().unwrap().contains("python3"));
    assert_eq!(seen.backends.len(), 3, "{:#?}", seen.links);
    let by = |links: Vec<&Link>| -> Vec<String> { links.iter().map(|link| link.by.clone()).collect() };
    assert_eq!(by(links_from(&seen, apache, "php_fpm")), [fpm_tcp, at("a.sock")], "{:#?}", seen.links);
    assert_eq!(by(links_from(&seen, apache, "apache")), [format!("127.0.0.1:{port}")]);
    assert_eq!(
        by(links_from(&seen, fpm, "mariadb")),
        [format!("127.0.0.1:{}", stack.db_port), at("db.sock")]
    );
    assert_eq!(seen.links.iter().filter(|link| link.to_pid == Some(store)).count(), 1);
    assert!(seen.links.iter().all(|link| link.to_pid.is_some()), "{:#?}", seen.links);
    let opened = seen.links.iter().filter(|link| link.to_pid == Some(db));
    assert!(opened.clone().all(|link| link.connections_count > Some(0)), "{:?}", opened.collect::<Vec<_>>());

    a_server_without_backends_has_none(&stack);
    all_services_of_the_machine(&stack);
    reading::with_everything_read_only(port);
    reading::with_every_file_traced(port);
    reading::without_rights(port);
}

/// Beside each other: what is closed (TIME_WAIT), and what another program of the same user opens, is none of a server's that
/// talks to nobody.
fn a_server_without_backends_has_none(stack: &Stack) {
    let alone = Server::debian("event", "");
    alone.start();
    for _ in 0..5 {
        stack.get("/b/tcp.php?0");
    }
    let seen = under(stack.apache.port, &["/b/tcp.php?1000", "/a/unix.php?1000"], || topology(alone.port));
    assert_eq!((seen.backends.len(), seen.links.len()), (0, 0), "{seen:#?}");
}

fn all_services_of_the_machine(stack: &Stack) {
    let all = ThisMachine.topology(None, &Access::default()).unwrap();
    // Its Apache stands in front where it is the only web server of the machine.
    for pid in [stack.apache.pid().unwrap(), stack.fpm.pid(), stack.db.pid()] {
        assert!(all.services().any(|service| service.pid == pid), "{pid} {all:#?}");
    }
    until("the stack still answers", || stack.get("/b/hold.php?0").ends_with("ok"));
}
