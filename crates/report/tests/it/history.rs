//! The text of `webdyno history`.

use webdyno_report::history;
use webdyno_session::history::SessionSummary;

#[test]
fn a_history() {
    let done = SessionSummary {
        directory: "webdyno-runs/20261124T104737Z-tune".into(),
        started_at: "2026-11-24T10:47:37.123Z".into(),
        command: "tune".into(),
        target: Some("http://127.0.0.1:8080/a/long/path/to/a/page/of/the/shop?with=a&query=string".into()),
        state: "applied".into(),
        rate: Some(2190.4),
        p99_us: Some(69_400),
        limit: Some("cpu-saturated".into()),
        limit_title: Some("CPU saturated".into()),
        error: None,
    };
    let damaged = SessionSummary {
        directory: "webdyno-runs/x".into(),
        state: "damaged".into(),
        error: Some("line 3: it is not an event\u{1b}[2J".into()),
        ..SessionSummary::default()
    };
    insta::assert_snapshot!(history("webdyno-runs", &[done, damaged]), @"
    TIME (UTC)        COMMAND  STATE       RATE      P99  LIMIT                           TARGET                                        DIRECTORY
    2026-11-24 10:47  tune     applied  2,190/s  69.4 ms  CPU saturated                   http://127.0.0.1:8080...?with=a&query=string  webdyno-runs/20261124T104737Z-tune
    -                          damaged        -        -  line 3: it is not an event�[2J  -                                             webdyno-runs/x
    ");
    assert_eq!(history("empty", &[]), "No session below empty.\n");
}
