//! `app-workers-exhausted`: all workers of the application server are busy, and requests wait until it accepts them.
//!
//! Behind the proxy stands a program of its own: gunicorn, uWSGI, Puma, Tomcat, Node, PHP's own server. It has so many processes
//! or threads, and each serves one request at a time. While all of them are busy, nobody accepts, and new connections wait in the
//! accept queue of the application's own socket. The proxy (nginx, Apache, lighttpd) has handed them over by then: its own queue
//! is empty, its log shows only that the answers are late, and the processors may be idle.
//!
//! ## How it is recognised
//! Connections wait in the accept queue of the application server's socket in most samples, and they are a good part of the
//! requests that the front has accepted. A free worker accepts a connection at once, so that such a queue proves that none is free. The processors
//! and memory are not what is short, and no single thread of the program has a core to itself (`single-thread-saturated`). PHP-FPM
//! (`php-fpm-workers-exhausted`) and Apache as a backend (`apache-workers-exhausted`) have findings of their own. How many requests
//! are served at once is seen by the connections on which an answer is awaited, less those in the queue. Nothing of the program
//! itself needs to be known. Workers that do not compute, and together serve fewer than half as many requests at once as there are
//! workers (rate times the time of a request that is alone), wait for each other: more of them would wait for the same, and this is
//! not the finding. How many workers there are is known of programs with a process for each. Others may take in many
//! connections and serve few: the finding has the number that follows from the time alone, and is half sure (a bound of their own, an
//! event loop that is blocked, or a lock that nobody sees from outside). So is it where nobody waits at the socket: a server with a
//! queue of its own (Tomcat, Puma, gunicorn with threads) takes in all connections. Then all requests in flight wait for its answer, it
//! hardly computes and asks nobody for them, and they take many times as long as one alone.
//!
//! ## What to do
//! Give it as many workers as requests come at once, plus 30%: `--workers` or `--threads` (gunicorn), `processes` (uWSGI),
//! `workers` and `threads` (Puma), `maxThreads` (Tomcat). Manual change: webdyno does not write an application's settings. Each
//! worker takes as much memory as those that run, so multiply first. If the workers compute, more of them than cores serve
//! nobody faster; if they wait for a database or another server, that gets more requests at once.
//!
//! ## By hand
//! `ss -ltnp` or `ss -lxp` under load: Recv-Q of the application's socket; `top` shows its processes idle or busy.

pub(crate) mod ceiling;
pub(crate) mod finding;
pub(crate) mod full_application;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, backend_busiest_thread_fraction, backend_cpu_cores, backend_processes_mean,
        backend_queue_mean, backend_threads_mean, backend_waiting_fraction, cpu_busy_fraction,
        failed_fraction, in_flight_mean, offered_rate, rate, response_time_alone_us, response_time_mean_us,
        service_cpu_cores, service_processes_mean, upstream_waiting_mean, usable_busy_fraction,
        usable_cores,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::LighttpdConnectionsExhausted,
        LimitId::NginxConnectionsExhausted,
        LimitId::OpenFilesExhausted,
        LimitId::BackendRefused,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
        LimitId::LostSyns,
        LimitId::SlowUpstream,
    ],
    ceilings: &[ceiling::ceiling],
    keeps_hold_times: true,
    kind: Some(LimitKind::Documents),
    gain: Some(LimitGain::Waiting),
    ..Limit::of(LimitId::AppWorkersExhausted, "All workers of the application server busy", finding::check)
};
