//! From a measurement to its diagnosis: the report of the run, the facts, the findings, and what follows from them.

use crate::diagnosis::caching;
use crate::diagnosis::experiments;
use crate::diagnosis::missing::missing;
use crate::diagnosis::next_limit::next_limit;
use crate::diagnosis::ranking::findings;
use crate::facts::{self, FactId, Facts};
use crate::limits::{LimitId, ceilings};
use crate::measurement::Measurement;
use crate::resources::live_traffic::live_traffic;
use crate::resources::site_profile::site;
use crate::resources::time_breakdown::breakdown;
use crate::run_report::run_report;
use crate::wording;
use webdyno_model::Result;
use webdyno_model::client::ValidFor;
use webdyno_model::diagnosis::{Diagnosis, SCHEMA};
use webdyno_model::live_traffic::LiveTraffic;
use webdyno_model::purpose::Purpose;
use webdyno_model::run::RunReport;
use webdyno_model::site::Site;

/// Diagnoses one measurement. Pure: the same measurement gives the same diagnosis, byte for byte.
pub fn diagnose(measurement: &Measurement) -> Result<Diagnosis> {
    diagnose_with(measurement, &[])
}

/// The same with what loads showed that had one thing changed ([`crate::diagnosis::experiments`]).
pub fn diagnose_with(measurement: &Measurement, changed: &[(Purpose, Measurement)]) -> Result<Diagnosis> {
    let mut run = measurement.workload.is_some().then(|| run_report(measurement)).transpose()?;
    let mut facts = facts::facts(measurement, run.as_ref())?;
    let live_traffic = live_traffic(measurement);
    if let Some(run) = &mut run {
        compare_with_server(run, &mut facts, live_traffic.as_ref());
        // What the generator limits is no rate of the server, though it was merely late.
        if facts.generator_fault.is_some() {
            (run.client.valid, run.client.valid_for) = (false, ValidFor::default());
        }
    }
    let (mut findings, experiments) = experiments::reconsider(findings(&facts), measurement, changed)?;
    let cache = caching::site_cache(&facts, measurement, run.as_ref());
    caching::add_remedy(&facts, &mut findings, cache.as_ref());
    let ceilings = ceilings(&facts);
    let next_limit = next_limit(&facts, &findings);
    Ok(Diagnosis {
        schema: SCHEMA.into(),
        bottleneck: findings.first().map_or_else(|| LimitId::Unknown.into(), |finding| finding.id.clone()),
        next_limit,
        ceilings,
        time_breakdown_us: breakdown(&facts),
        processor_time: facts.processor_time.clone(),
        missing: missing(measurement),
        findings,
        experiments,
        run,
        live_traffic,
        site: Some(Site { cache, ..site(&facts, measurement.workload.as_ref()) }),
        environment: measurement.server.clone().unwrap_or_default(),
    })
}

/// More than so many times the requests that the generator has in flight, and this many, are not in a server by chance:
/// a worker may be at work for a moment after its answer has arrived, and readings meet bursts.
const AT_SERVER_RATIO_MAX: f64 = 2.0;
const AT_SERVER_SPARE: f64 = 10.0;

/// Little's law between the generator's count of requests in flight and the server's own. A server that has fewer proves
/// nothing: requests are also on their way, and in queues that nobody counts. One that has far more than were sent means
/// that the generator lost sight of some, if nobody else uses the server and no request was given up.
fn compare_with_server(run: &mut RunReport, facts: &mut Facts, others: Option<&LiveTraffic>) {
    run.client.in_flight.server = facts.value(FactId::requests_at_server_mean);
    // Requests that come in slowly are other clients', whoever could not be told apart.
    let uploads = facts.value(FactId::receiving_connections_mean).is_some_and(|count| count >= 1.0);
    let alone = others.is_some_and(|traffic| !traffic.present) && !uploads && run.errors.total() == 0;
    let (Some(server), Some(own)) = (run.client.in_flight.server, facts.value(FactId::in_flight_mean)) else {
        return;
    };
    if alone
        && run.client.valid
        && facts.harm_guard_trip.is_none()
        && server > AT_SERVER_RATIO_MAX * own + AT_SERVER_SPARE
    {
        let why = format!(
            "the server had {} concurrent requests, but the generator only {} in flight, and no other clients were seen",
            wording::format_number(server),
            wording::format_number(own)
        );
        (run.client.valid, run.client.why) = (false, Some(why.clone()));
        facts.generator_fault = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    #[test]
    fn a_server_with_far_more_requests_than_were_sent_means_that_some_were_lost_sight_of() {
        let others = |present| {
            Some(LiveTraffic { present, requests_per_s: None, connections_count: None, evidence: vec![] })
        };
        let check = |server: f64, others: Option<LiveTraffic>, failed| {
            let mut facts =
                facts(&[(FactId::requests_at_server_mean, server), (FactId::in_flight_mean, 50.0)], &[]);
            let mut run = RunReport::default();
            (run.client.valid, run.errors.timeout) = (true, failed);
            compare_with_server(&mut run, &mut facts, others.as_ref());
            assert_eq!(
                (run.client.in_flight.server, run.client.valid),
                (Some(server), run.client.why.is_none())
            );
            assert_eq!(run.client.valid, facts.generator_fault.is_none());
            run.client.valid
        };
        for (server, others, failed, valid) in [
            (0.0, others(false), 0, true),
            (52.0, others(false), 0, true),
            (109.0, others(false), 0, true),
            (111.0, others(false), 0, false),
            // Others send too, nobody knows, or what was given up here is still at work there.
            (111.0, others(true), 0, true),
            (111.0, None, 0, true),
            (111.0, others(false), 1, true),
        ] {
            assert_eq!(check(server, others, failed), valid, "{server}");
        }
    }

    #[test]
    fn a_silent_measurement_is_unknown_and_the_same_every_time() {
        let first = diagnose(&Measurement::default()).unwrap();
        assert_eq!(first.bottleneck, "unknown");
        let again = diagnose(&Measurement::default()).unwrap();
        assert_eq!(serde_json::to_string(&first).unwrap(), serde_json::to_string(&again).unwrap());
    }
}
