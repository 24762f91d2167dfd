//! The curve against an exact LRU, on streams whose objects differ in size and popularity.

use super::exact::{errors, stream};
use super::*;

/// How many sizes are looked at, and how many times each is the one before.
const SIZES: (i32, f64) = (600, 1.04);

fn measured(stream: &[Reference]) -> Vec<CurvePoint> {
    let mut set = WorkingSet::default();
    for reference in stream {
        set.count(1, reference.bytes.into());
        set.add(reference);
    }
    set.curve()
}

/// All objects are sampled: only the width of the buckets remains.
#[test]
fn a_small_stream_is_exact() {
    for (objects, exponent, tolerance) in [(10, 1.0, 0.04), (3000, 0.8, 0.006), (50_000, 1.1, 0.006)] {
        let stream = stream(300_000, objects, exponent, 7);
        let [requests, bytes] = errors(&stream, &measured(&stream), SIZES);
        assert!(requests < tolerance && bytes < tolerance, "{objects} {exponent}: {requests} {bytes}");
    }
}

/// More objects than are sampled.
#[test]
fn a_large_stream_is_within_a_hundredth() {
    for (objects, exponent, seed) in [(200_000, 0.7, 1), (400_000, 0.9, 2), (400_000, 1.1, 3)] {
        let stream = stream(1_000_000, objects, exponent, seed);
        let [requests, bytes] = errors(&stream, &measured(&stream), SIZES);
        println!("{objects} {exponent} {seed}: {requests:.4} {bytes:.4}");
        assert!(requests < 0.01, "{objects} {exponent}: {requests}");
        assert!(bytes < 0.05, "{objects} {exponent}: {bytes}");
    }
}

#[test]
fn answers_are_read_from_the_curve() {
    let point = |cache_bytes: f64, miss_ratio: f64| CurvePoint {
        cache_bytes,
        miss_ratio,
        byte_miss_ratio: miss_ratio,
    };
    let curve = [point(10.0, 0.9), point(100.0, 0.3), point(1000.0, 0.2)];
    assert_eq!(
        (cache_for(&curve, 0.8), cache_for(&curve, 0.99), cache_for(&[], 0.5)),
        (Some(100.0), Some(1000.0), None)
    );
    assert_eq!(knee(&curve).unwrap().cache_bytes, 100.0);
    assert_eq!((knee(&[]), knee(&[point(1.0, 1.0)])), (None, None));
}
