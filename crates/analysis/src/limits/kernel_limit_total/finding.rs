//! When `kernel-limit-total` is found, what proves it, and what to change.

use crate::facts::{Facts, fact_ids};
use crate::limits::LimitId;
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::setting::SettingId;

const CONFIDENCE: f64 = 0.95;
/// Packets are lost for other reasons as well, and chance brings a total near to the size of a table, too.
const CONFIDENCE_OF_LOST_PACKETS: f64 = 0.5;

/// Fires when the run's own verdict says so.
pub fn check(facts: &Facts) -> Option<Finding> {
    let total = facts.kernel_limit_total.as_ref()?;
    let is_sure = facts.opening_stopped;
    let remedy = |setting: &str, class, why: &str| Remedy {
        setting: SettingId::generator(setting),
        from: None,
        to: None,
        class,
        risk: "none for the server".into(),
        why: why.into(),
        predicted: None,
        together_with: vec![],
    };
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
            remedy("kept connections", ApplyClass::Manual, "one connection then carries many requests"),
            remedy(
                &total.limit,
                ApplyClass::Manual,
                "a larger table fills later; measure for longer than entries are held",
            ),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::ranking::findings;
    use crate::facts::FactId;
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
}
