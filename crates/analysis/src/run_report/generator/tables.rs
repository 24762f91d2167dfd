//! The tables of the generator's machine: whether the run ran out of one, or measured one instead of the server.
//!
//! A server that gets a new connection for each request stops at the size of the first table that fills: the run then
//! shows that size, divided by whatever time it took, as if it were a rate. A total of connections within 1% of such a
//! size is therefore suspected. Chance brings a total there too, so that two more things are asked: that the total is
//! not the one that was ordered (`-n`, `-c`, rate times time), and that the load ran into something: connections
//! failed or had to be begun again, or the opening of connections collapsed.

use crate::measurement::Measurement;
use webdyno_model::client::{ClientTables, KernelLimitTotal, TableReport};
use webdyno_model::interval::Interval;
use webdyno_model::run::RunReport;
use webdyno_model::workload::Arrival;

/// A total is at a limit when it differs by no more than this share of it.
const NEAR: f64 = 0.01;
/// TCP sends a lost SYN again after a second (RFC 6298, section 2).
const SYN_AGAIN_US: u64 = 1_000_000;
/// Seconds in which so much less was opened than in the usual one before show a wall.
const COLLAPSED_FRACTION: f64 = 0.5;
/// More failures than this share, for want of ports or descriptors, say that this machine was the limit.
const OWN_FAILURES_FRACTION_MAX: f64 = 0.001;

/// Open files of the generator.
pub(super) fn descriptors(measurement: &Measurement, run: &RunReport) -> Option<TableReport> {
    let tables = measurement.tables?;
    let at_end = tables.descriptors_used_at_end?;
    // Readings are a second apart; what the engine counted is never less.
    let peak = tables.descriptors_used_peak.unwrap_or(at_end).max(at_end).max(run.connections.peak);
    Some(TableReport::new(tables.descriptors_limit, peak, at_end))
}

/// Local ports towards the destination that takes most of them.
pub(super) fn local_ports(measurement: &Measurement, run: &RunReport) -> Option<TableReport> {
    let tables = measurement.tables?;
    let (limit, at_end) = (tables.local_ports_limit?, tables.local_ports_used_at_end?);
    let counted = if tables.destinations == Some(1) { run.connections.peak } else { 0 };
    let peak = tables.local_ports_used_peak.unwrap_or(at_end).max(at_end).max(counted);
    Some(TableReport::new(Some(limit), peak, at_end))
}

/// That requests failed because this machine had no more ports or descriptors.
pub(super) fn exhausted(run: &RunReport, local_ports: Option<TableReport>) -> Option<String> {
    let ended = (run.requests.completed + run.requests.failed) as f64;
    let ran_out = |count: u64| count as f64 > OWN_FAILURES_FRACTION_MAX * ended;
    let (ports, descriptors) = (run.errors.local_ports_exhausted, run.errors.no_descriptors);
    if ran_out(ports) {
        let requested = format!("{ports} requests found no free local port");
        let of = local_ports
            .and_then(|ports| ports.limit)
            .map_or(String::new(), |limit| format!(" of the {limit} towards one address"));
        return Some(format!("{requested}{of}: a limit of this machine, not of the server"));
    }
    ran_out(descriptors).then(|| {
        format!("{descriptors} requests got no file descriptor: a limit of this machine, not of the server")
    })
}

/// The table that the run measured instead of the server.
pub(super) fn kernel_limit_total(measurement: &Measurement) -> Option<KernelLimitTotal> {
    let all = &measurement.intervals;
    let connections: u64 = all.iter().map(|interval| interval.connections.opened).sum();
    let own = measurement.tables.map_or(vec![], |tables| limits(&tables));
    let (limit, value) = own
        .into_iter()
        .chain(server_limits(measurement))
        .find(|(_, value)| *value > 0 && near(connections, *value as f64))?;
    let signs = || dropped(all) || lost_syn(all) || collapsed(all);
    let wall = has_local_failures(all) || (!is_requested_total(measurement, connections) && signs());
    (wall && !exceeds_hold_time(all)).then(|| KernelLimitTotal { limit: limit.into(), value, connections })
}

fn near(connections: u64, value: f64) -> bool {
    (connections as f64 - value).abs() <= NEAR * value
}

/// What a total of connections may run into: each table by its size and by what was free in it. Descriptors are given
/// back when a connection closes, and so bound what is open at once, which is refused beforehand; still a total at
/// their limit is one that never gave any back.
fn limits(tables: &ClientTables) -> Vec<(&'static str, u64)> {
    let destinations = tables.destinations.unwrap_or(1).max(1);
    let ports = tables.local_ports_limit.map(|limit| limit * destinations);
    [
        ("net.ipv4.ip_local_port_range", ports, tables.local_ports_used_at_start),
        ("net.netfilter.nf_conntrack_max", tables.conntrack_limit, tables.conntrack_used_at_start),
        ("net.ipv4.tcp_max_tw_buckets", tables.time_wait_limit, None),
        ("RLIMIT_NOFILE", tables.descriptors_limit, None),
        ("fs.file-max", tables.files_limit, None),
    ]
    .into_iter()
    .filter_map(|(name, size, used)| Some((name, size?, used.unwrap_or(0))))
    .flat_map(|(name, size, used)| [(name, size), (name, size.saturating_sub(used))])
    .collect()
}

/// The same of the server's machine, where it was observed.
fn server_limits(measurement: &Measurement) -> Vec<(&'static str, u64)> {
    let first = |metric: &str| {
        let mut values = measurement.samples.iter().filter_map(|timed| timed.sample.values.get(metric));
        values.next().map(|number| number.0.max(0.0) as u64)
    };
    let used = first("sockets.conntrack_count").unwrap_or(0);
    let tracked = first("sockets.conntrack_limit_count");
    let tables = [
        ("net.netfilter.nf_conntrack_max of the server", tracked),
        ("net.netfilter.nf_conntrack_max of the server", tracked.map(|size| size.saturating_sub(used))),
        ("net.ipv4.tcp_max_tw_buckets of the server", first("sockets.time_wait_limit_count")),
    ];
    tables.into_iter().filter_map(|(name, size)| Some((name, size?))).collect()
}

/// Whether the total is the one that the user ordered: kept connections are opened once each to each address, or a
/// little more often; a number of requests or a rate for a time makes so many.
fn is_requested_total(measurement: &Measurement, connections: u64) -> bool {
    let Some(workload) = &measurement.workload else { return false };
    let kept = u64::from(workload.connections);
    let number = workload.stop.requests.unwrap_or(u64::MAX);
    let started: u64 = measurement.intervals.iter().map(|interval| interval.started).sum();
    if workload.keepalive {
        // To each address; some were closed and opened again.
        let destinations = measurement.tables.and_then(|tables| tables.destinations).unwrap_or(1).max(1);
        let requested = |addresses: u64| (kept * addresses).min(number);
        return (1..=destinations).any(|addresses| {
            connections >= requested(addresses) && near(connections, requested(addresses) as f64)
        });
    }
    // A few still connect at the end; at a wall it is many.
    let at_end = measurement.intervals.last().map_or(0, |last| last.in_flight);
    let connecting = at_end.min((started / 1000).max(CONNECTING_AT_END));
    connections == number || (workload.arrival != Arrival::Closed && connections + connecting >= started)
}

/// So many may still connect when a load ends, however few there were.
const CONNECTING_AT_END: u64 = 2;

/// Whether the load came to a standstill at such a total, or this machine had no more of something. A lost packet or two have other
/// causes as well, and may be there where a total is near to a size by chance.
pub(crate) fn opening_stopped(measurement: &Measurement) -> bool {
    has_local_failures(&measurement.intervals) || collapsed(&measurement.intervals)
}

/// Requests failed because this machine had no more of something.
fn has_local_failures(all: &[Interval]) -> bool {
    all.iter().any(|interval| interval.errors.local_ports_exhausted + interval.errors.no_descriptors > 0)
}

/// Connections failed in a way that a full table explains, here or on the way.
fn dropped(all: &[Interval]) -> bool {
    all.iter().any(|interval| interval.errors.connect_timeout + interval.errors.unreachable > 0)
}

/// A connection came about only after a SYN was sent again.
fn lost_syn(all: &[Interval]) -> bool {
    let longest = all.iter().filter_map(|interval| Some(interval.connect_time.as_ref()?.max_us));
    longest.max().is_some_and(|us| us >= SYN_AGAIN_US)
}

/// In the last third of the whole seconds far fewer connections were opened than before.
fn collapsed(all: &[Interval]) -> bool {
    let whole = all.iter().filter(|interval| interval.length_us >= 900_000);
    let opened: Vec<f64> = whole.map(|interval| interval.connections.opened as f64).collect();
    let (before, last) = opened.split_at(opened.len() - opened.len() / 3);
    let usual = |part: &[f64]| crate::measurement::statistics::median(part);
    matches!((usual(before), usual(last)), (Some(before), Some(last)) if last < COLLAPSED_FRACTION * before)
}

/// A second in which fewer connections were opened than this share of those of the busiest one is one at a wall: a table that
/// is full still makes room for some, as it gives up entries that are about to end.
const STANDSTILL_FRACTION: f64 = 0.005;
/// So many seconds in a row are a standstill, or the end of one.
const STANDSTILL_SECONDS: usize = 2;

/// Whether places came free again after the table was full: the load went on for longer than they are held, and has measured
/// what goes through in the long run, whatever its total is near to.
fn exceeds_hold_time(all: &[Interval]) -> bool {
    let opened: Vec<u64> = all
        .iter()
        .filter(|interval| interval.length_us >= 900_000)
        .map(|interval| interval.connections.opened)
        .collect();
    let least = STANDSTILL_FRACTION * opened.iter().copied().max().unwrap_or(0) as f64;
    let moves: Vec<bool> = opened.iter().map(|opened| *opened as f64 > least).collect();
    let stood = moves.windows(STANDSTILL_SECONDS).rposition(|seconds| !seconds.contains(&true));
    let went_on = moves.len() >= STANDSTILL_SECONDS
        && moves[moves.len() - STANDSTILL_SECONDS..].iter().all(|moves| *moves);
    stood.is_some() && went_on
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::sample;
    use webdyno_model::histogram::TimeHistogram;
    use webdyno_model::workload::{Stop, Workload};

    const TABLES: ClientTables = ClientTables {
        descriptors_limit: Some(1_048_576),
        descriptors_used_peak: Some(30),
        descriptors_used_at_end: Some(20),
        local_ports_limit: Some(28_232),
        destinations: Some(1),
        local_ports_used_at_start: Some(0),
        local_ports_used_peak: Some(28_232),
        local_ports_used_at_end: Some(28_000),
        conntrack_limit: Some(65_536),
        conntrack_used_at_start: Some(536),
        time_wait_limit: Some(131_072),
        files_limit: None,
    };

    /// So many connections in each second.
    fn opening(per_second: &[u64]) -> Measurement {
        let second = |(index, opened): (usize, &u64)| {
            let mut interval =
                Interval { t_s: index as f64, length_us: 1_000_000, started: *opened, ..Interval::default() };
            interval.connections.opened = *opened;
            interval
        };
        let intervals = per_second.iter().enumerate().map(second).collect();
        let workload = Workload { keepalive: false, ..Workload::default() };
        Measurement { intervals, workload: Some(workload), tables: Some(TABLES), ..Measurement::default() }
    }

    fn limit(measurement: &Measurement) -> Option<(String, u64)> {
        kernel_limit_total(measurement).map(|total| (total.limit, total.value))
    }

    /// As fast as it goes until the table is full, then nothing.
    fn walled(total: u64) -> Measurement {
        opening(&[total / 4, total / 4, total / 4, total - 3 * (total / 4), 0, 0, 0])
    }

    #[test]
    fn a_total_at_a_limit_that_the_load_ran_into_is_named() {
        let ports = |value| Some(("net.ipv4.ip_local_port_range".to_owned(), value));
        let conntrack = |value| Some(("net.netfilter.nf_conntrack_max".to_owned(), value));
        for (total, expected) in [
            (28_232, ports(28_232)),
            (27_950, ports(28_232)),
            (28_514, ports(28_232)),
            (27_949, None),
            (28_515, None),
            (65_536, conntrack(65_536)),
            // As many as were free.
            (64_400, conntrack(65_000)),
            (131_000, Some(("net.ipv4.tcp_max_tw_buckets".to_owned(), 131_072))),
            (0, None),
            (10_000, None),
        ] {
            assert_eq!(limit(&walled(total)), expected, "{total}");
        }
        assert_eq!(limit(&Measurement { tables: None, ..walled(28_232) }), None);
    }

    #[test]
    fn a_load_that_outlives_the_table_measures_what_goes_through() {
        for (seconds, flagged) in [
            (&[14_116, 14_000, 0, 0, 0, 0][..], true),
            // Room for a few is made at the wall, too.
            (&[14_116, 14_000, 0, 3, 2, 4][..], true),
            (&[14_116, 14_000, 0, 0, 90, 75][..], false),
            // Less is opened, but it never stood still: users wait for lost packets.
            (&[14_000, 13_000, 300, 400, 200, 300][..], true),
        ] {
            assert_eq!(limit(&opening(seconds)).is_some(), flagged, "{seconds:?}");
        }
    }

    #[test]
    fn the_tables_of_an_observed_server_count_too() {
        let tables = [
            ("sockets.conntrack_limit_count", 10_240.0),
            ("sockets.conntrack_count", 240.0),
            ("sockets.time_wait_limit_count", 5_000.0),
        ];
        for (total, value) in
            [(10_230, Some(10_240)), (10_000, Some(10_000)), (5_000, Some(5_000)), (9_000, None)]
        {
            let samples = vec![sample(0.0, "sockets", &tables)];
            let found = limit(&Measurement { samples, ..walled(total) });
            assert_eq!(found.as_ref().map(|(_, value)| *value), value, "{total}");
            assert!(found.is_none_or(|(name, _)| name.ends_with("of the server")));
        }
    }

    #[test]
    fn any_sign_of_a_wall_is_enough_and_without_one_it_is_chance() {
        let even = opening(&[2823; 10]);
        assert_eq!(limit(&even), None);
        let mut lost = TimeHistogram::new();
        lost.record(1_040_000);
        type Set = fn(&mut Interval, &TimeHistogram);
        let signs: [(Set, bool); 4] = [
            (|interval, _| interval.errors.local_ports_exhausted = 1, true),
            (|interval, _| interval.errors.connect_timeout = 1, false),
            (|interval, _| interval.errors.unreachable = 1, false),
            (|interval, lost| interval.connect_time = lost.encode(), false),
        ];
        for (sign, proves) in signs {
            let mut with = even.clone();
            sign(&mut with.intervals[7], &lost);
            assert!(limit(&with).is_some(), "{:?}", with.intervals[7]);
            assert_eq!(opening_stopped(&with), proves, "{:?}", with.intervals[7]);
        }
        assert!(opening_stopped(&walled(28_232)) && !opening_stopped(&even));
    }

    #[test]
    fn what_was_ordered_is_no_limit() {
        let with = |change: fn(&mut Measurement)| {
            let mut measurement = walled(28_232);
            change(&mut measurement);
            limit(&measurement).is_some()
        };
        let workload = |measurement: &mut Measurement, keepalive, connections, requests| {
            let stop = Stop { duration_us: None, requests };
            measurement.workload = Some(Workload { keepalive, connections, stop, ..Workload::default() });
        };
        // Each connection is opened once and kept.
        assert!(!with(|m| m.workload = Some(Workload { connections: 28_232, ..Workload::default() })));
        let ordered: [(bool, u32, Option<u64>, bool); 5] = [
            (true, 28_232, None, false),
            (true, 50, None, true),
            (false, 50, Some(28_232), false),
            // More were ordered than came about.
            (false, 50, Some(28_400), true),
            (true, 28_400, None, true),
        ];
        for (keepalive, connections, requests, flagged) in ordered {
            let mut measurement = walled(28_232);
            workload(&mut measurement, keepalive, connections, requests);
            assert_eq!(
                limit(&measurement).is_some(),
                flagged,
                "{keepalive} -c {connections} -n {requests:?}"
            );
            // Who runs out of ports did not choose the number well.
            measurement.intervals[4].errors.local_ports_exhausted = 168;
            assert!(limit(&measurement).is_some());
        }
        let open = |m: &mut Measurement, rate_per_s| {
            let arrival = Arrival::Open { rate_per_s, poisson: true };
            m.workload = Some(Workload { arrival, keepalive: false, ..Workload::default() });
        };
        let mut at_a_rate = walled(28_232);
        open(&mut at_a_rate, 4000.0);
        assert_eq!(limit(&at_a_rate), None);
        at_a_rate.intervals[5].started = 4000;
        assert!(limit(&at_a_rate).is_some());
    }

    #[test]
    fn a_lost_syn_makes_no_wall_of_what_was_ordered() {
        let mut lost = TimeHistogram::new();
        lost.record(1_040_000);
        let check = |workload: Workload, opened: u64, still: u64, destinations| {
            let mut measurement = opening(&[opened / 10; 10]);
            measurement.intervals[0].connections.opened += opened % 10;
            let last = &mut measurement.intervals[9];
            (last.connect_time, last.in_flight) = (lost.encode(), still);
            last.started += opened % 10 + still;
            let tables = ClientTables { destinations: Some(destinations), ..TABLES };
            let tables = Some(ClientTables { conntrack_limit: Some(28_300), ..tables });
            kernel_limit_total(&Measurement { workload: Some(workload), tables, ..measurement }).is_some()
        };
        let kept = |connections| Workload { connections, ..Workload::default() };
        // Some of the kept ones were opened again; two addresses have twice as many.
        assert!(!check(kept(28_000), 28_040, 0, 1) && !check(kept(14_116), 28_232, 0, 2));
        assert!(check(kept(50), 28_040, 0, 1) && check(kept(14_116), 28_232, 0, 1));
        let arrival = Arrival::Open { rate_per_s: 2800.0, poisson: false };
        let open = Workload { arrival, keepalive: false, ..Workload::default() };
        // One request still connects at the end; of a wall there are many.
        assert!(!check(open.clone(), 27_999, 1, 1) && check(open, 27_999, 400, 1));
    }

    #[test]
    fn small_tables_need_a_wall_too_and_several_destinations_have_more_ports() {
        let with = |measurement: Measurement, ports, destinations| {
            let tables = ClientTables { local_ports_limit: Some(ports), destinations, ..TABLES };
            limit(&Measurement { tables: Some(tables), ..measurement }).map(|(_, value)| value)
        };
        assert_eq!(with(opening(&[10; 10]), 100, Some(1)), None);
        assert_eq!(with(walled(100), 100, Some(1)), Some(100));
        assert_eq!(with(walled(100), 100, Some(2)), None);
        assert_eq!(with(walled(200), 100, Some(2)), Some(200));
        // A load of a second or two has nothing to collapse from.
        assert_eq!(with(opening(&[100]), 100, Some(1)), None);
    }

    #[test]
    fn what_is_left_is_told_at_the_peak() {
        let mut run = RunReport::default();
        run.connections.peak = 500;
        let measurement = opening(&[]);
        let expected = TableReport {
            limit: Some(1_048_576),
            used_peak: 500,
            used_at_end: 20,
            left_at_peak: Some(1_048_076),
        };
        assert_eq!(descriptors(&measurement, &run), Some(expected));
        let expected = TableReport {
            limit: Some(28_232),
            used_peak: 28_232,
            used_at_end: 28_000,
            left_at_peak: Some(0),
        };
        assert_eq!(local_ports(&measurement, &run), Some(expected));
        assert_eq!(descriptors(&Measurement { tables: None, ..measurement }, &run), None);
    }

    #[test]
    fn requests_without_ports_or_descriptors_spoil_a_run_and_a_few_of_them_do_not() {
        let of = |ports, descriptors| {
            let mut run = RunReport::default();
            (run.requests.completed, run.requests.failed) =
                (100_000 - ports - descriptors, ports + descriptors);
            (run.errors.local_ports_exhausted, run.errors.no_descriptors) = (ports, descriptors);
            exhausted(&run, Some(TableReport::new(Some(28_232), 28_232, 28_232)))
        };
        assert_eq!((of(0, 0), of(100, 0), of(0, 100)), (None, None, None));
        assert!(of(101, 0).unwrap().contains("101 requests found no free local port of the 28232"));
        assert!(of(0, 101).unwrap().contains("no file descriptor"));
    }
}
