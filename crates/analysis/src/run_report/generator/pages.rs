//! Whether pages were counted right: each that was started is completed, failed, or in flight at the end.

use crate::measurement::Measurement;

/// Why the pages cannot be believed; `None` when they add up over the whole load, or there are none.
pub(super) fn fault(measurement: &Measurement) -> Option<String> {
    let pages = || measurement.intervals.iter().filter_map(|interval| interval.pages.as_deref());
    let in_flight = pages().next_back()?.in_flight;
    let started: u64 = pages().map(|pages| pages.started).sum();
    let ended: u64 = pages().map(|pages| pages.completed + pages.failed).sum();
    (started != ended + in_flight).then(|| {
        format!("the page counts do not add up: {started} started, {ended} ended, {in_flight} in flight")
    })
}
