//! Where scenarios are: built into the program, drawn by it, or folders of the user's own.

use super::Scenario;
use crate::draw;
use rust_embed::RustEmbed;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The name of a scenario's description in its folder.
pub const DESCRIPTION: &str = "scenario.toml";

/// The folder `scenarios/` as it was when the program was built.
#[derive(RustEmbed)]
#[folder = "../../scenarios"]
struct BuiltInScenarios;

/// All scenarios of one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Catalogue {
    /// Those in the program, and those that it draws: they are the same wherever it runs, and are not listed.
    BuiltIn,
    /// The folders in this one.
    Directory(PathBuf),
}

/// One scenario with its files.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioFolder {
    /// The folder's name, which is the scenario's.
    pub name: String,
    /// What it describes.
    pub scenario: Scenario,
    catalogue: Catalogue,
}

impl Catalogue {
    /// The names of all scenarios, in order.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = match self {
            Self::BuiltIn => BuiltInScenarios::iter().filter_map(|path| scenario_of_path(&path)).collect(),
            Self::Directory(directory) => scenarios_in(directory)?,
        };
        names.sort_unstable();
        Ok(names)
    }

    /// One scenario. Usage errors: there is none of this name, or its description is wrong.
    pub fn open(&self, name: &str) -> Result<ScenarioFolder> {
        let path = format!("{name}/{DESCRIPTION}");
        let is_name = !name.is_empty() && !name.contains(['/', '\0']) && name != "..";
        let bytes = if is_name { self.bytes(&path)? } else { None };
        let bytes = bytes.map_or_else(|| Err(self.unknown_scenario(name)), Ok)?;
        let displayed = match self {
            Self::BuiltIn => Path::new("scenarios").join(&path),
            Self::Directory(directory) => directory.join(&path),
        };
        let text = String::from_utf8(bytes.into_owned())
            .map_err(|_| UserError::usage(format!("{}: it is not UTF-8", displayed.display())))?;
        let scenario = super::parse(&text, &displayed)?;
        let folder = ScenarioFolder { name: name.to_owned(), scenario, catalogue: self.clone() };
        super::check::check(&folder, &displayed, &text)?;
        Ok(folder)
    }

    fn unknown_scenario(&self, name: &str) -> UserError {
        let reported = UserError::usage(format!("there is no scenario `{name}`"));
        match self.names() {
            Ok(names) => {
                let names = names.iter().map(String::as_str);
                reported.hint(super::did_you_mean(name, names, "`webdyno lab list` names them"))
            }
            Err(error) => error,
        }
    }

    /// The paths of all files in a folder, relative to the catalogue.
    fn files(&self, folder: &str) -> Result<Vec<String>> {
        match self {
            Self::BuiltIn => {
                let is_in =
                    |path: &String| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
                let built_in = BuiltInScenarios::iter().map(Cow::into_owned).filter(is_in);
                Ok(built_in.chain(draw::paths(folder)).collect())
            }
            Self::Directory(directory) => files_of_directory(directory, folder),
        }
    }

    fn bytes(&self, path: &str) -> Result<Option<Cow<'static, [u8]>>> {
        match self {
            Self::BuiltIn => {
                let drawn = || draw::file(path).map(|text| Cow::Owned(text.into_bytes()));
                Ok(BuiltInScenarios::get(path).map(|file| file.data).or_else(drawn))
            }
            Self::Directory(directory) => match std::fs::read(directory.join(path)) {
                Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(io_error("read", directory.join(path).display(), &error)),
            },
        }
    }
}

/// The scenario that a path describes.
fn scenario_of_path(path: &str) -> Option<String> {
    let name = path.strip_suffix(DESCRIPTION)?.strip_suffix('/')?;
    (!name.contains('/')).then(|| name.to_owned())
}

/// The names of the folders that have a description.
fn scenarios_in(directory: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(directory).map_err(|error| unreadable(directory, &error))?;
    let has_one = |entry: &std::fs::DirEntry| entry.path().join(DESCRIPTION).is_file();
    let names = entries.flatten().filter(has_one).filter_map(|entry| entry.file_name().into_string().ok());
    let names: Vec<String> = names.collect();
    match names.is_empty() {
        false => Ok(names),
        true => Err(UserError::usage(format!("there is no scenario in {}", directory.display()))
            .hint("--scenarios takes a folder that holds one folder for each scenario")),
    }
}

/// The files in a folder of a catalogue; what links lead to is among them.
fn files_of_directory(directory: &Path, folder: &str) -> Result<Vec<String>> {
    let mut paths = vec![];
    let top = directory.join(folder);
    if !top.is_dir() {
        return Ok(paths);
    }
    for entry in WalkDir::new(top).follow_links(true).sort_by_file_name() {
        let entry = entry.map_err(|error| unreadable(directory, &error))?;
        let path = entry.path().strip_prefix(directory).unwrap_or(entry.path());
        if entry.file_type().is_file() {
            let text = path.to_str().ok_or_else(|| {
                UserError::usage(format!("the name of {} is not UTF-8", entry.path().display()))
            })?;
            paths.push(text.to_owned());
        }
    }
    Ok(paths)
}

fn unreadable(directory: &Path, error: &dyn std::fmt::Display) -> UserError {
    let text = format!("cannot read the scenarios in {}: {error}", directory.display());
    UserError::usage(text).hint("--scenarios takes a folder that holds one folder for each scenario")
}

impl ScenarioFolder {
    /// The folder of folders that it is in; `None` when it is built into the program.
    pub fn directory(&self) -> Option<&Path> {
        match &self.catalogue {
            Catalogue::BuiltIn => None,
            Catalogue::Directory(directory) => Some(directory),
        }
    }

    /// The files of a host, by their absolute paths on it, with their bytes.
    pub fn files_of(&self, host: &str) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let folder = format!("{}/{host}", self.name);
        let mut files = vec![];
        for path in self.catalogue.files(&folder)? {
            let bytes = self.catalogue.bytes(&path)?.unwrap_or_default();
            files.push((Path::new("/").join(&path[folder.len() + 1..]), bytes.into_owned()));
        }
        Ok(files)
    }

    /// A file of the folder, `None` if there is none of this name.
    pub fn file(&self, path: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.catalogue.bytes(&format!("{}/{path}", self.name))?.map(Cow::into_owned))
    }

    /// The files of the load, relative to the folder: those of no host.
    pub fn load_files(&self) -> Result<Vec<String>> {
        let of_a_host = |path: &String| {
            let first = path.split('/').next().unwrap_or_default();
            path.contains('/') && self.scenario.has_host(first)
        };
        Ok(self.paths()?.into_iter().filter(|path| path != DESCRIPTION && !of_a_host(path)).collect())
    }

    /// All files of the folder, relative to it.
    pub fn paths(&self) -> Result<Vec<String>> {
        let files = self.catalogue.files(&self.name)?;
        Ok(files.into_iter().map(|path| path[self.name.len() + 1..].to_owned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_links_lead_to_is_of_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        let good = include_str!("check/good_file.toml");
        std::fs::create_dir_all(at("elsewhere/a/server/etc")).unwrap();
        for path in ["a/server/etc/nft.conf", "a/shop.toml", "data.sql"] {
            std::fs::write(at("elsewhere").join(path), "x").unwrap();
        }
        std::fs::write(at("elsewhere/a/scenario.toml"), good).unwrap();
        std::fs::create_dir_all(at("all/no-scenario")).unwrap();
        std::fs::create_dir_all(at("elsewhere/a/db/srv")).unwrap();
        symlink(at("elsewhere/a"), at("all/a-test")).unwrap();
        symlink(at("elsewhere/data.sql"), at("elsewhere/a/db/srv/data.sql")).unwrap();
        symlink("nowhere", at("all/broken")).unwrap();
        let catalogue = Catalogue::Directory(at("all"));
        assert_eq!(catalogue.names(), Ok(vec!["a-test".to_owned()]));
        let folder = catalogue.open("a-test").unwrap();
        assert_eq!(folder.files_of("db"), Ok(vec![("/srv/data.sql".into(), b"x".to_vec())]));
        assert_eq!(folder.files_of("client"), Ok(vec![]));
        // What cannot be taken is told, not left out.
        symlink("nowhere", at("elsewhere/a/server/etc/x")).unwrap();
        assert!(folder.files_of("server").unwrap_err().message.contains("etc/x"));
        std::fs::remove_file(at("elsewhere/a/server/etc/x")).unwrap();
        std::fs::write(at("elsewhere/a/server/etc").join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
        assert!(folder.files_of("server").unwrap_err().message.contains("not UTF-8"));
    }
}
