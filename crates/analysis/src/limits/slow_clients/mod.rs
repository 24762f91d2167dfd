//! `slow-clients`: workers wait until clients on slow lines have taken their answers.
//!
//! A worker hands an answer to the kernel, which keeps as much of it as fits into the connection's send buffer. What is
//! larger than that waits until the client has taken some, and the worker with it: under prefork and worker for the whole
//! length of a download, which takes hours over a bad line. The processors and the server's own line are idle meanwhile.
//!
//! ## How it is recognised
//! All workers are taken, nearly all of them write (`W`), connections wait to be accepted, and the processors have room.
//! The send queues of many connections are full (sock_diag(7)). Where these were not read: far more requests are with
//! workers than our own load has there, the others get bytes all the time, but few to each, and hardly one of their
//! requests ends: these are long answers that are taken slowly, and not requests that wait for a backend. Where the server is
//! only watched, Apache's sum of the times of all requests that ended says how many workers these took.
//!
//! ## What to do
//! The event MPM with `EnableSendfile On` holds no thread for a connection that waits for room in its buffer. Where modules
//! do not allow it, put a proxy in front that takes answers in at once, or serve downloads from elsewhere. More workers
//! only help as long as there are fewer slow clients than workers.
//!
//! ## By hand
//! `ss -tn state established '( sport = :80 )'` under load: Send-Q stays large; `curl -s http://localhost/server-status?auto |
//! grep Scoreboard`: all `W`; `vmstat 1`: idle.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, answer_bytes_mean, cpu_busy_fraction, ended_per_s, in_flight_mean,
        network_sent_bytes_per_s, new_connections_per_s, other_connections_mean, processes_at_limit_fraction,
        rate, received_bytes_per_s, requests_at_server_mean, requests_in_workers_mean,
        requests_per_connection, response_time_mean_us, scoreboard_full_fraction, sending_connections_mean,
        server_requests_per_s, service_cpu_cores, workers_busy_mean, workers_of_ended_mean,
        workers_writing_mean,
    }],
    causes: &[LimitId::ApacheWorkersExhausted, LimitId::AcceptQueueOverflow, LimitId::LostSyns],
    relieves: &[Resource::Workers],
    kind: Some(LimitKind::Transfer),
    gain: Some(LimitGain::SlowClients),
    ..Limit::new(
        LimitId::SlowClients,
        "Slow clients hold the workers",
        include_str!("mod.rs"),
        finding::check,
    )
};
