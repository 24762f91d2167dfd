//! `backend-refused`: the backend does not accept the server's connections, and pages are errors.
//!
//! Apache forwards requests to another program: PHP-FPM, an application server, another web server. If nothing listens at the
//! configured address, or the listener accepts no more, Apache answers 502 or 503 within a millisecond: counting all responses,
//! the server looks fast.
//!
//! ## How it is recognised
//! Apache's error log says that it could not connect to a backend (AH00957, AH01079, AH01114, AH02454) or got no response from it
//! (AH01075), or nginx's that a connection to an upstream was refused, timed out, found no room in the queue of its socket, or that this
//! is not there, and many requests fail: responses 502 and 503, or errors in the access log. Where a proxy knows several backends and
//! one of them is gone, nothing fails: then connections towards it that are being made (SYN-SENT), and never are, are a noticed part of
//! the requests in flight. If it is known why the backend
//! refuses (all its processes are busy, no local ports or file descriptors are left), that is the finding, and this its effect.
//!
//! ## What to do
//! Check that the backend runs and listens at the address that Apache uses (`SetHandler`, `ProxyPass`), and make the two agree;
//! read the backend's own log. Manual change. If exactly one program listens at an address that the server does not use, the
//! finding names it.
//!
//! ## By hand
//! `grep -E 'AH00957|AH01079|AH01075|AH02454' error.log | tail -n 1` names the address; `ss -ltnp` shows who listens, `ss -tn state syn-sent` who is waited for.

pub(crate) mod finding;
mod unreachable;

use crate::facts::fact_ids;
use crate::limits::incident::{EACH, IncidentFigure, IncidentRule, row};
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        answers_logged_per_s, backend_connections_failed_logged, backend_dispatch_failed_logged,
        backend_unreachable_logged, bad_gateway_fraction, connections_refused_logged, ended_per_s,
        backend_queue_mean, backend_socket_failed_logged, failed_fraction, in_flight_mean, nginx_backend_absent_messages,
        nginx_backend_closed_messages, nginx_backend_reset_messages, nginx_backend_queue_full_messages, nginx_backend_refused_messages, nginx_backend_timed_out_messages, no_address_logged,
        no_descriptors_logged, proxy_connections_failed_logged, rate, response_time_mean_us,
        server_errors_answered_per_s, upstream_connecting_mean, upstream_connections_mean,
    }],
    gain: Some(LimitGain::Failures),
    makes_errors: true,
    incidents: INCIDENTS,
    ..Limit::of(LimitId::BackendRefused, "Backend refuses connections", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("apache_log.AH00957.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "a backend refused Apache's connection (AH00957)", EACH),
    row("apache_log.AH01079.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "a backend refused Apache's connection (AH01079)", EACH),
    row("apache_log.AH01075.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "a request to a backend failed (AH01075)", EACH),
];
