//! The clock that samples are dated with: the one clock of tool, engine and agent on a machine.

/// This machine's CLOCK_MONOTONIC in microseconds.
pub fn clock_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1000
}
