//! Where MariaDB opens tables for statements again and again, as it may keep too few of them open, and the CPUs are saturated.
//!
//! Facts: <https://mariadb.com/kb/en/optimizing-table_open_cache/> (`Opened_tables` rises while `Open_tables` is at the limit; the
//! default is 2000), and the adjustment of table_open_cache in sql/mysqld.cc (two files a table beside a file a connection).

use crate::facts::{FactId, Facts};
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// What MariaDB keeps open where nobody says anything.
const DEFAULT_COUNT: f64 = 2000.0;
const TIMES: f64 = 4.0;
/// What opening a table anew takes it at least.
const OPEN_US: f64 = 40.0;
/// Below this share of its work nothing would be seen of it.
const SHARE_MIN: f64 = 0.1;
/// From here on the cache is full: what is opened takes the place of others.
const FULL_FRACTION: f64 = 0.95;
const FILES_PER_TABLE: f64 = 2.0;

/// More tables that stay open, if opening them is some of what the database computes.
pub(super) fn remedy(facts: &Facts) -> Option<Remedy> {
    let limit = facts.value(FactId::db_table_cache_limit)?;
    let opened_per_s = facts.value(FactId::db_tables_opened_per_s)?;
    // Of a database that did nothing no share is known: 0 / 0 is no number, and the least of that and 1 is 1.
    let cores = facts.value(FactId::db_cpu_cores).filter(|cores| *cores > 0.0)?;
    let share = (opened_per_s * OPEN_US / 1e6 / cores).min(1.0);
    let is_full = facts.value(FactId::db_tables_open)? >= FULL_FRACTION * limit;
    let connections = facts.value(FactId::db_connections_limit)?;
    let files = facts.value(FactId::db_files_limit)? - connections;
    let to = (TIMES * limit).max(DEFAULT_COUNT).min((files / FILES_PER_TABLE).floor());
    (is_full && share >= SHARE_MIN && to > limit).then(|| Remedy {
        setting: SettingId::of_service("mariadb", "table_open_cache"),
        from: Some(SettingValue::Integer(limit as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Live,
        risk: "some 20 kB of memory and two descriptors for each open table".into(),
        why: format!(
            "the database opens {} tables/s anew as it may keep {} open: at least {:.0}% of its CPU time",
            format_number(opened_per_s),
            format_number(limit),
            share * 100.0
        ),
        predicted: None,
        together_with: vec![],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    #[test]
    fn tables_that_are_opened_all_the_time_are_kept_open_as_far_as_there_are_files() {
        let base = [
            (FactId::db_table_cache_limit, 100.0),
            (FactId::db_tables_open, 100.0),
            (FactId::db_tables_opened_per_s, 6000.0),
            (FactId::db_cpu_cores, 0.8),
            (FactId::db_connections_limit, 151.0),
            (FactId::db_files_limit, 32_768.0),
        ];
        let to = |changes: &[(FactId, f64)]| {
            remedy(&facts(&with_changes(&base, changes), &[])).and_then(|remedy| remedy.to?.number())
        };
        assert_eq!(to(&[]), Some(2000.0));
        let more = [(FactId::db_table_cache_limit, 3000.0), (FactId::db_tables_open, 2998.0)];
        assert_eq!(to(&more), Some(12_000.0));
        assert_eq!(to(&[(FactId::db_files_limit, 1151.0)]), Some(500.0));
        for changes in [
            &[(FactId::db_tables_open, 60.0)][..],
            &[(FactId::db_tables_opened_per_s, 200.0)],
            &[(FactId::db_files_limit, 300.0)],
            &[(FactId::db_cpu_cores, f64::NAN)],
            &[(FactId::db_cpu_cores, 0.0), (FactId::db_tables_opened_per_s, 0.0)],
        ] {
            assert_eq!(to(changes), None, "{changes:?}");
        }
    }
}
