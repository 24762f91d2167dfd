//! Tests of what needs no database; those with one are in `tests/it/mariadb.rs`.

use super::*;
use std::collections::BTreeSet;
use std::sync::Arc;

#[test]
fn without_a_database_nothing_is_read_and_nothing_is_missing() {
    let reading = Mariadb::default().read(&Target::default());
    assert_eq!(reading, Reading::default());
}

#[test]
fn a_database_that_is_dead_is_told_and_its_process_too() {
    let service = ServiceSnapshot {
        service: NAME.into(),
        pid: u32::MAX,
        endpoints: vec![webdyno_model::service::Endpoint {
            name: "server".into(),
            address: "unix:/none/db.sock".into(),
            path: None,
        }],
        ..ServiceSnapshot::default()
    };
    let target = Target { backends: Arc::from([service]), ..Target::default() };
    let reading = Mariadb::default().read(&target);
    let message = reading.error.unwrap();
    assert!(message.contains("is gone"), "{message}");
    assert_eq!(reading.values, [("mariadb.refused_count".to_owned(), 0.0)]);
}

#[test]
fn statements_that_wait_are_known_by_their_states() {
    let states = [
        "Waiting for query cache lock",
        "Waiting for table metadata lock",
        "Waiting for schema metadata lock",
        "User lock",
        "Waiting for next activation",
        "Sending data",
        "Commit",
        "Updating status",
        "Updating",
        "",
    ];
    assert_eq!(
        count_lock_waits(&states),
        LockWaits { all_count: 4, query_cache_count: 1, metadata_count: 2, committing_count: 2 }
    );
}

#[test]
fn every_row_has_a_name_of_its_own_and_a_kind() {
    let names: Vec<_> = STATUS.iter().chain(VARIABLES).map(|row| row.metric).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    // What is not read each time must never count as unchanged.
    assert!(tables::may_miss("mariadb.questions_count"));
    for name in ["mariadb.threads_running_count", "mariadb.abc.time_us", "mariadb.other", "mariadb.cpu_s"] {
        assert!(!tables::may_miss(name), "{name}");
    }
    let by_metric = tables::metrics();
    for metric in &by_metric {
        assert_eq!(metric.on_change, tables::may_miss(&metric.name), "{metric:?}");
    }
}

#[test]
fn what_is_no_number_is_not_known() {
    let values = [("Questions", "5"), ("Uptime", "x"), ("Threads_running", "-1")];
    let values = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let of = |variable: &str| {
        let named = |metric: &str| STATUS.iter().find(|row| row.metric == metric);
        named(variable).unwrap().of(&values)
    };
    assert_eq!(of("questions_count"), Some(5.0));
    assert_eq!((of("uptime_s"), of("threads_running_count"), of("selects_count")), (None, None, None));
}
