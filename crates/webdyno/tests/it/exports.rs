//! Results for other programs, and objectives that the workload does not have.

use crate::support::{Place, Server, run, shared_turn};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

#[test]
fn the_recording_gives_the_same_results_again() {
    let _turn = shared_turn();
    let place = Place::new();
    let server = Server::answering(OK);
    let files = ["--csv", "s.csv", "--hdr", "t.hgrm", "--junit", "j.xml", "--slo", "failed<=0"];
    let load = ["run", &server.url(), "-r", "100", "-d", "2s", "-t", "1", "-q", "--out", "a"];
    let ended = run(place.webdyno().args(load).args(files)).with_code_in(&[0, 3]);
    assert!(ended.stdout.contains("Throughput"), "files leave the text where it is: {}", ended.stdout);
    for (flag, file) in [("--csv", "s.csv"), ("--hdr", "t.hgrm"), ("--junit", "j.xml")] {
        let again = run(place.webdyno().args(["report", "a", flag, "-"])).with_code(0).stdout;
        assert_eq!(std::fs::read_to_string(place.path(file)).unwrap(), again, "{file}");
        assert!(!again.contains("Throughput"), "stdout holds one result alone");
    }
    run(place.webdyno().args(["report", "a", "--hdr", "t.hlog", "--csv", "again.csv"])).with_code(0);
    let csv = std::fs::read_to_string(place.path("s.csv")).unwrap();
    assert_eq!(std::fs::read_to_string(place.path("again.csv")).unwrap(), csv);
    assert!(csv.starts_with("load,purpose,t_s,"), "{csv}");
    let log = std::fs::read_to_string(place.path("t.hlog")).unwrap();
    assert!(log.contains("Tag=service_time,") && log.contains("microseconds"), "{log}");
    let junit = std::fs::read_to_string(place.path("j.xml")).unwrap();
    assert!(junit.contains("failed&lt;=0") && junit.contains("requests succeed"), "{junit}");
}

#[test]
fn a_recording_is_exported_as_tables() {
    let _turn = shared_turn();
    let place = Place::new();
    let server = Server::answering(OK);
    let load = ["run", &server.url(), "-n", "50", "-t", "1", "-q", "--out", "a", "--parquet", "s.parquet"];
    run(place.webdyno().args(load)).with_code_in(&[0, 3]);
    let export = |words: &[&str]| run(place.webdyno().arg("export").args(words));
    export(&["a", "--parquet", "again.parquet", "--csv", "s.csv", "--json", "r.json"]).with_code(0);
    let parquet = std::fs::read(place.path("s.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    assert_eq!(std::fs::read(place.path("again.parquet")).unwrap(), parquet);
    let csv = export(&["a", "--csv", "-"]).with_code(0).stdout;
    assert_eq!(std::fs::read_to_string(place.path("s.csv")).unwrap(), csv);
    export(&["a"]).with_code(2).assert_error("what to write", "--parquet");
    export(&["a", "--table", "samples", "--csv", "-"]).with_code(1).assert_error("observed no host", "hint:");
    export(&["a", "--table", "samples", "--json", "-"])
        .with_code(2)
        .assert_error("--table is what --csv and --parquet hold", "leave --table out");
    export(&["a", "--cache-config", "-"])
        .with_code(1)
        .assert_error("seen to be cacheable", "webdyno diagnose");
    export(&["a", "--csv", "-", "--cache-for", "nginx"]).with_code(2).assert_error("--cache-config", "");
    export(&["missing", "--csv", "-"]).with_code(1).assert_error("missing", "");
    let tuned = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/recordings/v0.1.0-tune");
    let samples = export(&[tuned, "--table", "samples", "--csv", "-"]).with_code(0).stdout;
    assert!(samples.starts_with("host,metric,unit,kind,t_s,value\r\n"), "{}", &samples[..99]);
    assert!(samples.contains("\n,cpu.user_s,s,counter,"), "{}", &samples[..999]);
}

#[test]
fn results_in_each_others_way_are_told_before_anything_starts() {
    let place = Place::new();
    let server = Server::answering(OK);
    let try_run = |flags: &[&str]| run(place.webdyno().args(["run", &server.url(), "-d", "60s"]).args(flags));
    try_run(&["--json", "-", "--csv", "-"])
        .with_code(2)
        .assert_error("--json and --csv both go to stdout", "hint:");
    try_run(&["--hdr", "x", "--junit", "./x"])
        .with_code(2)
        .assert_error("--hdr and --junit both go to", "hint:");
    try_run(&["--csv", "missing/x.csv"]).with_code(1).assert_error("missing/x.csv", "--csv takes a file");
    try_run(&["--csv", "events.jsonl"]).with_code(2).assert_error("place of a recording", "hint:");
    assert!(!place.path("webdyno-runs").exists());
    let watch = ["diagnose", "--for", "60s", "--port", "1", "--csv", "x.csv"];
    run(place.webdyno().args(watch)).with_code(2).assert_error("--for makes none", "hint:");
    let report = ["report", "missing", "--csv", "-", "--junit", "-"];
    run(place.webdyno().args(report)).with_code(2).assert_error("both go to stdout", "hint:");
}

#[test]
fn a_result_that_cannot_be_written_leaves_the_others_and_the_recording() {
    let _turn = shared_turn();
    let place = Place::new();
    if !std::path::Path::new("/dev/full").exists() {
        return crate::support::skip("there is no /dev/full here");
    }
    let server = Server::answering(OK);
    let load = ["run", &server.url(), "-n", "20", "-c", "2", "-q", "--out", "a", "--csv", "/dev/full"];
    let ended = run(place.webdyno().args(load).args(["--junit", "j.xml"])).with_code(1);
    assert!(
        ended.stderr.contains("no space left") && ended.stderr.contains("webdyno report DIR --csv"),
        "{}",
        ended.stderr
    );
    assert!(ended.stdout.contains("Throughput"), "{}", ended.stdout);
    assert!(place.path("j.xml").exists());
    let again = run(place.webdyno().args(["report", "a", "--csv", "-"])).with_code(0);
    assert!(again.stdout.starts_with("load,"), "{}", again.stdout);
    let listed = run(place.webdyno().args(["history", ".", "--json", "-"])).with_code(0).json();
    assert_eq!(listed["sessions"][0]["state"], "failed", "{listed:#}");
}

#[test]
fn a_page_that_cannot_be_written_leaves_the_results() {
    let _turn = shared_turn();
    let place = Place::new();
    let server = Server::answering(OK);
    std::fs::create_dir_all(place.path("a/report.html")).unwrap();
    let load = ["run", &server.url(), "-n", "20", "-c", "2", "-q", "--out", "a", "--junit", "j.xml"];
    let ended = run(place.webdyno().args(load)).with_code(1);
    assert!(ended.stderr.contains("report.html"), "{}", ended.stderr);
    assert!(ended.stdout.contains("Throughput"), "{}", ended.stdout);
    assert!(place.path("j.xml").exists());
}

#[test]
fn objectives_of_what_is_not_there_are_told_before_anything_is_sent() {
    let place = Place::new();
    let server = Server::answering(OK);
    let url = format!("{}shop", server.url());
    let try_slo =
        |slo: &str| run(place.webdyno().args(["run", &url, "-d", "60s", "--slo", slo])).with_code(2);
    try_slo("request /shpo: p99<1s").assert_error("did you mean `/shop`?", "hint:");
    try_slo("page: p99<1s").assert_error("this workload has none", "hint:");
    try_slo("page /shop p99<1s").assert_error("put a colon", "p95<2s");
    try_slo("request \"/shop: p99<1s").assert_error("double quote", "/shop");
    try_slo("service.p98<1s").assert_error("the figure is none of", "first_byte.");
    assert!(!place.path("webdyno-runs").exists());
}

#[test]
fn what_has_no_resources_is_not_compared_without_them() {
    let place = Place::new();
    let server = Server::answering(OK);
    let load = ["run", &server.url(), "-d", "60s", "--compare-documents-only"];
    run(place.webdyno().args(load)).with_code(2).assert_error("this workload has no pages", "hint:");
    assert!(!place.path("webdyno-runs").exists());
}

#[test]
fn pages_are_compared_with_their_documents() {
    let _turn = shared_turn();
    let place = Place::new();
    let server = Server::answering(OK);
    let parts = (0..5).map(|part| format!("\"/{part}.png\"")).collect::<Vec<_>>().join(", ");
    let file = format!("[[page]]\nurl = \"{}\"\nname = \"home\"\nresources = [{parts}]\n", server.url());
    std::fs::write(place.path("w.toml"), file).unwrap();
    let load =
        ["run", "--workload", "w.toml", "--compare-documents-only", "-r", "20", "-d", "1s", "-t", "1", "-q"];
    let slo = ["--slo", "page home: errors<1%", "--slo", "request /0.png: failed<1", "--slo", "pages/s>1"];
    let out = ["--out", "a", "--json", "-", "--csv", "s.csv", "--hdr", "t.hlog"];
    let ended = run(place.webdyno().args(load).args(slo).args(out)).with_code_in(&[0, 3]);
    let json = ended.json();
    let met = json["objectives"].as_array().unwrap().iter().all(|objective| objective["met"] == true);
    assert!(met, "{:#}", json["objectives"]);
    assert_eq!((&json["ablation"]["without"], &json["ablation"]["runs"]), (&"resources".into(), &1.into()));
    assert!(json["requests"]["completed"].as_u64() > json["pages"]["completed"].as_u64(), "{json:#}");
    assert_eq!(json["repeats"], serde_json::Value::Null, "the second load is no repeat of the first");
    let again = run(place.webdyno().args(["report", "a", "--json", "-"])).with_code(0);
    assert_eq!(ended.stdout, again.stdout);
    let csv = std::fs::read_to_string(place.path("s.csv")).unwrap();
    assert!(csv.contains("\n1,run,") && csv.contains("\n2,without_resources,"), "{csv}");
    let log = std::fs::read_to_string(place.path("t.hlog")).unwrap();
    assert!(log.contains("Tag=page:home,") && log.contains("Tag=request:/0.png,"), "{log}");
}
