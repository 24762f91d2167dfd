//! A scenario as it was found, under users whom nobody knows ([`crate::users`]), while a diagnosis only watches: what an
//! operator would call, from the host of the clients. What it names first is judged.

use super::child::{self, BackgroundCommand};
use super::rounds::{LOAD_FILES, MADE, RoundRunner, server};
use crate::scenario::{ScenarioLoad, ScenarioRound, split_flags};
use crate::users::{FILE, UsersInfo};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};
use webdyno_analysis::limits;
use webdyno_model::diagnosis::Finding;
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

/// The schema of [`PassiveOutcome`].
pub const SCHEMA: &str = "webdyno/lab-users/v1";

/// How long the diagnosis watches.
const WINDOW: &str = "12s";
/// The longest that it may take with all that is around its window.
const DIAGNOSIS: Duration = Duration::from_secs(180);
/// Users have read what they are to send within this time.
const READ: Duration = Duration::from_secs(20);
/// The code with which a command ends that could not run.
const CANNOT_RUN: i32 = 1;
const POLL: Duration = Duration::from_millis(50);
/// The folder of the run directory that the diagnosis writes, named like that of a first round.
const RECORDING: &str = "01-watched";

/// What a diagnosis said that only watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PassiveOutcome {
    /// [`SCHEMA`].
    pub schema: String,
    /// The scenario.
    pub scenario: String,
    /// Who sent: `wrk`, or `webdyno` where wrk cannot send the load.
    pub users: String,
    /// Why it was not wrk.
    pub why: Option<String>,
    /// The id of the finding that is the answer.
    pub expected: String,
    /// What was found, the answer first.
    pub found: Vec<ReportedFinding>,
    /// Why nothing was found: the diagnosis could not be made, as where users had brought the server down before.
    pub error: Option<String>,
    /// Whether the first finding is the answer.
    pub right: bool,
    /// Where the recording is.
    pub directory: String,
}

/// A finding, and how sure it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportedFinding {
    /// Its id.
    pub id: String,
    /// 0 to 1.
    pub confidence: f64,
}

impl PassiveOutcome {
    /// In a line: `right  log-io (wrk)  log-io: log-io 0.90, cpu-saturated 0.50`.
    pub fn line(&self) -> String {
        let found: Vec<String> =
            self.found.iter().map(|one| format!("{} {:.2}", one.id, one.confidence)).collect();
        let found: Vec<String> = self.error.iter().cloned().chain(found).collect();
        let state = if self.right { "right" } else { "WRONG" };
        format!("{state}  {} ({})  {}: {}", self.scenario, self.users, self.expected, found.join(", "))
    }
}

/// Whether a finding says that the generator is at fault: nobody on the server's side can know that.
pub fn is_generator_finding(id: &str) -> bool {
    limits::by_id(id).is_some_and(|limit| limit.invalidates_run)
}

/// An error for a scenario whose answer nobody could find who only watches.
pub fn check(name: &str, round: &ScenarioRound) -> Result<()> {
    if is_generator_finding(&round.finding) {
        let text = format!("{name}: what limits there is the generator of the load, and users have none");
        return Err(UserError::usage(text).hint(format!("webdyno lab run {name}")));
    }
    Ok(())
}

impl RoundRunner<'_> {
    /// Its first round, watched.
    pub fn run_passively(mut self) -> Result<PassiveOutcome> {
        let folder = self.folder;
        let name = &folder.name;
        let scenario = &folder.scenario;
        let round = scenario
            .rounds
            .first()
            .ok_or_else(|| UserError::usage(format!("{name} has no rounds")).hint("write one: [[rounds]]"))?;
        check(name, round)?;
        self.write_load_files()?;
        self.prepare(1, round)?;
        let mut sender = self.send(round.load.as_ref().unwrap_or(&scenario.load))?;
        let users = self.wait_for_users(&mut sender)?;
        (self.progress)(&format!("{name}: {} sends{}", users.program, users_failed_reason(&users)));
        self.wait(users.before_s)?;
        let directory = self.options.directory.join(RECORDING);
        let error = self.diagnose(&users, &directory)?;
        let ended = sender.exit_status();
        drop(sender);
        if ended.is_some() {
            return Err(self.sender_ended_error("they ended before the diagnosis did"));
        }
        self.passive_outcome(round, users, &directory, error)
    }

    /// Starts the users, on the host of the clients.
    fn send(&mut self, load: &ScenarioLoad) -> Result<BackgroundCommand> {
        (self.progress)(&format!("{}: users: {} {}", self.folder.name, load.urls.join(" "), load.flags));
        let mut command = self.hosts.enter("client")?;
        command
            .arg(&self.options.executable)
            .arg("lab-users")
            .args(&load.urls)
            .args(split_flags(&load.flags)?);
        command.arg("--directory").arg(self.options.directory.join(LOAD_FILES));
        command.arg("--place").arg(&self.options.directory);
        command.arg("--quiet").arg("--out").arg(self.options.directory.join("users"));
        BackgroundCommand::start(command, "the users", &self.log())
    }

    fn log(&self) -> std::path::PathBuf {
        self.options.directory.join("users.log")
    }

    /// Who they are, once they have read what they send.
    fn wait_for_users(&self, sender: &mut BackgroundCommand) -> Result<UsersInfo> {
        let begun = Instant::now();
        loop {
            self.options.check()?;
            if let Some(users) = UsersInfo::read(&self.options.directory) {
                return Ok(users);
            }
            if sender.exit_status().is_some() || begun.elapsed() > READ {
                return Err(self.sender_ended_error(&format!("they wrote no {FILE}")));
            }
            std::thread::sleep(POLL);
        }
    }

    fn sender_ended_error(&self, why: &str) -> UserError {
        let log = self.log();
        UserError::cannot_run(format!("the users were not there: {why}{}", child::tail(&log)))
            .hint(format!("everything that they said is in {}", log.display()))
    }

    fn wait(&self, seconds: f64) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < seconds {
            self.options.check()?;
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// What the operator would call, with nothing known of the load. Gives why it could not be made.
    fn diagnose(&mut self, users: &UsersInfo, directory: &Path) -> Result<Option<String>> {
        let name = &self.folder.name;
        (self.progress)(&format!("{name}: webdyno diagnose --for {WINDOW} --port {}", users.port));
        let executable = self.options.executable.display().to_string();
        let mut command = self.hosts.enter("client")?;
        command.arg(&executable).args(["diagnose", "--for", WINDOW, "--port", &users.port.to_string()]);
        command.arg("--server").arg(server(&executable, name)?);
        command.arg("--quiet").arg("--out").arg(directory);
        let log = directory.with_extension("log");
        let ended = child::run(command, "the diagnosis", &log, DIAGNOSIS, self.options)?;
        let why = match ended.map(|status| (status, status.code())) {
            Some((_, Some(code))) if MADE.contains(&code) => return Ok(None),
            // What it could not do is an answer, too: a server that is down has no listener.
            Some((_, Some(CANNOT_RUN))) => return Ok(Some(first_line(&log))),
            Some((status, _)) => format!("it ended with {status}"),
            None => format!("it did not end within {} s", DIAGNOSIS.as_secs()),
        };
        let text = format!("the diagnosis of {name} was not made: {why}{}", child::tail(&log));
        Err(UserError::cannot_run(text).hint(format!("everything that it said is in {}", log.display())))
    }

    fn passive_outcome(
        &self,
        round: &ScenarioRound,
        users: UsersInfo,
        directory: &Path,
        error: Option<String>,
    ) -> Result<PassiveOutcome> {
        let scenario = self.folder.name.clone();
        let found = match error {
            Some(_) => vec![],
            None => read_findings(directory)?,
        };
        Ok(PassiveOutcome {
            schema: SCHEMA.into(),
            right: found.first().is_some_and(|first| first.id == round.finding),
            scenario,
            users: users.program,
            why: users.why,
            expected: round.finding.clone(),
            found,
            error,
            directory: self.options.directory.display().to_string(),
        })
    }
}

/// What the diagnosis in a directory says.
fn read_findings(directory: &Path) -> Result<Vec<ReportedFinding>> {
    let diagnosis = Recording::read(directory)?.diagnosis()?.ok_or_else(|| {
        UserError::cannot_run(format!("nothing was watched in {}", directory.display()))
            .hint("record it anew")
    })?;
    let stated = |finding: Finding| ReportedFinding { id: finding.id, confidence: finding.confidence };
    Ok(diagnosis.findings.into_iter().map(stated).collect())
}

/// What a command said first: its error, without our name before it.
fn first_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("webdyno: ").unwrap_or(line).to_owned()
}

fn users_failed_reason(users: &UsersInfo) -> String {
    users.why.as_ref().map_or(String::new(), |why| format!(", as {why}"))
}
