//! A pool of PHP-FPM that is full, as its own figures or those of its socket prove it.

use crate::facts::{FactId, Facts};
use crate::resources::{concurrency, php_fpm, setting_source};
use crate::wording::format_number;

/// A queue below this share of what is in flight costs nobody anything.
const QUEUE_FRACTION_MIN: f64 = 0.05;
/// The limit must be seen in at least this share of the samples: a burst is over in a second.
const OBSERVED_FRACTION_MIN: f64 = 0.5;
/// So many of a pool's processes are at work where all are: one is between two requests at times.
const ACTIVE_FRACTION_MIN: f64 = 0.9;
/// A pool that still grows has not reached its limit. It may end an idle process now and then.
const QUEUED_FRACTION_MIN: f64 = 0.5;

const CONFIDENCE_OF_SOCKET: f64 = 0.75;
const CONFIDENCE_OF_SOCKET_ALONE: f64 = 0.5;

/// A pool that is full.
pub(crate) struct FullPool<'a> {
    pub(crate) name: &'a str,
    /// The pool of its settings: that of this name, or the one that listens at this address.
    pub(crate) set_as: String,
    pub(crate) queue: f64,
    /// `None` where nobody could count them.
    pub(crate) processes: Option<f64>,
    /// `pm.max_children`, where it is known.
    pub(crate) limit: Option<f64>,
    /// `process.max`, where that is what lets the pool have no more.
    pub(crate) limit_of_all: Option<f64>,
    pub(crate) confidence: f64,
    pub(crate) is_reported: bool,
    /// Whether its name is where it listens, as nobody saw more of it.
    pub(crate) is_address: bool,
}

impl<'a> FullPool<'a> {
    pub(crate) fn of_pool(facts: &Facts, name: &'a str, queue: f64) -> Option<Self> {
        let of = |fact: FactId| facts.value_of(fact, name);
        let at_once = concurrency::requests_in_flight(facts);
        let is_noticed = at_once.is_none_or(|at_once| queue >= QUEUE_FRACTION_MIN * at_once);
        let waits = of(FactId::fpm_waiting_fraction).is_none_or(|share| share >= OBSERVED_FRACTION_MIN);
        if !(queue >= 1.0 && is_noticed && waits || php_fpm::is_full_behind_errors(facts, name)) {
            return None;
        }
        let processes = of(FactId::fpm_processes_max);
        let limit = limit_of(facts, name);
        let reported = [FactId::fpm_limit_reached, FactId::fpm_limit_logged]
            .into_iter()
            .any(|fact| of(fact).is_some_and(|times| times >= 1.0));
        let at_limit = processes.zip(limit).map(|(processes, limit)| processes >= limit);
        let holds = of(FactId::fpm_at_most_fraction).map(|share| share >= QUEUED_FRACTION_MIN);
        let limit_of_all = php_fpm::reached_bound_of_all(facts, name)
            .filter(|_| at_limit == Some(false) && holds != Some(false));
        if !reported && limit_of_all.is_none() && at_limit.or(holds) == Some(false) {
            return None;
        }
        // A status page is only answered by a process that has come free: it tells of the others that they were not.
        let active = of(FactId::fpm_active_mean).zip(of(FactId::fpm_processes_mean));
        let active = active.map(|(active, all)| active >= ACTIVE_FRACTION_MIN * all);
        let is_busy = of(FactId::fpm_full_fraction).map(|share| share >= OBSERVED_FRACTION_MIN).or(active);
        let confidence = match is_busy {
            Some(true) => 0.95,
            None if reported || limit_of_all.is_some() || at_limit == Some(true) => 0.8,
            _ => 0.7,
        };
        let (processes, set_as) = (processes.or(limit), name.to_owned());
        Some(Self {
            name,
            set_as,
            queue,
            processes,
            limit,
            limit_of_all,
            confidence,
            is_reported: reported,
            is_address: false,
        })
    }

    /// The view from outside where the pools could not be read: what waits at a socket to which the server hands requests
    /// over in FastCGI. A free process would have taken it.
    pub(crate) fn of_socket_queue(facts: &'a Facts) -> Option<Self> {
        if facts.each(FactId::fpm_queue_mean).next().is_some() {
            return None;
        }
        let queues = facts.each(FactId::backend_queue_mean);
        let queues = queues.filter(|(at, _)| concurrency::is_fastcgi_target(facts, at));
        let (name, queue) = queues.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let at_once = concurrency::requests_in_flight(facts);
        let is_noticed = at_once.is_none_or(|at_once| queue >= QUEUE_FRACTION_MIN * at_once);
        // One of them only leads the others.
        let processes =
            facts.value(FactId::fpm_program_processes).map(|all| all - 1.0).filter(|all| *all >= 1.0);
        let pool = setting_source::pool_at(facts, name);
        let limit = pool.as_ref().and_then(|pool| limit_of(facts, pool));
        let (processes, set_as) = (limit.or(processes), pool.unwrap_or_default());
        // More children may be allowed, and just not be started yet.
        let confidence = if limit.is_some() { CONFIDENCE_OF_SOCKET } else { CONFIDENCE_OF_SOCKET_ALONE };
        let found = Self {
            name,
            set_as,
            queue,
            processes,
            limit,
            limit_of_all: None,
            confidence,
            is_reported: false,
            is_address: true,
        };
        (queue >= 1.0 && is_noticed && concurrency::has_lasting_queue(facts, name)).then_some(found)
    }

    pub(crate) fn to_text(&self) -> String {
        let all = match (self.limit, self.processes) {
            (_, Some(processes)) if self.limit_of_all.is_some() => format!(
                "All {} PHP-FPM children busy, and all pools together may have no more ({} {}),",
                format_number(processes),
                php_fpm::OF_ALL_SETTING,
                format_number(self.limit_of_all.unwrap_or(processes))
            ),
            (Some(limit), _) => {
                format!("All {} PHP-FPM children (pm.max_children) busy", format_number(limit))
            }
            (None, Some(observed)) if !self.is_address => {
                format!("All {} PHP-FPM children busy, no more are started,", format_number(observed))
            }
            (None, _) => "All PHP-FPM children busy".to_owned(),
        };
        format!("{all}{}", if self.is_reported { " (logged)" } else { "" })
    }

    /// By Little's law what stands in the queue is the share of the time that is spent there.
    pub(crate) fn explains(&self, facts: &Facts) -> Option<f64> {
        concurrency::requests_in_flight(facts).map(|at_once| (self.queue / at_once).min(1.0))
    }
}

/// How many processes a pool may have, as its files say.
fn limit_of(facts: &Facts, pool: &str) -> Option<f64> {
    setting_source::pool_setting_source(facts, pool, "pm.max_children")?.number()
}
