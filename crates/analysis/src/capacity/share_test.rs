//! Whether a share of requests (slow ones, failed ones) is below or above what an objective allows: a sequential probability ratio test
//! (Wald, 1945) of two thirds against three halves of the allowed share, which is the same distance either way.
//!
//! Requests of a server are no independent draws: slow ones come in bursts. The evidence is therefore divided by how much more the
//! seconds differ from each other than independent draws would (overdispersion; McCullagh and Nelder, Generalized Linear Models, 4.5).
//!
//! In a queue a second is no independent draw either, and a few of them do not show how long its bursts are. What a queue of mean length
//! L tells by itself: it forgets its state within 8 L W (reflected Brownian motion; Whitt, Stochastic-Process Limits, 5.7), and so slow
//! requests come in clumps of about 4 L^2 (Aldous, Probability Approximations via the Poisson Clumping Heuristic, B2, D1).

/// The two hypotheses are the allowed share divided and multiplied by this.
const DISTANCE: f64 = 1.5;
/// Each of the two errors is made in one of fifty steps at most: ln(49).
pub(super) const EVIDENCE_NEEDED: f64 = 3.892;
/// As long as nothing is sure, so much evidence speaks for a share beyond: one of a few requests does not.
const EVIDENCE_SEEMING: f64 = 1.0;
/// Fewer seconds do not tell how much seconds differ.
const SECONDS_MIN: usize = 3;
/// What the length of the queue says of clumps counts as so many seconds.
const CLUMP_SECONDS: f64 = 6.0;
/// Clumps of slow requests, twice what theory has for arrivals at random: requests are counted in whole seconds, and from an empty queue.
const CLUMP_TIMES: f64 = 12.0;
/// Two seconds in a row with so many times the allowed share are enough.
const PLAIN_TIMES: f64 = 10.0;

/// What a second says: requests that ended, and those of them beyond the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShareSecond {
    pub(super) ended: u64,
    pub(super) beyond: u64,
}

impl ShareSecond {
    fn share(self) -> f64 {
        if self.ended == 0 { 0.0 } else { self.beyond as f64 / self.ended as f64 }
    }
}

/// What the seconds of a step come to: of one objective, or of the one that speaks most against the load.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ShareEvidence {
    /// Requests that ended, and those of them beyond the bound.
    pub ended: f64,
    /// Slow or failed ones.
    pub beyond: f64,
    /// The share of them that is allowed.
    pub allowed: f64,
    /// Sum of the squared deviations of the seconds, in those of independent draws, and how many seconds that are free.
    pub deviation: (f64, f64),
    /// Requests that waited at once, on average, where responses came near the bound; else 0.
    pub queue: f64,
}

impl ShareEvidence {
    /// Of these seconds, during which so many requests waited on average.
    pub(super) fn of(seconds: &[ShareSecond], allowed: f64, queue: f64) -> Self {
        let (ended, beyond) = seconds.iter().fold((0, 0), |(a, b), one| (a + one.ended, b + one.beyond));
        let share = beyond as f64 / ended.max(1) as f64;
        let spread = |second: &ShareSecond| {
            let (n, off) = (second.ended as f64, second.beyond as f64 - second.ended as f64 * share);
            let variance = n * share * (1.0 - share);
            if variance > 0.0 { off * off / variance } else { 0.0 }
        };
        let free = if beyond == 0 { 0.0 } else { seconds.len().saturating_sub(1) as f64 };
        let deviation = (seconds.iter().map(spread).sum(), free);
        Self { ended: ended as f64, beyond: beyond as f64, allowed, deviation, queue }
    }

    /// The same with what other steps showed of how seconds differ.
    pub(super) fn dispersion(&self, (deviation, free): (f64, f64)) -> f64 {
        let clumps = 1.0 + CLUMP_TIMES * self.queue * self.queue;
        let weight = if self.queue > 0.0 { CLUMP_SECONDS } else { 0.0 };
        match free + weight {
            free_of_all if free_of_all > 0.0 => ((deviation + weight * clumps) / free_of_all).max(1.0),
            _ => 1.0,
        }
    }

    /// Logarithm of the likelihood ratio: above 0 it speaks for too many.
    fn ratio(&self) -> f64 {
        let (few, many) =
            (self.allowed / DISTANCE, (self.allowed * DISTANCE).min((1.0 + self.allowed) / 2.0));
        self.beyond * (many / few).ln() + (self.ended - self.beyond) * ((1.0 - many) / (1.0 - few)).ln()
    }

    /// The same divided by how clumped slow requests are in this step.
    pub(super) fn strength(&self) -> f64 {
        self.ratio() / self.dispersion(self.deviation)
    }
}

/// Whether the share is surely within (`true`) or beyond what is allowed; `None` while neither is sure.
pub(super) fn share_met(seconds: &[ShareSecond], allowed: f64, queue: f64) -> Option<bool> {
    let of = ShareEvidence::of(seconds, allowed, queue);
    if allowed <= 0.0 {
        return (of.beyond > 0.0).then_some(false);
    }
    if is_plainly_beyond(seconds, allowed) {
        return Some(false);
    }
    // Of fewer seconds one that differs would not be known as such.
    if of.beyond > 0.0 && seconds.len() < SECONDS_MIN {
        return None;
    }
    let strength = of.strength();
    if strength >= EVIDENCE_NEEDED { Some(false) } else { (strength <= -EVIDENCE_NEEDED).then_some(true) }
}

/// Whether the share seems to be within what is allowed: of few requests a slow one is no sign yet.
pub(super) fn share_seems_met(seconds: &[ShareSecond], allowed: f64) -> bool {
    let of = ShareEvidence::of(seconds, allowed, 0.0);
    if allowed <= 0.0 {
        return of.ended > 0.0 && of.beyond == 0.0;
    }
    let dispersion = if seconds.len() < SECONDS_MIN { 1.0 } else { of.dispersion(of.deviation) };
    of.ended > 0.0 && of.ratio() / dispersion < EVIDENCE_SEEMING
}

fn is_plainly_beyond(seconds: &[ShareSecond], allowed: f64) -> bool {
    let bound = (PLAIN_TIMES * allowed).min((1.0 + allowed) / 2.0);
    let [.., before, last] = seconds else { return false };
    [before, last].iter().all(|second| second.share() > bound && second.beyond > 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(ended: u64, beyond: &[u64]) -> Vec<ShareSecond> {
        beyond.iter().map(|beyond| ShareSecond { ended, beyond: *beyond }).collect()
    }

    #[test]
    fn a_share_is_sure_as_soon_as_it_can_be() {
        for (ended, beyond, allowed, met) in [
            // No slow one: 467 requests prove that fewer than 1% are.
            (460, &[0][..], 0.01, None),
            (470, &[0], 0.01, Some(true)),
            (20, &[0; 10], 0.01, None),
            // Half as many as allowed, twice as many, and as many.
            (1000, &[5, 5, 5], 0.01, Some(true)),
            (1000, &[20, 20, 20], 0.01, Some(false)),
            (1000, &[10, 10, 10, 10], 0.01, None),
            // One burst is none of many, and two plain seconds are enough.
            (1000, &[100, 0, 0], 0.01, None),
            (1000, &[0, 100, 0, 0, 0, 0, 0, 0], 0.01, None),
            (1000, &[500, 1000], 0.01, Some(false)),
            (1000, &[1000], 0.01, None),
            (1000, &[0, 0, 1], 0.0, Some(false)),
            (1000, &[400, 400, 400], 0.5, Some(true)),
        ] {
            assert_eq!(share_met(&seconds(ended, beyond), allowed, 0.0), met, "{beyond:?} of {ended}");
        }
    }

    /// Nothing slow among 500 is no proof where requests wait for each other: the next burst may be of a hundred.
    #[test]
    fn a_queue_needs_more_of_them() {
        let none = seconds(500, &[0; 4]);
        for (queue, met) in [(0.0, Some(true)), (0.5, Some(true)), (2.0, None)] {
            assert_eq!(share_met(&none, 0.01, queue), met, "{queue}");
        }
    }

    #[test]
    fn what_a_share_seems_to_be() {
        for (ended, beyond, allowed, seems_met) in [
            (100, &[1, 1][..], 0.01, true),
            (20, &[0, 1, 0], 0.01, true),
            (20, &[1, 1, 1], 0.01, false),
            (1000, &[9, 8, 10], 0.01, true),
            (1000, &[14, 15, 13], 0.01, false),
            (9, &[0], 0.0, true),
            (9, &[1], 0.0, false),
            (9, &[], 0.01, false),
        ] {
            assert_eq!(share_seems_met(&seconds(ended, beyond), allowed), seems_met, "{beyond:?} of {ended}");
        }
    }
}
