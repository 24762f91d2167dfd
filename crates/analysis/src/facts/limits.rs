//! Facts of limits on numbers: open files, processes, tasks.
//!
//! Sources: the collectors `process`, `files`, `cgroup`, `kernel_log`, `apache_log`, `nginx`, `nginx_log` and `nginx_workers` (docs/metrics.md).

use super::{Derivation, FactBuilder, FactId};

fact_table! {
    (tasks_max, "tasks", "cgroup.tasks_count", Derivation::Max),
    (tasks_limit, "tasks", "cgroup.tasks_limit_count", Derivation::Latest),
    (tasks_refused, "tasks", "cgroup.tasks_refused_count", Derivation::Rise),
    (user_tasks_max, "tasks", "process.user_tasks_count", Derivation::Max),
    (user_tasks_limit, "tasks", "process.user_tasks_limit_count", Derivation::Latest),
    (machine_threads_max, "threads", "files.threads_count", Derivation::Max),
    (machine_threads_limit, "threads", "files.threads_max_count", Derivation::Latest),
    (fork_failed_messages, "messages", "apache_log.AH00159.messages_count", Derivation::Rise),
    (no_processes_left_messages, "messages", "apache_log.no_processes_left.messages_count", Derivation::Rise),
    (kernel_process_limit_messages, "messages", "kernel_log.process_limit.messages_count", Derivation::Rise),
    (open_files_messages, "messages", "apache_log.too_many_open_files.messages_count", Derivation::Rise),
    (nginx_open_files_messages, "messages", "nginx_log.too_many_open_files.messages_count", Derivation::Rise),
    (nginx_connections_messages, "messages", "nginx_log.connections_exhausted.messages_count", Derivation::Rise),
    (nginx_no_port_messages, "messages", "nginx_log.cannot_assign_address.messages_count", Derivation::Rise),
    (nginx_backend_refused_messages, "messages", "nginx_log.backend_refused.messages_count", Derivation::Rise),
    (nginx_backend_absent_messages, "messages", "nginx_log.backend_absent.messages_count", Derivation::Rise),
    (nginx_backend_queue_full_messages, "messages", "nginx_log.backend_queue_full.messages_count", Derivation::Rise),
    (nginx_backend_closed_messages, "messages", "nginx_log.backend_closed.messages_count", Derivation::Rise),
    (nginx_backend_reset_messages, "messages", "nginx_log.backend_reset.messages_count", Derivation::Rise),
    (nginx_backend_timed_out_messages, "messages", "nginx_log.backend_timed_out.messages_count", Derivation::Rise),
    (nginx_no_upstream_messages, "messages", "nginx_log.no_live_upstreams.messages_count", Derivation::Rise),
    (nginx_workers_mean, "workers", "nginx_workers.all_count", Derivation::Mean),
    (nginx_workers_logging_mean, "workers", "nginx_workers.logging_count", Derivation::Mean),
    (nginx_dropped, "connections", "nginx.dropped_count", Derivation::Rise),
    (open_files_program_messages, "messages", "apache_log.too_many_open_files_in_program.messages_count", Derivation::Rise),
    (open_files_system_messages, "messages", "apache_log.too_many_open_files_in_system.messages_count", Derivation::Rise),
    (resource_short_exits, "messages", "apache_log.AH02324.messages_count", Derivation::Rise),
    (kernel_file_max_messages, "messages", "kernel_log.file_max.messages_count", Derivation::Rise),
    (system_open_files_max, "files", "files.open_count", Derivation::Max),
    (system_open_files_limit, "files", "files.max_count", Derivation::Latest),
    "files": open_files_max, open_files_limit, backend_open_files_max, backend_open_files_limit;
    "fraction": open_files_fraction, backend_open_files_fraction;
}

/// The two values are of one reading.
const SAME_TIME_S: f64 = 0.01;

const OPEN: &str = "fullest_open_files_count";
const LIMIT: &str = "fullest_open_files_limit_count";

const SERVICE: [FactId; 3] = [FactId::open_files_max, FactId::open_files_limit, FactId::open_files_fraction];
const BACKEND: [FactId; 3] =
    [FactId::backend_open_files_max, FactId::backend_open_files_limit, FactId::backend_open_files_fraction];

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
        let known = self.facts.get(&FactId::open_files_fraction).map(|fact| fact.value);
        if backend.is_none() && known.is_some_and(|known| known >= count / most) {
            return;
        }
        let names = if backend.is_some() { BACKEND } else { SERVICE };
        let from = [open, limit, open].map(|metric| (metric, Derivation::Max));
        for ((name, value), from) in names.into_iter().zip([count, most, count / most]).zip(from) {
            match backend {
                None => self.add_from(name, Some(value), from),
                Some(backend) => self.add_of(name, Some(value), from, backend),
            }
        }
    }
}
