//! A scripted HTTP server that knows to the microsecond what it did: the reference for the accuracy of load generators.
//!
//! One thread on epoll. A request counts from the moment at which the kernel received it (SO_TIMESTAMPNS, socket(7) and
//! Documentation/networking/timestamping.rst of the kernel), so that a pause of this server is part of what it truly
//! gave; its response is due a scripted time later, and the moment at which it was really sent is recorded. What is
//! compared with a load generator's figures is therefore what happened, not what was planned. Between answers it sleeps
//! on a timerfd, or with `spin` it never sleeps.

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::SendFlags;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_US: f64 = 1e3;
const MS: u64 = 1_000_000;
const EVENTS_MAX: usize = 64;
const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;
/// HTTP/1.0 clients that asked for it need to be told that the connection stays.
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok";

/// How long answers take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Script {
    /// All the same time.
    Constant { answer_us: f64 },
    /// One answer in ten takes the slow time, at random.
    Bimodal { fast_us: f64, slow_us: f64 },
    /// Exponential times.
    Exponential { mean_us: f64 },
    /// In the first `frozen_ms` of every `period_ms` nothing is answered: what becomes due then is sent when they end.
    Freezing { answer_us: f64, frozen_ms: u64, period_ms: u64 },
    /// Every so many-th request, in the order of arrival, is never answered.
    Silent { answer_us: f64, every: u64 },
}

impl Script {
    /// When request number `number` (from 1) that arrived then is to be answered; `None` for never. `began_ns` is when
    /// the server began, on the same clock; `chance` is even in [0, 1).
    fn due_ns(self, number: u64, arrived_ns: u64, began_ns: u64, chance: f64) -> Option<u64> {
        let after = |us: f64| arrived_ns + (us * NS_PER_US) as u64;
        match self {
            Self::Constant { answer_us } => Some(after(answer_us)),
            Self::Bimodal { fast_us, slow_us } => Some(after(if chance < 0.1 { slow_us } else { fast_us })),
            Self::Exponential { mean_us } => Some(after(-(1.0 - chance).ln() * mean_us)),
            Self::Freezing { answer_us, frozen_ms, period_ms } => {
                let due_ns = after(answer_us);
                let in_period_ns = (due_ns - began_ns) % (period_ms * MS);
                Some(due_ns + (frozen_ms * MS).saturating_sub(in_period_ns))
            }
            Self::Silent { answer_us, every } => (!number.is_multiple_of(every)).then(|| after(answer_us)),
        }
    }
}

/// What the server did with one request. Nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// When the kernel received it.
    pub arrived_ns: u64,
    /// When its response was sent; `None` if it never was, or its client had gone.
    pub answered_ns: Option<u64>,
}

/// A server that lives until it is stopped.
pub struct Reference {
    pub address: SocketAddr,
    stop: UnixStream,
    server: JoinHandle<std::io::Result<Vec<Served>>>,
}

impl Reference {
    /// Listens on a free port of the loopback. One seed gives the same times, always.
    pub fn start(script: Script, seed: u64, spin: bool) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = UnixStream::pair()?;
        let mut work = Work::new(script, seed, spin, listener, stopped)?;
        let server = thread::Builder::new().name("reference".into()).spawn(move || work.serve())?;
        Ok(Self { address, stop, server })
    }

    /// Ends it. Returns what it did, in the order of arrival.
    pub fn stop(self) -> std::io::Result<Vec<Served>> {
        drop(self.stop);
        self.server.join().unwrap_or_else(|_| Err(std::io::Error::other("the reference server panicked")))
    }
}

/// A response that is due: when, to which request, and on which connection.
type Due = Reverse<(u64, usize, usize, u64)>;

struct Connection {
    stream: TcpStream,
    /// Which of the connections that had this place it is.
    generation: u64,
    /// Bytes of the blank line that ends a request, seen so far.
    blank: usize,
}

struct Work {
    script: Script,
    random: u64,
    spin: bool,
    listener: TcpListener,
    _stopped: UnixStream,
    epoll: OwnedFd,
    timer: OwnedFd,
    armed_ns: u64,
    connections: Vec<Option<Connection>>,
    accepted: u64,
    due: BinaryHeap<Due>,
    served: Vec<Served>,
    began_ns: u64,
    control: Vec<u8>,
}

fn clock_ns(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / NS_PER_S) as i64, tv_nsec: (ns % NS_PER_S) as _ }
}

impl Work {
    fn new(
        script: Script,
        seed: u64,
        spin: bool,
        listener: TcpListener,
        stopped: UnixStream,
    ) -> std::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &timer, EventData::new_u64(WAKE), EventFlags::IN | EventFlags::ET)?;
        // Its hangup is the signal to end; it is examined by its own flag.
        epoll::add(&epoll, &stopped, EventData::new_u64(WAKE), EventFlags::RDHUP)?;
        Ok(Self {
            script,
            random: seed,
            spin,
            listener,
            _stopped: stopped,
            epoll,
            timer,
            armed_ns: 0,
            connections: vec![],
            accepted: 0,
            due: BinaryHeap::new(),
            served: Vec::with_capacity(1 << 18),
            began_ns: clock_ns(ClockId::Monotonic),
            control: cmsg_space!(TimeSpec),
        })
    }

    fn serve(&mut self) -> std::io::Result<Vec<Served>> {
        let nothing = Event { flags: EventFlags::empty(), data: EventData::new_u64(WAKE) };
        let mut events = [nothing; EVENTS_MAX];
        loop {
            let next_ns = self.answer_due();
            let count = match self.wait(next_ns, &mut events) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
                other => other?,
            };
            for event in &events[..count] {
                let flags = event.flags;
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    WAKE if flags.intersects(EventFlags::RDHUP | EventFlags::HUP) => {
                        return Ok(std::mem::take(&mut self.served));
                    }
                    WAKE => {}
                    place => self.read(place as usize),
                }
                // A batch of requests must not make a response late.
                self.answer_due();
            }
        }
    }

    fn wait(&mut self, next_ns: Option<u64>, events: &mut [Event]) -> std::io::Result<usize> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if let Some(next_ns) = next_ns
            && !self.spin
            && next_ns != self.armed_ns
        {
            let at = Itimerspec { it_interval: at_once, it_value: timespec(next_ns) };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &at)?;
            self.armed_ns = next_ns;
        }
        Ok(epoll::wait(&self.epoll, events, self.spin.then_some(&at_once))?)
    }

    /// Sends the responses that are due. Gives when the next one is.
    fn answer_due(&mut self) -> Option<u64> {
        loop {
            let &Reverse((due_ns, request, place, generation)) = self.due.peek()?;
            let now_ns = clock_ns(ClockId::Monotonic);
            if due_ns > now_ns {
                return Some(due_ns);
            }
            self.due.pop();
            let connection = self.connections.get(place).and_then(Option::as_ref);
            let Some(connection) = connection.filter(|connection| connection.generation == generation) else {
                continue;
            };
            // So short a response always fits; a client that has gone gets none.
            if rustix::net::send(&connection.stream, OK, SendFlags::NOSIGNAL).is_ok() {
                self.served[request].answered_ns = Some(now_ns);
            }
        }
    }

    fn accept(&mut self) -> std::io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            setsockopt(&stream, sockopt::ReceiveTimestampns, &true)?;
            let place = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
            epoll::add(&self.epoll, &stream, EventData::new_u64(place as u64), EventFlags::IN)?;
            self.accepted += 1;
            let connection = Connection { stream, generation: self.accepted, blank: 0 };
            if place == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[place] = Some(connection);
        }
        Ok(())
    }

    /// Reads what a connection has. Requests have no bodies and do not overlap.
    fn read(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) else {
            return;
        };
        let mut buffer = [0; 4096];
        let (count, stamp_ns) = match receive(&connection.stream, &mut buffer, &mut self.control) {
            Ok((0, _)) => {
                self.connections[place] = None;
                return;
            }
            Ok(got) => got,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return,
            Err(_) => {
                self.connections[place] = None;
                return;
            }
        };
        let generation = connection.generation;
        let requests = blank_lines(&mut connection.blank, &buffer[..count]);
        for _ in 0..requests {
            self.take(place, generation, stamp_ns);
        }
    }

    /// A request has come, at this moment of the real-time clock if the kernel says so.
    fn take(&mut self, place: usize, generation: u64, stamp_ns: Option<u64>) {
        let now_ns = clock_ns(ClockId::Monotonic);
        let age_ns = stamp_ns.map_or(0, |stamp_ns| clock_ns(ClockId::Realtime).saturating_sub(stamp_ns));
        let arrived_ns = now_ns.saturating_sub(age_ns);
        let chance = self.chance();
        let request = self.served.len();
        self.served.push(Served { arrived_ns, answered_ns: None });
        let due_ns = self.script.due_ns(request as u64 + 1, arrived_ns, self.began_ns, chance);
        self.due.extend(due_ns.map(|due_ns| Reverse((due_ns, request, place, generation))));
    }

    /// Even in [0, 1): splitmix64.
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Bytes received, and when the kernel got the last of them (real-time clock).
fn receive(
    stream: &TcpStream,
    buffer: &mut [u8],
    control: &mut [u8],
) -> Result<(usize, Option<u64>), nix::errno::Errno> {
    let mut parts = [IoSliceMut::new(buffer)];
    let got = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(control), MsgFlags::empty())?;
    let stamps = got.cmsgs()?.filter_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => {
            Some(time.tv_sec() as u64 * NS_PER_S + time.tv_nsec() as u64)
        }
        _ => None,
    });
    let stamp_ns = stamps.last();
    Ok((got.bytes, stamp_ns))
}

/// Counts the ends of requests; `seen` is how much of the next one's was seen.
fn blank_lines(seen: &mut usize, bytes: &[u8]) -> usize {
    const BLANK: &[u8] = b"\r\n\r\n";
    let mut count = 0;
    for &byte in bytes {
        *seen = match byte {
            _ if byte == BLANK[*seen] => *seen + 1,
            b'\r' => 1,
            _ => 0,
        };
        if *seen == BLANK.len() {
            (count, *seen) = (count + 1, 0);
        }
    }
    count
}
