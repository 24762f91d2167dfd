//! When `kernel-limit-total` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::conntrack_full;
use crate::limits::manual_remedy::manual;
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::setting::SettingId;

const CONFIDENCE: f64 = 0.95;
/// Packets are lost for other reasons as well, and chance brings a total near to the size of a table, too.
const CONFIDENCE_OF_LOST_PACKETS: f64 = 0.5;

/// Fires when the run's own verdict says so.
pub fn check(facts: &Facts) -> Option<Finding> {
    let total = facts.kernel_limit_total.as_ref()?;
    if is_sustained(facts, &total.limit) {
        return None;
    }
    let is_sure = facts.opening_stopped;
    let remedy = |setting: &str, why: &str| manual(SettingId::generator(setting), "none for the server", why);
    Some(Finding {
        id: LimitId::KernelLimitTotal.into(),
        summary: format!(
            "The run {} a kernel table, not the server: {} connections opened in total, and {} allows {}. Discard \
             the rate.",
            if is_sure { "measured" } else { "may have measured" },
            format_number(total.connections as f64),
            total.limit,
            format_number(total.value as f64)
        ),
        confidence: if is_sure { CONFIDENCE } else { CONFIDENCE_OF_LOST_PACKETS },
        explains_fraction: None,
        facts: facts.cite(&fact_ids! {
            connections_opened_total, kernel_limit, connections_opened_per_s, connect_time_max_us,
            failed_fraction, rate,
        }),
        remedies: vec![
            remedy("kept connections", "one connection then carries many requests"),
            remedy(&total.limit, "a larger table fills later; measure for longer than entries are held"),
        ],
    })
}

/// Whether it is a table that was seen to be full on the server, in a load that lasted for longer than an entry is kept: then it
/// limits every load that is so high.
fn is_sustained(facts: &Facts, table: &str) -> bool {
    let life_s = facts.value(FactId::conntrack_closed_life_s);
    table.starts_with(conntrack_full::finding::SETTING)
        && life_s.zip(facts.window_s(FactId::rate)).is_some_and(|(life_s, window_s)| life_s < window_s)
        && conntrack_full::finding::check(facts).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::ranking::findings;
    use crate::facts::testing::facts;
    use webdyno_model::client::KernelLimitTotal;

    #[test]
    fn it_comes_before_what_the_figures_seem_to_say() {
        let mut facts = facts(
            &[(FactId::rate, 2823.0), (FactId::cpu_busy_fraction, 0.99), (FactId::run_queue_mean, 30.0)],
            &[],
        );
        assert!(check(&facts).is_none());
        let limit = "net.ipv4.ip_local_port_range".to_owned();
        facts.kernel_limit_total = Some(KernelLimitTotal { limit, value: 28_232, connections: 28_230 });
        for (stopped, confidence) in [(true, CONFIDENCE), (false, CONFIDENCE_OF_LOST_PACKETS)] {
            facts.opening_stopped = stopped;
            let all = findings(&facts);
            assert_eq!((all[0].id.as_str(), all[0].confidence), ("kernel-limit-total", confidence));
        }
        let all = findings(&facts);
        assert!(all[0].summary.contains("28,230 connections") && all[0].summary.contains("28,232"));
        assert!(all[0].remedies.iter().all(|remedy| remedy.setting_changes().is_empty()));
    }

    #[test]
    fn a_table_that_limits_loads_that_outlast_its_entries_is_named_by_its_own_limit() {
        for (life_s, first) in [(3.0, "conntrack-full"), (120.0, "kernel-limit-total")] {
            let full = [
                (FactId::rate, 4.0),
                (FactId::conntrack_full_fraction, 1.0),
                (FactId::conntrack_drops_per_s, 60.0),
                (FactId::conntrack_closed_life_s, life_s),
            ];
            let mut facts = facts(&full, &[]);
            let limit = "net.netfilter.nf_conntrack_max".to_owned();
            facts.kernel_limit_total = Some(KernelLimitTotal { limit, value: 1084, connections: 1087 });
            facts.opening_stopped = true;
            let all = findings(&facts);
            assert_eq!(all[0].id, first, "{life_s}");
            assert_eq!(all.iter().any(|one| one.id == "kernel-limit-total"), life_s > 10.0);
        }
    }
}
