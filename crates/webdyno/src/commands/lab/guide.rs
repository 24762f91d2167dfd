//! `webdyno lab show`, `lab pages`, `lab table` and `lab judge`: scenarios as pages, their runs as a table, and what the
//! diagnosis says of their recordings.

use crate::cli::lab_run::{LabJudgeArgs, LabPagesArgs, LabShowArgs, LabTableArgs};
use crate::commands::explain;
use crate::{finish, terminal};
use std::path::Path;
use webdyno_lab::run::watched::Watched;
use webdyno_lab::scenario::Catalogue;
use webdyno_lab::{judge, page, rivals, table};
use webdyno_model::Result;
use webdyno_model::error::io_error;

/// Prints the page of a scenario.
pub fn show(catalogue: &Catalogue, arguments: &LabShowArgs) -> Result<u8> {
    terminal::print(&page::page(&catalogue.open(&arguments.name)?)?)?;
    Ok(0)
}

/// Writes the pages of all scenarios, the list of metrics, and the manual.
pub fn pages(catalogue: &Catalogue, arguments: &LabPagesArgs) -> Result<u8> {
    let manual = ("manual.md".to_owned(), explain::manual());
    for (path, text) in page::guide(catalogue)?.into_iter().chain([manual]) {
        let path = arguments.out.join(path);
        let folder = path.parent().unwrap_or(&arguments.out);
        std::fs::create_dir_all(folder).map_err(|error| io_error("create", folder.display(), &error))?;
        finish::write(&path, &text)?;
    }
    Ok(0)
}

/// Writes the table of runs.
pub fn table(arguments: &LabTableArgs) -> Result<u8> {
    let mut runs = vec![];
    for path in &arguments.files {
        let text = std::fs::read_to_string(path).map_err(|error| io_error("read", path.display(), &error))?;
        runs.extend(table::read(&text, path)?);
    }
    let page = table::page(&runs, &machine());
    match &arguments.out {
        Some(path) => finish::write(path, &page)?,
        None => terminal::print(&page)?,
    }
    Ok(0)
}

/// Diagnoses recordings. Gives the exit code: 3 when a first finding is not what the scenario says.
pub fn judge(catalogue: &Catalogue, arguments: &LabJudgeArgs) -> Result<u8> {
    let places = judge::places(&arguments.directories)?;
    if let Some(folder) = &arguments.keep {
        judge::corpus::keep(&places, folder)?;
        return Ok(0);
    }
    let mut cases = judge::cases(catalogue, &places)?;
    if arguments.passive {
        cases = judge::passive::watched(&cases);
    }
    if arguments.ceilings {
        let (compared, next) = limits(&cases)?;
        terminal::print(&format!("{}\n", judge::ceilings::text(&compared, &next)))?;
        terminal::print(&format!("{}\n", judge::remedies::text(&judge::remedies::expected(&cases)?)))?;
    }
    let judged = judge::judge(&cases)?;
    match &arguments.out {
        Some(path) => {
            let rivals = arguments.rivals.as_deref().map(rivals::kept::read).transpose()?.unwrap_or_default();
            let (compared, next) = limits(&cases)?;
            let sections = [
                judge::ceilings::section::section(&compared, &next),
                judge::remedies::section(&judge::remedies::expected(&cases)?),
                judge::page::watching(
                    &judge::judge(&judge::passive::watched(&cases))?,
                    arguments.watched.as_deref().map(watched).transpose()?.as_deref(),
                ),
                rivals::section::section(&rivals, catalogue)?,
            ];
            finish::write(path, &judge::page::page(&judged, &judge::tally::blinded(&cases)?, &sections))?;
        }
        None => terminal::print(&judge::text(&judged))?,
    }
    Ok(if judged.iter().all(judge::Judged::is_right) { 0 } else { 3 })
}

/// What is predicted of limits, against what was measured.
fn limits(cases: &[judge::Case]) -> Result<(judge::ceilings::Compared, Vec<judge::ceilings::Next>)> {
    Ok((judge::ceilings::predictions(cases)?, judge::ceilings::next_limits(cases)?))
}

/// What runs with users wrote.
fn watched(path: &Path) -> Result<Vec<Watched>> {
    let text = std::fs::read_to_string(path).map_err(|error| io_error("read", path.display(), &error))?;
    judge::watched::read(&text, path)
}

/// This machine in a few words.
fn machine() -> String {
    let machine = webdyno_host::os::machine::environment();
    let words = [
        machine.cpu_model.clone(),
        machine.cores.map(|cores| format!("{cores} cores")),
        machine.memory_bytes.map(|bytes| format!("{:.0} GiB memory", bytes as f64 / f64::from(1 << 30))),
        machine.os.clone(),
        machine.kernel.map(|kernel| format!("kernel {kernel}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
