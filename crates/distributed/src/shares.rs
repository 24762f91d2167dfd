//! How a load is dealt out: each worker gets engine threads as its capacity has them, one behind the other. Which arrivals, users
//! and rows these are is a function of their numbers (docs/decisions/017), so together they make the load of one machine.

use webdyno_model::worker::LoadShare;

/// Most engine threads that a load has in all.
pub const THREADS_MAX: u32 = 100_000;

/// Threads that differ by less count as the same: a measurement of a moment tells no more.
const ALIKE_MIN: f64 = 0.8;

/// How many of its threads each worker gives, by what each thread can send: all threads of a load have the same of it, so that a slower
/// machine takes fewer. Where one did not measure, nothing is known of any.
pub fn capacities(offers: &[(u32, Option<u32>)]) -> Vec<u32> {
    let best = offers.iter().filter_map(|(_, requests_per_s)| *requests_per_s).max();
    let all_measured = offers.iter().all(|(_, requests_per_s)| requests_per_s.is_some());
    let of_best = |requests_per_s: Option<u32>| match (requests_per_s, best) {
        (Some(own), Some(best)) if all_measured => f64::from(own) / f64::from(best.max(1)),
        _ => 1.0,
    };
    let given = |(threads, requests_per_s): &(u32, Option<u32>)| match of_best(*requests_per_s) {
        share if share >= ALIKE_MIN => *threads,
        share => ((f64::from(*threads) * share).round() as u32).max(1),
    };
    offers.iter().map(given).collect()
}

/// The shares of workers with these capacities, in their order; `None` for one that gets nothing. At most `at_most` threads in all:
/// a thread without a connection or a user has nothing to do.
pub fn shares(capacities: &[u32], at_most: u32) -> Vec<Option<LoadShare>> {
    let wanted: u64 = capacities.iter().map(|threads| u64::from(*threads)).sum();
    let total = wanted.min(u64::from(at_most.min(THREADS_MAX)));
    let (mut first, mut before) = (0, 0);
    capacities
        .iter()
        .map(|capacity| {
            before += u64::from(*capacity);
            // Rounded down from the beginning, so that the sum is exact and nobody is off by more than one thread.
            let end = (before * total).checked_div(wanted).unwrap_or(0);
            let (first_thread, threads) = (first, end - first);
            first = end;
            (threads > 0).then_some(LoadShare {
                first_thread: first_thread as u32,
                threads: threads as u32,
                total_threads: total as u32,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slower_machine_gives_fewer_threads() {
        for (offers, given) in [
            (&[(4, Some(50_000)), (4, Some(25_000)), (1, Some(10_000))][..], [4, 2, 1]),
            (&[(4, Some(50_000)), (8, Some(42_000)), (2, Some(50_000))], [4, 8, 2]),
            (&[(4, Some(50_000)), (4, None), (4, Some(1))], [4, 4, 4]),
        ] {
            assert_eq!(capacities(offers), given, "{offers:?}");
        }
    }

    proptest! {
        // Invariant: the shares follow upon each other, have all threads, and nobody has more than it can run.
        #[test]
        fn threads_are_dealt_out_by_capacity(
            capacities in prop::collection::vec(0u32..64, 1..20), at_most in 1u32..500
        ) {
            let wanted: u32 = capacities.iter().sum();
            let total = wanted.min(at_most);
            let mut next = 0;
            for (share, capacity) in shares(&capacities, at_most).into_iter().zip(&capacities) {
                let Some(share) = share else { continue };
                prop_assert_eq!((share.first_thread, share.total_threads), (next, total));
                prop_assert!(share.threads <= *capacity);
                let fair = f64::from(*capacity) * f64::from(total) / f64::from(wanted);
                prop_assert!((f64::from(share.threads) - fair).abs() <= 1.0);
                next += share.threads;
            }
            prop_assert_eq!(next, total);
        }
    }
}
