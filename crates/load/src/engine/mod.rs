//! The event loop of one thread: it owns its connections, its clock, its histograms, and shares nothing.
//!
//! Closed arrival: a user's next request is due when the last response has ended; its first at the start of the load,
//! or when the stages let it begin. One that the stages end makes no further request, and its connection is closed.
//! Connections are begun as fast as the loop goes, in batches between which responses are read: a burst that a server
//! cannot queue is what this many users at once mean, and spreading it would change what is measured. A user without a
//! connection pauses (10 ms, doubled up to 1 s), so that a refusing server costs no CPU. Open arrival: starts are due
//! by the pacer whatever the server does. A start that finds all connections busy waits, and its wait counts in its
//! response time, not in its service time nor in our own delay. Our own delay is counted from the moment at which the
//! loop was notified that it could go on: it contains the time that a response lay in the batch of events before its
//! turn came.

#[cfg(test)]
mod accuracy;
mod arrivals;
#[cfg(test)]
mod boundary_tests;
#[cfg(test)]
mod clock_tests;
mod conn;
pub(crate) mod connection_abort;
pub(crate) mod control;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod http2_tests;
#[cfg(test)]
mod list_tests;
#[cfg(test)]
mod memory_tests;
mod outcome;
mod pool;
#[cfg(test)]
mod protocol_tests;
mod receiving;
mod redirect;
#[cfg(test)]
mod redirect_tests;
mod requests;
pub(crate) mod run;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod stages_tests;
mod tcp_sample;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod visit_edge_tests;
#[cfg(test)]
mod visit_load_tests;
#[cfg(test)]
mod visit_session_tests;
#[cfg(test)]
mod visit_tests;
#[cfg(test)]
mod visit_time_tests;
mod visits;

pub(crate) use arrivals::{Arrivals, Budget, Starts, UserProfile, Users};

use crate::engine::control::Control;
use crate::http::content_check::BufferPool;
use crate::http::response_head::ResponseHeadCache;
use crate::io::network_io::NetworkIo;
use crate::plan::Plan;
use crate::plan::thread_share::ThreadShare;
use crate::results::recorder::{Recorder, Report, ThreadEnd, microseconds};
use crate::schedule::deadlines::Deadlines;
use crate::schedule::pacer::Pacer;
use conn::{Conn, Phase};
use redirect::Targets;
use std::collections::VecDeque;
use tcp_sample::TcpSample;
use visits::Visitors;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::EndReason;
use webdyno_model::workload::Arrival;

/// The read buffer: 256 kB a read halves the cost of large bodies against 8 kB.
const BUFFER_BYTES: usize = 256 * 1024;
/// Requests begun before events are checked again.
const START_BATCH: usize = 64;

/// The engine of one thread. `X` exchanges a full report for an empty one; `None` when the receiver is gone.
pub(crate) struct Engine<'p, N, X> {
    plan: &'p Plan,
    control: &'p Control,
    io: N,
    exchange: X,
    arrivals: Arrivals,
    /// Empty when the load has no visitors.
    visits: Visitors,
    budget: Option<Budget>,
    recorder: Recorder,
    /// The empty report for the next interval.
    spare: Option<Box<Report>>,
    /// The report of the interval that ended last, until nothing more urgent is to be done.
    full: Option<Box<Report>>,
    deadlines: Deadlines,
    /// Connections whose TCP is read.
    sample: TcpSample,
    conns: Vec<Conn>,
    free: Vec<u32>,
    /// Kept connections by origin, the latest used last. Entries of connections closed since are skipped.
    idle: Vec<VecDeque<u64>>,
    /// Connections that wait for the server's close, with the time at which their wait ends.
    parked: VecDeque<(u64, u64)>,
    /// Connections whose server sends faster than one turn reads.
    unread: Vec<u64>,
    /// Connections whose request is gathered and not written yet, with the moment since when it could have been sent,
    /// where that counts.
    gathered: Vec<(u64, Option<u64>)>,
    /// What is sent.
    targets: Targets<'p>,
    /// The last head of each target's responses.
    head_cache: Vec<ResponseHeadCache>,
    buffer: Vec<u8>,
    /// Memory for bodies that are kept to be checked.
    body_buffers: BufferPool,
    /// Sockets in use, those that are parked not counted.
    open: u32,
    open_max: u32,
    /// Of these, the ones that carry no request.
    idle_count: u32,
    parked_max: usize,
    /// The number of the next request.
    turn: usize,
    /// From the number of one request of this thread to that of the next.
    stride: usize,
    now_ns: u64,
    /// When the kernel received what was read last, if it timestamped that.
    received_ns: Option<u64>,
    /// When the loop last woke.
    wake_ns: u64,
    last_outcome_ns: u64,
    /// The next moment at which an interval or the load ends.
    next_boundary_ns: u64,
    load_end: Option<(EndReason, u64)>,
    cpu_begin_ns: u64,
}

impl<'p, N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'p, N, X> {
    /// An engine with everything allocated that it will need.
    pub(crate) fn new(plan: &'p Plan, control: &'p Control, share: &ThreadShare, io: N, exchange: X) -> Self {
        let slots = plan.slots(share);
        let open_max = plan.open_max(share);
        let labels = plan.labels();
        // Visitors keep their own.
        let kept_in_common = if plan.script.is_some() { 0 } else { open_max as usize };
        let (arrivals, visits, skipped) = arrivals_of(plan, share);
        let requests_end = plan.closed_requests().map_or(0, |numbers| numbers.end);
        let empty = || Box::new(Report::preallocated(&labels));
        Self {
            plan,
            control,
            io,
            exchange,
            arrivals,
            visits,
            budget: share
                .budget
                .clone()
                .map(|common| Budget::new(common, u64::from(share.threads), requests_end)),
            recorder: Recorder::new(empty()),
            spare: Some(empty()),
            full: None,
            deadlines: Deadlines::new(slots),
            sample: TcpSample::new(open_max),
            conns: (0..slots).map(|_| Conn::default()).collect(),
            free: (0..slots as u32).rev().collect(),
            idle: plan.origins.iter().map(|_| VecDeque::with_capacity(kept_in_common)).collect(),
            parked: VecDeque::with_capacity(slots - open_max as usize + 1),
            unread: Vec::with_capacity(slots),
            gathered: Vec::with_capacity(if N::GATHERS { slots } else { 0 }),
            targets: Targets::new(plan, open_max),
            head_cache: plan.templates.iter().map(|_| ResponseHeadCache::default()).collect(),
            // Ones, so that the kernel maps the memory now and not while the first response waits.
            buffer: vec![1; BUFFER_BYTES],
            body_buffers: BufferPool::default(),
            open: 0,
            idle_count: 0,
            open_max,
            parked_max: slots - open_max as usize,
            turn: share.thread as usize + skipped as usize * share.threads as usize,
            stride: share.threads as usize,
            now_ns: 0,
            received_ns: None,
            wake_ns: 0,
            last_outcome_ns: 0,
            next_boundary_ns: 0,
            load_end: None,
            cpu_begin_ns: 0,
        }
    }

    /// The I/O of this engine, for set-up before the load begins.
    pub(crate) fn io_mut(&mut self) -> &mut N {
        &mut self.io
    }

    /// Runs the load to its end. The last report holds how it ended.
    pub(crate) fn run(&mut self) {
        self.cpu_begin_ns = self.io.cpu_ns();
        self.recorder.set_cpu_start(self.cpu_begin_ns);
        self.wake_ns = self.update_clock();
        while self.load_end.is_none() {
            // One that was called off while it waited for its beginning sends nothing.
            if self.control.stopped().is_none() {
                self.start_due();
            }
            self.check_all_ended();
            // The receiver of the report needs a CPU too: requests due at the interval's end go first.
            self.send_report();
            if self.load_end.is_some() {
                break;
            }
            let (until_ns, precise) = self.next_wake();
            self.handle_events(until_ns, precise);
            self.expire_due();
            self.unpark(self.now_ns);
        }
        self.finish();
    }

    /// Waits, and handles what has happened. Returns how many things that were.
    fn handle_events(&mut self, until_ns: u64, precise: bool) -> usize {
        self.record_gathered();
        let count = self.io.wait(until_ns, precise);
        let now_ns = self.update_clock();
        self.wake_ns = self.io.woke_ns(now_ns);
        self.check_stopped();
        for index in 0..count {
            if self.load_end.is_some() {
                break;
            }
            let ready = self.io.ready(index);
            self.on_ready(ready);
            self.start_overdue();
        }
        self.read_again();
        count
    }

    /// Reads the clock, and cuts the intervals that have ended by then.
    #[inline]
    fn update_clock(&mut self) -> u64 {
        // What is due beyond it is not sent.
        self.now_ns = self.io.now_ns().min(self.control.kept_until_ns().max(self.now_ns));
        if self.now_ns >= self.next_boundary_ns {
            self.end_intervals();
        }
        self.now_ns
    }

    fn end_intervals(&mut self) {
        let end_ns = self.plan.duration_ns.unwrap_or(u64::MAX);
        while self.load_end.is_none() {
            let boundary_ns = self.recorder.boundary_ns();
            self.next_boundary_ns = boundary_ns.min(end_ns);
            if self.now_ns < self.next_boundary_ns {
                return;
            }
            if self.next_boundary_ns == end_ns {
                self.load_end = Some((EndReason::Duration, end_ns));
                return;
            }
            self.count_due_starts(boundary_ns);
            self.read_sample();
            self.send_report();
            self.full = Some(self.finish_interval(boundary_ns));
        }
    }

    /// Sends the last interval's report to the merger and takes an empty one in exchange.
    fn send_report(&mut self) {
        if let Some(full) = self.full.take() {
            self.spare = (self.exchange)(full);
            if self.spare.is_none() && self.load_end.is_none() {
                self.load_end = Some((EndReason::Interrupted, self.now_ns));
            }
        }
    }

    fn finish_interval(&mut self, end_ns: u64) -> Box<Report> {
        let empty = self.spare.take().unwrap_or_else(|| Box::new(Report::new(&self.plan.labels())));
        let cpu_ns = self.io.cpu_ns();
        if self.has_visits() {
            self.record_visits();
        }
        let full = self.recorder.finish_interval(end_ns, cpu_ns, empty);
        if self.has_visits() {
            self.resume_visits();
        }
        full
    }

    fn check_stopped(&mut self) {
        if self.load_end.is_none()
            && let Some(reason) = self.control.stopped()
        {
            self.load_end = Some((reason, self.now_ns));
        }
        if self.load_end.is_none() && self.now_ns >= self.control.kept_until_ns() {
            self.load_end = Some((EndReason::Interrupted, self.now_ns));
        }
    }

    /// With a bound on requests, the load is over when each has its outcome.
    fn check_all_ended(&mut self) {
        if self.load_end.is_some() || self.recorder.in_flight() > 0 {
            return;
        }
        let all_ended = match &self.arrivals {
            Arrivals::Closed(_) => self.budget.as_ref().is_some_and(Budget::is_exhausted),
            Arrivals::Open(starts) => starts.all_due(),
            Arrivals::Visits => self.visits_ended(),
        };
        if all_ended {
            let end_ns = self.last_outcome_ns.max(self.recorder.interval_start_ns());
            self.load_end = Some((EndReason::Requests, end_ns));
        }
    }

    /// When the loop must wake at the latest, and whether to the microsecond.
    fn next_wake(&self) -> (u64, bool) {
        let expiry = self.deadlines.first().map(|(_, at_ns)| at_ns);
        let unpark = self.parked.front().map(|&(_, at_ns)| at_ns);
        let unread = (!self.unread.is_empty()).then_some(0);
        let start = match &self.arrivals {
            Arrivals::Closed(users) if !self.is_exhausted() => users.due_ns(),
            Arrivals::Closed(_) => None,
            // Starts that find no room become due by the pacer alone; no wake-up is needed for them.
            Arrivals::Open(_) if !self.has_room() => None,
            Arrivals::Open(starts) if starts.waiting() > 0 => Some(0),
            Arrivals::Open(starts) => starts.next_due_ns(),
            Arrivals::Visits => self.visits_due_ns(),
        };
        let others = [expiry, unpark, unread].into_iter().flatten().min();
        let coarse_ns = others.unwrap_or(u64::MAX).min(self.next_boundary_ns);
        match start {
            // At the same moment too: a start that is due when an interval ends is due to the microsecond.
            Some(start_ns) if start_ns <= coarse_ns => (start_ns, true),
            _ => (coarse_ns, false),
        }
    }

    fn is_exhausted(&self) -> bool {
        self.budget.as_ref().is_some_and(Budget::is_exhausted)
    }

    /// Ends the load: what has no outcome is in flight, and counted as such.
    fn finish(&mut self) {
        let (reason, end_ns) = self.load_end.unwrap_or((EndReason::Interrupted, self.now_ns));
        self.expire(end_ns);
        self.count_due_starts(end_ns);
        let mut censored_time = TimeHistogram::new();
        for conn in self.conns.iter().filter(|conn| conn.is_busy()) {
            censored_time.record(microseconds(conn.request.intended_ns, end_ns));
        }
        let mut waiting = 0;
        if let Arrivals::Open(starts) = &mut self.arrivals {
            waiting = starts.waiting();
            while let Some((intended_ns, _)) = starts.pop_oldest() {
                censored_time.record(microseconds(intended_ns, end_ns));
            }
        }
        if self.has_visits() {
            waiting = self.censor_visits(end_ns, &mut censored_time);
        }
        self.read_sample();
        self.send_report();
        let mut full = self.finish_interval(end_ns);
        full.thread_end = Some(ThreadEnd {
            end_ns,
            waiting,
            censored_time,
            cpu_total_ns: self.io.cpu_ns().saturating_sub(self.cpu_begin_ns),
            reason,
        });
        for slot in 0..self.conns.len() as u32 {
            if self.conns[slot as usize].phase != Phase::Free {
                self.io.close(slot);
            }
        }
        (self.exchange)(full);
    }
}

/// How requests arrive at a thread, its visitors, and how many starts others had before it took the load over.
fn arrivals_of(plan: &Plan, share: &ThreadShare) -> (Arrivals, Visitors, u64) {
    let (thread, threads) = (u64::from(share.thread), u64::from(share.threads));
    let mut starts = match plan.arrival {
        Arrival::Closed => None,
        Arrival::Open { rate_per_s, poisson } => Some(Starts::new(match (&plan.rate_profile, poisson) {
            (Some(rate_profile), _) => {
                let seed = poisson.then_some(plan.seed);
                Pacer::rate_profile(rate_profile.clone(), thread, threads, plan.requests, seed)
            }
            (None, true) => Pacer::poisson(rate_per_s, thread, threads, plan.requests, plan.seed),
            (None, false) => Pacer::even(rate_per_s, thread, threads, plan.requests),
        })),
    };
    let skipped = starts.as_mut().map_or(0, |starts| starts.skip_until(plan.from_ns));
    match (plan.script.is_some(), starts) {
        (true, starts) => (Arrivals::Visits, Visitors::new(plan, share, starts), skipped),
        (false, Some(starts)) => (Arrivals::Open(starts), Visitors::new(plan, share, None), skipped),
        (false, None) => {
            let user_profile = UserProfile::from_stages(&plan.stages, plan.connections);
            let users = Users::new(user_profile, share, plan.connections);
            (Arrivals::Closed(users), Visitors::new(plan, share, None), skipped)
        }
    }
}
