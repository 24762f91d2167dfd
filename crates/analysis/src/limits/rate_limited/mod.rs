//! `rate-limited`: a configured protection of the server limits the rate of responses, or rejects requests.
//!
//! mod_ratelimit (`limit_rate` of nginx) sends each response at a fixed number of KiB a second: the response time follows the
//! size, for all clients and at any load. mod_qos, mod_evasive, mod_limitipconn, ModSecurity, `limit_req` and `limit_conn` of
//! nginx allow a number of requests or connections per client, and reject the others with 403, 429, 500 or 503 at once;
//! mod_reqtimeout rejects clients that send too slowly (408). CPU, workers and network are idle meanwhile. Such a limit was set
//! on purpose; only its owner knows whether it is still needed.
//!
//! ## How it is recognised
//! Such a limit is loaded and active for a part of the site, and its sign is there. Of a bandwidth limit: bytes received
//! divided by the time that requests were in flight is the configured rate (up to three times of it for nginx, which sends the first
//! second's bytes at once), or those of a request alone are; most of the response time lies between the first
//! byte and the last, and CPU is free; if connections wait in the accept queue, the workers are held by such responses. If the
//! rate cannot be read, the pace alone is a suspicion. Of rejected requests: responses with the status of this limit, while
//! successful ones come at the configured rate, or evenly from second to second; else they are a suspicion, as applications
//! send such responses, too. 429 means a limit, wherever it is. A load generator is one client with many requests, so a limit
//! per client affects it long before it affects visitors. Of requests that are held (`limit_req` of nginx with a burst): they get
//! through evenly at the zone's rate, and take twice as long as one that is alone (a third longer where the rate is the zone's to a hundredth), with CPU free; where nginx is out of open files,
//! and so many may be held that they have them all, others wait to be accepted; where they may have all its
//! connections and take equally long, those that get none for their backend fail with 500 when their turn has come, and count with those
//! that get through. If the server is only observed,
//! its log has sizes and its workers times, and the time of the first byte is unknown; with an accept queue the bytes of each
//! accepted connection tell the pace; the rate of a location, or of each client, is
//! a suspicion, and responses that go out in the first step of a limit are not slowed by it. Fewer than one request in ten that is
//! turned away is half sure. Where nobody counts requests, those that wait in nginx itself while its workers sleep are taken to be held.
//!
//! ## What to do
//! Ask the owner of the limit. If it must stay, this is the site's speed for such clients, and no other setting helps. The
//! owner decides whether it may be higher, or the load generator's address may be exempt for a measurement. webdyno never lifts
//! a protection.
//!
//! ## By hand
//! `curl -o /dev/null -w '%{size_download} %{time_starttransfer} %{time_total}\n' URL` of a small and a large response: times
//! follow the sizes. `for i in $(seq 50); do curl -s -o /dev/null -w '%{http_code}\n' URL; done | sort | uniq -c`.
//! `apache2ctl -M | grep -E 'ratelimit|qos|evasive|bw|limitipconn|security|reqtimeout'`; `grep -ri rate-limit /etc/apache2`;
//! `nginx -T | grep limit_`.

mod bandwidth;
pub(crate) mod ceiling;
pub(crate) mod delayed;
pub(crate) mod finding;
pub(crate) mod rejected;

use crate::facts::{Facts, fact_ids};
use crate::limits::{Limit, LimitId, LimitKind};
use webdyno_model::diagnosis::Finding;

fn check(facts: &Facts) -> Option<Finding> {
    finding::check(facts).or_else(|| delayed::check(facts))
}

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, answer_bytes_mean, backend_connections_failed_logged, backend_unreachable_logged, busiest_thread_fraction,
        client_connections_mean, connections_held_mean, cpu_busy_fraction,
        db_refusals_logged, ended_per_s, failed_fraction, first_byte_mean_us, forbidden_fraction,
        in_flight_mean, nginx_open_files_messages, offered_rate, open_files_limit, open_files_messages, open_files_program_messages, proxy_connections_failed_logged,
        rate, rate_ci95_fraction, received_bytes_per_s, receiving_connections_mean, sending_connections_mean, request_bytes_per_s, request_timeout_fraction, response_time_alone_us,
        response_time_mean_us, response_time_p50_us, response_time_p99_us, server_error_fraction,
        service_time_mean_us, too_many_requests_fraction, unavailable_fraction, workers_startable_mean,
    }],
    causes: &[
        LimitId::SlowClients,
        LimitId::ApacheWorkersExhausted,
        LimitId::KeepaliveHoldsWorkers,
        LimitId::UpstreamBandwidth,
        LimitId::BackendRefused,
        LimitId::OpenFilesExhausted,
    ],
    ceilings: &[ceiling::ceiling],
    kind: Some(LimitKind::RequestCost),
    ..Limit::of(LimitId::RateLimited, "Rate limited", check)
};
