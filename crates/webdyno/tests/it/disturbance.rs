//! Tests that measure, on a machine that others use as well: what fails while others held the processors is measured again.

use crate::support::Place;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

/// So often is measured at most.
const TRIES_MAX: usize = 3;

/// From this share of the time on in which tasks waited for a processor, somebody else disturbed the test: its own load
/// leaves most of the processors idle.
const WAITED_FRACTION_MIN: f64 = 0.1;

/// Runs a test in a place of its own, and again if it fails while processors were wanted by others, too.
pub fn measured(test: impl Fn(&Place)) {
    measured_in(Place::shielded, test);
}

/// The same in a place that sees all of the machine.
pub fn measured_unshielded(test: impl Fn(&Place)) {
    measured_in(Place::new, test);
}

fn measured_in(place: fn() -> Place, test: impl Fn(&Place)) {
    for number in 1.. {
        let (began, waited_before) = (Instant::now(), waited_us());
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(&place()))) else { return };
        let waited = waited_us().zip(waited_before).map(|(after, before)| (after - before) as f64);
        let share = waited.map_or(0.0, |waited| waited / began.elapsed().as_micros() as f64);
        if number == TRIES_MAX || share < WAITED_FRACTION_MIN {
            resume_unwind(panic);
        }
        eprintln!("disturbed: tasks waited for a processor in {:.0}% of the time; again", share * 100.0);
    }
}

/// For how long tasks of the machine have waited for a processor so far: Documentation/accounting/psi.rst. `None` on a
/// kernel without it.
fn waited_us() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    text.lines().find(|line| line.starts_with("some"))?.rsplit_once("total=")?.1.parse().ok()
}
