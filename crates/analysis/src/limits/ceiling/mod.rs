//! Ceilings: limits before they are hit, with the rate at which each will bind. A kind of limit is a file.
//!
//! What a request uses of a limit is known from what all of them use now: a limit of 100 of which a rate of 50 requests/s
//! uses 20 binds at 250 requests/s (Little's law, or the utilisation law). Where use does not grow with the rate, or
//! nobody counts it, the rate is unknown.

use crate::facts::Facts;
use crate::limits::{
    accept_queue_overflow, apache_workers_exhausted, conntrack_full, cpu_saturated, db_connections_exhausted,
    ephemeral_ports_exhausted, memory_exhausted, network_saturated, open_files_exhausted,
    php_fpm_workers_exhausted, time_wait_overflow,
};
use webdyno_model::diagnosis::Ceiling;
use webdyno_model::number::significant;

/// A limit, and the finding that it becomes when it binds.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// As it is shown.
    pub ceiling: Ceiling,
    /// Id of the finding; `None` for one whose overflow alone costs nothing.
    pub finding: Option<&'static str>,
    /// What is used of it without any request, as part of today's use.
    pub idle: f64,
    /// Of a table whose entries stay long after their answer: how it fills.
    pub fills: Option<Fills>,
}

impl Limit {
    /// The rate at which it would bind if it were of this size.
    pub fn binds_at_size(&self, size: f64) -> Option<f64> {
        let before = self.ceiling.max? - self.idle;
        let room = size - self.idle;
        (before > 0.0 && room > 0.0).then(|| self.ceiling.binds_at_rate.map(|rate| rate * room / before))?
    }
}

/// How a table fills whose entries stay for a minute or two after their answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fills {
    /// Entries in it now.
    pub entries: f64,
    /// The most there can be.
    pub max: f64,
}

impl Fills {
    /// Whether another load as long as the one that brought it to what it holds now fills it, if it is at so many times the
    /// rate.
    pub fn is_filled_by(&self, times: f64) -> bool {
        self.max - self.entries <= self.entries * times
    }
}

/// Every kind of limit, in the order in which they are shown.
const ALL: &[fn(&Facts) -> Option<Limit>] = &[
    apache_workers_exhausted::ceiling::limit,
    php_fpm_workers_exhausted::ceiling::limit,
    db_connections_exhausted::ceiling::limit,
    cpu_saturated::ceiling::limit,
    memory_exhausted::ceiling::limit,
    memory_exhausted::ceiling::limit_of_fpm,
    network_saturated::ceiling::limit,
    accept_queue_overflow::ceiling::limit,
    conntrack_full::ceiling::limit,
    time_wait_overflow::ceiling::limit,
    ephemeral_ports_exhausted::ceiling::limit,
    open_files_exhausted::ceiling::limit,
];

/// The limits that can be told from these facts, with their findings.
pub fn limits(facts: &Facts) -> Vec<Limit> {
    ALL.iter().filter_map(|kind| kind(facts)).collect()
}

/// The limits that can be told from these facts.
pub fn ceilings(facts: &Facts) -> Vec<Ceiling> {
    limits(facts).into_iter().map(|limit| limit.ceiling).collect()
}

/// What is known of a limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Known {
    pub(crate) now: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) binds_at_rate: Option<f64>,
    /// Half the width of the 95% interval of that rate, as a share of it.
    pub(crate) error: Option<f64>,
    /// What is used without any request.
    pub(crate) idle: f64,
}

impl Known {
    /// A limit that says something: one whose size and use are both unknown does not.
    pub(crate) fn limit(self, name: &str, source: &str, finding: Option<&'static str>) -> Option<Limit> {
        let interval = |rate: f64, error: f64| {
            [1.0 - error, 1.0 + error].map(|factor| significant((rate * factor).max(0.0), 4))
        };
        let error = self.error.filter(|error| error.is_finite() && *error < 1.0);
        let binds = self.binds_at_rate.filter(|rate| rate.is_finite() && *rate > 0.0);
        (self.now.is_some() || self.max.is_some()).then(|| Limit {
            ceiling: Ceiling {
                limit: name.into(),
                now: self.now.map(|value| significant(value, 4)),
                max: self.max.map(|value| significant(value, 6)),
                binds_at_rate: binds.map(|value| significant(value, 4)),
                binds_at_ci95: binds.zip(error).map(|(rate, error)| interval(rate, error)),
                source: source.into(),
            },
            finding,
            idle: self.idle,
            fills: None,
        })
    }

    /// The same of a table whose entries stay after their answer.
    pub(crate) fn table(self, name: &str, source: &str, finding: Option<&'static str>) -> Option<Limit> {
        let fills = self.now.zip(self.max).map(|(entries, max)| Fills { entries, max });
        self.limit(name, source, finding).map(|limit| Limit { fills, ..limit })
    }
}

/// Good answers per second: of our load, else what the server counted without the readings of its status page.
pub(crate) fn rate(facts: &Facts) -> Option<f64> {
    let counted = || facts.value("server_requests_per_s").map(|all| all - READINGS_PER_S);
    let (rate, least) =
        if facts.loaded { (facts.value("rate"), RATE_MIN) } else { (counted(), RATE_MIN_COUNTED) };
    rate.filter(|rate| *rate >= least)
}

/// The status page is read once a second.
const READINGS_PER_S: f64 = 1.0;
/// Of fewer requests a second nothing can be told.
const RATE_MIN: f64 = 0.5;
/// What the server itself counts holds our own readings, and whoever looks whether it is there.
const RATE_MIN_COUNTED: f64 = 5.0;

/// The error of a quotient of figures with these errors; `None` as long as one is unknown.
pub(crate) fn together(errors: &[Option<f64>]) -> Option<f64> {
    let squares = errors.iter().map(|error| error.map(|error| error * error));
    squares.sum::<Option<f64>>().map(f64::sqrt)
}

/// The rate at which so many are used, if today's rate uses `now`.
pub(crate) fn in_proportion(facts: &Facts, now: f64, max: f64) -> Option<f64> {
    (now > 0.0).then_some(())?;
    Some(rate(facts)? * max / now)
}

/// By how much the readings of requests at work exceed those that are under way. Readings come once a second and may meet
/// the waves of users who keep in step; the load counts its own requests at any time. Requests of others are not in its
/// rate either.
pub(crate) fn beyond_in_flight(facts: &Facts, at_work: f64) -> f64 {
    let in_flight = facts.value("in_flight_mean").filter(|_| facts.loaded);
    in_flight.map_or(0.0, |in_flight| (at_work - in_flight).max(0.0))
}

/// New connections per good answer: those that the server accepted, else those that the load opened.
pub(crate) fn connections_per_answer(facts: &Facts) -> Option<f64> {
    let opened = facts.value("connections_opened_per_s").filter(|_| facts.loaded);
    let accepted = facts.value("new_connections_per_s");
    let per_s = accepted.or(opened).filter(|per_s| *per_s > 0.0)?;
    Some(per_s / rate(facts)?)
}

#[cfg(test)]
mod tests;
