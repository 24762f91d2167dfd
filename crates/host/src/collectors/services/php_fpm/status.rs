//! What a pool says of itself: the status page in JSON, in full: with the script that each process executes.
//!
//! Facts: <https://www.php.net/manual/en/fpm.status.php> and sapi/fpm/fpm/fpm_status.c, fpm_process_ctl.c of PHP 8.2. The
//! queue that it tells is that of TCP sockets, looked at once a second: of unix sockets it is always 0 on Linux, and no
//! value here. Versions that put queries of requests into
//! the part in full as they came (bug 64539; 8.2.36 does not) break the JSON with it: then what stands before it is read.

use crate::probes::fastcgi::{Answer, Request, wait_for_any};
use crate::visibility::process_view::{self, Root};
use serde::Deserialize;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// The longest that connecting may take.
const CONNECT: Duration = Duration::from_millis(200);

/// After this a request is given up, and the next reading sends a new one.
const GIVE_UP: Duration = Duration::from_secs(60);

/// The status of a pool. Later versions add fields, and earlier ones lack some.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Status {
    /// Unix time of the start of the pool: counters begin anew with it.
    #[serde(rename = "start time")]
    pub start_time: Option<u64>,
    /// Requests that were taken.
    #[serde(rename = "accepted conn")]
    pub accepted_count: Option<u64>,
    /// Connections that wait to be accepted.
    #[serde(rename = "listen queue")]
    pub queue_count: Option<u64>,
    /// The most that ever waited.
    #[serde(rename = "max listen queue")]
    pub queue_peak_count: Option<u64>,
    /// Children that wait for a request.
    #[serde(rename = "idle processes")]
    pub idle_count: Option<u64>,
    /// Children at work.
    #[serde(rename = "active processes")]
    pub active_count: Option<u64>,
    /// The most that ever were at work at once.
    #[serde(rename = "max active processes")]
    pub active_peak_count: Option<u64>,
    /// How often no child could be added.
    #[serde(rename = "max children reached")]
    pub max_children_reached_count: Option<u64>,
    /// Requests that took longer than `request_slowlog_timeout`.
    #[serde(rename = "slow requests")]
    pub slow_requests_count: Option<u64>,
    /// The processes; empty where it was not asked in full.
    pub processes: Vec<ProcessStatus>,
}

/// What a process says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ProcessStatus {
    /// `Idle`, `Running`, and what is before and after it.
    pub state: String,
    /// The script of its request, or of its last one; `-` where there was none.
    pub script: String,
}

impl Status {
    /// The scripts that are executed now, one for each process that does.
    pub fn running_scripts(&self) -> impl Iterator<Item = &str> {
        let running = self.processes.iter().filter(|process| process.state == "Running");
        running.map(|process| process.script.as_str()).filter(|script| !["", "-"].contains(script))
    }
}

/// Reads the body of an answer. `None` when it is not the status.
pub fn parse(body: &[u8]) -> Option<Status> {
    let before_processes = || {
        let text = String::from_utf8_lossy(body);
        let (before, _) = text.split_once("\"processes\"")?;
        serde_json::from_str(&format!("{}}}", before.trim_end_matches([',', ' ', '\n']))).ok()
    };
    let status: Status = serde_json::from_slice(body).ok().or_else(before_processes)?;
    status.accepted_count.or(status.active_count).is_some().then_some(status)
}

/// What asking came to.
#[derive(Debug, PartialEq, Eq)]
pub enum PollResult {
    /// The status, and how long it took.
    Status(Status, Duration),
    /// It has no children, and was not asked, as that would start one.
    Idle,
    /// It has not answered yet, or cannot now: why.
    NotNow(&'static str),
    /// It never will as it is: why, and what helps.
    Never(String, &'static str),
}

/// Asks one pool again and again. A request that is not answered in time stays where it is: a new one each second would
/// fill the queue that is measured.
#[derive(Debug, Default)]
pub struct StatusPoller {
    pending: Option<Request>,
    /// What came of the last request, until it is taken.
    result: Option<(io::Result<Answer>, Duration)>,
}

impl StatusPoller {
    /// Sends a request unless one is under way; in full, of so few processes that the answer is short.
    pub fn begin(&mut self, pid: u32, root: &Root, address: &str, (path, in_full): (&str, bool)) {
        if self.pending.as_ref().is_some_and(|request| request.age() < GIVE_UP) {
            return;
        }
        let parameters = [
            ("SCRIPT_NAME", path),
            ("SCRIPT_FILENAME", path),
            ("REQUEST_METHOD", "GET"),
            ("QUERY_STRING", if in_full { "json&full" } else { "json" }),
            ("SERVER_SOFTWARE", concat!("webdyno/", env!("CARGO_PKG_VERSION"))),
        ];
        let stream = process_view::connect(pid, root, address, CONNECT);
        match stream.and_then(|stream| Request::send(stream, &parameters)) {
            Ok(request) => self.pending = Some(request),
            Err(error) => self.result = Some((Err(error), Duration::ZERO)),
        }
    }

    /// Whether a request of ours waits for its answer.
    pub fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// Takes in what came of the answer.
    fn receive(&mut self) {
        let Some(mut request) = self.pending.take() else { return };
        self.result = match request.wait(Instant::now()) {
            Ok(None) => {
                self.pending = Some(request);
                return;
            }
            Ok(Some(answer)) => Some((Ok(answer), request.age())),
            Err(error) => Some((Err(error), request.age())),
        };
    }

    /// What came since it was last taken.
    pub fn take(&mut self) -> PollResult {
        match self.result.take() {
            Some((Ok(answer), age)) => poll_result(&answer, age),
            Some((Err(error), _)) => refused(&error),
            None => PollResult::NotNow("does not answer in time: all its children may be busy"),
        }
    }
}

/// Waits for all answers that are under way, at most until `deadline`.
pub fn wait_for<'a>(askers: impl Iterator<Item = &'a mut StatusPoller>, deadline: Instant) {
    let mut askers: Vec<&mut StatusPoller> = askers.collect();
    loop {
        for poller in &mut askers {
            poller.receive();
        }
        askers.retain(|poller| poller.pending.is_some());
        let left = deadline.saturating_duration_since(Instant::now());
        if askers.is_empty() || left.is_zero() {
            return;
        }
        let pending = askers.iter().filter_map(|poller| poller.pending.as_ref());
        if wait_for_any(pending, left).is_err() {
            return;
        }
    }
}

fn poll_result(answer: &Answer, age: Duration) -> PollResult {
    const CHECK: &str = "reload php-fpm if pm.status_path was set after it was started";
    match parse(&answer.body) {
        Some(status) => PollResult::Status(status, age),
        None if answer.status == 200 => {
            PollResult::Never("the status page does not answer with the status".into(), CHECK)
        }
        None => PollResult::Never(format!("the status page answers {}", answer.status), CHECK),
    }
}

fn refused(error: &io::Error) -> PollResult {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            PollResult::NotNow("cannot be asked: the accept queue of its socket is full")
        }
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
            PollResult::NotNow("cannot be asked: nobody listens there")
        }
        ErrorKind::PermissionDenied => PollResult::Never(
            "its socket may not be connected to: permission denied".into(),
            crate::visibility::listeners::NEEDS_RIGHTS,
        ),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            PollResult::NotNow("closed the connection: a reload, or listen.allowed_clients without 127.0.0.1")
        }
        _ => PollResult::Never(
            format!("its status cannot be asked for: {error}"),
            "look at the setting `listen` of the pool",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// PHP 8.2.
    const STATUS: &str = r#"{"pool":"www","process manager":"static","start time":1763456544,"start since":4,
        "accepted conn":17,"listen queue":4,"max listen queue":5,"listen queue len":4096,"idle processes":1,
        "active processes":2,"total processes":3,"max active processes":3,"max children reached":0,"slow requests":6}"#;

    #[test]
    fn the_status_parses() {
        let status = parse(STATUS.as_bytes()).unwrap();
        assert_eq!(
            (status.accepted_count, status.queue_count, status.queue_peak_count),
            (Some(17), Some(4), Some(5))
        );
        assert_eq!(
            (status.idle_count, status.active_count, status.active_peak_count),
            (Some(1), Some(2), Some(3))
        );
        assert_eq!((status.max_children_reached_count, status.slow_requests_count), (Some(0), Some(6)));
        let old = parse(br#"{"pool":"www","accepted conn":1}"#).unwrap();
        assert_eq!(old.slow_requests_count, None, "not told is not zero");
        let full = |query: &str| {
            let process = |state: &str, script: &str| {
                format!(r#"{{"pid":7,"state":"{state}","request uri":"/x?{query}","script":"{script}"}}"#)
            };
            let all =
                [process("Running", "/srv/a.php"), process("Idle", "/srv/b.php"), process("Running", "-")];
            let text = format!("{},\"processes\":[{}]}}", STATUS.trim_end_matches('}'), all.join(","));
            let status = parse(text.as_bytes()).unwrap();
            assert_eq!(status.slow_requests_count, Some(6), "{query}");
            status.running_scripts().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(full("n=1"), ["/srv/a.php"]);
        assert!(full(r#"n="1"#).is_empty(), "a query as it came");
        for other in ["", "{}", "<html>", "File not found.", r#"{"accepted conn":"x"}"#] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_pool_that_does_not_answer_is_told_with_what_helps() {
        let answer = |status, body: &str| Answer { status, body: body.into(), stderr: vec![] };
        let asked = poll_result(&answer(404, "File not found.\n"), Duration::ZERO);
        assert!(
            matches!(asked, PollResult::Never(ref why, how) if why.contains("404") && how.contains("reload"))
        );
        for (kind, word) in [
            (ErrorKind::WouldBlock, "queue of its socket is full"),
            (ErrorKind::UnexpectedEof, "allowed_clients"),
            (ErrorKind::NotFound, "nobody listens"),
        ] {
            assert!(matches!(refused(&kind.into()), PollResult::NotNow(why) if why.contains(word)));
        }
        assert!(
            matches!(refused(&ErrorKind::PermissionDenied.into()), PollResult::Never(_, how) if how.contains("sudo"))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..STATUS.len()) {
            parse(&bytes);
            parse(&STATUS.as_bytes()[..cut]);
        }
    }
}
