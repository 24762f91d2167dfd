//! HPACK against the examples of RFC 7541, appendix C, and against itself.

use super::*;
use crate::io::multiplexed::fields::{FieldDecoder as _, FieldEncoder as _, Indexing};
use proptest::prelude::*;

const LIST_BYTES: usize = 64 * 1024;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<String, HpackError> {
    let mut text = String::new();
    decoder.decode(block, LIST_BYTES, |name, value| {
        let field = [name, b": ", value, b"\n"].concat();
        text.push_str(&String::from_utf8_lossy(&field));
    })?;
    Ok(text)
}

/// Blocks of one connection: what they mean, and the size of the table after each.
fn check(blocks: &[(&str, &str, usize)]) {
    let mut decoder = Decoder::default();
    for (hex, expected, table_bytes) in blocks {
        assert_eq!(decode(&mut decoder, &bytes(hex)).unwrap(), expected.replace('|', "\n"), "{hex}");
        assert_eq!(decoder.table_bytes(), *table_bytes, "{hex}");
    }
}

#[test]
fn integers_are_those_of_appendix_c1() {
    for (value, prefix_bits, expected) in [(10, 5, "0a"), (1337, 5, "1f9a0a"), (42, 8, "2a")] {
        let mut written = vec![];
        write_integer(value, 0, prefix_bits, &mut written);
        assert_eq!(written, bytes(expected));
        assert_eq!(read_integer(&written, prefix_bits), Ok((value, &[][..])));
    }
    assert_eq!(read_integer(&bytes("1fffffffff01"), 5), Err(HpackError::Integer));
    assert_eq!(read_integer(&bytes("1fff"), 5), Err(HpackError::Incomplete));
}

#[test]
fn single_fields_are_those_of_appendix_c2() {
    for (hex, expected, table_bytes) in [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            "custom-key: custom-header|",
            55,
        ),
        ("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path|", 0),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret|", 0),
        ("82", ":method: GET|", 0),
    ] {
        check(&[(hex, expected, table_bytes)]);
    }
}

const REQUESTS: [&str; 3] = [
    ":method: GET|:scheme: http|:path: /|:authority: www.example.com|",
    ":method: GET|:scheme: http|:path: /|:authority: www.example.com|cache-control: no-cache|",
    ":method: GET|:scheme: https|:path: /index.html|:authority: www.example.com|custom-key: custom-value|",
];

#[test]
fn requests_are_those_of_appendix_c3_and_c4() {
    check(&[
        ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", REQUESTS[0], 57),
        ("8286 84be 5808 6e6f 2d63 6163 6865", REQUESTS[1], 110),
        ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", REQUESTS[2], 164),
    ]);
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    check(&[(coded[0], REQUESTS[0], 57), (coded[1], REQUESTS[1], 110), (coded[2], REQUESTS[2], 164)]);
    // Our encoder writes just these.
    let mut encoder = Encoder::default();
    for (request, expected) in REQUESTS.iter().zip(coded) {
        let mut block = vec![];
        encoder.begin(&mut block);
        for field in request.split_terminator('|') {
            let (name, value) = field.split_at(field[1..].find(": ").unwrap() + 1);
            encoder.field(name.as_bytes(), &value.as_bytes()[2..], Indexing::Yes, &mut block);
        }
        assert_eq!(block, bytes(expected), "{request}");
    }
}

#[test]
fn responses_with_eviction_are_those_of_appendix_c5_and_c6() {
    let first = ":status: 302|cache-control: private|date: Mon, 21 Oct 2013 20:13:21 GMT|location: \
                 https://www.example.com|";
    // The table of these examples has 256 bytes; the first block says so here.
    let resize = "3fe101";
    let plain = "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 \
                 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d";
    let coded = "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d \
                 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3";
    let second = first.replace("302", "307");
    let third = ":status: 200|cache-control: private|date: Mon, 21 Oct 2013 20:13:22 GMT|location: \
                 https://www.example.com|content-encoding: gzip|set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; \
                 max-age=3600; version=1|";
    let third_coded = "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 \
                       821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed \
                       4ee5 b106 3d50 07";
    check(&[(&format!("{resize}{plain}"), first, 222), ("4803 3330 37c1 c0bf", &second, 222)]);
    check(&[
        (&format!("{resize}{coded}"), first, 222),
        ("4883 640e ffc1 c0bf", &second, 222),
        (third_coded, third, 215),
    ]);
}

#[test]
fn hostile_blocks_are_errors() {
    for (hex, expected) in [
        ("80", HpackError::Index),
        ("be", HpackError::Index),
        ("ffffffffffff", HpackError::Integer),
        ("3fe21f", HpackError::TableSize),
        ("82 20", HpackError::TableSize),
        ("40 0a 6375", HpackError::Incomplete),
        ("40", HpackError::Incomplete),
        ("00 81 00 00", HpackError::Huffman),
    ] {
        assert_eq!(decode(&mut Decoder::default(), &bytes(hex)), Err(expected), "{hex}");
    }
}

#[test]
fn a_bomb_of_references_is_bounded() {
    let mut block = vec![0x40, 1, b'a'];
    write_integer(3000, 0, 7, &mut block);
    block.extend(vec![b'x'; 3000]);
    block.extend(vec![0xbe; 10_000]);
    let (mut decoder, mut passed) = (Decoder::default(), 0);
    let result = decoder.decode(&block, LIST_BYTES, |name, value| passed += name.len() + value.len());
    assert_eq!(result, Err(HpackError::ListSize));
    assert!(passed <= LIST_BYTES, "{passed}");
}

#[test]
fn a_smaller_table_is_announced_and_used() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    for limit in [4096, 60, 0, 100] {
        encoder.limit_table(limit);
        for _ in 0..2 {
            let mut block = vec![];
            encoder.begin(&mut block);
            encoder.field(b"name-a", b"value", Indexing::Yes, &mut block);
            encoder.field(b"name-b", b"value", Indexing::Yes, &mut block);
            assert_eq!(decode(&mut decoder, &block).unwrap(), "name-a: value\nname-b: value\n");
            assert!(decoder.table_bytes() <= limit);
        }
    }
}

proptest! {
    // A decoder gives the fields that the encoder was given, whatever they are and in whatever order they come again.
    #[test]
    fn decoding_undoes_encoding(
        blocks in prop::collection::vec(prop::collection::vec((0..12_usize, 0..12_usize, 0..3_usize), 1..12), 1..20)
    ) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        for fields in &blocks {
            let (mut block, mut expected) = (vec![], String::new());
            encoder.begin(&mut block);
            for &(name, value, indexing) in fields {
                let (name, value) = (format!("name-{name}"), format!("value {}", "v".repeat(value * 97)));
                let indexing = [Indexing::Yes, Indexing::No, Indexing::Never][indexing];
                encoder.field(name.as_bytes(), value.as_bytes(), indexing, &mut block);
                expected.push_str(&format!("{name}: {value}\n"));
            }
            prop_assert_eq!(decode(&mut decoder, &block).unwrap(), expected);
        }
    }

    // No bytes make it panic, or its table grow beyond its size.
    #[test]
    fn any_bytes_are_decoded_or_refused(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..8)) {
        let mut decoder = Decoder::default();
        for block in &blocks {
            let _ = decode(&mut decoder, block);
            prop_assert!(decoder.table_bytes() <= TABLE_BYTES);
        }
    }
}
