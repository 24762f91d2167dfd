//! The hook at boot: while a session has changes that are not kept, files are installed that revert everything when
//! the machine boots, before the service starts. Tool and guardian may then both be gone.
//!
//! Facts. systemd reads units and drop-ins from disk when it starts: a unit that is wanted by multi-user.target and
//! ordered before the service is part of the boot's one transaction (systemd.unit(5), bootup(7)). No daemon-reload is
//! needed for that, and without one the running systemd does not know the unit, so nothing starts it early.
//! SysV: `rc` runs `/etc/rcN.d/S*` in the order of their names, or in parallel by a table ([`startpar`]); insserv(8) and `X-Start-Before` (LSB 5.0, Linux Standard
//! Base Core, 22.3) order them where links are made anew. OpenRC: `depend` of openrc-run(8), runlevels(8) are directories
//! of names, and its dependencies are read anew when `/etc/init.d` is younger than what was read.
//!
//! All are plain files with the session's id in their names: two sessions are never in each other's way, and what a
//! killed one left is known. Their directories are made where they are missing, and go with them. A program that would be
//! gone by then (it was sent here for the session, and its file has no name) leaves a copy in the state directory, which
//! is one of these files.

pub mod startpar;

use crate::change::action::{Action, BootHook, BootTable, OldFile, Served};
use crate::change::file::{self, Replaced};
use crate::change::journal::Journal;
use crate::change::journal::history::Record;
use crate::change::seams::Tools;
use crate::change::seams::disk::{Disk, folder_of, sha256_hex};
use crate::change::seams::init_system::{Booting, Init};
use crate::services::{self, Tunable};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use webdyno_model::Result;
use webdyno_model::error::io_error;

/// How long a boot waits for it: the service must start in the end, even if with what could not be reverted.
const BOOT_TIME_S_MAX: u32 = 90;

/// What a hook is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purpose<'a> {
    /// The session.
    pub id: &'a str,
    /// Its journal: without it there is nothing to do.
    pub journal: &'a Path,
    /// The state directory that it belongs to.
    pub state: &'a Path,
    /// Names under which init systems may know the service: `apache2`, or `apache2@site.service`.
    pub services: &'a [String],
}

/// One file of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookFile {
    /// Where it goes.
    pub path: PathBuf,
    /// What is in it.
    pub content: String,
    /// Whether it is run itself.
    pub executable: bool,
}

impl Booting {
    /// The program that the boot is to run.
    fn program_at_boot(&self, purpose: &Purpose<'_>) -> PathBuf {
        match self.copy_of {
            Some(_) => purpose.state.join(name(purpose.id)),
            None => self.program.clone(),
        }
    }

    /// The files to be installed, in their order; none when a path cannot be written into them.
    pub fn files(&self, purpose: &Purpose<'_>) -> Vec<HookFile> {
        let program = self.program_at_boot(purpose);
        let shown = [&program, purpose.journal, purpose.state].map(|path: &Path| path.to_str());
        let [Some(program), Some(journal), Some(state)] = shown else { return vec![] };
        let is_plain = |text: &&str| !text.chars().any(char::is_control);
        if ![program, journal, state].iter().all(is_plain) {
            return vec![];
        }
        let text = Text { name: &name(purpose.id), purpose, program, journal, state };
        let at = |path: String, content: &str, executable| HookFile {
            path: self.root.join(path),
            content: content.to_owned(),
            executable,
        };
        match self.init {
            Init::Systemd => {
                let name = text.name;
                vec![
                    at(format!("etc/systemd/system/{name}.service"), &text.unit(), false),
                    at(format!("etc/systemd/system/multi-user.target.d/{name}.conf"), &text.wanted(), false),
                ]
            }
            Init::OpenRc => {
                let content = text.openrc_script();
                let folders = ["etc/init.d", "etc/runlevels/default"];
                folders.map(|folder| at(format!("{folder}/{}", text.name), &content, true)).into()
            }
            Init::SysV(folders) => {
                let content = text.init_script();
                let first = at(format!("etc/init.d/{}", text.name), &content, true);
                // S00: before all that insserv or update-rc.d have given a number.
                let links =
                    folders.iter().map(|folder| at(format!("{folder}/S00{}", text.name), &content, true));
                std::iter::once(first).chain(links).collect()
            }
        }
    }
}

/// Installs the hook before the first write to a service that a boot would not undo, unless it is there. What must be
/// known when that is not possible; then nothing of it stays. An error when it cannot be written to the journal.
pub fn ensure(journal: &mut Journal, tools: &Tools, served: &Served) -> Result<Option<String>> {
    let history = journal.history();
    if history.is_launched_here(served.port) || history.boot_hooks().next().is_some() {
        return Ok(None);
    }
    let Some(booting) = tools.system.booting(&tools.state) else { return Ok(None) };
    let known = tools.programs.tunable(&served.service).map(Tunable::init_names).unwrap_or_default();
    // What is changed later in the session has no hook of its own.
    let later = services::all().iter().filter_map(|service| service.tunable()).flat_map(Tunable::init_names);
    let all = known.iter().chain(later.filter(|name| !known.contains(name)));
    let names = served.control.unit.iter().cloned().chain(all.map(|name| (*name).to_owned()));
    let (id, services) = (journal.id(), names.collect::<Vec<_>>());
    let purpose =
        Purpose { id: &id, journal: journal.path(), state: tools.state.root(), services: &services };
    let files = booting.files(&purpose);
    let text = |error: io::Error| {
        let path = files.first().map_or_else(|| booting.root.clone(), |file| file.path.clone());
        let error = io_error("write", path.display(), &error).message;
        format!("{error}: if this machine goes down now, run `webdyno rollback` when it is up again")
    };
    let at_boot = booting.program_at_boot(&purpose);
    let (hook, table) = match plan(tools.disk.as_ref(), &booting, &files, &purpose) {
        Ok((hook, _)) if hook.files.is_empty() => return Ok(None),
        Ok(planned) => planned,
        Err(error) => return Ok(Some(text(error))),
    };
    let n = history.last_n() + 1;
    journal.append(Record::Intent { n, action: Action::BootHook(hook.clone()) })?;
    let copied = booting.copy_of.as_deref().map_or(Ok(()), |from| {
        tools.disk.copy_program(from, &at_boot)?;
        tools.disk.sync_directory(tools.state.root())
    });
    let Err(error) = copied.and_then(|()| install(tools.disk.as_ref(), &hook, &files, table)) else {
        journal.append(Record::Completed { n, control: None })?;
        return Ok(None);
    };
    if remove(tools.disk.as_ref(), &hook).is_ok() {
        journal.append(Record::Undone { n, control: None })?;
    }
    Ok(Some(text(error)))
}

/// The table of a parallel boot with one more name in it, where there is one.
fn plan_table(
    disk: &dyn Disk,
    booting: &Booting,
    purpose: &Purpose<'_>,
) -> io::Result<Option<(BootTable, String)>> {
    let path = booting.root.join("etc/init.d/.depend.start");
    let Some(before) = disk.read(&path)?.filter(|_| matches!(booting.init, Init::SysV(_))) else {
        return Ok(None);
    };
    let (name, waiting) = (name(purpose.id), script_names(purpose.services));
    let text = std::str::from_utf8(&before.content).unwrap_or_default();
    let Some(after) = startpar::with_script(text, &name, &waiting) else { return Ok(None) };
    let after_sha256 = sha256_hex(after.as_bytes());
    Ok(Some((BootTable { path: path.display().to_string(), before, after_sha256, name }, after)))
}

/// Gives the table another content if it still holds what is expected.
fn write_table(disk: &dyn Disk, table: &BootTable, new: &OldFile, expected: &str) -> io::Result<()> {
    let path = Path::new(&table.path);
    let temporary = file::temporary(path, &table.name, 0);
    disk.remove(&temporary)?;
    match file::replace(disk, path, new, Some(expected), &temporary)? {
        Replaced::Done => Ok(()),
        Replaced::Changed => Err(io::Error::other("it was changed by someone else just now")),
    }
}

/// Takes our name out of the table again: to the byte where nobody else changed it, else our name alone.
fn restore_table(disk: &dyn Disk, table: &BootTable) -> io::Result<()> {
    let temporary = file::temporary(Path::new(&table.path), &table.name, 0);
    if disk.path_info(&temporary)?.is_some() {
        disk.remove(&temporary)?;
    }
    let Some(now) = disk.read(Path::new(&table.path))? else { return Ok(()) };
    if now.sha256 == table.after_sha256 {
        return write_table(disk, table, &table.before, &now.sha256);
    }
    let text = String::from_utf8_lossy(&now.content).into_owned();
    if !text.contains(&table.name) {
        return Ok(());
    }
    let content = startpar::without_script(&text, &table.name).into_bytes();
    let new = OldFile { sha256: sha256_hex(&content), content, modified: None, ..now.clone() };
    write_table(disk, table, &new, &now.sha256)
}

/// What is installed for a hook: its files, and the directories that have to be made for them.
fn plan(
    disk: &dyn Disk,
    booting: &Booting,
    files: &[HookFile],
    purpose: &Purpose<'_>,
) -> io::Result<(BootHook, Option<OldFile>)> {
    let mut folders = BTreeSet::new();
    for folder in files.iter().flat_map(|file| folder_of(&file.path).ancestors()) {
        if disk.path_info(folder)?.is_none() {
            folders.insert(folder.display().to_string());
        }
    }
    // In this order parents come before what is in them.
    let folders = folders.into_iter().collect();
    let copy = booting.copy_of.is_some().then(|| booting.program_at_boot(purpose));
    let own = copy.iter().filter(|_| !files.is_empty());
    let files =
        own.chain(files.iter().map(|file| &file.path)).map(|path| path.display().to_string()).collect();
    let planned = plan_table(disk, booting, purpose)?;
    let new = planned.as_ref().map(|(table, after)| OldFile {
        content: after.clone().into_bytes(),
        sha256: table.after_sha256.clone(),
        modified: None,
        ..table.before.clone()
    });
    Ok((BootHook { files, folders, table: planned.map(|(table, _)| table) }, new))
}

/// Installs the files of a hook, after it was written to the journal.
fn install(disk: &dyn Disk, hook: &BootHook, files: &[HookFile], table: Option<OldFile>) -> io::Result<()> {
    for folder in hook.folders.iter().map(Path::new) {
        disk.create_directory(folder)?;
        disk.sync_directory(folder_of(folder))?;
    }
    for file in files {
        let folder = folder_of(&file.path);
        let (uid, gid) = disk.owner_of_new(folder)?;
        let content = file.content.clone().into_bytes();
        let mode = if file.executable { 0o755 } else { 0o644 };
        let sha256 = sha256_hex(&content);
        let file_on_disk =
            OldFile { content, sha256, mode, uid, gid, modified: None, attributes: BTreeMap::new() };
        disk.create(&file.path, &file_on_disk)?;
        disk.sync_directory(folder)?;
    }
    match (&hook.table, table) {
        (Some(table), Some(new)) => write_table(disk, table, &new, &table.before.sha256),
        _ => Ok(()),
    }
}

/// Removes the files of a hook, the last one first, and the directories that were made for them. Those that are gone
/// already are no error, and neither are directories that others use by now.
pub fn remove(disk: &dyn Disk, hook: &BootHook) -> io::Result<()> {
    hook.table.as_ref().map_or(Ok(()), |table| restore_table(disk, table))?;
    for path in hook.files.iter().rev().map(Path::new) {
        // Looking first: on a disk that is read-only, removing what is not there is an error.
        if disk.path_info(path)?.is_some() {
            disk.remove(path)?;
            disk.sync_directory(folder_of(path))?;
        }
    }
    for folder in hook.folders.iter().rev().map(Path::new) {
        if disk.path_info(folder)?.is_some() && disk.remove_empty_directory(folder)? {
            disk.sync_directory(folder_of(folder))?;
        }
    }
    Ok(())
}

/// The name of unit and scripts: letters, digits and dashes, as all init systems take them.
fn name(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    format!("webdyno-rollback-{}", id.chars().map(plain).collect::<String>())
}

/// The names of services in scripts, which know no units.
fn script_names(services: &[String]) -> Vec<&str> {
    services.iter().map(|name| name.trim_end_matches(".service")).collect()
}

struct Text<'a> {
    name: &'a str,
    purpose: &'a Purpose<'a>,
    program: &'a str,
    journal: &'a str,
    state: &'a str,
}

impl Text<'_> {
    fn head(&self) -> String {
        format!(
            "# Written by webdyno while its session {} changes this server; removed by webdyno when nothing is left\n\
             # to put back. Safe to remove by hand: `webdyno rollback` puts everything back as well.\n",
            self.purpose.id
        )
    }

    /// The unit. Dependencies are the default ones: after basic.target, with local file systems.
    fn unit(&self) -> String {
        let full = |name: &String| format!("{}.service", name.trim_end_matches(".service"));
        let before: Vec<String> = self.purpose.services.iter().map(full).collect();
        let mounts = [self.state, self.program].map(|path| quoted(&specifiers(path))).join(" ");
        format!(
            "{head}[Unit]\nDescription=Put back what the interrupted webdyno session {id} changed\n\
             ConditionPathExists={journal}\nConditionFileIsExecutable={program}\nRequiresMountsFor={mounts}\n\
             After=remote-fs.target\nBefore={before}\n\n[Service]\nType=oneshot\nEnvironment={state}\n\
             ExecStart={command} rollback --interrupted\nTimeoutStartSec={BOOT_TIME_S_MAX}\n",
            head = self.head(),
            id = self.purpose.id,
            journal = specifiers(self.journal),
            program = specifiers(self.program),
            before = before.join(" "),
            state = quoted(&format!("WEBDYNO_STATE={}", specifiers(self.state))),
            // No variable is looked for in the path itself (systemd.service(5), command lines).
            command = quoted(&specifiers(self.program)),
        )
    }

    /// The drop-in that makes the boot want the unit; it does what a link in multi-user.target.wants does.
    fn wanted(&self) -> String {
        format!("{}[Unit]\nWants={}.service\n", self.head(), self.name)
    }

    fn scripts(&self) -> String {
        script_names(self.purpose.services).join(" ")
    }

    fn condition(&self) -> String {
        format!("[ -x {} ] && [ -e {} ]", in_shell(self.program), in_shell(self.journal))
    }

    fn command(&self) -> String {
        format!("WEBDYNO_STATE={} {} rollback --interrupted", in_shell(self.state), in_shell(self.program))
    }

    fn init_script(&self) -> String {
        format!(
            "#!/bin/sh\n### BEGIN INIT INFO\n# Provides:          {name}\n# Required-Start:    $local_fs\n\
             # Required-Stop:\n# X-Start-Before:    {before}\n# Default-Start:     2 3 4 5\n# Default-Stop:\n\
             # Short-Description: Revert the changes of an interrupted webdyno session\n### END INIT INFO\n{head}\
             [ \"$1\" = start ] || exit 0\n{condition} || exit 0\n{command}\n",
            name = self.name,
            before = self.scripts(),
            head = self.head(),
            condition = self.condition(),
            command = self.command(),
        )
    }

    fn openrc_script(&self) -> String {
        format!(
            "#!/sbin/openrc-run\n{head}description=\"Puts back what an interrupted webdyno session changed\"\n\n\
             depend() {{\n\tneed localmount\n\tbefore {before}\n}}\n\n\
             start() {{\n\t{condition} || return 0\n\tebegin \"Putting back what webdyno changed\"\n\t{command}\n\teend $?\n}}\n",
            head = self.head(),
            before = self.scripts(),
            condition = self.condition(),
            command = self.command(),
        )
    }
}

/// `%` begins a specifier everywhere in a unit (systemd.unit(5)).
fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

/// One word in quotes, as systemd.syntax(7) has it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// One word for a shell.
fn in_shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
