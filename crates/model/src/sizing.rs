//! Sizing: which machines a goal needs, from recordings, as docs/contract.md fixes it.

use crate::error::{Result, UserError};
use crate::prediction::Estimate;
use serde::{Deserialize, Serialize};

/// The schema of [`SizeReport`].
pub const SCHEMA: &str = "webdyno/size/v1";

/// What the machines have to carry.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SizeGoal {
    /// Requests per second.
    Rate(f64),
    /// Pages per second.
    Pages(f64),
    /// Users, each of whom asks again after a think time.
    Users(f64),
}

impl SizeGoal {
    /// Reads `500/s`, `500 req/s`, `70 pages/s`, `2000 users`.
    ///
    /// # Errors
    /// Wrong usage, with the forms that there are.
    pub fn parse(text: &str) -> Result<Self> {
        let amount = |unit: &str| {
            let number = text.trim().strip_suffix(unit)?.trim().parse::<f64>().ok()?;
            (number.is_finite() && (1e-3..=1e9).contains(&number)).then_some(number)
        };
        let rate = ["req/s", "requests/s", "/s"].into_iter().find_map(amount).map(Self::Rate);
        let found = rate.or_else(|| amount("pages/s").map(Self::Pages));
        found.or_else(|| amount("users").map(Self::Users)).ok_or_else(|| {
            UserError::usage(format!("`{}` is not a goal that can be sized", text.trim())).hint(
                "write what the site has to carry: --goal 500/s, --goal '70 pages/s' or --goal '2000 users'",
            )
        })
    }
}

impl std::fmt::Display for SizeGoal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "{rate} req/s"),
            Self::Pages(rate) => write!(f, "{rate} pages/s"),
            Self::Users(users) => write!(f, "{users} users"),
        }
    }
}

impl TryFrom<String> for SizeGoal {
    type Error = UserError;
    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<SizeGoal> for String {
    fn from(goal: SizeGoal) -> Self {
        goal.to_string()
    }
}

/// A machine that can be had. What is unknown is not checked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// As its vendor calls it.
    pub name: String,
    /// Processor cores.
    pub cores: f64,
    /// Memory, bytes.
    pub memory_bytes: Option<f64>,
    /// Network, bits per second.
    pub nic_bit_s: Option<f64>,
    /// What its disk reads, bytes per second.
    pub disk_read_bytes_per_s: Option<f64>,
    /// What it costs, in the catalogue's currency.
    pub price: Option<f64>,
    /// Speed of a core relative to one of the measured server; `None` is taken for 1.
    pub speed: Option<f64>,
}

/// The machines that there are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MachineCatalogue {
    /// Where it comes from.
    pub source: String,
    /// What prices are in, such as `EUR/month`.
    pub currency: Option<String>,
    /// Its machines.
    pub machines: Vec<Machine>,
}

/// Which share of the bytes asked for is read from the disk with so much page cache, as an access log tells: `[bytes, miss ratio]`, by
/// rising bytes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MissRatioCurve(pub Vec<[f64; 2]>);

impl MissRatioCurve {
    /// The miss ratio with so much cache, 0 to 1; 1 below the first point, as at the last one beyond it. `None` without points.
    pub fn miss_ratio(&self, bytes: f64) -> Option<f64> {
        let after = self.0.iter().position(|point| point[0] >= bytes);
        let last = self.0.last()?;
        let Some(after) = after else { return Some(last[1]) };
        let [high_at, high] = self.0[after];
        let [low_at, low] = after.checked_sub(1).map_or([0.0, 1.0], |before| self.0[before]);
        Some(if high_at > low_at { low + (bytes - low_at) / (high_at - low_at) * (high - low) } else { high })
    }

    /// The smallest cache that misses no more than this share; `None` where none does.
    pub fn cache_bytes(&self, miss_ratio: f64) -> Option<f64> {
        let after = self.0.iter().position(|point| point[1] <= miss_ratio)?;
        let [high_at, high] = self.0[after];
        let [low_at, low] = after.checked_sub(1).map_or([0.0, 1.0], |before| self.0[before]);
        let share = if low > high { ((low - miss_ratio) / (low - high)).clamp(0.0, 1.0) } else { 1.0 };
        Some(low_at + share * (high_at - low_at))
    }
}

/// What a request takes of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// `cpu`, `database cpu`, `link`, `wait`, `worker memory`, `child memory`, `connection memory`.
    pub resource: String,
    /// `us` or `bytes`; of memory for each worker, child or connection in use.
    pub unit: String,
    /// How much.
    pub per_request: f64,
    /// 95% interval.
    pub ci95: Option<[f64; 2]>,
}

/// What was measured: predictions go no further than four times of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MeasuredRange {
    /// Loads that were read.
    pub loads: u64,
    /// Length of the shortest, its warm-up apart.
    pub shortest_s: f64,
    /// Highest rate, successful requests per second.
    pub rate: f64,
    /// Most users; `None` where none of the loads had users.
    pub users: Option<f64>,
    /// Most processor cores that the server could use.
    pub cores: f64,
}

/// Percentiles of a predicted figure.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RateSpread {
    /// Nine of ten predictions are at least this.
    pub p10: f64,
    /// Half of them are.
    pub p50: f64,
    /// One of ten is.
    pub p90: f64,
}

/// Machines of one kind that carry the goal.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SizeChoice {
    /// Of the catalogue.
    pub name: String,
    /// Processor cores of each.
    pub cores: f64,
    /// Memory of each, bytes.
    pub memory_bytes: Option<f64>,
    /// Network of each, bits per second.
    pub nic_bit_s: Option<f64>,
    /// How many, spare ones among them.
    pub count: u64,
    /// Those of them that are spare.
    pub spare: u64,
    /// What limits them first, a finding's id.
    pub first_limit: Option<String>,
    /// What limits them next.
    pub second_limit: Option<String>,
    /// Highest rate of all but the spare ones, requests per second.
    pub rate: RateSpread,
    /// Utilisation of their processors at the goal, 0 to 1.
    pub cpu_fraction: f64,
    /// Machines of its own for the database; `None` where it runs beside the web server, or there is none.
    pub database: Option<DatabaseChoice>,
    /// Price of all of them; `None` where a price is unknown.
    pub cost: Option<f64>,
}

/// Machines for the database.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DatabaseChoice {
    /// Of the catalogue.
    pub name: String,
    /// Processor cores of each.
    pub cores: f64,
    /// Memory of each, bytes.
    pub memory_bytes: Option<f64>,
    /// How many: one, and the spare ones.
    pub count: u64,
}

/// What each server needs at the goal, headroom included.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SizeNeeds {
    /// Processor cores as fast as those measured.
    pub cores: f64,
    /// Memory, bytes, with that for files where it is known; `None` where the recordings do not tell.
    pub memory_bytes: Option<f64>,
    /// Of that what files need so that the disk is no limit, or hardly read where nobody told what it reads; `None` without a
    /// miss-ratio curve, or where no memory is enough.
    #[serde(default)]
    pub cache_bytes: Option<f64>,
    /// Network, bits per second; `None` where the recordings do not tell.
    pub link_bit_s: Option<f64>,
}

/// A setting to start with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartSetting {
    /// `MaxRequestWorkers`.
    pub setting: String,
    /// Its value.
    pub value: u64,
    /// Why so many. A sentence.
    pub why: String,
}

/// A load that was predicted from one at another size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeCheck {
    /// What was asked for.
    pub what: String,
    /// The sizes of the load it was predicted from: `1 core`.
    pub from: String,
    /// The sizes for which it was predicted.
    pub to: String,
    /// Successful requests per second, as predicted; `None` where nothing is, and `why` says so.
    pub predicted: Option<Estimate>,
    /// As measured.
    pub measured: f64,
    /// By how much the prediction is off: 0.1 is 10% too high.
    pub error: Option<f64>,
    /// Why nothing is predicted.
    pub why: Option<String>,
}

/// The memory of a store of files: where the rate comes to 90% of that with plenty of memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KneeCheck {
    /// What was asked for.
    pub what: String,
    /// Memory of the load it was predicted from, bytes.
    pub from_bytes: f64,
    /// Of it held by processes and the kernel, bytes.
    pub held_bytes: f64,
    /// What the disk reads at most, as measured.
    pub disk_bytes_per_s: f64,
    /// As predicted, bytes.
    pub predicted_bytes: f64,
    /// As measured, between two sizes, bytes.
    pub measured_bytes: f64,
    /// By how much the prediction is off: 0.1 is 10% too high.
    pub error: f64,
}

/// A recommendation, or with `--validate` how well predictions hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SizeReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// What the machines have to carry; `None` with `--validate`.
    pub goal: Option<SizeGoal>,
    /// The same as requests per second, with what it grows.
    pub goal_rate: Option<f64>,
    /// Share of the processors, link and memory that stays free at the goal.
    pub headroom: f64,
    /// What was measured.
    pub measured: MeasuredRange,
    /// What a request takes.
    pub demands: Vec<Demand>,
    /// Machines that carry the goal, the cheapest first.
    pub choices: Vec<SizeChoice>,
    /// The first of `choices` by its name; `None` where there is none, and `refused` says why.
    pub recommended: Option<String>,
    /// What each of the recommended servers needs.
    pub needs: Option<SizeNeeds>,
    /// Mean response time at the goal on the recommended servers, microseconds.
    pub response_time_mean_us: Option<f64>,
    /// Settings to start with on them.
    pub settings: Vec<StartSetting>,
    /// What prices are in.
    pub currency: Option<String>,
    /// Why nothing is recommended, and what to measure. A sentence.
    pub refused: Option<String>,
    /// What it rests on, and what it cannot tell. Sentences.
    pub notes: Vec<String>,
    /// Of `--validate`: each load from each other one of the same site.
    pub validation: Vec<SizeCheck>,
    /// Of `--validate --working-set`: the memory that the files need.
    #[serde(default)]
    pub knees: Vec<KneeCheck>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_rates_pages_or_users() {
        for (text, expected) in [
            ("500/s", Some(SizeGoal::Rate(500.0))),
            (" 500 req/s ", Some(SizeGoal::Rate(500.0))),
            ("70 pages/s", Some(SizeGoal::Pages(70.0))),
            ("2000 users", Some(SizeGoal::Users(2000.0))),
            ("max", None),
            ("500", None),
            ("-5/s", None),
            ("0 users", None),
            ("NaN/s", None),
            ("inf/s", None),
            ("p99<200ms", None),
        ] {
            assert_eq!(SizeGoal::parse(text).ok(), expected, "{text}");
        }
        let error = SizeGoal::parse("fast").unwrap_err();
        assert_eq!((error.exit_code(), error.hint.is_some()), (2, true));
    }

    #[test]
    fn a_curve_of_misses_lies_between_its_points() {
        let curve = MissRatioCurve(vec![[1e9, 0.5], [2e9, 0.1]]);
        for (bytes, expected) in [(0.0, 1.0), (5e8, 0.75), (1e9, 0.5), (1.5e9, 0.3), (9e9, 0.1)] {
            assert!((curve.miss_ratio(bytes).unwrap() - expected).abs() < 1e-9, "{bytes}");
        }
        assert_eq!(MissRatioCurve::default().miss_ratio(1e9), None);
        for (ratio, expected) in [(1.0, 0.0), (0.75, 5e8), (0.5, 1e9), (0.3, 1.5e9), (0.1, 2e9)] {
            assert!((curve.cache_bytes(ratio).unwrap() - expected).abs() < 1.0, "{ratio}");
        }
        assert_eq!(curve.cache_bytes(0.05), None);
    }
}
