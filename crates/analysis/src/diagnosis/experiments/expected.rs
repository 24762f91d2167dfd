//! What becomes of a load in each experiment, by the limit that binds. A table: what is not in it is not known.

use crate::limits::{LimitKind, by_id};
use webdyno_model::diagnosis::Outcome;
use webdyno_model::purpose::Purpose;

fn kind(id: &str) -> Option<LimitKind> {
    by_id(id)?.kind
}

/// Whether anything is expected of a finding.
pub(super) fn is_known(id: &str) -> bool {
    kind(id).is_some()
}

/// What is expected if this finding is the limit that binds; `None` where that is not known.
pub(super) fn of(what: Purpose, id: &str) -> Option<Outcome> {
    use LimitKind::{
        Concurrency, Connections, DocumentCost, Documents, IdleConnections, RequestCost, Transfer, Workers,
    };
    use Outcome::{Better, Same, Worse};
    Some(match (what, kind(id)?) {
        (Purpose::WithoutKeepalive, IdleConnections) => Better,
        (Purpose::WithoutKeepalive, Connections) => Worse,
        // Connections cost processors, too.
        (Purpose::WithoutKeepalive, Concurrency | RequestCost) => return None,
        (Purpose::WithoutKeepalive, _) => Same,
        (Purpose::WithoutResources, Documents | DocumentCost) => Same,
        (Purpose::WithoutResources, Transfer | Connections | IdleConnections) => Better,
        // Documents may be all that is dear.
        (Purpose::WithoutResources, Workers | Concurrency | RequestCost) => return None,
        (Purpose::HalfLoad, RequestCost | DocumentCost) => Same,
        (Purpose::HalfLoad, _) => Better,
        (Purpose::FromLoopback, Transfer) => Better,
        // The connections of loopback pass by what others are counted in.
        (Purpose::FromLoopback, Connections | IdleConnections) => return None,
        (Purpose::FromLoopback, _) => Same,
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
