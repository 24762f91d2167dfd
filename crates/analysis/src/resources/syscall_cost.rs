//! What work costs on the server's machine, where a rule can only go by what it was seen to cost elsewhere.
//!
//! Processors of the same age and clock differ by several times in what calls into the kernel cost: a hypervisor and the guards
//! against side channels take their share of each. So each session measures a call (lstat(2)) on the server's machine, and what
//! was seen elsewhere is stretched by that.

use crate::facts::Facts;

/// What that call took where the costs that rules know were seen. It was not measured there: it is estimated from a call with
/// what Apache does around it, which took 0.4 us.
const FILE_CALL_US: f64 = 0.35;
/// What a further part of a path added there.
const PATH_PART_US: f64 = 0.015;
/// A machine that would be slower than this was measured at a bad moment.
const SLOWNESS_MAX: f64 = 5.0;

/// What takes `us` where it was seen, most of it in the kernel, takes so long on this machine. Never less: that is what it is
/// seen to take at least on good machines.
pub fn scaled_to_machine_us(facts: &Facts, us: f64) -> f64 {
    us * facts.file_call_us.map_or(1.0, |call| (call / FILE_CALL_US).clamp(1.0, SLOWNESS_MAX))
}

/// A step of the kernel's walk along a path, from one folder to the next: a hash of the name, and a look into the cache of names.
pub fn path_part_us(facts: &Facts) -> f64 {
    facts.path_part_us.map_or(PATH_PART_US, |part| part.clamp(PATH_PART_US, SLOWNESS_MAX * PATH_PART_US))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_stretched_by_what_was_measured() {
        let on = |file_call_us, path_part_us| {
            let mut facts = Facts::default();
            (facts.file_call_us, facts.path_part_us) = (file_call_us, path_part_us);
            [super::scaled_to_machine_us(&facts, 100.0).round(), super::path_part_us(&facts) * 1e3]
        };
        assert_eq!(on(None, None), [100.0, 15.0], "not measured");
        assert_eq!(on(Some(0.7), Some(0.045)), [200.0, 45.0]);
        assert_eq!(on(Some(0.1), Some(0.001)), [100.0, 15.0], "a quicker one");
        assert_eq!(on(Some(90.0), Some(9.0)), [500.0, 75.0], "a bad moment");
    }
}
