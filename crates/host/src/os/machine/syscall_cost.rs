//! How quickly this machine's kernel does what a server of files asks of it. Processors of the same name differ by several
//! times in that: by what their hypervisor and the guards against side channels cost.
//!
//! Facts: lstat(2) and path_resolution(7). Of some hundred calls, three milliseconds in all, the quickest twenty are
//! those that nobody interrupted.

use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

/// Calls in a row that are timed together: longer than the clock's own cost, and shorter than what interrupts them.
const CALLS_COUNT: u32 = 20;
/// So often.
const BATCHES_COUNT: usize = 16;
/// A folder that is there everywhere, and the way back from it: two parts.
const THERE_AND_BACK: &str = "/usr/..";
const PARTS_COUNT: u16 = 64;

/// What calls took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Speed {
    pub(crate) file_call_us: f64,
    pub(crate) path_part_us: f64,
}

impl Speed {
    /// `None` where the clock is too coarse, or a call fails.
    pub(crate) fn measure() -> Option<Self> {
        let (root, deep) = (quickest_us("/")?, quickest_us(&THERE_AND_BACK.repeat(PARTS_COUNT.into()))?);
        let path_part_us = (deep - root) / (2.0 * f64::from(PARTS_COUNT));
        Some(Self { file_call_us: root, path_part_us }).filter(|speed| speed.path_part_us > 0.0)
    }
}

/// A call on this path, of the quickest batch.
fn quickest_us(path: &str) -> Option<f64> {
    let batch_us = || {
        let begun = Instant::now();
        for _ in 0..CALLS_COUNT {
            black_box(std::fs::symlink_metadata(black_box(path)).ok()?.ino());
        }
        Some(begun.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS_COUNT))
    };
    // The first one only warms up.
    let all = (0..=BATCHES_COUNT).map(|_| batch_us()).collect::<Option<Vec<f64>>>()?;
    all.into_iter().skip(1).reduce(f64::min).filter(|us| *us > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_longer_than_a_part_of_its_path() {
        let speed = Speed::measure().unwrap();
        assert!((0.01..1000.0).contains(&speed.file_call_us), "{speed:?}");
        assert!(speed.path_part_us < speed.file_call_us, "{speed:?}");
        assert_eq!(quickest_us("/this is not there"), None);
    }
}
