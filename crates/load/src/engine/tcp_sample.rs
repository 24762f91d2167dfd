//! A sample of the connections whose TCP is read: at their start, once a second, and at their end.
//!
//! A reading costs a system call of about a microsecond: at most [`SAMPLED_MAX`] connections of a thread are in the
//! sample at a time, and no more than [`JOIN_PER_S`] join it in a second, however many there are.

use super::Engine;
use super::conn::token;
use crate::io::network_io::NetworkIo;
use crate::io::tcp_info::TcpReading;
use crate::results::recorder::Report;
use webdyno_model::interval::TcpCounts;

/// Most connections of a thread in the sample at a time.
const SAMPLED_MAX: u32 = 64;
/// Most connections that join it in a second, after the first ones.
const JOIN_PER_S: u64 = 64;
const NS_PER_S: u64 = 1_000_000_000;

/// Which connections are in the sample.
#[derive(Debug)]
pub(super) struct TcpSample {
    every: u64,
    opened: u64,
    /// The tokens of those that are in it.
    tokens: Vec<u64>,
    /// How many more may join, in units of `1 / NS_PER_S`.
    credit: u64,
    credited_ns: u64,
}

impl TcpSample {
    /// Of a thread that opens at most this many connections at once: spread over all of them.
    pub(super) fn new(open_max: u32) -> Self {
        Self {
            every: u64::from(open_max.div_ceil(SAMPLED_MAX)).max(1),
            opened: 0,
            tokens: Vec::with_capacity(SAMPLED_MAX as usize),
            credit: u64::from(SAMPLED_MAX) * NS_PER_S,
            credited_ns: 0,
        }
    }

    /// A connection was opened: whether it joins.
    fn joins(&mut self, token: u64, now_ns: u64) -> bool {
        self.opened += 1;
        let turn = (self.opened - 1).is_multiple_of(self.every);
        if !turn || self.tokens.len() >= SAMPLED_MAX as usize {
            return false;
        }
        let gained = now_ns.saturating_sub(self.credited_ns).saturating_mul(JOIN_PER_S);
        self.credit = self.credit.saturating_add(gained).min(u64::from(SAMPLED_MAX) * NS_PER_S);
        self.credited_ns = now_ns;
        if self.credit < NS_PER_S {
            return false;
        }
        self.credit -= NS_PER_S;
        self.tokens.push(token);
        true
    }
}

/// What a reading adds to the counts, after the one before. A connection has sent its SYN before its first reading, and
/// what it had sent again by then are SYNs: it is read as soon as its first request is being sent.
fn count(counts: &mut TcpCounts, before: Option<TcpReading>, now: &TcpReading) {
    let base = before.unwrap_or_default();
    let retransmitted = u64::from(now.segments_retransmitted.wrapping_sub(base.segments_retransmitted));
    let sent = u64::from(now.data_segments_sent.wrapping_sub(base.data_segments_sent));
    counts.readings += 1;
    counts.segments_retransmitted += retransmitted;
    counts.segments_sent += sent + if before.is_none() { 1 + retransmitted } else { 0 };
    counts.round_trip_min_us = [counts.round_trip_min_us, now.round_trip_min_us].into_iter().flatten().min();
}

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    /// A connection was established: it is read when it joins the sample.
    pub(super) fn sample_opened(&mut self, slot: u32) {
        let token = token(slot, self.conns[slot as usize].generation);
        if self.sample.joins(token, self.now_ns) {
            self.read_tcp(slot);
        }
    }

    /// Reads the whole sample: at the end of each interval.
    pub(super) fn read_sample(&mut self) {
        for index in 0..self.sample.tokens.len() {
            self.read_tcp(self.sample.tokens[index] as u32);
        }
    }

    /// A connection is about to be closed: its last reading, when it is in the sample.
    pub(super) fn sample_closed(&mut self, slot: u32) {
        if self.conns[slot as usize].tcp.is_some() {
            self.read_tcp(slot);
        }
        let token = token(slot, self.conns[slot as usize].generation);
        self.sample.tokens.retain(|sampled| *sampled != token);
        self.conns[slot as usize].tcp = None;
    }

    fn read_tcp(&mut self, slot: u32) {
        let Some(reading) = self.io.tcp_info(slot) else { return };
        let before = self.conns[slot as usize].tcp.replace(reading);
        let report = &mut *self.recorder.report;
        count(&mut report.tcp, before, &reading);
        if let Some(round_trip_us) = reading.round_trip_us {
            report.round_trip.record(round_trip_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(open_max: u32, opened: u64, gap_ns: u64, keep: usize) -> Vec<u64> {
        let mut sample = TcpSample::new(open_max);
        let joined = (0..opened).filter(|&token| {
            let joins = sample.joins(token, token * gap_ns);
            let surplus = sample.tokens.len().saturating_sub(keep);
            sample.tokens.drain(..surplus);
            joins
        });
        joined.collect()
    }

    #[test]
    fn the_sample_is_spread_over_all_connections_and_bounded() {
        assert_eq!(joined(3, 3, 0, usize::MAX), [0, 1, 2]);
        assert_eq!(joined(64, 64, 0, usize::MAX).len(), 64);
        let many = joined(5_000, 5_000, 0, usize::MAX);
        assert_eq!((many.len(), many[1], many[2]), (64, 79, 158));
        // Nothing joins while it is full.
        assert_eq!(joined(64, 500, 1_000_000_000, usize::MAX).len(), 64);
    }

    #[test]
    fn short_connections_join_at_a_bounded_rate_spread_over_time() {
        // Ten thousand a second for two seconds, ten of them open at a time.
        let short = joined(10, 20_000, 100_000, 10);
        assert!((190..=192).contains(&short.len()), "{}", short.len());
        let second_half = short.iter().filter(|&&token| token >= 10_000).count();
        assert!((63..=65).contains(&second_half), "{second_half}");
    }

    #[test]
    fn counts_are_differences_and_syns_count_once() {
        let reading = |data, unread, min| TcpReading {
            round_trip_us: None,
            round_trip_min_us: min,
            data_segments_sent: data,
            segments_retransmitted: unread,
        };
        let mut counts = TcpCounts::default();
        let first = reading(1, 2, Some(90));
        count(&mut counts, None, &first);
        // A SYN, its two repetitions, and the request.
        assert_eq!((counts.segments_sent, counts.segments_retransmitted), (4, 2));
        let second = reading(11, 3, Some(80));
        count(&mut counts, Some(first), &second);
        count(&mut counts, Some(second), &second);
        let expected = TcpCounts {
            readings: 3,
            segments_sent: 14,
            segments_retransmitted: 3,
            round_trip_min_us: Some(80),
        };
        assert_eq!(counts, expected);
        count(&mut counts, Some(reading(u32::MAX, u32::MAX, None)), &reading(1, 0, None));
        assert_eq!((counts.segments_sent, counts.segments_retransmitted), (16, 4));
    }
}
