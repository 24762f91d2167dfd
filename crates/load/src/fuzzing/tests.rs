//! Fuzzing on stable Rust, without coverage: the hand-made answers of `fuzz/corpus`, and mutations of them. The same
//! seed finds the same. `WEBDYNO_FUZZ_S` runs it for this many seconds, `WEBDYNO_FUZZ_SEED` with another seed.

use super::*;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

/// Mutations of each target in a plain test run: about a second.
const ROUNDS: u64 = 4000;
/// Mutations of one input.
const STEPS_MAX: usize = 4;
const INPUT_BYTES_MAX: usize = 300_000;
/// Pieces that readers have opinions on.
const TOKENS: [&[u8]; 40] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\n\n",
    b"\0",
    b" ",
    b"\t",
    b",",
    b";",
    b":",
    b"\"",
    b"\\",
    b"\xff",
    b"0\r\n\r\n",
    b"0\r\n",
    b"5\r\nhello\r\n",
    b"ffffffff",
    b"fffffffffffffff\r\n",
    b"-1",
    b"+1",
    b"0x",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 ",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 ",
    b"HTTP/1.1 204 ",
    b"HTTP/1.1 304 ",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"\r\n folded",
    b"X: y\r\n",
    b"18446744073709551615",
    b"9223372036854775808",
    b"99999999999999999999",
];

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 10, "only {} inputs", paths.len());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// An input with a piece changed, taken out, put in, repeated, or taken from another input.
fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], dice: &mut XorShift) {
    let at = dice.below(input.len() + 1);
    let reach = 1 << dice.below(8);
    let to = (at + dice.below(reach)).min(input.len());
    match dice.below(8) {
        0 | 1 => drop(input.splice(at..at, TOKENS[dice.below(TOKENS.len())].iter().copied())),
        2 => drop(input.splice(at..to, TOKENS[dice.below(TOKENS.len())].iter().copied())),
        3 => drop(input.drain(at..to)),
        4 if at < input.len() => input[at] ^= 1 << dice.below(8),
        5 if at < input.len() => input[at] = dice.below(256) as u8,
        6 => {
            let other = &corpus[dice.below(corpus.len())];
            let from = dice.below(other.len() + 1);
            input.splice(at.., other[from..].iter().copied());
        }
        _ => {
            let often = if dice.below(50) == 0 { 17 } else { 8 };
            let times = 1 << dice.below(often);
            let piece = input[at..to].to_vec();
            let room = INPUT_BYTES_MAX.saturating_sub(input.len()) / piece.len().max(1);
            input.splice(at..at, piece.repeat(times.min(room)));
        }
    }
}

fn check(target: fn(&[u8]) -> Result<(), String>, input: &[u8], whence: &str) {
    let told = match catch_unwind(|| target(input)) {
        Ok(Ok(())) => return,
        Ok(Err(told)) => told,
        Err(_) => "it panicked".into(),
    };
    let start = &input[..input.len().min(2000)];
    panic!("{whence}: {told}\n{} bytes: {}", input.len(), start.escape_ascii());
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn fuzz(name: &str, rounds: u64, target: fn(&[u8]) -> Result<(), String>) {
    let corpus = corpus(name);
    for (number, input) in corpus.iter().enumerate() {
        check(target, input, &format!("input {number} of fuzz/corpus/{name}"));
    }
    let seed = number_of("WEBDYNO_FUZZ_SEED").unwrap_or(1);
    let time = number_of("WEBDYNO_FUZZ_S").map(Duration::from_secs);
    let begun = Instant::now();
    let goes_on = |round| time.map_or(round < rounds, |time| begun.elapsed() < time);
    let mut round = 0;
    while goes_on(round) {
        let mut dice = XorShift::new(seed << 32 ^ round);
        let mut input = corpus[dice.below(corpus.len())].clone();
        for _ in 0..=dice.below(STEPS_MAX) {
            mutate(&mut input, &corpus, &mut dice);
        }
        check(target, &input, &format!("{name}, seed {seed}, round {round}"));
        round += 1;
    }
    eprintln!("{name}: {round} mutations of {} inputs in {:?}", corpus.len(), begun.elapsed());
}

#[test]
fn responses_mean_the_same_however_they_are_segmented() {
    fuzz("answer", ROUNDS, response);
}

#[test]
fn bodies_mean_the_same_however_they_are_cut() {
    // Each decoder has tables of its own to set up.
    fuzz("content", ROUNDS / 5, content);
}

#[test]
fn connections_of_http2_mean_the_same_however_they_are_cut() {
    fuzz("http2", ROUNDS, http2);
}

#[test]
fn chunks_mean_the_same_however_they_are_cut() {
    fuzz("chunked", ROUNDS, chunked);
}
