//! The coordinator as a state machine: what workers say, results and time in; orders, seconds of the load and actions out. It does no
//! I/O and reads no clock (`simulation`).
//!
//! A load is gathered for, prepared, started and ended here; `member` knows one worker with its clock, `part` what one worker makes
//! of the load, `results` puts the seconds of all together.

mod member;
mod moving;
mod part;
mod results;
#[cfg(test)]
mod tests;

use crate::packed_workload::PackedWorkload;
use crate::protocol::{
    Announce, LATE_RESULTS_NS, LEASE_NS, LOST_AFTER_NS, Order, OrderBody, PREPARE_NS_MAX, Phase, Plan,
    REPEAT_EVERY_NS, Report, ReportKey, S, START_LEAD_NS,
};
use crate::shares;
use member::Member;
use part::Part;
use std::collections::{BTreeMap, VecDeque};
use webdyno_model::interval::{EndReason, Interval, LoadEnd};
use webdyno_model::worker::WorkerPart;
use webdyno_model::{Result, UserError};

/// Workers are waited for so long, when their number is known.
const GATHER_NS_MAX: u64 = 30 * S;
/// Those that are there say so within this time.
const GATHER_NS: u64 = 2 * S;
/// Results of a worker that says that its load is over are waited for so long.
const RESULTS_NS_MAX: u64 = 30 * S;

/// What is to be loaded, and by how many.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOrder {
    /// The number of the load in the session, from 1.
    pub load: u32,
    /// What is sent.
    pub workload: PackedWorkload,
    /// Most engine threads in all.
    pub threads_max: u32,
    /// How many workers there must be; `None`: those that are there.
    pub workers: Option<usize>,
    /// What becomes of a lost worker's part.
    pub on_loss: OnLoss,
}

/// What becomes of a lost worker's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// The load ends.
    #[default]
    End,
    /// Others have it, from a whole second on that comes when it has surely stopped.
    Move {
        /// Length of the load, seconds.
        seconds: Option<u64>,
    },
}

/// A load that another coordinator began, and what of it is in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumeOrder {
    /// The number of the load in the session.
    pub load: u32,
    /// The workers' parts, as they were written last.
    pub parts: Vec<WorkerPart>,
    /// Seconds of it that are in the log: at least those of the parts.
    pub logged_seconds: u64,
}

/// What the shell around it is to do.
#[derive(Debug)]
pub enum Action {
    /// Ask a worker for its clock; the answer goes to [`Coordinator::pong`].
    Ping {
        /// Its instance.
        worker: String,
        /// To be sent back.
        nonce: u64,
    },
    /// Sign an order and send it.
    Order(Box<Order>),
    /// A second of the load, of all workers together.
    Interval(Box<Interval>),
    /// What each worker came to, in the seconds before.
    Parts(Vec<WorkerPart>),
    /// Something a reader of the session should know.
    Note(String),
    /// The stream may forget a result.
    Acknowledge(ReportKey),
    /// The load is over.
    Ended(Box<LoadOutcome>),
    /// It could not be made.
    Failed(UserError),
}

/// What became of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOutcome {
    /// Its end, of all workers together.
    pub end: LoadEnd,
    /// Each worker's part.
    pub parts: Vec<WorkerPart>,
}

/// The coordinator of one session.
#[derive(Debug)]
pub struct Coordinator {
    session: String,
    members: BTreeMap<String, Member>,
    load: Option<Load>,
}

/// The load that is being made.
#[derive(Debug)]
struct Load {
    order: LoadOrder,
    stage: Stage,
    /// When this stage began.
    since_ns: u64,
    parts: Vec<Part>,
    /// When all begin, on this machine's clock.
    start_at_ns: u64,
    stop: Option<EndReason>,
    /// The next second that is put together.
    next_second: u64,
    /// Of one that another coordinator began: nothing is ordered any more.
    is_resumed: bool,
    /// Seconds that it had written.
    logged_before: u64,
    /// Results that are in seconds which may not be in the event log yet, with these seconds.
    unlogged: VecDeque<(u64, ReportKey)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Gathering,
    Preparing,
    Running,
    Over,
}

impl Coordinator {
    /// One that knows no worker yet. `session` is random.
    pub fn new(session: String) -> Self {
        Self { session, members: BTreeMap::new(), load: None }
    }

    /// Its session.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Begins a load. The one before must be over.
    pub fn begin(&mut self, now_ns: u64, order: LoadOrder) {
        self.load = Some(Load {
            order,
            stage: Stage::Gathering,
            since_ns: now_ns,
            parts: vec![],
            start_at_ns: 0,
            stop: None,
            next_second: 0,
            is_resumed: false,
            logged_before: 0,
            unlogged: VecDeque::new(),
        });
    }

    /// Takes up the results of a load whose coordinator is gone. Nothing is ordered: without a lease its workers stop it by themselves.
    /// An error when a histogram is damaged.
    pub fn resume(&mut self, now_ns: u64, order: ResumeOrder) -> Result<()> {
        let parts: Vec<Part> = order.parts.iter().map(Part::resumed).collect::<Result<_>>()?;
        for part in &order.parts {
            self.members.insert(part.instance.clone(), Member::from_part(now_ns, part));
        }
        let (load, workload) = (order.load, PackedWorkload::default());
        self.begin(now_ns, LoadOrder { load, workload, threads_max: 0, workers: None, on_loss: OnLoss::End });
        if let Some(load) = &mut self.load {
            (load.stage, load.parts, load.is_resumed) = (Stage::Running, parts, true);
            load.next_second = WorkerPart::seconds_of(&order.parts);
            load.logged_before = order.logged_seconds;
        }
        Ok(())
    }

    /// Whether nothing is under way.
    pub fn is_over(&self) -> bool {
        self.load.as_ref().is_none_or(|load| load.stage == Stage::Over)
    }

    /// Ends the load, at once.
    pub fn stop(&mut self, reason: EndReason) {
        if let Some(load) = &mut self.load {
            load.stop.get_or_insert(reason);
        }
    }

    /// What a worker says of itself.
    pub fn announced(&mut self, now_ns: u64, announce: Announce) {
        let member = self.members.entry(announce.instance.clone());
        member.or_insert_with(|| Member::new(announce.clone())).announced(now_ns, announce);
    }

    /// What a worker's clock showed, for a ping.
    pub fn pong(&mut self, now_ns: u64, worker: &str, nonce: u64, clock_ns: u64) {
        if let Some(member) = self.members.get_mut(worker) {
            member.pong(now_ns, nonce, clock_ns);
        }
    }

    /// A result of a worker. The stream may give it again and in any order.
    pub fn report(&mut self, report: Report) -> Vec<Action> {
        let key = report.key();
        // Before a load is begun or taken up nobody knows what is needed: the stream gives it again.
        let Some(load) = &mut self.load else { return vec![] };
        if load.order.load != report.load {
            return vec![Action::Acknowledge(key)];
        }
        let Some(part) = load.parts.iter_mut().find(|part| part.worker == report.worker) else {
            return vec![Action::Acknowledge(key)];
        };
        // What is on its way into the log is acknowledged when it is there.
        let is_kept = part.add(report.index, report.body)
            || part.waits_for(report.index)
            || load.unlogged.iter().any(|(_, unlogged)| *unlogged == key);
        if is_kept { vec![] } else { vec![Action::Acknowledge(key)] }
    }

    /// So many seconds of the load are in the event log: what they are made of need not be kept.
    pub fn logged(&mut self, seconds: u64) -> Vec<Action> {
        let Some(load) = &mut self.load else { return vec![] };
        let mut done = vec![];
        while load.unlogged.front().is_some_and(|(second, _)| *second < seconds) {
            done.extend(load.unlogged.pop_front().map(|(_, key)| Action::Acknowledge(key)));
        }
        done
    }

    /// What is due as time passes.
    pub fn tick(&mut self, now_ns: u64) -> Vec<Action> {
        let mut actions = vec![];
        let is_resumed = self.load.as_ref().is_some_and(|load| load.is_resumed);
        for (instance, member) in self.members.iter_mut().filter(|_| !is_resumed) {
            if let Some(nonce) = member.ping(now_ns) {
                actions.push(Action::Ping { worker: instance.clone(), nonce });
            }
        }
        match self.load.as_ref().map(|load| load.stage) {
            Some(Stage::Gathering) => actions.extend(self.gather(now_ns)),
            Some(Stage::Preparing) => actions.extend(self.prepare(now_ns)),
            Some(Stage::Running) => actions.extend(self.run(now_ns)),
            Some(Stage::Over) | None => {}
        }
        actions
    }

    /// Waits for the workers, and deals the load out.
    fn gather(&mut self, now_ns: u64) -> Vec<Action> {
        let Some(load) = &mut self.load else { return vec![] };
        if load.stop.is_some() {
            load.stage = Stage::Over;
            return vec![Action::Failed(UserError::interrupted())];
        }
        let waited_ns = now_ns.saturating_sub(load.since_ns);
        let moves = load.order.on_loss != OnLoss::End;
        self.members.values_mut().for_each(|member| member.set_moves(moves));
        let there =
            self.members.values().filter(|member| !member.is_silent(now_ns) && !member.announce.spare);
        let (free, others): (Vec<&Member>, Vec<&Member>) =
            there.partition(|member| member.is_free_for(&self.session));
        let all_compared = free.iter().all(|member| member.is_clock_known());
        let enough = match load.order.workers {
            Some(wanted) => free.len() >= wanted && all_compared,
            None => !free.is_empty() && waited_ns >= GATHER_NS && all_compared,
        };
        if !enough {
            return if waited_ns < GATHER_NS_MAX {
                vec![]
            } else {
                let error = too_few_workers(load.order.workers, &free, &others);
                load.stage = Stage::Over;
                vec![Action::Failed(error)]
            };
        }
        let mut chosen: Vec<String> = free.iter().map(|member| member.announce.instance.clone()).collect();
        chosen.sort_by_key(|instance| self.members[instance].announce.name.clone());
        chosen.truncate(load.order.workers.unwrap_or(usize::MAX));
        let announced = chosen.iter().map(|instance| &self.members[instance].announce);
        let offers: Vec<_> = announced.map(|announce| (announce.threads, announce.requests_per_s)).collect();
        let shares = shares::shares(&shares::capacities(&offers), load.order.threads_max);
        let parts = chosen.into_iter().zip(shares).filter_map(|(worker, share)| Some((worker, share?)));
        load.parts = parts
            .map(|(worker, share)| Part::new(self.members[&worker].announce.name.clone(), worker, share))
            .collect();
        (load.stage, load.since_ns) = (Stage::Preparing, now_ns);
        vec![Action::Parts(results::parts(load))]
    }

    /// Gives the plans until all are ready, and decides when to start.
    fn prepare(&mut self, now_ns: u64) -> Vec<Action> {
        let Some(load) = &mut self.load else { return vec![] };
        let (session, number) = (&self.session, load.order.load);
        let mut failure = load.stop.map(|_| UserError::interrupted());
        let mut ready = true;
        let mut actions = vec![];
        for part in &load.parts {
            let Some(member) = self.members.get_mut(&part.worker) else { continue };
            let status = member.status(session, number).cloned();
            match status.as_ref().map(|status| status.phase) {
                Some(Phase::Ready) => {
                    actions.extend(member.lease(now_ns, session));
                    continue;
                }
                Some(Phase::Preparing) => actions.extend(member.lease(now_ns, session)),
                Some(Phase::Over | Phase::Started) => {
                    let why = status.and_then(|status| status.why).unwrap_or_else(|| "it is over".into());
                    failure.get_or_insert(refused(&part.name, &why));
                }
                None => {
                    let body = plan_order(&load.order, part);
                    actions.extend(member.repeat(now_ns, session, (REPEAT_EVERY_NS, body)));
                }
            }
            ready = false;
            if member.is_silent(now_ns) {
                failure.get_or_insert(lost_before_start(&part.name));
            } else if now_ns > load.since_ns + PREPARE_NS_MAX {
                failure.get_or_insert(refused(&part.name, "it was not ready within 60 s"));
            }
        }
        if let Some(error) = failure {
            load.stage = Stage::Over;
            actions.extend(stop_orders(&mut self.members, (session, load), now_ns, EndReason::Interrupted));
            actions.push(Action::Failed(error));
        } else if ready {
            (load.stage, load.since_ns) = (Stage::Running, now_ns);
            load.start_at_ns = now_ns + START_LEAD_NS;
        }
        actions
    }

    /// Starts, keeps the leases, notices who is lost, stops, and puts the seconds together.
    fn run(&mut self, now_ns: u64) -> Vec<Action> {
        let Some(load) = &mut self.load else { return vec![] };
        let session = &self.session;
        let number = load.order.load;
        let mut actions = vec![];
        let mut lost = vec![];
        for (at, part) in load.parts.iter_mut().enumerate() {
            let Some(member) = self.members.get_mut(&part.worker) else { continue };
            let status = member.status(session, number);
            let phase = status.map(|status| status.phase);
            // Also of one that is over, and whose results are still on their way.
            let has_begun =
                phase == Some(Phase::Started) || status.is_some_and(|status| status.began_ns.is_some());
            if !load.is_resumed {
                let what = (&load.order, load.stop, load.start_at_ns);
                actions.extend(order_part(part, member, (now_ns, session), what));
            }
            let stopped_itself = part.has_stopped_itself() && load.stop.is_none() && !load.is_resumed;
            if part.is_complete() && !stopped_itself {
                continue;
            }
            let begins_ns = load.start_at_ns + part.from_s * S;
            let is_waited_for = part.end_index().is_none() && !has_begun;
            // One whose lease ended before it began is nobody's, and says nothing of this load. That it did not begin is known by
            // a question of a second later that it has answered: who is cut off is not heard, or late.
            let never_began = !load.is_resumed
                && is_waited_for
                && part.has_nothing()
                && member.answered_ns().is_some_and(|asked_ns| asked_ns > begins_ns + S);
            if part.lost_since_ns.is_none()
                && (member.is_silent(now_ns) || never_began || part.has_failed() || stopped_itself)
            {
                part.lost_since_ns = Some(now_ns);
                lost.push((at, part.loss_text(never_began, load.next_second)));
            }
            part.give_up_when_due(now_ns, member.last_contact_ns() + LEASE_NS + LATE_RESULTS_NS, never_began);
            if phase == Some(Phase::Over) || load.is_resumed {
                part.give_up_late(now_ns, RESULTS_NS_MAX);
            }
        }
        for (at, what) in lost {
            actions.extend(moving::lost(&mut self.members, load, (now_ns, session), (at, &what)));
        }
        actions.extend(results::merge_complete_seconds(load, session));
        actions
    }
}

/// What a worker that makes its part, or is to, is ordered now.
fn order_part(
    part: &mut Part,
    member: &mut Member,
    (now_ns, session): (u64, &str),
    (order, stop, start_at_ns): (&LoadOrder, Option<EndReason>, u64),
) -> Option<Action> {
    let load = order.load;
    // Others have its part, or nobody.
    let stop = stop.or(part.lost_since_ns.map(|_| EndReason::WorkerLost));
    let status = member.status(session, load).cloned();
    let phase = status.as_ref().map(|status| status.phase);
    part.round_trip_us = member.round_trip_ns() / 1000;
    part.began_ns = status.and_then(|status| status.began_ns).and_then(|ns| member.to_own_clock(ns));
    match (stop, phase) {
        (Some(reason), Some(Phase::Preparing | Phase::Ready | Phase::Started)) => {
            member.repeat(now_ns, session, (REPEAT_EVERY_NS, OrderBody::Stop { load, reason }))
        }
        (None, None) if part.from_s > 0 => {
            member.repeat(now_ns, session, (REPEAT_EVERY_NS, plan_order(order, part)))
        }
        (None, Some(Phase::Ready)) if now_ns < start_at_ns + part.from_s * S => {
            let at_ns = member.to_its_clock(start_at_ns);
            member.repeat(now_ns, session, (REPEAT_EVERY_NS / 2, OrderBody::Start { load, at_ns }))
        }
        (Some(_), _) if part.lost_since_ns.is_some() => None,
        _ => member.lease(now_ns, session),
    }
}

/// The order to make a part ready.
fn plan_order(order: &LoadOrder, part: &Part) -> OrderBody {
    let (load, share, from_s, workload) = (order.load, part.share, part.from_s, order.workload.clone());
    OrderBody::Prepare(Box::new(Plan { load, share, from_s, workload }))
}

/// Orders to end a load that failed, once: a lease ends it otherwise.
fn stop_orders(
    members: &mut BTreeMap<String, Member>,
    (session, load): (&str, &Load),
    now_ns: u64,
    reason: EndReason,
) -> Vec<Action> {
    let body = || OrderBody::Stop { load: load.order.load, reason };
    let workers = load.parts.iter().map(|part| &part.worker);
    workers.filter_map(|worker| members.get_mut(worker)?.order(now_ns, session, body())).collect()
}

fn too_few_workers(wanted: Option<usize>, free: &[&Member], others: &[&Member]) -> UserError {
    let wanted = wanted.map_or("at least one worker".into(), |wanted| format!("{wanted} workers"));
    let mut text = format!("{wanted} must be there, and there are {}", free.len());
    let slow = free.iter().filter(|member| !member.is_clock_known());
    let slow =
        slow.map(|member| format!("; {} answers too slowly to begin with others", member.announce.name));
    text.extend(slow);
    for member in others {
        text.push_str(&format!("; {}", member.why_not_free()));
    }
    UserError::cannot_run(text).hint(
        "start one on each machine: webdyno worker --on nats://HOST --trust KEY; its output says whether it is connected",
    )
}

fn refused(name: &str, why: &str) -> UserError {
    UserError::cannot_run(format!("worker {name} does not make its part of the load: {why}"))
        .hint("its operator decides what it may load: --allow-target, --max-rate and --max-seconds of webdyno worker")
}

fn lost_before_start(name: &str) -> UserError {
    UserError::cannot_run(format!(
        "worker {name} was not heard for {} s before the load began",
        LOST_AFTER_NS / S
    ))
    .hint("look at its output, and whether its machine reaches the servers of --on")
}
