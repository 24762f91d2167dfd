//! Whether a fault was there, and whether its fix brought something: signs and gains of a scenario's rounds, judged from
//! recordings. Pure: the same recording gives the same proof.
//!
//! Ratios of rates have a 95% interval that allows for autocorrelation ([`webdyno_analysis::measurement::statistics`]), and the end of it
//! that is worse is what counts; percentiles have none, and count as they are.

use crate::figures::{self, Figure, Figures};
use crate::scenario::{Gain, Sign, SignStatistic};
use serde::{Deserialize, Serialize};
use webdyno_analysis::diagnosis::missing::{missing, missing_reason};
use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::measurement::series::SeriesSet;
use webdyno_analysis::measurement::statistics::{mean, ratio_of_means};
use webdyno_model::number::significant;
use webdyno_model::sample::{Metric, MetricKind};
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

/// Two readings of one time lie at most so far apart.
const SAME_TIME_S: f64 = 1.0;
/// Half a millisecond of tolerance: times went through decimal text.
const TOLERANCE_S: f64 = 0.0005;

/// A load of a round, with what was read of the server meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The load and the readings.
    pub measurement: Measurement,
    /// The figures of the load.
    pub figures: Figures,
}

/// A sign, and what was seen of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignResult {
    /// The metric; where the sign has a star for several, the one that is meant by the value.
    pub metric: String,
    /// What of it: `max`, `min`, `mean`, `rise`, `last`; `None` of a figure of the load, which is of the whole load.
    pub take: Option<String>,
    /// What it is divided by.
    pub of: Option<String>,
    /// Its value; `None` when there was none.
    pub value: Option<f64>,
    /// What it had to be.
    pub bounds: Bounds,
    /// Whether it was.
    pub seen: bool,
    /// Why there is no value.
    pub why: Option<String>,
}

/// A gain, and whether it came.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GainResult {
    /// The figure or metric.
    pub metric: String,
    /// The round that it is compared with.
    pub over: String,
    /// Before and after; `None` when there was none.
    pub values: [Option<f64>; 2],
    /// After divided by before; `None` when there is none.
    pub ratio: Option<f64>,
    /// Its 95% interval; `None` where nothing tells it, as of percentiles.
    pub ci95: Option<[f64; 2]>,
    /// What it had to be.
    pub bounds: Bounds,
    /// Whether it was.
    pub held: bool,
    /// Why there is no ratio.
    pub why: Option<String>,
}

/// The bounds of a sign or of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Bounds {
    /// Lower bound.
    pub at_least: Option<f64>,
    /// Upper bound.
    pub at_most: Option<f64>,
}

impl Bounds {
    /// Whether all of an interval lies within.
    fn contain(self, [low, high]: [f64; 2]) -> bool {
        self.at_least.is_none_or(|least| low >= least) && self.at_most.is_none_or(|most| high <= most)
    }

    /// As words: `at least 3.5`.
    pub fn to_text(self) -> String {
        match (self.at_least, self.at_most) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            (Some(least), None) => format!("at least {least}"),
            (None, Some(most)) => format!("at most {most}"),
            (None, None) => "anything".into(),
        }
    }
}

/// A value, of one of several things where the metric has a star.
#[derive(Debug, Clone, PartialEq)]
struct InstanceValue {
    metric: String,
    value: f64,
}

/// Why there is no value.
type ValueResult<T> = std::result::Result<T, String>;

impl Evidence {
    /// That of the last load of a recording. An error when there is none, or a histogram of it is damaged.
    pub fn of(recording: &Recording) -> Result<Self> {
        let load = recording.last_load().ok_or_else(|| {
            let why = recording.end.as_ref().and_then(|(_, error)| error.as_deref());
            UserError::cannot_run(format!(
                "there was no load: {}",
                why.unwrap_or("it ended before its start")
            ))
        })?;
        Self::from_measurement(recording.measurement(load))
    }

    /// That of a measurement.
    pub fn from_measurement(measurement: Measurement) -> Result<Self> {
        let figures = Figures::of(&measurement)?;
        Ok(Self { measurement, figures })
    }

    /// What was seen of a sign.
    pub fn check_sign(&self, sign: &Sign) -> SignResult {
        let bounds = Bounds { at_least: sign.at_least, at_most: sign.at_most };
        let of_load = sign.metric.starts_with(figures::PREFIX);
        let within = |value: f64| bounds.contain([value, value]);
        let found = self.values(sign).map(|values| {
            // Of several one that is as it must be is enough.
            let observed = values.iter().find(|value| within(value.value)).cloned();
            observed.or_else(|| values.into_iter().reduce(|one, other| nearer_to_bounds(one, other, bounds)))
        });
        let (value, why) = match found {
            Ok(value) => (value, None),
            Err(why) => (None, Some(why)),
        };
        SignResult {
            metric: value.as_ref().map_or_else(|| sign.metric.clone(), |value| value.metric.clone()),
            take: (!of_load).then(|| sign.take.name().to_owned()),
            of: sign.of.as_ref().map(divisor_text),
            seen: value.as_ref().is_some_and(|value| within(value.value)),
            value: value.map(|value| significant(value.value, 5)),
            bounds,
            why,
        }
    }

    /// Whether a gain over an earlier load came.
    pub fn check_gain(&self, gain: &Gain, over: &str, before: &Self) -> GainResult {
        let bounds = Bounds { at_least: gain.at_least, at_most: gain.at_most };
        let both = before.figure(gain).and_then(|former| Ok((former, self.figure(gain)?)));
        let mut held = GainResult {
            metric: gain.metric.clone(),
            over: over.to_owned(),
            values: [None, None],
            ratio: None,
            ci95: None,
            bounds,
            held: false,
            why: None,
        };
        let (former, now) = match both {
            Ok(both) => both,
            Err(why) => {
                held.why = Some(why);
                return held;
            }
        };
        held.values = [Some(significant(former.value, 5)), Some(significant(now.value, 5))];
        if former.value <= 0.0 {
            // A ratio to nothing has no value; that there is something now is more than any ratio.
            held.held = now.value > 0.0 && bounds.at_most.is_none();
            held.why = Some("it was 0 before".into());
            return held;
        }
        let ratio = now.value / former.value;
        let interval = ratio_of_means(&former.seconds, &now.seconds).map(|ratio| ratio.ci95);
        held.held = match (interval, figures::is_rate(&gain.metric)) {
            (Some(interval), true) => bounds.contain(interval),
            // Of one second nobody knows how much of it is chance; that nothing is answered any more needs no interval.
            (None, true) if now.value > 0.0 => {
                held.why = Some("a rate of fewer than two whole seconds has no interval".into());
                false
            }
            _ => bounds.contain([ratio, ratio]),
        };
        held.ratio = Some(significant(ratio, 4));
        held.ci95 = interval.map(|ends| ends.map(|end| significant(end, 4)));
        held
    }

    /// What is compared for a gain.
    fn figure(&self, gain: &Gain) -> ValueResult<Figure> {
        if gain.metric.starts_with(figures::PREFIX) {
            return self.load(&gain.metric);
        }
        let take = gain.take.unwrap_or(SignStatistic::Mean);
        let values = self.metric(&gain.metric, take, None)?;
        let value = values.into_iter().next().ok_or_else(|| self.missing_reason(&gain.metric))?;
        let series = SeriesSet::of(&self.measurement);
        let is_level = take == SignStatistic::Mean && !is_counter(&series, &value.metric);
        let seconds = if is_level { series.levels(&value.metric) } else { vec![] };
        Ok(Figure { value: value.value, seconds })
    }

    fn load(&self, name: &str) -> ValueResult<Figure> {
        let why = || {
            let answered = self.figures.get("load.completed_count").is_some_and(|count| count.value > 0.0);
            let why = if answered { "this load has none" } else { "no request had a good answer" };
            format!("{name} has no value: {why}")
        };
        self.figures.get(name).ok_or_else(why)
    }

    fn values(&self, sign: &Sign) -> ValueResult<Vec<InstanceValue>> {
        if !sign.metric.starts_with(figures::PREFIX) {
            return self.metric(&sign.metric, sign.take, sign.of.as_ref());
        }
        let value = self.load(&sign.metric)?.value;
        let by = match &sign.of {
            None => 1.0,
            Some(of) => match number(of) {
                Some(number) => number,
                None => self.divisor_value(&divisor_text(of))?,
            },
        };
        Ok(vec![InstanceValue { metric: sign.metric.clone(), value: divide(value, by, &sign.metric)? }])
    }

    /// A figure of the load, or the mean of a metric.
    fn divisor_value(&self, name: &str) -> ValueResult<f64> {
        if name.starts_with(figures::PREFIX) {
            return Ok(self.load(name)?.value);
        }
        let values = self.metric(name, SignStatistic::Mean, None)?;
        values.first().map(|value| value.value).ok_or_else(|| self.missing_reason(name))
    }

    /// A statistic of a metric, of each of several where its name has a star.
    fn metric(
        &self,
        name: &str,
        take: SignStatistic,
        of: Option<&toml::Value>,
    ) -> ValueResult<Vec<InstanceValue>> {
        let series = SeriesSet::of(&self.measurement);
        let names: Vec<String> = match series.metric(name).filter(|metric| metric.name == name) {
            Some(metric) if name.contains('*') => {
                series.instances(metric).map(|(_, name)| name.to_owned()).collect()
            }
            _ => vec![name.to_owned()],
        };
        let mut values = vec![];
        let mut why = None;
        for name in names {
            match self.instance_value(&series, &name, take, of) {
                Ok(value) => values.push(InstanceValue { metric: name, value }),
                Err(reported) => why = Some(reported),
            }
        }
        match why {
            Some(why) if values.is_empty() => Err(why),
            None if values.is_empty() => Err(self.missing_reason(name)),
            _ => Ok(values),
        }
    }

    fn instance_value(
        &self,
        series: &SeriesSet<'_>,
        name: &str,
        take: SignStatistic,
        of: Option<&toml::Value>,
    ) -> ValueResult<f64> {
        let divisor = of.map(|of| (number(of), divisor_text(of)));
        let of_load = divisor.as_ref().filter(|(_, name)| name.starts_with(figures::PREFIX));
        let number = match (&divisor, of_load) {
            (_, Some((_, name))) => Some(self.load(name)?.value),
            (Some((number, _)), _) => *number,
            (None, _) => Some(1.0),
        };
        if take == SignStatistic::Rise || (take == SignStatistic::Mean && is_counter(series, name)) {
            return self.counter_increase(series, name, take, divisor.map(|(_, name)| name), number);
        }
        let points = self.points(series, name)?;
        let by = |(time, value): (f64, f64)| match (number, &divisor) {
            (Some(number), _) => divide(value, number, name),
            (None, Some((_, other))) => {
                let beside = series.nearest(other, time, SAME_TIME_S);
                let last =
                    || series.all(other).iter().rev().find(|(at, _)| *at <= time).map(|(_, last)| *last);
                let beside = beside.or_else(last).ok_or_else(|| self.missing_reason(other))?;
                divide(value, beside, name)
            }
            (None, None) => Ok(value),
        };
        // A moment without a divisor says nothing; that there was none at all is told.
        let (values, whys): (Vec<_>, Vec<_>) =
            points.into_iter().map(by).partition(|found: &ValueResult<f64>| found.is_ok());
        let values: Vec<f64> = values.into_iter().flatten().collect();
        if let (true, Some(Err(why))) = (values.is_empty(), whys.into_iter().next()) {
            return Err(why);
        }
        let taken = match take {
            SignStatistic::Max => values.into_iter().reduce(f64::max),
            SignStatistic::Min => values.into_iter().reduce(f64::min),
            SignStatistic::Mean | SignStatistic::Rise => mean(&values),
            SignStatistic::Last => values.last().copied(),
        };
        taken.ok_or_else(|| self.missing_reason(name))
    }

    /// By how much a counter rose, or how much a second, divided by what another one rose or by a number.
    fn counter_increase(
        &self,
        series: &SeriesSet<'_>,
        name: &str,
        take: SignStatistic,
        of: Option<String>,
        number: Option<f64>,
    ) -> ValueResult<f64> {
        let risen = |name: &str| {
            let (rise, seconds) = series.increase(name).ok_or_else(|| match series.span(name) {
                None => self.missing_reason(name),
                Some(_) => format!("{name} was set back, or read only once"),
            })?;
            Ok::<_, String>(if take == SignStatistic::Mean { rise / seconds } else { rise })
        };
        let by = match (number, of) {
            (Some(number), _) => number,
            (None, Some(other)) => risen(&other)?,
            (None, None) => 1.0,
        };
        divide(risen(name)?, by, name)
    }

    /// The readings of a level in the measured part.
    fn points(&self, series: &SeriesSet<'_>, name: &str) -> ValueResult<Vec<(f64, f64)>> {
        let (from_s, to_s) = series.window();
        let window = from_s - TOLERANCE_S..=to_s + TOLERANCE_S;
        let all = series.all(name);
        let points: Vec<_> = all.iter().filter(|(time, _)| window.contains(time)).copied().collect();
        match points.is_empty() {
            false => Ok(points),
            true if all.is_empty() => Err(self.missing_reason(name)),
            true => Err(format!("{name} was not read within the measured part")),
        }
    }

    /// Why a metric has no value.
    fn missing_reason(&self, name: &str) -> String {
        let describes = |metric: &Metric| metric.name == name || metric.describes(name);
        let collectors = &self.measurement.collectors;
        let collector = collectors.iter().find(|collector| collector.metrics.iter().any(describes));
        let Some(collector) = collector else {
            return format!("{name} has no value: no collector reads it");
        };
        let all = missing(&self.measurement);
        match missing_reason(&all, &collector.name, name) {
            Some(lack) => format!("{name} has no value: {}; {}", lack.why, lack.how_to_enable),
            None => format!("{name} has no value, and `{}` does not say why", collector.name),
        }
    }
}

impl SignStatistic {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Min => "min",
            Self::Mean => "mean",
            Self::Rise => "rise",
            Self::Last => "last",
        }
    }
}

fn is_counter(series: &SeriesSet<'_>, name: &str) -> bool {
    series.metric(name).is_some_and(|metric| metric.kind == MetricKind::Counter)
}

/// The one that comes nearer to its bounds.
fn nearer_to_bounds(one: InstanceValue, other: InstanceValue, bounds: Bounds) -> InstanceValue {
    let misses = |value: &InstanceValue| {
        let below = bounds.at_least.map_or(0.0, |least| least - value.value);
        below.max(bounds.at_most.map_or(0.0, |most| value.value - most))
    };
    if misses(&other) < misses(&one) { other } else { one }
}

fn divide(value: f64, by: f64, name: &str) -> ValueResult<f64> {
    if by == 0.0 { Err(format!("{name} would be divided by 0")) } else { Ok(value / by) }
}

fn number(value: &toml::Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}

/// What a sign is divided by, as it is written.
fn divisor_text(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
