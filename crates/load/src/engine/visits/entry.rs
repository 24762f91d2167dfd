//! Who begins a visit, and when: the seats of a closed load, or the starts of an open one.

use crate::engine::arrivals::Starts;

/// How visitors come to one thread.
#[derive(Debug)]
pub(super) enum Entry {
    /// So many seats, each of which has a visitor from the beginning of the load to its end.
    Seats {
        count: u32,
        /// How many have one.
        taken: u32,
    },
    /// Each start is a visitor.
    Starts {
        starts: Starts,
        /// Starts of this thread that fell due, and that were let in.
        due: u64,
        let_in: u64,
    },
}

/// Somebody who comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrived {
    /// Which one of this thread.
    pub(super) number: u64,
    pub(super) intended_ns: u64,
    /// Since when it could have begun.
    pub(super) could_ns: u64,
}

impl Entry {
    /// When somebody comes: 0 for at once, `None` for not before something else happens. `room`: there is a connection.
    pub(super) fn due_ns(&self, room: bool) -> Option<u64> {
        match self {
            Self::Seats { count, taken } => (taken < count).then_some(0),
            // Starts that find no room fall due by the pacer alone; nobody needs to wake for them.
            Self::Starts { .. } if !room => None,
            Self::Starts { starts, .. } if starts.waiting() > 0 => Some(0),
            Self::Starts { starts, .. } => starts.next_due_ns(),
        }
    }

    /// The next one to come. `room`: there is a connection.
    pub(super) fn next(&mut self, room: bool) -> Option<Arrived> {
        match self {
            Self::Seats { count, taken } => {
                let number = u64::from(*taken);
                (taken < count).then(|| {
                    *taken += 1;
                    Arrived { number, intended_ns: 0, could_ns: 0 }
                })
            }
            Self::Starts { starts, let_in, .. } => {
                if !room {
                    return None;
                }
                let (intended_ns, could_ns) = starts.take()?;
                *let_in += 1;
                Some(Arrived { number: *let_in - 1, intended_ns, could_ns })
            }
        }
    }

    /// The next start that falls before `until_ns`, once: its number in this thread, and when.
    pub(super) fn fall_due(&mut self, until_ns: u64) -> Option<(u64, u64)> {
        let Self::Starts { starts, due, .. } = self else { return None };
        let intended_ns = starts.fall_due(until_ns)?;
        *due += 1;
        Some((*due - 1, intended_ns))
    }

    /// Whether a visitor of this thread who has ended a session begins another one.
    pub(super) fn stays(&self) -> bool {
        matches!(self, Self::Seats { .. })
    }

    /// Whether nobody comes any more.
    pub(super) fn is_over(&self, exhausted: bool) -> bool {
        match self {
            Self::Seats { .. } => exhausted,
            Self::Starts { starts, .. } => starts.next_due_ns().is_none() && starts.waiting() == 0,
        }
    }

    /// Tells open arrival whether there is room for one more, as of `since_ns`.
    pub(super) fn set_room(&mut self, room: bool, since_ns: u64) {
        if let Self::Starts { starts, .. } = self {
            starts.set_room(room, since_ns);
        }
    }
}
