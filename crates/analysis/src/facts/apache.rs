//! Facts that Apache tells: its status page and its workers.
//!
//! Sources: the collectors `apache_status`, `workers` and, of what the kernel and PHP-FPM tell of the same, `clients` and
//! `php_fpm` (docs/metrics.md).

use super::Derivation;

fact_table! {
    (workers_limit, "workers", "apache.slots_count", Derivation::Latest),
    (workers_busy_mean, "workers", "apache.workers_busy_count", Derivation::Mean),
    (workers_idle_mean, "workers", "apache.workers_idle_count", Derivation::Mean),
    (workers_startable_mean, "workers", "apache.slots_open_count", Derivation::Mean),
    (workers_writing_mean, "workers", "apache.workers_writing_count", Derivation::Mean),
    (workers_keepalive_mean, "workers", "apache.workers_keepalive_count", Derivation::Mean),
    (server_requests_per_s, "requests/s", "apache.accesses_count", Derivation::Rate(1.0)),
    (config_generation, "reloads", "apache.config_generation_count", Derivation::Latest),
    (workers_reading_mean, "workers", "apache.workers_reading_count", Derivation::Mean),
    (workers_logging_mean, "workers", "apache.workers_logging_count", Derivation::Mean),
    (workers_closing_mean, "workers", "apache.workers_closing_count", Derivation::Mean),
    (workers_finishing_mean, "workers", "apache.workers_finishing_count", Derivation::Mean),
    (apache_processes_mean, "processes", "apache.processes_count", Derivation::Mean),
    (apache_connections_mean, "connections", "apache.connections_count", Derivation::Mean),
    (processes_stopping_mean, "processes", "apache.stopping_count", Derivation::Mean),
    (processes_capped_max, "processes", "apache.processes_capped_count", Derivation::Max),
    (client_connections_mean, "connections", "clients.connections_count", Derivation::Mean),
    (other_connections_mean, "connections", "clients.others_count", Derivation::Mean),
    (worker_processes_mean, "processes", "workers.count", Derivation::Mean),
    (worker_processes_started, "processes", "workers.started_count", Derivation::Rise),
    (worker_processes_started_per_s, "processes/s", "workers.started_count", Derivation::Rate(1.0)),
    (worker_processes_ended_per_s, "processes/s", "workers.ended_count", Derivation::Rate(1.0)),
    (worker_oldest_mean_s, "s", "workers.oldest_age_s", Derivation::Mean),
    (worker_processes_blocked_mean, "processes", "workers.blocked_count", Derivation::Mean),
    (fpm_queue_behind_mean, "requests", "php_fpm.*.listen_queue_count", Derivation::Mean),
    (scoreboard_full_messages, "messages", "apache_log.AH03490.messages_count", Derivation::Rise),
    (scoreboard_full_messages_worker, "messages", "apache_log.AH00288.messages_count", Derivation::Rise),
    (worker_threads_seen_mean, "threads", "apache_writers.seen_count", Derivation::Mean),
    (worker_threads_logging_mean, "threads", "apache_writers.logging_count", Derivation::Mean),
    (sending_connections_mean, "connections", "clients.sending_count", Derivation::Mean),
    (client_round_trip_mean_us, "us", "clients.round_trip_us", Derivation::Mean),
    (client_round_trip_min_us, "us", "clients.round_trip_min_us", Derivation::Mean),
    (receiving_connections_mean, "connections", "clients.receiving_count", Derivation::Mean),
    (unsure_connections_mean, "connections", "clients.unsure_count", Derivation::Mean),
    (network_received_bytes_per_s, "bytes/s", "tcp.IpExtInOctets.count", Derivation::Rate(1.0)),
    (network_sent_bytes_per_s, "bytes/s", "tcp.IpExtOutOctets.count", Derivation::Rate(1.0)),
    // Milliseconds of all requests that ended, in a second: workers. Under prefork and worker twice as many.
    (workers_of_ended_mean, "workers", "apache.busy_duration_ms", Derivation::Rate(1e-3)),
    (active_opens_per_s, "connections/s", "tcp.TcpActiveOpens.count", Derivation::Rate(1.0)),
}
