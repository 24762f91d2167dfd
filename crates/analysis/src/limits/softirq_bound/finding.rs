//! When `softirq-bound` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::raised_sysctl;
use crate::wording::format_number;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

/// A core that is so busy has no time left.
const CORE_BUSY_MIN: f64 = 0.9;
/// With this share of its time in soft interrupts they are what fills it.
const SOFTIRQ_MIN: f64 = 0.6;
/// Of what the core has, another one has this share at most: else the packets are spread, and there are many.
const OTHER_SHARE_MAX: f64 = 0.5;
/// Looks a second that ended before the packets did; drops count from the first second on.
const SQUEEZED_PER_S_MIN: f64 = 1.0;
const DROPPED_PER_S_MIN: f64 = 1.0;

/// Longer than this no packet takes, sent answers counted with the received: a firewall of a hundred thousand rules in a row
/// is through in a millisecond. With fewer packets somebody else's fill the core: another guest's, another network's.
const PACKET_S_MAX: f64 = 1e-3;
/// About as many packets go out as come in.
const PACKETS_PER_RECEIVED: f64 = 2.0;

/// Fires when the packets fill one core.
pub fn check(facts: &Facts) -> Option<Finding> {
    let mut by_core: Vec<(&str, f64)> = facts.each(FactId::core_softirq_fraction).collect();
    by_core.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (core, softirq) = *by_core.first()?;
    let other = by_core.get(1)?.1;
    let busy = facts.value_of(FactId::core_busy_fraction, core)?;
    if softirq < SOFTIRQ_MIN || busy < CORE_BUSY_MIN || other > OTHER_SHARE_MAX * softirq {
        return None;
    }
    if packets_per_s(facts).is_some_and(|packets| softirq > packets * PACKET_S_MAX) {
        return None;
    }
    let at_least = |name: FactId, min: f64| facts.value(name).filter(|value| *value >= min);
    let squeezed = at_least(FactId::packets_squeezed_per_s, SQUEEZED_PER_S_MIN);
    let dropped = at_least(FactId::packets_dropped_per_s, DROPPED_PER_S_MIN);
    let kernel = dropped.map(|rate| format!(" and drops {} packets/s", format_number(rate)));
    let kernel =
        kernel.or(squeezed.map(|rate| format!(" and postpones packets {} times/s", format_number(rate))));
    let number = core.trim_start_matches("core");
    let mut finding = Finding {
        id: LimitId::SoftirqBound.into(),
        summary: format!(
            "One core saturated by packets: core {number} spends {:.0}% of its time on them{}, the others at most {:.0}%. The other cores wait for it.",
            softirq.min(1.0) * 100.0,
            kernel.unwrap_or_default(),
            other * 100.0
        ),
        confidence: if squeezed.or(dropped).is_some() { 0.9 } else { 0.75 },
        explains_fraction: Some(significant(softirq.min(1.0), 3)),
        facts: facts.cite_of(&[FactId::core_softirq_fraction, FactId::core_busy_fraction], core),
        remedies: remedies(dropped),
    };
    finding.facts.extend(facts.cite(&fact_ids! {
        packets_squeezed_per_s, packets_dropped_per_s, received_packets_per_s, service_received_packets_per_s,
        cpu_softirq_fraction, cpu_busy_fraction, service_cpu_cores, rate,
    }));
    Some(finding)
}

/// Packets that come and go, of the busiest link that is seen; `None` where none is.
fn packets_per_s(facts: &Facts) -> Option<f64> {
    let links = [FactId::received_packets_per_s, FactId::service_received_packets_per_s];
    let received = links.into_iter().filter_map(|name| facts.value(name)).reduce(f64::max)?;
    Some(PACKETS_PER_RECEIVED * received)
}

fn remedies(dropped: Option<f64>) -> Vec<Remedy> {
    let manual = |setting: &str, risk: &str, why: &str| {
        crate::limits::manual_remedy::manual(SettingId::hardware(setting), risk, why)
    };
    let mut all = vec![
        manual(
            "cost per packet",
            "none, if the set contains what the rules did",
            "check the path of each packet: many firewall rules in a row become one rule with a set of addresses, which does the same in one step",
        ),
        manual(
            "packet queues",
            "packets of one connection stay in order; CPU caches are less effective",
            "spread the packets over the cores: more queues of the card (ethtool -L), or rps_cpus of its queue",
        ),
    ];
    if dropped.is_some() {
        all.push(raised_sysctl(
            "net.core.netdev_max_backlog",
            None,
            10_000.0,
            "packets wait longer instead of being lost",
            "packets are dropped before they are processed: ten times the default holds a burst",
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool};

    fn of(cores: &[(f64, f64)], more: &[(FactId, f64)]) -> Option<Finding> {
        let mut facts = facts(&[&[(FactId::rate, 1600.0)], more].concat(), &[]);
        for (index, (busy, softirq)) in cores.iter().enumerate() {
            let values = [(FactId::core_busy_fraction, *busy), (FactId::core_softirq_fraction, *softirq)];
            of_pool(&mut facts, &format!("core{index}"), &values);
        }
        check(&facts)
    }

    #[test]
    fn one_core_with_all_the_packets_is_named() {
        let squeezed = [(FactId::packets_squeezed_per_s, 28.0)];
        let finding = of(&[(0.3, 0.02), (1.0, 0.97)], &squeezed).unwrap();
        assert!(finding.summary.contains("core 1 spends 97%"), "{}", finding.summary);
        assert_eq!((finding.confidence, finding.remedies.len()), (0.9, 2));
        assert_eq!(of(&[(0.3, 0.02), (1.0, 0.97)], &[]).unwrap().confidence, 0.75);
        let dropped = of(&[(0.3, 0.02), (1.0, 0.97)], &[(FactId::packets_dropped_per_s, 500.0)]).unwrap();
        let backlog = &dropped.remedies[2];
        // Nobody read how large it is: on some machines far larger.
        assert_eq!((backlog.setting.name.as_str(), &backlog.to), ("net.core.netdev_max_backlog", &None));
    }

    #[test]
    fn packets_that_are_spread_or_leave_time_are_no_limit() {
        for cores in [
            &[(1.0, 0.4), (0.2, 0.0)][..],
            &[(0.7, 0.65), (0.2, 0.0)],
            &[(1.0, 0.7), (1.0, 0.6)],
            &[(1.0, 0.9)],
        ] {
            assert!(of(cores, &[(FactId::packets_squeezed_per_s, 28.0)]).is_none(), "{cores:?}");
        }
    }

    #[test]
    fn a_core_that_is_full_of_packets_of_others_is_not_ours() {
        for (received, ours) in [(100.0, false), (1300.0, true)] {
            let found = of(&[(0.3, 0.02), (1.0, 0.97)], &[(FactId::received_packets_per_s, received)]);
            assert_eq!(found.is_some(), ours, "{received}");
        }
    }
}
