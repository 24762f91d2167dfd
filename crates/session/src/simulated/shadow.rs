//! The modelled shadow instance: a second program that reads its own copy of the files, answers on its own port, and must
//! not outlive its session.

use crate::simulated::faults::{ActKind, ServiceFault};
use crate::simulated::layout::{DEADLY, ETC, INVALID, PROGRAM};
use crate::simulated::machine::{MachineState, Process};
use crate::simulated::operator::configuration;
use std::path::{Path, PathBuf};
use webdyno_host::change::action::{Launch, Launched};
use webdyno_host::change::seams::processes::Running;
use webdyno_host::os::process::ProcessName;
use webdyno_host::services::{Shadow, ShadowFolder};
use webdyno_model::change::FileEdit;
use webdyno_model::{Result, UserError};

/// Where a shadow answers.
pub const SHADOW_PORT: u16 = 8081;

impl MachineState {
    /// A private copy of the service with these files.
    pub fn shadow(&self, edits: &[FileEdit], folder: &Path) -> Shadow {
        let mut files: Vec<(PathBuf, Vec<u8>)> = vec![];
        for (path, file) in configuration(&self.files) {
            let edited = edits.iter().find(|edit| Path::new(&edit.path) == path);
            let content = edited.map_or(file.content, |edit| edit.after.clone().into_bytes());
            files.push((copy_path(folder, &path), content));
        }
        let is_new = |edit: &&FileEdit| self.files.read(Path::new(&edit.path)).is_none();
        let new = edits.iter().filter(is_new);
        files.extend(
            new.map(|edit| (copy_path(folder, Path::new(&edit.path)), edit.after.clone().into_bytes())),
        );
        let run = ShadowFolder { path: folder.join("run"), mode: 0o755, owner: None };
        Shadow {
            folders: vec![run],
            files,
            command: vec![PROGRAM.into(), "-d".into(), folder.display().to_string()],
            environment: Default::default(),
            directory: "/".into(),
            user: None,
            inherited: None,
            pid_file: folder.join("run/pid"),
            port: SHADOW_PORT,
            log: folder.join("log"),
            names: vec![],
        }
    }

    /// Whether the files of a shadow let it start.
    fn can_start(&self, launch: &Launch) -> bool {
        let Some(folder) = &launch.folder else { return false };
        let files = self.files.below(Path::new(folder));
        let is_bad = |content: &[u8]| {
            String::from_utf8_lossy(content).lines().any(|line| line == INVALID || line == DEADLY)
        };
        !files.is_empty() && !files.values().any(|file| is_bad(&file.content))
    }

    /// Ends what runs as a shadow on a port; whether something did.
    fn end_shadow(&mut self, port: u16) -> bool {
        let name = self.shadows.iter().find(|(_, taken)| *taken == port).map(|(name, _)| *name);
        name.into_iter().for_each(|name| self.end(name));
        name.is_some()
    }
}

fn copy_path(folder: &Path, path: &Path) -> PathBuf {
    folder.join("etc").join(path.strip_prefix(ETC).unwrap_or(path))
}

/// A shadow that was started.
pub struct StartedShadow {
    process: Process,
    shadow: Option<ProcessName>,
}

impl Process {
    /// Starts a shadow, if its files let it.
    pub fn start_shadow(&self, launch: &Launch) -> StartedShadow {
        let shadow = self.act(
            ActKind::Service,
            || "start a shadow".into(),
            |state, outcome| {
                let works = !matches!(outcome.service, Some(ServiceFault::Refuses | ServiceFault::Dies));
                (works && state.can_start(launch)).then(|| {
                    let name = state.start();
                    state.shadows.push((name, launch.port));
                    name
                })
            },
        );
        StartedShadow { process: self.clone(), shadow }
    }

    /// Ends whatever was launched on a port.
    pub fn stop_shadow(&self, launch: &Launch) -> bool {
        self.act(ActKind::Other, || "stop a shadow".into(), |state, _| state.end_shadow(launch.port))
    }
}

impl Running for StartedShadow {
    fn wait_until_ready(&mut self, _: &Launch, found: &mut dyn FnMut(Launched) -> Result<()>) -> Result<()> {
        let process =
            self.shadow.ok_or_else(|| UserError::cannot_run("the shadow did not start: exit status 1"))?;
        self.process.act(ActKind::Other, || "wait for the shadow".into(), |_, _| ());
        found(Launched { process, group: None })
    }

    fn end(&mut self) -> bool {
        self.process.act(
            ActKind::Other,
            || "end the shadow".into(),
            |state, _| {
                let there = self.shadow.filter(|name| state.exists(*name));
                there.into_iter().for_each(|name| state.end(name));
                there.is_some()
            },
        )
    }
}
