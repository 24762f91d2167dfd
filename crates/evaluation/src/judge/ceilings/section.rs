//! The section of docs/diagnosis.md on ceilings: what was predicted, and what was measured.

use super::{CeilingComparison, CeilingPrediction, NEAR_FRACTION, NextLimitCase, RoundPair};
use std::fmt::Write as _;

/// What stands above the tables.
const HEAD: &str = "\
## Ceilings: predicted and measured

A limit's ceiling is computed before it is hit, from what requests use of it. Here a round in which something else binds
predicts the good answers per second of a round of the same load in which this limit binds, with the limit's size there. A
table of connections that live for minutes is held against how it filled: the rate at which it would have been full after as
long as it took. What memory holds is a number of workers and no rate: a machine that swaps falls far below it.

";

/// The section.
pub fn section(compared: &CeilingComparison, next_limits: &[NextLimitCase]) -> String {
    let mut text = HEAD.to_owned();
    let near = compared.predicted.iter().filter(|one| one.is_near()).count();
    let (all, percent) = (compared.predicted.len(), NEAR_FRACTION * 100.0);
    let _ = writeln!(text, "{near} of {all} predictions are within {percent:.0}%.\n");
    text.push_str("| scenario | rounds | limit | told as | predicted per s | measured per s | off |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    compared.predicted.iter().for_each(|one| row(&mut text, one));
    text.push('\n');
    write_left_out(&mut text, &compared.left_out);
    write_next_limits(&mut text, next_limits);
    text
}

fn row(text: &mut String, one: &CeilingPrediction) {
    let RoundPair { scenario, finding, from, of } = &one.pair;
    let off = format!("{:+.0}%", one.error() * 100.0);
    let off = if one.is_near() { off } else { format!("**{off}**") };
    let _ = writeln!(
        text,
        "| [{scenario}](scenarios/{scenario}.md) | {from} for {of} | `{finding}` | {} | {:.1} | {:.1} | {off} |",
        one.kind.name(),
        one.predicted,
        one.measured
    );
}

fn write_left_out(text: &mut String, left_out: &[(RoundPair, String)]) {
    if left_out.is_empty() {
        return;
    }
    text.push_str(
        "Left out, as what was asked of the limit is not the same in both rounds, or was not seen:\n\n",
    );
    for (RoundPair { scenario, finding, from, of }, why) in left_out {
        let _ = writeln!(text, "- {scenario}, {from} for {of}, `{finding}`: {why}.");
    }
    text.push('\n');
}

fn write_next_limits(text: &mut String, next_limits: &[NextLimitCase]) {
    if next_limits.is_empty() {
        return;
    }
    let right = next_limits.iter().filter(|one| one.is_right()).count();
    let _ = writeln!(
        text,
        "Where limits are stacked, {right} of {} times the next one that is told is the scenario's.\n",
        next_limits.len()
    );
    text.push_str("| scenario | round | next | told | at a rate of |\n|---|---|---|---|---|\n");
    for one in next_limits {
        let reported = one.found.as_ref().map_or("none".into(), |next| format!("`{}`", next.id));
        let rate = one.found.as_ref().and_then(|next| next.rate);
        let rate = rate.map_or("-".into(), |rate| rate.to_string());
        let (name, number, expected) = (&one.scenario, one.number, &one.expected);
        let _ = writeln!(
            text,
            "| [{name}](scenarios/{name}.md) | {number} | `{expected}` | {reported} | {rate} |"
        );
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::PredictionKind;
    use super::*;
    use webdyno_model::diagnosis::NextLimit;

    #[test]
    fn what_is_off_stands_out_and_what_is_left_out_has_a_reason() {
        let pair = || RoundPair { scenario: "x".into(), finding: "network-saturated".into(), from: 1, of: 2 };
        let one = |predicted| CeilingPrediction {
            pair: pair(),
            kind: PredictionKind::Ceiling,
            predicted,
            measured: 100.0,
        };
        let compared = CeilingComparison {
            predicted: vec![one(90.0), one(116.0)],
            left_out: vec![(pair(), "an answer has 5 bytes, then 40".into())],
        };
        let found = Some(NextLimit { id: "conntrack-full".into(), rate: Some(7.5) });
        let next =
            [NextLimitCase { scenario: "x".into(), number: 1, expected: "network-saturated".into(), found }];
        let text = section(&compared, &next);
        for part in [
            "1 of 2 predictions are within 15%.",
            "| [x](scenarios/x.md) | 1 for 2 | `network-saturated` | ceiling | 90.0 | 100.0 | -10% |",
            "| 116.0 | 100.0 | **+16%** |",
            "- x, 1 for 2, `network-saturated`: an answer has 5 bytes, then 40.",
            "0 of 1 times",
            "| [x](scenarios/x.md) | 1 | `network-saturated` | `conntrack-full` | 7.5 |",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
