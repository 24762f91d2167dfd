//! Histories of run directories that are made up.

use super::*;
use webdyno_model::environment::Environment;
use webdyno_model::event::{Event, EventBody, VERSION};
use webdyno_model::purpose::Purpose;
use webdyno_model::workload::{RequestSpec, Workload};

/// Writes a session of one load of `http://h/` that ended with this exit code; without one it did not end.
fn record(root: &Path, name: &str, started_at: &str, exit_code: Option<u8>) {
    let start = EventBody::SessionStart {
        command: "run".into(),
        started_at: started_at.into(),
        client: Environment::default(),
        goal: None,
        objectives: vec![],
        operator: None,
        directory: None,
    };
    let request = RequestSpec { url: "http://h/".into(), ..RequestSpec::default() };
    let workload = Workload { requests: vec![request], ..Workload::default() };
    let load =
        EventBody::LoadStart { load: 1, purpose: Purpose::Run, workload: workload.into(), alone_us: None };
    let error = exit_code.filter(|code| ![0, 3].contains(code)).map(|_| "it broke".to_owned());
    let end = exit_code.map(|exit_code| EventBody::SessionEnd { exit_code, error });
    let bodies = [Some(start), Some(load), end].into_iter().flatten();
    let event =
        |(seq, body)| serde_json::to_string(&Event { v: VERSION, seq, t_us: seq, body }).unwrap() + "\n";
    let text: String = (0..).zip(bodies).map(event).collect();
    std::fs::create_dir_all(root.join(name)).unwrap();
    std::fs::write(root.join(name).join(FILE_NAME), text).unwrap();
}

/// The names and states, and how many recordings were read.
fn listed(root: &Path) -> (Vec<(String, String)>, usize) {
    let mut read_count = usize::MAX;
    let history = history(root, |count| read_count = count).unwrap();
    assert_eq!(history.index_error, None);
    let name =
        |one: &SessionSummary| Path::new(&one.directory).strip_prefix(root).unwrap().display().to_string();
    (history.sessions.iter().map(|one| (name(one), one.state.clone())).collect(), read_count)
}

fn named(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect()
}

#[test]
fn sessions_are_listed_newest_first_and_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    assert_eq!(listed(root), (vec![], 0));
    record(root, "b", "2026-11-22T10:00:00Z", Some(0));
    record(root, "deep/a", "2026-11-21T10:00:00Z", Some(3));
    record(root, "c", "2026-11-23T10:00:00Z", None);
    record(root, "d", "2026-11-20T10:00:00Z", Some(1));
    record(root, "e", "2026-11-19T10:00:00Z", Some(130));
    std::fs::create_dir(root.join("f")).unwrap();
    std::fs::write(root.join("f").join(FILE_NAME), "garbage\n").unwrap();
    std::fs::create_dir(root.join("no-session")).unwrap();
    let all = named(&[
        ("c", "unfinished"),
        ("b", "done"),
        ("deep/a", "not met"),
        ("d", "failed"),
        ("e", "interrupted"),
        ("f", "damaged"),
    ]);
    assert_eq!(listed(root), (all.clone(), 6));
    assert_eq!(listed(root), (all, 0));
    let first = history(root, |_| {}).unwrap().sessions.remove(0);
    assert_eq!((first.target.as_deref(), first.command.as_str()), (Some("http://h/"), "run"));
}

#[test]
fn what_changed_is_read_again_and_what_is_gone_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    record(root, "a", "2026-11-21T10:00:00Z", None);
    record(root, "b", "2026-11-22T10:00:00Z", Some(0));
    listed(root);
    record(root, "a", "2026-11-21T10:00:00Z", Some(0));
    assert_eq!(listed(root), (named(&[("b", "done"), ("a", "done")]), 1));
    std::fs::remove_dir_all(root.join("b")).unwrap();
    assert_eq!(listed(root), (named(&[("a", "done")]), 0));
    assert_eq!(index::read(root).len(), 1);
    // An index that is damaged is made anew.
    std::fs::write(root.join(".webdyno-index"), "garbage").unwrap();
    assert_eq!(listed(root), (named(&[("a", "done")]), 1));
}

#[test]
fn a_directory_that_is_none_of_sessions_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), "a", "2026-11-21T10:00:00Z", Some(0));
    let error = |path: &Path| history(path, |_| {}).unwrap_err();
    assert_eq!(error(&folder.path().join("a")).exit_code(), 2);
    let missing = error(&folder.path().join("missing"));
    assert!(missing.exit_code() == 1 && missing.hint.is_some(), "{missing:?}");
}

/// Its log says at first that it was done.
#[test]
fn a_session_whose_results_could_not_be_written_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), "a", "2026-11-21T10:00:00Z", Some(0));
    let log = folder.path().join("a").join(FILE_NAME);
    let missing = "results are missing: cannot write x.csv";
    let line = |seq, body| serde_json::to_string(&Event { v: VERSION, seq, t_us: seq, body }).unwrap() + "\n";
    let more = line(3, EventBody::Note { text: missing.into() })
        + &line(4, EventBody::SessionEnd { exit_code: 1, error: None });
    std::fs::write(&log, std::fs::read_to_string(&log).unwrap() + &more).unwrap();
    let found = history(folder.path(), |_| {}).unwrap().sessions.remove(0);
    assert_eq!((found.state.as_str(), found.error.as_deref()), ("failed", Some(missing)));
}
