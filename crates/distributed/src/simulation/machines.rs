//! What is simulated: time, machines, the network and the broker between them.

use super::engine::{Engine, SECONDS};
use super::random::Random;
use crate::admission::Limits;
use crate::coordinator::{self, Coordinator, LoadOrder, OnLoss, ResumeOrder};
use crate::packed_workload::PackedWorkload;
use crate::protocol::{Announce, Order, Report, ReportKey, S, TICK_NS};
use crate::worker::{self, Worker, WorkerInfo};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use webdyno_model::worker::WorkerPart;
use webdyno_model::workload::{Arrival, RequestSpec, Stop, Workload};

const MS: u64 = 1_000_000;
/// No load may run longer than this without an owner; a pause of its process ends at a tick.
const ORPHAN_NS_MAX: u64 = 10 * S + 2 * TICK_NS;
/// The broker gives a result again that was not acknowledged.
const REDELIVER_NS: u64 = 3 * S;
/// By then everything is over.
const ENDS_NS: u64 = 100 * S;

/// What goes wrong.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    /// Shares of messages.
    pub(super) loss: f64,
    pub(super) repeat: f64,
    pub(super) delay_ms_max: u64,
    /// When worker 0 is killed, and when the coordinator.
    pub(super) killed_worker_ms: Option<u64>,
    pub(super) killed_coordinator_ms: Option<u64>,
    /// How long after that another coordinator takes up its results.
    pub(super) resumed_after_ms: Option<u64>,
    /// Whose link is cut, from and until when; 0 is the coordinator's, further ones are of workers.
    pub(super) cuts: Vec<(usize, u64, u64)>,
    /// Whether a lost worker's part goes to others.
    pub(super) moves: bool,
    /// Which worker is paused, from and until when: to it the clock jumps.
    pub(super) pauses: Vec<(usize, u64, u64)>,
}

impl Faults {
    /// Some of everything.
    pub(super) fn draw(random: &mut Random) -> Self {
        let window = |random: &mut Random, nodes: u64| {
            let (node, from, length) = (random.below(nodes), random.below(18_000), random.below(15_000));
            (node as usize, from, from + length)
        };
        let bad = random.chance(0.5);
        let mut kill = |share| random.chance(share).then(|| random.below(16_000));
        let (killed_worker_ms, killed_coordinator_ms) = (kill(0.2), kill(0.15));
        let cuts = (0..random.below(3)).map(|_| window(random, 5)).collect();
        let pauses = (0..random.below(2)).map(|_| window(random, 4)).collect();
        let moves = random.chance(0.5);
        let resumed_after_ms = random.chance(0.6).then(|| random.below(20_000));
        Self {
            loss: if bad { random.fraction() * 0.3 } else { 0.0 },
            repeat: if bad { random.fraction() * 0.3 } else { 0.0 },
            delay_ms_max: if bad { random.below(400) } else { 3 },
            killed_worker_ms,
            killed_coordinator_ms,
            resumed_after_ms,
            moves,
            cuts,
            pauses,
        }
    }
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Ended(Vec<WorkerPart>),
    Failed(#[allow(dead_code)] String),
    CoordinatorDied,
}

#[derive(Debug, Clone)]
enum Event {
    /// Of the coordinator, or a worker by its number.
    TickCoordinator,
    TickWorker(usize),
    ToWorker(usize, Box<Order>),
    Ping(usize, u64),
    Pong(usize, u64, u64),
    Heard(Box<Announce>),
    /// At the broker.
    Published(usize, Box<Report>),
    Taken(usize, ReportKey),
    Deliver(Box<Report>),
    Acknowledged(ReportKey),
    Prepared(usize, String, u32),
    Redeliver,
}

struct Machine {
    worker: Worker,
    engine: Option<Engine>,
    /// Its part, and from which second on it has that.
    share: Option<(webdyno_model::worker::LoadShare, u64)>,
    until_ns: u64,
    /// Its clock: an offset and a drift.
    offset_ns: u64,
    drift: f64,
    alive: bool,
    /// When an order of its owner was sent last that reached it.
    owned_ns: u64,
    /// Seconds that its engine reported, completed requests each.
    own: Vec<u64>,
    began_ns: Option<u64>,
}

/// All of it.
pub(super) struct Simulation {
    random: Random,
    faults: Faults,
    now_ns: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    numbered: u64,
    coordinator: Coordinator,
    coordinator_alive: bool,
    machines: Vec<Machine>,
    /// What the broker keeps, and has ever kept.
    stream: BTreeMap<ReportKey, Report>,
    known: BTreeSet<ReportKey>,
    sent: BTreeSet<u64>,
    /// Completed requests of each second of the log.
    log: Vec<u64>,
    /// Seconds of it with the parts of the workers; all there can be when its end is there.
    logged_seconds: u64,
    parts: Vec<WorkerPart>,
    is_resumed: bool,
    /// Times at which orders were sent, by worker and sequence.
    order_sent_ns: BTreeMap<(usize, u64), u64>,
    outcome: Option<Outcome>,
}

/// Of each process the part of its machine, and behind all of these one more that is spare.
fn machines(count: usize, random: &mut Random) -> Vec<Machine> {
    let hosts: Vec<(u32, u64, f64)> = (0..count)
        .map(|_| {
            let threads = 1 + random.below(4) as u32;
            (threads, random.below(1000 * S), 1.0 + (random.fraction() - 0.5) * 2e-4)
        })
        .collect();
    let machine = |number: usize| {
        let (host, spare) = (number % count, number >= count);
        let (threads, offset_ns, drift) = hosts[host];
        let (build, name) = ("b".into(), format!("worker-{host}"));
        let instance = format!("w{host}.{}", number / count);
        let limits = Limits::default();
        Machine {
            worker: Worker::new(WorkerInfo {
                build,
                instance,
                name,
                threads,
                requests_per_s: None,
                limits,
                spare,
            }),
            engine: None,
            share: None,
            until_ns: 0,
            offset_ns,
            drift,
            alive: true,
            owned_ns: 0,
            own: vec![],
            began_ns: None,
        }
    };
    (0..2 * count).map(machine).collect()
}

impl Simulation {
    pub(super) fn new(seed: u64, faults: &Faults) -> Self {
        let mut random = Random::new(seed);
        let count = 2 + random.below(3) as usize;
        let machines = machines(count, &mut random);
        let mut simulation = Self {
            random,
            faults: faults.clone(),
            now_ns: S,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            numbered: 0,
            coordinator: Coordinator::new("s".into()),
            coordinator_alive: true,
            machines,
            stream: BTreeMap::new(),
            known: BTreeSet::new(),
            sent: BTreeSet::new(),
            log: vec![],
            logged_seconds: 0,
            parts: vec![],
            is_resumed: false,
            order_sent_ns: BTreeMap::new(),
            outcome: None,
        };
        let request = RequestSpec { url: "http://127.0.0.1/".into(), ..RequestSpec::default() };
        let workload = Workload {
            requests: vec![request],
            arrival: Arrival::Open { rate_per_s: super::engine::RATE as f64, poisson: false },
            stop: Stop { duration_us: Some(SECONDS * 1_000_000), requests: None },
            ..Workload::default()
        };
        let workload = PackedWorkload::pack(&workload).unwrap();
        let workers = Some(count);
        let on_loss = if faults.moves { OnLoss::Move { seconds: Some(SECONDS) } } else { OnLoss::End };
        let order = LoadOrder { load: 1, workload, threads_max: 1000, workers, on_loss };
        simulation.coordinator.begin(simulation.now_ns, order);
        simulation.at(simulation.now_ns, Event::TickCoordinator);
        (0..2 * count).for_each(|number| {
            simulation.at(simulation.now_ns + number as u64 * MS, Event::TickWorker(number))
        });
        simulation.at(simulation.now_ns, Event::Redeliver);
        simulation
    }

    /// Runs until everything is over.
    pub(super) fn run(mut self) -> Outcome {
        while let Some(Reverse((at_ns, number))) = self.queue.pop() {
            let Some(event) = self.events.remove(&number) else { continue };
            self.now_ns = at_ns;
            if at_ns > ENDS_NS {
                break;
            }
            self.kill();
            self.handle(event);
            let engines_run = self.machines.iter().any(|machine| machine.alive && machine.engine.is_some());
            let nobody_cares = self.outcome.is_some() || !self.coordinator_alive;
            if nobody_cares && !engines_run && self.now_ns > 40 * S {
                break;
            }
        }
        for machine in self.machines.iter().filter(|machine| machine.alive) {
            assert!(machine.engine.is_none(), "a load runs on for ever");
        }
        if !self.coordinator_alive && self.outcome.is_none() {
            return Outcome::CoordinatorDied;
        }
        self.check_log();
        self.outcome.unwrap_or_else(|| panic!("the load never ends"))
    }

    /// Every second of every worker is in the log once, up to where it was lost.
    fn check_log(&self) {
        let Some(Outcome::Ended(parts)) = &self.outcome else { return };
        for part in parts {
            let own = &self.machines[self.number_of(&part.instance)].own;
            let taken = part.lost_at_s.map_or(own.len(), |lost_s| (lost_s - part.from_s) as usize);
            assert!(taken <= own.len());
            assert_eq!(part.completed, own[..taken].iter().sum::<u64>(), "{part:?} of {own:?}");
        }
        let in_log: u64 = self.log.iter().sum();
        assert_eq!(in_log, parts.iter().map(|part| part.completed).sum::<u64>());
        if parts.iter().all(|part| part.lost_at_s.is_none()) && self.log.len() as u64 >= SECONDS {
            assert_eq!(in_log, self.sent.len() as u64, "all that was sent is in the log");
            // One that was orphaned may have stopped within its last second.
            assert!(self.is_resumed || in_log == SECONDS * super::engine::RATE, "{in_log}");
            let began: Vec<u64> = self.machines.iter().filter_map(|machine| machine.began_ns).collect();
            let spread = began.iter().max().unwrap() - began.iter().min().unwrap();
            // Each offset is wrong by at most half of a round trip, and by what clocks drifted since.
            assert!(spread <= 2 * self.faults.delay_ms_max * MS + 5 * MS, "{spread}");
        }
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.numbered += 1;
        self.events.insert(self.numbered, event);
        self.queue.push(Reverse((at_ns, self.numbered)));
    }

    fn kill(&mut self) {
        let has_come = |ms: Option<u64>, now_ns: u64| ms.is_some_and(|ms| now_ns >= S + ms * MS);
        if has_come(self.faults.killed_worker_ms, self.now_ns) {
            let hosts = self.hosts();
            self.machines[0].alive = false;
            self.machines[hosts].alive = false;
        }
        if has_come(self.faults.killed_coordinator_ms, self.now_ns) && !self.is_resumed {
            self.coordinator_alive = false;
        }
        let resumed_ms = self.faults.killed_coordinator_ms.zip(self.faults.resumed_after_ms);
        if has_come(resumed_ms.map(|(killed_ms, after_ms)| killed_ms + after_ms), self.now_ns) {
            self.resume();
        }
    }

    /// Another coordinator goes on with the log of the one that was killed, once; some of its last seconds never reached the disk.
    fn resume(&mut self) {
        if self.is_resumed || self.parts.is_empty() || self.outcome.is_some() {
            return;
        }
        self.is_resumed = true;
        self.coordinator_alive = true;
        let certain = self.logged_seconds as usize;
        let kept = certain + self.random.below((self.log.len() - certain) as u64 + 1) as usize;
        self.log.truncate(kept);
        self.coordinator = Coordinator::new("s".into());
        let order = ResumeOrder { load: 1, parts: self.parts.clone(), logged_seconds: kept as u64 };
        self.coordinator.resume(self.now_ns, order).unwrap();
        self.at(self.now_ns, Event::TickCoordinator);
    }

    fn is_in(windows: &[(usize, u64, u64)], node: usize, now_ns: u64) -> bool {
        let ms = now_ns.saturating_sub(S) / MS;
        windows.iter().any(|(of, from, to)| *of == node && (*from..*to).contains(&ms))
    }

    /// Sends through the broker: node 0 is the coordinator, node 1 + n worker n. `None` for the broker itself.
    fn send(&mut self, from: Option<usize>, to: Option<usize>, event: Event) {
        let copies = 1 + usize::from(self.random.chance(self.faults.repeat));
        for _ in 0..copies {
            let delay_ns = self.random.below(self.faults.delay_ms_max * MS + 1) + MS / 10;
            let arrives_ns = self.now_ns + delay_ns;
            let cut = [from.map(|node| (node, self.now_ns)), to.map(|node| (node, arrives_ns))];
            let hosts = self.hosts();
            let machine = |node: usize| if node == 0 { 0 } else { 1 + (node - 1) % hosts };
            let is_cut = cut
                .into_iter()
                .flatten()
                .any(|(node, at_ns)| Self::is_in(&self.faults.cuts, machine(node), at_ns));
            if !is_cut && !self.random.chance(self.faults.loss) {
                self.at(arrives_ns, event.clone());
            }
        }
    }

    fn hosts(&self) -> usize {
        self.machines.len() / 2
    }

    fn number_of(&self, instance: &str) -> usize {
        let (host, seat) = instance[1..].split_once('.').unwrap();
        host.parse::<usize>().unwrap() + seat.parse::<usize>().unwrap() * self.hosts()
    }

    fn instance(&self, number: usize) -> String {
        format!("w{}.{}", number % self.hosts(), number / self.hosts())
    }

    fn clock(&self, number: usize) -> u64 {
        let machine = &self.machines[number];
        machine.offset_ns + (self.now_ns as f64 * machine.drift) as u64
    }

    fn is_paused(&self, number: usize) -> bool {
        Self::is_in(&self.faults.pauses, number % self.hosts(), self.now_ns)
    }

    fn handle(&mut self, event: Event) {
        let worker_of = match &event {
            Event::TickWorker(number)
            | Event::ToWorker(number, _)
            | Event::Ping(number, _)
            | Event::Taken(number, _)
            | Event::Prepared(number, ..) => Some(*number),
            _ => None,
        };
        if let Some(number) = worker_of {
            if !self.machines[number].alive {
                return;
            }
            if self.is_paused(number) {
                // It is handled when the process goes on.
                return self.at(self.now_ns + 50 * MS, event);
            }
            self.advance_engine(number);
            return self.handle_at_worker(number, event);
        }
        match event {
            Event::Published(number, report) => {
                let key = report.key();
                if self.known.insert(key.clone()) {
                    self.stream.insert(key.clone(), *report.clone());
                    self.send(None, Some(0), Event::Deliver(report));
                }
                self.send(None, Some(1 + number), Event::Taken(number, key));
            }
            Event::Acknowledged(key) => drop(self.stream.remove(&key)),
            Event::Redeliver => {
                let kept: Vec<Report> = self.stream.values().cloned().collect();
                kept.into_iter()
                    .for_each(|report| self.send(None, Some(0), Event::Deliver(Box::new(report))));
                self.at(self.now_ns + REDELIVER_NS, Event::Redeliver);
            }
            event if self.coordinator_alive => self.handle_at_coordinator(event),
            _ => {}
        }
    }

    fn handle_at_worker(&mut self, number: usize, event: Event) {
        let clock_ns = self.clock(number);
        let worker = &mut self.machines[number].worker;
        let actions = match event {
            Event::TickWorker(_) => {
                let actions = worker.tick(clock_ns);
                self.at(self.now_ns + TICK_NS, Event::TickWorker(number));
                actions
            }
            Event::ToWorker(_, order) => {
                let (sequence, had) = (order.sequence, self.machines[number].owned_ns);
                let sent_ns = self.order_sent_ns[&(number, sequence)];
                self.machines[number].owned_ns = had.max(sent_ns);
                self.machines[number].worker.order(clock_ns, *order)
            }
            Event::Ping(_, nonce) => {
                self.send(Some(1 + number), Some(0), Event::Pong(number, nonce, clock_ns));
                vec![]
            }
            Event::Taken(_, key) => {
                worker.taken(&key);
                vec![]
            }
            Event::Prepared(_, session, load) => worker.prepared(clock_ns, &session, load, Ok(())),
            _ => vec![],
        };
        self.act_at_worker(number, actions);
    }

    /// Lets the engine send what was due, and checks what must hold of it.
    fn advance_engine(&mut self, number: usize) {
        let clock_ns = self.clock(number);
        let Some(engine) = &mut self.machines[number].engine else { return };
        if clock_ns < engine.at_ns && engine.stopped.is_none() {
            return;
        }
        let progress = engine.advance(clock_ns);
        let machine = &mut self.machines[number];
        if !progress.sent.is_empty() {
            let alone_ns = self.now_ns - machine.owned_ns;
            assert!(alone_ns <= ORPHAN_NS_MAX, "worker {number} loads {alone_ns} ns without an owner");
        }
        for sent in progress.sent {
            assert!(self.sent.insert(sent), "request {sent} was sent twice");
        }
        let machine = &mut self.machines[number];
        machine.own.extend(progress.intervals.iter().map(|interval| interval.completed));
        let mut actions = vec![];
        for interval in progress.intervals {
            actions.extend(machine.worker.interval(clock_ns, Box::new(interval)));
        }
        if let Some(end) = progress.end {
            machine.engine = None;
            actions.extend(machine.worker.ended(clock_ns, Ok(end)));
        }
        self.act_at_worker(number, actions);
    }

    fn act_at_worker(&mut self, number: usize, actions: Vec<worker::Action>) {
        for action in actions {
            match action {
                worker::Action::Announce(announce) => {
                    self.send(Some(1 + number), Some(0), Event::Heard(announce));
                }
                worker::Action::Prepare(plan) => {
                    self.machines[number].share = Some((plan.share, plan.from_s));
                    // A part that moves is wanted at once, and needs no more than one request.
                    let takes_ns = self.random.below(if plan.from_s > 0 { S / 2 } else { 2 * S });
                    self.at(self.now_ns + takes_ns, Event::Prepared(number, plan.session, plan.load));
                }
                worker::Action::Start { at_ns } => {
                    let machine = &mut self.machines[number];
                    assert!(machine.engine.is_none(), "a load was begun twice");
                    // In the time of all.
                    machine.began_ns = Some(((at_ns - machine.offset_ns) as f64 / machine.drift) as u64);
                    let until_ns = machine.until_ns;
                    machine.engine = machine.share.map(|share| Engine::new(share, at_ns, until_ns));
                }
                worker::Action::KeepUntil(until_ns) => {
                    let machine = &mut self.machines[number];
                    machine.until_ns = until_ns;
                    machine.engine.iter_mut().for_each(|engine| engine.until_ns = until_ns);
                }
                worker::Action::Stop(reason) => {
                    if let Some(engine) = &mut self.machines[number].engine {
                        engine.stopped.get_or_insert(reason);
                    }
                    self.advance_engine(number);
                }
                worker::Action::Publish(report) => {
                    self.send(Some(1 + number), None, Event::Published(number, report));
                }
                worker::Action::Refused(_) => {}
            }
        }
    }

    fn handle_at_coordinator(&mut self, event: Event) {
        let now_ns = self.now_ns;
        let actions = match event {
            Event::TickCoordinator => {
                self.at(now_ns + TICK_NS, Event::TickCoordinator);
                let mut actions = self.coordinator.logged(self.logged_seconds);
                actions.extend(self.coordinator.tick(now_ns));
                actions
            }
            Event::Heard(announce) => {
                self.coordinator.announced(now_ns, *announce);
                vec![]
            }
            Event::Pong(number, nonce, clock_ns) => {
                let instance = self.instance(number);
                self.coordinator.pong(now_ns, &instance, nonce, clock_ns);
                vec![]
            }
            Event::Deliver(report) => self.coordinator.report(*report),
            _ => vec![],
        };
        for action in actions {
            self.act_at_coordinator(action);
        }
    }

    fn act_at_coordinator(&mut self, action: coordinator::Action) {
        match action {
            coordinator::Action::Ping { worker, nonce } => {
                let number = self.number_of(&worker);
                self.send(Some(0), Some(1 + number), Event::Ping(number, nonce));
            }
            coordinator::Action::Order(order) => {
                let number = self.number_of(&order.worker);
                self.order_sent_ns.insert((number, order.sequence), self.now_ns);
                self.send(Some(0), Some(1 + number), Event::ToWorker(number, order));
            }
            coordinator::Action::Interval(interval) => {
                assert!(self.outcome.is_none() && interval.t_s as usize == self.log.len());
                self.log.push(interval.completed);
            }
            coordinator::Action::Acknowledge(key) => self.send(Some(0), None, Event::Acknowledged(key)),
            coordinator::Action::Ended(outcome) => {
                assert!(self.outcome.is_none());
                self.logged_seconds = u64::MAX;
                self.outcome = Some(Outcome::Ended(outcome.parts));
            }
            coordinator::Action::Failed(error) => {
                assert!(self.outcome.is_none());
                self.outcome = Some(Outcome::Failed(error.to_string()));
            }
            coordinator::Action::Parts(parts) => {
                self.logged_seconds = WorkerPart::seconds_of(&parts);
                self.parts = parts;
            }
            coordinator::Action::Note(_) => {}
        }
    }
}
