//! Where the processors' time goes: what they did at 99 moments of each second, by program, shared object and function.
//!
//! Facts: perf_event_open(2), proc_pid_maps(5), proc_kallsyms(5); `perf record -F 99 -e cpu-clock -a -g` shows the same.
//! What may be seen is told in `sampling.rs`; where that is nothing, there are no values and the reason is told.
//!
//! A value is told for each place that was hit since the last reading, and none for the others: each reading stands for itself,
//! and they add up. A place is `PROGRAM;OBJECT;FUNCTION` (`~FUNCTION` for what has no name and lies behind it), and in the kernel `PROGRAM;[kernel];` with the call that the program
//! made and the innermost functions below it: deeper chains tell no more of what it is for, and there would be more of them
//! than there are samples. What a function is for is not decided here but by the analysis, which can learn.

pub(super) mod maps;
mod sampling;
mod symbols;

use crate::collectors::{Collector, Metric, Reading, Target, gauge};
use maps::Processes;
use sampling::{Hit, Sampling};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read};
use symbols::SymbolTable;

/// Innermost functions of the kernel that are told.
const KERNEL_FUNCTIONS: usize = 5;
/// Places that are told of the service, and of all others, in one reading: of what is hit less, the program and object alone.
const PLACES_MAX: usize = 150;
/// Letters of a name: those of C++ are longer than a line.
const NAME_LETTERS_MAX: usize = 48;
/// The most that is read of the kernel's names.
const KERNEL_NAMES_BYTES_MAX: u64 = 64 << 20;
/// How the kernel names what a program calls.
const CALLS: [&str; 3] = ["__x64_sys_", "__arm64_sys_", "__ia32_sys_"];

const SAMPLES: &str = "profile.samples_count";
const LOST: &str = "profile.lost_count";
const WITH_KERNEL: &str = "profile.with_kernel_bool";
const OF_MACHINE: &str = "profile.of_machine_bool";

/// The collector.
#[derive(Default)]
pub struct Profile {
    sampling: Option<Sampling>,
    processes: Processes,
    /// Read once, before the load; where it was not, when the first sample hits the kernel.
    kernel: Option<SymbolTable>,
}

/// How often each place was hit.
type Places = BTreeMap<String, u64>;

impl Profile {
    /// `PROGRAM;OBJECT;FUNCTION` of a sample, and whether it is of the service; of others the program alone, as nobody asks for more
    /// and their files may be large.
    fn place(&mut self, hit: &Hit) -> (String, bool) {
        let (program, is_service) = self.processes.program(hit.pid);
        let mut names = vec![program];
        match hit.address {
            _ if !is_service => {}
            Some(address) => {
                let (object, function) = self.processes.place(hit.pid, address);
                names.push(object);
                names.extend(function);
            }
            None => {
                names.push("[kernel]".into());
                let table = self.kernel.get_or_insert_with(kernel_names);
                names.extend(kernel_functions(&hit.kernel, table));
            }
        }
        (names.iter().map(|name| plain(name)).collect::<Vec<_>>().join(";"), is_service)
    }

    /// What was hit since the last reading, of the service and of all others.
    fn places(&mut self, hits: &[Hit]) -> [Places; 2] {
        let mut places = [Places::new(), Places::new()];
        for hit in hits {
            let (place, is_service) = self.place(hit);
            *places[usize::from(!is_service)].entry(place).or_default() += 1;
        }
        places.map(bounded)
    }
}

/// The names of the kernel's functions; none where they are hidden.
fn kernel_names() -> SymbolTable {
    let lines =
        std::fs::File::open("/proc/kallsyms").map(|file| BufReader::new(file.take(KERNEL_NAMES_BYTES_MAX)));
    lines.map_or_else(|_| SymbolTable::default(), SymbolTable::of_kernel)
}

/// The call that the program made, and the innermost functions, the outermost first.
fn kernel_functions(addresses: &[u64], table: &SymbolTable) -> Vec<String> {
    let names: Vec<&str> = addresses.iter().filter_map(|address| table.name(*address)).collect();
    let call = names.iter().skip(KERNEL_FUNCTIONS).find_map(|name| call_name(name));
    let innermost = names.iter().take(KERNEL_FUNCTIONS).rev();
    call.into_iter()
        .chain(innermost.map(|name| call_name(name).unwrap_or_else(|| (*name).to_owned())))
        .collect()
}

fn call_name(name: &str) -> Option<String> {
    CALLS.iter().find_map(|begin| name.strip_prefix(begin)).map(|call| format!("sys_{call}"))
}

/// A name as it may be a part of a metric's.
fn plain(name: &str) -> String {
    name.chars().take(NAME_LETTERS_MAX).map(plain_letter).collect()
}

pub(super) fn plain_letter(letter: char) -> char {
    if letter.is_ascii_graphic() && !matches!(letter, ';' | '*') { letter } else { '_' }
}

/// The most hit places; the others by program and object.
fn bounded(places: Places) -> Places {
    if places.len() <= PLACES_MAX {
        return places;
    }
    let mut by_count: Vec<(String, u64)> = places.into_iter().collect();
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rare = by_count.split_off(PLACES_MAX);
    let mut kept: Places = by_count.into_iter().collect();
    for (place, count) in rare {
        let short: Vec<&str> = place.splitn(3, ';').take(2).collect();
        *kept.entry(short.join(";")).or_default() += count;
    }
    kept
}

impl Collector for Profile {
    fn name(&self) -> &'static str {
        "profile"
    }

    fn metrics(&self) -> Vec<Metric> {
        const SOURCE: &str = "perf_event_open";
        let all = "perf record -q -F 99 -e cpu-clock -g -p PID -o /tmp/profile sleep 10; perf script -i /tmp/profile";
        let of = |name: &str| gauge(name, SOURCE, format!("{all} | grep -c cpu-clock"));
        let places = |name: &str| {
            gauge(
                name,
                SOURCE,
                "perf record -q -F 99 -e cpu-clock -a -g -o /tmp/profile sleep 10; perf report -i /tmp/profile --no-children --sort comm,dso,symbol --stdio | grep -v '^#'",
            )
        };
        vec![
            of(SAMPLES),
            of(LOST),
            of(WITH_KERNEL),
            of(OF_MACHINE),
            places("profile.service.*.samples_count"),
            places("profile.others.*.samples_count"),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mains: Vec<u32> = target
            .service_pid
            .into_iter()
            .chain(target.backends.iter().map(|one| one.pid))
            .filter(|pid| *pid != 0)
            .collect();
        let Some(sampling) = self.sampling.as_ref().filter(|sampling| sampling.is_of(&mains)) else {
            return self.begin(&mains, target);
        };
        let (drained, scope) = (sampling.drain(), sampling.scope);
        self.processes.begin(mains.into_iter().collect::<BTreeSet<u32>>());
        self.processes.learn(drained.forks, drained.names);
        let mut reading = Reading::default();
        reading.push(SAMPLES, drained.hits.len() as f64);
        reading.push(LOST, drained.lost_count as f64);
        reading.push(WITH_KERNEL, f64::from(u8::from(scope.with_kernel)));
        reading.push(OF_MACHINE, f64::from(u8::from(scope.is_machine)));
        for (places, whose) in self.places(&drained.hits).into_iter().zip(["service", "others"]) {
            for (place, count) in places {
                reading.push(format!("profile.{whose}.{place}.samples_count"), count as f64);
            }
        }
        reading
    }
}

impl Profile {
    /// Begins to sample; what was before is nobody's.
    fn begin(&mut self, mains: &[u32], target: &Target) -> Reading {
        match Sampling::open(mains) {
            Ok(sampling) => {
                self.processes.begin(mains.iter().copied().collect());
                self.processes.read_objects();
                if sampling.scope.with_kernel {
                    self.kernel = Some(kernel_names());
                }
                // What was met meanwhile is our own reading.
                drop(sampling.drain());
                self.sampling = Some(sampling);
                Reading::default()
            }
            Err(_) if mains.is_empty() => Reading::without_service(self.name(), target),
            Err(error) => {
                let mut reading = Reading::default();
                reading.lacks(
                    self.name(),
                    format!("perf_event_open of its processes: {error}"),
                    "run as root, or with CAP_PERFMON; `sysctl kernel.perf_event_paranoid` of 2 shows the processes of one's own user",
                );
                reading
            }
        }
    }
}

#[cfg(test)]
mod tests;
