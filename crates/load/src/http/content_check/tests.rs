//! Bodies against conditions: in every coding, cut anywhere, broken, swollen.

use super::*;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

/// `webdyno ` a thousand times, and its hash by sha256sum(1).
const TEXT_HASH: &str = "16cda7d997a32b2b38e3d7334272ae794239e75d92f94e6e3d93173617cc291b";
/// The same in brotli, by node's zlib.
const TEXT_BROTLI: &str = "1b3f1ff8c5636c5d7b8bcb94f82d1c206f0130534f01";
/// 70 MiB of zeros in brotli, by node's zlib: 119 bytes.
const BOMB_BROTLI: &str = "cbffff3ff82700e2b14020f7fe8fffff7ff04f00c4611180eefd1fffffffe09f0088c30200ddfb3ffeffffc13f0110\
     870500baf77ffcffff837f02200e0b0074effff8ffff07ff04401c1600e8defff1ffff0ffe0980382c00d0bdffe3ffff1ffc13007158\
     00a07bff97ffff5ff82700e2b00040f7fe0b";

fn text() -> Vec<u8> {
    b"webdyno ".repeat(1000)
}

fn unhex(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// `bytes` in a coding that can be written here.
fn coded(coding: ContentCoding, bytes: &[u8]) -> Vec<u8> {
    let best = Compression::best();
    match coding {
        ContentCoding::Gzip => {
            let mut encoder = GzEncoder::new(vec![], best);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        ContentCoding::Deflate => {
            let mut encoder = ZlibEncoder::new(vec![], best);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        ContentCoding::Brotli => unhex(TEXT_BROTLI),
        ContentCoding::Identity | ContentCoding::Other => bytes.to_vec(),
    }
}

fn bare_deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(vec![], Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn expect(texts: &[&str]) -> ResponseChecks {
    let read = |text: &&str| match text.split_once('=').unwrap() {
        ("status", value) => Expectation::Status(value.parse().unwrap()),
        ("length", value) => Expectation::Length(value.parse().unwrap()),
        ("regex", value) => Expectation::Regex(value.into()),
        (_, value) => Expectation::Sha256(value.into()),
    };
    ResponseChecks::compile(&texts.iter().map(read).collect::<Vec<_>>()).unwrap()
}

/// Whether a response of status 200 whose body comes in these pieces meets the conditions.
fn meets(checks: &ResponseChecks, coding: ContentCoding, pieces: &[&[u8]]) -> bool {
    let mut buffers = BufferPool::default();
    let head = ResponseHead {
        status: 200,
        framing: Framing::UntilClose,
        keep_alive: false,
        coding,
        length_bytes: 0,
    };
    let mut content = checks.start_body_check(head, BodyHandling::default(), &mut buffers);
    for piece in pieces {
        if let Some(content) = &mut content {
            content.feed(piece);
        }
    }
    let body_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
    checks.are_met(200, body_bytes, content, &mut buffers)
}

const CODINGS: [ContentCoding; 4] =
    [ContentCoding::Identity, ContentCoding::Gzip, ContentCoding::Deflate, ContentCoding::Brotli];

#[test]
fn conditions_are_about_the_decoded_content() {
    let hash = format!("sha256={TEXT_HASH}");
    let good: [&[&str]; 6] = [
        &["length=8000"],
        &["regex=dyno web"],
        &["regex=(?i)^WEBDYNO", "regex= $"],
        &[&hash],
        &["status=200", "length=8000", "regex=n", &hash],
        &["status=200"],
    ];
    let wrong_hash = format!("sha256={}", "0".repeat(64));
    let bad: [&[&str]; 6] = [
        &["length=8001"],
        &["regex=webdynamo"],
        &[&wrong_hash],
        &[&hash, "status=201"],
        &["regex=dyno", "regex=^dyno"],
        &["length=8000", "length=1"],
    ];
    for coding in CODINGS {
        let body = coded(coding, &text());
        let (first, rest) = body.split_at(1);
        for texts in good {
            assert!(meets(&expect(texts), coding, &[first, rest]), "{coding:?} {texts:?}");
        }
        for texts in bad {
            assert!(!meets(&expect(texts), coding, &[first, rest]), "{coding:?} {texts:?}");
        }
    }
    assert!(meets(&expect(&[&hash]), ContentCoding::Deflate, &[&bare_deflate(&text())]));
    // A gzip file may have several members (RFC 1952, 2.2).
    let (a, b) = (coded(ContentCoding::Gzip, &text()[..100]), coded(ContentCoding::Gzip, &text()[100..]));
    assert!(meets(&expect(&[&hash]), ContentCoding::Gzip, &[&a, &b]));
}

#[test]
fn an_empty_body_is_an_empty_content_in_every_coding() {
    let hash = "sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for coding in [ContentCoding::Identity, ContentCoding::Gzip, ContentCoding::Brotli, ContentCoding::Other]
    {
        assert!(meets(&expect(&["length=0", "regex=^$", hash]), coding, &[]), "{coding:?}");
        assert!(!meets(&expect(&["regex=."]), coding, &[]), "{coding:?}");
        // Answers to HEAD have the headers of a body and none.
        let head =
            ResponseHead { status: 200, framing: Framing::Empty, keep_alive: true, coding, length_bytes: 0 };
        let checks = expect(&[hash]);
        assert!(checks.start_body_check(head, BodyHandling::default(), &mut BufferPool::default()).is_none());
        assert!(checks.are_met(200, 0, None, &mut BufferPool::default()));
    }
}

#[test]
fn a_coding_that_cannot_be_undone_meets_nothing() {
    let length = expect(&["length=8000"]);
    assert!(!meets(&length, ContentCoding::Other, &[&text()]));
    for coding in [ContentCoding::Gzip, ContentCoding::Deflate, ContentCoding::Brotli] {
        let body = coded(coding, &text());
        for cut in 1..body.len() {
            assert!(!meets(&length, coding, &[&body[..cut]]), "{coding:?} cut off at {cut}");
        }
        let mut longer = body.clone();
        longer.push(b'x');
        assert!(!meets(&length, coding, &[&longer]), "{coding:?} with more behind it");
        assert!(!meets(&length, coding, &[&text()]), "{coding:?} of plain text");
    }
    let mut flipped = coded(ContentCoding::Gzip, &text());
    let crc_at = flipped.len() - 6;
    flipped[crc_at] ^= 1;
    assert!(!meets(&length, ContentCoding::Gzip, &[&flipped]));
}

#[test]
fn what_swells_ends_at_its_bound() {
    let zeros = vec![0; 70 << 20];
    let gzip = coded(ContentCoding::Gzip, &zeros);
    assert!(gzip.len() < 100_000);
    for (coding, body) in
        [(ContentCoding::Gzip, gzip), (ContentCoding::Brotli, unhex(&BOMB_BROTLI.replace(' ', "")))]
    {
        assert!(!meets(&expect(&["length=73400320"]), coding, &[&body]), "{coding:?}");
        assert!(!meets(&expect(&["regex="]), coding, &[&body]), "{coding:?}");
    }
    // What is not coded costs no memory when nothing is looked for in it.
    let hash = Sha256::digest(&zeros).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(meets(
        &expect(&[&format!("sha256={hash}"), "length=73400320"]),
        ContentCoding::Identity,
        &[&zeros]
    ));
    let kept_max = &zeros[..KEPT_BYTES_MAX as usize];
    assert!(meets(&expect(&["regex="]), ContentCoding::Identity, &[kept_max]));
    assert!(!meets(&expect(&["regex="]), ContentCoding::Identity, &[kept_max, b"x"]));
}

#[test]
fn bodies_are_read_only_when_needed() {
    let head =
        |coding, framing| ResponseHead { status: 200, framing, keep_alive: true, coding, length_bytes: 0 };
    for (texts, coding, framing, read) in [
        (&[][..], ContentCoding::Gzip, Framing::Chunked, false),
        (&["status=200"], ContentCoding::Gzip, Framing::Chunked, false),
        (&["length=5"], ContentCoding::Identity, Framing::Fixed(5), false),
        (&["length=5"], ContentCoding::Brotli, Framing::Fixed(5), true),
        (&["regex=x"], ContentCoding::Identity, Framing::Fixed(5), true),
        (&["regex=x"], ContentCoding::Identity, Framing::Fixed(0), false),
    ] {
        let content = expect(texts).start_body_check(
            head(coding, framing),
            BodyHandling::default(),
            &mut BufferPool::default(),
        );
        assert_eq!(content.is_some(), read, "{texts:?} {coding:?} {framing:?}");
    }
}

#[test]
fn buffers_are_used_again_unless_they_grew_large() {
    let checks = expect(&["regex=x"]);
    let head = ResponseHead {
        status: 200,
        framing: Framing::Chunked,
        keep_alive: true,
        coding: ContentCoding::Identity,
        length_bytes: 0,
    };
    let mut buffers = BufferPool::default();
    for (bytes, put_by) in [(1000, 1), (2 << 20, 0), (10, 1), (10, 1)] {
        let mut content = checks.start_body_check(head, BodyHandling::default(), &mut buffers).unwrap();
        assert_eq!(buffers.0.len(), 0);
        content.feed(&vec![b'x'; bytes]);
        assert!(checks.are_met(200, bytes as u64, Some(content), &mut buffers));
        assert_eq!(buffers.0.len(), put_by, "{bytes}");
    }
}

#[test]
fn conditions_that_are_none_are_usage_errors() {
    for (expectation, part) in [
        (Expectation::Regex("(a".into()), "is not a regular expression: unclosed group"),
        (Expectation::Regex("a{99999999}".into()), "is not a regular expression"),
        (Expectation::Sha256("abc".into()), "64 hexadecimal digits"),
        (Expectation::Sha256("g".repeat(64)), "64 hexadecimal digits"),
        (Expectation::Sha256("é".repeat(32)), "64 hexadecimal digits"),
    ] {
        let told = ResponseChecks::compile(&[expectation]).unwrap_err();
        assert!(told.message.contains(part) && told.exit_code() == 2 && told.hint.is_some(), "{told}");
    }
}

proptest! {
    // Invariant: how a body is cut does not change what is in it.
    #[test]
    fn any_cuts_give_the_same_content(which in 0..CODINGS.len(), mut cuts in prop::collection::vec(0..9000usize, 0..6)) {
        let body = coded(CODINGS[which], &text());
        cuts.sort_unstable();
        let (mut pieces, mut from) = (vec![], 0);
        for cut in cuts {
            let cut = cut.clamp(from, body.len());
            pieces.push(&body[from..cut]);
            from = cut;
        }
        pieces.push(&body[from..]);
        let hash = format!("sha256={TEXT_HASH}");
        prop_assert!(meets(&expect(&[&hash, "length=8000", "regex=o w"]), CODINGS[which], &pieces));
    }

    // Invariant: no bytes make a decoder panic.
    #[test]
    fn any_bytes_are_survived(which in 0..CODINGS.len(), at in 0..60usize, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let body = coded(CODINGS[which], &text());
        meets(&expect(&["length=1"]), CODINGS[which], &[&body[..at.min(body.len())], &bytes]);
    }
}

#[test]
fn a_length_as_it_is_framed_is_that_of_the_coded_body() {
    let body = coded(ContentCoding::Gzip, &text());
    let mut checks = ResponseChecks::default();
    checks.expect_framed_bytes(body.len() as u64);
    assert!(!checks.may_read_bodies());
    assert!(meets(&checks, ContentCoding::Gzip, &[&body]));
    assert!(!meets(&checks, ContentCoding::Gzip, &[&body, b"x"]));
}
