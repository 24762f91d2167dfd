//! Arrivals of visitors: the users of a closed load, as many as its stages have, or the starts of an open one.

use crate::engine::arrivals::{Starts, Users};

/// How visitors come to one thread.
#[derive(Debug)]
pub(super) enum VisitorArrivals {
    /// A seat has a visitor as long as its user is active.
    Users(Users),
    /// Each start is a visitor.
    Starts {
        starts: Starts,
        /// Starts of this thread that became due, and that were admitted.
        due: u64,
        admitted: u64,
    },
}

/// A visitor that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VisitorArrival {
    /// Which one of this thread.
    pub(super) number: u64,
    pub(super) intended_ns: u64,
    /// Since when it could have begun.
    pub(super) sendable_ns: u64,
}

impl VisitorArrivals {
    /// When the next visitor arrives: 0 for now, `None` for not before another event. `room`: there is a connection.
    pub(super) fn due_ns(&self, room: bool) -> Option<u64> {
        match self {
            Self::Users(users) => users.due_ns(),
            // Starts that find no room become due by the pacer alone; no wake-up is needed for them.
            Self::Starts { .. } if !room => None,
            Self::Starts { starts, .. } if starts.waiting() > 0 => Some(0),
            Self::Starts { starts, .. } => starts.next_due_ns(),
        }
    }

    /// The next one to come by now. `room`: there is a connection.
    pub(super) fn next(&mut self, now_ns: u64, room: bool) -> Option<VisitorArrival> {
        match self {
            Self::Users(users) => users.next(now_ns).map(|turn| VisitorArrival {
                number: u64::from(turn.user),
                intended_ns: turn.intended_ns,
                sendable_ns: turn.intended_ns,
            }),
            Self::Starts { .. } if !room => None,
            Self::Starts { starts, admitted, .. } => {
                let (intended_ns, sendable_ns) = starts.pop_oldest()?;
                *admitted += 1;
                Some(VisitorArrival { number: *admitted - 1, intended_ns, sendable_ns })
            }
        }
    }

    /// The next start that waits to be admitted: its number in this thread, and when it was due.
    pub(super) fn next_waiting(&mut self) -> Option<(u64, u64)> {
        match self {
            Self::Users(_) => None,
            Self::Starts { .. } => self.next(0, true).map(|arrival| (arrival.number, arrival.intended_ns)),
        }
    }

    /// The next start that falls before `until_ns`, once: its number in this thread, and when.
    pub(super) fn pop_due(&mut self, until_ns: u64) -> Option<(u64, u64)> {
        let Self::Starts { starts, due, .. } = self else { return None };
        let intended_ns = starts.pop_due(until_ns)?;
        *due += 1;
        Some((*due - 1, intended_ns))
    }

    /// Whether the visitor in this place begins another session.
    pub(super) fn stays_active(&mut self, index: u32, now_ns: u64) -> bool {
        match self {
            Self::Users(users) => users.stays_active(index, now_ns),
            Self::Starts { .. } => false,
        }
    }

    /// Whether places are those of users.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Users(_))
    }

    /// Whether no further visitor arrives.
    pub(super) fn is_over(&self, exhausted: bool) -> bool {
        match self {
            Self::Users(_) => exhausted,
            Self::Starts { starts, .. } => starts.all_due() && starts.waiting() == 0,
        }
    }

    /// Tells open arrival whether there is room for one more, as of `since_ns`.
    pub(super) fn set_room(&mut self, room: bool, since_ns: u64) {
        if let Self::Starts { starts, .. } = self {
            starts.set_room(room, since_ns);
        }
    }
}
