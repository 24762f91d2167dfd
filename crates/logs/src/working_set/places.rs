//! Objects in the order of their last reference, and what those behind a place have together.
//!
//! A tree of width 16: sums over a node are loops over 16 neighbours, all of them. What does not count is masked, which is cheaper than a
//! loop whose end is guessed wrong.

use super::Reference;
use crate::sessions::PART;

const WIDTH: usize = 16;
pub(super) const PLACES: usize = 1 << PLACE_BITS;
/// Levels of the tree: the last one is one node.
const LEVELS: usize = 5;
/// What of a node is behind each place of it.
const BEHIND: [[u64; WIDTH]; WIDTH] = {
    let mut masks = [[0; WIDTH]; WIDTH];
    let mut at = 0;
    while at < WIDTH * WIDTH {
        masks[at / WIDTH][at % WIDTH] = if at % WIDTH > at / WIDTH { u64::MAX } else { 0 };
        at += 1;
    }
    masks
};

/// An object at the place of its last reference; one that was referenced again leaves an empty place.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Object {
    /// 0 is an empty place.
    pub(super) hash: u64,
    pub(super) bytes: u32,
    /// How many; the highest bit: hot.
    pub(super) references: u32,
}

pub(super) const HOT: u32 = 1 << 31;

impl Object {
    pub(super) fn is_hot(&self) -> bool {
        self.references & HOT != 0
    }
}

/// A node of the tree: two lines of the cache.
#[derive(Debug, Clone, Copy)]
#[repr(align(128))]
struct Node([u64; WIDTH]);

/// Objects in the order of their last reference, found by their hash (open addressing, linear probing), and the sums of what they
/// have together.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) objects: Vec<Object>,
    /// Bytes by place, then of each node of the level below.
    levels: [Vec<Node>; LEVELS],
    pub(super) next: usize,
    /// A place and further bits of the hash; 0 is empty.
    slots: Vec<u32>,
    pub(super) count: usize,
}

const PLACE_BITS: u32 = 18;
const PLACE: u32 = PLACES as u32 - 1;
/// A slot that is in use.
const USED: u32 = 1 << 31;

/// What a slot has beside its place.
fn tag(hash: u64) -> u32 {
    USED | ((hash >> 36) as u32) << PLACE_BITS
}

fn first_slot(hash: u64) -> usize {
    (hash >> 10) as usize % PLACES
}

impl Default for Places {
    fn default() -> Self {
        Self {
            objects: vec![Object::default(); PLACES],
            levels: std::array::from_fn(|level| {
                vec![Node([0; WIDTH]); PLACES.div_ceil(WIDTH.pow(level as u32 + 1))]
            }),
            next: 0,
            slots: vec![0; PLACES],
            count: 0,
        }
    }
}

impl Places {
    /// The slot of an object and its place; the slot where it would be, and nothing.
    #[inline]
    pub(super) fn find(&self, hash: u64) -> (usize, Option<usize>) {
        let (mut slot, tag) = (first_slot(hash), tag(hash));
        loop {
            let held = self.slots[slot];
            let place = (held & PLACE) as usize;
            if held & !PLACE == tag && self.objects[place].hash == hash {
                return (slot, Some(place));
            }
            if held == 0 {
                return (slot, None);
            }
            slot = (slot + 1) % PLACES;
        }
    }

    /// Fetches what [`Self::find`] and [`Self::take`] will need.
    pub(super) fn fetch(&self, references: &[Reference]) {
        let mut slots = [0u32; PART];
        for (slot, reference) in slots.iter_mut().zip(references) {
            *slot = self.slots[first_slot(reference.object)];
        }
        let mut all = 0;
        for (slot, reference) in slots.into_iter().zip(references) {
            let (mut held, mut at, tag) = (slot, first_slot(reference.object), tag(reference.object));
            while held & !PLACE != tag && held != 0 {
                at = (at + 1) % PLACES;
                held = self.slots[at];
            }
            let place = (held & PLACE) as usize;
            let Node(node) = &self.levels[0][place / WIDTH];
            all ^= self.objects[place].hash ^ node[0] ^ node[WIDTH - 1];
        }
        std::hint::black_box(all);
    }

    /// Puts an object at the newest place, and in a slot.
    pub(super) fn push(&mut self, slot: usize, object: Object, bytes: u64) {
        let place = self.next;
        self.next += 1;
        self.slots[slot] = tag(object.hash) | place as u32;
        self.objects[place] = object;
        self.add_bytes(place, bytes);
    }

    /// Takes the object at a place away, but for its slot.
    pub(super) fn take(&mut self, place: usize) -> Object {
        self.add_bytes(place, self.levels[0][place / WIDTH].0[place % WIDTH].wrapping_neg());
        std::mem::take(&mut self.objects[place])
    }

    #[inline]
    fn add_bytes(&mut self, mut place: usize, bytes: u64) {
        for level in &mut self.levels {
            let held = &mut level[place / WIDTH].0[place % WIDTH];
            *held = held.wrapping_add(bytes);
            place /= WIDTH;
        }
    }

    /// The bytes at all places newer than this one.
    #[inline]
    pub(super) fn newer_than(&self, mut place: usize) -> u64 {
        let mut sum = 0u64;
        for level in &self.levels {
            let counted =
                level[place / WIDTH].0.iter().zip(&BEHIND[place % WIDTH]).map(|(bytes, mask)| bytes & mask);
            sum = sum.wrapping_add(counted.fold(0, u64::wrapping_add));
            place /= WIDTH;
        }
        sum
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Object> {
        self.objects[..self.next].iter().filter(|object| object.hash != 0)
    }

    /// Moves the objects that are kept together, in their order; `bytes` says what each counts.
    pub(super) fn compact(&mut self, is_kept: impl Fn(&Object) -> bool, bytes: impl Fn(&Object) -> u64) {
        let end = std::mem::take(&mut self.next);
        self.levels.iter_mut().for_each(|level| level.fill(Node([0; WIDTH])));
        self.slots.fill(0);
        self.count = 0;
        for place in 0..end {
            let object = std::mem::take(&mut self.objects[place]);
            if object.hash != 0 && is_kept(&object) {
                let (slot, _) = self.find(object.hash);
                self.push(slot, object, bytes(&object));
                self.count += 1;
            }
        }
    }
}
