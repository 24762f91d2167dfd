//! What visitors do: sessions of steps, pages with their resources, think times, and what they keep from one answer for
//! the next request.
//!
//! A *visitor* is one user with cookies and connections of its own. In closed arrival there are [`Visits::users`] of them,
//! each going from session to session; in open arrival each start is a visitor who makes one session.

use crate::duration::{duration_text, parse_duration_us};
use crate::error::{Result, UserError};
use crate::workload::body::Body;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use crate::auth::Auth;

/// Connections to one host that a browser opens over HTTP/1.1.
pub const CONNECTIONS_PER_HOST: u32 = 6;

/// What the visitors of a workload do. Requests are named by their place in `Workload::requests`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Visits {
    /// At least one.
    pub sessions: Vec<SessionSpec>,
    /// Whether they are taken one after the other, and from the first again, instead of drawn by their weights.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_turn: bool,
    /// Visitors at once in closed arrival.
    pub users: u32,
    /// After each step that has none of its own; the last step's is spent before the next session.
    pub think: Think,
    /// Whether visitors keep cookies.
    pub cookies: bool,
    /// Whether visitors keep answers as a browser's cache does (RFC 9111).
    pub cache: bool,
    /// Share of the sessions, 0 to 1, that the visitor of the session before begins again, with cookies, cache and
    /// connections; the others are begun by somebody new.
    pub returning_fraction: f64,
    /// Most connections of one visitor to one host.
    pub connections_per_host: u32,
    /// Connections that all users could have to one server, where nobody says how many there may be: with every further
    /// server that the load is led to there may be as many more. `None`: `Workload::connections` is the bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_server: Option<u32>,
    /// What `${name}` stands for from the beginning of each session.
    pub variables: BTreeMap<String, String>,
    /// Tables whose rows are handed to sessions.
    pub tables: Vec<Table>,
}

impl Default for Visits {
    fn default() -> Self {
        Self {
            sessions: vec![],
            in_turn: false,
            users: 1,
            think: Think::None,
            cookies: true,
            cache: false,
            returning_fraction: 0.0,
            connections_per_host: CONNECTIONS_PER_HOST,
            connections_per_server: None,
            variables: BTreeMap::new(),
            tables: vec![],
        }
    }
}

/// A session: steps in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSpec {
    /// Under which name it is counted.
    pub name: String,
    /// How often it is chosen, against the weights of the others; above 0.
    pub weight: f64,
    /// At least one.
    pub steps: Vec<StepSpec>,
}

/// One step of a session: a request, or a page.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepSpec {
    /// The request, or the page's document: its place in `Workload::requests`.
    pub request: usize,
    /// What else belongs to it, when it is a page.
    pub page: Option<PageSpec>,
    /// What is kept of the answer.
    pub captures: Vec<CaptureSpec>,
    /// Time until the next step; `None` for [`Visits::think`].
    pub think: Option<Think>,
    /// When it is due, since its session began; not before the step before it has its answer. `None`: then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_us: Option<u64>,
}

/// A page: a document and what it embeds. Its name is its document's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PageSpec {
    /// What it embeds.
    pub resources: Resources,
}

/// What a page embeds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resources {
    /// Nothing is fetched but the document.
    Left,
    /// These, once the document has come.
    Listed(Vec<Part>),
    /// What its HTML and its style sheets name.
    #[default]
    Found,
}

/// A listed resource of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its place in `Workload::requests`.
    pub request: usize,
    /// Whether the page fails without it.
    pub required: bool,
}

/// Time that a visitor spends with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Think {
    /// None at all.
    #[default]
    None,
    /// The same each time.
    Fixed {
        /// Its length.
        time_us: u64,
    },
    /// Anything between two times, equally often.
    Uniform {
        /// Shortest.
        min_us: u64,
        /// Longest.
        max_us: u64,
    },
    /// Exponential.
    Exponential {
        /// Mean.
        mean_us: u64,
    },
    /// Log-normal: the logarithm is normal.
    LogNormal {
        /// Median, which is exp(mu).
        median_us: u64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
}

impl Think {
    /// Reads `none`, `2s`, `1s..3s`, `exponential 2s` (the mean) or `log-normal 2s sigma 0.5` (the median). An error that
    /// says how to write it.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            UserError::usage(format!("`{text}` is not a think time")).hint(
                "write 2s, 1s..3s, 'exponential 2s', 'log-normal 2s sigma 0.5' or none; times have a unit: ms, s, m, h",
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let time = |word: &str| parse_duration_us(word).ok_or_else(wrong);
        Ok(match words[..] {
            ["none"] => Self::None,
            [word] => match word.split_once("..") {
                Some((min, max)) => {
                    let (min_us, max_us) = (time(min)?, time(max)?);
                    if min_us > max_us {
                        let reported = format!("a think time of {min} to {max} ends before it begins");
                        return Err(UserError::usage(reported).hint(format!("write {max}..{min}")));
                    }
                    if min_us == max_us { Self::fixed(min_us) } else { Self::Uniform { min_us, max_us } }
                }
                None => Self::fixed(time(word)?),
            },
            ["exponential", mean] => Self::Exponential { mean_us: time(mean)?.max(1) },
            ["log-normal", median, "sigma", sigma] => {
                let sigma: f64 =
                    sigma.parse().ok().filter(|sigma| (0.0..=5.0).contains(sigma)).ok_or_else(|| {
                        UserError::usage(format!("the sigma of a log-normal think time is `{sigma}`"))
                            .hint("write a number from 0 to 5; 0.5 to 1 is usual")
                    })?;
                Self::LogNormal { median_us: time(median)?.max(1), sigma }
            }
            _ => return Err(wrong()),
        })
    }

    fn fixed(time_us: u64) -> Self {
        if time_us == 0 { Self::None } else { Self::Fixed { time_us } }
    }

    /// Its mean in microseconds.
    pub fn mean_us(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Fixed { time_us } => time_us as f64,
            Self::Uniform { min_us, max_us } => (min_us as f64 + max_us as f64) / 2.0,
            Self::Exponential { mean_us } => mean_us as f64,
            Self::LogNormal { median_us, sigma } => median_us as f64 * (sigma * sigma / 2.0).exp(),
        }
    }
}

impl fmt::Display for Think {
    /// As [`Think::parse`] reads it.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = duration_text;
        match *self {
            Self::None => to.write_str("none"),
            Self::Fixed { time_us } => to.write_str(&time(time_us)),
            Self::Uniform { min_us, max_us } => write!(to, "{}..{}", time(min_us), time(max_us)),
            Self::Exponential { mean_us } => write!(to, "exponential {}", time(mean_us)),
            Self::LogNormal { median_us, sigma } => {
                write!(to, "log-normal {} sigma {sigma}", time(median_us))
            }
        }
    }
}

/// A value that is kept of an answer, under a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureSpec {
    /// `${name}` in later steps.
    pub name: String,
    /// Where it is found.
    pub from: CaptureFrom,
}

/// Where a value is found in an answer. The first match counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureFrom {
    /// A pattern in the decoded body: its first group, or all of it when it has none.
    Regex(String),
    /// A JSON pointer (RFC 6901) into the decoded body.
    JsonPointer(String),
    /// The value of a header field.
    Header(String),
    /// An attribute of the first element that a CSS selector matches.
    HtmlAttribute {
        /// As in `form#login input[name=csrf]`.
        selector: String,
        /// As in `value`.
        attribute: String,
    },
}

/// Rows for sessions: each takes one, whose fields are variables under the names of their columns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Table {
    /// The file that it was read from.
    pub file: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// How rows are handed out.
    pub order: RowOrder,
    /// The rows; never written down, as they may hold secrets.
    #[serde(skip)]
    pub rows: Arc<Vec<Vec<String>>>,
    /// How many there are, also when it was read from a recording.
    pub row_count: u64,
}

/// How rows are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowOrder {
    /// One after the other, and from the beginning again.
    #[default]
    InTurn,
    /// Drawn.
    Random,
}

/// A long list of requests, one of which is sent each time, kept as the text that it was read from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestList {
    /// The file that it was read from.
    pub file: String,
    /// How many requests it holds.
    pub count: u64,
    /// Whether one is drawn each time, instead of the next one taken. Where weights are given, they decide which.
    pub random: bool,
    /// Whether its entries have weights.
    pub weighted: bool,
    /// How many requests it has under each name that they are counted by; empty in recordings of before it was kept.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_name: BTreeMap<String, u64>,
    /// Its requests; `None` in recordings, which do not hold them.
    #[serde(skip)]
    pub entries: Option<Arc<ListEntries>>,
}

/// The requests of a list. `Workload::requests` holds one request for each kind: server, method and headers, with the
/// URL of its first entry; an entry says what differs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListEntries {
    /// Targets (path and query) and bodies, one behind the other.
    pub text: Vec<u8>,
    /// Where they lie.
    pub entries: Vec<ListEntry>,
    /// Bodies of files, which entries share.
    pub bodies: Vec<Body>,
    /// Weights of the entries, above 0; empty when all are the same.
    pub weights: Vec<f32>,
    /// Under which names the entries are counted.
    pub names: Vec<String>,
}

/// One request of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListEntry {
    /// Its kind: a place in `Workload::requests`.
    pub kind: u32,
    /// Where its target begins in the text.
    pub begin: u32,
    /// Length of the body behind it; [`ListEntry::SHARED`] + n for body n of a file.
    pub body: u32,
    /// Length of the target.
    pub target_bytes: u16,
    /// Its name: a place in [`ListEntries::names`].
    pub name: u16,
}

impl ListEntry {
    /// From here on [`ListEntry::body`] is the number of a shared body.
    pub const SHARED: u32 = 1 << 31;
}

impl ListEntries {
    /// Path and query of an entry.
    #[inline]
    pub fn target(&self, entry: &ListEntry) -> &[u8] {
        let begin = entry.begin as usize;
        self.text.get(begin..begin + usize::from(entry.target_bytes)).unwrap_or_default()
    }

    /// The body of an entry, empty for none; with the memory that it shares with others, if it is one of a file.
    #[inline]
    pub fn body(&self, entry: &ListEntry) -> (&[u8], Option<&Body>) {
        if let Some(number) = entry.body.checked_sub(ListEntry::SHARED) {
            let body = self.bodies.get(number as usize);
            return (body.map(Body::bytes).unwrap_or_default(), body);
        }
        let begin = entry.begin as usize + usize::from(entry.target_bytes);
        (self.text.get(begin..begin + entry.body as usize).unwrap_or_default(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn think_times_are_read_and_written() {
        for (text, think, mean_us) in [
            ("none", Think::None, 0.0),
            ("0s", Think::None, 0.0),
            ("2s", Think::Fixed { time_us: 2_000_000 }, 2e6),
            ("1500ms", Think::Fixed { time_us: 1_500_000 }, 1.5e6),
            ("1s..3s", Think::Uniform { min_us: 1_000_000, max_us: 3_000_000 }, 2e6),
            ("0s..1us", Think::Uniform { min_us: 0, max_us: 1 }, 0.5),
            ("exponential 1m", Think::Exponential { mean_us: 60_000_000 }, 60e6),
            ("log-normal 2s sigma 0", Think::LogNormal { median_us: 2_000_000, sigma: 0.0 }, 2e6),
        ] {
            let read = Think::parse(text).unwrap();
            assert_eq!((read, read.mean_us()), (think, mean_us), "{text}");
            assert_eq!(Think::parse(&think.to_string()), Ok(think), "{think}");
        }
    }

    #[test]
    fn what_is_no_think_time_is_told() {
        for text in
            ["", "2", "3s..1s", "1s..", "..", "exponential", "exponential 1", "log-normal 2s", "normal 2s"]
        {
            let reported = Think::parse(text).unwrap_err();
            assert!(reported.exit_code() == 2 && reported.hint.is_some(), "{text}: {reported}");
        }
        for sigma in ["-1", "nan", "6", "x"] {
            assert!(Think::parse(&format!("log-normal 2s sigma {sigma}")).is_err(), "{sigma}");
        }
    }
}
