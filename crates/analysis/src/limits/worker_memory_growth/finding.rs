//! When `worker-memory-growth` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::{memory_evidence, memory_pressure};
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// The share of the memory that growth must have taken: with less, others fill it.
const TAKEN_FRACTION_MIN: f64 = 0.3;

/// The largest worker must have gained this share meanwhile.
const RISE_FRACTION_MIN: f64 = 0.1;

/// From this share of the differences on, age is what they follow. Warm and cold workers side by side stay below.
const EXPLAINED_MIN: f64 = 0.9;

/// Growth that is allowed, as a share of the worker.
const ALLOWED_FRACTION: f64 = 0.1;

/// Workers that may end in a second without their lack being felt: prefork starts one, two, then four.
const RENEWED_PER_S_MAX: f64 = 2.0;

/// No sensible value is smaller for each thread of a worker.
const CONNECTIONS_MIN: f64 = 10.0;

/// What a worker weighs at the least, where what it grew by is not told from the rest.
const WORKER_BYTES_MIN: f64 = 4e6;

/// How sure it is that workers grow and go on growing, and that this fills the memory.
fn growth(facts: &Facts) -> Option<f64> {
    let evidence = memory_evidence::evidence(facts)?;
    let within = facts.value(FactId::worker_growth_within_bytes).filter(|bytes| *bytes > 0.0)?;
    let (age_s, workers) = (facts.value(FactId::worker_age_mean_s)?, facts.value(FactId::worker_count_mean)?);
    if within / 1000.0 * age_s * workers < TAKEN_FRACTION_MIN * memory_pressure::limit_bytes(facts)? {
        return None;
    }
    let rises =
        facts.value(FactId::worker_largest_rise_bytes).zip(facts.value(FactId::worker_memory_largest_bytes));
    let rises = rises.is_some_and(|(rise, largest)| rise >= RISE_FRACTION_MIN * largest);
    let by_age = facts.value(FactId::worker_growth_by_age_bytes).is_some_and(|bytes| bytes > 0.0)
        && facts.value(FactId::worker_growth_by_age_explained).is_some_and(|share| share >= EXPLAINED_MIN);
    let sure = match (rises, by_age) {
        (true, true) => 0.95,
        (true, false) | (false, true) => 0.85,
        (false, false) => return None,
    };
    Some(evidence.confidence.min(sure))
}

/// Whether growth is what fills the memory.
pub(crate) fn is_proven(facts: &Facts) -> bool {
    growth(facts).is_some_and(|confidence| confidence > 0.5)
}

/// Fires when memory is short, and growth that goes on is what fills it.
pub fn check(facts: &Facts) -> Option<Finding> {
    let confidence = growth(facts)?;
    let evidence = memory_evidence::evidence(facts)?;
    let within = facts.value(FactId::worker_growth_within_bytes)?;
    let each = growth_per_connection(facts);
    let per_connection =
        each.map_or(String::new(), |bytes| format!(" (about {} per connection)", format_bytes(bytes)));
    let by_age = facts.value(FactId::worker_growth_by_age_explained).filter(|share| *share >= EXPLAINED_MIN);
    let by_age = by_age.map_or(String::new(), |share| {
        format!(" Age accounts for {:.0}% of their size differences.", share * 100.0)
    });
    Some(Finding {
        id: LimitId::WorkerMemoryGrowth.into(),
        summary: format!(
            "Workers leak memory: each grows by {} in 1000 s{per_connection} until memory is full: {}.{by_age} Fewer workers \
             would only grow larger each.",
            format_bytes(within),
            evidence.words
        ),
        confidence,
        explains_fraction: memory_evidence::lost_fraction(facts),
        facts: facts.cite(&fact_ids! {
            worker_growth_within_bytes, worker_growth_by_age_bytes, worker_growth_by_age_explained,
            worker_largest_rise_bytes, worker_memory_largest_bytes, worker_memory_mean_bytes,
            worker_age_mean_s, worker_count_mean, new_connections_per_s, group_oom_kills, oom_kills,
            swapped_in_pages_per_s, memory_limit_bytes, memory_used_in_limit_max_bytes, failed_fraction, rate,
        }),
        remedies: remedy(facts).into_iter().collect(),
    })
}

/// Connections that all workers together take in a second.
fn connections_per_s(facts: &Facts) -> Option<f64> {
    let known = fact_ids! {
        new_connections_per_s, connections_opened_per_s, server_requests_per_s, rate,
    };
    known.into_iter().filter_map(|name| facts.value(name)).find(|rate| *rate > 0.0)
}

/// What a worker gains with a connection.
fn growth_per_connection(facts: &Facts) -> Option<f64> {
    let per_s =
        facts.value(FactId::worker_growth_within_bytes)? / 1000.0 * facts.value(FactId::worker_count_mean)?;
    Some(per_s / connections_per_s(facts)?)
}

fn remedy(facts: &Facts) -> Option<Remedy> {
    let (each, per_s) = (growth_per_connection(facts)?, connections_per_s(facts)?);
    let (age_s, workers) = (facts.value(FactId::worker_age_mean_s)?, facts.value(FactId::worker_count_mean)?);
    let grown = facts.value(FactId::worker_growth_within_bytes)? / 1000.0 * age_s;
    let fresh = (facts.value(FactId::worker_memory_mean_bytes)? - grown).max(WORKER_BYTES_MIN);
    let tenth = ALLOWED_FRACTION * fresh / each;
    let renewed = per_s / RENEWED_PER_S_MAX;
    // Memory for as much growth as all workers may have at their end.
    let room =
        (1.0 - memory_pressure::RESERVE_FRACTION) * memory_pressure::limit_bytes(facts)? / workers - fresh;
    // What grows are processes, and whole ones end, however many threads they have.
    let least = CONNECTIONS_MIN * facts.threads_per_process();
    let to = tenth.max(renewed).min(room / each).max(least).round();
    let now = facts.setting("MaxConnectionsPerChild");
    if !facts.is_service("apache") || now.is_some_and(|now| now > 0.0 && now <= to) {
        return None;
    }
    let why = if renewed > tenth {
        format!(
            "a worker grows by {} per connection; a lower value would, at {} connections/s, restart more than {} workers a \
             second",
            format_bytes(each),
            format_number(per_s),
            format_number(RENEWED_PER_S_MAX)
        )
    } else {
        format!("a worker grows by {} per connection: by a tenth of its size until then", format_bytes(each))
    };
    Some(Remedy {
        setting: SettingId::of_service("apache", "MaxConnectionsPerChild"),
        from: now.map(|now| SettingValue::Integer(now as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Reload,
        risk: "a new worker is started each time and has to load its code; the leak itself remains".into(),
        why,
        predicted: None,
        together_with: vec![],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const LEAKING: [(FactId, f64); 11] = [
        (FactId::group_oom_kills, 3.0),
        (FactId::memory_limit_bytes, 268e6),
        (FactId::memory_total_bytes, 16e9),
        (FactId::worker_growth_within_bytes, 1.5e9),
        (FactId::worker_growth_by_age_bytes, 1.5e9),
        (FactId::worker_growth_by_age_explained, 0.99),
        (FactId::worker_largest_rise_bytes, 9e6),
        (FactId::worker_memory_largest_bytes, 38e6),
        (FactId::worker_memory_mean_bytes, 33e6),
        (FactId::worker_age_mean_s, 18.0),
        (FactId::worker_count_mean, 9.0),
    ];

    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        let values = with_changes(&LEAKING, changes);
        check(&facts(&values, &[("MaxConnectionsPerChild", 0)]))
    }

    #[test]
    fn growth_that_goes_on_and_fills_the_memory_is_proven() {
        let unseen = f64::NAN;
        for (changes, confidence) in [
            (vec![], Some(0.9)),
            (vec![(FactId::worker_growth_by_age_explained, unseen)], Some(0.85)),
            (vec![(FactId::worker_largest_rise_bytes, 0.0)], Some(0.85)),
            // Workers that are warm: they gained once.
            (
                vec![(FactId::worker_largest_rise_bytes, 0.0), (FactId::worker_growth_by_age_explained, 0.6)],
                None,
            ),
            (vec![(FactId::group_oom_kills, 0.0)], None),
            (vec![(FactId::worker_growth_within_bytes, 0.2e9)], None),
            (vec![(FactId::worker_count_mean, unseen)], None),
        ] {
            assert_eq!(with(&changes).map(|finding| finding.confidence), confidence, "{changes:?}");
        }
    }

    #[test]
    fn a_worker_lives_until_it_matters_and_not_less_than_can_be_renewed() {
        let to = |changes: &[(FactId, f64)]| with(changes).unwrap().remedies.first()?.to.clone()?.number();
        // 13.5 MB a second for 250 connections are 54 kB each; a tenth of 6 MB would be 11 connections.
        assert_eq!(to(&[(FactId::new_connections_per_s, 250.0)]), Some(125.0));
        // Of 5 connections a second each costs 2.7 MB: memory fits no more, and ten is the least.
        assert_eq!(to(&[(FactId::new_connections_per_s, 5.0)]), Some(10.0));
        assert_eq!(to(&[(FactId::new_connections_per_s, 0.0)]), None);
        for (threads, expected) in [(4, 125), (25, 250)] {
            let values = with_changes(&LEAKING, &[(FactId::new_connections_per_s, 250.0)]);
            let mut facts = facts(&values, &[("MaxConnectionsPerChild", 0), ("ThreadsPerChild", threads)]);
            facts.service.as_mut().unwrap().mode = Some("event".into());
            let remedy = check(&facts).unwrap().remedies.remove(0);
            assert_eq!(remedy.to, Some(SettingValue::Integer(expected)), "{threads}");
        }
    }
}
