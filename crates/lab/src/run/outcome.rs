//! What comes of a run: the JSON of `webdyno lab run`, as docs/contract.md fixes it.

use crate::evidence::{GainResult, SignResult};
use crate::scenario::Group;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema of [`ScenarioOutcome`].
pub const SCHEMA: &str = "webdyno/lab/v1";

/// One run of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScenarioOutcome {
    /// [`SCHEMA`].
    pub schema: String,
    /// Its name.
    pub scenario: String,
    /// Its heading.
    pub title: String,
    /// The part of the list that it belongs to.
    pub group: Group,
    /// How many rounds the scenario has.
    pub rounds_in_all: usize,
    /// How long building it took.
    pub up_s: f64,
    /// How long the rounds took.
    pub run_s: f64,
    /// How long removing it took; `None` when it stays up.
    pub down_s: Option<f64>,
    /// Those that were made.
    pub rounds: Vec<RoundOutcome>,
    /// Whether all signs were seen and all gains held.
    pub proved: bool,
    /// Where the recordings are.
    pub directory: String,
}

/// One round.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RoundOutcome {
    /// Its name.
    pub name: String,
    /// Figures of the load; `None` is unknown.
    pub figures: BTreeMap<String, Option<f64>>,
    /// What had to be seen.
    pub signs: Vec<SignResult>,
    /// What had to come of the fix.
    pub gains: Vec<GainResult>,
    /// The id of the finding that is the answer.
    pub expected: String,
    /// The id of the finding that a diagnosis of the recording names first: told, not judged.
    pub found: String,
    /// Ids of the findings that may stand beside the answer.
    pub beside: Vec<String>,
    /// Ids of the others that were found.
    pub found_beside: Vec<String>,
    /// Why the figures may not be believed: the generator's verdict on itself.
    pub generator: Option<String>,
    /// The recording.
    pub directory: String,
}

impl RoundOutcome {
    /// Whether all signs were seen and all gains held.
    pub fn is_proved(&self) -> bool {
        self.signs.iter().all(|sign| sign.seen) && self.gains.iter().all(|gain| gain.held)
    }

    /// A figure by its name, if it is known.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied().flatten()
    }
}
