//! `slow-upstream`: the requests wait for another server, which takes longer the more they are.
//!
//! A page or a proxy asks another machine: an application server, an interface of a partner, a search, a database elsewhere. While
//! that is asked by few it answers soon; under load it takes many times as long, and everything in front of it waits. Here
//! nothing is full but what has to wait: more workers would only ask more at once.
//!
//! ## How it is recognised
//! At least half of the requests that are worked on (in flight, and not in a queue for a worker or for PHP-FPM) have a connection
//! to one server on another machine on which something was asked and not answered yet (tcp_info of the kernel: last sent, last
//! received). Of a chain (a proxy, PHP-FPM, a partner) the last server counts. By Little's law that many at this rate are the time
//! that it takes for each: many times what a whole request took that was sent alone before the load (1.5 times where nearly all are
//! seen to wait there). On kept connections the next question may follow an answer within a tick of the kernel's clock: then it is
//! only known that they are open, and the finding is less sure; where hardly any was seen to wait, or where it may not be seen
//! whose connections these are, half sure. Processors and memory of this machine are not what is short. A name server is another
//! server, too: most requests that are worked on have a DNS lookup in flight (sockets of UDP towards port 53, or PHP in a function like
//! `gethostbyname`), no setting of Apache
//! makes them, and they take 20 ms of each request, or less where requests take twice as long as alone. Where all workers of Apache
//! are taken, and others have most of them (slow clients), the few that wait there are not what limits. A server that takes as long
//! for one as for many is no limit: then the workers that wait for it are (`apache-workers-exhausted`,
//! `php-fpm-workers-exhausted`), or nothing is. If the server is only observed, nobody knows what one takes: half sure from 200 ms
//! on, and in front of full workers from a second on, if nearly all of them wait there. How long is what those that wait have waited
//! for, up to ten seconds, where Little's law tells less: most requests may be for files.
//!
//! ## What to do
//! Look at that server: observe it as well (`--server NAME=ssh://HOST`), and what limits it is found there. Until then: ask it less
//! (a cache of its answers), not within the page (a queue, a timeout with a default), or several of them. Manual change.
//!
//! ## By hand
//! `ss -tni state established dst ADDRESS` under load: connections with lastsnd below lastrcv wait; their number by the rate is the
//! time of each; `ss -uan 'dport = :53'` shows lookups. nginx: `$upstream_response_time` in its log format.

pub(crate) mod finding;
mod name_server;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, cpu_busy_fraction, in_flight_mean, look_ups_mean, offered_rate, rate, response_time_alone_us,
        response_time_mean_us, response_time_p99_us, upstream_connections_mean, upstream_unsure_mean, upstream_waited_us, upstream_waiting_mean,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::AppWorkersExhausted,
        LimitId::LighttpdConnectionsExhausted,
        LimitId::ApacheSpawnLag,
        LimitId::AcceptQueueOverflow,
        LimitId::LostSyns,
    ],
    kind: Some(LimitKind::Documents),
    gain: Some(LimitGain::Explained),
    ..Limit::of(LimitId::SlowUpstream, "Requests wait for another server", finding::check)
};
