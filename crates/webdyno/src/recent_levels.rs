//! The levels of the observed hosts as they are now, from their last readings. For what is shown while a session goes on.

use std::collections::BTreeMap;
use webdyno_analysis::measurement::series::SeriesSet;
use webdyno_analysis::measurement::{Measurement, TimedSample};
use webdyno_analysis::run_report::host_levels::{HostLevel, MAIN};
use webdyno_model::event::{Event, EventBody};
use webdyno_model::sample::{CollectorInfo, Sample};

/// Readings are kept so long, as those that are read rarely need one before,
const KEPT_US: u64 = 12_000_000;
/// and shown so long.
const STALE_S: f64 = 2.9;

/// A level with its value now.
pub type LatestLevel = (&'static HostLevel, f64);

/// The last readings by the role of the host.
#[derive(Default)]
pub struct RecentLevels {
    samples: BTreeMap<Option<String>, Vec<(u64, Sample)>>,
    /// What they mean.
    collectors: BTreeMap<Option<String>, Vec<CollectorInfo>>,
}

impl RecentLevels {
    /// Keeps what an event has of it.
    pub fn add(&mut self, event: &Event) {
        match &event.body {
            EventBody::Server { host, collectors, .. } => {
                self.collectors.insert(host.clone(), collectors.clone());
            }
            EventBody::Sample { host, sample } => {
                let recent = self.samples.entry(host.clone()).or_default();
                recent.push((event.t_us, sample.clone()));
                recent.retain(|(t_us, _)| t_us + KEPT_US >= event.t_us);
            }
            _ => {}
        }
    }

    /// The last value of each level that has one, by host.
    pub fn latest(&self) -> Vec<(Option<String>, Vec<LatestLevel>)> {
        let hosts = self.samples.iter().map(|(host, samples)| {
            let collectors = self.collectors.get(host).cloned().unwrap_or_default();
            (host.clone(), latest_levels(samples, collectors))
        });
        hosts.collect()
    }
}

fn latest_levels(samples: &[(u64, Sample)], collectors: Vec<CollectorInfo>) -> Vec<LatestLevel> {
    let timed =
        |(t_us, sample): &(u64, Sample)| TimedSample { t_s: *t_us as f64 / 1e6, sample: sample.clone() };
    let samples_timed = samples.iter().map(timed).collect();
    let measurement = Measurement { samples: samples_timed, collectors, ..Measurement::default() };
    let series = SeriesSet::of(&measurement);
    let now_s = samples.iter().map(|(t_us, _)| *t_us).max().map_or(0.0, |t_us| t_us as f64 / 1e6);
    // A server that does not tell any more is not as it was when it told last.
    let last = |level: &'static HostLevel| {
        let (t_s, value) = *level.points(&series).last()?;
        (now_s - t_s < STALE_S).then_some((level, value))
    };
    MAIN.iter().filter_map(last).collect()
}
