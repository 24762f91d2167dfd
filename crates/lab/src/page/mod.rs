//! The user guide's page of a scenario, made from its folder alone: the story, the machines, the files that are not as
//! the distribution has them, and each round with what is typed, in words and as commands.

mod format;
mod manual_steps;

use crate::figures;
use crate::scenario::{ExpectedRemedy, Group, Scenario, ScenarioFolder, ScenarioLoad, ScenarioRound, Sign};
use std::fmt::Write as _;
use std::path::Path;
use webdyno_analysis::limits;
use webdyno_model::Result;
use webdyno_model::sample::{CollectorInfo, Metric};

/// Lines of a file that a page shows; of longer ones it says how long they are.
const LINES_MAX: usize = 120;
/// The page of a scenario, in Markdown.
pub fn page(folder: &ScenarioFolder) -> Result<String> {
    let (name, scenario) = (&folder.name, &folder.scenario);
    let mut page = format!("# {}\n\n`{name}`: {}\n\n", scenario.title, group_title(scenario.group));
    let _ = writeln!(page, "{}\n\n## The machines\n", scenario.story.trim());
    list(&mut page, &format::topology(scenario));
    list(&mut page, &format::services(scenario));
    files(&mut page, folder)?;
    commands(&mut page, folder)?;
    let mut load = &scenario.load;
    for (number, round) in (1..).zip(&scenario.rounds) {
        load = round.load.as_ref().unwrap_or(load);
        self::round(&mut page, folder, number, round, load);
    }
    if manual_steps::has_placeholder(&page) {
        let _ = writeln!(page, "## Commands of the signs\n\n{}\n", manual_steps::LEFT);
    }
    page.push_str("## Afterwards\n\n");
    code_block(&mut page, "sh", &format!("sudo webdyno lab down {name}            # removes everything\n"));
    Ok(page)
}

/// A part of the list as words.
pub fn group_title(group: Group) -> &'static str {
    match group {
        Group::Story => "a story with several turns",
        Group::Fault => "one fault",
        Group::Stacked => "a fault that hides the next one",
        Group::Healthy => "nothing is wrong",
        Group::Drawn => "a server drawn at random",
    }
}

/// A part of the list in one word, as `group` has it.
pub fn group_word(group: Group) -> &'static str {
    match group {
        Group::Story => "story",
        Group::Fault => "fault",
        Group::Stacked => "stacked",
        Group::Healthy => "healthy",
        Group::Drawn => "drawn",
    }
}

fn list(page: &mut String, lines: &[String]) {
    lines.iter().for_each(|line| {
        let _ = writeln!(page, "- {line}");
    });
}

fn code_block(page: &mut String, kind: &str, text: &str) {
    // A fence is longer than any in the text.
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = writeln!(page, "{fence}{kind}\n{}\n{fence}\n", text.trim_end_matches('\n'));
}

/// The files of the hosts and of the load.
fn files(page: &mut String, folder: &ScenarioFolder) -> Result<()> {
    let mut all = vec![];
    for host in folder.scenario.host_names() {
        for (path, bytes) in folder.files_of(&host)? {
            all.push((format!("{} on `{host}`", display_path(&path.display().to_string())), bytes));
        }
    }
    for path in folder.load_files()? {
        let bytes = folder.file(&path)?.unwrap_or_default();
        all.push((format!("{} of the load", display_path(&path)), bytes));
    }
    if all.is_empty() {
        page.push_str("\nAll files are as the distribution has them.\n");
        return Ok(());
    }
    page.push_str("\n## What is not as the distribution has it\n\n");
    for (what, bytes) in all {
        let text = String::from_utf8(bytes);
        match text {
            Ok(text) if text.trim().is_empty() => {
                let _ = writeln!(page, "{what} is empty.\n");
            }
            Ok(text) if text.lines().count() <= LINES_MAX && !text.contains('\0') => {
                let _ = writeln!(page, "{what}:\n");
                code_block(page, "", &text);
            }
            Ok(text) => {
                let _ = writeln!(page, "{what} has {} lines.\n", text.lines().count());
            }
            Err(error) => {
                let _ = writeln!(page, "{what} has {} bytes.\n", error.into_bytes().len());
            }
        }
    }
    Ok(())
}

fn display_path(path: &str) -> String {
    format!("`{path}`")
}

/// What `up` and `run` need beside the name, where the scenario is not one of those in the program. The other commands
/// know it once it is up.
fn from(folder: &ScenarioFolder) -> String {
    let quoted = |path: &Path| {
        let path = path.display().to_string();
        shlex::try_quote(&path).map_or_else(|_| path.clone(), |path| path.into_owned())
    };
    let place = folder.directory();
    place.map(|place| format!(" --scenarios {}", quoted(place))).unwrap_or_default()
}

/// What a reader types to have the scenario.
fn commands(page: &mut String, folder: &ScenarioFolder) -> Result<()> {
    let name = &folder.name;
    let from = from(folder);
    page.push_str("## By hand\n\n");
    let _ = writeln!(
        page,
        "`webdyno lab{from} run {name}` goes through all of it by itself. To look around, build it, and type what follows:\n"
    );
    let text = format!(
        "sudo webdyno lab{from} up {name}\nsudo webdyno lab exec {name}            # a shell on the server\n\
         sudo webdyno lab exec {name} client     # a shell where the users are\n"
    );
    code_block(page, "sh", &text);
    if !folder.load_files()?.is_empty() {
        let _ = writeln!(page, "The load names files: type it in the folder `scenarios/{name}`.\n");
    }
    Ok(())
}

fn round(
    page: &mut String,
    folder: &ScenarioFolder,
    number: usize,
    round: &ScenarioRound,
    load: &ScenarioLoad,
) {
    let name = &folder.name;
    let _ = writeln!(page, "## Round {number}: {}\n", round.name);
    if !round.text.trim().is_empty() {
        let _ = writeln!(page, "{}\n", round.text.trim());
    }
    let changes = format::changes(round);
    if !changes.is_empty() {
        page.push_str("From here on:\n\n");
        list(page, &changes);
        page.push('\n');
    }
    if changes.len() > usize::from(round.load.is_some()) {
        // Typed on the machine itself, `down` would take it for a change of somebody else and leave it.
        let _ = writeln!(
            page,
            "No command on a host changes that. When the scenario is down, `sudo webdyno lab{} run {name} --rounds {number} \
             --keep` leaves it up as it is from here on.\n",
            from(folder)
        );
    }
    let typed: Vec<(&str, &str)> = round.lines().collect();
    if !typed.is_empty() {
        page.push_str("The fix, as it is typed:\n\n");
        let line = |(host, line): (&str, &str)| format!("{host}# {line}\n");
        code_block(page, "", &typed.into_iter().map(line).collect::<String>());
    }
    page.push_str("The load, observed and diagnosed:\n\n");
    code_block(page, "sh", &diagnose(name, load));
    write_expected_finding(page, round);
    if !round.binds.is_empty() {
        page.push_str("It is there, as these show:\n\n");
        let sign = |bind| sign_text(bind, &folder.scenario, load);
        list(page, &round.binds.iter().map(sign).collect::<Vec<_>>());
        page.push('\n');
    }
    if !round.gains.is_empty() {
        let before = number.checked_sub(2).and_then(|before| folder.scenario.rounds.get(before));
        let before = before.map_or("", |before| &before.name);
        page.push_str("What it must have brought:\n\n");
        let gain = |gain: &crate::scenario::Gain| format::gain(gain, before);
        list(page, &round.gains.iter().map(gain).collect::<Vec<_>>());
        page.push('\n');
    }
}

/// The command line of a round's load.
pub fn diagnose(name: &str, load: &ScenarioLoad) -> String {
    let quote =
        |word: &String| shlex::try_quote(word).map_or_else(|_| word.clone(), |word| word.into_owned());
    let urls: Vec<String> = load.urls.iter().map(quote).collect();
    let what = [urls.join(" "), load.flags.trim().to_owned()];
    let what: Vec<String> = what.into_iter().filter(|part| !part.is_empty()).collect();
    format!(
        "sudo webdyno lab exec {name} client webdyno diagnose {} \\\n    --server \"exec:webdyno lab exec {name} server\"\n",
        what.join(" ")
    )
}

/// What the answer of a round is, and what mends it.
fn write_expected_finding(page: &mut String, round: &ScenarioRound) {
    let id = |id: &String| format!("`{id}`");
    let _ = match round.finding.as_str() {
        "healthy" => write!(page, "The answer is `healthy`: nothing limits."),
        finding => write!(page, "The answer is `{finding}`{}.", manual_link(finding)),
    };
    if !round.beside.is_empty() {
        let beside: Vec<String> = round.beside.iter().map(id).collect();
        let _ = write!(page, " Beside it there may be {}.", beside.join(", "));
    }
    if let Some(remedy) = &round.remedy {
        let _ = write!(page, " The remedy is {}.", self::remedy(remedy));
    }
    if let Some(next) = &round.next_limit {
        let _ = write!(page, " Once that is mended, `{next}` binds next.");
    }
    page.push_str("\n\n");
}

/// Where the manual tells more, if it does.
fn manual_link(id: &str) -> String {
    let is_known = limits::by_id(id).is_some();
    if is_known { format!(" (`webdyno explain {id}` tells more)") } else { String::new() }
}

fn remedy(remedy: &ExpectedRemedy) -> String {
    let value = match (&remedy.is, remedy.at_least, remedy.at_most) {
        (Some(word), _, _) => format!("= `{word}`"),
        (None, Some(least), Some(most)) => format!("from {least} to {most}"),
        (None, Some(least), None) => format!("of at least {least}"),
        (None, None, Some(most)) => format!("of at most {most}"),
        (None, None, None) => String::new(),
    };
    format!("`{}` of {} {value}", remedy.setting, remedy.service).trim_end().to_owned()
}

/// A sign with what it is and the command that shows it.
fn sign_text(sign: &Sign, scenario: &Scenario, load: &ScenarioLoad) -> String {
    let head = format::sign(sign);
    if let Some(what) = figures::NAMES.iter().find(|(name, _)| *name == sign.metric).map(|(_, what)| what) {
        return format!("{head}: {what}");
    }
    let Some(metric) = metric(&sign.metric) else { return head };
    let (host, command) = manual_steps::command(&metric, &sign.metric, scenario, load);
    format!("{head}, from {}; by hand on `{host}`: `{command}`", metric.source)
}

/// What the catalogue says of a metric.
fn metric(name: &str) -> Option<Metric> {
    let all: Vec<CollectorInfo> = webdyno_host::collectors::catalogue();
    let mut metrics = all.into_iter().flat_map(|collector| collector.metrics);
    metrics.find(|metric| metric.name == name || metric.describes(name))
}

/// The port that a load goes to.
fn port(load: &ScenarioLoad) -> String {
    load.urls.first().and_then(|url| crate::users::wrk::port(url)).unwrap_or(80).to_string()
}

#[cfg(test)]
mod tests;
