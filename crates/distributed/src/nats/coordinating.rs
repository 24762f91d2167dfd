//! The coordinator's end: a thread with the state machine and the connections, and the generator of loads that a session uses.

use super::connecting::Broker;
use super::{ANNOUNCE, Pong, STREAM, last_words, order_subject, ping_subject, random_name, result_subject};
use crate::coordinator::{Action, Coordinator, LoadOrder, LoadOutcome, OnLoss, ResumeOrder};
use crate::packed_workload::PackedWorkload;
use crate::protocol::{Report, ReportKey, TICK_NS};
use crate::signing::Signer;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use async_nats::{Client, Message, Subscriber, jetstream};
use futures_util::{StreamExt, TryStreamExt};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use webdyno_load::{Control, monotonic_ns};
use webdyno_model::interval::{EndReason, Interval, LoadEnd};
use webdyno_model::worker::WorkerPart;
use webdyno_model::workload::{Arrival, Workload};
use webdyno_model::{Result, UserError};
use webdyno_session::live::{Generator, GeneratorEvent, LoadTask};

/// How often it is looked whether a load is to be stopped.
const POLL: Duration = Duration::from_millis(20);
/// Results of a session that nobody takes up are forgotten after a day.
const RESULTS_AGE_MAX: Duration = Duration::from_secs(86_400);
const PULL_TIME: Duration = Duration::from_secs(3);
const CONSUMER_TRIES: u32 = 10;
const CONSUMER_PAUSE: Duration = Duration::from_millis(300);
/// A result that was not acknowledged within this time is given again.
const ACK_WAIT: Duration = Duration::from_secs(10);

/// How many workers make a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerCount {
    /// Those that are there.
    Present,
    /// So many; they are waited for.
    Exactly(usize),
}

/// Who makes the loads of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// How many.
    pub workers: WorkerCount,
    /// Where they are connected, as people name it, without passwords.
    pub on: String,
    /// Whether others have the part of one that was lost; else the load ends.
    pub moves: bool,
}

/// Has the workers at a broker make the loads of a session.
pub struct DistributedGenerator {
    requests: UnboundedSender<Request>,
    placement: Placement,
    session: String,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread is to do.
enum Request {
    Begin(Box<LoadOrder>, Arc<AtomicU64>, mpsc::Sender<Event>),
    Resume(ResumeOrder, Arc<AtomicU64>, mpsc::Sender<Event>),
    Stop(EndReason),
    /// Acknowledge what is in the log, and end.
    Close,
}

enum Event {
    Interval(Box<Interval>),
    Parts(Vec<WorkerPart>),
    Note(String),
    Ended(Box<LoadOutcome>),
    Failed(UserError),
}

impl DistributedGenerator {
    /// Connects. An error when there is no server with JetStream, or it does not let us in.
    pub fn connect(broker: Broker, signer: Signer, placement: Placement) -> Result<Self> {
        let session = random_name()?;
        Self::connect_as(broker, signer, placement, (session, false))
    }

    /// Connects to what is kept of a session whose command is gone. An error when nothing is.
    pub fn reconnect(broker: Broker, signer: Signer, session: &str) -> Result<Self> {
        let (workers, on) = (WorkerCount::Present, broker.name.clone());
        let placement = Placement { workers, on, moves: false };
        Self::connect_as(broker, signer, placement, (session.to_owned(), true))
    }

    fn connect_as(
        broker: Broker,
        signer: Signer,
        placement: Placement,
        (session, is_resumed): (String, bool),
    ) -> Result<Self> {
        let (requests, received) = unbounded_channel();
        let named = session.clone();
        let (connected, is_connected) = mpsc::channel();
        let run = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let error = UserError::cannot_run(format!("cannot start a runtime: {error}"));
                    return drop(connected.send(Err(error)));
                }
            };
            runtime.block_on(async move {
                match Links::connect(&broker, signer, session, is_resumed).await {
                    Ok(links) => {
                        let _ = connected.send(Ok(()));
                        links.run(received).await;
                    }
                    Err(error) => drop(connected.send(Err(error))),
                }
            });
        };
        let thread = thread::Builder::new().name("nats".into()).spawn(run);
        let thread =
            thread.map_err(|error| UserError::cannot_run(format!("cannot start a thread: {error}")))?;
        let thread_error = || UserError::cannot_run("the connection to NATS ended before it was made");
        is_connected.recv().map_err(|_| thread_error())??;
        let thread = Mutex::new(Some(thread));
        Ok(Self { requests, placement, session: named, thread })
    }

    /// Gives the seconds of a load whose command is gone that are not in the log yet, and its end.
    pub fn resume(
        &self,
        order: ResumeOrder,
        logged: Arc<AtomicU64>,
        control: &Control,
        sink: &mut dyn FnMut(GeneratorEvent),
    ) -> Result<LoadEnd> {
        let (events, received) = mpsc::channel();
        self.requests.send(Request::Resume(order, logged, events)).map_err(|_| thread_error())?;
        loop {
            // What is kept stays so for the next time.
            if control.stopped().is_some() {
                return Err(UserError::interrupted());
            }
            if let Some(end) = next_event(&received, sink)? {
                return Ok(end);
            }
        }
    }
}

impl Drop for DistributedGenerator {
    fn drop(&mut self) {
        let _ = self.requests.send(Request::Close);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Generator for DistributedGenerator {
    fn run(
        &self,
        task: LoadTask<'_>,
        control: &Control,
        sink: &mut dyn FnMut(GeneratorEvent),
    ) -> Result<LoadEnd> {
        let order = LoadOrder {
            load: task.load,
            workload: PackedWorkload::pack(task.workload)?,
            threads_max: threads_max(task.workload),
            on_loss: on_loss(self.placement.moves, task.workload)?,
            workers: match self.placement.workers {
                WorkerCount::Present => None,
                WorkerCount::Exactly(workers) => Some(workers),
            },
        };
        sink(GeneratorEvent::Placed { session: self.session.clone(), on: self.placement.on.clone() });
        let (events, received) = mpsc::channel();
        let begin = Request::Begin(Box::new(order), task.logged_seconds, events);
        self.requests.send(begin).map_err(|_| thread_error())?;
        let mut stopped = false;
        loop {
            if let Some(reason) = control.stopped().filter(|_| !stopped) {
                stopped = true;
                self.requests.send(Request::Stop(reason)).map_err(|_| thread_error())?;
            }
            if let Some(end) = next_event(&received, sink)? {
                return Ok(end);
            }
        }
    }
}

fn thread_error() -> UserError {
    UserError::cannot_run("the thread that speaks to NATS has ended")
}

/// Passes on what there is within a moment; the end of the load, when it is that.
fn next_event(
    received: &mpsc::Receiver<Event>,
    sink: &mut dyn FnMut(GeneratorEvent),
) -> Result<Option<LoadEnd>> {
    match received.recv_timeout(POLL) {
        Ok(Event::Interval(interval)) => sink(GeneratorEvent::Interval(interval)),
        Ok(Event::Parts(parts)) => sink(GeneratorEvent::Workers(parts)),
        Ok(Event::Note(text)) => sink(GeneratorEvent::Note(text)),
        Ok(Event::Ended(outcome)) => {
            sink(GeneratorEvent::Workers(outcome.parts));
            return Ok(Some(outcome.end));
        }
        Ok(Event::Failed(error)) => return Err(error),
        Err(mpsc::RecvTimeoutError::Timeout) => {}
        Err(mpsc::RecvTimeoutError::Disconnected) => return Err(thread_error()),
    }
    Ok(None)
}

/// Only of a load with a rate it is known what another one sent.
fn on_loss(moves: bool, workload: &Workload) -> Result<OnLoss> {
    match (moves, workload.arrival) {
        (false, _) => Ok(OnLoss::End),
        (true, Arrival::Open { .. }) => {
            Ok(OnLoss::Move { seconds: workload.stop.duration_us.map(|us| us.div_ceil(1_000_000)) })
        }
        (true, Arrival::Closed) => Err(UserError::usage(
            "what a lost worker has sent of a load without a rate is known to nobody: its part cannot go to others",
        )
        .hint("give a rate with -r, or end the load at a loss: --on-worker-loss end")),
    }
}

/// A thread without a connection or a user has nothing to do.
fn threads_max(workload: &Workload) -> u32 {
    let users = workload.visits.as_ref().filter(|_| workload.arrival == Arrival::Closed);
    workload.connections.min(users.map_or(u32::MAX, |visits| visits.users)).max(1)
}

/// The state machine with its connections.
struct Links {
    client: Client,
    signer: Signer,
    coordinator: Coordinator,
    announcements: Subscriber,
    pongs: Subscriber,
    inbox: String,
    results: pull::Stream,
    stream: jetstream::stream::Stream,
    /// The name of what gives the results.
    consumer: String,
    /// Results that were not acknowledged yet, as they were delivered last.
    kept: HashMap<ReportKey, jetstream::Message>,
    load: Option<(Arc<AtomicU64>, mpsc::Sender<Event>)>,
}

impl Links {
    async fn connect(broker: &Broker, signer: Signer, session: String, is_resumed: bool) -> Result<Self> {
        let client = broker.connect("webdyno coordinator").await?;
        let inbox = client.new_inbox();
        let announcements =
            client.subscribe(ANNOUNCE).await.map_err(|error| denied(ANNOUNCE, &error.to_string()))?;
        let pongs =
            client.subscribe(inbox.clone()).await.map_err(|error| denied(&inbox, &error.to_string()))?;
        let stream = match is_resumed {
            true => stream_with(&client, &session, &broker.name).await?,
            false => stream(&client, broker.replicas()).await?,
        };
        let consumer = match is_resumed {
            true => format!("{}-{}", consumer_name(&session), random_name()?),
            false => consumer_name(&session),
        };
        let config = pull::Config {
            durable_name: Some(consumer.clone()),
            filter_subject: result_subject(&session, ">"),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_ack_pending: 100_000,
            // The consumer of a session that nobody goes on with.
            inactive_threshold: RESULTS_AGE_MAX,
            ..pull::Config::default()
        };
        let results = consume(&stream, config).await?;
        let coordinator = Coordinator::new(session);
        let (kept, load) = (HashMap::new(), None);
        Ok(Self {
            client,
            signer,
            coordinator,
            announcements,
            pongs,
            inbox,
            results,
            stream,
            consumer,
            kept,
            load,
        })
    }

    async fn run(mut self, mut requests: UnboundedReceiver<Request>) {
        let mut ticks = tokio::time::interval(Duration::from_nanos(TICK_NS));
        loop {
            let actions = tokio::select! {
                // What waits here is taken for the way that a message took.
                biased;
                Some(pong) = self.pongs.next() => self.pong(&pong),
                Some(announcement) = self.announcements.next() => self.announcement(&announcement),
                request = requests.recv() => match request {
                    Some(Request::Begin(order, logged, events)) => {
                        self.load = Some((logged, events));
                        self.coordinator.begin(monotonic_ns(), *order);
                        vec![]
                    }
                    Some(Request::Resume(order, logged, events)) => {
                        self.load = Some((logged, events));
                        match self.coordinator.resume(monotonic_ns(), order) {
                            Ok(()) => vec![],
                            Err(error) => vec![Action::Failed(error)],
                        }
                    }
                    Some(Request::Stop(reason)) => {
                        self.coordinator.stop(reason);
                        vec![]
                    }
                    Some(Request::Close) | None => return last_words(self.close()).await,
                },
                // Those of a session that is taken up wait until it is said what of them is in the log.
                Some(Ok(message)) = self.results.next(), if self.load.is_some() => self.result(message),
                _ = ticks.tick() => self.tick(),
            };
            for action in actions {
                self.act(action).await;
            }
        }
    }

    fn pong(&mut self, message: &Message) -> Vec<Action> {
        let now_ns = monotonic_ns();
        if let Ok(Pong { instance, nonce, clock_ns }) = serde_json::from_slice(&message.payload) {
            self.coordinator.pong(now_ns, &instance, nonce, clock_ns);
        }
        vec![]
    }

    fn announcement(&mut self, message: &Message) -> Vec<Action> {
        if let Ok(announce) = serde_json::from_slice(&message.payload) {
            self.coordinator.announced(monotonic_ns(), announce);
        }
        vec![]
    }

    fn result(&mut self, message: jetstream::Message) -> Vec<Action> {
        let report: Report = match serde_json::from_slice(&message.payload) {
            Ok(report) => report,
            // It will not be another one the next time, and its worker will be missed.
            Err(_) => return vec![],
        };
        self.kept.insert(report.key(), message);
        self.coordinator.report(report)
    }

    fn tick(&mut self) -> Vec<Action> {
        let logged = self.load.as_ref().map_or(0, |(logged, _)| logged.load(Ordering::Acquire));
        let mut actions = self.coordinator.logged(logged);
        actions.extend(self.coordinator.tick(monotonic_ns()));
        actions
    }

    async fn act(&mut self, action: Action) {
        let event = match action {
            Action::Ping { worker, nonce } => {
                let (subject, payload) = (ping_subject(&worker), nonce.to_string());
                let _ = self.client.publish_with_reply(subject, self.inbox.clone(), payload.into()).await;
                return;
            }
            Action::Order(order) => match self.signer.sign(&order) {
                Ok(bytes) => {
                    let _ = self.client.publish(order_subject(&order.worker), bytes.into()).await;
                    return;
                }
                Err(error) => Event::Failed(error),
            },
            Action::Acknowledge(key) => {
                if let Some(message) = self.kept.remove(&key) {
                    let _ = message.ack().await;
                }
                return;
            }
            Action::Interval(interval) => Event::Interval(interval),
            Action::Parts(parts) => Event::Parts(parts),
            Action::Note(text) => Event::Note(text),
            Action::Ended(outcome) => Event::Ended(outcome),
            Action::Failed(error) => Event::Failed(error),
        };
        if let Some((_, events)) = &self.load {
            let _ = events.send(event);
        }
    }

    /// Everything is in the log by now, unless the session was cut off in a load: then what is not is kept.
    async fn close(mut self) {
        for action in self.tick() {
            self.act(action).await;
        }
        let _ = self.client.flush().await;
        let session = self.coordinator.session();
        if self.coordinator.is_over() {
            let _ = self.stream.delete_consumer(&self.consumer).await;
        }
        // Acknowledgements may be under way still.
        if self.load.as_ref().is_some_and(|(logged, _)| logged.load(Ordering::Acquire) == u64::MAX) {
            let _ = self.stream.purge().filter(result_subject(session, ">")).await;
        }
        let _ = self.client.flush().await;
    }
}

/// The stream that keeps results; made when it is not there.
async fn stream(client: &Client, num_replicas: usize) -> Result<jetstream::stream::Stream> {
    let config = Config {
        name: STREAM.into(),
        subjects: vec!["webdyno.results.>".into()],
        retention: RetentionPolicy::WorkQueue,
        max_age: RESULTS_AGE_MAX,
        num_replicas,
        ..Config::default()
    };
    let jetstream = jetstream::new(client.clone());
    jetstream.get_or_create_stream(config).await.map_err(|error| {
        UserError::cannot_run(format!("cannot have the stream {STREAM}: {error}"))
            .hint("JetStream keeps the results of workers: start the server with -js, or jetstream {} in its configuration")
    })
}

/// The results as they come. One whose deletion is still under way in the cluster keeps the next one out for a moment.
async fn consume(stream: &jetstream::stream::Stream, config: pull::Config) -> Result<pull::Stream> {
    let mut tries = 0;
    let consumer = loop {
        match stream.create_consumer(config.clone()).await {
            Ok(consumer) => break consumer,
            Err(_) if tries < CONSUMER_TRIES => tries += 1,
            Err(error) => return Err(denied(STREAM, &error.to_string())),
        }
        tokio::time::sleep(CONSUMER_PAUSE).await;
    };
    // A question for messages that is lost in a server that is gone is asked anew when it has expired.
    let asked = consumer.stream().expires(PULL_TIME).heartbeat(PULL_TIME / 3);
    asked.messages().await.map_err(|error| denied(STREAM, &error.to_string()))
}

/// The stream that keeps the results of a session. What was given to its coordinator and not acknowledged is given anew, to a consumer
/// of another name: of two with the same, the deletion of the first can reach a server of the cluster after the creation of the second.
async fn stream_with(client: &Client, session: &str, on: &str) -> Result<jetstream::stream::Stream> {
    let forgotten = || {
        UserError::cannot_run(format!("{on} keeps no results of session {session}"))
            .hint("they are kept for a day, by the servers that the load was made with; webdyno report DIR shows what was logged")
    };
    let jetstream = jetstream::new(client.clone());
    let stream = jetstream.get_stream(STREAM).await.map_err(|_| forgotten())?;
    let name = consumer_name(session);
    let names: Vec<String> =
        stream.consumer_names().try_collect().await.unwrap_or_else(|_| vec![name.clone()]);
    let mut had_consumer = false;
    for name in names.iter().filter(|own| own.starts_with(&name)) {
        had_consumer |= stream.delete_consumer(name).await.is_ok();
    }
    let subjects = stream.info_with_subjects(result_subject(session, ">")).await;
    let has_results = match subjects {
        Ok(mut subjects) => subjects.next().await.is_some(),
        Err(error) => return Err(denied(STREAM, &error.to_string())),
    };
    if had_consumer || has_results { Ok(stream) } else { Err(forgotten()) }
}

fn consumer_name(session: &str) -> String {
    format!("session-{session}")
}

fn denied(what: &str, why: &str) -> UserError {
    UserError::cannot_run(format!("cannot use {what} of NATS: {why}"))
        .hint("its user of NATS needs the permissions that docs/distributed.md lists")
}
