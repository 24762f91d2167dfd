//! An exact LRU to hold the curve against, and streams whose objects differ in size and popularity: for the tests, and for
//! `examples/logs.rs`, which takes this file as it is.

use super::{CurvePoint, Reference};
use foldhash::quality::FixedState;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, LogNormal, Zipf};
use std::hash::BuildHasher;

/// A stream of objects with popularity by Zipf and log-normal sizes.
pub(super) fn stream(references: usize, objects: usize, exponent: f64, seed: u64) -> Vec<Reference> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let sizes = LogNormal::<f64>::new(9.0, 1.5).unwrap();
    let sizes: Vec<u32> = (0..objects).map(|_| sizes.sample(&mut random).clamp(1.0, 1e9) as u32).collect();
    let popularity = Zipf::new(objects as f64, exponent).unwrap();
    let hashes = FixedState::with_seed(3);
    (0..references)
        .map(|_| {
            let object = popularity.sample(&mut random) as usize - 1;
            Reference { object: hashes.hash_one(object as u64), bytes: sizes[object] }
        })
        .collect()
}

/// Stack distances by a Fenwick tree over all references: exact.
fn exact(stream: &[Reference]) -> Vec<[f64; 2]> {
    let mut tree = vec![0u64; stream.len() + 1];
    let add = |tree: &mut Vec<u64>, at: usize, bytes: u64| {
        let mut at = at + 1;
        while at < tree.len() {
            tree[at] = tree[at].wrapping_add(bytes);
            at += at & at.wrapping_neg();
        }
    };
    let sum = |tree: &[u64], count: usize| {
        let (mut at, mut sum) = (count, 0u64);
        while at > 0 {
            sum = sum.wrapping_add(tree[at]);
            at -= at & at.wrapping_neg();
        }
        sum
    };
    let mut last: std::collections::HashMap<u64, usize> = Default::default();
    let mut distances = vec![];
    for (now, reference) in stream.iter().enumerate() {
        let bytes = u64::from(reference.bytes);
        if let Some(before) = last.insert(reference.object, now) {
            distances.push([sum(&tree, now).wrapping_sub(sum(&tree, before)) as f64, bytes as f64]);
            add(&mut tree, before, bytes.wrapping_neg());
        }
        add(&mut tree, now, bytes);
    }
    distances.sort_by(|a, b| a[0].total_cmp(&b[0]));
    distances
}

/// The largest errors of both ratios, over so many sizes from a hundredth of the smallest to all, each so many times the one before.
pub(super) fn errors(stream: &[Reference], curve: &[CurvePoint], (count, times): (i32, f64)) -> [f64; 2] {
    let distances = exact(stream);
    let all = [stream.len() as f64, stream.iter().map(|one| f64::from(one.bytes)).sum()];
    let (mut at, mut hits, mut worst) = (0, [0.0; 2], [0.0f64; 2]);
    for step in 0..count {
        let cache_bytes = 1000.0 * times.powi(step);
        while at < distances.len() && distances[at][0] <= cache_bytes {
            hits = [hits[0] + 1.0, hits[1] + distances[at][1]];
            at += 1;
        }
        let behind = curve.partition_point(|point| point.cache_bytes <= cache_bytes);
        let point =
            behind.checked_sub(1).map_or([1.0; 2], |at| [curve[at].miss_ratio, curve[at].byte_miss_ratio]);
        worst = [0, 1].map(|at| worst[at].max((point[at] - (1.0 - hits[at] / all[at])).abs()));
    }
    worst
}
