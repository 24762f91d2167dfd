//! What part of a load each engine thread gets.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The number of an engine thread, and the request budget that it shares with the others.
#[derive(Debug, Clone)]
pub(crate) struct ThreadShare {
    /// Which thread it is, from 0.
    pub(crate) thread: u32,
    pub(crate) threads: u32,
    /// What is given away together: the requests of one connection.
    pub(crate) unit: u32,
    /// Requests left to start, of all threads; `None` without a bound.
    pub(crate) budget: Option<Arc<AtomicU64>>,
}

impl ThreadShare {
    /// This thread's part of `count` equal things.
    pub(crate) fn part(&self, count: u32) -> u32 {
        let (units, rest) = (count / self.unit, count % self.unit);
        let (each, more) = (units / self.threads, units % self.threads);
        let rest = if self.thread == more { rest } else { 0 };
        (each + u32::from(self.thread < more)) * self.unit + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_keep_the_requests_of_a_connection_together() {
        for (threads, unit, count, expected) in [
            (3, 1, 16, &[6, 5, 5][..]),
            (3, 10, 160, &[60, 50, 50]),
            (2, 10, 25, &[15, 10]),
            (2, 10, 30, &[20, 10]),
            (2, 100, 7, &[7, 0]),
        ] {
            let part = |thread| ThreadShare { thread, threads, unit, budget: None }.part(count);
            assert_eq!((0..threads).map(part).collect::<Vec<_>>(), expected);
        }
    }
}
