//! Runs a load: one engine per thread, and the caller merges what they report second by second.

use crate::control::Control;
use crate::engine::{Engine, Share};
use crate::epoll::{EpollWorld, EventLoop, monotonic_ns};
use crate::merge::Merger;
use crate::prepare::{Plan, Prepared};
use crate::recorder::Report;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use webdyno_model::error::io_error;
use webdyno_model::interval::{Interval, LoadEnd};
use webdyno_model::workload::Arrival;
use webdyno_model::{Result, UserError};

/// Reports that may wait for the caller. A sink that stalls for longer than so many seconds holds the load up.
const REPORTS_MAX: usize = 128;

/// Runs the load and blocks until it ends. `sink` gets the results of each second, of all threads together, soon
/// after that second; the last interval may be shorter. An error only when this machine refuses what the engine
/// needs; whatever the server does is a result.
pub fn run(prepared: &Prepared, control: &Control, sink: &mut dyn FnMut(Interval)) -> Result<LoadEnd> {
    let plan = &prepared.plan;
    let shares = shares(plan);
    let loops = event_loops(control, &shares)?;
    let (to_merger, from_threads) = sync_channel(REPORTS_MAX);
    let start = Start::new(shares.len());
    let mut merger = Merger::new(plan.names.clone(), shares.len());
    let end = thread::scope(|scope| {
        let mut spares = Vec::with_capacity(shares.len());
        for (share, event_loop) in shares.iter().zip(loops) {
            let (to_thread, from_merger) = channel();
            spares.push(to_thread);
            let seat = Seat { share, to_merger: to_merger.clone(), from_merger };
            let start = &start;
            scope.spawn(move || drive(plan, control, event_loop, seat, start));
        }
        drop(to_merger);
        start.begin();
        merge_all(&mut merger, from_threads, &spares, sink)
    });
    control.forget_wakers();
    end.ok_or_else(|| {
        UserError::cannot_run("an engine thread ended without its results")
            .hint("this is a defect: report it")
    })
}

/// What a thread has besides its world.
struct Seat<'a> {
    share: &'a Share,
    to_merger: SyncSender<(u32, Box<Report>)>,
    from_merger: Receiver<Box<Report>>,
}

/// All threads begin at the same moment, when all are ready.
struct Start {
    ready: Barrier,
    at_ns: OnceLock<u64>,
    go: Barrier,
}

impl Start {
    fn new(threads: usize) -> Self {
        Self { ready: Barrier::new(threads + 1), at_ns: OnceLock::new(), go: Barrier::new(threads + 1) }
    }

    /// Called by the caller: the load begins now.
    fn begin(&self) {
        self.ready.wait();
        self.at_ns.get_or_init(monotonic_ns);
        self.go.wait();
    }

    /// Called by each thread when it is ready; returns the moment at which the load begins.
    fn wait(&self) -> u64 {
        self.ready.wait();
        self.go.wait();
        *self.at_ns.get_or_init(monotonic_ns)
    }
}

fn shares(plan: &Plan) -> Vec<Share> {
    // Open arrival knows each thread's requests by their numbers; closed arrival takes them from a common budget.
    let budget = plan
        .requests
        .filter(|_| plan.arrival == Arrival::Closed)
        .map(|requests| Arc::new(AtomicU64::new(requests)));
    (0..plan.threads).map(|thread| Share { thread, threads: plan.threads, budget: budget.clone() }).collect()
}

fn event_loops(control: &Control, shares: &[Share]) -> Result<Vec<EventLoop>> {
    let event_loop = |_| control.waker().and_then(EventLoop::new);
    let told = |errno: rustix::io::Errno| io_error("create", "an event loop", &errno.into());
    shares.iter().map(event_loop).map(|made| made.map_err(told)).collect()
}

/// The life of an engine thread.
fn drive(plan: &Plan, control: &Control, event_loop: EventLoop, seat: Seat<'_>, start: &Start) {
    let Seat { share, to_merger, from_merger } = seat;
    let names = plan.names.len();
    let exchange = |full| {
        to_merger.send((share.thread, full)).ok()?;
        // The merger gives reports back within milliseconds; if it is behind, a further one is made.
        let spare = from_merger.try_recv();
        Some(spare.unwrap_or_else(|_| Box::new(Report::new(names))))
    };
    let world = EpollWorld::new(event_loop, plan.slots(share));
    let mut engine = Engine::new(plan, control, share, world, exchange);
    let at_ns = start.wait();
    engine.world_mut().begin_at(at_ns);
    engine.run();
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
