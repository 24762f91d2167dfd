//! QPACK against the example of RFC 9204, appendix B.1, its static table, and itself.

use super::*;
use proptest::prelude::*;

fn decode(block: &[u8]) -> Result<String, QpackError> {
    let mut text = String::new();
    Decoder::default().decode(block, 4096, |name, value| {
        let field = [name, b": ", value, b"\n"].concat();
        text.push_str(&String::from_utf8_lossy(&field));
    })?;
    Ok(text)
}

fn encode(fields: &[(&[u8], &[u8], Indexing)]) -> Vec<u8> {
    let mut block = vec![];
    Encoder.begin(&mut block);
    fields.iter().for_each(|(name, value, indexing)| Encoder.field(name, value, *indexing, &mut block));
    block
}

#[test]
fn the_example_of_the_rfc_is_read() {
    let block = [&b"\x00\x00\x51\x0b"[..], b"/index.html"].concat();
    assert_eq!(decode(&block).unwrap(), ":path: /index.html\n");
}

#[test]
fn the_static_table_is_that_of_appendix_a() {
    // Indices that the appendix gives, at the ends of each run of a name.
    for (index, name, value) in [
        (0, ":authority", ""),
        (1, ":path", "/"),
        (14, "set-cookie", ""),
        (15, ":method", "CONNECT"),
        (17, ":method", "GET"),
        (21, ":method", "PUT"),
        (23, ":scheme", "https"),
        (25, ":status", "200"),
        (28, ":status", "503"),
        (31, "accept-encoding", "gzip, deflate, br"),
        (41, "cache-control", "public, max-age=31536000"),
        (54, "content-type", "text/plain;charset=utf-8"),
        (62, "x-xss-protection", "1; mode=block"),
        (63, ":status", "100"),
        (71, ":status", "500"),
        (83, "alt-svc", "clear"),
        (92, "server", ""),
        (98, "x-frame-options", "sameorigin"),
    ] {
        assert_eq!(STATIC[index], (name, value), "{index}");
        let block = encode(&[(name.as_bytes(), value.as_bytes(), Indexing::Yes)]);
        assert_eq!(decode(&block).unwrap(), format!("{name}: {value}\n"), "{index}");
        assert!(block.len() <= 4, "{index}: an index alone, {block:?}");
    }
}

#[test]
fn what_needs_a_dynamic_table_or_is_cut_off_is_an_error() {
    for (name, block) in [
        ("no prefix", &b""[..]),
        ("half a prefix", b"\x00"),
        ("an entry is required", b"\x02\x00\xc1"),
        ("a field of the dynamic table", b"\x00\x00\x80"),
        ("a name of the dynamic table", b"\x00\x00\x40\x00"),
        ("an index behind the base", b"\x00\x00\x10"),
        ("a name behind the base", b"\x00\x00\x00\x00"),
        ("no such entry", b"\x00\x00\xff\x24"),
        ("a value that is cut off", b"\x00\x00\x51\x0b/ind"),
    ] {
        assert_eq!(decode(block), Err(QpackError::Wrong), "{name}");
    }
    let long = encode(&[(b"a", &[b'x'; 5000], Indexing::No)]);
    assert_eq!(decode(&long), Err(QpackError::TooLong), "more than is taken");
}

#[test]
fn a_secret_is_marked_as_one() {
    let block = encode(&[(b"authorization", b"Basic abc", Indexing::Never)]);
    assert_eq!(block[2] & 0xf0, 0x70, "never to be indexed");
    assert_eq!(decode(&block).unwrap(), "authorization: Basic abc\n");
}

proptest! {
    // What is encoded is decoded to the same fields.
    #[test]
    fn decoding_undoes_encoding(fields in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..20), prop::collection::vec(any::<u8>(), 0..60)), 0..12)) {
        let given: Vec<_> = fields.iter().map(|(name, value)| (&name[..], &value[..], Indexing::Yes)).collect();
        let mut seen = vec![];
        Decoder::default().decode(&encode(&given), 65_536, |name, value| seen.push((name.to_vec(), value.to_vec()))).unwrap();
        prop_assert_eq!(seen, fields);
    }

    // Whatever comes ends.
    #[test]
    fn nothing_panics(block in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&block);
        let _ = decode(&[&[0, 0], &block[..]].concat());
    }
}
