//! Little's law within the generator: mean in flight = rate x mean time. Little, "A proof for the queuing formula
//! L = lambda W", Operations Research 9 (1961).
//!
//! The law holds exactly over a whole load that begins with nothing in flight, when what is in flight at its end counts
//! with its time so far: the integral of requests in flight is then the sum of all times. Both are counted apart, one
//! by starts and ends, the other by histograms, so that a request that is lost or counted twice shows.

use crate::measurement::Measurement;
use webdyno_model::histogram::EncodedHistogram;
use webdyno_model::interval::Interval;
use webdyno_model::number::significant;

/// By more than this share the two counts differ only if requests were lost or counted twice.
const TOLERANCE: f64 = 0.01;
/// With fewer requests than this the rounding of times says more than the law.
const REQUESTS_MIN: u64 = 1000;
/// Times are whole microseconds, rounded to the nearest one: each is wrong by up to half of one.
const ROUNDING_US: f64 = 0.5;

/// The two counts over the measured part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct InFlightCounts {
    /// Mean in flight by the integral.
    pub(super) mean: f64,
    /// Mean in flight by the times; `None` when what was in flight at the end is not known.
    pub(super) by_law: Option<f64>,
    broken: bool,
}

/// Both counts; `None` for a measured part without length.
pub(super) fn in_flight_counts(measurement: &Measurement) -> Option<InFlightCounts> {
    let all = &measurement.intervals;
    let measured: Vec<&Interval> = measurement.measured().collect();
    let length_us: u64 = measured.iter().map(|interval| interval.length_us).sum();
    let integral = |intervals: &mut dyn Iterator<Item = &Interval>| -> f64 {
        intervals.map(|interval| interval.in_flight_us as f64).sum()
    };
    let observed = integral(&mut measured.iter().copied());
    let others = integral(&mut measurement.before()) + integral(&mut measurement.after());
    let ended: u64 = all.iter().map(|interval| interval.completed + interval.failed).sum();
    // What the measured part owes is what all times leave when the parts around it have had their own.
    let reported = times_us(measurement).map(|times| times - others);
    let slack = TOLERANCE * (observed + others) + ROUNDING_US * ended as f64;
    let broken =
        ended >= REQUESTS_MIN && reported.is_some_and(|reported| (observed - reported).abs() > slack);
    let mean = |sum: f64| sum / length_us as f64;
    (length_us > 0).then(|| InFlightCounts {
        mean: mean(observed),
        by_law: reported.map(|reported| mean(reported).max(0.0)),
        broken,
    })
}

/// All times of the whole load together. `None` when the load was cut off with requests in flight: how long they had
/// been waiting is not known.
fn times_us(measurement: &Measurement) -> Option<f64> {
    let sum = |times: &Option<EncodedHistogram>| times.as_ref().map_or(0.0, |times| times.sum_us);
    let of_ended = |interval: &Interval| sum(&interval.response_time) + sum(&interval.failed_time);
    let censored = match &measurement.end {
        Some(end) => sum(&end.censored_time),
        None if measurement.intervals.last().is_none_or(|last| last.in_flight == 0) => 0.0,
        None => return None,
    };
    let ended_us: f64 = measurement.intervals.iter().map(of_ended).sum();
    Some(ended_us + censored)
}

impl InFlightCounts {
    /// Why the counts cannot be believed; `None` when they agree.
    pub(super) fn fault(&self) -> Option<String> {
        let by_law = self.by_law.filter(|_| self.broken)?;
        Some(format!(
            "Little's law does not hold: {} requests in flight, but rate times response time is {}",
            significant(self.mean, 4),
            significant(by_law, 4)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::histogram::TimeHistogram;
    use webdyno_model::interval::LoadEnd;

    fn times(all_us: &[(u64, u64)]) -> Option<EncodedHistogram> {
        let mut times = TimeHistogram::new();
        all_us.iter().for_each(|&(us, count)| (0..count).for_each(|_| times.record(us)));
        times.encode()
    }

    fn second(index: usize, in_flight_us: u64, all_us: &[(u64, u64)], in_flight: u64) -> Interval {
        let completed = all_us.iter().map(|(_, count)| count).sum();
        let (t_s, length_us, response_time) = (index as f64, 1_000_000, times(all_us));
        Interval { t_s, length_us, completed, in_flight, in_flight_us, response_time, ..Interval::default() }
    }

    fn end(censored_us: &[(u64, u64)]) -> Option<LoadEnd> {
        Some(LoadEnd { censored_time: times(censored_us), ..LoadEnd::default() })
    }

    fn check(
        intervals: Vec<Interval>,
        end: Option<LoadEnd>,
        measured_from_s: f64,
    ) -> (f64, Option<f64>, bool) {
        let law =
            in_flight_counts(&Measurement { intervals, end, measured_from_s, ..Measurement::default() })
                .unwrap();
        (law.mean, law.by_law.map(|mean| significant(mean, 4)), law.fault().is_some())
    }

    #[test]
    fn requests_that_are_counted_once_obey() {
        let even = |in_flight_us| vec![second(0, in_flight_us, &[(1000, 5000)], 0)];
        assert_eq!(check(even(5_000_000), end(&[]), 0.0), (5.0, Some(5.0), false));
        // Rounding has moved each of them by less than half a microsecond.
        assert!(!check(even(5_002_500), end(&[]), 0.0).2 && !check(even(4_997_500), end(&[]), 0.0).2);
        for in_flight_us in [4_900_000, 5_100_000, 10_000_000, 0] {
            assert!(check(even(in_flight_us), end(&[]), 0.0).2, "{in_flight_us}");
        }
        // Too few to tell.
        assert!(!check(vec![second(0, 9_000_000, &[(1000, 999)], 0)], end(&[]), 0.0).2);
    }

    #[test]
    fn what_lies_across_an_edge_counts_as_far_as_it_lies_within() {
        // 400 requests wait 5.9 seconds; the measured second saw little of them.
        let slow_start = |seen_in_last_us| {
            let waiting = (0..5).map(|index| second(index, 400_000_000, &[], 400));
            let last = second(5, seen_in_last_us, &[(5_900_000, 400), (1000, 5000)], 0);
            check(waiting.chain([last]).collect(), end(&[]), 5.0)
        };
        let (observed, by_law, broken) = slow_start(365_000_000);
        assert_eq!((observed, by_law, broken), (365.0, Some(365.0), false));
        // More than 1% of all that was in flight.
        assert!(slow_start(395_000_000).2 && slow_start(335_000_000).2);
    }

    #[test]
    fn a_part_in_the_middle_has_its_own_mean_and_the_law_is_that_of_the_whole() {
        // Five requests of a millisecond at once, then fifty, then five.
        let seconds = |last_us| {
            vec![
                second(0, 5_000_000, &[(1000, 5000)], 0),
                second(1, 50_000_000, &[(1000, 50_000)], 0),
                second(2, last_us, &[(1000, 5000)], 0),
            ]
        };
        let middle = |last_us| {
            let measurement = Measurement {
                intervals: seconds(last_us),
                end: end(&[]),
                measured_from_s: 1.0,
                ramp_down_from_s: Some(2.0),
                ..Measurement::default()
            };
            in_flight_counts(&measurement).unwrap()
        };
        let law = middle(5_000_000);
        assert_eq!((law.mean, law.by_law, law.fault()), (50.0, Some(50.0), None));
        // Requests that were counted twice show wherever they were.
        assert!(middle(9_000_000).fault().is_some());
    }

    #[test]
    fn what_has_no_end_counts_with_its_time_so_far() {
        let stuck = |end| check(vec![second(0, 55_000_000, &[(1000, 5000)], 50)], end, 0.0);
        assert_eq!(stuck(end(&[(1_000_000, 50)])), (55.0, Some(55.0), false));
        assert!(stuck(end(&[])).2);
        // A recording that was cut off does not tell.
        assert_eq!(stuck(None), (55.0, None, false));
        assert_eq!(in_flight_counts(&Measurement::default()), None);
    }
}
