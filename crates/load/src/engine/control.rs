//! Stopping a load from any thread, at once.

use rustix::fd::OwnedFd;
use rustix::io::Result;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use webdyno_model::interval::EndReason;

const GO_ON: u8 = 0;

/// A handle on a load. Copies act on the same load; one that was stopped stays stopped.
#[derive(Debug, Clone, Default)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    reason: AtomicU8,
    /// Until when it may send, nanoseconds of CLOCK_MONOTONIC; 0 for as long as it likes.
    until_ns: AtomicU64,
    /// The moment from which its threads count.
    origin_ns: AtomicU64,
    /// When the last of its threads began; 0 before.
    began_ns: AtomicU64,
    /// One event descriptor per engine thread, so that a thread that sleeps wakes up.
    wakers: Mutex<Vec<OwnedFd>>,
}

impl Control {
    /// A handle on a load that is to run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the load: each engine thread stops with the request it is just handling, usually within a millisecond.
    /// The first reason counts.
    pub fn stop(&self, reason: EndReason) {
        let code = match reason {
            EndReason::Duration => 1,
            EndReason::Requests => 2,
            EndReason::Enough => 3,
            EndReason::Interrupted => 4,
            EndReason::Hopeless => 5,
            EndReason::Braked => 6,
            EndReason::StopLoss => 7,
            EndReason::ObjectiveLost => 8,
            EndReason::WorkerLost => 9,
        };
        let shared = &self.shared;
        // It was stopped before if this fails; waking again does no harm.
        let _ = shared.reason.compare_exchange(GO_ON, code, Ordering::AcqRel, Ordering::Acquire);
        let wakers = shared.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        for waker in wakers.iter() {
            // It can only fail when 2^64 - 1 wakes are pending, and then the thread is awake.
            let _ = rustix::io::write(waker, &1u64.to_ne_bytes());
        }
    }

    /// Why the load was stopped; `None` as long as it runs.
    pub fn stopped(&self) -> Option<EndReason> {
        match self.shared.reason.load(Ordering::Acquire) {
            1 => Some(EndReason::Duration),
            2 => Some(EndReason::Requests),
            3 => Some(EndReason::Enough),
            4 => Some(EndReason::Interrupted),
            5 => Some(EndReason::Hopeless),
            6 => Some(EndReason::Braked),
            7 => Some(EndReason::StopLoss),
            8 => Some(EndReason::ObjectiveLost),
            9 => Some(EndReason::WorkerLost),
            _ => None,
        }
    }

    /// From now on the load ends at this moment on CLOCK_MONOTONIC (nanoseconds), unless it is put off in time: also one whose process was
    /// stopped then sends nothing later.
    pub fn keep_until(&self, until_ns: u64) {
        self.shared.until_ns.fetch_max(until_ns, Ordering::AcqRel);
    }

    /// The same on the clock of the load.
    #[inline]
    pub(crate) fn kept_until_ns(&self) -> u64 {
        match self.shared.until_ns.load(Ordering::Relaxed) {
            0 => u64::MAX,
            until_ns => until_ns.saturating_sub(self.shared.origin_ns.load(Ordering::Relaxed)),
        }
    }

    /// From when its threads count.
    pub(crate) fn set_origin(&self, origin_ns: u64) {
        self.shared.origin_ns.store(origin_ns, Ordering::Release);
    }

    /// When the last engine thread began, nanoseconds of CLOCK_MONOTONIC; `None` before.
    pub fn began_ns(&self) -> Option<u64> {
        Some(self.shared.began_ns.load(Ordering::Acquire)).filter(|ns| *ns > 0)
    }

    /// A thread begins.
    pub(crate) fn note_start(&self, now_ns: u64) {
        self.shared.began_ns.fetch_max(now_ns, Ordering::AcqRel);
    }

    /// A descriptor that becomes readable when the load is stopped.
    pub(crate) fn waker(&self) -> Result<OwnedFd> {
        use rustix::event::{EventfdFlags, eventfd};
        let stopped = u32::from(self.stopped().is_some());
        let descriptor = eventfd(stopped, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&descriptor, 0)?;
        let wakers = &self.shared.wakers;
        wakers.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
        Ok(descriptor)
    }

    /// Forgets the descriptors of a load that has ended.
    pub(crate) fn forget_wakers(&self) {
        let wakers = &self.shared.wakers;
        wakers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_ends_by_itself_when_it_is_not_kept() {
        let control = Control::new();
        assert_eq!(control.kept_until_ns(), u64::MAX);
        control.set_origin(1000);
        control.keep_until(5000);
        control.keep_until(3000);
        assert_eq!(control.clone().kept_until_ns(), 4000);
    }

    #[test]
    fn the_first_reason_stands_for_every_copy() {
        let control = Control::new();
        let copy = control.clone();
        assert_eq!(copy.stopped(), None);
        copy.stop(EndReason::Enough);
        control.stop(EndReason::Interrupted);
        assert_eq!(control.stopped(), Some(EndReason::Enough));
    }
}
