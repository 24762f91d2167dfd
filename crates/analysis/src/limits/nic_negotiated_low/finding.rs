//! When `nic-negotiated-low` is found, what proves it, and what to change.

use crate::facts::network::{LinkFacts, NIC_SENT, SHAPER_SENT};
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::limits::network_saturated;
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::setting::SettingId;

/// In half duplex senders wait for each other and collide: from this share on, of both directions, it is full.
const HALF_DUPLEX_FRACTION_MIN: f64 = 0.6;
/// What of the lost throughput goes with it.
const EXPLAINS: f64 = 0.95;

/// Fires when a link that could be faster is full.
pub fn check(facts: &Facts) -> Option<Finding> {
    let (link, names) = full_slow_link(facts)?;
    let of = |name: FactId| facts.value_of(name, &link);
    let speed = of(FactId::nic_sent_limit_bits_per_s)?;
    let supported = of(FactId::nic_supported_bits_per_s);
    let half = of(FactId::nic_full_duplex) == Some(0.0);
    let (duplex, used, ways) = match both_ways(facts, &link).filter(|_| half) {
        Some(used) => (" in half duplex", used, ", both directions together"),
        None => (if half { " in half duplex" } else { "" }, of(names.fraction).unwrap_or(0.0), ""),
    };
    let could = supported.filter(|supported| *supported > speed);
    let could = could.map_or(String::new(), |could| format!(" (supported: {})", format_number(could / 1e6)));
    let partner = of(FactId::nic_partner_bits_per_s).map_or(String::new(), |partner| {
        let why = if partner <= speed {
            "Its link partner (a switch) advertises no more"
        } else {
            "Its link partner advertises more"
        };
        format!(" {why}: {} Mbit/s.", format_number(partner / 1e6))
    });
    Some(Finding {
        id: LimitId::NicNegotiatedLow.into(),
        summary: format!(
            "Interface {} runs at {} Mbit/s{duplex}{could} and is {:.0}% used{ways}; responses wait for it.{partner}",
            network_saturated::finding::link_name(&link),
            format_number(speed / 1e6),
            used * 100.0,
        ),
        confidence: 0.95,
        explains_fraction: Some(EXPLAINS),
        facts: [
            facts.cite_of(
                &fact_ids! {
                    nic_sent_bits_per_s, nic_sent_fraction, nic_received_fraction, nic_sent_limit_bits_per_s,
                    nic_supported_bits_per_s, nic_partner_bits_per_s, nic_full_duplex,
                },
                &link,
            ),
            facts.cite(&[FactId::rate, FactId::response_time_inflation]),
        ]
        .concat(),
        remedies: vec![manual(
            SettingId::hardware("link speed"),
            "the link is down for some seconds while it renegotiates; never force a speed on one side alone",
            "use a cable and a port that support the card's speed, with autonegotiation on both sides",
        )],
    })
}

/// The link, and in which direction it is fullest.
fn full_slow_link(facts: &Facts) -> Option<(String, &'static LinkFacts)> {
    if let Some(full) =
        network_saturated::finding::fullest_link(facts).filter(|full| *full.names != SHAPER_SENT)
    {
        let speed = facts.value_of(full.names.limit_bits_per_s, &full.link)?;
        let supported = facts.value_of(FactId::nic_supported_bits_per_s, &full.link);
        if supported.is_some_and(|supported| supported > speed) {
            return Some((full.link, full.names));
        }
    }
    let half = facts.each(FactId::nic_full_duplex).filter(|(_, full)| *full == 0.0);
    let full = half
        .filter(|(link, _)| both_ways(facts, link).is_some_and(|share| share >= HALF_DUPLEX_FRACTION_MIN));
    full.map(|(link, _)| (link.to_owned(), &NIC_SENT)).next()
}

/// The share of a link that both directions use together, as they have to take turns in half duplex.
fn both_ways(facts: &Facts, link: &str) -> Option<f64> {
    let of = |name: FactId| facts.value_of(name, link);
    Some(of(FactId::nic_sent_fraction)? + of(FactId::nic_received_fraction)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts_of_several;

    fn link(sent: f64, supported: f64, full_duplex: f64) -> Facts {
        facts_of_several(
            &[(FactId::retransmits_per_s, 30.0)],
            &[
                (FactId::nic_sent_bits_per_s, "eth0", sent * 1e8),
                (FactId::nic_sent_limit_bits_per_s, "eth0", 1e8),
                (FactId::nic_sent_fraction, "eth0", sent),
                (FactId::nic_received_fraction, "eth0", 0.05),
                (FactId::nic_supported_bits_per_s, "eth0", supported),
                (FactId::nic_partner_bits_per_s, "eth0", 1e8),
                (FactId::nic_full_duplex, "eth0", full_duplex),
            ],
        )
    }

    #[test]
    fn a_tenth_of_what_the_card_can_is_named_before_the_full_link() {
        let all = crate::diagnosis::ranking::findings(&link(0.97, 1e9, 1.0));
        let ids: Vec<_> = all.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids, ["nic-negotiated-low", "network-saturated"]);
        let text = "Interface eth0 runs at 100 Mbit/s (supported: 1000) and is 97% used; responses wait for it. Its link \
                    partner (a switch) advertises no more: 100 Mbit/s.";
        assert_eq!(all[0].summary, text);
    }

    #[test]
    fn in_half_duplex_both_directions_count() {
        let summary = check(&link(0.6, 1e8, 0.0)).unwrap().summary;
        assert!(
            summary.contains("100 Mbit/s in half duplex and is 65% used, both directions together;"),
            "{summary}"
        );
    }

    #[test]
    fn a_slow_link_with_room_or_a_full_one_that_is_no_slower_than_it_can_be_is_none() {
        for (sent, supported, full_duplex, fires) in
            [(0.5, 1e9, 1.0, false), (0.97, 1e8, 1.0, false), (0.6, 1e9, 0.0, true), (0.3, 1e9, 0.0, false)]
        {
            assert_eq!(check(&link(sent, supported, full_duplex)).is_some(), fires, "{sent} {supported}");
        }
    }
}
