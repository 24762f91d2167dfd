//! Which application server has all workers busy, how many it has, and how many requests wait for them.
//!
//! Facts: its accept queue, the connections on which an answer is awaited, its processes and threads, and Little's law where it takes
//! in all connections.

use crate::facts::{FactId, Facts};
use crate::limits::healthy::response_time::slower_than_alone;
use crate::limits::slow_upstream::finding::{at_most_waiting, awaited};
use crate::resources::concurrency;
use crate::resources::time_breakdown::noticed_queue;
use crate::settings::backends::{self, UNKNOWN};

/// Programs that have a finding of their own for it.
const OTHERS: [&str; 4] = ["php_fpm", "apache", "mariadb", "nginx"];
/// Of the requests that an application server has taken in, so many are more than it works on.
const INSIDE_FRACTION_MIN: f64 = 0.5;
/// A thread that is busier may be what has no time.
const BUSY_THREAD_FRACTION_MAX: f64 = 0.5;
/// More failures: what was served for those is in no rate.
const FAILED_FRACTION_MAX: f64 = 0.05;
/// Processes that are as many as serve, but for this: each of them is a worker.
const COUNTED_ERROR_MAX: f64 = 0.3;
const ONE_AT_ONCE_MAX: f64 = 1.5;
/// A program that is one process may run another one now and then.
const ONE_PROCESS_MAX: f64 = 2.0;

/// The application server whose workers are all busy.
pub(super) struct FullApplication<'a> {
    pub(super) listener: &'a str,
    pub(super) queue: f64,
    /// What it is called, and the name of its facts; `None` where nobody could see who listens.
    pub(super) program: Option<(String, &'a str)>,
    /// Requests that it serves at once, where that is seen.
    pub(super) workers: Option<f64>,
    /// Whether its workers may rather wait for each other.
    pub(super) is_doubtful: bool,
    /// Whether it takes in all connections, so that requests wait inside of it.
    pub(super) is_inside: bool,
}

/// The application server whose workers are all busy, if there is one: by its queue, or else by what waits inside of it.
pub(super) fn full_application(facts: &Facts) -> Option<FullApplication<'_>> {
    let queued = behind(facts).or_else(|| in_front(facts)).and_then(|full| really_serving(facts, full));
    queued.or_else(|| inside(facts))
}

/// The longest lasting queue of a program behind the front that no other rule knows.
fn behind(facts: &Facts) -> Option<FullApplication<'_>> {
    let topology = facts.topology.as_ref();
    let of = |listener: &str| topology.and_then(|topology| backends::listening_at(topology, listener));
    let queues = facts.each(FactId::backend_queue_mean);
    let (listener, queue) = queues
        .filter(|(listener, _)| concurrency::has_lasting_queue(facts, listener))
        .filter(|(listener, _)| !has_rule_of_its_own(facts, listener))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let program = of(listener).map(|(name, service)| (name, backends::program_name(service)));
    let seen = facts.value_of(FactId::upstream_waiting_mean, listener);
    let seen = seen.map(|seen| at_most_waiting(facts, listener, seen) - queue);
    let processes = program.as_ref().and_then(|(name, _)| processes_of_one_thread(facts, name));
    let workers = seen.filter(|served| *served >= 0.5).map(|served| served.round().max(1.0)).or(processes);
    Some(FullApplication { listener, queue, program, workers, is_doubtful: false, is_inside: false })
}

/// Whether what listens there is a program that another rule knows.
pub(crate) fn has_rule_of_its_own(facts: &Facts, listener: &str) -> bool {
    let service = facts.topology.as_ref().and_then(|topology| backends::listening_at(topology, listener));
    concurrency::is_fastcgi_target(facts, listener)
        || service.is_some_and(|(_, service)| OTHERS.contains(&service.service.as_str()))
}

/// Processes that serve, where each has one thread: one of several only leads the others.
pub(crate) fn processes_of_one_thread(facts: &Facts, name: &str) -> Option<f64> {
    let processes = facts.value_of(FactId::backend_processes_mean, name)?;
    let threads = facts.value_of(FactId::backend_threads_mean, name)?;
    (threads < processes + 0.5).then(|| (processes - 1.0).round().max(1.0))
}

/// An application server without a proxy before it: the queue is that of the port.
fn in_front(facts: &Facts) -> Option<FullApplication<'_>> {
    let service = facts.service.as_ref().filter(|service| service.service == UNKNOWN)?;
    let queue = noticed_queue(facts)?;
    let workers = facts.value(FactId::service_processes_mean).map(|all| (all - 1.0).round().max(1.0));
    let threads = facts.value(FactId::in_flight_mean).map(|in_flight| (in_flight - queue).round());
    let workers = threads.filter(|served| *served >= 1.0).or(workers);
    let program = Some((String::new(), backends::program_name(service)));
    Some(FullApplication { listener: "", queue, program, workers, is_doubtful: false, is_inside: false })
}

/// An application server that takes in each connection (Tomcat, Puma, gunicorn with threads): nobody waits at its socket, and all
/// requests in flight wait for its answer, though it hardly computes and asks nobody for them. It serves as many at once as end, each for as
/// long as one alone takes.
fn inside(facts: &Facts) -> Option<FullApplication<'_>> {
    let (alone_us, _) = slower_than_alone(facts).filter(|_| facts.loaded)?;
    let upstream = awaited(facts).filter(|upstream| !upstream.is_guessed)?;
    let (listener, topology) = (upstream.address, facts.topology.as_ref()?);
    let (name, service) = backends::listening_at(topology, listener)?;
    let is_passed = concurrency::targets(facts).iter().any(|(at, _)| backends::leads_to(at, listener));
    let is_queued = facts.each(FactId::backend_queue_mean).any(|(_, queue)| queue >= 1.0);
    let fails = facts.value(FactId::failed_fraction).is_none_or(|failed| failed > FAILED_FRACTION_MAX);
    let busiest = facts.value_of(FactId::backend_busiest_thread_fraction, &name)?;
    if !is_passed
        || is_queued
        || fails
        || busiest > BUSY_THREAD_FRACTION_MAX
        || has_rule_of_its_own(facts, listener)
    {
        return None;
    }
    let at_once = facts.value(FactId::rate)? * alone_us / 1e6;
    let queue = upstream.waiting - at_once;
    (queue >= INSIDE_FRACTION_MIN * upstream.waiting).then(|| FullApplication {
        listener,
        queue,
        program: Some((name, backends::program_name(service))),
        workers: Some(at_once.round().max(1.0)),
        is_doubtful: true,
        is_inside: true,
    })
}

/// What its workers do for requests at once: one process takes in many connections and may serve one at a time; several that
/// wait for each other are not what is short.
fn really_serving<'a>(facts: &Facts, full: FullApplication<'a>) -> Option<FullApplication<'a>> {
    let Some(workers) = full.workers else { return Some(full) };
    let at_once = concurrency::served_at_once_of_waiting(facts, workers, cores(facts, &full));
    let of_program = |name: &str| match name {
        "" => facts.value(FactId::service_processes_mean),
        name => facts.value_of(FactId::backend_processes_mean, name),
    };
    let processes = full.program.as_ref().and_then(|(name, _)| of_program(name));
    let Some(at_once) = at_once else { return Some(full) };
    // One of several processes leads the others. Threads may also be those of an event loop.
    let is_counted =
        processes.is_some_and(|processes| ((processes - 1.0) / workers - 1.0).abs() <= COUNTED_ERROR_MAX);
    if is_counted && at_once >= ONE_AT_ONCE_MAX {
        return None;
    }
    let is_one = at_once < ONE_AT_ONCE_MAX && processes.is_some_and(|processes| processes < ONE_PROCESS_MAX);
    Some(FullApplication { workers: Some(at_once.round().max(1.0)), is_doubtful: !is_one, ..full })
}

/// Cores that the program uses.
pub(super) fn cores(facts: &Facts, full: &FullApplication<'_>) -> Option<f64> {
    match &full.program {
        Some((name, _)) if name.is_empty() => facts.value(FactId::service_cpu_cores),
        Some((name, _)) => facts.value_of(FactId::backend_cpu_cores, name),
        None => None,
    }
}
