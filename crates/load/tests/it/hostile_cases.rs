//! The hostile servers, each with the classes of docs/contract.md that its requests may end in. What is allowed in an
//! answer: RFC 9110 and RFC 9112.

use crate::server::{OK, Step};
use std::time::Duration;

/// A successful response, among the classes.
pub const GOOD: &str = "good";
/// Slow bytes: a hundred of them outlast every timeout of these tests.
const SLOW: Duration = Duration::from_millis(100);

/// Who is at the other end.
pub enum Host {
    /// A server that follows a script.
    Script(Vec<Step>),
    /// It listens and never accepts; its queue has room.
    NeverAccepts,
    /// It listens, and its accept queue is full.
    FullQueue,
    /// Nothing listens there.
    Gone,
}

/// One kind of hostile server.
pub struct Case {
    pub name: &'static str,
    pub host: Host,
    pub method: &'static str,
    pub body_bytes: usize,
    /// It is asked by https.
    pub secure: bool,
    /// It sends as fast as it can: a few of them are enough.
    pub floods: bool,
    /// Every request must end in one of these.
    pub ends: &'static [&'static str],
}

fn case(name: &'static str, host: Host, ends: &'static [&'static str]) -> Case {
    Case { name, host, method: "GET", body_bytes: 0, secure: false, floods: false, ends }
}

/// Reads the request, then follows these steps.
fn then(name: &'static str, steps: impl IntoIterator<Item = Step>, ends: &'static [&'static str]) -> Case {
    let script = std::iter::once(Step::Head).chain(steps).collect();
    case(name, Host::Script(script), ends)
}

/// Answers each request with this text, in the line ends of HTTP, and leaves the connection open.
fn text(name: &'static str, text: &str, ends: &'static [&'static str]) -> Case {
    then(name, [send(text), Step::Again], ends)
}

fn flood(name: &'static str, before: &str, endless: &str, ends: &'static [&'static str]) -> Case {
    let endless = Step::Endless(endless.replace('\n', "\r\n").into_bytes());
    Case { floods: true, ..then(name, [send(before), endless], ends) }
}

fn posting(case: Case, body_bytes: usize) -> Case {
    Case { method: "POST", body_bytes, ..case }
}

fn send(text: &str) -> Step {
    Step::Send(text.replace('\n', "\r\n").into_bytes())
}

fn drip(text: &str) -> Step {
    Step::Drip(text.replace('\n', "\r\n").into_bytes(), SLOW)
}

const CHUNKED: &str = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n";

/// All of them.
pub fn all() -> Vec<Case> {
    [
        slow(),
        endless(),
        lengths(),
        chunks(),
        closing(),
        large_requests(),
        strangers(),
        statuses(),
        unasked(),
        secure(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn slow() -> Vec<Case> {
    let many = "x".repeat(100);
    vec![
        then("slow head", [drip(&format!("HTTP/1.1 200 OK\nX: {many}"))], &["timeout"]),
        then("slow chunk size", [send(CHUNKED), drip(&format!("5;{many}"))], &["timeout"]),
        then("slow chunk", [send(CHUNKED), send("64\n"), drip(&many)], &["timeout"]),
        then("slow trailer", [send(CHUNKED), send("0\n"), drip(&format!("X: {many}"))], &["timeout"]),
        then(
            "slow body",
            [send("HTTP/1.1 200 OK\nContent-Length: 100\n\n"), drip(&many), Step::Hold],
            &["timeout"],
        ),
        then("slow body up to the close", [send("HTTP/1.1 200 OK\n\n"), drip(&many)], &["timeout"]),
        then("no answer", [Step::Hold], &["timeout"]),
        case("nothing is read", Host::Script(vec![Step::Stall]), &["timeout"]),
        case("never accepted", Host::NeverAccepts, &["timeout"]),
        case("full accept queue", Host::FullQueue, &["connect_timeout"]),
        case("nothing listens", Host::Gone, &["connect_refused"]),
    ]
}

fn endless() -> Vec<Case> {
    let kilobyte = "y".repeat(1000);
    let ok = "HTTP/1.1 200 OK\n";
    vec![
        flood("endless status line", "HTTP/1.1 200 ", &kilobyte, &["protocol"]),
        flood("endless header line", &format!("{ok}X: "), &kilobyte, &["protocol"]),
        flood("endless header name", ok, &kilobyte, &["protocol"]),
        flood("endless headers", ok, &format!("X: {kilobyte}\n"), &["protocol"]),
        flood("endless short headers", ok, "X: y\n", &["protocol"]),
        flood("endless folded header", &format!("{ok}X: y\n"), " z\n", &["protocol"]),
        flood("endless empty lines", "", "\n", &["protocol"]),
        flood("endless blanks", "", "          ", &["protocol"]),
        flood("endless interim answers", "", "HTTP/1.1 100 Continue\n\n", &["protocol"]),
        flood("endless early hints", "", "HTTP/1.1 103 Early Hints\nLink: </x>\n\n", &["protocol"]),
        flood("endless chunk extension", CHUNKED, &format!(";{kilobyte}"), &["protocol"]),
        flood("endless chunk size", CHUNKED, "0000000000", &["protocol"]),
        flood("endless trailer line", &format!("{CHUNKED}0\nX: "), &kilobyte, &["protocol"]),
        flood("endless trailers", &format!("{CHUNKED}0\n"), "X: y\n", &["protocol"]),
        flood("endless body", "HTTP/1.1 200 OK\n\n", &kilobyte, &["timeout"]),
        flood("endless chunks", CHUNKED, &format!("3e8\n{kilobyte}\n"), &["timeout"]),
        flood(
            "endless body of a length",
            &format!("{ok}Content-Length: 9999999999999999999\n\n"),
            &"z".repeat(100_000),
            &["timeout"],
        ),
        flood("endless noise", "", "\0\0\0\0\0\0\0\0", &["protocol"]),
    ]
}

fn lengths() -> Vec<Case> {
    let of = |name, length: &str, ends| {
        text(name, &format!("HTTP/1.1 200 OK\nContent-Length:{length}\n\nhello"), ends)
    };
    vec![
        of("right length", " 5", &[GOOD]),
        of("blanks around a length", " \t 5 \t ", &[GOOD]),
        of("a length twice", " 5\nContent-Length: 5", &[GOOD]),
        of("a length twice in a line", " 5, 5", &[GOOD]),
        of("a length on a folded line", "\n 5", &[GOOD]),
        of("too short a length", " 2", &["protocol"]),
        of("a length of nothing", " 0", &["protocol"]),
        of("too long a length", " 6", &["timeout"]),
        of("a huge length", " 9223372036854775808", &["timeout"]),
        of("a length beyond 64 bits", " 18446744073709551616", &["protocol"]),
        of("a length of 30 digits", " 111111111111111111111111111111", &["protocol"]),
        of("a negative length", " -5", &["protocol"]),
        of("a length with a plus", " +5", &["protocol"]),
        of("a hexadecimal length", " 0x5", &["protocol"]),
        of("a fraction of a length", " 5.0", &["protocol"]),
        of("a length in words", " five", &["protocol"]),
        of("no length at all", "", &["protocol"]),
        of("a length with a blank inside", " 5 5", &["protocol"]),
        of("two lengths that differ", " 5\nContent-Length: 6", &["protocol"]),
        of("two lengths that differ in a line", " 5, 6", &["protocol"]),
        text("a blank before the colon", "HTTP/1.1 200 OK\nContent-Length : 5\n\nhello", &["protocol"]),
        then(
            "too long a length and a close",
            [send("HTTP/1.1 200 OK\nContent-Length: 6\n\nhello")],
            &["closed_early"],
        ),
        text(
            "a length beside chunked coding",
            "HTTP/1.1 200 OK\nContent-Length: 2\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n",
            &[GOOD],
        ),
    ]
}

fn chunks() -> Vec<Case> {
    let of = |name, coded: &str, ends| text(name, &format!("{CHUNKED}{coded}"), ends);
    let bare = |name, coded: &str| {
        let coded = Step::Send(coded.as_bytes().to_vec());
        then(name, [send(CHUNKED), coded, Step::Hold], &["protocol"])
    };
    vec![
        of("good chunks", "5;a=\"b\"\nhello\n0\nX: y\n\n", &[GOOD]),
        of("no chunk size", "\nhello\n", &["protocol"]),
        of("a chunk size that is none", "hello\n", &["protocol"]),
        of("a negative chunk size", "-5\nhello\n", &["protocol"]),
        of("a chunk size with a plus", "+5\nhello\n", &["protocol"]),
        of("a chunk size with a prefix", "0x5\nhello\n", &["protocol"]),
        of("a chunk size with a blank before", " 5\nhello\n", &["protocol"]),
        of("a chunk size beyond 64 bits", "10000000000000005\nhello\n", &["protocol"]),
        of("a chunk longer than its size", "4\nhello\n0\n\n", &["protocol"]),
        of("a chunk shorter than its size", "6\nhello\n0\n\n", &["protocol"]),
        of("a huge chunk", "fffffffffffffff\nhello", &["timeout"]),
        of("no last chunk", "5\nhello\n", &["timeout"]),
        of("no end of the trailers", "5\nhello\n0\n", &["timeout"]),
        bare("a bare LF after a chunk size", "5\nhello\r\n"),
        bare("a bare LF after a chunk", "5\r\nhello\n"),
        bare("a bare CR after a chunk size", "5\rhello\r\n"),
        bare("a bare LF after a trailer", "0\r\nX: y\n\r\n"),
        then("a last chunk and a close", [send(CHUNKED), send("5\nhello\n0\n")], &["closed_early"]),
    ]
}

fn closing() -> Vec<Case> {
    let part = || send("HTTP/1.1 200 OK\nContent-Length: 5\n\nhel");
    let ok = || Step::Send(OK.to_vec());
    let pause = || Step::Sleep(Duration::from_millis(20));
    vec![
        then("a close instead of an answer", [], &["closed_early"]),
        then("a reset instead of an answer", [Step::Reset], &["reset"]),
        case("a close at once", Host::Script(vec![]), &["closed_early", "reset"]),
        case("a reset at once", Host::Script(vec![Step::Reset]), &["reset"]),
        case("no sending from the start", Host::Script(vec![Step::HalfClose, Step::Hold]), &["closed_early"]),
        then("no sending after the request", [Step::HalfClose, Step::Hold], &["closed_early"]),
        then("no sending in the middle", [part(), Step::HalfClose, Step::Hold], &["closed_early"]),
        then("no sending after the answer", [ok(), Step::HalfClose, Step::Hold], &[GOOD]),
        then("no sending a little later", [ok(), pause(), Step::HalfClose, Step::Hold], &[GOOD]),
        then("a close after each answer", [ok()], &[GOOD]),
        then("a close a little after each answer", [ok(), pause()], &[GOOD]),
        then("a reset after each answer", [ok(), Step::Reset], &[GOOD]),
        then("a reset a little after each answer", [ok(), pause(), Step::Reset], &[GOOD]),
        then("a reset in the middle", [part(), pause(), Step::Reset], &["reset"]),
        then(
            "a reset of a body up to the close",
            [send("HTTP/1.1 200 OK\n\nx"), pause(), Step::Reset],
            &["reset"],
        ),
        then("an interim answer and a close", [send("HTTP/1.1 100 Continue\n\n")], &["closed_early"]),
        posting(
            then(
                "a reset after each answer to a POST",
                [ok(), pause(), Step::Reset],
                &[GOOD, "reset", "closed_early"],
            ),
            5,
        ),
    ]
}

/// More than all socket buffers hold.
const LARGE: usize = 12_000_000;

fn large_requests() -> Vec<Case> {
    let ok = || Step::Send(OK.to_vec());
    let large = |case| Case { floods: true, ..posting(case, LARGE) };
    vec![
        large(then("a large request is not read", [Step::Stall], &["timeout"])),
        large(then("a large request is answered unread", [ok(), Step::Stall], &[GOOD])),
        large(then("a large request is answered with a close", [ok(), Step::HalfClose, Step::Hold], &[GOOD])),
        large(then(
            "a large request is refused",
            [send("HTTP/1.1 413 Too Large\nContent-Length: 0\n\n"), Step::Stall],
            &["status"],
        )),
        large(then("a large request is cut off", [], &["reset", "closed_early"])),
        large(then("a large request is reset", [Step::Reset], &["reset"])),
        large(then(
            "the answer to a large request is cut off",
            [send("HTTP/1.1 200 OK\n"), Step::HalfClose, Step::Hold],
            &["closed_early"],
        )),
    ]
}

fn strangers() -> Vec<Case> {
    let bytes = |name, bytes: &[u8]| then(name, [Step::Send(bytes.to_vec()), Step::Hold], &["protocol"]);
    let banner = |name, text: &str| case(name, Host::Script(vec![send(text), Step::Hold]), &["protocol"]);
    vec![
        banner("an SSH server", "SSH-2.0-OpenSSH_9.2p1 Debian-2\n"),
        banner("a mail server", "220 mail.example ESMTP\n"),
        banner("a database", "J\0\0\0\n5.5.5-10.11\0"),
        bytes("a TLS alert", &[21, 3, 1, 0, 2, 2, 70]),
        bytes("a TLS handshake", &[22, 3, 3, 0, 90, 2, 0, 0, 86, 3, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        bytes("HTTP/2 settings", &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100]),
        bytes("binary noise", &[0xde, 0xad, 0xbe, 0xef, 0, 0xff, 0x80, 10, 13, 10, 13, 10]),
        then("HTTP/0.9", [send("<html>hello</html>\n")], &["protocol"]),
        text("an HTTP/2 preface", "PRI * HTTP/2.0\n\nSM\n\n", &["protocol"]),
        text("a request for an answer", "GET / HTTP/1.1\nHost: x\n\n", &["protocol"]),
        // The head comes in pieces, and its fault is in the second one.
        then(
            "a fault in a late piece and a close",
            [
                send(&format!("HTTP/1.1 200 OK\nX: {}", "y".repeat(100))),
                Step::Sleep(Duration::from_millis(20)),
                send("\0"),
            ],
            &["protocol"],
        ),
        text("NULs", "HTTP/1.1 200 OK\nX: a\0b\nContent-Length: 0\n\n", &["protocol"]),
        text("a NUL in the reason", "HTTP/1.1 200 O\0K\nContent-Length: 0\n\n", &["protocol"]),
        text("a header without a colon", "HTTP/1.1 200 OK\nhello\n\n", &["protocol"]),
        text("a header without a name", "HTTP/1.1 200 OK\n: hello\n\n", &["protocol"]),
        text("too many headers", &format!("HTTP/1.1 200 OK\n{}\n", "X: y\n".repeat(200)), &["protocol"]),
        text("too large a header", &format!("HTTP/1.1 200 OK\nX: {}\n\n", "y".repeat(70_000)), &["protocol"]),
    ]
}

fn statuses() -> Vec<Case> {
    let of = |name, line: &str, ends| text(name, &format!("{line}\nContent-Length: 0\n\n"), ends);
    vec![
        of("no reason", "HTTP/1.1 200", &[GOOD]),
        of("an empty line before", "\nHTTP/1.1 200 OK", &[GOOD]),
        of("an early hint before", "HTTP/1.1 103 Early Hints\nLink: </x>\n\nHTTP/1.1 200 OK", &[GOOD]),
        of("status 999", "HTTP/1.1 999 ?", &["status"]),
        of("status 599", "HTTP/1.1 599 ?", &["status"]),
        of("status 000", "HTTP/1.1 000 ?", &["protocol"]),
        of("status 99", "HTTP/1.1 99 ?", &["protocol"]),
        of("status 099", "HTTP/1.1 099 ?", &["protocol"]),
        of("status 1000", "HTTP/1.1 1000 ?", &["protocol"]),
        of("status -20", "HTTP/1.1 -20 ?", &["protocol"]),
        of("no status", "HTTP/1.1", &["protocol"]),
        of("a status in words", "HTTP/1.1 OK", &["protocol"]),
        of("another protocol that we did not ask for", "HTTP/1.1 101 Switching", &["protocol"]),
        of("a version of the future", "HTTP/1.2 200 OK", &["protocol"]),
        of("HTTP/2 as text", "HTTP/2 200 OK", &["protocol"]),
        of("lower case", "http/1.1 200 OK", &["protocol"]),
        of("a radio", "ICY 200 OK", &["protocol"]),
        text("a body after 204", "HTTP/1.1 204 No Content\n\nhello", &["protocol"]),
        text("a body after 304", "HTTP/1.1 304 Not Modified\nContent-Length: 5\n\nhello", &["protocol"]),
        Case {
            method: "HEAD",
            ..text("a body after HEAD", "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", &["protocol"])
        },
    ]
}

fn unasked() -> Vec<Case> {
    let ok = || Step::Send(OK.to_vec());
    let pause = || Step::Sleep(Duration::from_millis(20));
    let twice = Step::Send([OK, OK].concat());
    vec![
        then("two answers at once", [twice, Step::Hold], &["protocol"]),
        // The second one is thrown away with its connection, or taken for the response to the next request: nothing
        // on the wire tells.
        then("another answer a little later", [ok(), pause(), ok(), Step::Again], &[GOOD, "protocol"]),
        then(
            "a last word between requests",
            [ok(), pause(), send("HTTP/1.1 408 Too Slow\nConnection: close\nContent-Length: 0\n\n")],
            // A machine that is busy may find both at once.
            &[GOOD, "status", "protocol"],
        ),
        case("an answer before the request", Host::Script(vec![ok(), Step::Hold]), &[GOOD, "timeout"]),
        then(
            "urgent data in the middle",
            [send("HTTP/1.1 200 OK\nContent-Length: 4\n\nab"), Step::Urgent(b'!'), send("cd"), Step::Again],
            &[GOOD],
        ),
    ]
}

/// What speaks no TLS, or stops in the middle of it, towards a client that does.
fn secure() -> Vec<Case> {
    let of = |name, steps: Vec<Step>, ends| Case { secure: true, ..case(name, Host::Script(steps), ends) };
    let bytes = |name, bytes: &[u8]| of(name, vec![Step::Send(bytes.to_vec()), Step::Hold], &["tls"]);
    let hello = |length: u8| Step::Send([&[22, 3, 3, 0, length][..], &[2; 40]].concat());
    vec![
        bytes("plain HTTP instead of TLS", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        bytes("an SSH server instead of TLS", b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"),
        bytes("a TLS alert instead of a handshake", &[21, 3, 3, 0, 2, 2, 40]),
        bytes("noise instead of TLS", &[0xde, 0xad, 0xbe, 0xef, 0, 0xff, 0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        bytes("too large a TLS record", &[22, 3, 3, 0xff, 0xff, 2, 0, 0, 4, 1, 2, 3, 4]),
        of("a handshake of noise", vec![hello(40), Step::Hold], &["tls"]),
        of("half a handshake", vec![hello(90), Step::Hold], &["timeout"]),
        of("half a handshake and no more", vec![hello(90), Step::HalfClose, Step::Hold], &["tls"]),
        of("no handshake", vec![Step::Hold], &["timeout"]),
        of("no handshake and no more", vec![Step::HalfClose, Step::Hold], &["tls"]),
        of("a reset instead of a handshake", vec![Step::Reset], &["reset"]),
        of(
            "a slow handshake",
            vec![Step::Drip([&[22, 3, 3, 0, 200][..], &[2; 100]].concat(), SLOW)],
            &["timeout"],
        ),
        Case {
            floods: true,
            ..of("endless noise instead of TLS", vec![Step::Endless(vec![0; 1000])], &["tls"])
        },
        Case {
            floods: true,
            ..of("endless plain text instead of TLS", vec![Step::Endless(b"hello\r\n".to_vec())], &["tls"])
        },
    ]
}
