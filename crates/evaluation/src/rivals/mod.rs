//! Advisers that many know, asked about the same servers: apache2buddy and MySQLTuner.
//!
//! A scenario is brought up as it is found and gets its load; when that has ended, both are asked on the host that they
//! would be started on, and it is taken down. What they looked at and said is kept, a line of JSON for each scenario;
//! what it is worth is judged anew each time ([`advice`]), and told beside the diagnosis of the same load ([`section`]).
//!
//! Both ask the machine for its memory, which in a host of the lab is that of the whole machine: they are told the
//! host's, as if it were a machine of that size.

pub mod advice;
pub mod apache2buddy;
pub mod mysqltuner;
pub mod saved;
pub mod section;

use crate::judge::{JudgedDiagnosis, RecordingPlace};
use apache2buddy::ScriptInput;
use mysqltuner::Recommendations;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::measurement::Measurement;
use webdyno_lab::packages::ExternalProgram;
use webdyno_lab::run::outcome::ScenarioOutcome;
use webdyno_lab::run::{self, hosts};
use webdyno_lab::scenario::{self, ScenarioFolder};
use webdyno_lab::{Lab, SERVER, build, remove, units};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

/// The longest that one may take, in seconds.
const PATIENCE_S: &str = "120";
/// What MySQLTuner is, and what it asks with.
const MYSQLTUNER: [ExternalProgram; 2] = [
    ExternalProgram { name: "mysqltuner", package: "mysqltuner" },
    ExternalProgram { name: "mariadb-admin", package: "mariadb-client" },
];
/// pmap(1) and ps(1), of which apache2buddy's figures are.
const PMAP: ExternalProgram = ExternalProgram { name: "pmap", package: "procps" };

/// How asking one of them went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum AdviserResult<T> {
    /// It was not there to be asked.
    Skipped {
        /// Why.
        why: String,
    },
    /// It was started and gave no answer.
    Failed {
        /// Why.
        why: String,
    },
    /// What it looked at or said.
    Answered(T),
}

/// What all of them say of a scenario's server as it is found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScenarioAdvice {
    /// The scenario.
    pub scenario: String,
    /// The id of the finding that is the answer.
    pub answer: String,
    /// What the diagnosis of the same load finds first.
    pub found: String,
    /// How sure it is.
    pub confidence: f64,
    /// Whether its remedy is the scenario's, where that has one.
    pub remedy_is_right: bool,
    /// What apache2buddy looks at.
    pub apache2buddy: AdviserResult<ScriptInput>,
    /// What MySQLTuner recommends; `None` where there is no database.
    pub mysqltuner: Option<AdviserResult<Recommendations>>,
}

/// How scenarios are built and where their recordings go.
pub struct RivalOptions<'a> {
    /// How they are run. Its rounds, and whether it stays up, are decided here.
    pub run: run::RunOptions,
    /// How they are built.
    pub up: &'a build::BuildOptions,
}

/// Brings a scenario up, makes its first load, asks, and takes it down whatever happened.
pub fn query_advisers(
    folder: &ScenarioFolder,
    options: &RivalOptions<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<ScenarioAdvice> {
    let run = run::RunOptions { rounds: Some(1), keep: true, ..options.run.clone() };
    let mut is_built = false;
    let mut build = || hosts::build(folder, options.up).inspect(|_| is_built = true);
    let heard = run::run(folder, &run, &mut build, progress)
        .and_then(|outcome| listen(folder, &options.up.state, &outcome));
    // What somebody else has up is not ours to remove.
    let downed = match is_built {
        true => {
            progress(&format!("{}: asked, and down", folder.name));
            remove::down(&options.up.state, &folder.name).map(drop)
        }
        false => Ok(()),
    };
    let heard = heard?;
    downed.map(|()| heard)
}

/// Asks all of them on the hosts of a scenario that is up, of which the first load has just ended.
fn listen(folder: &ScenarioFolder, state: &Path, outcome: &ScenarioOutcome) -> Result<ScenarioAdvice> {
    let (scenario, lab) = (&folder.scenario, Lab::open_in(state, &folder.name)?);
    let (Some(round), Some(ran)) = (scenario.rounds.first(), outcome.rounds.first()) else {
        return Err(UserError::usage(format!("the scenario `{}` has no round", folder.name)));
    };
    let database = scenario.services.iter().find(|one| one.program == scenario::LabProgram::Mariadb);
    // First Apache's processes, which end one by one when nobody needs them.
    let recording = Recording::read(Path::new(&ran.directory))?;
    let measurement = recording.last_measurement().ok_or_else(|| {
        UserError::cannot_run(format!("there is no load in {}", ran.directory)).hint("webdyno lab run")
    })?;
    let apache2buddy = query_apache2buddy(folder, &lab, &measurement)?;
    let mysqltuner = database.map(|service| query_mysqltuner(folder, &lab, &service.host)).transpose()?;
    let place = RecordingPlace { scenario: folder.name.clone(), number: 1, file: PathBuf::new() };
    let judged = JudgedDiagnosis::of(&place, round, &diagnose(&measurement)?);
    let (found, confidence) = judged.first();
    Ok(ScenarioAdvice {
        scenario: folder.name.clone(),
        answer: round.finding.clone(),
        found: found.to_owned(),
        confidence,
        remedy_is_right: judged.remedy.is_none(),
        apache2buddy,
        mysqltuner,
    })
}

fn query_apache2buddy(
    folder: &ScenarioFolder,
    lab: &Lab,
    measurement: &Measurement,
) -> Result<AdviserResult<ScriptInput>> {
    let Some(service) = measurement.service.as_ref().filter(|service| service.service == "apache") else {
        return Ok(AdviserResult::Failed { why: "Apache was not seen".into() });
    };
    if let Err(error) = PMAP.find() {
        return Ok(AdviserResult::Skipped { why: error.message });
    }
    let memory = memory_bytes(folder, SERVER)?;
    let printed = run_script(lab, SERVER, include_str!("apache2buddy.sh"), &[&service.pid.to_string()])?;
    Ok(match ScriptInput::of(&printed, service, memory) {
        Ok(observed) => AdviserResult::Answered(observed),
        Err(why) => AdviserResult::Failed { why },
    })
}

fn query_mysqltuner(
    folder: &ScenarioFolder,
    lab: &Lab,
    host: &str,
) -> Result<AdviserResult<Recommendations>> {
    if let Some(error) = MYSQLTUNER.iter().find_map(|program| program.find().err()) {
        return Ok(AdviserResult::Skipped { why: error.message });
    }
    let swap = folder.scenario.hosts.get(host).and_then(|host| host.swap.as_deref());
    let swap = swap.map(units::bytes).transpose()?.unwrap_or(0);
    let mib = |bytes: u64| (bytes >> 20).to_string();
    let arguments = [mib(memory_bytes(folder, host)?), mib(swap)];
    let printed =
        run_script(lab, host, include_str!("mysqltuner.sh"), &arguments.each_ref().map(String::as_str))?;
    let last =
        printed.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing");
    let why = || AdviserResult::Failed { why: last.to_owned() };
    Ok(Recommendations::of(&printed).map_or_else(why, AdviserResult::Answered))
}

/// What a script says in a host; one that fails has said what it has said.
fn run_script(lab: &Lab, host: &str, script: &str, arguments: &[&str]) -> Result<String> {
    let mut command = lab.enter_host(host)?;
    command.args(["timeout", "-k", "1", PATIENCE_S, "sh", "-c", script, "sh"]).args(arguments);
    let output = command.stdin(Stdio::null()).output().map_err(|error| io_error("run", "sh(1)", &error))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The memory of a host as it is found: its limit, or the machine's.
fn memory_bytes(folder: &ScenarioFolder, host: &str) -> Result<u64> {
    let scenario = &folder.scenario;
    let changed = scenario.rounds.first().and_then(|round| round.hosts.get(host));
    let limits = [changed, scenario.hosts.get(host)];
    let limit = limits.into_iter().flatten().find_map(|host| host.memory.as_deref());
    match limit {
        Some(limit) => units::bytes(limit),
        None => webdyno_host::os::machine::environment().memory_bytes.ok_or_else(|| {
            UserError::cannot_run("this machine's memory is not in /proc/meminfo")
                .hint("the advisers divide it: mount /proc")
        }),
    }
}
