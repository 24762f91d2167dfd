//! An Apache of another user, read from outside: its command line and those of its files that anyone may read.
//!
//! proc_pid_cmdline(5) is open to all; proc_pid_exe(5), proc_pid_environ(5) and proc_pid_cwd(5) are not. What it was
//! started with is therefore not known for sure, so nothing of it can be changed. Its program is asked for compiled
//! defaults only when nobody but root or ourselves could have written it, and without the options of the stranger's
//! command line: `-V` reads the configuration that it is given, and loads the modules in it.

use super::EXECUTABLES;
use super::config::{self, Evaluation, Input, condition::parse_version};
use super::control::{Options, pid_file};
use super::pending::sources;
use super::program::{self, Compiled};
use super::settings::Mpm;
use super::snapshot::{Parts, Reading, mpm_of, read};
use super::status::listens;
use crate::os::process::ProcessName;
use crate::os::procfs;
use crate::os::program::Invocation;
use crate::visibility::listeners::NEEDS_RIGHTS;
use crate::visibility::program_query::{self, installed};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::{Result, UserError};

/// What can be told of the process without rights on it.
struct UnprivilegedView {
    main: ProcessName,
    /// The program as its name or first argument says.
    program: String,
    compiled: Compiled,
    /// The main file; `None` when the command line does not tell.
    main_file: Option<PathBuf>,
    evaluation: Evaluation,
}

/// Reads an Apache that we may not look into.
pub fn snapshot(pid: u32, port: u16) -> Result<ServiceSnapshot> {
    let outside = UnprivilegedView::of(pid)?;
    let mut warnings = vec![format!(
        "process {pid} belongs to another user: its executable, environment and directory cannot be read, so its settings \
         are those of the files that its command line names, and none can be changed; {NEEDS_RIGHTS}"
    )];
    warnings
        .extend(outside.evaluation.warnings.iter().filter(|warning| !is_of_environment(warning)).cloned());
    let mpm = mpm_of(&outside.evaluation, &outside.compiled);
    let mut reading = match (outside.is_readable(), mpm) {
        (true, Some(mpm)) => {
            let pid_file = pid_file(&outside.evaluation, &outside.compiled);
            let started = (outside.main, Some(pid_file.as_path()));
            read(&outside.evaluation, mpm, started, port, || sources(&outside.evaluation))
        }
        _ => Reading::default(),
    };
    warnings.append(&mut reading.warnings);
    reading.missing.extend(outside.missing(mpm));
    let parts = outside.is_readable().then(|| Parts::of(&outside.evaluation, &outside.compiled, port));
    let mut snapshot = ServiceSnapshot {
        service: super::NAME.into(),
        pid,
        executable: Some(outside.program),
        version: outside.compiled.version,
        port,
        mode: mpm.map(|mpm| mpm.name().into()),
        config_file: outside.main_file.map(|path| path.to_string_lossy().into_owned()),
        status_url: reading.page.map(|page| page.url),
        settings: reading.settings,
        missing: reading.missing,
        warnings,
        pending: reading.pending,
        control: None,
        ..ServiceSnapshot::default()
    };
    if let Some(parts) = parts {
        parts.put_into(&mut snapshot);
    }
    Ok(snapshot)
}

/// Whether its configuration says that it listens on a port; `None` when we may not read that.
pub fn listens_on(pid: u32, port: u16) -> Option<bool> {
    let outside = UnprivilegedView::of(pid).ok()?;
    outside.is_readable().then(|| listens(&outside.evaluation, port))
}

/// The error for who wants to change a service that was read from outside.
pub fn refusal(snapshot: &ServiceSnapshot) -> UserError {
    UserError::cannot_run(format!(
        "cannot change the apache with process {}: how it was started cannot be read: permission denied",
        snapshot.pid
    ))
    .hint(NEEDS_RIGHTS)
}

impl UnprivilegedView {
    fn of(pid: u32) -> Result<Self> {
        let stat =
            procfs::stat(pid).map_err(|_| UserError::cannot_run(format!("process {pid} does not run")))?;
        let arguments = procfs::arguments(pid)?;
        let options = Options::parse(&arguments);
        let executable = executable(&stat.name, &arguments);
        let compiled = executable.as_deref().map(compiled).unwrap_or_default();
        let place = main_file(&options, &compiled);
        let evaluation = match &place {
            Some((root, file)) => evaluate(options, &compiled, root.clone(), file.clone()),
            None => Evaluation::default(),
        };
        Ok(Self {
            main: ProcessName { pid, start_ticks: stat.start_ticks },
            program: executable.or(arguments.into_iter().next()).unwrap_or(stat.name),
            compiled,
            main_file: place.map(|(_, file)| file),
            evaluation,
        })
    }

    /// Whether the main file could be read.
    fn is_readable(&self) -> bool {
        self.main_file.is_some() && self.evaluation.files.first() == self.main_file.as_ref()
    }

    /// What cannot be known without rights.
    fn missing(&self, mpm: Option<Mpm>) -> Vec<MissingSignal> {
        let pid = self.main.pid;
        let why = format!("cannot read /proc/{pid}/exe, environ and cwd: permission denied");
        let mut missing = vec![MissingSignal::new("service control", why, NEEDS_RIGHTS)];
        let why = match (&self.main_file, self.is_readable(), mpm) {
            (None, ..) => Some(format!("the command line of process {pid} does not tell where it is")),
            (Some(file), false, _) => Some(format!("cannot read {}: permission denied", file.display())),
            (_, _, None) => Some("it does not tell which MPM runs".to_owned()),
            _ => None,
        };
        missing.extend(why.map(|why| MissingSignal::new("apache configuration", why, NEEDS_RIGHTS)));
        missing
    }
}

/// Whether a warning is about a variable: those of the environment are all unknown.
fn is_of_environment(warning: &str) -> bool {
    warning.starts_with("variable ${")
}

fn evaluate(options: Options, compiled: &Compiled, root: PathBuf, main_file: PathBuf) -> Evaluation {
    config::evaluate(Input {
        main_file,
        server_root: root,
        defines: options.defines,
        static_modules: compiled.modules.clone(),
        version: compiled.version.as_deref().and_then(parse_version),
        before: options.before,
        after: options.after,
        ..Input::default()
    })
}

/// ServerRoot and main file; `None` where they depend on the working directory, or on defaults that are not known.
fn main_file(options: &Options, compiled: &Compiled) -> Option<(PathBuf, PathBuf)> {
    let root = options.server_root.as_ref().or(compiled.server_root.as_ref()).map(PathBuf::from);
    let file = PathBuf::from(options.config_file.as_ref().or(compiled.config_file.as_ref())?);
    match root.filter(|root| root.is_absolute()) {
        Some(root) => Some((root.clone(), root.join(file))),
        None if file.is_absolute() => Some((PathBuf::from("/"), file)),
        None => None,
    }
}

/// The program behind a process: what its first argument says, or the one of its name where such programs are.
fn executable(name: &str, arguments: &[String]) -> Option<String> {
    let message = arguments.first().map(PathBuf::from).filter(|path| path.is_absolute());
    let trusted = message.and_then(|path| trusted(&path)).or_else(|| installed(name, is_apache));
    trusted.map(|path| path.to_string_lossy().into_owned())
}

fn is_apache(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| EXECUTABLES.contains(&name))
}

/// The path without links of an Apache that nobody but root or ourselves could have put there; `None` for any other
/// file.
fn trusted(path: &Path) -> Option<PathBuf> {
    program_query::trusted(path).filter(|path| is_apache(path))
}

/// Its compiled defaults; what it does not tell is `None`.
fn compiled(executable: &str) -> Compiled {
    let environment = BTreeMap::from([("PATH".to_owned(), "/usr/sbin:/usr/bin:/sbin:/bin".to_owned())]);
    let asked = program::compiled(&Invocation {
        executable,
        arguments: vec![],
        environment: Some(&environment),
        directory: Some("/"),
    });
    asked.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_file_is_told_only_when_it_does_not_depend_on_the_directory() {
        let debian = Compiled {
            server_root: Some("/etc/apache2".into()),
            config_file: Some("apache2.conf".into()),
            ..Compiled::default()
        };
        for (line, compiled, expected) in [
            ("apache2 -k start", &debian, Some("/etc/apache2/apache2.conf")),
            ("apache2 -f other.conf", &debian, Some("/etc/apache2/other.conf")),
            ("apache2 -f /srv/x.conf", &debian, Some("/srv/x.conf")),
            ("apache2 -d /srv", &debian, Some("/srv/apache2.conf")),
            ("apache2 -d srv", &debian, None),
            ("apache2 -f /srv/x.conf", &Compiled::default(), Some("/srv/x.conf")),
            ("apache2 -f x.conf", &Compiled::default(), None),
            ("apache2", &Compiled::default(), None),
        ] {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = main_file(&Options::parse(&arguments), compiled).map(|(_, file)| file);
            assert_eq!(found.as_deref(), expected.map(Path::new), "{line}");
        }
    }

    /// A stranger may call his process as he likes: his program is not run.
    #[test]
    fn only_programs_that_no_stranger_wrote_are_asked() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("apache2");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let message = path.to_str().unwrap().to_owned();
        // Its directory is below one that all may write to.
        assert_eq!(trusted(&path), None);
        assert_ne!(executable("no-such-program", &[message]), path.to_str().map(str::to_owned));
        for other in ["/bin/sh", "/usr/sbin", "/no/such/apache2", "apache2"] {
            assert_eq!(trusted(Path::new(other)), None, "{other}");
        }
    }
}
