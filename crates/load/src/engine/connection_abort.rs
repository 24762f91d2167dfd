//! When a load with a fixed number of requests is aborted because no connection can be established.
//!
//! In closed arrival a user without a connection pauses up to a second before it tries again, so a large number of
//! requests against a server that has died would last for hours and end in nothing but errors. Loads with a duration
//! end by themselves and may well outlast a restart of the server; in open arrival the rate bounds the time: both go
//! on.

use crate::plan::Plan;
use webdyno_model::interval::Interval;
use webdyno_model::workload::Arrival;

/// Seconds without a connection, and with failed attempts, after which a load of a fixed number of requests is aborted.
/// Longer than a server's restart.
const ABORT_AFTER_S: u32 = 30;

/// Examines each interval of a load.
pub(crate) struct ConnectionAbort {
    /// `None`: this load is never aborted.
    limit_s: Option<u32>,
    /// Seconds without a connection so far.
    disconnected_s: u32,
    /// Attempts that failed in them.
    failed: u64,
}

impl ConnectionAbort {
    /// For this load.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self::after_seconds(plan, ABORT_AFTER_S)
    }

    /// For this load, with a patience of this many seconds.
    pub(crate) fn after_seconds(plan: &Plan, limit_s: u32) -> Self {
        let applies =
            plan.arrival == Arrival::Closed && plan.requests.is_some() && plan.duration_ns.is_none();
        Self { limit_s: applies.then_some(limit_s), disconnected_s: 0, failed: 0 }
    }

    /// Adds the next interval. True when the load should be aborted.
    pub(crate) fn should_abort(&mut self, interval: &Interval) -> bool {
        // Whatever carried a request, or may still answer one, is a connection.
        if interval.connections.peak > 0 || interval.completed > 0 {
            (self.disconnected_s, self.failed) = (0, 0);
            return false;
        }
        self.disconnected_s += 1;
        self.failed += interval.failed;
        self.limit_s.is_some_and(|limit_s| self.disconnected_s >= limit_s) && self.failed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::interval::ConnectionCounts;

    fn second(completed: u64, failed: u64, peak: u64) -> Interval {
        let connections = ConnectionCounts { peak, ..ConnectionCounts::default() };
        Interval { completed, failed, connections, ..Interval::default() }
    }

    #[test]
    fn the_load_aborts_after_seconds_without_a_connection() {
        let dead = second(0, 5, 0);
        let waiting = second(0, 0, 0);
        for (seconds, lost) in [
            (vec![dead.clone(), dead.clone(), dead.clone()], true),
            (vec![dead.clone(), dead.clone()], false),
            // Attempts that time out are far between.
            (vec![dead.clone(), waiting.clone(), waiting.clone()], true),
            // Nothing has failed yet.
            (vec![waiting.clone(), waiting.clone(), waiting.clone()], false),
            // It came back in between, or a request is still being answered.
            (vec![dead.clone(), second(1, 4, 1), dead.clone(), dead.clone()], false),
            (vec![dead.clone(), dead.clone(), second(0, 5, 1)], false),
            // Failures of the server's own, on connections, are results.
            (vec![second(0, 9, 2), second(0, 9, 2), second(0, 9, 2)], false),
        ] {
            let mut connection_abort = ConnectionAbort { limit_s: Some(3), disconnected_s: 0, failed: 0 };
            assert_eq!(
                seconds.iter().any(|interval| connection_abort.should_abort(interval)),
                lost,
                "{seconds:?}"
            );
            let mut never = ConnectionAbort { limit_s: None, disconnected_s: 0, failed: 0 };
            assert!(!seconds.iter().any(|interval| never.should_abort(interval)));
        }
    }
}
