//! The reader of responses beside another one, ureq-proto's, on random valid responses: the same status, body, end and
//! decision on the connection. What is valid: RFC 9112, sections 4 to 7 and 9.3.
//!
//! Both leave the first look at a head to httparse; all that follows is independent. The other one does not take
//! folded lines: it is shown the same response with blanks in their place, which is what a fold means (RFC 9112, 5.2).

use crate::http::response::{CloseOutcome, FeedResult, Response};
use crate::http::response_head::ResponseHeadCache;
use proptest::prelude::*;
use ureq_proto::client::{Call, RecvBodyResult, RecvResponseResult, SendRequestResult, state};
use ureq_proto::http::Request;

/// What a reader saw.
#[derive(Debug, PartialEq, Eq)]
struct ReadResponse {
    status: u16,
    body_bytes: u64,
    /// The first byte behind the response.
    end: usize,
    up_to_the_close: bool,
    keep_alive: bool,
}

/// How a body is sent.
#[derive(Debug, Clone)]
enum Body {
    Nothing,
    /// Its length in bytes, leading zeros, and how often the header is repeated.
    Length(u64, usize, usize),
    /// Chunks with their extensions, and trailers.
    Chunks(Vec<(usize, bool, &'static str)>, usize),
    UpToTheClose(u64),
}

/// A valid response, to be rendered.
#[derive(Debug, Clone)]
struct GeneratedResponse {
    is_head_request: bool,
    modern: bool,
    interims: Vec<u16>,
    status: u16,
    reason: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    connection: Option<&'static str>,
    body: Body,
}

/// The line end of a folded header; shown to the other reader as blanks.
const FOLD: &str = "\r\n ";
const NAMES: [&str; 6] = ["Server", "x-empty", "Date", "!#$%&'*+-.^_`|~09", "Set-Cookie", "Content-Type"];
const VALUES: [&str; 7] =
    ["", "a", " padded \t ", "a\r\n folded\r\n \r\n value", "\u{e9}t\u{e9}", "a: b, c;d=\"e\"", "close"];
const REASONS: [&str; 4] = ["OK", "", "No Such Thing \u{e9}", "200 OK"];
const CONNECTIONS: [&str; 7] =
    ["close", "Close", "keep-alive", "Keep-Alive, TE", "TE,\r\n close", "closed", "keep-alive, close"];
const EXTENSIONS: [&str; 6] = ["", ";a", ";a=b", "; a = \"b\"", " ;x", "  "];

impl GeneratedResponse {
    /// Whether a response may have a body at all: RFC 9110, 6.4.1.
    fn has_body(&self) -> bool {
        !self.is_head_request && !matches!(self.status, 204 | 304)
    }

    fn render(&self) -> Vec<u8> {
        let mut text = String::new();
        for &status in &self.interims {
            // Any of them may have header lines, but the other reader wants none in a 100.
            let line = if status == 100 { "" } else { "Link: </x>;\r\n rel=preload\r\n" };
            text.push_str(&format!("HTTP/1.1 {status} Wait\r\n{line}\r\n"));
        }
        let version = if self.modern { "1.1" } else { "1.0" };
        text.push_str(&format!("HTTP/{version} {} {}\r\n", self.status, self.reason));
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}:{value}\r\n"));
        }
        if let Some(connection) = self.connection {
            text.push_str(&format!("connection: {connection}\r\n"));
        }
        self.render_body(&mut text);
        text.into_bytes()
    }

    fn render_body(&self, text: &mut String) {
        let body = |bytes: u64| "x".repeat(if self.has_body() { bytes as usize } else { 0 });
        match &self.body {
            Body::Nothing => text.push_str("\r\n"),
            &Body::Length(bytes, zeros, times) => {
                let length = format!("{}{bytes}", "0".repeat(zeros));
                match times {
                    2 => text.push_str(&format!("Content-Length: {length}, {bytes}\r\n")),
                    times => (0..times.max(1)).for_each(|_| {
                        text.push_str(&format!("content-LENGTH:\t{length} \r\n"));
                    }),
                }
                text.push_str(&format!("\r\n{}", body(bytes)));
            }
            Body::Chunks(chunks, trailers) => {
                text.push_str("Transfer-Encoding: Chunked\r\n\r\n");
                if self.has_body() {
                    for &(bytes, upper, extension) in chunks {
                        let size = if upper { format!("{bytes:X}") } else { format!("0{bytes:x}") };
                        text.push_str(&format!("{size}{extension}\r\n{}\r\n", "x".repeat(bytes)));
                    }
                    text.push_str(&format!("0\r\n{}\r\n", "X-Checksum: 1\r\n".repeat(*trailers)));
                }
            }
            &Body::UpToTheClose(bytes) => text.push_str(&format!("\r\n{}", body(bytes))),
        }
    }
}

fn body() -> impl Strategy<Value = Body> {
    let chunk = (1..3000usize, any::<bool>(), prop::sample::select(&EXTENSIONS[..]));
    prop_oneof![
        3 => (0..5000u64, 0..30usize, 1..4usize).prop_map(|(bytes, zeros, times)| Body::Length(bytes, zeros, times)),
        3 => (prop::collection::vec(chunk, 0..5), 0..4usize).prop_map(|(chunks, trailers)| Body::Chunks(chunks, trailers)),
        1 => (0..5000u64).prop_map(Body::UpToTheClose),
    ]
}

fn made() -> impl Strategy<Value = GeneratedResponse> {
    let status = prop_oneof![3 => Just(200u16), 2 => prop::sample::select(vec![204u16, 304, 206, 301, 307, 404, 503]), 1 => 200..600u16];
    let header = (prop::sample::select(&NAMES[..]), prop::sample::select(&VALUES[..]));
    (
        (
            any::<bool>(),
            prop::bool::weighted(0.8),
            prop::collection::vec(prop::sample::select(vec![100u16, 102, 103, 199]), 0..3),
        ),
        status,
        prop::sample::select(&REASONS[..]),
        prop::collection::vec(header, 0..6),
        prop::option::of(prop::sample::select(&CONNECTIONS[..])),
        body(),
    )
        .prop_map(|((is_head_request, modern, interims), status, reason, headers, connection, body)| {
            let body = match body {
                // A server sends neither with a 204, and chunks only to those who know HTTP/1.1: RFC 9112, 6.1.
                _ if status == 204 => Body::Nothing,
                Body::Chunks(..) if !modern => Body::UpToTheClose(7),
                body => body,
            };
            GeneratedResponse {
                is_head_request: is_head_request && status != 204,
                modern,
                interims,
                status,
                reason,
                headers,
                connection,
                body,
            }
        })
}

/// What our reader sees, with the bytes cut at these places; then the server closes.
fn ours(bytes: &[u8], cuts: &[usize], is_head_request: bool) -> ReadResponse {
    let (mut response, mut memory) = (Response::default(), ResponseHeadCache::default());
    let mut from = 0;
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % bytes.len()).chain([bytes.len()]).collect();
    cuts.sort_unstable();
    let seen = |response: &Response, end, up_to_the_close| ReadResponse {
        status: response.status(),
        body_bytes: response.body_bytes(),
        end,
        up_to_the_close,
        keep_alive: response.keep_alive(),
    };
    for cut in cuts {
        if let FeedResult::Done { extra_bytes } =
            response.feed(&bytes[from..cut], &mut memory, is_head_request).unwrap()
        {
            return seen(&response, cut - extra_bytes, false);
        }
        from = cut;
    }
    assert_eq!(response.at_close(), CloseOutcome::Complete);
    seen(&response, bytes.len(), true)
}

/// What ureq-proto sees.
fn theirs(bytes: &[u8], is_head_request: bool) -> ReadResponse {
    let method = if is_head_request { "HEAD" } else { "GET" };
    let request = Request::builder().method(method).uri("http://localhost/").body(()).unwrap();
    let mut sending = Call::new(request).unwrap().proceed();
    sending.write(&mut [0; 1024]).unwrap();
    let Some(SendRequestResult::RecvResponse(mut receiving)) = sending.proceed().unwrap() else {
        panic!("the request has no body");
    };
    let mut end = 0;
    let status = loop {
        let (used, response) = receiving.try_response(&bytes[end..], false).unwrap();
        end += used;
        match response {
            Some(response) => break response.status().as_u16(),
            None => assert!(used > 0, "not complete"),
        }
    };
    let of_cleanup = |call: Call<state::Cleanup>| !call.must_close_connection();
    let (mut body_bytes, mut up_to_the_close) = (0, false);
    let keep_alive = match receiving.proceed().unwrap() {
        RecvResponseResult::Cleanup(call) => of_cleanup(call),
        RecvResponseResult::Redirect(call) => !call.must_close_connection(),
        RecvResponseResult::RecvBody(mut call) => {
            up_to_the_close = call.body_mode() == ureq_proto::BodyMode::CloseDelimited;
            let mut output = vec![0; 1 << 16];
            loop {
                let (used, given) = call.read(&bytes[end..], &mut output).unwrap();
                (end, body_bytes) = (end + used, body_bytes + given as u64);
                if used == 0 {
                    break;
                }
            }
            match call.proceed().unwrap() {
                RecvBodyResult::Cleanup(call) => of_cleanup(call),
                RecvBodyResult::Redirect(call) => !call.must_close_connection(),
            }
        }
    };
    ReadResponse { status, body_bytes, end, up_to_the_close, keep_alive }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    // Invariant: another reader of HTTP sees the same in every valid response, however ours gets it.
    #[test]
    fn two_readers_see_the_same(made in made(), cuts in prop::collection::vec(any::<usize>(), 0..4)) {
        let mut bytes = made.render();
        let length = bytes.len();
        // What follows a response that does not end with the connection is not its own.
        if !matches!(made.body, Body::UpToTheClose(_)) {
            bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n");
        }
        let unfolded = String::from_utf8(bytes.clone()).unwrap().replace(FOLD, "   ");
        let theirs = theirs(unfolded.as_bytes(), made.is_head_request);
        prop_assert_eq!(&ours(&bytes, &cuts, made.is_head_request), &theirs);
        let byte_by_byte: Vec<_> = (0..bytes.len()).collect();
        prop_assert_eq!(&ours(&bytes, &byte_by_byte, made.is_head_request), &theirs);
        prop_assert_eq!(theirs.end, length);
    }
}
