//! What init systems make of the hook at boot: systemd takes its unit into the boot, scripts of SysV and OpenRC run the rollback, and
//! which of them a machine has is known by what runs.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::mounts::can_mount;
use crate::skip::needs;
use std::path::Path;
use std::process::{Command, Output};
use webdyno_host::change::boot::{HookFile, Purpose};
use webdyno_host::change::seams::init_system::{Booting, Init, detect};

fn purpose<'a>(journal: &'a Path, state: &'a Path, services: &'a [String]) -> Purpose<'a> {
    Purpose { id: "20261121T204510.123456Z-42", journal, state, services }
}

/// Writes the files of a hook for `/` into a folder that stands for it, and gives them by their paths in it.
fn written(folder: &Path, init: Init, program: &Path, state: &Path) -> Vec<(String, String)> {
    let services = ["apache2".to_owned(), "httpd".to_owned(), "apache2@one.service".to_owned()];
    let booting = Booting { init, root: "/".into(), program: program.to_owned(), copy_of: None };
    let files = booting.files(&purpose(&state.join("journals/x.jsonl"), state, &services));
    let write = |file: HookFile| {
        let name = file.path.strip_prefix("/").unwrap().to_owned();
        std::fs::create_dir_all(folder.join(&name).parent().unwrap()).unwrap();
        std::fs::write(folder.join(&name), &file.content).unwrap();
        (name.display().to_string(), file.content)
    };
    files.into_iter().map(write).collect()
}

const NAME: &str = "webdyno-rollback-20261121t204510-123456z-42";

/// systemd's own words on the boot's transaction: the unit is in it, and ordered before the service.
#[test]
fn systemd_takes_the_unit_into_the_boot() {
    const INSIDE: &str = "WEBDYNO_TEST_BOOT";
    if let Ok(folder) = std::env::var(INSIDE) {
        return in_a_systemd_of_its_own(Path::new(&folder));
    }
    needs!(Command::new("systemd-analyze").arg("--version").output().is_ok(), "systemd-analyze is missing");
    needs!(can_mount(), "no directory can be mounted over that of systemd's units");
    let folder = tempfile::tempdir().unwrap();
    let test = "init_systems::systemd_takes_the_unit_into_the_boot";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, folder.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
}

fn in_a_systemd_of_its_own(folder: &Path) {
    let (state, program) = (folder.join("a state, \"100%\" $HOME's"), folder.join("a $program, 100%"));
    std::fs::copy("/bin/true", &program).unwrap();
    let units = Path::new("/etc/systemd/system");
    std::fs::create_dir_all(units).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(units).status().unwrap();
    assert!(mounted.success());
    written(Path::new("/"), Init::Systemd, &program, &state);
    let service = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    std::fs::write(units.join("apache2.service"), service).unwrap();
    std::fs::create_dir_all(units.join("multi-user.target.wants")).unwrap();
    std::os::unix::fs::symlink("../apache2.service", units.join("multi-user.target.wants/apache2.service"))
        .unwrap();
    let verify = ["--man=no", "verify", "multi-user.target", "apache2.service", &format!("{NAME}.service")];
    let output =
        Command::new("systemd-analyze").args(verify).env("SYSTEMD_LOG_LEVEL", "debug").output().unwrap();
    let message = output_text(&output);
    assert!(output.status.success(), "{message}");
    assert!(
        message.contains(&format!("{NAME}.service: Installed new job {NAME}.service/start")),
        "{message}"
    );
    let block = |unit: &str| {
        let start =
            message.find(&format!("-> Unit {unit}:")).unwrap_or_else(|| panic!("no {unit} in {message}"));
        message[start..].split("\n\t-> ").next().unwrap().to_owned()
    };
    assert!(
        block("apache2.service").contains(&format!("After: {NAME}.service")),
        "{}",
        block("apache2.service")
    );
    let unit = block(&format!("{NAME}.service"));
    for expected in [
        format!("ConditionPathExists: {}", state.join("journals/x.jsonl").display()),
        format!("Environment: WEBDYNO_STATE={}", state.display()),
        format!("{}", program.display()),
    ] {
        assert!(unit.contains(&expected), "no `{expected}` in {unit}");
    }
    for stderr in ["Unknown", "ignoring", "Failed to parse", "ordering cycle"] {
        assert!(!message.lines().any(|line| line.contains(NAME) && line.contains(stderr)), "{message}");
    }
}

fn output_text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Runs a script with a program that notes how it was run; gives what it noted.
fn run_script(folder: &Path, script: &str) -> String {
    let noted = folder.join("noted");
    let _ = std::fs::remove_file(&noted);
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", output_text(&output));
    std::fs::read_to_string(noted).unwrap_or_default()
}

#[test]
fn scripts_run_the_rollback_with_its_state_if_there_is_a_journal() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (state, program) = (at("it's $HOME; state"), at("it's a program"));
    let text = format!("#!/bin/sh\necho \"$WEBDYNO_STATE|$*\" >{}\n", at("noted").display());
    std::fs::write(&program, text).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&program).status().unwrap().success());
    let expected = format!("{}|rollback --interrupted\n", state.display());
    let sysv = written(&at("sysv"), Init::SysV(&["etc/rc2.d", "etc/rc3.d"]), &program, &state);
    let openrc = written(&at("openrc"), Init::OpenRc, &program, &state);
    let paths = |files: &[(String, String)]| {
        files.iter().map(|(path, _)| path.replace(NAME, "N")).collect::<Vec<_>>()
    };
    assert_eq!(paths(&sysv), ["etc/init.d/N", "etc/rc2.d/S00N", "etc/rc3.d/S00N"]);
    assert_eq!(paths(&openrc), ["etc/init.d/N", "etc/runlevels/default/N"]);
    assert!(sysv[0].1.contains("\n# X-Start-Before:    apache2 httpd apache2@one\n"), "{}", sysv[0].1);
    let script = |kind: &str| at(kind).join(format!("etc/init.d/{NAME}")).display().to_string();
    let init = |action: &str| format!("sh {} {action}", script("sysv"));
    // What openrc-run(8) gives a script.
    let openrc = "need() { [ \"$*\" = localmount ]; }; before() { [ \"$*\" = 'apache2 httpd apache2@one' ]; }; \
                  ebegin() { :; }; eend() { return \"$1\"; }";
    let openrc = format!("{openrc}; . {}; depend && start", script("openrc"));
    for (journal, expected) in [(false, ""), (true, expected.as_str())] {
        if journal {
            std::fs::create_dir_all(state.join("journals")).unwrap();
            std::fs::write(state.join("journals/x.jsonl"), "").unwrap();
        }
        assert_eq!(run_script(folder.path(), &init("start")), expected);
        assert_eq!(run_script(folder.path(), &openrc), expected);
        assert_eq!(run_script(folder.path(), &init("stop")), "");
    }
}

#[test]
fn paths_that_no_unit_can_hold_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    for program in ["/a\nb", "/a\u{7f}"] {
        assert_eq!(written(folder.path(), Init::Systemd, Path::new(program), Path::new("/s")), []);
    }
}

#[test]
fn the_init_system_is_known_by_what_runs() {
    const DEBIAN: Init = Init::SysV(&["etc/rc2.d", "etc/rc3.d", "etc/rc4.d", "etc/rc5.d"]);
    const RED_HAT: Init =
        Init::SysV(&["etc/rc.d/rc2.d", "etc/rc.d/rc3.d", "etc/rc.d/rc4.d", "etc/rc.d/rc5.d"]);
    let debian = ["etc/init.d/", "etc/rc2.d/", "etc/rc3.d/", "etc/rc4.d/", "etc/rc5.d/"];
    let red_hat = ["etc/init.d/", "etc/rc.d/rc2.d/", "etc/rc.d/rc3.d/", "etc/rc.d/rc4.d/", "etc/rc.d/rc5.d/"];
    let openrc = ["run/openrc/softlevel", "etc/runlevels/default/", "sbin/openrc-run", "etc/init.d/"];
    for (first, files, expected) in [
        ("systemd", &["run/systemd/system/", "etc/init.d/"][..], Some(Init::Systemd)),
        ("init", &openrc[..], Some(Init::OpenRc)),
        ("init", &debian[..], Some(DEBIAN)),
        ("init", &red_hat[..], Some(RED_HAT)),
        // A container of a Debian image: the directories are there, and nobody runs them.
        ("apache2", &debian[..], None),
        ("init", &["etc/init.d/"][..], None),
        ("tini", &[][..], None),
    ] {
        let root = tempfile::tempdir().unwrap();
        for file in files.iter().chain([&"proc/1/comm"]) {
            let path = root.path().join(file);
            std::fs::create_dir_all(if file.ends_with('/') { &path } else { path.parent().unwrap() })
                .unwrap();
            if !file.ends_with('/') {
                std::fs::write(path, format!("{first}\n")).unwrap();
            }
        }
        assert_eq!(detect(root.path()), expected, "{first} {files:?}");
    }
}
