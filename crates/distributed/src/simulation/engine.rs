//! A simulated engine: open arrival at an even rate, of which it sends the numbers of its share.

use crate::protocol::S;
use webdyno_model::interval::{EndReason, Interval, LoadEnd};
use webdyno_model::worker::LoadShare;

/// Starts per second of the whole load.
pub(super) const RATE: u64 = 20;
/// Its length.
pub(super) const SECONDS: u64 = 12;

/// One engine that runs, on its machine's clock.
#[derive(Debug)]
pub(super) struct Engine {
    share: LoadShare,
    pub(super) at_ns: u64,
    /// The next number that it may send.
    next: u64,
    /// Whole seconds that it reported.
    seconds: u64,
    completed_here: u64,
    pub(super) stopped: Option<EndReason>,
    /// It sends nothing later.
    pub(super) until_ns: u64,
}

/// What it does at a moment.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) sent: Vec<u64>,
    pub(super) intervals: Vec<Interval>,
    pub(super) end: Option<LoadEnd>,
}

impl Engine {
    pub(super) fn new((share, from_s): (LoadShare, u64), at_ns: u64, until_ns: u64) -> Self {
        Self {
            share,
            at_ns,
            next: from_s * RATE,
            seconds: from_s,
            completed_here: 0,
            stopped: None,
            until_ns,
        }
    }

    /// Sends what is due until now, and reports.
    pub(super) fn advance(&mut self, now_ns: u64) -> Progress {
        let mut progress = Progress::default();
        if now_ns >= self.until_ns {
            self.stopped.get_or_insert(EndReason::Interrupted);
        }
        let now_ns = now_ns.min(self.until_ns);
        let elapsed_ns = now_ns.saturating_sub(self.at_ns).min(SECONDS * S);
        // One that was stopped sends nothing more.
        let sends_until_ns = if self.stopped.is_some() { 0 } else { elapsed_ns };
        loop {
            let second_ends_ns = (self.seconds + 1) * S;
            let until_ns = sends_until_ns.min(second_ends_ns);
            while self.next * S / RATE < until_ns {
                let thread = self.next % u64::from(self.share.total_threads);
                let first = u64::from(self.share.first_thread);
                if (first..first + u64::from(self.share.threads)).contains(&thread) {
                    progress.sent.push(self.next);
                    self.completed_here += 1;
                }
                self.next += 1;
            }
            if elapsed_ns < second_ends_ns || self.stopped.is_some() {
                break;
            }
            progress.intervals.push(self.interval(S));
            self.seconds += 1;
            if self.seconds == SECONDS {
                progress.end = Some(self.end(SECONDS * S, EndReason::Duration));
                return progress;
            }
        }
        if let Some(reason) = self.stopped {
            let rest_ns = elapsed_ns.saturating_sub(self.seconds * S).min(S);
            if rest_ns > 0 {
                progress.intervals.push(self.interval(rest_ns));
            }
            progress.end = Some(self.end(elapsed_ns, reason));
        }
        progress
    }

    fn interval(&mut self, length_ns: u64) -> Interval {
        let completed = std::mem::take(&mut self.completed_here);
        Interval {
            t_s: self.seconds as f64,
            length_us: length_ns / 1000,
            started: completed,
            completed,
            ..Interval::default()
        }
    }

    fn end(&self, elapsed_ns: u64, reason: EndReason) -> LoadEnd {
        LoadEnd {
            elapsed_us: elapsed_ns / 1000,
            thread_cpu_us: vec![0; self.share.threads as usize],
            reason,
            ..LoadEnd::default()
        }
    }
}
