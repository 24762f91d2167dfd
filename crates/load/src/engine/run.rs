//! Runs a load: one engine per thread, and the caller merges what they report second by second.

use crate::engine::Engine;
use crate::engine::connection_abort::ConnectionAbort;
use crate::engine::control::Control;
use crate::io::clock::monotonic_ns;
use crate::io::http2;
use crate::io::http3;
use crate::io::http3::connection::Context;
use crate::io::kernel::{EventLoop, KernelIo};
use crate::io::multiplexed::MultiplexedIo;
use crate::io::multiplexed::multiplex::Multiplex;
use crate::io::rx_timestamps::RxTimestamps;
use crate::io::tls::for_thread;
use crate::io::websocket::WebSocketIo;
use crate::plan::thread_share::ThreadShare;
use crate::plan::{Plan, Prepared};
use crate::results::merge::Merger;
use crate::results::recorder::Report;
use rustix::io::Errno;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use webdyno_model::error::io_error;
use webdyno_model::interval::{EndReason, Interval, LoadEnd};
use webdyno_model::{Result, UserError};

/// Reports that may wait for the caller. A sink that stalls for longer than this many seconds holds the load up.
const REPORTS_MAX: usize = 128;

/// From the decision to start to the start: the time for the threads to wake.
const LEAD_NS: u64 = 2_000_000;
/// Before the beginning threads wait awake: a sleeper is woken late by this much (timer slack, prctl(2)) and by a cold
/// processor.
const SPIN_NS: u64 = 200_000;

/// Runs the load and blocks until it ends. `sink` gets the results of each second, of all threads together, soon
/// after that second; the last interval may be shorter. An error only when this machine refuses what the engine
/// needs; whatever the server does is a result. A number of requests without a duration ends early, with
/// [`EndReason::Hopeless`], when for 30 s no connection could be established.
pub fn run(prepared: &Prepared, control: &Control, sink: &mut dyn FnMut(Interval)) -> Result<LoadEnd> {
    run_at(prepared, control, None, sink)
}

/// The same, with the load beginning at a moment on CLOCK_MONOTONIC in nanoseconds; at once, when that has passed.
pub fn run_at(
    prepared: &Prepared,
    control: &Control,
    at_ns: Option<u64>,
    sink: &mut dyn FnMut(Interval),
) -> Result<LoadEnd> {
    run_with(prepared, control, (ConnectionAbort::new(&prepared.plan), at_ns), sink)
}

fn run_with(
    prepared: &Prepared,
    control: &Control,
    (mut connection_abort, at_ns): (ConnectionAbort, Option<u64>),
    sink: &mut dyn FnMut(Interval),
) -> Result<LoadEnd> {
    let plan = &prepared.plan;
    let shares = shares(plan);
    let loops = event_loops(plan, control, &shares)?;
    let (to_merger, from_threads) = sync_channel(REPORTS_MAX);
    let start = StartBarrier::new(shares.len());
    thread::scope(|scope| {
        let mut guard = RunGuard { control, ended: false };
        let mut engines = Vec::with_capacity(shares.len());
        let mut spares = Vec::with_capacity(shares.len());
        for (share, event_loop) in shares.iter().zip(loops) {
            let (to_thread, from_merger) = channel();
            spares.push(to_thread);
            let index = share.thread - plan.share.first_thread;
            let channels = ThreadChannels { index, share, to_merger: to_merger.clone(), from_merger };
            let barrier_slot = BarrierSlot { start: &start, arrived: false };
            let engine = move || run_thread(plan, control, event_loop, channels, barrier_slot);
            let spawned = thread::Builder::new().name(thread_name(share)).spawn_scoped(scope, engine);
            engines.push(spawned.map_err(|error| {
                start.cancel();
                spawn_error(share, &error)
            })?);
        }
        drop(to_merger);
        let mut merger = Merger::new(plan.labels(), shares.len());
        start.begin(at_ns, plan.from_ns);
        let end = merge_all(&mut merger, from_threads, &spares, &mut |interval| {
            if connection_abort.should_abort(&interval) {
                control.stop(EndReason::Hopeless);
            }
            sink(interval);
        });
        guard.ended = true;
        // A panic of a thread was reported on stderr; here its results are missing.
        engines.into_iter().for_each(|engine| drop(engine.join()));
        end.ok_or_else(|| {
            UserError::cannot_run("an engine thread ended without its results")
                .hint("this is a defect: report it")
        })
    })
}

fn thread_name(share: &ThreadShare) -> String {
    format!("engine-{}", share.thread + 1)
}

/// The error when the system refuses a thread (a limit of the user, of the container, or of memory).
fn spawn_error(share: &ThreadShare, error: &std::io::Error) -> UserError {
    let thread = format!("engine thread {} of {}", share.thread + 1, share.threads);
    io_error("start", thread, error)
        .hint("ask for fewer threads with -t, or raise the limit: `ulimit -u` and `ulimit -v` show it")
}

/// A load in progress. Dropped before its end, by a panic of the sink, it stops the threads: no thread keeps loading a
/// server when its results are lost.
struct RunGuard<'a> {
    control: &'a Control,
    ended: bool,
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.control.stop(EndReason::Interrupted);
        }
        self.control.forget_wakers();
    }
}

/// Ends the load when its thread panics: the others would go on for as long as nobody stops them, and what they report waits
/// for that thread's part.
struct StopOnPanic<'a>(&'a Control);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop(EndReason::Interrupted);
        }
    }
}

/// The channels between one engine thread and the merger.
struct ThreadChannels<'a> {
    /// Which thread of this machine it is.
    index: u32,
    share: &'a ThreadShare,
    to_merger: SyncSender<(u32, Box<Report>)>,
    from_merger: Receiver<Box<Report>>,
}

/// All threads begin at the same moment, when all are ready; or none does, when the system refused one of them.
struct StartBarrier {
    state: Mutex<BarrierState>,
    changed: Condvar,
}

struct BarrierState {
    /// Threads that are not ready yet.
    awaited: usize,
    decision: Option<StartDecision>,
}

#[derive(Clone, Copy)]
enum StartDecision {
    /// The load begins at this moment, on the monotonic clock.
    At(u64),
    Cancelled,
}

impl StartBarrier {
    fn new(threads: usize) -> Self {
        let state = BarrierState { awaited: threads, decision: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BarrierState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, state: &mut BarrierState, decision: StartDecision) {
        state.decision.get_or_insert(decision);
        self.changed.notify_all();
    }

    /// Called by the caller: waits until every thread is ready or gone; then the load begins.
    fn begin(&self, at_ns: Option<u64>, from_ns: u64) {
        let mut state = self.lock();
        while state.awaited > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.decide(
            &mut state,
            StartDecision::At(at_ns.unwrap_or(0).max((monotonic_ns() + LEAD_NS).saturating_sub(from_ns))),
        );
    }

    /// Called by the caller: no thread begins.
    fn cancel(&self) {
        self.decide(&mut self.lock(), StartDecision::Cancelled);
    }

    fn thread_arrived(&self) {
        self.lock().awaited -= 1;
        self.changed.notify_all();
    }
}

/// A thread's arrival at the barrier. A thread that ends before it arrived is not waited for.
struct BarrierSlot<'a> {
    start: &'a StartBarrier,
    arrived: bool,
}

impl BarrierSlot<'_> {
    /// Called by each thread when it is ready: the moment at which the load begins, `None` when it was called off.
    fn wait_for_start(mut self) -> Option<u64> {
        self.arrived = true;
        self.start.thread_arrived();
        let mut state = self.start.lock();
        loop {
            match state.decision {
                Some(StartDecision::At(at_ns)) => return Some(at_ns),
                Some(StartDecision::Cancelled) => return None,
                None => state = self.start.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Drop for BarrierSlot<'_> {
    fn drop(&mut self) {
        if !self.arrived {
            self.start.thread_arrived();
        }
    }
}

fn shares(plan: &Plan) -> Vec<ThreadShare> {
    // Open arrival knows each thread's requests by their numbers; closed arrival claims them from a shared budget.
    let budget = plan.closed_requests().map(|numbers| Arc::new(AtomicU64::new(numbers.end - numbers.start)));
    let (first, threads) = (plan.share.first_thread, plan.share.total_threads);
    let unit = plan.share_unit();
    (first..first + plan.share.threads)
        .map(|thread| ThreadShare { thread, threads, unit, budget: budget.clone() })
        .collect()
}

fn event_loops(plan: &Plan, control: &Control, shares: &[ThreadShare]) -> Result<Vec<EventLoop>> {
    let no_loop = |error: std::io::Error| io_error("create", "an event loop", &error);
    let no_timestamps = |errno: Errno| {
        io_error("have the kernel stamp", "what it receives (SO_TIMESTAMPING)", &errno.into())
            .hint("leave --clock kernel out: the times then end by the engine's own clock")
    };
    let event_loop = |share| {
        let rx_timestamps = RxTimestamps::new(plan.clock, plan.slots(share)).map_err(no_timestamps)?;
        let waker = control.waker().map_err(|errno| no_loop(errno.into()))?;
        EventLoop::new(waker, &plan.origins, rx_timestamps, plan.transport.io).map_err(no_loop)
    };
    let loops: Result<_> = shares.iter().map(event_loop).collect();
    loops.inspect_err(|_| control.forget_wakers())
}

/// The life of an engine thread.
fn run_thread(
    plan: &Plan,
    control: &Control,
    event_loop: EventLoop,
    channels: ThreadChannels<'_>,
    barrier_slot: BarrierSlot<'_>,
) {
    let ThreadChannels { index, share, to_merger, from_merger } = channels;
    let _stops = StopOnPanic(control);
    let labels = plan.labels();
    let mut first = Some(Box::new(Report::preallocated(&labels)));
    let exchange = |full| {
        to_merger.send((index, full)).ok()?;
        // The merger returns reports within milliseconds: the first one has a substitute of its own, and a further one
        // is made only if the merger is behind.
        let spare = from_merger.try_recv().ok().or_else(|| first.take());
        Some(spare.unwrap_or_else(|| Box::new(Report::new(&labels))))
    };
    let slots = plan.slots(share);
    let io = KernelIo::new(event_loop, plan.tls.as_ref(), &plan.transport, slots);
    let has_websockets = plan.origins.iter().any(|origin| origin.websocket.is_some());
    match plan.stream_limits(share) {
        None if has_websockets => {
            let seed = plan.seed ^ u64::from(share.thread);
            let io = WebSocketIo::new(io, seed, slots);
            let mut engine = Engine::new(plan, control, share, io, exchange);
            if let Some(at_ns) = barrier_slot.wait_for_start() {
                engine.io_mut().inner_mut().set_start(at_ns);
                begin(plan, control, at_ns);
                engine.run();
            }
        }
        None => {
            let mut engine = Engine::new(plan, control, share, io, exchange);
            if let Some(at_ns) = barrier_slot.wait_for_start() {
                engine.io_mut().set_start(at_ns);
                begin(plan, control, at_ns);
                engine.run();
            }
        }
        Some(limits) => {
            // As configured when the load was prepared, which has shown that it can be.
            let quic = plan.tls.as_ref().filter(|_| plan.transport.http3_streams.is_some());
            let quic = quic.and_then(|tls| Context::new(&for_thread(tls, &plan.transport.tls)).ok());
            match quic {
                Some(context) => {
                    let io =
                        MultiplexedIo::<_, http3::connection::Connection>::new(io, context, limits, slots);
                    run_multiplexed(plan, control, (share, io), exchange, barrier_slot);
                }
                None => {
                    let io = MultiplexedIo::<_, http2::connection::Connection>::new(io, (), limits, slots);
                    run_multiplexed(plan, control, (share, io), exchange, barrier_slot);
                }
            }
        }
    }
}

/// The same over connections that requests share.
fn run_multiplexed<C: Multiplex>(
    plan: &Plan,
    control: &Control,
    (share, io): (&ThreadShare, MultiplexedIo<KernelIo, C>),
    exchange: impl FnMut(Box<Report>) -> Option<Box<Report>>,
    barrier_slot: BarrierSlot<'_>,
) {
    let mut engine = Engine::new(plan, control, share, io, exchange);
    if let Some(at_ns) = barrier_slot.wait_for_start() {
        engine.io_mut().inner_mut().set_start(at_ns);
        begin(plan, control, at_ns);
        engine.run();
    }
}

/// Waits until the part of the load begins that is ours.
fn begin(plan: &Plan, control: &Control, at_ns: u64) {
    control.set_origin(at_ns);
    sleep_then_spin_until(at_ns + plan.from_ns);
    control.note_start(monotonic_ns());
}

/// Waits until this moment on the monotonic clock, the last bit of it awake.
fn sleep_then_spin_until(at_ns: u64) {
    let left_ns = at_ns.saturating_sub(monotonic_ns());
    thread::sleep(Duration::from_nanos(left_ns.saturating_sub(SPIN_NS)));
    while monotonic_ns() < at_ns {
        std::hint::spin_loop();
    }
}

/// Merges until all threads have ended; `None` when one vanished without a last report.
fn merge_all(
    merger: &mut Merger,
    from_threads: Receiver<(u32, Box<Report>)>,
    spares: &[Sender<Box<Report>>],
    sink: &mut dyn FnMut(Interval),
) -> Option<LoadEnd> {
    for (thread, report) in from_threads {
        merger.add(thread as usize, report);
        while let Some(interval) = merger.next_interval(&mut |thread, used| {
            // A thread that has ended needs no report back.
            let _ = spares[thread].send(used);
        }) {
            sink(interval);
        }
    }
    merger.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::prepare;
    use std::net::TcpListener;
    use webdyno_model::workload::{RequestSpec, Stop, Workload};

    fn prepared(port: u16, stop: Stop, threads: u32) -> Prepared {
        let request = RequestSpec {
            name: "/".into(),
            url: format!("http://127.0.0.1:{port}/"),
            ..RequestSpec::default()
        };
        let workload = Workload {
            requests: vec![request],
            stop,
            connections: threads,
            threads: Some(threads),
            timeout_us: 60_000_000,
            ..Workload::default()
        };
        prepare(&workload).unwrap()
    }

    #[test]
    fn a_bounded_load_aborts_when_no_connection_succeeds() {
        // Taken, and nobody listens: a port that is let go of may be given to another test's server.
        let gone = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        gone.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let port = gone.local_addr().unwrap().as_socket().unwrap().port();
        let prepared = prepared(port, Stop { duration_us: None, requests: Some(1_000_000) }, 2);
        let (mut started, mut ended) = (0, 0);
        let connection_abort = ConnectionAbort::after_seconds(&prepared.plan, 2);
        let end = run_with(&prepared, &Control::new(), (connection_abort, None), &mut |interval| {
            started += interval.started;
            ended += interval.completed + interval.failed;
        })
        .unwrap();
        assert_eq!(end.reason, EndReason::Hopeless);
        assert!(ended > 0 && started == ended + end.in_flight_at_end, "{started}, {ended}");
    }

    #[test]
    fn a_load_ends_when_it_is_not_kept_whatever_it_speaks() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        for (scheme, method) in [("http", "GET"), ("ws", "TEXT")] {
            let request = RequestSpec {
                name: "/".into(),
                method: method.into(),
                url: format!("{scheme}://127.0.0.1:{port}/"),
                ..RequestSpec::default()
            };
            let workload = Workload {
                requests: vec![request],
                stop: Stop { duration_us: Some(2_000_000), requests: None },
                connections: 1,
                threads: Some(1),
                timeout_us: 60_000_000,
                ..Workload::default()
            };
            let control = Control::new();
            control.keep_until(monotonic_ns());
            let end = run(&prepare(&workload).unwrap(), &control, &mut |_| {}).unwrap();
            assert_eq!(end.reason, EndReason::Interrupted, "{scheme}");
        }
    }

    #[test]
    fn a_sink_that_panics_stops_the_threads() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let prepared = prepared(port, Stop { duration_us: None, requests: None }, 2);
        let control = Control::new();
        let run = || run(&prepared, &control, &mut |_| panic!("the sink of a test"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        assert_eq!(control.stopped(), Some(EndReason::Interrupted));
    }

    #[test]
    fn a_thread_that_panics_stops_the_others() {
        for panics in [false, true] {
            let control = Control::new();
            let thread = || {
                let _stops = StopOnPanic(&control);
                assert!(!panics, "as a test wants it");
            };
            assert_eq!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(thread)).is_err(), panics);
            assert_eq!(control.stopped(), panics.then_some(EndReason::Interrupted));
        }
    }

    #[test]
    fn a_start_waits_for_no_thread_that_is_gone_and_can_be_called_off() {
        let start = StartBarrier::new(3);
        let begun = thread::scope(|scope| {
            let waiting = [0; 2].map(|_| {
                let barrier_slot = BarrierSlot { start: &start, arrived: false };
                scope.spawn(move || barrier_slot.wait_for_start())
            });
            drop(BarrierSlot { start: &start, arrived: false });
            start.begin(None, 0);
            waiting.map(|thread| thread.join().unwrap())
        });
        assert!(begun[0].is_some() && begun[0] == begun[1], "{begun:?}");
        let start = StartBarrier::new(2);
        let called_off = thread::scope(|scope| {
            let barrier_slot = BarrierSlot { start: &start, arrived: false };
            let waiting = scope.spawn(move || barrier_slot.wait_for_start());
            start.cancel();
            waiting.join().unwrap()
        });
        assert_eq!(called_off, None);
    }
}
