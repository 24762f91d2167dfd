//! What becomes of a load in each experiment, by the limit that binds. A table: what is not in it is not known.

use webdyno_model::diagnosis::Outcome;
use webdyno_model::event::Purpose;

/// Kinds of limits, by what they are a limit on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// On new connections.
    Connections,
    /// On workers or slots that kept connections hold while they idle.
    Kept,
    /// On bytes, or on the way to the client.
    Way,
    /// On what computes documents, and not on files beside them; it binds while many ask at once.
    Computing,
    /// On how many requests are served at once, whatever they ask for.
    Places,
    /// A cost that each document has to itself, however few ask.
    DocumentCost,
    /// A cost of each request or connection, however few ask.
    Cost,
}

#[rustfmt::skip] // a table, one kind a block
const KINDS: &[(Kind, &[&str])] = &[
    (Kind::Connections, &["accept-queue-overflow", "syn-queue-overflow", "conntrack-full", "time-wait-overflow",
        "lost-syns", "tls-handshakes"]),
    (Kind::Kept, &["keepalive-holds-workers", "apache-async-cap"]),
    (Kind::Way, &["network-saturated", "upstream-bandwidth", "nic-negotiated-low", "slow-clients"]),
    (Kind::Computing, &["php-fpm-workers-exhausted", "db-connections-exhausted", "db-lock-contention", "db-thread-churn"]),
    (Kind::Places, &["apache-workers-exhausted", "apache-scoreboard-full", "apache-setting-clamped", "memory-exhausted",
        "cpu-saturated", "cpu-throttled", "softirq-bound"]),
    (Kind::DocumentCost, &["db-slow-queries", "db-cache-too-small", "opcache-off", "opcache-full"]),
    (Kind::Cost, &["hostname-lookups", "htaccess-lookups", "apache-symlink-checks", "apache-negotiation", "rate-limited",
        "foreign-load", "log-io", "log-verbosity"]),
];

fn kind(id: &str) -> Option<Kind> {
    KINDS.iter().find(|(_, ids)| ids.contains(&id)).map(|(kind, _)| *kind)
}

/// Whether anything is expected of a finding.
pub(super) fn is_known(id: &str) -> bool {
    kind(id).is_some()
}

/// What is expected if this finding is the limit that binds; `None` where that is not known.
pub(super) fn of(what: Purpose, id: &str) -> Option<Outcome> {
    use Kind::{Computing, Connections, Cost, DocumentCost, Kept, Places, Way};
    use Outcome::{Better, Same, Worse};
    Some(match (what, kind(id)?) {
        (Purpose::WithoutKeepalive, Kept) => Better,
        (Purpose::WithoutKeepalive, Connections) => Worse,
        // Connections cost processors, too.
        (Purpose::WithoutKeepalive, Places | Cost) if id != "apache-workers-exhausted" => return None,
        (Purpose::WithoutKeepalive, _) => Same,
        (Purpose::WithoutResources, Computing | DocumentCost) => Same,
        (Purpose::WithoutResources, Way | Connections | Kept) => Better,
        // Documents may be all that is dear.
        (Purpose::WithoutResources, Places | Cost) => return None,
        (Purpose::HalfLoad, Cost | DocumentCost) => Same,
        (Purpose::HalfLoad, Way | Connections | Kept | Computing | Places) => Better,
        (Purpose::FromLoopback, Way) => Better,
        // The connections of loopback pass by what others are counted in.
        (Purpose::FromLoopback, Connections | Kept) => return None,
        (Purpose::FromLoopback, Computing | Places | Cost | DocumentCost) => Same,
        _ => return None,
    })
}

/// How an experiment begins a sentence.
pub(super) fn name(what: Purpose) -> &'static str {
    match what {
        Purpose::WithoutResources => "Without the embedded resources",
        Purpose::WithoutKeepalive => "With a new connection for each request",
        Purpose::HalfLoad => "At half the load",
        Purpose::FromLoopback => "From the server itself",
        _ => "Again",
    }
}
