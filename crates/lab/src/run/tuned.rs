//! A scenario as it was found, tuned by the program as an operator would call it from the host of the clients, and loaded as it
//! was left; then rolled back, and mended by hand as its rounds say, so that both ways are measured on the same hosts.

use super::child;
use super::rounds::{LOAD_FILES, MADE, RoundRunner, server};
use crate::evidence::Evidence;
use crate::scenario::{ScenarioLoad, ScenarioRound, split_flags};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use webdyno_host::services::sysctl::{SYSCTLS, Scope, Sysctl, space};
use webdyno_model::number::significant;
use webdyno_model::run::RunReport;
use webdyno_model::tune::{Round, TuneState};
use webdyno_model::{ErrorKind, Result, UserError};
use webdyno_session::recording::Recording;
use webdyno_session::view::{Outcome, View};

/// The schema of [`TunedOutcome`].
pub const SCHEMA: &str = "webdyno/lab-tuned/v1";

/// The longest that a tuning may take, and its rollback.
const TUNING: Duration = Duration::from_secs(900);
const ROLLBACK: Duration = Duration::from_secs(120);
/// How long a server may take after a load until commands get through to it.
const QUIET: Duration = Duration::from_secs(60);

/// Prints what a rollback has to restore on a host: files of /etc with mode and owner, and the values that only run.
const PICTURE: &str = "find /etc -type f -printf '%m %u %g %p\\n' | sort; find /etc -type f -exec sha256sum {} + | sort; \
    sysctl -a 2>/dev/null | grep -E '^net\\.(core|ipv4\\.(tcp|ip_local)|netfilter\\.nf_conntrack_(max|buckets|tcp_timeout))' \
    | grep -vE 'fastopen_key|_count'; mariadb -Ne \"SHOW GLOBAL VARIABLES WHERE Variable_name REGEXP \
    'cache_size|buffer|max_.*connections|open_cache'\" 2>/dev/null; true";

/// What tuning a scenario came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunedOutcome {
    /// [`SCHEMA`].
    pub schema: String,
    /// The scenario.
    pub scenario: String,
    /// With which code the command ended.
    pub exit_code: i32,
    /// Successful requests per second as it was found; `None` is unknown, here and below.
    pub found_rate: Option<f64>,
    /// The same of what tuning left in force, by a load of its own after it.
    pub tuned_rate: Option<f64>,
    /// The same after the fix by hand; `None` also where no program could carry it out.
    pub by_hand_rate: Option<f64>,
    /// Response time p95 as it was found.
    pub found_p95_us: Option<f64>,
    /// The same of what tuning left in force.
    pub tuned_p95_us: Option<f64>,
    /// The same after the fix by hand.
    pub by_hand_p95_us: Option<f64>,
    /// What was tried: `apache MaxRequestWorkers=64: better, kept`.
    pub rounds: Vec<String>,
    /// The finding at the end.
    pub limit: Option<String>,
    /// What was left behind: `applied`, `reverted`, `planned`.
    pub state: Option<TuneState>,
    /// How long it took.
    pub tune_s: f64,
    /// Whether the rollback gave everything back; why not.
    pub not_restored: Option<String>,
    /// Where the recording is.
    pub directory: String,
}

impl TunedOutcome {
    /// The share of the rate by hand that tuning reached.
    pub fn share_of_by_hand(&self) -> Option<f64> {
        let by_hand = self.by_hand_rate.filter(|rate| *rate > 0.0)?;
        Some(self.tuned_rate? / by_hand)
    }

    /// In a line: `0.97  stacked-workers-db  58 -> 270/s (278 by hand), 71 s: apache MaxRequestWorkers=120: better, kept`.
    pub fn line(&self) -> String {
        let rate =
            |rate: Option<f64>| rate.map_or_else(|| "?".to_owned(), |rate| significant(rate, 3).to_string());
        let share = self.share_of_by_hand().map_or_else(|| "   -".to_owned(), |share| format!("{share:.2}"));
        let problem = self.not_restored.as_ref().map(|why| format!("  NOT RESTORED: {why}"));
        format!(
            "{share}  {} exit {}  {} -> {}/s ({} by hand), {:.0} s, ends {}: {}{}",
            self.scenario,
            self.exit_code,
            rate(self.found_rate),
            rate(self.tuned_rate),
            rate(self.by_hand_rate),
            self.tune_s,
            self.limit.as_deref().unwrap_or("unknown"),
            self.rounds.join("; "),
            problem.unwrap_or_default()
        )
    }
}

impl RoundRunner<'_> {
    /// Tunes its first round, rolls back, and goes through the rounds by hand as far as a program could have.
    pub fn run_tuned(mut self) -> Result<TunedOutcome> {
        let scenario = &self.folder.scenario;
        let rounds = &scenario.rounds[..];
        let Some(first) = rounds.first() else {
            let text = format!("{} has no rounds", self.folder.name);
            return Err(UserError::usage(text).hint("write one: [[rounds]]"));
        };
        let load = first.load.as_ref().unwrap_or(&scenario.load);
        self.write_load_files()?;
        self.prepare(1, first)?;
        let before = self.picture()?;
        let directory = self.options.directory.join("01-tuned");
        let began = Instant::now();
        let exit_code = self.tune(load, &directory)?;
        let tune_s = significant(began.elapsed().as_secs_f64(), 3);
        let report = match View::of(&Recording::read(&directory)?)?.outcome {
            Outcome::Tune(report) => Some(report),
            _ => None,
        };
        let is_applied = report.as_ref().is_some_and(|report| report.state == TuneState::Applied);
        let as_tuned = is_applied.then(|| self.measure(first, load, "02-as-tuned"));
        // First of all it is given back.
        let not_restored = self.roll_back(&before)?;
        let as_tuned = as_tuned.transpose()?;
        let by_hand = self.measure_manual_fix(rounds, load)?;
        let found = report.as_ref().map(|report| &report.baseline);
        // Where nothing was left in force it is as it was found.
        let tuned = |name: &str, of_run: fn(&RunReport) -> Option<f64>| match &as_tuned {
            Some(evidence) => figure(evidence, name),
            None => found.and_then(of_run),
        };
        Ok(TunedOutcome {
            schema: SCHEMA.into(),
            scenario: self.folder.name.clone(),
            exit_code,
            found_rate: found.and_then(|run| run.rate),
            tuned_rate: tuned("load.rate", |run| run.rate),
            by_hand_rate: by_hand.as_ref().and_then(|evidence| figure(evidence, "load.rate")),
            found_p95_us: found.and_then(p95_us),
            tuned_p95_us: tuned("load.p95_us", p95_us),
            by_hand_p95_us: by_hand.as_ref().and_then(|evidence| figure(evidence, "load.p95_us")),
            rounds: report.iter().flat_map(|report| &report.rounds).map(round_text).collect(),
            limit: report.as_ref().and_then(|report| report.limit.clone()),
            state: report.as_ref().map(|report| report.state),
            tune_s,
            not_restored,
            directory: self.options.directory.display().to_string(),
        })
    }

    /// What an operator would type; gives its exit code.
    fn tune(&mut self, load: &ScenarioLoad, directory: &Path) -> Result<i32> {
        let name = &self.folder.name;
        (self.progress)(&format!("{name}: webdyno tune {} {} --apply", load.urls.join(" "), load.flags));
        let executable = self.options.executable.display().to_string();
        let mut command = self.hosts.enter("client")?;
        // Flags name files of the load.
        command.args(["sh", "-c", "cd \"$1\" && shift && exec \"$@\"", "sh"]);
        command.arg(self.options.directory.join(LOAD_FILES)).arg(&executable).arg("tune");
        command.args(&load.urls).args(split_flags(&load.flags)?);
        command.args(["--goal", "max", "--apply", "--yes", "--allow-restart", "--quiet"]);
        command.arg("--server").arg(format!("web={}", server(&executable, name)?));
        command.arg("--server").arg(format!("host={}", self.machine_server()?)).arg("--out").arg(directory);
        let log = directory.with_extension("log");
        let ended = child::run(command, "the tuning", &log, TUNING, self.options)?;
        match ended.map(|status| (status, status.code())) {
            Some((_, Some(code))) if MADE.contains(&code) || directory.exists() => Ok(code),
            Some((status, _)) => Err(self.not_tuned(&format!("it ended with {status}"), &log)),
            None => Err(self.not_tuned(&format!("it did not end within {} s", TUNING.as_secs()), &log)),
        }
    }

    /// The machine as the host of the clients reaches it: where this process is. Its sessions are kept apart from others'.
    fn machine_server(&self) -> Result<String> {
        let (executable, state) = (self.options.executable.display().to_string(), self.machine_state());
        let state = state.display().to_string();
        let words = ["nsenter", "-t", &std::process::id().to_string(), "-n", "-m", "env"].map(str::to_owned);
        let words = words.into_iter().chain([format!("WEBDYNO_STATE={state}"), executable, "agent".into()]);
        let words: Vec<String> = words.collect();
        let command = shlex::try_join(words.iter().map(String::as_str)).map_err(|_| {
            UserError::cannot_run(format!("the path {state} cannot be quoted"))
                .hint("move it to a path without a zero byte")
        })?;
        Ok(format!("exec:{command}"))
    }

    fn machine_state(&self) -> PathBuf {
        std::path::absolute(&self.options.directory).unwrap_or_default().join("machine-state")
    }

    fn not_tuned(&self, why: &str, log: &Path) -> UserError {
        let text = format!("{} was not tuned: {why}{}", self.folder.name, child::tail(log));
        UserError::cannot_run(text).hint(format!("everything that it said is in {}", log.display()))
    }

    /// Gives everything back, and says what of it is not as before.
    fn roll_back(&mut self, before: &str) -> Result<Option<String>> {
        let executable = self.options.executable.display().to_string();
        let log = self.options.directory.join("rollback.log");
        let mut on_server = self.hosts.enter("server")?;
        on_server.arg(&executable);
        let mut on_machine = Command::new(&executable);
        on_machine.env("WEBDYNO_STATE", self.machine_state());
        // The machine outlives the scenario: it is rolled back whatever came of the server.
        let mut is_done = true;
        for mut command in [on_machine, on_server] {
            command.arg("rollback");
            let ended = child::run(command, "the rollback", &log, ROLLBACK, self.options)?;
            is_done &= ended.is_some_and(|status| status.success());
        }
        if !is_done {
            return Ok(Some(format!("the rollback failed:{}", child::tail(&log))));
        }
        let after = self.picture()?;
        let differing = before.lines().zip(after.lines()).find(|(before, after)| before != after);
        let is_as_before = differing.is_none() && before.lines().count() == after.lines().count();
        Ok((!is_as_before).then(|| match differing {
            Some((before, after)) => format!("`{before}` is now `{after}`"),
            None => "files were added or removed".into(),
        }))
    }

    fn picture(&mut self) -> Result<String> {
        let mut command = self.hosts.enter("server")?;
        command.args(["sh", "-c", PICTURE]);
        let output = command
            .output()
            .map_err(|error| webdyno_model::error::io_error("run", "find on the host `server`", &error))?;
        Ok(machine_picture() + &String::from_utf8_lossy(&output.stdout))
    }

    /// As [`RoundRunner::prepare`]: what the load before left in queues and connections may keep commands out for a while.
    fn prepare_when_quiet(&mut self, number: usize, round: &ScenarioRound) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.prepare(number, round) {
                Err(error) if error.kind != ErrorKind::Interrupted && began.elapsed() < QUIET => {
                    std::thread::sleep(Duration::from_secs(5));
                }
                prepared => return prepared,
            }
        }
    }

    /// The load after the fixes that a program can carry out, made by hand; `None` where there is none.
    fn measure_manual_fix(
        &mut self,
        rounds: &[ScenarioRound],
        load: &ScenarioLoad,
    ) -> Result<Option<Evidence>> {
        let is_ours = |pair: &&[ScenarioRound]| {
            pair[0].remedy.is_some() && pair[1].hosts.is_empty() && pair[1].links.is_empty()
        };
        let count = rounds.windows(2).take_while(is_ours).count();
        for (number, round) in (2..).zip(rounds.iter().skip(1).take(count)) {
            self.prepare_when_quiet(number, round)?;
        }
        let Some(last) = rounds.get(count).filter(|_| count > 0) else { return Ok(None) };
        self.measure(last, load, "03-by-hand").map(Some)
    }

    /// The load as the rounds of a run make it: the last that tuning itself measured may be from the moment after a restart.
    fn measure(&mut self, round: &ScenarioRound, load: &ScenarioLoad, name: &str) -> Result<Evidence> {
        let directory = self.options.directory.join(name);
        self.load(round, load, &directory)?;
        Evidence::of(&Recording::read(&directory)?)
    }
}

/// What a rollback has to restore on the machine itself: settings that are the whole machine's, and the file that keeps them.
fn machine_picture() -> String {
    let of_machine = SYSCTLS.iter().filter(|known| known.scope == Scope::Machine);
    let line = |known: &Sysctl| {
        let value = space::read_here(known.name).ok();
        format!("machine {} {}\n", known.name, value.as_deref().unwrap_or("is not there"))
    };
    let kept = std::fs::read_to_string("/etc/sysctl.d/zzz-webdyno.conf").unwrap_or_default();
    of_machine.map(line).chain(kept.lines().map(|line| format!("machine keeps {line}\n"))).collect()
}

fn figure(evidence: &Evidence, name: &str) -> Option<f64> {
    evidence.figures.all().find(|(known, _)| *known == name).map(|(_, figure)| figure.value)
}

fn p95_us(run: &RunReport) -> Option<f64> {
    run.response_time_us.p95.map(|us| us as f64)
}

fn round_text(round: &Round) -> String {
    let changes: Vec<String> =
        round.changes.iter().map(|change| format!("{}={}", change.setting.full_name(), change.to)).collect();
    let verdict = round.verdict.map_or("not measured", |verdict| verdict.name());
    let fate = if round.kept { "kept" } else { "reverted" };
    format!("{}: {verdict}, {fate}", changes.join(" "))
}
