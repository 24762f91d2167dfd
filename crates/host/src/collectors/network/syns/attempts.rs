//! What the first packets of connections tell: which of them their clients had to send again.
//!
//! Facts: RFC 6298: without an answer a SYN is sent again after 1 s (3 s before 2011), then 2, 4, 8 ... later, with the same
//! ports and sequence number. A packet that passes several interfaces of a machine (a bridge) is seen more than once, but
//! within microseconds.
//!
//! Who is refused for good (a blocked address) sends everything again. Such clients say nothing about the others: of an
//! address counts only what was lost if one of its connections had its answer at once.

use super::filter::Syn;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// What comes sooner is the same packet on its way through the machine.
const AGAIN_MIN: Duration = Duration::from_millis(500);
/// Whoever had no answer has sent again by then.
const ANSWERED_AFTER: Duration = Duration::from_millis(1_500);
/// The longest pause before the sixth retransmit, and some more.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(40);

#[derive(Debug)]
struct Attempt {
    first: Duration,
    last: Duration,
    is_again: bool,
}

/// A client's address.
#[derive(Debug, Default)]
struct Source {
    /// Whether one of its connections had its answer at once.
    is_answered: bool,
    /// Connections begun again before that.
    again_count: u64,
    last: Duration,
}

/// Connections of clients that get through.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    pub connections: u64,
    /// Those of them whose first packet was sent again.
    pub retransmitted: u64,
}

impl Counted {
    fn add(&mut self, connections: u64, retransmitted: u64) {
        self.connections += connections;
        self.retransmitted += retransmitted;
    }
}

/// What is under way. All times are of one clock.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    open: HashMap<Syn, Attempt>,
    sources: HashMap<IpAddr, Source>,
}

impl Attempts {
    /// Notes a packet.
    pub(super) fn add(&mut self, syn: Syn, at: Duration, counted: &mut Counted) {
        let attempt = self.open.entry(syn).or_insert(Attempt { first: at, last: at, is_again: false });
        attempt.last = attempt.last.max(at);
        if attempt.is_again || at.saturating_sub(attempt.first) < AGAIN_MIN {
            return;
        }
        attempt.is_again = true;
        let source = self.sources.entry(syn.source).or_default();
        source.last = source.last.max(at);
        match source.is_answered {
            true => counted.add(1, 1),
            false => source.again_count += 1,
        }
    }

    /// Counts what has its answer by now, and forgets what nobody will send again.
    pub(super) fn settle(&mut self, now: Duration, counted: &mut Counted) {
        let sources = &mut self.sources;
        self.open.retain(|syn, attempt| {
            if attempt.is_again {
                return now.saturating_sub(attempt.last) < GIVEN_UP_AFTER;
            }
            let is_answered = now.saturating_sub(attempt.first) >= ANSWERED_AFTER;
            if is_answered {
                let source = sources.entry(syn.source).or_default();
                (source.is_answered, source.last) = (true, source.last.max(attempt.first));
                counted.add(1 + source.again_count, source.again_count);
                source.again_count = 0;
            }
            !is_answered
        });
        sources.retain(|_, source| now.saturating_sub(source.last) < GIVEN_UP_AFTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of clients by their last byte, port and time in milliseconds, in the order of their times.
    fn counted(packets: &[(u8, u16, u64)], until_ms: u64) -> (u64, u64) {
        let (mut attempts, mut counted) = (Attempts::default(), Counted::default());
        let mut packets = packets.to_vec();
        packets.sort_by_key(|(_, _, at_ms)| *at_ms);
        for second_ms in (0..=until_ms).step_by(1000) {
            for (host, source_port, at_ms) in &packets {
                if (second_ms..second_ms + 1000).contains(at_ms) {
                    let syn =
                        Syn { source: [10, 0, 0, *host].into(), source_port: *source_port, sequence: 1 };
                    attempts.add(syn, Duration::from_millis(*at_ms), &mut counted);
                }
            }
            attempts.settle(Duration::from_millis(second_ms + 1000), &mut counted);
        }
        (counted.connections, counted.retransmitted)
    }

    #[test]
    fn connections_that_were_begun_again_are_counted_once() {
        let first_tries: Vec<_> = (0..20).map(|n| (1, 1000 + n, 100 * u64::from(n))).collect();
        assert_eq!(counted(&first_tries, 9_000), (20, 0));
        // One of them needed three packets, another two.
        let again = [(1, 1003, 1_310), (1, 1003, 3_320), (1, 1005, 1_505)];
        assert_eq!(counted(&[&first_tries[..], &again].concat(), 9_000), (20, 2));
        // Seen on the bridge, too.
        let twice = [&first_tries[..], &first_tries].concat();
        assert_eq!(counted(&twice, 9_000), (20, 0));
    }

    #[test]
    fn who_never_gets_through_does_not_count() {
        let blocked = |host| [1, 1_000, 3_000, 7_000].map(|at_ms| (host, 5000, at_ms));
        assert_eq!(counted(&blocked(9), 20_000), (0, 0));
        assert_eq!(counted(&[&blocked(9)[..], &[(1, 1, 10)]].concat(), 20_000), (1, 0));
        // Whoever does later has lost the first one.
        assert_eq!(counted(&[&blocked(9)[..], &[(9, 1, 9_000)]].concat(), 20_000), (2, 1));
    }

    #[test]
    fn nothing_is_kept_for_ever() {
        let (mut attempts, mut counted) = (Attempts::default(), Counted::default());
        for host in 0..200 {
            let syn = Syn { source: [10, 0, 0, host].into(), source_port: 1, sequence: 1 };
            for at_s in [1, 2] {
                attempts.add(syn, Duration::from_secs(at_s), &mut counted);
            }
        }
        attempts.settle(Duration::from_secs(41), &mut counted);
        assert_eq!((attempts.open.len(), attempts.sources.len()), (200, 200));
        attempts.settle(Duration::from_secs(43), &mut counted);
        assert_eq!((attempts.open.len(), attempts.sources.len()), (0, 0));
    }
}
