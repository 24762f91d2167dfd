//! What of a second an objective is about: counts and times of all requests, of those of a name, or of pages.

use super::BUCKET;
use std::collections::BTreeSet;
use webdyno_model::Result;
use webdyno_model::histogram::{EncodedHistogram, TIME_US_MAX, TimeHistogram};
use webdyno_model::interval::Interval;
use webdyno_model::objective::{Figure, Objective, Scope, TimeKind};
use webdyno_model::workload::Workload;

/// An objective with whose figures it looks at.
#[derive(Debug, Clone)]
pub(crate) struct ObjectiveScope {
    pub(crate) objective: Objective,
    /// Whether its name is that of every request, or page: then there are no figures by name.
    pub(super) is_alone: bool,
}

/// The share of a scope in a second.
pub(crate) struct ScopeShare<'a> {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) times: Option<&'a EncodedHistogram>,
}

impl ObjectiveScope {
    /// The one of an objective in this workload.
    pub(crate) fn of(objective: &Objective, workload: &Workload) -> Self {
        let is_alone = match objective.scope() {
            Scope::All | Scope::Pages => false,
            Scope::Request(name) => {
                !workload.finds_resources() && workload.request_names() == BTreeSet::from([name.as_str()])
            }
            Scope::Page(name) => workload.page_names() == BTreeSet::from([name.as_str()]),
        };
        Self { objective: objective.clone(), is_alone }
    }

    /// Whether its figures are those of all requests, or of all pages.
    pub(super) fn has_all(&self) -> bool {
        self.is_alone || matches!(self.objective.scope(), Scope::All | Scope::Pages)
    }

    /// Its share of a second; `None` where there was none of it.
    pub(crate) fn share<'a>(&self, interval: &'a Interval) -> Option<ScopeShare<'a>> {
        let requests = |times| ScopeShare { completed: interval.completed, failed: interval.failed, times };
        let pages = interval.pages.as_deref();
        let all_pages = || {
            let pages = pages?;
            Some(ScopeShare { completed: pages.completed, failed: pages.failed, times: pages.time.as_ref() })
        };
        match self.objective.scope() {
            Scope::All => Some(requests(self.all_times(interval))),
            Scope::Request(_) if self.is_alone => Some(requests(interval.response_time.as_ref())),
            Scope::Request(name) => interval.by_name.get(name).map(|named| ScopeShare {
                completed: named.completed,
                failed: named.failed,
                times: named.response_time.as_ref(),
            }),
            Scope::Pages => all_pages(),
            Scope::Page(_) if self.is_alone => all_pages(),
            Scope::Page(name) => pages?.by_name.get(name).map(|named| ScopeShare {
                completed: named.completed,
                failed: named.failed,
                times: named.time.as_ref(),
            }),
        }
    }

    fn all_times<'a>(&self, interval: &'a Interval) -> Option<&'a EncodedHistogram> {
        let times = match self.objective.figure() {
            Figure::Time(times, _) => times,
            _ => return None,
        };
        match times {
            TimeKind::Response => interval.response_time.as_ref(),
            TimeKind::Service => interval.service_time.as_ref(),
            TimeKind::Connect => interval.connect_time.as_ref(),
            TimeKind::FirstByte => interval.first_byte.as_ref(),
            TimeKind::ClientDelay => interval.client_delay.as_ref(),
        }
    }

    /// How many of these times lie surely beyond the bound of a percentile; 0 for other figures. An error when the histogram is
    /// damaged.
    pub(crate) fn slow_count(&self, times: &EncodedHistogram) -> Result<u64> {
        let Figure::Time(_, statistic) = self.objective.figure() else { return Ok(0) };
        let (is_share, bound_us) = (statistic.beyond().is_some(), self.objective.bound());
        if !is_share || times.max_us as f64 <= bound_us {
            return Ok(0);
        }
        let mut histogram = TimeHistogram::new();
        histogram.merge_encoded(times)?;
        let beyond_us = (bound_us * BUCKET).ceil() as u64 + 1;
        Ok(histogram.count_between(beyond_us, TIME_US_MAX.max(beyond_us)))
    }
}
