//! A connection that slots share, and the connections that a slot may join.

use super::multiplex::Multiplex;
use crate::io::network_io::SocketError;

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkState {
    /// It cannot carry requests yet.
    Connecting,
    Open,
    /// It could not be established.
    Failed(SocketError),
    /// It was open, and is over.
    Ended,
}

/// A connection and what the layer knows of it.
#[derive(Debug)]
pub(super) struct Link<C> {
    pub(super) connection: C,
    pub(super) state: LinkState,
    pub(super) key: GroupKey,
    /// Further slots may join it.
    pub(super) is_grouped: bool,
    /// Slots that are on it.
    pub(super) slots: u32,
    /// The slot whose request was the first on it.
    pub(super) opener: Option<u32>,
    /// It is in the list of those with something to be written.
    pub(super) is_dirty: bool,
    /// It is in the list of those with more to be read.
    pub(super) is_unread: bool,
    /// Reads that gave something.
    pub(super) reads: u64,
    /// The peer's close was signalled.
    pub(super) hangup: bool,
    /// A write failed: what can still be read is all there is.
    pub(super) send_failed: bool,
    /// The moment for which its timer stands, `u64::MAX` for none.
    pub(super) timer_ns: u64,
}

impl<C> Link<C> {
    pub(super) fn new(key: GroupKey, connection: C) -> Self {
        Self {
            connection,
            state: LinkState::Connecting,
            key,
            is_grouped: true,
            slots: 0,
            opener: None,
            is_dirty: false,
            is_unread: false,
            reads: 0,
            hangup: false,
            send_failed: false,
            timer_ns: u64::MAX,
        }
    }
}

/// Whose connections, to which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    /// The visitor; different ones share no connection.
    pub(super) owner: u32,
    /// The address of the plan's server, which stays where it is.
    pub(super) origin: usize,
}

/// The connections that a slot may join.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) links: Vec<u32>,
    turn: usize,
}

impl Group {
    /// The next one, in turn, that has room for one more slot.
    pub(super) fn next_with_room<C: Multiplex>(
        &mut self,
        links: &[Option<Box<Link<C>>>],
        slots_max: u32,
    ) -> Option<u32> {
        let count = self.links.len();
        // One that begins no further request may not be known as such yet to those who keep the group.
        let has_room = |number: u32| {
            let link = links[number as usize].as_ref();
            link.is_some_and(|link| link.slots < slots_max && !link.connection.is_draining())
        };
        let step = (0..count).find(|step| has_room(self.links[(self.turn + step) % count]))?;
        let chosen = (self.turn + step) % count;
        self.turn = chosen + 1;
        Some(self.links[chosen])
    }
}
