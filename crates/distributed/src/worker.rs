//! A worker as a state machine: orders, results of its engine and time in, messages and actions out. It does no I/O and reads no
//! clock, so that it can be simulated with its coordinator (`simulation`).

use crate::admission::Limits;
use crate::protocol::{
    ANNOUNCE_EVERY_NS, Announce, LEASE_NS, LoadStatus, Order, OrderBody, Phase, Plan, REPEAT_EVERY_NS,
    Report, ReportBody, ReportKey, S, VERSION,
};
use std::collections::{BTreeMap, VecDeque};
use webdyno_model::interval::{EndReason, Interval, LoadEnd};
use webdyno_model::worker::LoadShare;
use webdyno_model::workload::Workload;

/// Results that nobody took are given again after this time.
const RESULT_REPEAT_NS: u64 = 4 * REPEAT_EVERY_NS;

/// What a worker is.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerInfo {
    /// The build of the program.
    pub build: String,
    /// Random, of this process alone.
    pub instance: String,
    /// The name that people know.
    pub name: String,
    /// Engine threads that it can run.
    pub threads: u32,
    /// What each of them can send, by [`crate::calibration`].
    pub requests_per_s: Option<u32>,
    /// What it agrees to do.
    pub limits: Limits,
    /// Whether it takes only parts of workers that were lost.
    pub spare: bool,
}

/// What the shell around it is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Say the state to all coordinators.
    Announce(Box<Announce>),
    /// Make a load ready, and say so with [`Worker::prepared`].
    Prepare(Box<PreparedPlan>),
    /// Begin it at this moment.
    Start {
        /// On this machine's clock.
        at_ns: u64,
    },
    /// The load may go on until this moment, and no longer.
    KeepUntil(u64),
    /// End it; if it did not begin, forget it.
    Stop(EndReason),
    /// Give a result to the stream, and say so with [`Worker::taken`].
    Publish(Box<Report>),
    /// An order was refused: for the log.
    Refused(String),
}

/// A plan that was agreed to.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedPlan {
    /// Whose load it is.
    pub session: String,
    /// Its load.
    pub load: u32,
    /// The part of this machine.
    pub share: LoadShare,
    /// The second of the load from which it is that.
    pub from_s: u64,
    /// What is sent.
    pub workload: Workload,
}

/// The worker.
#[derive(Debug)]
pub struct Worker {
    info: WorkerInfo,
    owner: Option<Owner>,
    load: Option<Load>,
    /// The last sequence of each session, and until when its orders count.
    sequences: BTreeMap<String, (u64, u64)>,
    /// Results that the stream has not taken yet, and when they were given to it last.
    outbox: VecDeque<(Report, u64)>,
    announced_ns: Option<u64>,
}

/// The session that the worker works for.
#[derive(Debug)]
struct Owner {
    session: String,
    lease_until_ns: u64,
}

#[derive(Debug)]
struct Load {
    session: String,
    status: LoadStatus,
    /// The index of its next result: the second of the load.
    next: u64,
    from_s: u64,
    /// When it is ended whatever its owner wants.
    ends_by_ns: Option<u64>,
    stopped: bool,
}

impl Worker {
    /// One without an owner.
    pub fn new(info: WorkerInfo) -> Self {
        let (sequences, outbox) = (BTreeMap::new(), VecDeque::new());
        Self { info, owner: None, load: None, sequences, outbox, announced_ns: None }
    }

    /// What is done on an order whose signature is right.
    pub fn order(&mut self, now_ns: u64, order: Order) -> Vec<Action> {
        if let Err(why) = self.check(now_ns, &order) {
            return vec![Action::Refused(format!("an order of session {}: {why}", order.session))];
        }
        self.sequences.retain(|_, (_, expires_ns)| *expires_ns > now_ns);
        self.sequences.insert(order.session.clone(), (order.sequence, order.expires_ns));
        match &mut self.owner {
            Some(owner) if owner.session == order.session => {
                owner.lease_until_ns = owner.lease_until_ns.max(order.expires_ns);
            }
            // Only who gives work owns a worker.
            _ if matches!(order.body, OrderBody::Prepare(_)) => {
                self.owner = Some(Owner { session: order.session.clone(), lease_until_ns: order.expires_ns });
            }
            _ => return vec![],
        }
        let until_ns = self.owner.as_ref().map_or(0, |owner| owner.lease_until_ns);
        let actions = match order.body {
            OrderBody::Lease => vec![],
            OrderBody::Prepare(plan) => self.prepare(now_ns, &order.session, &plan),
            OrderBody::Start { load, at_ns } => self.start(now_ns, load, at_ns),
            OrderBody::Stop { load, reason } => self.stop(now_ns, load, reason),
        };
        std::iter::once(Action::KeepUntil(until_ns)).chain(actions).collect()
    }

    /// Why an order is refused.
    fn check(&self, now_ns: u64, order: &Order) -> Result<(), String> {
        if order.version != VERSION {
            return Err(format!("it is of version {}, and this worker of version {VERSION}", order.version));
        }
        if order.worker != self.info.instance {
            return Err("it is for another worker".into());
        }
        if order.expires_ns <= now_ns {
            return Err("it has expired".into());
        }
        if order.expires_ns > now_ns + LEASE_NS + S {
            return Err("it counts for longer than an order may".into());
        }
        let last = self.sequences.get(&order.session).map_or(0, |(last, _)| *last);
        if order.sequence <= last {
            return Err(format!("its number {} was used already (the last one is {last})", order.sequence));
        }
        let busy = self.load.as_ref().is_some_and(|load| load.status.phase != Phase::Over);
        match &self.owner {
            Some(owner) if owner.session != order.session && busy => {
                Err(format!("this worker works for session {}", owner.session))
            }
            _ => Ok(()),
        }
    }

    fn prepare(&mut self, now_ns: u64, session: &str, plan: &Plan) -> Vec<Action> {
        let number = plan.load;
        // Given again, or one that is over: a load is made once.
        if self.load.as_ref().is_some_and(|load| load.session == session && load.status.load >= number) {
            return vec![];
        }
        let agreed = self.agree(session, plan);
        let phase = if agreed.is_ok() { Phase::Preparing } else { Phase::Over };
        let status = LoadStatus { load: number, phase, why: agreed.as_ref().err().cloned(), began_ns: None };
        let session = session.to_owned();
        let (next, from_s) = (plan.from_s, plan.from_s);
        self.load = Some(Load { session, status, next, from_s, ends_by_ns: None, stopped: false });
        let refused = agreed.as_ref().err().map(|why| Action::Refused(format!("a plan: {why}")));
        let prepare = agreed.ok().map(|plan| Action::Prepare(Box::new(plan)));
        refused.into_iter().chain(prepare).chain([self.announce(now_ns)]).collect()
    }

    /// The plan, if it is one that this worker makes.
    fn agree(&self, session: &str, plan: &Plan) -> Result<PreparedPlan, String> {
        let share = plan.share;
        let end = u64::from(share.first_thread) + u64::from(share.threads);
        if share.threads == 0 || share.threads > self.info.threads || end > u64::from(share.total_threads) {
            return Err(format!(
                "its part has the threads {} to {end} of {}, and this worker has {}",
                share.first_thread, share.total_threads, self.info.threads
            ));
        }
        let workload = plan.workload.unpack().map_err(|error| error.message)?;
        self.info.limits.check(&workload, f64::from(share.threads) / f64::from(share.total_threads))?;
        Ok(PreparedPlan { session: session.into(), load: plan.load, share, from_s: plan.from_s, workload })
    }

    fn start(&mut self, now_ns: u64, number: u32, at_ns: u64) -> Vec<Action> {
        let seconds_max = self.info.limits.seconds_max;
        let Some(load) = self.load.as_mut().filter(|load| load.status.load == number) else { return vec![] };
        if load.status.phase != Phase::Ready {
            return vec![];
        }
        let begins_ns = at_ns.saturating_add(load.from_s * S);
        if begins_ns <= now_ns {
            load.over(Some("the order to begin came after the common start".into()));
            return vec![Action::Stop(EndReason::Interrupted), self.announce(now_ns)];
        }
        load.status.phase = Phase::Started;
        load.ends_by_ns = seconds_max.map(|seconds| begins_ns + seconds * S);
        vec![Action::Start { at_ns }, self.announce(now_ns)]
    }

    fn stop(&mut self, now_ns: u64, number: u32, reason: EndReason) -> Vec<Action> {
        let Some(load) = self.load.as_mut().filter(|load| load.status.load == number) else { return vec![] };
        match load.stop(reason) {
            Some(action) => vec![action, self.announce(now_ns)],
            None => vec![],
        }
    }

    /// That a load was made ready, or why it cannot be. It may be one that was stopped meanwhile, and each session counts
    /// its own.
    pub fn prepared(
        &mut self,
        now_ns: u64,
        session: &str,
        number: u32,
        result: Result<(), String>,
    ) -> Vec<Action> {
        let Some(load) = self.load.as_mut() else { return vec![] };
        let is_it = load.session == session && load.status.load == number;
        if !is_it || load.status.phase != Phase::Preparing {
            return vec![];
        }
        match result {
            Ok(()) => load.status.phase = Phase::Ready,
            Err(why) => load.over(Some(why)),
        }
        vec![self.announce(now_ns)]
    }

    /// That the engine has begun.
    pub fn began(&mut self, now_ns: u64, began_ns: u64) -> Vec<Action> {
        let Some(load) = self.load.as_mut() else { return vec![] };
        load.status.began_ns = Some(began_ns);
        vec![self.announce(now_ns)]
    }

    /// A second of the engine's.
    pub fn interval(&mut self, now_ns: u64, interval: Box<Interval>) -> Vec<Action> {
        self.report(now_ns, ReportBody::Interval(interval))
    }

    /// The end of the engine.
    pub fn ended(&mut self, now_ns: u64, end: Result<LoadEnd, String>) -> Vec<Action> {
        let why = end.as_ref().err().cloned();
        let mut actions = self.report(now_ns, ReportBody::End { end: end.ok(), why: why.clone() });
        if let Some(load) = &mut self.load {
            load.over(why);
        }
        actions.push(self.announce(now_ns));
        actions
    }

    fn report(&mut self, now_ns: u64, body: ReportBody) -> Vec<Action> {
        let Some(load) = &mut self.load else { return vec![] };
        let (session, worker) = (load.session.clone(), self.info.instance.clone());
        let report = Report { session, load: load.status.load, worker, index: load.next, body };
        load.next += 1;
        self.outbox.push_back((report.clone(), now_ns));
        vec![Action::Publish(Box::new(report))]
    }

    /// Whether it is this load that it makes.
    pub fn has(&self, number: u32) -> bool {
        self.load
            .as_ref()
            .is_some_and(|load| load.status.load == number && load.status.phase == Phase::Started)
    }

    /// The stream has a result, and will keep it.
    pub fn taken(&mut self, key: &ReportKey) {
        self.outbox.retain(|(report, _)| report.key() != *key);
    }

    /// Whether it has no load.
    pub fn is_idle(&self) -> bool {
        self.load.as_ref().is_none_or(|load| load.status.phase == Phase::Over)
    }

    /// Whether every result has been taken.
    pub fn is_drained(&self) -> bool {
        self.outbox.is_empty() && self.is_idle()
    }

    /// What is due as time passes.
    pub fn tick(&mut self, now_ns: u64) -> Vec<Action> {
        let mut actions = vec![];
        let orphaned = self.owner.as_ref().is_none_or(|owner| owner.lease_until_ns <= now_ns);
        if let Some(load) = &mut self.load {
            let stop = if orphaned {
                load.stop(EndReason::Interrupted)
            } else if load.ends_by_ns.is_some_and(|ends_ns| ends_ns <= now_ns) {
                load.stop(EndReason::Duration)
            } else {
                None
            };
            if let Some(stop) = stop {
                let why =
                    if orphaned { "its owner is gone" } else { "it lasts as long as this worker allows" };
                actions.push(Action::Refused(format!("load {} was stopped: {why}", load.status.load)));
                actions.push(stop);
            }
        }
        if orphaned && self.load.as_ref().is_none_or(|load| load.status.phase == Phase::Over) {
            self.owner = None;
        }
        for (report, given_ns) in &mut self.outbox {
            if now_ns >= *given_ns + RESULT_REPEAT_NS {
                *given_ns = now_ns;
                actions.push(Action::Publish(Box::new(report.clone())));
            }
        }
        if self.announced_ns.is_none_or(|announced_ns| now_ns >= announced_ns + ANNOUNCE_EVERY_NS) {
            actions.push(self.announce(now_ns));
        }
        actions
    }

    fn announce(&mut self, now_ns: u64) -> Action {
        self.announced_ns = Some(now_ns);
        let WorkerInfo { build, instance, name, threads, requests_per_s, spare, .. } = self.info.clone();
        let session = self.owner.as_ref().map(|owner| owner.session.clone());
        let load = self.load.as_ref().filter(|load| Some(&load.session) == session.as_ref());
        let load = load.map(|load| load.status.clone());
        Action::Announce(Box::new(Announce {
            version: VERSION,
            build,
            instance,
            name,
            threads,
            requests_per_s,
            spare,
            session,
            load,
        }))
    }
}

impl Load {
    fn over(&mut self, why: Option<String>) {
        self.status.phase = Phase::Over;
        self.status.why = why;
    }

    /// What stops it; nothing when it is over or being stopped.
    fn stop(&mut self, reason: EndReason) -> Option<Action> {
        match self.status.phase {
            Phase::Over => None,
            Phase::Started => (!std::mem::replace(&mut self.stopped, true)).then_some(Action::Stop(reason)),
            Phase::Preparing | Phase::Ready => {
                self.over(Some("it was stopped before it began".into()));
                Some(Action::Stop(reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed_workload::PackedWorkload;
    use webdyno_model::workload::RequestSpec;

    fn worker() -> Worker {
        let limits = Limits { seconds_max: Some(60), ..Limits::default() };
        let (build, instance, name) = ("b".into(), "w1".into(), "one".into());
        Worker::new(WorkerInfo {
            build,
            instance,
            name,
            threads: 2,
            requests_per_s: None,
            limits,
            spare: false,
        })
    }

    fn plan(load: u32, url: &str) -> OrderBody {
        let request = RequestSpec { url: url.into(), ..RequestSpec::default() };
        let workload = Workload { requests: vec![request], ..Workload::default() };
        let share = LoadShare { first_thread: 2, threads: 2, total_threads: 4 };
        OrderBody::Prepare(Box::new(Plan {
            load,
            share,
            from_s: 0,
            workload: PackedWorkload::pack(&workload).unwrap(),
        }))
    }

    fn order(sequence: u64, body: OrderBody) -> Order {
        let (session, worker) = ("s".into(), "w1".into());
        Order { version: VERSION, session, worker, sequence, expires_ns: 5 * S, body }
    }

    fn refusal(actions: &[Action]) -> Option<&str> {
        actions.iter().find_map(|action| match action {
            Action::Refused(why) => Some(why.as_str()),
            _ => None,
        })
    }

    fn begins(actions: &[Action]) -> bool {
        actions.iter().any(|action| matches!(action, Action::Start { .. } | Action::Prepare(_)))
    }

    #[test]
    fn orders_that_are_not_for_now_and_here_are_refused() {
        let local = "http://127.0.0.1/";
        let altered = |change: fn(&mut Order)| {
            let mut order = order(7, plan(1, local));
            change(&mut order);
            order
        };
        for (order, why) in [
            (altered(|_| ()), None),
            (altered(|order| order.version = 9), Some("version 9")),
            (altered(|order| order.worker = "w2".into()), Some("another worker")),
            (altered(|order| order.expires_ns = S), Some("expired")),
            (altered(|order| order.expires_ns = 3600 * S), Some("longer")),
            (altered(|order| order.body = plan(1, "http://shop.example/")), Some("not a target")),
            (
                altered(|order| {
                    if let OrderBody::Prepare(plan) = &mut order.body {
                        plan.share.threads = 3
                    }
                }),
                Some("threads"),
            ),
        ] {
            let actions = worker().order(2 * S, order);
            match why {
                None => assert!(refusal(&actions).is_none() && begins(&actions), "{actions:?}"),
                Some(why) => {
                    assert!(refusal(&actions).is_some_and(|text| text.contains(why)), "{why}: {actions:?}");
                    assert!(!begins(&actions));
                }
            }
        }
    }

    #[test]
    fn a_replayed_order_does_nothing() {
        let mut worker = worker();
        let first = order(1, plan(1, "http://127.0.0.1/"));
        assert!(begins(&worker.order(S, first.clone())));
        assert!(refusal(&worker.order(S, first)).unwrap().contains("used already"));
        worker.prepared(S, "s", 1, Ok(()));
        let start = order(2, OrderBody::Start { load: 1, at_ns: 3 * S });
        assert!(begins(&worker.order(2 * S, start.clone())));
        assert!(!begins(&worker.order(2 * S, start)));
        // The same load under a new number is the same load.
        assert!(!begins(&worker.order(2 * S, order(3, plan(1, "http://127.0.0.1/")))));
        worker.ended(4 * S, Err("x".into()));
        assert!(!begins(&worker.order(4 * S, order(4, plan(1, "http://127.0.0.1/")))));
    }

    #[test]
    fn another_session_waits_until_the_worker_is_free() {
        let mut worker = worker();
        worker.order(S, order(1, plan(1, "http://127.0.0.1/")));
        let other = || Order { session: "t".into(), ..order(1, plan(1, "http://127.0.0.1/")) };
        assert!(refusal(&worker.order(S, other())).unwrap().contains("works for session s"));
        worker.order(S, order(2, OrderBody::Stop { load: 1, reason: EndReason::Enough }));
        assert!(begins(&worker.order(S, other())));
        // What was still being made ready for the one before says nothing of its own.
        let start = Order { session: "t".into(), ..order(2, OrderBody::Start { load: 1, at_ns: 3 * S }) };
        for (session, result) in [("s", Ok(())), ("s", Err("nobody listens".into())), ("t", Ok(()))] {
            let is_taken = !worker.prepared(S, session, 1, result).is_empty();
            assert_eq!(is_taken, session == "t");
        }
        assert!(begins(&worker.order(S, start)));
    }

    #[test]
    fn a_load_ends_with_its_lease_and_with_the_time_that_is_allowed() {
        for (lease_until_s, stopped_at_s) in [(5, 5), (1000, 63)] {
            let mut worker = worker();
            worker.order(S, order(1, plan(1, "http://127.0.0.1/")));
            worker.prepared(S, "s", 1, Ok(()));
            worker.order(2 * S, order(2, OrderBody::Start { load: 1, at_ns: 3 * S }));
            let mut stopped = None;
            for second in 3..90 {
                if second < lease_until_s {
                    let lease = Order {
                        expires_ns: (second + 2).min(lease_until_s) * S,
                        ..order(100 + second, OrderBody::Lease)
                    };
                    worker.order(second * S, lease);
                }
                let stops = |action: &Action| matches!(action, Action::Stop(_));
                if worker.tick(second * S).iter().any(stops) {
                    stopped.get_or_insert(second);
                }
            }
            assert_eq!(stopped, Some(stopped_at_s));
        }
    }

    #[test]
    fn results_are_given_again_until_they_are_taken() {
        let mut worker = worker();
        worker.order(S, order(1, plan(1, "http://127.0.0.1/")));
        let published = |actions: Vec<Action>| {
            actions.into_iter().find_map(|action| match action {
                Action::Publish(report) => Some(*report),
                _ => None,
            })
        };
        let report = published(worker.interval(2 * S, Box::default())).unwrap();
        assert!(published(worker.tick(2 * S)).is_none());
        assert_eq!(published(worker.tick(60 * S)).unwrap(), report);
        worker.taken(&report.key());
        assert!(published(worker.tick(120 * S)).is_none());
    }
}
