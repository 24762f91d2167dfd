//! The input of every analysis: one load with what was read of the server meanwhile, on one time axis.

pub mod change_point;
pub(crate) mod forward_fill;
pub mod histograms;
pub mod series;
pub(crate) mod silent_collectors;
pub mod statistics;
pub mod warmup;

use webdyno_model::client::ClientTables;
use webdyno_model::environment::Environment;
use webdyno_model::harm_guard::HarmGuardTrip;
use webdyno_model::interval::{Interval, LoadEnd};
use webdyno_model::objective::Objective;
use webdyno_model::repeated_answer::RepeatedAnswer;
use webdyno_model::sample::{CollectorInfo, MissingSignal, Sample};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::Topology;
use webdyno_model::tune::Goal;
use webdyno_model::worker::WorkerPart;
use webdyno_model::workload::Workload;

/// A sample with its time, seconds since the load (or the watch) began; negative before it.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedSample {
    /// When it was read.
    pub t_s: f64,
    /// What was read.
    pub sample: Sample,
}

/// One load, or one window of watching, aligned with the samples around it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measurement {
    /// What was sent; `None` when the server was only watched.
    pub workload: Option<Workload>,
    /// Results, second by second, warm-up included. Empty when the server was only watched.
    pub intervals: Vec<Interval>,
    /// Start of the measured part.
    pub measured_from_s: f64,
    /// End of the measured part.
    pub measured_to_s: f64,
    /// The same, when a ramp-down follows that is not measured; `None` when all that follows is.
    pub ramp_down_from_s: Option<f64>,
    /// Since when, before this load, nothing of ours but readings had come to the server; `None` when something had.
    pub quiet_from_s: Option<f64>,
    /// Requests that our load before this one left behind when it was cut off: the server may still serve them.
    pub left_behind_count: u64,
    /// How long the slowest of a few requests took that were sent alone before the load; `None` where none was.
    pub alone_us: Option<u64>,
    /// What requests showed that were sent twice before the loads.
    pub repeated_answers: Vec<RepeatedAnswer>,
    /// How the load ended; `None` while it runs or when it was cut off.
    pub end: Option<LoadEnd>,
    /// Why so much was cut as warm-up; `None` when nothing was.
    pub warmup_reason: Option<String>,
    /// The machines that made it; none when it was this one alone.
    pub workers: Vec<WorkerPart>,
    /// The tables of the generator's machine; `None` where they were not read.
    pub tables: Option<ClientTables>,
    /// Why the load was stopped before it did harm.
    pub harm_guard_trip: Option<HarmGuardTrip>,
    /// What could not be watched of the harm that the load may do.
    pub unwatched: Vec<MissingSignal>,
    /// What the collectors lacked as they said it last.
    pub lacking: Vec<MissingSignal>,
    /// Readings of the server, in order of time.
    pub samples: Vec<TimedSample>,
    /// Those just before them, in order of time: of what `samples` left out as unchanged, they have the value.
    pub earlier_samples: Vec<TimedSample>,
    /// What the readings mean.
    pub collectors: Vec<CollectorInfo>,
    /// The service behind the port.
    pub service: Option<ServiceSnapshot>,
    /// What stands behind it, as it was looked at last; `None` when it was not.
    pub topology: Option<Topology>,
    /// The machine of the server.
    pub server: Option<Environment>,
    /// The machine of the generator.
    pub client: Environment,
    /// What the run must meet.
    pub objectives: Vec<Objective>,
    /// What tuning shall reach.
    pub goal: Option<Goal>,
}

impl Measurement {
    /// The intervals of the measured part: whole ones that begin in it, and the last one if it is not torn.
    pub fn measured(&self) -> impl Iterator<Item = &Interval> {
        self.intervals.iter().filter(|interval| !self.is_before(interval) && !self.is_after(interval))
    }

    /// The intervals before the measured part.
    pub fn before(&self) -> impl Iterator<Item = &Interval> {
        self.intervals.iter().filter(|interval| self.is_before(interval))
    }

    /// The intervals after the measured part.
    pub fn after(&self) -> impl Iterator<Item = &Interval> {
        self.intervals.iter().filter(|interval| self.is_after(interval))
    }

    /// Half a millisecond of tolerance: t_s went through decimal text.
    fn is_before(&self, interval: &Interval) -> bool {
        interval.t_s < self.measured_from_s - 0.0005
    }

    fn is_after(&self, interval: &Interval) -> bool {
        let ends_s = interval.t_s + interval.length_us as f64 / 1e6;
        !self.is_before(interval) && self.ramp_down_from_s.is_some_and(|from_s| ends_s > from_s + 0.0005)
    }

    /// Good answers per second, second by second, of the measured part; a torn last second is left out.
    pub fn measured_rates(&self) -> Vec<f64> {
        let whole = self.measured().filter(|interval| interval.length_us >= 900_000);
        whole.map(|interval| interval.completed as f64 * 1e6 / interval.length_us as f64).collect()
    }
}
