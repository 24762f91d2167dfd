//! Visitors: sessions of steps and pages, with think times, on connections of each visitor's own.
//!
//! A step is due when its visitor's think time is over, and every request of it is due when it is known: the step's own
//! one with the step, those of a page with the document or style sheet that names them. From then on it is started,
//! like any request; it is sent when a connection is free for it. As in the plain engine, waiting for a connection
//! counts in the response time, and neither in the service time nor in our own delay.
//!
//! A visitor keeps its connections, at most so many to each server, from step to step (the HTML and Fetch standards
//! leave the number to browsers; all open six over HTTP/1.1). All visitors of a thread together have at most its share
//! of the load's connections: when these are all open, the least recently used idle one is evicted, whichever visitor
//! has it; when all are busy, visitors queue, and get one connection each in turn.
//!
//! What is drawn at random is drawn by the number of the session, so that threads and the server's speed change
//! nothing.

mod arrivals;
mod embedded;
mod fetches;
mod messages;
mod pages;
mod steps;
mod visitor;

use super::Engine;
use super::arrivals::{Arrivals, Starts, UserProfile, Users};
use crate::io::network_io::NetworkIo;
use crate::plan::Plan;
use crate::plan::thread_share::ThreadShare;
use crate::results::recorder::{Report, microseconds};
use crate::schedule::deadlines::Deadlines;
use arrivals::{VisitorArrival, VisitorArrivals};
use embedded::EmbeddedCache;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};
pub(super) use visitor::FetchEnd;
use visitor::{Phase, State, Visitor};
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::workload::Arrival;

/// The memory of a visitor at least.
#[cfg(test)]
pub(super) const VISITOR_BYTES: usize = std::mem::size_of::<Visitor>();

/// The visitors of one thread.
#[derive(Debug)]
pub(super) struct Visitors {
    entry: VisitorArrivals,
    /// This thread's number, and how many there are.
    thread: u64,
    threads: u64,
    /// By index, which stays the same while a visitor is present.
    visitors: Vec<Visitor>,
    /// Places without a visitor.
    away: Vec<u32>,
    /// How many visitors are present.
    present: u64,
    /// When waiting visitors continue.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// Visitors that can continue, and since when.
    ready: VecDeque<(u32, u64)>,
    /// Visitors that wait for a connection.
    queue: VecDeque<u32>,
    /// Since when there has been room for one more connection.
    room_since_ns: Option<u64>,
    /// Connections that carry nothing, in the order in which they were left.
    idle: Deadlines,
    /// What documents embed.
    lists: EmbeddedCache,
    /// Where header lines are built.
    lines: Vec<u8>,
    /// The time of day at which the load begins, in seconds: caches compare it with the servers' dates.
    epoch_s: u64,
    pages_in_flight: u64,
    /// Times of all pages of the load so far; `None` without pages.
    page_time: Option<TimeHistogram>,
}

impl Visitors {
    /// The visitors of this thread; none when the load has no visits.
    pub(super) fn new(plan: &Plan, share: &ThreadShare, starts: Option<Starts>) -> Self {
        let script = plan.script.as_ref();
        let users = script.filter(|_| plan.arrival == Arrival::Closed).map_or(0, |script| script.users);
        let users_here = share.part(users);
        let slots = if script.is_some() { plan.slots(share) } else { 0 };
        Self {
            entry: match starts {
                Some(starts) => {
                    let passed = starts.passed_count();
                    VisitorArrivals::Starts { starts, due: passed, admitted: passed }
                }
                None => VisitorArrivals::Users(Users::new(
                    UserProfile::from_stages(&plan.stages, users),
                    share,
                    users,
                )),
            },
            thread: u64::from(share.thread),
            threads: u64::from(share.threads),
            visitors: (0..users_here).map(|_| Visitor::default()).collect(),
            away: vec![],
            present: 0,
            timers: BinaryHeap::with_capacity(users_here as usize),
            ready: VecDeque::with_capacity(users_here as usize),
            queue: VecDeque::new(),
            room_since_ns: Some(0),
            idle: Deadlines::new(slots),
            lists: EmbeddedCache::default(),
            lines: vec![],
            epoch_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            pages_in_flight: 0,
            page_time: script.filter(|script| !script.pages.is_empty()).map(|_| TimeHistogram::new()),
        }
    }
}

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    /// Whether visitors make the load.
    #[inline]
    pub(super) fn has_visits(&self) -> bool {
        matches!(self.arrivals, Arrivals::Visits)
    }

    /// Continues the next visitor that can. False when none can.
    pub(super) fn advance_visits(&mut self) -> bool {
        if self.serve_queue() {
            return true;
        }
        if let Some((index, since_ns)) = self.visits.ready.pop_front() {
            self.visits.visitors[index as usize].ready = false;
            self.send_waiting(index, since_ns);
            return true;
        }
        let room = self.has_room() && self.visits.queue.is_empty();
        let closed_load = self.visits.entry.is_closed();
        match self.visits.entry.next(self.now_ns, room) {
            Some(arrival) if !closed_load || self.claim() => self.visitor_arrives(arrival),
            _ => return false,
        }
        true
    }

    fn visitor_arrives(&mut self, arrival: VisitorArrival) {
        let visits = &mut self.visits;
        let number = arrival.number * visits.threads + visits.thread;
        let index = match visits.entry {
            VisitorArrivals::Users(_) => arrival.number as u32,
            VisitorArrivals::Starts { .. } => visits.away.pop().unwrap_or_else(|| {
                visits.visitors.push(Visitor::default());
                visits.visitors.len() as u32 - 1
            }),
        };
        let counted = !visits.entry.is_closed();
        let visitor = &mut visits.visitors[index as usize];
        // A user that becomes active again continues its numbers.
        if counted || visitor.serial == 0 {
            (visitor.number, visitor.session) = (number, number);
        }
        let is_first = !counted && visitor.serial == 0;
        visits.present += 1;
        let left_us = if is_first { self.initial_think_us(number) } else { 0 };
        if left_us > 0 {
            return self.wait_before_session(index, arrival.intended_ns + left_us * 1000);
        }
        self.begin_session(index, arrival.intended_ns, arrival.sendable_ns, counted);
        self.send_waiting(index, arrival.sendable_ns);
        self.update_room(self.wake_ns);
    }

    /// Counts what becomes due before `until_ns`: starts, and steps whose think time is over.
    pub(super) fn count_due_visits(&mut self, until_ns: u64) {
        while let Some((number, intended_ns)) = self.visits.entry.pop_due(until_ns) {
            self.count_start(number * self.visits.threads + self.visits.thread, intended_ns);
        }
        while let Some(&Reverse((due_ns, index))) = self.visits.timers.peek()
            && due_ns < until_ns
        {
            self.visits.timers.pop();
            match self.visits.visitors[index as usize].phase {
                Phase::BeforeSession if !self.visits.entry.stays_active(index, due_ns) => {
                    self.leave(index);
                    continue;
                }
                Phase::BeforeSession => self.begin_session(index, due_ns, due_ns, false),
                Phase::BeforeStep => self.begin_step(index, due_ns, due_ns, false),
                Phase::Absent | Phase::Fetching => continue,
            }
            self.make_ready(index, 0);
        }
    }

    /// A visitor can continue since then.
    fn make_ready(&mut self, index: u32, since_ns: u64) {
        if !std::mem::replace(&mut self.visits.visitors[index as usize].ready, true) {
            self.visits.ready.push_back((index, since_ns));
        }
    }

    /// When the next visitor can continue: 0 for now.
    pub(super) fn visits_due_ns(&self) -> Option<u64> {
        let visits = &self.visits;
        let room = self.has_room();
        if !visits.ready.is_empty() || room && !visits.queue.is_empty() {
            return Some(0);
        }
        let entry = visits.entry.due_ns(room).filter(|_| !self.is_exhausted());
        let timer = visits.timers.peek().map(|&Reverse((due_ns, _))| due_ns);
        [entry, timer].into_iter().flatten().min()
    }

    /// Whether no visitor is present and none will arrive.
    pub(super) fn visits_ended(&self) -> bool {
        self.visits.present == 0 && self.visits.entry.is_over(self.is_exhausted())
    }

    /// Records whether there is room for one more connection, as of `since_ns`.
    pub(super) fn update_room_for_visits(&mut self, room: bool, since_ns: u64) {
        let visits = &mut self.visits;
        visits.room_since_ns = room.then(|| visits.room_since_ns.unwrap_or(since_ns));
        visits.entry.set_room(room && visits.queue.is_empty(), since_ns);
    }

    /// Writes into the report of an interval what holds at its end.
    pub(super) fn record_visits(&mut self) {
        let visits = &mut self.visits;
        let report = &mut self.recorder.report.visits;
        report.counts.visitors = visits.present;
        if let Some(pages) = &mut report.pages {
            pages.in_flight = visits.pages_in_flight;
            if let Some(all) = &mut visits.page_time {
                all.merge(&pages.time);
            }
        }
    }

    /// Begins an interval with what is known of those before.
    pub(super) fn resume_visits(&mut self) {
        if let Some(all) = &self.visits.page_time {
            self.recorder.report.visits.set_median(all.quantile_us(0.5));
        }
    }

    /// Records how long requests have waited that were started, and that no connection carries; returns their number.
    pub(super) fn censor_visits(&mut self, end_ns: u64, censored_time: &mut TimeHistogram) -> u64 {
        let mut waiting = 0;
        let fetches = self.visits.visitors.iter().flat_map(|visitor| &visitor.fetches);
        for fetch in fetches.filter(|fetch| fetch.state == State::Waiting) {
            censored_time.record(microseconds(fetch.discovered_ns, end_ns));
            waiting += 1;
        }
        while let Some((number, intended_ns)) = self.visits.entry.next_waiting() {
            if self.is_predictable(number * self.visits.threads + self.visits.thread) {
                censored_time.record(microseconds(intended_ns, end_ns));
                waiting += 1;
            }
        }
        waiting
    }
}
