//! What one worker makes of a load: its results as they come, each index once, and what they come to.

use crate::protocol::{ReportBody, S};
use std::collections::{BTreeMap, BTreeSet};
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{EndReason, Interval, LoadEnd};
use webdyno_model::worker::{LoadShare, WorkerPart};
use webdyno_model::{Result, UserError};

/// A part of a load.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) worker: String,
    pub(super) share: LoadShare,
    pub(super) round_trip_us: u64,
    /// When it began, on our clock.
    pub(super) began_ns: Option<i64>,
    /// The same against the common start, as another coordinator measured it.
    start_late_us: Option<i64>,
    pub(super) lost_since_ns: Option<u64>,
    /// The second of the load from which it is this worker's.
    pub(super) from_s: u64,
    /// The second from which others have it.
    pub(super) taken_over_at_s: Option<u64>,
    /// Results that are not in a second of the load yet.
    waiting: BTreeMap<u64, Box<Interval>>,
    /// The index of its end, and the end itself.
    end: Option<(u64, Option<LoadEnd>, Option<String>)>,
    /// From this second on its results are given up.
    given_up: bool,
    /// The next index that is taken.
    next: u64,
    over_since_ns: Option<u64>,
    /// Results that came when it was given up.
    late: BTreeSet<u64>,
    sums: Sums,
}

/// What its seconds came to.
#[derive(Debug, Default)]
struct Sums {
    started: u64,
    completed: u64,
    failed: u64,
    elapsed_us: u64,
    response_time: Option<TimeHistogram>,
    client_delay_sum_us: f64,
    thread_cpu_us: Vec<u64>,
    in_flight: u64,
    pages_in_flight: u64,
    visitors: u64,
}

/// What it has of a second.
pub(super) enum Taken {
    Interval(Box<Interval>),
    /// It has ended, or is given up.
    Over {
        in_flight: u64,
        pages_in_flight: u64,
        visitors: u64,
    },
}

impl Part {
    pub(super) fn new(name: String, worker: String, share: LoadShare) -> Self {
        Self {
            name,
            worker,
            share,
            round_trip_us: 0,
            began_ns: None,
            start_late_us: None,
            lost_since_ns: None,
            from_s: 0,
            taken_over_at_s: None,
            waiting: BTreeMap::new(),
            end: None,
            given_up: false,
            next: 0,
            over_since_ns: None,
            late: BTreeSet::new(),
            sums: Sums::default(),
        }
    }

    /// One of a load whose coordinator is gone, as that wrote it last. An error when its histogram is damaged.
    pub(super) fn resumed(of: &WorkerPart) -> Result<Self> {
        let mut response_time = None;
        if let Some(times) = &of.response_time {
            let mut read = TimeHistogram::new();
            read.merge_encoded(times).map_err(|_| damaged())?;
            response_time = Some(read);
        }
        let sums = Sums {
            started: of.started,
            completed: of.completed,
            failed: of.failed,
            elapsed_us: of.elapsed_us,
            response_time,
            client_delay_sum_us: of.client_delay_sum_us,
            thread_cpu_us: of.thread_cpu_us.clone(),
            in_flight: of.in_flight_at_end,
            ..Sums::default()
        };
        Ok(Self {
            round_trip_us: of.round_trip_us,
            start_late_us: of.start_late_us,
            lost_since_ns: of.lost_at_s.map(|_| 0),
            from_s: of.from_s,
            taken_over_at_s: of.taken_over_at_s,
            next: of.seconds,
            sums,
            ..Self::new(of.name.clone(), of.instance.clone(), of.share)
        })
    }

    /// What one that was lost had, from a second on.
    pub(super) fn taken_over(name: String, worker: String, (share, from_s): (LoadShare, u64)) -> Self {
        Self { from_s, next: from_s, ..Self::new(name, worker, share) }
    }

    /// Adds a result; false for one that it has or had already, or that comes too late.
    pub(super) fn add(&mut self, index: u64, body: ReportBody) -> bool {
        if self.given_up {
            if matches!(body, ReportBody::Interval(_)) && index >= self.next {
                self.late.insert(index);
            }
            return false;
        }
        match body {
            ReportBody::Interval(_) if index < self.next => false,
            ReportBody::Interval(interval) => self.waiting.insert(index, interval).is_none(),
            ReportBody::End { end, why } => {
                let is_new = self.end.is_none();
                self.end.get_or_insert((index, end, why));
                is_new
            }
        }
    }

    /// Whether a result is there and not in a second of the load yet; its end never is, until all of them are over.
    pub(super) fn waits_for(&self, index: u64) -> bool {
        self.waiting.contains_key(&index) || self.end.as_ref().is_some_and(|end| end.0 == index)
    }

    /// Whether everything was received that it will ever send.
    pub(super) fn is_complete(&self) -> bool {
        let received = self.next + self.waiting.len() as u64;
        self.given_up || self.end.as_ref().is_some_and(|(index, end, _)| end.is_some() && received >= *index)
    }

    /// Whether it stopped by itself: nobody renewed its lease in time, or it was interrupted.
    pub(super) fn has_stopped_itself(&self) -> bool {
        self.end().is_some_and(|end| end.reason == EndReason::Interrupted)
    }

    /// Whether no result of it was received.
    pub(super) fn has_nothing(&self) -> bool {
        self.next == self.from_s && self.waiting.is_empty() && self.end.is_none()
    }

    /// Whether its engine failed.
    pub(super) fn has_failed(&self) -> bool {
        self.end.as_ref().is_some_and(|(_, end, _)| end.is_none())
    }

    /// Whether nothing of it is left for further seconds.
    pub(super) fn is_over(&self) -> bool {
        self.given_up && !self.waiting.contains_key(&self.next)
            || self.end.as_ref().is_some_and(|(index, _, _)| self.next >= *index)
    }

    /// The index of its end, if that was received.
    pub(super) fn end_index(&self) -> Option<u64> {
        self.end.as_ref().map(|(index, _, _)| *index)
    }

    pub(super) fn end(&self) -> Option<&LoadEnd> {
        self.end.as_ref().and_then(|(_, end, _)| end.as_ref())
    }

    /// A lost one: its results may still come until it has surely stopped.
    pub(super) fn give_up_when_due(&mut self, now_ns: u64, until_ns: u64, never_began: bool) {
        self.given_up |=
            self.lost_since_ns.is_some() && (now_ns >= until_ns || never_began || self.has_failed());
    }

    /// One that says that it is over, and whose results do not come.
    pub(super) fn give_up_late(&mut self, now_ns: u64, after_ns: u64) {
        let since_ns = *self.over_since_ns.get_or_insert(now_ns);
        if now_ns >= since_ns + after_ns {
            self.lost_since_ns.get_or_insert(now_ns);
            self.given_up = true;
        }
    }

    /// What is noted of its loss.
    pub(super) fn loss_text(&self, never_began: bool, second: u64) -> String {
        let what = match &self.end {
            _ if never_began => "did not begin its part of the load".into(),
            Some((_, Some(_), _)) => format!("stopped by itself at {second} s"),
            Some((_, None, why)) => {
                format!("failed: {}", why.as_deref().unwrap_or("its engine ended without results"))
            }
            _ => format!("was not heard any more at {second} s"),
        };
        format!("worker {} {what}", self.name)
    }

    /// Its part of the load, in percent.
    pub(super) fn percent(&self) -> f64 {
        100.0 * f64::from(self.share.threads) / f64::from(self.share.total_threads.max(1))
    }

    /// Whether what it has of a second, which is its next one, is there, or will never be.
    pub(super) fn has(&self, second: u64) -> bool {
        second < self.from_s || self.waiting.contains_key(&self.next) || self.is_over()
    }

    /// Takes what it has of a second; its response times go to `all`. An error when a histogram is damaged.
    pub(super) fn take(&mut self, second: u64, all: &mut TimeHistogram) -> Result<Taken> {
        let Some(mut interval) = self.waiting.remove(&self.next).filter(|_| second >= self.from_s) else {
            let Sums { in_flight, pages_in_flight, visitors, .. } = self.sums;
            return Ok(Taken::Over { in_flight, pages_in_flight, visitors });
        };
        self.next += 1;
        self.sums.add(&mut interval, all)?;
        Ok(Taken::Interval(interval))
    }

    /// What it left in flight, of one without an end.
    pub(super) fn lost_in_flight(&self) -> u64 {
        if self.end().is_some() { 0 } else { self.sums.in_flight }
    }

    /// Length of its seconds.
    pub(super) fn elapsed_us(&self) -> u64 {
        self.sums.elapsed_us
    }

    /// What became of it.
    pub(super) fn outcome(&self, start_at_ns: u64) -> WorkerPart {
        let sums = &self.sums;
        let begins_ns = (start_at_ns + self.from_s * S) as i64;
        let late_ns = self.began_ns.map(|began_ns| began_ns - begins_ns);
        WorkerPart {
            name: self.name.clone(),
            instance: self.worker.clone(),
            share: self.share,
            round_trip_us: self.round_trip_us,
            start_late_us: late_ns.map(|ns| ns / 1000).or(self.start_late_us),
            started: sums.started,
            completed: sums.completed,
            failed: sums.failed,
            in_flight_at_end: self.end().map_or(sums.in_flight, |end| end.in_flight_at_end),
            elapsed_us: sums.elapsed_us,
            response_time: sums.response_time.as_ref().and_then(TimeHistogram::encode),
            thread_cpu_us: sums.thread_cpu_us.clone(),
            client_delay_sum_us: sums.client_delay_sum_us,
            lost_at_s: self.lost_since_ns.map(|_| self.next),
            late_seconds: self.late.len() as u64,
            seconds: self.next,
            from_s: self.from_s,
            taken_over_at_s: self.taken_over_at_s,
        }
    }
}

impl Sums {
    fn add(&mut self, of: &mut Interval, all: &mut TimeHistogram) -> Result<()> {
        self.started += of.started;
        self.completed += of.completed;
        self.failed += of.failed;
        self.elapsed_us += of.length_us;
        self.in_flight = of.in_flight;
        self.pages_in_flight = of.pages.as_ref().map_or(0, |pages| pages.in_flight);
        self.visitors = of.visits.visitors;
        if let Some(times) = of.response_time.take() {
            // Once for both: reading it is what a second costs.
            let own = self.response_time.get_or_insert_default();
            TimeHistogram::merge_encoded_into(&times, &mut [own, all]).map_err(|_| damaged())?;
        }
        self.client_delay_sum_us += of.client_delay.as_ref().map_or(0.0, |delay| delay.sum_us);
        self.thread_cpu_us.resize(of.thread_cpu_us.len().max(self.thread_cpu_us.len()), 0);
        self.thread_cpu_us.iter_mut().zip(&of.thread_cpu_us).for_each(|(sum, us)| *sum += us);
        Ok(())
    }
}

fn damaged() -> UserError {
    UserError::cannot_run("a worker sent a histogram that cannot be read")
        .hint("use the same build of webdyno on all machines: webdyno --version")
}
