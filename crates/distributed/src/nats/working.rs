//! A worker process: the state machine between NATS and the engine.

use super::connecting::Broker;
use super::worker_engine::{EngineEvent, WorkerEngine};
use super::{
    ANNOUNCE, Pong, last_words, monotonic_ns, order_subject, ping_subject, random_name, result_subject,
};
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
use webdyno_model::interval::EndReason;
use webdyno_model::{Result, UserError};

/// After an interrupt the results of what was stopped may take so long to reach the stream.
const DRAIN_NS_MAX: u64 = 5_000_000_000;
/// A result that the stream does not take within this time is given again.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

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
    worker: Worker,
    engine: WorkerEngine,
    engine_events: UnboundedReceiver<EngineEvent>,
    taken: UnboundedReceiver<ReportKey>,
    taken_sender: UnboundedSender<ReportKey>,
    instance: String,
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
        let WorkerOptions { build, name, threads, limits, .. } = &options;
        let worker = Worker::new(WorkerInfo {
            build: build.clone(),
            instance: instance.clone(),
            name: name.clone(),
            threads: *threads,
            limits: limits.clone(),
        });
        let (engine_sender, engine_events) = unbounded_channel();
        let (taken_sender, taken) = unbounded_channel();
        let engine = WorkerEngine::new(limits.clone(), engine_sender);
        Ok(Self { options, worker, engine, engine_events, taken, taken_sender, instance })
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
        let orders = subscribe(order_subject(&self.instance)).await?;
        let pings = subscribe(ping_subject(&self.instance)).await?;
        Ok(Links { client, stream, orders, pings })
    }

    async fn run(mut self) -> Result<()> {
        let mut links = self.links().await?;
        let WorkerOptions { name, broker, threads, .. } = &self.options;
        (self.options.log)(&format!("worker {name} is connected to {}: {threads} threads", broker.name));
        let mut ticks = tokio::time::interval(Duration::from_nanos(TICK_NS));
        let mut ends_by_ns = None;
        loop {
            let actions = tokio::select! {
                // Pings first: what they wait is taken for the way.
                biased;
                Some(ping) = links.pings.next() => self.pong(&links.client, &ping).await,
                Some(order) = links.orders.next() => self.order(&order),
                Some(event) = self.engine_events.recv() => self.engine_event(event),
                Some(key) = self.taken.recv() => {
                    self.worker.taken(&key);
                    vec![]
                }
                _ = ticks.tick() => self.tick(),
            };
            for action in actions {
                self.act(&links, action).await;
            }
            if self.is_to_end() {
                let by_ns = *ends_by_ns.get_or_insert_with(|| {
                    self.engine.stop(EndReason::Interrupted);
                    monotonic_ns() + DRAIN_NS_MAX
                });
                if self.worker.is_drained() || monotonic_ns() > by_ns {
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
        let nonce = std::str::from_utf8(&ping.payload).ok().and_then(|text| text.parse().ok());
        if let (Some(nonce), Some(reply)) = (nonce, ping.reply.clone()) {
            let pong = Pong { instance: self.instance.clone(), nonce, clock_ns: monotonic_ns() };
            if let Ok(bytes) = serde_json::to_vec(&pong) {
                let _ = client.publish(reply, bytes.into()).await;
            }
        }
        vec![]
    }

    fn order(&mut self, message: &Message) -> Vec<Action> {
        match self.options.trusted.verify(&message.payload) {
            Ok(order) => self.worker.order(monotonic_ns(), order),
            Err(why) => vec![Action::Refused(format!("an order: {why}"))],
        }
    }

    fn engine_event(&mut self, event: EngineEvent) -> Vec<Action> {
        let now_ns = monotonic_ns();
        match event {
            EngineEvent::Prepared(load, result) => self.worker.prepared(now_ns, load, result),
            EngineEvent::Interval(load, interval) if self.worker.has(load) => {
                self.worker.interval(now_ns, interval)
            }
            EngineEvent::Ended(load, ended) if self.worker.has(load) => self.worker.ended(now_ns, ended),
            EngineEvent::Interval(..) | EngineEvent::Ended(..) => vec![],
        }
    }

    fn tick(&mut self) -> Vec<Action> {
        let now_ns = monotonic_ns();
        let mut actions = match self.engine.began_ns() {
            Some(began_ns) => self.worker.began(now_ns, began_ns),
            None => vec![],
        };
        actions.extend(self.worker.tick(now_ns));
        actions
    }

    async fn act(&mut self, links: &Links, action: Action) {
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
                self.engine.prepare(*plan);
            }
            Action::Start { at_ns } => self.engine.start(at_ns),
            Action::Stop(reason) => self.engine.stop(reason),
            Action::Publish(report) => publish(links.stream.clone(), *report, self.taken_sender.clone()),
            Action::Refused(why) => (self.options.log)(&format!("refused: {why}")),
        }
    }
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
