//! What drawn servers say of the diagnosis, as a part of docs/diagnosis.md. Pure.

use super::statistics::Share;
use super::truth::Truth;
use super::{SeedOutcome, Visibility};
use crate::judge::JudgedDiagnosis;
use crate::judge::tally::{CONFIDENCE_MISLEADS, ConfidenceBin, calibration, confusion};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use webdyno_analysis::limits;
use webdyno_analysis::measurement::statistics::median;
use webdyno_lab::draw::is_of_a_setting;
use webdyno_lab::run::tuned::TunedOutcome;

/// A tuned server that is slower than it was by more than this was made worse.
const WORSE: f64 = 0.95;
/// The share of what the known fix brings that counts as reached.
const REACHED: f64 = 0.9;
/// A known fix that raises the rate by less is measured by response times.
const GAIN_MIN: f64 = 1.08;
/// Columns of the calibration plot, beside that of nothing.
const PLOT_COLUMNS: f64 = 40.0;

/// The part of the page; empty of none.
pub fn section(all: &[SeedOutcome]) -> String {
    let taken: Vec<&SeedOutcome> = all.iter().filter(|one| one.truth.is_some()).collect();
    if taken.is_empty() {
        return String::new();
    }
    let mut text = head(all, &taken);
    visibilities(&mut text, &taken);
    builds(&mut text, &taken);
    let rooted: Vec<(&SeedOutcome, JudgedDiagnosis)> =
        taken.iter().filter_map(|one| Some((*one, one.judged(Visibility::Root)?))).collect();
    let fault = |one: &SeedOutcome| {
        let first = one.truth.as_ref().map(|truth| truth.first.join(" or ")).unwrap_or_default();
        if first.is_empty() { "nothing".to_owned() } else { first }
    };
    table(&mut text, "what limits", &taken, fault);
    table(&mut text, "server", &taken, |one| one.services.join(", "));
    table(&mut text, "faults", &taken, |one| one.faults.len().to_string());
    let judged: Vec<JudgedDiagnosis> = rooted.iter().map(|(_, judged)| judged.clone()).collect();
    matrix(&mut text, &judged);
    confidence(&mut text, &judged);
    wrong(&mut text, &rooted);
    rejected(&mut text, all);
    tuned(&mut text, &taken);
    text
}

fn head(all: &[SeedOutcome], taken: &[&SeedOutcome]) -> String {
    let seeds = all.iter().map(|one| one.seed);
    let (from, to) = (seeds.clone().min().unwrap_or(0), seeds.max().unwrap_or(0));
    let healthy = taken.iter().filter(|one| one.faults.is_empty());
    let named = |one: &&&SeedOutcome| {
        let found = one.found.iter().find(|(visibility, _)| *visibility == Visibility::Root);
        let first = found.and_then(|(_, found)| found.first());
        first.is_none_or(|first| {
            limits::is_fault(&first.id) && !one.truth.iter().any(|truth| truth.findings.contains(&first.id))
        })
    };
    let alarms = Share::of(healthy, named);
    let fresh = if from >= 1000 {
        "None of these seeds was looked at before."
    } else {
        "Rules may have been written with some of these seeds at hand."
    };
    format!(
        "## Servers drawn at random\n\nSeeds {from} to {to}: {} servers, each drawn with none, one or two faults (`webdyno lab draw --seed \
         N`). What limits a server is measured: by its load with all faults, without each, and without any. {fresh} Shares have a 95% \
         interval (Wilson).\n\nFalse alarms on servers with which nothing is wrong: {}.\n\n",
        taken.len(),
        alarms.text()
    )
}

fn visibilities(text: &mut String, taken: &[&SeedOutcome]) {
    text.push_str("| seen | first finding right | wrong, and more than 0.5 sure |\n|---|---|---|\n");
    for visibility in Visibility::ALL {
        let judged: Vec<JudgedDiagnosis> = taken.iter().filter_map(|one| one.judged(visibility)).collect();
        let right = Share::of(&judged, |one| one.is_right());
        let misleads = Share::of(&judged, |one| !one.is_right() && one.first().1 > CONFIDENCE_MISLEADS);
        let _ = writeln!(text, "| {} | {} | {} |", visibility.name(), right.text(), misleads.text());
    }
    text.push('\n');
}

/// The same by the program that ran the seeds: each had its own rules, and later ones draw from a larger space.
fn builds(text: &mut String, taken: &[&SeedOutcome]) {
    let mut by: BTreeMap<&str, Vec<&SeedOutcome>> = BTreeMap::new();
    for one in taken {
        by.entry(&one.version).or_default().push(one);
    }
    let mut builds: Vec<_> = by.into_iter().collect();
    builds.sort_by_key(|(_, servers)| servers.iter().map(|one| one.seed).min());
    let names = Visibility::ALL.map(Visibility::name);
    let _ = writeln!(text, "| first finding right, by build | seeds | {} |", names.join(" | "));
    text.push_str("|---|---|---|---|---|---|\n");
    for (version, servers) in builds {
        let seeds = servers.iter().map(|one| one.seed);
        let (from, to) = (seeds.clone().min().unwrap_or(0), seeds.max().unwrap_or(0));
        let right = |seen| Share::of(servers.iter().filter_map(|one| one.judged(seen)), |one| one.is_right());
        let shares = Visibility::ALL.map(|seen| right(seen).text());
        let _ = writeln!(text, "| {version} | {from} to {to} | {} |", shares.join(" | "));
    }
    text.push('\n');
}

/// How many are right by something that a server has, and by how much of it is seen. From outside what misleads counts, not what is named.
fn table(text: &mut String, title: &str, taken: &[&SeedOutcome], key: impl Fn(&SeedOutcome) -> String) {
    const SEEN: [Visibility; 3] = [Visibility::Root, Visibility::NotRoot, Visibility::Passive];
    let mut by: BTreeMap<String, Vec<&SeedOutcome>> = BTreeMap::new();
    for one in taken {
        by.entry(key(one)).or_default().push(one);
    }
    let names = SEEN.map(Visibility::name);
    let _ = writeln!(text, "| {title}: first finding right | {} |\n|---|---|---|---|", names.join(" | "));
    for (key, servers) in by {
        let right = |seen| Share::of(servers.iter().filter_map(|one| one.judged(seen)), |one| one.is_right());
        let _ = writeln!(text, "| {key} | {} |", SEEN.map(|seen| right(seen).text()).join(" | "));
    }
    text.push('\n');
}

fn matrix(text: &mut String, judged: &[JudgedDiagnosis]) {
    text.push_str("| the answer | servers | found first (root) |\n|---|---|---|\n");
    for (expected, found) in confusion(judged) {
        let all: usize = found.values().sum();
        let found: Vec<String> = found.into_iter().map(|(id, count)| format!("`{id}` {count}")).collect();
        let _ = writeln!(text, "| `{expected}` | {all} | {} |", found.join(", "));
    }
    text.push('\n');
}

fn confidence(text: &mut String, judged: &[JudgedDiagnosis]) {
    text.push_str("| stated confidence | right (root) |\n|---|---|\n");
    let bins = calibration(judged.iter());
    for bin in &bins {
        let share = Share { part: bin.right, of: bin.count };
        let _ = writeln!(text, "| over {:.2} to {:.2} | {} |", bin.from, bin.to, share.text());
    }
    text.push_str(
        "\nCalibration: `.` is what was stated, `o` the share that was right, `-` its interval.\n\n```\n\
         stated        0%        25%       50%       75%       100%\n",
    );
    bins.iter().for_each(|bin| plot_row(text, bin));
    text.push_str("```\n\n");
}

fn plot_row(text: &mut String, bin: &ConfidenceBin) {
    let share = Share { part: bin.right, of: bin.count };
    let Some((right, interval)) = share.fraction().zip(share.interval()) else { return };
    let column = |share: f64| (share.clamp(0.0, 1.0) * PLOT_COLUMNS).round() as usize;
    let mut row = vec![' '; column(1.0) + 1];
    row[column(bin.from)..=column(bin.to)].fill('.');
    row[column(interval[0])..=column(interval[1])].fill('-');
    row[column(right)] = 'o';
    let row: String = row.into_iter().collect();
    let _ = writeln!(text, "{:.2} to {:.2}  {}", bin.from, bin.to, row.trim_end());
}

fn wrong(text: &mut String, rooted: &[(&SeedOutcome, JudgedDiagnosis)]) {
    let wrong: Vec<_> = rooted.iter().filter(|(_, judged)| !judged.is_right()).collect();
    if wrong.is_empty() {
        return;
    }
    text.push_str("| wrong | server | what limits | found |\n|---|---|---|---|\n");
    for (one, judged) in wrong {
        let found: Vec<String> = judged.found.iter().map(|(id, sure)| format!("`{id}` {sure:.2}")).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            judged.scenario,
            one.words,
            limiting(one),
            found.join(", ")
        );
    }
    text.push('\n');
}

/// The faults that are the first, with how severe they are, and what their removal brings.
fn limiting(one: &SeedOutcome) -> String {
    let Some(truth) = &one.truth else { return String::new() };
    let first: Vec<&str> = one
        .faults
        .iter()
        .filter(|(id, _)| truth.first.contains(id))
        .map(|(_, severity)| severity.as_str())
        .collect();
    let rate = |rate: Option<f64>| rate.map_or("?".to_owned(), |rate| format!("{rate:.0}"));
    match first.is_empty() {
        true => "nothing".into(),
        false => {
            format!("{} ({}/s, mended {}/s)", first.join("; "), rate(truth.rates[0]), rate(truth.rates[1]))
        }
    }
}

/// A line for each server whose first finding is wrong, with all that one needs to look at it.
pub fn failures(all: &[SeedOutcome]) -> String {
    let mut text = String::new();
    for (visibility, one) in Visibility::ALL.iter().flat_map(|seen| all.iter().map(move |one| (*seen, one))) {
        let wrong = one.judged(visibility).filter(|judged| !judged.is_right());
        // Who sees the load alone knows little: what misleads counts.
        let is_silent = |judged: &JudgedDiagnosis| {
            visibility == Visibility::OutsideOnly && judged.first().1 <= CONFIDENCE_MISLEADS
        };
        let Some(judged) = wrong.filter(|judged| !is_silent(judged)) else { continue };
        let found: Vec<String> = judged.found.iter().map(|(id, sure)| format!("{id} {sure:.2}")).collect();
        let words = one.summaries.iter().find(|(known, _)| *known == visibility);
        let _ = writeln!(
            text,
            "- {} ({}): {}; right: {}; limits: {}; all faults: {}; load: {}; said: {}{}",
            judged.scenario,
            visibility.name(),
            one.words,
            one.truth.iter().flat_map(|truth| truth.findings.clone()).collect::<Vec<_>>().join(" or "),
            limiting(one),
            one.faults.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>().join(", "),
            one.load,
            found.join(", "),
            words.map_or(String::new(), |(_, words)| format!(": {words}"))
        );
    }
    text
}

fn rejected(text: &mut String, all: &[SeedOutcome]) {
    let mut by: BTreeMap<String, usize> = BTreeMap::new();
    for one in all.iter().flat_map(|one| &one.rejected) {
        let why = one.why.split([':', '\n']).next().unwrap_or_default();
        let faults = if one.faults.is_empty() { "nothing".to_owned() } else { one.faults.join(" and ") };
        *by.entry(format!("{faults} | {why}")).or_default() += 1;
    }
    let given_up = all.iter().filter(|one| one.truth.is_none()).count();
    let count: usize = by.values().sum();
    let _ = writeln!(text, "Drawn again: {count} draws; seeds of which none was taken: {given_up}.\n");
    if !by.is_empty() {
        text.push_str("| faults | why it was drawn again | draws |\n|---|---|---|\n");
        for (why, count) in by {
            let _ = writeln!(text, "| {why} | {count} |");
        }
        text.push('\n');
    }
}

/// A tuned server: what it was drawn as, and what came of it.
type Tuned<'a> = (&'a SeedOutcome, &'a Truth, &'a TunedOutcome);

fn tuned(text: &mut String, taken: &[&SeedOutcome]) {
    let tuned: Vec<Tuned<'_>> =
        taken.iter().filter_map(|one| Some((*one, one.truth.as_ref()?, one.tuned.as_ref()?))).collect();
    if tuned.is_empty() {
        return;
    }
    let ends = |one: &Tuned<'_>| Some(one.2.tuned_rate? / rate_before(one)?.max(0.01));
    let kept = Share::of(&tuned, |one| ends(one).is_some_and(|ratio| ratio >= WORSE));
    let restored = Share::of(&tuned, |one| one.2.not_restored.is_none());
    let has_reached = |one: &&Tuned<'_>| {
        one.2.tuned_rate.zip(one.1.rates[1]).is_some_and(|(tuned, mended)| tuned >= mended * REACHED)
    };
    let faulty = || tuned.iter().filter(|one| !one.1.first.is_empty());
    // The rate of the known fix is that without any of the faults.
    let of_settings = |one: &&Tuned<'_>| one.0.faults.iter().all(|(fault, _)| is_of_a_setting(fault));
    let reached = Share::of(faulty().filter(of_settings), has_reached);
    let for_a_person = faulty().filter(|one| !of_settings(one)).count();
    let of_gains: Vec<f64> = faulty().filter(of_settings).filter_map(share_of_gain).collect();
    let gained = Share::of(&of_gains, |share| **share >= REACHED);
    let regret = |share: Option<f64>| {
        share.map_or("none".to_owned(), |share| format!("{:.0}%", (1.0 - share).max(0.0) * 100.0))
    };
    let _ = writeln!(
        text,
        "`tune --apply`: as fast as before or faster: {}; reaches 90% of the rate of the known fix, where settings lift all that is wrong: {}; \
         90% of what that fix gains, where it raises the rate: {}, regret (the part of this gain that is missed) {} in the median and {} at \
         most; everything restored by a rollback: {}. Of {for_a_person} more something is for a person: hardware, certificates, protections, the site.\n",
        kept.text(),
        reached.text(),
        gained.text(),
        regret(median(&of_gains)),
        regret(of_gains.iter().copied().reduce(f64::min)),
        restored.text()
    );
    tuned_faults(text, faulty().filter(of_settings));
}

/// The same by what limits, where it raises the rate.
fn tuned_faults<'a>(text: &mut String, tuned: impl Iterator<Item = &'a Tuned<'a>>) {
    let mut by: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for one in tuned {
        by.entry(one.1.first.join(" or ")).or_default().extend(share_of_gain(one));
    }
    by.retain(|_, shares| !shares.is_empty());
    if by.is_empty() {
        return;
    }
    text.push_str("| what limits | tuned | 90% of the gain |\n|---|---|---|\n");
    for (fault, shares) in by {
        let reached = shares.iter().filter(|share| **share >= REACHED).count();
        let _ = writeln!(text, "| {fault} | {} | {reached} |", shares.len());
    }
    text.push('\n');
}

/// The rate as it was found; that of the draw where the load before any change was stopped, as it did harm.
fn rate_before((_, truth, tuned): &Tuned<'_>) -> Option<f64> {
    tuned.found_rate.or(truth.rates[0])
}

/// The share of what the known fix gains in rate that tuning gained, measured on the same hosts where the fix was carried out there, too.
fn share_of_gain(one: &Tuned<'_>) -> Option<f64> {
    let (_, truth, tuned) = one;
    let (found, mended) = (rate_before(one)?, tuned.by_hand_rate.or(truth.rates[1])?);
    (mended >= GAIN_MIN * found).then_some((tuned.tuned_rate? - found) / (mended - found))
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
