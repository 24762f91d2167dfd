//! The cache, by the rules of RFC 9111 and what browsers make of them.

use super::*;
use proptest::prelude::*;

/// Sun, 06 Nov 1994 08:49:37 GMT, as in RFC 9110.
const NOW_S: u64 = 784_111_777;
const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT";

fn head(status: u16, fields: &[&str]) -> Vec<u8> {
    let lines: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    format!("HTTP/1.1 {status} X\r\n{lines}\r\n").into_bytes()
}

/// How long a response received at `NOW_S` is fresh, and what it is afterwards: `-` when it is as if it had never been.
fn lifetime(status: u16, fields: &[&str]) -> (u64, String) {
    let mut cache = Cache::default();
    cache.store(7, &head(status, fields), NOW_S);
    let fresh = |after_s: u64| cache.lookup(7, NOW_S + after_s) == CacheLookup::Fresh;
    let (mut low, mut high) = (0u64, 1u64 << 40);
    while low < high {
        let middle = low.midpoint(high);
        if fresh(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let text =
        |bytes: Option<&[u8]>| bytes.map_or("", |bytes| std::str::from_utf8(bytes).unwrap()).to_owned();
    let after = match cache.lookup(7, NOW_S + (1 << 41)) {
        CacheLookup::Absent => "-".into(),
        CacheLookup::Fresh => panic!("fresh for ever"),
        CacheLookup::Stale { etag, last_modified } => format!("{}|{}", text(etag), text(last_modified)),
    };
    (low, after)
}

#[track_caller]
fn check(fields: &[&str], fresh_s: u64, after: &str) {
    assert_eq!(lifetime(200, fields), (fresh_s, after.to_owned()), "{fields:?}");
}

const DAY_BEFORE: &str = "Last-Modified: Sat, 05 Nov 1994 08:49:37 GMT";
const CHANGED: &str = "|Sat, 05 Nov 1994 08:49:37 GMT";

#[test]
fn freshness_is_what_the_server_says() {
    // 4.2.1: max-age, then Expires.
    check(&["Cache-Control: max-age=60"], 60, "-");
    check(&["Cache-Control: max-age=60", "ETag: \"x\""], 60, "\"x\"|");
    check(&["cache-control: public, MAX-AGE=60 , immutable"], 60, "-");
    check(&["Cache-Control: max-age=\"60\""], 60, "-");
    check(&["Cache-Control: max-age=60, max-age=5"], 60, "-");
    check(&["Cache-Control: x=\"no-store, max-age=5\", max-age=60"], 60, "-");
    check(&["Cache-Control: public", "Cache-Control: max-age=60"], 60, "-");
    check(&["Cache-Control: max-age=99999999999999999999"], 1 << 31, "-");
    check(&["Cache-Control: max-age=-1", "ETag: x"], 0, "x|");
    check(&["Cache-Control: max-age=1.5", "ETag: x"], 0, "x|");
    check(&["Cache-Control: max-age", "ETag: x"], 0, "x|");
    // s-maxage is for shared caches; private is for us.
    check(&["Cache-Control: s-maxage=5, private, max-age=60"], 60, "-");
    check(&["Cache-Control: max-age=60", DATE, "Expires: Sun, 06 Nov 1994 08:50:37 GMT"], 60, "-");
    check(&["Cache-Control: max-age=0", DATE, "Expires: Sun, 06 Nov 1994 09:49:37 GMT", "ETag: x"], 0, "x|");
    check(&[DATE, "Expires: Sun, 06 Nov 1994 08:50:37 GMT"], 60, "-");
    check(&["Expires: Sun, 06 Nov 1994 08:50:37 GMT"], 60, "-");
    check(&["Expires: Sunday, 06-Nov-94 08:50:37 GMT"], 60, "-");
    check(&["Expires: Sun Nov  6 08:50:37 1994"], 60, "-");
    check(&["Expires: 0", "ETag: x"], 0, "x|");
    check(&["Expires: Sun, 06 Nov 1994 08:49:36 GMT", "ETag: x"], 0, "x|");
    check(&["Expires: 0", DAY_BEFORE], 0, CHANGED);
    // 5.2.2: what must not be used, or not be kept.
    check(&["Cache-Control: no-store, max-age=60", "ETag: x"], 0, "-");
    check(&["Cache-Control: no-cache, max-age=60", "ETag: x"], 0, "x|");
    check(&["Cache-Control: no-cache=\"set-cookie\"", "ETag: x"], 0, "x|");
    check(&["Cache-Control: no-cache"], 0, "-");
    check(&["Cache-Control: must-revalidate, max-age=60"], 60, "-");
    // 5.4.
    check(&["Pragma: no-cache", "ETag: x"], 0, "x|");
    check(&["Pragma: no-cache", "Cache-Control: max-age=60"], 60, "-");
    // 4.1.
    check(&["Cache-Control: max-age=60", "Vary: *"], 0, "-");
    check(&["Cache-Control: max-age=60", "Vary: accept-encoding, *"], 0, "-");
    check(&["Cache-Control: max-age=60", "Vary: Accept-Encoding, Cookie"], 60, "-");
}

#[test]
fn freshness_is_guessed_when_the_server_says_nothing() {
    // 4.2.2: a tenth of the day since the last change.
    check(&[DATE, DAY_BEFORE], 8640, CHANGED);
    check(&[DAY_BEFORE], 8640, CHANGED);
    check(&[DATE, DAY_BEFORE, "ETag: W/\"x\""], 8640, &format!("W/\"x\"{CHANGED}"));
    check(&[DATE, DAY_BEFORE, "Cache-Control: must-revalidate"], 0, CHANGED);
    check(&[DATE, DAY_BEFORE, "Cache-Control: private"], 8640, CHANGED);
    check(&[DATE, "Last-Modified: Mon, 07 Nov 1994 08:49:37 GMT"], 0, "|Mon, 07 Nov 1994 08:49:37 GMT");
    check(&[DATE, "Last-Modified: yesterday"], 0, "-");
    check(&[DATE, "ETag: x"], 0, "x|");
    check(&[], 0, "-");
}

#[test]
fn an_aged_response_is_fresh_for_less() {
    // 4.2.3: the larger of the age that is reported and the one that the date tells.
    check(&["Cache-Control: max-age=60", "Age: 20"], 40, "-");
    check(&["Cache-Control: max-age=60", "Age: 61", "ETag: x"], 0, "x|");
    check(&["Cache-Control: max-age=60", "Age: soon"], 60, "-");
    check(&["Cache-Control: max-age=60", "Date: Sun, 06 Nov 1994 08:49:07 GMT"], 30, "-");
    check(&["Cache-Control: max-age=60", "Age: 20", "Date: Sun, 06 Nov 1994 08:49:07 GMT"], 30, "-");
    // A server whose clock is ahead ages nothing.
    check(&["Cache-Control: max-age=60", "Date: Sun, 06 Nov 1994 09:49:37 GMT"], 60, "-");
    // What counts is the server's own difference, not our clock.
    let behind = ["Date: Sun, 06 Nov 1994 08:49:07 GMT", "Expires: Sun, 06 Nov 1994 08:50:07 GMT"];
    check(&behind, 30, "-");
}

#[test]
fn only_successful_responses_are_cached() {
    for (status, kept) in
        [(200, true), (203, true), (206, false), (301, false), (304, false), (404, false), (500, false)]
    {
        assert_eq!(lifetime(status, &["Cache-Control: max-age=60"]).0 > 0, kept, "{status}");
    }
    let mut cache = Cache::default();
    cache.store(1, b"not http", NOW_S);
    assert_eq!(cache.lookup(1, NOW_S), CacheLookup::Absent);
    // A new answer that may not be kept takes the old one away.
    cache.store(1, &head(200, &["Cache-Control: max-age=60"]), NOW_S);
    cache.store(1, &head(200, &["Cache-Control: no-store"]), NOW_S);
    assert_eq!(cache.lookup(1, NOW_S), CacheLookup::Absent);
    let long = format!("ETag: \"{}\"", "x".repeat(VALIDATORS_BYTES_MAX));
    assert_eq!(lifetime(200, &["Cache-Control: max-age=60", &long]), (60, "-".into()));
}

#[test]
fn a_revalidated_response_is_fresh_again() {
    let later = "Date: Sun, 06 Nov 1994 09:49:37 GMT";
    for (first, confirming, fresh_s, etag) in [
        // It says nothing new: as long as before.
        (&["Cache-Control: max-age=60", "ETag: a"][..], &[later][..], 60, "a"),
        (&["Cache-Control: max-age=60", "ETag: a"], &[later, "Cache-Control: max-age=5"], 5, "a"),
        (&["Cache-Control: max-age=60", "ETag: a"], &[later, "Cache-Control: no-cache"], 0, "a"),
        (&["Cache-Control: max-age=60", "ETag: a"], &[later, "ETag: b"], 60, "b"),
        (
            &["Cache-Control: no-cache", "ETag: a"],
            &[later, "Expires: Sun, 06 Nov 1994 09:50:37 GMT"],
            60,
            "a",
        ),
        (&["ETag: a", DAY_BEFORE], &[later], 9000, "a"),
        (&["Cache-Control: max-age=60", "ETag: a"], &[later, "Age: 20"], 40, "a"),
    ] {
        let mut cache = Cache::default();
        let at_s = NOW_S + 3600;
        cache.store(7, &head(200, first), NOW_S);
        cache.confirm(7, &head(304, confirming), at_s);
        assert_eq!(
            cache.lookup(7, at_s + fresh_s.max(1) - 1) == CacheLookup::Fresh,
            fresh_s > 0,
            "{first:?} {confirming:?}"
        );
        let CacheLookup::Stale { etag: Some(found), .. } = cache.lookup(7, at_s + fresh_s) else {
            panic!("{first:?} {confirming:?}: {:?}", cache.lookup(7, at_s + fresh_s));
        };
        assert_eq!(found, etag.as_bytes());
    }
    let mut cache = Cache::default();
    cache.confirm(7, &head(304, &["Cache-Control: max-age=60"]), NOW_S);
    assert_eq!(cache.lookup(7, NOW_S), CacheLookup::Absent);
    cache.store(7, &head(200, &["ETag: a"]), NOW_S);
    cache.confirm(7, &head(304, &["Cache-Control: no-store"]), NOW_S);
    assert_eq!(cache.lookup(7, NOW_S), CacheLookup::Absent);
}

#[test]
fn entries_are_apart_and_bounded() {
    let mut cache = Cache::default();
    for key in (0..ENTRIES_MAX as u32 + 10).rev() {
        cache.store(key, &head(200, &[&format!("ETag: {key}")]), NOW_S);
    }
    assert_eq!(cache.entries.len(), ENTRIES_MAX);
    let CacheLookup::Stale { etag, .. } = cache.lookup(4000, NOW_S) else { panic!() };
    assert_eq!(etag, Some(&b"4000"[..]));
    assert_eq!(cache.lookup(0, NOW_S), CacheLookup::Absent);
    cache.store(4000, &head(200, &["Cache-Control: max-age=1"]), NOW_S);
    assert_eq!(cache.lookup(4000, NOW_S), CacheLookup::Fresh);
    cache.clear();
    assert_eq!(cache.lookup(4000, NOW_S), CacheLookup::Absent);
}

proptest! {
    /// Whatever a server sends, and whatever the clock says.
    #[test]
    fn anything_can_be_stored(
        fields in prop::collection::vec(
            "(Cache-Control|Expires|Date|Age|Vary|ETag|Last-Modified|Pragma): [ -~]{0,20}", 0..6),
        bytes in any::<Vec<u8>>(),
        now_s in any::<u64>(),
    ) {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let mut cache = Cache::default();
        cache.store(1, &head(200, &fields), now_s);
        cache.confirm(1, &head(304, &fields), now_s);
        cache.confirm(1, &bytes, now_s);
        // What is to be confirmed can be confirmed.
        if let CacheLookup::Stale { etag, last_modified } = cache.lookup(1, now_s) {
            prop_assert!(etag.is_some_and(|etag| !etag.is_empty()) || last_modified.is_some());
        }
    }
}
