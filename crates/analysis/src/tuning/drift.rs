//! Drift: whether the machine was the same while a change was switched on and off. Where the original, measured again, differs from
//! itself by more than the noise, or the host or other programs took a part of the processors in one half of a pair only, that pair
//! says nothing of the change.

use crate::facts::{FactId, facts};
use crate::measurement::Measurement;
use crate::resources::processors;
use crate::run_report::run_report;
use crate::tuning::verdict::{compare, mean_times_us};
use crate::wording::format_number;
use webdyno_model::Result;
use webdyno_model::tune::Verdict;
use webdyno_model::workload::Arrival;

/// Less of the processors than this, more in one load than in another, is noise.
const SHARE_MAX: f64 = 0.05;

/// Why the halves of a pair cannot be compared; `None` when they can.
pub fn pair_disturbance(before: &Measurement, after: &Measurement) -> Result<Option<String>> {
    let (before, after) = (stolen_fraction(before)?, stolen_fraction(after)?);
    Ok((before - after).abs().ge(&SHARE_MAX).then(|| {
        format!(
            "CPU steal was {}% in one load and {}% in the other",
            format_number(100.0 * before),
            format_number(100.0 * after)
        )
    }))
}

/// Why the original is not what it was when it was measured before; `None` when it is.
pub fn drift(before: &Measurement, again: &Measurement) -> Result<Option<String>> {
    let open = matches!(again.workload.as_ref().map(|workload| workload.arrival), Some(Arrival::Open { .. }));
    let figure = |of: &Measurement| if open { mean_times_us(of) } else { of.measured_rates() };
    let comparison = compare(&figure(before), &figure(again));
    if let Some(ratio) = comparison.ratio
        && matches!(comparison.verdict, Verdict::Better | Verdict::Worse)
    {
        return Ok(Some(format!(
            "the original, measured again, had {} times its earlier {}: more than the noise of {:.0}%",
            format_number(ratio.ratio),
            if open { "response time" } else { "rate" },
            100.0 * comparison.noise_floor
        )));
    }
    let (before, again) = (foreign_fraction(before)?, foreign_fraction(again)?);
    Ok((before - again).abs().ge(&SHARE_MAX).then(|| {
        format!(
            "other programs used {}% of the CPU, and {}% when the original was measured again",
            format_number(100.0 * before),
            format_number(100.0 * again)
        )
    }))
}

fn stolen_fraction(measurement: &Measurement) -> Result<f64> {
    let facts = facts(measurement, Some(&run_report(measurement)?))?;
    Ok(facts.value(FactId::cpu_steal_fraction).unwrap_or(0.0))
}

fn foreign_fraction(measurement: &Measurement) -> Result<f64> {
    let facts = facts(measurement, Some(&run_report(measurement)?))?;
    let others = processors::other_processes(&facts).zip(facts.value(FactId::cores));
    Ok(others.map_or(0.0, |(others, cores)| others.cores / cores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::interval::Interval;
    use webdyno_model::number::Number;
    use webdyno_model::sample::Sample;
    use webdyno_model::workload::Workload;

    /// A load of ten seconds at this rate, while the host took this share of two cores.
    fn measured(rate: u64, stolen: f64) -> Measurement {
        let second = |t_s: u64| Interval {
            t_s: t_s as f64,
            length_us: 1_000_000,
            completed: rate + t_s % 2,
            ..Interval::default()
        };
        let sample = |t_s: f64| {
            let values = [
                ("cpu.user_s", (1.0 - stolen) * t_s),
                ("cpu.steal_s", 2.0 * stolen * t_s),
                ("cpu.idle_s", (1.0 - stolen) * t_s),
                ("cpu.cores_count", 2.0),
            ];
            let zeros = ["nice", "system", "irq", "softirq", "iowait"]
                .map(|kind| (format!("cpu.{kind}_s"), Number(0.0)));
            let values =
                values.map(|(name, value)| (name.to_owned(), Number(value))).into_iter().chain(zeros);
            let sample = Sample { source: "cpu".into(), values: values.collect(), ..Sample::default() };
            crate::measurement::TimedSample { t_s, sample }
        };
        Measurement {
            intervals: (0..10).map(second).collect(),
            samples: (0..10).map(|t_s| sample(f64::from(t_s) + 0.5)).collect(),
            measured_to_s: 10.0,
            workload: Some(Workload { connections: 10, ..Workload::default() }),
            ..Measurement::default()
        }
    }

    #[test]
    fn an_original_that_differs_from_itself_has_drifted() {
        for (again, drifted) in [(100, false), (102, false), (115, true), (80, true)] {
            let why = drift(&measured(100, 0.0), &measured(again, 0.0)).unwrap();
            assert_eq!(why.is_some(), drifted, "{again}: {why:?}");
        }
    }

    #[test]
    fn what_the_host_took_in_one_half_alone_spoils_a_pair() {
        for (before, after, spoilt) in
            [(0.0, 0.0, false), (0.0, 0.2, true), (0.2, 0.2, false), (0.0, 0.03, false)]
        {
            let why = pair_disturbance(&measured(100, before), &measured(100, after)).unwrap();
            assert_eq!(why.is_some(), spoilt, "{before} {after}: {why:?}");
        }
    }
}
