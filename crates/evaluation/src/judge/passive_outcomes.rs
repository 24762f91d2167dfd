//! What runs with unknown users wrote: read, and told on the page of the diagnosis. Pure.

use std::fmt::Write as _;
use std::path::Path;
use webdyno_lab::run::passive::PassiveOutcome;
use webdyno_lab::users::WRK;
use webdyno_model::{Result, UserError};

/// Runs as `webdyno-evaluation watch --json` writes them, one in a line; of several of a scenario the last one counts. Usage
/// errors: a line that is none.
pub fn read(text: &str, path: &Path) -> Result<Vec<PassiveOutcome>> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let read = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            let place = format!("{}:{number}", path.display());
            UserError::usage(format!("{place}: it is no line of `watch`: {error}"))
                .hint("`webdyno-evaluation watch NAME --json FILE` writes them, a line for each")
        })
    };
    let mut all: Vec<PassiveOutcome> = vec![];
    for one in lines.map(read) {
        let one: PassiveOutcome = one?;
        all.retain(|other| other.scenario != one.scenario);
        all.push(one);
    }
    all.sort_by(|a, b| a.scenario.cmp(&b.scenario));
    Ok(all)
}

/// How many of these are right.
pub fn right<'a>(all: impl IntoIterator<Item = &'a PassiveOutcome>) -> usize {
    all.into_iter().filter(|one| one.right).count()
}

/// The part of the page.
pub fn section(all: &[PassiveOutcome]) -> String {
    let (by_wrk, by_us): (Vec<&PassiveOutcome>, Vec<&PassiveOutcome>) =
        all.iter().partition(|one| one.users == WRK);
    let mut text = format!(
        "Live, on each server as it is found: other programs send what the scenario's users ask for, and after some seconds \
         `webdyno diagnose --for 12s` watches, with nothing known of the load. {} of {} first findings are right: {} of {} \
         under wrk, {} of {} under a generator of our own in a process of its own, where wrk cannot send the load.\n\n",
        right(all),
        all.len(),
        right(by_wrk.iter().copied()),
        by_wrk.len(),
        right(by_us.iter().copied()),
        by_us.len()
    );
    text.push_str("| scenario | users | the answer | found |\n|---|---|---|---|\n");
    for one in all {
        let found: Vec<String> =
            one.found.iter().map(|found| format!("`{}` {:.2}", found.id, found.confidence)).collect();
        let found: Vec<String> = one.error.iter().cloned().chain(found).collect();
        let (name, wrong) = (&one.scenario, if one.right { "" } else { "**wrong:** " });
        let users = one.why.as_ref().map_or(one.users.clone(), |why| format!("{}: {why}", one.users));
        let _ = writeln!(
            text,
            "| [{name}](scenarios/{name}.md) | {users} | `{}` | {wrong}{} |",
            one.expected,
            found.join(", ")
        );
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_lab::run::passive::{ReportedFinding, SCHEMA};

    fn one(scenario: &str, users: &str, right: bool) -> PassiveOutcome {
        PassiveOutcome {
            schema: SCHEMA.into(),
            scenario: scenario.into(),
            users: users.into(),
            why: (users != WRK).then(|| "wrk knows no pages".into()),
            expected: "log-io".into(),
            found: vec![ReportedFinding {
                id: if right { "log-io" } else { "unknown" }.into(),
                confidence: 0.9,
            }],
            error: None,
            right,
            directory: "d".into(),
        }
    }

    #[test]
    fn the_last_run_of_each_scenario_counts() {
        let written = [one("b", WRK, false), one("a", "webdyno", true), one("b", WRK, true)];
        let text: String = written.iter().map(|one| serde_json::to_string(one).unwrap() + "\n").collect();
        let all = read(&text, Path::new("f")).unwrap();
        assert_eq!(all, [written[1].clone(), written[2].clone()]);
        assert!(read("{}", Path::new("f")).unwrap_err().message.starts_with("f:1: "));
    }

    #[test]
    fn the_page_tells_who_sent_and_what_was_wrong() {
        let section = section(&[one("a", "webdyno", false), one("b", WRK, true)]);
        for part in [
            "1 of 2 first findings are right: 1 of 1 under wrk, 0 of 1 under",
            "| [a](scenarios/a.md) | webdyno: wrk knows no pages | `log-io` | **wrong:** `unknown` 0.90 |",
            "| [b](scenarios/b.md) | wrk | `log-io` | `log-io` 0.90 |",
        ] {
            assert!(section.contains(part), "{part} in\n{section}");
        }
    }
}
