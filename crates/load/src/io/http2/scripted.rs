//! The other end of a connection, for tests: frames to send, and what a client sent.

use super::frames::{self, FrameHead, PREFACE, flag, kind};
use super::hpack::{Decoder, Encoder};
use crate::io::multiplexed::fields::{FieldDecoder as _, FieldEncoder as _, Indexing};

/// A frame as it goes over the wire.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![];
    frames::write_head(&mut bytes, payload.len(), kind, flags, stream);
    bytes.extend_from_slice(payload);
    bytes
}

/// SETTINGS of a server.
pub(crate) fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = vec![];
    frames::write_settings(&mut bytes, settings);
    bytes
}

/// The block of fields, `name: value` each, that leaves the table alone.
pub(crate) fn block(fields: &[&str]) -> Vec<u8> {
    let (mut encoder, mut block) = (Encoder::default(), vec![]);
    for field in fields {
        let at = field[1..].find(": ").unwrap() + 1;
        let (name, value) = field.as_bytes().split_at(at);
        encoder.field(name, &value[2..], Indexing::No, &mut block);
    }
    block
}

/// HEADERS in one frame.
pub(crate) fn headers(stream: u32, fields: &[&str], ends: bool) -> Vec<u8> {
    let flags = flag::END_HEADERS | if ends { flag::END_STREAM } else { 0 };
    frame(kind::HEADERS, flags, stream, &block(fields))
}

/// DATA.
pub(crate) fn data(stream: u32, body: &[u8], ends: bool) -> Vec<u8> {
    frame(kind::DATA, if ends { flag::END_STREAM } else { 0 }, stream, body)
}

/// A frame of one number: RST_STREAM, WINDOW_UPDATE.
pub(crate) fn number(kind: u8, stream: u32, number: u32) -> Vec<u8> {
    frame(kind, 0, stream, &number.to_be_bytes())
}

/// GOAWAY.
pub(crate) fn goaway(last: u32, code: u32) -> Vec<u8> {
    frame(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// A whole response: 200 and two bytes.
pub(crate) fn ok(stream: u32) -> Vec<u8> {
    [headers(stream, &[":status: 200", "content-length: 2"], false), data(stream, b"ok", true)].concat()
}

/// What a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    /// A request, its fields a line each, and whether it has no body.
    Request {
        stream: u32,
        fields: String,
        ends: bool,
    },
    Data {
        stream: u32,
        bytes: usize,
        ends: bool,
    },
    Reset {
        stream: u32,
        code: u32,
    },
    GoAway {
        code: u32,
    },
    WindowUpdate {
        stream: u32,
        more: u32,
    },
    Settings {
        ack: bool,
    },
    Ping {
        ack: bool,
    },
}

/// Reads what a client sends.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    input: Vec<u8>,
    greeted: bool,
    decoder: Decoder,
}

impl Reader {
    /// The frames that are whole now. Panics when the client breaks the rules.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Sent> {
        self.input.extend_from_slice(bytes);
        if !self.greeted && self.input.len() >= PREFACE.len() {
            assert!(self.input.starts_with(PREFACE));
            self.input.drain(..PREFACE.len());
            self.greeted = true;
        }
        let mut sent = vec![];
        while self.greeted
            && let Some(head) = FrameHead::read(&self.input)
            && self.input.len() >= frames::HEAD_BYTES + head.length
        {
            assert!(head.length <= frames::PAYLOAD_BYTES_MAX);
            let frame: Vec<u8> = self.input.drain(..frames::HEAD_BYTES + head.length).collect();
            sent.push(self.frame(head, &frame[frames::HEAD_BYTES..]));
        }
        sent
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) -> Sent {
        let (stream, ends, ack) = (head.stream, head.has(flag::END_STREAM), head.has(flag::ACK));
        match head.kind {
            kind::HEADERS => {
                assert!(head.has(flag::END_HEADERS), "requests of tests are short");
                let mut fields = String::new();
                let add = |name: &[u8], value: &[u8]| {
                    let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                    fields.push_str(&format!("{name}: {value}\n"));
                };
                self.decoder.decode(payload, 65_536, add).unwrap();
                Sent::Request { stream, fields, ends }
            }
            kind::DATA => Sent::Data { stream, bytes: payload.len(), ends },
            kind::RST_STREAM => Sent::Reset { stream, code: frames::number(payload) },
            kind::GOAWAY => Sent::GoAway { code: frames::number(&payload[4..]) },
            kind::WINDOW_UPDATE => Sent::WindowUpdate { stream, more: frames::number(payload) },
            kind::SETTINGS => Sent::Settings { ack },
            kind::PING => Sent::Ping { ack },
            other => panic!("a client sends no frame of type {other}"),
        }
    }
}
