//! `webdyno lab draw`: a server drawn at random, built or written.

use super::{options, up};
use crate::cli::lab::DrawArgs;
use crate::terminal;
use std::fmt::Write as _;
use std::path::Path;
use webdyno_lab::draw::{DrawnServer, Seed};
use webdyno_lab::preconditions::check_root;
use webdyno_lab::scenario::Catalogue;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Draws a server. Gives the exit code.
pub fn draw(arguments: &DrawArgs) -> Result<u8> {
    let seed = Seed { seed: arguments.seed, attempt: arguments.attempt };
    let server = webdyno_lab::draw::draw(seed);
    let folder = Catalogue::BuiltIn.open(&seed.name())?;
    super::load::check(&folder)?;
    let mut text = match &arguments.write {
        Some(directory) => written(&server, directory)?,
        None => {
            check_root("draw", &format!("--seed {}", arguments.seed))?;
            let up = up(&folder)?;
            format!("{up}{}", description(&server)?)
        }
    };
    if arguments.show_truth {
        text.push_str(&truth(&server));
    }
    terminal::print(&text)?;
    Ok(0)
}

/// What it is, and how it is loaded.
fn description(server: &DrawnServer) -> Result<String> {
    let (name, program) = (server.seed.name(), options()?.program.display().to_string());
    Ok(format!(
        "It is:  {}\nThe load of its clients, with a look at the server:\n  webdyno lab exec {name} client -- {program} diagnose {} \
         --server 'exec:{program} lab exec {name} server'\n",
        server.words, server.load
    ))
}

fn truth(server: &DrawnServer) -> String {
    let mut text = String::new();
    for fault in &server.faults {
        let _ = writeln!(text, "Wrong:  {} ({})", fault.severity, fault.findings.join(" or "));
    }
    if server.faults.is_empty() {
        text.push_str("Wrong:  nothing\n");
    }
    for decoy in &server.decoys {
        let _ = writeln!(text, "Harmless:  {decoy}");
    }
    text
}

/// Writes it as a scenario's folder.
fn written(server: &DrawnServer, directory: &Path) -> Result<String> {
    let name = server.seed.name();
    let folder = directory.join(&name);
    if folder.symlink_metadata().is_ok() {
        let text = format!("{} exists already", folder.display());
        return Err(UserError::usage(text).hint("give another directory with --write DIR, or remove it"));
    }
    for (path, text) in &server.files {
        let to = folder.join(path);
        let parent = to.parent().unwrap_or(&folder);
        std::fs::create_dir_all(parent).map_err(|error| io_error("create", parent.display(), &error))?;
        std::fs::write(&to, text).map_err(|error| io_error("write", to.display(), &error))?;
    }
    Ok(format!(
        "{} is written: {}\nBuild it:  webdyno lab up {name} --scenarios {}\n",
        folder.display(),
        server.words,
        directory.display()
    ))
}
