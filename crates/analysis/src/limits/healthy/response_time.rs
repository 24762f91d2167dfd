//! Whether clients waited: response times against quick ones of their kind, the first ones of the load, and one that is alone.

use crate::facts::{FactId, Facts};
use crate::resources::time_breakdown::{breakdown, keeps_up};

const FAILED_FRACTION_MAX: f64 = 0.001;
/// A packet that opens a connection is sent again after one second: a connection that took nearly as long was lost at first.
pub(crate) const CONNECT_US_MAX: f64 = 900_000.0;
/// Responses that take this many times as long as the quickest tenth of their kind waited for something.
const INFLATION_MAX: f64 = 2.0;
/// Unless it is by less than this on average: a file that takes 60 us takes three times as long when the scheduler is
/// late once, and nobody notices.
pub(super) const EXCESS_US_MAX: f64 = 5_000.0;
/// Under load, responses that take this many times as long as one that is alone wait for others, unless it is by less than
/// this: what is in flight shares processors and caches.
const ALONE_INFLATION_MAX: f64 = 3.0;
const ALONE_EXCESS_US_MAX: f64 = 20_000.0;
/// The same where users set the pace and processors are busy for no more than half of the time: by arithmetic on two cores
/// that makes a request take a third longer.
const IDLE_BUSY_MAX: f64 = 0.5;
const ALONE_INFLATION_IDLE_MAX: f64 = 1.6;
const ALONE_EXCESS_IDLE_US_MAX: f64 = 15_000.0;
/// The same of users who ask again at once: they keep something busy all the time, and it is not the processors.
const ALONE_INFLATION_AT_ONCE_MAX: f64 = 2.5;
const ALONE_EXCESS_AT_ONCE_US_MAX: f64 = 3_000.0;
const AT_ONCE_FRACTION_MIN: f64 = 0.8;
/// From here on it is not known that nothing waits, as little as it may be.
const NOTICED_INFLATION_MIN: f64 = 1.3;
const NOTICED_EXCESS_US_MIN: f64 = 10_000.0;
/// So much of the time from one request of a user to the next nobody misses.
const LOST_FRACTION_MAX: f64 = 0.01;
/// The same of users who come together, as they were answered together: processors that idle for two thirds of the time are waited for
/// in most of the rest (at random arrivals that would be in a third of it). No user waits for longer than somebody does.
const TOGETHER_LOST_FRACTION_MAX: f64 = 0.05;
const TOGETHER_BUSY_MAX: f64 = 1.0 / 3.0;
const TOGETHER_WAIT_OF_BUSY_MIN: f64 = 0.7;
/// The slowest in a hundred take so many times as long as the slowest request that is alone, and so much more.
const TAIL_INFLATION_MAX: f64 = 5.0;
const TAIL_EXCESS_US_MAX: f64 = 300_000.0;
/// Without a request that was alone, this part of a response time of at least so much has to be in some known place.
const UNEXPLAINED_FRACTION_MAX: f64 = 0.5;
const UNEXPLAINED_US_MIN: f64 = 150_000.0;
/// Means of some five seconds of independent answers differ by more than this once in a hundred times.
const DRIFT_RATIO_MAX: f64 = 3.0;

/// Whether clients got what they asked for without having waited.
pub(super) fn responds_well(facts: &Facts) -> bool {
    let first = facts.value(FactId::response_time_first_us).zip(facts.value(FactId::response_time_mean_us));
    let queued =
        first.is_some_and(|(first, usual)| usual > INFLATION_MAX * first && usual - first > EXCESS_US_MAX);
    is_below(facts, FactId::failed_fraction, FAILED_FRACTION_MAX)
        && is_below(facts, FactId::connect_time_max_us, CONNECT_US_MAX)
        && is_below(facts, FactId::connect_timeouts, 0.0)
        && (is_below(facts, FactId::response_time_inflation, INFLATION_MAX)
            || facts.value(FactId::response_time_excess_us).is_some_and(|excess| excess < EXCESS_US_MAX)
            || varies_without_queueing(facts)
            || costs_users_nothing(facts)
            || come_together(facts))
        && !queued
        && (slower_than_alone(facts).is_none() || come_together(facts))
        && tail_slower_than_alone(facts).is_none()
        && keeps_up(facts) != Some(false)
}

/// Whether nothing is answered at all, although something is asked for.
pub(super) fn has_no_responses(facts: &Facts) -> bool {
    let requested =
        facts.loaded || facts.value(FactId::in_flight_mean).is_some_and(|in_flight| in_flight >= 1.0);
    requested && facts.value(FactId::rate).is_some() && facts.ended_per_s().is_none()
}

/// Whether it is known where the time goes, or responses take as long as one that is alone: else nobody knows whether they waited.
pub(super) fn is_explained(facts: &Facts) -> bool {
    if !facts.loaded {
        return true;
    }
    if let Some(alone) = facts.value(FactId::response_time_alone_us) {
        return !is_noticed(facts, alone);
    }
    let usual = facts.value(FactId::response_time_mean_us).filter(|usual| *usual >= UNEXPLAINED_US_MIN);
    let unexplained = breakdown(facts).unexplained;
    !usual.zip(unexplained).is_some_and(|(usual, part)| part >= UNEXPLAINED_FRACTION_MAX * usual)
}

/// Whether users who ask again at once wait somewhere, and processors that idle for most of the time are not where.
fn is_noticed(facts: &Facts, alone: f64) -> bool {
    let usual = facts.value(FactId::response_time_mean_us).zip(between_us(facts));
    let at_once = usual.filter(|(usual, us)| *usual >= AT_ONCE_FRACTION_MIN * us);
    busy(facts).is_some_and(|busy| busy <= TOGETHER_BUSY_MAX)
        && at_once.is_some_and(|(usual, _)| {
            usual >= NOTICED_INFLATION_MIN * alone && usual - alone >= NOTICED_EXCESS_US_MIN
        })
}

/// How long a request takes alone and on average under load, in microseconds, where the second is much longer: then requests
/// wait for each other, whether or not it is seen where. Where processors are half idle nothing is shared that would make
/// them wait a little. The one that is alone is the slowest of several kinds; so is the average.
pub(crate) fn slower_than_alone(facts: &Facts) -> Option<(f64, f64)> {
    let alone = facts.value(FactId::response_time_alone_us)?;
    let slowest = facts.value(FactId::response_time_slowest_kind_us).unwrap_or(0.0);
    let usual = facts.value(FactId::response_time_mean_us)?.max(slowest);
    let is_idle = busy(facts).is_some_and(|busy| busy <= IDLE_BUSY_MAX) && keeps_up(facts) != Some(true);
    let most_us = match is_idle {
        true if between_us(facts).is_some_and(|us| usual >= AT_ONCE_FRACTION_MIN * us) => {
            let at_once_us = ALONE_INFLATION_AT_ONCE_MAX * alone + ALONE_EXCESS_AT_ONCE_US_MAX;
            at_once_us.min(ALONE_INFLATION_IDLE_MAX * alone + ALONE_EXCESS_IDLE_US_MAX)
        }
        true => ALONE_INFLATION_IDLE_MAX * alone + ALONE_EXCESS_IDLE_US_MAX,
        false => ALONE_INFLATION_MAX * alone + ALONE_EXCESS_US_MAX,
    };
    (usual > most_us).then_some((alone, usual))
}

/// From one request of a user to the next, on average, in microseconds.
fn between_us(facts: &Facts) -> Option<f64> {
    facts.value(FactId::users).zip(facts.ended_per_s()).map(|(users, per_s)| users / per_s * 1e6)
}

/// The same of the slow end of the responses: where several kinds of requests take turns the mean of all shows little of those that
/// wait. By nature (exponential times) the slowest in a hundred take five times as long as the mean of their kind.
pub(crate) fn tail_slower_than_alone(facts: &Facts) -> Option<(f64, f64)> {
    let times = facts.value(FactId::response_time_alone_us).zip(facts.value(FactId::response_time_p99_us));
    times.filter(|(alone, slow)| *slow > TAIL_INFLATION_MAX * alone + TAIL_EXCESS_US_MAX)
}

/// Whether answers at a rate that is kept take differently long by themselves: no second's are slower than another's, as they
/// are where requests queue.
fn varies_without_queueing(facts: &Facts) -> bool {
    keeps_up(facts) == Some(true)
        && facts.value(FactId::response_time_drift_ratio).is_some_and(|ratio| ratio <= DRIFT_RATIO_MAX)
}

/// Whether what users wait longer than alone is a hundredth of the time from one request to the next, as they think in between, and
/// processors are half idle: nothing is lost by it.
fn costs_users_nothing(facts: &Facts) -> bool {
    busy(facts).is_some_and(|busy| busy <= IDLE_BUSY_MAX)
        && loss(facts).is_some_and(|(us, share)| share <= LOST_FRACTION_MAX && us <= ALONE_EXCESS_IDLE_US_MAX)
}

/// Whether users who think in between wait for processors only because they come together, and lose little by it.
fn come_together(facts: &Facts) -> bool {
    let waits = facts.value(FactId::pressure_group_cpu_some_fraction);
    busy(facts).zip(waits).is_some_and(|(busy, waits)| {
        busy <= TOGETHER_BUSY_MAX
            && waits >= TOGETHER_WAIT_OF_BUSY_MIN * busy
            && loss(facts).is_some_and(|(_, share)| share <= TOGETHER_LOST_FRACTION_MAX.min(waits))
    })
}

/// What users wait longer than alone on average, of several kinds of requests for the slowest, in microseconds, and its share of the time
/// from one request to the next.
fn loss(facts: &Facts) -> Option<(f64, f64)> {
    let slowest_us = facts.value(FactId::response_time_slowest_kind_us).unwrap_or(0.0);
    let usual_us = facts.value(FactId::response_time_mean_us)?.max(slowest_us);
    let us = usual_us - facts.value(FactId::response_time_alone_us)?;
    Some((us, us / between_us(facts)?))
}

fn busy(facts: &Facts) -> Option<f64> {
    facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction))
}

/// Whether it is no more than this, as far as that is known.
pub(super) fn is_below(facts: &Facts, name: FactId, max: f64) -> bool {
    facts.value(name).is_none_or(|value| value <= max)
}
