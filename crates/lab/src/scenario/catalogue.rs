//! Where scenarios are: built into the program, or folders of the user's own.

use super::Scenario;
use rust_embed::RustEmbed;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The name of a scenario's description in its folder.
pub const DESCRIPTION: &str = "scenario.toml";

/// The folder `scenarios/` as it was when the program was built.
#[derive(RustEmbed)]
#[folder = "../../scenarios"]
struct BuiltIn;

/// All scenarios of one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Catalogue {
    /// Those in the program.
    BuiltIn,
    /// The folders in this one.
    Directory(PathBuf),
}

/// One scenario with its files.
#[derive(Debug, Clone, PartialEq)]
pub struct Folder {
    /// The folder's name, which is the scenario's.
    pub name: String,
    /// What it describes.
    pub scenario: Scenario,
    catalogue: Catalogue,
}

impl Catalogue {
    /// The names of all scenarios, in order.
    pub fn names(&self) -> Result<Vec<String>> {
        let files = self.files("")?;
        let named = |path: &String| Some(path.strip_suffix(DESCRIPTION)?.strip_suffix('/')?.to_owned());
        let names: BTreeSet<String> =
            files.iter().filter_map(named).filter(|name| !name.contains('/')).collect();
        Ok(names.into_iter().collect())
    }

    /// One scenario. Usage errors: there is none of this name, or its description is wrong.
    pub fn open(&self, name: &str) -> Result<Folder> {
        let path = format!("{name}/{DESCRIPTION}");
        let is_name = !name.is_empty() && !name.contains(['/', '\0']) && name != "..";
        let bytes = if is_name { self.bytes(&path)? } else { None };
        let bytes = bytes.map_or_else(|| Err(self.unknown(name)), Ok)?;
        let shown = match self {
            Self::BuiltIn => Path::new("scenarios").join(&path),
            Self::Directory(directory) => directory.join(&path),
        };
        let text = String::from_utf8(bytes.into_owned())
            .map_err(|_| UserError::usage(format!("{}: it is not UTF-8", shown.display())))?;
        let scenario = super::parse(&text, &shown)?;
        let folder = Folder { name: name.to_owned(), scenario, catalogue: self.clone() };
        super::check::check(&folder, &shown, &text)?;
        Ok(folder)
    }

    fn unknown(&self, name: &str) -> UserError {
        let told = UserError::usage(format!("there is no scenario `{name}`"));
        match self.names() {
            Ok(names) => {
                let names = names.iter().map(String::as_str);
                told.hint(super::did_you_mean(name, names, "`webdyno lab list` names them"))
            }
            Err(error) => error,
        }
    }

    /// The paths of all files that begin with `prefix`, relative to the catalogue.
    fn files(&self, prefix: &str) -> Result<Vec<String>> {
        let all: Vec<String> = match self {
            Self::BuiltIn => BuiltIn::iter().map(Cow::into_owned).collect(),
            Self::Directory(directory) => of_directory(directory)?,
        };
        Ok(all.into_iter().filter(|path| path.starts_with(prefix)).collect())
    }

    fn bytes(&self, path: &str) -> Result<Option<Cow<'static, [u8]>>> {
        match self {
            Self::BuiltIn => Ok(BuiltIn::get(path).map(|file| file.data)),
            Self::Directory(directory) => match std::fs::read(directory.join(path)) {
                Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(io_error("read", directory.join(path).display(), &error)),
            },
        }
    }
}

fn of_directory(directory: &Path) -> Result<Vec<String>> {
    let mut paths = vec![];
    for entry in WalkDir::new(directory).sort_by_file_name() {
        let entry = entry.map_err(|error| {
            let text = format!("cannot read the scenarios in {}: {error}", directory.display());
            UserError::usage(text).hint("--scenarios takes a folder that holds one folder for each scenario")
        })?;
        let path = entry.path().strip_prefix(directory).unwrap_or(entry.path());
        if entry.file_type().is_file() {
            paths.push(path.display().to_string());
        }
    }
    Ok(paths)
}

impl Folder {
    /// The folder of folders that it is in; `None` when it is built into the program.
    pub fn directory(&self) -> Option<&Path> {
        match &self.catalogue {
            Catalogue::BuiltIn => None,
            Catalogue::Directory(directory) => Some(directory),
        }
    }

    /// The files of a host, by their absolute paths on it, with their bytes.
    pub fn files_of(&self, host: &str) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let prefix = format!("{}/{host}/", self.name);
        let mut files = vec![];
        for path in self.catalogue.files(&prefix)? {
            let bytes = self.catalogue.bytes(&path)?.unwrap_or_default();
            files.push((Path::new("/").join(&path[prefix.len()..]), bytes.into_owned()));
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
        let prefix = format!("{}/", self.name);
        let files = self.catalogue.files(&prefix)?;
        Ok(files.into_iter().map(|path| path[prefix.len()..].to_owned()).collect())
    }
}
