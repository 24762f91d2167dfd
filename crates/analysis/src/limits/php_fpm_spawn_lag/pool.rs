//! A pool of PHP-FPM that starts children while requests wait for one, as its own figures and settings prove it.

use crate::facts::{FactId, Facts};
use crate::resources::{concurrency, php_fpm, setting_source};

/// A queue below this share of what is in flight costs nobody anything.
const QUEUE_FRACTION_MIN: f64 = 0.05;
/// So many children must have been started, and this share of all there were: less is the replacement of a few.
const STARTED_MIN: f64 = 3.0;
const STARTED_FRACTION_MIN: f64 = 0.3;
/// More ended than this share of those that were started: they come and go.
const ENDED_FRACTION_MAX: f64 = 0.25;
/// A queue that is this much shorter at the end has drained.
const DRAINED_FRACTION_MAX: f64 = 0.5;

/// A pool that starts children while requests wait for one.
pub(super) struct SpawningPool<'a> {
    pub(super) name: &'a str,
    /// `pm`.
    pub(super) mode: String,
    pub(super) queue: f64,
    /// What waited in the last reading.
    pub(super) last: Option<f64>,
    pub(super) started: f64,
    pub(super) ended: f64,
    /// Whether a good part of those that were started ended again.
    pub(super) comes_and_goes: bool,
    /// The most children there were at once.
    pub(super) most: f64,
    /// `pm.max_children`.
    pub(super) limit: f64,
}

impl<'a> SpawningPool<'a> {
    pub(super) fn of(facts: &Facts, name: &'a str, queue: f64) -> Option<Self> {
        let of = |fact: FactId| facts.value_of(fact, name);
        let set = |setting: &str| setting_source::pool_setting_source(facts, name, setting);
        let mode = set("pm")?.value.to_string();
        let (limit, most) = (set("pm.max_children")?.number()?, of(FactId::fpm_processes_max)?);
        let (started, ended) = (of(FactId::fpm_children_started)?, of(FactId::fpm_children_ended)?);
        let at_once = concurrency::requests_in_flight(facts);
        let is_noticed = queue >= 1.0 && at_once.is_none_or(|at_once| queue >= QUEUE_FRACTION_MIN * at_once);
        let is_limited = most >= limit
            || php_fpm::reached_bound_of_all(facts, name).is_some()
            || [FactId::fpm_limit_reached, FactId::fpm_limit_logged]
                .into_iter()
                .any(|fact| of(fact).is_some_and(|times| times >= 1.0));
        let spawns = started >= STARTED_MIN.max(STARTED_FRACTION_MIN * most);
        (mode != "static" && is_noticed && spawns && !is_limited).then(|| Self {
            name,
            mode,
            queue,
            last: of(FactId::fpm_queue_last),
            started,
            ended,
            comes_and_goes: ended > ENDED_FRACTION_MAX * started,
            most,
            limit,
        })
    }

    /// Whether hardly anybody waits any more when the children are there.
    pub(super) fn has_drained(&self) -> bool {
        self.last.is_some_and(|last| last <= DRAINED_FRACTION_MAX * self.queue)
    }
}
