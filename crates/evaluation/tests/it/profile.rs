//! Where the processors' time goes, against a mix whose parts are known by their own clocks: a program that compresses, one that
//! hashes, two that do what a TLS handshake does (RSA signatures, the exchange of keys), one that encrypts as TLS does what is sent,
//! and one that sleeps.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of a test

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use webdyno_analysis::facts::facts;
use webdyno_analysis::measurement::{Measurement, TimedSample};
use webdyno_host::collectors::observer::Observer;
use webdyno_host::collectors::processes::profile::Profile;
use webdyno_host::collectors::{Collector, Target};
use webdyno_host::os::procfs;
use webdyno_model::processor_time::{ProcessorTime, ProcessorWork, StackSamples};
use webdyno_model::sample::CollectorInfo;

/// How near shares must come.
const POINTS: f64 = 0.05;
/// Ticks of the mix that are sampled: of some 2,400 samples (99 Hz against 100 ticks a second) a share of a third differs by chance by one
/// point. Beside other tests, that takes longer.
const TICKS: f64 = 2_400.0;
const PATIENCE: Duration = Duration::from_secs(240);

/// A program in a session of its own, so that it is told from the test's own threads.
fn mix() -> Child {
    let script = "gzip -9c /dev/zero >/dev/null & sha512sum /dev/zero & sleep 300 & \
        for what in rsa2048 ecdhx25519 '-bytes 8192 -evp aes-128-gcm'; do \
            nice -n 5 openssl speed -seconds 300 $what & \
        done; wait";
    Command::new("sh").args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Ticks of processor time of each program below a process, by its name, and what openssl computes: in the program itself, and in the
/// kernel for it (proc_pid_stat(5)).
fn ticks(root: u32) -> BTreeMap<String, [f64; 2]> {
    let read = |pid: u32| {
        let text = procfs::read_text(format!("/proc/{pid}/stat")).ok()?;
        let (before, after) = text.rsplit_once(") ")?;
        let program = before.split_once('(')?.1;
        let words = procfs::read_text(format!("/proc/{pid}/cmdline")).ok()?;
        let what = words.trim_end_matches('\0').rsplit('\0').next().filter(|_| program == "openssl");
        let name = what.unwrap_or(program).to_owned();
        let words: Vec<f64> =
            after.split(' ').skip(11).take(2).filter_map(|word| word.parse().ok()).collect();
        Some((name, [*words.first()?, *words.get(1)?]))
    };
    procfs::tree_of(root).into_iter().filter_map(read).collect()
}

/// What the collector says of the mix, or why it may not sample, and what the programs' own clocks say.
fn measured(root: u32) -> (Result<Option<ProcessorTime>, String>, BTreeMap<String, [f64; 2]>) {
    let (sink, samples) = channel();
    let target = Target { service_pid: Some(root), ..Target::default() };
    let observer = Observer::start_with(vec![Box::new(Profile::default())], target, sink).unwrap();
    // The first reading begins to sample.
    let (_, first) = samples.recv_timeout(PATIENCE).unwrap();
    if let Some(refused) = first.missing.iter().flatten().next() {
        return (Err(refused.why.clone()), BTreeMap::new());
    }
    let (before, begin) = (ticks(root), Instant::now());
    let mut read = vec![];
    let since = |(name, [user, kernel]): (String, [f64; 2])| {
        let [user_before, kernel_before] = before.get(&name).copied().unwrap_or_default();
        (name, [user - user_before, kernel - kernel_before])
    };
    let mut used = BTreeMap::new();
    while used.values().flatten().sum::<f64>() < TICKS && begin.elapsed() < PATIENCE {
        // On a busy machine names are read for seconds.
        let Ok((_, sample)) = samples.recv_timeout(PATIENCE) else { break };
        read.push(TimedSample { t_s: begin.elapsed().as_secs_f64(), sample });
        used = ticks(root).into_iter().map(since).collect();
    }
    drop(observer);
    let metrics = Profile::default().metrics();
    let measurement = Measurement {
        samples: read,
        collectors: vec![CollectorInfo { name: "profile".into(), metrics }],
        measured_to_s: begin.elapsed().as_secs_f64(),
        ..Measurement::default()
    };
    (Ok(facts(&measurement, None).unwrap().processor_time), used)
}

/// Says that the test is skipped, in the file that the run of all tests counts from, too.
fn skip(why: &str) {
    eprintln!("skipped: {why}");
    if let Some(path) = std::env::var_os("WEBDYNO_SKIPS") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "shares_are_those_of_a_known_mix: {why}").unwrap();
    }
}

#[test]
fn shares_are_those_of_a_known_mix() {
    let mut child = mix();
    std::thread::sleep(Duration::from_millis(500));
    let (time, used) = measured(child.id());
    for pid in procfs::tree_of(child.id()).into_iter().rev() {
        webdyno_host::os::process::ProcessName::of(pid).map(|one| one.signal(rustix::process::Signal::KILL));
    }
    child.wait().unwrap();
    let time = match time {
        Ok(time) => time.expect("a hundred samples of the mix"),
        Err(why) => return skip(&why),
    };
    println!("{used:?}\n{:?}, {} samples, kernel {}", time.parts, time.samples_count, time.with_kernel);
    // Where the kernel's part may not be seen, all shares are of the programs' own time.
    let of = |program: &str| used[program][0] + if time.with_kernel { used[program][1] } else { 0.0 };
    let all: f64 = used.keys().map(|program| of(program)).sum();
    let met = |stack: &&StackSamples, program: &str| stack.frames.split(';').next() == Some(program);
    let [rsa, curve, bulk] = ["rsa2048", "ecdhx25519", "aes-128-gcm"];
    for (program, parts) in [
        ("gzip", &["gzip"][..]),
        ("sha512sum", &["sha512sum"]),
        ("openssl", &[rsa, curve, bulk]),
        ("sleep", &["sleep"]),
    ] {
        let found: u64 =
            time.stacks.iter().filter(|one| met(one, program)).map(|one| one.samples_count).sum();
        let expected = parts.iter().map(|part| of(part)).sum::<f64>() / all;
        let found = found as f64 / time.samples_count as f64;
        assert!((found - expected).abs() <= POINTS, "{program}: {found} for {expected}");
    }
    let user = |programs: &[&str]| programs.iter().map(|program| used[*program][0]).sum::<f64>() / all;
    for (work, expected) in [
        (ProcessorWork::Compression, user(&["gzip"])),
        (ProcessorWork::Cryptography, user(&["sha512sum", bulk])),
        (ProcessorWork::TlsHandshakes, user(&[rsa, curve])),
    ] {
        let found = time.parts.iter().find(|part| part.work == work).map_or(0.0, |part| part.fraction);
        assert!((found - expected).abs() <= POINTS, "{work:?}: {found} for {expected}");
    }
}
