//! The figures of pages and visits of one engine thread and one interval.
//!
//! A page counts where it was due, and where it ended. Two of the pages of an interval are kept part by part: the
//! slowest one, and the one nearest to the median so far. A failed page is kept as the slowest only where none was
//! completed: the slowest page is the one with the largest page time.

use super::NamedReport;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::NamedInterval;
use webdyno_model::page::{NamedPageInterval, PageInterval, PageTrace, TraceKind, VisitCounts};

/// What the figures of a load are named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    /// Statuses from 900 on are those of gRPC.
    pub(crate) speaks_grpc: bool,
    /// Names of requests; none when there is only one.
    pub(crate) requests: Vec<String>,
    /// Names of pages; `None` without pages.
    pub(crate) pages: Option<Vec<String>>,
    /// Captures, as `STEP: NAME`.
    pub(crate) captures: Vec<String>,
}

/// The figures of one thread and one interval.
#[derive(Debug, Default)]
pub(crate) struct VisitReport {
    /// Without the captures.
    pub(crate) counts: VisitCounts,
    pub(crate) captures_missed: Vec<u64>,
    /// `None` without pages.
    pub(crate) pages: Option<Box<Pages>>,
}

/// The pages of an interval.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pub(crate) started: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) in_flight: u64,
    /// Of completed pages.
    pub(crate) time: TimeHistogram,
    named: Vec<NamedReport>,
    slowest: Option<PageTrace>,
    /// With its distance to the median, in a report of several threads.
    typical: Option<(u64, PageTrace)>,
    /// The median of the load, when the interval began.
    earlier_median_us: Option<u64>,
    /// That of this interval, before there is another.
    own_median_us: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PageEnd {
    pub(crate) name: usize,
    pub(crate) time_us: u64,
    pub(crate) failed: bool,
}

impl VisitReport {
    /// An empty report.
    pub(crate) fn new(labels: &Labels) -> Self {
        let pages = labels.pages.as_ref().map(|names| Box::new(Pages::new(names.len())));
        Self { counts: VisitCounts::default(), captures_missed: vec![0; labels.captures.len()], pages }
    }

    /// A page is due.
    pub(crate) fn page_started(&mut self) {
        if let Some(pages) = &mut self.pages {
            pages.started += 1;
        }
    }

    /// A page ended. True when its parts are to be passed to [`VisitReport::keep`].
    pub(crate) fn page_ended(&mut self, end: PageEnd) -> bool {
        self.pages.as_mut().is_some_and(|pages| pages.ended(end))
    }

    /// Keeps a page, in the places that are its own.
    pub(crate) fn keep(&mut self, trace: PageTrace) {
        if let Some(pages) = &mut self.pages {
            pages.keep(trace);
        }
    }

    /// Sets the median of the load so far.
    pub(crate) fn set_median(&mut self, median_us: Option<u64>) {
        if let Some(pages) = &mut self.pages {
            pages.earlier_median_us = median_us;
        }
    }

    /// Empties it and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.counts = VisitCounts::default();
        self.captures_missed.fill(0);
        if let Some(pages) = &mut self.pages {
            pages.clear();
        }
    }

    /// Adds what another thread saw of the same interval.
    pub(crate) fn merge(&mut self, other: &mut Self) {
        let visitors = self.counts.visitors + other.counts.visitors;
        self.counts.add(&other.counts);
        self.counts.visitors = visitors;
        for (sum, missed) in self.captures_missed.iter_mut().zip(&other.captures_missed) {
            *sum += missed;
        }
        if let (Some(sum), Some(pages)) = (&mut self.pages, &mut other.pages) {
            sum.merge(pages);
        }
    }

    /// The counts, with the captures by their labels.
    pub(crate) fn counts(&self, labels: &Labels) -> VisitCounts {
        let missed = labels.captures.iter().zip(&self.captures_missed).filter(|(_, missed)| **missed > 0);
        let mut counts = self.counts.clone();
        for (label, missed) in missed {
            // Several captures of a step may have one name.
            *counts.captures_missed.entry(label.clone()).or_default() += missed;
        }
        counts
    }

    /// The pages, as the interval has them.
    pub(crate) fn page_interval(&self, labels: &Labels) -> Option<Box<PageInterval>> {
        let (pages, names) = (self.pages.as_ref()?, labels.pages.as_ref()?);
        let named = names.iter().zip(&pages.named);
        let named = named.filter(|(_, named)| named.completed + named.failed > 0);
        let typical = pages.typical.as_ref().map(|(_, trace)| (TraceKind::Typical, trace));
        let traces =
            pages.slowest.as_ref().map(|trace| (TraceKind::Slowest, trace)).into_iter().chain(typical);
        Some(Box::new(PageInterval {
            started: pages.started,
            completed: pages.completed,
            failed: pages.failed,
            in_flight: pages.in_flight,
            time: pages.time.encode(),
            by_name: named.map(|(name, named)| (name.clone(), named.page_interval())).collect(),
            traces: traces.map(|(kind, trace)| PageTrace { kind, ..trace.clone() }).collect(),
        }))
    }
}

impl NamedReport {
    /// As the interval has it.
    pub(crate) fn interval(&self) -> NamedInterval {
        NamedInterval {
            completed: self.completed,
            failed: self.failed,
            response_time: self.response_time.encode(),
        }
    }

    fn page_interval(&self) -> NamedPageInterval {
        NamedPageInterval {
            completed: self.completed,
            failed: self.failed,
            time: self.response_time.encode(),
        }
    }

    /// Empties it and keeps its memory.
    pub(super) fn clear(&mut self) {
        (self.completed, self.failed) = (0, 0);
        self.response_time.clear();
    }

    /// Adds another one.
    pub(super) fn merge(&mut self, other: &Self) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.response_time.merge(&other.response_time);
    }
}

impl Pages {
    fn new(names: usize) -> Self {
        Self { named: (0..names).map(|_| NamedReport::default()).collect(), ..Self::default() }
    }

    fn ended(&mut self, end: PageEnd) -> bool {
        let named = self.named.get_mut(end.name);
        if end.failed {
            self.failed += 1;
            named.into_iter().for_each(|named| named.failed += 1);
            return self.is_slowest(end.time_us, true);
        }
        self.completed += 1;
        self.time.record(end.time_us);
        if let Some(named) = named {
            named.completed += 1;
            named.response_time.record(end.time_us);
        }
        // It is resolved ever more seldom: that takes some microseconds.
        if self.earlier_median_us.is_none() && self.completed.is_power_of_two() {
            self.own_median_us = self.time.quantile_us(0.5);
        }
        self.is_slowest(end.time_us, false) || self.is_typical(end.time_us)
    }

    /// Whether this page is slower than those before; completed ones come before failed ones.
    fn is_slowest(&self, time_us: u64, failed: bool) -> bool {
        self.slowest.as_ref().is_none_or(|slowest| match (slowest.failed, failed) {
            (true, false) => true,
            (false, true) => false,
            _ => time_us > slowest.time_us,
        })
    }

    fn is_typical(&self, time_us: u64) -> bool {
        // The median may have moved since the best one was kept.
        let distance_us = |time_us| self.distance_us(time_us);
        self.typical.as_ref().is_none_or(|(_, best)| distance_us(time_us) < distance_us(best.time_us))
    }

    fn distance_us(&self, time_us: u64) -> u64 {
        self.earlier_median_us.or(self.own_median_us).unwrap_or(time_us).abs_diff(time_us)
    }

    fn keep(&mut self, trace: PageTrace) {
        if !trace.failed && self.is_typical(trace.time_us) {
            self.typical = Some((0, trace.clone()));
        }
        if self.is_slowest(trace.time_us, trace.failed) {
            self.slowest = Some(trace);
        }
    }

    fn clear(&mut self) {
        (self.started, self.completed, self.failed, self.in_flight) = (0, 0, 0, 0);
        self.time.clear();
        self.named.iter_mut().for_each(NamedReport::clear);
        (self.slowest, self.typical) = (None, None);
        (self.earlier_median_us, self.own_median_us) = (None, None);
    }

    fn merge(&mut self, other: &mut Self) {
        self.started += other.started;
        self.completed += other.completed;
        self.failed += other.failed;
        self.in_flight += other.in_flight;
        self.time.merge(&other.time);
        self.named.iter_mut().zip(&other.named).for_each(|(sum, named)| sum.merge(named));
        if let Some(trace) = other.slowest.take()
            && self.is_slowest(trace.time_us, trace.failed)
        {
            self.slowest = Some(trace);
        }
        if let Some((_, trace)) = other.typical.take()
            && let distance_us = other.distance_us(trace.time_us)
            && self.typical.as_ref().is_none_or(|(best_us, _)| distance_us < *best_us)
        {
            self.typical = Some((distance_us, trace));
        }
    }
}
