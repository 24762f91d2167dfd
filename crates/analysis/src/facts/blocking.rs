//! Facts of what requests wait for within and behind the service: locks on files, answers of other servers, one thread that has
//! a core to itself while all others idle; and how many processes and threads stand behind.
//!
//! Sources: the collectors `locks`, `upstreams`, `threads` and `process` (docs/metrics.md).

use super::Derivation;

fact_table! {
    (lock_waiting_mean, "processes", "locks.waiting_count", Derivation::Mean),
    (session_lock_waiting_mean, "processes", "locks.session_waiting_count", Derivation::Mean),
    (file_lock_waiting_mean, "processes", "locks.*.waiting_count", Derivation::Mean),
    (upstream_connections_mean, "connections", "upstreams.*.connections_count", Derivation::Mean),
    (upstream_waiting_mean, "requests", "upstreams.*.waiting_count", Derivation::Mean),
    (upstream_waiting_max, "requests", "upstreams.*.waiting_count", Derivation::Max),
    (upstream_unsure_mean, "connections", "upstreams.*.unsure_count", Derivation::Mean),
    (upstream_connecting_mean, "connections", "upstreams.*.connecting_count", Derivation::Mean),
    (upstream_waited_us, "us", "upstreams.*.waited_us", Derivation::Mean),
    (busiest_thread_fraction, "fraction", "threads.busiest_fraction", Derivation::Mean),
    (saturated_threads_mean, "threads", "threads.saturated_count", Derivation::Mean),
    (busiest_process_cores, "cores", "threads.busiest_process_fraction", Derivation::Mean),
    (busiest_process_max_cores, "cores", "threads.busiest_process_fraction", Derivation::Max),
    (backend_busiest_process_cores, "cores", "threads.*.busiest_process_fraction", Derivation::Mean),
    (backend_busiest_process_max_cores, "cores", "threads.*.busiest_process_fraction", Derivation::Max),
    (backend_busiest_thread_fraction, "fraction", "threads.*.busiest_fraction", Derivation::Mean),
    (backend_saturated_threads_mean, "threads", "threads.*.saturated_count", Derivation::Mean),
    (backend_processes_mean, "processes", "process.*.count", Derivation::Mean),
    (backend_threads_mean, "threads", "process.*.threads_count", Derivation::Mean),
}
