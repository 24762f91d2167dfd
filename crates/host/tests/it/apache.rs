//! The Apache service against real, private Apaches on loopback: what is read is compared with what the program says
//! of itself, and changes are made, activated and read back.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod parts;
pub mod server;

use crate::skip::needs;
use server::{MODULES, Server, apache_is_installed};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use webdyno_host::os::process::wait_until;
use webdyno_host::os::procfs;
use webdyno_host::services::apache::config::condition::{parse_version, static_symbol};
use webdyno_host::services::apache::config::{Evaluation, Input, Module, evaluate};
use webdyno_host::services::{Tunable, tunable};
use webdyno_model::change::{ApplyClass, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::{Control, ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

fn apache() -> &'static dyn Tunable {
    tunable("apache").unwrap()
}

fn rendered(snapshot: &ServiceSnapshot, changes: &[SettingChange]) -> webdyno_model::Result<RenderedPlan> {
    apache().prepare(snapshot, changes).and_then(Preparation::into_plan)
}

fn wanted(setting: &str, to: i64) -> SettingChange {
    SettingChange { setting: SettingId::of_service("apache", setting), to: SettingValue::Integer(to) }
}

/// Writes a plan as the journal would, without its care.
fn write(plan: &RenderedPlan) {
    for file in &plan.files {
        fs::write(&file.path, &file.after).unwrap();
    }
}

const PREFORK: &str = "<IfModule mpm_prefork_module>\n    StartServers 2\n    MinSpareServers 1\n    MaxSpareServers 3\n    \
                       MaxRequestWorkers 5\n    ServerLimit 20\n</IfModule>\n";

#[test]
fn more_workers_within_server_limit_take_a_reload() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let before = server.snapshot();
    assert_eq!(before.mode.as_deref(), Some("prefork"));
    assert_eq!(before.status_url, Some(format!("http://127.0.0.1:{}/server-status", server.port)));
    assert_eq!(before.number("MaxRequestWorkers"), Some(5.0));
    let workers = &before.settings["MaxRequestWorkers"];
    assert_eq!(workers.running, Some(SettingValue::Integer(5)));
    assert_eq!(workers.file, Some(server.path("mods-enabled/mpm.conf").to_string_lossy().into_owned()));
    assert_eq!(workers.line, Some(5));
    assert_eq!(before.warnings, Vec::<String>::new());
    let control = before.control.clone().unwrap();
    assert!(!control.supervised);
    assert!(
        control.environment.contains_key("APACHE_RUN_DIR")
            && !control.environment.contains_key("DB_PASSWORD")
    );

    takes_a_reload(&server, &before, &control);
}

/// Prepares, writes and activates 12 workers, and reads them back.
fn takes_a_reload(server: &Server, before: &ServiceSnapshot, control: &Control) {
    let plan = rendered(before, &[wanted("MaxRequestWorkers", 12), wanted("Timeout", 30)]).unwrap();
    assert_eq!(plan.class, ApplyClass::Reload);
    assert_eq!(plan.changes.len(), 1, "{plan:?}");
    let drop_in = server
        .path("conf-enabled/zzz-webdyno.conf")
        .canonicalize()
        .unwrap_or(server.path("conf-enabled/zzz-webdyno.conf"));
    assert_eq!(Path::new(&plan.files[0].path), drop_in);
    assert_eq!(Path::new(&plan.changes[0].file), drop_in);
    assert!(plan.diff.contains("+    MaxRequestWorkers 12\n"), "{}", plan.diff);
    assert!(!drop_in.exists());

    write(&plan);
    apache().validate(control).unwrap();
    let done = apache().activate(control, plan.class, server.port).unwrap();
    assert_eq!(&done.control, control);
    assert_eq!(done.outage_us, Some(0));
    assert_eq!(apache().running_values(before)["MaxRequestWorkers"], SettingValue::Integer(12));
    let after = server.snapshot();
    assert_eq!(after.number("MaxRequestWorkers"), Some(12.0));
    assert_eq!(after.settings["MaxRequestWorkers"].file.as_deref(), Some(&*drop_in.to_string_lossy()));
    let again = rendered(&after, &[wanted("MaxRequestWorkers", 12)]).unwrap_err();
    assert!(again.message.starts_with("nothing to change"), "{again}");
}

#[test]
fn a_higher_server_limit_takes_a_restart() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let before = server.snapshot();
    let control = before.control.clone().unwrap();
    let alone = rendered(&before, &[wanted("MaxRequestWorkers", 30)]).unwrap_err();
    assert!(alone.message.contains("above ServerLimit 20"), "{alone}");
    assert_eq!(alone.hint.as_deref(), Some("ask for ServerLimit 30 with it"));
    let plan = rendered(&before, &[wanted("MaxRequestWorkers", 30), wanted("ServerLimit", 30)]).unwrap();
    assert_eq!(plan.class, ApplyClass::Restart);

    // A reload of the same change is accepted by Apache and does nothing: the snapshot must say so.
    write(&plan);
    apache().activate(&control, ApplyClass::Reload, server.port).unwrap();
    let clipped = server.snapshot();
    assert_eq!(clipped.number("MaxRequestWorkers"), Some(20.0));
    assert!(
        clipped.warnings.iter().any(|warning| warning.contains("runs with 20 workers")),
        "{:?}",
        clipped.warnings
    );

    let done = apache().activate(&control, plan.class, server.port).unwrap();
    assert_ne!(done.control.pid, control.pid);
    assert_eq!(Some(done.control.pid), server.pid());
    let outage_us = done.outage_us.unwrap();
    assert!((100..10_000_000).contains(&outage_us), "{outage_us}");
    let after = apache().snapshot(done.control.pid, server.port).unwrap();
    assert_eq!(after.number("MaxRequestWorkers"), Some(30.0));
    assert_eq!(after.control.unwrap().environment, control.environment);
    // Applications have what they were started with, and no journal does.
    let password = |pid: u32| procfs::environment(pid).unwrap().remove("DB_PASSWORD");
    assert_eq!(password(done.control.pid).as_deref(), Some("s3cret"));
    server.stop();
    let started = apache().start(&done.control, server.port).unwrap();
    assert_eq!(password(started.control.pid).as_deref(), Some("s3cret"));
    assert!(!done.control.environment.contains_key("DB_PASSWORD"));
}

#[test]
fn a_stopped_server_starts_again_as_it_was() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let control = server.snapshot().control.unwrap();
    let running = apache().start(&control, server.port).unwrap_err();
    assert!(running.message.contains("still runs"), "{running}");
    server.stop();
    let started = apache().start(&control, server.port).unwrap();
    assert_ne!(started.control.pid, control.pid);
    assert_eq!(started.control.arguments, control.arguments);
    assert_eq!(server.snapshot().number("MaxRequestWorkers"), Some(5.0));
    // The old control names a process that is gone: nothing else may be hit.
    let gone = apache().activate(&control, ApplyClass::Reload, server.port).unwrap_err();
    assert!(gone.message.contains("is not the Apache that was found"), "{gone}");
}

#[test]
fn a_killed_server_starts_again_past_its_orphans() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let control = server.snapshot().control.unwrap();
    let id = rustix::process::Pid::from_raw(control.pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    let lives =
        || fs::read_to_string(format!("/proc/{}/stat", control.pid)).is_ok_and(|stat| !stat.contains(") Z"));
    assert!(wait_until(Duration::from_secs(5), || !lives()));
    let started = apache().start(&control, server.port).unwrap();
    assert_ne!(started.control.pid, control.pid);
    let snapshot = apache().snapshot(started.control.pid, server.port).unwrap();
    assert_eq!(snapshot.number("MaxRequestWorkers"), Some(5.0));
}

#[test]
fn what_a_supervisor_runs_is_not_restarted() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let mut snapshot = server.snapshot();
    if let Some(control) = snapshot.control.as_mut() {
        control.supervised = true;
    }
    let reload = rendered(&snapshot, &[wanted("MaxRequestWorkers", 6)]).unwrap();
    assert_eq!(reload.class, ApplyClass::Reload);
    let restart = rendered(&snapshot, &[wanted("ListenBacklog", 2048)]).unwrap();
    assert_eq!((restart.class, restart.changes[0].class), (ApplyClass::Manual, ApplyClass::Manual));
    let refused = apache().activate(&snapshot.control.unwrap(), restart.class, server.port).unwrap_err();
    assert!(refused.message.contains("under a supervisor"), "{refused}");
}

#[test]
fn wishes_that_cannot_come_true_are_refused() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", PREFORK);
    let late = "<IfModule mpm_prefork_module>\nMaxSpareServers 4\n</IfModule>\n";
    server.write("sites-enabled/zzzz.conf", late);
    server.start();
    let snapshot = server.snapshot();
    let refuse = |setting: &str, to: SettingValue, part: &str| {
        let wanted = SettingChange { setting: SettingId::of_service("apache", setting), to };
        let error = rendered(&snapshot, &[wanted]).unwrap_err();
        assert!(error.message.contains(part), "{error}");
    };
    refuse("DocumentRoot", SettingValue::Text("/".into()), "not a setting of Apache");
    refuse("ThreadsPerChild", SettingValue::Integer(5), "no meaning under the prefork MPM");
    refuse("KeepAlive", SettingValue::Text("Off\nUser root".into()), "cannot be `Off User root`");
    refuse("MaxRequestWorkers", SettingValue::Integer(0), "cannot be `0`");
    // Set after every include that could take a file of ours: that line is edited.
    let plan = rendered(&snapshot, &[wanted("MaxSpareServers", 7)]).unwrap();
    assert!(plan.files[0].path.ends_with("sites-enabled/zzzz.conf"), "{:?}", plan.files);
    assert_eq!(plan.files[0].after, late.replace('4', "7"));
}

#[test]
fn a_broken_configuration_is_not_valid() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let control = server.snapshot().control.unwrap();
    apache().validate(&control).unwrap();
    server.write("conf-enabled/zzz-webdyno.conf", "MaxRequestWorkers 5\nNoSuchDirective 1\n");
    let error = apache().validate(&control).unwrap_err();
    assert!(
        error.message.contains("Syntax error on line 2") && error.message.contains("NoSuchDirective"),
        "{error}"
    );
    assert!(!error.message.contains('\n'));
    // What somebody wrote since is told: a reload would put it in force, too.
    let waits = server.snapshot().pending;
    let path = server.path("conf-enabled/zzz-webdyno.conf").display().to_string();
    let text = |change: &&String| change.starts_with(&format!("{path} was changed"));
    assert_eq!((waits.len(), waits.iter().filter(text).count()), (1, 1), "{waits:?}");
    assert!(error.hint.unwrap().contains("-t"));
}

#[test]
fn threaded_servers_show_their_workers_and_refuse_odd_numbers() {
    needs!(apache_is_installed());
    for mpm in ["event", "worker"] {
        let conf = "StartServers 1\nThreadsPerChild 4\nThreadLimit 8\nServerLimit 4\nMinSpareThreads 4\nMaxSpareThreads 8\n\
                    MaxRequestWorkers 10\n";
        let server = Server::debian(mpm, conf);
        server.start();
        let snapshot = server.snapshot();
        assert_eq!(snapshot.mode.as_deref(), Some(mpm));
        assert_eq!(snapshot.settings["MaxRequestWorkers"].configured, Some(SettingValue::Integer(10)));
        assert_eq!(snapshot.number("MaxRequestWorkers"), Some(8.0), "{mpm}");
        assert!(
            snapshot.warnings[0].contains("not a multiple of ThreadsPerChild 4"),
            "{:?}",
            snapshot.warnings
        );
        let odd = rendered(&snapshot, &[wanted("MaxRequestWorkers", 11)]).unwrap_err();
        assert_eq!(
            odd.hint.as_deref(),
            Some("ask for MaxRequestWorkers 8, or 12 and the ServerLimit to match")
        );
        let plan = rendered(&snapshot, &[wanted("MaxRequestWorkers", 16)]).unwrap();
        assert_eq!(plan.class, ApplyClass::Reload);
        write(&plan);
        apache().activate(&snapshot.control.clone().unwrap(), plan.class, server.port).unwrap();
        assert_eq!(
            apache().running_values(&snapshot)["MaxRequestWorkers"],
            SettingValue::Integer(16),
            "{mpm}"
        );
    }
}

#[test]
fn a_server_without_status_page_says_what_to_add() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", PREFORK);
    fs::remove_file(server.path("mods-enabled/status.conf")).unwrap();
    fs::remove_file(server.path("mods-enabled/status.load")).unwrap();
    server.start();
    let snapshot = server.snapshot();
    assert_eq!(snapshot.status_url, None);
    assert_eq!(snapshot.number("MaxRequestWorkers"), Some(5.0));
    let [missing] = snapshot.missing.as_slice() else { panic!("{:?}", snapshot.missing) };
    assert_eq!((missing.signal.as_str(), missing.why.as_str()), ("mod_status", "mod_status is not loaded"));
    // The lines that it proposes work as they are.
    let (_, lines) = missing.how_to_enable.split_once(":\n").unwrap();
    server.write("conf-enabled/status.conf", lines);
    let control = snapshot.control.unwrap();
    apache().validate(&control).unwrap();
    apache().activate(&control, ApplyClass::Reload, server.port).unwrap();
    assert_eq!(server.snapshot().settings["MaxRequestWorkers"].running, Some(SettingValue::Integer(5)));
}

/// Evaluates the server's files the way the service does, with what `-l` says is compiled in.
fn evaluated(server: &Server, defines: &[&str]) -> Evaluation {
    let listed = String::from_utf8(server.run(&["-l"]).stdout).unwrap();
    let source = |line: &str| line.trim().ends_with(".c").then(|| line.trim().to_owned());
    let module = |source: String| Module { symbol: static_symbol(&source), source, file: None };
    evaluate(Input {
        main_file: server.path("apache2.conf"),
        server_root: "/etc/apache2".into(),
        defines: defines.iter().map(|&define| define.to_owned()).collect(),
        environment: BTreeMap::from([("APACHE_RUN_DIR".to_owned(), "/run/x".to_owned())]),
        static_modules: listed.lines().filter_map(source).map(module).collect(),
        version: version(server),
        ..Input::default()
    })
}

fn version(server: &Server) -> Option<[u32; 3]> {
    let text = String::from_utf8(server.run(&["-v"]).stdout).unwrap();
    parse_version(text.split('/').nth(1)?.split(' ').next()?)
}

/// Compares the files that are read, in order, and the modules with what Apache says of the same configuration.
fn agrees_with_apache(server: &Server, defines: &[&str]) -> Evaluation {
    let ours = evaluated(server, defines);
    let mut arguments: Vec<&str> = defines.iter().flat_map(|define| ["-D", define]).collect();
    arguments.extend(["-t", "-D", "DUMP_INCLUDES", "-D", "DUMP_MODULES"]);
    let output = server.run(&arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    // The numbers in brackets are of the last include that was seen, not always of the file's own.
    let file = |line: &str| Some(PathBuf::from(line.trim().strip_prefix('(')?.split_once(") ")?.1));
    let theirs: Vec<PathBuf> = text.lines().filter_map(file).collect();
    assert_eq!(ours.files, theirs);
    let module = |line: &str| {
        Some(line.trim().rsplit_once(" (")?.0.to_owned()).filter(|name| name.ends_with("_module"))
    };
    let mut theirs: Vec<String> = text.lines().filter_map(module).collect();
    let mut modules: Vec<_> = ours.modules.iter().map(|module| module.symbol.clone()).collect();
    theirs.sort();
    modules.sort();
    assert_eq!(modules, theirs);
    ours
}

#[test]
fn the_evaluator_reads_what_apache_reads() {
    needs!(apache_is_installed());
    let server = Server::debian("event", "<IfModule event.c>\nMaxRequestWorkers 50\n</IfModule>\n");
    let ours = agrees_with_apache(&server, &[]);
    assert_eq!(ours.global(&["MaxRequestWorkers"]).unwrap().arguments, "50");

    server.write(
        "conf-enabled/b.conf",
        "Define DIR nested\nInclude ${dir}/*/[a-b]*.conf\nIncludeOptional none/*.conf\n",
    );
    for name in [
        "nested/x/a1.conf",
        "nested/x/b.conf",
        "nested/x/c.conf",
        "nested/y/a.conf",
        "nested/file.conf",
        "tree/1",
        "tree/d/2",
    ] {
        server.write(name, "# nothing\n");
    }
    std::os::unix::fs::symlink(server.path("nested/y"), server.path("nested/z")).unwrap();
    server.write(
        "conf-enabled/c.conf",
        "<IfDefine MORE>\n  Include \\\n    tree\n</IfDefine>\n<IfDefine !MORE>\n<IfModule mod_none.c>\nInclude no/such\n</IfModule>\n\
         </IfDefine>\n<IfModule mod_status.c>\nTimeout 11\n</IfModule>\n<IfModule !status_module>\nTimeout 12\n</IfModule>\n\
         <IfVersion >= 2.4>\nKeepAliveTimeout 7\n</IfVersion>\n<IfVersion < 2.4.1>\nKeepAliveTimeout 8\n</IfVersion>\n\
         <IfFile tree/1>\nInclude \"tree/./d/../1\"\n</IfFile>\n<IfFile !tree/1>\nInclude no/such\n</IfFile>\n# Include no/such \\\nInclude no/such\n",
    );
    server.write(
        "sites-enabled/000-default.conf",
        &format!("<VirtualHost *:{}>\nInclude tree/1\nTimeout 99\n<Directory />\nInclude tree\n</Directory>\n</VirtualHost>\n", server.port),
    );
    server.write("mods-enabled/ldap.load", &format!("LoadModule ldap_module {MODULES}/mod_ldap.so\n"));
    server.write("mods-enabled/ldap.conf", "<IfModule util_ldap.c>\nInclude tree/1\n</IfModule>\n");
    for defines in [&[][..], &["MORE"][..]] {
        let ours = agrees_with_apache(&server, defines);
        assert_eq!(ours.global(&["Timeout"]).unwrap().arguments, "11");
        assert_eq!(ours.global(&["KeepAliveTimeout"]).unwrap().arguments, "7");
        assert_eq!(ours.warnings, Vec::<String>::new());
    }
}
