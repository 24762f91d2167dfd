//! One connection of WebSocket, fed what servers may send and what they may not.

use super::connection::{Connection, MESSAGE_BYTES_MAX};
use crate::io::network_io::SocketError;
use crate::random::SplitMix;
use base64::Engine as _;
use sha1::{Digest, Sha1};

const ASK: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Key: ";

/// A connection that has sent its request for the upgrade, and what a server says to that.
fn upgrading() -> (Connection, String) {
    let mut connection = Connection::new(ASK, SplitMix::new(7));
    let request = String::from_utf8(taken(&mut connection)).unwrap();
    let key = request.split("Key: ").nth(1).unwrap().trim_end();
    assert_eq!((key.len(), request.ends_with("\r\n\r\n")), (24, true), "{request}");
    let digest = Sha1::new().chain_update(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")).finalize();
    let accept = base64::engine::general_purpose::STANDARD.encode(digest);
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    (connection, answer)
}

fn open() -> Connection {
    let (mut connection, answer) = upgrading();
    connection.receive(answer.as_bytes());
    assert!(!connection.is_upgrading() && connection.failure().is_none());
    connection
}

/// Takes what is to be sent.
fn taken(connection: &mut Connection) -> Vec<u8> {
    let bytes = connection.unsent().to_vec();
    connection.sent(bytes.len());
    bytes
}

/// The frames that a client sent, unmasked: first byte and payload.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = vec![];
    while let [first, second, rest @ ..] = bytes {
        assert!(second & 0x80 != 0, "a client masks");
        let (length, rest) = match second & 0x7f {
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            127 => (u64::from_be_bytes(rest[..8].try_into().unwrap()) as usize, &rest[8..]),
            short => (usize::from(short), rest),
        };
        let (mask, rest) = rest.split_at(4);
        let payload = rest[..length].iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]).collect();
        frames.push((*first, payload));
        bytes = &rest[length..];
    }
    frames
}

fn request(method: &str, body: &[u8]) -> Vec<u8> {
    [format!("{method} / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body]
        .concat()
}

fn read(connection: &mut Connection) -> Result<String, SocketError> {
    let mut buffer = vec![0; 1 << 20];
    connection.read(&mut buffer).map(|count| String::from_utf8_lossy(&buffer[..count]).into_owned())
}

fn reply(body: &str) -> Result<String, SocketError> {
    Ok(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

#[test]
fn a_message_goes_out_masked_and_the_next_one_is_its_reply() {
    for piece in [1, 3, 1000] {
        let mut connection = open();
        for (method, first, body) in
            [("TEXT", 0x81, "hello"), ("BINARY", 0x82, ""), ("TEXT", 0x81, &"x".repeat(70_000))]
        {
            let bytes = request(method, body.as_bytes());
            let mut sent = vec![];
            // The engine passes the head whole, and the body in parts.
            let head = bytes.len() - body.len();
            let mut at = connection.send(&bytes[..head]).unwrap();
            while at < bytes.len() {
                at += connection.send(&bytes[at..(at + 40_000).min(bytes.len())]).unwrap();
                sent.extend(taken(&mut connection));
            }
            sent.extend(taken(&mut connection));
            assert_eq!(frames(&sent), [(first, body.as_bytes().to_vec())]);
            assert_eq!(read(&mut connection), Err(SocketError::AGAIN));
            // In two frames with a ping and a pong between them.
            let answer = [&[0x01, 2][..], b"he", &[0x89, 1, b'!', 0x8a, 0], &[0x80, 3], b"llo"].concat();
            answer.chunks(piece).for_each(|bytes| connection.receive(bytes));
            assert_eq!(read(&mut connection), reply("hello"));
            assert_eq!(frames(&taken(&mut connection)), [(0x8a, b"!".to_vec())], "a ping is answered");
            // Nobody waits for this one.
            connection.receive(&[0x81, 1, b'x']);
            assert_eq!(read(&mut connection), Err(SocketError::AGAIN));
        }
        connection.close();
        assert_eq!(frames(&taken(&mut connection)), [(0x88, vec![0x03, 0xe8])]);
    }
}

#[test]
fn the_upgrade_is_granted_by_the_right_answer_alone() {
    let (_, good) = upgrading();
    let refused = |status| Some(SocketError::Upgrade(status));
    for (answer, expected) in [
        (good.clone(), None),
        (format!("HTTP/1.1 103 Early Hints\r\n\r\n{good}"), None),
        (good.replace("Accept: ", "Accept: x"), refused(None)),
        (good.replace("Accept", "Other"), refused(None)),
        (good.replace("WebSocket\r\n", "h2c\r\n"), refused(None)),
        (good.replace("keep-alive, Upgrade", "close"), refused(None)),
        (good.replace("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"), refused(None)),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found".into(), refused(Some(404))),
        ("HTTP/1.1 200 OK\r\n\r\n".into(), refused(Some(200))),
        ("SSH-2.0-x\r\n".into(), refused(None)),
        (format!("HTTP/1.1 101 x\r\n{}", "A: b\r\n".repeat(10_000)), refused(None)),
        ("HTTP/1.1 103 x\r\n\r\n".repeat(5000), refused(None)),
    ] {
        for piece in [1, 1000] {
            let (mut connection, _) = upgrading();
            answer.as_bytes().chunks(piece).for_each(|bytes| connection.receive(bytes));
            assert_eq!(connection.failure(), expected, "{}", &answer[..answer.len().min(300)]);
            assert!(!connection.is_upgrading());
        }
    }
    let (mut connection, _) = upgrading();
    connection.hang_up(Ok(()));
    assert_eq!(connection.failure(), refused(None));
}

#[test]
fn who_breaks_the_rules_is_told_and_left() {
    let too_long = [&[0x82, 0x7f][..], &(MESSAGE_BYTES_MAX + 1).to_be_bytes()].concat();
    for (bytes, code) in [
        (&[0x81, 0x81, 1, 2, 3, 4, 5][..], 1002),
        (&[0x80, 0], 1002),
        (&[0x01, 0, 0x81, 0], 1002),
        (&[0xc1, 0], 1002),
        (&[0x83, 0], 1002),
        (&[0x09, 0], 1002),
        (&[0x81, 1, 0xff], 1007),
        (&too_long, 1009),
        (&[0x82, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 1009),
    ] {
        let mut connection = open();
        connection.send(&request("TEXT", b"x")).unwrap();
        taken(&mut connection);
        connection.receive(bytes);
        assert_eq!(read(&mut connection), Err(SocketError::Protocol), "{bytes:x?}");
        let code: u16 = code;
        assert_eq!(frames(&taken(&mut connection)), [(0x88, code.to_be_bytes().to_vec())], "{bytes:x?}");
        assert!(connection.send(&request("TEXT", b"x")).is_err());
    }
}

#[test]
fn a_close_is_answered_and_ends_what_was_waited_for() {
    for (payload, said) in [(&[][..], vec![]), (&[0x03, 0xe9, b'b', b'y', b'e'], vec![0x03, 0xe9])] {
        let mut connection = open();
        connection.send(&request("TEXT", b"x")).unwrap();
        taken(&mut connection);
        connection.receive(&[&[0x88, payload.len() as u8][..], payload].concat());
        assert_eq!((read(&mut connection), connection.has_ended()), (Ok(String::new()), true));
        assert_eq!(frames(&taken(&mut connection)), [(0x88, said)]);
    }
}

// Fragments without end, pings whose answers are not read, and messages for nobody.
#[test]
fn memory_is_bounded_whatever_a_server_sends() {
    let fragment = [&[0x00, 0x7e, 0x40, 0x00][..], &[b'x'; 0x4000]].concat();
    let floods: [(&[u8], &[u8]); 3] =
        [(&[0x01, 0], &fragment), (&[], &[0x89, 1, b'!']), (&[], &[0x81, 1, b'x'])];
    for (begin, flood) in floods {
        let mut connection = open();
        connection.receive(begin);
        let turns = (20 << 20) / flood.len().max(64);
        (0..turns).for_each(|_| connection.receive(flood));
        let bytes = connection.memory_bytes();
        assert!(bytes < 40 << 20, "{bytes}");
        let is_harmless = flood.len() == 3 && flood[0] == 0x81;
        assert_eq!(connection.failure().is_none(), is_harmless);
    }
}
