//! What is expected when a finding is lifted, where its rule does not say it: as much as is asked for, up to the next limit.
//!
//! Little's law: users who think for Z and are answered within R ask for users / (Z + R) a second. R is what is left of the
//! response time when nobody waits for what is lifted. At a rate that clients decide, that rate is what is asked for.

use crate::diagnosis::{next_limit, prediction};
use crate::facts::{FactId, Facts};
use crate::limits::{LimitGain, LimitId, by_id};
use crate::resources::processors;
use crate::resources::time_breakdown::accept_queue_wait_us;
use webdyno_model::change::SettingChange;
use webdyno_model::diagnosis::{Finding, Predicted};
use webdyno_model::number::significant;

/// What is known of the time that is left: it is a mean, and the next one may differ.
const ERROR: f64 = 0.15;
/// A next limit is a computation on a figure that is computed.
const ERROR_NEXT: f64 = 0.2;
/// From this share of failures on, what workers hold for all of them says nothing of the good ones: failures are fast.
const FAILED_FRACTION_MAX: f64 = 0.02;
/// From this use on processors are full, and from this share of it on others have much of them.
const BUSY_FRACTION_MIN: f64 = 0.9;
const OTHERS_FRACTION_MIN: f64 = 0.25;
/// Where the wait is all of it but for what readings tell, less is left than they can tell.
const LEAST_US: f64 = 1.0;
/// At least this share of what is missing should show when a cost goes.
const GAINED_FRACTION: [f64; 2] = [0.5, 0.9];

/// Completes the best remedy of the first finding: with what is expected where nothing is, and never past the next limit.
pub(crate) fn complete_remedy(facts: &Facts, finding: &mut Finding) {
    let (id, explained) = (finding.id.clone(), finding.explains_fraction);
    for remedy in &mut finding.remedies {
        // Sizes of pools have one model here and for `webdyno predict`; what a rule expects stands where that does not tell.
        let modelled = prediction::of_changes(facts, &remedy.setting_changes());
        remedy.predicted = modelled.or(remedy.predicted.take());
    }
    let Some(remedy) = finding.remedies.first_mut() else { return };
    let changes = remedy.setting_changes();
    let bounded = |predicted| bounded_by_next_limit(facts, (&id, &changes), predicted);
    let predicted = match remedy.predicted.take() {
        Some(predicted) => Some(bounded(predicted)),
        None => of(facts, (&id, explained), &changes),
    };
    remedy.predicted = predicted.map(|predicted| widened(facts, predicted));
}

/// What is expected when a finding of this id is lifted, which explains this share of the response time; `None` where arithmetic does
/// not tell.
fn of(facts: &Facts, (id, explained): (&str, Option<f64>), changes: &[SettingChange]) -> Option<Predicted> {
    let rate = facts.value(FactId::rate).filter(|_| facts.loaded)?;
    let gain = by_id(id)?.gain?;
    let offered = facts.value(FactId::offered_rate);
    if let Some(offered) = offered.filter(|offered| *offered > rate && gain == LimitGain::Cost) {
        let [least, likely] = GAINED_FRACTION.map(|share| significant(rate + share * (offered - rate), 3));
        return Some(Predicted { rate: likely, ci95: [least, significant(offered, 3)] });
    }
    (gain != LimitGain::Cost).then_some(())?;
    let requested = offered.or_else(|| rate_by_users(facts, gain, explained))?;
    let most = offered.unwrap_or(f64::INFINITY);
    let at = |error: f64| significant((requested * (1.0 + error)).min(most), 3);
    let reported = Predicted { rate: at(0.0), ci95: [at(-ERROR), at(ERROR)] };
    let (unbounded, is_explained) =
        (reported.rate, matches!(gain, LimitGain::Explained | LimitGain::ExplainedOfEach));
    let reported = bounded_by_next_limit(facts, (id, changes), reported);
    let is_doubtful = is_explained && reported.rate < unbounded && are_others_filling(facts);
    Some(reported).filter(|reported| reported.rate > rate && !is_doubtful)
}

/// What users ask for when nobody waits for what is lifted.
fn rate_by_users(facts: &Facts, gain: LimitGain, explained: Option<f64>) -> Option<f64> {
    let (users, in_flight) = (facts.value(FactId::users)?, facts.value(FactId::in_flight_mean)?);
    // Who has several requests at once asks in another way, and a page that fails is left without its parts.
    let fails = facts.value(FactId::pages_failed_per_s).is_some_and(|failed| failed > 0.0);
    (!fails).then_some(())?;
    let thinking = Some(users - in_flight).filter(|thinking| *thinking >= -0.02 * users - 1.0)?.max(0.0);
    let think_us = thinking / facts.ended_per_s()? * 1e6;
    let remaining_us = match gain {
        LimitGain::Explained | LimitGain::ExplainedOfEach => {
            unexplained_response_time_us(facts, gain, explained)
        }
        _ => remaining_response_time_us(facts, gain),
    };
    Some(users * 1e6 / (think_us + remaining_us?))
}

/// What is left of the response time: the least of what is known of it, as each may hold something else that queued. The
/// fast tenth of the answers; what lies between the request and the answer; and what workers hold.
fn remaining_response_time_us(facts: &Facts, gain: LimitGain) -> Option<f64> {
    let mean = facts.value(FactId::response_time_mean_us)?;
    let quick = facts.value(FactId::response_time_excess_us).map(|excess| (mean - excess).max(LEAST_US));
    let served = facts.value(FactId::service_time_mean_us).zip(accept_queue_wait_us(facts));
    let served = served.map(|(served, waits)| (served - waits).max(LEAST_US));
    let few_failed = facts.value(FactId::failed_fraction).is_none_or(|failed| failed <= FAILED_FRACTION_MAX);
    let held =
        facts.value(FactId::worker_time_mean_us).filter(|_| few_failed && gain != LimitGain::SlowClients);
    [quick, served, held].into_iter().flatten().filter(|us| *us > 0.0).reduce(f64::min)
}

/// What is left of the response time without the part that the finding explains; for what others make a request wait for, no less than
/// one takes that is alone. Where many fail, it is their part that is explained, and the mean is that of the others.
fn unexplained_response_time_us(facts: &Facts, gain: LimitGain, explained: Option<f64>) -> Option<f64> {
    let alone = facts.value(FactId::response_time_alone_us);
    let least = if gain == LimitGain::Explained { alone? } else { LEAST_US };
    let few_failed = facts.value(FactId::failed_fraction).is_none_or(|failed| failed <= FAILED_FRACTION_MAX);
    let share = explained.filter(|_| few_failed).unwrap_or(0.0);
    Some((facts.value(FactId::response_time_mean_us)? * (1.0 - share)).max(least))
}

/// Whether others use much of processors that are full: how much of them they leave to a server that needs more is not known, where that
/// is what bounds it.
fn are_others_filling(facts: &Facts) -> bool {
    let busy = facts.value(FactId::cpu_busy_fraction).filter(|busy| *busy >= BUSY_FRACTION_MIN);
    let busy = busy.zip(facts.value(FactId::cores)).map(|(busy, cores)| busy * cores);
    let client = facts.value(FactId::client_cpu_cores).unwrap_or(0.0);
    busy.zip(processors::services_cores(facts))
        .is_some_and(|(busy, own)| busy - own - client >= OTHERS_FRACTION_MIN * busy)
}

/// No more than what binds next, where that is known and more than today's rate. A table of connections binds only after
/// minutes.
fn bounded_by_next_limit(
    facts: &Facts,
    (id, changes): (&str, &[SettingChange]),
    predicted: Predicted,
) -> Predicted {
    let rate = facts.value(FactId::rate).unwrap_or(0.0);
    let next = next_limit::after(facts, id, changes).filter(|next| next.id != LimitId::ConntrackFull);
    let next = next.and_then(|next| next.rate).filter(|next| *next < predicted.rate && *next > rate);
    let Some(next) = next else { return predicted };
    // No more comes than is asked for.
    let most = facts.value(FactId::offered_rate).filter(|most| *most >= next).unwrap_or(f64::INFINITY);
    let bound = |sign: f64| significant((next * (1.0 + sign * ERROR_NEXT)).min(most), 3);
    Predicted { rate: significant(next, 3), ci95: [bound(-1.0), bound(1.0)] }
}

/// The interval for what lies beyond twice of what was seen: what a request costs there, and what queues then, nobody saw. Each
/// further doubling adds the error once more, down to today's rate and up to what is asked for.
fn widened(facts: &Facts, predicted: Predicted) -> Predicted {
    let Some(now) = facts.value(FactId::rate).filter(|now| *now > 0.0) else { return predicted };
    let doublings = (predicted.rate / now).log2();
    if doublings <= 1.0 {
        return predicted;
    }
    let most = facts.value(FactId::offered_rate).unwrap_or(f64::INFINITY).max(predicted.rate);
    let at = |bound: f64| predicted.rate + doublings * (bound - predicted.rate);
    let [least, largest] = predicted.ci95;
    let ci95 = [at(least).max(now), at(largest).min(most)].map(|bound| significant(bound, 3));
    Predicted { ci95, ..predicted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};
    use webdyno_model::setting::SettingId;

    /// 100 users who think for half a second; 40 answers a second, and 80 users wait for 2 s each.
    const CLOSED: [(FactId, f64); 7] = [
        (FactId::users, 100.0),
        (FactId::rate, 40.0),
        (FactId::ended_per_s, 40.0),
        (FactId::in_flight_mean, 80.0),
        (FactId::response_time_mean_us, 2e6),
        (FactId::worker_time_mean_us, 3e5),
        (FactId::failed_fraction, 0.0),
    ];

    fn predicted_rate(id: &str, changes: &[(FactId, f64)]) -> Option<(f64, [f64; 2])> {
        let facts = facts(&with_changes(&CLOSED, changes), &[]);
        of(&facts, (id, Some(0.8)), &[]).map(|reported| (reported.rate, reported.ci95))
    }

    #[test]
    fn users_ask_as_fast_as_they_think_and_are_answered() {
        // 100 / (0.5 s + 0.3 s)
        assert_eq!(predicted_rate("apache-async-cap", &[]), Some((125.0, [106.0, 144.0])));
        // The fast tenth took 0.2 s.
        assert_eq!(
            predicted_rate("apache-async-cap", &[(FactId::response_time_excess_us, 1.8e6)]).unwrap().0,
            143.0
        );
        // What workers hold for errors, or while clients are slow, is another time.
        let served = [(FactId::service_time_mean_us, 2e6), (FactId::accept_queue_mean, 60.0)];
        for (id, failed, rate) in
            [("apache-async-cap", 0.0, 125.0), ("apache-async-cap", 0.5, 100.0), ("slow-clients", 0.0, 100.0)]
        {
            let failed = (FactId::failed_fraction, failed);
            assert_eq!(
                predicted_rate(id, &[&served[..], &[failed]].concat()).unwrap().0,
                rate,
                "{id} {failed:?}"
            );
        }
    }

    #[test]
    fn what_a_finding_explains_goes_and_the_rest_stays() {
        let alone = |us: f64| (FactId::response_time_alone_us, us);
        // 0.4 s of 2 s are not explained; a request alone is the least.
        for (changes, rate) in [
            (&[alone(3e5)][..], Some(111.0)),
            (&[alone(5e5)], Some(100.0)),
            (&[], None),
            // Half of them fail, and the others take what they take: 100 / (0.5 s + 0.3 s).
            (
                &[alone(1e5), (FactId::failed_fraction, 0.5), (FactId::response_time_mean_us, 3e5)],
                Some(125.0),
            ),
            (&[(FactId::offered_rate, 90.0)], Some(90.0)),
            // Others have most of the processors.
            (
                &[
                    alone(3e5),
                    (FactId::cores, 2.0),
                    (FactId::cpu_busy_fraction, 0.97),
                    (FactId::service_cpu_cores, 0.9),
                ],
                None,
            ),
        ] {
            for id in
                ["proxy-pool-exhausted", "slow-upstream", "file-lock-contention", "single-thread-saturated"]
            {
                assert_eq!(predicted_rate(id, changes).map(|told| told.0), rate, "{id} {changes:?}");
            }
        }
        // What one alone waits for, too.
        assert_eq!(predicted_rate("disk-commit-bound", &[alone(9e5)]).map(|told| told.0), Some(111.0));
    }

    #[test]
    fn what_cannot_be_told_is_not() {
        let many = [(FactId::in_flight_mean, 180.0)];
        let pages = [(FactId::pages_failed_per_s, 3.0)];
        for (id, changes) in [
            ("opcache-off", &[][..]),
            ("log-io", &[]),
            ("apache-async-cap", &many),
            ("db-connections-exhausted", &pages),
        ] {
            assert_eq!(predicted_rate(id, changes), None, "{id} {changes:?}");
        }
    }

    #[test]
    fn at_a_rate_that_clients_decide_no_more_comes() {
        let offered = (FactId::offered_rate, 100.0);
        assert_eq!(predicted_rate("conntrack-full", &[offered]), Some((100.0, [85.0, 100.0])));
        // Half of what is missing, at least.
        assert_eq!(predicted_rate("log-io", &[offered]), Some((94.0, [70.0, 100.0])));
        // What is answered is all that comes.
        assert_eq!(predicted_rate("conntrack-full", &[(FactId::offered_rate, 40.0)]), None);
    }

    #[test]
    fn the_next_limit_bounds_what_is_expected() {
        let workers = [(FactId::workers_limit, 24.0), (FactId::workers_busy_mean, 13.0)];
        // 12 workers for 40 answers a second: 24 are 80.
        let with = |id, more: &[(FactId, f64)]| {
            predicted_rate(id, &[&workers[..], more].concat()).map(|reported| reported.0)
        };
        assert_eq!(with("time-wait-overflow", &[]), Some(80.0));
        let asked = [&workers[..], &[(FactId::offered_rate, 90.0)]].concat();
        assert_eq!(predicted_rate("time-wait-overflow", &asked), Some((80.0, [64.0, 90.0])), "no more comes");
        assert_eq!(with("apache-workers-exhausted", &[]), Some(125.0), "its own is no bound");
        let mut finding = crate::diagnosis::ranking::findings(&Facts::default()).remove(0);
        finding.id = "db-connections-exhausted".into();
        let remedy = crate::limits::manual_remedy::manual(
            SettingId::of_service("mariadb", "max_connections"),
            "none",
            "more",
        );
        let before = Some(Predicted { rate: 500.0, ci95: [400.0, 600.0] });
        finding.remedies = vec![webdyno_model::diagnosis::Remedy { predicted: before, ..remedy }];
        complete_remedy(&facts(&[&CLOSED[..], &workers[..]].concat(), &[]), &mut finding);
        assert_eq!(finding.remedies[0].predicted, Some(Predicted { rate: 80.0, ci95: [64.0, 96.0] }));
    }

    #[test]
    fn beyond_twice_of_what_was_seen_the_interval_widens() {
        let wide = |rate: f64, more: &[(FactId, f64)]| {
            let predicted = Predicted { rate, ci95: [0.9 * rate, 1.1 * rate] };
            widened(&facts(&with_changes(&CLOSED, more), &[]), predicted).ci95
        };
        for (rate, more, expected) in [
            (80.0, &[][..], [72.0, 88.0]),
            (160.0, &[], [128.0, 192.0]),
            (640.0, &[], [384.0, 896.0]),
            // No more comes than is asked for, and no less than today.
            (160.0, &[(FactId::offered_rate, 170.0)], [128.0, 170.0]),
            (160.0, &[(FactId::rate, 0.01)], [0.01, 383.0]),
        ] {
            assert_eq!(wide(rate, more), expected, "{rate} {more:?}");
        }
    }
}
