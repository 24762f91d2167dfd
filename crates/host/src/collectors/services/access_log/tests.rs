//! Counts of access logs in several formats, and estimates of those that grow fast.

use super::*;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

struct Log {
    folder: tempfile::TempDir,
}

impl Log {
    fn new() -> Self {
        let log = Self { folder: tempfile::tempdir().unwrap() };
        log.add("");
        log
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("access.log")
    }

    fn add(&self, text: &str) {
        let mut file = std::fs::File::options().append(true).create(true).open(self.path()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn file(&self, format: Option<&str>, scope: Option<&str>) -> LogFile {
        LogFile {
            path: self.path().to_string_lossy().into_owned(),
            kind: LogKind::Access,
            scope: scope.map(str::to_owned),
            format: format.map(str::to_owned),
        }
    }
}

fn target(logs: Vec<LogFile>) -> Target {
    let service = ServiceSnapshot {
        service: "apache".into(),
        pid: std::process::id(),
        logs,
        ..ServiceSnapshot::default()
    };
    Target { service: Some(Arc::new(service)), ..Target::default() }
}

fn check(reading: &Reading, expected: &[(&str, Option<f64>)]) {
    for (name, value) in expected {
        assert_eq!(reading.value(&format!("access_log.{name}")), *value, "{name} {reading:?}");
    }
}

fn line(status: u16, bytes: u64) -> String {
    format!("::1 - - [22/Nov/2026:09:07:36 +0000] \"GET /a HTTP/1.1\" {status} {bytes} \"-\" \"wrk\"\n")
}

#[test]
fn requests_are_counted_by_status_in_known_formats() {
    let of_nginx = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;
    for format in ["combined", r#"%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\""#, of_nginx] {
        let format = format.replace('\\', "");
        let log = Log::new();
        log.add(&line(200, 1));
        let target = target(vec![log.file(Some(&format), None)]);
        let mut collector = AccessLog::default();
        check(&collector.read(&target), &[("requests_count", Some(0.0)), ("sent_bytes", None)]);
        for status in [200, 200, 304, 404, 500, 503] {
            log.add(&line(status, 100));
        }
        log.add("not of the format\n");
        let reading = collector.read(&target);
        check(
            &reading,
            &[
                ("requests_count", Some(6.0)),
                ("status_2xx_count", Some(2.0)),
                ("status_3xx_count", Some(1.0)),
                ("status_4xx_count", Some(1.0)),
                ("status_5xx_count", Some(2.0)),
                ("unparsed_count", Some(1.0)),
                ("sent_bytes", Some(600.0)),
                ("paths_count", Some(6.0)),
                ("path_parts_count", Some(6.0)),
                ("time_us", None),
                ("unread_bytes", Some(0.0)),
            ],
        );
        assert_eq!(reading.missing[0].signal, "access_log.time_us");
    }
}

#[test]
fn parts_of_paths_are_those_before_the_query() {
    for (request, parts) in [
        ("GET / HTTP/1.1", Some(1)),
        ("GET /a/b/c.html?d=/e/f HTTP/1.1", Some(3)),
        ("/a/", Some(2)),
        ("OPTIONS * HTTP/1.1", None),
        ("GET http://a/b HTTP/1.1", None),
        ("", None),
    ] {
        assert_eq!(path_parts(request.as_bytes()), parts, "{request}");
    }
}

#[test]
fn times_are_summed_where_they_are_told() {
    let log = Log::new();
    let target = target(vec![log.file(Some("%h %>s %b %D"), None)]);
    let mut collector = AccessLog::default();
    collector.read(&target);
    log.add("::1 200 - 1500\n::1 200 7 2000000\n");
    let reading = collector.read(&target);
    check(&reading, &[("timed_count", Some(2.0)), ("time_us", Some(2_001_500.0)), ("slow_count", Some(1.0))]);
    assert_eq!(reading.missing, vec![]);
}

#[test]
fn of_a_part_of_the_site_one_log_counts() {
    let (first, second, other) = (Log::new(), Log::new(), Log::new());
    let target = target(vec![
        first.file(Some("%{Referer}i -> %U"), None),
        second.file(Some("common"), None),
        first.file(Some("common"), None),
        other.file(Some("combined"), Some("VirtualHost *:80")),
    ]);
    let mut collector = AccessLog::default();
    collector.read(&target);
    for log in [&first, &second] {
        log.add("::1 - - [t] \"GET / HTTP/1.1\" 200 1\n");
    }
    other.add(&line(500, 1));
    check(&collector.read(&target), &[("requests_count", Some(2.0)), ("logs_count", Some(2.0))]);
}

#[test]
fn a_log_that_cannot_be_read_gives_no_zero() {
    let log = Log::new();
    for (format, why) in [(Some("%{Referer}i -> %U"), "status"), (None, "status")] {
        let reading = AccessLog::default().read(&target(vec![log.file(format, None)]));
        check(&reading, &[("requests_count", None)]);
        assert!(reading.missing[0].why.contains(why), "{reading:?}");
    }
    let reading = AccessLog::default().read(&target(vec![]));
    assert!(reading.values.is_empty() && reading.missing[0].why.contains("no access log"), "{reading:?}");
    let secret = LogFile { path: "|/bin/logger --password x".into(), ..log.file(Some("common"), None) };
    let reading = AccessLog::default().read(&target(vec![secret]));
    assert!(!format!("{:?}", reading.missing).contains("password"), "{reading:?}");
    assert_eq!(AccessLog::default().read(&Target::default()), Reading::default());
}

// More than is read in one reading: the estimate is near, and what was not read is told.
#[test]
fn a_flood_is_estimated_from_samples_of_all_of_it() {
    let log = Log::new();
    let target = target(vec![log.file(Some("combined"), None)]);
    let mut collector = AccessLog::default();
    collector.read(&target);
    let flood: String =
        (0..30_000).map(|number| line(if number % 10 == 0 { 503 } else { 200 }, number % 997)).collect();
    log.add(&flood);
    let reading = collector.read(&target);
    let value = |name: &str| reading.value(&format!("access_log.{name}")).unwrap();
    assert!((value("requests_count") / 30_000.0 - 1.0).abs() < 0.02, "{reading:?}");
    assert!((value("status_5xx_count") / 3_000.0 - 1.0).abs() < 0.15, "{reading:?}");
    assert!((value("sent_bytes") / 30_000.0 / 498.0 - 1.0).abs() < 0.1, "{reading:?}");
    assert_eq!(value("written_bytes"), flood.len() as f64);
    assert!(value("unread_bytes") > 0.8 * flood.len() as f64);
}
