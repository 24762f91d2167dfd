//! Whose clock ended the times of a load, and what the kernel stamped of it.

use crate::measurement::Measurement;
use webdyno_model::interval::RxTimestampCounts;
use webdyno_model::run::ClockReport;
use webdyno_model::workload::Clock;

/// What the times of the measured part end with. Connections count from the start of the load, as most of them are
/// opened in the warm-up.
pub fn clock_report(measurement: &Measurement) -> ClockReport {
    let mut stamps = RxTimestampCounts::default();
    measurement.measured().for_each(|interval| stamps.add(&interval.stamps));
    let requested = measurement.workload.as_ref().map(|workload| workload.clock);
    let by_kernel = requested == Some(Clock::Kernel) && stamps.answers > 0;
    ClockReport {
        ended_by: requested.map(|_| if by_kernel { Clock::Kernel } else { Clock::Engine }),
        connections_stamped: measurement.intervals.iter().map(|interval| interval.stamps.connections).sum(),
        answers_stamped: stamps.answers,
        answers_without_stamp: stamps.answers_without,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::interval::Interval;
    use webdyno_model::workload::Workload;

    fn interval(t_s: f64, connections: u64, answers: u64, answers_without: u64) -> Interval {
        let stamps = RxTimestampCounts { connections, answers, answers_without };
        Interval { t_s, stamps, ..Interval::default() }
    }

    #[test]
    fn the_clock_that_was_used_is_told_and_not_the_one_that_was_asked_for() {
        for (clock, answers, ended_by) in [
            (Clock::Auto, 30, Clock::Engine),
            (Clock::Engine, 0, Clock::Engine),
            (Clock::Kernel, 30, Clock::Kernel),
            (Clock::Kernel, 0, Clock::Engine),
        ] {
            let measurement = Measurement {
                workload: Some(Workload { clock, ..Workload::default() }),
                intervals: vec![interval(0.0, 4, 7, 2), interval(1.0, 1, answers, 3)],
                measured_from_s: 1.0,
                ..Measurement::default()
            };
            let expected = ClockReport {
                ended_by: Some(ended_by),
                connections_stamped: 5,
                answers_stamped: answers,
                answers_without_stamp: 3,
            };
            assert_eq!(clock_report(&measurement), expected, "{clock:?}");
        }
        assert_eq!(clock_report(&Measurement::default()), ClockReport::default());
    }
}
