//! `memory-exhausted`: the server needs more memory than there is, and pages travel to and from swap.
//!
//! Each worker costs memory. When all of them together do not fit, the kernel swaps, and every request waits for the
//! disk: far slower than if fewer workers had made it wait in the queue. Where the control group allows no swap, the
//! kernel ends processes instead.
//!
//! ## How it is recognised
//! All processes stall on memory at times (pressure stall information, `full`) while pages are swapped in, or the
//! kernel killed processes for want of memory. The control group's limit counts before the machine's.
//!
//! ## What to do
//! Lower `MaxRequestWorkers` to what fits: (available memory + what the workers hold now, swapped parts too - a
//! reserve of a tenth) / what one more worker costs. The honest size of a worker is its share (PSS), not its
//! resident size: the latter counts shared pages once per process. Then more memory, if the rate does not suffice.
//!
//! ## By hand
//! `vmstat 1` (si, so), `cat /proc/pressure/memory`, `cat /proc/PID/smaps_rollup`, `dmesg | grep -i 'killed process'`.

use super::{say, say_bytes};
use crate::facts::Facts;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;

/// Stable id.
pub const ID: &str = "memory-exhausted";

/// Below this share of time in which nobody could work for want of memory, it costs less than the noise.
const FULL_FRACTION_MIN: f64 = 0.02;
/// Memory kept for the kernel, the page cache and everything else.
const RESERVE_FRACTION: f64 = 0.10;

/// Fires on thrashing, or when processes were killed.
pub fn check(facts: &Facts) -> Option<Finding> {
    let full = stalled_fraction(facts);
    let swapped_in = facts.value("swapped_in_pages_per_s").unwrap_or(0.0);
    let swapped = swapped_in + facts.value("swapped_out_pages_per_s").unwrap_or(0.0);
    let killed = facts.value("oom_kills").unwrap_or(0.0);
    let thrashes = full.is_some_and(|full| full >= FULL_FRACTION_MIN) && swapped_in >= 1.0;
    if !thrashes && killed < 1.0 {
        return None;
    }
    let what = if killed >= 1.0 {
        format!("the kernel killed {} process{}", say(killed), if killed == 1.0 { "" } else { "es" })
    } else {
        format!("{} pages a second travel to and from swap", say(swapped))
    };
    let stalled = full.map_or(String::new(), |full| {
        format!(", and for {:.0}% of the time nothing could run for want of memory", full * 100.0)
    });
    Some(Finding {
        id: ID.into(),
        summary: format!("The server needs more memory than there is: {what}{stalled}."),
        confidence: 0.9,
        explains_fraction: full.map(|full| webdyno_model::number::significant(full.min(1.0), 3)),
        facts: facts.cite(&[
            "pressure_memory_full_fraction",
            "pressure_group_memory_full_fraction",
            "swapped_in_pages_per_s",
            "swapped_out_pages_per_s",
            "oom_kills",
            "memory_limit_bytes",
            "memory_available_min_bytes",
            "worker_memory_sum_bytes",
            "worker_swap_sum_bytes",
            "worker_private_mean_bytes",
            "service_processes_mean",
            "rate",
        ]),
        remedies: remedy(facts).into_iter().collect(),
    })
}

fn stalled_fraction(facts: &Facts) -> Option<f64> {
    let machine = facts.value("pressure_memory_full_fraction");
    let group = facts.value("pressure_group_memory_full_fraction");
    machine.into_iter().chain(group).reduce(f64::max)
}

/// How many workers fit into memory: (available + held by the workers - reserve) / cost of one more. `None` when it
/// cannot be told.
pub fn workers_that_fit(facts: &Facts) -> Option<f64> {
    let limit = facts.value("memory_limit_bytes").or_else(|| facts.value("memory_total_bytes"))?;
    let each = facts.value("worker_private_mean_bytes").filter(|bytes| *bytes > 0.0)?;
    let held = facts.value("worker_memory_sum_bytes")? + facts.value("worker_swap_sum_bytes").unwrap_or(0.0);
    let machine_free = facts.value("memory_available_min_bytes")?;
    let group_free = facts.value("memory_used_in_limit_max_bytes").map(|used| (limit - used).max(0.0));
    let free = group_free.map_or(machine_free, |group| group.min(machine_free));
    // Swapped parts come back into memory: they use up what is available.
    let swapped = facts.value("worker_swap_sum_bytes").unwrap_or(0.0);
    let usable = (free + held - swapped).min(limit) - RESERVE_FRACTION * limit;
    // A worker that is swapped out is larger than the part of it that is in memory.
    let workers = facts.value("service_processes_mean").filter(|count| *count >= 1.0);
    let each = workers.map_or(each, |count| each + swapped / count);
    (usable > 0.0).then(|| usable / each)
}

fn remedy(facts: &Facts) -> Option<Remedy> {
    let now = facts.value("workers_limit").or_else(|| facts.setting("MaxRequestWorkers"))?;
    let fits = workers_that_fit(facts)?.floor();
    if !facts.is_service("apache") || fits >= now || fits < 1.0 {
        return None;
    }
    Some(Remedy {
        service: "apache".into(),
        setting: "MaxRequestWorkers".into(),
        from: Some(SettingValue::Integer(now as i64)),
        to: Some(SettingValue::Integer(fits as i64)),
        class: ApplyClass::Reload,
        risk: "fewer requests at once: the others wait in the accept queue".into(),
        why: format!(
            "a worker costs {} of its own, so {} of them fit beside a reserve of a tenth",
            facts.value("worker_private_mean_bytes").map_or("an unknown amount".into(), say_bytes),
            say(fits)
        ),
        predicted: None,
        together_with: vec![],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    const THRASHING: [(&str, f64); 9] = [
        ("pressure_memory_full_fraction", 0.4),
        ("swapped_in_pages_per_s", 5000.0),
        ("swapped_out_pages_per_s", 4000.0),
        ("memory_limit_bytes", 1000e6),
        ("memory_available_min_bytes", 50e6),
        ("worker_memory_sum_bytes", 850e6),
        ("worker_swap_sum_bytes", 400e6),
        ("worker_private_mean_bytes", 2e6),
        ("service_processes_mean", 400.0),
    ];

    #[test]
    fn the_value_is_what_fits() {
        let finding = check(&facts(&THRASHING, &[("MaxRequestWorkers", 400)])).unwrap();
        // (50 + 850 + 400 - 400 swapped - 100 reserve) MB / (2 + 400/400) MB
        assert_eq!(finding.remedies[0].to, Some(SettingValue::Integer(266)));
        assert_eq!(finding.explains_fraction, Some(0.4));
    }

    #[test]
    fn kills_count_without_pressure_information() {
        let finding = check(&facts(&[("oom_kills", 2.0)], &[])).unwrap();
        assert!(finding.summary.contains("killed 2 processes"));
        assert!(finding.remedies.is_empty());
    }

    #[test]
    fn swap_that_lies_still_is_no_limit() {
        for changed in ["pressure_memory_full_fraction", "swapped_in_pages_per_s"] {
            let quiet = THRASHING.map(|(name, value)| (name, if name == changed { 0.0 } else { value }));
            assert!(check(&facts(&quiet, &[])).is_none(), "{changed}");
        }
    }
}
