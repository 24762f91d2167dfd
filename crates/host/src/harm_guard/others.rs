//! The errors that other clients get: answers of status 500 to 599 in the access logs that are not to our own requests.
//!
//! Ours are told by the `User-Agent` that the load sends. Where a log does not hold it, by the client's address, when
//! the load comes from this machine; who shares that address cannot be told from us then. Where neither tells, the
//! errors in that log are not counted while a load is on, and the signal is called missing.

use crate::logs::line::{Field, Line, LineFormat};
use crate::logs::tail::Tail;
use crate::logs::{AccessLog, AccessLogs};
use std::collections::BTreeSet;
use std::net::IpAddr;
use webdyno_model::error::io_error;
use webdyno_model::harm_guard::SiteUnderLoad;
use webdyno_model::sample::MissingSignal;

/// Most logs that are followed.
const LOGS_COUNT_MAX: usize = 32;

/// Most addresses of clients that are remembered.
const CLIENTS_COUNT_MAX: usize = 1000;

/// Most reasons that are told.
const REASONS_COUNT_MAX: usize = 4;

/// A variable of the workload begins so, and ends with `}`.
const VARIABLE: &str = "${";

/// What the agent's own requests call their sender: the probe of the site, and the reader of the status page.
const OWN_AGENTS: [&str; 2] = ["webdyno", concat!("webdyno/", env!("CARGO_PKG_VERSION"))];

/// Follows access logs, and counts the errors of others in them.
#[derive(Debug, Default)]
pub struct OtherClientErrors {
    logs: Vec<(Tail, AccessLog)>,
    unread: Vec<String>,
    failed_count: u64,
    /// The path of the status page, which the agent itself reads.
    status_path: Option<String>,
    site: Option<SiteUnderLoad>,
    /// Who came before the first load, by logs that do not hold a `User-Agent`.
    clients_before: BTreeSet<IpAddr>,
}

impl OtherClientErrors {
    /// Follows these logs from their present end on.
    pub fn of(logs: AccessLogs, status_path: Option<String>) -> Self {
        let mut others = Self { unread: logs.unread, status_path, ..Self::default() };
        for log in logs.files.into_iter().take(LOGS_COUNT_MAX) {
            match Tail::of(&log.path) {
                Ok(tail) => others.logs.push((tail, log)),
                Err(error) => {
                    others.unread.push(io_error("follow", log.path.display(), &error).message);
                }
            }
        }
        others
    }

    /// A load begins; from now on its requests are ours.
    pub fn begin(&mut self, site: &SiteUnderLoad) {
        self.site = Some(site.clone());
    }

    /// The errors of others so far; `None` when no log is followed.
    pub fn read_count(&mut self) -> Option<u64> {
        let mut logs = std::mem::take(&mut self.logs);
        for (tail, log) in &mut logs {
            tail.read(|line| {
                if let Some(line) = log.format.read(line) {
                    self.record_line(&log.format, line);
                }
            });
        }
        self.logs = logs;
        (!self.logs.is_empty()).then_some(self.failed_count)
    }

    fn record_line(&mut self, format: &LineFormat, line: Line<'_>) {
        if self.site.is_none() && !format.has(Field::UserAgent) && !self.reads_status(line) {
            let client =
                line.client.and_then(address).filter(|_| self.clients_before.len() < CLIENTS_COUNT_MAX);
            self.clients_before.extend(client);
        }
        let failed = line.status.is_some_and(|status| (500..600).contains(&status));
        if failed && self.is_of_another(format, line) {
            self.failed_count += 1;
        }
    }

    /// Whether a request is certainly not ours. Before a load only the agent's own are.
    fn is_of_another(&self, format: &LineFormat, line: Line<'_>) -> bool {
        let agents = self.site.iter().flat_map(|site| site.user_agents.iter().map(String::as_str));
        match (&self.site, line.user_agent) {
            (_, Some(agent)) => !OWN_AGENTS.into_iter().chain(agents).any(|own| is_called(own, agent)),
            (None, None) => !self.reads_status(line),
            (Some(site), None) => {
                let client = line.client.and_then(address);
                is_decided_by_address(format, site)
                    && client.is_some_and(|client| !site.generators.contains(&client))
            }
        }
    }

    /// Whether it is a request for the status page.
    fn reads_status(&self, line: Line<'_>) -> bool {
        let path = self.status_path.as_deref().zip(line.request);
        path.is_some_and(|(path, request)| String::from_utf8_lossy(request).contains(path))
    }

    /// What of the errors of others is not seen during a load, and why.
    pub fn missing(&self, site: &SiteUnderLoad) -> Option<MissingSignal> {
        let mut reasons: Vec<String> = self.unread.clone();
        for (_, log) in self.logs.iter().filter(|(_, log)| !log.format.has(Field::UserAgent)) {
            let path = log.path.display();
            let shared = site.generators.iter().find(|address| self.clients_before.contains(address));
            if !is_decided_by_address(&log.format, site) {
                reasons.push(format!("{path}: it does not tell our own requests from those of others"));
            } else if let Some(address) = shared {
                reasons.push(format!(
                    "{path}: others come from {address} as the load does, and cannot be told from it"
                ));
            }
        }
        if site.user_agents.iter().any(|own| own.contains(VARIABLE) && is_called(own, b"")) {
            reasons.push("the load's User-Agent is a variable, and could be anybody's".into());
        }
        if reasons.is_empty() && self.logs.is_empty() {
            reasons.push("no access log is known".into());
        }
        let more = reasons.len().saturating_sub(REASONS_COUNT_MAX);
        reasons.truncate(REASONS_COUNT_MAX);
        if more > 0 {
            reasons.push(format!("{more} more"));
        }
        let how = "let the service write an access log to a file that webdyno may read, with the status and the \
                   User-Agent of each request: in Apache CustomLog with the format combined";
        (!reasons.is_empty()).then(|| MissingSignal::new("errors of other clients", reasons.join("; "), how))
    }
}

/// Whether a sender that is called so is one that the load calls `own`, in which a variable may stand for anything.
fn is_called(own: &str, agent: &[u8]) -> bool {
    let Some((before, rest)) = own.split_once(VARIABLE) else { return escaped(own).as_bytes() == agent };
    let (before, after) = (escaped(before), escaped(rest.rsplit_once('}').map_or("", |(_, after)| after)));
    let rest = agent.strip_prefix(before.as_bytes());
    rest.is_some_and(|rest| rest.ends_with(after.as_bytes()))
}

/// Whether a log without a `User-Agent` tells the load's requests by the client's address.
fn is_decided_by_address(format: &LineFormat, site: &SiteUnderLoad) -> bool {
    format.has(Field::Client) && !site.generators.is_empty()
}

fn address(client: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(client).ok()?.parse().ok()
}

/// A header's value as servers write it into a log: what is not printable, quotes and backslashes are escaped
/// (`ap_escape_logitem` in httpd's server/util.c).
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\t' => text.push_str("\\t"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::line::Part;
    use crate::logs::{AccessLog, AccessLogs};
    use std::io::Write;

    /// A log in a folder of its own: client, status, and the agent where `with_agent`.
    struct Log {
        folder: tempfile::TempDir,
        with_agent: bool,
    }

    impl Log {
        fn new(with_agent: bool) -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("log"), "").unwrap();
            Self { folder, with_agent }
        }

        fn follow(&self) -> OtherClientErrors {
            let text = |text: &str| Part::Text(text.into());
            let mut parts =
                vec![Part::Field(Field::Client), text(" "), Part::Field(Field::Status), text(" \"")];
            parts.push(Part::Field(if self.with_agent { Field::UserAgent } else { Field::Request }));
            parts.push(text("\""));
            let format = LineFormat::new(parts).unwrap();
            let files = vec![AccessLog { path: self.folder.path().join("log"), format }];
            OtherClientErrors::of(AccessLogs { files, unread: vec![] }, Some("/server-status".into()))
        }

        fn add(&self, lines: &[&str]) {
            let path = self.folder.path().join("log");
            let mut file = std::fs::File::options().append(true).open(path).unwrap();
            lines.iter().for_each(|line| writeln!(file, "{line}").unwrap());
        }
    }

    fn site(agents: &[&str], generators: &[&str]) -> SiteUnderLoad {
        SiteUnderLoad {
            addresses: vec!["127.0.0.1:80".parse().unwrap()],
            host: "localhost".into(),
            user_agents: agents.iter().map(|agent| (*agent).to_owned()).collect(),
            generators: generators.iter().map(|address| address.parse().unwrap()).collect(),
            timeout_us: 1,
            varies_memory: false,
        }
    }

    #[test]
    fn ours_are_told_by_what_they_call_themselves() {
        let log = Log::new(true);
        let mut others = log.follow();
        // The agent's own never count, whatever is on.
        log.add(&["127.0.0.1 500 \"webdyno\"", "192.0.2.7 502 \"curl\"", "192.0.2.7 499 \"curl\""]);
        assert_eq!(others.read_count(), Some(1));
        let site = site(&["load \"é\""], &[]);
        assert_eq!(others.missing(&site), None);
        others.begin(&site);
        log.add(&[
            "127.0.0.1 503 \"load \\\"\\xc3\\xa9\\\"\"",
            "127.0.0.1 503 \"load\"",
            "x - \"curl\"",
            "?",
        ]);
        assert_eq!(others.read_count(), Some(2));
    }

    #[test]
    fn what_a_variable_of_the_load_stands_for_is_ours() {
        let log = Log::new(true);
        let mut others = log.follow();
        let load = site(&["load-${user} ${session}/1"], &[]);
        assert_eq!(others.missing(&load), None);
        others.begin(&load);
        log.add(&["127.0.0.1 503 \"load-7 9/1\"", "127.0.0.1 503 \"load-7/2\"", "127.0.0.1 503 \"curl/1\""]);
        assert_eq!(others.read_count(), Some(2));
        let why = others.missing(&site(&["${agent}"], &[])).unwrap().why;
        assert!(why.contains("is a variable"), "{why}");
    }

    #[test]
    fn without_it_they_are_told_by_their_address() {
        let log = Log::new(false);
        let mut others = log.follow();
        log.add(&["127.0.0.1 200 \"GET /server-status?auto HTTP/1.0\"", "192.0.2.7 500 \"GET / HTTP/1.1\""]);
        assert_eq!(others.read_count(), Some(1));
        let local = site(&["webdyno/1"], &["127.0.0.1"]);
        assert_eq!(others.missing(&local), None, "the status page is read by us");
        others.begin(&local);
        // A name instead of an address could be anybody's.
        log.add(&[
            "127.0.0.1 503 \"GET / HTTP/1.1\"",
            "192.0.2.7 503 \"GET / HTTP/1.1\"",
            "localhost 503 \"x\"",
        ]);
        assert_eq!(others.read_count(), Some(2));
    }

    #[test]
    fn what_cannot_be_told_is_missing_and_does_not_count() {
        let log = Log::new(false);
        let mut others = log.follow();
        let remote = site(&["webdyno/1"], &[]);
        let why = others.missing(&remote).unwrap().why;
        assert!(why.ends_with("log: it does not tell our own requests from those of others"), "{why}");
        // Somebody else at our address: a proxy on the same machine.
        log.add(&["127.0.0.1 200 \"GET / HTTP/1.1\""]);
        others.read_count();
        let why = others.missing(&site(&[], &["127.0.0.1"])).unwrap().why;
        assert!(why.contains("others come from 127.0.0.1 as the load does"), "{why}");
        others.begin(&remote);
        log.add(&["192.0.2.7 500 \"GET / HTTP/1.1\""]);
        assert_eq!(others.read_count(), Some(0));
    }

    #[test]
    fn without_a_log_the_signal_is_missing() {
        let mut none = OtherClientErrors::of(AccessLogs::default(), None);
        assert_eq!(none.read_count(), None);
        assert_eq!(none.missing(&site(&[], &[])).unwrap().why, "no access log is known");
        let log = Log::new(true);
        let format = log.follow().logs.remove(0).1.format;
        let file = |path: &str| AccessLog { path: path.into(), format: format.clone() };
        let files = vec![file("/dev/null"), file("/no/such/log")];
        let unread = vec!["|/usr/bin/rotatelogs: it is written to a program".to_owned()];
        let others = OtherClientErrors::of(AccessLogs { files, unread }, None);
        assert_eq!(
            others.missing(&site(&[], &[])).unwrap().why,
            "|/usr/bin/rotatelogs: it is written to a program; cannot follow /dev/null: it is a stream; \
             cannot follow /no/such/log: no such file or directory"
        );
    }
}
