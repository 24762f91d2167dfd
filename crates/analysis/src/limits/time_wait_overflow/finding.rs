//! When `time-wait-overflow` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::Limit;
use crate::limits::LimitId;
use crate::limits::manual_remedy::raised_sysctl;
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;

/// Overflows per second that fill a kernel's log.
const OVERFLOWS_PER_S_MIN: f64 = 1.0;
/// TCP_TIMEWAIT_LEN of Linux: not a setting.
const LIFE_S: f64 = 60.0;

/// Fires when the counter climbs and something else is found to limit.
pub fn check(facts: &Facts) -> Option<Finding> {
    let per_s =
        facts.value(FactId::time_wait_overflows_per_s).filter(|per_s| *per_s >= OVERFLOWS_PER_S_MIN)?;
    let names_a_cause = |limit: &&Limit| limit.is_fault && limit.id != LimitId::TimeWaitOverflow;
    crate::limits::ALL.iter().filter(names_a_cause).find_map(|limit| (limit.check)(facts))?;
    let kept = facts.value(FactId::time_wait_limit);
    let room = kept.map_or(String::new(), |kept| format!(" ({} entries)", format_number(kept)));
    // What overflows was closed, and what is kept was closed in the last minute.
    let closed_per_s = per_s + kept.unwrap_or(0.0) / LIFE_S;
    Some(Finding {
        id: LimitId::TimeWaitOverflow.into(),
        summary: format!(
            "TIME_WAIT table full{room}: {}/s closed connections are dropped from it at once. Counters and the kernel's log \
             show it, but no request is slower.",
            format_number(per_s)
        ),
        confidence: 0.3,
        explains_fraction: Some(0.0),
        facts: facts.cite(&fact_ids! {
            time_wait_overflows, time_wait_overflows_per_s, time_wait_limit, time_wait_mean,
        }),
        remedies: vec![raised_sysctl(
            "net.ipv4.tcp_max_tw_buckets",
            kept,
            (1.5 * closed_per_s * LIFE_S).max(4096.0).log2().ceil().exp2(),
            "about 250 bytes of kernel memory each; takes effect at once; no performance gain",
            &format!(
                "1.5 times the {} closed per second, times the {LIFE_S:.0} seconds that each is kept",
                format_number(closed_per_s)
            ),
        )],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::ranking::findings;
    use crate::facts::testing::facts;

    #[test]
    fn it_stands_beside_a_cause_and_never_alone() {
        let overflows = [(FactId::time_wait_overflows_per_s, 80.0), (FactId::time_wait_limit, 64.0)];
        assert!(check(&facts(&overflows, &[])).is_none());
        let healthy = [(FactId::cpu_busy_fraction, 0.3), (FactId::accept_queue_mean, 0.0)];
        let all = findings(&facts(&[&overflows[..], &healthy[..]].concat(), &[]));
        assert_eq!((all.len(), all[0].id.as_str()), (1, "healthy"));
        let queued = [(FactId::cpu_busy_fraction, 0.99), (FactId::cores, 2.0), (FactId::run_queue_mean, 9.0)];
        let all = findings(&facts(&[&overflows[..], &queued[..]].concat(), &[]));
        let ids: Vec<_> = all.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids, ["cpu-saturated", "time-wait-overflow"]);
        assert_eq!(all[1].remedies[0].to.as_ref().and_then(|to| to.number()), Some(8192.0));
        // Of a table whose size is not known no size is the larger one.
        let unknown = check(&facts(&[&overflows[..1], &queued[..]].concat(), &[])).unwrap();
        assert_eq!(unknown.remedies[0].to, None);
        let rare = [(FactId::time_wait_overflows_per_s, 0.2)];
        assert!(check(&facts(&[&rare[..], &queued[..]].concat(), &[])).is_none());
    }
}
