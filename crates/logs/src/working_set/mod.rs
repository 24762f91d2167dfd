//! The working set: which share of requests a cache of a size would miss, for all sizes at once, in memory that does not grow.
//!
//! A reference hits in a cache with LRU of as many bytes as the different objects since its last one, itself included, have together:
//! its stack distance (Mattson et al. 1970). SHARDS measures it for a sample of the objects, those whose hash is below a threshold, each of
//! which stands for as many others; with too many objects the threshold falls (Waldspurger, Park, Garthwaite, Ahmad, FAST '15, fixed size).
//!
//! A few hot objects have most of the references, and a sample has them or not: here they are followed apart, each standing for itself. They
//! are the most referenced ones when the threshold falls for the first time: until then all objects are known, so that the choice spoils no
//! sample. What the weighted references still lack or exceed is spread over the sample, as a ratio for references and one for bytes. (SHARDS-adj
//! adds it at the smallest distance, as there it is hot objects that are in the sample or not.)
//!
//! Distances are sums over the objects in the order of their last reference ([`places`]).

mod places;

use crate::sessions::PART;
use places::{HOT, Object, PLACES, Places};
use std::sync::Arc;

/// Objects that are followed at most.
const OBJECTS_MAX: usize = 160_000;
/// Hot objects, which are followed whatever their hash.
const HOT_MAX: usize = OBJECTS_MAX / 4;
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

/// References and bytes of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    references: f64,
    bytes: f64,
}

impl Figures {
    fn add(&mut self, weight: f64, bytes: u32) {
        self.references += weight;
        self.bytes += weight * f64::from(bytes);
    }
}

/// What was referenced at distances of one size: by objects that stand for themselves, and by those of the sample.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket {
    known: Figures,
    sampled: Figures,
    /// The largest distance.
    most: f64,
    /// The distance that more than half of them have, if one has, and by how many it leads (Boyer and Moore's majority vote): where
    /// one object has many references, asked for again at once, the curve has a step, which stands where it is.
    step: f64,
    lead: f64,
}

impl Bucket {
    fn of(&mut self, is_known: bool) -> &mut Figures {
        if is_known { &mut self.known } else { &mut self.sampled }
    }

    #[inline]
    fn add(&mut self, distance: f64, weight: f64, bytes: u32) {
        self.of(weight == 1.0).add(weight, bytes);
        self.most = self.most.max(distance);
        if distance == self.step {
            self.lead += weight;
        } else if self.lead >= weight {
            self.lead -= weight;
        } else {
            (self.step, self.lead) = (distance, weight - self.lead);
        }
    }

    /// Two distances with a share of the references each, the smaller one first.
    fn steps(&self) -> [(f64, f64); 2] {
        let all = self.known.references + self.sampled.references;
        let share = f64::midpoint(all, self.lead) / all.max(f64::MIN_POSITIVE);
        if self.lead > 0.0 && share > 0.5 {
            [(self.step, share), (self.most, 1.0 - share)]
        } else {
            [(self.most, 1.0), (self.most, 0.0)]
        }
    }
}

/// The distances of a reference stream.
#[derive(Debug, Clone)]
pub struct WorkingSet {
    places: Places,
    followed: Followed,
    /// Objects that one of the sample stands for.
    stands_for: f64,
    /// By distance.
    distances: Vec<Bucket>,
    /// First references.
    cold: Bucket,
    /// All references, and their bytes, followed or not.
    all: [f64; 2],
}

impl Default for WorkingSet {
    fn default() -> Self {
        Self {
            places: Places::default(),
            followed: Followed::default(),
            stands_for: 1.0,
            distances: vec![Bucket::default(); BUCKETS],
            cold: Bucket::default(),
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
            self.places.fetch(part);
            part.iter().for_each(|reference| self.add(reference));
        }
    }

    /// A reference of the sample; others are ignored. In the order of the log.
    pub fn add(&mut self, reference: &Reference) {
        if self.places.next == PLACES {
            self.compact();
        }
        let reference = Reference { object: reference.object.max(1), ..*reference };
        let (slot, Some(place)) = self.places.find(reference.object) else { return self.add_new(&reference) };
        let newer_bytes = self.places.newer_than(place);
        let mut object = self.places.take(place);
        object.bytes = if reference.bytes > 0 { reference.bytes } else { object.bytes };
        object.references += u32::from(object.references & !HOT < !HOT);
        // The object itself is there, whatever it stands for; those in between stand for others.
        let distance = newer_bytes as f64 + f64::from(object.bytes);
        let weight = self.weight_of(&object);
        self.places.push(slot, object, weighted(object.bytes, weight));
        self.distances[bucket(distance)].add(distance, weight, reference.bytes);
    }

    fn add_new(&mut self, reference: &Reference) {
        if reference.object >= self.followed.threshold {
            return;
        }
        let object = Object { hash: reference.object, bytes: reference.bytes, references: 1 };
        let weight = self.weight_of(&object);
        let (slot, _) = self.places.find(object.hash);
        self.places.push(slot, object, weighted(object.bytes, weight));
        self.places.count += 1;
        self.cold.of(weight == 1.0).add(weight, reference.bytes);
        if self.places.count > OBJECTS_MAX {
            self.lower_threshold();
        }
    }

    /// As many objects as it stands for.
    fn weight_of(&self, object: &Object) -> f64 {
        if object.is_hot() { 1.0 } else { self.stands_for }
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
        self.followed.threshold = (self.followed.threshold as f64 * KEPT) as u64;
        self.stands_for = 1.0 / self.rate();
        self.compact();
    }

    fn choose_hot(&mut self) {
        let mut counts: Vec<u32> = self.places.iter().map(|object| object.references).collect();
        let (_, least, _) = counts.select_nth_unstable_by(HOT_MAX, |a, b| b.cmp(a));
        let least = *least;
        let mut bits = vec![0u64; HOT_BITS / 64];
        let known = self.places.objects.iter_mut().filter(|object| object.hash != 0);
        for object in known.filter(|object| object.references > least) {
            object.references |= HOT;
            let bit = (object.hash >> 8) as usize % HOT_BITS;
            bits[bit / 64] |= 1 << (bit % 64);
        }
        self.followed.hot = bits.into();
    }

    /// Moves the objects together, those alone that are followed.
    fn compact(&mut self) {
        let (stands_for, threshold) = (self.stands_for, self.followed.threshold);
        let weight = |object: &Object| if object.is_hot() { 1.0 } else { stands_for };
        self.places.compact(
            |object| object.is_hot() || object.hash < threshold,
            |object| weighted(object.bytes, weight(object)),
        );
    }

    /// Objects that were referenced, those that were not sampled reckoned in, and their bytes.
    pub fn footprint(&self) -> [f64; 2] {
        let add = |[count, bytes]: [f64; 2], object: &Object| {
            let weight = self.weight_of(object);
            [count + weight, bytes + weight * f64::from(object.bytes)]
        };
        self.places.iter().fold([0.0; 2], add)
    }

    /// The curve, a point for each distance that occurs, rising in size; empty without references.
    pub fn curve(&self) -> Vec<CurvePoint> {
        if self.all[0] <= 0.0 {
            return vec![];
        }
        let scale = self.scale();
        let (mut hits, mut curve) = ([0.0; 2], vec![]);
        for bucket in &self.distances {
            let references = bucket.known.references + scale[0] * bucket.sampled.references;
            let bytes = bucket.known.bytes + scale[1] * bucket.sampled.bytes;
            for (distance, share) in bucket.steps().into_iter().filter(|(_, share)| share * references > 0.0)
            {
                hits = [hits[0] + share * references, hits[1] + share * bytes];
                let missed = |at: usize| (1.0 - hits[at] / self.all[at].max(1.0)).clamp(0.0, 1.0);
                let (miss_ratio, byte_miss_ratio) = (missed(0), missed(1));
                curve.push(CurvePoint { cache_bytes: distance, miss_ratio, byte_miss_ratio });
            }
        }
        curve
    }

    /// What a sampled reference, and a sampled byte, stand for beyond their weight: all that were counted are those that are known and
    /// those that the sample stands for, so that the ratio of the two corrects it.
    fn scale(&self) -> [f64; 2] {
        let all = || self.distances.iter().chain([&self.cold]);
        let sum = |of: &dyn Fn(&Bucket) -> f64| all().map(of).sum::<f64>();
        let ratio =
            |all: f64, known: f64, sampled: f64| if sampled > 0.0 { (all - known) / sampled } else { 1.0 };
        [
            ratio(self.all[0], sum(&|one| one.known.references), sum(&|one| one.sampled.references)),
            ratio(self.all[1], sum(&|one| one.known.bytes), sum(&|one| one.sampled.bytes)),
        ]
    }
}

fn weighted(bytes: u32, weight: f64) -> u64 {
    (f64::from(bytes) * weight + 0.5) as u64
}

fn bucket(bytes: f64) -> usize {
    let bits = bytes.max(1.0).to_bits() - 1.0f64.to_bits();
    ((bits >> (52 - BITS)) as usize).min(BUCKETS - 1)
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
mod exact;
#[cfg(test)]
mod tests;
