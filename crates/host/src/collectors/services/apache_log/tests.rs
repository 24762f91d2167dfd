//! Counts of error logs that grow, flood, are rotated and are none.

use super::*;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use webdyno_model::service::LogFile;

const BEGIN: &str = "[Sun Nov 22 09:07:36.123456 2026]";

struct Log {
    folder: tempfile::TempDir,
}

impl Log {
    fn new() -> Self {
        let log = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(log.path(), "").unwrap();
        log
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("error.log")
    }

    fn add(&self, text: impl AsRef<[u8]>) {
        use std::io::Write;
        let mut file = fs::File::options().append(true).create(true).open(self.path()).unwrap();
        file.write_all(text.as_ref()).unwrap();
    }

    fn write_message(&self, level: &str, message: &str) {
        self.add(format!("{BEGIN} [core:{level}] [pid 1:tid 2] {message}\n"));
    }

    fn target(&self) -> Target {
        target(&[&self.path().to_string_lossy()])
    }
}

fn target(paths: &[&str]) -> Target {
    let logs = paths.iter().map(|path| LogFile { path: (*path).into(), ..LogFile::default() });
    let service = ServiceSnapshot {
        service: "apache".into(),
        pid: std::process::id(),
        logs: logs.collect(),
        ..ServiceSnapshot::default()
    };
    Target { service: Some(Arc::new(service)), ..Target::default() }
}

fn check(reading: &Reading, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        let name = format!("apache_log.{name}");
        assert_eq!(reading.value(&name), Some(*value), "{name} {reading:?}");
    }
}

#[test]
fn what_is_said_is_counted_from_the_start_on() {
    let log = Log::new();
    let mut collector = ApacheLog::default();
    let first = collector.read(&log.target());
    check(&first, &[("lines_count", 0.0), ("AH00161.messages_count", 0.0), ("error.lines_count", 0.0)]);
    log.write_message("error", "AH00161: server reached MaxRequestWorkers setting");
    log.write_message("info", "AH00128: File does not exist: /x");
    log.write_message("error", "(24)Too many open files: AH00056: connect");
    log.add([0xff, 0xfe, b'\n']);
    let second = collector.read(&log.target());
    check(
        &second,
        &[
            ("lines_count", 4.0),
            ("AH00161.messages_count", 1.0),
            ("AH00128.messages_count", 1.0),
            ("too_many_open_files.messages_count", 1.0),
            ("error.lines_count", 2.0),
            ("info.lines_count", 1.0),
            ("without_level.lines_count", 1.0),
            ("unread_bytes", 0.0),
        ],
    );
    assert_eq!(second.value("apache_log.AH00484.messages_count"), None, "said once that there are none");
    assert_eq!((second.error, second.missing), (None, vec![]));
}

// What is left out of a reading has to be what it was told to be last: none.
#[test]
fn what_is_left_out_is_said_to_be_unchanged() {
    let log = Log::new();
    let mut collector = ApacheLog::default();
    let may_miss = |collector: &ApacheLog, name: &str| {
        let metrics = collector.metrics();
        let describing = metrics.iter().filter(|metric| metric.describes(name));
        describing.max_by_key(|metric| (!metric.name.contains('*'), metric.name.len())).unwrap().on_change
    };
    let mut message = collector.read(&log.target());
    for round in 0..3 {
        log.write_message("error", "AH00161: server reached MaxRequestWorkers setting");
        let reading = collector.read(&log.target());
        assert_eq!(reading.error, None);
        for (name, value) in &message.values {
            let kept = reading.value(name).is_some() || (may_miss(&collector, name) && *value == 0.0);
            assert!(kept, "{name} was {value} and is left out in round {round}");
        }
        message = reading;
    }
}

#[test]
fn any_number_of_codes_takes_bounded_room() {
    let log = Log::new();
    let mut collector = ApacheLog::default();
    collector.read(&log.target());
    for code in 20_000..21_000 {
        log.write_message("error", &format!("AH{code}: x"));
    }
    log.write_message("error", "AH03490: scoreboard is full");
    let reading = collector.read(&log.target());
    check(&reading, &[("other.messages_count", 960.0), ("AH03490.messages_count", 1.0)]);
    assert!(reading.values.len() < 60, "{}", reading.values.len());
}

#[test]
fn of_a_flood_it_is_told_how_much_was_not_read() {
    let log = Log::new();
    let mut collector = ApacheLog::default();
    collector.read(&log.target());
    let line = format!("{BEGIN} [core:debug] [pid 1] file.c(1): {}\n", "x".repeat(10_000));
    log.add(line.repeat(1000));
    log.write_message("error", "AH00161: reached");
    let reading = collector.read(&log.target());
    let unread = reading.value("apache_log.unread_bytes").unwrap();
    assert!(unread > 8e6 && reading.error.as_ref().unwrap().contains("not read"), "{:?}", reading.error);
    check(&reading, &[("AH00161.messages_count", 1.0)]);
    log.write_message("error", "AH00161: reached");
    let quiet = collector.read(&log.target());
    check(&quiet, &[("AH00161.messages_count", 2.0), ("unread_bytes", unread)]);
    assert_eq!(quiet.error, None);
}

#[test]
fn rotation_is_followed_and_cutting_is_told() {
    let log = Log::new();
    let mut collector = ApacheLog::default();
    collector.read(&log.target());
    log.write_message("error", "AH00161: reached");
    fs::rename(log.path(), log.folder.path().join("error.log.1")).unwrap();
    let gone = collector.read(&log.target());
    check(&gone, &[("AH00161.messages_count", 1.0)]);
    assert!(gone.error.unwrap().contains("no name"));
    log.write_message("error", "AH00161: reached");
    check(&collector.read(&log.target()), &[("AH00161.messages_count", 2.0)]);
    fs::write(log.path(), "").unwrap();
    log.write_message("warn", "AH00514: x");
    let cut = collector.read(&log.target());
    check(&cut, &[("AH00161.messages_count", 2.0), ("AH00514.messages_count", 1.0)]);
    assert!(cut.error.unwrap().contains("cut"));
}

#[test]
fn what_is_no_file_is_lacking_with_a_reason_and_comes_when_it_does() {
    let log = Log::new();
    let later = log.folder.path().join("later.log");
    let fifo = log.folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let later = later.to_string_lossy();
    let fifo = fifo.to_string_lossy();
    let target = target(&[&later, &fifo, "|/usr/bin/rotatelogs --password x", "syslog:local1"]);
    let mut collector = ApacheLog::default();
    let reading = collector.read(&target);
    let why: Vec<&str> = reading.missing.iter().map(|missing| missing.why.as_str()).collect();
    for (why, expected) in why.iter().zip(["no such file", "it is a stream", "piped log", "syslog"]) {
        assert!(why.contains(expected) && !why.contains("password"), "{why}");
    }
    assert_eq!((why.len(), reading.values.len()), (4, 0), "no zero for what is not known");
    // It is new: what is in it was written since.
    fs::write(&*later, format!("{BEGIN} [core:error] [pid 1] AH00161: x\n")).unwrap();
    check(&collector.read(&target), &[("AH00161.messages_count", 1.0)]);
    let none = ApacheLog::default().read(&super::tests::target(&[]));
    assert!(none.missing[0].why.contains("no error log"), "{none:?}");
    assert_eq!(ApacheLog::default().read(&Target::default()), Reading::default());
}

// The test's own process stands for Apache.
#[test]
fn what_was_said_before_is_told_apart() {
    let log = Log::new();
    let line = |hours_ago: i64, text: &str| {
        let time = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(hours_ago);
        let time = time.to_zoned(jiff::tz::TimeZone::UTC).strftime("%a %b %d %H:%M:%S%.6f %Y").to_string();
        log.add(format!("[{time}] [mpm_prefork:error] [pid 1] {text}\n"));
    };
    line(24, "AH00484: reached");
    line(0, "AH00161: reached");
    let mut collector = ApacheLog::default();
    let reading = collector.read(&log.target());
    check(&reading, &[("AH00161.before_count", 1.0), ("AH00161.messages_count", 0.0), ("lines_count", 0.0)]);
    assert_eq!(reading.value("apache_log.AH00484.before_count"), None, "of an earlier life");
    check(&collector.read(&log.target()), &[("AH00161.before_count", 1.0)]);
}
