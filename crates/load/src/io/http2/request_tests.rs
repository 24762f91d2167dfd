//! Requests of the engine as blocks of HPACK.

use super::hpack::{Decoder, Encoder};
use crate::io::multiplexed::fields::FieldDecoder as _;
use crate::io::multiplexed::request::RequestEncoder;

fn check(head: &str, expected: &str, body_bytes: u64) {
    let head = head.replace('\n', "\r\n");
    let (mut encoder, mut decoder) = (RequestEncoder::<Encoder>::default(), Decoder::default());
    let mut blocks = vec![];
    for _ in 0..3 {
        let (block, facts) = encoder.encode(head.as_bytes(), true).unwrap();
        assert_eq!((facts.head_bytes, facts.body_bytes), (head.len(), body_bytes), "{head}");
        let mut text = String::new();
        let add = |name: &[u8], value: &[u8]| {
            text.push_str(&format!("{}={}|", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        };
        decoder.decode(block, 65_536, add).unwrap();
        assert_eq!(text, expected, "{head}");
        blocks.push(block.to_vec());
    }
    assert!(blocks[1].len() <= blocks[0].len() && blocks[1] == blocks[2]);
}

#[test]
fn a_head_becomes_pseudo_headers_and_fields_in_lower_case() {
    check(
        "GET /a?b HTTP/1.1\nHost: x:1\nUser-Agent: w\nConnection: keep-alive\nTE: gzip\n\n",
        ":method=GET|:scheme=https|:authority=x:1|:path=/a?b|user-agent=w|",
        0,
    );
    check(
        "POST / HTTP/1.1\nAccept: */*\nContent-Length: 7\nTE: trailers\nAuthorization: Basic abc\n\n",
        ":method=POST|:scheme=https|:path=/|accept=*/*|content-length=7|te=trailers|authorization=Basic abc|",
        7,
    );
}

#[test]
fn what_is_no_whole_head_is_an_error() {
    for head in
        ["GET / HTTP/1.1\r\nHost: x\r\n", "GET\r\n\r\n", "", "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
    {
        assert!(RequestEncoder::<Encoder>::default().encode(head.as_bytes(), false).is_err(), "{head:?}");
    }
}
