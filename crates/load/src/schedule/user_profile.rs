//! How many users are active over time in closed arrival. Pure: a function of the stages and the time.
//!
//! User k (from 0) is active while the level is at least k + 1: it begins when the level rises to that, and when the
//! level falls below, it ends what it is doing and begins nothing more until the level is back. So the users with the
//! highest numbers come last and go first.

use std::f64::consts::TAU;
use std::sync::Arc;
use webdyno_model::workload::stage::{Shape, Stage};

const NS_PER_US: u64 = 1000;
/// What calculating with floats may add to a time in nanoseconds, or to a level.
const TOLERANCE: f64 = 1e-3;
const LEVEL_TOLERANCE: f64 = 1e-9;

/// The number of active users over time. A copy walks the same changes again.
#[derive(Debug, Clone)]
pub(crate) struct UserProfile {
    stages: Arc<[Stage]>,
    /// The stage that is walked, and where it begins.
    stage: usize,
    begin_ns: u64,
    /// Up to here the changes were looked for.
    at_ns: u64,
    active: u32,
    next: Option<(u64, u32)>,
}

impl UserProfile {
    /// A constant number of users.
    pub(crate) fn constant(users: u32) -> Self {
        let stages = Arc::new([]);
        Self { stages, stage: 0, begin_ns: 0, at_ns: 0, active: users, next: None }
    }

    /// By the stages; without stages a constant number.
    pub(crate) fn from_stages(stages: &[Stage], users: u32) -> Self {
        let Some(first) = stages.first() else { return Self::constant(users) };
        let active = whole_users(first.level_at(0.0));
        let mut levels = Self { stages: stages.into(), stage: 0, begin_ns: 0, at_ns: 0, active, next: None };
        levels.next = levels.find_next();
        levels
    }

    /// Users that are active. Time does not go back.
    pub(crate) fn active(&mut self, now_ns: u64) -> u32 {
        while self.advance(now_ns).is_some() {}
        self.active
    }

    /// Advances to the next change, if it lies at or before `now_ns`: its time, and the users that are active from then
    /// on.
    pub(crate) fn advance(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        let (at_ns, active) = self.next.filter(|&(at_ns, _)| at_ns <= now_ns)?;
        (self.at_ns, self.active) = (at_ns, active);
        self.next = self.find_next();
        Some((at_ns, active))
    }

    /// When their number changes; `None` when it does not change any more.
    pub(crate) fn next_change_ns(&self) -> Option<u64> {
        self.next.map(|(at_ns, _)| at_ns)
    }

    fn find_next(&mut self) -> Option<(u64, u32)> {
        loop {
            let stage = self.stages.get(self.stage)?;
            let end_ns = self.begin_ns + stage.duration_us * NS_PER_US;
            if let Some(change) = self.within(stage, end_ns) {
                return Some(change);
            }
            let next = self.stages.get(self.stage + 1)?;
            let active = whole_users(next.level_at(0.0));
            (self.stage, self.begin_ns, self.at_ns) = (self.stage + 1, end_ns, end_ns);
            if active != self.active {
                return Some((end_ns, active));
            }
        }
    }

    /// The next change within a stage, before its end.
    fn within(&self, stage: &Stage, end_ns: u64) -> Option<(u64, u32)> {
        let whole_ns = (stage.duration_us * NS_PER_US) as f64;
        let mut at_ns = (self.at_ns - self.begin_ns) as f64;
        while at_ns < whole_ns {
            let piece = Piece::at(stage, at_ns, whole_ns);
            if let Some((change_ns, active)) = piece.next(at_ns, self.active) {
                // Never before the last change, whatever the rounding.
                let change_ns = self.begin_ns + change_ns.max((self.at_ns - self.begin_ns) as f64) as u64;
                return (change_ns < end_ns).then_some((change_ns, active));
            }
            at_ns = piece.end_ns.max(at_ns + 1.0);
        }
        None
    }
}

/// The users of a level: a level that floats put a hair below a whole number is that number.
fn whole_users(level: f64) -> u32 {
    (level + LEVEL_TOLERANCE).floor().max(0.0) as u32
}

/// A part of a stage in which the level only rises or only falls, in nanoseconds since the stage began.
struct Piece {
    begin_ns: f64,
    end_ns: f64,
    kind: Kind,
}

enum Kind {
    Flat,
    Line {
        from: f64,
        to: f64,
    },
    /// Half a wave, around a `zero_ns` at which the level is in its middle.
    Wave {
        middle: f64,
        amplitude: f64,
        period_ns: f64,
        zero_ns: f64,
        rises: bool,
    },
}

impl Piece {
    /// The piece of a stage that holds this time, which is within it.
    fn at(stage: &Stage, at_ns: f64, whole_ns: f64) -> Self {
        let line = |begin_ns, end_ns, from, to| Self { begin_ns, end_ns, kind: Kind::Line { from, to } };
        match stage.shape {
            Shape::Hold { .. } => Self { begin_ns: 0.0, end_ns: whole_ns, kind: Kind::Flat },
            Shape::Ramp { from, to } => line(0.0, whole_ns, from, to),
            Shape::Spike { from, peak } if at_ns < whole_ns / 2.0 => line(0.0, whole_ns / 2.0, from, peak),
            Shape::Spike { from, peak } => line(whole_ns / 2.0, whole_ns, peak, from),
            Shape::Sine { low, high, period_us } => {
                let period_ns = (period_us * NS_PER_US) as f64;
                // Half waves begin at the lowest and highest levels, a quarter of a period beside the middle.
                let half = (at_ns / period_ns * 2.0 + 0.5).floor();
                let zero_ns = half * period_ns / 2.0;
                let (middle, amplitude) = ((low + high) / 2.0, (high - low) / 2.0);
                let rises = half.rem_euclid(2.0) < 0.5;
                let kind = Kind::Wave { middle, amplitude, period_ns, zero_ns, rises };
                Self { begin_ns: zero_ns - period_ns / 4.0, end_ns: zero_ns + period_ns / 4.0, kind }
            }
        }
    }

    /// The next change from `active` users on, in whole nanoseconds not before `at_ns`, and the users from then on.
    fn next(&self, at_ns: f64, active: u32) -> Option<(f64, u32)> {
        let (now, rises) = (f64::from(active), self.rises()?);
        let (bound, next) = if rises { (now + 1.0, active + 1) } else { (now, active.checked_sub(1)?) };
        let crossed_ns = self.crossing_ns(bound)?;
        // Risen as soon as the level is reached; fallen as soon as it lies below.
        let change_ns = match rises {
            true => (crossed_ns - TOLERANCE).ceil(),
            false => (crossed_ns + TOLERANCE).floor() + 1.0,
        };
        Some((change_ns.max(at_ns), next))
    }

    /// `None` for a level that does not change.
    fn rises(&self) -> Option<bool> {
        match self.kind {
            Kind::Line { from, to } if to != from => Some(to > from),
            Kind::Wave { rises, .. } => Some(rises),
            Kind::Flat | Kind::Line { .. } => None,
        }
    }

    /// When the level is `bound`; `None` when it is not in this piece.
    fn crossing_ns(&self, bound: f64) -> Option<f64> {
        let crossed_ns = match self.kind {
            Kind::Flat => return None,
            Kind::Line { from, to } => {
                let share = (bound - from) / (to - from);
                self.begin_ns + share * (self.end_ns - self.begin_ns)
            }
            Kind::Wave { middle, amplitude, period_ns, zero_ns, rises } => {
                let sine = (bound - middle) / amplitude;
                if sine.abs() > 1.0 + LEVEL_TOLERANCE {
                    return None;
                }
                let angle = sine.clamp(-1.0, 1.0).asin();
                zero_ns + if rises { angle } else { -angle } / TAU * period_ns
            }
        };
        let within = self.begin_ns - TOLERANCE..=self.end_ns + TOLERANCE;
        within.contains(&crossed_ns).then_some(crossed_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn stages(texts: &[&str]) -> Vec<Stage> {
        let written: Vec<_> =
            texts.iter().map(|text| webdyno_model::workload::stage::parse(text).unwrap()).collect();
        webdyno_model::workload::stage::check_stages(&written).unwrap().stages
    }

    fn changes(stages: &[Stage]) -> Vec<(u64, u32)> {
        let mut levels = UserProfile::from_stages(stages, 0);
        let mut all = vec![(0, levels.active(0))];
        all.extend(std::iter::from_fn(|| levels.advance(u64::MAX)));
        all
    }

    #[test]
    fn users_come_one_by_one_and_go_in_reverse() {
        let all = changes(&stages(&["2s@0..4users", "2s@4users", "1s@4..0users"]));
        let ms = S / 1000;
        let up = [(0, 0), (500 * ms, 1), (1000 * ms, 2), (1500 * ms, 3), (2000 * ms, 4)];
        let down = [(4000 * ms + 1, 3), (4250 * ms + 1, 2), (4500 * ms + 1, 1), (4750 * ms + 1, 0)];
        assert_eq!(all, [&up[..], &down[..]].concat());
        // Steps, and what only touches a level.
        assert_eq!(changes(&stages(&["1s@3users", "1s@7users", "1s@2users"])), [(0, 3), (S, 7), (2 * S, 2)]);
        let spike = changes(&stages(&["4s@1..2..1users"]));
        assert_eq!(spike, [(0, 1), (2 * S, 2), (2 * S + 1, 1)]);
        assert_eq!(changes(&[]), [(0, 0)]);
        assert_eq!(UserProfile::from_stages(&[], 50).active(0), 50);
    }

    #[test]
    fn a_wave_goes_up_and_down() {
        let all = changes(&stages(&["4s@0..2users,period=4s"]));
        // Middle, up to the top after a quarter, below the middle after a half; at the bottom after three quarters.
        assert_eq!(all, [(0, 1), (S, 2), (S + 1, 1), (2 * S + 1, 0)]);
        let two = changes(&stages(&["8s@0..2users,period=4s"]));
        assert_eq!(two.iter().filter(|(_, active)| *active == 2).count(), 2, "{two:?}");
    }

    fn any_stage() -> impl Strategy<Value = Stage> {
        let shape = prop_oneof![
            (0u32..40).prop_map(|level| Shape::Hold { level: level.into() }),
            (0u32..40, 0u32..40).prop_map(|(from, to)| Shape::Ramp { from: from.into(), to: to.into() }),
            (0u32..40, 1u32..40)
                .prop_map(|(from, more)| Shape::Spike { from: from.into(), peak: (from + more).into() }),
            (0u32..20, 1u32..20, 100_000u64..5_000_000).prop_map(|(low, more, period_us)| Shape::Sine {
                low: low.into(),
                high: (low + more).into(),
                period_us
            }),
        ];
        (1_000u64..5_000_000, shape).prop_map(|(duration_us, shape)| Stage {
            duration_us,
            shape,
            measured: true,
        })
    }

    proptest! {
        // Invariant: wherever the level is not just at a whole number, as many users are active as it has whole ones.
        #[test]
        fn users_follow_the_level(stages in prop::collection::vec(any_stage(), 1..4), shares in prop::collection::vec(0f64..1.0, 30)) {
            let whole_s: f64 = stages.iter().map(Stage::duration_s).sum();
            let mut times: Vec<f64> = shares.iter().map(|share| share * whole_s).collect();
            times.sort_by(f64::total_cmp);
            let mut levels = UserProfile::from_stages(&stages, 0);
            for t_s in times {
                let (mut begin_s, mut level) = (0.0, 0.0);
                for stage in &stages {
                    if t_s >= begin_s {
                        level = stage.level_at(t_s - begin_s);
                    }
                    begin_s += stage.duration_s();
                }
                if (level - level.round()).abs() > 1e-5 {
                    prop_assert_eq!(levels.active((t_s * 1e9) as u64), level.floor() as u32, "at {}", t_s);
                }
            }
        }

        // Invariant: changes are in order of time, each changes something, within a stage by one, and they end.
        #[test]
        fn changes_are_in_order(stages in prop::collection::vec(any_stage(), 1..4)) {
            let all = changes(&stages);
            for pair in all.windows(2) {
                prop_assert!(pair[1].0 >= pair[0].0 && pair[1].1 != pair[0].1, "{:?}", pair);
            }
            let end_ns: u64 = stages.iter().map(|stage| stage.duration_us * 1000).sum();
            prop_assert!(all.last().unwrap().0 < end_ns);
        }
    }
}
