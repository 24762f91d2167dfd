//! The real world: Linux sockets and epoll, edge-triggered. epoll(7), timerfd_create(2), tcp(7).
//!
//! A socket is registered once, for everything, so a request on a kept connection costs one send, one recv and a
//! share of one epoll_wait. Precise waits use a timerfd, whose high-resolution timer has neither the millisecond of
//! epoll_wait nor a thread's timer slack; it is edge-triggered too and so never needs to be read.

use crate::prepare::Origin;
use crate::world::{Broke, Ready, World};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::net::SocketAddr;

/// Events taken with one call. More would let the first ones grow stale before the last are handled.
const EVENTS_MAX: usize = 128;
/// Token of what only ends a sleep: the timer and the stop signal.
const WAKE_TOKEN: u64 = u64::MAX;
const NS_PER_S: u64 = 1_000_000_000;

/// What the kernel must give before a thread can run, and may refuse.
pub(crate) struct EventLoop {
    epoll: OwnedFd,
    timer: OwnedFd,
    // Held so that it stays registered.
    _waker: OwnedFd,
}

/// Sockets and clock of one thread.
pub(crate) struct EpollWorld {
    kernel: EventLoop,
    sockets: Vec<Option<OwnedFd>>,
    events: Vec<Event>,
    origin_ns: u64,
    armed_ns: u64,
}

/// The monotonic clock in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / NS_PER_S) as i64, tv_nsec: (ns % NS_PER_S) as _ }
}

impl EventLoop {
    /// An event loop whose sleep ends when `waker` becomes readable.
    pub(crate) fn new(waker: OwnedFd) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let wake = EventData::new_u64(WAKE_TOKEN);
        epoll::add(&epoll, &timer, wake, EventFlags::IN | EventFlags::ET)?;
        // Level-triggered: whoever stops the load must not be missed.
        epoll::add(&epoll, &waker, wake, EventFlags::IN)?;
        Ok(Self { epoll, timer, _waker: waker })
    }
}

impl EpollWorld {
    /// For so many slots.
    pub(crate) fn new(kernel: EventLoop, slots: usize) -> Self {
        let nothing = Event { flags: EventFlags::empty(), data: EventData::new_u64(WAKE_TOKEN) };
        Self {
            kernel,
            sockets: (0..slots).map(|_| None).collect(),
            events: vec![nothing; EVENTS_MAX],
            origin_ns: 0,
            armed_ns: 0,
        }
    }

    /// Sets the moment at which the load begins, on the monotonic clock.
    pub(crate) fn begin_at(&mut self, origin_ns: u64) {
        self.origin_ns = origin_ns;
    }

    fn socket(&self, slot: u32) -> Result<&OwnedFd> {
        self.sockets[slot as usize].as_ref().ok_or(Errno::BADF)
    }

    fn arm(&mut self, until_ns: u64) {
        if self.armed_ns == until_ns {
            return;
        }
        let at = Itimerspec { it_interval: timespec(0), it_value: timespec(self.origin_ns + until_ns) };
        // A timer of our own cannot be refused; if it were, the coarse timeout still ends the sleep.
        if timerfd_settime(&self.kernel.timer, TimerfdTimerFlags::ABSTIME, &at).is_ok() {
            self.armed_ns = until_ns;
        }
    }
}

impl World for EpollWorld {
    #[inline]
    fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.origin_ns)
    }

    fn cpu_ns(&self) -> u64 {
        nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
    }

    fn connect(&mut self, slot: u32, token: u64, origin: &Origin) -> std::result::Result<(), Broke> {
        let address = origin.address();
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        let interest =
            EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::PRI | EventFlags::ET;
        epoll::add(&self.kernel.epoll, &socket, EventData::new_u64(token), interest)?;
        self.sockets[slot as usize] = Some(socket);
        Ok(())
    }

    #[inline]
    fn send(&mut self, slot: u32, bytes: &[u8]) -> std::result::Result<usize, Broke> {
        Ok(rustix::net::send(self.socket(slot)?, bytes, SendFlags::NOSIGNAL)?)
    }

    #[inline]
    fn recv(&mut self, slot: u32, buffer: &mut [u8]) -> std::result::Result<usize, Broke> {
        Ok(rustix::net::recv(self.socket(slot)?, buffer, RecvFlags::empty())?.1)
    }

    /// MSG_TRUNC on a stream: the kernel drops the bytes and copies nothing, tcp(7).
    #[inline]
    fn discard(&mut self, slot: u32, buffer: &mut [u8]) -> std::result::Result<usize, Broke> {
        Ok(rustix::net::recv(self.socket(slot)?, buffer, RecvFlags::TRUNC)?.1)
    }

    fn close(&mut self, slot: u32) {
        self.sockets[slot as usize] = None;
    }

    fn wait(&mut self, until_ns: u64, precise: bool) -> usize {
        let left_ns = until_ns.saturating_sub(self.now_ns());
        if precise && left_ns > 0 {
            self.arm(until_ns);
        }
        // The kernel's plain epoll_wait counts in milliseconds, rounded up: late by less than one.
        let timeout = timespec(left_ns);
        epoll::wait(&self.kernel.epoll, &mut self.events[..], Some(&timeout)).unwrap_or(0)
    }

    #[inline]
    fn ready(&self, index: usize) -> Ready {
        let event = self.events[index];
        let flags = event.flags;
        // A read ends at urgent data (tcp(7)) and is then short without having drained the socket. Nobody sends any in
        // HTTP: such a connection is read to its end and not kept.
        let hangup =
            flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR | EventFlags::PRI);
        Ready { token: event.data.u64(), readable: hangup || flags.contains(EventFlags::IN), hangup }
    }
}
