//! Whether the results can be written where the flags say, known before anything starts: a session that has loaded a
//! server, or changed it, must not end without its results because of a mistyped path.

use crate::cli::Command;
use crate::cli::compare::CompareArgs;
use crate::cli::export::{ExportArgs, is_stdout};
use crate::cli::fit::FitArgs;
use crate::cli::history::HistoryArgs;
use crate::cli::logs::LogsArgs;
use crate::cli::predict::PredictArgs;
use crate::cli::size::SizeArgs;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The file that a recording is made of.
const RECORDING: &str = "events.jsonl";

/// Refuses results that cannot be written, or would get into each other's way. Nothing is left behind, and an existing
/// file stays as it is.
pub fn check(command: &Command) -> Result<()> {
    match command {
        Command::Report(report) => {
            let html = report.html.as_deref().map(|path| ("--html", path));
            check_files(&report.exports, html, Some(&report.directory))
        }
        Command::Export(export) => {
            let cache = export.cache_config.as_deref().map(|path| ("--cache-config", path));
            check_files(&export.exports, cache, Some(&export.directory))
        }
        Command::Resume(resume) => check_files(&resume.exports, None, Some(&resume.directory)),
        Command::Logs(LogsArgs { json, html, files, .. }) => {
            let html = html.as_deref().map(|path| ("--html", path));
            check_inputs(json.as_deref().map(|path| ("--json", path)).into_iter().chain(html), files)?;
            check_files(&json_alone(json.as_deref()), html, None)
        }
        Command::Fit(FitArgs { json, source, .. }) => {
            let source = std::slice::from_ref(source);
            check_inputs(json.as_deref().map(|path| ("--json", path)), source)?;
            check_files(&json_alone(json.as_deref()), None, None)
        }
        Command::Compare(CompareArgs { json, .. })
        | Command::Predict(PredictArgs { json, .. })
        | Command::Size(SizeArgs { json, .. })
        | Command::History(HistoryArgs { json, .. }) => check_files(&json_alone(json.as_deref()), None, None),
        _ => command
            .output()
            .map_or(Ok(()), |output| check_files(&output.exports, None, output.out.as_deref())),
    }
}

fn json_alone(json: Option<&Path>) -> ExportArgs {
    ExportArgs { json: json.map(Path::to_owned), ..ExportArgs::default() }
}

/// Refuses results in the place of what they are made from.
fn check_inputs<'a>(
    results: impl IntoIterator<Item = (&'static str, &'a Path)>,
    inputs: &[PathBuf],
) -> Result<()> {
    for (flag, path) in results.into_iter().filter(|(_, path)| !is_stdout(path)) {
        if inputs.iter().any(|input| is_same_file(path, input)) {
            return Err(UserError::usage(format!("{flag} would take the place of {}", path.display()))
                .hint("it is what is read: give the result another name"));
        }
    }
    Ok(())
}

fn check_files(exports: &ExportArgs, more: Option<(&'static str, &Path)>, out: Option<&Path>) -> Result<()> {
    let files: Vec<(&str, &Path)> = exports.given().chain(more).collect();
    for (index, (flag, path)) in files.iter().enumerate() {
        let same = |(_, other): &&(&str, &Path)| is_same_file(path, other);
        if let Some((other, _)) = files[..index].iter().find(same) {
            return Err(same_file_error(other, flag, path));
        }
        if is_stdout(path) && *flag == "--html" {
            return Err(UserError::usage("--html takes a file, not stdout").hint("name it, as page.html"));
        }
        if is_stdout(path) {
            continue;
        }
        if path.file_name().is_some_and(|name| name == RECORDING) {
            return Err(UserError::usage(format!(
                "{flag} would take the place of a recording: {}",
                path.display()
            ))
            .hint(format!("give another name than {RECORDING}")));
        }
        if !is_inside(path, out) {
            check_writable(flag, path)?;
        }
    }
    Ok(())
}

/// A pipe or a device (/dev/null) may take several.
fn is_same_file(path: &Path, other: &Path) -> bool {
    let whole = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok();
    let is_file = fs::metadata(path).map_or(true, |found| found.is_file());
    is_file && (path == other || (!is_stdout(path) && !is_stdout(other) && whole(path) == whole(other)))
}

fn same_file_error(first: &str, second: &str, path: &Path) -> UserError {
    let (place, hint) = match is_stdout(path) {
        true => ("stdout".to_owned(), "only one of them can be `-`: give the other one a file"),
        false => (path.display().to_string(), "give each its own file"),
    };
    UserError::usage(format!("{first} and {second} both go to {place}")).hint(hint)
}

/// A file in the run directory: that directory is made by the session, which tells what is wrong with it.
fn is_inside(path: &Path, run_directory: Option<&Path>) -> bool {
    let absolute = |path: &Path| std::path::absolute(path).ok();
    let directory = run_directory.and_then(absolute);
    absolute(path).zip(directory).is_some_and(|(path, directory)| path.starts_with(directory))
}

fn check_writable(flag: &str, path: &Path) -> Result<()> {
    let found = fs::metadata(path);
    // Opening a pipe or a device may wait for somebody, or do something.
    if found.as_ref().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(());
    }
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|error| write_error(flag, path, &error))?;
    match found {
        // What was made for the check goes again. Through a dangling link it would be another file than the link.
        Err(_) => {
            let made = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            fs::remove_file(&made).map_err(|error| io_error("remove", made.display(), &error))
        }
        Ok(_) => Ok(()),
    }
}

fn write_error(flag: &str, path: &Path, error: &io::Error) -> UserError {
    let reported = io_error("write", path.display(), error);
    match reported.hint {
        Some(_) => reported,
        None => reported.hint(format!("{flag} takes a file in a directory that exists{}", stdout(flag))),
    }
}

fn stdout(flag: &str) -> &'static str {
    if flag == "--html" { "" } else { ", or `-` for stdout" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(csv: &Path, out: Option<&Path>) -> Result<()> {
        check_files(&ExportArgs { csv: Some(csv.to_owned()), ..ExportArgs::default() }, None, out)
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
            let checked = checked(&path(json), out.map(path).as_deref());
            assert_eq!(checked.is_ok(), good, "{json}: {checked:?}");
            assert!(checked.err().is_none_or(|error| error.exit_code() == 1 && error.hint.is_some()));
        }
        let after: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(before.len(), after.len(), "{after:?}");
        assert_eq!(fs::read_to_string(path("old.json")).unwrap(), "old");
        assert!(checked(Path::new("-"), None).is_ok());
        assert!(checked(Path::new("/dev/null"), None).is_ok());
    }

    #[test]
    fn two_results_in_one_place_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| Some(folder.path().join(name));
        fs::write(folder.path().join("a"), "").unwrap();
        std::os::unix::fs::symlink(folder.path().join("a"), folder.path().join("link")).unwrap();
        let stdout = || Some("-".into());
        for (json, csv, reported) in [
            (stdout(), stdout(), Some("--json and --csv both go to stdout")),
            (path("new"), path("new"), Some("both go to")),
            (path("a"), path("link"), Some("both go to")),
            (path("a"), path("b"), None),
            (stdout(), path("b"), None),
            (Some("/dev/null".into()), Some("/dev/null".into()), None),
            (path("events.jsonl"), None, Some("would take the place of a recording")),
        ] {
            let exports = ExportArgs { json, csv, ..ExportArgs::default() };
            let error = check_files(&exports, None, None).err().map(|error| error.to_string());
            match reported {
                None => assert_eq!(error, None, "{exports:?}"),
                Some(reported) => assert!(error.as_ref().unwrap().contains(reported), "{error:?}"),
            }
        }
    }

    #[test]
    fn what_is_read_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("access.log"), "").unwrap();
        std::os::unix::fs::symlink(path("access.log"), path("link")).unwrap();
        let inputs = [path("access.log"), "-".into()];
        for (result, good) in [
            (path("access.log"), false),
            (path("link"), false),
            (path("access.json"), true),
            ("-".into(), true),
            ("/dev/null".into(), true),
        ] {
            let checked = check_inputs([("--json", result.as_path())], &inputs);
            assert_eq!(checked.is_ok(), good, "{checked:?}");
        }
        let html = Some(("--html", Path::new("-")));
        let error = check_files(&ExportArgs::default(), html, None).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }
}
