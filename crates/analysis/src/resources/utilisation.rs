//! How use grows with the rate: Little's law and the utilisation law.

use crate::facts::{FactId, Facts};

/// Good answers per second: of our load, else what the server counted without the readings of its status page.
pub(crate) fn rate(facts: &Facts) -> Option<f64> {
    let counted = || facts.value(FactId::server_requests_per_s).map(|all| all - READINGS_PER_S);
    let (rate, least) =
        if facts.loaded { (facts.value(FactId::rate), RATE_MIN) } else { (counted(), RATE_MIN_COUNTED) };
    rate.filter(|rate| *rate >= least)
}

/// The status page is read once a second.
const READINGS_PER_S: f64 = 1.0;
/// Of fewer requests a second nothing can be told.
const RATE_MIN: f64 = 0.5;
/// What the server itself counts holds our own readings, and whoever looks whether it is there.
const RATE_MIN_COUNTED: f64 = 5.0;

/// The error of a quotient of figures with these errors; `None` as long as one is unknown.
pub(crate) fn combined_error(errors: &[Option<f64>]) -> Option<f64> {
    let squares = errors.iter().map(|error| error.map(|error| error * error));
    squares.sum::<Option<f64>>().map(f64::sqrt)
}

/// The rate at which so many are used, if today's rate uses `now`.
pub(crate) fn saturation_rate(facts: &Facts, now: f64, max: f64) -> Option<f64> {
    (now > 0.0).then_some(())?;
    Some(rate(facts)? * max / now)
}

/// By how much the readings of requests at work exceed those that are under way. Readings come once a second and may meet
/// the waves of users who keep in step; the load counts its own requests at any time. Requests of others are not in its
/// rate either.
pub(crate) fn beyond_in_flight(facts: &Facts, at_work: f64) -> f64 {
    let in_flight = facts.value(FactId::in_flight_mean).filter(|_| facts.loaded);
    in_flight.map_or(0.0, |in_flight| (at_work - in_flight).max(0.0))
}

/// New connections per good answer: those that the server accepted, else those that the load opened.
pub(crate) fn connections_per_answer(facts: &Facts) -> Option<f64> {
    let opened = facts.value(FactId::connections_opened_per_s).filter(|_| facts.loaded);
    let accepted = facts.value(FactId::new_connections_per_s);
    let per_s = accepted.or(opened).filter(|per_s| *per_s > 0.0)?;
    Some(per_s / rate(facts)?)
}
