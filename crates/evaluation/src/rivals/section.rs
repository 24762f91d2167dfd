//! The section of docs/diagnosis.md that puts the advisers beside the diagnosis.

use super::ScenarioAdvice;
use super::advice::{NOTHING_TO_CHANGE, is_within_reach};
use super::saved::{JudgedAdviser, remedy};
use std::fmt::Write as _;
use webdyno_lab::scenario::{Catalogue, ExpectedRemedy};
use webdyno_model::Result;

/// Answers under which nobody could name a setting: there is no fault, or none that anybody knows.
const NAMELESS: &str = "unknown";

/// How they were asked.
const HEAD: &str = "\
## Beside apache2buddy and MySQLTuner

The first round of each scenario, the server as it is found, once more: its load, and when that ended both were asked
(`webdyno-evaluation rivals`).

- **apache2buddy** has no package in Debian. What it advises is worked out by its published rules
  ([README and script](https://github.com/richardforth/apache2buddy), commit ad2e384) from what it looks at on the server:
  the private memory of Apache's processes, the settings, the error log.
- **MySQLTuner** is Debian's package, run where the database is. Its 1.9.9 divides by `innodb_buffer_pool_chunk_size`,
  which is 0 in MariaDB from 10.11.12 on, and dies before it recommends anything: here its client leaves that variable out.

Both take the whole machine's memory for a host's; here they are told the host's. Both say of each of these servers that it
was started within the last day, and that they may be wrong for that; their figures were those of the load alone.

An adviser *names what limits* when it wants the setting changed that the answer asks for, in the right direction, or points
at it as exhausted. Advice *makes it worse* when it asks for more of what waits for the limit, or for more memory where
that is short. It is *needless* where nothing on the server has to change. Within reach are the faults whose setting an
adviser speaks of at all; *other changes only* is where it wants something changed, and not what limits.

";

/// One scenario, judged.
struct ScenarioRow<'a> {
    advice: &'a ScenarioAdvice,
    remedy: Option<ExpectedRemedy>,
    apache2buddy: JudgedAdviser,
    mysqltuner: Option<JudgedAdviser>,
}

impl<'a> ScenarioRow<'a> {
    fn of(heard: &'a ScenarioAdvice, catalogue: &Catalogue) -> Result<Self> {
        let remedy = remedy(catalogue, &heard.scenario)?;
        let apache2buddy = heard.apache2buddy(remedy.as_ref());
        let mysqltuner = heard.mysqltuner(remedy.as_ref());
        Ok(Self { advice: heard, remedy, apache2buddy, mysqltuner })
    }

    fn is_faultless(&self) -> bool {
        NOTHING_TO_CHANGE.contains(&self.advice.answer.as_str())
    }

    fn has_fault(&self) -> bool {
        !self.is_faultless() && self.advice.answer != NAMELESS
    }

    fn is_within_reach(&self, service: &str) -> bool {
        is_within_reach(&self.advice.answer, self.remedy.as_ref(), service)
    }
}

/// The section. Empty when nobody was asked.
pub fn section(all: &[ScenarioAdvice], catalogue: &Catalogue) -> Result<String> {
    if all.is_empty() {
        return Ok(String::new());
    }
    let rows = all.iter().map(|heard| ScenarioRow::of(heard, catalogue)).collect::<Result<Vec<_>>>()?;
    let mut text = HEAD.to_owned();
    write_counts(&mut text, &rows);
    write_unavailable(&mut text, &rows);
    let is_told = |name: &String| all.iter().any(|heard| heard.scenario == *name);
    let missing: Vec<String> = catalogue.names()?.into_iter().filter(|name| !is_told(name)).collect();
    if !missing.is_empty() {
        let _ = writeln!(text, "\nNobody was asked about {}.", missing.join(", "));
    }
    text.push_str(
        "\n| scenario | the answer | webdyno | apache2buddy | MySQLTuner |\n|---|---|---|---|---|\n",
    );
    for row in &rows {
        let ScenarioAdvice { scenario, answer, found, confidence, .. } = row.advice;
        let wrong = match (row.advice.is_found(), row.advice.remedy_is_right) {
            (false, _) => "<br>**wrong**",
            (true, false) => "<br>**names it, with a value that does not mend it**",
            (true, true) => "",
        };
        let tuner = row.mysqltuner.as_ref().map_or("-".into(), cell);
        let buddy = cell(&row.apache2buddy);
        let _ = writeln!(
            text,
            "| [{scenario}](scenarios/{scenario}.md) | `{answer}` | `{found}` {confidence:.2}{wrong} | {buddy} | {tuner} |"
        );
    }
    text.push('\n');
    Ok(text)
}

/// A line of the table for each of the three.
fn write_counts(text: &mut String, rows: &[ScenarioRow<'_>]) {
    text.push_str(
        "| | names what limits | within reach, named | with a value that mends it | other changes only | makes it worse \
         | needless advice where there is no fault |\n|---|---|---|---|---|---|---|\n",
    );
    let faults = rows.iter().filter(|row| row.has_fault());
    let found = faults.clone().filter(|row| row.advice.is_found()).count();
    let faultless = rows.iter().filter(|row| row.is_faultless());
    let needless = faultless.clone().filter(|row| !row.advice.is_found()).count();
    let valued = faults.clone().filter(|row| row.advice.is_found() && row.remedy.is_some());
    let (fits, valued) = (valued.clone().filter(|row| row.advice.remedy_is_right).count(), valued.count());
    let (faults, faultless) = (faults.count(), faultless.count());
    let _ = writeln!(
        text,
        "| webdyno | {found} of {faults} | {found} of {faults} | {fits} of {valued} | {} of {faults} | - | \
         {needless} of {faultless} |",
        faults - found
    );
    line(text, "apache2buddy", rows, "apache", |row| Some(&row.apache2buddy));
    line(text, "MySQLTuner", rows, "mariadb", |row| row.mysqltuner.as_ref());
}

fn line<'a>(
    text: &mut String,
    name: &str,
    rows: &'a [ScenarioRow<'a>],
    service: &str,
    of: impl Fn(&'a ScenarioRow<'a>) -> Option<&'a JudgedAdviser>,
) {
    let answered: Vec<(&ScenarioRow<'_>, &JudgedAdviser)> =
        rows.iter().filter_map(|row| Some((row, of(row).filter(|judged| judged.answered)?))).collect();
    let count = |is: &dyn Fn(&ScenarioRow<'_>, &JudgedAdviser) -> bool| {
        answered.iter().filter(|(row, judged)| is(row, judged)).count()
    };
    let faults = count(&|row, _| row.has_fault());
    let named = count(&|row, judged| row.has_fault() && judged.verdict.names);
    let reach = count(&|row, _| row.has_fault() && row.is_within_reach(service));
    let valued = count(&|_, judged| judged.verdict.names && judged.verdict.fits.is_some());
    let fits = count(&|_, judged| judged.verdict.names && judged.verdict.fits == Some(true));
    let others = count(&|row, judged| row.has_fault() && judged.changes > 0 && !judged.verdict.names);
    let harms = count(&|_, judged| !judged.verdict.harms.is_empty());
    let needless = count(&|row, judged| row.is_faultless() && !judged.verdict.needless.is_empty());
    let faultless = count(&|row, _| row.is_faultless());
    let fits = if valued == 0 { "gives none".to_owned() } else { format!("{fits} of {valued}") };
    let _ = writeln!(
        text,
        "| {name} | {named} of {faults} | {named} of {reach} | {fits} | {others} of {faults} | {harms} of {faults} | {needless} of {faultless} |"
    );
}

/// Who could not be asked, and how often.
fn write_unavailable(text: &mut String, rows: &[ScenarioRow<'_>]) {
    for (name, judged) in [
        ("apache2buddy", rows.iter().map(|row| &row.apache2buddy).collect::<Vec<_>>()),
        ("MySQLTuner", rows.iter().filter_map(|row| row.mysqltuner.as_ref()).collect()),
    ] {
        let silent = judged.iter().filter(|one| !one.answered).count();
        if silent > 0 {
            let _ = writeln!(
                text,
                "\n{name} gave no answer in {silent} of {} scenarios: see there why.",
                judged.len()
            );
        }
    }
}

/// What one says, with what it is worth.
fn cell(judged: &JudgedAdviser) -> String {
    let verdict = &judged.verdict;
    let says = if judged.says.is_empty() { "nothing".to_owned() } else { judged.says.join("; ") };
    let mut words = vec![];
    match verdict.fits {
        _ if !verdict.names => {}
        Some(false) => words.push("names it, with a value that does not mend it"),
        _ => words.push("names it"),
    }
    if !verdict.harms.is_empty() {
        words.push("makes it worse");
    }
    if !verdict.needless.is_empty() {
        words.push("needless");
    }
    let worth = if words.is_empty() { String::new() } else { format!("<br>**{}**", words.join("; ")) };
    format!("{}{worth}", says.replace('|', "\\|").replace('<', "&lt;").replace('>', "&gt;"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::AdviserResult;
    use crate::rivals::apache2buddy::ScriptInput;
    use crate::rivals::mysqltuner::Recommendations;

    fn scenario_advice(scenario: &str, answer: &str, found: &str, adjust: Option<&str>) -> ScenarioAdvice {
        let observed = ScriptInput {
            mpm: "prefork".into(),
            max_request_workers: 40.0,
            server_limit: 40.0,
            memory_mib: 1000.0,
            largest_mib: 2.0,
            processes: 5.0,
            ..ScriptInput::default()
        };
        let output = |line: &str| Recommendations { adjust: vec![line.into()], ..Recommendations::default() };
        ScenarioAdvice {
            scenario: scenario.into(),
            answer: answer.into(),
            found: found.into(),
            confidence: 0.9,
            remedy_is_right: true,
            apache2buddy: AdviserResult::Answered(observed),
            mysqltuner: adjust.map(|line| AdviserResult::Answered(output(line))),
        }
    }

    #[test]
    fn advisers_stand_beside_the_diagnosis_with_what_they_are_worth() {
        let skipped = Some(AdviserResult::Skipped { why: "the package mysqltuner is not installed".into() });
        let all = [
            scenario_advice(
                "workers-exhausted-prefork",
                "apache-workers-exhausted",
                "apache-workers-exhausted",
                None,
            ),
            scenario_advice("s5-lamp", "db-connections-exhausted", "log-io", Some("max_connections (> 20)")),
            scenario_advice("healthy-prefork", "healthy", "healthy", Some("skip-name-resolve=1")),
            ScenarioAdvice {
                mysqltuner: skipped,
                ..scenario_advice("healthy-fpm", "healthy", "healthy", None)
            },
            scenario_advice("unknown", "unknown", "unknown", None),
        ];
        let text = section(&all, &Catalogue::BuiltIn).unwrap();
        for part in [
            "| webdyno | 1 of 2 | 1 of 2 | 1 of 1 | 1 of 2 | - | 0 of 2 |",
            "| apache2buddy | 1 of 2 | 1 of 1 | 0 of 1 | 1 of 2 | 1 of 2 | 2 of 2 |",
            "| MySQLTuner | 1 of 1 | 1 of 1 | gives none | 0 of 1 | 0 of 1 | 1 of 1 |",
            "MySQLTuner gave no answer in 1 of 3 scenarios",
            "| [s5-lamp](scenarios/s5-lamp.md) | `db-connections-exhausted` | `log-io` 0.90<br>**wrong** | \
             MaxRequestWorkers 40 is too low: 450 to 500<br>**makes it worse** | max_connections (&gt; 20)<br>**names it** |",
            "MaxRequestWorkers 40 is too low: 450 to 500<br>**names it, with a value that does not mend it** | - |",
            "| skip-name-resolve=1<br>**needless** |",
            "| skipped: the package mysqltuner is not installed |",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert_eq!(section(&[], &Catalogue::BuiltIn).unwrap(), "");
    }
}
