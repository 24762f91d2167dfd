//! `slow-clients`: workers wait until clients on slow links have received their responses.
//!
//! A worker hands a response to the kernel, which keeps as much of it as fits into the connection's send buffer. The rest waits
//! until the client has received some, and the worker with it: under prefork and worker for the whole length of a download,
//! which takes hours over a bad link. CPU and the server's own network are idle meanwhile.
//!
//! ## How it is recognised
//! All workers are busy, nearly all of them in state `W`, connections wait in the accept queue, and CPU is free. The send
//! queues of many connections are full (sock_diag(7)), and not only with short responses to our own load, or with short ones that
//! end, as the access log tells: more than are on their way at any time (completed responses a second times the shortest round trip; where
//! that is not known it is a suspicion), while workers are held that these do not need. If these were not read: far more requests are with workers than our
//! own load has there, the others get bytes all the time, but few each, and hardly one of their requests ends: these are long
//! responses received slowly, and not requests that wait for a backend. If the server is only observed, Apache's sum of the times
//! of all completed requests shows how many workers these needed. Where they have fewer than half of the workers, and more than twice as
//! many requests wait, freeing those would not serve the queue: then it is `apache-workers-exhausted` first. So it is where the
//! requests alone (rate times the time of one that is alone) take more workers than there are.
//!
//! ## What to do
//! The event MPM with `EnableSendfile On` holds no thread for a connection that waits for room in its buffer. If modules do not
//! allow it, put a proxy in front that reads responses at once, or serve downloads from another host. More workers only help
//! while there are fewer slow clients than workers.
//!
//! ## By hand
//! `ss -tn state established '( sport = :80 )'` under load: Send-Q stays large;
//! `curl -s http://localhost/server-status?auto | grep Scoreboard`: all `W`; `vmstat 1`: idle.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, answer_bytes_mean, client_round_trip_min_us, cpu_busy_fraction, ended_per_s, in_flight_mean,
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
    ..Limit::of(LimitId::SlowClients, "Slow clients hold the workers", finding::check)
};
