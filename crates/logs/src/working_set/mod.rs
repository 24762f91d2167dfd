//! The working set: which share of requests a cache of a size would miss, for all sizes at once, in memory that does not grow.
//!
//! A reference hits in a cache with LRU of as many bytes as the different objects since its last one, itself included, have together:
//! its stack distance (Mattson et al. 1970). SHARDS measures it for a sample of the objects, those whose hash is below a threshold, each of
//! which stands for as many others; with too many objects the threshold falls (Waldspurger, Park, Garthwaite, Ahmad, FAST '15, fixed size).
//!
//! A few hot objects have most of the references, and a sample has them or not: here they are followed apart, each standing for itself. They
//! are the most referenced ones when the threshold falls for the first time: until then all objects are known, so that the choice spoils no
//! sample. What the weighted references still lack or exceed is added at the smallest distance (SHARDS-adj), for references and for bytes.
//!
//! Distances are sums over places in the order of the last reference: a tree of width 64, whose sums over a node are loops over 64
//! neighbours.

use crate::sessions::{ByHash, PART};
use std::sync::Arc;

/// Objects that are followed at most.
const OBJECTS_MAX: usize = 112_000;
/// Hot objects, which are followed whatever their hash.
const HOT_MAX: usize = OBJECTS_MAX / 4;
const WIDTH: usize = 64;
const PLACES: usize = WIDTH * WIDTH * WIDTH;
/// Sizes of a doubling that are told apart, as bits of a number's mantissa: 1% or so each.
const BITS: u32 = 6;
const BUCKETS: usize = 50 << BITS;
/// Share of the threshold that remains when there are too many objects.
const KEPT: f64 = 0.75;

/// A reference to an object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reference {
    /// Hash of the object.
    pub object: u64,
    /// Its size, bytes; 0 where it was not sent (304): what it was before.
    pub bytes: u32,
}

#[derive(Debug, Clone, Copy)]
struct Object {
    place: u32,
    bytes: u32,
    references: u32,
    is_hot: bool,
}

/// Sizes of objects by the order of their last reference.
#[derive(Debug, Clone)]
struct Places {
    leaves: Vec<u64>,
    inner: Vec<u64>,
    top: Vec<u64>,
    next: usize,
}

impl Default for Places {
    fn default() -> Self {
        let zeros = |count| vec![0; count];
        Self {
            leaves: zeros(PLACES),
            inner: zeros(PLACES / WIDTH),
            top: zeros(PLACES / WIDTH / WIDTH),
            next: 0,
        }
    }
}

impl Places {
    fn clear(&mut self) {
        [&mut self.leaves, &mut self.inner, &mut self.top].into_iter().for_each(|level| level.fill(0));
        self.next = 0;
    }

    /// Puts bytes at the newest place.
    fn push(&mut self, bytes: u64) -> u32 {
        let place = self.next;
        self.next += 1;
        self.leaves[place] += bytes;
        self.inner[place / WIDTH] += bytes;
        self.top[place / WIDTH / WIDTH] += bytes;
        place as u32
    }

    /// Takes what is at a place away.
    fn take(&mut self, place: u32) {
        let place = place as usize;
        let bytes = std::mem::take(&mut self.leaves[place]);
        self.inner[place / WIDTH] -= bytes;
        self.top[place / WIDTH / WIDTH] -= bytes;
    }

    /// The bytes at all places newer than this one.
    fn newer_than(&self, place: u32) -> u64 {
        let place = place as usize;
        let (node, root) = (place / WIDTH, place / WIDTH / WIDTH);
        let leaves: u64 = self.leaves[place + 1..(node + 1) * WIDTH].iter().sum();
        let inner: u64 = self.inner[node + 1..(root + 1) * WIDTH].iter().sum();
        let top: u64 = self.top[root + 1..].iter().sum();
        leaves + inner + top
    }
}

/// Which objects are followed: those with a hash below the threshold, and perhaps those whose bit is set.
#[derive(Debug, Clone)]
pub struct Followed {
    threshold: u64,
    /// A bit for each hot object, by its hash; empty while all objects are followed.
    hot: Arc<[u64]>,
}

const HOT_BITS: usize = 1 << 18;

impl Default for Followed {
    fn default() -> Self {
        Self { threshold: u64::MAX, hot: Arc::from([]) }
    }
}

impl Followed {
    /// Whether an object is followed; of the others a few may be taken for hot ones.
    #[inline]
    pub fn may_have(&self, object: u64) -> bool {
        let bit = (object >> 8) as usize % HOT_BITS;
        object < self.threshold || self.hot.get(bit / 64).is_some_and(|bits| bits >> (bit % 64) & 1 == 1)
    }
}

/// The distances of a reference stream.
#[derive(Debug, Clone)]
pub struct WorkingSet {
    objects: ByHash<Object>,
    places: Places,
    followed: Followed,
    /// References and bytes by distance, each as many as it stands for, and the largest distance of the bucket: where few objects
    /// have many references, the curve has steps, which stand where they are.
    distances: Vec<[f64; 3]>,
    /// First references.
    cold: [f64; 2],
    /// All references, and their bytes, followed or not.
    all: [f64; 2],
}

impl Default for WorkingSet {
    fn default() -> Self {
        Self {
            // Growing would need half as much again.
            objects: ByHash::with_capacity_and_hasher(OBJECTS_MAX, Default::default()),
            places: Places::default(),
            followed: Followed::default(),
            distances: vec![[0.0; 3]; BUCKETS],
            cold: [0.0; 2],
            all: [0.0; 2],
        }
    }
}

/// What a cache of a size would miss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// Size of the cache.
    pub cache_bytes: f64,
    /// Share of the requests that it misses, first requests included.
    pub miss_ratio: f64,
    /// Share of the bytes.
    pub byte_miss_ratio: f64,
}

impl WorkingSet {
    /// References to which objects must come to [`Self::add`]; others need only be counted ([`Self::count`]).
    pub fn followed(&self) -> Followed {
        self.followed.clone()
    }

    /// Counts references that happened, those that [`Self::add`] is given included.
    pub fn count(&mut self, references: u64, bytes: u64) {
        self.all[0] += references as f64;
        self.all[1] += bytes as f64;
    }

    /// References, in the order of the log. Objects and their places are fetched first, so that none waits for the one before.
    pub fn add_all(&mut self, references: &[Reference]) {
        for part in references.chunks(PART) {
            let known = part.iter().filter_map(|reference| self.objects.get(&reference.object));
            let places = known.map(|known| self.places.leaves[known.place as usize]);
            std::hint::black_box(places.fold(0, |sum, bytes| sum ^ bytes));
            part.iter().for_each(|reference| self.add(reference));
        }
    }

    /// A reference of the sample; others are ignored. In the order of the log.
    pub fn add(&mut self, reference: &Reference) {
        if self.places.next == PLACES {
            self.compact();
        }
        let stands_for = 1.0 / self.rate();
        let sent = f64::from(reference.bytes);
        let Some(known) = self.objects.get_mut(&reference.object) else { return self.add_new(reference) };
        let weight = if known.is_hot { 1.0 } else { stands_for };
        known.bytes = if reference.bytes > 0 { reference.bytes } else { known.bytes };
        known.references = known.references.saturating_add(1);
        // The object itself is there, whatever it stands for; those in between stand for others.
        let distance = self.places.newer_than(known.place) as f64 + f64::from(known.bytes);
        self.places.take(known.place);
        known.place = self.places.push(weighted(known.bytes, weight));
        let figures = &mut self.distances[bucket(distance)];
        *figures = [figures[0] + weight, figures[1] + weight * sent, figures[2].max(distance)];
    }

    fn add_new(&mut self, reference: &Reference) {
        if reference.object >= self.followed.threshold {
            return;
        }
        let weight = 1.0 / self.rate();
        let place = self.places.push(weighted(reference.bytes, weight));
        let object = Object { place, bytes: reference.bytes, references: 1, is_hot: false };
        self.objects.insert(reference.object, object);
        self.cold = [self.cold[0] + weight, self.cold[1] + weight * f64::from(reference.bytes)];
        if self.objects.len() > OBJECTS_MAX {
            self.lower_threshold();
        }
    }

    /// Share of the objects that are sampled, 0 to 1; hot ones apart.
    pub fn rate(&self) -> f64 {
        let threshold = self.followed.threshold;
        if threshold == u64::MAX { 1.0 } else { threshold as f64 / u64::MAX as f64 }
    }

    /// Drops a part of the objects; those that remain stand for more.
    fn lower_threshold(&mut self) {
        if self.followed.hot.is_empty() {
            self.choose_hot();
        }
        let threshold = (self.followed.threshold as f64 * KEPT) as u64;
        self.followed.threshold = threshold;
        self.objects.retain(|hash, object| object.is_hot || *hash < threshold);
        self.compact();
    }

    fn choose_hot(&mut self) {
        let mut counts: Vec<u32> = self.objects.values().map(|object| object.references).collect();
        let (_, least, _) = counts.select_nth_unstable_by(HOT_MAX, |a, b| b.cmp(a));
        let least = *least;
        let mut bits = vec![0u64; HOT_BITS / 64];
        for (hash, object) in self.objects.iter_mut().filter(|(_, object)| object.references > least) {
            object.is_hot = true;
            let bit = (hash >> 8) as usize % HOT_BITS;
            bits[bit / 64] |= 1 << (bit % 64);
        }
        self.followed.hot = bits.into();
    }

    /// Moves the objects together, in their order.
    fn compact(&mut self) {
        let stands_for = 1.0 / self.rate();
        let mut order: Vec<&mut Object> = self.objects.values_mut().collect();
        order.sort_unstable_by_key(|object| object.place);
        self.places.clear();
        for object in order {
            let weight = if object.is_hot { 1.0 } else { stands_for };
            object.place = self.places.push(weighted(object.bytes, weight));
        }
    }

    /// Objects that were referenced, those that were not sampled reckoned in, and their bytes.
    pub fn footprint(&self) -> [f64; 2] {
        let stands_for = 1.0 / self.rate();
        let weight = |object: &Object| if object.is_hot { 1.0 } else { stands_for };
        let add = |[count, bytes]: [f64; 2], object: &Object| {
            [count + weight(object), bytes + weight(object) * f64::from(object.bytes)]
        };
        self.objects.values().fold([0.0; 2], add)
    }

    /// The curve, a point for each distance that occurs, rising in size; empty without references.
    pub fn curve(&self) -> Vec<CurvePoint> {
        if self.all[0] <= 0.0 {
            return vec![];
        }
        let estimated = |at: usize| self.cold[at] + self.distances.iter().map(|one| one[at]).sum::<f64>();
        // The correction of SHARDS-adj; the first point of the curve has it.
        let mut hits = [0, 1].map(|at| self.all[at] - estimated(at));
        let mut least = [1.0f64; 2];
        let mut curve = vec![];
        for figures in self.distances.iter().filter(|figures| figures[0] > 0.0) {
            hits = [hits[0] + figures[0], hits[1] + figures[1]];
            for (least, (hits, all)) in least.iter_mut().zip(hits.iter().zip(self.all)) {
                // A correction downwards at the smallest sizes must not make the curve rise.
                *least = least.min(1.0 - hits / all.max(1.0)).max(0.0);
            }
            curve.push(CurvePoint {
                cache_bytes: figures[2],
                miss_ratio: least[0],
                byte_miss_ratio: least[1],
            });
        }
        curve
    }
}

fn weighted(bytes: u32, weight: f64) -> u64 {
    (f64::from(bytes) * weight).round() as u64
}

fn bucket(bytes: f64) -> usize {
    let bits = bytes.max(1.0).to_bits() - 1.0f64.to_bits();
    ((bits >> (52 - BITS)) as usize).min(BUCKETS - 1)
}

/// The share that a cache of a size misses, by a curve; all without one.
pub fn miss_ratio(curve: &[CurvePoint], cache_bytes: f64) -> f64 {
    let behind = curve.partition_point(|point| point.cache_bytes <= cache_bytes);
    behind.checked_sub(1).map_or(1.0, |at| curve[at].miss_ratio)
}

/// The smallest cache with this share of hits among the requests that can hit; `None` without such requests.
pub fn cache_for(curve: &[CurvePoint], hit_share: f64) -> Option<f64> {
    let most = 1.0 - curve.last()?.miss_ratio;
    let wanted = 1.0 - most * hit_share;
    curve.iter().find(|point| point.miss_ratio <= wanted + 1e-12).map(|point| point.cache_bytes)
}

/// The knee: the size from which on more memory brings less than it did on the way, the point that is farthest below the straight line from
/// an empty cache to one that holds all (Satopaa et al. 2011, "Finding a kneedle in a haystack"). `None` where the curve is no bow.
pub fn knee(curve: &[CurvePoint]) -> Option<CurvePoint> {
    let (last, first) = (curve.last()?, 1.0);
    let drop = first - last.miss_ratio;
    let gain = |point: &CurvePoint| (first - point.miss_ratio) / drop - point.cache_bytes / last.cache_bytes;
    let best = curve.iter().max_by(|a, b| gain(a).total_cmp(&gain(b)))?;
    (drop > 0.0 && gain(best) > 0.1).then_some(*best)
}

#[cfg(test)]
mod tests;
