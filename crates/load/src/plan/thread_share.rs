//! What part of a load each engine thread gets.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The number of an engine thread, and the request budget that it shares with the others.
#[derive(Debug, Clone)]
pub(crate) struct ThreadShare {
    /// Which thread it is, from 0.
    pub(crate) thread: u32,
    pub(crate) threads: u32,
    /// Requests left to start, of all threads; `None` without a bound.
    pub(crate) budget: Option<Arc<AtomicU64>>,
}

impl ThreadShare {
    /// This thread's part of `count` equal things.
    pub(crate) fn part(&self, count: u32) -> u32 {
        count / self.threads + u32::from(self.thread < count % self.threads)
    }
}
