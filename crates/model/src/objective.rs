//! Objectives: `p99<200ms`, `errors<0.1%`, `rate>500`. What a run must meet to end with exit code 0.

use crate::error::{Result, UserError};
use crate::run::RunReport;
use serde::{Deserialize, Serialize};

/// One objective, kept with the text the user wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Objective {
    text: String,
    figure: Figure,
    below: bool,
    or_equal: bool,
    bound: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    Quantile(Quantile),
    ErrorFraction,
    Rate,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Quantile {
    Mean,
    P50,
    P75,
    P90,
    P95,
    P99,
    P999,
    Max,
}

/// An objective with what was measured: times in microseconds, errors as a fraction, rates per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveResult {
    /// As the user wrote it.
    pub slo: String,
    /// `None` when nothing was measured; then it is not met.
    pub value: Option<f64>,
    /// Whether it was met.
    pub met: bool,
}

impl Objective {
    /// Reads `FIGURE<BOUND` or `FIGURE>BOUND` (also `<=`, `>=`). Figures: mean, p50, p75, p90, p95, p99, p999, max
    /// (response time, with us, ms or s), errors (with %), rate.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            UserError::usage(format!("`{text}` is not an objective: {why}"))
                .hint("write FIGURE<BOUND, as in --slo 'p99<200ms', --slo 'errors<0.1%', --slo 'rate>500'")
        };
        let at = text.find(['<', '>']).ok_or_else(|| wrong("it has neither < nor >"))?;
        let below = text[at..].starts_with('<');
        let rest = &text[at + 1..];
        let (or_equal, bound) = rest.strip_prefix('=').map_or((false, rest), |bound| (true, bound));
        let figure = Figure::parse(text[..at].trim()).ok_or_else(|| {
            wrong("the figure is none of mean, p50, p75, p90, p95, p99, p999, max, errors, rate")
        })?;
        let bound = figure.parse_bound(bound.trim()).ok_or_else(|| wrong(figure.bound_help()))?;
        Ok(Self { text: text.to_owned(), figure, below, or_equal, bound })
    }

    /// Holds the objective against a run.
    pub fn check(&self, run: &RunReport) -> ObjectiveResult {
        let value = self.figure.value(run);
        let met = value.is_some_and(|value| {
            let strictly = if self.below { value < self.bound } else { value > self.bound };
            strictly || (self.or_equal && value == self.bound)
        });
        ObjectiveResult { slo: self.text.clone(), value, met }
    }
}

impl Figure {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "mean" => Self::Quantile(Quantile::Mean),
            "p50" => Self::Quantile(Quantile::P50),
            "p75" => Self::Quantile(Quantile::P75),
            "p90" => Self::Quantile(Quantile::P90),
            "p95" => Self::Quantile(Quantile::P95),
            "p99" => Self::Quantile(Quantile::P99),
            "p999" | "p99.9" => Self::Quantile(Quantile::P999),
            "max" => Self::Quantile(Quantile::Max),
            "errors" => Self::ErrorFraction,
            "rate" => Self::Rate,
            _ => return None,
        })
    }

    fn parse_bound(self, text: &str) -> Option<f64> {
        match self {
            Self::Quantile(_) => parse_duration_us(text).map(|us| us as f64),
            Self::ErrorFraction => {
                let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
                (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
            }
            Self::Rate => {
                let number = ["req/s", "requests/s", "/s"]
                    .iter()
                    .find_map(|unit| text.strip_suffix(unit))
                    .unwrap_or(text);
                number.trim().parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0)
            }
        }
    }

    fn bound_help(self) -> &'static str {
        match self {
            Self::Quantile(_) => "the bound is not a time with us, ms or s",
            Self::ErrorFraction => "the bound is not a percentage",
            Self::Rate => "the bound is not a rate",
        }
    }

    fn value(self, run: &RunReport) -> Option<f64> {
        let dist = &run.response_time_us;
        let time = |time: Option<u64>| time.map(|us| us as f64);
        match self {
            Self::Rate => run.rate,
            Self::ErrorFraction => {
                let ended = run.requests.completed + run.requests.failed;
                (ended > 0).then(|| run.requests.failed as f64 / ended as f64)
            }
            Self::Quantile(Quantile::Mean) => dist.mean,
            Self::Quantile(Quantile::P50) => time(dist.p50),
            Self::Quantile(Quantile::P75) => time(dist.p75),
            Self::Quantile(Quantile::P90) => time(dist.p90),
            Self::Quantile(Quantile::P95) => time(dist.p95),
            Self::Quantile(Quantile::P99) => time(dist.p99),
            Self::Quantile(Quantile::P999) => time(dist.p999),
            Self::Quantile(Quantile::Max) => time(dist.max),
        }
    }
}

/// Reads a time such as `10s`, `200ms`, `1.5m`, `250us`, `1h`; a number without a unit is not a time.
pub fn parse_duration_us(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(split);
    let scale = match unit.trim() {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" | "min" => 60e6,
        "h" => 3600e6,
        _ => return None,
    };
    let us = number.parse::<f64>().ok()? * scale;
    (us.is_finite() && us <= 1e15).then_some(us.round() as u64)
}

impl TryFrom<String> for Objective {
    type Error = UserError;
    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Objective> for String {
    fn from(objective: Objective) -> Self {
        objective.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rate: f64, completed: u64, failed: u64, p99_us: Option<u64>) -> RunReport {
        let mut run = RunReport { rate: Some(rate), ..RunReport::default() };
        (run.requests.completed, run.requests.failed) = (completed, failed);
        run.response_time_us.p99 = p99_us;
        run
    }

    #[test]
    fn objectives_hold_against_a_run() {
        let measured = run(500.0, 999, 1, Some(200_000));
        for (text, met) in [
            ("p99<200ms", false),
            ("p99<=200ms", true),
            ("p99 < 0.3s", true),
            ("errors<0.1%", false),
            ("errors<=0.1%", true),
            ("rate>499", true),
            ("rate>500 req/s", false),
            ("mean<1s", false), // nothing measured: not met
        ] {
            assert_eq!(Objective::parse(text).unwrap().check(&measured).met, met, "{text}");
        }
    }

    #[test]
    fn wrong_objectives_are_usage_errors_with_a_hint() {
        for text in ["", "p99", "p98<1s", "p99<200", "errors<5", "rate>fast", "errors<-1%"] {
            let error = Objective::parse(text).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}");
            assert!(error.hint.is_some());
        }
    }

    #[test]
    fn durations_need_a_unit() {
        for (text, us) in [
            ("10s", Some(10_000_000)),
            ("1.5ms", Some(1500)),
            ("2m", Some(120_000_000)),
            ("10", None),
            ("s", None),
            ("", None),
            ("-1s", None),
            ("1d", None),
        ] {
            assert_eq!(parse_duration_us(text), us, "{text}");
        }
    }
}
