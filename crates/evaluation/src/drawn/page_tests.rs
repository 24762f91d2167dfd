//! The tables of some seeds whose outcomes are known.

use super::*;
use crate::drawn::RejectedDraw;
use crate::drawn::truth::Truth;
use webdyno_lab::run::passive::ReportedFinding;

fn seed(number: u64, fault: Option<&str>, right: &str, found: &str, sure: f64) -> SeedOutcome {
    let found = vec![ReportedFinding { id: found.into(), confidence: sure }];
    SeedOutcome {
        attempt: Some(1),
        rejected: vec![RejectedDraw {
            attempt: 0,
            faults: vec!["log-disk".into()],
            why: "its removal brings nothing".into(),
        }],
        words: "nginx, files".into(),
        services: ["nginx".into(), "files".into()],
        load: "-c 4".into(),
        faults: fault.map(|id| (id.to_owned(), "severe".to_owned())).into_iter().collect(),
        truth: Some(Truth {
            first: fault.map(str::to_owned).into_iter().collect(),
            findings: vec![right.into()],
            rate_ratios: vec![],
            rates: [Some(10.0), Some(40.0)],
            p50_us: [None, None],
        }),
        found: Visibility::ALL.into_iter().map(|visibility| (visibility, found.clone())).collect(),
        version: "1".into(),
        ..SeedOutcome::of_seed(number)
    }
}

#[test]
fn the_tables_count_what_was_right() {
    let all = [
        seed(3, None, "healthy", "healthy", 0.9),
        seed(4, None, "healthy", "log-io", 0.9),
        seed(5, Some("log-disk"), "log-io", "log-io", 0.95),
        seed(6, Some("log-disk"), "log-io", "unknown", 0.3),
        SeedOutcome::of_seed(7),
    ];
    // The last of them by a build of another name, which sorts before the first one's.
    let all = all.map(|one| match one.seed {
        6 => SeedOutcome { version: "0".into(), ..one },
        _ => one,
    });
    let text = section(&all);
    for part in [
        "Seeds 3 to 7: 4 servers",
        "nothing is wrong: 1 of 2, 50% (9 to 91)",
        "| root | 2 of 4, 50% (15 to 85) | 1 of 4, 25% (5 to 70) |",
        "by build | seeds | root |",
        "| 1 | 3 to 5 | 2 of 3, 67% (21 to 94) |",
        " |\n| 0 | 6 to 6 | 0 of 1, 0% (0 to 79) |",
        "| log-disk | 1 of 2, 50% (9 to 91) |",
        "| nginx, files | 2 of 4, 50% (15 to 85) |",
        "| `log-io` | 2 | `log-io` 1, `unknown` 1 |",
        "| over 0.85 to 1.00 | 2 of 3,",
        "\n0.85 to 1.00          -------------------o-----------..\n",
        "| draw-6-1 | nginx, files | severe (10/s, mended 40/s) | `unknown` 0.30 |",
        "Drawn again: 4 draws; seeds of which none was taken: 1.",
        "| log-disk | its removal brings nothing | 4 |",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains("tune"), "{text}");
    assert!(section(&[SeedOutcome::of_seed(7)]).is_empty());
    let failures = failures(&all);
    // Seen as root, without it, and passively; from outside only what misleads.
    assert_eq!(failures.lines().count(), 2 + 2 + 1 + 2);
    assert!(failures.contains("draw-6-1 (root): nginx, files; right: log-io"), "{failures}");
}

#[test]
fn what_tuning_reaches_counts_where_a_setting_lifts_what_limits() {
    let tuned = |number, fault, rate| {
        let tuned = serde_json::json!({
            "schema": "", "scenario": "", "exit_code": 0, "found_rate": 10.0, "tuned_rate": rate, "rounds": [],
            "tune_s": 9.0, "directory": "",
        });
        let tuned = serde_json::from_value(tuned).unwrap();
        SeedOutcome { tuned, ..seed(number, fault, "log-io", "log-io", 0.9) }
    };
    let mut stopped = tuned(5, None, 11.0);
    stopped.tuned.as_mut().unwrap().found_rate = None;
    let all = [
        stopped,
        tuned(1, Some("log-disk"), 38.0),
        tuned(2, Some("log-disk"), 20.0),
        tuned(3, Some("network"), 10.0),
        tuned(4, None, 10.0),
    ];
    let text = section(&all);
    for part in [
        "as fast as before or faster: 5 of 5",
        "where settings lift all that is wrong: 1 of 2,",
        "where it raises the rate: 1 of 2, 50% (9 to 91), regret (the part of this gain that is missed) 37% in the median and 67% at most",
        "Of 1 more something is for a person",
        "| log-disk | 2 | 1 |",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn what_is_kept_is_read_again() {
    let one = seed(3, Some("log-disk"), "log-io", "log-io", 0.5);
    let line = serde_json::to_string(&one).unwrap();
    let path = std::path::Path::new("f");
    assert_eq!(crate::drawn::read(&format!("{line}\n\n"), path), Ok(vec![one]));
    assert!(crate::drawn::read("{}", path).unwrap_err().message.starts_with("f:1: "));
}
