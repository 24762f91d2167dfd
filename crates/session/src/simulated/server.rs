//! The modelled server: it reads its files when it is started or reloaded, and goes on with what it read.

use crate::simulated::files::Files;
use crate::simulated::layout::{ConfigStyle, DEADLY, ETC, INVALID};
use crate::simulated::operator::configuration;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use webdyno_host::os::process::ProcessName;

/// The values that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveSettings {
    /// MaxRequestWorkers.
    pub workers: i64,
    /// ServerLimit.
    pub server_limit: i64,
}

/// What the program takes without any configuration.
const DEFAULT: EffectiveSettings = EffectiveSettings { workers: 256, server_limit: 256 };

/// The folders in which the files are read, in order.
const FOLDERS: [&str; 3] = ["", "mods-enabled", "conf-enabled"];

/// The program.
#[derive(Debug, Clone, Default)]
pub struct Server {
    /// Its main process, while it runs.
    pub main: Option<ProcessName>,
    /// A main process that ended by itself, until the machine takes note of it.
    pub ended: Option<ProcessName>,
    running: Option<EffectiveSettings>,
    /// The values at the first start.
    at_first: Option<EffectiveSettings>,
    /// How its settings are written.
    pub style: ConfigStyle,
    /// What it read last: the sums of its files.
    read: BTreeMap<PathBuf, String>,
    /// When.
    pub read_at_us: u64,
}

impl Server {
    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.main.is_some()
    }

    /// The values in force; `None` when it does not run.
    pub fn running(&self) -> Option<EffectiveSettings> {
        self.running.filter(|_| self.is_running())
    }

    /// Something that the files do not show gives it other values than they say. That ends with what it was meant for.
    pub fn override_with(&mut self, settings: Option<EffectiveSettings>) {
        let is_back =
            self.running.zip(self.at_first).is_some_and(|(now, first)| now.workers == first.workers);
        if !is_back {
            self.running = settings;
        }
    }

    /// The files that are not as it read them.
    pub fn pending_files(&self, files: &Files) -> Vec<PathBuf> {
        let now = checksums(files);
        let differs = |path: &&PathBuf| now.get(*path) != self.read.get(*path);
        let gone = self.read.keys().filter(|path| !now.contains_key(*path));
        now.keys().chain(gone).filter(differs).cloned().collect()
    }

    /// Starts with what the files say, or not at all.
    pub fn start(&mut self, main: ProcessName, (files, clock_us): (&Files, u64)) {
        self.main = Some(main);
        self.running = None;
        self.reload((files, clock_us));
    }

    /// Takes over what the files say; the limit only when it starts. Without a valid configuration it ends.
    pub fn reload(&mut self, (files, clock_us): (&Files, u64)) {
        let Some(main) = self.main else { return };
        match configured(files).filter(|_| !has_line(files, DEADLY)) {
            None => (self.main, self.ended) = (None, Some(main)),
            Some(configured) => {
                let server_limit =
                    self.running.map_or(configured.server_limit, |running| running.server_limit);
                let workers = configured.workers.min(server_limit);
                self.running = Some(EffectiveSettings { workers, server_limit });
                self.read = checksums(files);
                self.read_at_us = clock_us;
                self.at_first = self.at_first.or(self.running);
            }
        }
    }
}

fn checksums(files: &Files) -> BTreeMap<PathBuf, String> {
    configuration(files).into_iter().map(|(path, file)| (path, file.sha256)).collect()
}

/// What the files say, as a start would take it over; `None` when they are not valid.
pub fn configured(files: &Files) -> Option<EffectiveSettings> {
    let mut found = DEFAULT;
    for line in lines(files) {
        match line.split_once(' ') {
            Some(("MaxRequestWorkers", value)) => found.workers = value.parse().ok()?,
            Some(("ServerLimit", value)) => found.server_limit = value.parse().ok()?,
            _ if line == INVALID => return None,
            _ => {}
        }
    }
    Some(EffectiveSettings { workers: found.workers.min(found.server_limit), ..found })
}

/// Whether a line is in one of the files.
pub fn has_line(files: &Files, wanted: &str) -> bool {
    lines(files).any(|line| line == wanted)
}

fn lines(files: &Files) -> impl Iterator<Item = &str> {
    let texts = FOLDERS.iter().flat_map(|folder| {
        let folder = Path::new(ETC).join(folder);
        let names = files.list(&folder).unwrap_or_default();
        let wanted = names.into_iter().filter(|name| name.ends_with(".conf") && !name.starts_with('.'));
        wanted.filter_map(|name| files.read(&folder.join(name))).collect::<Vec<_>>()
    });
    texts.flat_map(|file| std::str::from_utf8(&file.content).unwrap_or(INVALID).lines())
}
