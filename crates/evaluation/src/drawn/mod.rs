//! Servers drawn at random, judged: what each seed came to, and what the diagnosis says of its recording, with all that can be
//! seen and with less.
//!
//! What a seed came to is kept in `seed-N.json` beside its recordings; these are diagnosed anew each time, by the program as it is.

pub mod disturbance;
pub mod page;
pub mod statistics;
pub mod truth;

use crate::judge::JudgedDiagnosis;
use crate::judge::corpus::events;
use crate::judge::hidden_sources::{SignalSource, hide_sources};
use crate::judge::passive::passive;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use truth::Truth;
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::measurement::Measurement;
use webdyno_lab::draw::{DrawnServer, Seed};
use webdyno_lab::run::outcome::ScenarioOutcome;
use webdyno_lab::run::passive::ReportedFinding;
use webdyno_lab::run::tuned::TunedOutcome;
use webdyno_model::{Result, UserError};
use webdyno_session::log::FILE_NAME;
use webdyno_session::recording::Recording;

/// How much of a server is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    /// All, and the load is ours.
    Root,
    /// Without what only root may read.
    NotRoot,
    /// The load alone: nothing of the server.
    OutsideOnly,
    /// All, and the load is somebody else's.
    Passive,
}

impl Visibility {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Root, Self::NotRoot, Self::OutsideOnly, Self::Passive];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::NotRoot => "not root",
            Self::OutsideOnly => "outside only",
            Self::Passive => "passive, root",
        }
    }

    /// A measurement as it would have been.
    fn of(self, measurement: &Measurement) -> Measurement {
        match self {
            Self::Root => measurement.clone(),
            Self::NotRoot => hide_sources(&[SignalSource::Root], measurement),
            Self::Passive => passive(measurement),
            Self::OutsideOnly => Measurement {
                samples: vec![],
                earlier_samples: vec![],
                collectors: vec![],
                lacking: vec![],
                service: None,
                topology: None,
                server: None,
                ..measurement.clone()
            },
        }
    }
}

/// A draw that was not taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RejectedDraw {
    /// Its number.
    pub attempt: u32,
    /// Its faults.
    pub faults: Vec<String>,
    /// Why.
    pub why: String,
}

/// What a seed came to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SeedOutcome {
    /// The seed.
    pub seed: u64,
    /// Which draw of it was taken; `None` where none could be.
    pub attempt: Option<u32>,
    /// Those that were not.
    pub rejected: Vec<RejectedDraw>,
    /// What the server is, in words.
    pub words: String,
    /// The web server, and what makes its pages.
    pub services: [String; 2],
    /// The load.
    pub load: String,
    /// The faults, with how severe each is.
    pub faults: Vec<(String, String)>,
    /// What only looks wrong.
    pub decoys: Vec<String>,
    /// What limits it, by measuring; `None` where no draw was taken.
    pub truth: Option<Truth>,
    /// What the diagnosis said, by how much was seen; the answer first.
    pub found: Vec<(Visibility, Vec<ReportedFinding>)>,
    /// The first of these in words, of what was judged now.
    #[serde(skip)]
    pub summaries: Vec<(Visibility, String)>,
    /// What tuning came to, where it was asked for.
    pub tuned: Option<TunedOutcome>,
    /// Cores of the machine that something else used meanwhile, the most of its rounds; `None` where that was not told.
    #[serde(default)]
    pub others_cores: Option<f64>,
    /// How long all of it took.
    pub took_s: f64,
    /// The version of the program that made the recording.
    pub version: String,
}

impl SeedOutcome {
    /// One of which nothing is known yet.
    pub fn of_seed(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Takes a draw.
    pub fn take(&mut self, server: &DrawnServer, truth: Truth) {
        self.attempt = Some(server.seed.attempt);
        self.words = server.words.clone();
        self.services = server.services.clone();
        self.load = server.load.clone();
        self.faults =
            server.faults.iter().map(|fault| (fault.id.to_owned(), fault.severity.clone())).collect();
        self.decoys = server.decoys.iter().map(|words| (*words).to_owned()).collect();
        self.truth = Some(truth);
    }

    /// Does not take a draw.
    pub fn reject(&mut self, server: &DrawnServer, why: String) {
        let faults = server.faults.iter().map(|fault| fault.id.to_owned()).collect();
        self.rejected.push(RejectedDraw { attempt: server.seed.attempt, faults, why });
    }

    /// The name of the scenario that was taken.
    pub fn scenario(&self) -> Option<String> {
        self.attempt.map(|attempt| Seed { seed: self.seed, attempt }.name())
    }

    /// Diagnoses its recording, below `directory`, once for each visibility.
    pub fn diagnose(&mut self, directory: &Path) -> Result<()> {
        let Some(scenario) = self.scenario() else { return Ok(()) };
        let file = directory.join(scenario).join("01-as-found").join(FILE_NAME);
        let measurement = Recording::of(events(&file)?).last_measurement().ok_or_else(|| {
            UserError::cannot_run(format!("{} has no load", file.display()))
                .hint(format!("remove seed-{}.json, and the seed is run again", self.seed))
        })?;
        let mut summaries = vec![];
        let found = |visibility: Visibility| {
            let diagnosis = diagnose(&visibility.of(&measurement))?;
            summaries.extend(diagnosis.findings.first().map(|first| (visibility, first.summary.clone())));
            let reported = |finding: webdyno_model::diagnosis::Finding| ReportedFinding {
                id: finding.id,
                confidence: finding.confidence,
            };
            Ok((visibility, diagnosis.findings.into_iter().map(reported).collect()))
        };
        self.found = Visibility::ALL.into_iter().map(found).collect::<Result<_>>()?;
        self.summaries = summaries;
        Ok(())
    }

    /// What was found with so much to be seen, judged; `None` where no draw was taken.
    pub fn judged(&self, visibility: Visibility) -> Option<JudgedDiagnosis> {
        let right = &self.truth.as_ref()?.findings;
        let (_, found) = self.found.iter().find(|(known, _)| *known == visibility)?;
        let first = found.first().map(|finding| &finding.id);
        // Of several right answers the one that was given.
        let expected = first.filter(|id| right.contains(id)).or(right.first())?;
        Some(JudgedDiagnosis {
            scenario: self.scenario()?,
            number: 1,
            expected: expected.clone(),
            beside: right.clone(),
            found: found.iter().map(|finding| (finding.id.clone(), finding.confidence)).collect(),
            remedy: None,
        })
    }
}

/// Cores that something else used while the rounds of a run were measured, the most of them.
pub fn others_cores(outcome: &ScenarioOutcome) -> Result<Option<f64>> {
    let mut most: Option<f64> = None;
    for round in &outcome.rounds {
        let recording = Recording::of(events(&Path::new(&round.directory).join(FILE_NAME))?);
        if let Some(measurement) = recording.last_measurement() {
            let cores = disturbance::others_cores(&measurement)?;
            most = most.into_iter().chain(cores).reduce(f64::max);
        }
    }
    Ok(most)
}

/// Where what a seed came to is kept.
pub fn file(directory: &Path, seed: u64) -> PathBuf {
    directory.join(format!("seed-{seed}.json"))
}

/// What was kept, one in a line. Usage errors: a line that is none.
pub fn read(text: &str, path: &Path) -> Result<Vec<SeedOutcome>> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let read = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            UserError::usage(format!("{}:{number}: it is no line of `draw`: {error}", path.display()))
                .hint("`webdyno-evaluation draw --seeds 0..10 --out DIR --json FILE` writes them")
        })
    };
    lines.map(read).collect()
}
