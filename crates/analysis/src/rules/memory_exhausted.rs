//! `memory-exhausted`: the server needs more memory than there is, and pages travel to and from swap.
//!
//! Each worker costs memory. When all of them together do not fit, the kernel swaps, and every request waits for the
//! disk: far slower than if fewer workers had made it wait in the queue. Where the control group allows no swap, the
//! kernel ends processes instead.
//!
//! ## How it is recognised
//! All processes stall on memory at times (pressure stall information, `full`) while pages are swapped in, or, where
//! nothing is swapped, while pages of files are read again that had just been given up. Or the kernel killed processes
//! for want of memory: the control group's counter says whether they were the service's. The machine's counter alone
//! may mean any container on it: then the finding is half sure only, unless the number of the service's processes fell.
//! The control group's limit counts before the machine's. A load that was stopped for swapping, for stalls or for a kill
//! proves it by what stopped it: the brake reads five times a second, and what it saw may be in no sample.
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
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &["cpu-saturated", "apache-workers-exhausted", "accept-queue-overflow"];

/// Below this share of time in which nobody could work for want of memory, it costs less than the noise.
const FULL_FRACTION_MIN: f64 = 0.02;
/// Memory kept for the kernel, the page cache and everything else.
const RESERVE_FRACTION: f64 = 0.10;

/// Without swap the stall must be longer, and so many pages a second be read again: files are read at any time.
const FULL_FRACTION_MIN_NO_SWAP: f64 = 0.05;
const REFAULTS_PER_S_MIN: f64 = 100.0;

/// Fires on thrashing, or when processes were killed.
pub fn check(facts: &Facts) -> Option<Finding> {
    let evidence = evidence(facts)?;
    let full = stalled_fraction(facts);
    let stalled = full.map_or(String::new(), |full| {
        format!(", and for {:.0}% of the time nothing could run for want of memory", full * 100.0)
    });
    Some(Finding {
        id: ID.into(),
        summary: format!("The server needs more memory than there is: {}{stalled}.", evidence.words),
        confidence: evidence.confidence,
        explains_fraction: full.map(|full| webdyno_model::number::significant(full.min(1.0), 3)),
        facts: facts.cite(&[
            "brake_reading",
            "brake_limit",
            "pressure_memory_full_fraction",
            "pressure_group_memory_full_fraction",
            "swapped_in_pages_per_s",
            "swapped_out_pages_per_s",
            "refaults_per_s",
            "group_oom_kills",
            "oom_kills",
            "service_processes_fell_max",
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

/// Whether memory is proven to be short, so that whatever waits may be waiting for it.
pub(crate) fn is_proven(facts: &Facts) -> bool {
    evidence(facts).is_some_and(|evidence| evidence.confidence > CONFIDENCE_ELSEWHERE)
}

struct Evidence {
    words: String,
    confidence: f64,
}

const CONFIDENCE: f64 = 0.9;
const CONFIDENCE_ELSEWHERE: f64 = 0.5;

fn evidence(facts: &Facts) -> Option<Evidence> {
    let proven = |words: String| Evidence { words, confidence: CONFIDENCE };
    if let Some(brake) = facts.brake.as_ref().filter(|brake| brake.cause.is_of_memory()) {
        return Some(proven(format!("the load was stopped because {}", brake.text)));
    }
    let processes = |killed: f64| format!("{} process{}", say(killed), if killed == 1.0 { "" } else { "es" });
    let of_group = facts.value("group_oom_kills");
    if let Some(killed) = of_group.filter(|killed| *killed >= 1.0) {
        return Some(proven(format!("the kernel killed {} of its control group", processes(killed))));
    }
    // Where the group's own counter was read and stands still, the kernel killed elsewhere.
    let of_machine = facts.value("oom_kills").filter(|killed| *killed >= 1.0 && of_group.is_none());
    let fell = facts.value("service_processes_fell_max").is_some_and(|fell| fell >= 1.0);
    if let Some(killed) = of_machine.filter(|_| fell) {
        return Some(proven(format!(
            "the kernel killed {}, while some of the service's ended",
            processes(killed)
        )));
    }
    thrashing(facts).map(proven).or_else(|| {
        of_machine.map(|killed| Evidence {
            words: format!(
                "the kernel killed {} on this machine, perhaps of another service: only the machine's counter could be read",
                processes(killed)
            ),
            confidence: CONFIDENCE_ELSEWHERE,
        })
    })
}

/// In words what pages travel, if everything stalls for them.
fn thrashing(facts: &Facts) -> Option<String> {
    let full = stalled_fraction(facts).filter(|full| *full >= FULL_FRACTION_MIN)?;
    let swapped_in = facts.value("swapped_in_pages_per_s").unwrap_or(0.0);
    if swapped_in >= 1.0 {
        let swapped = swapped_in + facts.value("swapped_out_pages_per_s").unwrap_or(0.0);
        return Some(format!("{} pages a second travel to and from swap", say(swapped)));
    }
    let refaults = facts.value("refaults_per_s").filter(|refaults| *refaults >= REFAULTS_PER_S_MIN)?;
    (full >= FULL_FRACTION_MIN_NO_SWAP)
        .then(|| format!("{} pages a second are read again that had just been given up", say(refaults)))
}

fn stalled_fraction(facts: &Facts) -> Option<f64> {
    let machine = facts.value("pressure_memory_full_fraction");
    let group = facts.value("pressure_group_memory_full_fraction");
    machine.into_iter().chain(group).reduce(f64::max)
}

/// How many workers fit into memory: (available + held by the workers - reserve) / cost of one more process, in whole
/// processes of so many workers each. `None` when it cannot be told.
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
    (usable > 0.0).then(|| (usable / each).floor() * facts.threads_per_process())
}

fn remedy(facts: &Facts) -> Option<Remedy> {
    let now = facts.value("workers_limit").or_else(|| facts.setting("MaxRequestWorkers"))?;
    let fits = workers_that_fit(facts)?;
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
            "a {} costs {} of its own, so {} workers fit beside a reserve of a tenth",
            if facts.threads_per_process() > 1.0 { "process of workers" } else { "worker" },
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
    use webdyno_model::brake::{Brake, BrakeCause};

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
    fn threads_share_the_memory_of_their_process() {
        let settings = [("MaxRequestWorkers", 8_000), ("ThreadsPerChild", 25)];
        let mut event = facts(&THRASHING, &settings);
        event.service.as_mut().unwrap().mode = Some("event".into());
        // 266 whole processes, as above, of 25 threads each.
        assert_eq!(workers_that_fit(&event), Some(6650.0));
        assert_eq!(check(&event).unwrap().remedies[0].to, Some(SettingValue::Integer(6650)));
    }

    #[test]
    fn kills_count_without_pressure_information() {
        // (the group's counter, the machine's, how many processes fell, confidence)
        for (group, machine, fell, confidence) in [
            (Some(2.0), 2.0, 0.0, Some(0.9)),
            (Some(0.0), 2.0, 5.0, None),
            (None, 2.0, 0.0, Some(0.5)),
            (None, 2.0, 1.0, Some(0.9)),
            (None, 0.0, 9.0, None),
        ] {
            let mut values = vec![("oom_kills", machine), ("service_processes_fell_max", fell)];
            values.extend(group.map(|kills| ("group_oom_kills", kills)));
            let finding = check(&facts(&values, &[]));
            let seen = finding.as_ref().map(|finding| finding.confidence);
            assert_eq!(seen, confidence, "{group:?} {machine} {fell}");
            assert!(finding.is_none_or(|finding| {
                finding.summary.contains("killed 2 processes")
                    && finding.summary.contains("another service") == (confidence == Some(0.5))
                    && finding.remedies.is_empty()
            }));
        }
    }

    #[test]
    fn what_stopped_the_load_is_proof() {
        let mut stopped = facts(&[("brake_reading", 2.0), ("brake_limit", 1.0)], &[]);
        stopped.brake = Some(crate::facts::testing::brake("memory.group_oom_kills_count"));
        let finding = check(&stopped).unwrap();
        let told = "because the kernel killed 2 processes for want of memory";
        assert!(finding.summary.contains(told), "{}", finding.summary);
        let cited: Vec<_> = finding.facts.iter().map(|fact| fact.name.as_str()).collect();
        assert_eq!(cited, ["brake_reading", "brake_limit"]);
        assert!(is_proven(&stopped));
        for cause in [BrakeCause::OthersFail, BrakeCause::Unreachable] {
            stopped.brake = stopped.brake.map(|brake| Brake { cause, ..brake });
            assert!(check(&stopped).is_none(), "{cause:?}");
        }
    }

    #[test]
    fn without_swap_pages_of_files_tell() {
        for (full, refaults, fires) in [(0.3, 5000.0, true), (0.03, 5000.0, false), (0.3, 20.0, false)] {
            let values = [
                ("pressure_memory_full_fraction", full),
                ("refaults_per_s", refaults),
                ("swapped_in_pages_per_s", 0.0),
            ];
            assert_eq!(check(&facts(&values, &[])).is_some(), fires, "{full} {refaults}");
        }
    }

    #[test]
    fn swap_that_lies_still_is_no_limit() {
        for changed in ["pressure_memory_full_fraction", "swapped_in_pages_per_s"] {
            let quiet = THRASHING.map(|(name, value)| (name, if name == changed { 0.0 } else { value }));
            assert!(check(&facts(&quiet, &[])).is_none(), "{changed}");
        }
    }
}
