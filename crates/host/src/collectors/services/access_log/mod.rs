//! Requests as the access logs of the site tell them: how many, by class of status, how much was sent and how long they took.
//!
//! Facts: <https://httpd.apache.org/docs/2.4/mod/mod_log_config.html>. A line is written when its request has ended.
//! A log counts when its format is known and tells the status (the common, combined and vhost_combined formats, and
//! others with `%s`, of nginx with `$status`); sizes (`%b`, `%B`, `%O`) and times (`%D`, `%T`) count where it has them. Of
//! each part of the site one log is enough: a second one would count its requests twice.
//!
//! A reading is bounded. Where logs grew by more, pieces from all of what was added are read, and what they hold is
//! scaled by size: counters are estimates then, and `access_log.unread_bytes` rises.

use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::logs::followed::{Event, FollowedLogs, LogLocation};
use crate::logs::line::{Line, LineFormat};
use crate::logs::tail::{Part, TailRead};
use crate::services::apache::access_log::line_format;
use crate::services::nginx::log_format;
use crate::services::php_fpm;
use std::collections::BTreeMap;
use webdyno_model::service::{LogFile, LogKind, ServiceSnapshot};

/// What all logs together may be read in one reading: some 2000 lines, which take about half a millisecond.
const READING_BYTES_MAX: u64 = 256 << 10;

/// A request that took longer is a slow one.
const SLOW_US: u64 = 1_000_000;

/// Most logs of which it is told one by one why they are not read.
const REPORTED_COUNT_MAX: usize = 8;

/// The formats that have names everywhere, as Debian, Red Hat and nginx define them.
const NAMED: [(&str, &str); 3] = [
    ("common", r#"%h %l %u %t "%r" %>s %O"#),
    ("combined", r#"%h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i""#),
    ("vhost_combined", r#"%v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i""#),
];

/// The collector.
#[derive(Debug)]
pub struct AccessLog {
    followed: FollowedLogs<Kept>,
    total: Counted,
    written_bytes: u64,
    unread_bytes: u64,
}

impl Default for AccessLog {
    fn default() -> Self {
        let followed = FollowedLogs::of(LogKind::Access);
        Self { followed, total: Counted::default(), written_bytes: 0, unread_bytes: 0 }
    }
}

/// What goes with a log.
#[derive(Debug)]
struct Kept {
    format: Option<LineFormat>,
    /// What the lines of the present look tell.
    counted: Counted,
}

/// Sums over requests; of samples they have fractions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counted {
    requests: f64,
    /// From 1xx to 5xx.
    classes: [f64; 5],
    unparsed: f64,
    sent_bytes: f64,
    sized: f64,
    /// Lines that tell a path, and the parts of all these.
    paths: f64,
    path_parts: f64,
    timed: f64,
    time_us: f64,
    slow: f64,
}

impl Counted {
    fn record_line(&mut self, line: Option<Line<'_>>) {
        let Some(line) = line else {
            self.unparsed += 1.0;
            return;
        };
        self.requests += 1.0;
        let class = line.status.and_then(|status| usize::from(status / 100).checked_sub(1));
        if let Some(count) = class.and_then(|class| self.classes.get_mut(class)) {
            *count += 1.0;
        }
        if let Some(bytes) = line.bytes {
            self.sized += 1.0;
            self.sent_bytes += bytes as f64;
        }
        if let Some(parts) = line.request.and_then(path_parts) {
            self.paths += 1.0;
            self.path_parts += parts as f64;
        }
        if let Some(took_us) = line.took_us {
            self.timed += 1.0;
            self.time_us += took_us as f64;
            self.slow += f64::from(u8::from(took_us > SLOW_US));
        }
    }

    /// Adds others, each standing for `times` as many.
    fn add(&mut self, other: &Self, times: f64) {
        self.requests += other.requests * times;
        for (count, more) in self.classes.iter_mut().zip(other.classes) {
            *count += more * times;
        }
        self.unparsed += other.unparsed * times;
        self.sent_bytes += other.sent_bytes * times;
        self.sized += other.sized * times;
        self.paths += other.paths * times;
        self.path_parts += other.path_parts * times;
        self.timed += other.timed * times;
        self.time_us += other.time_us * times;
        self.slow += other.slow * times;
    }
}

/// How many parts the path of a request has, of a request line (RFC 9112, section 3) or a path alone: `/a/b.html` has two, and
/// so has `/a/`, which asks for a file in it.
fn path_parts(request: &[u8]) -> Option<usize> {
    let mut words = request.split(|byte| *byte == b' ');
    let path = words.find(|word| word.starts_with(b"/"))?;
    let path = path.split(|byte| *byte == b'?').next()?;
    Some(path.iter().filter(|byte| **byte == b'/').count())
}

/// How a log's lines are written, if that is known.
fn format_of(log: &LogFile) -> Option<LineFormat> {
    let message = log.format.as_deref()?;
    let named = NAMED.iter().find(|(name, _)| *name == message).map(|(_, format)| *format);
    let format = named.unwrap_or(message);
    if log_format::is_of_nginx(format) { log_format::line_format(format) } else { line_format(format) }
}

/// Of each part of the site the first log that can be read, or else one that cannot: to say why.
fn choose(logs: &[LogFile]) -> Vec<LogFile> {
    let mut chosen: Vec<(&LogFile, bool)> = vec![];
    let mut places: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for log in logs {
        // Reading formats takes a moment, and a site may have thousands of logs.
        let tells_status = |format: &str| {
            format.contains("%s")
                || format.contains("%>s")
                || log_format::is_of_nginx(format)
                || NAMED.iter().any(|(name, _)| *name == format)
        };
        let is_known = log.format.as_deref().is_some_and(tells_status) || format_of(log).is_some();
        let place = *places.entry(log.scope.as_deref()).or_insert(chosen.len());
        match chosen.get_mut(place) {
            None => chosen.push((log, is_known)),
            Some(found) if is_known && !found.1 => *found = (log, true),
            Some(_) => {}
        }
    }
    chosen.into_iter().map(|(log, _)| log.clone()).collect()
}

fn kept(place: &LogLocation) -> Kept {
    Kept { format: format_of(&place.log), counted: Counted::default() }
}

impl AccessLog {
    fn follow(&mut self, target: &Target) {
        // A request that goes on to a backend stands in the logs of both, and counts once: where it came in.
        let front = target.service.as_deref().filter(|service| has_access_log(service));
        let backends = target.backends.iter().filter(|_| front.is_none());
        let backends = backends.filter(|service| service.service != php_fpm::NAME && has_access_log(service));
        self.followed.follow_services(front.into_iter().chain(backends), choose, |place, _| kept(place));
    }

    fn read_logs(&mut self) -> TailRead {
        let mut all = TailRead::default();
        let total = &mut self.total;
        self.followed.read(READING_BYTES_MAX, Part::Spread, |kept, event| match event {
            Event::Line(line) => {
                if let Some(format) = &kept.format {
                    kept.counted.record_line(format.read(line));
                }
            }
            Event::Read(looked) => {
                total.add(&std::mem::take(&mut kept.counted), times(looked));
                all.add(looked);
            }
        });
        self.written_bytes += all.grown_bytes;
        self.unread_bytes += all.unread_bytes;
        all
    }

    fn push(&self, reading: &mut Reading) {
        let total = &self.total;
        let counts = [
            ("requests_count", total.requests),
            ("status_1xx_count", total.classes[0]),
            ("status_2xx_count", total.classes[1]),
            ("status_3xx_count", total.classes[2]),
            ("status_4xx_count", total.classes[3]),
            ("status_5xx_count", total.classes[4]),
            ("unparsed_count", total.unparsed),
        ];
        // Where no log tells sizes or times there is no sum of them.
        let sized = [("sent_bytes", total.sent_bytes)].into_iter().filter(|_| total.sized > 0.0);
        let timed = [("timed_count", total.timed), ("time_us", total.time_us), ("slow_count", total.slow)];
        let timed = timed.into_iter().filter(|_| total.timed > 0.0);
        let paths = [("paths_count", total.paths), ("path_parts_count", total.path_parts)];
        let paths = paths.into_iter().filter(|_| total.paths > 0.0);
        for (name, value) in counts.into_iter().chain(sized).chain(paths).chain(timed) {
            reading.push(format!("access_log.{name}"), value.round());
        }
        reading.push("access_log.written_bytes", self.written_bytes as f64);
        reading.push("access_log.unread_bytes", self.unread_bytes as f64);
        reading.push("access_log.logs_count", self.followed.open_count() as f64);
    }

    /// Which logs are not counted although they can be read.
    fn report_formats(&self, reading: &mut Reading) {
        const HOW: &str = "let the log have a format with the status, such as combined: in nginx `access_log PATH;`, in Apache \
                           CustomLog PATH \"%h %l %u %t \\\"%r\\\" %>s %O \\\"%{Referer}i\\\" \\\"%{User-Agent}i\\\" %D\"";
        let unknown = self.followed.logs().filter(|one| one.with.format.is_none());
        for one in unknown.take(REPORTED_COUNT_MAX) {
            let why = format!("{}: webdyno cannot read the status from its format", one.place.path.display());
            reading.lacks("access_log", why, HOW);
        }
        let has_times = |one: &crate::logs::followed::FollowedLog<Kept>| {
            one.with.format.as_ref().is_some_and(LineFormat::has_times)
        };
        if self.followed.open_count() > 0 && !self.followed.logs().any(has_times) {
            let why = "no access log tells how long requests took";
            reading.lacks(
                "access_log.time_us",
                why,
                "add %D (Apache) or $request_time (nginx) to its format",
            );
        }
    }
}

fn has_access_log(service: &ServiceSnapshot) -> bool {
    service.service == "apache" || service.logs.iter().any(|log| log.kind == LogKind::Access)
}

/// For how many lines each line stands that was read.
fn times(looked: TailRead) -> f64 {
    match looked.unread_bytes {
        0 => 1.0,
        _ => looked.grown_bytes as f64 / looked.lines_bytes.max(1) as f64,
    }
}

impl Collector for AccessLog {
    fn name(&self) -> &'static str {
        "access_log"
    }

    fn metrics(&self) -> Vec<Metric> {
        const SOURCE: &str = "the access logs of the site";
        // ACCESS_LOGS are their paths. By hand the whole logs are counted: differences are the same.
        let class = |class: u32| {
            let command = format!("cat ACCESS_LOGS | grep -cE '\" {class}[0-9][0-9] '");
            counter(format!("access_log.status_{class}xx_count"), SOURCE, command)
        };
        // Of a format like combined, with %D at its end.
        let last = |sum: &str| format!("cat ACCESS_LOGS | awk '{sum} END {{printf \"%d\\n\", s}}'");
        let sent =
            "cat ACCESS_LOGS | awk -F'\"' '{split($3, f, \" \"); s += f[2]} END {printf \"%d\\n\", s}'";
        let parts = "cat ACCESS_LOGS | grep -oE '\"[A-Z]+ /[^ ?]*' | tr -cd / | wc -c";
        let mut metrics: Vec<Metric> = (1..=5).map(class).collect();
        metrics.extend([
            counter("access_log.requests_count", SOURCE, "cat ACCESS_LOGS | grep -cE '\" [0-9]{3} '"),
            counter("access_log.unparsed_count", SOURCE, "cat ACCESS_LOGS | grep -cvE '\" [0-9]{3} '"),
            counter("access_log.sent_bytes", SOURCE, sent),
            counter("access_log.paths_count", SOURCE, "cat ACCESS_LOGS | grep -cE '\"[A-Z]+ /'"),
            counter("access_log.path_parts_count", SOURCE, parts),
            counter("access_log.timed_count", SOURCE, last("$NF ~ /^[0-9]+$/ {s++}")),
            counter("access_log.time_us", SOURCE, last("{s += $NF}")),
            counter("access_log.slow_count", SOURCE, last(&format!("$NF > {SLOW_US} {{s++}}"))),
            counter("access_log.written_bytes", SOURCE, "cat ACCESS_LOGS | wc -c"),
            // Of what a command reads at once nothing has to be estimated.
            counter("access_log.unread_bytes", "what of the access logs was estimated by size", "echo 0"),
            gauge("access_log.logs_count", SOURCE, "ls ACCESS_LOGS | wc -l"),
        ]);
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        self.follow(target);
        let looked = self.read_logs();
        if target.service.is_none() && target.backends.is_empty() {
            return reading;
        }
        reading.missing.extend(self.followed.missing("access_log", "no access log of the site is known"));
        self.report_formats(&mut reading);
        if self.followed.logs().any(|one| one.with.format.is_some() && one.is_open()) {
            self.push(&mut reading);
        }
        if looked.is_cut {
            reading.problem("an access log was cut: what was written to it just before may not be counted");
        }
        if looked.is_gone {
            reading.problem("an access log has no name any more: what is still written to it is read");
        }
        if looked.is_refused {
            reading.problem("an access log was replaced by something that cannot be read");
        }
        reading
    }
}

#[cfg(test)]
mod tests;
