//! Runs a program for a bounded time and without a shell, and reads what Apache says of itself (`-V`, `-l`).
//!
//! Facts: https://httpd.apache.org/docs/2.4/programs/httpd.html. `-V` prints its compiled defaults even when the
//! configuration cannot be read.

use crate::os::process_location::Held;
use crate::os::spawn::spawn_in;
use crate::os::timeouts;
use crate::services::apache::config::Module;
use crate::services::apache::config::condition::static_symbol;
use rustix::fs::MemfdFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use webdyno_model::error::io_error;
use webdyno_model::service::Inherited;
use webdyno_model::{Result, UserError};

/// Most bytes of output that are kept.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// A command that is ready to run.
#[derive(Debug, Clone)]
pub struct Invocation<'a> {
    /// Absolute path.
    pub executable: &'a str,
    /// Without the program's name.
    pub arguments: Vec<String>,
    /// The whole environment; `None` keeps ours.
    pub environment: Option<&'a BTreeMap<String, String>>,
    /// Working directory; `None` keeps ours.
    pub directory: Option<&'a str>,
}

/// What a program did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Whether it ended with code 0.
    pub success: bool,
    /// What it wrote to standard output, bounded.
    pub stdout: String,
    /// What it wrote to standard error, bounded.
    pub stderr: String,
}

/// Runs a command to its end. An error when it cannot be started or takes longer than `timeout`; it is ended then.
///
/// Output goes to memory files: a daemon that the command leaves behind may keep them open without blocking us.
pub fn run(invocation: &Invocation<'_>, timeout: Duration) -> Result<Finished> {
    run_in(invocation, None, &Held::default(), timeout)
}

/// The same for a program that is to have inherited something else than we have, and to run elsewhere.
pub fn run_in(
    invocation: &Invocation<'_>,
    inherited: Option<&Inherited>,
    place: &Held,
    timeout: Duration,
) -> Result<Finished> {
    let name = invocation.executable;
    let memory = |what: &str| {
        let fd = rustix::fs::memfd_create("webdyno-output", MemfdFlags::CLOEXEC);
        fd.map(File::from).map_err(|error| io_error("make a memory file for", what, &error.into()))
    };
    let (stdout, stderr) = (memory("standard output")?, memory("standard error")?);
    let failed = |error: &std::io::Error| io_error("run", name, error);
    let mut command = command(invocation);
    command.stdout(stdout.try_clone().map_err(|e| failed(&e))?);
    command.stderr(stderr.try_clone().map_err(|e| failed(&e))?);
    let mut child = spawn_in(&mut command, inherited, place).map_err(|error| failed(&error))?;
    let deadline = Instant::now() + timeout;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| failed(&error))? {
            break status;
        }
        if Instant::now() >= deadline {
            // Its own child, which no one else waits for: it cannot be another process.
            let _ = child.kill();
            let _ = child.wait();
            return Err(UserError::cannot_run(format!("{name} did not end within {} s", timeout.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ok(Finished { success: status.success(), stdout: contents(&stdout), stderr: contents(&stderr) })
}

/// The command with its arguments, environment and directory, its input closed.
pub fn command(invocation: &Invocation<'_>) -> Command {
    let mut command = Command::new(invocation.executable);
    command.args(&invocation.arguments).stdin(Stdio::null());
    if let Some(environment) = invocation.environment {
        command.env_clear().envs(environment);
    }
    if let Some(directory) = invocation.directory.filter(|directory| Path::new(directory).is_dir()) {
        command.current_dir(directory);
    }
    command
}

fn contents(file: &File) -> String {
    let mut bytes = vec![0; OUTPUT_BYTES_MAX];
    let mut filled = 0;
    while let Ok(count @ 1..) = file.read_at(&mut bytes[filled..], filled as u64) {
        filled += count;
    }
    String::from_utf8_lossy(&bytes[..filled]).into_owned()
}

/// What `-V` and `-l` tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compiled {
    /// `2.4.58`.
    pub version: Option<String>,
    /// `HTTPD_ROOT`.
    pub server_root: Option<String>,
    /// `SERVER_CONFIG_FILE`.
    pub config_file: Option<String>,
    /// `DEFAULT_PIDLOG`.
    pub pid_file: Option<String>,
    /// `DEFAULT_ERRORLOG`.
    pub error_log: Option<String>,
    /// `prefork`, `worker`, `event`, where the program tells it.
    pub mpm: Option<String>,
    /// Modules that are compiled in.
    pub modules: Vec<Module>,
}

/// Asks an Apache for its compiled defaults.
pub fn compiled(invocation: &Invocation<'_>) -> Result<Compiled> {
    let asked = |option: &str| {
        let mut asked = invocation.clone();
        asked.arguments.push(option.to_owned());
        run(&asked, timeouts::ASK)
    };
    let mut compiled = parse_defaults(&asked("-V")?.stdout);
    compiled.modules = parse_modules(&asked("-l")?.stdout);
    if compiled.version.is_none() {
        return Err(UserError::cannot_run(format!(
            "{} -V does not answer as Apache does",
            invocation.executable
        )));
    }
    Ok(compiled)
}

/// Reads the output of `-V`.
pub fn parse_defaults(text: &str) -> Compiled {
    let define = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("-D {name}=")))?;
        Some(line.trim_matches('"').to_owned())
    };
    let labelled = |label: &str| text.lines().find_map(|line| line.strip_prefix(label)).map(str::trim);
    let version = labelled("Server version:").and_then(|line| {
        let number = line.split('/').nth(1)?.split_whitespace().next()?;
        Some(number.to_owned())
    });
    Compiled {
        version,
        server_root: define("HTTPD_ROOT"),
        config_file: define("SERVER_CONFIG_FILE"),
        pid_file: define("DEFAULT_PIDLOG"),
        error_log: define("DEFAULT_ERRORLOG"),
        mpm: labelled("Server MPM:").filter(|mpm| !mpm.is_empty()).map(str::to_ascii_lowercase),
        modules: Vec::new(),
    }
}

/// Reads the output of `-l`.
pub fn parse_modules(text: &str) -> Vec<Module> {
    let source = |line: &str| {
        let source = line.trim();
        source.ends_with(".c").then(|| Module {
            symbol: static_symbol(source),
            source: source.into(),
            file: None,
        })
    };
    text.lines().filter_map(source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_defaults_are_read() {
        let debian = "Server version: Apache/2.4.62 (Debian)\nServer built:   2024-10-04T15:21:08\nServer MPM:     event\n  \
                      threaded:     yes (fixed thread count)\nServer compiled with....\n -D HTTPD_ROOT=\"/etc/apache2\"\n \
                      -D DEFAULT_PIDLOG=\"/var/run/apache2.pid\"\n -D DEFAULT_ERRORLOG=\"logs/error_log\"\n \
                      -D SERVER_CONFIG_FILE=\"apache2.conf\"\n";
        let compiled = parse_defaults(debian);
        assert_eq!(compiled.version.as_deref(), Some("2.4.62"));
        assert_eq!(compiled.server_root.as_deref(), Some("/etc/apache2"));
        assert_eq!(compiled.config_file.as_deref(), Some("apache2.conf"));
        assert_eq!(compiled.pid_file.as_deref(), Some("/var/run/apache2.pid"));
        assert_eq!(compiled.error_log.as_deref(), Some("logs/error_log"));
        assert_eq!(compiled.mpm.as_deref(), Some("event"));
        let silent = parse_defaults("Server version: Apache/2.4.6 (CentOS)\nServer MPM:     \n");
        assert_eq!((silent.version.as_deref(), silent.mpm), (Some("2.4.6"), None));
        assert_eq!(parse_defaults("usage: httpd [-p port]"), Compiled::default());
    }

    #[test]
    fn compiled_modules_are_read() {
        let modules = parse_modules("Compiled in modules:\n  core.c\n  mod_so.c\n  http_core.c\n");
        let names: Vec<_> = modules.iter().map(|module| module.symbol.as_str()).collect();
        assert_eq!(names, ["core_module", "so_module", "http_module"]);
    }

    #[test]
    fn a_program_is_run_without_a_shell_and_bounded() {
        let invoke = |executable, arguments: &[&str]| Invocation {
            executable,
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
            environment: None,
            directory: None,
        };
        let echoed = run(&invoke("/bin/echo", &["$HOME;", "x"]), timeouts::ASK).unwrap();
        assert_eq!((echoed.success, echoed.stdout.as_str()), (true, "$HOME; x\n"));
        assert!(!run(&invoke("/bin/false", &[]), timeouts::ASK).unwrap().success);
        let slow = run(&invoke("/bin/sleep", &["20"]), Duration::from_millis(50)).unwrap_err();
        assert!(slow.message.contains("did not end"), "{slow}");
        let none = run(&invoke("/no/such/program", &[]), timeouts::ASK).unwrap_err();
        assert_eq!(none.message, "cannot run /no/such/program: no such file or directory");
    }
}
