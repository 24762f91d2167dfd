//! Deadlines of outstanding requests, in the order in which they expire.
//!
//! All timeouts are equal, so requests expire in the order in which they started: a doubly linked list over the
//! connection slots does with two array entries what a heap would do with a logarithm. Nothing is allocated after
//! the start, and what is cancelled is gone at once.

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
    deadline_ns: u64,
    listed: bool,
}

/// The list.
#[derive(Debug)]
pub(crate) struct Deadlines {
    links: Vec<Link>,
    first: u32,
    last: u32,
}

impl Deadlines {
    /// For this many slots.
    pub(crate) fn new(slots: usize) -> Self {
        let link = Link { previous: NONE, next: NONE, deadline_ns: 0, listed: false };
        Self { links: vec![link; slots], first: NONE, last: NONE }
    }

    /// The slot that expires first, and when.
    pub(crate) fn first(&self) -> Option<(u32, u64)> {
        (self.first != NONE).then(|| (self.first, self.links[self.first as usize].deadline_ns))
    }

    /// Adds a slot. In order it costs nothing; out of order it is put in its place.
    pub(crate) fn add(&mut self, slot: u32, deadline_ns: u64) {
        self.remove(slot);
        let after = match self.first() {
            // At the start of a load, users whose turn comes late share the earliest deadline.
            Some((_, first_ns)) if deadline_ns < first_ns => NONE,
            _ => self.place(deadline_ns),
        };
        let next = if after == NONE { self.first } else { self.links[after as usize].next };
        self.links[slot as usize] = Link { previous: after, next, deadline_ns, listed: true };
        self.join(after, slot);
        self.join(slot, next);
    }

    /// Removes a slot; nothing happens if it is not in the list.
    pub(crate) fn remove(&mut self, slot: u32) {
        let link = self.links[slot as usize];
        if !link.listed {
            return;
        }
        self.links[slot as usize].listed = false;
        self.join(link.previous, link.next);
    }

    /// The last slot that does not expire after `deadline_ns`.
    fn place(&self, deadline_ns: u64) -> u32 {
        let mut slot = self.last;
        while slot != NONE && self.links[slot as usize].deadline_ns > deadline_ns {
            slot = self.links[slot as usize].previous;
        }
        slot
    }

    /// Makes two slots neighbours; [`NONE`] stands for the ends.
    fn join(&mut self, left: u32, right: u32) {
        match left {
            NONE => self.first = right,
            left => self.links[left as usize].next = right,
        }
        match right {
            NONE => self.last = left,
            right => self.links[right as usize].previous = left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(mut deadlines: Deadlines) -> Vec<(u32, u64)> {
        let mut all = vec![];
        while let Some((slot, at)) = deadlines.first() {
            deadlines.remove(slot);
            all.push((slot, at));
        }
        all
    }

    proptest! {
        // Invariant: whatever is added and removed, what is left comes out once, ordered by its deadline.
        #[test]
        fn it_is_an_ordered_set(steps in prop::collection::vec((any::<bool>(), 0..8u32, 0..50u64), 0..60)) {
            let mut deadlines = Deadlines::new(8);
            let mut model: std::collections::BTreeMap<u32, u64> = Default::default();
            for (add, slot, at) in steps {
                if add {
                    deadlines.add(slot, at);
                    model.insert(slot, at);
                } else {
                    deadlines.remove(slot);
                    model.remove(&slot);
                }
            }
            let out = drain(deadlines);
            prop_assert!(out.windows(2).all(|pair| pair[0].1 <= pair[1].1));
            prop_assert_eq!(out.into_iter().collect::<std::collections::BTreeMap<_, _>>(), model);
        }
    }
}
