//! docs/lab.md: a line for each scenario, with the figures of its last runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use webdyno_lab::evidence::GainResult;
use webdyno_lab::page::group_title;
use webdyno_lab::run::outcome::{RoundOutcome, ScenarioOutcome};
use webdyno_model::number::prose::{format_figure, format_percent, format_time};
use webdyno_model::{Result, UserError};

/// What stands above the table.
const HEAD: &str = "\
<!-- Made by `make lab` from runs on the machine that is named below. -->
# The lab, measured

Every scenario proves itself: what limits is seen in the recording, and what each fix brought is a ratio with its 95% interval.
`make lab` runs all of them and writes this page; [scenarios](scenarios.md) tells what they are.

";

/// Runs as `webdyno lab run --json` writes them, one in a line, the older ones first. Usage errors: a line that is none.
pub fn read(text: &str, path: &Path) -> Result<Vec<ScenarioOutcome>> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let read = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            let place = format!("{}:{number}", path.display());
            UserError::usage(format!("{place}: it is no run of a scenario: {error}"))
                .hint("`webdyno lab run NAME --json FILE` writes them, a line for each")
        })
    };
    lines.map(read).collect()
}

/// The page, of runs in their order: of several runs of a scenario the figures of the last one with all its rounds, and how
/// many of them proved it.
/// `machine` is where they were made.
pub fn page(runs: &[ScenarioOutcome], machine: &str) -> String {
    let mut by_name: BTreeMap<(_, &str), Vec<&ScenarioOutcome>> = BTreeMap::new();
    for run in runs {
        by_name.entry((run.group, &run.scenario)).or_default().push(run);
    }
    let proved = by_name.values().filter(|runs| runs.iter().all(|run| run.proved)).count();
    let mut page = HEAD.to_owned();
    let _ = writeln!(
        page,
        "{proved} of {} scenarios proved themselves in every run, on {machine}.\n",
        by_name.len()
    );
    page.push_str("| scenario | proved | good answers/s, round by round | p99 | failed | gains | findings | up, run, down |\n");
    page.push_str("|---|---|---|---|---|---|---|---|\n");
    for runs in by_name.values() {
        let whole = |run: &&&ScenarioOutcome| run.rounds.len() == run.rounds_in_all;
        if let Some(last) = runs.iter().rev().find(whole).or(runs.last()) {
            let _ = writeln!(page, "{}", line(last, runs));
        }
    }
    page
}

fn line(last: &ScenarioOutcome, runs: &[&ScenarioOutcome]) -> String {
    let proved = runs.iter().filter(|run| run.proved).count();
    let proved = format!("{proved} of {}", runs.len());
    let each =
        |show: fn(&RoundOutcome) -> String| last.rounds.iter().map(show).collect::<Vec<_>>().join(" → ");
    let rates = each(|round| round.figure("load.rate").map_or("-".into(), format_figure));
    let p99 = each(|round| round.figure("load.p99_us").map_or("-".into(), format_time));
    let failed = each(|round| round.figure("load.failed_fraction").map_or("-".into(), format_percent));
    let gains = last.rounds.iter().flat_map(|round| &round.gains).map(gain).collect::<Vec<_>>().join("; ");
    let found = last.rounds.iter().map(finding).collect::<Vec<_>>().join(" → ");
    let down = last.down_s.map_or("-".into(), |down_s| format!("{down_s} s"));
    let name = format!("[{}](scenarios/{}.md), {}", last.scenario, last.scenario, group_title(last.group));
    format!(
        "| {name} | {proved} | {rates} | {p99} | {failed} | {gains} | {found} | {} s, {} s, {down} |",
        last.up_s, last.run_s
    )
}

/// A ratio with its interval, of other figures than the rate with their name.
fn gain(gain: &GainResult) -> String {
    let name = match gain.metric.as_str() {
        "load.rate" => String::new(),
        other => format!("`{other}` "),
    };
    let not = if gain.held { "" } else { " (not as it must be)" };
    match (gain.ratio, gain.ci95) {
        (Some(ratio), Some([low, high])) => format!("{name}{ratio:.2} times ({low:.2} to {high:.2}){not}"),
        (Some(ratio), None) => format!("{name}{ratio:.2} times{not}"),
        (None, _) => format!("{name}{}{not}", gain.why.as_deref().unwrap_or("no ratio")),
    }
}

fn finding(round: &RoundOutcome) -> String {
    match round.found == round.expected {
        true => format!("`{}`", round.found),
        false => format!("`{}`, told as `{}`", round.expected, round.found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_lab::run::outcome::SCHEMA;
    use webdyno_lab::scenario::Group;

    fn run(name: &str, group: Group, rates: &[f64], proved: bool) -> ScenarioOutcome {
        let round = |(number, rate): (usize, &f64)| RoundOutcome {
            name: format!("round {number}"),
            figures: [("load.rate".to_owned(), Some(*rate)), ("load.p99_us".to_owned(), None)].into(),
            expected: "healthy".into(),
            found: if number == 0 { "unknown".into() } else { "healthy".into() },
            ..RoundOutcome::default()
        };
        ScenarioOutcome {
            schema: SCHEMA.into(),
            scenario: name.into(),
            title: "A test".into(),
            group,
            rounds_in_all: rates.len(),
            up_s: 1.5,
            run_s: 20.0,
            down_s: Some(0.3),
            rounds: rates.iter().enumerate().map(round).collect(),
            proved,
            directory: String::new(),
        }
    }

    #[test]
    fn each_scenario_has_a_line_of_its_last_run() {
        let runs = [
            run("b-fault", Group::Fault, &[100.0, 433.33], true),
            run("a-story", Group::Story, &[10.0], true),
            run("b-fault", Group::Fault, &[101.0, 434.56], false),
            ScenarioOutcome { rounds_in_all: 2, ..run("b-fault", Group::Fault, &[99.0], true) },
        ];
        let text: String = runs.iter().map(|run| serde_json::to_string(run).unwrap() + "\n").collect();
        let page = page(&read(&text, Path::new("runs")).unwrap(), "a machine");
        assert!(page.contains("1 of 2 scenarios proved themselves in every run, on a machine."), "{page}");
        let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("| [")).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("| [a-story](scenarios/a-story.md), a story"), "{page}");
        let expected = "| 2 of 3 | 101 → 435 | - → - | - → - |  | `healthy`, told as `unknown` → `healthy` | 1.5 s, 20 s, 0.3 s |";
        assert!(lines[1].ends_with(expected), "{}", lines[1]);
    }

    #[test]
    fn a_line_that_is_no_run_is_told() {
        let reported = read("\n{}\n", Path::new("runs.jsonl")).unwrap_err();
        assert!(reported.message.starts_with("runs.jsonl:2:") && reported.exit_code() == 2, "{reported}");
    }
}
