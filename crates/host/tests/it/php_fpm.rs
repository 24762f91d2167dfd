//! PHP-FPM on real, private instances: what its pools say of themselves, what is seen from outside when they cannot, and
//! OPcache.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changes;
mod server;

use crate::skip::needs;
use server::{Fpm, fpm_is_installed};
use std::time::{Duration, Instant};
use webdyno_host::collectors::services::opcache::Opcache;
use webdyno_host::collectors::services::php_fpm::PhpFpm;
use webdyno_host::collectors::{Collector, Reading, Target};
use webdyno_host::os::process::wait_until;
use webdyno_host::services::by_name;
use webdyno_model::service::SettingValue;

/// Reads until something is so; the last reading.
fn read_until(collector: &mut dyn Collector, target: &Target, is_so: impl Fn(&Reading) -> bool) -> Reading {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let reading = collector.read(target);
        if is_so(&reading) {
            return reading;
        }
        assert!(Instant::now() < deadline, "{reading:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_configuration_of_a_running_fpm_is_read() {
    needs!(fpm_is_installed());
    let fpm = Fpm::start(&[(
        "www",
        "pm = static\npm.max_children = 2\npm.status_path = /status\nenv[DB] = s3cret\n",
    )]);
    let service = by_name("php_fpm").unwrap();
    let snapshot = service.backend(fpm.pid).unwrap().unwrap();
    assert_eq!((snapshot.service.as_str(), snapshot.role.as_deref()), ("php_fpm", Some("php")));
    assert!(
        snapshot.version.as_deref().is_some_and(|version| version.starts_with('8')),
        "{:?}",
        snapshot.version
    );
    assert_eq!(snapshot.config_file, Some(fpm.path("fpm.conf")));
    assert_eq!(snapshot.endpoints[0].address, format!("unix:{}", fpm.path("www.sock")));
    assert_eq!(snapshot.endpoints[0].path.as_deref(), Some("/status"));
    assert_eq!(snapshot.logs[0].path, fpm.path("error.log"));
    let children = snapshot.scoped.iter().find(|scoped| scoped.setting == "pm.max_children").unwrap();
    assert_eq!((children.value.as_str(), children.file.as_ref()), ("2", Some(&fpm.path("pools.conf"))));
    let control = &snapshot.settings["process_control_timeout"];
    assert_eq!(control.default, Some(SettingValue::Integer(0)));
    assert!(!format!("{snapshot:?}").contains("s3cret"));
    assert_eq!(snapshot.warnings, Vec::<String>::new());
    assert!(service.tunable().is_some());
}

/// All children of a pool are held: the page cannot answer, and the view from outside tells the queue.
fn check_busy(address: &str, is_tcp: bool) {
    let pool = format!("listen = {address}\npm = static\npm.max_children = 2\npm.status_path = /status\n");
    let fpm = Fpm::start(&[("www", &pool)]);
    let target = fpm.target();
    let mut collector = PhpFpm::default();
    let quiet =
        read_until(&mut collector, &target, |reading| reading.value("php_fpm.www.idle_count") == Some(1.0));
    assert_eq!(quiet.value("php_fpm.www.listen_queue_count"), Some(0.0), "{quiet:?}");
    assert!(quiet.value("php_fpm.www.listen_queue_max_count").unwrap() > 0.0);
    assert_eq!(quiet.value("php_fpm.www.processes_count"), Some(2.0));
    assert!(quiet.value("php_fpm.www.pss_mean_bytes").unwrap() > 100_000.0);
    assert_eq!(
        quiet.value("php_fpm.www.status_queue_count").is_some(),
        is_tcp,
        "of unix sockets it is not told"
    );
    assert_eq!(quiet.value("php_fpm.www.log_signal_exits_count"), Some(0.0));
    assert_eq!((&quiet.error, quiet.missing.len()), (&None, 0), "{quiet:?}");

    let held = fpm.hold("www", 5);
    let busy = read_until(&mut collector, &target, |reading| {
        reading.value("php_fpm.www.processes_busy_count") == Some(2.0) && reading.error.is_some()
    });
    // Five requests for two children. The one for the status waits too, and is not counted.
    assert!(busy.value("php_fpm.www.listen_queue_count").unwrap() >= 3.0, "{busy:?}");
    assert!(busy.error.as_ref().unwrap().contains("all its children may be busy"));
    assert_eq!(busy.value("php_fpm.www.active_count"), None, "unknown is not zero");
    // None of its own is added by each reading. Whoever else looks at this machine's pools adds some, and not all the time.
    let mut grown_by = || {
        let count =
            |collector: &mut PhpFpm| collector.read(&target).value("php_fpm.www.listen_queue_count").unwrap();
        let readings: Vec<f64> = (0..10).map(|_| count(&mut collector)).collect();
        readings[9] - readings[0]
    };
    // No longer than needed: tests of other programs find this pool busy meanwhile.
    let growth: Vec<f64> = (0..5).map(|_| grown_by()).take_while(|by| *by >= 5.0).collect();
    assert!(growth.len() < 5, "requests pile up: {growth:?}");

    fpm.let_go();
    drop(held);
    let after =
        read_until(&mut collector, &target, |reading| reading.value("php_fpm.www.active_count").is_some());
    assert!(after.value("php_fpm.www.accepted_count").unwrap() >= 3.0, "{after:?}");
    if is_tcp {
        let peak = |reading: &Reading| reading.value("php_fpm.www.status_queue_peak_count");
        let seen = read_until(&mut collector, &target, |reading| peak(reading) >= Some(3.0));
        assert!(peak(&seen).unwrap() >= 3.0);
    }
}

#[test]
fn a_pool_whose_children_are_all_busy_is_seen_from_outside() {
    if fpm_is_installed() {
        check_busy("ROOT/www.sock", false);
    }
}

#[test]
fn a_pool_on_a_port_tells_its_queue_itself_too() {
    if fpm_is_installed() {
        check_busy(&format!("127.0.0.1:{}", crate::ports::free_port()), true);
    }
}

#[test]
fn a_pool_of_its_own_answers_for_a_busy_one() {
    needs!(fpm_is_installed());
    let status = format!("127.0.0.1:{}", crate::ports::free_port());
    let pool = format!(
        "pm = dynamic\npm.max_children = 2\npm.start_servers = 1\npm.min_spare_servers = 1\npm.max_spare_servers = 1\n\
         pm.status_path = /status\npm.status_listen = {status}\n"
    );
    let fpm = Fpm::start(&[("www", &pool), ("quiet", "pm = static\npm.max_children = 1\n")]);
    let target = fpm.target();
    let mut collector = PhpFpm::default();
    let first = collector.read(&target);
    let silent = first.missing.iter().find(|missing| missing.signal == "php_fpm.quiet").unwrap();
    assert!(silent.how_to_enable.contains("pm.status_path"), "{first:?}");
    assert_eq!(first.value("php_fpm.quiet.processes_busy_count"), Some(0.0));
    let held = fpm.hold("www", 4);
    let reached = read_until(&mut collector, &target, |reading| {
        reading.value("php_fpm.www.max_children_reached_count") >= Some(1.0)
            && reading.value("php_fpm.www.log_max_children_count") >= Some(1.0)
    });
    assert_eq!(reached.value("php_fpm.www.active_count"), Some(2.0), "{reached:?}");
    assert_eq!(reached.value("php_fpm.www.listen_queue_count"), Some(2.0), "the status does not wait there");
    fpm.let_go();
    drop(held);
}

#[test]
fn a_child_that_is_killed_is_in_the_log() {
    needs!(fpm_is_installed());
    let fpm = Fpm::start(&[("www", "pm = static\npm.max_children = 1\nrequest_terminate_timeout = 1s\n")]);
    let target = fpm.target();
    let mut collector = PhpFpm::default();
    collector.read(&target);
    let held = fpm.hold("www", 1);
    let ended = read_until(&mut collector, &target, |reading| {
        reading.value("php_fpm.www.log_timeouts_count") == Some(1.0)
            && reading.value("php_fpm.www.log_signal_exits_count") == Some(1.0)
    });
    assert_eq!(ended.value("php_fpm.www.log_max_children_count"), Some(0.0));
    drop(held);
    fpm.stop();
    let gone = collector.read(&target);
    assert!(
        gone.error.as_ref().unwrap().contains("is gone"),
        "a process that vanished is no crash: {gone:?}"
    );
    assert_eq!(gone.values, vec![], "of who is gone nothing is known, and nothing is zero");
}

/// An FPM with this php.ini, and what OPcache's collector reads of it.
fn opcache(pool: &str, php_ini: &str) -> (Fpm, Reading) {
    let pool = format!("pm = static\npm.max_children = 1\n{pool}");
    // Whatever the package's own files say.
    let fpm = Fpm::start_with(&[("www", &pool)], php_ini, &["-n"]);
    let reading = Opcache::default().read(&fpm.target());
    (fpm, reading)
}

/// Waits until no folder of this process' sessions is there: other tests of it may just have one.
fn no_folder_is_left() {
    assert!(wait_until(Duration::from_secs(20), || folders_count_in("/tmp") == 0), "a folder is left");
}

fn folders_count_in(place: &str) -> usize {
    let this = std::process::id().to_string();
    let entries = std::fs::read_dir(place).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with("webdyno-observes-") && name.split('-').any(|part| part == this))
        .count()
}

#[test]
fn opcache_tells_how_full_it_is_and_asking_leaves_nothing_in_it() {
    needs!(fpm_is_installed());
    let ini = "zend_extension = opcache\nopcache.memory_consumption = 16\nopcache.max_accelerated_files = 200\n\
               opcache.validate_timestamps = 0\nopcache.file_update_protection = 2\n";
    let pools = [("www", "pm = static\npm.max_children = 1\n")];
    let fpm = Fpm::start_with(&pools, ini, &[]);
    let target = fpm.target();
    let mut collector = Opcache::default();
    let empty = collector.read(&target);
    assert_eq!((&empty.error, empty.missing.len()), (&None, 0), "{empty:?}");
    let value = |reading: &Reading, what: &str| reading.value(&format!("opcache.www.{what}"));
    assert_eq!(value(&empty, "enabled_count"), Some(1.0));
    assert_eq!(value(&empty, "scripts_count"), Some(0.0), "the script itself is not cached");
    assert!(value(&empty, "keys_max_count") >= Some(200.0));
    // Scripts that are old enough to be cached fill the keys.
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    for n in 0..5 {
        let path = fpm.path(&format!("s{n}.php"));
        std::fs::write(&path, "<?php echo 1;").unwrap();
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(old).unwrap();
        let mut request = fpm.request("www", &format!("s{n}.php"));
        assert!(request.wait(Instant::now() + Duration::from_secs(10)).unwrap().is_some());
    }
    let filled = collector.read(&target);
    assert_eq!(value(&filled, "scripts_count"), Some(5.0), "{filled:?}");
    assert!(value(&filled, "memory_used_bytes") > value(&empty, "memory_used_bytes"));
    assert_eq!(value(&filled, "oom_restarts_count"), Some(0.0));
    assert!(value(&filled, "misses_count") >= Some(5.0));
    drop(collector);
    no_folder_is_left();
}

#[test]
fn opcache_that_is_full_is_told() {
    needs!(fpm_is_installed());
    let ini = "zend_extension = opcache\nopcache.memory_consumption = 8\nopcache.interned_strings_buffer = 4\n\
               opcache.max_accelerated_files = 200\nopcache.max_wasted_percentage = 50\nopcache.file_update_protection = 0\n";
    let fpm = Fpm::start_with(&[("www", "pm = static\npm.max_children = 1\n")], ini, &[]);
    let function = |n: usize| format!("function f{n}($a) {{ return $a . 'text {n}' . strlen($a) * {n}; }}\n");
    // Large ones and small ones: it counts as full once one failed with less than 64 KiB left.
    for n in 0..120 {
        let text: String = (0..if n % 2 == 0 { 200 } else { 20 }).map(function).collect();
        std::fs::write(fpm.path(&format!("b{n}.php")), format!("<?php namespace n{n};\n{text}")).unwrap();
        let mut request = fpm.request("www", &format!("b{n}.php"));
        assert!(request.wait(Instant::now() + Duration::from_secs(20)).unwrap().is_some());
    }
    let reading = Opcache::default().read(&fpm.target());
    assert_eq!(reading.value("opcache.www.full_count"), Some(1.0), "{reading:?}");
    assert!(reading.value("opcache.www.scripts_count") < Some(120.0), "{reading:?}");
}

#[test]
fn opcache_that_is_off_is_told_as_off() {
    needs!(fpm_is_installed());
    let (_fpm, reading) = opcache("", "");
    assert_eq!(reading.value("opcache.www.enabled_count"), Some(0.0), "{reading:?}");
    assert!(reading.missing[0].why.contains("not loaded"));
    let fpm = Fpm::start_with(
        &[("www", "pm = static\npm.max_children = 1\n")],
        "opcache.enable = 0\nzend_extension = opcache\n",
        &[],
    );
    let reading = Opcache::default().read(&fpm.target());
    assert_eq!(reading.value("opcache.www.enabled_count"), Some(0.0), "{reading:?}");
    assert!(reading.missing[0].why.contains("switched off"));
}

#[test]
fn a_pool_that_may_not_be_asked_is_told_with_why() {
    needs!(fpm_is_installed());
    for (pool, why) in [
        ("php_admin_value[open_basedir] = ROOT\n", "open_basedir keeps"),
        ("php_admin_value[disable_functions] = opcache_get_status\n", "disable_functions"),
        ("php_value[auto_prepend_file] = ROOT/hold.php\n", "the site's code"),
    ] {
        let (_fpm, reading) = opcache(pool, "");
        assert!(reading.missing[0].why.contains(why), "{reading:?}");
        assert_eq!(reading.values, vec![]);
        no_folder_is_left();
    }
    // What the pool's own file does not say is found out by asking, once.
    let fpm = Fpm::start_with(
        &[("www", "pm = static\npm.max_children = 1\n")],
        "open_basedir = /srv\nlog_errors = On\n",
        &[],
    );
    let mut collector = Opcache::default();
    for _ in 0..3 {
        let reading = collector.read(&fpm.target());
        assert!(reading.missing[0].why.contains("open_basedir"), "{reading:?}");
    }
    let log = std::fs::read_to_string(fpm.path("error.log")).unwrap();
    assert!(log.matches("opcache.php").count() <= 2, "{log}");
    no_folder_is_left();
}

#[test]
fn a_pool_that_rests_is_not_woken() {
    needs!(fpm_is_installed());
    let pool =
        "pm = ondemand\npm.max_children = 2\npm.process_idle_timeout = 60s\npm.status_path = /status\n";
    let fpm = Fpm::start(&[("www", pool)]);
    let target = fpm.target();
    let (mut pools, mut cache) = (PhpFpm::default(), Opcache::default());
    for _ in 0..3 {
        let reading = pools.read(&target);
        assert_eq!(reading.value("php_fpm.www.processes_count"), Some(0.0), "{reading:?}");
        assert_eq!(reading.value("php_fpm.www.active_count"), Some(0.0));
        assert!(cache.read(&target).missing[0].why.contains("would start one"));
    }
    let mut request = fpm.request("www", "hold.php");
    assert!(request.wait(Instant::now() + Duration::from_secs(10)).unwrap().is_some());
    let awake = pools.read(&target);
    assert!(awake.value("php_fpm.www.accepted_count") >= Some(2.0), "{awake:?}");
}

/// The commands of the catalogue show what was read.
#[test]
fn the_commands_show_the_same() {
    needs!(fpm_is_installed());
    let has_client = std::path::Path::new("/usr/bin/cgi-fcgi").exists();
    if !has_client {
        crate::skip::skip("cgi-fcgi is missing; install libfcgi-bin");
    }
    // No other test has a pool of this name: the commands find it by its name.
    let fpm = Fpm::start(&[("byhand", "pm = static\npm.max_children = 3\npm.status_path = /status\n")]);
    let target = fpm.target();
    let mut collector = PhpFpm::default();
    let reading = read_until(&mut collector, &target, |reading| {
        reading.value("php_fpm.byhand.idle_count") == Some(2.0)
    });
    let steady =
        ["listen_queue_count", "listen_queue_max_count", "processes_count", "idle_count", "active_count"];
    for metric in collector.metrics() {
        let what = metric.name.rsplit('.').next().unwrap();
        if !metric.source.contains("status page") || has_client {
            let command = metric.reproduce.replace("INSTANCE", "byhand").replace("STATUS", "/status");
            let command = command.replace("LOG", &fpm.path("error.log"));
            let command = command.replace("PID", &target.backends[0].pid.to_string());
            let address = fpm.path("byhand.sock");
            let command = command.replace("ADDRESS", &address);
            let expected = reading.value(&format!("php_fpm.byhand.{what}"));
            let deadline = Instant::now() + Duration::from_secs(10);
            loop {
                let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
                let shown: Option<f64> = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
                // The child that answered last is busy for a moment longer.
                if shown.is_some() && (shown == expected || !steady.contains(&what)) {
                    break;
                }
                assert!(Instant::now() < deadline, "`{command}` shows {output:?} for {expected:?}");
            }
        }
    }
    if has_client {
        for metric in Opcache::default().metrics() {
            let command = metric.reproduce.replace("ADDRESS", &fpm.path("byhand.sock"));
            let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
            assert!(output.status.success(), "`{command}` shows {output:?}");
        }
    }
}

/// Pools with a network and a /tmp of their own, as in a container or under systemd's PrivateTmp=.
#[test]
fn pools_with_files_and_a_network_of_their_own_are_reached() {
    if !fpm_is_installed() || !crate::mounts::can_mount() {
        return crate::skip::skip("needs root, and to mount something");
    }
    let pool = "pm = static\npm.max_children = 1\npm.status_path = /status\n";
    let fpm = Fpm::start_apart(&[
        ("www", &format!("listen = 127.0.0.1:9000\n{pool}")),
        ("shop", &format!("listen = /tmp/shop.sock\n{pool}")),
    ]);
    let target = fpm.target();
    let snapshot = &target.backends[0];
    assert!(snapshot.version.is_some(), "its program is ours: {:?}", snapshot.missing);
    let reading = PhpFpm::default().read(&target);
    assert_eq!(reading.value("php_fpm.shop.active_count"), Some(1.0), "{reading:?}");
    assert_eq!(reading.value("php_fpm.www.active_count"), Some(1.0), "{reading:?}");
    assert_eq!(reading.value("php_fpm.www.listen_queue_count"), Some(0.0));
    let cache = Opcache::default().read(&target);
    assert_eq!(cache.value("opcache.www.enabled_count"), Some(0.0), "{cache:?}");
    // In ours other tests may have some now.
    assert_eq!(folders_count_in(&format!("/proc/{}/root/tmp", snapshot.pid)), 0);
}
