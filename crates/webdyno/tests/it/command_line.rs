//! Wrong input of every kind: one clear line, a hint, the right exit code, nothing left behind.

use crate::refusing::Refusing;
use crate::skip::needs;
use crate::support::{Place, Server, can_mount, read_json, run};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

#[test]
fn mistyped_words_suggest_the_right_ones() {
    let place = Place::new();
    for (arguments, suggestion) in [
        (&["quikstart"][..], "quickstart"),
        (&["rnu"], "did you mean `webdyno run`?"),
        (&["run", "http://127.0.0.1/", "-z", "20s"], "-d 20s"),
        (&["run", "http://127.0.0.1/", "-c", "ten"], "-c wants a whole number"),
        (&["run", "http://127.0.0.1/", "--no-keepaliv"], "--no-keepalive"),
        (&["explain", "apache-worker-exhausted"], "apache-workers-exhausted"),
        (&["run", "http://127.0.0.1/", "--slo", "p98<1s"], "--slo 'p99<200ms'"),
        (&["tune", "http://127.0.0.1/", "--goal", "fast"], "--goal '500 req/s'"),
        (&["quickstart", "--goal", "objectives"], "--goal '500 req/s'"),
    ] {
        let ended = run(place.webdyno().args(arguments)).with_code(2);
        assert!(ended.stderr.contains(suggestion), "{arguments:?}: {}", ended.stderr);
        assert!(
            ended.stderr.starts_with("webdyno: ") && ended.stderr.contains("\n  hint: "),
            "{}",
            ended.stderr
        );
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn goals_that_the_load_cannot_meet_are_told_before_it() {
    let place = Place::new();
    for (goal, load, parts) in [
        ("p99<200ms at 300 req/s", &["-r", "100"][..], ["about 300 req/s", "of 100 req/s"]),
        ("p99<200ms at 300 req/s", &["--users", "20"], ["about 300 req/s", "of 20 users"]),
        ("4250 users", &["-r", "100", "--slo", "p95<1s"], ["about 4250 users", "of 100 req/s"]),
        ("4250 users", &[], ["a goal in users", "--slo"]),
        ("objectives", &[], ["the goal `objectives`", "--slo"]),
    ] {
        let arguments = ["tune", "http://127.0.0.1:1/", "--goal", goal];
        let ended = run(place.webdyno().args(arguments).args(load)).with_code(2);
        assert!(parts.iter().all(|part| ended.stderr.contains(part)), "{goal}: {}", ended.stderr);
    }
    // The same said twice is no contradiction: this one fails for its port.
    let arguments = ["tune", "http://127.0.0.1:1/", "--goal", "p99<200ms at 300 req/s", "-r", "300"];
    run(place.webdyno().args(arguments)).with_code(1).assert_error("connection refused", "hint:");
}

#[test]
fn numbers_below_0_are_told_as_such() {
    let place = Place::new();
    for (flag, value, part) in [
        ("-r", "-5", "above 0"),
        ("-d", "-1s", "not below 0"),
        ("--warmup", "-1s", "not below 0"),
        ("--seed", "-1", "whole number"),
        ("-c", "-3", "-3"),
        ("-d", "99999999999h", "at most"),
    ] {
        let ended = run(place.webdyno().args(["run", "http://127.0.0.1:1/", flag, value])).with_code(2);
        assert!(ended.stderr.contains(part) && !ended.stderr.contains("'-- "), "{flag}: {}", ended.stderr);
    }
}

#[test]
fn urls_that_cannot_be_loaded_are_told() {
    let place = Place::new();
    let gone = Refusing::start();
    let ssh = Server::answering("SSH-2.0-OpenSSH_9.2\r\n");
    for command in ["run", "diagnose", "tune"] {
        let try_url = |url: &str| run(place.webdyno().args([command, url]));
        try_url(&format!("http://{}/", gone.address))
            .with_code(1)
            .assert_error("connection refused", "hint:");
        try_url(&ssh.url()).with_code(1).assert_error("HTTP", "hint:");
        try_url("http://nobody.invalid/").with_code(1).assert_error("nobody.invalid", "hint:");
        try_url("ftp://127.0.0.1/").with_code(2).assert_error("ftp", "hint:");
        try_url("not a url").with_code(2).assert_error("not a url", "hint:");
        try_url("127.0.0.1:80").with_code(2).assert_error("does not say http://", "put http:// before it");
        run(place.webdyno().arg(command)).with_code(2);
    }
    assert!(!place.path("webdyno-runs").exists(), "a run that could not begin left a directory");
}

#[test]
fn a_warmup_that_leaves_nothing_is_told_before_the_load() {
    let place = Place::new();
    let server = Server::answering(OK);
    for warmup in ["1s", "5s"] {
        run(place.webdyno().args(["run", &server.url(), "-d", "1s", "--warmup", warmup]))
            .with_code(2)
            .assert_error("leaves nothing of a load of 1 s", "hint:");
    }
    assert!(!place.path("webdyno-runs").exists());
    // How long a number of requests takes is not known before.
    let load =
        ["run", &server.url(), "-n", "20", "-c", "2", "--warmup", "1h", "--out", "r", "--json", "r.json"];
    let ended = run(place.webdyno().args(load)).with_code_in(&[0, 3]);
    assert!(ended.stderr.contains("ended within its warm-up of 3600 s"), "{}", ended.stderr);
    let json = read_json(place.path("r.json"));
    assert_eq!((json["requests"]["completed"].as_u64(), json["warmup_s"].as_f64()), (Some(20), Some(0.0)));
}

/// The hard limit of a shell's child is as low as the user's: few files are still many connections.
#[test]
fn few_open_files_are_used_before_a_load_is_refused() {
    let place = Place::new();
    let server = Server::answering(OK);
    let program = assert_cmd::cargo::cargo_bin("webdyno").display().to_string();
    let limited = |flags: &str, out: &str| {
        let load = format!("{program} run {} -t 2 -q --out {out} --json - {flags}", server.url());
        let mut command = assert_cmd::Command::new("sh");
        command.args(["-c", &format!("ulimit -n 64 && exec {load}")]).current_dir(place.path(""));
        command.env("WEBDYNO_STATE", place.path("state")).timeout(std::time::Duration::from_secs(30));
        run(&mut command)
    };
    for (flags, out, count) in [("-c 1 -n 1", "a", 1), ("-c 40 -n 400", "b", 400), ("-c 19990 -n 1", "c", 1)]
    {
        let ended = limited(flags, out).with_code_in(&[0, 3]).json();
        assert_eq!(ended["requests"]["completed"].as_u64(), Some(count), "{flags}: {:#}", ended["errors"]);
    }
    let reported = limited("-c 64 -n 400", "d").with_code(1);
    assert!(
        reported.stderr.contains("64 connections and") && reported.stderr.contains("or use -c 4"),
        "{}",
        reported.stderr
    );
}

#[test]
fn places_that_cannot_be_written_are_told() {
    let place = Place::new();
    let server = Server::answering(OK);
    std::fs::write(place.path("file"), "").unwrap();
    let below = place.path("file/run");
    let ended = run(place.webdyno().args(["run", &server.url(), "-n", "1", "--out"]).arg(&below));
    ended.with_code(1).assert_error("cannot create the run directory", "file/run");
    let taken = place.path("taken");
    run(place.webdyno().args(["run", &server.url(), "-n", "1", "-q", "--out"]).arg(&taken))
        .with_code_in(&[0, 3]);
    let again = run(place.webdyno().args(["run", &server.url(), "-n", "1", "-q", "--out"]).arg(&taken));
    again.with_code(2).assert_error("holds a recording already", "--out");
}

#[test]
fn results_that_could_not_be_written_are_told_before_anything_starts() {
    let place = Place::new();
    let server = Server::answering(OK);
    for command in ["run", "diagnose", "tune", "quickstart"] {
        let mut webdyno = place.webdyno();
        webdyno.args([command, "--json", "missing/result.json"]);
        if command != "quickstart" {
            webdyno.args([&server.url(), "-d", "60s"]);
        }
        run(&mut webdyno).with_code(1).assert_error("missing/result.json", "hint:");
    }
    assert!(!place.path("webdyno-runs").exists(), "it began although the results could not be written");
    // In the run directory, which is not there yet, they can.
    let inside = ["-n", "1", "-q", "--out", "r", "--json", "r/result.json"];
    run(place.webdyno().args(["run", &server.url()]).args(inside)).with_code_in(&[0, 3]);
    assert!(place.path("r/result.json").exists());
}

/// The kernel maps each thread's stack, and refuses it here after a few; the rest must not wait for the missing ones.
#[test]
fn threads_that_the_system_refuses_are_told() {
    let place = Place::new();
    let server = Server::answering(OK);
    let script = format!(
        "ulimit -v 3000000 && exec {} run {} -c 64 -t 64 -n 1000 -q",
        assert_cmd::cargo::cargo_bin("webdyno").display(),
        server.url()
    );
    let mut command = assert_cmd::Command::new("sh");
    // Few large stacks, and no memory set apart for each thread: what they leave free is enough for those that came.
    command.args(["-c", &script]).env("RUST_MIN_STACK", "536870912").env("MALLOC_ARENA_MAX", "1");
    command.current_dir(place.path(""));
    command.env("WEBDYNO_STATE", place.path("state")).timeout(std::time::Duration::from_secs(30));
    run(&mut command).with_code(1).assert_error("of 64: ", "with -t");
}

#[test]
fn a_full_disk_ends_a_run_with_its_name() {
    let place = Place::new();
    needs!(can_mount(), "a small disk cannot be mounted here");
    let server = Server::answering(OK);
    let disk = place.path("disk");
    std::fs::create_dir(&disk).unwrap();
    // A mount of its own namespace: it is gone with the shell.
    let script = format!(
        "mount -t tmpfs -o size=32k none {0} && head -c 24k /dev/zero > {0}/ballast && exec {1} run {2} -d 20s -q --out {0}/run",
        disk.display(),
        assert_cmd::cargo::cargo_bin("webdyno").display(),
        server.url()
    );
    let mut command = assert_cmd::Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).env("WEBDYNO_STATE", place.path("state"));
    let began = std::time::Instant::now();
    run(&mut command).with_code(1).assert_error("no space left on the disk", "--out");
    assert!(began.elapsed().as_secs() < 18, "it went on loading although nothing was recorded");
}

#[test]
fn recordings_that_are_none_are_told() {
    let place = Place::new();
    std::fs::create_dir(place.path("empty")).unwrap();
    std::fs::create_dir(place.path("broken")).unwrap();
    std::fs::write(place.path("broken/events.jsonl"), "garbage\n{}\n").unwrap();
    for command in [&["report"][..], &["diagnose", "--from"]] {
        let try_dir = |dir: &str| run(place.webdyno().args(command).arg(dir));
        try_dir("missing").with_code(1).assert_error("missing/events.jsonl", "directory of a run");
        try_dir("empty").with_code(1).assert_error("empty/events.jsonl", "directory of a run");
        try_dir("broken").with_code(2).assert_error("line 1", "damaged");
    }
}

#[test]
fn a_server_elsewhere_is_not_observed_locally() {
    let place = Place::new();
    for command in ["diagnose", "tune"] {
        // TEST-NET-1: nobody's address, and nothing is sent to it.
        let ended = run(place.webdyno().args([command, "http://192.0.2.1/"]));
        ended.with_code(2).assert_error("is not this machine", "webdyno run");
        let ended = run(place.webdyno().args([command, "http://127.0.0.1/", "--server", "web1"]));
        ended.with_code(2).assert_error("`web1` is not a server", "--server local");
    }
}

#[test]
fn nothing_to_roll_back_is_fine() {
    let place = Place::new();
    let ended = run(place.webdyno().arg("rollback")).with_code(0);
    assert!(ended.stdout.contains("Nothing to roll back"));
}

#[test]
fn the_manual_has_a_chapter_for_every_finding() {
    let place = Place::new();
    let list = run(place.webdyno().arg("explain")).with_code(0).stdout;
    assert!(list.lines().count() >= 7, "{list}");
    // Behind an empty line come words.
    let (findings, words) = list.split_once("\n\n").unwrap();
    for line in words.lines() {
        let word = line.split_whitespace().next().unwrap();
        assert!(
            run(place.webdyno().args(["explain", word])).with_code(0).stdout.contains("## By hand"),
            "{word}"
        );
    }
    for line in findings.lines() {
        let id = line.split_whitespace().next().unwrap();
        let chapter = run(place.webdyno().args(["explain", id])).with_code(0).stdout;
        assert!(chapter.contains("How it is recognised") && chapter.contains("What to do"), "{id}");
    }
}
