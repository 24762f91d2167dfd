//! The modelled load: what a server with some values gives to a number of users.
//!
//! N users in a closed loop, W workers that each hold a request for S seconds, C cores and D seconds of CPU per request.
//! The rate is the least of min(W, N) / S and C / D; what does not fit waits in the accept queue.

use crate::simulated::random::Random;
use crate::simulated::server::EffectiveSettings;
use std::collections::BTreeMap;
use webdyno_model::harm_guard::{HarmCause, HarmGuardTrip};
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{ConnectionCounts, EndReason, Interval, LoadEnd};
use webdyno_model::number::Number;
use webdyno_model::sample::{CollectorInfo, Metric, MetricKind, Sample};
use webdyno_model::workload::Workload;

/// What the users ask for, and what the machine can give.
#[derive(Debug, Clone)]
pub struct LoadModel {
    /// Users in a closed loop.
    pub users: f64,
    /// How long a request holds a worker.
    pub worker_time_s: f64,
    /// CPU time per request.
    pub cpu_s_per_request: f64,
    /// Cores.
    pub cores: f64,
    /// Each worker above this many halves the rate (memory that does not suffice, unseen).
    pub cliff_workers: f64,
    /// Above so many workers in use the load is stopped: memory does not suffice, and that is seen.
    pub harm_guard_workers: f64,
    /// Whether the memory is shown of which there is so much.
    pub shows_memory: bool,
    /// The load that is stopped as another program fills the machine, from 1; 0 for none.
    pub stopped_by_others: u32,
    /// By so much of itself each worker in use makes a request more expensive, where they share the processors.
    pub crosstalk: f64,
    /// Every second is this share faster or slower than the mean, in turn.
    pub wobble: f64,
    /// How fast the machine is during each load, as a share; 1 for those beyond.
    pub drift: &'static [f64],
    /// Whether the first load after each switch rises from nothing to what the server gives, as with a pool that is started anew.
    pub starts_cold: bool,
    /// Whether the link is slow that answers go over, for which only a person can do something.
    pub has_slow_link: bool,
    /// More workers than this fill the table of connections, which drops those of the others.
    pub table_workers: f64,
    /// How many seconds a load takes.
    pub length_s: u32,
    /// Whether times are recorded in each second, which takes most of the time of a session; else all in the first one.
    pub records_times: bool,
}

/// A server with room for more workers.
pub const PLENTY: LoadModel = LoadModel {
    users: 450.0,
    worker_time_s: 0.2,
    cpu_s_per_request: 0.0004,
    cores: 2.0,
    cliff_workers: 1e9,
    harm_guard_workers: 1e9,
    shows_memory: false,
    stopped_by_others: 0,
    crosstalk: 0.0,
    wobble: 0.0,
    drift: &[],
    starts_cold: false,
    has_slow_link: false,
    table_workers: 1e9,
    length_s: 12,
    records_times: true,
};

impl LoadModel {
    /// The one of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed, 2);
        let (cliff, trip) = (random.one_in(3), random.one_in(6));
        Self {
            users: 50.0 + random.below(800) as f64,
            worker_time_s: 0.02 + random.below(40) as f64 / 100.0,
            cpu_s_per_request: 0.0001 + random.below(20) as f64 / 10_000.0,
            cores: 1.0 + random.below(8) as f64,
            cliff_workers: if cliff { 151.0 + random.below(300) as f64 } else { 1e9 },
            harm_guard_workers: if trip { 100.0 + random.below(300) as f64 } else { 1e9 },
            shows_memory: false,
            stopped_by_others: 0,
            crosstalk: if random.one_in(4) { 0.005 } else { 0.0 },
            wobble: if random.one_in(4) { 0.3 } else { 0.0 },
            drift: &[],
            starts_cold: false,
            has_slow_link: random.one_in(8),
            // Behind the workers the table: a change stays in force unjudged, and is struck there, too.
            table_workers: if random.one_in(4) { 150.0 } else { 1e9 },
            length_s: 6,
            records_times: false,
        }
    }

    /// No number of workers fills a table that was made larger.
    pub fn widen_table(&mut self, is_wider: bool) {
        if is_wider {
            self.table_workers = f64::INFINITY;
        }
    }

    /// Whether so many workers fill the table of connections.
    fn fills_table(&self, settings: EffectiveSettings) -> bool {
        (settings.workers as f64).min(self.users) > self.table_workers
    }

    /// CPU time of a request.
    fn cpu_s(&self, settings: EffectiveSettings) -> f64 {
        self.cpu_s_per_request * (1.0 + self.crosstalk * (settings.workers as f64).min(self.users))
    }

    /// Good answers per second.
    pub fn rate(&self, settings: EffectiveSettings) -> f64 {
        let workers = settings.workers as f64;
        let by_workers = workers.min(self.users).min(self.table_workers) / self.worker_time_s;
        let by_cpu = self.cores / self.cpu_s(settings);
        let fits = if workers > self.cliff_workers { 0.5 } else { 1.0 };
        by_workers.min(by_cpu) * fits
    }

    /// What a load generator sees in a second.
    pub fn interval(
        &self,
        settings: EffectiveSettings,
        (load, second): (u32, u32),
        random: &mut Random,
    ) -> Interval {
        let drift = self.drift.get(load as usize - 1).unwrap_or(&1.0);
        let wobble = if second.is_multiple_of(2) { self.wobble } else { -self.wobble };
        let started = if self.starts_cold { f64::from(second + 1) / f64::from(self.length_s) } else { 1.0 };
        let rate = self.rate(settings) * started * drift * (1.0 + wobble) * (1.0 + 0.02 * random.symmetric());
        let response_us = self.users / rate * 1e6;
        let seconds = if self.records_times { 1 } else { u64::from(self.length_s) };
        let times = (self.records_times || second == 0).then(|| {
            let mut times = TimeHistogram::new();
            times.record_many(response_us as u64, rate as u64 * seconds);
            times
        });
        let mut connections = ConnectionCounts::default();
        if self.fills_table(settings) {
            connections.opened = rate as u64;
        }
        Interval {
            connections,
            t_s: f64::from(second),
            length_us: 1_000_000,
            started: rate as u64,
            completed: rate as u64,
            in_flight: self.users as u64,
            in_flight_us: (rate as u64 as f64 * response_us) as u64,
            response_time: times.and_then(|times| times.encode()),
            cpu_us: 100_000,
            cpu_us_max_thread: 100_000,
            ..Interval::default()
        }
    }

    /// What is read of the server in a second.
    pub fn samples(&self, settings: EffectiveSettings, second: f64) -> Vec<Sample> {
        let (rate, workers) = (self.rate(settings), settings.workers as f64);
        let cpu = (rate * self.cpu_s(settings) / self.cores).min(1.0);
        // Who shares the processors holds its worker until it has had enough of them.
        let is_shared = self.crosstalk > 0.0 && cpu >= 0.999;
        let busy = if is_shared { workers.min(self.users) } else { (rate * self.worker_time_s).min(workers) };
        let idle = if busy >= workers - 0.5 { 0.0 } else { 5.0 };
        // Who gets no connection waits at his own end.
        let is_full = self.fills_table(settings);
        let queue = if is_full { 0.0 } else { (self.users - busy).max(0.0) };
        let elapsed = 100.0 + second;
        let link = sample(
            "nic",
            &[
                ("nic.eth0.sent_bytes", 0.97 * 1e8 / 8.0 * elapsed),
                ("nic.eth0.speed_bits_per_s", 1e8),
                ("nic.eth0.supported_speed_bits_per_s", 1e9),
            ],
        );
        let known = [
            sample(
                "cpu",
                &[
                    ("cpu.user_s", cpu * self.cores * elapsed),
                    ("cpu.idle_s", (1.0 - cpu) * self.cores * elapsed),
                    ("cpu.nice_s", 0.0),
                    ("cpu.system_s", 0.0),
                    ("cpu.irq_s", 0.0),
                    ("cpu.softirq_s", 0.0),
                    ("cpu.steal_s", 0.0),
                    ("cpu.cores_count", self.cores),
                    ("cpu.run_queue_count", if cpu >= 0.999 { 9.0 } else { 1.0 }),
                ],
            ),
            sample("process", &[("process.cpu_s", cpu * self.cores * elapsed)]),
            sample(
                "sockets",
                &[("sockets.accept_queue_count", queue), ("sockets.accept_queue_max_count", 511.0)],
            ),
            sample(
                "apache_status",
                &[
                    ("apache.slots_count", workers),
                    ("apache.slots_open_count", 0.0),
                    ("apache.workers_idle_count", idle),
                    ("apache.workers_busy_count", busy),
                    ("apache.accesses_count", rate * elapsed),
                    ("apache.busy_duration_ms", busy * elapsed * 1e3),
                ],
            ),
        ];
        let table = is_full.then(|| full_table(elapsed));
        known.into_iter().chain(self.has_slow_link.then_some(link)).chain(table).collect()
    }

    /// What the readings of the link mean, where there are any.
    pub fn collectors(&self) -> Vec<CollectorInfo> {
        let metric = |(what, unit, kind): (&str, &str, MetricKind)| Metric {
            name: format!("nic.*.{what}"),
            unit: unit.into(),
            kind,
            source: "/sys/class/net".into(),
            reproduce: "ip -s link".into(),
            on_change: false,
        };
        let metrics = [
            ("sent_bytes", "bytes", MetricKind::Counter),
            ("speed_bits_per_s", "bits/s", MetricKind::Gauge),
            ("supported_speed_bits_per_s", "bits/s", MetricKind::Gauge),
        ];
        let nic = CollectorInfo { name: "nic".into(), metrics: metrics.map(metric).into() };
        self.has_slow_link.then_some(nic).into_iter().collect()
    }

    /// Memory for as many workers as do no harm, of so much each.
    pub fn memory(&self, settings: EffectiveSettings) -> Option<Sample> {
        const WORKER_BYTES: f64 = 10e6;
        let limit = self.harm_guard_workers * WORKER_BYTES / 0.9;
        let held = (settings.workers as f64).min(self.users) * WORKER_BYTES;
        let values = [
            ("memory.total_bytes", limit),
            ("memory.limit_bytes", limit),
            ("memory.available_bytes", (limit - held).max(0.0)),
            ("worker_memory.pss_sum_bytes", held.min(limit)),
            ("worker_memory.private_mean_bytes", WORKER_BYTES),
        ];
        self.shows_memory.then(|| sample("memory", &values))
    }

    /// Another program fills the machine: a reading of its memory, and why the load is stopped.
    pub fn with_others() -> (Sample, HarmGuardTrip) {
        let values = [
            ("memory.total_bytes", 16e9),
            ("memory.limit_bytes", 16e9),
            ("memory.available_bytes", 0.2e9),
            ("worker_memory.pss_sum_bytes", 0.3e9),
        ];
        let trip = HarmGuardTrip {
            cause: HarmCause::Swapping,
            metric: "memory.swapped_out_pages".into(),
            value: Number(9000.0),
            limit: Number(4096.0),
            text: "memory is being swapped".into(),
        };
        (sample("memory", &values), trip)
    }

    /// How a load ends.
    pub fn end(&self) -> LoadEnd {
        LoadEnd {
            elapsed_us: u64::from(self.length_s) * 1_000_000,
            in_flight_at_end: self.users as u64,
            thread_cpu_us: vec![u64::from(self.length_s) * 100_000],
            reason: EndReason::Enough,
            ..LoadEnd::default()
        }
    }

    /// Why the load is stopped with these settings, if it is.
    pub fn harm_guard_trip(&self, settings: EffectiveSettings) -> Option<HarmGuardTrip> {
        let in_use = (settings.workers as f64).min(self.users);
        (in_use > self.harm_guard_workers).then(|| HarmGuardTrip {
            cause: HarmCause::OutOfMemory,
            metric: "memory.oom_kills_count".into(),
            value: Number(1.0),
            limit: Number(1.0),
            text: "the kernel killed 1 process for want of memory".into(),
        })
    }

    /// What is sent.
    pub fn workload(&self) -> Workload {
        Workload { connections: self.users as u32, keepalive: false, ..Workload::default() }
    }
}

/// A table of connections that drops a hundred each second.
fn full_table(elapsed: f64) -> Sample {
    let values = [
        ("conntrack.entries_count", 65_536.0),
        ("conntrack.max_count", 65_536.0),
        ("conntrack.drop_count", 100.0 * elapsed),
    ];
    sample("conntrack", &values)
}

fn sample(source: &str, values: &[(&str, f64)]) -> Sample {
    let values: BTreeMap<_, _> =
        values.iter().map(|(name, value)| ((*name).to_owned(), Number(*value))).collect();
    Sample { source: source.into(), duration_us: 10, values, ..Sample::default() }
}
