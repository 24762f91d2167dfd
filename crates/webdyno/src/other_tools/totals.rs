//! A load from its start to its end, without a recording: sums of its seconds.

use crate::process::interrupt_flag;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use webdyno_load::{Control, EndReason, Interval, Prepared, Probe};
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};
use webdyno_model::interval::{ConnectionCounts, ErrorCounts};
use webdyno_model::workload::Workload;
use webdyno_model::{Result, UserError};

/// How often the signals are looked at.
const POLL: Duration = Duration::from_millis(50);

/// What a load came to. Times in microseconds.
#[derive(Debug, Default)]
pub struct Totals {
    /// Responses that count as good, and everything else that ended.
    pub completed: u64,
    pub failed: u64,
    /// Bytes of responses, of their bodies, and of requests.
    pub bytes_received: u64,
    pub body_bytes: u64,
    pub bytes_sent: u64,
    /// Responses by status.
    pub status: BTreeMap<u16, u64>,
    pub errors: ErrorCounts,
    pub connections: ConnectionCounts,
    /// From the start of a request to its end, also of those that failed.
    pub total: TimeHistogram,
    /// From its send to its end.
    pub service: TimeHistogram,
    /// To connect, of connections.
    pub connect: TimeHistogram,
    /// From its send to the first byte of its response.
    pub first_byte: TimeHistogram,
    /// Responses per second, second by second; the last one only if it is whole, or the only one.
    pub rates_per_s: Vec<f64>,
    /// From the start of the load to its last outcome, or to its end in time.
    pub elapsed_us: u64,
}

impl Totals {
    /// Requests that ended.
    pub fn ended(&self) -> u64 {
        self.completed + self.failed
    }

    /// The time of the load in seconds, never 0.
    pub fn elapsed_s(&self) -> f64 {
        self.elapsed_us.max(1) as f64 / 1e6
    }

    /// Failures to connect.
    pub fn connect_errors(&self) -> u64 {
        let errors = &self.errors;
        let on_the_way =
            errors.dns + errors.connect_refused + errors.connect_timeout + errors.unreachable + errors.tls;
        on_the_way + errors.local_ports_exhausted + errors.no_descriptors
    }

    /// Responses whose status lies in a range.
    pub fn with_status(&self, range: std::ops::RangeInclusive<u16>) -> u64 {
        self.status.range(range).map(|(_, count)| count).sum()
    }

    fn add(&mut self, second: &Interval) -> Result<()> {
        self.completed += second.completed;
        self.failed += second.failed;
        self.bytes_received += second.bytes_received;
        self.body_bytes += second.body_bytes;
        self.bytes_sent += second.bytes_sent;
        for (status, count) in &second.status {
            if let Ok(status) = status.parse() {
                *self.status.entry(status).or_default() += count;
            }
        }
        self.errors.add(&second.errors);
        self.connections.add(&second.connections);
        let add = |to: &mut TimeHistogram, of: &Option<EncodedHistogram>| match of {
            Some(encoded) => to.merge_encoded(encoded),
            None => Ok(()),
        };
        add(&mut self.total, &second.response_time)?;
        add(&mut self.total, &second.failed_time)?;
        add(&mut self.service, &second.service_time)?;
        add(&mut self.connect, &second.connect_time)?;
        add(&mut self.first_byte, &second.first_byte)?;
        let length_s = second.length_us as f64 / 1e6;
        if self.rates_per_s.is_empty() || second.length_us >= 990_000 {
            self.rates_per_s.push((second.completed + second.failed) as f64 / length_s.max(1e-6));
        }
        Ok(())
    }
}

/// Names resolved, and one request sent to see that a server is there.
pub fn prepare(workload: &Workload) -> Result<(Prepared, Probe)> {
    let mut prepared = webdyno_load::prepare(workload)?;
    let probe = webdyno_load::probe(&mut prepared)?;
    Ok((prepared, probe))
}

/// Loads the server, and tells each second what came to that far. A signal ends it early: what came until then counts.
pub fn run(prepared: &Prepared, on_second: &mut dyn FnMut(&Totals)) -> Result<Totals> {
    let interrupted = interrupt_flag()?;
    let control = Control::new();
    let mut totals = Totals::default();
    let mut broken = None;
    let end = thread::scope(|scope| {
        let ended = Control::new();
        let (watched, is_over) = (control.clone(), ended.clone());
        scope.spawn(move || {
            while is_over.stopped().is_none() {
                if interrupted.load(Ordering::Relaxed) {
                    watched.stop(EndReason::Interrupted);
                }
                thread::sleep(POLL);
            }
        });
        let end = webdyno_load::run(prepared, &control, &mut |second| {
            if let Err(error) = totals.add(&second) {
                broken.get_or_insert(error);
            }
            on_second(&totals);
        });
        ended.stop(EndReason::Enough);
        end
    })?;
    if let Some(error) = broken {
        return Err(error);
    }
    totals.elapsed_us = end.elapsed_us;
    match end.reason {
        EndReason::Hopeless if totals.completed == 0 => {
            Err(UserError::cannot_run("no connection to the server came about")
                .hint("see that it listens: `webdyno check URL`"))
        }
        _ => Ok(totals),
    }
}
