//! `webdyno-evaluation draw`: servers drawn at random, run, their truth measured, and what the diagnosis says of them.

use super::{ScenarioRunner, check_root, print, print_error, print_note, read, write};
use crate::cli::DrawArgs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use webdyno_evaluation::drawn::disturbance::OTHERS_MAX;
use webdyno_evaluation::drawn::{self, SeedOutcome, Visibility, page, truth};
use webdyno_lab::draw::{Seed, draw as draw_server};
use webdyno_lab::run::{self, RunOptions, hosts};
use webdyno_lab::scenario::Catalogue;
use webdyno_model::error::io_error;
use webdyno_model::{ErrorKind, Result, UserError};

/// A first finding was wrong.
const WRONG: u8 = 3;
/// How often a seed is drawn until its faults bind.
const ATTEMPTS_MAX: u32 = 6;
/// The longest that one draw may take, up and down included.
const DRAW_MAX: Duration = Duration::from_secs(240);
/// The longest that tuning one may take.
const TUNING_MAX: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(100);

/// Runs what is not there yet of the seeds, and judges all. Gives the exit code: 3 when a first finding is wrong.
pub fn draw(webdyno: Option<std::path::PathBuf>, arguments: &DrawArgs) -> Result<u8> {
    std::fs::create_dir_all(&arguments.out)
        .map_err(|error| io_error("create", arguments.out.display(), &error))?;
    let directory =
        arguments.out.canonicalize().map_err(|error| io_error("find", arguments.out.display(), &error))?;
    let mut runner = None;
    let mut all = vec![];
    for seed in arguments.seeds.clone() {
        let file = drawn::file(&directory, seed);
        let known = if file.exists() { drawn::read(&read(&file)?, &file)?.pop() } else { None };
        let is_done =
            known.as_ref().is_some_and(|one| !arguments.tune || one.tuned.is_some() || one.attempt.is_none());
        let mut outcome = match known {
            Some(known) if is_done || arguments.judge_only => known,
            None if arguments.judge_only => continue,
            known => {
                if runner.is_none() {
                    check_root()?;
                    runner = Some(ScenarioRunner::new(webdyno.clone())?);
                }
                let Some(runner) = &runner else { continue };
                let run = SeedRun { runner, directory: &directory, quiet: arguments.quiet };
                let Some(outcome) = run.all(seed, known, arguments.tune)? else { continue };
                write(&file, &line(&outcome)?)?;
                outcome
            }
        };
        outcome.diagnose(&directory)?;
        if let Some(judged) = outcome.judged(Visibility::Root) {
            print(&format!("{}\n", judged.line()))?;
        }
        all.push(outcome);
        if let Some(path) = &arguments.json {
            write(path, &all.iter().map(line).collect::<Result<String>>()?)?;
        }
        if let Some(path) = &arguments.failures {
            write(path, &page::failures(&all))?;
        }
    }
    print(&format!("\n{}", page::section(&all)))?;
    let is_right = |one: &SeedOutcome| one.judged(Visibility::Root).is_none_or(|judged| judged.is_right());
    Ok(if all.iter().all(is_right) { 0 } else { WRONG })
}

fn line(outcome: &SeedOutcome) -> Result<String> {
    let line = serde_json::to_string(outcome);
    line.map(|line| line + "\n")
        .map_err(|error| UserError::cannot_run(format!("seed {} cannot be JSON: {error}", outcome.seed)))
}

/// How seeds are run.
struct SeedRun<'a> {
    runner: &'a ScenarioRunner,
    directory: &'a Path,
    quiet: bool,
}

impl SeedRun<'_> {
    /// Draws until the faults bind, and tunes what was taken. `known` is what was done before.
    fn all(&self, seed: u64, known: Option<SeedOutcome>, tune: bool) -> Result<Option<SeedOutcome>> {
        let began = Instant::now();
        let mut outcome = match known {
            Some(known) => known,
            None => match self.drawn(seed)? {
                Some(drawn) => drawn,
                None => return Ok(None),
            },
        };
        if let (true, Some(scenario)) = (tune, outcome.scenario()) {
            let tuned = self.bounded(&scenario, "tuned", TUNING_MAX, |folder, options, up, tell| {
                run::run_tuned(folder, options, up, tell)
            });
            match tuned {
                Ok(tuned) => outcome.tuned = Some(tuned),
                Err(error) if self.is_interrupted() => return Err(error),
                Err(error) => {
                    print_error(&UserError { message: format!("{scenario}: {}", error.message), ..error })
                }
            }
        }
        outcome.took_s += (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        Ok(Some(outcome))
    }

    /// `None` where others had the machine: the seed is to be run again.
    fn drawn(&self, seed: u64) -> Result<Option<SeedOutcome>> {
        let mut outcome = SeedOutcome { version: self.version(), ..SeedOutcome::of_seed(seed) };
        for attempt in 0..ATTEMPTS_MAX {
            let server = draw_server(Seed { seed, attempt });
            let name = server.seed.name();
            let ran = self.bounded(&name, "", DRAW_MAX, |folder, options, up, tell| {
                run::run(folder, options, up, tell)
            });
            if let Ok(ran) = &ran {
                let others = drawn::others_cores(ran)?;
                outcome.others_cores = others.map(|cores| (cores * 100.0).round() / 100.0);
                if others.is_some_and(|cores| cores > OTHERS_MAX) {
                    let cores = others.unwrap_or_default();
                    print_note(&format!(
                        "{name}: something else used {cores:.1} cores: not counted, to be run again"
                    ));
                    return Ok(None);
                }
            }
            let why = match ran.map(|ran| truth::truth(&server, &ran)) {
                Ok(Ok(truth)) => {
                    outcome.take(&server, truth);
                    return Ok(Some(outcome));
                }
                Ok(Err(why)) => why,
                Err(error) if self.is_interrupted() || error.kind == ErrorKind::Usage => return Err(error),
                Err(error) if error.kind == ErrorKind::Interrupted => "it took too long".into(),
                Err(error) => format!("could not be run: {}", error.message),
            };
            print_note(&format!("{name}: drawn again: {}", why.lines().next().unwrap_or_default()));
            outcome.reject(&server, why);
            drop(std::fs::remove_dir_all(self.directory.join(&name)));
        }
        Ok(Some(outcome))
    }

    fn is_interrupted(&self) -> bool {
        self.runner.interrupted.load(Ordering::SeqCst)
    }

    /// What the program calls itself.
    fn version(&self) -> String {
        let output = std::process::Command::new(&self.runner.program).arg("--version").output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        text.lines().next().unwrap_or_default().to_owned()
    }

    /// Does something with a drawn scenario, bounded in time, and leaves nothing but its directory.
    fn bounded<T>(
        &self,
        name: &str,
        suffix: &str,
        bound: Duration,
        work: impl FnOnce(
            &webdyno_lab::scenario::ScenarioFolder,
            &RunOptions,
            &mut dyn FnMut() -> Result<Box<dyn run::ScenarioHosts>>,
            &mut dyn FnMut(&str),
        ) -> Result<T>,
    ) -> Result<T> {
        let folder = Catalogue::BuiltIn.open(name)?;
        let name = if suffix.is_empty() { name.to_owned() } else { format!("{name}-{suffix}") };
        let directory = self.directory.join(name);
        // What an earlier run was killed in.
        drop(std::fs::remove_dir_all(&directory));
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicBool::new(false));
        let (watched, over, user) = (stop.clone(), ended.clone(), self.runner.interrupted.clone());
        let watch = std::thread::spawn(move || {
            let began = Instant::now();
            while !over.load(Ordering::SeqCst) {
                if user.load(Ordering::SeqCst) || began.elapsed() > bound {
                    watched.store(true, Ordering::SeqCst);
                }
                std::thread::sleep(POLL);
            }
        });
        let options = RunOptions {
            directory,
            executable: self.runner.program.clone(),
            rounds: None,
            keep: false,
            interrupted: stop.clone(),
        };
        let up = webdyno_lab::build::BuildOptions { stop, ..self.runner.up() };
        let mut tell = |line: &str| {
            if !self.quiet {
                print_note(line);
            }
        };
        let worked = work(&folder, &options, &mut || hosts::build(&folder, &up), &mut tell);
        ended.store(true, Ordering::SeqCst);
        drop(watch.join());
        worked
    }
}
