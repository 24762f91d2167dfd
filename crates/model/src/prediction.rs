//! Predictions: what a server would do with other settings or another load, from a recording, as docs/contract.md fixes them.

use crate::change::Change;
use serde::{Deserialize, Serialize};

/// The schema of [`PredictReport`].
pub const SCHEMA: &str = "webdyno/predict/v1";

/// A predicted or measured figure with its 95% interval.
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
    /// `cpu`, `disk`, `link`, `apache workers`, `php_fpm www`, `database connections`.
    pub name: String,
    /// How many it serves at once.
    pub servers: f64,
    /// Service demand of a request, microseconds; of a pool how long a request holds a place.
    pub demand_us: f64,
    /// Utilisation that was measured, 0 to 1.
    pub utilisation_now: Option<f64>,
    /// Utilisation that is predicted.
    pub utilisation: Option<f64>,
    /// Where it saturates, req/s.
    pub saturates_at_rate: Option<f64>,
}

/// A prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The settings that are supposed, from what they are.
    pub changes: Vec<Change>,
    /// The users (closed loop) or the rate (open loop) that are supposed.
    pub users: Option<f64>,
    /// Requests per second that are supposed to arrive; `None` for a closed loop.
    pub offered_rate: Option<f64>,
    /// What was measured: successful requests per second.
    pub rate_now: Option<f64>,
    /// What is predicted.
    pub rate: Option<Estimate>,
    /// Mean response time that was measured, microseconds.
    pub response_time_mean_us_now: Option<f64>,
    /// Mean response time that is predicted.
    pub response_time_mean_us: Option<Estimate>,
    /// Memory of the server's processes that is predicted, bytes.
    pub memory_bytes: Option<Estimate>,
    /// The limit that binds next, a finding's id.
    pub next_limit: Option<String>,
    /// The rate at which it does.
    pub next_limit_rate: Option<f64>,
    /// The model.
    pub stations: Vec<ModelStation>,
    /// What it rests on, and what it cannot tell. Sentences.
    pub notes: Vec<String>,
}
