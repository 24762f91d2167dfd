//! The working set: which share of requests a cache of a size would miss, for all sizes at once, in memory that does not grow.
//!
//! A reference hits in a cache with LRU of as many bytes as the different objects since its last one, itself included, have together:
//! its stack distance (Mattson et al. 1970). SHARDS measures it for a sample of the objects, those whose hash is below a threshold, and
//! divides it by their share; with too many objects the threshold falls (Waldspurger, Park, Garthwaite, Ahmad, FAST '15, fixed size).
//! What the sample has in references less or more than its share, which is of the few hottest objects, is added at the smallest
//! distance: SHARDS-adj, for references and for bytes.
//!
//! Distances are sums over places in the order of the last reference: a tree of width 64, whose sums over a node are loops over 64
//! neighbours.

use crate::sessions::ByHash;

/// Objects that are sampled at most.
const OBJECTS_MAX: usize = 1 << 15;
const WIDTH: usize = 64;
const PLACES: usize = WIDTH * WIDTH * WIDTH / 2;
/// Sizes of a doubling that are told apart, as bits of a number's mantissa: 1% or so each.
const BITS: u32 = 6;
const BUCKETS: usize = 50 << BITS;
/// Share of the sampled objects that remain when there are too many.
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
        Self { leaves: zeros(PLACES), inner: zeros(PLACES / WIDTH), top: zeros(PLACES / WIDTH / WIDTH), next: 0 }
    }
}

impl Places {
    /// Puts bytes at the newest place.
    fn push(&mut self, bytes: u32) -> u32 {
        let place = self.next;
        self.next += 1;
        self.put(place, u64::from(bytes));
        place as u32
    }

    fn put(&mut self, place: usize, bytes: u64) {
        self.leaves[place] += bytes;
        self.inner[place / WIDTH] += bytes;
        self.top[place / WIDTH / WIDTH] += bytes;
    }

    fn take(&mut self, place: u32) {
        let place = place as usize;
        let bytes = std::mem::take(&mut self.leaves[place]);
        self.inner[place / WIDTH] -= bytes;
        self.top[place / WIDTH / WIDTH] -= bytes;
    }

    /// The bytes at this place and all newer ones.
    fn from(&self, place: u32) -> u64 {
        let place = place as usize;
        let (node, root) = (place / WIDTH, place / WIDTH / WIDTH);
        let leaves: u64 = self.leaves[place..(node + 1) * WIDTH].iter().sum();
        let inner: u64 = self.inner[node + 1..(root + 1) * WIDTH].iter().sum();
        let top: u64 = self.top[root + 1..].iter().sum();
        leaves + inner + top
    }
}

/// The distances of a reference stream.
#[derive(Debug, Clone)]
pub struct WorkingSet {
    objects: ByHash<Object>,
    places: Places,
    threshold: u64,
    /// References and bytes by distance, in the sample of now.
    distances: Vec<[f64; 2]>,
    /// First references, of the sample of now.
    cold: [f64; 2],
    /// All references, and their bytes, sampled or not.
    all: [f64; 2],
}

impl Default for WorkingSet {
    fn default() -> Self {
        Self {
            objects: ByHash::default(),
            places: Places::default(),
            threshold: u64::MAX,
            distances: vec![[0.0; 2]; BUCKETS],
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
    /// References to objects with a hash from here on need only be counted ([`Self::count`]).
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Counts references that happened, those that [`Self::add`] is given included.
    pub fn count(&mut self, references: u64, bytes: u64) {
        self.all[0] += references as f64;
        self.all[1] += bytes as f64;
    }

    /// A reference of the sample; others are ignored. In the order of the log.
    pub fn add(&mut self, reference: &Reference) {
        if reference.object >= self.threshold {
            return;
        }
        if self.places.next == PLACES {
            self.compact();
        }
        let known = self.objects.get_mut(&reference.object);
        let bytes = if reference.bytes > 0 { reference.bytes } else { known.as_ref().map_or(0, |known| known.bytes) };
        let weight = f64::from(reference.bytes);
        let Some(known) = known else {
            let place = self.places.push(bytes);
            self.objects.insert(reference.object, Object { place, bytes });
            self.cold[0] += 1.0;
            self.cold[1] += weight;
            if self.objects.len() > OBJECTS_MAX {
                self.lower_threshold();
            }
            return;
        };
        // The object itself is there, whatever the share; those in between stand for others.
        let between = self.places.from(known.place) - u64::from(known.bytes);
        self.places.take(known.place);
        *known = Object { place: self.places.push(bytes), bytes };
        let rate = self.rate();
        let bucket = &mut self.distances[bucket(between as f64 / rate + f64::from(bytes))];
        bucket[0] += 1.0;
        bucket[1] += weight;
    }

    /// Share of the objects that are sampled, 0 to 1.
    pub fn rate(&self) -> f64 {
        if self.threshold == u64::MAX { 1.0 } else { self.threshold as f64 / u64::MAX as f64 }
    }

    /// Drops a part of the objects; what was counted is reckoned to the smaller share.
    fn lower_threshold(&mut self) {
        self.threshold = (self.threshold as f64 * KEPT) as u64;
        let threshold = self.threshold;
        let places = &mut self.places;
        self.objects.retain(|hash, object| {
            let is_kept = *hash < threshold;
            if !is_kept {
                places.take(object.place);
            }
            is_kept
        });
        let figures = self.distances.iter_mut().chain([&mut self.cold]);
        figures.flatten().for_each(|figure| *figure *= KEPT);
    }

    /// Moves the objects together, in their order.
    fn compact(&mut self) {
        let mut order: Vec<&mut Object> = self.objects.values_mut().collect();
        order.sort_unstable_by_key(|object| object.place);
        self.places = Places::default();
        for object in order {
            object.place = self.places.push(object.bytes);
        }
    }

    /// Objects that were referenced, those that were not sampled reckoned in, and their bytes.
    pub fn footprint(&self) -> [f64; 2] {
        let bytes: f64 = self.objects.values().map(|object| f64::from(object.bytes)).sum();
        [self.objects.len() as f64 / self.rate(), bytes / self.rate()]
    }

    /// The curve, a point for each distance that occurs, rising in size; empty without references.
    pub fn curve(&self) -> Vec<CurvePoint> {
        let rate = self.rate();
        let expected = self.all.map(|all| all * rate);
        if expected[0] <= 0.0 {
            return vec![];
        }
        let sampled = |at: usize| self.cold[at] + self.distances.iter().map(|one| one[at]).sum::<f64>();
        // The correction of SHARDS-adj; the first point of the curve has it.
        let mut hits = [0, 1].map(|at| expected[at] - sampled(at));
        let mut curve = vec![];
        for (at, figures) in self.distances.iter().enumerate().filter(|(_, figures)| figures[0] > 0.0) {
            hits = [hits[0] + figures[0], hits[1] + figures[1]];
            let miss = |at: usize| (1.0 - hits[at] / expected[at].max(1.0)).clamp(0.0, 1.0);
            curve.push(CurvePoint { cache_bytes: upper(at), miss_ratio: miss(0), byte_miss_ratio: miss(1) });
        }
        // A correction downwards at the smallest sizes must not make the curve rise.
        let mut least = [1.0f64; 2];
        for point in &mut curve {
            least = [least[0].min(point.miss_ratio), least[1].min(point.byte_miss_ratio)];
            (point.miss_ratio, point.byte_miss_ratio) = (least[0], least[1]);
        }
        curve
    }
}

fn bucket(bytes: f64) -> usize {
    let bits = bytes.max(1.0).to_bits() - 1.0f64.to_bits();
    ((bits >> (52 - BITS)) as usize).min(BUCKETS - 1)
}

/// The largest size of a bucket.
fn upper(bucket: usize) -> f64 {
    f64::from_bits((((bucket as u64) + 1) << (52 - BITS)) + 1.0f64.to_bits())
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
