//! The diagnosis: every rule over the facts, ranked; the first finding is the answer.

use crate::breakdown::breakdown;
use crate::ceilings::ceilings;
use crate::facts::{self, Facts};
use crate::live_traffic::live_traffic;
use crate::measurement::Measurement;
use crate::rules;
use crate::summary::run_report;
use webdyno_model::Result;
use webdyno_model::diagnosis::{Diagnosis, Finding, NextLimit, SCHEMA};

/// Diagnoses one measurement. Pure: the same measurement gives the same diagnosis, byte for byte.
pub fn diagnose(measurement: &Measurement) -> Result<Diagnosis> {
    let run = measurement.workload.is_some().then(|| run_report(measurement)).transpose()?;
    let facts = facts::facts(measurement, run.as_ref())?;
    let findings = findings(&facts);
    let ceilings = ceilings(&facts);
    let next_limit = next_limit(&facts, &findings);
    Ok(Diagnosis {
        schema: SCHEMA.into(),
        bottleneck: findings
            .first()
            .map_or_else(|| rules::unknown::ID.to_owned(), |finding| finding.id.clone()),
        next_limit,
        ceilings,
        time_breakdown_us: breakdown(&facts),
        missing: crate::missing::missing(measurement),
        findings,
        run,
        live_traffic: live_traffic(measurement),
        environment: measurement.server.clone().unwrap_or_default(),
    })
}

/// What was not seen to the end is believed no more than this.
const CONFIDENCE_MAX_STOPPED: f64 = 0.5;

/// All findings, the answer first: a run that cannot be believed, then what is proven best, then what explains most;
/// the order of the rules decides between equals.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found: Vec<Finding> = rules::ALL
        .iter()
        .filter(|rule| rule.id != rules::unknown::ID)
        .filter_map(|rule| (rule.check)(facts))
        .collect();
    // `healthy` demands that nothing else is wrong.
    if found.len() > 1 {
        found.retain(|finding| finding.id != rules::healthy::ID);
    }
    if found.is_empty() {
        found.extend(rules::unknown::check(facts));
    }
    let of_server = found.iter_mut().filter(|finding| finding.id != rules::generator_saturated::ID);
    for finding in of_server.filter(|_| facts.readings_stopped) {
        finding.confidence = finding.confidence.min(CONFIDENCE_MAX_STOPPED);
    }
    let weight = |finding: &Finding| match finding.explains_fraction {
        _ if finding.id == rules::generator_saturated::ID => f64::INFINITY,
        Some(share) => finding.confidence * (0.5 + share / 2.0),
        // What cannot tell its share is taken at its word: half of it.
        None => finding.confidence * 0.75,
    };
    found.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    found
}

/// After the first finding is lifted, the lowest of the ceilings that are not its own.
fn next_limit(facts: &Facts, findings: &[Finding]) -> Option<NextLimit> {
    let first = findings.first()?;
    let id = |limit: &str| match limit {
        "apache workers" => Some(rules::apache_workers_exhausted::ID),
        "processor cores" => Some(rules::cpu_saturated::ID),
        "workers in memory" => Some(rules::memory_exhausted::ID),
        _ => None,
    };
    let all = ceilings(facts);
    let others = all.iter().filter_map(|ceiling| Some((id(&ceiling.limit)?, ceiling.binds_at_rate?)));
    let lowest = others.filter(|(id, _)| *id != first.id).min_by(|a, b| a.1.total_cmp(&b.1));
    lowest.map(|(id, rate)| NextLimit { id: id.into(), rate: Some(rate) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    const EXHAUSTED: [(&str, f64); 5] = [
        ("scoreboard_full_fraction", 1.0),
        ("workers_limit", 150.0),
        ("accept_queue_mean", 300.0),
        ("cpu_busy_fraction", 0.3),
        ("rate", 750.0),
    ];

    #[test]
    fn a_proven_limit_is_the_answer() {
        assert_eq!(findings(&facts(&EXHAUSTED, &[]))[0].id, "apache-workers-exhausted");
    }

    #[test]
    fn a_saturated_generator_comes_before_everything() {
        let mut facts = facts(&EXHAUSTED, &[]);
        facts.generator_fault = Some("it was slow".into());
        let ids: Vec<_> = findings(&facts).into_iter().map(|finding| finding.id).collect();
        assert_eq!(ids, ["generator-saturated", "apache-workers-exhausted"]);
    }

    #[test]
    fn what_was_not_seen_to_the_end_is_half_believed() {
        let mut facts = facts(&EXHAUSTED, &[]);
        (facts.generator_fault, facts.readings_stopped) = (Some("it was slow".into()), true);
        let all: Vec<_> = findings(&facts).into_iter().map(|finding| finding.confidence).collect();
        assert_eq!(all, [0.95, 0.5]);
    }

    #[test]
    fn thrashing_comes_before_the_workers_that_wait_for_memory() {
        let thrashing = [("pressure_memory_full_fraction", 0.4), ("swapped_in_pages_per_s", 5000.0)];
        let all = findings(&facts(&[&EXHAUSTED[..], &thrashing[..]].concat(), &[]));
        assert_eq!((all.len(), all[0].id.as_str()), (1, "memory-exhausted"));
    }

    #[test]
    fn a_kill_somewhere_on_the_machine_hides_no_limit() {
        let all = findings(&facts(&[&EXHAUSTED[..], &[("oom_kills", 1.0)][..]].concat(), &[]));
        assert_eq!(all[0].id, "apache-workers-exhausted");
    }

    #[test]
    fn kept_connections_starve_the_status_page_and_the_processes_still_tell() {
        let seen = [
            ("processes_at_limit_fraction", 0.9),
            ("status_unanswered_fraction", 1.0),
            ("accept_queue_mean", 300.0),
            ("accept_queue_max", 511.0),
            ("accept_queue_limit", 511.0),
            ("listen_overflows", 50.0),
            ("listen_overflows_per_s", 5.0),
            ("in_flight_mean", 450.0),
            ("cpu_busy_fraction", 0.3),
            ("rate", 750.0),
            ("connections_opened_per_s", 0.0),
        ];
        let all = findings(&facts(&seen, &[("MaxRequestWorkers", 150)]));
        assert_eq!((all.len(), all[0].id.as_str()), (1, "apache-workers-exhausted"));
    }

    #[test]
    fn without_proof_it_is_unknown() {
        let all = findings(&facts(&[("rate", 10.0)], &[]));
        assert_eq!((all.len(), all[0].id.as_str()), (1, "unknown"));
    }

    #[test]
    fn a_silent_measurement_is_unknown_and_the_same_every_time() {
        let first = diagnose(&Measurement::default()).unwrap();
        assert_eq!(first.bottleneck, "unknown");
        let again = diagnose(&Measurement::default()).unwrap();
        assert_eq!(serde_json::to_string(&first).unwrap(), serde_json::to_string(&again).unwrap());
    }
}
