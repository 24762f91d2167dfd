//! What a server's program says of itself, where it may be asked: on our own file system, and the one that runs.

use crate::os::program::{Finished, Invocation, run};
use crate::os::timeouts;
use crate::visibility::{listeners, mount_namespace};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use webdyno_model::sample::MissingSignal;

/// Where distributions and builders install servers.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/local/sbin", "/usr/local/apache2/bin", "/usr/bin"];

/// The program that a process of this name probably runs: the installed one, if it is of the kind, and [`trusted`].
pub(crate) fn installed(name: &str, is_of_kind: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let paths = DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
    paths.filter_map(|path| trusted(&path)).find(|path| is_of_kind(path))
}

/// The path without links of a program that nobody but root or ourselves could have put there; `None` for any other file.
pub(crate) fn trusted(path: &Path) -> Option<PathBuf> {
    let ours = |uid: u32| uid == 0 || uid == rustix::process::geteuid().as_raw();
    let safe = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| ours(found.uid()) && found.mode() & 0o022 == 0)
    };
    let real = path.canonicalize().ok()?;
    (real.is_file() && real.ancestors().all(safe)).then_some(real)
}

/// Asks the program of a process (its path, and whether another one lies there by now) with these arguments. What is missing
/// where it cannot be asked; a `/tmp` of its own (PrivateTmp=) makes no container.
pub(crate) fn query_program(
    name: &str,
    pid: u32,
    executable: Option<&(String, bool)>,
    arguments: impl FnOnce() -> Vec<String>,
) -> Result<Finished, MissingSignal> {
    let signal = format!("{}.version", name.replace('-', "_"));
    let missing = |why: String, how: String| MissingSignal::new(&signal, why, how);
    let Some((path, replaced)) = executable else {
        return Err(missing(
            format!("the executable of {name} cannot be seen"),
            listeners::NEEDS_RIGHTS.into(),
        ));
    };
    if mount_namespace::has_other_root(pid) {
        let why = format!("{name} runs in a container, whose programs are not started from outside");
        return Err(missing(why, "run webdyno in there".into()));
    }
    if *replaced {
        let why = format!("the executable of {name} was replaced since it was started");
        return Err(missing(why, format!("restart {name}")));
    }
    let arguments = arguments();
    let by_hand = format!("look at the output of: {path} {}", arguments.join(" "));
    let invocation = Invocation { executable: path, arguments, environment: None, directory: None };
    run(&invocation, timeouts::QUERY).map_err(|error| missing(error.message, by_hand))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_somebody_else_could_have_put_there_is_none() {
        let of_sh = |path: &Path| path.ends_with("dash") || path.ends_with("bash") || path.ends_with("sh");
        assert!(installed("sh", of_sh).is_some_and(|path| path.is_absolute()));
        assert_eq!(installed("sh", |_| false), None);
        assert_eq!(installed("../../tmp", |_| true), None);
        let open = tempfile::NamedTempFile::new().unwrap();
        std::fs::set_permissions(open.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(trusted(open.path()), None);
    }

    #[test]
    fn what_runs_is_asked_or_it_is_told_why_not() {
        let ask = |executable: Option<(&str, bool)>| {
            let executable = executable.map(|(path, replaced)| (path.to_owned(), replaced));
            query_program("php-fpm", std::process::id(), executable.as_ref(), || vec!["hello".into()])
        };
        assert_eq!(ask(Some(("/bin/echo", false))).unwrap().stdout, "hello\n");
        for (executable, why, how) in [
            (None, "cannot be seen", listeners::NEEDS_RIGHTS),
            (Some(("/bin/echo", true)), "was replaced", "restart php-fpm"),
            (Some(("/nonexistent", false)), "/nonexistent", "look at the output of: /nonexistent hello"),
        ] {
            let missing = ask(executable).unwrap_err();
            assert_eq!((missing.signal.as_str(), missing.how_to_enable.as_str()), ("php_fpm.version", how));
            assert!(missing.why.contains(why), "{missing:?}");
        }
    }
}
