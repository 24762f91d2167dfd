//! Signs and gains: metrics that some collector reads or figures that a load has, taken in a way that means something,
//! within bounds.

use super::{Check, below};
use crate::figures::{self, NAMES};
use crate::scenario::value_path::{PathStep, did_you_mean};
use crate::scenario::{Gain, Sign, SignStatistic};
use std::sync::OnceLock;
use webdyno_model::Result;
use webdyno_model::sample::{Metric, MetricKind};

/// What the collectors read, which is the same as long as the program runs.
fn metrics() -> &'static [Metric] {
    static METRICS: OnceLock<Vec<Metric>> = OnceLock::new();
    METRICS.get_or_init(|| {
        let all = webdyno_host::collectors::catalogue();
        all.into_iter().flat_map(|collector| collector.metrics).collect()
    })
}

/// The metric that describes a name, the one of several with the longest beginning.
fn metric(name: &str) -> Option<&'static Metric> {
    let describes = |metric: &&Metric| metric.name == name || metric.describes(name);
    let exact = metrics().iter().find(|metric| metric.name == name);
    exact.or_else(|| metrics().iter().filter(describes).max_by_key(|metric| metric.name.find('*')))
}

impl Check<'_> {
    pub(super) fn sign(&self, at: &[PathStep<'_>], sign: &Sign) -> Result<()> {
        self.metric(&below(at, &["metric".into()]), &sign.metric)?;
        let take = below(at, &["take".into()]);
        if sign.metric.starts_with(figures::PREFIX) && sign.take != SignStatistic::Max {
            let reported = self.wrong(
                &take,
                "a figure of the load is of all of its measured part: there is nothing to take of it",
            );
            return Err(reported.hint("leave `take` out"));
        }
        self.check_statistic(&take, &sign.metric, sign.take)?;
        match &sign.of {
            None => {}
            Some(toml::Value::String(name)) => {
                let of = below(at, &["of".into()]);
                self.metric(&of, name)?;
                self.check_single_instance(&of, name)?;
            }
            Some(number) => {
                let number = number.as_float().or_else(|| number.as_integer().map(|number| number as f64));
                if !number.is_some_and(|number| number.is_finite() && number != 0.0) {
                    let reported = self
                        .wrong(&below(at, &["of".into()]), "a sign is divided by a number or by a metric");
                    return Err(reported.hint("as in: of = 150, or: of = \"apache.workers_limit_count\""));
                }
            }
        }
        self.check_bounds(at, sign.at_least, sign.at_most)
    }

    pub(super) fn gain(&self, at: &[PathStep<'_>], gain: &Gain, before: &[&str]) -> Result<()> {
        if before.is_empty() {
            return Err(self
                .wrong(at, "the first round has nothing to gain over")
                .hint("`binds` says what must be seen"));
        }
        if let Some(over) = gain.over.as_deref().filter(|over| !before.contains(over)) {
            let reported =
                self.wrong(&below(at, &["over".into()]), format!("`{over}` is no round before this one"));
            let all = format!("before it come {}", before.join(", "));
            return Err(reported.hint(did_you_mean(over, before.iter().copied(), &all)));
        }
        let metric = below(at, &["metric".into()]);
        self.metric(&metric, &gain.metric)?;
        self.check_single_instance(&metric, &gain.metric)?;
        let take = below(at, &["take".into()]);
        match gain.take {
            Some(_) if gain.metric.starts_with(figures::PREFIX) => {
                let reported = self.wrong(
                    &take,
                    "a figure of the load is of all of its measured part: there is nothing to take of it",
                );
                return Err(reported.hint("leave `take` out"));
            }
            Some(taken) => self.check_statistic(&take, &gain.metric, taken)?,
            None => {}
        }
        if [gain.at_least, gain.at_most].into_iter().flatten().any(|bound| bound < 0.0) {
            return Err(self.wrong(at, "a ratio is never below 0"));
        }
        self.check_bounds(at, gain.at_least, gain.at_most)
    }

    fn metric(&self, at: &[PathStep<'_>], name: &str) -> Result<()> {
        if name.starts_with(figures::PREFIX) {
            if figures::exists(name) {
                return Ok(());
            }
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            let all = format!("there is {}", names.join(", "));
            let reported = self.wrong(at, format!("`{name}` is no figure of a load"));
            return Err(reported.hint(did_you_mean(name, names, &all)));
        }
        if metric(name).is_some() {
            return Ok(());
        }
        let names = metrics().iter().map(|metric| metric.name.as_str());
        let first = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let alike: Vec<&str> = names.filter(|known| first(known) == first(name)).collect();
        let reported = self.wrong(at, format!("no collector reads `{name}`"));
        let all = match alike.is_empty() {
            true => "docs/metrics.md lists all metrics; figures of the load begin with `load.`".into(),
            false => format!("there is {}", alike.join(", ")),
        };
        Err(reported.hint(did_you_mean(name, alike, &all)))
    }

    /// Where two values are set against each other, it must be known which ones.
    fn check_single_instance(&self, at: &[PathStep<'_>], name: &str) -> Result<()> {
        match name.contains('*') {
            false => Ok(()),
            true => Err(self
                .wrong(at, format!("`{name}` is of several, and nobody knows which of them is compared"))
                .hint("name one, as in: disk.sda.busy_s")),
        }
    }

    /// Of a counter only its rise means something, of a level everything else.
    fn check_statistic(&self, at: &[PathStep<'_>], name: &str, take: SignStatistic) -> Result<()> {
        let is_counter = metric(name).is_some_and(|metric| metric.kind == MetricKind::Counter);
        match (is_counter, take) {
            (true, SignStatistic::Max | SignStatistic::Min | SignStatistic::Last) => {
                let reported = self.wrong(
                    at,
                    format!("`{name}` is a counter: its `{}` says nothing of this load", take.name()),
                );
                Err(reported
                    .hint("take = \"rise\" is what it rose by, take = \"mean\" what it rose by a second"))
            }
            (false, SignStatistic::Rise) if metric(name).is_some() => {
                let reported =
                    self.wrong(at, format!("`{name}` is a level, which does not rise as counters do"));
                Err(reported.hint("take = \"max\", \"min\", \"mean\" or \"last\""))
            }
            _ => Ok(()),
        }
    }

    fn check_bounds(&self, at: &[PathStep<'_>], least: Option<f64>, most: Option<f64>) -> Result<()> {
        if least.is_none() && most.is_none() {
            return Err(self
                .wrong(at, "without a bound it would always hold")
                .hint("at_least, at_most, or both"));
        }
        self.bounds(at, least, most)
    }

    pub(super) fn bounds(&self, at: &[PathStep<'_>], least: Option<f64>, most: Option<f64>) -> Result<()> {
        if [least, most].into_iter().flatten().any(|bound| !bound.is_finite()) {
            return Err(self.wrong(at, "a bound is a number"));
        }
        match least.zip(most) {
            Some((least, most)) if least > most => {
                Err(self.wrong(at, format!("nothing is at least {least} and at most {most}")))
            }
            _ => Ok(()),
        }
    }
}
