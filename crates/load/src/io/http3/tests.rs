//! The connection against what servers send: right and wrong, RFC 9114 clause by clause, over a path that loses datagrams too.

use super::connection::Connection;
use super::frames::{ErrorCode, kind};
use super::scripted::{Pair, context, control, data, frame, headers, server, settings};
use crate::io::multiplexed::multiplex::Multiplex;
use crate::io::network_io::{Handshake, SocketError};
use proptest::prelude::*;
use rustix::io::Errno;

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
const HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n";
/// More memory than any server should make a connection hold, beyond a response.
const MEMORY_BYTES_MAX: usize = 1 << 20;
const RESET: SocketError = SocketError::Os(Errno::CONNRESET);

/// Reads all that is there of a response, and what comes then.
fn read(connection: &mut Connection, lane: u32) -> (String, Result<usize, SocketError>) {
    let (mut text, mut buffer) = (vec![], [0; 1000]);
    loop {
        match connection.read(lane, Some(&mut buffer), 1000) {
            Ok(count) if count > 0 => text.extend_from_slice(&buffer[..count]),
            end => return (String::from_utf8_lossy(&text).replace("\r\n", "|"), end),
        }
    }
}

/// A request and its answer, however that is cut: what the engine reads. The stream has ended, and the connection goes on.
fn check(name: &str, request: &[u8], answer: &[Vec<u8>], expected: &str) {
    for piece in [usize::MAX, 3] {
        let mut pair = Pair::new();
        let lane = pair.request(request);
        pair.answer(0, &answer.concat(), piece, true);
        let got = read(&mut pair.client, lane);
        assert_eq!(got, (format!("HTTP/1.1 {expected}"), Err(SocketError::AGAIN)), "{name}");
        assert_eq!((pair.client.is_active(lane), pair.client.fault()), (false, None), "{name}");
        pair.client.detach(lane);
        let lane = pair.request(GET);
        pair.answer(1, &headers(&[":status: 204"]), usize::MAX, true);
        assert_eq!(read(&mut pair.client, lane).0, "HTTP/1.1 204 ||", "{name}: the next one");
    }
}

#[test]
fn responses_are_read_as_http1() {
    let ok = headers(&[":status: 200", "content-length: 2"]);
    for (name, answer, expected) in [
        ("with a length", vec![ok.clone(), data(b"ok")], "200 |content-length: 2||ok"),
        ("in two frames", vec![ok.clone(), data(b"o"), data(b"k")], "200 |content-length: 2||ok"),
        (
            "without a length",
            vec![headers(&[":status: 200"]), data(b"h"), data(b"")],
            "200 |transfer-encoding: chunked||1|h|0||",
        ),
        (
            "trailers",
            vec![headers(&[":status: 200"]), data(b"a"), headers(&["t: 1"])],
            "200 |transfer-encoding: chunked||1|a|0||",
        ),
        (
            "an interim response",
            vec![headers(&[":status: 103", "link: x"]), ok.clone(), data(b"ok")],
            "103 |link: x||HTTP/1.1 200 |content-length: 2||ok",
        ),
        (
            "frames that mean nothing",
            vec![
                frame(0x21, b"grease"),
                ok.clone(),
                frame(0x1f * 9 + 0x21, &[]),
                data(b"ok"),
                frame(99, &[1; 3000]),
            ],
            "200 |content-length: 2||ok",
        ),
    ] {
        check(name, GET, &answer, expected);
    }
    check("to HEAD", HEAD, &[headers(&[":status: 200", "content-length: 9"])], "200 |content-length: 9||");
}

#[test]
fn a_request_is_a_block_of_fields_and_a_body() {
    let mut pair = Pair::new();
    pair.request(GET);
    pair.request(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc");
    let fields = ":method=GET|:scheme=https|:authority=x|:path=/a|".to_owned();
    assert_eq!(pair.got(0), (fields, vec![], true));
    let fields = ":method=POST|:scheme=https|:authority=x|:path=/|content-length=3|".to_owned();
    assert_eq!(pair.got(1), (fields, b"\x00\x03abc".to_vec(), true));
    let control = pair.received.values().find(|(bytes, _)| bytes.starts_with(&[0, 4])).unwrap();
    assert!(!control.1, "the control stream stays open");
}

#[test]
fn wrong_responses_are_errors_of_their_stream() {
    let long = format!("a: {}", "x".repeat(62_000));
    for (name, answer) in [
        ("no status", vec![headers(&["a: b"])]),
        ("a field of one connection", vec![headers(&[":status: 200", "connection: close"])]),
        ("upper case", vec![headers(&[":status: 200", "Ab: c"])]),
        ("more than was announced", vec![headers(&[":status: 200", "content-length: 1"]), data(b"ok")]),
        ("less than was announced", vec![headers(&[":status: 200", "content-length: 3"]), data(b"ok")]),
        ("no head at all", vec![frame(0x21, b"")]),
        ("a head of a length that we do not take", vec![vec![1, 0x80, 1, 0, 1]]),
        ("fields that we do not take", vec![headers(&[":status: 200", &long])]),
        ("trailers that we do not take", vec![headers(&[":status: 200"]), data(b"a"), headers(&[&long])]),
        ("an interim response alone", vec![headers(&[":status: 100"])]),
        (
            "pseudo headers in trailers",
            vec![headers(&[":status: 200"]), data(b"a"), headers(&[":status: 200"])],
        ),
    ] {
        let mut pair = Pair::new();
        let (lane, other) = (pair.request(GET), pair.request(GET));
        pair.answer(0, &answer.concat(), usize::MAX, true);
        assert_eq!(read(&mut pair.client, lane).1, Err(SocketError::Protocol), "{name}");
        pair.answer(1, &headers(&[":status: 204"]), usize::MAX, true);
        assert_eq!(read(&mut pair.client, other).0, "HTTP/1.1 204 ||", "{name}: the other request");
        assert_eq!(pair.client.fault(), None, "{name}");
    }
}

/// What a server may send on none of its streams; `None` for the stream is that of a request.
fn check_fault(name: &str, streams: &[&[u8]], request: &[u8], expected: ErrorCode) {
    let mut pair = Pair::with(&context(), server(100));
    pair.exchange();
    let lane = pair.request(GET);
    for bytes in streams {
        pair.open(bytes);
    }
    pair.exchange();
    if !request.is_empty() {
        pair.answer(0, request, usize::MAX, false);
    }
    assert_eq!(pair.client.fault(), Some(expected), "{name}");
    assert_eq!(read(&mut pair.client, lane).1, Err(SocketError::Protocol), "{name}");
    assert!(pair.client.is_draining(), "{name}");
    assert_eq!(pair.client.send(lane, GET), Err(SocketError::Refused), "{name}");
}

#[test]
fn wrong_frames_on_a_request_end_the_connection() {
    let head = headers(&[":status: 200"]);
    let after = |bytes: Vec<u8>| [head.clone(), bytes].concat();
    for (name, bytes, code) in [
        ("a body before a head", data(b"x"), ErrorCode::FrameUnexpected),
        (
            "a body after trailers",
            after([headers(&["t: 1"]), data(b"x")].concat()),
            ErrorCode::FrameUnexpected,
        ),
        (
            "trailers twice",
            after([headers(&["t: 1"]), headers(&["t: 1"])].concat()),
            ErrorCode::FrameUnexpected,
        ),
        ("settings", settings(&[]), ErrorCode::FrameUnexpected),
        ("goaway", frame(kind::GOAWAY, &[0]), ErrorCode::FrameUnexpected),
        ("a push", frame(kind::PUSH_PROMISE, &[0, 0, 0]), ErrorCode::Id),
        ("a cancelled push", frame(kind::CANCEL_PUSH, &[0]), ErrorCode::FrameUnexpected),
        ("a limit of pushes", frame(kind::MAX_PUSH_ID, &[0]), ErrorCode::FrameUnexpected),
        ("PRIORITY of HTTP/2", frame(2, &[0; 5]), ErrorCode::FrameUnexpected),
        ("PING of HTTP/2", frame(6, &[0; 8]), ErrorCode::FrameUnexpected),
        ("WINDOW_UPDATE of HTTP/2", frame(8, &[0; 4]), ErrorCode::FrameUnexpected),
        ("CONTINUATION of HTTP/2", frame(9, &[]), ErrorCode::FrameUnexpected),
        ("a dynamic table", frame(kind::HEADERS, &[2, 0, 0x80]), ErrorCode::QpackDecompression),
        ("a flood", after([0x21, 0].repeat(5000)), ErrorCode::ExcessiveLoad),
    ] {
        check_fault(name, &[&control(&settings(&[]))], &bytes, code);
    }
}

#[test]
fn wrong_streams_of_a_server_end_the_connection() {
    let right = control(&settings(&[(6, 1000), (1, 4096), (0x1f + 0x21, 7)]));
    let with = |bytes: &[u8]| [&right[..], bytes].concat();
    for (name, streams, code) in [
        ("no settings first", vec![control(&frame(kind::GOAWAY, &[0]))], ErrorCode::MissingSettings),
        ("a body first", vec![control(&data(b"x"))], ErrorCode::MissingSettings),
        ("an unknown frame first", vec![control(&frame(0x21, &[]))], ErrorCode::MissingSettings),
        ("settings twice", vec![with(&settings(&[]))], ErrorCode::FrameUnexpected),
        ("a setting of HTTP/2", vec![control(&settings(&[(4, 1)]))], ErrorCode::Settings),
        ("settings that are cut off", vec![control(&frame(kind::SETTINGS, &[6, 0x40]))], ErrorCode::Frame),
        ("a head on the control stream", vec![with(&headers(&["a: b"]))], ErrorCode::FrameUnexpected),
        ("a limit of pushes", vec![with(&frame(kind::MAX_PUSH_ID, &[0]))], ErrorCode::FrameUnexpected),
        ("a cancelled push", vec![with(&frame(kind::CANCEL_PUSH, &[0]))], ErrorCode::Id),
        ("goaway of no request", vec![with(&frame(kind::GOAWAY, &[3]))], ErrorCode::Id),
        ("goaway with more in it", vec![with(&frame(kind::GOAWAY, &[4, 0]))], ErrorCode::Frame),
        (
            "a later goaway for more",
            vec![with(&[frame(kind::GOAWAY, &[4]), frame(kind::GOAWAY, &[8])].concat())],
            ErrorCode::Id,
        ),
        ("two control streams", vec![right.clone(), right.clone()], ErrorCode::StreamCreation),
        ("two encoders", vec![vec![2], vec![2]], ErrorCode::StreamCreation),
        ("a push", vec![vec![1, 0]], ErrorCode::Id),
        ("an entry for our table", vec![vec![2, 0x20, 0xc0, 1, b'x']], ErrorCode::QpackEncoderStream),
        ("an acknowledgement", vec![vec![3, 0x80]], ErrorCode::QpackDecoderStream),
    ] {
        let streams: Vec<&[u8]> = streams.iter().map(Vec::as_slice).collect();
        check_fault(name, &streams, &[], code);
    }
}

#[test]
fn other_streams_of_a_server_mean_nothing() {
    let mut pair = Pair::new();
    for bytes in [&[0x21, 1, 2, 3][..], &[2, 0x20], &[3, 0x7f, 0x80, 1, 0x41], &[0x40]] {
        pair.open(bytes);
    }
    pair.exchange();
    for _ in 0..100 {
        let id = pair.open(&[0x21; 10]);
        pair.finish(id);
    }
    assert_eq!(pair.client.fault(), None);
    let encoder = pair.open(&[0x40, 0x42]);
    pair.finish(encoder);
    assert_eq!(pair.client.fault(), None, "a type of two bytes");
}

#[test]
fn a_critical_stream_stays_open() {
    for first in [0, 2, 3] {
        let mut pair = Pair::with(&context(), server(100));
        pair.exchange();
        let id = pair.open(&[&[first][..], if first == 0 { &[4, 0][..] } else { &[] }].concat());
        pair.exchange();
        assert_eq!(pair.client.fault(), None);
        pair.finish(id);
        assert_eq!(pair.client.fault(), Some(ErrorCode::ClosedCriticalStream), "{first}");
    }
}

#[test]
fn what_a_server_gives_up_has_its_class() {
    let (rejected, cancelled, none) = (0x10b, 0x10c, 0x100);
    type Act = fn(&mut Pair, u32);
    let (reset, stop, close): (Act, Act, Act) =
        (|pair, code| pair.reset(0, code), |pair, code| pair.stop(0, code), |pair, code| pair.close(code));
    for (name, act, code, expected) in [
        ("reset", reset, cancelled, Err(SocketError::StreamReset)),
        ("reset unseen", reset, rejected, Err(SocketError::Refused)),
        ("stopped unseen", stop, rejected, Err(SocketError::Refused)),
        ("the connection closed", close, none, Ok(0)),
        ("the connection broken off", close, 0x102, Err(RESET)),
    ] {
        let mut pair = Pair::new();
        let lane = pair.client.attach(1);
        let post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(pair.client.send(lane, post), Ok(post.len()), "{name}");
        pair.exchange();
        act(&mut pair, code);
        assert_eq!(read(&mut pair.client, lane).1, expected, "{name}");
        assert_eq!(pair.client.fault(), None, "{name}");
    }
}

#[test]
fn a_connection_that_is_not_accepted_is_refused() {
    let mut pair = Pair::with(&context(), server(100));
    pair.refuses = true;
    pair.exchange();
    assert_eq!(pair.client.is_established(), Err(Errno::CONNREFUSED.into()));
}

// One that wants no more of a request may have answered it, or be about to.
#[test]
fn a_request_that_is_stopped_has_its_response() {
    for is_answered_first in [true, false] {
        let mut pair = Pair::new();
        let lane = pair.client.attach(1);
        pair.client.send(lane, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n").unwrap();
        pair.exchange();
        if !is_answered_first {
            pair.stop(0, 0x100);
            assert_eq!(pair.client.send(lane, b"abc"), Err(SocketError::AGAIN));
        }
        pair.answer(0, &headers(&[":status: 413", "content-length: 0"]), usize::MAX, true);
        if is_answered_first {
            pair.stop(0, 0x100);
        }
        assert_eq!(pair.client.send(lane, b"abc"), Err(Errno::PIPE.into()));
        assert_eq!(read(&mut pair.client, lane).0, "HTTP/1.1 413 |content-length: 0||");
    }
}

#[test]
fn goaway_ends_what_lies_behind_it() {
    let mut pair = Pair::with(&context(), server(100));
    pair.exchange();
    let (first, second) = (pair.request(GET), pair.request(GET));
    pair.open(&control(&[settings(&[]), frame(kind::GOAWAY, &[4])].concat()));
    pair.exchange();
    assert_eq!(read(&mut pair.client, second).1, Err(SocketError::Refused));
    assert!(pair.client.is_draining() && pair.client.is_active(first));
    pair.answer(0, &headers(&[":status: 204"]), usize::MAX, true);
    assert_eq!(read(&mut pair.client, first), ("HTTP/1.1 204 ||".into(), Ok(0)));
    assert_eq!(pair.client.send(first, GET), Err(SocketError::Refused), "no further request");
}

#[test]
fn requests_wait_for_a_stream() {
    let mut pair = Pair::with(&context(), server(2));
    pair.exchange();
    let (first, _) = (pair.request(GET), pair.request(GET));
    let third = pair.client.attach(9);
    assert_eq!(pair.client.send(third, GET), Err(SocketError::AGAIN));
    pair.answer(0, &headers(&[":status: 204"]), usize::MAX, true);
    assert_eq!(read(&mut pair.client, first).0, "HTTP/1.1 204 ||");
    let mut told = vec![];
    pair.until(|pair| {
        pair.client.take_touched(|token, _, _| told.push(token));
        told.contains(&9)
    });
    assert_eq!(pair.client.send(third, GET), Ok(GET.len()));
    pair.exchange();
    assert!(pair.got(2).2);
}

#[test]
fn streams_are_counted_of_a_connection_that_is_there() {
    for (closes, expected) in [(false, Some(3)), (true, None)] {
        let mut pair = Pair::with(&context(), server(4));
        pair.exchange();
        pair.request(GET);
        if closes {
            pair.close(0x100);
        }
        assert_eq!(pair.client.take_streams(10), expected);
    }
}

#[test]
fn a_cancelled_request_leaves_the_others_alone() {
    let mut pair = Pair::new();
    let (first, second) = (pair.request(GET), pair.request(GET));
    pair.answer(0, &[headers(&[":status: 200"]), data(&[0; 5000])].concat(), usize::MAX, false);
    pair.client.detach(first);
    pair.exchange();
    pair.answer(1, &headers(&[":status: 204"]), usize::MAX, true);
    assert_eq!(read(&mut pair.client, second).0, "HTTP/1.1 204 ||");
    assert_eq!(pair.client.fault(), None);
}

#[test]
fn a_long_body_goes_up_and_another_down_though_datagrams_are_lost() {
    let (up, down) = (vec![7; 3_000_000], vec![9; 3_000_000]);
    let mut pair = Pair::new();
    pair.loses_one_of = 13;
    let lane = pair.client.attach(3);
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", up.len());
    assert_eq!(pair.client.send(lane, head.as_bytes()), Ok(head.len()));
    let mut sent = 0;
    pair.until(|pair| {
        while let Ok(count) = pair.client.send(lane, &up[sent..])
            && sent < up.len()
        {
            sent += count;
        }
        pair.received.values().any(|(bytes, ended)| *ended && bytes.len() > up.len())
    });
    let (_, body, _) = pair.got(0);
    assert!(body.ends_with(&up) && body.len() < up.len() + 10, "{} bytes", body.len());
    let answer = [headers(&[":status: 200", "content-length: 3000000"]), data(&down)].concat();
    let (mut written, mut got) = (0, 0);
    pair.until(|pair| {
        written += pair.write_some(0, &answer[written..]);
        got += read(&mut pair.client, lane).0.len();
        !pair.client.is_active(lane)
    });
    assert_eq!(got, "HTTP/1.1 200 |content-length: 3000000||".len() + down.len());
    // A gap that closes brings all behind it at once, up to a window; what it took is given back with the lane.
    pair.client.detach(lane);
    assert!(pair.client.memory_bytes() < MEMORY_BYTES_MAX);
}

#[test]
fn all_requests_complete_though_datagrams_are_lost() {
    for loses_one_of in [2, 3, 7] {
        let mut pair = Pair::with(&context(), server(100));
        pair.loses_one_of = loses_one_of;
        pair.until(|pair| pair.client.is_established() == Ok(true));
        let lanes: Vec<u32> = (0..30).map(|token| pair.client.attach(token)).collect();
        for lane in &lanes {
            assert_eq!(pair.client.send(*lane, GET), Ok(GET.len()));
        }
        let is_whole =
            |pair: &Pair, number| pair.received.iter().any(|(id, (_, ended))| id.index() == number && *ended);
        let mut answered = vec![];
        let answer = [headers(&[":status: 200", "content-length: 2000"]), data(&[b'x'; 2000])].concat();
        pair.until(|pair| {
            for number in 0..30 {
                if !answered.contains(&number) && is_whole(pair, number) {
                    answered.push(number);
                    pair.answer(number, &answer, usize::MAX, true);
                }
            }
            lanes.iter().all(|lane| !pair.client.is_active(*lane))
        });
        for lane in lanes {
            assert!(read(&mut pair.client, lane).0.ends_with("xxx"), "one of {loses_one_of} is lost");
        }
    }
}

#[test]
fn a_connection_is_kept_alive_while_a_response_is_awaited_and_no_longer() {
    // The server lets a connection be idle for 30 s.
    let second_ns = 1_000_000_000;
    let mut pair = Pair::new();
    let lane = pair.request(GET);
    pair.until(|pair| pair.now_ns > 90 * second_ns);
    pair.answer(0, &headers(&[":status: 204"]), usize::MAX, true);
    assert_eq!(read(&mut pair.client, lane).0, "HTTP/1.1 204 ||");
    pair.until(|pair| pair.client.lost().is_some());
    assert!(pair.now_ns < 140 * second_ns, "{}", pair.now_ns);
}

#[test]
fn a_handshake_is_timed_and_a_session_resumed() {
    let context = context();
    let mut endpoint = server(100);
    for expected in [false, true] {
        let mut pair = Pair::with(&context, endpoint);
        assert_eq!(pair.client.handshake(), Some(Handshake::None));
        assert!(pair.client.due_ns().is_none_or(|due_ns| due_ns > 0));
        pair.exchange();
        match pair.client.handshake() {
            Some(Handshake::Done { started_ns: 0, ended_ns: 0, resumed }) => assert_eq!(resumed, expected),
            other => panic!("{other:?}"),
        }
        endpoint = pair.into_endpoint();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Whatever a server sends on a request ends in an error or goes on, and takes little memory.
    #[test]
    fn random_bytes_of_a_response_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 1..400), cut in 1_usize..50, has_head: bool) {
        let mut pair = Pair::new();
        let lane = pair.request(GET);
        let head = if has_head { headers(&[":status: 200"]) } else { vec![] };
        pair.answer(0, &[head, bytes].concat(), cut.max(8), true);
        let (_, end) = read(&mut pair.client, lane);
        prop_assert!(matches!(end, Err(SocketError::AGAIN | SocketError::Protocol)), "{:?}", end);
        prop_assert!(pair.client.fault().is_some() || !pair.client.is_active(lane));
        prop_assert!(pair.client.memory_bytes() < MEMORY_BYTES_MAX);
    }

    // The same of a stream of its own.
    #[test]
    fn random_bytes_of_a_server_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 1..400), kind in 0_u8..5) {
        let mut pair = Pair::with(&context(), server(100));
        pair.exchange();
        pair.open(&[&[kind], &bytes[..]].concat());
        pair.exchange();
        prop_assert!(pair.client.memory_bytes() < MEMORY_BYTES_MAX);
    }

    // Datagrams that are none of this connection's change nothing.
    #[test]
    fn random_datagrams_do_no_harm(datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1300), 1..10)) {
        let mut pair = Pair::new();
        let lane = pair.request(GET);
        for datagram in &datagrams {
            pair.client.receive(datagram);
        }
        pair.answer(0, &headers(&[":status: 204"]), usize::MAX, true);
        prop_assert_eq!(read(&mut pair.client, lane).0, "HTTP/1.1 204 ||");
    }
}
