//! The figures of bench/logs.sh that need no program: a log that is generated, how fast it is counted, what that takes of memory, and the
//! miss-ratio curve against an exact LRU.
//!
//! `generate LINES [URLS] [CLIENTS]` writes a log in the combined format to stdout; `count THREADS FILE...` counts logs;
//! `curve REFERENCES OBJECTS EXPONENT` compares curves; `distinct COUNT` counts requests of so many clients for so many URLs.

#![allow(clippy::unwrap_used, clippy::panic)] // a tool of development

#[path = "../src/working_set/exact.rs"]
mod exact;

use exact::{errors, stream};
use foldhash::quality::FixedState;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use std::hash::BuildHasher;
use std::io::{BufWriter, Write};
use std::time::Instant;
use webdyno_logs::reading::{Input, Options, count};
use webdyno_logs::working_set::{CurvePoint, Reference, WorkingSet};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |at: usize, default: f64| words.get(at).map_or(default, |word| word.parse().unwrap());
    match words.first().copied() {
        Some("generate") => generate(number(1, 3e6) as u64, number(2, 2e5), number(3, 5e4)),
        Some("count") => timed(number(1, 1.0) as usize, &words[2..]),
        Some("curve") => curve(number(1, 1e7) as usize, number(2, 1e6), number(3, 0.9)),
        Some("distinct") => distinct(number(1, 1e8) as u64),
        _ => panic!("generate, count, curve or distinct"),
    }
}

/// Agents as long as they are: about 110 bytes.
fn agent(number: u64) -> String {
    match number % 20 {
        0 => "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)".into(),
        kind => format!(
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{}.0.{}.0 Safari/537.36",
            100 + kind,
            number / 20
        ),
    }
}

fn path(url: u64) -> String {
    match url % 10 {
        0..3 => format!("/shop/item-{url:06}/"),
        3 => format!("/search.php?q={url}&page=2"),
        4 => format!("/assets/site-{url}.css"),
        5 => format!("/assets/app-{url}.js"),
        _ => format!("/media/pictures/{url:07}.jpg"),
    }
}

fn generate(lines: u64, urls: f64, clients: f64) {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (popular, busy) = (Zipf::new(urls, 0.9).unwrap(), Zipf::new(clients, 0.8).unwrap());
    let sizes = FixedState::with_seed(5);
    let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
    for line in 0..lines {
        let (url, client) = (popular.sample(&mut random) as u64, busy.sample(&mut random) as u64);
        // 100 requests a second.
        let second = line / 100;
        let (day, hour, minute) = (1 + second / 86_400 % 28, second / 3600 % 24, second / 60 % 60);
        let status = [200, 200, 200, 200, 200, 200, 200, 304, 404, 500][(random.next_u32() % 10) as usize];
        let bytes = if status == 304 { 0 } else { 200 + sizes.hash_one(url) % 100_000 };
        writeln!(
            out,
            "10.{}.{}.{} - - [{day:02}/Oct/2026:{hour:02}:{minute:02}:{:02} +0200] \"GET {} HTTP/1.1\" {status} {bytes} \"https://www.example.org/\" \"{}\"",
            client >> 16 & 255, client >> 8 & 255, client & 255, second % 60, path(url), agent(client % 2000)
        )
        .unwrap();
    }
}

fn memory_peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn timed(threads: usize, files: &[&str]) {
    let inputs: Vec<Input> = files.iter().map(|file| Input::File(file.into())).collect();
    let start = Instant::now();
    let counted = count(&inputs, &Options { threads, ..Options::default() }).unwrap();
    let elapsed_s = start.elapsed().as_secs_f64();
    let bytes: u64 = counted.logs.iter().map(|log| log.size_bytes).sum();
    let counts = &counted.counts;
    println!(
        "{threads} threads: {elapsed_s:.3} s, {:.3} GB/s, {:.0} ns a line; {} lines, {} clients, {} URLs, {} MB of memory",
        bytes as f64 / elapsed_s / 1e9,
        elapsed_s * 1e9 / counts.lines as f64,
        counts.lines,
        counts.clients.count(),
        counts.urls_distinct.count(),
        memory_peak_kb() / 1000
    );
}

/// Each client and each URL once.
fn distinct(count: u64) {
    use webdyno_logs::format::Format;
    use webdyno_logs::ordered::{BlockEvents, Ordered, Sampled};
    use webdyno_logs::redact::Privacy;
    use webdyno_logs::scan::Counts;
    let (mut counts, mut ordered) = (Counts::new(Privacy::default()), Ordered::default());
    let (formats, mut events, mut sampled) =
        ([Format::parse("common").unwrap()], BlockEvents::default(), Sampled::default());
    let mut block = Vec::new();
    let start = Instant::now();
    for number in 0..count {
        let second = number / 500;
        let (day, hour, minute) = (1 + second / 86_400 % 28, second / 3600 % 24, second / 60 % 60);
        writeln!(block, "c{number} - - [{day:02}/Oct/2026:{hour:02}:{minute:02}:{:02} +0200] \"GET /{number} HTTP/1.1\" 200 {}", second % 60, number % 5000).unwrap();
        if block.len() > 1 << 17 || number + 1 == count {
            events.clear();
            counts.block(&block, &formats, &sampled, &mut events);
            sampled = ordered.add(&events);
            block.clear();
        }
    }
    counts.settle();
    let kept = start.elapsed().as_secs_f64();
    println!(
        "{count} clients and URLs: {} and {} counted, {} MB of memory, {kept:.0} s",
        counts.clients.count(),
        counts.urls_distinct.count(),
        memory_peak_kb() / 1000
    );
}

fn curve(references: usize, objects: f64, exponent: f64) {
    let stream = stream(references, objects as usize, exponent, 7);
    let before_kb = memory_peak_kb();
    let start = Instant::now();
    let mut set = WorkingSet::default();
    for block in stream.chunks(1000) {
        set.count(block.len() as u64, block.iter().map(|one| u64::from(one.bytes)).sum());
        set.add_all(block);
    }
    let elapsed_s = start.elapsed().as_secs_f64();
    let (curve, state_kb) = (set.curve(), memory_peak_kb() - before_kb);
    let [requests, bytes] = errors(&stream, &curve, (2400, 1.01));
    println!(
        "{references} references, {objects} objects, Zipf {exponent}: largest error {requests:.4} of requests, {bytes:.4} of bytes; \
         {:.1}% sampled, {:.1} MB of state, {:.0} ns a reference",
        set.rate() * 100.0,
        state_kb as f64 / 1000.0,
        elapsed_s * 1e9 / references as f64
    );
}
