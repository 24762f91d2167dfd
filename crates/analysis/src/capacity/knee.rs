//! The knee of latency against load: where more load begins to cost response time instead of giving more.
//!
//! Taken as the load at which the median response time reaches twice that of the lightest step (as Jain, The Art of Computer Systems
//! Performance Analysis, 3.3, has it in words), interpolated between the steps on either side, or the load that the server no longer
//! kept up with. The median moves later than high percentiles, and a pause of a second does not move it.

/// A step as the knee needs it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KneeStep {
    /// What was offered.
    pub offered: f64,
    /// The median response time, where the step has one.
    pub p50_us: Option<u64>,
    /// Whether the server kept up with it.
    pub keeps_up: bool,
}

/// So many times the median of the lightest step, and at least so much more, is beyond the knee.
const RISE: f64 = 2.0;
const RISE_US_MIN: f64 = 1000.0;

/// The load at the knee; `None` where no step was beyond it.
pub fn knee(steps: &[KneeStep]) -> Option<f64> {
    let mut steps: Vec<(f64, f64, bool)> =
        steps.iter().filter_map(|step| Some((step.offered, step.p50_us? as f64, step.keeps_up))).collect();
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (_, idle_us, _) = steps.first()?;
    let bound_us = (idle_us * RISE).max(idle_us + RISE_US_MIN);
    // The highest one that is not beyond it: a pause of one step is none of the server's.
    let is_within = |step: &(f64, f64, bool)| step.1 <= bound_us && step.2;
    let first = steps.iter().rposition(is_within).map_or(0, |within| within + 1);
    let (above, above_us, _) = *steps.get(first)?;
    let Some((below, below_us, _)) = first.checked_sub(1).map(|before| steps[before]) else {
        return Some(above);
    };
    // A median that did not rise says nothing of where between the two it is.
    let part = if above_us > bound_us { (bound_us - below_us) / (above_us - below_us) } else { 0.0 };
    Some(below + part.clamp(0.0, 1.0) * (above - below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_where_the_median_takes_off() {
        let step = |(offered, p50_us): (f64, u64)| KneeStep { offered, p50_us: Some(p50_us), keeps_up: true };
        let of = |steps: &[(f64, u64)]| knee(&steps.iter().copied().map(step).collect::<Vec<_>>());
        for (steps, expected) in [
            (&[][..], None),
            (&[(10.0, 5000), (20.0, 5000), (40.0, 6000)], None),
            (&[(40.0, 15_000), (10.0, 5000), (20.0, 5000)], Some(30.0)),
            // Less than a millisecond is no rise.
            (&[(10.0, 100), (20.0, 900)], None),
        ] {
            assert_eq!(of(steps), expected, "{steps:?}");
        }
        let behind = KneeStep { keeps_up: false, ..step((90.0, 5000)) };
        assert_eq!(knee(&[step((10.0, 5000)), step((60.0, 5000)), behind]), Some(60.0));
    }
}
