//! A worker process: the state machine between NATS and the engine.

use super::connecting::Broker;
use super::worker_engine::{EngineEvent, Events, WorkerEngine};
use super::{ANNOUNCE, Pong, last_words, order_subject, ping_subject, random_name, result_subject};
use crate::admission::Limits;
use crate::protocol::{Report, ReportKey, TICK_NS};
use crate::signing::TrustedKeys;
use crate::worker::{Action, Worker, WorkerInfo};
use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use async_nats::{Client, Message, Subscriber};
use futures_util::StreamExt;
use rustix::process::{Pid, getppid};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use webdyno_load::monotonic_ns;
use webdyno_model::interval::EndReason;
use webdyno_model::{Result, UserError};

/// After an interrupt the results of what was stopped may take so long to reach the stream.
const DRAIN_NS_MAX: u64 = 5_000_000_000;
/// A result that the stream does not take within this time is given again.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Parts of lost workers that a process takes at most.
const SPARE_SLOTS_MAX: usize = 16;

/// How a worker works.
pub struct WorkerOptions {
    /// Where it waits for orders.
    pub broker: Broker,
    /// The name that people know.
    pub name: String,
    /// The build of the program.
    pub build: String,
    /// Engine threads that it can run.
    pub threads: u32,
    /// What each of them can send, by [`crate::calibration`].
    pub requests_per_s: Option<u32>,
    /// What it agrees to do.
    pub limits: Limits,
    /// Whose orders it obeys.
    pub trusted: TrustedKeys,
    /// It ends with this process, its parent.
    pub parent: Option<u32>,
    /// Set when it is to end.
    pub interrupted: Arc<AtomicBool>,
    /// Shows a line of its log.
    pub log: fn(&str),
}

/// Works until it is interrupted.
pub fn work(options: WorkerOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| UserError::cannot_run(format!("cannot start a runtime: {error}")))?;
    runtime.block_on(Process::connect(options)?.run())
}

struct Process {
    options: WorkerOptions,
    /// The first one has the part of this machine; each further one may have that of a worker that was lost.
    slots: Vec<EngineSlot>,
    engine_sender: UnboundedSender<(usize, EngineEvent)>,
    engine_events: UnboundedReceiver<(usize, EngineEvent)>,
    taken: UnboundedReceiver<ReportKey>,
    taken_sender: UnboundedSender<ReportKey>,
    instance: String,
}

/// A worker of its own as coordinators see it, with an engine.
struct EngineSlot {
    instance: String,
    worker: Worker,
    engine: WorkerEngine,
}

/// The connections of a worker.
struct Links {
    client: Client,
    stream: Context,
    orders: Subscriber,
    pings: Subscriber,
}

impl Process {
    fn connect(options: WorkerOptions) -> Result<Self> {
        let instance = random_name()?;
        let (engine_sender, engine_events) = unbounded_channel();
        let (taken_sender, taken) = unbounded_channel();
        let slots = vec![];
        let mut process =
            Self { options, slots, engine_sender, engine_events, taken, taken_sender, instance };
        process.add_slot();
        Ok(process)
    }

    fn add_slot(&mut self) {
        let WorkerOptions { build, name, threads, requests_per_s, limits, .. } = &self.options;
        let number = self.slots.len();
        let instance = slot_instance(&self.instance, number);
        let worker = Worker::new(WorkerInfo {
            build: build.clone(),
            instance: instance.clone(),
            name: name.clone(),
            threads: *threads,
            requests_per_s: *requests_per_s,
            limits: limits.clone(),
            spare: number > 0,
        });
        let engine = WorkerEngine::new(limits.clone(), Events(number, self.engine_sender.clone()));
        self.slots.push(EngineSlot { instance, worker, engine });
    }

    /// There is always one that could have another part; not where that could exceed the rate that is allowed.
    fn has_spare_slot(&self) -> bool {
        let is_full = self.slots.len() > SPARE_SLOTS_MAX || self.options.limits.rate_per_s_max.is_some();
        is_full || self.slots.iter().skip(1).any(|slot| slot.worker.is_idle())
    }

    async fn links(&self) -> Result<Links> {
        let client = self.options.broker.connect(&format!("webdyno worker {}", self.options.name)).await?;
        let mut stream = async_nats::jetstream::new(client.clone());
        stream.set_timeout(PUBLISH_TIMEOUT);
        let subscribe = |subject: String| {
            let client = client.clone();
            async move {
                client.subscribe(subject.clone()).await.map_err(|error| {
                    UserError::cannot_run(format!("cannot subscribe to {subject}: {error}"))
                        .hint("its user of NATS needs the permissions that docs/distributed.md lists")
                })
            }
        };
        let all = format!("{}.*", self.instance);
        let orders = subscribe(order_subject(&all)).await?;
        let pings = subscribe(ping_subject(&all)).await?;
        Ok(Links { client, stream, orders, pings })
    }

    async fn run(mut self) -> Result<()> {
        let mut links = self.links().await?;
        let WorkerOptions { name, broker, threads, requests_per_s, .. } = &self.options;
        let measured =
            requests_per_s.map_or_else(String::new, |rate| format!(", up to {rate} requests/s each"));
        (self.options.log)(&format!(
            "worker {name} is connected to {}: {threads} threads{measured}",
            broker.name
        ));
        let mut ticks = tokio::time::interval(Duration::from_nanos(TICK_NS));
        let mut ends_by_ns = None;
        loop {
            if !self.has_spare_slot() {
                self.add_slot();
            }
            let (slot, actions) = tokio::select! {
                // Pings first: what they wait is taken for the way.
                biased;
                Some(ping) = links.pings.next() => (0, self.pong(&links.client, &ping).await),
                Some(order) = links.orders.next() => self.order(&order),
                Some((slot, event)) = self.engine_events.recv() => (slot, self.engine_event(slot, event)),
                Some(key) = self.taken.recv() => {
                    let slot = self.slots.iter_mut().find(|slot| slot.instance == key.worker);
                    slot.into_iter().for_each(|slot| slot.worker.taken(&key));
                    (0, vec![])
                }
                _ = ticks.tick() => {
                    for slot in 1..self.slots.len() {
                        for action in self.tick(slot) {
                            self.act(&links, slot, action).await;
                        }
                    }
                    (0, self.tick(0))
                }
            };
            for action in actions {
                self.act(&links, slot, action).await;
            }
            if self.is_to_end() {
                let by_ns = *ends_by_ns.get_or_insert_with(|| {
                    self.slots.iter().for_each(|slot| slot.engine.stop(EndReason::Interrupted));
                    monotonic_ns() + DRAIN_NS_MAX
                });
                let is_drained = self.slots.iter().all(|slot| slot.worker.is_drained());
                if is_drained || monotonic_ns() > by_ns {
                    last_words(async { drop(links.client.flush().await) }).await;
                    return Ok(());
                }
            }
        }
    }

    /// Interrupted, or without the process that started it.
    fn is_to_end(&self) -> bool {
        let parent = self.options.parent.and_then(|parent| Pid::from_raw(parent as i32));
        self.options.interrupted.load(Ordering::Relaxed) || (parent.is_some() && getppid() != parent)
    }

    async fn pong(&self, client: &Client, ping: &Message) -> Vec<Action> {
        let Some(slot) = self.slots.iter().find(|slot| ping.subject.as_str() == ping_subject(&slot.instance))
        else {
            return vec![];
        };
        let nonce = std::str::from_utf8(&ping.payload).ok().and_then(|text| text.parse().ok());
        if let (Some(nonce), Some(reply)) = (nonce, ping.reply.clone()) {
            let pong = Pong { instance: slot.instance.clone(), nonce, clock_ns: monotonic_ns() };
            if let Ok(bytes) = serde_json::to_vec(&pong) {
                let _ = client.publish(reply, bytes.into()).await;
            }
        }
        vec![]
    }

    fn order(&mut self, message: &Message) -> (usize, Vec<Action>) {
        let subject = message.subject.as_str();
        let slot = self.slots.iter().position(|slot| subject == order_subject(&slot.instance));
        let actions = match (self.options.trusted.verify(&message.payload), slot) {
            (Ok(order), Some(slot)) => self.slots[slot].worker.order(monotonic_ns(), order),
            (Ok(_), None) => vec![Action::Refused("an order: it is for another worker".into())],
            (Err(why), _) => vec![Action::Refused(format!("an order: {why}"))],
        };
        (slot.unwrap_or(0), actions)
    }

    fn engine_event(&mut self, slot: usize, event: EngineEvent) -> Vec<Action> {
        let now_ns = monotonic_ns();
        let worker = &mut self.slots[slot].worker;
        match event {
            EngineEvent::Prepared(session, load, result) => worker.prepared(now_ns, &session, load, result),
            EngineEvent::Interval(load, interval) if worker.has(load) => worker.interval(now_ns, interval),
            EngineEvent::Ended(load, ended) if worker.has(load) => worker.ended(now_ns, ended),
            EngineEvent::Interval(..) | EngineEvent::Ended(..) => vec![],
        }
    }

    fn tick(&mut self, slot: usize) -> Vec<Action> {
        let now_ns = monotonic_ns();
        let EngineSlot { worker, engine, .. } = &mut self.slots[slot];
        let mut actions = match engine.began_ns() {
            Some(began_ns) => worker.began(now_ns, began_ns),
            None => vec![],
        };
        actions.extend(worker.tick(now_ns));
        actions
    }

    async fn act(&mut self, links: &Links, slot: usize, action: Action) {
        let engine = &mut self.slots[slot].engine;
        match action {
            Action::Announce(announce) => {
                if let Ok(bytes) = serde_json::to_vec(&announce) {
                    let _ = links.client.publish(ANNOUNCE, bytes.into()).await;
                }
            }
            Action::Prepare(plan) => {
                (self.options.log)(&format!(
                    "load {}: threads {} to {} of {}",
                    plan.load,
                    plan.share.first_thread + 1,
                    plan.share.first_thread + plan.share.threads,
                    plan.share.total_threads
                ));
                engine.prepare(*plan);
            }
            Action::Start { at_ns } => engine.start(at_ns),
            Action::KeepUntil(until_ns) => engine.keep_until(until_ns),
            Action::Stop(reason) => engine.stop(reason),
            Action::Publish(report) => publish(links.stream.clone(), *report, self.taken_sender.clone()),
            Action::Refused(why) => (self.options.log)(&format!("refused: {why}")),
        }
    }
}

fn slot_instance(process: &str, number: usize) -> String {
    format!("{process}.{number}")
}

/// Gives a result to the stream, beside everything else; one that is not taken is given again later.
fn publish(stream: Context, report: Report, taken: UnboundedSender<ReportKey>) {
    tokio::spawn(async move {
        let key = report.key();
        let Ok(bytes) = serde_json::to_vec(&report) else { return };
        let message = PublishMessage::build().payload(bytes.into()).message_id(key.to_string());
        let subject = result_subject(&key.session, &key.worker);
        if let Ok(kept) = stream.send_publish(subject, message).await
            && kept.await.is_ok()
        {
            let _ = taken.send(key);
        }
    });
}
