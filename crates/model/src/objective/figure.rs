//! What an objective looks at: which requests or pages, which of their figures, in which unit.

use crate::duration::parse_duration_us;

/// Whose figure it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All requests.
    All,
    /// All requests of this name.
    Request(String),
    /// All pages.
    Pages,
    /// All pages of this name.
    Page(String),
}

/// A figure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// A time, in microseconds.
    Time(TimeKind, Statistic),
    /// The share that failed, 0 to 1.
    ErrorFraction,
    /// How many failed.
    Failed,
    /// Good ones per second.
    Rate,
}

/// Which time of a request. A page has only the first one, its page time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeKind {
    /// From the intended start to the end.
    Response,
    /// From the actual send.
    Service,
    /// Of connections.
    Connect,
    /// From the actual send to the first byte of the answer.
    FirstByte,
    /// Added by the generator.
    ClientDelay,
}

/// Which statistic of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it all
pub enum Statistic {
    Mean,
    P50,
    P75,
    P90,
    P95,
    P99,
    P999,
    Max,
}

/// The figures, as a user may write them.
pub(super) const FIGURES: &str = "mean, p50, p75, p90, p95, p99, p999, max (alone, or behind service., connect., \
     first_byte. or client_delay.), errors, failed, rate";

impl TimeKind {
    const NAMED: [(&'static str, Self); 5] = [
        ("response", Self::Response),
        ("service", Self::Service),
        ("connect", Self::Connect),
        ("first_byte", Self::FirstByte),
        ("client_delay", Self::ClientDelay),
    ];
}

impl Statistic {
    const NAMED: [(&'static str, Self); 9] = [
        ("mean", Self::Mean),
        ("p50", Self::P50),
        ("p75", Self::P75),
        ("p90", Self::P90),
        ("p95", Self::P95),
        ("p99", Self::P99),
        ("p999", Self::P999),
        ("p99.9", Self::P999),
        ("max", Self::Max),
    ];

    /// Its name in distributions: `p999`.
    pub fn name(self) -> &'static str {
        let named = Self::NAMED.iter().find(|(_, statistic)| *statistic == self);
        named.map_or("", |(name, _)| name)
    }

    /// The share of the samples beyond it, of percentiles.
    pub fn beyond(self) -> Option<f64> {
        match self {
            Self::Mean | Self::Max => None,
            Self::P50 => Some(0.5),
            Self::P75 => Some(0.25),
            Self::P90 => Some(0.1),
            Self::P95 => Some(0.05),
            Self::P99 => Some(0.01),
            Self::P999 => Some(0.001),
        }
    }
}

impl Figure {
    /// Reads `p99`, `service.p99`, `errors`.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "errors" => return Some(Self::ErrorFraction),
            "failed" => return Some(Self::Failed),
            "rate" => return Some(Self::Rate),
            _ => {}
        }
        let statistic = |name: &str| Statistic::NAMED.iter().find(|(known, _)| *known == name);
        if let Some((_, statistic)) = statistic(name) {
            return Some(Self::Time(TimeKind::Response, *statistic));
        }
        let (times, name) = name.split_once('.')?;
        let (_, times) = TimeKind::NAMED.iter().find(|(known, _)| *known == times)?;
        statistic(name).map(|(_, statistic)| Self::Time(*times, *statistic))
    }

    pub(super) fn parse_bound(self, text: &str) -> Option<f64> {
        match self {
            Self::Time(..) => parse_duration_us(text).map(|us| us as f64),
            Self::ErrorFraction => {
                let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
                (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
            }
            Self::Failed => text.parse::<u32>().ok().map(f64::from),
            Self::Rate => {
                let units = ["req/s", "requests/s", "pages/s", "/s"];
                let number = units.iter().find_map(|unit| text.strip_suffix(unit)).unwrap_or(text);
                number.trim().parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0)
            }
        }
    }

    pub(super) fn bound_help(self) -> &'static str {
        match self {
            Self::Time(..) => "the bound is not a time with us, ms, s or m",
            Self::ErrorFraction => "the bound is not a percentage",
            Self::Failed => "the bound is not a whole number",
            Self::Rate => "the bound is not a rate",
        }
    }

    /// Whether it is a time that only the requests together have.
    pub(super) fn needs_all_requests(self) -> bool {
        matches!(self, Self::Time(times, _) if times != TimeKind::Response)
    }

    /// The unit of its values: `us`, `fraction`, `count`, `1/s`.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Time(..) => "us",
            Self::ErrorFraction => "fraction",
            Self::Failed => "count",
            Self::Rate => "1/s",
        }
    }
}
