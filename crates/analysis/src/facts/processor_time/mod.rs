//! Facts of where the processors' time goes: what samples of the collector `profile` met, summed up by what it is for.

mod works;

use super::{Derivation, FactBuilder, FactId};
use crate::measurement::statistics::share_ci95;
use std::collections::BTreeMap;
use webdyno_model::number::significant;
use webdyno_model::processor_time::{ProcessorTime, ProcessorTimePart, ProcessorWork, StackSamples};

/// Fewer samples say nothing of shares.
pub(crate) const SAMPLES_MIN: u64 = 100;
/// Places that are kept; what was met less often is summed up by program and object.
pub(crate) const STACKS_MAX: usize = 300;

fact_table! {
    "fraction": processor_time_fraction;
}

/// Metrics of the samples of the service, and of all others.
const SERVICE: &str = "profile.service.*.samples_count";
const OTHERS: &str = "profile.others.*.samples_count";

impl FactBuilder<'_> {
    /// `processor_time_fraction`, of each kind of work; `None` where nobody looked or hardly anything was met.
    pub(super) fn processor_time(&mut self) -> Option<ProcessorTime> {
        let flag = |name: &str| self.series.latest(name).map(|value| value > 0.0);
        let (with_kernel, of_machine) = (flag("profile.with_kernel_bool")?, flag("profile.of_machine_bool")?);
        let others = self.sampled(OTHERS).values().sum();
        let lost: f64 = self.series.levels("profile.lost_count").iter().sum();
        let time = ProcessorTime {
            others_count: of_machine.then_some(others),
            lost_count: lost as u64,
            with_kernel,
            ..processor_time(self.sampled(SERVICE))?
        };
        let source = self.instances(SERVICE).first().map(|(_, metric)| *metric)?;
        for part in &time.parts {
            let from = (source, Derivation::Mean);
            self.add_of(FactId::processor_time_fraction, Some(part.fraction), from, word(part.work));
        }
        Some(time)
    }

    /// What was met in the window: a reading has what was met since the one before it.
    fn sampled(&self, template: &str) -> Places {
        let sum = |metric: &str| self.series.levels(metric).iter().sum::<f64>() as u64;
        let all = self.instances(template).into_iter().map(|(place, metric)| (place.to_owned(), sum(metric)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

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
        let (fraction, ci95) = (count as f64 / all as f64, share_ci95(count, all).unwrap_or([0.0, 1.0]));
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

/// Whether a program is one that sites have behind their server: PHP, a database.
pub(crate) fn is_behind_sites(program: &str) -> bool {
    let (work, _) = works::work(program);
    matches!(work, ProcessorWork::Php | ProcessorWork::Database)
}

/// The share of the samples in which other programs than web servers compress: the site's own.
pub(crate) fn compressed_by_application(time: &ProcessorTime) -> f64 {
    let is_of_application = |frames: &str| {
        let program = frames.split(';').next().unwrap_or_default();
        works::work(frames).0 == ProcessorWork::Compression && works::work(program).0 != ProcessorWork::Server
    };
    let all = time.stacks.iter().filter(|stack| is_of_application(&stack.frames));
    all.map(|stack| stack.samples_count).sum::<u64>() as f64 / time.samples_count.max(1) as f64
}

/// What work is called.
pub fn word(work: ProcessorWork) -> &'static str {
    match work {
        ProcessorWork::Compression => "compression",
        ProcessorWork::Cryptography => "TLS and cryptography",
        ProcessorWork::TlsHandshakes => "TLS handshakes",
        ProcessorWork::Php => "PHP",
        ProcessorWork::PhpCompilation => "compiling PHP",
        ProcessorWork::Database => "database",
        ProcessorWork::Rewriting => "rewriting and patterns",
        ProcessorWork::Settings => "reading settings for requests",
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
