//! DNS lookups during the load, on threads of their own: getaddrinfo(3) blocks, an event loop must not.
//!
//! There are as many threads as there were lookups in flight at once, up to a bound: a lookup that waits for a thread
//! would add our own queue to the connect time. A lookup whose connection was closed is cancelled.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Look-ups of one engine thread at once. A name server that is silent holds each for seconds, with a descriptor.
const THREADS_MAX: usize = 256;
/// A thread's stack: getaddrinfo(3) loads modules, and keeps answers of up to 64 kB on it.
const STACK_BYTES: usize = 512 * 1024;

/// A look-up for a connection.
#[derive(Debug)]
pub(crate) struct LookupRequest {
    pub(crate) slot: u32,
    /// Names the connection in its slot.
    pub(crate) token: u64,
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    /// The address that the probe found good: it is used when it is among the answers, else one of its family.
    pub(crate) preferred: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LookupResult {
    pub(crate) slot: u32,
    pub(crate) token: u64,
    /// `None` when the name does not resolve.
    pub(crate) address: Option<SocketAddr>,
}

/// Resolves a host and port.
type LookupFn = fn(&str, u16) -> Vec<SocketAddr>;

/// Threads that look names up. They end when this is dropped, each after the look-up that it is in.
#[derive(Debug)]
pub(crate) struct Resolver {
    queue: Arc<LookupQueue>,
    results: Receiver<LookupResult>,
    threads: usize,
    threads_max: usize,
    /// The parameters of each thread.
    worker: Worker,
}

/// Lookups that wait for a thread.
#[derive(Debug, Default)]
struct LookupQueue {
    waiting: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    requests: VecDeque<LookupRequest>,
    /// Threads without a question.
    idle: usize,
    closed: bool,
}

impl LookupQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next question; `None` when there will be none.
    fn next(&self) -> Option<LookupRequest> {
        let mut waiting = self.lock();
        waiting.idle += 1;
        while waiting.requests.is_empty() && !waiting.closed {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.idle -= 1;
        if waiting.closed { None } else { waiting.requests.pop_front() }
    }
}

#[derive(Debug)]
struct Worker {
    lookup: LookupFn,
    results: Sender<LookupResult>,
    signal: Arc<OwnedFd>,
}

impl Worker {
    fn start(&self, queue: Arc<LookupQueue>, number: usize) -> std::io::Result<()> {
        let (lookup, results, signal) = (self.lookup, self.results.clone(), self.signal.clone());
        let work = move || {
            while let Some(LookupRequest { slot, token, host, port, preferred }) = queue.next() {
                let address = choose(&lookup(&host, port), preferred);
                if results.send(LookupResult { slot, token, address }).is_err() {
                    return;
                }
                // Full is as good: it is readable then.
                let _ = rustix::io::write(&signal, &1u64.to_ne_bytes());
            }
        };
        let named = thread::Builder::new().name(format!("resolver-{number}")).stack_size(STACK_BYTES);
        named.spawn(work).map(drop)
    }
}

impl Resolver {
    /// Starts the first thread; the returned descriptor becomes readable with each result.
    pub(crate) fn start() -> std::io::Result<(Self, OwnedFd)> {
        Self::start_with(lookup, THREADS_MAX)
    }

    fn start_with(lookup: LookupFn, threads_max: usize) -> std::io::Result<(Self, OwnedFd)> {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sender, results) = channel();
        let worker = Worker { lookup, results: sender, signal: Arc::new(signal.try_clone()?) };
        let queue = Arc::new(LookupQueue::default());
        worker.start(queue.clone(), 1)?;
        Ok((Self { queue, results, threads: 1, threads_max, worker }, signal))
    }

    /// Submits a lookup; its result comes later.
    pub(crate) fn submit(&mut self, request: LookupRequest) {
        let mut waiting = self.queue.lock();
        waiting.requests.push_back(request);
        let needs_thread = waiting.requests.len() > waiting.idle;
        drop(waiting);
        self.queue.changed.notify_one();
        // If there can be no more threads, those that there are have to do.
        if needs_thread
            && self.threads < self.threads_max
            && self.worker.start(self.queue.clone(), self.threads + 1).is_ok()
        {
            self.threads += 1;
        }
    }

    /// Cancels the lookup of a connection that was closed.
    pub(crate) fn cancel(&self, token: u64) {
        self.queue.lock().requests.retain(|request| request.token != token);
    }

    /// The next answer that has come.
    pub(crate) fn try_result(&self) -> Option<LookupResult> {
        self.results.try_recv().ok()
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
    }
}

fn lookup(host: &str, port: u16) -> Vec<SocketAddr> {
    (host, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

/// Which of the answers is used.
fn choose(addresses: &[SocketAddr], preferred: SocketAddr) -> Option<SocketAddr> {
    let same = addresses.iter().find(|address| **address == preferred);
    let family = || addresses.iter().find(|address| address.is_ipv4() == preferred.is_ipv4());
    same.or_else(family).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_address_that_was_found_good_is_preferred() {
        let good = address("127.0.0.2:80");
        for (results, chosen) in [
            (&["[::1]:80", "127.0.0.1:80", "127.0.0.2:80"][..], Some("127.0.0.2:80")),
            (&["[::1]:80", "127.0.0.1:80"], Some("127.0.0.1:80")),
            (&["[::1]:80"], None),
            (&[], None),
        ] {
            let results: Vec<_> = results.iter().map(|text| address(text)).collect();
            assert_eq!(choose(&results, good), chosen.map(address), "{results:?}");
        }
    }

    fn request(slot: u32, host: &str) -> LookupRequest {
        let (host, preferred) = (host.into(), address("127.0.0.1:7"));
        LookupRequest { slot, token: u64::from(slot) + 100, host, port: 7, preferred }
    }

    /// So many answers, by slot.
    fn results(resolver: &Resolver, signal: &OwnedFd, count: usize) -> Vec<LookupResult> {
        let mut results = vec![];
        while results.len() < count {
            let mut waiting = [PollFd::new(signal, PollFlags::IN)];
            let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_eq!(poll(&mut waiting, Some(&timeout)), Ok(1), "{results:?}");
            rustix::io::read(signal, &mut [0; 8]).unwrap();
            results.extend(std::iter::from_fn(|| resolver.try_result()));
        }
        results.sort_by_key(|answer| answer.slot);
        results
    }

    #[test]
    fn lookups_do_not_block_each_other() {
        static UNDER_WAY: Mutex<usize> = Mutex::new(0);
        static CHANGED: Condvar = Condvar::new();
        const COUNT: usize = 40;
        // No lookup ends before all have begun.
        let lookup: LookupFn = |_, port| {
            let mut under_way = UNDER_WAY.lock().unwrap();
            *under_way += 1;
            CHANGED.notify_all();
            drop(CHANGED.wait_while(under_way, |under_way| *under_way < COUNT).unwrap());
            vec![SocketAddr::from(([127, 0, 0, 1], port))]
        };
        let (mut resolver, signal) = Resolver::start_with(lookup, COUNT).unwrap();
        (0..COUNT as u32).for_each(|slot| resolver.submit(request(slot, "slow")));
        assert_eq!(results(&resolver, &signal, COUNT).len(), COUNT);
        // Those threads are enough for what comes later.
        (0..COUNT as u32).for_each(|slot| resolver.submit(request(slot, "slow")));
        assert_eq!(results(&resolver, &signal, COUNT).len(), COUNT);
        assert_eq!(resolver.threads, COUNT);
    }

    #[test]
    fn a_cancelled_lookup_is_not_resolved() {
        static HELD: Mutex<bool> = Mutex::new(true);
        static CHANGED: Condvar = Condvar::new();
        let lookup: LookupFn = |host, _| {
            drop(CHANGED.wait_while(HELD.lock().unwrap(), |held| *held).unwrap());
            assert_ne!(host, "given up");
            vec![]
        };
        let (mut resolver, signal) = Resolver::start_with(lookup, 1).unwrap();
        resolver.submit(request(1, "first"));
        (2..50).for_each(|slot| resolver.submit(request(slot, "given up")));
        resolver.submit(request(50, "last"));
        (2..50u32).for_each(|slot| resolver.cancel(u64::from(slot) + 100));
        *HELD.lock().unwrap() = false;
        CHANGED.notify_all();
        let slots: Vec<_> = results(&resolver, &signal, 2).iter().map(|answer| answer.slot).collect();
        assert_eq!(slots, [1, 50]);
    }

    #[test]
    fn results_come_with_a_signal_and_names_may_not_resolve() {
        let lookup: LookupFn = |host, port| match host {
            "there" => vec![SocketAddr::from(([127, 0, 0, 1], port))],
            _ => vec![],
        };
        let (mut resolver, signal) = Resolver::start_with(lookup, 4).unwrap();
        resolver.submit(request(1, "there"));
        resolver.submit(request(2, "gone"));
        let results = results(&resolver, &signal, 2);
        let expected = [(1, 101, Some(address("127.0.0.1:7"))), (2, 102, None)];
        assert_eq!(results, expected.map(|(slot, token, address)| LookupResult { slot, token, address }));
    }
}
