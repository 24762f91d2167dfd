//! What advisers said, in a file: a line of JSON for each scenario, with what it is worth.

use super::advice::{Advice, AdviceVerdict};
use super::{AdviserResult, ScenarioAdvice};
use serde::Serialize;
use std::path::Path;
use webdyno_lab::scenario::{Catalogue, ExpectedRemedy};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// One adviser's words, judged.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct JudgedAdviser {
    /// What it says, short, a line each.
    pub says: Vec<String>,
    /// How many settings it wants changed.
    pub changes: usize,
    /// What that is worth.
    #[serde(flatten)]
    pub verdict: AdviceVerdict,
    /// Whether it was asked and answered.
    pub answered: bool,
}

impl JudgedAdviser {
    fn of(
        heard: &ScenarioAdvice,
        remedy: Option<&ExpectedRemedy>,
        advice: &[Advice],
        says: Vec<String>,
    ) -> Self {
        let changes = advice.iter().filter(|one| one.is_change()).count();
        Self { says, changes, verdict: AdviceVerdict::of(&heard.answer, remedy, advice), answered: true }
    }

    fn without_response(why: &str) -> Self {
        Self { says: vec![why.to_owned()], ..Self::default() }
    }
}

impl ScenarioAdvice {
    /// What apache2buddy's words are worth. `remedy` is the scenario's.
    pub fn apache2buddy(&self, remedy: Option<&ExpectedRemedy>) -> JudgedAdviser {
        match &self.apache2buddy {
            AdviserResult::Skipped { why } => JudgedAdviser::without_response(&format!("skipped: {why}")),
            AdviserResult::Failed { why } => JudgedAdviser::without_response(&format!("no answer: {why}")),
            AdviserResult::Answered(observed) => {
                let advice = observed.advice();
                let mut says: Vec<String> = advice.iter().map(|one| one.text.clone()).collect();
                if !advice.iter().any(Advice::is_change) {
                    says.push(observed.no_advice_text());
                }
                JudgedAdviser::of(self, remedy, &advice, says)
            }
        }
    }

    /// What MySQLTuner's words are worth; `None` where there is no database.
    pub fn mysqltuner(&self, remedy: Option<&ExpectedRemedy>) -> Option<JudgedAdviser> {
        Some(match self.mysqltuner.as_ref()? {
            AdviserResult::Skipped { why } => JudgedAdviser::without_response(&format!("skipped: {why}")),
            AdviserResult::Failed { why } => JudgedAdviser::without_response(&format!("no answer: {why}")),
            AdviserResult::Answered(output) => {
                JudgedAdviser::of(self, remedy, &output.advice(), output.short())
            }
        })
    }

    /// Whether the diagnosis names what limits.
    pub fn is_found(&self) -> bool {
        self.found == self.answer
    }
}

/// The remedy of a scenario's server as it is found.
pub fn remedy(catalogue: &Catalogue, scenario: &str) -> Result<Option<ExpectedRemedy>> {
    let folder = catalogue.open(scenario)?;
    Ok(folder.scenario.rounds.first().and_then(|round| round.remedy.clone()))
}

/// What is in a file; nothing where there is none.
pub fn read(path: &Path) -> Result<Vec<ScenarioAdvice>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        read => read.map_err(|error| io_error("read", path.display(), &error))?,
    };
    let line = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            UserError::usage(format!("{}, line {number}: {error}", path.display()))
                .hint("write it anew: webdyno-evaluation rivals all --json FILE")
        })
    };
    (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()).map(line).collect()
}

/// Puts what was heard into a file, in place of what is there of the same scenarios.
pub fn write(path: &Path, new: &[ScenarioAdvice], catalogue: &Catalogue) -> Result<()> {
    let mut all = read(path)?;
    all.retain(|one| new.iter().all(|other| other.scenario != one.scenario));
    all.extend_from_slice(new);
    all.sort_by(|one, other| one.scenario.cmp(&other.scenario));
    let lines = all.iter().map(|one| line(one, catalogue)).collect::<Result<String>>()?;
    std::fs::write(path, lines).map_err(|error| io_error("write", path.display(), &error))
}

/// A line of such a file.
pub fn line(heard: &ScenarioAdvice, catalogue: &Catalogue) -> Result<String> {
    #[derive(Serialize)]
    struct AdviceCounts {
        apache2buddy: JudgedAdviser,
        mysqltuner: Option<JudgedAdviser>,
    }
    #[derive(Serialize)]
    struct KeptLine<'a> {
        #[serde(flatten)]
        heard: &'a ScenarioAdvice,
        worth: AdviceCounts,
    }
    let remedy = remedy(catalogue, &heard.scenario)?;
    let worth = AdviceCounts {
        apache2buddy: heard.apache2buddy(remedy.as_ref()),
        mysqltuner: heard.mysqltuner(remedy.as_ref()),
    };
    let line = serde_json::to_string(&KeptLine { heard, worth }).map_err(|error| {
        UserError::cannot_run(format!("what was said cannot be written as JSON: {error}"))
    })?;
    Ok(line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::apache2buddy::ScriptInput;
    use crate::rivals::mysqltuner::Recommendations;

    fn scenario_advice(scenario: &str) -> ScenarioAdvice {
        let observed =
            ScriptInput { mpm: "event".into(), max_request_workers: 150.0, ..ScriptInput::default() };
        let output =
            Recommendations { adjust: vec!["max_connections (> 20)".into()], ..Recommendations::default() };
        ScenarioAdvice {
            scenario: scenario.into(),
            answer: "db-connections-exhausted".into(),
            found: "db-connections-exhausted".into(),
            confidence: 0.95,
            remedy_is_right: true,
            apache2buddy: AdviserResult::Answered(observed),
            mysqltuner: Some(AdviserResult::Answered(output)),
        }
    }

    #[test]
    fn what_is_kept_is_read_again_and_replaced_by_what_is_newer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("said.jsonl");
        assert_eq!(read(&path).unwrap(), []);
        let (one, other) = (scenario_advice("db-connections-exhausted"), scenario_advice("s5-lamp"));
        write(&path, &[other.clone(), one.clone()], &Catalogue::BuiltIn).unwrap();
        assert_eq!(read(&path).unwrap(), [one.clone(), other.clone()]);
        let newer =
            ScenarioAdvice { apache2buddy: AdviserResult::Failed { why: "no worker_kib".into() }, ..other };
        write(&path, std::slice::from_ref(&newer), &Catalogue::BuiltIn).unwrap();
        assert_eq!(read(&path).unwrap(), [one, newer]);
        std::fs::write(&path, "\n{}\n").unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.message.contains("said.jsonl, line 2: missing field"), "{error}");
    }

    #[test]
    fn each_is_judged_by_what_it_says() {
        let one = scenario_advice("db-connections-exhausted");
        let remedy = remedy(&Catalogue::BuiltIn, &one.scenario).unwrap();
        let buddy = one.apache2buddy(remedy.as_ref());
        assert_eq!(buddy.says, ["no advice: it calculates for prefork only"]);
        assert!(buddy.answered && !buddy.verdict.names && buddy.changes == 0);
        let tuner = one.mysqltuner(remedy.as_ref()).unwrap();
        assert!(tuner.verdict.names && tuner.changes == 1);
        assert_eq!(tuner.says, ["max_connections (> 20)"]);
        let skipped = AdviserResult::Skipped { why: "the package mysqltuner is not installed".into() };
        let one = ScenarioAdvice { mysqltuner: Some(skipped), ..one };
        let tuner = one.mysqltuner(remedy.as_ref()).unwrap();
        assert_eq!(tuner.says, ["skipped: the package mysqltuner is not installed"]);
        assert!(!tuner.answered && !tuner.verdict.names);
    }
}
