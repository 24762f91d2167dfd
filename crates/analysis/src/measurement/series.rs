//! Readings over time: levels and differences of one metric within a window.

use crate::measurement::forward_fill;
use crate::measurement::{Measurement, TimedSample};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use webdyno_model::sample::Metric;

/// All readings of a measurement by metric name.
#[derive(Debug)]
pub struct SeriesSet<'a> {
    points: BTreeMap<&'a str, Vec<(f64, f64)>>,
    catalogue: MetricCatalogue<'a>,
    /// What describes the values that there are, by their names: asked for each of them again and again.
    described: BTreeMap<&'a str, &'a Metric>,
    samples: &'a [TimedSample],
    from_s: f64,
    to_s: f64,
}

/// A load that is stopped sooner has hardly a reading of its own: what the server holds just before it, and right after, is the
/// best that there is.
const OWN_READINGS_S: f64 = 2.0;

fn is_short(measurement: &Measurement) -> bool {
    let length_s = measurement.measured_to_s - measurement.measured_from_s;
    measurement.harm_guard_trip.is_some() && length_s < OWN_READINGS_S
}

/// What was not read before it ended, as nobody knew yet who works for the site, counts as it was read soon after.
fn take_late_reading(series: &mut Vec<(f64, f64)>, to_s: f64) {
    if let Some((_, value)) =
        series.first().copied().filter(|(at, _)| *at > to_s && *at <= to_s + OWN_READINGS_S)
    {
        series.insert(0, (to_s, value));
    }
}

fn window(measurement: &Measurement) -> (f64, f64) {
    let (from_s, to_s) = (measurement.measured_from_s, measurement.measured_to_s);
    if !is_short(measurement) {
        return (from_s, to_s);
    }
    // One that did not come to the end of its warm-up has no measured part.
    let from_s = if from_s > to_s { 0.0 } else { from_s };
    (from_s - OWN_READINGS_S, to_s + OWN_READINGS_S)
}

impl<'a> SeriesSet<'a> {
    /// Sorts the readings of a measurement; windows are its measured part.
    pub fn of(measurement: &'a Measurement) -> Self {
        let mut points: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for timed in &measurement.samples {
            for (name, value) in &timed.sample.values {
                points.entry(name).or_default().push((timed.t_s, value.0));
            }
        }
        let catalogue = MetricCatalogue::of(measurement);
        let earlier = measurement.earlier_samples.iter().flat_map(|timed| timed.sample.values.keys());
        let names: BTreeSet<&str> = points.keys().copied().chain(earlier.map(String::as_str)).collect();
        let described: BTreeMap<&str, &Metric> =
            names.into_iter().filter_map(|name| Some((name, catalogue.metric_of(name)?))).collect();
        let may_miss = |name: &str| described.get(name).is_some_and(|metric| metric.on_change);
        for (name, point) in forward_fill::values(measurement, may_miss) {
            points.entry(name).or_default().push(point);
        }
        let (from_s, to_s) = window(measurement);
        points.values_mut().for_each(|series| series.sort_by(|a, b| a.0.total_cmp(&b.0)));
        if is_short(measurement) {
            points.values_mut().for_each(|series| take_late_reading(series, to_s));
        }
        Self { points, catalogue, described, samples: &measurement.samples, from_s, to_s }
    }

    /// Start and end of the window, seconds.
    pub fn window(&self) -> (f64, f64) {
        (self.from_s, self.to_s)
    }

    /// The names of all that there are readings of, in order.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.points.keys().copied()
    }

    /// Whether there are readings of a metric whose name begins so.
    pub fn has(&self, beginning: &str) -> bool {
        self.points.range(beginning..).next().is_some_and(|(name, _)| name.starts_with(beginning))
    }

    /// What a metric is, if the catalogue of the recording knows it.
    pub fn metric(&self, name: &str) -> Option<&'a Metric> {
        self.described.get(name).copied().or_else(|| self.catalogue.metric_of(name))
    }

    /// The metric of several things that the catalogue of the recording has under this name: `disk.*.read_bytes`.
    pub fn template(&self, name: &str) -> Option<&'a Metric> {
        self.catalogue.metrics.get(name).copied()
    }

    /// What there are readings of, of a metric of several (`disk.*.read_bytes`): the names in place of the star, each with
    /// that of its values.
    pub fn instances<'b>(&'b self, template: &'b Metric) -> impl Iterator<Item = (&'a str, &'a str)> + 'b {
        let before = template.name.split('*').next().unwrap_or_default();
        let names =
            self.points.range::<str, _>((Bound::Included(before), Bound::Unbounded)).map(|(name, _)| *name);
        let names = names.take_while(move |name| name.starts_with(before));
        let found = names.filter_map(|name| template.instance(name).map(|instance| (instance, name)));
        // What a longer template describes is its instance alone.
        found.filter(move |(_, name)| {
            self.described.get(name).is_none_or(|metric| metric.name == template.name)
        })
    }

    /// All readings of a metric, in order of time.
    pub fn all(&self, name: &str) -> &[(f64, f64)] {
        self.points.get(name).map_or(&[], Vec::as_slice)
    }

    /// The readings of a level within the window.
    pub fn levels(&self, name: &str) -> Vec<f64> {
        self.all(name).iter().filter(|(time, _)| self.within(*time)).map(|(_, value)| *value).collect()
    }

    /// The mean of a level over the window.
    pub fn mean(&self, name: &str) -> Option<f64> {
        crate::measurement::statistics::mean(&self.levels(name))
    }

    /// The largest reading in the window.
    pub fn max(&self, name: &str) -> Option<f64> {
        self.levels(name).into_iter().reduce(f64::max)
    }

    /// The smallest reading in the window.
    pub fn min(&self, name: &str) -> Option<f64> {
        self.levels(name).into_iter().reduce(f64::min)
    }

    /// The latest reading up to the end of the window: for levels that are read rarely.
    pub fn latest(&self, name: &str) -> Option<f64> {
        self.all(name).iter().rev().find(|(time, _)| *time <= self.to_s + 0.0005).map(|(_, value)| *value)
    }

    /// By how much a counter rose, and over how many seconds: between the last reading at or before the start of the
    /// window (or the first in it) and the last reading in it. A counter that fell was set back: unknown, also when it
    /// has passed its old value since.
    pub fn increase(&self, name: &str) -> Option<(f64, f64)> {
        let (first, last) = self.span(name)?;
        let (seconds, rise) = (last.0 - first.0, last.1 - first.1);
        let readings = self.all(name).iter().filter(|(time, _)| (first.0..=last.0).contains(time));
        let values: Vec<f64> = readings.map(|(_, value)| *value).collect();
        let was_set_back = values.windows(2).any(|pair| is_reset(name, pair[0], pair[1]));
        (seconds > 0.0 && rise >= 0.0 && !was_set_back).then_some((rise, seconds))
    }

    /// The two readings `(time, value)` between which [`SeriesSet::increase`] is taken.
    pub fn span(&self, name: &str) -> Option<((f64, f64), (f64, f64))> {
        let readings = self.all(name);
        let last = readings.iter().rev().find(|(time, _)| *time <= self.to_s + 0.0005)?;
        let before = readings.iter().rev().find(|(time, _)| *time <= self.from_s + 0.0005);
        let first = before.or_else(|| readings.iter().find(|(time, _)| *time >= self.from_s))?;
        Some((*first, *last))
    }

    /// The times of the first and the last reading of a level within the window.
    pub fn extent(&self, name: &str) -> Option<(f64, f64)> {
        let times = || self.all(name).iter().map(|(time, _)| *time).filter(|time| self.within(*time));
        Some((times().next()?, times().next_back()?))
    }

    /// The time of the latest reading up to the end of the window.
    pub fn latest_at(&self, name: &str) -> Option<f64> {
        self.all(name).iter().rev().map(|(time, _)| *time).find(|time| *time <= self.to_s + 0.0005)
    }

    /// The reading of a level nearest to a time, if it is at most `distance_s` away.
    pub fn nearest(&self, name: &str, time_s: f64, distance_s: f64) -> Option<f64> {
        let distance = |time: f64| (time - time_s).abs();
        let nearest = self.all(name).iter().min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)))?;
        (distance(nearest.0) <= distance_s + 0.0005).then_some(nearest.1)
    }

    /// Half a millisecond of tolerance: times went through decimal text.
    fn within(&self, time_s: f64) -> bool {
        time_s >= self.from_s - 0.0005 && time_s <= self.to_s + 0.0005
    }

    /// A counter's rise per second.
    pub fn rate(&self, name: &str) -> Option<f64> {
        self.increase(name).map(|(rise, seconds)| rise / seconds)
    }

    /// The readings of one collector in the window.
    pub fn samples_of(&self, source: &'a str) -> impl Iterator<Item = &'a TimedSample> + '_ {
        self.samples.iter().filter(move |timed| timed.sample.source == source && self.within(timed.t_s))
    }
}

/// Whether a counter began anew between two readings. Some step back a little and go on: the kernel adds up the time in
/// which a core waits for a disk anew each time, from parts that are not of the same moment (proc_stat(5), iowait).
fn is_reset(name: &str, before: f64, after: f64) -> bool {
    const STEP_SHARE_MAX: f64 = 0.01;
    const STEP_S_MAX: f64 = 1.0;
    let step_max = (before * STEP_SHARE_MAX).max(if name.ends_with("_s") { STEP_S_MAX } else { 0.0 });
    before - after > step_max
}

/// What the catalogue of a recording describes.
#[derive(Debug)]
struct MetricCatalogue<'a> {
    metrics: BTreeMap<&'a str, &'a Metric>,
    /// Those of several things, by what stands before the star: the longest last.
    of_several: Vec<(&'a str, Vec<&'a Metric>)>,
}

impl<'a> MetricCatalogue<'a> {
    fn of(measurement: &'a Measurement) -> Self {
        let metrics = measurement.collectors.iter().flat_map(|collector| &collector.metrics);
        let metrics: BTreeMap<&str, &Metric> = metrics.map(|metric| (metric.name.as_str(), metric)).collect();
        let mut of_several: BTreeMap<&str, Vec<&Metric>> = BTreeMap::new();
        for (name, metric) in &metrics {
            if let Some((before, _)) = name.split_once('*') {
                of_several.entry(before).or_default().push(metric);
            }
        }
        let mut of_several: Vec<_> = of_several.into_iter().collect();
        of_several.sort_by_key(|(before, _)| before.len());
        Self { metrics, of_several }
    }

    /// The metric that describes a value: the one of its name, else that of several with the longest name before the star.
    fn metric_of(&self, name: &str) -> Option<&'a Metric> {
        let described = || {
            let near = self.of_several.iter().rev().filter(|(before, _)| name.starts_with(before));
            near.flat_map(|(_, metrics)| metrics.iter().rev()).find(|metric| metric.describes(name))
        };
        self.metrics.get(name).or_else(described).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::number::Number;
    use webdyno_model::sample::Sample;

    fn measurement(readings: &[(f64, f64)]) -> Measurement {
        let sample = |&(t_s, value): &(f64, f64)| TimedSample {
            t_s,
            sample: Sample {
                source: "x".into(),
                duration_us: 1,
                values: [("x.total".to_owned(), Number(value))].into(),
                ..Sample::default()
            },
        };
        Measurement {
            samples: readings.iter().map(sample).collect(),
            measured_from_s: 2.0,
            measured_to_s: 5.0,
            ..Measurement::default()
        }
    }

    #[test]
    fn of_a_load_that_was_stopped_at_once_readings_around_it_count() {
        let readings = [(-2.5, 1.0), (-1.5, 2.0), (-0.5, 3.0), (1.9, 4.0)];
        for (stopped, warmup_s, to_s, levels) in [
            (false, 0.0, 0.4, &[][..]),
            (true, 0.0, 0.4, &[2.0, 3.0, 4.0]),
            (true, 8.0, 0.4, &[2.0, 3.0, 4.0]),
            (true, 0.0, 6.0, &[4.0]),
        ] {
            let trip = crate::facts::testing::with_harm_guard_trip("x");
            let all = Measurement {
                measured_from_s: warmup_s,
                measured_to_s: to_s,
                harm_guard_trip: stopped.then_some(trip),
                ..measurement(&readings)
            };
            assert_eq!(SeriesSet::of(&all).levels("x.total"), levels, "{stopped} {to_s}");
        }
    }

    #[test]
    fn counters_rise_within_the_window_only() {
        let all = measurement(&[(0.0, 0.0), (1.5, 10.0), (3.0, 20.0), (4.5, 40.0), (6.0, 99.0)]);
        assert_eq!(SeriesSet::of(&all).increase("x.total"), Some((30.0, 3.0)));
        let set_back = measurement(&[(1.9, 10.0), (4.9, 4.0)]);
        assert_eq!(SeriesSet::of(&set_back).increase("x.total"), None);
        // It has passed its old value by the end of the window: how much it rose is unknown all the same.
        let passed = measurement(&[(1.9, 10.0), (2.9, 1.0), (3.9, 20.0), (4.9, 40.0)]);
        assert_eq!(SeriesSet::of(&passed).increase("x.total"), None);
        let before_it = measurement(&[(0.5, 90.0), (2.0, 10.0), (5.0, 40.0), (6.0, 1.0)]);
        assert_eq!(SeriesSet::of(&before_it).increase("x.total"), Some((30.0, 3.0)));
        assert!(!is_reset("cpu.iowait_s", 0.05, 0.04) && !is_reset("x.total", 1000.0, 999.0));
        assert!(is_reset("mariadb.row_lock_time_ms", 5.0, 0.0) && is_reset("x_s", 5.0, 0.2));
        assert_eq!(SeriesSet::of(&all).increase("y"), None);
        assert_eq!(SeriesSet::of(&all).span("x.total"), Some(((1.5, 10.0), (4.5, 40.0))));
    }

    // A counter that moved once shows that, however long it was left out before and after; one that never moved rose by
    // nothing, which is known.
    #[test]
    fn what_was_left_out_was_unchanged() {
        let metric = |name: &str| Metric {
            name: name.into(),
            kind: webdyno_model::sample::MetricKind::Counter,
            on_change: true,
            ..Metric::default()
        };
        let metrics = vec![metric("x.total"), metric("x.*.total"), metric("x.service.*.total")];
        let still = ["x.eth0.total", "x.service.eth0.total"];
        let mut all =
            measurement(&[(0.0, 7.0), (1.0, f64::NAN), (2.0, f64::NAN), (3.0, 9.0), (4.0, f64::NAN)]);
        for timed in &mut all.samples {
            timed.sample.values.retain(|_, value| value.0.is_finite());
        }
        all.samples[0].sample.values.extend(still.map(|name| (name.to_owned(), Number(5.0))));
        all.collectors = vec![webdyno_model::sample::CollectorInfo { name: "x".into(), metrics }];
        let series = SeriesSet::of(&all);
        assert_eq!(series.increase("x.total"), Some((2.0, 2.0)));
        assert_eq!(series.levels("x.total"), [7.0, 9.0, 9.0]);
        assert_eq!(still.map(|name| series.increase(name)), [Some((0.0, 2.0)); 2]);
        assert_eq!(series.metric("x.service.eth0.total").unwrap().name, "x.service.*.total");
    }

    #[test]
    fn levels_are_those_of_the_window() {
        let all = measurement(&[(1.0, 7.0), (2.0, 1.0), (5.0, 3.0), (6.0, 9.0)]);
        let series = SeriesSet::of(&all);
        assert_eq!(series.levels("x.total"), [1.0, 3.0]);
        assert_eq!(
            (series.mean("x.total"), series.max("x.total"), series.min("x.total")),
            (Some(2.0), Some(3.0), Some(1.0))
        );
        assert_eq!(series.latest("x.total"), Some(3.0));
        assert_eq!(series.mean("absent"), None);
        assert_eq!((series.extent("x.total"), series.latest_at("x.total")), (Some((2.0, 5.0)), Some(5.0)));
    }

    #[test]
    fn what_there_are_several_of_is_listed() {
        use webdyno_model::sample::MetricKind::Counter;
        let value = |name: &str| (name.to_owned(), Number(1.0));
        let values = ["nic.eth0.1.sent_bytes", "nic.eth0.sent_bytes", "nic.sent_bytes", "nic.lo.lost_count"];
        let sample = Sample { values: values.map(value).into(), ..Sample::default() };
        let measurement =
            Measurement { samples: vec![TimedSample { t_s: 1.0, sample }], ..Measurement::default() };
        let series = SeriesSet::of(&measurement);
        let metric = |name: &str| Metric { name: name.into(), kind: Counter, ..Metric::default() };
        let template = metric("nic.*.sent_bytes");
        let all: Vec<_> = series.instances(&template).collect();
        assert_eq!(all, [("eth0.1", "nic.eth0.1.sent_bytes"), ("eth0", "nic.eth0.sent_bytes")]);
        assert_eq!(series.instances(&metric("nic.sent_bytes")).count(), 0);
    }

    #[test]
    fn the_nearest_reading_is_near() {
        let all = measurement(&[(1.0, 7.0), (2.0, 1.0), (5.0, 3.0)]);
        let near = |time_s| SeriesSet::of(&all).nearest("x.total", time_s, 1.0);
        assert_eq!((near(1.9), near(1.2), near(6.0), near(3.5)), (Some(1.0), Some(7.0), Some(3.0), None));
    }
}
