//! Fuzzing on stable Rust, without coverage: the hand-made configurations of `fuzz/corpus`, and mutations of them. The
//! same seed finds the same. `WEBDYNO_FUZZ_S` runs it for so many seconds, `WEBDYNO_FUZZ_SEED` with another seed.

use super::configuration;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

/// Mutations in a plain test run: about a second.
const ROUNDS: u64 = 500;
/// Mutations of one input.
const STEPS_MAX: usize = 6;
const INPUT_BYTES_MAX: usize = 50_000;
/// Pieces that readers have opinions on.
const TOKENS: [&str; 48] = [
    "\n",
    "\r\n",
    "\\\n",
    "\\\r\n",
    "\\",
    "\0",
    " ",
    "\t",
    "\"",
    "'",
    "#",
    "<",
    ">",
    "</",
    "\u{feff}",
    "é",
    "${",
    "${A}",
    "}",
    "$name",
    "@x",
    "~ ",
    "*",
    "[",
    "]",
    "(",
    "[P]",
    "!",
    ":",
    "::",
    "_default_",
    "\n<VirtualHost *:80>\n",
    "\n</VirtualHost>\n",
    "\n<Directory />\n",
    "\n</Directory>\n",
    "\n<If x>\n",
    "\n</If>\n",
    "\n<Macro M $name>\n",
    "\n</Macro>\n",
    "\nUse M a\n",
    "\n<IfModule !x>\n",
    "\n</IfModule>\n",
    "\nDefine A Options\n",
    "\nOptions +Indexes -MultiViews\n",
    "\nProxyPass / unix:/a|fcgi://b/\n",
    "\nLogLevel a:b\n",
    "\nServerRoot /\n",
    "65536",
];

/// Numbers that only depend on a seed: xorshift64*.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound.max(1)
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/apache");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "only {} inputs", paths.len());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// An input with a piece changed, taken out, put in, repeated, or taken from another input.
fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], dice: &mut Dice) {
    let at = dice.below(input.len() + 1);
    let reach = 1 << dice.below(8);
    let to = (at + dice.below(reach)).min(input.len());
    let token = TOKENS[dice.below(TOKENS.len())].bytes();
    match dice.below(7) {
        0 | 1 => drop(input.splice(at..at, token)),
        2 => drop(input.splice(at..to, token)),
        3 => drop(input.drain(at..to)),
        4 if at < input.len() => input[at] = dice.below(256) as u8,
        5 => {
            let other = &corpus[dice.below(corpus.len())];
            let from = dice.below(other.len() + 1);
            input.splice(at.., other[from..].iter().copied());
        }
        _ => {
            let times = 1 << dice.below(7);
            let piece = input[at..to].to_vec();
            let room = INPUT_BYTES_MAX.saturating_sub(input.len()) / piece.len().max(1);
            input.splice(at..at, piece.repeat(times.min(room)));
        }
    }
}

fn check(input: &[u8], whence: &str) {
    let message = match catch_unwind(|| configuration(input)) {
        Ok(Ok(())) => return,
        Ok(Err(message)) => message,
        Err(_) => "it panicked".into(),
    };
    let start = &input[..input.len().min(3000)];
    panic!("{whence}: {message}\n{} bytes: {}", input.len(), start.escape_ascii());
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[test]
fn configurations_are_read_whatever_their_bytes_are() {
    let corpus = corpus();
    for (number, input) in corpus.iter().enumerate() {
        check(input, &format!("input {number} of fuzz/corpus/apache"));
    }
    let seed = number_of("WEBDYNO_FUZZ_SEED").unwrap_or(1);
    let time = number_of("WEBDYNO_FUZZ_S").map(Duration::from_secs);
    let begun = Instant::now();
    let goes_on = |round| time.map_or(round < ROUNDS, |time| begun.elapsed() < time);
    let mut round = 0;
    while goes_on(round) {
        let mut dice = Dice((seed << 32 ^ round).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut input = corpus[dice.below(corpus.len())].clone();
        for _ in 0..=dice.below(STEPS_MAX) {
            mutate(&mut input, &corpus, &mut dice);
        }
        check(&input, &format!("seed {seed}, round {round}"));
        round += 1;
    }
    println!("{round} configurations with seed {seed}");
}
