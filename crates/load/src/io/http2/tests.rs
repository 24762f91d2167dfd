//! The connection against what servers send: right and wrong, RFC 9113 clause by clause (h2spec has the same cases).

use super::connection::Connection;
use super::frames::{ErrorCode, flag, kind, setting};
use super::scripted::{Reader, Sent, block, data, frame, goaway, headers, number, ok, settings};
use crate::io::multiplexed::multiplex::Multiplex;
use crate::io::network_io::SocketError;
use proptest::prelude::*;
use rustix::io::Errno;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n";
/// More memory than any server should make a connection hold, beyond a response.
const MEMORY_BYTES_MAX: usize = 1 << 20;

/// What became of the request on stream 1.
#[derive(Debug, Clone, PartialEq)]
enum End {
    /// The response as the engine reads it, its head without what is the same in all.
    Whole(&'static str),
    /// The response began, or did not, and is awaited.
    Waits,
    Failed(SocketError),
    /// The connection is over, with this code.
    Fault(ErrorCode),
}

/// Reads all that is there.
fn drain(connection: &mut Connection, lane: u32) -> Got {
    let (mut text, mut buffer) = (vec![], [0; 1000]);
    loop {
        match connection.read(lane, Some(&mut buffer), 1000) {
            Ok(count) if count > 0 => text.extend_from_slice(&buffer[..count]),
            end => return (text, end),
        }
    }
}

/// A connection that has sent `request` on stream 1, and was told these bytes in pieces of `piece` bytes.
fn told(request: &[u8], bytes: &[u8], piece: usize) -> (Connection, u32) {
    let mut connection = Connection::new(true);
    let lane = connection.attach(7);
    connection.send(lane, request).unwrap();
    connection.sent(connection.unsent().len());
    for bytes in bytes.chunks(piece.max(1)) {
        connection.receive(bytes);
    }
    (connection, lane)
}

fn check_pieces(name: &str, request: &[u8], bytes: &[u8], expected: &End, piece: usize) {
    let (mut connection, lane) = told(request, bytes, piece);
    let (text, end) = drain(&mut connection, lane);
    let text = String::from_utf8_lossy(&text).into_owned();
    let got = format!("{name} by {piece}: {text:?}, {end:?}, {:?}", connection.fault());
    match expected {
        End::Whole(whole) => {
            assert_eq!(text.replace("HTTP/1.1 200 \r\n", "").replace("\r\n", "|"), *whole, "{got}");
            assert_eq!((end, connection.fault()), (Err(SocketError::AGAIN), None), "{got}");
            assert!(!connection.is_active(lane), "{got}");
        }
        End::Waits => {
            assert_eq!((end, connection.fault()), (Err(SocketError::AGAIN), None), "{got}");
            assert!(connection.is_active(lane), "{got}");
        }
        End::Failed(error) => assert_eq!((end, connection.fault()), (Err(*error), None), "{got}"),
        End::Fault(code) => {
            assert_eq!((end, connection.fault()), (Err(SocketError::Protocol), Some(*code)), "{got}");
            let sent = Reader::default().take(&[super::frames::PREFACE, connection.unsent()].concat());
            assert_eq!(sent.last(), Some(&Sent::GoAway { code: *code as u32 }), "{got}");
        }
    }
    assert!(connection.memory_bytes() < MEMORY_BYTES_MAX, "{got}: {} bytes", connection.memory_bytes());
}

/// The server's SETTINGS, then these bytes: the same however they are cut.
fn check(name: &str, bytes: &[Vec<u8>], expected: End) {
    let bytes = [settings(&[]), bytes.concat()].concat();
    for piece in [usize::MAX, 1, 7, 100] {
        check_pieces(name, GET, &bytes, &expected, piece);
    }
}

fn status(fields: &[&str]) -> Vec<u8> {
    headers(1, fields, false)
}

#[test]
fn responses_are_read_as_http1() {
    let head = |fields: &[&str]| headers(1, fields, false);
    for (name, bytes, whole) in [
        ("with a length", vec![ok(1)], "content-length: 2||ok"),
        (
            "without one",
            vec![head(&[":status: 200"]), data(1, b"hello", false), data(1, &[b'x'; 20], true)],
            "transfer-encoding: chunked||5|hello|14|xxxxxxxxxxxxxxxxxxxx|0||",
        ),
        ("without a body", vec![headers(1, &[":status: 200", "a: b"], true)], "a: b|content-length: 0||"),
        (
            "an end of its own",
            vec![head(&[":status: 200", "content-length: 2"]), data(1, b"ok", false), data(1, b"", true)],
            "content-length: 2||ok",
        ),
        (
            "trailers",
            vec![head(&[":status: 200"]), data(1, b"a", false), headers(1, &["t: 1"], true)],
            "transfer-encoding: chunked||1|a|0||",
        ),
        (
            "padding",
            vec![
                frame(
                    kind::HEADERS,
                    flag::END_HEADERS | flag::PADDED | flag::PRIORITY,
                    1,
                    &[&[3, 0, 0, 0, 0, 9][..], &block(&[":status: 200", "content-length: 1"]), &[0; 3]]
                        .concat(),
                ),
                frame(kind::DATA, flag::END_STREAM | flag::PADDED, 1, &[2, b'x', 0, 0]),
            ],
            "content-length: 1||x",
        ),
        (
            "a block in three frames",
            vec![
                frame(kind::HEADERS, 0, 1, &block(&[":status: 200"])),
                frame(kind::CONTINUATION, 0, 1, &[]),
                frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block(&["content-length: 1"])),
                data(1, b"x", true),
            ],
            "content-length: 1||x",
        ),
        (
            "frames that mean nothing",
            vec![
                frame(99, 0xff, 77, b"unknown"),
                frame(kind::PRIORITY, 0, 1, &[0; 5]),
                frame(kind::PING, flag::ACK, 0, &[0; 8]),
                frame(kind::SETTINGS, flag::ACK, 0, &[]),
                ok(1),
                number(kind::WINDOW_UPDATE, 1, 5),
            ],
            "content-length: 2||ok",
        ),
    ] {
        check(name, &bytes, End::Whole(whole));
    }
}

#[test]
fn interim_responses_and_those_to_head_are_read() {
    let interim = [headers(1, &[":status: 103", "link: </a>"], false), ok(1)];
    check("interim", &interim, End::Whole("HTTP/1.1 103 |link: </a>||content-length: 2||ok"));
    let empty = [settings(&[]), headers(1, &[":status: 200", "content-length: 9"], true)].concat();
    check_pieces("HEAD", HEAD, &empty, &End::Whole("content-length: 9||"), usize::MAX);
}

#[test]
fn errors_of_a_stream_leave_the_connection() {
    let protocol = End::Failed(SocketError::Protocol);
    let begun = || status(&[":status: 200", "content-length: 3"]);
    for (name, bytes, expected) in [
        ("no end", vec![begun(), data(1, b"abc", false)], End::Waits),
        ("too short", vec![begun(), data(1, b"ab", true)], protocol.clone()),
        ("too long", vec![begun(), data(1, b"abcd", true)], protocol.clone()),
        (
            "more after the end of the body",
            vec![begun(), data(1, b"abc", false), data(1, b"d", true)],
            protocol.clone(),
        ),
        (
            "a length and no body",
            vec![headers(1, &[":status: 200", "content-length: 3"], true)],
            protocol.clone(),
        ),
        (
            "two lengths",
            vec![status(&[":status: 200", "content-length: 3", "content-length: 4"])],
            protocol.clone(),
        ),
        ("a body before a head", vec![data(1, b"x", false)], protocol.clone()),
        ("no status", vec![status(&["a: b"])], protocol.clone()),
        ("no status of three digits", vec![status(&[":status: 20"])], protocol.clone()),
        ("two statuses", vec![status(&[":status: 200", ":status: 200"])], protocol.clone()),
        ("a status after fields", vec![status(&["a: b", ":status: 200"])], protocol.clone()),
        ("another pseudo header", vec![status(&[":status: 200", ":path: /"])], protocol.clone()),
        ("101", vec![status(&[":status: 101"])], protocol.clone()),
        ("an interim end", vec![headers(1, &[":status: 100"], true)], protocol.clone()),
        ("upper case", vec![status(&[":status: 200", "A: b"])], protocol.clone()),
        ("a line end in a value", vec![status(&[":status: 200", "a: b\r\nc: d"])], protocol.clone()),
        ("connection", vec![status(&[":status: 200", "connection: close"])], protocol.clone()),
        (
            "transfer-encoding",
            vec![status(&[":status: 200", "transfer-encoding: chunked"])],
            protocol.clone(),
        ),
        ("a body to 204", vec![status(&[":status: 204"]), data(1, b"x", true)], protocol.clone()),
        (
            "trailers without an end",
            vec![begun(), data(1, b"abc", false), status(&["t: 1"])],
            protocol.clone(),
        ),
        ("a second head", vec![begun(), headers(1, &[":status: 200"], true)], protocol.clone()),
        ("a window too large", vec![number(kind::WINDOW_UPDATE, 1, (1 << 31) - 1)], protocol.clone()),
        ("a window of nothing", vec![number(kind::WINDOW_UPDATE, 1, 0)], protocol),
        ("reset", vec![begun(), number(kind::RST_STREAM, 1, 2)], End::Failed(SocketError::StreamReset)),
        ("refused", vec![number(kind::RST_STREAM, 1, 7)], End::Failed(SocketError::Refused)),
        ("gone before it", vec![goaway(0, 0)], End::Failed(SocketError::Refused)),
        ("gone after it", vec![goaway(1, 0)], End::Waits),
    ] {
        check(name, &bytes, expected);
    }
    check("gone after it, answered", &[goaway(1, 0)], End::Waits);
}

#[test]
fn errors_of_the_connection_end_it() {
    use ErrorCode::*;
    let long = |kind, length: usize| frame(kind, 0, 1, &vec![0; length]);
    for (name, bytes, code) in [
        ("a frame too long", long(kind::DATA, 16_385), FrameSize),
        ("an unknown frame too long", long(99, 16_385), FrameSize),
        ("data on stream 0", data(0, b"x", false), Protocol),
        ("data on an idle stream", data(3, b"x", false), Protocol),
        ("data on a stream of the server", data(2, b"x", false), Protocol),
        ("data after the end", [ok(1), data(1, b"x", false)].concat(), StreamClosed),
        ("a head after the end", [ok(1), ok(1)].concat(), StreamClosed),
        ("more padding than frame", frame(kind::DATA, flag::PADDED, 1, &[5, 0]), Protocol),
        ("no room for padding", frame(kind::DATA, flag::PADDED, 1, &[]), Protocol),
        ("a head on stream 0", headers(0, &[":status: 200"], true), Protocol),
        ("a head on an idle stream", headers(3, &[":status: 200"], true), Protocol),
        ("a head without room for its priority", frame(kind::HEADERS, 0x24, 1, &[0; 4]), FrameSize),
        ("priority on stream 0", frame(kind::PRIORITY, 0, 0, &[0; 5]), Protocol),
        ("a priority of four bytes", frame(kind::PRIORITY, 0, 1, &[0; 4]), FrameSize),
        ("reset of stream 0", number(kind::RST_STREAM, 0, 0), Protocol),
        ("reset of an idle stream", number(kind::RST_STREAM, 5, 0), Protocol),
        ("a reset of three bytes", frame(kind::RST_STREAM, 0, 1, &[0; 3]), FrameSize),
    ] {
        let expected = match name {
            // The response was whole before.
            "data after the end" | "a head after the end" => {
                let bytes = [settings(&[]), bytes].concat();
                assert_eq!(told(GET, &bytes, usize::MAX).0.fault(), Some(code), "{name}");
                continue;
            }
            _ => End::Fault(code),
        };
        check(name, &[bytes], expected);
    }
}

#[test]
fn wrong_frames_of_the_connection_end_it() {
    use ErrorCode::*;
    for (name, bytes, code) in [
        ("settings of a stream", frame(kind::SETTINGS, 0, 1, &[]), Protocol),
        ("settings of five bytes", frame(kind::SETTINGS, 0, 0, &[0; 5]), FrameSize),
        ("settings that are acknowledged and there", frame(kind::SETTINGS, flag::ACK, 0, &[0; 6]), FrameSize),
        ("push allowed by the server", settings(&[(setting::ENABLE_PUSH, 1)]), Protocol),
        ("a window beyond 2^31", settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 31)]), FlowControl),
        ("frames of less than 16 kB", settings(&[(setting::MAX_FRAME_SIZE, 16_383)]), Protocol),
        ("frames beyond 2^24", settings(&[(setting::MAX_FRAME_SIZE, 1 << 24)]), Protocol),
        ("a push", frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, &[0, 0, 0, 2]), Protocol),
        ("a ping of a stream", frame(kind::PING, 0, 1, &[0; 8]), Protocol),
        ("a ping of seven bytes", frame(kind::PING, 0, 0, &[0; 7]), FrameSize),
        ("goaway on a stream", frame(kind::GOAWAY, 0, 1, &[0; 8]), Protocol),
        ("a goaway of seven bytes", frame(kind::GOAWAY, 0, 0, &[0; 7]), FrameSize),
        ("a window update of three bytes", frame(kind::WINDOW_UPDATE, 0, 0, &[0; 3]), FrameSize),
        ("a window update of nothing", number(kind::WINDOW_UPDATE, 0, 0), Protocol),
        ("a connection's window too large", number(kind::WINDOW_UPDATE, 0, (1 << 31) - 1), FlowControl),
        ("a window update of an idle stream", number(kind::WINDOW_UPDATE, 9, 1), Protocol),
        ("a continuation of nothing", frame(kind::CONTINUATION, 0, 1, &[]), Protocol),
        (
            "a frame within a block",
            [frame(kind::HEADERS, 0, 1, &[]), data(1, b"x", false)].concat(),
            Protocol,
        ),
        (
            "a block that goes on elsewhere",
            [frame(kind::HEADERS, 0, 1, &[]), frame(kind::CONTINUATION, 4, 3, &[])].concat(),
            Protocol,
        ),
        (
            "an index that is none",
            frame(kind::HEADERS, flag::END_HEADERS, 1, &[0xff, 0xff, 0x10]),
            Compression,
        ),
        (
            "a table larger than allowed",
            frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x3f, 0xe2, 0x1f]),
            Compression,
        ),
    ] {
        check(name, &[bytes], End::Fault(code));
    }
}

#[test]
fn the_first_frame_is_settings() {
    for (name, bytes, code) in [
        ("http/1", &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], ErrorCode::FrameSize),
        ("a response", &ok(1), ErrorCode::Protocol),
        ("an acknowledgement", &frame(kind::SETTINGS, flag::ACK, 0, &[]), ErrorCode::Protocol),
    ] {
        let (connection, _) = told(GET, bytes, usize::MAX);
        assert_eq!(connection.fault(), Some(code), "{name}");
        assert_eq!(connection.answered_http1(), name == "http/1");
    }
}

#[test]
fn floods_and_bombs_end_with_bounded_memory() {
    use ErrorCode::*;
    let bomb = {
        let mut bytes = vec![0x40, 1, b'a', 0x7f, 0x81, 0x1e];
        bytes.extend(vec![b'x'; 4000]);
        bytes.truncate(4000);
        bytes.extend(vec![0xbe; 10_000]);
        frame(kind::HEADERS, flag::END_HEADERS, 1, &bytes)
    };
    let continued =
        [frame(kind::HEADERS, 0, 1, &[]), frame(kind::CONTINUATION, 0, 1, &[]).repeat(100)].concat();
    let long = frame(kind::CONTINUATION, 0, 1, &[0x82; 16_000]).repeat(6);
    for (name, bytes, code) in [
        ("pings", frame(kind::PING, 0, 0, &[0; 8]).repeat(100_000), EnhanceYourCalm),
        ("settings", settings(&[]).repeat(100_000), EnhanceYourCalm),
        (
            "empty data",
            [status(&[":status: 200"]), data(1, b"", false).repeat(10_000)].concat(),
            EnhanceYourCalm,
        ),
        ("window updates", number(kind::WINDOW_UPDATE, 0, 1).repeat(10_000), EnhanceYourCalm),
        ("priorities", frame(kind::PRIORITY, 0, 1, &[0; 5]).repeat(10_000), EnhanceYourCalm),
        ("unknown frames", frame(200, 0, 0, &[]).repeat(10_000), EnhanceYourCalm),
        ("continuations without end", continued, EnhanceYourCalm),
        ("a block without end", [frame(kind::HEADERS, 0, 1, &[]), long].concat(), EnhanceYourCalm),
        ("a bomb", bomb, Compression),
    ] {
        let (connection, _) = told(GET, &[settings(&[]), bytes].concat(), 50_000);
        assert_eq!(connection.fault(), Some(code), "{name}");
        assert!(connection.memory_bytes() < MEMORY_BYTES_MAX, "{name}: {}", connection.memory_bytes());
    }
}

#[test]
fn windows_are_given_back_and_obeyed() {
    // More than both windows hold, as fast as it comes.
    let (mut connection, lane) = told(GET, &[settings(&[]), status(&[":status: 200"])].concat(), 1000);
    let (body, mut reader, mut more) = (data(1, &[7; 16_000], false), Reader::default(), [0_u64; 2]);
    reader.take(super::frames::PREFACE);
    for _ in 0..6000 {
        connection.receive(&body);
        let _ = drain(&mut connection, lane);
        for sent in reader.take(connection.unsent()) {
            if let Sent::WindowUpdate { stream, more: bytes } = sent {
                more[stream as usize] += u64::from(bytes);
            }
        }
        connection.sent(connection.unsent().len());
    }
    assert_eq!(connection.fault(), None);
    assert!(more.iter().all(|more| *more > 60_000_000), "{more:?}");
}

#[test]
fn bodies_obey_the_windows_of_the_server() {
    let body = vec![b'b'; 100_000];
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    let request = [&head[..], &body].concat();
    let mut connection = Connection::new(false);
    let lane = connection.attach(7);
    let mut reader = Reader::default();
    let sent = |connection: &mut Connection, reader: &mut Reader| -> usize {
        let frames = reader.take(connection.unsent());
        connection.sent(connection.unsent().len());
        frames.iter().map(|sent| if let Sent::Data { bytes, .. } = sent { *bytes } else { 0 }).sum()
    };
    // The default windows, before SETTINGS.
    let mut taken = connection.send(lane, &request).unwrap();
    assert_eq!((taken, sent(&mut connection, &mut reader)), (head.len() + 65_535, 65_535));
    assert_eq!(connection.send(lane, &request[taken..]), Err(SocketError::AGAIN));
    // A smaller initial window makes that of the stream negative; the connection's alone does not help.
    connection.receive(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    connection.receive(&number(kind::WINDOW_UPDATE, 0, 1_000_000));
    assert_eq!(connection.send(lane, &request[taken..]), Err(SocketError::AGAIN));
    connection.receive(&number(kind::WINDOW_UPDATE, 1, 65_535 + 10));
    let mut touched = vec![];
    connection.take_touched(|token, readable, _| touched.push((token, readable)));
    assert_eq!(touched.last(), Some(&(7, false)));
    taken += connection.send(lane, &request[taken..]).unwrap();
    assert_eq!(sent(&mut connection, &mut reader), 10);
    connection.receive(&settings(&[(setting::INITIAL_WINDOW_SIZE, 100_000)]));
    taken += connection.send(lane, &request[taken..]).unwrap();
    assert_eq!((taken, sent(&mut connection, &mut reader)), (request.len(), 100_000 - 65_535 - 10));
    connection.receive(&ok(1));
    assert_eq!(drain(&mut connection, lane).0.len(), "HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\nok".len());
    assert!(!connection.is_active(lane));
}

#[test]
fn a_response_before_the_end_of_the_body_stops_it() {
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    let (mut connection, lane) = told(head, &settings(&[]), 1000);
    connection.receive(&[ok(1), number(kind::RST_STREAM, 1, 0)].concat());
    assert_eq!(connection.send(lane, &[0; 100]), Err(Errno::PIPE.into()));
    assert!(drain(&mut connection, lane).0.ends_with(b"ok"));
}

#[test]
fn requests_beyond_the_limit_of_streams_wait_for_their_turn() {
    let (mut connection, first) = told(GET, &settings(&[(setting::MAX_CONCURRENT_STREAMS, 1)]), 1000);
    let others = [connection.attach(8), connection.attach(9)];
    for lane in others {
        assert_eq!(connection.send(lane, GET), Err(SocketError::AGAIN));
    }
    connection.receive(&ok(1));
    let mut touched = vec![];
    connection.take_touched(|token, readable, _| touched.push((token, readable)));
    assert_eq!(touched, [(7, true), (8, false)]);
    assert_eq!(connection.send(others[0], GET), Ok(GET.len()));
    assert_eq!(connection.send(others[1], GET), Err(SocketError::AGAIN));
    // One that is given up makes room, and what still comes for it is not wrong.
    connection.detach(others[0]);
    connection.take_touched(|token, _, _| touched.push((token, false)));
    assert_eq!(touched.last(), Some(&(9, false)));
    connection.receive(&ok(3));
    assert_eq!((connection.fault(), connection.send(others[1], GET)), (None, Ok(GET.len())));
    assert_eq!(drain(&mut connection, first).0.len(), 38);
}

#[test]
fn the_same_block_means_the_same_until_the_table_changes() {
    // `x: <n>` goes into the table, and later blocks refer to it.
    let insert = |value: u8| [&[0x88, 0x40, 1, b'x', 1][..], &[value]].concat();
    let mut connection = Connection::new(true);
    let lane = connection.attach(7);
    connection.receive(&settings(&[]));
    let texts: Vec<String> =
        [insert(b'1'), vec![0x88, 0xbe], vec![0x88, 0xbe], insert(b'2'), vec![0x88, 0xbe]]
            .iter()
            .zip((1..).step_by(2))
            .map(|(block, stream)| {
                connection.send(lane, GET).unwrap();
                connection.receive(&frame(
                    kind::HEADERS,
                    flag::END_HEADERS | flag::END_STREAM,
                    stream,
                    block,
                ));
                let text = String::from_utf8(drain(&mut connection, lane).0).unwrap();
                text.lines().nth(1).unwrap().to_owned()
            })
            .collect();
    assert_eq!(texts, ["x: 1", "x: 1", "x: 1", "x: 2", "x: 2"]);
}

/// Frames that are mostly right, of streams that mostly exist.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![Just(1_u32), Just(3), Just(5), 0..9_u32];
    prop_oneof![
        (stream.clone(), any::<bool>()).prop_map(|(stream, ends)| headers(
            stream,
            &[":status: 200", "a: b"],
            ends
        )),
        (stream.clone(), 0..300_usize, any::<bool>()).prop_map(|(stream, count, ends)| data(
            stream,
            &vec![1; count],
            ends
        )),
        stream.clone().prop_map(ok),
        (stream.clone(), 0..9_u32).prop_map(|(stream, code)| number(kind::RST_STREAM, stream, code)),
        (stream.clone(), 0..9_u32).prop_map(|(stream, more)| number(kind::WINDOW_UPDATE, stream, more)),
        (0..7_u32, 0..2_u32).prop_map(|(last, code)| goaway(last, code)),
        (1..7_u16, 0..70_000_u32).prop_map(|(name, value)| settings(&[(name, value)])),
        (0..12_u8, any::<u8>(), stream, prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload)),
    ]
}

/// What was read of a response, and how that ended.
type Got = (Vec<u8>, Result<usize, SocketError>);

/// What three requests got, and what the connection sent.
fn outcome(bytes: &[u8], pieces: &[usize]) -> (Vec<Got>, Vec<u8>, Option<ErrorCode>) {
    let mut connection = Connection::new(true);
    let lanes = [1, 2, 3].map(|token| connection.attach(token));
    for lane in lanes {
        connection.send(lane, GET).unwrap();
    }
    let (mut rest, mut sizes) = (bytes, pieces.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |size| (*size).clamp(1, rest.len()));
        let piece;
        (piece, rest) = rest.split_at(size);
        connection.receive(piece);
        assert!(connection.memory_bytes() < MEMORY_BYTES_MAX);
    }
    let got = lanes.map(|lane| drain(&mut connection, lane));
    (got.to_vec(), connection.unsent().to_vec(), connection.fault())
}

proptest! {
    // However the network cuts what a server sends, it means the same.
    #[test]
    fn cuts_change_nothing(frames in prop::collection::vec(any_frame(), 0..20), pieces in prop::collection::vec(1..40_usize, 1..20)) {
        let bytes = [settings(&[]), frames.concat()].concat();
        let whole = outcome(&bytes, &[usize::MAX]);
        prop_assert_eq!(&outcome(&bytes, &pieces), &whole);
        prop_assert_eq!(&outcome(&bytes, &[1]), &whole);
    }

    // No bytes make it panic.
    #[test]
    fn any_bytes_are_frames_or_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..400), greets in any::<bool>()) {
        let before = if greets { settings(&[]) } else { vec![] };
        outcome(&[before, bytes].concat(), &[usize::MAX]);
    }
}
