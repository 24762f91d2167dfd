//! When `slow-uploads` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::keepalive_holds_workers::finding::requests_with_workers;
use crate::limits::manual_remedy::manual;
use crate::limits::php_fpm_workers_exhausted::pool::FullPool;
use crate::limits::slow_clients::finding::{HELD_FRACTION_MIN, PACE_BYTES_PER_S};
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::{worker_waits, workers};
use crate::wording::{format_bytes, format_number};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// What is seen of a connection is that bytes come in; that a worker waits for them is concluded.
const CONFIDENCE: f64 = 0.85;
/// Where the load has no more of the workers than this share, those that it does not have are compared.
const LOADED_FRACTION_MAX: f64 = 0.5;

/// Fires when clients that send slowly hold the workers that others wait for.
pub fn check(facts: &Facts) -> Option<Finding> {
    let receiving = facts.value(FactId::receiving_connections_mean)?;
    let pool = HeldPool::of_apache(facts).or_else(|| HeldPool::of_fpm(facts))?;
    let pace = facts.value(FactId::network_received_bytes_per_s).map(|bytes| bytes / receiving);
    if receiving < HELD_FRACTION_MIN * pool.held_by_others(facts)
        || pace.is_some_and(|pace| pace > PACE_BYTES_PER_S.1)
        || worker_waits::machine_is_short(facts)
    {
        return None;
    }
    let each = pace.map_or(String::new(), |pace| format!(", {}/s each at most", format_bytes(pace)));
    Some(Finding {
        id: LimitId::SlowUploads.into(),
        summary: format!(
            "Clients that send slowly hold the workers: all {} {} busy{}, {} requests wait. On {} connections a request comes in second by second and nothing is sent{each}.",
            format_number(pool.workers),
            pool.words,
            pool.cores
                .map_or(String::new(), |cores| format!(" but using only {} cores", format_number(cores))),
            format_number(pool.queue),
            format_number(receiving),
        ),
        confidence: CONFIDENCE,
        explains_fraction: pool.explains,
        facts: facts.cite(&fact_ids! {
            receiving_connections_mean, network_received_bytes_per_s, workers_busy_mean, workers_writing_mean,
            workers_reading_mean, scoreboard_full_fraction, processes_at_limit_fraction, accept_queue_mean, fpm_queue_mean,
            in_flight_mean, service_cpu_cores, cpu_busy_fraction, response_time_mean_us, rate,
        }),
        remedies: remedies(facts),
    })
}

/// Workers all of which are busy while requests wait.
struct HeldPool {
    words: &'static str,
    workers: f64,
    queue: f64,
    /// What they use of the processors, where that is known of them.
    cores: Option<f64>,
    explains: Option<f64>,
}

impl HeldPool {
    fn of_apache(facts: &Facts) -> Option<Self> {
        let (proof, queue) = (workers::limit_proof(facts)?, noticed_queue(facts)?);
        let explains = workers::accept_queue_share(facts, queue);
        let cores = facts.value(FactId::service_cpu_cores);
        Some(Self { words: "workers", workers: proof.workers, queue, cores, explains })
    }

    /// Of slow lines that pause only some are seen to send at a time: what they hold is what the load does not.
    fn held_by_others(&self, facts: &Facts) -> f64 {
        let requests = requests_with_workers(facts).filter(|_| facts.is_service("apache")).unwrap_or(0.0);
        if requests <= LOADED_FRACTION_MAX * self.workers { self.workers - requests } else { self.workers }
    }

    fn of_fpm(facts: &Facts) -> Option<Self> {
        let pools = facts.each(FactId::fpm_queue_mean);
        let full = pools.filter_map(|(pool, queue)| FullPool::of_pool(facts, pool, queue));
        let pool = full.max_by(|a, b| a.queue.total_cmp(&b.queue))?;
        let explains = pool.explains(facts).map(|share| significant(share, 3));
        // The service's own are those of the proxy.
        let (words, queue) = ("children of PHP-FPM", pool.queue);
        Some(Self { words, workers: pool.processes?, queue, cores: None, explains })
    }
}

fn remedies(facts: &Facts) -> Vec<Remedy> {
    let buffering = |setting: SettingId| {
        manual(
            setting,
            "a body lies on the disk of the proxy until it is whole; programs that read it while it comes get it at the end",
            "requests are taken in whole before they are handed over, however slow their client: no worker waits for them",
        )
    };
    if facts.is_service("nginx") {
        let of = |setting: &str| buffering(SettingId::of_service("nginx", setting));
        return vec![of("fastcgi_request_buffering"), of("proxy_request_buffering")];
    }
    if facts.is_service("lighttpd") {
        return vec![buffering(SettingId::of_service("lighttpd", "server.stream-request-body"))];
    }
    let before = buffering(SettingId::external("proxy", "request buffering"));
    if !facts.is_service("apache") {
        return vec![before];
    }
    let in_force = facts.text("RequestReadTimeout").map(SettingValue::Text);
    let timeout = manual(
        SettingId::of_service("apache", "RequestReadTimeout"),
        "clients on slow lines are ended, honest ones too: 408",
        "`body=20,MinRate=1000` frees a worker from a client that sends less than 1,000 bytes a second",
    );
    vec![before, Remedy { from: in_force, ..timeout }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, with_changes};

    /// Fifty processes, forty of which wait for bodies.
    const SLOW: &[(FactId, f64)] = &[
        (FactId::scoreboard_full_fraction, 1.0),
        (FactId::workers_limit, 50.0),
        (FactId::workers_busy_mean, 50.0),
        (FactId::accept_queue_mean, 20.0),
        (FactId::in_flight_mean, 30.0),
        (FactId::receiving_connections_mean, 38.0),
        (FactId::network_received_bytes_per_s, 480e3),
        (FactId::cpu_busy_fraction, 0.1),
    ];

    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        check(&facts(&with_changes(SLOW, changes), &[("MaxRequestWorkers", 50)]))
    }

    #[test]
    fn each_front_takes_requests_in_whole_by_a_setting_of_its_own() {
        for (service, settings) in [
            ("nginx", "nginx fastcgi_request_buffering, nginx proxy_request_buffering"),
            ("lighttpd", "lighttpd server.stream-request-body"),
            ("apache", "proxy request buffering, apache RequestReadTimeout"),
            ("unknown", "proxy request buffering"),
        ] {
            let mut facts = facts(SLOW, &[]);
            facts.service.as_mut().unwrap().service = service.into();
            let names: Vec<_> = remedies(&facts).iter().map(|remedy| remedy.setting.full_name()).collect();
            assert_eq!(names.join(", "), settings);
        }
    }

    #[test]
    fn workers_that_wait_for_bodies_are_held() {
        let found = with(&[]).unwrap();
        assert!(
            found.summary.contains("all 50 workers busy, 20 requests wait. On 38 connections"),
            "{}",
            found.summary
        );
        assert!(found.summary.contains("12.6 kB/s each at most"), "{}", found.summary);
        for (what, name, value) in [
            ("few", FactId::receiving_connections_mean, 9.0),
            ("fast lines", FactId::network_received_bytes_per_s, 9e7),
            ("nobody waits", FactId::accept_queue_mean, 0.0),
            ("workers are free", FactId::scoreboard_full_fraction, 0.0),
            ("no processor is free", FactId::pressure_group_cpu_some_fraction, 0.9),
            ("not seen", FactId::receiving_connections_mean, f64::NAN),
        ] {
            assert!(with(&[(name, value)]).is_none(), "{what}");
        }
        // Of those that pause some are seen: three in ten of the workers that the load does not have.
        for (requests, found) in [(2.0, false), (10.0, true), (30.0, false)] {
            let in_part =
                [(FactId::receiving_connections_mean, 13.0), (FactId::requests_in_workers_mean, requests)];
            assert_eq!(with(&in_part).is_some(), found, "{requests}");
        }
    }

    #[test]
    fn what_holds_them_comes_before_that_they_are_held() {
        let seen = facts(SLOW, &[("MaxRequestWorkers", 50)]);
        let all = crate::diagnosis::ranking::findings(&seen);
        assert_eq!(all[0].id, "slow-uploads", "{all:?}");
    }

    #[test]
    fn children_of_php_behind_a_proxy_that_does_not_buffer_are_held_too() {
        let base = [
            (FactId::receiving_connections_mean, 4.0),
            (FactId::in_flight_mean, 20.0),
            (FactId::cpu_busy_fraction, 0.1),
            (FactId::service_cpu_cores, 0.02),
        ];
        let mut facts = facts(&base, &[]);
        facts.service.as_mut().unwrap().service = "nginx".into();
        let pool = [
            (FactId::fpm_queue_mean, 14.0),
            (FactId::fpm_processes_max, 5.0),
            (FactId::fpm_processes_mean, 5.0),
            (FactId::fpm_full_fraction, 1.0),
            (FactId::fpm_at_most_fraction, 1.0),
        ];
        of_pool(&mut facts, "www", &pool);
        let found = check(&facts).unwrap();
        // The processor time that is known is nginx's.
        assert!(
            found.summary.contains("all 5 children of PHP-FPM busy, 14 requests wait"),
            "{}",
            found.summary
        );
        assert_eq!(found.remedies[0].setting.full_name(), "nginx fastcgi_request_buffering");
    }
}
