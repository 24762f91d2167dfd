//! docs/diagnosis.md: what the diagnosis says of the lab's recordings, and what it is worth with signals missing.

use super::JudgedDiagnosis;
use super::tally::{CONFIDENCE_MISLEADS, HiddenSourceResult, calibration, confusion};
use std::fmt::Write as _;
use webdyno_lab::run::passive::PassiveOutcome;

/// What stands above the tables.
const HEAD: &str = "\
<!-- Made by `make lab` from the recordings of its runs. -->
# The diagnosis, measured

Every scenario of [the lab](scenarios.md) says what limits its server in each round. Here is what the diagnosis says of the
recordings of these rounds: the first finding is the answer. Rules are written with the kept recordings at hand
(`crates/evaluation/fixtures/corpus`): what they find in new ones is the better test.

";

/// The page, of what was found with all signals and with some hidden; `sections` on what is predicted stand between.
pub fn page(judged: &[JudgedDiagnosis], blinded: &[HiddenSourceResult], sections: &[String]) -> String {
    let mut page = HEAD.to_owned();
    summary(&mut page, judged);
    matrix(&mut page, judged);
    write_wrong(&mut page, judged);
    write_confidence(&mut page, judged, blinded);
    page.extend(sections.iter().map(String::as_str));
    write_hidden_sources(&mut page, blinded);
    page
}

fn right_count(judged: &[JudgedDiagnosis]) -> usize {
    judged.iter().filter(|one| one.is_right()).count()
}

fn summary(page: &mut String, judged: &[JudgedDiagnosis]) {
    let firsts: Vec<JudgedDiagnosis> = judged.iter().filter(|one| one.number == 1).cloned().collect();
    let unexpected = judged.iter().filter(|one| one.unexpected_findings().next().is_some()).count();
    let remedies = judged.iter().filter(|one| one.is_right() && one.remedy.is_some()).count();
    let _ = writeln!(
        page,
        "{} of {} first findings are right: {} of {} of servers as they are found, {} of {} of later rounds. {} of the right \
         ones have another remedy than the scenario's. Beside {unexpected} of them stands a finding that does not belong there and \
         is more than {CONFIDENCE_MISLEADS} sure.\n",
        right_count(judged),
        judged.len(),
        right_count(&firsts),
        firsts.len(),
        right_count(judged) - right_count(&firsts),
        judged.len() - firsts.len(),
        remedies
    );
}

/// Only what occurs: a square of fifty ids would be empty but for its diagonal.
fn matrix(page: &mut String, judged: &[JudgedDiagnosis]) {
    page.push_str("## Who is taken for whom\n\n| the answer | recordings | found first |\n|---|---|---|\n");
    for (expected, found) in confusion(judged) {
        let all: usize = found.values().sum();
        let mut named: Vec<_> = found.into_iter().collect();
        named.sort_by_key(|(id, count)| (*id != expected, usize::MAX - count));
        let named: Vec<String> = named.iter().map(|(id, count)| format!("`{id}` {count}")).collect();
        let _ = writeln!(page, "| `{expected}` | {all} | {} |", named.join(", "));
    }
    page.push('\n');
}

fn write_wrong(page: &mut String, judged: &[JudgedDiagnosis]) {
    let wrong: Vec<&JudgedDiagnosis> = judged.iter().filter(|one| !one.is_right()).collect();
    if wrong.is_empty() {
        return;
    }
    page.push_str("## Wrong\n\n| scenario | round | the answer | found |\n|---|---|---|---|\n");
    for one in wrong {
        let found: Vec<String> = one.found.iter().map(|(id, sure)| format!("`{id}` {sure:.2}")).collect();
        let (name, number) = (&one.scenario, one.number);
        let _ = writeln!(
            page,
            "| [{name}](scenarios/{name}.md) | {number} | `{}` | {} |",
            one.expected,
            found.join(", ")
        );
    }
    page.push('\n');
}

fn write_confidence(page: &mut String, judged: &[JudgedDiagnosis], blinded: &[HiddenSourceResult]) {
    page.push_str("## How sure it is, and how often it is right\n\n");
    page.push_str("| stated confidence | with all signals | with signals hidden |\n|---|---|---|\n");
    let hidden = blinded.iter().flat_map(|one| &one.judged);
    let (observed, hidden) = (calibration(judged.iter()), calibration(hidden));
    let bounds: std::collections::BTreeSet<(u64, u64)> =
        observed.iter().chain(&hidden).map(|one| (percent(one.from), percent(one.to))).collect();
    for (from, to) in bounds {
        let reported = |all: &[super::tally::ConfidenceBin]| {
            let found = all.iter().find(|one| (percent(one.from), percent(one.to)) == (from, to));
            found.map_or("-".to_owned(), |one| format!("{} of {} right", one.right, one.count))
        };
        let _ = writeln!(
            page,
            "| over 0.{from:02} to {:.2} | {} | {} |",
            to as f64 / 100.0,
            reported(&observed),
            reported(&hidden)
        );
    }
    page.push('\n');
}

fn percent(fraction: f64) -> u64 {
    (fraction * 100.0).round() as u64
}

fn write_hidden_sources(page: &mut String, blinded: &[HiddenSourceResult]) {
    if blinded.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "## With signals hidden\n\nMisleading is a wrong first finding that is more than {CONFIDENCE_MISLEADS} sure.\n"
    );
    page.push_str("| hidden | right | misleading |\n|---|---|---|\n");
    for one in blinded {
        let names: Vec<&str> = one.hidden.iter().map(|source| source.name()).collect();
        let misleading: Vec<String> = one
            .misleading()
            .map(|one| format!("{} {}: `{}` {:.2}", one.scenario, one.number, one.first().0, one.first().1))
            .collect();
        let reported = if misleading.is_empty() { "none".into() } else { misleading.join("; ") };
        let _ = writeln!(
            page,
            "| {} | {} of {} | {reported} |",
            names.join(", "),
            right_count(&one.judged),
            one.judged.len()
        );
    }
    page.push('\n');
}

/// The section on what is found without load of our own: in recordings without what their generators knew, and on servers
/// under users whom nobody knows.
pub fn passive_section(passive: &[JudgedDiagnosis], live: Option<&[PassiveOutcome]>) -> String {
    let mut page = String::new();
    let firsts: Vec<JudgedDiagnosis> = passive.iter().filter(|one| one.number == 1).cloned().collect();
    let misled = passive.iter().filter(|one| !one.is_right() && one.first().1 > CONFIDENCE_MISLEADS);
    let _ = writeln!(
        page,
        "## Watched only, under foreign load\n\nThe recordings above without what their generators knew, as if others had sent \
         the load (but for those in which the generator is at fault): {} of {} first findings are right, {} of {} of servers as \
         they are found. {} of the wrong ones are more than {CONFIDENCE_MISLEADS} sure.\n",
        right_count(passive),
        passive.len(),
        right_count(&firsts),
        firsts.len(),
        misled.count()
    );
    for one in passive.iter().filter(|one| !one.is_right()) {
        let (found, confidence) = one.first();
        let (name, number) = (&one.scenario, one.number);
        let _ = writeln!(
            page,
            "- [{name}](scenarios/{name}.md), round {number}: `{}` is taken for `{found}` {confidence:.2}",
            one.expected
        );
    }
    page.push('\n');
    if let Some(live) = live {
        page.push_str(&super::passive_outcomes::section(live));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::hidden_sources::SignalSource;

    #[test]
    fn the_page_names_what_is_wrong_and_how_sure_it_was() {
        let one = |number, found: &str, confidence| JudgedDiagnosis {
            scenario: "s".into(),
            number,
            expected: "log-io".into(),
            beside: vec![],
            found: vec![(found.into(), confidence)],
            remedy: (number == 1).then(|| "no apache BufferedLogs in []".into()),
        };
        let judged = [one(1, "log-io", 0.9), one(2, "cpu-saturated", 0.9)];
        let blinded = [HiddenSourceResult {
            hidden: vec![SignalSource::Logs],
            judged: vec![one(1, "unknown", 0.3), one(2, "x", 0.8)],
        }];
        let passive = [one(1, "log-io", 0.7), one(2, "healthy", 0.6)];
        let page = page(&judged, &blinded, &["## More\n\n".into(), passive_section(&passive, Some(&[]))]);
        for part in [
            "1 of 2 first findings are right: 1 of 1 of servers as they are found, 0 of 1 of later rounds. 1 of the right",
            "| `log-io` | 2 | `log-io` 1, `cpu-saturated` 1 |",
            "| [s](scenarios/s.md) | 2 | `log-io` | `cpu-saturated` 0.90 |",
            "| over 0.85 to 1.00 | 1 of 2 right | - |",
            "| over 0.75 to 0.85 | - | 0 of 1 right |",
            "1 of 2 first findings are right, 1 of 1 of servers as they are found. 1 of the wrong ones",
            "- [s](scenarios/s.md), round 2: `log-io` is taken for `healthy` 0.60",
            "0 of 0 under wrk",
            "## More\n\n## Watched only",
            "| no logs | 0 of 2 | s 2: `x` 0.80 |",
        ] {
            assert!(page.contains(part), "{part} in\n{page}");
        }
    }
}
