//! `webdyno-evaluation rivals`: what apache2buddy and MySQLTuner say of scenarios, beside the diagnosis of the same load.

use super::{ScenarioRunner, check_root, folders, print, print_error, print_note};
use crate::cli::ScenariosArgs;
use std::path::PathBuf;
use webdyno_evaluation::rivals::saved::{self, JudgedAdviser};
use webdyno_evaluation::rivals::{AdviserResult, RivalOptions, ScenarioAdvice, query_advisers};
use webdyno_lab::scenario::Catalogue;
use webdyno_model::{ErrorKind, Result, UserError};

/// Asks about scenarios. Gives the exit code: 1 when one of several could not be run.
pub fn rivals(catalogue: &Catalogue, webdyno: Option<PathBuf>, arguments: &ScenariosArgs) -> Result<u8> {
    let folders = folders(catalogue, &arguments.names)?;
    check_root()?;
    let runner = ScenarioRunner::new(webdyno)?;
    let up = runner.up();
    let mut print_progress = |line: &str| {
        if !arguments.quiet {
            print_note(line);
        }
    };
    let (mut failed, mut skipped) = (0, 0);
    for folder in &folders {
        let run = runner.run(arguments, folder, folders.len())?;
        match query_advisers(folder, &RivalOptions { run, up: &up }, &mut print_progress) {
            Ok(heard) => {
                skipped += usize::from(matches!(heard.mysqltuner, Some(AdviserResult::Skipped { .. })));
                print_one(&heard, catalogue)?;
                if let Some(path) = &arguments.json {
                    saved::write(path, &[heard], catalogue)?;
                }
            }
            Err(error) if folders.len() == 1 || error.kind == ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                let message = format!("{}: {}", folder.name, error.message);
                print_error(&UserError { message, ..error });
                failed += 1;
            }
        }
    }
    if skipped > 0 {
        print_note(&format!(
            "MySQLTuner was skipped in {skipped} of {} scenarios: apt-get install mysqltuner mariadb-client",
            folders.len()
        ));
    }
    Ok(u8::from(failed > 0))
}

/// A line for each of the three.
fn print_one(heard: &ScenarioAdvice, catalogue: &Catalogue) -> Result<()> {
    let remedy = saved::remedy(catalogue, &heard.scenario)?;
    let ScenarioAdvice { scenario, answer, found, confidence, .. } = heard;
    let mut text = format!("{scenario}: {answer}\n  webdyno       {found} {confidence:.2}\n");
    let mut add = |name: &str, judged: &JudgedAdviser| {
        let verdict = &judged.verdict;
        let words = [
            (verdict.names, "names it"),
            (!verdict.harms.is_empty(), "makes it worse"),
            (!verdict.needless.is_empty(), "needless"),
        ];
        let words: Vec<&str> = words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        let worth = if words.is_empty() { String::new() } else { format!(" [{}]", words.join(", ")) };
        let says = if judged.says.is_empty() { "nothing".to_owned() } else { judged.says.join("; ") };
        text.push_str(&format!("  {name:12}  {says}{worth}\n"));
    };
    add("apache2buddy", &heard.apache2buddy(remedy.as_ref()));
    if let Some(judged) = heard.mysqltuner(remedy.as_ref()) {
        add("MySQLTuner", &judged);
    }
    print(&text)
}
