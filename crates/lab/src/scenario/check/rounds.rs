//! Rounds: names that differ, hosts and links that exist, findings that are known, and something that is proved.

use super::{Check, below};
use crate::scenario::value_path::{PathStep, did_you_mean};
use crate::scenario::{ExpectedRemedy, ScenarioRound, file_name};
use std::collections::BTreeSet;
use std::sync::LazyLock;
use webdyno_analysis::limits;
use webdyno_model::Result;

/// Ids of findings: those of the limits, in alphabetical order.
pub static FINDINGS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let mut ids: Vec<_> = limits::ALL.iter().map(|limit| limit.id.as_str()).collect();
    ids.sort_unstable();
    ids
});

impl Check<'_> {
    pub(super) fn rounds(&self) -> Result<()> {
        let rounds = &self.folder.scenario.rounds;
        if rounds.is_empty() {
            return Err(self
                .wrong(&["rounds".into()], "there is no round")
                .hint("as in: [[rounds]] name = \"as found\""));
        }
        let mut names: Vec<&str> = vec![];
        for (index, round) in rounds.iter().enumerate() {
            let at: [PathStep<'_>; 2] = ["rounds".into(), index.into()];
            self.round_name(&at, round, &names)?;
            self.changes(&at, round)?;
            self.findings(&at, round)?;
            if round.binds.is_empty() && round.gains.is_empty() {
                let reported = self.wrong(&at, format!("round `{}` proves nothing", round.name));
                return Err(
                    reported.hint("as in: binds = [{ metric = \"load.failed_fraction\", at_most = 0.01 }]")
                );
            }
            for (sign, bind) in round.binds.iter().enumerate() {
                self.sign(&below(&at, &["binds".into(), sign.into()]), bind)?;
            }
            for (number, gain) in round.gains.iter().enumerate() {
                self.gain(&below(&at, &["gains".into(), number.into()]), gain, &names)?;
            }
            names.push(&round.name);
        }
        Ok(())
    }

    fn round_name(&self, at: &[PathStep<'_>], round: &ScenarioRound, known: &[&str]) -> Result<()> {
        let at = below(at, &["name".into()]);
        if file_name(&round.name).is_empty() || round.name.contains('\n') || round.name.len() > 60 {
            return Err(self
                .wrong(&at, "a round is named by a few words")
                .hint("as in: name = \"225 workers\""));
        }
        if known.contains(&round.name.as_str()) {
            return Err(self.wrong(&at, format!("there are two rounds `{}`", round.name)));
        }
        Ok(())
    }

    fn changes(&self, at: &[PathStep<'_>], round: &ScenarioRound) -> Result<()> {
        for (host, lines) in &round.by_hand_on {
            let at = below(at, &["by_hand_on".into(), PathStep::Key(host)]);
            self.host(&at, host)?;
            self.lines(&at, lines)?;
        }
        self.lines(&below(at, &["by_hand".into()]), &round.by_hand)?;
        for (name, host) in &round.hosts {
            self.changed_host(&below(at, &["hosts".into(), PathStep::Key(name)]), name, host)?;
        }
        for (index, link) in round.links.iter().enumerate() {
            self.changed_link(&below(at, &["links".into(), index.into()]), link)?;
        }
        self.machine_of(&below(at, &["machine".into()]), &round.machine)?;
        match &round.load {
            Some(load) => self.load(&below(at, &["load".into()]), load),
            None => Ok(()),
        }
    }

    fn lines(&self, at: &[PathStep<'_>], lines: &[String]) -> Result<()> {
        match lines.iter().position(|line| line.trim().is_empty() || line.contains('\0')) {
            Some(index) => Err(self.wrong(&below(at, &[index.into()]), "nothing can be typed here")),
            None => Ok(()),
        }
    }

    fn findings(&self, at: &[PathStep<'_>], round: &ScenarioRound) -> Result<()> {
        self.finding(&below(at, &["finding".into()]), &round.finding)?;
        for (index, id) in round.beside.iter().enumerate() {
            self.finding(&below(at, &["beside".into(), index.into()]), id)?;
        }
        if let Some(id) = &round.next_limit {
            self.finding(&below(at, &["next_limit".into()]), id)?;
        }
        let mut all: BTreeSet<&String> = round.beside.iter().collect();
        all.insert(&round.finding);
        if all.len() != round.beside.len() + 1 {
            return Err(self.wrong(&below(at, &["beside".into()]), "a finding is named twice"));
        }
        match &round.remedy {
            Some(remedy) => self.remedy(&below(at, &["remedy".into()]), remedy),
            None => Ok(()),
        }
    }

    fn finding(&self, at: &[PathStep<'_>], id: &str) -> Result<()> {
        if FINDINGS.contains(&id) {
            return Ok(());
        }
        let all = format!("there is {}", FINDINGS.join(", "));
        Err(self.wrong(at, format!("`{id}` is no id of a finding")).hint(did_you_mean(
            id,
            FINDINGS.iter().copied(),
            &all,
        )))
    }

    fn remedy(&self, at: &[PathStep<'_>], remedy: &ExpectedRemedy) -> Result<()> {
        let is_number = remedy.at_least.is_some() || remedy.at_most.is_some();
        if is_number == remedy.is.is_some() {
            let reported = self.wrong(at, "a remedy is a number within bounds, or a word");
            return Err(reported.hint("as in: at_least = 90, at_most = 400, or: is = \"event\""));
        }
        self.bounds(at, remedy.at_least, remedy.at_most)
    }
}
