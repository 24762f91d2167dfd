//! The processors: `/proc/stat` and `/proc/loadavg`.
//!
//! Facts: proc_stat(5), proc_loadavg(5) and Documentation/filesystems/proc.rst, 1.8. Times are in clock ticks since
//! boot. `user` holds the time of guests already and `nice` that of niced guests, so neither is added again. A core
//! that waits for I/O is idle: `iowait` is not busy.
//!
//! One core that does nothing but handle packets (`softirq`) limits a server whose other cores are idle: the share of
//! the busiest core is told over all cores, also of machines with more of them than a sample has room for.

use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::os::procfs;
use std::collections::BTreeMap;

/// Cores that get values of their own: a bound on the size of a sample. All cores are in the sums and maxima.
const CORES_SHOWN_MAX: usize = 32;

/// Time in which a core must have counted so many ticks for its shares to mean something.
const TICKS_MIN: u64 = 10;

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
    /// Threads that wait for a disk.
    pub blocked_count: Option<u64>,
    /// Switches from one thread to another since boot.
    pub switches_count: Option<u64>,
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

    fn total(&self) -> u64 {
        self.sum_without(&[])
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
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        // The rest of some lines is long: only what is wanted is looked at.
        let words = rest.split_ascii_whitespace();
        let number = || rest.trim().parse().ok();
        match name {
            "cpu" => stat.all = Ticks::parse(words),
            "ctxt" => stat.switches_count = number(),
            "processes" => stat.forks_count = number(),
            "procs_running" => stat.run_queue_count = number(),
            "procs_blocked" => stat.blocked_count = number(),
            name => {
                let core = name.strip_prefix("cpu").and_then(|number| number.parse().ok());
                stat.cores.extend(core.and_then(|core| Some((core, Ticks::parse(words)?))));
            }
        }
    }
    stat
}

/// Parses the load averages of the last 1, 5 and 15 minutes.
pub fn parse_loads(text: &str) -> [Option<f64>; 3] {
    let mut words = text.split_ascii_whitespace();
    [(); 3].map(|()| words.next()?.parse().ok().filter(|value: &f64| value.is_finite()))
}

/// The collector.
#[derive(Debug, Default)]
pub struct Cpu {
    /// Cores with values of their own: the first of those online at the first reading.
    shown: Option<Vec<u32>>,
    /// What each core had counted at the reading before.
    before: BTreeMap<u32, Ticks>,
}

impl Cpu {
    fn values(&mut self, stat: &Stat, ticks_per_s: f64, reading: &mut Reading) {
        let seconds = |ticks: u64| ticks as f64 / ticks_per_s;
        let all = stat.all.unwrap_or_default();
        for (kind, ticks) in KINDS.iter().zip(all.0) {
            reading.push_some(format!("cpu.{kind}_s"), ticks.map(seconds));
        }
        self.cores(stat, all.0[STEAL].is_some_and(|ticks| ticks > 0), seconds, reading);
        self.busiest(&stat.cores, reading);
        if !stat.cores.is_empty() {
            reading.push("cpu.cores_count", stat.cores.len() as f64);
        }
        for (name, count) in [
            ("cpu.forks_count", stat.forks_count),
            ("cpu.context_switches_count", stat.switches_count),
            ("cpu.run_queue_count", stat.run_queue_count),
            ("cpu.disk_wait_count", stat.blocked_count),
        ] {
            reading.push_some(name, count.map(|count| count as f64));
        }
    }

    /// Adds the cores that are shown. What a hypervisor took of each is told where it took any.
    fn cores(&mut self, stat: &Stat, stolen: bool, seconds: impl Fn(u64) -> f64, reading: &mut Reading) {
        let first = || stat.cores.iter().map(|&(core, _)| core).take(CORES_SHOWN_MAX).collect();
        let shown = self.shown.get_or_insert_with(first);
        for (core, ticks) in stat.cores.iter().filter(|(core, _)| shown.contains(core)) {
            reading.push(format!("cpu.core{core}.busy_s"), seconds(ticks.busy()));
            reading.push_some(format!("cpu.core{core}.softirq_s"), ticks.0[SOFTIRQ].map(&seconds));
            let steal = ticks.0[STEAL].filter(|_| stolen);
            reading.push_some(format!("cpu.core{core}.steal_s"), steal.map(&seconds));
        }
        let left_out = stat.cores.iter().filter(|(core, _)| !shown.contains(core)).count();
        if left_out > 0 {
            let why = format!(
                "{left_out} of {} cores have no values of their own, to keep samples small: they are in the sums and \
                 in the shares of the busiest core",
                stat.cores.len()
            );
            reading.lacks("cpu.*", why, "`mpstat -P ALL 1` shows each core");
        }
    }

    /// Adds the largest share of the time since the reading before that any core was busy, in interrupts, or stolen.
    fn busiest(&mut self, cores: &[(u32, Ticks)], reading: &mut Reading) {
        let share = |of: Part| {
            let of_core = |(core, now): &(u32, Ticks)| {
                let before = self.before.get(core)?;
                let total = now.total().checked_sub(before.total()).filter(|total| *total >= TICKS_MIN)?;
                // Counters of a core start anew when it was offline.
                let part = of(now)?.checked_sub(of(before)?)?;
                Some((part as f64 / total as f64).min(1.0))
            };
            cores.iter().filter_map(of_core).reduce(f64::max).map(|share| (share * 1e4).round() / 1e4)
        };
        for (name, of) in BUSIEST {
            reading.push_some(name, share(of));
        }
        self.before = cores.iter().copied().collect();
    }
}

/// Some of the ticks of a core.
type Part = fn(&Ticks) -> Option<u64>;

/// Largest shares of a core, and the ticks that they are of.
const BUSIEST: [(&str, Part); 3] = [
    ("cpu.busy_max_fraction", |ticks| Some(ticks.busy())),
    ("cpu.softirq_max_fraction", |ticks| ticks.0[SOFTIRQ]),
    ("cpu.steal_max_fraction", |ticks| ticks.0[STEAL]),
];

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
        const BUSY: &str = "$2+$3+$4+$7+$8+$9";
        // INSTANCE is `core0`; the file says `cpu0`.
        let core = |value: &str| awk("\"core\" substr($1,4)==\"INSTANCE\"", value);
        metrics.push(counter("cpu.*.busy_s", STAT, core(BUSY)));
        metrics.push(counter("cpu.*.softirq_s", STAT, core("$8")));
        metrics.push(counter("cpu.*.steal_s", STAT, core("$9")));
        for ((name, _), part) in BUSIEST.iter().zip([BUSY, "$8", "$9"]) {
            let by_hand = format!(
                "(cat {STAT}; sleep 1; cat {STAT}) | awk '/^cpu[0-9]/ {{t=$2+$3+$4+$5+$6+$7+$8+$9; v={part}; \
                 if ($1 in a && t>a[$1]) {{x=(v-b[$1])/(t-a[$1]); if (x>m) m=x}} a[$1]=t; b[$1]=v}} \
                 END {{printf \"%.4f\\n\", m}}'"
            );
            metrics.push(gauge(*name, STAT, by_hand));
        }
        let line = |key: &str| format!("awk '$1==\"{key}\" {{print $2}}' {STAT}");
        metrics.extend([
            gauge("cpu.cores_count", STAT, format!("grep -c '^cpu[0-9]' {STAT}")),
            counter("cpu.forks_count", STAT, line("processes")),
            counter("cpu.context_switches_count", STAT, line("ctxt")),
            gauge("cpu.run_queue_count", STAT, line("procs_running")),
            gauge("cpu.disk_wait_count", STAT, line("procs_blocked")),
        ]);
        metrics.extend(
            LOADS
                .iter()
                .zip(1..)
                .map(|(name, field)| gauge(*name, LOADAVG, format!("cut -d' ' -f{field} {LOADAVG}"))),
        );
        metrics
    }

    fn read(&mut self, _: &Target) -> Reading {
        let mut reading = Reading::default();
        let ticks_per_s = procfs::clock_ticks_per_s() as f64;
        reading.take(STAT, |text, reading| self.values(&parse_stat(text), ticks_per_s, reading));
        reading.take(LOADAVG, |text, reading| {
            for (name, value) in LOADS.iter().zip(parse_loads(text)) {
                reading.push_some(*name, value);
            }
        });
        reading
    }
}

/// Means over 1, 5 and 15 minutes of the threads that run, want to, or wait for a disk.
const LOADS: [&str; 3] = ["cpu.load1_count", "cpu.load5_count", "cpu.load15_count"];

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
        let mut cpu = Cpu { shown: Some(cores.to_vec()), ..Cpu::default() };
        cpu.values(&parse_stat(text), 100.0, &mut reading);
        reading
    }

    /// Of two cores one does nothing but handle packets for a second, and the other sleeps.
    #[test]
    fn one_core_full_of_packets_is_seen() {
        let mut cpu = Cpu::default();
        let mut last = Reading::default();
        for ticks in [0, 100] {
            last = Reading::default();
            let text = format!("cpu0 0 0 3 9 0 0 {} 0\ncpu1 0 0 0 {} 0 0 0 0\n", ticks, ticks);
            cpu.values(&parse_stat(&text), 100.0, &mut last);
        }
        for (name, expected) in [
            ("cpu.softirq_max_fraction", 1.0),
            ("cpu.busy_max_fraction", 1.0),
            ("cpu.steal_max_fraction", 0.0),
            ("cpu.core0.softirq_s", 1.0),
        ] {
            assert_eq!(last.value(name), Some(expected), "{name}");
        }
        assert_eq!(
            read(MODERN, &[0]).value("cpu.busy_max_fraction"),
            None,
            "nothing is known of the first one"
        );
    }

    #[test]
    fn many_cores_are_left_out_and_that_is_said() {
        let text: String = (0..200).map(|core| format!("cpu{core} 1 0 0 100 0 0 0 0\n")).collect();
        let (mut cpu, mut reading) = (Cpu::default(), Reading::default());
        cpu.values(&parse_stat(&text), 100.0, &mut reading);
        let shown = reading.values.iter().filter(|(name, _)| name.ends_with("busy_s")).count();
        assert_eq!(shown, CORES_SHOWN_MAX);
        assert_eq!(reading.value("cpu.cores_count"), Some(200.0));
        assert!(reading.missing[0].why.starts_with("168 of 200 cores"), "{:?}", reading.missing);
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
            ("cpu.disk_wait_count", 0.0),
            ("cpu.context_switches_count", 575_568.0),
            ("cpu.core1.steal_s", 0.03),
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
        for (text, expected) in [
            ("0.05 0.08 0.03 1/89 9797\n", [Some(0.05), Some(0.08), Some(0.03)]),
            ("", [None; 3]),
            ("nan 1", [None, Some(1.0), None]),
        ] {
            assert_eq!(parse_loads(text), expected, "{text}");
        }
    }

    proptest! {
        // A torn or strange file gives fewer values, never a panic.
        #[test]
        fn any_text_is_survived(cut in 0..MODERN.len(), noise in "(cpu[0-9]{0,12}|intr|)( [0-9-]{0,25}){0,12}") {
            let torn = MODERN.get(..cut).unwrap_or_default();
            read(&format!("{noise}\n{torn}{noise}"), &[0, 1]);
            parse_loads(&noise);
        }
    }
}
