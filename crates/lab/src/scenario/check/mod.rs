//! What a description must keep to beyond its form: hosts that exist, sizes and rates that can be read, files that are
//! there, metrics and findings that are known, rounds that prove something.

mod hosts;
mod loads;
mod rounds;
mod services;
mod signs;

pub use rounds::FINDINGS;

use super::ScenarioFolder;
use super::value_path::{Description, PathStep, did_you_mean};
use std::path::Path;
use webdyno_model::{Result, UserError};

/// Checks a scenario. A usage error with file, line and hint.
pub fn check(folder: &ScenarioFolder, path: &Path, text: &str) -> Result<()> {
    let check = Check { folder, text: Description::of(path, text) };
    check.heading()?;
    check.hosts()?;
    check.links()?;
    check.machine()?;
    check.services()?;
    check.load(&[PathStep::Key("load")], &folder.scenario.load)?;
    check.rounds()
}

/// A scenario that is checked, with the places of its values.
struct Check<'a> {
    folder: &'a ScenarioFolder,
    text: Description<'a>,
}

impl Check<'_> {
    fn heading(&self) -> Result<()> {
        let (scenario, name) = (&self.folder.scenario, &self.folder.name);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        // Control groups and directories have this name, and readers type it.
        if name.len() > 40 || !name.chars().all(plain) || name.starts_with('-') || name.is_empty() {
            let why = format!("the folder's name `{name}` is not one of a scenario");
            return Err(self.wrong(&[], why).hint("small letters, digits and hyphens, at most 40 of them"));
        }
        if scenario.title.trim().is_empty() || scenario.title.contains('\n') {
            return Err(self.wrong(&["title".into()], "the title is one line"));
        }
        if scenario.story.trim().is_empty() {
            return Err(self.wrong(&["story".into()], "the story is missing: what does somebody run into?"));
        }
        Ok(())
    }

    /// A usage error at a value.
    fn wrong(&self, at: &[PathStep<'_>], message: impl AsRef<str>) -> UserError {
        self.text.wrong(at, message)
    }

    /// The same with what another reader said of the value.
    fn error_with_cause(&self, at: &[PathStep<'_>], error: UserError) -> UserError {
        let reported = self.wrong(at, &error.message);
        match error.hint {
            Some(hint) => reported.hint(hint),
            None => reported,
        }
    }

    /// A host must be one of the scenario.
    fn host(&self, at: &[PathStep<'_>], name: &str) -> Result<()> {
        if self.folder.scenario.has_host(name) {
            return Ok(());
        }
        let names = self.folder.scenario.host_names();
        let all = format!("the hosts are {}; [hosts.NAME] makes another one", names.join(", "));
        Err(self.wrong(at, format!("there is no host `{name}`")).hint(did_you_mean(
            name,
            names.iter().map(String::as_str),
            &all,
        )))
    }

    /// A file must be there, in a folder of the scenario's.
    fn file(&self, at: &[PathStep<'_>], within: &str, path: &str) -> Result<()> {
        let whole = format!("{within}{}", path.trim_start_matches("./").trim_start_matches('/'));
        if self.folder.file(&whole)?.is_some() {
            return Ok(());
        }
        let paths = self.folder.paths()?;
        let all = format!("the folder holds {}", paths.join(", "));
        Err(self
            .wrong(at, format!("there is no file `{whole}` in the folder `{}`", self.folder.name))
            .hint(did_you_mean(&whole, paths.iter().map(String::as_str), &all)))
    }
}

/// The way to a value below another one.
fn below<'a>(at: &[PathStep<'a>], more: &[PathStep<'a>]) -> Vec<PathStep<'a>> {
    [at, more].concat()
}

#[cfg(test)]
mod wrong_tests;
