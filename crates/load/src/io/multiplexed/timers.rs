//! When connections have something to do though nothing comes. One entry of a heap for each connection that has a timer: a
//! later moment leaves it where it is until it fires, as most timers are moved on with each datagram and never fire.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The timers of the connections of a thread.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Timers {
    /// A connection is due then; `armed_ns` is for when its timer stands. Returns that anew.
    pub(super) fn arm(&mut self, number: u32, due_ns: Option<u64>, armed_ns: u64) -> u64 {
        match due_ns {
            Some(due_ns) if due_ns < armed_ns => {
                self.heap.push(Reverse((due_ns, number)));
                due_ns
            }
            _ => armed_ns,
        }
    }

    /// Drops entries that stand for nothing any more, once they are many. `armed_ns` is for when the timer of a connection
    /// stands.
    pub(super) fn tidy(&mut self, connections: usize, armed_ns: impl Fn(u32) -> Option<u64>) {
        if self.heap.len() > 4 * connections + 64 {
            self.heap.retain(|Reverse((at_ns, number))| armed_ns(*number) == Some(*at_ns));
        }
    }

    /// The first moment at which one fires.
    pub(super) fn first_ns(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse((at_ns, _))| *at_ns)
    }

    /// Takes one that fires by then: its moment and its connection.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        (self.first_ns() <= now_ns).then(|| self.heap.pop())?.map(|Reverse(entry)| entry)
    }
}
