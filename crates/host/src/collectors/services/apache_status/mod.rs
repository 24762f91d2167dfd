//! Apache's own view: the status page in its automatic format (`?auto`).
//!
//! Facts: the documentation of mod_status (<https://httpd.apache.org/docs/2.4/mod/mod_status.html>) and captured
//! output of 2.4.71. Lines are `Name: value`; which ones there are depends on version, MPM and `ExtendedStatus`: 2.4.6
//! tells neither its MPM nor durations. Before 2.4.58 finishing slots (`G`) were counted as busy or not from version
//! to version, so states are counted from the scoreboard here and `BusyWorkers` is not used.
//!
//! Busy is a worker that has a connection or a request: `R W K D C L`. Idle is `_`, an open slot is `.`; a worker that
//! starts (`S`), finishes after a reload (`G`) or is cleaned up (`I`) can take no request and is none of them.
//! A worker that ended behind a lowered limit leaves its `_` there for ever. `IdleWorkers` leaves those of earlier
//! generations out, so where it tells of fewer, so many are idle.
//! The request for the page needs a worker itself: it is one of those that write, and it is counted as an access.
//! When every worker is held the page does not answer, and that is told as the error of the reading. The request
//! then stays where it is, in the accept queue, and the next readings go on waiting for it: a new one each time would
//! fill the queue that is measured. The wait of the page that comes at last is that of any new connection.

use crate::collectors::monotonic_counter::MonotonicCounter;
use crate::collectors::services::scripts::{self, Running};
use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::probes::apache_status::{Scoreboard, ServerStatus, fetch, parse_status};
use crate::visibility::process_view::in_network_of;
use processes::Processes;
use std::time::{Duration, Instant};
use webdyno_model::Result;

mod processes;
mod requests;

/// The longest that a reading may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// After this a request is given up, and the next reading sends a new one.
const GIVE_UP: Duration = Duration::from_secs(60);

const SCRIPTS: &str = "apache_scripts.*.running_count";

/// The collector.
#[derive(Debug, Default)]
pub struct ApacheStatus {
    /// A request that was not answered in the time of a reading.
    pending: Option<fetch::Request>,
    totals: [MonotonicCounter; TOTALS_COUNT],
    /// The life that totals are of: it rises when they begin anew.
    life: u64,
    accesses_before: Option<u64>,
    uptime_s_before: Option<u64>,
    /// Of the event MPM the table of processes is read in every so manieth reading.
    until_table: u32,
    /// Whether there was one.
    has_table: bool,
    /// The same of what workers answer, where PHP runs in them.
    until_requests: u32,
}

impl ApacheStatus {
    /// Goes on with the request that is under way, or sends one, in the network of the service. A page, and how long it took
    /// since it was asked for.
    fn fetch(
        &mut self,
        url: &str,
        service_pid: Option<u32>,
        timeout: Duration,
    ) -> Result<(String, Duration)> {
        let deadline = Instant::now() + timeout;
        let mut request = match self.pending.take().filter(|request| request.url() == url) {
            Some(request) => request,
            None => in_network_of_service(url, service_pid, || fetch::Request::begin(url, timeout))?,
        };
        if let Some(page) = request.wait(deadline)? {
            return Ok((page, request.age()));
        }
        let error = fetch::unanswered(url, request.age());
        self.pending = Some(request).filter(|request| request.age() < GIVE_UP);
        Err(error)
    }
}

/// Readings from one look at the table of processes to the next: it takes a request of its own.
const TABLE_EVERY: u32 = 5;

impl ApacheStatus {
    /// Totals begin anew at a restart, and at a reload by HUP: counters go on then.
    fn rise(&mut self, url: &str, status: &ServerStatus, reading: &mut Reading) {
        let fell = |now: Option<u64>, before| now.zip(before).is_some_and(|(now, before)| now < before);
        // A busy server passes its old count within a second.
        let is_new =
            fell(status.accesses_count, self.accesses_before) || fell(status.uptime_s, self.uptime_s_before);
        self.life += u64::from(is_new);
        self.accesses_before = status.accesses_count.or(self.accesses_before);
        self.uptime_s_before = status.uptime_s.or(self.uptime_s_before);
        for (((name, _), total), rising) in NUMBERS.iter().zip(numbers(status)).zip(&mut self.totals) {
            let value = total.map(|total| rising.update(self.life, total as f64));
            let place = reading.values.iter_mut().find(|(known, _)| known == name);
            if let Some((place, value)) = place.zip(value) {
                place.1 = value;
            }
        }
        reading.push("apache.own_requests_count", fetch::answers_count(url) as f64);
    }

    /// Looks at the table of processes now and then, where there is one and workers are free. What it showed before is
    /// not told again: it may have changed since.
    fn read_processes(&mut self, asked: PageRequest<'_>, status: &ServerStatus, reading: &mut Reading) {
        let has_free = status.scoreboard.is_some_and(|board| board.idle_count > 0);
        if status.processes_count.is_none() {
            self.has_table = false;
            return;
        }
        if self.until_table == 0 && has_free {
            self.until_table = TABLE_EVERY;
            let page = in_network_of_service(asked.url, asked.service_pid, || {
                fetch::get_page(asked.url, "notable", asked.timeout)
            });
            let found = page.ok().and_then(|page| processes::parse(&page));
            self.has_table = found.is_some();
            for ((name, _), value) in PROCESSES.iter().zip(found.map(of_processes).into_iter().flatten()) {
                reading.push(*name, value as f64);
            }
        }
        self.until_table = self.until_table.saturating_sub(1);
        if !self.has_table {
            reading.lacks(
                "apache.processes_not_accepting_count",
                "the status page shows no table of processes",
                "look at it in a browser when workers are free",
            );
        }
    }
}

impl ApacheStatus {
    /// Looks now and then what workers answer.
    fn read_scripts(&mut self, asked: PageRequest<'_>, reading: &mut Reading) {
        if self.until_requests > 0 {
            self.until_requests -= 1;
            return;
        }
        self.until_requests = TABLE_EVERY - 1;
        let page = in_network_of_service(asked.url, asked.service_pid, || {
            fetch::get_page(asked.url, "", asked.timeout)
        });
        let mut running = Running::new();
        for path in requests::paths(&page.unwrap_or_default()).filter(|path| !asked.url.ends_with(path)) {
            scripts::add(None, path, &mut running);
        }
        scripts::push(SCRIPTS, running, reading);
    }
}

/// Whether PHP runs in Apache's workers.
fn has_php(target: &Target) -> bool {
    target.services("apache").any(|service| service.modules.iter().any(|module| module.starts_with("php")))
}

/// What is asked for a page, and how long that may take.
#[derive(Debug, Clone, Copy)]
struct PageRequest<'a> {
    url: &'a str,
    service_pid: Option<u32>,
    timeout: Duration,
}

/// Asks in the network of the service: its page was found there, and here the same address may be another server's.
fn in_network_of_service<T>(
    url: &str,
    service_pid: Option<u32>,
    ask: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let Some(pid) = service_pid else { return ask() };
    in_network_of(pid, ask).unwrap_or_else(|error| {
        let object = format!("the status page {url} in the network namespace of process {pid}");
        Err(webdyno_model::error::io_error("ask for", object, &error))
    })
}

/// Metrics of the table of processes, and what they count, in the order of [`of_processes`].
const PROCESSES: [(&str, &str); 4] = [
    ("apache.processes_not_accepting_count", "$5 == \"no\" && $3 ~ /^no/ {n++} END {print n + 0}"),
    ("apache.processes_capped_count", "$5 == \"no\" && $3 ~ /^no/ && $7 > 0 {n++} END {print n + 0}"),
    ("apache.processes_old_count", "$3 ~ /old gen/ {n++} END {print n + 0}"),
    ("apache.process_connections_max_count", "$4 + 0 > m {m = $4 + 0} END {print m + 0}"),
];

fn of_processes(found: Processes) -> [u64; PROCESSES.len()] {
    [found.not_accepting_count, found.capped_count, found.old_count, found.connections_max_count]
}

/// Metrics and the lines of the page, in the order of [`numbers`].
const NUMBERS: [(&str, &str); 10] = [
    ("apache.accesses_count", "Total Accesses"),
    ("apache.busy_duration_ms", "Total Duration"),
    ("apache.bytes_served_bytes", "Total kBytes"),
    ("apache.config_generation_count", "ParentServerConfigGeneration"),
    ("apache.processes_count", "Processes"),
    ("apache.stopping_count", "Stopping"),
    ("apache.connections_count", "ConnsTotal"),
    ("apache.connections_writing_count", "ConnsAsyncWriting"),
    ("apache.connections_keepalive_count", "ConnsAsyncKeepAlive"),
    ("apache.connections_closing_count", "ConnsAsyncClosing"),
];

/// How many of [`NUMBERS`] are totals.
const TOTALS_COUNT: usize = 3;

fn numbers(status: &ServerStatus) -> [Option<u64>; NUMBERS.len()] {
    [
        status.accesses_count,
        status.busy_duration_ms,
        status.served_bytes,
        status.config_generation,
        status.processes_count,
        status.stopping_count,
        status.connections_count,
        status.connections_writing_count,
        status.connections_keepalive_count,
        status.connections_closing_count,
    ]
}

/// Metrics and the states that they count, in the order of [`states`].
const STATES: [(&str, &str); 13] = [
    ("apache.slots_count", "_SRWKDCLGI.-"),
    ("apache.slots_open_count", "."),
    ("apache.workers_idle_count", IDLE),
    ("apache.workers_busy_count", "RWKDCL"),
    ("apache.workers_starting_count", "S"),
    ("apache.workers_reading_count", "R"),
    ("apache.workers_writing_count", "W"),
    ("apache.workers_keepalive_count", "K"),
    ("apache.workers_dns_count", "D"),
    ("apache.workers_closing_count", "C"),
    ("apache.workers_logging_count", "L"),
    ("apache.workers_finishing_count", "G"),
    ("apache.workers_cleanup_count", "I"),
];

/// The state of idle workers.
const IDLE: &str = "_";

fn states(board: &Scoreboard) -> [u64; STATES.len()] {
    [
        board.slots_count,
        board.open_count,
        board.idle_count,
        board.busy_count(),
        board.starting_count,
        board.reading_count,
        board.writing_count,
        board.keepalive_count,
        board.dns_count,
        board.closing_count,
        board.logging_count,
        board.finishing_count,
        board.cleanup_count,
    ]
}

fn values(status: &ServerStatus) -> Reading {
    let mut reading = Reading::default();
    for ((name, _), number) in NUMBERS.iter().zip(numbers(status)) {
        reading.push_some(*name, number.map(|number| number as f64));
    }
    for ((name, _), count) in status.scoreboard.iter().flat_map(|board| STATES.iter().zip(states(board))) {
        reading.push(*name, count as f64);
    }
    reading.push_some("apache.uptime_s", status.uptime_s.map(|uptime| uptime as f64));
    if status.accesses_count.is_none() {
        reading.problem("the status page gives no totals: `ExtendedStatus` is off");
    }
    reading
}

impl Collector for ApacheStatus {
    fn name(&self) -> &'static str {
        "apache_status"
    }

    fn metrics(&self) -> Vec<Metric> {
        const SOURCE: &str = "mod_status";
        // URL is the status page.
        let line = |key: &str, factor: u32| {
            format!("curl -s 'URL?auto' | awk -F': ' '$1==\"{key}\" {{print $2*{factor}}}'")
        };
        let count = |states: &str| {
            format!("curl -s 'URL?auto' | sed -n 's/^Scoreboard: //p' | tr -cd '{states}' | wc -c")
        };
        let number = |(index, (name, key)): (usize, &(&str, &str))| {
            let reproduce = line(key, if key.ends_with("kBytes") { 1024 } else { 1 });
            if index < TOTALS_COUNT {
                counter(*name, SOURCE, reproduce)
            } else {
                gauge(*name, SOURCE, reproduce)
            }
        };
        let mut metrics: Vec<Metric> = NUMBERS.iter().enumerate().map(number).collect();
        metrics.extend(STATES.iter().map(|(name, states)| {
            let reproduce = if *states == IDLE { line("IdleWorkers", 1) } else { count(states) };
            gauge(*name, SOURCE, reproduce)
        }));
        let wait = "curl -s -o /dev/null -w '%{time_total}\\n' 'URL?auto' | awk '{print $1*1000000}'";
        // Of the rows of the table their cells.
        let table = |program: &str| {
            format!(
                "curl -s 'URL?notable' | grep '^<tr><td>[0-9]' | sed 's/<[^>]*>/;/g; s/;;*/;/g; s/^;//' | awk -F';' '{program}'"
            )
        };
        metrics.extend(PROCESSES.iter().map(|(name, program)| gauge(*name, SOURCE, table(program))));
        let own = "the requests for status pages that are in apache.accesses_count";
        metrics.push(counter("apache.own_requests_count", own, "cat ACCESS_LOGS | grep -c '\"webdyno/'"));
        let script = "curl -s URL | grep -A9 '<b>W</b>' | grep -c ' INSTANCE[? ]'";
        metrics.push(gauge(SCRIPTS, "the requests on the server-status page for people", script));
        metrics.push(gauge("apache.uptime_s", SOURCE, line("ServerUptimeSeconds", 1)));
        metrics.push(gauge("apache.status_wait_us", "the request for the status page", wait));
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        let Some(url) = &target.status_url else {
            return without_page(target);
        };
        let begun = Instant::now();
        let fetched = self.fetch(url, target.service_pid, TIMEOUT);
        let parsed = fetched.and_then(|(page, waited)| Ok((parse_status(url, &page)?, waited)));
        match parsed {
            Ok((status, waited)) => {
                let mut reading = values(&status);
                reading.push("apache.status_wait_us", waited.as_micros() as f64);
                self.rise(url, &status, &mut reading);
                let left = TIMEOUT.saturating_sub(begun.elapsed()).max(TABLE_TIMEOUT_MIN);
                let asked =
                    PageRequest { url, service_pid: target.service_pid, timeout: left.min(TABLE_TIMEOUT) };
                self.read_processes(asked, &status, &mut reading);
                if has_php(target) {
                    self.read_scripts(asked, &mut reading);
                }
                reading
            }
            Err(error) => {
                let mut reading = Reading::failed(error.to_string());
                let (why, how) = match &self.pending {
                    // The same words for as long as it lasts.
                    Some(_) => (
                        format!("the status page {url} does not answer: no worker may be free for it"),
                        "it comes when a worker is free; sockets and processes tell from outside meanwhile"
                            .into(),
                    ),
                    None => (error.message, error.hint.unwrap_or_default()),
                };
                reading.lacks("mod_status", why, how);
                reading
            }
        }
    }
}

/// The longest that the table of processes is waited for, and the least: workers were free a moment ago.
const TABLE_TIMEOUT: Duration = Duration::from_millis(500);
const TABLE_TIMEOUT_MIN: Duration = Duration::from_millis(50);

/// Why there is no page is what the snapshot says.
fn without_page(target: &Target) -> Reading {
    if target.services("apache").next().is_none() {
        let mut reading = Reading::default();
        reading.lacks("apache_status", "no Apache was found", crate::visibility::listeners::NEEDS_RIGHTS);
        return reading;
    }
    let mut reading = Reading::failed("no status page");
    let all = target.services("apache").flat_map(|service| &service.missing);
    reading.missing = all.filter(|missing| missing.signal == "mod_status").cloned().collect();
    reading
}

#[cfg(test)]
mod tests;
