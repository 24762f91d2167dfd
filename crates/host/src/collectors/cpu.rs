//! The processors: `/proc/stat` and `/proc/loadavg`.
//!
//! Facts: proc_stat(5), proc_loadavg(5) and Documentation/filesystems/proc.rst, 1.8. Times are in clock ticks since
//! boot. `user` holds the time of guests already and `nice` that of niced guests, so neither is added again. A core
//! that waits for I/O is idle: `iowait` is not busy.

use super::{Collector, Metric, Reading, Target, counter, gauge};
use crate::procfs;

/// Cores that get metrics of their own: a bound on the size of a sample. All cores are in the sums.
const CORES_SHOWN_MAX: usize = 128;

const STAT: &str = "/proc/stat";
const LOADAVG: &str = "/proc/loadavg";

/// The kinds of time in the order of `/proc/stat`.
const KINDS: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
const IDLE: usize = 3;
const IOWAIT: usize = 4;
const IRQ: usize = 5;
const SOFTIRQ: usize = 6;
const STEAL: usize = 7;

/// What `/proc/stat` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    /// All cores together.
    pub all: Option<Ticks>,
    /// Each core that is online, by its number.
    pub cores: Vec<(u32, Ticks)>,
    /// Processes and threads created since boot.
    pub forks_count: Option<u64>,
    /// Threads that run or want to.
    pub run_queue_count: Option<u64>,
}

/// Time in clock ticks, in the order of `/proc/stat`; older kernels show fewer kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ticks([Option<u64>; KINDS.len()]);

impl Ticks {
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut ticks = Self::default();
        for (slot, word) in ticks.0.iter_mut().zip(words) {
            *slot = Some(word.parse().ok()?);
        }
        ticks.0[IDLE].map(|_| ticks)
    }

    /// All but idle and waiting for I/O.
    pub fn busy(&self) -> u64 {
        self.sum_without(&[IDLE, IOWAIT])
    }

    /// What processes used: busy without interrupts and without what the hypervisor took.
    pub fn of_processes(&self) -> u64 {
        self.sum_without(&[IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL])
    }

    fn sum_without(&self, left_out: &[usize]) -> u64 {
        let wanted = |(kind, ticks): (usize, &Option<u64>)| ticks.filter(|_| !left_out.contains(&kind));
        self.0.iter().enumerate().filter_map(wanted).fold(0, u64::saturating_add)
    }
}

/// Parses `/proc/stat`. Lines that it does not know, or cannot read, are left out.
pub fn parse_stat(text: &str) -> Stat {
    let mut stat = Stat::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("cpu") => stat.all = Ticks::parse(words),
            Some("processes") => stat.forks_count = words.next().and_then(|word| word.parse().ok()),
            Some("procs_running") => stat.run_queue_count = words.next().and_then(|word| word.parse().ok()),
            Some(name) => {
                let core = name.strip_prefix("cpu").and_then(|number| number.parse().ok());
                stat.cores.extend(core.zip(Ticks::parse(words)));
            }
            None => {}
        }
    }
    stat
}

/// Parses the load average of the last minute.
pub fn parse_load1(text: &str) -> Option<f64> {
    let value: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// The collector.
#[derive(Debug)]
pub struct Cpu {
    /// Cores with metrics of their own: those online at the start. One that comes later is in the sums only.
    cores: Vec<u32>,
}

impl Cpu {
    /// With the cores that are online now.
    pub fn new() -> Self {
        let stat = procfs::read_text(STAT).map(|text| parse_stat(&text)).unwrap_or_default();
        Self { cores: stat.cores.iter().map(|&(core, _)| core).take(CORES_SHOWN_MAX).collect() }
    }

    fn values(&self, stat: &Stat, ticks_per_s: f64, reading: &mut Reading) {
        let seconds = |ticks: u64| ticks as f64 / ticks_per_s;
        for (kind, ticks) in KINDS.iter().zip(stat.all.unwrap_or_default().0) {
            reading.push_some(format!("cpu.{kind}_s"), ticks.map(seconds));
        }
        for (core, ticks) in stat.cores.iter().filter(|(core, _)| self.cores.contains(core)) {
            reading.push(format!("cpu.core{core}.busy_s"), seconds(ticks.busy()));
            reading.push_some(format!("cpu.core{core}.softirq_s"), ticks.0[SOFTIRQ].map(seconds));
        }
        if !stat.cores.is_empty() {
            reading.push("cpu.cores_count", stat.cores.len() as f64);
        }
        reading.push_some("cpu.forks_count", stat.forks_count.map(|count| count as f64));
        reading.push_some("cpu.run_queue_count", stat.run_queue_count.map(|count| count as f64));
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

impl Collector for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn metrics(&self) -> Vec<Metric> {
        let hertz = procfs::clock_ticks_per_s();
        let awk = |condition: &str, value: &str| {
            format!("awk '{condition} {{printf \"%.2f\\n\", ({value})/{hertz}}}' {STAT}")
        };
        let mut metrics: Vec<Metric> = KINDS
            .iter()
            .zip(2..)
            .map(|(kind, field)| {
                counter(format!("cpu.{kind}_s"), STAT, awk("$1==\"cpu\"", &format!("${field}")))
            })
            .collect();
        for core in &self.cores {
            let line = format!("$1==\"cpu{core}\"");
            let busy = awk(&line, "$2+$3+$4+$7+$8+$9");
            metrics.push(counter(format!("cpu.core{core}.busy_s"), STAT, busy));
            metrics.push(counter(format!("cpu.core{core}.softirq_s"), STAT, awk(&line, "$8")));
        }
        metrics.extend([
            gauge("cpu.cores_count", STAT, format!("grep -c '^cpu[0-9]' {STAT}")),
            counter("cpu.forks_count", STAT, format!("awk '$1==\"processes\" {{print $2}}' {STAT}")),
            gauge("cpu.run_queue_count", STAT, format!("awk '$1==\"procs_running\" {{print $2}}' {STAT}")),
            gauge("cpu.load1_count", LOADAVG, format!("cut -d' ' -f1 {LOADAVG}")),
        ]);
        metrics
    }

    fn read(&mut self, _: &Target) -> Reading {
        let mut reading = Reading::default();
        let ticks_per_s = procfs::clock_ticks_per_s() as f64;
        reading.take(STAT, |text, reading| self.values(&parse_stat(text), ticks_per_s, reading));
        reading.take(LOADAVG, |text, reading| reading.push_some("cpu.load1_count", parse_load1(text)));
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two cores, Linux 6.18; the second core came late.
    const MODERN: &str = "\
cpu  5551 3 1393 267964 772 7 27 5 11 0
cpu0 2409 0 589 134808 47 0 6 2 0 0
cpu1 3141 3 804 133155 724 7 21 3 11 0
intr 293441 0 0
ctxt 575568
btime 1795292337
processes 9797
procs_running 2
procs_blocked 0
softirq 204072 0 19939
";

    fn read(text: &str, cores: &[u32]) -> Reading {
        let mut reading = Reading::default();
        Cpu { cores: cores.to_vec() }.values(&parse_stat(text), 100.0, &mut reading);
        reading
    }

    #[test]
    fn times_are_seconds_and_guests_are_not_counted_twice() {
        let reading = read(MODERN, &[0, 1]);
        for (name, expected) in [
            ("cpu.user_s", 55.51),
            ("cpu.nice_s", 0.03),
            ("cpu.idle_s", 2679.64),
            ("cpu.iowait_s", 7.72),
            ("cpu.steal_s", 0.05),
            ("cpu.core1.busy_s", 39.79),
            ("cpu.core1.softirq_s", 0.21),
            ("cpu.cores_count", 2.0),
            ("cpu.forks_count", 9797.0),
            ("cpu.run_queue_count", 2.0),
        ] {
            assert_eq!(reading.value(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn interrupts_are_not_the_time_of_processes() {
        let all = parse_stat(MODERN).all.unwrap();
        assert_eq!(all.of_processes(), 5551 + 3 + 1393);
        assert_eq!(all.busy(), all.of_processes() + 7 + 27 + 5);
    }

    #[test]
    fn a_core_that_came_later_is_counted_but_has_no_metric_of_its_own() {
        let reading = read(MODERN, &[0]);
        assert_eq!(reading.value("cpu.cores_count"), Some(2.0));
        assert!(reading.value("cpu.core0.busy_s").is_some());
        assert_eq!(reading.value("cpu.core1.busy_s"), None);
    }

    #[test]
    fn what_an_old_kernel_does_not_tell_is_missing_not_zero() {
        let reading = read("cpu 10 0 5 100\ncpu0 10 0 5 100\n", &[0]);
        assert_eq!(reading.value("cpu.system_s"), Some(0.05));
        for name in ["cpu.iowait_s", "cpu.steal_s", "cpu.forks_count", "cpu.core0.softirq_s"] {
            assert_eq!(reading.value(name), None, "{name}");
        }
    }

    #[test]
    fn load_averages_parse() {
        for (text, expected) in [("0.05 0.08 0.03 1/89 9797\n", Some(0.05)), ("", None), ("nan 1", None)] {
            assert_eq!(parse_load1(text), expected, "{text}");
        }
    }

    proptest! {
        // A torn or strange file gives fewer values, never a panic.
        #[test]
        fn any_text_is_survived(cut in 0..MODERN.len(), noise in "(cpu[0-9]{0,12}|intr|)( [0-9-]{0,25}){0,12}") {
            let torn = MODERN.get(..cut).unwrap_or_default();
            read(&format!("{noise}\n{torn}{noise}"), &[0, 1]);
            parse_load1(&noise);
        }
    }
}
