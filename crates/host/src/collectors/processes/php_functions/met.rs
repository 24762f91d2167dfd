//! Functions that were met: how often, and which of them are told.

use super::frames::OTHERS;
use std::collections::BTreeMap;

/// Functions that are told of a reading, the others together.
const PLACES_MAX: usize = 60;
/// A function that was met less often of late is one of the others: memory is read while it changes, and what was met once may be what
/// stood there for a moment only.
const MET_MIN: u64 = 2;
/// Readings in which it has to be met again.
const MET_WITHIN: u64 = 60;
/// Functions that are remembered.
const MET_MAX: usize = 4096;

/// How often a function was met in a reading, at work and waiting.
pub(super) type Places = BTreeMap<String, [u64; 2]>;

/// Functions that were met of late: how often, and in which reading last.
#[derive(Debug, Default)]
pub(super) struct RecentFunctions(BTreeMap<String, (u64, u64)>);

impl RecentFunctions {
    /// Adds those of this reading.
    pub(super) fn add(&mut self, places: &Places, reading: u64) {
        let since = reading.saturating_sub(MET_WITHIN);
        self.0.retain(|_, (_, last)| *last >= since);
        for (place, [running, waiting]) in places {
            let (times, last) = self.0.entry(place.clone()).or_default();
            (*times, *last) = (*times + running + waiting, reading);
        }
        if self.0.len() > MET_MAX {
            self.0.retain(|_, (_, last)| *last == reading);
        }
    }

    fn is_repeated(&self, place: &str) -> bool {
        self.0.get(place).is_some_and(|(times, _)| *times >= MET_MIN)
    }
}

/// The functions that were met most often, and the rest together, for each pool.
pub(super) fn bounded(places: Places, met: &RecentFunctions) -> Places {
    let mut by_count: Vec<(String, [u64; 2])> = places.into_iter().collect();
    by_count.sort_by_key(|(_, [running, waiting])| std::cmp::Reverse(running + waiting));
    let mut kept = Places::new();
    for (at, (place, counts)) in by_count.into_iter().enumerate() {
        let others = || place.rsplit_once('/').map_or(OTHERS.into(), |(pool, _)| format!("{pool}/{OTHERS}"));
        let place = if at < PLACES_MAX && met.is_repeated(&place) { place } else { others() };
        let sum = kept.entry(place).or_default();
        *sum = [sum[0] + counts[0], sum[1] + counts[1]];
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Whatever is told apart, nothing that was met is lost.
        #[test]
        fn rare_functions_are_told_together(counts in prop::collection::vec((0_u64..200, 0_u64..9, 0_u64..9), 0..300)) {
            let mut places = Places::new();
            for (function, running, waiting) in counts {
                let pool = ["", "www/"][usize::from(function % 2 == 1)];
                let sum = places.entry(format!("{pool}f{function}")).or_default();
                *sum = [sum[0] + running, sum[1] + waiting];
            }
            let sums = |places: &Places| places.values().fold([0, 0], |all, one| [all[0] + one[0], all[1] + one[1]]);
            let mut met = RecentFunctions::default();
            met.add(&places, 1);
            let kept = bounded(places.clone(), &met);
            prop_assert_eq!(sums(&kept), sums(&places));
            prop_assert!(kept.len() <= PLACES_MAX + 2);
        }
    }

    // At a low load one reading meets hardly a function twice.
    #[test]
    fn what_was_met_in_several_readings_is_told() {
        let mut met = RecentFunctions::default();
        let once: Places = [("www/a".to_owned(), [1, 0]), ("b".to_owned(), [0, 1])].into();
        for (reading, told) in [
            (1, ["others", "www/others"]),
            (1 + MET_WITHIN, ["b", "www/a"]),
            (2 + 2 * MET_WITHIN, ["others", "www/others"]),
        ] {
            met.add(&once, reading);
            let kept = bounded(once.clone(), &met);
            assert_eq!(kept.keys().collect::<Vec<_>>(), told, "{reading}");
        }
        met.add(&(0..=MET_MAX).map(|at| (format!("f{at}"), [1, 0])).collect(), 9 * MET_WITHIN);
        met.add(&once, 9 * MET_WITHIN + 1);
        assert_eq!(met.0.len(), once.len(), "no more than these are remembered");
    }
}
