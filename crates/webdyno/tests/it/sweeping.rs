//! `webdyno sweep` on a real Apache: the values that were asked for, the original afterwards, also after SIGKILL, and going on.

use crate::support::{Apache, Place, Snapshot, run, shared_turn, signal, skip, turn, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;
use webdyno_host::os::procfs;

const SWEEP: [&str; 11] = [
    "--knob",
    "MaxRequestWorkers=10,20,40",
    "-c",
    "30",
    "-d",
    "1s",
    "--warmup",
    "0s",
    "--yes",
    "-q",
    "--repeat",
];

/// An event Apache with twenty workers, whose pages take a while.
fn apache(place: &Place) -> (Apache, Snapshot) {
    let apache = Apache::start_event(&place.path("server"), 20);
    let before = apache.configuration();
    (apache, before)
}

fn events(place: &Place, directory: &str, kind: &str) -> usize {
    let text = std::fs::read_to_string(place.path(directory).join("events.jsonl")).unwrap_or_default();
    text.lines().filter(|line| line.contains(&format!("\"kind\":\"{kind}\""))).count()
}

#[test]
fn a_setting_is_measured_at_each_value_and_put_back() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let (apache, before) = apache(&place);
    let sweep = ["sweep", &apache.url(), "--out", "s", "--json", "-"];
    let ended = run(place.webdyno().args([&sweep, &SWEEP[..], &["2"]].concat()));
    let json = ended.with_code(0).json();
    assert_eq!(apache.configuration(), before);
    let points = json["points"].as_array().unwrap();
    let values: Vec<f64> = points.iter().filter_map(|point| point["value"].as_f64()).collect();
    assert_eq!(values, [10.0, 20.0, 40.0], "{json:#}");
    assert_eq!((&json["schema"], &json["original"]), (&"webdyno/sweep/v1".into(), &20.0.into()));
    assert_eq!(events(&place, "s", "sweep_point_end"), events(&place, "s", "load_start"), "{json:#}");
    // Thirty users on a page that takes its time: twenty workers bring twice what ten bring.
    let rate = |at: usize| points[at]["rate"].as_f64();
    if let (Some(ten), Some(twenty)) = (rate(0), rate(1)) {
        assert!((1.5..2.5).contains(&(twenty / ten)), "{json:#}");
    }
    run(place.webdyno().args(["report", "s"])).with_code(0);
    run(place.webdyno().args(["fit", "s"])).with_code(0);
    let points =
        run(place.webdyno().args(["export", "s", "--table", "points", "--csv", "-"])).with_code(0).stdout;
    assert_eq!(points.lines().count(), 4, "{points}");
    assert!(run(place.webdyno().arg("rollback")).with_code(0).stdout.contains("Nothing to roll back"));
}

#[test]
fn killed_in_the_middle_it_is_put_back_and_goes_on_without_measuring_twice() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let (apache, before) = apache(&place);
    let url = apache.url();
    let mut tool = place.child(&[&["sweep", &url, "--out", "first"], &SWEEP[..], &["2"]].concat());
    assert!(wait_until(Duration::from_secs(60), || events(&place, "first", "sweep_point_end") >= 2));
    signal(tool.id(), Signal::KILL);
    tool.wait().unwrap();
    assert!(
        wait_until(Duration::from_secs(30), || apache.configuration() == before),
        "its guardian did not put it back"
    );
    let measured = events(&place, "first", "sweep_point_end");
    // What was measured is a report already.
    assert!(run(place.webdyno().args(["report", "first"])).with_code(0).stdout.contains("MaxRequestWorkers"));
    let other = ["sweep", &url, "--resume", "first", "--out", "other", "--repeat", "2", "--yes", "-q"];
    run(place.webdyno().args([&other[..], &["--knob", "MaxRequestWorkers=10,30"]].concat()))
        .with_code(2)
        .assert_error("the sweep in first is another one", "resume it with the command that began it");
    let resumed = ["sweep", &url, "--resume", "first", "--out", "second", "--json", "-"];
    let json = run(place.webdyno().args([&resumed, &SWEEP[..], &["2"]].concat())).with_code(0).json();
    assert_eq!(apache.configuration(), before);
    let loads: Vec<&Value> = json["points"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|point| point["loads"].as_array().unwrap())
        .collect();
    let counted = loads.iter().filter(|load| load.get("discarded").is_none()).count();
    assert_eq!(counted, 6, "{json:#}");
    let carried = loads.iter().filter(|load| load["load"].is_null()).count();
    assert_eq!(
        (carried, loads.len() - carried),
        (measured, events(&place, "second", "load_start")),
        "{json:#}"
    );
}

#[test]
fn what_cannot_be_swept_is_refused_before_anything_is_written() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let (apache, before) = apache(&place);
    for (knob, message, hint) in [
        ("MaxRequestWorker=10,20", "has a setting `MaxRequestWorker`", "did you mean `MaxRequestWorkers`?"),
        ("MaxRequestWorkers=20", "one point is no curve", "give two values or more"),
        ("MaxRequestWorkers=0,20", "MaxRequestWorkers cannot be `0`", "a whole number from 1 to 200000"),
        ("ServerLimit=16,20", "apache ServerLimit 20 needs a restart", "--allow-restart"),
        ("MaxRequestWorkers", "a name with its values", "MaxRequestWorkers=16..256"),
    ] {
        let sweep = ["sweep", &apache.url(), "--yes", "-q", "--out", "s", "--knob", knob];
        run(place.webdyno().args(sweep)).with_code(2).assert_error(message, hint);
        assert!(!place.path("s").exists(), "{knob}");
    }
    assert_eq!(apache.configuration(), before);
}

/// The load as the knob, of a server that nobody observes.
#[test]
fn a_load_is_swept_without_an_agent() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let (apache, before) = apache(&place);
    let sweep = ["sweep", &apache.url(), "--knob", "connections=2,10", "-d", "1s", "--warmup", "0s"];
    let json = run(place.webdyno().args([&sweep[..], &["--repeat", "1", "-q", "--json", "-"]].concat()))
        .with_code(0)
        .json();
    assert_eq!(
        (json["points"].as_array().unwrap().len(), &json["knobs"][0]["name"]),
        (2, &"connections".into())
    );
    assert!(json["environment"].is_null() && apache.configuration() == before);
}

/// What the processes of a server may use: which processors, and in which control group of memory they are.
fn resources(server: &Apache) -> Vec<(String, String)> {
    let of = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let of = |begin: &str| groups.lines().find_map(|line| Some(line.split_once(begin)?.1.to_owned()));
        Some((cpus, of(":memory:").or_else(|| of("0::"))?))
    };
    let mut all: Vec<_> =
        server.pid().map(procfs::tree_of).unwrap_or_default().into_iter().filter_map(of).collect();
    all.sort();
    all.dedup();
    all
}

/// Processors and memory: in force while a point is measured, and as before at the end, also after SIGKILL.
#[test]
fn processors_and_memory_are_swept_and_given_back() {
    let _turn = shared_turn();
    if !rustix::process::geteuid().is_root()
        || std::thread::available_parallelism().is_ok_and(|n| n.get() < 2)
    {
        return skip("needs root, and two processors");
    }
    let place = Place::shielded();
    let (apache, before) = apache(&place);
    let usual = resources(&apache);
    assert_eq!(usual.len(), 1, "{usual:?}");
    let load =
        ["-c", "4", "-d", "1s", "--warmup", "0s", "--repeat", "1", "--yes", "-q", "--allow-live-traffic"];
    for (at, (knob, out)) in [("cpus=1,2", "cpus"), ("memory=256M,512M", "memory")].into_iter().enumerate() {
        let url = apache.url();
        let sweep = ["sweep", &url, "--knob", knob, "--out", out];
        let mut tool = place.child(&[&sweep[..], &load].concat());
        let is_set = || {
            let now = resources(&apache);
            now.len() == 1 && if at == 0 { now[0].0 == "0" } else { now[0].1.contains("/webdyno-") }
        };
        assert!(wait_until(Duration::from_secs(30), is_set), "{knob}: {:?}", resources(&apache));
        // Where the host took the processors away no load counts, which is 3.
        let code = tool.wait().unwrap().code();
        assert!(matches!(code, Some(0 | 3)), "{knob}: {code:?}");
        let log = std::fs::read_to_string(place.path(out).join("events.jsonl")).unwrap();
        assert!(!log.contains("\"failed\":\""), "{knob}: {log}");
        assert_eq!(events(&place, out, "sweep_point_end"), events(&place, out, "load_start"), "{knob}");
        assert_eq!(resources(&apache), usual, "{knob}");
    }
    let url = apache.url();
    let mut tool = place.child(
        &[&["sweep", &url, "--knob", "memory=256M,512M", "--knob", "cpus=1,2", "--out", "killed"], &load[..]]
            .concat(),
    );
    let both = || resources(&apache).iter().all(|(cpus, group)| cpus == "0" && group.contains("/webdyno-"));
    assert!(wait_until(Duration::from_secs(60), both), "{:?}", resources(&apache));
    signal(tool.id(), Signal::KILL);
    tool.wait().unwrap();
    assert!(wait_until(Duration::from_secs(30), || resources(&apache) == usual), "{:?}", resources(&apache));
    assert_eq!(apache.configuration(), before);
    for (knob, message, hint) in [
        ("cpus=1,4096", "AllowedCPUs (cpus) cannot be `4096`", "a whole number from 1 to"),
        ("memory=1M,512M", "MemoryMax (memory) of apache cannot be `1048576`", "the kernel would end them"),
    ] {
        let sweep = ["sweep", &url, "--yes", "-q", "--out", "refused", "--knob", knob];
        run(place.webdyno().args(sweep)).with_code(2).assert_error(message, hint);
    }
}

/// A study of processors, two contents and a cold page cache: all of it measured, the original back, and goes on.
/// Files in memory have no cold state.
fn folder_on_disk() -> tempfile::TempDir {
    let folders = [env!("CARGO_TARGET_TMPDIR"), env!("CARGO_MANIFEST_DIR"), "/var/tmp", "/opt"];
    let is_on_disk = |folder: &&str| {
        let system = rustix::fs::statfs(*folder).map(|system| system.f_type);
        system.is_ok_and(|system| ![0x0102_1994, 0x8584_58f6].contains(&system))
    };
    let folder = folders.into_iter().find(is_on_disk);
    tempfile::tempdir_in(folder.unwrap_or_else(|| panic!("none of {folders:?} is on a disk"))).unwrap()
}

#[test]
fn a_study_is_measured_and_put_back() {
    // Loads that others disturb do not count, and a study without any has no result.
    let _turn = turn();
    let place = Place::shielded();
    let (apache, before) = apache(&place);
    let url = apache.url();
    let files = folder_on_disk();
    std::fs::write(files.path().join("1"), vec![1; 10_000]).unwrap();
    let study = format!(
        "base = \"{url}\"\nduration = \"1s\"\nwarmup = \"0s\"\nrepeats = 1\nconnections = 30\npage_cache = \"warm\"\n\
         page_cache_paths = [\"{}\"]\n[axes]\nMaxRequestWorkers = [10, 20]\nstore = [\"1k\", \"3k\"]\n\
         [[content]]\nname = \"pages\"\nmean_size = \"1k\"\nurls = {{ pattern = \"/?n=[1-3]\" }}\n\
         [[content]]\nname = \"form\"\nrequest = [{{ url = \"/\", form = {{ a = \"b\" }} }}]\nok = \"100-499\"\n",
        files.path().display()
    );
    std::fs::write(place.path("study.toml"), &study).unwrap();
    let sweep = ["sweep", "--study", "study.toml", "--yes", "-q", "--out", "s", "--json", "-"];
    let json = run(place.webdyno().args(sweep)).with_code(0).json();
    assert_eq!(apache.configuration(), before);
    assert_eq!(json["points"].as_array().unwrap().len(), 6, "{json:#}");
    // What the effects are is a matter of the machine; that each load counts, or is said not to, is none.
    let of_point = |point: &Value| point["loads"].as_array().unwrap().len();
    let loads: usize = json["points"].as_array().unwrap().iter().map(of_point).sum();
    assert!(loads >= 6 && json["study"]["effects"].is_array(), "{json:#}");
    assert_eq!(
        events(&place, "s", "sweep_point_end"),
        events(&place, "s", "load_start") - warmed(&place),
        "{json:#}"
    );
    let table =
        run(place.webdyno().args(["export", "s", "--table", "points", "--csv", "-"])).with_code(0).stdout;
    assert!(table.lines().next().unwrap().ends_with("content,MaxRequestWorkers,store,page_cache"), "{table}");
    let text = run(place.webdyno().args(["report", "s"])).with_code(0).stdout;
    assert!(text.lines().count() <= 40 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let resumed = ["sweep", "--study", "study.toml", "--yes", "-q", "--resume", "s", "--out", "r"];
    run(place.webdyno().args(resumed)).with_code(0);
    assert_eq!(events(&place, "r", "load_start"), 0);
    check_wrong_studies(&place, &study);
    assert_eq!(apache.configuration(), before);
}

/// Each mistake is told before anything is measured.
fn check_wrong_studies(place: &Place, study: &str) {
    let write = |text: &str| std::fs::write(place.path("study.toml"), text).unwrap();
    for (from, to, message, hint) in [
        (
            "MaxRequestWorkers",
            "MaxRequestWorker",
            "study.toml:9:1: no service that was found",
            "did you mean `MaxRequestWorkers`?",
        ),
        ("[10, 20]", "[10, 300000]", "study.toml:9:1: ", "a whole number from 1 to 200000"),
        ("repeats", "repeat", "study.toml:4:1: `repeat` is not a key of a study", "did you mean `repeats`?"),
        (
            "\"warm\"\npage_cache_paths = [",
            "\"cold\"\npage_cache_paths = [\"/nowhere\", ",
            "/nowhere: No such file",
            "absolute paths",
        ),
    ] {
        write(&study.replacen(from, to, 1));
        let sweep = ["sweep", "--study", "study.toml", "--yes", "-q", "--out", "x"];
        run(place.webdyno().args(sweep)).with_code(2).assert_error(message, hint);
        assert!(!place.path("x").exists(), "{to}");
    }
}

fn warmed(place: &Place) -> usize {
    let text = std::fs::read_to_string(place.path("s/events.jsonl")).unwrap();
    text.lines().filter(|line| line.contains("\"purpose\":\"warm_cache\"")).count()
}
