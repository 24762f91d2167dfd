//! Whether a share of requests (slow ones, failed ones) is below or above what an objective allows: a sequential probability ratio test
//! (Wald, 1945) of two thirds against three halves of the allowed share, which is the same distance either way.
//!
//! Requests of a server are no independent draws: slow ones come in bursts. The evidence is therefore divided by how much more the
//! seconds differ from each other than independent draws would (overdispersion; McCullagh and Nelder, Generalized Linear Models, 4.5).

/// The two hypotheses are the allowed share divided and multiplied by this.
const DISTANCE: f64 = 1.5;
/// Each of the two errors is made in one of fifty steps at most: ln(49).
const EVIDENCE_NEEDED: f64 = 3.892;
/// As long as nothing is sure, so much evidence speaks for a share beyond: one of a few requests does not.
const EVIDENCE_SEEMING: f64 = 1.0;
/// Fewer seconds do not tell how much seconds differ.
const SECONDS_MIN: usize = 3;
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

/// Whether the share is surely within (`true`) or beyond what is allowed; `None` while neither is sure.
pub(super) fn share_met(seconds: &[ShareSecond], allowed: f64) -> Option<bool> {
    let beyond: u64 = seconds.iter().map(|second| second.beyond).sum();
    let ended: u64 = seconds.iter().map(|second| second.ended).sum();
    if allowed <= 0.0 {
        return (beyond > 0).then_some(false);
    }
    if is_plainly_beyond(seconds, allowed) {
        return Some(false);
    }
    let dispersion = dispersion(seconds, ended, beyond);
    // Of fewer seconds one that differs would not be known as such.
    let dispersion = if beyond == 0 { 1.0 } else { dispersion? };
    let evidence = evidence(ended as f64, beyond as f64, allowed) / dispersion;
    if evidence >= EVIDENCE_NEEDED { Some(false) } else { (evidence <= -EVIDENCE_NEEDED).then_some(true) }
}

/// Whether the share seems to be within what is allowed: of few requests a slow one is no sign yet.
pub(super) fn share_seems_met(seconds: &[ShareSecond], allowed: f64) -> bool {
    let (ended, beyond) = seconds.iter().fold((0, 0), |(a, b), one| (a + one.ended, b + one.beyond));
    if allowed <= 0.0 {
        return ended > 0 && beyond == 0;
    }
    let dispersion = dispersion(seconds, ended, beyond).unwrap_or(1.0);
    ended > 0 && evidence(ended as f64, beyond as f64, allowed) / dispersion < EVIDENCE_SEEMING
}

/// Logarithm of the likelihood ratio: above 0 it speaks for too many.
fn evidence(ended: f64, beyond: f64, allowed: f64) -> f64 {
    let (few, many) = (allowed / DISTANCE, (allowed * DISTANCE).min((1.0 + allowed) / 2.0));
    beyond * (many / few).ln() + (ended - beyond) * ((1.0 - many) / (1.0 - few)).ln()
}

/// By how much more the seconds vary than draws would, at least 1; `None` with too few of them.
fn dispersion(seconds: &[ShareSecond], ended: u64, beyond: u64) -> Option<f64> {
    if seconds.len() < SECONDS_MIN {
        return None;
    }
    let share = beyond as f64 / ended.max(1) as f64;
    let spread = |second: &ShareSecond| {
        let (n, off) = (second.ended as f64, second.beyond as f64 - second.ended as f64 * share);
        let variance = n * share * (1.0 - share);
        if variance > 0.0 { off * off / variance } else { 0.0 }
    };
    let sum: f64 = seconds.iter().map(spread).sum();
    Some((sum / (seconds.len() - 1) as f64).max(1.0))
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
            assert_eq!(share_met(&seconds(ended, beyond), allowed), met, "{beyond:?} of {ended}");
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
