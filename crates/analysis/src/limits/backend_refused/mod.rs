//! `backend-refused`: what stands behind the server does not take its connections, and pages are errors.
//!
//! Apache hands requests over to another program: PHP-FPM, an application server, another web server. Where nobody listens
//! at the address it was told, or the one that does takes no more, Apache answers 502 or 503, and within a millisecond:
//! who counts answers sees a fast server.
//!
//! ## How it is recognised
//! Apache's error log says that it could not connect to a backend (AH00957, AH01079, AH01114) or got no answer from it
//! (AH01075), and that many requests are missing: answers of 502 and 503, or the access log's errors. Where it is known
//! why the backend refuses (all its processes are busy, no local ports or descriptors are left) that is the finding, and
//! this its effect.
//!
//! ## What to do
//! Find out whether the backend runs and listens where Apache looks for it (`SetHandler`, `ProxyPass`), and make the two
//! agree; look into the backend's own log. A person has to choose. Where just one program listens at an address that nobody
//! looks at, the finding says so.
//!
//! ## By hand
//! `grep -E 'AH00957|AH01079|AH01075' error.log | tail -n 1` names the address; `ss -ltnp` shows who listens.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::incident::{EACH, IncidentFigure, IncidentRule, row};
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        answers_logged_per_s, backend_connections_failed_logged, backend_dispatch_failed_logged,
        backend_unreachable_logged, bad_gateway_fraction, connections_refused_logged, ended_per_s,
        failed_fraction, no_address_logged, no_descriptors_logged, proxy_connections_failed_logged, rate,
        server_errors_answered_per_s,
    }],
    gain: Some(LimitGain::Failures),
    makes_errors: true,
    incidents: INCIDENTS,
    ..Limit::new(
        LimitId::BackendRefused,
        "Backend refuses connections",
        include_str!("mod.rs"),
        finding::check,
    )
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("apache_log.AH00957.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "a backend refused Apache's connection (AH00957)", EACH),
    row("apache_log.AH01079.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "a backend refused Apache's connection (AH01079)", EACH),
    row("apache_log.AH01075.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "a request to a backend failed (AH01075)", EACH),
];
