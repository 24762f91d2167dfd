//! The requests of a stretch of a log, to be sent again: which ones, in their order, and how many in each second.
//!
//! Order and seconds are those of the log, so that mix, popularity, locality and bursts are those of the site's users, and none of them
//! is a model. What a log does not tell (bodies, cookies) cannot be sent: only GET and HEAD are.

pub mod sessions;
#[cfg(test)]
mod tests;

use crate::entry::Entry;
use crate::redact::without_session;
use std::collections::BTreeMap;
use webdyno_model::duration::duration_text;

/// Seconds whose counts are kept together.
const HOUR_S: i64 = 3600;

/// What of a log is sent again.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only requests for this site, of formats that name it; `None`: all.
    pub host: Option<String>,
    /// With query strings, and the ids of sessions in paths.
    pub keep_query: bool,
}

/// Why a request is not sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// Another method than GET and HEAD: its body is not in the log.
    Method,
    /// It failed: status 400 and more.
    Failed,
    /// For another site.
    Host,
    /// The log has it without a time, or as no URL.
    Unclear,
}

impl LeftOut {
    /// As users read it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Method => "of methods like POST, whose bodies are not in the log",
            Self::Failed => "that failed (status 400 and more)",
            Self::Host => "for other sites",
            Self::Unclear => "without a time, or for no URL",
        }
    }
}

impl Filter {
    /// When a request was made, seconds since 1970, if it is to be sent again.
    pub fn takes(&self, entry: &Entry<'_>) -> Result<i64, LeftOut> {
        let time = entry.time.ok_or(LeftOut::Unclear)?;
        if self.host.as_ref().is_some_and(|host| !is_host(entry.host, host.as_bytes())) {
            return Err(LeftOut::Host);
        }
        if entry.path.first() != Some(&b'/') || !is_sendable(entry.path) || !is_sendable(self.query(entry)) {
            return Err(LeftOut::Unclear);
        }
        if !matches!(entry.method, b"GET" | b"HEAD") {
            return Err(LeftOut::Method);
        }
        if entry.status >= 400 {
            return Err(LeftOut::Failed);
        }
        Ok(time.utc_s)
    }

    fn query<'a>(&self, entry: &Entry<'a>) -> &'a [u8] {
        if self.keep_query { entry.query } else { b"" }
    }

    /// Path and query as they are sent: what no URL may hold is encoded, and what lists of URLs take for a variable.
    pub fn target(&self, entry: &Entry<'_>) -> String {
        let query = self.query(entry);
        let mut target = String::with_capacity(entry.path.len() + query.len() + 1);
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                match byte {
                    b'!'..=b'~' if !matches!(byte, b'$' | b'#' | b'"' | b'<' | b'>') => {
                        target.push(char::from(*byte));
                    }
                    _ => target.push_str(&format!("%{byte:02X}")),
                }
            }
        };
        add(if self.keep_query { entry.path } else { without_session(entry.path) });
        if !query.is_empty() {
            add(b"?");
            add(query);
        }
        target
    }
}

/// A name with its port or without.
fn is_host(logged: &[u8], host: &[u8]) -> bool {
    let name = |text: &[u8]| text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
    logged.eq_ignore_ascii_case(host) || logged[..name(logged)].eq_ignore_ascii_case(host)
}

/// Servers escape what is not printable with a backslash: what was sent is not known then.
fn is_sendable(text: &[u8]) -> bool {
    !text.contains(&b'\\')
}

/// Requests in each second of a log.
#[derive(Debug, Clone, Default)]
pub struct Seconds {
    hours: BTreeMap<i64, Vec<u32>>,
    requests: u64,
}

/// A stretch of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Its first second, since 1970.
    pub from_s: i64,
    /// Seconds.
    pub length_s: u32,
}

impl Stretch {
    /// The second of a time in it, from 0.
    pub fn second(&self, at_s: i64) -> Option<usize> {
        usize::try_from(at_s - self.from_s).ok().filter(|second| *second < self.length_s as usize)
    }
}

impl Seconds {
    /// Counts a request.
    pub fn add(&mut self, at_s: i64) {
        let hour = self.hours.entry(at_s.div_euclid(HOUR_S)).or_insert_with(|| vec![0; HOUR_S as usize]);
        hour[at_s.rem_euclid(HOUR_S) as usize] += 1;
        self.requests += 1;
    }

    /// All requests.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    fn at(&self, at_s: i64) -> u64 {
        let hour = self.hours.get(&at_s.div_euclid(HOUR_S));
        hour.map_or(0, |hour| u64::from(hour[at_s.rem_euclid(HOUR_S) as usize]))
    }

    /// The stretch of so many seconds with the most requests, the earliest of several; all when the log is shorter. `None` of no
    /// request.
    pub fn busiest(&self, length_s: u32) -> Option<Stretch> {
        let filled = |hour: (&i64, &Vec<u32>), second: usize| hour.0 * HOUR_S + second as i64;
        let first = self
            .hours
            .iter()
            .next()
            .and_then(|hour| Some(filled(hour, hour.1.iter().position(|n| *n > 0)?)))?;
        let last = self.hours.iter().next_back();
        let last = last.and_then(|hour| Some(filled(hour, hour.1.iter().rposition(|n| *n > 0)?)))?;
        let span_s = u32::try_from(last - first + 1).unwrap_or(u32::MAX);
        if span_s <= length_s {
            return Some(Stretch { from_s: first, length_s: span_s });
        }
        let length = i64::from(length_s);
        let mut within: u64 = (first..first + length).map(|at_s| self.at(at_s)).sum();
        let (mut best, mut most) = (first, within);
        // Only hours with requests matter: a stretch that ends in none is no better than one that began earlier.
        for hour in self.hours.keys() {
            let from = (hour * HOUR_S).max(first + length);
            within = (from - length..from).map(|at_s| self.at(at_s)).sum();
            for end in from..(hour + 1) * HOUR_S {
                within += self.at(end);
                within -= self.at(end - length);
                if within > most {
                    (best, most) = (end - length + 1, within);
                }
            }
        }
        Some(Stretch { from_s: best, length_s })
    }

    /// The counts of a stretch, second by second.
    pub fn of(&self, stretch: Stretch) -> Vec<u64> {
        (stretch.from_s..stretch.from_s + i64::from(stretch.length_s)).map(|at_s| self.at(at_s)).collect()
    }
}

/// The stages that send so many requests in one second after the other, `speed` times as fast; as `--stage` takes them.
pub fn stages(counts: &[u64], speed: f64) -> Vec<String> {
    let mut stages = vec![];
    let mut at = 0;
    // The ends of stages are rounded, and not their lengths: so that nothing adds up.
    let time_us = |second: usize| (second as f64 * 1e6 / speed).round() as u64;
    while at < counts.len() {
        let alike = counts[at..].iter().take_while(|count| **count == counts[at]).count();
        let us = time_us(at + alike) - time_us(at);
        // A rate by which as many starts fall into the stage as the log has.
        let rate = counts[at] as f64 * alike as f64 / (us as f64 / 1e6);
        stages.push(format!("{}@{rate}/s", duration_text(us)));
        at += alike;
    }
    stages
}
