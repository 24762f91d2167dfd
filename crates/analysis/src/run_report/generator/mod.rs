//! Whether the generator kept up: a run whose figures show the generator and not the server is marked invalid.

mod delay;
mod little;
mod pages;
mod tables;
mod users;
pub mod workers;

pub(crate) use tables::opening_stopped;

use crate::measurement::Measurement;
use webdyno_model::Result;
use webdyno_model::client::{ClientReport, InFlightReport, KernelLimitTotal, ThreadReport, ValidFor};
use webdyno_model::number::significant;
use webdyno_model::run::RunReport;
use webdyno_model::workload::Arrival;

/// Above this share of a core the busiest engine thread is taken as the bottleneck.
pub const CPU_FRACTION_MAX: f64 = 0.70;
/// A thread that worked for less than this share of the time was not late for its own work.
const HELD_UP_FRACTION_MAX: f64 = 0.35;
/// Above this share of the response time the generator's own delay falsifies it.
pub const DELAY_FRACTION_MAX: f64 = 0.10;
/// So many whole seconds are needed before the usual one of them is known.
const SECONDS_MIN: usize = 5;
/// A delay below this is the time that waking up takes on any machine, however quick the answers are.
pub const DELAY_US_MIN: f64 = 100.0;

/// The generator over the measured part, and the verdict on it. `run` has everything but that. An error when a histogram is
/// damaged.
pub fn client(measurement: &Measurement, run: &RunReport) -> Result<ClientReport> {
    let (length_us, cpu_us) = measurement
        .measured()
        .fold((0, 0), |(length, cpu), interval| (length + interval.length_us, cpu + interval.cpu_us));
    let fractions = measurement.measured().filter(|interval| interval.length_us >= 500_000);
    let fractions: Vec<f64> =
        fractions.map(|interval| interval.cpu_us_max_thread as f64 / interval.length_us as f64).collect();
    let threads = threads(measurement);
    let by_thread = threads.iter().map(|thread| thread.cpu_fraction).reduce(f64::max);
    // Recordings of before each thread was kept tell only the busiest one of each second.
    let cpu_fraction = by_thread.or_else(|| crate::measurement::statistics::mean(&fractions));
    let (law, users) = (little::in_flight_counts(measurement), users::step_counts(measurement));
    let local_ports = tables::local_ports(measurement, run);
    let kernel_limit_total = tables::kernel_limit_total(measurement);
    // Of a shorter run the start is most.
    let overload = workers::overload(measurement)
        .or_else(|| cpu_overload(cpu_fraction.filter(|_| length_us >= 500_000)));
    let is_late = delay::fault(measurement, run)?.or_else(|| delay::unread_time_text(run));
    let late = is_late.map(|why| why + delayed_text(cpu_fraction));
    let exhausted = tables::exhausted(run, local_ports);
    // What these say spoils more than a generator that is late.
    let first = kernel_limit_total.as_ref().map(table_limit_text).or_else(|| workers::loss(measurement));
    let is_first = first.is_some();
    let others = first
        .or_else(|| nothing_measured(run))
        .or_else(|| law.and_then(|law| law.fault()))
        .or_else(|| pages::fault(measurement))
        .or_else(|| users.and_then(|users| users.fault()));
    let is_late_only = late.is_some() && overload.is_none() && exhausted.is_none() && others.is_none();
    let spoils_times_only = is_late_only && costs_nothing(run, cpu_fraction);
    let saturation = overload.or(late.clone().filter(|_| !spoils_times_only)).or(exhausted);
    let fault = if is_first { others } else { saturation.clone().or(others) };
    let valid = fault.is_none();
    let valid_for = ValidFor { rate: valid, latency: valid && late.is_none(), counts: valid };
    let why = fault.or(late);
    Ok(ClientReport {
        cpu_s: (length_us > 0).then_some(cpu_us as f64 / 1e6),
        cpu_fraction_max_thread: cpu_fraction.map(|fraction| significant(fraction, 4)),
        threads,
        in_flight: InFlightReport {
            mean: law.map(|law| significant(law.mean, 6)),
            by_law: law.and_then(|law| law.by_law).map(|mean| significant(mean, 6)),
            server: None,
        },
        users: users.map(|users| users.report()),
        descriptors: tables::descriptors(measurement, run),
        local_ports,
        kernel_limit_total,
        saturated: saturation.is_some(),
        valid,
        valid_for,
        why,
    })
}

/// In a load that waits for its answers, this share of the users may wait for the generator instead: that is lost in noise.
const WAITING_USERS_FRACTION_MAX: f64 = 0.02;

/// A generator that was late, and otherwise did what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateGenerator {
    /// It was late at hardly any cost: nearly as many answers came in spite of it.
    pub is_without_cost: bool,
}

/// Whether all that is wrong with the run is that its times have some of the generator's own delay in them, and what that
/// cost. Such a run says wrong things about times. By Little's law the rate times the delay is how many users wait for the
/// generator. An error when a histogram is damaged.
pub fn late_generator(measurement: &Measurement, run: &RunReport) -> Result<Option<LateGenerator>> {
    let busiest = run.client.cpu_fraction_max_thread;
    let is_late = delay::fault(measurement, run)?.or_else(|| delay::unread_time_text(run)).is_some();
    let other = cpu_overload(busiest)
        .or_else(|| tables::exhausted(run, run.client.local_ports))
        .or_else(|| little::in_flight_counts(measurement).and_then(|law| law.fault()))
        .or_else(|| pages::fault(measurement))
        .or_else(|| users::step_counts(measurement).and_then(|users| users.fault()));
    let is_late_only = is_late && other.is_none() && run.workload.is_some();
    Ok(is_late_only.then(|| LateGenerator { is_without_cost: costs_nothing(run, busiest) }))
}

/// Whether a delay of the generator has cost no load: a rate is kept all the same, and of users hardly any waited for it.
fn costs_nothing(run: &RunReport, busiest: Option<f64>) -> bool {
    let Some(workload) = &run.workload else { return false };
    let ended_per_us = (run.requests.completed + run.requests.failed) as f64 / (run.elapsed_s * 1e6);
    let waiting = run.client_delay_us.mean.map(|delay_us| ended_per_us * delay_us);
    let users_max = WAITING_USERS_FRACTION_MAX * f64::from(workload.concurrency());
    let hardly_any =
        workload.arrival != Arrival::Closed || waiting.is_some_and(|waiting| waiting <= users_max);
    hardly_any && busiest.is_some_and(|busiest| busiest <= HELD_UP_FRACTION_MAX)
}

/// Each engine thread over the measured part; over the whole load in recordings that tell no more.
fn threads(measurement: &Measurement) -> Vec<ThreadReport> {
    let (mut length_us, mut cpu_us) = (0, vec![]);
    for interval in measurement.measured().filter(|interval| !interval.thread_cpu_us.is_empty()) {
        length_us += interval.length_us;
        cpu_us.resize(interval.thread_cpu_us.len().max(cpu_us.len()), 0);
        cpu_us.iter_mut().zip(&interval.thread_cpu_us).for_each(|(sum, us)| *sum += us);
    }
    if let Some(end) = measurement.end.as_ref().filter(|_| cpu_us.is_empty()) {
        (length_us, cpu_us) = (end.elapsed_us, end.thread_cpu_us.clone());
    }
    let thread = |us: u64| ThreadReport {
        cpu_s: us as f64 / 1e6,
        cpu_fraction: significant(us as f64 / length_us.max(1) as f64, 4),
    };
    cpu_us.into_iter().map(thread).collect()
}

fn table_limit_text(total: &KernelLimitTotal) -> String {
    format!(
        "the run measured a kernel table, not the server: {} connections opened, and {} allows {}",
        total.connections, total.limit, total.value
    )
}

fn cpu_overload(cpu_fraction: Option<f64>) -> Option<String> {
    cpu_fraction.filter(|fraction| *fraction > CPU_FRACTION_MAX).map(|fraction| {
        format!(
            "the busiest engine thread used {:.0}% of a core (limit {:.0}%): the run measured the generator, not the server",
            fraction * 100.0,
            CPU_FRACTION_MAX * 100.0
        )
    })
}

/// A generator that is late and hardly worked was kept from it. How much it worked is reported beside.
fn delayed_text(cpu_fraction: Option<f64>) -> &'static str {
    let little = cpu_fraction.is_some_and(|fraction| fraction > 0.0 && fraction < HELD_UP_FRACTION_MAX);
    if little { "; it used little CPU: a quota or other processes on its machine delayed it" } else { "" }
}

fn nothing_measured(run: &RunReport) -> Option<String> {
    (run.requests.completed + run.requests.failed == 0)
        .then(|| "no request completed within the measured time".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::histogram::TimeHistogram;
    use webdyno_model::interval::Interval;
    use webdyno_model::workload::Workload;

    fn second(t_s: f64, cpu_us_max_thread: u64, in_flight_us: u64) -> Interval {
        let (length_us, cpu_us) = (1_000_000, 100_000);
        Interval { t_s, length_us, cpu_us, cpu_us_max_thread, in_flight_us, ..Interval::default() }
    }

    /// 5000 requests of a millisecond each in one second; a tenth of them were delayed by this much.
    fn check(cpu_us_max_thread: u64, delay_us: u64, in_flight_us: u64) -> ClientReport {
        crate::run_report::run_report(&delayed(cpu_us_max_thread, delay_us, in_flight_us)).unwrap().client
    }

    fn delayed(cpu_us_max_thread: u64, delay_us: u64, in_flight_us: u64) -> Measurement {
        let (mut times, mut delays) = (TimeHistogram::new(), TimeHistogram::new());
        for request in 0..5000 {
            times.record(1000);
            delays.record(if request % 9 == 0 { delay_us } else { 1 });
        }
        let (completed, response_time, client_delay) = (5000, times.encode(), delays.encode());
        let thread_cpu_us = vec![100_000, cpu_us_max_thread];
        let whole = second(0.0, cpu_us_max_thread, in_flight_us);
        let interval = Interval { completed, response_time, client_delay, thread_cpu_us, ..whole };
        Measurement { intervals: vec![interval], ..Measurement::default() }
    }

    fn report(intervals: Vec<Interval>) -> RunReport {
        crate::run_report::run_report(&Measurement { intervals, ..Measurement::default() }).unwrap()
    }

    #[test]
    fn a_generator_that_keeps_up_is_valid() {
        let report = check(400_000, 99, 5_000_000);
        assert!(report.valid && !report.saturated && report.why.is_none(), "{report:?}");
        assert_eq!((report.cpu_s, report.cpu_fraction_max_thread), (Some(0.1), Some(0.4)));
        let fractions: Vec<f64> = report.threads.iter().map(|thread| thread.cpu_fraction).collect();
        assert_eq!(fractions, [0.1, 0.4]);
        assert_eq!((report.in_flight.mean, report.in_flight.by_law), (Some(5.0), Some(5.0)));
    }

    #[test]
    fn a_delay_that_costs_no_load_falsifies_the_times_only() {
        // A ninth of the requests is delayed by half of its time: 0.28 users wait for the generator.
        let late = |is_without_cost| Some(LateGenerator { is_without_cost });
        for (connections, arrival, cpu_us, expected) in [
            (5, Arrival::Closed, 100_000, late(false)),
            (50, Arrival::Closed, 100_000, late(true)),
            (50, Arrival::Closed, 500_000, late(false)),
            (5, Arrival::Open { rate_per_s: 5000.0, poisson: false }, 100_000, late(true)),
            // At its own limit it is not only late.
            (50, Arrival::Closed, 900_000, None),
        ] {
            let workload = Workload { connections, arrival, ..Workload::default() };
            let measurement = Measurement { workload: Some(workload), ..delayed(cpu_us, 500, 5_000_000) };
            let run = crate::run_report::run_report(&measurement).unwrap();
            let spoils_times_only = expected.is_some_and(|late| late.is_without_cost);
            let valid = ValidFor { rate: spoils_times_only, latency: false, counts: spoils_times_only };
            assert_eq!(run.client.valid_for, valid, "{:?}", run.client);
            assert_eq!((run.client.valid, run.client.saturated), (spoils_times_only, !spoils_times_only));
            assert!(run.client.why.is_some(), "its times are wrong: {:?}", run.client);
            assert_eq!(
                super::late_generator(&measurement, &run).unwrap(),
                expected,
                "{connections} {cpu_us}"
            );
        }
    }

    #[test]
    fn the_busiest_thread_is_one_of_the_threads_also_of_a_short_run() {
        let with = |length_us, of: [[u64; 2]; 2]| {
            let one = |cpu: [u64; 2]| Interval {
                thread_cpu_us: cpu.into(),
                cpu_us_max_thread: cpu[0].max(cpu[1]),
                length_us,
                ..second(0.0, 0, 0)
            };
            let client = report(of.map(one).into()).client;
            (client.cpu_fraction_max_thread, client.saturated)
        };
        assert_eq!(with(1_000_000, [[300_000, 100_000], [100_000, 400_000]]), (Some(0.25), false));
        assert_eq!(with(100_000, [[90_000, 10_000]; 2]), (Some(0.9), false));
        assert_eq!(with(500_000, [[400_000, 10_000]; 2]), (Some(0.8), true));
    }

    #[test]
    fn one_that_does_not_says_why() {
        for (cpu, delay, in_flight, saturated, word) in [
            (900_000, 1, 5_000_000, true, "of a core"),
            (500_000, 300, 5_000_000, true, "(limit 10%)"),
            (100_000, 300, 5_000_000, true, "it used little CPU"),
            (100_000, 300, 5_000_000, true, "is 30% of the response time's"),
            (100_000, 1, 9_000_000, false, "Little's law"),
        ] {
            let report = check(cpu, delay, in_flight);
            assert!(!report.valid && report.saturated == saturated, "{report:?}");
            assert!(report.why.unwrap().contains(word));
        }
    }

    /// Eight seconds, in each of which 20 answers took 10 ms; in `stalled` of them one of these was held up by 100 ms.
    fn with_stalls(stalled: usize) -> ClientReport {
        let of = |times_us: &[u64]| {
            let mut times = TimeHistogram::new();
            times_us.iter().for_each(|us| times.record(*us));
            times.encode()
        };
        let interval = |index: usize| {
            let delay = if index < stalled { 100_000 } else { 0 };
            let (mut delays, mut times) = ([0; 20], [10_000; 20]);
            (delays[0], times[0]) = (delay, 10_000 + delay);
            let (response_time, client_delay) = (of(&times), of(&delays));
            let in_flight_us = times.iter().sum();
            Interval { completed: 20, response_time, client_delay, ..second(index as f64, 1, in_flight_us) }
        };
        let intervals = (0..8).map(interval).collect();
        report(intervals).client
    }

    #[test]
    fn two_stalls_ruin_no_run_and_a_stall_in_every_second_does() {
        // Two stalls: 1250 us of a mean of 11 ms are more than a tenth.
        assert!(with_stalls(2).valid, "{:?}", with_stalls(2));
        assert!(with_stalls(8).saturated, "{:?}", with_stalls(8));
    }

    #[test]
    fn a_table_is_named_before_anything_else() {
        let tables = webdyno_model::client::ClientTables {
            local_ports_limit: Some(1000),
            local_ports_used_at_end: Some(1000),
            ..Default::default()
        };
        let mut interval = second(0.0, 900_000, 0);
        interval.connections.opened = 1000;
        (interval.failed, interval.errors.local_ports_exhausted) = (10, 10);
        let run = |interval: Interval| {
            let (tables, intervals) = (Some(tables), vec![interval]);
            let measurement = Measurement { tables, intervals, ..Measurement::default() };
            crate::run_report::run_report(&measurement).unwrap().client
        };
        let client = run(interval.clone());
        assert!(!client.valid && client.saturated);
        assert_eq!(
            client.why.unwrap(),
            "the run measured a kernel table, not the server: 1000 connections opened, and \
             net.ipv4.ip_local_port_range allows 1000"
        );
        interval.connections.opened = 500;
        interval.cpu_us_max_thread = 0;
        assert!(run(interval).why.unwrap().contains("no free local port of the 1000"));
    }
}
