//! `webdyno lab`: faulty servers of our own.

mod guide;
mod load;
mod run;

use crate::cli::lab::{DownArgs, ExecArgs, HostArgs, LabArgs, LabCommand, UpArgs};
use crate::{interrupt, terminal};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::time::Instant;
use webdyno_host::change::state::StateDir;
use webdyno_lab::hosts::inside;
use webdyno_lab::scenario::Catalogue;
use webdyno_lab::up::{Options, check_root};
use webdyno_lab::{Lab, SERVER, down, up};
use webdyno_model::Result;
use webdyno_model::error::io_error;

/// Does what the lab is asked for. Gives the exit code.
pub fn lab(arguments: &LabArgs) -> Result<u8> {
    let catalogue = arguments.scenarios.clone().map_or(Catalogue::BuiltIn, Catalogue::Directory);
    match &arguments.command {
        LabCommand::List => list(&catalogue),
        LabCommand::Up(arguments) => build(&catalogue, arguments),
        LabCommand::Run(arguments) => run::run(&catalogue, arguments),
        LabCommand::Show(arguments) => guide::show(&catalogue, arguments),
        LabCommand::Pages(arguments) => guide::pages(&catalogue, arguments),
        LabCommand::Table(arguments) => guide::table(arguments),
        LabCommand::Exec(arguments) => exec(arguments),
        LabCommand::Down(arguments) => remove(arguments),
        LabCommand::Host(HostArgs { process, sees_processes }) if process == "first" => {
            inside::first(*sees_processes)
        }
        LabCommand::Host(_) => inside::second(),
    }
}

/// Names, what is up, and titles.
fn list(catalogue: &Catalogue) -> Result<u8> {
    let there: BTreeMap<String, bool> = down::all(StateDir::of_environment()?.root())?.into_iter().collect();
    let names = catalogue.names()?;
    let width = names.iter().map(String::len).max().unwrap_or(0);
    for name in &names {
        let folder = catalogue.open(name)?;
        let state = match there.get(name) {
            Some(true) => "up  ",
            Some(false) => "half",
            None => "-   ",
        };
        terminal::print(&format!("{name:width$}  {state}  {}\n", folder.scenario.title))?;
    }
    for (name, is_up) in there.iter().filter(|(name, _)| !names.contains(name)) {
        let state = if *is_up { "up  " } else { "half" };
        terminal::print(&format!("{name:width$}  {state}  (from another folder)\n"))?;
    }
    Ok(0)
}

fn build(catalogue: &Catalogue, arguments: &UpArgs) -> Result<u8> {
    check_root("up", &arguments.name)?;
    let folder = catalogue.open(&arguments.name)?;
    let began = Instant::now();
    let lab = up::up(&folder, &options()?)?;
    let (name, hosts) = (&folder.name, lab.host_names().join(", "));
    terminal::print(&format!(
        "{name} is up after {:.1} s: hosts {hosts}\n\
         A shell on the server: webdyno lab exec {name}\nEverything gone again:  webdyno lab down {name}\n",
        began.elapsed().as_secs_f64()
    ))?;
    Ok(0)
}

/// How scenarios are built by this program.
fn options() -> Result<Options> {
    Ok(Options {
        program: super::own_executable()?,
        state: StateDir::of_environment()?.root().to_owned(),
        stop: interrupt::flag()?,
    })
}

/// Becomes the command: whoever waits for us waits for it.
fn exec(arguments: &ExecArgs) -> Result<u8> {
    check_root("exec", &arguments.name)?;
    let lab = Lab::open(&arguments.name)?;
    let hosts = lab.host_names();
    let words = arguments.words.as_slice();
    let (host, words) = match words.split_first() {
        Some((first, rest)) if hosts.iter().any(|host| host.as_str() == first) => {
            (first.to_string_lossy(), rest)
        }
        _ => (SERVER.into(), words),
    };
    let words = words.strip_prefix(&["--".into()]).unwrap_or(words);
    let mut command = lab.enter(&host)?;
    match words {
        [] => command.arg("sh"),
        words => command.args(words),
    };
    Err(io_error("run", format!("a command on `{host}`"), &command.exec()))
}

fn remove(arguments: &DownArgs) -> Result<u8> {
    let state = StateDir::of_environment()?.root().to_owned();
    let names = match &arguments.name {
        Some(name) => vec![name.clone()],
        None => down::all(&state)?.into_iter().map(|(name, _)| name).collect(),
    };
    let mut failed = Ok(0);
    for name in &names {
        match down::down(&state, name) {
            Ok(removed) => {
                removed.notes.iter().for_each(|note| terminal::tell(&format!("webdyno: {note}")));
                let what = if removed.was_there { "is removed" } else { "is not up: nothing to do" };
                terminal::print(&format!("{name} {what}\n"))?;
            }
            // The last one is told by whoever called.
            Err(error) => {
                if let Err(earlier) = std::mem::replace(&mut failed, Err(error)) {
                    terminal::tell_error(&earlier);
                }
            }
        }
    }
    if names.is_empty() {
        terminal::print("Nothing is up.\n")?;
    }
    failed
}
