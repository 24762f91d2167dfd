//! What a study amounts to: what each axis does to each content, how contents compare, and where one axis changes what another does.

use super::knob_value;
use crate::human::number;
use crate::plain::shorten_middle;
use webdyno_model::sweep::{AxisLevel, CONTENT, Effect, Interaction, KnobValue, StudyReport, SweepReport};

/// An interval within this of 1 says that there is no effect that matters.
const SAME: [f64; 2] = [0.95, 1.05];
/// So many contents fit beside the points at which they are compared with the first one; --json has all.
const CONTENTS_MAX: usize = 2;
/// Longer names of contents are shortened in tables.
const CONTENT_MAX: usize = 20;

/// `Study of store, memory, cpus and content: 16 points`.
pub(crate) fn headline(sweep: &SweepReport, study: &StudyReport) -> String {
    let varied = study.axes.iter().filter(|axis| axis.levels.len() > 1);
    let names: Vec<&str> = varied.map(|axis| axis.name.as_str()).collect();
    let named = match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "nothing".into(),
    };
    format!("Study of {named}: {} points", sweep.points.len())
}

/// A sentence on each axis: for which content it does most, and for which it does nothing.
pub(crate) fn findings(sweep: &SweepReport, study: &StudyReport) -> Vec<String> {
    let of_axis = |name: &str| {
        let main = |effect: &&Effect| effect.axis == name && is_main(effect);
        let strength = |effect: &&Effect| (effect.ratio.ln().abs() * 1e6) as i64;
        let most =
            study.effects.iter().filter(main).filter(|one| is_sure(one.ratio, one.ci95)).max_by_key(strength);
        let none: Vec<String> = study
            .effects
            .iter()
            .filter(main)
            .filter(|effect| is_same(effect.ci95))
            .map(|effect| content_of(effect).unwrap_or("all").to_owned())
            .collect();
        let said = most.map(|effect| {
            let content = content_of(effect).map_or(String::new(), |content| format!(" for {content}"));
            format!(
                "{} makes most difference{content}: {}",
                step(sweep, effect),
                ratio(effect.ratio, effect.ci95)
            )
        });
        let unmoved = (!none.is_empty()).then(|| format!("none for {} (within 5%)", none.join(", ")));
        match (said, unmoved) {
            (Some(said), Some(unmoved)) => Some(format!("{said}; {unmoved}.")),
            (Some(said), None) => Some(format!("{said}.")),
            (None, Some(unmoved)) => {
                Some(format!("{name} makes {}.", unmoved.replacen("none", "no difference", 1)))
            }
            (None, None) => None,
        }
    };
    let axes = study.axes.iter().filter(|axis| axis.levels.len() > 1 && axis.name != CONTENT);
    axes.filter_map(|axis| of_axis(&axis.name)).collect()
}

/// The effect of each axis on each content over all levels of the other axes, a row each, the first one with the titles.
pub(crate) fn effect_table(sweep: &SweepReport, study: &StudyReport) -> Vec<Vec<String>> {
    let row = |effect: &Effect| {
        vec![
            step(sweep, effect),
            shorten_middle(content_of(effect).unwrap_or_default(), CONTENT_MAX),
            multiple(effect.ratio),
            interval(effect.ci95),
            remark(effect.ci95).to_owned(),
        ]
    };
    let main = study.effects.iter().filter(|effect| effect.axis != CONTENT && is_main(effect));
    titled(["Effect", CONTENT, "rate", "95% interval", ""], main.map(row))
}

/// The first content against some of the others, at each point of the other axes: a row each, a column for each other content.
pub(crate) fn content_table(sweep: &SweepReport, study: &StudyReport) -> Vec<Vec<String>> {
    let contents = study.axes.iter().find(|axis| axis.name == CONTENT);
    let Some((first, others)) = contents.and_then(|axis| axis.levels.split_first()) else { return vec![] };
    let others = &others[..others.len().min(CONTENTS_MAX)];
    let of_first = || study.effects.iter().filter(|one| one.axis == CONTENT && one.to == *first);
    let most = of_first().map(|one| one.at.len()).max().unwrap_or(0);
    let mut points: Vec<&[AxisLevel]> = vec![];
    for effect in of_first().filter(|one| one.at.len() == most && others.contains(&one.from)) {
        if !points.contains(&effect.at.as_slice()) {
            points.push(&effect.at);
        }
    }
    let cell = |at: &[AxisLevel], other: &KnobValue| {
        let found = of_first().find(|one| one.at == at && one.from == *other);
        found.map_or_else(|| "-".into(), |one| ratio(one.ratio, one.ci95))
    };
    let row = |at: &[AxisLevel]| {
        std::iter::once(levels(sweep, at)).chain(others.iter().map(|other| cell(at, other))).collect()
    };
    let title =
        |other: &KnobValue| shorten_middle(&format!("{} / {}", plain(first), plain(other)), 2 * CONTENT_MAX);
    let titles = std::iter::once("Contents".to_owned()).chain(others.iter().map(title)).collect();
    std::iter::once(titles).chain(points.into_iter().map(row)).collect()
}

/// The interactions whose interval does not hold 1, the strongest first.
pub(crate) fn interaction_table(sweep: &SweepReport, study: &StudyReport, most: usize) -> Vec<Vec<String>> {
    let mut sure: Vec<&Interaction> =
        study.interactions.iter().filter(|one| is_sure(one.ratio, one.ci95) && !is_same(one.ci95)).collect();
    sure.sort_by(|a, b| b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs()));
    let row = |one: &Interaction| {
        let content = levels(sweep, &one.at);
        let second = change(sweep, &one.second, &one.second_from, &one.second_to);
        vec![
            change(sweep, &one.axis, &one.from, &one.to),
            if content.is_empty() { second } else { format!("{second} ({content})") },
            multiple(one.ratio),
            interval(one.ci95),
        ]
    };
    titled(["Effect of", "changes with", "by", "95% interval"], sure.into_iter().take(most).map(row))
}

fn titled<const N: usize>(titles: [&str; N], rows: impl Iterator<Item = Vec<String>>) -> Vec<Vec<String>> {
    std::iter::once(titles.map(str::to_owned).to_vec()).chain(rows).collect()
}

/// Over all other axes.
fn is_main(effect: &Effect) -> bool {
    effect.at.iter().all(|level| level.axis == CONTENT)
}

fn content_of(effect: &Effect) -> Option<&str> {
    effect.at.iter().find(|level| level.axis == CONTENT).map(|level| plain(&level.value))
}

fn plain(value: &KnobValue) -> &str {
    match value {
        KnobValue::Word(word) => word,
        KnobValue::Number(_) => "",
    }
}

/// `memory 176M -> 400M`.
fn step(sweep: &SweepReport, effect: &Effect) -> String {
    change(sweep, &effect.axis, &effect.from, &effect.to)
}

fn change(sweep: &SweepReport, axis: &str, from: &KnobValue, to: &KnobValue) -> String {
    format!("{axis} {} -> {}", knob_value(sweep, axis, from), knob_value(sweep, axis, to))
}

fn levels(sweep: &SweepReport, at: &[AxisLevel]) -> String {
    let level = |level: &AxisLevel| match level.axis.as_str() {
        CONTENT => plain(&level.value).to_owned(),
        axis => format!("{axis} {}", knob_value(sweep, axis, &level.value)),
    };
    at.iter().map(level).collect::<Vec<_>>().join(", ")
}

fn ratio(ratio: f64, ci95: Option<[f64; 2]>) -> String {
    let interval = ci95.map(|_| format!(" ({})", interval(ci95))).unwrap_or_default();
    format!("{}{interval}", multiple(ratio))
}

fn multiple(ratio: f64) -> String {
    format!("x{}", digits(ratio))
}

fn interval(ci95: Option<[f64; 2]>) -> String {
    ci95.map_or_else(|| "-".into(), |[low, high]| format!("{} to {}", digits(low), digits(high)))
}

/// Three digits, with those behind the point also where they are 0: what lies near 1 has to be told apart.
fn digits(value: f64) -> String {
    match value {
        value if value >= 99.95 => number(value.round()),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// A size as people write it in a study: `176M`.
pub(super) fn size(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "K", "M", "G", "T"];
    let mut unit = 0;
    let mut value = bytes;
    while value >= 1024.0 && value % 1024.0 == 0.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{}{}", number(value), UNITS[unit])
}

fn is_same(ci95: Option<[f64; 2]>) -> bool {
    ci95.is_some_and(|[low, high]| low >= SAME[0] && high <= SAME[1])
}

/// Whether an interval lies on one side of 1.
fn is_sure(ratio: f64, ci95: Option<[f64; 2]>) -> bool {
    ratio.is_finite() && ci95.is_some_and(|[low, high]| low > 1.0 || high < 1.0)
}

fn remark(ci95: Option<[f64; 2]>) -> &'static str {
    match ci95 {
        None => "no repeats",
        Some(_) if is_same(ci95) => "none (within 5%)",
        Some([low, high]) if low <= 1.0 && high >= 1.0 => "not sure",
        Some(_) => "",
    }
}
