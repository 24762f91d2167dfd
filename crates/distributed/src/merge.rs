//! The workers' seconds as seconds of the load: counts add up, histograms merge bucket by bucket, percentiles are those of the
//! merged histogram. It is what the engine does with its threads (`load/results/merge`), on encoded results.

use std::collections::BTreeMap;
use webdyno_model::Result;
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};
use webdyno_model::interval::{EndReason, Interval, LoadEnd, NamedInterval};
use webdyno_model::page::{NamedPageInterval, PageInterval, TraceKind};

/// What a worker has of a second.
pub enum Second<'a> {
    /// Its results.
    Interval(&'a Interval),
    /// It had ended, or was lost, and left so much in flight.
    Over {
        /// Requests.
        in_flight: u64,
        /// Pages.
        pages_in_flight: u64,
        /// Visitors.
        visitors: u64,
    },
}

/// Merges the same second of all workers, each with the number of its engine threads. An error when a histogram is damaged.
pub fn merge_second(seconds: &[(Second<'_>, u32)]) -> Result<Interval> {
    let there: Vec<&Interval> = seconds
        .iter()
        .filter_map(|(second, _)| match second {
            Second::Interval(interval) => Some(*interval),
            Second::Over { .. } => None,
        })
        .collect();
    let length_us = there.iter().map(|interval| interval.length_us).max().unwrap_or(0);
    let mut sum = Interval { length_us, ..Interval::default() };
    for (second, threads) in seconds {
        match second {
            Second::Interval(interval) => {
                sum.t_s = interval.t_s;
                add_counts(&mut sum, interval);
                // What is in flight at its end stays so until the others end.
                sum.in_flight_us += interval.in_flight * (length_us - interval.length_us);
                let missing = (*threads as usize).saturating_sub(interval.thread_cpu_us.len());
                sum.thread_cpu_us.extend(&interval.thread_cpu_us);
                sum.thread_cpu_us.extend(vec![0; missing]);
            }
            Second::Over { in_flight, visitors, .. } => {
                sum.in_flight += in_flight;
                sum.in_flight_us += in_flight * length_us;
                sum.visits.visitors += visitors;
                sum.thread_cpu_us.extend(vec![0; *threads as usize]);
            }
        }
    }
    merge_times(&mut sum, &there)?;
    sum.by_name = by_name(&there)?;
    sum.pages = pages(&there)?.map(|mut pages| {
        pages.in_flight += seconds.iter().map(|(second, _)| pages_left(second)).sum::<u64>();
        Box::new(pages)
    });
    Ok(sum)
}

fn pages_left(second: &Second<'_>) -> u64 {
    match second {
        Second::Over { pages_in_flight, .. } => *pages_in_flight,
        Second::Interval(_) => 0,
    }
}

/// Adds everything that is a count.
fn add_counts(sum: &mut Interval, of: &Interval) {
    sum.started += of.started;
    sum.completed += of.completed;
    sum.failed += of.failed;
    sum.in_flight += of.in_flight;
    sum.in_flight_us += of.in_flight_us;
    sum.bytes_received += of.bytes_received;
    sum.body_bytes += of.body_bytes;
    sum.bytes_sent += of.bytes_sent;
    for (status, answers) in &of.status {
        *sum.status.entry(status.clone()).or_default() += answers;
    }
    sum.errors.add(&of.errors);
    // Peaks add up: workers do not see each other's connections.
    let peak = sum.connections.peak + of.connections.peak;
    sum.connections.add(&of.connections);
    sum.connections.peak = peak;
    sum.tcp.add(&of.tcp);
    sum.stamps.add(&of.stamps);
    sum.redirects += of.redirects;
    sum.cpu_us += of.cpu_us;
    sum.cpu_us_max_thread = sum.cpu_us_max_thread.max(of.cpu_us_max_thread);
    let visitors = sum.visits.visitors + of.visits.visitors;
    sum.visits.add(&of.visits);
    sum.visits.visitors = visitors;
}

/// Merges every histogram.
fn merge_times(sum: &mut Interval, all: &[&Interval]) -> Result<()> {
    let merged = |pick: fn(&Interval) -> &Option<EncodedHistogram>| {
        merge_encoded(all.iter().map(|interval| pick(interval).as_ref()))
    };
    sum.response_time = merged(|interval| &interval.response_time)?;
    sum.service_time = merged(|interval| &interval.service_time)?;
    sum.connect_time = merged(|interval| &interval.connect_time)?;
    sum.first_byte = merged(|interval| &interval.first_byte)?;
    sum.client_delay = merged(|interval| &interval.client_delay)?;
    sum.failed_time = merged(|interval| &interval.failed_time)?;
    sum.tls_handshake = merged(|interval| &interval.tls_handshake)?;
    sum.receive_delay = merged(|interval| &interval.receive_delay)?;
    sum.round_trip = merged(|interval| &interval.round_trip)?;
    Ok(())
}

/// Merges encoded histograms; one alone stays as it is.
fn merge_encoded<'a>(
    all: impl Iterator<Item = Option<&'a EncodedHistogram>>,
) -> Result<Option<EncodedHistogram>> {
    let some: Vec<&EncodedHistogram> = all.flatten().collect();
    if let [one] = some[..] {
        return Ok(Some(one.clone()));
    }
    if some.is_empty() {
        return Ok(None);
    }
    let mut sum = TimeHistogram::new();
    some.into_iter().try_for_each(|encoded| sum.merge_encoded(encoded))?;
    Ok(sum.encode())
}

fn by_name(all: &[&Interval]) -> Result<BTreeMap<String, NamedInterval>> {
    let mut groups: BTreeMap<&String, Vec<&NamedInterval>> = BTreeMap::new();
    for (name, named) in all.iter().flat_map(|interval| &interval.by_name) {
        groups.entry(name).or_default().push(named);
    }
    let merge = |(name, of): (&String, Vec<&NamedInterval>)| {
        let response_time = merge_encoded(of.iter().map(|named| named.response_time.as_ref()))?;
        let count = |pick: fn(&NamedInterval) -> u64| of.iter().map(|named| pick(named)).sum();
        let (completed, failed) = (count(|named| named.completed), count(|named| named.failed));
        Ok((name.clone(), NamedInterval { completed, failed, response_time }))
    };
    groups.into_iter().map(merge).collect()
}

fn pages(all: &[&Interval]) -> Result<Option<PageInterval>> {
    let of: Vec<&PageInterval> = all.iter().filter_map(|interval| interval.pages.as_deref()).collect();
    if of.is_empty() {
        return Ok(None);
    }
    let mut groups: BTreeMap<&String, Vec<&NamedPageInterval>> = BTreeMap::new();
    for (name, named) in of.iter().flat_map(|pages| &pages.by_name) {
        groups.entry(name).or_default().push(named);
    }
    let merge = |(name, of): (&String, Vec<&NamedPageInterval>)| {
        let time = merge_encoded(of.iter().map(|named| named.time.as_ref()))?;
        let completed = of.iter().map(|named| named.completed).sum();
        let failed = of.iter().map(|named| named.failed).sum();
        Ok((name.clone(), NamedPageInterval { completed, failed, time }))
    };
    let count = |pick: fn(&PageInterval) -> u64| of.iter().map(|pages| pick(pages)).sum();
    let traces = || of.iter().flat_map(|pages| &pages.traces);
    let of_kind = |kind| traces().filter(move |trace| trace.kind == kind);
    // The slowest of those that were completed; the first of the typical ones is as good as another.
    let slowest = of_kind(TraceKind::Slowest).max_by_key(|trace| (!trace.failed, trace.time_us));
    Ok(Some(PageInterval {
        started: count(|pages| pages.started),
        completed: count(|pages| pages.completed),
        failed: count(|pages| pages.failed),
        in_flight: count(|pages| pages.in_flight),
        time: merge_encoded(of.iter().map(|pages| pages.time.as_ref()))?,
        by_name: groups.into_iter().map(merge).collect::<Result<_>>()?,
        traces: slowest.into_iter().chain(of_kind(TraceKind::Typical).next()).cloned().collect(),
    }))
}

/// Merges the workers' ends; at least one. `lost_in_flight` is what lost workers had in flight when they were heard last.
pub fn merge_ends(ends: &[&LoadEnd], lost_in_flight: u64, reason: EndReason) -> Result<LoadEnd> {
    Ok(LoadEnd {
        elapsed_us: ends.iter().map(|end| end.elapsed_us).max().unwrap_or(0),
        in_flight_at_end: lost_in_flight + ends.iter().map(|end| end.in_flight_at_end).sum::<u64>(),
        waiting_at_end: ends.iter().map(|end| end.waiting_at_end).sum(),
        censored_time: merge_encoded(ends.iter().map(|end| end.censored_time.as_ref()))?,
        thread_cpu_us: ends.iter().flat_map(|end| &end.thread_cpu_us).copied().collect(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn second(times_us: &[u64], in_flight: u64) -> Interval {
        let mut times = TimeHistogram::new();
        times_us.iter().for_each(|us| times.record(*us));
        let completed = times_us.len() as u64;
        let named = NamedInterval { completed, failed: 0, response_time: times.encode() };
        Interval {
            t_s: 3.0,
            length_us: 1_000_000,
            started: completed + in_flight,
            completed,
            in_flight,
            response_time: times.encode(),
            status: [("200".to_owned(), completed)].into(),
            thread_cpu_us: vec![completed, 1],
            by_name: [("/".to_owned(), named)].into(),
            ..Interval::default()
        }
    }

    proptest! {
        // Invariant: the merged second is the sum of the workers' own, and its percentiles are those of all times together.
        #[test]
        fn merged_is_the_sum_of_the_workers(
            of in prop::collection::vec((prop::collection::vec(1u64..2_000_000, 0..60), 0u64..9), 1..6)
        ) {
            let seconds: Vec<Interval> = of.iter().map(|(times, left)| second(times, *left)).collect();
            let inputs: Vec<_> = seconds.iter().map(|second| (Second::Interval(second), 2)).collect();
            let merged = merge_second(&inputs).unwrap();
            let mut all = TimeHistogram::new();
            of.iter().flat_map(|(times, _)| times).for_each(|us| all.record(*us));
            let mut read = TimeHistogram::new();
            merged.response_time.iter().for_each(|encoded| read.merge_encoded(encoded).unwrap());
            prop_assert_eq!(read.dist(), all.dist());
            prop_assert_eq!(merged.completed, all.count());
            prop_assert_eq!(merged.by_name["/"].completed, all.count());
            prop_assert_eq!(merged.status.values().sum::<u64>(), all.count());
            prop_assert_eq!(merged.started, merged.completed + merged.in_flight);
            prop_assert_eq!(merged.thread_cpu_us.len(), 2 * of.len());
            prop_assert_eq!(merged.t_s, 3.0);
        }
    }

    #[test]
    fn what_an_ended_worker_left_in_flight_stays_in_flight() {
        let half = Interval { length_us: 500_000, in_flight: 2, in_flight_us: 7, ..Interval::default() };
        let whole = Interval { length_us: 1_000_000, in_flight: 1, ..Interval::default() };
        let over = Second::Over { in_flight: 3, pages_in_flight: 0, visitors: 4 };
        let all = [(Second::Interval(&half), 1), (Second::Interval(&whole), 1), (over, 2)];
        let merged = merge_second(&all).unwrap();
        assert_eq!((merged.length_us, merged.in_flight), (1_000_000, 6));
        assert_eq!(merged.in_flight_us, 7 + 2 * 500_000 + 3 * 1_000_000);
        assert_eq!((merged.visits.visitors, merged.thread_cpu_us.len()), (4, 4));
    }

    #[test]
    fn ends_add_up() {
        let end = |elapsed_us, in_flight_at_end| LoadEnd {
            elapsed_us,
            in_flight_at_end,
            waiting_at_end: 1,
            censored_time: None,
            thread_cpu_us: vec![elapsed_us],
            reason: EndReason::Duration,
        };
        let merged = merge_ends(&[&end(5, 2), &end(7, 3)], 4, EndReason::Enough).unwrap();
        assert_eq!((merged.elapsed_us, merged.in_flight_at_end, merged.waiting_at_end), (7, 9, 2));
        assert_eq!((merged.thread_cpu_us, merged.reason), (vec![5, 7], EndReason::Enough));
    }
}
