//! When `conntrack-full` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::{manual, raised_sysctl};
use crate::wording::format_number;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::setting::SettingId;

/// The table must be full in this share of the samples: a table that sheds old entries swings below its limit.
const FULL_FRACTION_MIN: f64 = 0.2;
/// Dropped packets per second that matter.
const DROPS_PER_S_MIN: f64 = 0.1;
/// From this share of connections on that needed a retransmit it matters.
const LOST_FRACTION_MIN: f64 = 0.005;
/// An entry lives for so long after its connection was closed (nf_conntrack_tcp_timeout_time_wait), where nothing else is known.
const LIFE_S: f64 = 120.0;
/// Room for what comes in bursts, and for days that are busier than this one.
const ROOM: f64 = 1.5;
/// An entry whose time is over counts until the kernel's next scan, at most so much later (GC_SCAN_INTERVAL_MAX of
/// net/netfilter/nf_conntrack_core.c).
const SCAN_S_MAX: f64 = 60.0;
/// A first packet that is dropped is sent again each second for some seconds until its sender gives up: of the packets that
/// were dropped at least so many were of different connections.
const PACKETS_PER_ATTEMPT: f64 = 3.0;
/// Bytes of an entry (the slab nf_conntrack of 64-bit kernels).
const ENTRY_BYTES: f64 = 320.0;
/// Where entries per bucket are more than this, finding one takes time.
const ENTRIES_PER_BUCKET: f64 = 4.0;

/// How many entries it has.
pub(crate) const SETTING: &str = "net.netfilter.nf_conntrack_max";

/// Fires when the table is full and connections are dropped for it.
pub fn check(facts: &Facts) -> Option<Finding> {
    let at_least = |name: FactId, min: f64| facts.value(name).is_some_and(|value| value >= min);
    let dropped = at_least(FactId::conntrack_drops_per_s, DROPS_PER_S_MIN);
    let reported = at_least(FactId::conntrack_full_messages, 1.0);
    let lost = at_least(FactId::lost_syn_fraction, LOST_FRACTION_MIN);
    let confidence = match is_full(facts) {
        Some(true) if dropped || reported => 0.95,
        Some(true) if lost => 0.8,
        // One sample per second may miss a table that swings, and the counter of drops counts nothing else but errors.
        None if reported && lost => 0.8,
        None if reported => 0.6,
        _ => return None,
    };
    let limit = facts.value(FactId::conntrack_limit);
    let entries = facts.value(FactId::conntrack_entries_max);
    let held: Vec<_> = [entries, limit].into_iter().flatten().map(format_number).collect();
    let held = if held.is_empty() { String::new() } else { format!(" ({})", held.join(" of ")) };
    let drops = facts.value(FactId::conntrack_drops).filter(|drops| *drops > 0.0);
    let drops = drops.map_or(String::new(), |drops| {
        format!("; the kernel dropped {} packets of new connections", format_number(drops))
    });
    Some(Finding {
        id: LimitId::ConntrackFull.into(),
        summary: format!(
            "Conntrack table full{held}{drops}. Established connections work; new ones wait seconds for a retransmit, or time out.",
        ),
        confidence,
        explains_fraction: crate::limits::common::connect_time_share(facts),
        facts: facts.cite(&fact_ids! {
            conntrack_entries_max, conntrack_limit, conntrack_full_fraction, conntrack_drops,
            conntrack_drops_per_s, conntrack_early_drops, conntrack_full_messages, conntrack_buckets,
            conntrack_closed_life_s, new_connections_per_s, new_connections_peak_per_s,
            connection_attempts_per_s, lost_syn_connections, lost_syn_fraction, connecting_fraction,
            connect_timeouts, rate,
        }),
        remedies: remedies(facts, limit),
    })
}

/// Whether the table was seen to be full; `None` when it was not seen at all.
pub(crate) fn is_full(facts: &Facts) -> Option<bool> {
    facts.value(FactId::conntrack_full_fraction).map(|share| share >= FULL_FRACTION_MIN)
}

/// New connections a second that are attempted, whether they get through or not.
pub(crate) fn attempts_per_s(facts: &Facts) -> Option<f64> {
    let through = facts.value(FactId::new_connections_per_s).unwrap_or(0.0);
    let dropped = facts.value(FactId::conntrack_drops_per_s).unwrap_or(0.0);
    let known =
        facts.value(FactId::connection_attempts_per_s).or(facts.value(FactId::new_connections_peak_per_s));
    // What the generator counts is what was attempted; of others only the packets that were dropped are known.
    let guessed = if facts.loaded { through } else { through + dropped / PACKETS_PER_ATTEMPT };
    Some(known.unwrap_or(0.0).max(guessed)).filter(|attempts| *attempts > 0.0)
}

fn remedies(facts: &Facts, limit: Option<f64>) -> Vec<Remedy> {
    let risk = |entries: f64| {
        format!(
            "{} MB of kernel memory when full; applied live; for a container, set on its host",
            format_number((entries * ENTRY_BYTES / 1e6).ceil())
        )
    };
    let mut all = vec![];
    if let Some(attempts) = attempts_per_s(facts) {
        // Never less than twice what was too small.
        let life_s =
            facts.value(FactId::conntrack_closed_life_s).filter(|life_s| *life_s > 0.0).unwrap_or(LIFE_S);
        let counts_s = (ROOM * life_s).max(life_s + SCAN_S_MAX);
        let wanted = (attempts * counts_s).max(2.0 * limit.unwrap_or(0.0)).ceil();
        let why = format!(
            "room for {} connection attempts per second over {} s: an entry stays {} s after close, and until the kernel's next scan",
            format_number(attempts),
            format_number(counts_s),
            format_number(life_s)
        );
        all.push(raised_sysctl(SETTING, limit, wanted, &risk(wanted), &why));
        let buckets = facts.value(FactId::conntrack_buckets);
        if buckets.is_some_and(|buckets| wanted > ENTRIES_PER_BUCKET * buckets) {
            all.push(raised_sysctl(
                "net.netfilter.nf_conntrack_buckets",
                buckets,
                (wanted / ENTRIES_PER_BUCKET).log2().ceil().exp2(),
                "8 bytes of memory per bucket; the table is rebuilt once",
                "a larger table needs more buckets for fast lookups",
            ));
        }
    }
    let keep = "one table entry then serves many requests";
    all.push(manual(
        SettingId::external("clients", "keep-alive"),
        "holds a worker or a socket between requests",
        keep,
    ));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};
    use webdyno_model::service::SettingValue;

    const FULL: &[(FactId, f64)] = &[
        (FactId::conntrack_entries_max, 65_536.0),
        (FactId::conntrack_limit, 65_536.0),
        (FactId::conntrack_full_fraction, 0.8),
        (FactId::conntrack_drops, 12_000.0),
        (FactId::conntrack_drops_per_s, 1200.0),
        (FactId::conntrack_full_messages, 10.0),
        (FactId::conntrack_buckets, 16_384.0),
        (FactId::new_connections_per_s, 540.0),
        (FactId::new_connections_peak_per_s, 900.0),
        (FactId::connection_attempts_per_s, 1000.0),
        (FactId::lost_syn_fraction, 0.4),
        (FactId::connecting_fraction, 0.9),
    ];

    fn with(changes: &[(FactId, f64)]) -> Facts {
        facts(&with_changes(FULL, changes), &[])
    }

    const UNKNOWN: f64 = f64::NAN;

    #[test]
    fn a_full_table_needs_a_second_witness() {
        for (changes, confidence) in [
            (&[][..], Some(0.95)),
            // The counters need root, the log may not be readable.
            (&[(FactId::conntrack_drops_per_s, UNKNOWN)][..], Some(0.95)),
            (
                &[(FactId::conntrack_drops_per_s, UNKNOWN), (FactId::conntrack_full_messages, UNKNOWN)][..],
                Some(0.8),
            ),
            (
                &[
                    (FactId::conntrack_drops_per_s, 0.0),
                    (FactId::conntrack_full_messages, 0.0),
                    (FactId::lost_syn_fraction, 0.0),
                ][..],
                None,
            ),
            // Nearly full is not full, and lost packets have other causes.
            (&[(FactId::conntrack_full_fraction, 0.0)][..], None),
            (&[(FactId::conntrack_full_fraction, UNKNOWN)][..], Some(0.8)),
            (
                &[(FactId::conntrack_full_fraction, UNKNOWN), (FactId::lost_syn_fraction, UNKNOWN)][..],
                Some(0.6),
            ),
            (
                &[(FactId::conntrack_full_fraction, UNKNOWN), (FactId::conntrack_full_messages, UNKNOWN)][..],
                None,
            ),
        ] {
            assert_eq!(check(&with(changes)).map(|finding| finding.confidence), confidence, "{changes:?}");
        }
    }

    #[test]
    fn the_table_is_made_for_what_is_attempted_and_the_firewall_stays() {
        let finding = check(&with(&[])).unwrap();
        let [size, buckets, keep] = &finding.remedies[..] else { panic!("{:?}", finding.remedies) };
        assert_eq!(
            (size.setting.name.as_str(), &size.from, &size.to),
            (
                "net.netfilter.nf_conntrack_max",
                &Some(SettingValue::Integer(65_536)),
                &Some(SettingValue::Integer(180_000))
            )
        );
        assert_eq!(buckets.to, Some(SettingValue::Integer(65_536)));
        assert_eq!((keep.setting.name.as_str(), finding.explains_fraction), ("keep-alive", Some(0.9)));
        // Of the kernel's settings the machine says whether they can be set; keeping connections is for a person.
        let is_candidate = [size, buckets, keep].map(|remedy| !remedy.setting_changes().is_empty());
        assert_eq!(is_candidate, [true, true, false]);
    }

    #[test]
    fn attempts_are_told_by_the_generator_or_by_what_was_dropped() {
        let mut foreign = with(&[(FactId::connection_attempts_per_s, UNKNOWN)]);
        assert_eq!(attempts_per_s(&foreign), Some(900.0));
        foreign.loaded = false;
        assert_eq!(attempts_per_s(&foreign), Some(940.0));
        assert_eq!(attempts_per_s(&facts(&[], &[])), None);
        // A table that was far too small for a slow trickle is doubled at least.
        let trickle = [(FactId::connection_attempts_per_s, 10.0), (FactId::new_connections_per_s, 10.0)];
        let size =
            |values| check(&with(values)).unwrap().remedies[0].to.as_ref().and_then(SettingValue::number);
        assert_eq!(size(&trickle), Some(131_072.0));
        // Entries that live for longer need more places.
        assert_eq!(size(&[(FactId::conntrack_closed_life_s, 240.0)]), Some(360_000.0));
        // A table that is not seen may have more places than that.
        assert_eq!(
            size(&[(FactId::conntrack_full_fraction, UNKNOWN), (FactId::conntrack_limit, UNKNOWN)]),
            None
        );
        // Those that live for 3 s count until they are found to be over.
        assert_eq!(
            size(&[(FactId::conntrack_closed_life_s, 3.0), (FactId::conntrack_limit, 1000.0)]),
            Some(63_000.0)
        );
    }
}
