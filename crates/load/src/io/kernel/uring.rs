//! Readiness by io_uring(7): a poll of many shots stands for a registration with epoll, and it, its removal and the close
//! of a socket are queued and reach the kernel with the wait, in one call (io_uring_enter(2)). Sockets are opened, written
//! and read as with epoll: a send and a read are then stamped when they happen.
//!
//! Facts: io_uring_enter(2) on IORING_OP_POLL_ADD (edges unless IORING_POLL_ADD_LEVEL is set; without IORING_CQE_F_MORE
//! a poll has ended), IORING_OP_POLL_REMOVE and IORING_OP_CLOSE; io_uring_setup(2) on IORING_SETUP_DEFER_TASKRUN (Linux
//! 6.1; only the thread that enabled the ring may use it). A poll under way holds its socket open: it is removed before
//! the close, else no FIN is sent.

use super::{EVENTS_MAX, WAKE_TOKEN, ready_from};
use crate::io::network_io::Ready;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsRawFd, IntoRawFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// Calls that are queued before the kernel takes them, at most.
const QUEUED_MAX: u32 = 256;
/// Results that the kernel has room for; of more it keeps a list.
const RESULTS_MAX: u32 = 4096;
/// Marks calls whose result tells nothing.
const NO_SLOT: u64 = u64::MAX;
/// In the part of a mark that is the slot: the poll waits for room. No thread has that many slots.
const ROOM: u64 = 1 << 31;

/// What polls of a slot are under way.
#[derive(Debug, Clone, Copy, Default)]
struct SlotPolls {
    /// Changes with each socket, so that results for an earlier one are recognised.
    generation: u32,
    token: u64,
    socket: i32,
    /// The poll of many shots, for these; empty when there is none.
    interest: EventFlags,
    awaits_room: bool,
}

/// The ring of one thread.
pub(super) struct Uring {
    ring: IoUring,
    slots: Vec<SlotPolls>,
    events: Vec<Ready>,
    /// Slots whose poll the kernel has ended, and their sockets live on.
    ended: Vec<(u32, EventFlags)>,
    /// What ends a sleep. It has slots, too, behind the others.
    wakes: Vec<i32>,
}

/// Why there is no io_uring here for so many threads, if there is none: their rings are made, and one is used.
pub(crate) fn unavailable(threads: u32) -> Option<String> {
    let tried = (0..threads).map(|_| Uring::new()).collect::<io::Result<Vec<_>>>().and_then(|rings| {
        let Some(uring) = rings.first() else { return Ok(()) };
        uring.ring.submitter().register_enable_rings()?;
        uring.ring.submit().map(drop)
    });
    tried.err().map(|error| reason(&error))
}

fn reason(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOSYS) => "this kernel has no io_uring".into(),
        Some(Errno::PERM | Errno::ACCESS) => {
            "io_uring is forbidden here (sysctl kernel.io_uring_disabled, or what confines this process)"
                .into()
        }
        Some(Errno::INVAL) => "the io_uring of this kernel is older than Linux 6.1".into(),
        _ => format!("io_uring: {error}"),
    }
}

impl Uring {
    /// A ring for the thread that calls [`Self::begin`].
    pub(super) fn new() -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(RESULTS_MAX)
            .build(QUEUED_MAX)?;
        let events = Vec::with_capacity(EVENTS_MAX);
        Ok(Self { ring, slots: vec![], events, ended: vec![], wakes: vec![] })
    }

    pub(super) fn begin(&mut self, slots: usize) {
        // A probe did the same; if it were refused now, no wait would work, which `wait` sees.
        let _ = self.ring.submitter().register_enable_rings();
        self.slots = vec![SlotPolls::default(); slots + self.wakes.len()];
        for (index, wake) in std::mem::take(&mut self.wakes).into_iter().enumerate() {
            self.add((slots + index) as u32, WAKE_TOKEN, wake, EventFlags::IN);
        }
    }

    /// Queues a call.
    #[allow(unsafe_code)] // docs/decisions/051
    fn push(&mut self, call: squeue::Entry) {
        loop {
            // SAFETY: a call must point to nothing that ends before it: polls, their removal and closes point to no memory.
            if unsafe { self.ring.submission().push(&call) }.is_ok() {
                return;
            }
            self.submit();
        }
    }

    /// Hands over what is queued; whether that was anything.
    pub(super) fn submit(&self) -> bool {
        self.ring.submit().is_ok_and(|count| count > 0)
    }

    pub(super) fn add_wake(&mut self, source: &OwnedFd) {
        self.wakes.push(source.as_raw_fd());
    }

    fn mark(&self, slot: u32) -> u64 {
        u64::from(self.slots[slot as usize].generation) << 32 | u64::from(slot)
    }

    pub(super) fn add(&mut self, slot: u32, token: u64, socket: i32, interest: EventFlags) {
        let polls = &mut self.slots[slot as usize];
        (polls.token, polls.socket) = (token, socket);
        self.poll(slot, interest);
    }

    fn poll(&mut self, slot: u32, interest: EventFlags) {
        let polls = &mut self.slots[slot as usize];
        polls.interest = interest;
        let poll = opcode::PollAdd::new(Fd(polls.socket), interest.bits()).multi(true);
        self.push(poll.build().user_data(self.mark(slot)));
    }

    pub(super) fn await_room(&mut self, slot: u32) {
        let polls = &mut self.slots[slot as usize];
        if !polls.awaits_room && !polls.interest.contains(EventFlags::OUT) {
            polls.awaits_room = true;
            let poll = opcode::PollAdd::new(Fd(polls.socket), EventFlags::OUT.bits());
            self.push(poll.build().user_data(self.mark(slot) | ROOM));
        }
    }

    pub(super) fn close(&mut self, slot: u32, socket: OwnedFd) {
        let (polls, mark) = (self.slots[slot as usize], self.mark(slot));
        for (under_way, mark) in [(!polls.interest.is_empty(), mark), (polls.awaits_room, mark | ROOM)] {
            if under_way {
                self.push(silent(opcode::PollRemove::new(mark).build()));
            }
        }
        let generation = polls.generation.wrapping_add(1);
        self.slots[slot as usize] = SlotPolls { generation, ..SlotPolls::default() };
        self.push(silent(opcode::Close::new(Fd(socket.into_raw_fd())).build()));
    }

    pub(super) fn wait(&mut self, left_ns: u64) -> usize {
        self.enter(left_ns);
        self.events.clear();
        for result in self.ring.completion().take(EVENTS_MAX) {
            let (mark, flags) = (result.user_data(), EventFlags::from_bits_retain(result.result() as u32));
            let slot = mark as u32 & !(ROOM as u32);
            let Some(polls) = self.slots.get_mut(slot as usize) else { continue };
            if u64::from(polls.generation) != mark >> 32 {
                continue;
            }
            let ready = match result.result() {
                // The kernel had no memory for it, say: what there is to read decides.
                ..0 => Ready { token: polls.token, readable: true, hangup: true },
                _ => ready_from(polls.token, flags),
            };
            if mark & ROOM != 0 {
                polls.awaits_room = false;
            } else if !cqueue::more(result.flags()) {
                let interest = std::mem::replace(&mut polls.interest, EventFlags::empty());
                if !ready.hangup {
                    self.ended.push((slot, interest));
                }
            }
            self.events.push(ready);
        }
        while let Some((slot, interest)) = self.ended.pop() {
            self.poll(slot, interest);
        }
        self.events.len()
    }

    /// Hands over what is queued, and sleeps.
    fn enter(&mut self, left_ns: u64) {
        let left = Duration::from_nanos(left_ns);
        let timeout = Timespec::new().sec(left.as_secs()).nsec(left.subsec_nanos());
        let entered = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout));
        let error = entered.err().and_then(|error| Errno::from_io_error(&error));
        if !matches!(error, None | Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN)) {
            // No time is known to bring anything else; if it did, that must not cost a processor.
            std::thread::sleep(left.min(Duration::from_millis(1)));
        }
    }

    pub(super) fn ready(&self, index: usize) -> Ready {
        self.events[index]
    }
}

/// A call of which only a failure is told, to nobody.
fn silent(call: squeue::Entry) -> squeue::Entry {
    call.user_data(NO_SLOT).flags(squeue::Flags::SKIP_SUCCESS)
}

impl Drop for Uring {
    /// What was closed last is closed now: the kernel takes a ring down in its own time.
    fn drop(&mut self) {
        self.enter(0);
    }
}
