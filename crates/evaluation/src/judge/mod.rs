//! What the diagnosis says of recordings of scenarios, against what their scenarios say: pure.
//!
//! A recording is that of one round: `NAME/NN.jsonl.gz` in a folder of kept ones, or `NN-the-round/events.jsonl` in the
//! directory of a run (`TIME-lab-NAME`). The first finding must be the round's; what stands beside it must be allowed
//! there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::measurement::Measurement;
use webdyno_lab::scenario::{Catalogue, ExpectedRemedy, ScenarioRound};
use webdyno_model::diagnosis::Diagnosis;
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

pub mod ceilings;
pub mod corpus;
pub mod hidden_sources;
pub mod page;
pub mod passive;
pub mod passive_outcomes;
pub mod predictions;
pub mod remedies;
pub mod tally;

pub use webdyno_lab::run::passive::is_generator_finding;

/// Where the recording of a round lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordingPlace {
    /// The scenario.
    pub scenario: String,
    /// The number of the round, from 1.
    pub number: usize,
    /// The file of events.
    pub file: PathBuf,
}

/// A round, and what its recording shows.
#[derive(Debug, Clone)]
pub struct JudgedRound {
    /// Where it lies.
    pub place: RecordingPlace,
    /// The round.
    pub round: ScenarioRound,
    /// Its load, with what was read meanwhile.
    pub measurement: Measurement,
}

/// What the diagnosis said of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedDiagnosis {
    /// The scenario.
    pub scenario: String,
    /// The number of the round, from 1.
    pub number: usize,
    /// The id that is the answer.
    pub expected: String,
    /// Ids that may stand beside it.
    pub beside: Vec<String>,
    /// What was found, the answer first, with how sure it is.
    pub found: Vec<(String, f64)>,
    /// What is wrong with the remedies of the first finding; `None` where nothing is, or none is asked for.
    pub remedy: Option<String>,
}

impl JudgedDiagnosis {
    /// Judges a diagnosis.
    pub fn of(place: &RecordingPlace, round: &ScenarioRound, diagnosis: &Diagnosis) -> Self {
        let found = diagnosis.findings.iter().map(|finding| (finding.id.clone(), finding.confidence));
        Self {
            scenario: place.scenario.clone(),
            number: place.number,
            expected: round.finding.clone(),
            beside: round.beside.clone(),
            found: found.collect(),
            remedy: round.remedy.as_ref().and_then(|wanted| wrong_remedy(wanted, diagnosis)),
        }
    }

    /// Its first finding.
    pub fn first(&self) -> (&str, f64) {
        self.found.first().map_or(("", 0.0), |(id, confidence)| (id.as_str(), *confidence))
    }

    /// Whether the first finding is the answer.
    pub fn is_right(&self) -> bool {
        self.first().0 == self.expected
    }

    /// What was found besides with some certainty, and may not be: whoever mends it does so in vain.
    pub fn unexpected_findings(&self) -> impl Iterator<Item = &str> {
        let sure = self.found.iter().skip(1).filter(|(_, sure)| *sure > tally::CONFIDENCE_MISLEADS);
        let others = sure.map(|(id, _)| id.as_str());
        others.filter(|id| *id != self.expected && !self.beside.iter().any(|beside| beside == id))
    }

    /// In a line: `WRONG  db-thread-churn 1  db-thread-churn: cpu-saturated 0.90, ...`.
    pub fn line(&self) -> String {
        let found: Vec<String> = self.found.iter().map(|(id, sure)| format!("{id} {sure:.2}")).collect();
        let state = if self.is_right() { "right" } else { "WRONG" };
        let remedy = self.remedy.as_ref().filter(|_| self.is_right());
        let remedy = remedy.map_or(String::new(), |remedy| format!("; remedy: {remedy}"));
        let unexpected: Vec<&str> = self.unexpected_findings().collect();
        let unexpected = match unexpected.as_slice() {
            [] => String::new(),
            some => format!("; not allowed beside it: {}", some.join(", ")),
        };
        format!(
            "{state}  {} {}  {}: {}{unexpected}{remedy}",
            self.scenario,
            self.number,
            self.expected,
            found.join(", ")
        )
    }
}

/// What is wrong with the remedies of the first finding, where a scenario says which one is right.
fn wrong_remedy(wanted: &ExpectedRemedy, diagnosis: &Diagnosis) -> Option<String> {
    let remedies = diagnosis.findings.first().map_or(&[][..], |finding| &finding.remedies);
    let of_setting = remedies
        .iter()
        .find(|one| one.setting.target.name() == wanted.service && one.setting.name == wanted.setting);
    let Some(remedy) = of_setting else {
        let given: Vec<String> = remedies.iter().map(|one| one.setting.full_name()).collect();
        return Some(format!("no {} {} in [{}]", wanted.service, wanted.setting, given.join(", ")));
    };
    let is_right = match &remedy.to {
        None => false,
        Some(to) => {
            let number = to.number();
            let is_in = |number: f64| {
                wanted.at_least.is_none_or(|least| number >= least)
                    && wanted.at_most.is_none_or(|most| number <= most)
            };
            wanted.is.as_ref().map_or_else(|| number.is_some_and(is_in), |word| to.to_string() == *word)
        }
    };
    let to = remedy.to.as_ref().map_or("nothing".into(), ToString::to_string);
    (!is_right).then(|| format!("{} {} to {to}", wanted.service, wanted.setting))
}

/// All cases in these places, in order. An error when a recording cannot be read, or is of no round.
pub fn cases(catalogue: &Catalogue, places: &[RecordingPlace]) -> Result<Vec<JudgedRound>> {
    let mut folders = BTreeMap::new();
    let mut cases = vec![];
    for place in places {
        if !folders.contains_key(&place.scenario) {
            folders.insert(place.scenario.clone(), catalogue.open(&place.scenario)?);
        }
        let rounds = &folders[&place.scenario].scenario.rounds;
        let round = place.number.checked_sub(1).and_then(|index| rounds.get(index)).ok_or_else(|| {
            let displayed = place.file.display();
            UserError::usage(format!(
                "{displayed} is of round {}, and {} has {}",
                place.number,
                place.scenario,
                rounds.len()
            ))
            .hint("record it anew: webdyno lab run")
        })?;
        if let Some(measurement) = Recording::of(corpus::events(&place.file)?).last_measurement() {
            cases.push(JudgedRound { place: place.clone(), round: round.clone(), measurement });
        }
    }
    Ok(cases)
}

/// Diagnoses all of them.
pub fn judge(cases: &[JudgedRound]) -> Result<Vec<JudgedDiagnosis>> {
    let judged =
        |case: &JudgedRound| Ok(JudgedDiagnosis::of(&case.place, &case.round, &diagnose(&case.measurement)?));
    cases.iter().map(judged).collect()
}

/// A line for each, the wrong ones last, and a summary.
pub fn text(judged: &[JudgedDiagnosis]) -> String {
    let mut text = String::new();
    for is_right in [true, false] {
        for one in judged.iter().filter(|one| one.is_right() == is_right) {
            let _ = writeln!(text, "{}", one.line());
        }
    }
    let right = judged.iter().filter(|one| one.is_right()).count();
    let _ = writeln!(text, "\n{right} of {} first findings are right", judged.len());
    let firsts: Vec<&JudgedDiagnosis> = judged.iter().filter(|one| one.number == 1).collect();
    let right = firsts.iter().filter(|one| one.is_right()).count();
    let _ = writeln!(text, "{right} of {} of servers as they are found", firsts.len());
    let alone = judged.iter().filter(|one| one.unexpected_findings().next().is_none()).count();
    let _ = writeln!(text, "{alone} of {} have nothing beside them that does not belong there", judged.len());
    text
}

/// The recordings below directories: of runs, or kept ones. An error when there is none in one.
pub fn places(directories: &[PathBuf]) -> Result<Vec<RecordingPlace>> {
    let mut places = vec![];
    for directory in directories {
        let found = corpus::places(directory)?;
        if found.is_empty() {
            let text = format!("there is no recording of a scenario in {}", directory.display());
            return Err(UserError::usage(text)
                .hint("give directories that `webdyno lab run` made, or one of kept recordings"));
        }
        places.extend(found);
    }
    places.sort();
    Ok(places)
}

/// The name of the scenario that a directory of a run is of: `20261122T152747Z-lab-s4-mod-perl`.
fn scenario_of(directory: &Path) -> Option<&str> {
    directory.file_name()?.to_str()?.split_once("-lab-").map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(found: &[(&str, f64)]) -> JudgedDiagnosis {
        JudgedDiagnosis {
            scenario: "x".into(),
            number: 1,
            expected: "log-io".into(),
            beside: vec!["cpu-saturated".into()],
            found: found.iter().map(|(id, sure)| ((*id).to_owned(), *sure)).collect(),
            remedy: None,
        }
    }

    #[test]
    fn the_first_finding_must_be_the_answer_and_the_others_allowed() {
        let right = judged(&[("log-io", 0.9), ("cpu-saturated", 0.8)]);
        assert!(right.is_right() && right.unexpected_findings().next().is_none());
        let wrong =
            judged(&[("cpu-saturated", 0.9), ("log-io", 0.8), ("foreign-load", 0.6), ("slow-clients", 0.5)]);
        assert!(!wrong.is_right());
        assert_eq!(wrong.unexpected_findings().collect::<Vec<_>>(), ["foreign-load"]);
        let text = text(&[wrong, right]);
        assert!(text.starts_with("right  x 1  log-io: log-io 0.90, cpu-saturated 0.80\nWRONG"), "{text}");
        assert!(text.contains("slow-clients 0.50; not allowed beside it: foreign-load\n"), "{text}");
        assert!(text.contains("1 of 2 first findings are right"), "{text}");
        assert!(text.contains("1 of 2 have nothing beside them"), "{text}");
    }

    #[test]
    fn a_run_is_named_after_its_scenario() {
        assert_eq!(scenario_of(Path::new("/x/20261122T152747Z-lab-s4-mod-perl")), Some("s4-mod-perl"));
        assert_eq!(scenario_of(Path::new("/x/20261122T152747Z-tune")), None);
    }
}
