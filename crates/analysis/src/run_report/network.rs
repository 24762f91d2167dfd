//! What of a load was the network's: round trips, segments that were sent again, and connections whose SYN was lost.
//!
//! Facts: RFC 6298 (an initial timeout of 1 s that doubles: connections take about 1, 3, 7 or 15 s after 1, 2, 3 or 4 lost
//! SYNs); Documentation/networking/ip-sysctl.rst, `tcp_syn_linear_timeouts`: since Linux 6.5 the first four
//! repetitions come a second apart each, then it doubles (1, 2, 3, 4, 5, 7, 11 s). The kernel's timers are late by up to an
//! eighth of their length (kernel/time/timer.c), never early.

use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use webdyno_model::Result;
use webdyno_model::environment::Environment;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::TcpCounts;
use webdyno_model::number::significant;
use webdyno_model::run::{ConnectPeak, TcpReport};

/// More lost SYNs than this are told by no peak: the default is to give up after six.
const LOST_SYNS_MAX: u32 = 6;
/// The first release with linear timeouts, and how many there are by default.
const LINEAR_SINCE: (u32, u32) = (6, 5);
const LINEAR_DEFAULT: u32 = 4;

/// What TCP did on the sampled connections; all `None` when none was.
pub fn tcp_report(counts: &TcpCounts) -> TcpReport {
    let known = |count: u64| (counts.readings > 0).then_some(count);
    let fraction = counts.segments_retransmitted as f64 / counts.segments_sent as f64;
    TcpReport {
        readings: counts.readings,
        segments_sent: known(counts.segments_sent),
        segments_retransmitted: known(counts.segments_retransmitted),
        retransmitted_fraction: (counts.segments_sent > 0).then(|| significant(fraction, 4)),
        round_trip_min_us: counts.round_trip_min_us,
    }
}

/// The connections of the measured part that took as long as lost SYNs cost. An error when a histogram is damaged.
pub fn connect_peaks_of(measurement: &Measurement) -> Result<Vec<ConnectPeak>> {
    let times = merged(measurement.measured().filter_map(|interval| interval.connect_time.as_ref()))?;
    Ok(connect_peaks(&times, linear_timeouts(&measurement.client)))
}

/// How many repetitions of a SYN come a second apart on this machine before their distance doubles.
fn linear_timeouts(machine: &Environment) -> u32 {
    let by_release = || {
        let mut numbers = machine.kernel.as_deref()?.split(|letter: char| !letter.is_ascii_digit());
        let release: (u32, u32) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        (release >= LINEAR_SINCE).then_some(LINEAR_DEFAULT)
    };
    machine.syn_linear_timeouts.or_else(by_release).unwrap_or(0)
}

/// Counts the connections that took what so many lost SYNs cost, where there are any.
fn connect_peaks(times: &TimeHistogram, linear_timeouts: u32) -> Vec<ConnectPeak> {
    let after_s = after_s(linear_timeouts);
    let windows = after_s.windows(2).zip(1..).map(|(pair, lost_syns)| {
        let (from_us, next_us) = (pair[0] * 1_000_000, pair[1] * 1_000_000);
        // Late timers, the way there and back, and a server and a generator that are busy.
        let to_us = (from_us + from_us / 4 + 100_000).min(earliest(next_us) - 1);
        let count = times.count_between(earliest(from_us), to_us);
        ConnectPeak { after_s: pair[0], lost_syns, count }
    });
    windows.filter(|peak| peak.count > 0).collect()
}

/// A clock tick before, and what a histogram rounds down.
fn earliest(us: u64) -> u64 {
    us - us / 100
}

/// When a SYN is sent again, in seconds since the first one.
fn after_s(linear_timeouts: u32) -> Vec<u64> {
    let timeout_s = |lost: u32| 1u64 << lost.saturating_sub(linear_timeouts).min(20);
    let mut at_s = 0;
    (0..=LOST_SYNS_MAX)
        .map(|lost| {
            at_s += timeout_s(lost);
            at_s
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(linear_timeouts: u32, times_ms: &[u64], expected: &[(u64, u32, u64)]) {
        let mut times = TimeHistogram::new();
        times_ms.iter().for_each(|ms| times.record(ms * 1000));
        let peaks = connect_peaks(&times, linear_timeouts);
        let found: Vec<_> = peaks.iter().map(|peak| (peak.after_s, peak.lost_syns, peak.count)).collect();
        assert_eq!(found, expected, "{linear_timeouts} {times_ms:?}");
    }

    #[test]
    fn the_steps_are_the_kernels() {
        assert_eq!(after_s(0), [1, 3, 7, 15, 31, 63, 127]);
        assert_eq!(after_s(4), [1, 2, 3, 4, 5, 7, 11]);
        assert_eq!(after_s(1), [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn connections_count_at_the_step_that_they_took() {
        check(0, &[], &[]);
        check(0, &[0, 1, 40, 200, 700, 980], &[]);
        // The timers are late by up to an eighth.
        check(0, &[1000, 1001, 1024, 1125], &[(1, 1, 4)]);
        check(0, &[3010, 3300, 7200, 15_900, 31_000], &[(3, 2, 2), (7, 3, 1), (15, 4, 1), (31, 5, 1)]);
        check(
            4,
            &[1020, 2040, 3060, 4090, 5150, 7300],
            &[(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 1), (5, 5, 1), (7, 6, 1)],
        );
        // Two seconds are no step of a kernel that doubles at once: something else was slow.
        check(0, &[2020, 4800, 5000], &[]);
        check(4, &[2020, 3010], &[(2, 2, 1), (3, 3, 1)]);
        check(4, &[1500, 9500], &[]);
    }

    #[test]
    fn the_kernel_that_sent_decides_which_steps_there_are() {
        let machine = |kernel: &str, syn_linear_timeouts| Environment {
            kernel: Some(kernel.into()),
            syn_linear_timeouts,
            ..Environment::default()
        };
        for (machine, linear) in [
            (machine("6.18.4", Some(4)), 4),
            (machine("6.18.4", Some(0)), 0),
            (machine("6.5.0-14-generic", None), 4),
            (machine("6.4.9", None), 0),
            (machine("5.15.0", None), 0),
            (Environment::default(), 0),
        ] {
            assert_eq!(linear_timeouts(&machine), linear, "{machine:?}");
        }
    }

    #[test]
    fn what_was_not_read_is_unknown() {
        assert_eq!(tcp_report(&TcpCounts::default()), TcpReport::default());
        let counts = TcpCounts {
            readings: 3,
            segments_sent: 200,
            segments_retransmitted: 1,
            round_trip_min_us: Some(30),
        };
        let report = tcp_report(&counts);
        assert_eq!((report.segments_retransmitted, report.retransmitted_fraction), (Some(1), Some(0.005)));
        let none = TcpCounts { segments_retransmitted: 0, ..counts };
        assert_eq!(tcp_report(&none).retransmitted_fraction, Some(0.0));
    }
}
