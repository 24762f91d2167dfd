//! Whether the results can be written where the flags say, known before anything starts: a session that has loaded a
//! server, or changed it, must not end without its results because of a mistyped path.

use crate::cli::OutputArgs;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Refuses a `--json` file that cannot be written. Nothing is left behind, and an existing file stays as it is.
pub fn check(output: &OutputArgs) -> Result<()> {
    match &output.json {
        Some(path) if path.as_os_str() != "-" && !is_inside(path, output.out.as_deref()) => {
            try_to_write(path)
        }
        _ => Ok(()),
    }
}

/// A file in the run directory: that directory is made by the session, which tells what is wrong with it.
fn is_inside(path: &Path, run_directory: Option<&Path>) -> bool {
    let absolute = |path: &Path| std::path::absolute(path).ok();
    let directory = run_directory.and_then(absolute);
    absolute(path).zip(directory).is_some_and(|(path, directory)| path.starts_with(directory))
}

fn try_to_write(path: &Path) -> Result<()> {
    let found = fs::metadata(path);
    // Opening a pipe or a device may wait for somebody, or do something.
    if found.as_ref().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(());
    }
    OpenOptions::new().append(true).create(true).open(path).map_err(|error| told(path, &error))?;
    match found {
        // What was made for the check goes again. Through a dangling link it would be another file than the link.
        Err(_) => {
            let made = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            fs::remove_file(&made).map_err(|error| io_error("remove", made.display(), &error))
        }
        Ok(_) => Ok(()),
    }
}

fn told(path: &Path, error: &io::Error) -> UserError {
    let told = io_error("write", path.display(), error);
    match told.hint {
        Some(_) => told,
        None => told.hint("--json takes a file in a directory that exists, or `-` for stdout"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(json: &Path, out: Option<&Path>) -> OutputArgs {
        let (json, out) = (Some(json.to_owned()), out.map(Path::to_owned));
        OutputArgs { json, out, quiet: false, verbose: false, no_tui: false }
    }

    #[test]
    fn a_place_is_checked_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("old.json"), "old").unwrap();
        std::os::unix::fs::symlink(path("target.json"), path("link.json")).unwrap();
        let before: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        for (json, out, good) in [
            ("new.json", None, true),
            ("old.json", None, true),
            ("link.json", None, true),
            ("missing/new.json", None, false),
            ("old.json/new.json", None, false),
            (".", None, false),
            ("run/new.json", Some("run"), true),
            ("run/new.json", Some("runs"), false),
        ] {
            let checked = check(&output(&path(json), out.map(path).as_deref()));
            assert_eq!(checked.is_ok(), good, "{json}: {checked:?}");
            assert!(checked.err().is_none_or(|error| error.exit_code() == 1 && error.hint.is_some()));
        }
        let after: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(before.len(), after.len(), "{after:?}");
        assert_eq!(fs::read_to_string(path("old.json")).unwrap(), "old");
        assert!(check(&output(Path::new("-"), None)).is_ok());
        assert!(check(&output(Path::new("/dev/null"), None)).is_ok());
    }
}
