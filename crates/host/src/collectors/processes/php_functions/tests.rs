//! Functions that were met: bounds.

use super::*;
use proptest::prelude::*;

proptest! {
    // Whatever is told apart, nothing that was met is lost.
    #[test]
    fn rare_functions_are_told_together(counts in prop::collection::vec((0_u64..200, 0_u64..9, 0_u64..9), 0..300)) {
        let mut places = Places::new();
        for (function, running, waiting) in counts {
            let sum = places.entry(format!("f{function}")).or_default();
            *sum = [sum[0] + running, sum[1] + waiting];
        }
        let sums = |places: &Places| places.values().fold([0, 0], |all, one| [all[0] + one[0], all[1] + one[1]]);
        let kept = bounded(places.clone());
        prop_assert_eq!(sums(&kept), sums(&places));
        prop_assert!(kept.len() <= PLACES_MAX + 1);
    }
}

#[test]
fn a_process_without_php_is_not_waited_for() {
    let target = Target { service_pid: Some(std::process::id()), ..Target::default() };
    let mut collector = PhpFunctions::default();
    assert_eq!(collector.read(&target), Reading::default());
    assert!(collector.executors.values().all(Option::is_none) && collector.executors.len() == 1);
}
