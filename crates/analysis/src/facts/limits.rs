//! Facts of limits on numbers: open files, processes, tasks.
//!
//! Sources: the collectors `process`, `files`, `cgroup`, `kernel_log` and `apache_log` (docs/metrics.md).

use super::{Derivation, FactBuilder, FactRow};

/// What follows from one metric each.
#[rustfmt::skip] // a table, one row a line
pub(super) const ROWS: &[FactRow] = &[
    ("tasks_max", "tasks", "cgroup.tasks_count", Derivation::Max),
    ("tasks_limit", "tasks", "cgroup.tasks_limit_count", Derivation::Latest),
    ("tasks_refused", "tasks", "cgroup.tasks_refused_count", Derivation::Rise),
    ("user_tasks_max", "tasks", "process.user_tasks_count", Derivation::Max),
    ("user_tasks_limit", "tasks", "process.user_tasks_limit_count", Derivation::Latest),
    ("machine_threads_max", "threads", "files.threads_count", Derivation::Max),
    ("machine_threads_limit", "threads", "files.threads_max_count", Derivation::Latest),
    ("fork_failed_messages", "messages", "apache_log.AH00159.messages_count", Derivation::Rise),
    ("no_processes_left_messages", "messages", "apache_log.no_processes_left.messages_count", Derivation::Rise),
    ("kernel_process_limit_messages", "messages", "kernel_log.process_limit.messages_count", Derivation::Rise),
    ("open_files_messages", "messages", "apache_log.too_many_open_files.messages_count", Derivation::Rise),
    ("open_files_program_messages", "messages", "apache_log.too_many_open_files_in_program.messages_count", Derivation::Rise),
    ("open_files_system_messages", "messages", "apache_log.too_many_open_files_in_system.messages_count", Derivation::Rise),
    ("resource_short_exits", "messages", "apache_log.AH02324.messages_count", Derivation::Rise),
    ("kernel_file_max_messages", "messages", "kernel_log.file_max.messages_count", Derivation::Rise),
    ("system_open_files_max", "files", "files.open_count", Derivation::Max),
    ("system_open_files_limit", "files", "files.max_count", Derivation::Latest),
];

/// The two values are of one reading.
const SAME_TIME_S: f64 = 0.01;

const OPEN: &str = "fullest_open_files_count";
const LIMIT: &str = "fullest_open_files_limit_count";

impl FactBuilder<'_> {
    /// Of the service and of each backend: the process that came nearest to its limit of open files.
    pub(super) fn open_files(&mut self) {
        // Workers inherit the limit of the main process: which of the two is nearer to it, as not all are read each time.
        let pairs = [
            (format!("process.{OPEN}"), format!("process.{LIMIT}")),
            ("process.open_files_max_count".into(), "process.open_files_limit_count".into()),
        ];
        for (open, limit) in pairs {
            self.fullest_limit(&open, &limit, None);
        }
        let Some(template) = self.series.template(&format!("process.*.{OPEN}")) else { return };
        let found: Vec<_> = self.series.instances(template).collect();
        for (backend, open) in found {
            self.fullest_limit(open, &format!("process.{backend}.{LIMIT}"), Some(backend));
        }
    }

    fn fullest_limit(&mut self, open: &str, limit: &str, backend: Option<&str>) {
        let (from_s, to_s) = self.series.window();
        let in_window = self.series.all(open).iter().filter(|(time, _)| (from_s..=to_s).contains(time));
        let pairs = in_window.filter_map(|(time, count)| {
            let limit = self.series.nearest(limit, *time, SAME_TIME_S).filter(|limit| *limit > 0.0)?;
            Some((*count, limit))
        });
        let Some((count, most)) = pairs.max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1))) else { return };
        let known = self.facts.get("open_files_fraction").map(|fact| fact.value);
        if backend.is_none() && known.is_some_and(|known| known >= count / most) {
            return;
        }
        let [names, units] =
            [["open_files_max", "open_files_limit", "open_files_fraction"], ["files", "files", "fraction"]];
        for ((name, unit), value) in names.into_iter().zip(units).zip([count, most, count / most]) {
            let metric = if name == "open_files_limit" { limit } else { open };
            match backend {
                None => self.add_from(name, unit, Some(value), (metric, Derivation::Max)),
                Some(backend) => self.add_of(
                    &format!("backend_{name}"),
                    unit,
                    Some(value),
                    (metric, Derivation::Max),
                    backend,
                ),
            }
        }
    }
}
