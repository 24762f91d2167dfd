//! Runs with hosts that are this machine, and a load that is a script: what is done in which order, and what comes of
//! errors.

use super::*;
use crate::scenario::Catalogue;
use std::cell::RefCell;
use std::rc::Rc;
use webdyno_model::event::{Event, EventBody, VERSION};
use webdyno_model::interval::LoadEnd;
use webdyno_model::purpose::Purpose;

const SCENARIO: &str = r#"
title = "A test"
group = "fault"
story = "It is slow."
[[services]]
program = "apache"
[load]
urls = ["http://server/"]
flags = "-c 10 --header 'X: a b'"
[[rounds]]
name = "as found"
finding = "apache-workers-exhausted"
binds = [{ metric = "load.rate", at_most = 110 }]
[[rounds]]
name = "Mended, twice"
by_hand = ["echo first >> $WHERE", "echo second >> $WHERE"]
by_hand_on.client = ["echo client >> $WHERE"]
finding = "healthy"
gains = [{ at_least = 1.5 }]
"#;

/// Hosts that are this machine; what is asked of them is noted.
struct LocalHosts {
    place: PathBuf,
    noted: Rc<RefCell<Vec<String>>>,
}

impl ScenarioHosts for LocalHosts {
    fn enter(&self, host: &str) -> Result<Command> {
        self.noted.borrow_mut().push(format!("enter {host}"));
        let mut command = Command::new("env");
        command.env("WHERE", self.place.join("typed"));
        Ok(command)
    }

    fn change(&mut self, round: &ScenarioRound) -> Result<()> {
        self.noted.borrow_mut().push(format!("change {}", round.name));
        Ok(())
    }

    fn down(&mut self) -> Result<Vec<String>> {
        self.noted.borrow_mut().push("down".into());
        Ok(vec![])
    }
}

/// A recording of a load with so many good answers a second.
fn recording(command: &str, rate: u64) -> String {
    let measurement = crate::evidence::testing::measured(&[rate, rate + 2, rate - 2, rate], 0, 20_000);
    let end = LoadEnd { elapsed_us: 4_000_000, ..LoadEnd::default() };
    let start = EventBody::SessionStart {
        command: command.into(),
        started_at: "2026-11-21T03:00:00Z".into(),
        client: Default::default(),
        goal: None,
        objectives: vec![],
        operator: None,
        directory: None,
    };
    let workload = measurement.workload.unwrap();
    let mut bodies = vec![
        start,
        EventBody::LoadStart {
            load: 1,
            purpose: Purpose::Diagnose,
            workload: workload.into(),
            alone_us: None,
        },
    ];
    let intervals = measurement.intervals.into_iter();
    bodies.extend(intervals.map(|second| EventBody::Interval { load: 1, interval: Box::new(second) }));
    let (warmup_why, measured_to_s) = (None, None);
    bodies.push(EventBody::LoadEnd { load: 1, end, measured_from_s: 0.0, warmup_why, measured_to_s });
    bodies.push(EventBody::SessionEnd { exit_code: 0, error: None });
    let line = |(seq, body)| {
        serde_json::to_string(&Event { v: VERSION, seq, t_us: seq * 100, body }).unwrap() + "\n"
    };
    (0..).zip(bodies).map(line).collect()
}

/// A place with the scenario and a program that makes its loads.
struct TestPlace {
    directory: tempfile::TempDir,
    noted: Rc<RefCell<Vec<String>>>,
}

impl TestPlace {
    fn new(scenario: &str, program: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(path("scenarios/test/load")).unwrap();
        std::fs::write(path("scenarios/test/scenario.toml"), scenario).unwrap();
        std::fs::write(path("scenarios/test/load/list.txt"), "http://server/a\n").unwrap();
        std::fs::write(path("01-tuned"), recording("tune", 100)).unwrap();
        for (name, rate) in
            [("01-as-found", 100), ("02-mended-twice", 300), ("03-by-hand", 300), ("02-as-tuned", 270)]
        {
            std::fs::write(path(name), recording("diagnose", rate)).unwrap();
        }
        std::fs::write(
            path("program"),
            format!("#!/bin/sh\nplace={}\n{program}", directory.path().display()),
        )
        .unwrap();
        std::fs::set_permissions(path("program"), std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { directory, noted: Rc::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn options(&self) -> RunOptions {
        RunOptions {
            directory: self.path("runs/one"),
            executable: self.path("program"),
            rounds: None,
            keep: false,
            interrupted: Arc::default(),
        }
    }

    fn folder(&self) -> Result<ScenarioFolder> {
        Catalogue::Directory(self.path("scenarios")).open("test")
    }

    fn up(&self) -> Result<Box<dyn ScenarioHosts>> {
        self.noted.borrow_mut().push("up".into());
        let place = self.directory.path().to_owned();
        Ok(Box::new(LocalHosts { place, noted: self.noted.clone() }))
    }

    fn run(&self, options: &RunOptions) -> Result<ScenarioOutcome> {
        run(&self.folder()?, options, &mut || self.up(), &mut |_| {})
    }

    fn watch(&self) -> Result<PassiveOutcome> {
        run_passively(&self.folder()?, &self.options(), &mut || self.up(), &mut |_| {})
    }
}

/// Takes the recording that belongs to its run directory, which is its last argument, and notes its arguments.
const LOADS: &str = r#"
for last; do :; done
printf '%s\n' "$@" > "$place/arguments"
mkdir "$last" && cp "$place/$(basename "$last")" "$last/events.jsonl" && exit 3
"#;

#[test]
fn a_run_goes_through_its_rounds_and_judges_them() {
    let place = TestPlace::new(SCENARIO, LOADS);
    let outcome = place.run(&place.options()).unwrap();
    let rounds = ["change as found", "enter client", "change Mended, twice"];
    let typed = ["enter client", "enter server", "enter server", "enter client"];
    let expected: Vec<&str> = ["up"].into_iter().chain(rounds).chain(typed).chain(["down"]).collect();
    assert_eq!(*place.noted.borrow(), expected);
    assert_eq!(std::fs::read_to_string(place.path("typed")).unwrap(), "client\nfirst\nsecond\n");
    let arguments = std::fs::read_to_string(place.path("arguments")).unwrap();
    let begin = "lab-load\nhttp://server/\n-c\n10\n--header\nX: a b\n--server\nexec:";
    assert!(arguments.starts_with(begin), "{arguments}");
    assert!(arguments.contains("program lab exec test server\n"), "{arguments}");
    assert!(place.path("runs/one/load/load/list.txt").exists());
    assert!(outcome.proved && outcome.rounds.len() == 2, "{outcome:?}");
    let (found, mended) = (&outcome.rounds[0], &outcome.rounds[1]);
    assert_eq!((found.figure("load.rate"), found.signs[0].seen), (Some(100.0), true));
    assert_eq!((mended.gains[0].over.as_str(), mended.gains[0].ratio), ("as found", Some(3.0)));
    let text = super::text::outcome_text(&outcome);
    for part in ["as found", "3.00 times (", "seen: load.rate: 100; it must be at most 110", "  proved: up"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    // What was written is what is read again.
    let json = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<ScenarioOutcome>(&json).unwrap(), outcome);
}

/// Users who go on until they are ended, and a diagnosis.
const USERS: &str = r#"
for last; do :; done
one="$(dirname "$last")"
printf '%s\n' "$@" >> "$place/arguments"
if [ "$1" = diagnose ]; then
    mkdir "$last" && cp "$place/01-as-found" "$last/events.jsonl" && exit 0
fi
echo '{"program":"wrk","why":null,"port":8080,"before_s":0.1}' > "$one/users.json"
echo $$ > "$place/pid"
exec sleep 60
"#;

#[test]
fn a_server_is_watched_while_its_users_are_there_and_they_are_ended() {
    let place = TestPlace::new(SCENARIO, USERS);
    let watched = place.watch().unwrap();
    assert_eq!(*place.noted.borrow(), ["up", "change as found", "enter client", "enter client", "down"]);
    let arguments = std::fs::read_to_string(place.path("arguments")).unwrap();
    assert!(arguments.starts_with("lab-users\nhttp://server/\n-c\n10\n--header\nX: a b\n--directory"));
    assert!(arguments.contains("\ndiagnose\n--for\n12s\n--port\n8080\n--server\nexec:"), "{arguments}");
    assert_eq!((watched.users.as_str(), watched.expected.as_str()), ("wrk", "apache-workers-exhausted"));
    assert_eq!(watched.right, watched.found[0].id == watched.expected);
    let pid = std::fs::read_to_string(place.path("pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid}");
}

#[test]
fn users_who_are_not_there_are_an_error() {
    for (program, part) in [
        ("echo no server >&2; exit 1".to_owned(), "no server"),
        (USERS.replace("exec sleep 60", "exit 0"), "ended before"),
        (USERS.replace("&& exit 0", "&& exit 7"), "the diagnosis of test was not made"),
    ] {
        let place = TestPlace::new(SCENARIO, &program);
        let reported = place.watch().unwrap_err();
        assert!(reported.message.contains(part), "{part} in {}", reported.message);
        assert_eq!(place.noted.borrow().last().unwrap(), "down");
    }
    // A server that is down is a result.
    let down = USERS.replace("mkdir", "echo webdyno: nothing listens; exit 1; mkdir");
    let watched = TestPlace::new(SCENARIO, &down).watch().unwrap();
    assert_eq!((watched.error.as_deref(), watched.right), (Some("nothing listens"), false));
    assert!(watched.line().ends_with("apache-workers-exhausted: nothing listens"), "{}", watched.line());
    let of_the_generator = SCENARIO.replacen("apache-workers-exhausted", "generator-saturated", 1);
    assert_eq!(TestPlace::new(&of_the_generator, USERS).watch().unwrap_err().exit_code(), 2);
}

/// A tuning that changed a setting and kept it.
const APPLIED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../webdyno/tests/it/recordings/v0.1.0-tune/events.jsonl");

/// Tunes without finding anything, takes the recording of a load, and leaves a file behind as it is told.
const TUNES: &str = r#"
for last; do :; done
printf '%s\n' "$@" >> "$place/arguments"
if [ "$1" = rollback ]; then exit $(cat "$place/rollback"); fi
mkdir "$last" && cp "$place/$(basename "$last")" "$last/events.jsonl" && exit 0
"#;

#[test]
fn a_tuning_is_rolled_back_and_compared_with_the_fix_by_hand() {
    let with_remedy = SCENARIO.replacen(
        "binds =",
        "remedy = { service = \"apache\", setting = \"MaxRequestWorkers\", at_least = 1 }\nbinds =",
        1,
    );
    for (scenario, rollback, share) in [
        (&with_remedy[..], "0", Some(1.0 / 3.0)),
        (&with_remedy, "1", Some(1.0 / 3.0)),
        (SCENARIO, "0", None),
    ] {
        let place = TestPlace::new(scenario, TUNES);
        std::fs::write(place.path("rollback"), rollback).unwrap();
        let folder = place.folder().unwrap();
        let tuned = run_tuned(&folder, &place.options(), &mut || place.up(), &mut |_| {}).unwrap();
        assert_eq!((tuned.found_rate, tuned.tuned_rate), (Some(100.0), Some(100.0)), "{tuned:?}");
        assert_eq!(tuned.share_of_by_hand(), share);
        assert_eq!(tuned.not_restored.is_some(), rollback == "1", "{tuned:?}");
        let arguments = std::fs::read_to_string(place.path("arguments")).unwrap();
        assert!(arguments.starts_with("tune\nhttp://server/\n-c\n10\n"), "{arguments}");
        assert!(arguments.contains("\nmax\n--apply\n--yes\n") && arguments.contains("\nrollback\n"));
        assert_eq!(place.path("typed").exists(), share.is_some());
        assert_eq!(place.noted.borrow().last().unwrap(), "down");
    }
    // What was left in force is loaded once more before it is given back.
    let place = TestPlace::new(&with_remedy, TUNES);
    std::fs::write(place.path("rollback"), "0").unwrap();
    std::fs::copy(APPLIED, place.path("01-tuned")).unwrap();
    let folder = place.folder().unwrap();
    let tuned = run_tuned(&folder, &place.options(), &mut || place.up(), &mut |_| {}).unwrap();
    assert_eq!((tuned.tuned_rate, tuned.share_of_by_hand()), (Some(270.0), Some(0.9)), "{tuned:?}");
    let arguments = std::fs::read_to_string(place.path("arguments")).unwrap();
    let places = ["tune\n", "02-as-tuned\n", "rollback\n", "03-by-hand\n"].map(|word| arguments.find(word));
    assert!(places.is_sorted() && places[0].is_some(), "{arguments}");
}

#[test]
fn what_was_not_seen_is_told() {
    let place = TestPlace::new(&SCENARIO.replace("at_most = 110", "at_most = 90"), LOADS);
    let outcome = place.run(&RunOptions { rounds: Some(1), keep: true, ..place.options() }).unwrap();
    assert!(!outcome.proved && outcome.down_s.is_none() && outcome.rounds.len() == 1);
    assert!(!place.noted.borrow().contains(&"down".to_owned()));
    let text = super::text::outcome_text(&outcome);
    assert!(text.contains("NOT SEEN: load.rate: 100; it must be at most 90") && text.contains("NOT PROVED"));
}

#[test]
fn errors_end_the_run_and_everything_is_removed() {
    let failing = SCENARIO.replace("echo second >> $WHERE", "echo bad luck >&2; exit 4");
    for (scenario, program, parts) in [
        (&failing[..], LOADS, &["round `Mended, twice`", "exit status: 4", "bad luck"][..]),
        (SCENARIO, "echo no agent; exit 1", &["the load of round `as found` was not made", "no agent"]),
        (SCENARIO, "exit 0", &["events.jsonl"]),
    ] {
        let place = TestPlace::new(scenario, program);
        let reported = place.run(&place.options()).unwrap_err();
        for part in parts {
            assert!(reported.message.contains(part), "{part} in {}", reported.message);
        }
        assert_eq!(place.noted.borrow().last().unwrap(), "down");
    }
}

#[test]
fn a_directory_that_is_there_is_refused_before_anything_is_built() {
    let place = TestPlace::new(SCENARIO, LOADS);
    std::fs::create_dir_all(place.path("runs/one")).unwrap();
    let reported = place.run(&place.options()).unwrap_err();
    assert!(reported.message.contains("exists already") && reported.exit_code() == 2, "{reported}");
    assert!(place.noted.borrow().is_empty());
}

#[test]
fn what_cannot_be_built_leaves_no_directory() {
    let place = TestPlace::new(SCENARIO, LOADS);
    let folder = Catalogue::Directory(place.path("scenarios")).open("test").unwrap();
    let mut up = || -> Result<Box<dyn ScenarioHosts>> { Err(UserError::cannot_run("it is up already")) };
    let reported = run(&folder, &place.options(), &mut up, &mut |_| {}).unwrap_err();
    assert_eq!(reported.message, "it is up already");
    assert!(!place.path("runs/one").exists());
}

#[test]
fn an_interrupt_ends_what_runs_and_takes_it_down() {
    let place = TestPlace::new(SCENARIO, "exec sleep 60");
    let options = RunOptions { keep: true, ..place.options() };
    let interrupted = options.interrupted.clone();
    let began = Instant::now();
    let waits = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        interrupted.store(true, Ordering::Relaxed);
    });
    let reported = place.run(&options).unwrap_err();
    waits.join().unwrap();
    assert_eq!(reported.exit_code(), 130);
    assert!(began.elapsed().as_secs() < 30);
    assert_eq!(place.noted.borrow().last().unwrap(), "down");
}

#[test]
fn names_of_rounds_are_file_names() {
    for (name, file) in
        [("225 workers", "225-workers"), ("a/../b", "a-b"), ("", ""), ("Ümlaut & Co.", "mlaut-co")]
    {
        assert_eq!(crate::scenario::file_name(name), file);
    }
    assert!(crate::scenario::split_flags("-c 10 'open").unwrap_err().hint.is_some());
}
