//! When `lost-syns` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::{concurrency, processors};
use crate::wording::format_number;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

/// One in a hundred: in the 99th percentile of the response times.
const LOST_FRACTION_MIN: f64 = 0.01;
/// Fewer are chance.
const LOST_MIN: f64 = 5.0;
/// When the server itself dropped so many of what was lost, it is its drops that have to be explained.
const SERVER_SHARE_MAX: f64 = 0.2;
/// Where the processors are full in spite of it, more requests that arrive get no more of them.
const CONFIDENCE_MAX_FULL: f64 = 0.5;

/// Fires when SYNs are lost and nothing of the server is known to have dropped them.
pub fn check(facts: &Facts) -> Option<Finding> {
    let lost = facts.value(FactId::lost_syn_connections).filter(|lost| *lost >= LOST_MIN)?;
    let share = facts.value(FactId::lost_syn_fraction).filter(|share| *share >= LOST_FRACTION_MIN)?;
    let by_server = fact_ids! {
        listen_drops, conntrack_drops, syn_queue_drops, packets_dropped_unread,
    };
    let dropped = |name: &FactId| facts.value(*name).is_some_and(|drops| drops > SERVER_SHARE_MAX * lost);
    if by_server.iter().any(dropped) || crate::limits::conntrack_full::finding::is_full(facts) == Some(true) {
        return None;
    }
    // Packets of all kinds are lost where a queue on the way is full: that is the line's finding.
    if crate::limits::network_saturated::finding::fullest_link(facts).is_some() {
        return None;
    }
    let is_observed = facts.value(FactId::listen_drops).is_some();
    // Only a client knows how long it connected; what the server sees came as far as its network interface.
    let came_here = facts.value(FactId::connect_time_p99_us).is_none();
    let (confidence, server): (f64, &str) = match (is_observed, came_here) {
        (true, true) => (
            0.8,
            "They came to this machine, and no queue of the server dropped them: its firewall does, or the replies are lost",
        ),
        (true, false) => {
            (0.9, "No queue of the server dropped them: a firewall does, its own one or another, or the path")
        }
        (false, _) => (0.5, "Whether the server dropped them could not be seen"),
    };
    Some(Finding {
        id: LimitId::LostSyns.into(),
        summary: format!(
            "{:.0}% of the connections ({}) lost their SYN: connected only after a retransmit (1, 2, 3 or more whole \
             seconds) or not at all. {server}.",
            share * 100.0,
            format_number(lost)
        ),
        confidence: if processors::are_short(facts) {
            confidence.min(CONFIDENCE_MAX_FULL)
        } else {
            confidence
        },
        // An answer that is an error is one for another reason, however long its connection took.
        explains_fraction: crate::limits::common::connect_time_share(facts)
            .map(|share| significant(share * (1.0 - concurrency::errors_fraction(facts)), 3)),
        facts: facts.cite(&fact_ids! {
            lost_syn_connections, lost_syn_fraction, connect_time_p99_us, connect_time_max_us,
            connecting_fraction, connect_timeouts, listen_drops, listen_overflows, conntrack_drops,
            accept_queue_max, response_time_p99_us,
        }),
        remedies: remedies(),
    })
}

fn remedies() -> Vec<Remedy> {
    vec![
        manual(
            SettingId::external("network", "path"),
            "a limit on new connections may be intended: ask its owners",
            "find what drops SYNs: a rule of the server's own firewall (nft list ruleset, iptables -S, fail2ban-client status), a rate \
             limit for new connections or a full table of a firewall or load balancer before it, a damaged line",
        ),
        manual(
            SettingId::external("clients", "keep-alive"),
            "holds a worker or a socket between requests",
            "fewer new connections, so fewer SYNs can be lost",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    const LOST: [(FactId, f64); 6] = [
        (FactId::lost_syn_connections, 110.0),
        (FactId::lost_syn_fraction, 0.14),
        (FactId::connecting_fraction, 0.8),
        (FactId::connect_time_p99_us, 3_004_000.0),
        (FactId::listen_drops, 0.0),
        (FactId::conntrack_full_fraction, 0.0),
    ];

    #[test]
    fn what_the_server_did_not_drop_was_lost_on_the_way() {
        let finding = check(&facts(&LOST, &[])).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.9, Some(0.8)));
        assert!(finding.summary.contains("14% of the connections (110)"), "{}", finding.summary);
        assert!(finding.summary.contains("a firewall does, its own one or another"), "{}", finding.summary);
        assert_eq!(check(&facts(&LOST[..4], &[])).unwrap().confidence, 0.5);
        let errors = [&LOST[..], &[(FactId::bad_gateway_fraction, 0.75)]].concat();
        assert_eq!(check(&facts(&errors, &[])).unwrap().explains_fraction, Some(0.2));
    }

    #[test]
    fn full_processors_come_first() {
        let full = [
            (FactId::cpu_busy_fraction, 0.99),
            (FactId::cores, 2.0),
            (FactId::service_cpu_cores, 1.9),
            (FactId::pressure_group_cpu_some_fraction, 0.9),
        ];
        let finding = check(&facts(&[&LOST[..], &full[..]].concat(), &[])).unwrap();
        assert_eq!(finding.confidence, CONFIDENCE_MAX_FULL);
    }

    #[test]
    fn what_the_server_itself_saw_again_is_its_own_firewall() {
        let on_server: Vec<_> = LOST
            .into_iter()
            .filter(|(fact, _)| ![FactId::connecting_fraction, FactId::connect_time_p99_us].contains(fact))
            .collect();
        let finding = check(&facts(&on_server, &[])).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.8, None));
        assert!(finding.summary.contains("came to this machine"), "{}", finding.summary);
    }

    #[test]
    fn what_the_server_drops_or_hardly_anybody_notices_is_none() {
        for (name, value) in [
            (FactId::listen_drops, 60.0),
            (FactId::conntrack_drops, 300.0),
            (FactId::packets_dropped_unread, 80.0),
            (FactId::conntrack_full_fraction, 0.9),
            (FactId::lost_syn_fraction, 0.004),
            (FactId::lost_syn_connections, 3.0),
        ] {
            let kept = LOST.iter().filter(|(other, _)| *other != name).copied();
            let values: Vec<_> = kept.chain([(name, value)]).collect();
            assert!(check(&facts(&values, &[])).is_none(), "{name} {value}");
        }
        assert!(check(&facts(&[(FactId::listen_drops, 0.0)], &[])).is_none(), "without load of our own");
    }
}
