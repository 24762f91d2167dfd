//! Where the processors' time goes, by what it is for: samples summed up, and told in a sentence.

mod works;

use crate::facts::{FactId, Facts};
use std::collections::BTreeMap;
use webdyno_model::number::significant;
use webdyno_model::processor_time::{ProcessorTime, ProcessorTimePart, ProcessorWork, StackSamples};

/// Fewer samples say nothing of shares.
const SAMPLES_MIN: u64 = 100;
/// Places that are kept; what was met less often is summed up by program and object.
const STACKS_MAX: usize = 300;
/// A smaller share is not worth a word, and more of them are no sentence.
const TOLD_MIN: f64 = 0.05;
const TOLD_MAX: usize = 4;
/// The standard normal distribution's, of 95%.
const Z: f64 = 1.959_964;

/// Samples by their places: `apache2;libz.so.1;deflate`.
pub(crate) type Places = BTreeMap<String, u64>;

/// What the samples say of the service; `None` where there are too few.
pub(crate) fn processor_time(service: Places) -> Option<ProcessorTime> {
    let all: u64 = service.values().sum();
    if all < SAMPLES_MIN {
        return None;
    }
    let mut works: BTreeMap<ProcessorWork, BTreeMap<&str, u64>> = BTreeMap::new();
    for (place, count) in &service {
        let (work, at) = works::work(place);
        *works.entry(work).or_default().entry(at).or_default() += count;
    }
    let part = |(work, places): (ProcessorWork, BTreeMap<&str, u64>)| {
        let count: u64 = places.values().sum();
        let mostly = places.iter().max_by_key(|(_, count)| **count).map_or("", |(name, _)| *name);
        let (fraction, ci95) = (count as f64 / all as f64, wilson(count, all));
        ProcessorTimePart {
            work,
            fraction: significant(fraction, 4),
            ci95: ci95.map(|bound| significant(bound, 3)),
            mostly: mostly.to_owned(),
        }
    };
    let mut parts: Vec<ProcessorTimePart> = works.into_iter().map(part).collect();
    parts.sort_by(|a, b| b.fraction.total_cmp(&a.fraction));
    Some(ProcessorTime { samples_count: all, parts, stacks: stacks(service), ..ProcessorTime::default() })
}

/// E. B. Wilson's interval of a share (JASA 22, 1927).
fn wilson(count: u64, all: u64) -> [f64; 2] {
    let (n, p) = (all as f64, count as f64 / all as f64);
    let centre = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    [(centre - half).max(0.0), (centre + half).min(1.0)]
}

fn stacks(places: Places) -> Vec<StackSamples> {
    let mut by_count: Vec<(String, u64)> = places.into_iter().collect();
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut kept = Places::new();
    for (at, (place, count)) in by_count.into_iter().enumerate() {
        let short = || place.splitn(3, ';').take(2).collect::<Vec<_>>().join(";");
        *kept.entry(if at < STACKS_MAX { place.clone() } else { short() }).or_default() += count;
    }
    kept.into_iter().map(|(frames, samples_count)| StackSamples { frames, samples_count }).collect()
}

/// The share of the service's time that one kind of work has; `None` where nobody looked. What was not met is zero of it.
pub(crate) fn share(facts: &Facts, work: ProcessorWork) -> Option<f64> {
    let time = facts.processor_time.as_ref()?;
    Some(time.parts.iter().find(|part| part.work == work).map_or(0.0, |part| part.fraction))
}

/// ` Where it goes: 46% compression (libz.so.1), 22% cryptography (libcrypto.so.3), 9% network (kernel).`; nothing where nobody
/// looked.
pub(crate) fn sentence(facts: &Facts) -> String {
    let Some(time) = &facts.processor_time else { return String::new() };
    let one = |part: &ProcessorTimePart| {
        let at = part.mostly.trim_matches(['[', ']']);
        format!("{:.0}% {} ({at})", part.fraction * 100.0, word(part.work))
    };
    let told = time.parts.iter().filter(|part| part.fraction >= TOLD_MIN).take(TOLD_MAX).map(one);
    let without =
        if time.with_kernel { "" } else { ", without the kernel's part, which may not be seen here" };
    format!(" The service's CPU time: {}{without}.", told.collect::<Vec<_>>().join(", "))
}

/// The facts that it rests on, by kind of work.
pub(crate) fn cite(facts: &Facts) -> Vec<webdyno_model::fact::Fact> {
    let told =
        facts.processor_time.iter().flat_map(|time| &time.parts).filter(|part| part.fraction >= TOLD_MIN);
    told.take(TOLD_MAX)
        .flat_map(|part| facts.cite_of(&[FactId::processor_time_fraction], word(part.work)))
        .collect()
}

/// What work is called.
pub fn word(work: ProcessorWork) -> &'static str {
    match work {
        ProcessorWork::Compression => "compression",
        ProcessorWork::Cryptography => "TLS and cryptography",
        ProcessorWork::Php => "PHP",
        ProcessorWork::Database => "database",
        ProcessorWork::Rewriting => "rewriting and patterns",
        ProcessorWork::Logging => "logging",
        ProcessorWork::Server => "the server's own code",
        ProcessorWork::Application => "application",
        ProcessorWork::Copy => "copying",
        ProcessorWork::Memory => "memory management",
        ProcessorWork::Network => "network",
        ProcessorWork::FileSystem => "file system",
        ProcessorWork::Scheduling => "processes and scheduling",
        ProcessorWork::Kernel => "other work of the kernel",
    }
}

#[cfg(test)]
mod tests;
