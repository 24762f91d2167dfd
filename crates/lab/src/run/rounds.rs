//! The rounds of a scenario: what is changed and typed, the load, and what was seen.
//!
//! A round begins with its new limits, then come its lines for sh(1), then the load of the host `client`, observed from
//! the host `server`. What went wrong with a line ends the run; a load whose every request fails is a result.

use super::outcome::RoundOutcome;
use super::{RunOptions, ScenarioHosts, child};
use crate::evidence::Evidence;
use crate::figures::NAMES;
use crate::hosts::host_init::OWN;
use crate::scenario::{ScenarioFolder, ScenarioLoad, ScenarioRound, file_name, split_flags};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::limits;
use webdyno_model::error::io_error;
use webdyno_model::number::significant;
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

/// The longest that a line of a round may take: some wait until tables of the kernel are empty.
const LINE: Duration = Duration::from_secs(300);
/// The longest that a load may take.
const LOAD: Duration = Duration::from_secs(1800);
/// What was typed takes effect a moment later: a graceful reload is only asked for when its command ends.
const SETTLE: Duration = Duration::from_millis(1000);
/// The folder of the run directory with the files of the load.
pub(super) const LOAD_FILES: &str = "load";
/// Codes with which a load ends that was made: done, and done with something that was not met.
pub(super) const MADE: [i32; 2] = [0, 3];

/// What drives the rounds.
pub struct RoundRunner<'a> {
    /// The scenario.
    pub folder: &'a ScenarioFolder,
    /// How it is run.
    pub options: &'a RunOptions,
    /// Its hosts.
    pub hosts: &'a mut dyn ScenarioHosts,
    /// Gets a line for each thing that begins.
    pub progress: &'a mut dyn FnMut(&str),
}

impl RoundRunner<'_> {
    /// All rounds that are asked for.
    pub fn rounds(mut self) -> Result<Vec<RoundOutcome>> {
        self.write_load_files()?;
        let scenario = &self.folder.scenario;
        let mut load = &scenario.load;
        let mut observed: BTreeMap<&str, Evidence> = BTreeMap::new();
        let mut before: Option<&str> = None;
        let mut outcomes = vec![];
        let count = self.options.rounds.unwrap_or(scenario.rounds.len());
        for (number, round) in (1..).zip(scenario.rounds.iter().take(count)) {
            load = round.load.as_ref().unwrap_or(load);
            let directory = self.options.directory.join(format!("{number:02}-{}", file_name(&round.name)));
            self.prepare(number, round)?;
            self.load(round, load, &directory)?;
            let evidence = Evidence::of(&Recording::read(&directory)?)?;
            outcomes.push(round_outcome(round, &evidence, before, &observed, &directory)?);
            observed.insert(&round.name, evidence);
            before = Some(&round.name);
        }
        Ok(outcomes)
    }

    /// The files that flags of the load name, where the load can read them.
    pub(super) fn write_load_files(&self) -> Result<()> {
        let directory = self.options.directory.join(LOAD_FILES);
        std::fs::create_dir_all(&directory)
            .map_err(|error| io_error("create", directory.display(), &error))?;
        for path in self.folder.load_files()? {
            let to = directory.join(&path);
            let parent = to.parent().unwrap_or(&directory);
            std::fs::create_dir_all(parent).map_err(|error| io_error("create", parent.display(), &error))?;
            let bytes = self.folder.file(&path)?.unwrap_or_default();
            std::fs::write(&to, bytes).map_err(|error| io_error("write", to.display(), &error))?;
        }
        Ok(())
    }

    /// Everything of a round that comes before its load.
    pub(super) fn prepare(&mut self, number: usize, round: &ScenarioRound) -> Result<()> {
        let name = &self.folder.name;
        if number > 1 || round.changes() {
            (self.progress)(&format!("{name}: {}: changing what the round changes", round.name));
        }
        self.hosts.change(round)?;
        for (host, line) in round.lines() {
            self.run_command_line(round, host, line)?;
        }
        if round.lines().next().is_some() {
            std::thread::sleep(SETTLE);
        }
        self.options.check()
    }

    fn run_command_line(&mut self, round: &ScenarioRound, host: &str, line: &str) -> Result<()> {
        let log = self.options.directory.join("by-hand.log");
        let log_of_line = self.options.directory.join("by-hand.last.log");
        drop(std::fs::remove_file(&log_of_line));
        (self.progress)(&format!("{}: {}: {host}$ {line}", self.folder.name, round.name));
        let mut command = self.hosts.enter(host)?;
        command.args(["sh", "-c", line]);
        let ended = child::run(command, line, &log_of_line, LINE, self.options)?;
        let output = child::tail(&log_of_line);
        append(&log, &format!("{host}$ {line}{output}\n"))?;
        drop(std::fs::remove_file(&log_of_line));
        let why = match ended {
            Some(status) if status.success() => return Ok(()),
            Some(status) => format!("it ended with {status}"),
            None => format!("it did not end within {} s", LINE.as_secs()),
        };
        let text = format!("round `{}`: `{line}` on {host}: {why}{output}", round.name);
        Err(UserError::cannot_run(text).hint(format!(
            "`webdyno lab run {} --keep` leaves it up, and `webdyno lab exec {} {host}` gives a shell there",
            self.folder.name, self.folder.name
        )))
    }

    pub(super) fn load(
        &mut self,
        round: &ScenarioRound,
        load: &ScenarioLoad,
        directory: &Path,
    ) -> Result<()> {
        let name = &self.folder.name;
        (self.progress)(&format!("{name}: {}: {} {}", round.name, load.urls.join(" "), load.flags));
        let executable = self.options.executable.display().to_string();
        let mut command = self.hosts.enter("client")?;
        command.arg(&executable).arg("lab-load").args(&load.urls).args(split_flags(&load.flags)?);
        command.arg("--server").arg(server(&executable, name)?);
        command.arg("--directory").arg(self.options.directory.join(LOAD_FILES));
        command.arg("--quiet").arg("--out").arg(directory);
        let log = directory.with_extension("log");
        let ended = child::run(command, "the load", &log, LOAD, self.options)?;
        let why = match ended.map(|status| (status, status.code())) {
            Some((_, Some(code))) if MADE.contains(&code) => return Ok(()),
            Some((status, _)) => format!("it ended with {status}"),
            None => format!("it did not end within {} s", LOAD.as_secs()),
        };
        let text = format!("the load of round `{}` was not made: {why}{}", round.name, child::tail(&log));
        Err(UserError::cannot_run(text).hint(format!("everything that it said is in {}", log.display())))
    }
}

/// `--server` of the load: the agent runs in the host `server`. Where the host sees this program, it runs it; else it is
/// sent there, which takes longer and counts as the host's memory while it is in the page cache.
pub(super) fn server(executable: &str, name: &str) -> Result<String> {
    let quoted = shlex::try_quote(executable).map_err(|_| {
        UserError::cannot_run(format!("the path of this program cannot be quoted: {executable}"))
            .hint("move it to a path without a zero byte")
    })?;
    let agent = if is_visible_to_hosts(Path::new(executable)) {
        format!(" -- {quoted} agent")
    } else {
        String::new()
    };
    Ok(format!("exec:{quoted} lab exec {name} server{agent}"))
}

/// Whether hosts see a file of the machine: it lies in no folder that each of them has for itself.
fn is_visible_to_hosts(path: &Path) -> bool {
    let own = OWN.iter().map(|name| Path::new("/").join(name));
    let empty = ["/run", "/dev", "/proc", "/sys"].map(PathBuf::from);
    path.is_absolute() && !own.chain(empty).any(|folder| path.starts_with(folder))
}

/// What a round showed.
fn round_outcome(
    round: &ScenarioRound,
    evidence: &Evidence,
    before: Option<&str>,
    observed: &BTreeMap<&str, Evidence>,
    directory: &Path,
) -> Result<RoundOutcome> {
    let gain = |gain: &crate::scenario::Gain| {
        let over = gain.over.as_deref().or(before).unwrap_or_default();
        let former = observed.get(over).ok_or_else(|| {
            UserError::usage(format!(
                "round `{}` gains over `{over}`, which is no round before it",
                round.name
            ))
        })?;
        Ok(evidence.check_gain(gain, over, former))
    };
    let diagnosis = diagnose(&evidence.measurement)?;
    let run = diagnosis.run.as_ref();
    let is_fault = |id: &String| *id != diagnosis.bottleneck && limits::is_fault(id);
    Ok(RoundOutcome {
        name: round.name.clone(),
        figures: all_figures(evidence),
        signs: round.binds.iter().map(|sign| evidence.check_sign(sign)).collect(),
        gains: round.gains.iter().map(gain).collect::<Result<_>>()?,
        expected: round.finding.clone(),
        found_beside: diagnosis.findings.iter().map(|finding| finding.id.clone()).filter(is_fault).collect(),
        beside: round.beside.clone(),
        generator: run.and_then(|run| run.client.why.clone()),
        found: diagnosis.bottleneck,
        directory: directory.display().to_string(),
    })
}

/// All figures of the list, and those that are of this load alone.
fn all_figures(evidence: &Evidence) -> BTreeMap<String, Option<f64>> {
    let always = NAMES.iter().map(|(name, _)| *name).filter(|name| !name.contains(char::is_uppercase));
    let mut figures: BTreeMap<String, Option<f64>> = always.map(|name| (name.to_owned(), None)).collect();
    let is_told = |name: &str, value: f64| value != 0.0 || figures.contains_key(name);
    let known: Vec<_> = evidence
        .figures
        .all()
        .filter(|(name, figure)| is_told(name, figure.value))
        .map(|(name, figure)| (name.to_owned(), Some(significant(figure.value, 5))))
        .collect();
    figures.extend(known);
    figures
}

fn append(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    let opened = std::fs::File::options().create(true).append(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| io_error("write", PathBuf::from(path).display(), &error))
}

impl ScenarioRound {
    /// What is typed before its load, in order: host and line.
    pub fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        let others = self.by_hand_on.iter();
        let others =
            others.flat_map(|(host, lines)| lines.iter().map(move |line| (host.as_str(), line.as_str())));
        others.chain(self.by_hand.iter().map(|line| ("server", line.as_str())))
    }

    /// Whether it changes anything.
    pub fn changes(&self) -> bool {
        let machine = &self.machine;
        let limits = !self.hosts.is_empty() || !self.links.is_empty();
        let machine = machine.swap.is_some() || !machine.sysctl.is_empty();
        limits || machine || self.lines().next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_hosts_see_is_not_sent_to_them() {
        for (program, command) in [
            ("/usr/bin/webdyno", "exec:/usr/bin/webdyno lab exec a server -- /usr/bin/webdyno agent"),
            ("/opt/a b/webdyno", "exec:'/opt/a b/webdyno' lab exec a server -- '/opt/a b/webdyno' agent"),
            ("/root/webdyno/target/webdyno", "exec:/root/webdyno/target/webdyno lab exec a server"),
            ("/tmp/webdyno", "exec:/tmp/webdyno lab exec a server"),
            ("/tmpfs/webdyno", "exec:/tmpfs/webdyno lab exec a server -- /tmpfs/webdyno agent"),
        ] {
            assert_eq!(server(program, "a").unwrap(), command);
        }
    }
}
