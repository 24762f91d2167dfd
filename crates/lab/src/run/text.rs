//! A run as text: a table of its rounds, and below it what was seen of signs and gains.

use super::outcome::{RoundOutcome, ScenarioOutcome};
use crate::evidence::{GainResult, SignResult};
use std::fmt::Write as _;
use webdyno_model::number::prose::{format_figure, format_percent, format_time};

/// The heads of the columns.
const HEADS: [&str; 8] = ["round", "rate/s", "p50", "p99", "failed", "proof", "gain", "found"];

/// A run as people read it.
pub fn outcome_text(outcome: &ScenarioOutcome) -> String {
    let mut text = format!("{}: {}\n\n", outcome.scenario, outcome.title);
    let rows: Vec<[String; 8]> = outcome.rounds.iter().map(row).collect();
    text.push_str(&table(&HEADS, &rows));
    text.push('\n');
    for round in &outcome.rounds {
        for sign in &round.signs {
            let _ = writeln!(text, "  {}: {}", round.name, sign_line(sign));
        }
        for gain in &round.gains {
            let _ = writeln!(text, "  {}: {}", round.name, gain_line(gain));
        }
        if let Some(why) = &round.generator {
            let _ = writeln!(text, "  {}: the generator: {why}", round.name);
        }
    }
    let down = outcome.down_s.map_or("it stays up".to_owned(), |down_s| format!("down {down_s} s"));
    let proved = if outcome.proved { "proved" } else { "NOT PROVED" };
    let _ = writeln!(
        text,
        "\n  {proved}: up {} s, {} rounds {} s, {down}; recordings in {}",
        outcome.up_s,
        outcome.rounds.len(),
        outcome.run_s,
        outcome.directory
    );
    text
}

fn row(round: &RoundOutcome) -> [String; 8] {
    let us = |name: &str| round.figure(name).map_or("-".to_owned(), format_time);
    let held = round.signs.iter().filter(|sign| sign.seen).count()
        + round.gains.iter().filter(|gain| gain.held).count();
    let all = round.signs.len() + round.gains.len();
    let gain = round.gains.iter().find(|gain| gain.metric == "load.rate").or(round.gains.first());
    let found = match round.found == round.expected {
        true => round.found.clone(),
        false => format!("{} (not {})", round.found, round.expected),
    };
    [
        round.name.clone(),
        round.figure("load.rate").map_or("-".into(), format_figure),
        us("load.p50_us"),
        us("load.p99_us"),
        round.figure("load.failed_fraction").map_or("-".into(), format_percent),
        if all == 0 { "-".into() } else { format!("{held}/{all}") },
        gain.map_or(String::new(), ratio_text),
        found,
    ]
}

/// Columns as wide as their widest word.
pub fn table<const N: usize>(heads: &[&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |cells: &[String; N]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("  {}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let heads = heads.map(str::to_owned);
    std::iter::once(&heads).chain(rows).map(line).collect()
}

/// What was seen of a sign, in one line.
pub fn sign_line(sign: &SignResult) -> String {
    let take = sign.take.as_ref().map_or(String::new(), |take| format!(" ({take})"));
    let of = sign.of.as_ref().map_or(String::new(), |of| format!(" / {of}"));
    let output = if sign.seen { "seen" } else { "NOT SEEN" };
    let value = match (sign.value, &sign.why) {
        (Some(value), _) => value.to_string(),
        (None, why) => why.clone().unwrap_or_else(|| "no value".into()),
    };
    format!("{output}: {}{of}{take}: {value}; it must be {}", sign.metric, sign.bounds.to_text())
}

/// What came of a fix, in one line.
pub fn gain_line(gain: &GainResult) -> String {
    let output = if gain.held { "gained" } else { "NOT GAINED" };
    let [before, after] = gain.values.map(|value| value.map_or("-".into(), |value| value.to_string()));
    let ratio = match (gain.ratio, &gain.why) {
        (None, Some(why)) => format!("no ratio: {why}"),
        (None, None) => "no ratio".into(),
        (Some(_), None) => ratio_text(gain),
        (Some(_), Some(why)) => format!("{}, {why}", ratio_text(gain)),
    };
    let (metric, over, bounds) = (&gain.metric, &gain.over, gain.bounds.to_text());
    format!("{output}: {metric} over `{over}`: {before} -> {after}, {ratio}; it must be {bounds}")
}

/// A ratio with its interval, where there is one.
pub fn ratio_text(gain: &GainResult) -> String {
    match (gain.ratio, gain.ci95) {
        (None, _) => "-".into(),
        (Some(ratio), None) => format!("{ratio:.2} times (no interval)"),
        (Some(ratio), Some([low, high])) => format!("{ratio:.2} times ({low:.2} to {high:.2})"),
    }
}
