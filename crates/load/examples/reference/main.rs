//! The scripted server as a program, for `bench/accuracy.sh`: prints its address, serves until its standard input ends,
//! then prints what it did, one request a line in the order of arrival: `ARRIVED_NS ANSWERED_NS`, 0 for never.
//!
//! `reference [--spin] [--seed N] constant US | bimodal FAST_US SLOW_US | exponential MEAN_US |
//! freezing ANSWER_US FROZEN_MS PERIOD_MS | silent ANSWER_US EVERY`

mod server;

use server::{Reference, Script};
use std::io::{BufWriter, Read, Write};

const USAGE: &str = "reference [--spin] [--seed N] constant US | bimodal FAST_US SLOW_US | exponential MEAN_US | \
                     freezing ANSWER_US FROZEN_MS PERIOD_MS | silent ANSWER_US EVERY";

fn main() {
    if let Err(error) = serve() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn serve() -> std::io::Result<()> {
    let (mut seed, mut spin, mut words) = (1, false, vec![]);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--spin" => spin = true,
            "--seed" => seed = args.next().and_then(|text| text.parse().ok()).ok_or_else(usage)?,
            _ => words.push(arg),
        }
    }
    let server = Reference::start(script(&words).ok_or_else(usage)?, seed, spin)?;
    println!("{}", server.address);
    std::io::stdin().read_to_end(&mut vec![])?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for served in server.stop()? {
        writeln!(out, "{} {}", served.arrived_ns, served.answered_ns.unwrap_or(0))?;
    }
    out.flush()
}

fn usage() -> std::io::Error {
    std::io::Error::other(USAGE)
}

fn script(words: &[String]) -> Option<Script> {
    let (mode, numbers) = words.split_first()?;
    let numbers: Vec<f64> = numbers.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    Some(match (mode.as_str(), numbers[..].as_ref()) {
        ("constant", &[answer_us]) => Script::Constant { answer_us },
        ("bimodal", &[fast_us, slow_us]) => Script::Bimodal { fast_us, slow_us },
        ("exponential", &[mean_us]) => Script::Exponential { mean_us },
        ("freezing", &[answer_us, frozen_ms, period_ms]) if period_ms > 0.0 => {
            Script::Freezing { answer_us, frozen_ms: frozen_ms as u64, period_ms: period_ms as u64 }
        }
        ("silent", &[answer_us, every]) => Script::Silent { answer_us, every: every as u64 },
        _ => return None,
    })
}
