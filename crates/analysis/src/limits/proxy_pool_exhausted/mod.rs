//! `proxy-pool-exhausted`: the proxy may open only so many connections to its backend, and requests wait for one of them.
//!
//! `ProxyPass .. max=N` bounds the connections that each child process of Apache has to a backend, and the requests there with it. A
//! request that finds none free waits inside of Apache, in a worker, until one is given back: the backend is idle, its queue is
//! empty, the processors are idle, and no log says a word. `max` is for each process: with two processes it is twice that.
//! nginx's `max_conns` of a `server` in an `upstream` lets nobody wait: what finds no free place is answered with 502 at once.
//!
//! ## How it is recognised
//! The configuration bounds the connections (`max=` of `ProxyPass` or `BalancerMember`); on nearly as many of them as all processes
//! together may have an answer is awaited (tcp_info); more requests are in flight; nobody waits in the backend's own accept
//! queue; and a request takes much longer than one alone, while the machine is not short of anything. Where one of two processes has all
//! who wait, half of the connections are in use: it is less sure, and half of what is in flight must be in Apache. In front of nginx: as many
//! connections as `max_conns` allows are in use, or the log says `no live upstreams`, while responses are errors (502). Of a proxy whose
//! settings cannot be read the sockets tell: at every reading the same few requests wait for an answer of one server, most requests in
//! flight are not among them, nobody waits in the server's queue, and the proxy hardly computes.
//!
//! ## What to do
//! Raise `max` (`max_conns`), or leave it out: then a process may have as many as it has threads. webdyno sets it to what is in flight at once by the
//! number of processes, plus 30%, or, as requests fall to several processes by chance, plus three times the square root of that; and to no
//! more than the backend is known to serve at once: that value of the line alone, by a reload. It is a
//! manual change where a variable or a macro gives the value, where several lines do for one backend, and where `BalancerPersist` keeps the old one;
//! under prefork each process has one connection, whatever `max` says, and more processes are what helps.
//!
//! ## By hand
//! `grep -ri 'max=' /etc/apache2`; `nginx -T | grep max_conns`; `ss -tn state established dst ADDRESS | wc -l` under load against `max` times the number of
//! processes (`pgrep -c apache2`, less one).

mod bound;
pub(crate) mod ceiling;
pub(crate) mod finding;
mod from_outside;
pub(crate) mod refused;

use crate::facts::{Facts, fact_ids};
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};
use webdyno_model::diagnosis::Finding;

fn check(facts: &Facts) -> Option<Finding> {
    finding::check(facts).or_else(|| refused::check(facts)).or_else(|| from_outside::check(facts))
}

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, answers_logged_per_s, backend_queue_mean, bad_gateway_fraction, busiest_thread_fraction,
        cpu_busy_fraction, fpm_processes_busy_mean, fpm_queue_mean, in_flight_mean, nginx_backend_absent_messages,
        nginx_backend_refused_messages, nginx_no_upstream_messages, offered_rate, rate, response_time_alone_us, response_time_mean_us,
        response_time_p99_us, server_errors_answered_per_s,
        service_processes_mean, upstream_connections_mean, upstream_unsure_mean, upstream_waiting_max,
        upstream_waiting_mean, workers_busy_mean, workers_writing_mean,
    }],
    causes: &[
        LimitId::SlowUpstream,
        LimitId::ApacheWorkersExhausted,
        LimitId::ApacheSpawnLag,
        LimitId::AcceptQueueOverflow,
        LimitId::LostSyns,
        LimitId::BackendRefused,
        LimitId::GeneratorSaturated,
        LimitId::CpuSaturated,
    ],
    keeps_hold_times: true,
    kind: Some(LimitKind::Documents),
    gain: Some(LimitGain::Explained),
    after_lifting: Some(ceiling::release_workers),
    ceilings: &[ceiling::ceiling],
    ..Limit::of(LimitId::ProxyPoolExhausted, "All connections to the backend in use", check)
};
