//! `webdyno-evaluation judge`: what the diagnosis finds in recordings of the lab, against what their scenarios say.

use super::{print, read, write};
use crate::cli::JudgeArgs;
use std::path::Path;
use webdyno_evaluation::{drawn, judge, rivals};
use webdyno_lab::run::passive::PassiveOutcome;
use webdyno_lab::scenario::Catalogue;
use webdyno_model::Result;

/// Diagnoses recordings. Gives the exit code: 3 when a first finding is not what the scenario says.
pub fn judge(catalogue: &Catalogue, arguments: &JudgeArgs) -> Result<u8> {
    let places = judge::places(&arguments.directories)?;
    if let Some(folder) = &arguments.keep {
        judge::corpus::keep(&places, folder)?;
        return Ok(0);
    }
    let mut cases = judge::cases(catalogue, &places)?;
    if let Some(path) = &arguments.predictions {
        write(path, &judge::predictions::page(&judge::predictions::predictions(&cases)?))?;
        return Ok(0);
    }
    if arguments.passive {
        cases = judge::passive::passive_cases(&cases);
    }
    if arguments.ceilings {
        let (compared, next) = limits(&cases)?;
        print(&format!("{}\n", judge::ceilings::text(&compared, &next)))?;
        print(&format!("{}\n", judge::remedies::text(&judge::remedies::expected(&cases)?)))?;
    }
    let judged = judge::judge(&cases)?;
    match &arguments.out {
        Some(path) => {
            let rivals =
                arguments.rivals.as_deref().map(rivals::saved::read).transpose()?.unwrap_or_default();
            let (compared, next) = limits(&cases)?;
            let sections = [
                judge::ceilings::section::section(&compared, &next),
                judge::remedies::section(&judge::remedies::expected(&cases)?),
                judge::page::passive_section(
                    &judge::judge(&judge::passive::passive_cases(&cases))?,
                    arguments.watched.as_deref().map(read_passive_outcomes).transpose()?.as_deref(),
                ),
                rivals::section::section(&rivals, catalogue)?,
                arguments.drawn.as_deref().map_or(Ok(String::new()), drawn_section)?,
            ];
            let hidden = judge::hidden_sources::source_sets();
            let hidden = judge::tally::diagnose_with_hidden_sources(&cases, hidden)?;
            write(path, &judge::page::page(&judged, &hidden, &sections))?;
        }
        None => print(&judge::text(&judged))?,
    }
    Ok(if judged.iter().all(judge::JudgedDiagnosis::is_right) { 0 } else { 3 })
}

/// What is predicted of limits, against what was measured.
fn limits(
    cases: &[judge::JudgedRound],
) -> Result<(judge::ceilings::CeilingComparison, Vec<judge::ceilings::NextLimitCase>)> {
    Ok((judge::ceilings::predictions(cases)?, judge::ceilings::next_limits(cases)?))
}

/// What `draw` wrote, as a part of the page.
fn drawn_section(path: &Path) -> Result<String> {
    Ok(drawn::page::section(&drawn::read(&read(path)?, path)?))
}

/// What `watch` wrote.
fn read_passive_outcomes(path: &Path) -> Result<Vec<PassiveOutcome>> {
    judge::passive_outcomes::read(&read(path)?, path)
}
