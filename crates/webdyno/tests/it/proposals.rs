//! Changes that are left to people: plans as files, files that others manage, and what waits for a reload.

use crate::support::{Apache, Place, run, shared_turn, skip, wait_until};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Sixty users on twenty workers.
const LOAD: [&str; 6] = ["-c", "60", "--no-keepalive", "-d", "5s", "-q"];

/// How often a session is made that a busy machine may keep from its finding.
const TRIES_MAX: usize = 3;

/// Everything below a folder: names from there on, and bytes.
fn tree(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = vec![];
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for path in fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((
                    path.strip_prefix(folder).unwrap().display().to_string(),
                    fs::read(&path).unwrap(),
                ));
            }
        }
    }
    found.sort();
    found
}

/// Lets patch(1) apply the exported diff to a copy of the server's files, and compares with the exported files.
fn patch_makes_the_exported_files(place: &Place, export: &Path, apache: &Apache) {
    if run(assert_cmd::Command::new("sh").args(["-c", "command -v patch"])).code != 0 {
        return skip("patch is missing");
    }
    let copy = place.path("copy");
    let root = apache.files.root.strip_prefix("/").unwrap();
    fs::create_dir_all(copy.join(root).parent().unwrap()).unwrap();
    run(assert_cmd::Command::new("cp").arg("-a").arg(&apache.files.root).arg(copy.join(root))).with_code(0);
    let before = tree(&copy);
    let diff = export.join("change.diff");
    let patch = |options: &[&str]| {
        let mut command = assert_cmd::Command::new("patch");
        run(command.args(["-p1", "-d"]).arg(&copy).arg("-i").arg(&diff).args(options)).with_code(0);
    };
    patch(&[]);
    for (name, bytes) in tree(export) {
        let own = ["change.diff", "README.txt", "apply.sh", "undo.sh", "ansible.yml", "ticket.md"];
        if !own.iter().any(|own| Path::new(own) == Path::new(&name)) {
            assert_eq!(fs::read(copy.join(&name)).unwrap(), bytes, "{name}");
            assert!(!before.contains(&(name, bytes)), "the diff changes nothing");
        }
    }
    patch(&["-R"]);
    assert_eq!(tree(&copy), before);
}

#[test]
fn a_plan_can_be_taken_over_as_files() {
    let _turn = shared_turn();
    let (place, apache, before) = Apache::placed();
    let export = place.path("plan");
    let ended =
        run(place.webdyno().args(["tune", &apache.url(), "--export", "plan"]).args(LOAD)).with_code(0);
    assert!(ended.stdout.contains("planned, nothing was changed"), "{}", ended.stdout);
    assert_eq!(apache.configuration(), before);
    let page = fs::read_to_string(export.join("README.txt")).unwrap();
    for part in ["MaxRequestWorkers 20 -> ", "apache-workers-exhausted", "patch -p1", "patch -R"] {
        assert!(page.contains(part), "no `{part}` in:\n{page}");
    }
    patch_makes_the_exported_files(&place, &export, &apache);
}

/// A file with the mark of Puppet wins over every include: the change is proposed, with `--apply` too.
#[test]
fn what_puppet_manages_is_proposed() {
    let _turn = shared_turn();
    let (place, apache, _) = Apache::placed();
    let main = apache.files.root.join("apache2.conf");
    let text = fs::read_to_string(&main).unwrap();
    fs::write(&main, format!("# Managed by Puppet\n{text}MaxRequestWorkers 20\n")).unwrap();
    let written = || fs::metadata(&apache.files.pid_file).and_then(|found| found.modified()).ok();
    let started = written();
    run(assert_cmd::Command::new(&apache.files.command[0])
        .args(&apache.files.command[1..3])
        .args(["-k", "graceful"]))
    .with_code(0);
    assert!(wait_until(Duration::from_secs(10), || written() > started), "it did not reload");
    let before = apache.configuration();
    let arguments =
        ["--apply", "--goal", "5000 req/s", "--export", "proposal", "--out", "tuned", "--json", "-"];
    let propose = || {
        run(place.webdyno().arg("rollback")).with_code(0);
        for made in ["tuned", "proposal"] {
            let _ = fs::remove_dir_all(place.path(made));
        }
        run(place.webdyno().args(["tune", &apache.url()]).args(LOAD).args(arguments)).with_code(3).json()
    };
    // When something else holds the cores, nothing may be found, or spare workers that come too late.
    let mut tries = (0..TRIES_MAX).map(|_| propose());
    let found = |json: &serde_json::Value| json["rounds"][0]["managed"][0].is_object();
    let json = tries.find(found).expect("nothing was found to propose");
    assert_eq!(
        (json["state"].as_str(), json["goal_met"].as_bool()),
        (Some("reverted"), Some(false)),
        "{json:#}"
    );
    let round = &json["rounds"][0];
    assert_eq!((round["managed"][0]["by"].as_str(), round["kept"].as_bool()), (Some("Puppet"), Some(false)));
    assert!(
        round["diff"].as_str().unwrap().contains("-MaxRequestWorkers 20\n+MaxRequestWorkers "),
        "{round:#}"
    );
    assert_eq!(apache.configuration(), before);
    let text = run(place.webdyno().args(["report", "tuned"])).with_code(0).stdout;
    assert!(text.contains("Proposed: ") && text.contains("is managed by Puppet"), "{text}");
    let page = fs::read_to_string(place.path("proposal/README.txt")).unwrap();
    assert!(
        page.contains("is managed by Puppet (it says `Managed by Puppet`): make the change there"),
        "{page}"
    );
    patch_makes_the_exported_files(&place, &place.path("proposal"), &apache);
    assert!(run(place.webdyno().arg("rollback")).with_code(0).stdout.contains("Nothing to roll back"));
}

/// Minutes of load before a refusal would be for nothing.
#[test]
fn what_waits_for_a_reload_is_told_before_any_load() {
    let _turn = shared_turn();
    let (place, apache, _) = Apache::placed();
    // Not within the tick of the kernel's clock in which it started.
    std::thread::sleep(Duration::from_millis(50));
    let text = fs::read_to_string(&apache.mpm_conf).unwrap();
    fs::write(&apache.mpm_conf, format!("{text}# edited, and not in force yet\n")).unwrap();
    let before = apache.configuration();
    let tune = |more: &[&str]| run(place.webdyno().args(["tune", &apache.url()]).args(LOAD).args(more));
    let refused = tune(&["--apply"]).with_code(1);
    let reported = format!("{} was changed ", apache.mpm_conf.display());
    assert!(
        refused.stderr.contains(&reported) && refused.stderr.contains("--accept-pending"),
        "{}",
        refused.stderr
    );
    assert!(!place.path("webdyno-runs").exists(), "it began although it had to be refused");
    assert_eq!(apache.configuration(), before);
    // Whether the goal was met is for machines that do nothing else.
    let accepted = tune(&["--apply", "--accept-pending", "--goal", "200 req/s"]).with_code_in(&[0, 3]);
    assert!(
        accepted.stdout.contains("one of others took effect") && accepted.stdout.contains(&reported),
        "{}",
        accepted.stdout
    );
}

#[test]
fn an_export_never_mixes_with_what_is_there() {
    let place = Place::new();
    fs::create_dir(place.path("full")).unwrap();
    fs::write(place.path("full/x"), "x").unwrap();
    for (directory, reported) in [("full", "full is not empty"), ("full/x", "cannot export to full/x")] {
        // The port is nobody's: it is not even asked.
        let ended = run(place.webdyno().args(["tune", "http://127.0.0.1:1/", "--export", directory]));
        ended.with_code(2).assert_error(reported, "new or empty directory");
    }
    assert_eq!(tree(&place.path("full")), [("x".to_owned(), b"x".to_vec())]);
}
