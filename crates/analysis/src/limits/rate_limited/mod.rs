//! `rate-limited`: a protection of the server holds answers to a rate that somebody has set, or turns requests away.
//!
//! mod_ratelimit (`limit_rate` of nginx) sends each answer at so many KiB a second: answers take as long as their size says,
//! for everybody and at any load. mod_qos, mod_evasive, mod_limitipconn, ModSecurity, `limit_req` and `limit_conn` of nginx
//! let only so many requests or connections of a client through, and answer the others with 403, 429, 500 or 503 at once;
//! mod_reqtimeout gives up on those who send too slowly (408). Processors, workers and line are idle meanwhile. Somebody
//! wanted that, and only who knows why can tell whether it is still needed.
//!
//! ## How it is recognised
//! Such a limit is loaded and active for a part of the site, and its sign is there. Of a pace: what arrived, divided by the
//! time that requests were under way, is the configured rate; most of the response time lies between the first byte and the
//! last, nothing waits to be accepted, and the processors have room. Where the rate cannot be read, the pace alone is a
//! suspicion. Of requests that are turned away: answers with the status that this limit gives, while the good ones come at
//! the rate that is configured, or evenly from second to second; else they are a suspicion, as applications give such
//! answers, too. 429 means a limit, whoever sent it. A load generator is one client that asks much, so that a limit
//! for each client meets it long before it meets visitors.
//! Where the server is only watched, its log tells sizes and its workers times, and when the first byte came stays unknown.
//! last, and the processors have room; where connections wait to be accepted, the workers are held by such answers. Where the
//! rate cannot be read, the pace alone is a suspicion. Of requests that are turned away: answers with the status that this
//! limit gives, while the good ones come at the rate that is configured, or evenly from second to second; else they are a
//! suspicion, as applications give such answers, too. 429 means a limit, whoever sent it. A load generator is one client that
//! asks much, so that a limit for each client meets it long before it meets visitors.
//!
//! ## What to do
//! Ask who set the limit. If it is to stay, this is the site's speed for such clients, and no other setting helps; if it may
//! be higher, or the address of the load generator may be left out of it for a measurement, its owner says so. webdyno never
//! lifts a protection.
//!
//! ## By hand
//! `curl -o /dev/null -w '%{size_download} %{time_starttransfer} %{time_total}\n' URL` of a small and a large answer: times
//! follow the sizes. `for i in $(seq 50); do curl -s -o /dev/null -w '%{http_code}\n' URL; done | sort | uniq -c`.
//! `apache2ctl -M | grep -E 'ratelimit|qos|evasive|bw|limitipconn|security|reqtimeout'`; `grep -ri rate-limit /etc/apache2`;
//! `nginx -T | grep limit_`.

pub(crate) mod finding;
pub(crate) mod rejected;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, backend_connections_failed_logged, backend_unreachable_logged, cpu_busy_fraction,
        db_refusals_logged, ended_per_s, failed_fraction, first_byte_mean_us, forbidden_fraction,
        in_flight_mean, open_files_messages, open_files_program_messages, proxy_connections_failed_logged,
        rate, rate_ci95_fraction, received_bytes_per_s, request_bytes_per_s, request_timeout_fraction,
        requests_in_workers_mean, response_time_mean_us, response_time_p99_us, server_error_fraction,
        service_time_mean_us, too_many_requests_fraction, unavailable_fraction, workers_startable_mean,
    }],
    causes: &[
        LimitId::SlowClients,
        LimitId::ApacheWorkersExhausted,
        LimitId::UpstreamBandwidth,
        LimitId::BackendRefused,
    ],
    kind: Some(LimitKind::RequestCost),
    ..Limit::new(LimitId::RateLimited, "Rate limited", include_str!("mod.rs"), finding::check)
};
