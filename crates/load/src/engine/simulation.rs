//! A simulated machine and server: the clock moves only when the engine sleeps or calls the system, and the server
//! does what a test's function returns. The same test always produces the same events.

use super::Engine;
use crate::engine::control::Control;
use crate::io::http2;
use crate::io::multiplexed::MultiplexedIo;
use crate::io::network_io::{Handshake, NetworkIo, Ready, SocketError};
use crate::io::origin::Origin;
use crate::io::tcp_info::TcpReading;
use crate::plan::prepare;
use crate::plan::thread_share::ThreadShare;
use crate::results::merge::Merger;
use crate::results::recorder::Report;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Read;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{EndReason, Interval, LoadEnd};
use webdyno_model::workload::{Arrival, RequestSpec, Stop, Workload};

pub(super) const MS: u64 = 1_000_000;
pub(super) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// What the server sees: a connection (request 0), then its requests from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerRequest {
    pub(super) connection: u64,
    pub(super) request: u64,
    pub(super) now_ns: u64,
}

/// What the server does.
#[derive(Debug, Clone)]
pub(super) enum ServerAction {
    /// Lets the connection succeed; only for request 0. Without it, it never does.
    Accept,
    Refuse,
    Send(Vec<u8>),
    Close,
    Reset,
    /// From then on, whatever is read is there, without end.
    Flood,
}

/// A server: for each visit, what it does and how many nanoseconds later.
pub(super) type Server<'s> = Box<dyn FnMut(ServerRequest) -> Vec<(u64, ServerAction)> + 's>;

/// A server that is given bytes as they come; it accepts as the other one does.
pub(super) type BytesServer<'s> = Box<dyn FnMut(u64, u64, &[u8]) -> Vec<(u64, ServerAction)> + 's>;

/// The requests that arrived whole, in order, each with the number of its connection.
pub(super) type ReceivedRequests = Rc<RefCell<Vec<(u64, String)>>>;

/// Accepts after 0.1 ms and answers each request after a fixed time.
pub(super) fn answering<'s>(after_ns: u64) -> Server<'s> {
    Box::new(move |visit| match visit.request {
        0 => vec![(100_000, ServerAction::Accept)],
        _ => vec![(after_ns, ServerAction::Send(OK.to_vec()))],
    })
}

#[derive(Debug, Default)]
struct Socket {
    token: u64,
    connection: u64,
    accepted: bool,
    refused: bool,
    reset: bool,
    closed: bool,
    floods: bool,
    inbox: VecDeque<u8>,
    outbox: Vec<u8>,
    requests: u64,
    /// When the last bytes came.
    arrival_ns: Option<u64>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Accept,
    Refuse,
    Bytes(Vec<u8>),
    Close,
    Reset,
    Flood,
    Writable,
}

/// The simulated machine.
pub(super) struct Sim<'s> {
    now_ns: Cell<u64>,
    /// Duration of each system call.
    pub(super) call_ns: u64,
    /// How late the thread wakes from an imprecise wait.
    pub(super) coarse_ns: u64,
    /// Most bytes that one send accepts.
    pub(super) send_max: usize,
    /// Most events that one wait gives; floods come besides.
    pub(super) ready_max: usize,
    /// Whether the kernel timestamps what comes, on every connection.
    pub(super) stamping: bool,
    /// Whether what comes before a connection is accepted is the lookup of its name.
    pub(super) naming: bool,
    /// Whether the kernel supports TCP_INFO.
    pub(super) telling: bool,
    /// When the engine's thread is held up, and for how long; the latest first.
    pub(super) stalls: Vec<(u64, u64)>,
    /// When the clock of the timestamps is stepped: earlier timestamps become unusable.
    pub(super) clock_set_ns: u64,
    /// The requests received, recorded before the server function is called.
    pub(super) received: ReceivedRequests,
    /// Bytes that the engine dropped unread.
    pub(super) discarded_bytes: Rc<Cell<u64>>,
    server: Server<'s>,
    /// What answers bytes instead of requests, with the number of the connection and the time.
    pub(super) bytes_server: Option<BytesServer<'s>>,
    sockets: BTreeMap<u32, Socket>,
    connections: u64,
    queue: BTreeSet<(u64, u64, u32, u64, Event)>,
    sequence: u64,
    ready: Vec<Ready>,
}

impl<'s> Sim<'s> {
    pub(super) fn new(server: Server<'s>) -> Self {
        Self {
            now_ns: Cell::new(0),
            call_ns: 0,
            coarse_ns: 0,
            send_max: usize::MAX,
            ready_max: usize::MAX,
            stamping: false,
            naming: false,
            telling: false,
            stalls: vec![],
            clock_set_ns: 0,
            received: ReceivedRequests::default(),
            discarded_bytes: Rc::default(),
            server,
            bytes_server: None,
            sockets: BTreeMap::new(),
            connections: 0,
            queue: BTreeSet::new(),
            sequence: 0,
            ready: vec![],
        }
    }

    /// Puts another server in the place of the one so far.
    pub(super) fn serve(&mut self, server: Server<'s>) {
        self.server = server;
    }

    fn call(&self) {
        self.now_ns.set(self.now_ns.get() + self.call_ns);
    }

    fn later(&mut self, slot: u32, connection: u64, delay_ns: u64, event: Event) {
        self.sequence += 1;
        let at_ns = self.now_ns.get() + delay_ns;
        self.queue.insert((at_ns, self.sequence, slot, connection, event));
    }

    fn visit(&mut self, slot: u32, connection: u64, request: u64) {
        let now_ns = self.now_ns.get();
        let acts = (self.server)(ServerRequest { connection, request, now_ns });
        self.act(slot, connection, acts);
    }

    fn act(&mut self, slot: u32, connection: u64, acts: Vec<(u64, ServerAction)>) {
        for (delay_ns, act) in acts {
            let event = match act {
                ServerAction::Accept => Event::Accept,
                ServerAction::Refuse => Event::Refuse,
                ServerAction::Send(bytes) => Event::Bytes(bytes),
                ServerAction::Close => Event::Close,
                ServerAction::Reset => Event::Reset,
                ServerAction::Flood => Event::Flood,
            };
            self.later(slot, connection, delay_ns, event);
        }
    }

    /// The thread sleeps longer than it was to when a stall begins meanwhile.
    fn hold_up(&mut self) {
        while let Some((_, length_ns)) = self.stalls.pop_if(|(at_ns, _)| *at_ns <= self.now_ns.get()) {
            self.now_ns.set(self.now_ns.get() + length_ns);
        }
    }

    fn next_at(&self) -> Option<u64> {
        self.queue.first().map(|&(at_ns, ..)| at_ns)
    }

    /// Lets the events of this moment happen to a socket that is still there.
    fn happen(&mut self) {
        while self.ready.len() < self.ready_max
            && self.next_at().is_some_and(|at_ns| at_ns <= self.now_ns.get())
        {
            let Some((at_ns, _, slot, connection, event)) = self.queue.pop_first() else {
                return;
            };
            let Some(socket) = self.sockets.get_mut(&slot) else {
                continue;
            };
            if socket.connection != connection {
                continue;
            }
            match event {
                Event::Accept => socket.accepted = true,
                Event::Refuse => socket.refused = true,
                Event::Bytes(bytes) => {
                    socket.inbox.extend(bytes);
                    socket.arrival_ns = Some(at_ns);
                }
                Event::Close => socket.closed = true,
                Event::Reset => socket.reset = true,
                Event::Flood => socket.floods = true,
                Event::Writable => {}
            }
            self.ready.push(Ready {
                token: socket.token,
                readable: !socket.inbox.is_empty() || socket.closed || socket.reset || socket.refused,
                hangup: socket.closed || socket.reset || socket.refused,
            });
        }
        // More has arrived since the last look.
        for socket in self.sockets.values().filter(|socket| socket.floods) {
            self.ready.push(Ready { token: socket.token, readable: true, hangup: false });
        }
    }
}

impl NetworkIo for Sim<'_> {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn cpu_ns(&self) -> u64 {
        self.now_ns.get() / 2
    }

    fn connect(&mut self, slot: u32, token: u64, _: &Origin) -> Result<(), SocketError> {
        self.call();
        assert!(!self.sockets.contains_key(&slot), "slot {slot} is taken");
        self.connections += 1;
        let connection = self.connections;
        let socket = Socket { token, connection, ..Socket::default() };
        self.sockets.insert(slot, socket);
        self.visit(slot, connection, 0);
        Ok(())
    }

    fn is_resolving(&self, slot: u32) -> bool {
        self.naming && self.sockets.get(&slot).is_some_and(|socket| !socket.accepted && !socket.refused)
    }

    fn handshake(&self, _: u32) -> Handshake {
        Handshake::None
    }

    fn send(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, SocketError> {
        self.call();
        let send_max = self.send_max;
        let socket = self.sockets.get_mut(&slot).ok_or(Errno::BADF)?;
        match socket {
            _ if socket.refused => return Err(Errno::CONNREFUSED.into()),
            _ if socket.reset => return Err(Errno::PIPE.into()),
            _ if !socket.accepted => return Err(SocketError::AGAIN),
            _ => {}
        }
        let count = bytes.len().min(send_max);
        if let Some(server) = &mut self.bytes_server {
            let connection = socket.connection;
            let acts = server(connection, self.now_ns.get(), &bytes[..count]);
            self.act(slot, connection, acts);
            if count < bytes.len() {
                self.later(slot, connection, 10_000, Event::Writable);
            }
            return Ok(count);
        }
        socket.outbox.extend_from_slice(&bytes[..count]);
        let connection = socket.connection;
        if count < bytes.len() {
            self.later(slot, connection, 10_000, Event::Writable);
        } else if is_whole(&socket.outbox) {
            socket.requests += 1;
            let request = socket.requests;
            // Kept only on request: a load may have very many requests.
            if Rc::strong_count(&self.received) > 1 {
                let text = String::from_utf8_lossy(&socket.outbox).into_owned();
                self.received.borrow_mut().push((connection, text));
            }
            socket.outbox.clear();
            // A server that has closed answers what comes late with a reset.
            match socket.closed {
                true => self.later(slot, connection, 20_000, Event::Reset),
                false => self.visit(slot, connection, request),
            }
        }
        Ok(count)
    }

    fn recv(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError> {
        self.call();
        let socket = self.sockets.get_mut(&slot).ok_or(Errno::BADF)?;
        if socket.floods {
            // Whatever the buffer holds; bodies are counted, not examined.
            return Ok(buffer.len());
        }
        let count = socket.inbox.len().min(buffer.len());
        // In whole slices: byte by byte, large bodies would take most of the tests' time. So much is there.
        let _ = socket.inbox.read_exact(&mut buffer[..count]);
        match count {
            0 if socket.reset => Err(Errno::CONNRESET.into()),
            0 if socket.closed => Ok(0),
            0 => Err(SocketError::AGAIN),
            count => Ok(count),
        }
    }

    fn discard(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError> {
        let count = self.recv(slot, buffer)?;
        self.discarded_bytes.set(self.discarded_bytes.get() + count as u64);
        Ok(count)
    }

    fn has_rx_timestamps(&self, _: u32) -> bool {
        self.stamping
    }

    fn received_ns(&mut self, slot: u32, sent_ns: u64, _: u64) -> Option<u64> {
        let arrival_ns = self.sockets.get(&slot)?.arrival_ns?;
        let set = self.clock_set_ns <= self.now_ns.get() && sent_ns < self.clock_set_ns;
        (!set).then_some(arrival_ns)
    }

    fn tcp_info(&self, slot: u32) -> Option<TcpReading> {
        let socket = self.sockets.get(&slot)?;
        // Each third request has to be sent again.
        let data_segments_sent = (socket.requests + socket.requests / 3) as u32;
        self.telling.then(|| TcpReading {
            round_trip_us: Some(70 + socket.connection),
            round_trip_min_us: Some(60),
            data_segments_sent,
            segments_retransmitted: (socket.requests / 3) as u32,
        })
    }

    fn close(&mut self, slot: u32) {
        self.sockets.remove(&slot);
    }

    fn wait(&mut self, until_ns: u64, precise: bool) -> usize {
        let until_ns = if precise { until_ns } else { until_ns.saturating_add(self.coarse_ns) };
        self.ready.clear();
        self.happen();
        if self.ready.is_empty() && until_ns > self.now_ns.get() {
            let next_ns = self.next_at().unwrap_or(u64::MAX).min(until_ns);
            assert!(next_ns < u64::MAX, "the engine sleeps for ever");
            self.now_ns.set(self.now_ns.get().max(next_ns));
            self.hold_up();
            self.happen();
        }
        self.ready.len()
    }

    fn has_more(&self) -> bool {
        self.ready.len() >= self.ready_max
    }

    fn ready(&self, index: usize) -> Ready {
        self.ready[index]
    }
}

/// Whether these bytes are one request with all of its body. More than one is what the engine never sends at once.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let whole = end + 4 + length.map_or(0, |length| length.trim().parse::<usize>().unwrap());
    assert!(bytes.len() <= whole, "{} bytes of a request of {whole}", bytes.len());
    bytes.len() == whole
}

/// A workload of GET requests for `/`, ten seconds of timeout, to be changed by the test.
pub(super) fn workload(arrival: Arrival, connections: u32, duration_ms: u64) -> Workload {
    Workload {
        requests: vec![get("/")],
        arrival,
        stop: Stop { duration_us: Some(duration_ms * 1000), requests: None },
        connections,
        threads: Some(1),
        ..Workload::default()
    }
}

pub(super) fn get(path: &str) -> RequestSpec {
    RequestSpec { name: path.into(), url: format!("http://127.0.0.1:1{path}"), ..RequestSpec::default() }
}

/// What a simulated load gave.
pub(super) struct Outcome {
    pub(super) intervals: Vec<Interval>,
    pub(super) end: LoadEnd,
}

impl Outcome {
    pub(super) fn sum(&self, of: impl Fn(&Interval) -> u64) -> u64 {
        self.intervals.iter().map(of).sum()
    }

    pub(super) fn merged(
        &self,
        of: impl Fn(&Interval) -> &Option<webdyno_model::histogram::EncodedHistogram>,
    ) -> TimeHistogram {
        let mut merged = TimeHistogram::new();
        for encoded in self.intervals.iter().filter_map(|interval| of(interval).as_ref()) {
            merged.merge_encoded(encoded).unwrap();
        }
        merged
    }

    /// Completed, failed, in flight at the end.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let completed = self.sum(|interval| interval.completed);
        let failed = self.sum(|interval| interval.failed);
        (completed, failed, self.end.in_flight_at_end)
    }
}

/// Runs the load on one thread against the server, and checks what must hold for every load.
pub(super) fn simulate(workload: &Workload, server: Server<'_>) -> Outcome {
    simulate_on(workload, Sim::new(server))
}

/// As [`simulate`], on a machine that the test has set up.
pub(super) fn simulate_on(workload: &Workload, sim: Sim<'_>) -> Outcome {
    simulate_threads(workload, vec![sim])
}

/// Threads whose server accepts at once and answers after a fixed time; when the requests reached it, in order.
pub(super) fn arrivals(workload: &Workload, threads: u64, after_ns: u64) -> (Vec<u64>, Outcome) {
    let arrived = RefCell::new(vec![]);
    let sim = |_| {
        Sim::new(Box::new(|visit: ServerRequest| {
            if visit.request == 0 {
                return vec![(0, ServerAction::Accept)];
            }
            arrived.borrow_mut().push(visit.now_ns);
            vec![(after_ns, ServerAction::Send(OK.to_vec()))]
        }))
    };
    let outcome = simulate_threads(workload, (0..threads).map(sim).collect());
    let mut arrived = arrived.take();
    arrived.sort_unstable();
    (arrived, outcome)
}

/// As [`simulate_on`], with a thread for each machine. Threads share nothing, so they may run one after the other.
pub(super) fn simulate_threads(workload: &Workload, sims: Vec<Sim<'_>>) -> Outcome {
    let threads = sims.len() as u32;
    let prepared = prepare(&Workload { threads: Some(threads), ..workload.clone() }).unwrap();
    let control = Control::new();
    let mut merger = Merger::new(prepared.plan.labels(), sims.len());
    let budget = workload
        .stop
        .requests
        .filter(|_| workload.arrival == Arrival::Closed)
        .map(|requests| Arc::new(AtomicU64::new(requests)));
    let labels = prepared.plan.labels();
    let mut intervals = vec![];
    for (thread, sim) in (0..threads).zip(sims) {
        let share = ThreadShare { thread, threads, unit: prepared.plan.share_unit(), budget: budget.clone() };
        let exchange = |full: Box<Report>| {
            merger.add(thread as usize, full);
            let mut spare = None;
            intervals.extend(merger.next_interval(&mut |_, used| spare = Some(used)));
            spare.or_else(|| Some(Box::new(Report::new(&labels))))
        };
        match prepared.plan.stream_limits(&share) {
            None => Engine::new(&prepared.plan, &control, &share, sim, exchange).run(),
            Some(limits) => {
                let io = MultiplexedIo::<_, http2::connection::Connection>::new(
                    sim,
                    (),
                    limits,
                    prepared.plan.slots(&share),
                );
                Engine::new(&prepared.plan, &control, &share, io, exchange).run();
            }
        }
    }
    intervals.extend(std::iter::from_fn(|| merger.next_interval(&mut |_, _| {})));
    let end = merger.end().unwrap();
    let outcome = Outcome { intervals, end };
    check_conservation(&outcome);
    outcome
}

/// Invariants of every load: nothing is lost or doubled, at every boundary, and Little's law holds.
fn check_conservation(outcome: &Outcome) {
    let (mut started, mut ended, mut at_us) = (0, 0, 0);
    for interval in &outcome.intervals {
        started += interval.started;
        ended += interval.completed + interval.failed;
        assert_eq!(started, ended + interval.in_flight, "{interval:?}");
        assert_eq!(interval.errors.total(), interval.failed);
        assert_eq!((interval.t_s * 1e6) as u64, at_us, "intervals follow each other");
        at_us += interval.length_us;
    }
    let end = &outcome.end;
    let last = outcome.intervals.last().unwrap();
    assert_eq!(last.in_flight, end.in_flight_at_end);
    assert!((end.elapsed_us).abs_diff(at_us) <= 1);
    let response = outcome.merged(|interval| &interval.response_time);
    let failed = outcome.merged(|interval| &interval.failed_time);
    let service = outcome.merged(|interval| &interval.service_time);
    assert_eq!(response.count() + failed.count(), ended);
    // All that was answered was sent; what timed out may not have been.
    let completed = outcome.sum(|interval| interval.completed);
    assert!((completed..=response.count()).contains(&service.count()), "{} served", service.count());
    let mut censored = TimeHistogram::new();
    censored.merge_encoded_if(&end.censored_time);
    assert_eq!(censored.count(), end.in_flight_at_end);
    let sum = |histogram: &TimeHistogram| histogram.mean_us().unwrap_or(0.0) * histogram.count() as f64;
    let times_us = sum(&response) + sum(&failed) + sum(&censored);
    let integral_us = outcome.sum(|interval| interval.in_flight_us) as f64;
    // Each time is rounded to a microsecond, and each interval's integral cut to one; nothing else may differ.
    let allowed_us = 0.5 * started as f64 + outcome.intervals.len() as f64 + 10.0;
    assert!((integral_us - times_us).abs() <= allowed_us, "Little: {integral_us} against {times_us}");
}

trait MergeIf {
    fn merge_encoded_if(&mut self, encoded: &Option<webdyno_model::histogram::EncodedHistogram>);
}

impl MergeIf for TimeHistogram {
    fn merge_encoded_if(&mut self, encoded: &Option<webdyno_model::histogram::EncodedHistogram>) {
        encoded.iter().for_each(|encoded| self.merge_encoded(encoded).unwrap());
    }
}

/// A reason that tests compare with.
pub(super) const DURATION: EndReason = EndReason::Duration;
