//! Writing one file of a change: intent, temporary file, rename, and systemd told of what was added to a unit.

use super::Changer;
use crate::change::action::{Action, OldFile, Served, WriteFile};
use crate::change::file::{self, Replaced};
use crate::change::journal::history::Record;
use crate::change::seams::disk::folder_of;
use crate::services::common::unit;
use std::path::Path;
use webdyno_model::change::{ApplyClass, FileEdit};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

impl Changer {
    pub(super) fn check_file(&self, edit: &FileEdit) -> Result<Option<OldFile>> {
        file::check(self.tools.disk.as_ref(), edit, self.planned.get(&edit.path).map(String::as_str))
    }

    /// Whether the folder of a file has to be made: that of what is added to a unit, which others need not have.
    fn makes_folder(&self, path: &Path) -> Result<bool> {
        let folder = folder_of(path);
        let seen = self.tools.disk.path_info(folder);
        let seen = seen.map_err(|error| io_error("read", folder.display(), &error))?;
        Ok(unit::is_drop_in(path) && seen.is_none())
    }

    pub(super) fn write(&mut self, edit: &FileEdit, served: &Served, class: ApplyClass) -> Result<()> {
        self.cancellation.check()?;
        let before = self.check_file(edit)?;
        let path = Path::new(&edit.path);
        let makes_folder = self.makes_folder(path)?;
        // A folder that is not there yet will have the owner of the one that it is made in.
        let owned_like = if makes_folder { folder_of(path) } else { path };
        let disk = self.tools.disk.as_ref();
        let new = file::with_content(disk, owned_like, before.as_ref(), &edit.after)?;
        let expected = before.as_ref().map(|file| file.sha256.clone());
        if expected.as_ref() == Some(&new.sha256) {
            return Ok(());
        }
        let after_sha256 = new.sha256.clone();
        self.hook_boot(served)?;
        let (path_text, served) = (edit.path.clone(), served.clone());
        let (class, at_us) = (Some(class), Some(self.tools.system.now_us()));
        let folder = self.tools.system.file_id(folder_of(path));
        let write =
            WriteFile { path: path_text, before, after_sha256, served, class, at_us, folder, makes_folder };
        let n = self.intend(Action::WriteFile(write))?;
        if makes_folder {
            let (disk, folder) = (self.tools.disk.as_ref(), folder_of(path));
            let made = disk.passable_directory(folder).and_then(|()| disk.sync_directory(folder_of(folder)));
            made.map_err(|error| io_error("write to", folder.display(), &error))?;
        }
        let temporary = file::temporary(path, &self.journal()?.id(), n);
        let replaced = file::replace(self.tools.disk.as_ref(), path, &new, expected.as_deref(), &temporary)
            .map_err(|error| {
            io_error("write", path.display(), &error).hint("make it writable, or free space there")
        })?;
        match replaced {
            Replaced::Done => {
                if unit::is_drop_in(path) {
                    self.tools.system.reload_units()?;
                }
                self.journal()?.append(Record::Completed { n, control: None })
            }
            Replaced::Changed => {
                // Ours never was there: what is there now needs no undo.
                self.journal()?.append(Record::Undone { n, control: None })?;
                Err(UserError::cannot_run(format!("{} changed since the plan was made", path.display()))
                    .hint("make the plan again"))
            }
        }
    }
}
