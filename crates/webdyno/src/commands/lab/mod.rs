//! `webdyno lab`: faulty servers of our own.

mod draw;
mod load;
mod run;

use crate::cli::lab::{DownArgs, ExecArgs, HostArgs, LabArgs, LabCommand, UpArgs};
use crate::cli::lab_run::LabShowArgs;
use crate::process::{interrupt_flag, own_executable};
use crate::terminal;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use webdyno_host::change::seams::state_dir::StateDir;
use webdyno_lab::build::BuildOptions;
use webdyno_lab::hosts::host_init;
use webdyno_lab::preconditions::check_root;
use webdyno_lab::scenario::{Catalogue, ScenarioFolder, did_you_mean};
use webdyno_lab::{Lab, SERVER, build, page, remove};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The shell of people.
const BASH: &str = "/bin/bash";

/// Does what the lab is asked for. Gives the exit code.
pub fn lab(arguments: &LabArgs) -> Result<u8> {
    let catalogue = arguments.scenarios.clone().map_or(Catalogue::BuiltIn, Catalogue::Directory);
    match &arguments.command {
        LabCommand::List => list(&catalogue),
        LabCommand::Up(arguments) => build(&catalogue, arguments),
        LabCommand::Draw(arguments) => draw::draw(arguments),
        LabCommand::Run(arguments) => run::run(&catalogue, arguments),
        LabCommand::Show(arguments) => print_page(&catalogue, arguments),
        LabCommand::Exec(arguments) => exec(&catalogue, arguments),
        LabCommand::Down(arguments) => remove(&catalogue, arguments),
        LabCommand::Host(HostArgs { process, sees_processes }) if process == "first" => {
            host_init::first(*sees_processes)
        }
        LabCommand::Host(_) => host_init::second(),
    }
}

/// Names, what is up, the part of the list and titles: stories first, each part in the order of the names.
fn list(catalogue: &Catalogue) -> Result<u8> {
    // Scenarios are root's, and so is what tells of them.
    let is_root = check_root("list", "").is_ok();
    let there: BTreeMap<String, bool> = match is_root {
        true => remove::all(StateDir::of_environment()?.root())?.into_iter().collect(),
        false => BTreeMap::new(),
    };
    let names = catalogue.names()?;
    let mut folders: Vec<ScenarioFolder> =
        names.iter().map(|name| catalogue.open(name)).collect::<Result<_>>()?;
    folders.sort_by_key(|folder| folder.scenario.group);
    let width = names.iter().map(String::len).max().unwrap_or(0);
    for folder in &folders {
        let (name, scenario) = (&folder.name, &folder.scenario);
        let state = match there.get(name) {
            Some(true) => "up  ",
            Some(false) => "half",
            None if is_root => "-   ",
            None => "?   ",
        };
        let part = page::group_word(scenario.group);
        terminal::print(&format!("{name:width$}  {state}  {part:7}  {}\n", scenario.title))?;
    }
    for (name, is_up) in there.iter().filter(|(name, _)| !names.contains(name)) {
        let state = if *is_up { "up  " } else { "half" };
        terminal::print(&format!("{name:width$}  {state}  (from another folder)\n"))?;
    }
    if !is_root {
        terminal::print_status("webdyno: only root sees what is up: sudo webdyno lab list");
    }
    Ok(0)
}

/// Prints the page of a scenario.
fn print_page(catalogue: &Catalogue, arguments: &LabShowArgs) -> Result<u8> {
    terminal::print(&page::page(&catalogue.open(&arguments.name)?)?)?;
    Ok(0)
}

fn build(catalogue: &Catalogue, arguments: &UpArgs) -> Result<u8> {
    check_root("up", &arguments.name)?;
    let folder = catalogue.open(&arguments.name)?;
    terminal::print(&up(&folder)?)?;
    Ok(0)
}

/// Builds a scenario. Gives what a person wants to know then.
fn up(folder: &ScenarioFolder) -> Result<String> {
    let began = Instant::now();
    let lab = build::build(folder, &options()?)?;
    let (name, hosts) = (&folder.name, lab.host_names().join(", "));
    Ok(format!(
        "{name} is up after {:.1} s: hosts {hosts}\n\
         A shell on the server: webdyno lab exec {name}\nEverything gone again:  webdyno lab down {name}\n",
        began.elapsed().as_secs_f64()
    ))
}

/// How scenarios are built by this program.
fn options() -> Result<BuildOptions> {
    Ok(BuildOptions {
        program: own_executable()?,
        state: StateDir::of_environment()?.root().to_owned(),
        stop: interrupt_flag()?,
    })
}

/// Becomes the command: whoever waits for us waits for it.
fn exec(catalogue: &Catalogue, arguments: &ExecArgs) -> Result<u8> {
    check_root("exec", &arguments.name)?;
    let lab = Lab::open(&arguments.name).map_err(|error| not_open(catalogue, &arguments.name, error))?;
    let hosts = lab.host_names();
    let words = arguments.words.as_slice();
    let (host, words) = match words.split_first() {
        Some((first, rest)) if hosts.iter().any(|host| host.as_str() == first) => {
            (first.to_string_lossy(), rest)
        }
        _ => (SERVER.into(), words),
    };
    let words = match words.strip_prefix(&["--".into()]) {
        Some(words) => words,
        None => {
            words.first().map_or(Ok(()), |first| refuse_unknown_host(&first.to_string_lossy(), &hosts))?;
            words
        }
    };
    let mut command = lab.enter_host(&host)?;
    match words {
        [] => shell(&mut command, &arguments.name, &host),
        words => command.args(words),
    };
    Err(io_error("run", format!("a command on `{host}`"), &command.exec()))
}

/// A shell: for a person bash(1), of whom dash(1) takes leave with an error and a wrong exit code where its terminal
/// is that of another process namespace.
fn shell<'a>(command: &'a mut Command, name: &str, host: &str) -> &'a mut Command {
    let is_person = std::io::stdin().is_terminal();
    match is_person && Path::new(BASH).exists() {
        // Which machine this is, is seen in each line.
        true => command.arg("env").arg(format!("PS1={name}/{host}:\\w# ")).arg(BASH),
        false => command.arg("sh"),
    }
}

/// Why a scenario could not be opened: a name that nothing has cannot be built either.
fn not_open(catalogue: &Catalogue, name: &str, error: UserError) -> UserError {
    let is_there = || {
        let there = StateDir::of_environment().and_then(|state| remove::all(state.root()));
        there.is_ok_and(|there| there.iter().any(|(other, _)| other == name))
    };
    unknown(catalogue, name).filter(|_| !is_there()).unwrap_or(error)
}

/// An error for a first word that is neither a host nor a program, but nearly a host.
fn refuse_unknown_host(word: &str, hosts: &[String]) -> Result<()> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_program =
        word.contains('/') || std::env::split_paths(&folders).any(|folder| folder.join(word).is_file());
    let hint = did_you_mean(word, hosts.iter().map(String::as_str), "");
    if is_program || hint.is_empty() {
        return Ok(());
    }
    let text = format!("there is neither a host nor a program `{word}`; hosts: {}", hosts.join(", "));
    Err(UserError::usage(text).hint(hint))
}

/// The error for a name that no scenario has.
fn unknown(catalogue: &Catalogue, name: &str) -> Option<UserError> {
    let is_known = catalogue.names().is_ok_and(|names| names.iter().any(|known| known == name));
    if is_known { None } else { catalogue.open(name).err() }
}

fn remove(catalogue: &Catalogue, arguments: &DownArgs) -> Result<u8> {
    check_root("down", arguments.name.as_deref().unwrap_or("--all"))?;
    let state = StateDir::of_environment()?.root().to_owned();
    let names = match &arguments.name {
        Some(name) => vec![name.clone()],
        None => remove::all(&state)?.into_iter().map(|(name, _)| name).collect(),
    };
    let mut failed = Ok(0);
    for name in &names {
        // Nothing had to be done, but another one was meant.
        let is_meant = |removed: remove::Removal| match unknown(catalogue, name) {
            Some(error) if !removed.existed => Err(error),
            _ => Ok(removed),
        };
        match remove::down(&state, name).and_then(is_meant) {
            Ok(removed) => {
                removed.notes.iter().for_each(|note| terminal::print_status(&format!("webdyno: {note}")));
                let what = if removed.existed { "is removed" } else { "is not up: nothing to do" };
                terminal::print(&format!("{name} {what}\n"))?;
            }
            // The last one is told by whoever called.
            Err(error) => {
                if let Err(earlier) = std::mem::replace(&mut failed, Err(error)) {
                    terminal::print_error(&earlier);
                }
            }
        }
    }
    if names.is_empty() {
        terminal::print("Nothing is up.\n")?;
    }
    failed
}
