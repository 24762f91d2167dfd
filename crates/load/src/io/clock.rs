//! Clock readings in nanoseconds: clock_gettime(2).

use rustix::time::{ClockId, Timespec, clock_gettime};

const NS_PER_S: u64 = 1_000_000_000;

/// The monotonic clock in nanoseconds.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// A kernel time in nanoseconds.
#[inline]
pub(crate) fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}

/// Nanoseconds as the kernel's type.
#[inline]
pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / NS_PER_S) as i64, tv_nsec: (ns % NS_PER_S) as _ }
}
