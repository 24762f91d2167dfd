//! nginx's error logs, followed from the start of observing: how often it says that it ran out of something.
//!
//! Facts: src/core/ngx_connection.c, src/event/ngx_event_accept.c and src/event/ngx_event_connect.c of nginx 1.27: `N
//! worker_connections are not enough`, `accept4() failed (24: Too many open files)` and `connect() to ADDRESS failed (99: Cannot
//! assign requested address)`, all at a level that no `error_log` hides but `alert` and `emerg`; src/http/ngx_http_upstream.c: `no
//! live upstreams`, `upstream timed out (110: Connection timed out)`, at the level `error`, as `connect() to ADDRESS failed` for a
//! backend that is not there or whose accept queue is full (11, for a socket in the file system), and for one that ends a connection without a response. Only counts
//! are kept.

use crate::collectors::{Collector, Metric, Reading, Target, counter};
use crate::logs::followed::{Event, FollowedLogs};
use crate::logs::tail::Part;
use webdyno_model::service::LogKind;

/// What all logs together may be read in one reading.
const READING_BYTES_MAX: u64 = 1 << 20;

/// What is counted: the metric, and the words of nginx.
const MESSAGES: [(&str, &str); 10] = [
    ("nginx_log.connections_exhausted.messages_count", "worker_connections are not enough"),
    ("nginx_log.too_many_open_files.messages_count", "(24: Too many open files)"),
    (
        "nginx_log.cannot_assign_address.messages_count",
        "failed (99: Cannot assign requested address) while connecting to upstream",
    ),
    ("nginx_log.no_live_upstreams.messages_count", "no live upstreams while connecting to upstream"),
    (
        "nginx_log.backend_refused.messages_count",
        "failed (111: Connection refused) while connecting to upstream",
    ),
    (
        "nginx_log.backend_absent.messages_count",
        "failed (2: No such file or directory) while connecting to upstream",
    ),
    (
        "nginx_log.backend_queue_full.messages_count",
        "failed (11: Resource temporarily unavailable) while connecting to upstream",
    ),
    (
        "nginx_log.backend_timed_out.messages_count",
        "upstream timed out (110: Connection timed out) while connecting to upstream",
    ),
    (
        "nginx_log.backend_closed.messages_count",
        "upstream prematurely closed connection while reading response header from upstream",
    ),
    (
        "nginx_log.backend_reset.messages_count",
        "(104: Connection reset by peer) while reading response header from upstream",
    ),
];

/// The collector.
#[derive(Debug)]
pub struct NginxLog {
    followed: FollowedLogs<()>,
    counts: [u64; MESSAGES.len()],
    lines_count: u64,
}

impl Default for NginxLog {
    fn default() -> Self {
        Self { followed: FollowedLogs::of(LogKind::Error), counts: [0; MESSAGES.len()], lines_count: 0 }
    }
}

/// Which of the messages a line is. What a client sent stands behind `, client:`, and may hold anything.
fn message(line: &[u8]) -> Option<usize> {
    let line = String::from_utf8_lossy(line);
    let said = line.split(", client:").next().unwrap_or_default();
    MESSAGES.iter().position(|(_, words)| said.contains(words))
}

impl Collector for NginxLog {
    fn name(&self) -> &'static str {
        "nginx_log"
    }

    fn metrics(&self) -> Vec<Metric> {
        // ERROR_LOGS are their paths.
        const SOURCE: &str = "nginx's error logs";
        let counted = |(name, words): &(&'static str, &str)| {
            counter(*name, SOURCE, format!("cat ERROR_LOGS | grep -cF '{words}'"))
        };
        let lines = counter("nginx_log.lines_count", SOURCE, "cat ERROR_LOGS | wc -l");
        MESSAGES.iter().map(counted).chain([lines]).collect()
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let is_there = target.services("nginx").next().is_some();
        self.followed.follow_services(target.services("nginx"), <[_]>::to_vec, |_, _| ());
        if !is_there {
            return reading;
        }
        let Self { followed, counts, lines_count } = self;
        followed.read(READING_BYTES_MAX, Part::Last, |(), event| {
            let Event::Line(line) = event else { return };
            *lines_count += 1;
            if let Some(count) = message(line).and_then(|at| counts.get_mut(at)) {
                *count += 1;
            }
        });
        reading.missing.extend(self.followed.missing("nginx_log", "no error log of nginx is known"));
        if self.followed.open_count() > 0 {
            for ((name, _), count) in MESSAGES.iter().zip(self.counts) {
                reading.push(*name, count as f64);
            }
            reading.push("nginx_log.lines_count", self.lines_count as f64);
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use webdyno_model::service::{LogFile, ServiceSnapshot};

    #[test]
    fn messages_are_told_from_what_clients_send() {
        for (line, expected) in [
            ("2026/11/23 10:00:00 [alert] 7#7: 64 worker_connections are not enough", Some(0)),
            (
                "2026/11/23 10:00:00 [alert] 7#7: *9 64 worker_connections are not enough while connecting to upstream, client: 127.0.0.1, server: x",
                Some(0),
            ),
            ("2026/11/23 10:00:00 [crit] 7#7: accept4() failed (24: Too many open files)", Some(1)),
            (
                "2026/11/23 10:00:00 [crit] 7#7: *9 connect() to 10.0.0.2:80 failed (99: Cannot assign requested address) while connecting to upstream, client: 10.1.0.1, server: , request: \"GET / HTTP/1.1\"",
                Some(2),
            ),
            (
                "2026/11/23 10:00:00 [emerg] 7#7: bind() to 10.9.9.9:80 failed (99: Cannot assign requested address)",
                None,
            ),
            (
                "2026/11/23 10:00:00 [error] 7#7: *9 open() \"/x\" failed (2: No such file), client: 1.2.3.4, request: \"GET /worker_connections are not enough\"",
                None,
            ),
            (
                "2026/11/23 10:00:00 [error] 7#7: *9 no live upstreams while connecting to upstream, client: 10.1.0.1, server: x",
                Some(3),
            ),
            (
                "2026/11/23 10:00:00 [error] 7#7: *9 connect() failed (111: Connection refused) while connecting to upstream, client: 10.1.0.1, server: x",
                Some(4),
            ),
            (
                "2026/11/23 10:00:00 [crit] 7#7: *9 connect() to unix:/run/x.sock failed (2: No such file or directory) while connecting to upstream, client: 10.1.0.1",
                Some(5),
            ),
            (
                "2026/11/23 10:00:00 [error] 7#7: *9 connect() to unix:/run/x.sock failed (11: Resource temporarily unavailable) while connecting to upstream, client: 10.1.0.1",
                Some(6),
            ),
            (
                "2026/11/23 10:00:00 [error] 7#7: *9 upstream timed out (110: Connection timed out) while connecting to upstream, client: 10.1.0.1, server: , request: \"GET / HTTP/1.1\", upstream: \"http://10.0.0.2:80/\"",
                Some(7),
            ),
            (
                "2026/11/23 10:00:00 [error] 7#7: *9 upstream timed out (110: Connection timed out) while reading response header from upstream, client: 10.1.0.1",
                None,
            ),
            (
                "2026/11/23 10:00:00 [error] 7#7: *9 upstream prematurely closed connection while reading response header from upstream, client: 10.1.0.1",
                Some(8),
            ),
            (
                "2026/11/23 10:00:00 [error] 7#7: *9 recv() failed (104: Connection reset by peer) while reading response header from upstream, client: 10.1.0.1",
                Some(9),
            ),
            ("", None),
        ] {
            assert_eq!(message(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn what_is_written_from_now_on_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("error.log");
        let line = "x [alert] 1#1: 64 worker_connections are not enough\n";
        std::fs::write(&path, line).unwrap();
        let log =
            LogFile { path: path.to_string_lossy().into_owned(), kind: LogKind::Error, ..LogFile::default() };
        let nginx = ServiceSnapshot {
            service: "nginx".into(),
            pid: std::process::id(),
            logs: vec![log],
            ..ServiceSnapshot::default()
        };
        let target = Target { service: Some(std::sync::Arc::new(nginx)), ..Target::default() };
        let mut collector = NginxLog::default();
        let count = |collector: &mut NginxLog| {
            let values = collector.read(&target).values;
            values.iter().find(|(name, _)| name == MESSAGES[0].0).map(|(_, value)| *value)
        };
        assert_eq!(count(&mut collector), Some(0.0));
        std::fs::File::options().append(true).open(&path).unwrap().write_all(line.as_bytes()).unwrap();
        assert_eq!(count(&mut collector), Some(1.0));
        assert_eq!(collector.read(&Target::default()).values, vec![]);
    }
}
