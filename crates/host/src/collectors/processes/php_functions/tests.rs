//! What is looked at, and when: names, refusals, moments.

use super::*;

#[test]
fn a_process_without_php_is_not_waited_for() {
    let target = Target { service_pid: Some(std::process::id()), ..Target::default() };
    let mut collector = PhpFunctions::default();
    assert_eq!(collector.read(&target), Reading::default());
    let found = &collector.executors[&std::process::id()];
    assert!(found.globals.is_none() && found.children.is_empty(), "{found:?}");
}

#[test]
fn of_a_long_name_its_end_is_told() {
    let of = |class: &str| end_of(&format!("Vendor\\{}\\{class}::prices", "Namespace\\".repeat(8)));
    assert!(of("Shop").starts_with("..") && of("Shop").ends_with("\\Shop::prices"), "{}", of("Shop"));
    assert_ne!(of("Shop"), of("Cart"));
    assert_eq!(of("Shop").len(), NAME_LETTERS_MAX + 2);
    assert_eq!(end_of("a b*;\u{e9}::c"), "a_b___::c");
}

#[test]
fn what_is_late_by_a_pause_is_left_out() {
    for (moment, elapsed_ms, expected) in [(0, 40, false), (0, 50, true), (2, 95, false), (2, 136, true)] {
        assert_eq!(is_late(moment, Duration::from_millis(elapsed_ms)), expected, "{moment} at {elapsed_ms}");
    }
}

// The children of this process are of other tests, too, and come and go: those that are kept are no processes.
#[test]
fn children_are_listed_now_and_then() {
    let own = std::process::id();
    let target = Target { service_pid: Some(own), ..Target::default() };
    let mut collector = PhpFunctions::default();
    let listed = |collector: &mut PhpFunctions, count: u64| {
        let kept = Executor { globals: Some(8), children: vec![4_000_001], ..Executor::default() };
        collector.executors.insert(own, kept);
        collector.readings_count = count;
        collector.update_executors(&target);
        collector.executors[&own].children != [4_000_001]
    };
    assert_eq!(
        [1, 2, 3, 4, 5].map(|count| listed(&mut collector, count)),
        [false, false, false, true, false]
    );
    collector.is_stale = true;
    assert!(listed(&mut collector, 1) && !listed(&mut collector, 1));
}

#[test]
fn what_was_refused_is_told_and_not_tried_again_at_once() {
    let own = std::process::id();
    let target = Target { service_pid: Some(own), ..Target::default() };
    let refused = || Some(("refused".to_owned(), RIGHTS, 3));
    let mut collector = PhpFunctions { refused: refused(), ..PhpFunctions::default() };
    let tried = [1, 2, 3].map(|_| {
        let reading = collector.read(&target);
        (reading.missing.len(), !collector.executors.is_empty())
    });
    assert_eq!(tried, [(1, false), (1, false), (0, true)]);
    let denied = io::Error::from(io::ErrorKind::PermissionDenied);
    for (scope, named, help) in
        [("", false, RIGHTS), ("0\n", false, RIGHTS), ("1\n", true, RIGHTS), ("3\n", true, "reboot")]
    {
        let (why, how) = refusal(&denied, scope);
        assert_eq!((why.contains("ptrace_scope"), how.contains(help)), (named, true), "{why} {how}");
    }
}
