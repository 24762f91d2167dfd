//! Writing a host's files below a folder: never through a link, as links name places of the machine itself.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The files of a host, by their absolute paths on it.
#[derive(Debug)]
pub struct HostFiles<'a> {
    root: &'a Path,
}

impl<'a> HostFiles<'a> {
    /// The files below `root`, which must be there.
    pub fn new(root: &'a Path) -> Self {
        Self { root }
    }

    /// Where a path of the host is on the machine. Usage error: it leads elsewhere.
    pub fn machine_path(&self, path: &str) -> Result<PathBuf> {
        let parts = Path::new(path).components();
        let named: Vec<Component> = parts.filter(|part| *part != Component::RootDir).collect();
        if named.iter().all(|part| matches!(part, Component::Normal(_))) {
            return Ok(self.root.join(named.iter().collect::<PathBuf>()));
        }
        Err(UserError::usage(format!("{path} is no plain path on a host")))
    }

    /// Makes a folder and those above it, 0755, where they are missing.
    pub fn folder(&self, path: &str) -> Result<()> {
        let all = self.machine_path(path)?;
        let mut at = self.root.to_owned();
        for part in all.strip_prefix(self.root).unwrap_or(&all) {
            at.push(part);
            match at.symlink_metadata() {
                Ok(meta) if meta.is_dir() => {}
                Ok(_) => {
                    let place = Path::new("/").join(at.strip_prefix(self.root).unwrap_or(&at));
                    return Err(UserError::usage(format!("{} is no folder on a host", place.display())));
                }
                Err(_) => {
                    let made = std::fs::DirBuilder::new().mode(0o755).create(&at);
                    made.map_err(|error| io_error("create", at.display(), &error))?;
                    set_mode(&at, 0o755)?;
                }
            }
        }
        Ok(())
    }

    /// Makes a folder with an owner and a mode of its own; the owner is a name of the host's.
    pub fn create_owned_directory(&self, path: &str, owner: &str, group: &str, mode: u32) -> Result<()> {
        self.folder(path)?;
        self.change_owner(path, owner, group, mode)
    }

    /// Gives a file or folder that is there to an owner.
    pub fn change_owner(&self, path: &str, owner: &str, group: &str, mode: u32) -> Result<()> {
        let user = self.numeric_id("/etc/passwd", owner)?;
        let group = self.numeric_id("/etc/group", group)?;
        let place = self.machine_path(path)?;
        std::os::unix::fs::lchown(&place, Some(user), Some(group))
            .map_err(|error| io_error("change the owner of", place.display(), &error))?;
        set_mode(&place, mode)
    }

    /// Writes a file anew.
    pub fn file(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let place = self.prepare_path(path)?;
        let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&place);
        opened
            .and_then(|mut file| file.write_all(bytes))
            .map_err(|error| io_error("write", place.display(), &error))?;
        set_mode(&place, mode)
    }

    /// Makes a link anew.
    pub fn link(&self, path: &str, target: &Path) -> Result<()> {
        let place = self.prepare_path(path)?;
        symlink(target, &place).map_err(|error| io_error("create", place.display(), &error))
    }

    /// Whether there is something, be it a link that leads nowhere.
    pub fn has(&self, path: &str) -> bool {
        self.machine_path(path).is_ok_and(|place| place.symlink_metadata().is_ok())
    }

    /// A file's text.
    pub fn read_text(&self, path: &str) -> Result<String> {
        let place = self.machine_path(path)?;
        std::fs::read_to_string(&place).map_err(|error| io_error("read", place.display(), &error))
    }

    /// A place where nothing is, in a folder that is there.
    fn prepare_path(&self, path: &str) -> Result<PathBuf> {
        let place = self.machine_path(path)?;
        let parent = Path::new(path).parent().unwrap_or(Path::new("/"));
        self.folder(&parent.display().to_string())?;
        match std::fs::remove_file(&place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(io_error("replace", place.display(), &error))
            }
            _ => Ok(place),
        }
    }

    /// The third field of a line of /etc/passwd or /etc/group.
    fn numeric_id(&self, file: &str, name: &str) -> Result<u32> {
        let text = self.read_text(file)?;
        let of = |line: &str| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
        };
        text.lines().find_map(of).ok_or_else(|| {
            UserError::cannot_run(format!("{file} of this machine has no `{name}`"))
                .hint("on Debian the package base-passwd brings it")
        })
    }
}

/// What the mask of the process took away is given as well.
fn set_mode(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))
        .map_err(|error| io_error("change the mode of", path.display(), &error))
}
