//! Predictions: what a server would do with other settings or another load, from a recording, as docs/contract.md fixes them.

use crate::change::Change;
use serde::{Deserialize, Serialize};

/// The schema of [`PredictReport`].
pub const SCHEMA: &str = "webdyno/predict/v1";

/// A predicted figure with its 95% interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The middle.
    pub value: f64,
    /// 95% interval; `None` where it cannot be told.
    pub ci95: Option<[f64; 2]>,
}

/// A resource or pool of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelStation {
    /// As the ceilings of a diagnosis name it: `processor cores`, `apache workers`, `children of pool www`.
    pub name: String,
    /// How many requests it serves at once, as supposed; of a link `None`.
    pub servers: Option<f64>,
    /// Service demand of a request, microseconds; of a pool for how long a request holds a place when it waits nowhere inside.
    pub demand_us: f64,
    /// Utilisation that was measured, 0 to 1.
    pub utilisation_now: Option<f64>,
    /// Utilisation that is predicted, 0 to 1.
    pub utilisation: Option<f64>,
    /// Where it saturates, requests per second.
    pub saturates_at_rate: Option<f64>,
}

/// A prediction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PredictReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The settings that are supposed, from what they were.
    pub changes: Vec<Change>,
    /// The users (of a load without think time: connections) that are supposed; `None` in an open loop.
    pub users: Option<f64>,
    /// Requests per second that are supposed to arrive; `None` in a closed loop.
    pub offered_rate: Option<f64>,
    /// What was measured: successful requests per second.
    pub rate_now: Option<f64>,
    /// What is predicted; `None` where the recording cannot tell, and `notes` say why.
    pub rate: Option<Estimate>,
    /// Mean response time that was measured, microseconds.
    pub response_time_mean_us_now: Option<f64>,
    /// Mean response time that is predicted; `None` also where more arrives than can be served: it grows as long as the load lasts.
    pub response_time_mean_us: Option<Estimate>,
    /// Mean time of a page that was measured, microseconds; `None` for a load without pages.
    pub page_time_mean_us_now: Option<f64>,
    /// Mean time of a page that is predicted: in place of that of its requests, many of which wait at the same time.
    pub page_time_mean_us: Option<Estimate>,
    /// Memory of the server's processes that was measured, bytes.
    pub memory_bytes_now: Option<f64>,
    /// Memory of the server's processes that is predicted, bytes.
    pub memory_bytes: Option<Estimate>,
    /// The limit that binds first with what is supposed, a finding's id.
    pub next_limit: Option<String>,
    /// The rate at which it does.
    pub next_limit_rate: Option<f64>,
    /// The model.
    pub stations: Vec<ModelStation>,
    /// By how much the times of the model had to be scaled to give what was measured, 0 to 1; `None` without a model.
    pub residual_fraction: Option<f64>,
    /// What it rests on, and what it cannot tell. Sentences.
    pub notes: Vec<String>,
}
