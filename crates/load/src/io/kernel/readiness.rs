//! Which sockets are ready: told by epoll, or by choice by io_uring, by edges as epoll(7) defines them.

use super::uring::Uring;
use super::{EVENTS_MAX, WAKE_TOKEN, ready_from};
use crate::io::clock::timespec;
use crate::io::network_io::Ready;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Result;

/// Who tells it.
pub(super) enum Readiness {
    Epoll(OwnedFd),
    Uring(Box<Uring>),
}

impl Readiness {
    /// An epoll instance.
    pub(super) fn epoll() -> Result<Self> {
        Ok(Self::Epoll(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// On the thread that waits from now on, for this many slots: what its waits need.
    pub(super) fn begin(&mut self, slots: usize) -> Vec<Event> {
        match self {
            Self::Epoll(_) => {
                let nothing = Event { flags: EventFlags::empty(), data: EventData::new_u64(WAKE_TOKEN) };
                vec![nothing; EVENTS_MAX]
            }
            Self::Uring(uring) => {
                uring.begin(slots);
                vec![]
            }
        }
    }

    /// Has something end a sleep: once, when it becomes readable, or as long as it is.
    pub(super) fn add_wake(&mut self, source: &OwnedFd, lasting: bool) -> Result<()> {
        match self {
            Self::Epoll(epoll) => {
                let edge = if lasting { EventFlags::empty() } else { EventFlags::ET };
                epoll::add(epoll, source, EventData::new_u64(WAKE_TOKEN), EventFlags::IN | edge)
            }
            Self::Uring(uring) => {
                uring.add_wake(source);
                Ok(())
            }
        }
    }

    /// Tells of a socket from now on. `asks_for_room`: whoever sends calls [`Self::await_room`] where there is none.
    #[inline]
    pub(super) fn add(&mut self, slot: u32, token: u64, socket: &OwnedFd, asks_for_room: bool) -> Result<()> {
        let input = EventFlags::IN | EventFlags::RDHUP;
        match self {
            Self::Epoll(epoll) => {
                let interest = input | EventFlags::OUT | EventFlags::PRI | EventFlags::ET;
                epoll::add(epoll, socket, EventData::new_u64(token), interest)
            }
            Self::Uring(uring) => {
                // Without PRI, of which io_uring tells whenever anything comes: it gives what woke it, where epoll looks.
                let room = if asks_for_room { EventFlags::empty() } else { EventFlags::OUT };
                uring.add(slot, token, socket.as_raw_fd(), input | room);
                Ok(())
            }
        }
    }

    /// Tells when a socket has room, once. With epoll it is told anyway.
    #[cold]
    pub(super) fn await_room(&mut self, slot: u32) {
        if let Self::Uring(uring) = self {
            uring.await_room(slot);
        }
    }

    /// Closes a socket, of which nothing more is told.
    #[inline]
    pub(super) fn close(&mut self, slot: u32, socket: OwnedFd) {
        match self {
            Self::Epoll(_) => drop(socket),
            Self::Uring(uring) => uring.close(slot, socket),
        }
    }

    /// Has what was closed closed now. Whether there may have been something.
    #[cold]
    pub(super) fn hand_over(&self) -> bool {
        matches!(self, Self::Uring(uring) if uring.submit())
    }

    /// Sleeps until something happens, or for this long. Returns how many things happened.
    #[inline]
    pub(super) fn wait(&mut self, left_ns: u64, events: &mut [Event]) -> usize {
        // The kernel's plain epoll_wait counts in milliseconds, rounded up: late by less than one.
        let timeout = timespec(left_ns);
        match self {
            Self::Epoll(epoll) => epoll::wait(epoll, events, Some(&timeout)).unwrap_or(0),
            Self::Uring(uring) => uring.wait(left_ns),
        }
    }

    /// Whether there may be more than a wait that gave so many. Of io_uring the kernel may hand over a part only.
    pub(super) fn has_more(&self, count: usize) -> bool {
        match self {
            Self::Epoll(_) => count == EVENTS_MAX,
            Self::Uring(_) => count > 0,
        }
    }

    /// One of them.
    #[inline]
    pub(super) fn ready(&self, index: usize, events: &[Event]) -> Ready {
        match self {
            Self::Epoll(_) => ready_from(events[index].data.u64(), events[index].flags),
            Self::Uring(uring) => uring.ready(index),
        }
    }
}
