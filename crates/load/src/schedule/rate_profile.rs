//! A rate that changes over time, and its inverse: when so many starts have become due.
//!
//! The integral of the rate from the beginning is the number of starts. Start x (a whole number with even gaps, a sum
//! of unit exponential gaps for a Poisson process: time rescaling, Daley and Vere-Jones, 7.4) becomes due at the first
//! moment after which the integral exceeds x. Lines are inverted by formula, sine waves by Halley's method from a
//! table; both are functions of x alone, so that every thread finds the same times.

use std::f64::consts::TAU;
use webdyno_model::workload::stage::{Shape, Stage};

const NS_PER_US: u64 = 1000;
const NS_PER_S: f64 = 1e9;
/// Bins of a wave in the table that the inverse begins from.
const BINS: usize = 1024;
/// Halley's method needs 1 or 2 steps, and bisection, which takes over where the rate is next to nothing, at most so
/// many.
const STEPS_MAX: usize = 64;

/// The rates of a load, from its beginning to its end.
#[derive(Debug)]
pub(crate) struct RateProfile {
    segments: Vec<Segment>,
}

/// A part with one formula.
#[derive(Debug)]
struct Segment {
    begin_ns: u64,
    end_ns: u64,
    /// Starts before it, and before its end.
    before: f64,
    until: f64,
    rate: Rate,
}

#[derive(Debug)]
enum Rate {
    /// Per second at its beginning, and how much more with each second.
    Line {
        from: f64,
        slope: f64,
    },
    Wave(Box<Wave>),
}

/// `middle + amplitude * sin(omega * t)`.
#[derive(Debug)]
struct Wave {
    middle: f64,
    omega: f64,
    /// Amplitude / middle, up to 1.
    depth: f64,
    /// The phases at which the integral over a wave has reached each 1024th of itself.
    phases: [f64; BINS + 1],
}

impl RateProfile {
    /// Of these stages, one behind the other.
    pub(crate) fn from_stages(stages: &[Stage]) -> Self {
        let mut rate_profile = Self { segments: Vec::with_capacity(stages.len() + 1) };
        for stage in stages {
            let whole_ns = stage.duration_us * NS_PER_US;
            let line = |duration_ns: u64, from: f64, to: f64| {
                let slope = (to - from) / (duration_ns as f64 / NS_PER_S);
                (duration_ns, Rate::Line { from, slope })
            };
            match stage.shape {
                Shape::Hold { level } => rate_profile.add(line(whole_ns, level, level)),
                Shape::Ramp { from, to } => rate_profile.add(line(whole_ns, from, to)),
                Shape::Spike { from, peak } => {
                    rate_profile.add(line(whole_ns / 2, from, peak));
                    rate_profile.add(line(whole_ns / 2, peak, from));
                }
                Shape::Sine { low, high, period_us } => {
                    rate_profile.add((whole_ns, Rate::wave(low, high, period_us as f64 / 1e6)));
                }
            }
        }
        rate_profile
    }

    fn add(&mut self, (duration_ns, rate): (u64, Rate)) {
        let (begin_ns, before) = self.segments.last().map_or((0, 0.0), |last| (last.end_ns, last.until));
        let until = before + rate.integral(duration_ns as f64 / NS_PER_S);
        self.segments.push(Segment { begin_ns, end_ns: begin_ns + duration_ns, before, until, rate });
    }

    /// When start `x` becomes due, nanoseconds since the load began; `None` when it is over before. `hint` is where the
    /// start before was found: it saves looking from the beginning, and must not lie behind this one.
    pub(crate) fn due_ns(&self, x: f64, hint: &mut usize) -> Option<u64> {
        // Stretches without a rate end where they begin, so that no start is found in them.
        while self.segments.get(*hint)?.until <= x {
            *hint += 1;
        }
        let segment = &self.segments[*hint];
        let t_ns = segment.rate.inverse_s(x - segment.before) * NS_PER_S;
        // Rounding moves no start out of its segment.
        Some((segment.begin_ns + t_ns.max(0.0) as u64).min(segment.end_ns.saturating_sub(1)))
    }
}

impl Rate {
    fn wave(low: f64, high: f64, period_s: f64) -> Self {
        let (middle, omega) = ((low + high) / 2.0, TAU / period_s);
        let mut wave = Wave { middle, omega, depth: (high - low) / 2.0 / middle, phases: [0.0; BINS + 1] };
        for bin in 1..BINS {
            let from = wave.phases[bin - 1];
            wave.phases[bin] = wave.solve(TAU * bin as f64 / BINS as f64, from, (from, TAU));
        }
        wave.phases[BINS] = TAU;
        Self::Wave(Box::new(wave))
    }

    /// From the beginning to this many seconds later.
    fn integral(&self, t_s: f64) -> f64 {
        match self {
            Self::Line { from, slope } => (from + slope * t_s / 2.0) * t_s,
            Self::Wave(wave) => {
                wave.middle * t_s + wave.middle * wave.depth / wave.omega * (1.0 - (wave.omega * t_s).cos())
            }
        }
    }

    /// Seconds until the integral is `x`, which is reached.
    #[inline]
    fn inverse_s(&self, x: f64) -> f64 {
        match self {
            // The root of the quadratic equation that loses no digits whatever the slope.
            Self::Line { from, slope } => {
                let rate = (from * from + 2.0 * slope * x).max(0.0).sqrt();
                if x > 0.0 { 2.0 * x / (from + rate) } else { 0.0 }
            }
            Self::Wave(wave) => wave.inverse_s(x),
        }
    }
}

impl Wave {
    fn inverse_s(&self, x: f64) -> f64 {
        // In units in which the mean rate is 1 and a wave lasts 2 pi.
        let x = x * self.omega / self.middle;
        let waves = (x / TAU).floor();
        let rest = (x - waves * TAU).clamp(0.0, TAU);
        let place = rest / TAU * BINS as f64;
        let bin = (place as usize).min(BINS - 1);
        let (low, high) = (self.phases[bin], self.phases[bin + 1]);
        let phase = self.solve(rest, low + (high - low) * (place - bin as f64), (low, high));
        (waves * TAU + phase) / self.omega
    }

    /// The phase at which `phase + depth * (1 - cos(phase))` is `x`: Halley's method within bounds that shrink, so that
    /// it ends also where the rate, its derivative, is next to nothing.
    fn solve(&self, x: f64, guess: f64, (mut low, mut high): (f64, f64)) -> f64 {
        let mut phase = guess;
        for _ in 0..STEPS_MAX {
            let (sine, cosine) = phase.sin_cos();
            let over = phase + self.depth * (1.0 - cosine) - x;
            if over > 0.0 {
                high = phase;
            } else {
                low = phase;
            }
            let slope = 1.0 + self.depth * sine;
            let halley = phase - 2.0 * over * slope / (2.0 * slope * slope - over * self.depth * cosine);
            let next = if halley >= low && halley <= high { halley } else { (low + high) / 2.0 };
            let moved = (next - phase).abs();
            phase = next;
            // The error that is left goes with the cube of the step, over the square of the slope.
            if moved * moved * moved <= 1e-15 * slope * slope {
                break;
            }
        }
        phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use webdyno_model::workload::stage;
    use webdyno_model::workload::stage::integral;

    const S: u64 = 1_000_000_000;

    fn stages(texts: &[&str]) -> Vec<Stage> {
        let written: Vec<_> = texts.iter().map(|text| stage::parse(text).unwrap()).collect();
        stage::check_stages(&written).unwrap().stages
    }

    /// Starts 0, 1, 2, ...
    fn starts(stages: &[Stage]) -> Vec<u64> {
        let (rate_profile, mut hint) = (RateProfile::from_stages(stages), 0);
        (0u32..).map_while(|x| rate_profile.due_ns(f64::from(x), &mut hint)).collect()
    }

    #[test]
    fn starts_fall_due_where_the_integral_reaches_them() {
        let even = starts(&stages(&["2s@4/s"]));
        assert_eq!(even, (0..8).map(|n| n * S / 4).collect::<Vec<_>>());
        // Up to 2/s in 2 s: the integral is t^2 / 2.
        let ramp = starts(&stages(&["2s@0..2/s,measured=yes"]));
        assert_eq!(ramp, [0, 1_414_213_562]);
        // Nothing becomes due without a rate, and the start that the integral stands at waits for its end.
        assert_eq!(starts(&stages(&["3s@0/s", "1s@2/s", "5s@0/s", "1s@1/s"])), [3 * S, 3 * S + S / 2, 9 * S]);
        assert_eq!(starts(&stages(&["1s@2..0/s,measured=yes", "9s@0/s"])), [0]);
        assert!(starts(&[]).is_empty());
    }

    #[test]
    fn ramps_and_spikes_are_exact() {
        // 1,000/s at the end of 4 s: start n becomes due at sqrt(n / 125).
        let ramp = starts(&stages(&["4s@0..1000/s", "1s@1000/s"]));
        assert_eq!(ramp.len(), 3000);
        for (n, &start) in ramp.iter().take(2000).enumerate() {
            let exact = (n as f64 / 125.0).sqrt() * 1e9;
            assert!((start as f64 - exact).abs() <= 1.5, "{n}: {start} {exact}");
        }
        assert_eq!(ramp[2000..2003], [4 * S, 4 * S + S / 1000, 4 * S + 2 * S / 1000]);
        // A spike lies as its mirror image.
        let spike = starts(&stages(&["2s@0..1000..0/s"]));
        assert_eq!(spike.len(), 1000);
        assert_eq!(spike[500], S);
        for n in 1..500 {
            let mirrored = 2 * S - spike[1000 - n];
            assert!(spike[n].abs_diff(mirrored) <= 2, "{n}: {} {mirrored}", spike[n]);
        }
    }

    fn any_stage() -> impl Strategy<Value = Stage> {
        let level = || prop_oneof![Just(0f64), 0f64..300.0, Just(100f64)];
        let shape =
            prop_oneof![
                level().prop_map(|level| Shape::Hold { level }),
                (level(), level()).prop_map(|(from, to)| Shape::Ramp { from, to }),
                (level(), 0.1f64..200.0).prop_map(|(from, more)| Shape::Spike { from, peak: from + more }),
                (level(), 0.1f64..200.0, 100_000u64..3_000_000)
                    .prop_map(|(low, more, period_us)| Shape::Sine { low, high: low + more, period_us }),
            ];
        (1u64..3_000_000, shape).prop_map(|(duration_us, shape)| Stage { duration_us, shape, measured: true })
    }

    proptest! {
        // Invariant: at any time as many starts are due as the integral of the rate says, to within one, also across
        // the boundaries of stages: none is lost and none is doubled. They are in order, and before the end of the
        // load.
        #[test]
        fn no_start_is_lost_or_doubled(stages in prop::collection::vec(any_stage(), 1..5), shares in prop::collection::vec(0f64..1.0, 20)) {
            let all = starts(&stages);
            let end_us = stage::duration_us(&stages);
            prop_assert!(all.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert!(all.last().is_none_or(|last| *last < end_us * 1000));
            let mut boundaries = vec![0];
            stages.iter().for_each(|stage| boundaries.push(boundaries.last().unwrap() + stage.duration_us));
            let times = shares.iter().map(|share| (share * end_us as f64) as u64).chain(boundaries);
            for t_us in times {
                let due = all.partition_point(|start| *start < t_us * 1000);
                let exact = integral(&stages, t_us as f64 / 1e6);
                prop_assert!((due as f64 - exact).abs() < 1.0 + 1e-6, "{} s: {due} for {exact}", t_us as f64 / 1e6);
            }
        }

        // Invariant: going back with the integral gives the start again, to what a nanosecond makes of it.
        #[test]
        fn the_inverse_undoes_the_integral(stages in prop::collection::vec(any_stage(), 1..4)) {
            let highest = stage::highest(&stages);
            for (n, start) in starts(&stages).into_iter().enumerate() {
                let back = integral(&stages, start as f64 / 1e9);
                prop_assert!((back - n as f64).abs() < highest * 2e-9 + 1e-9, "{n}: {back}");
            }
        }
    }
}
