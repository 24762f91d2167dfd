//! How a running Apache was started, what its command line means, and which configuration it reads.
//!
//! Options: https://httpd.apache.org/docs/2.4/programs/httpd.html and server/main.c. Foreground: `-X`, and the
//! defines FOREGROUND, NO_DETACH, ONE_PROCESS, DEBUG.

use super::config::condition::parse_version;
use super::config::{self, Evaluation, Input};
use super::imprint;
use super::program::{self, Compiled};
use crate::os::program::{Invocation, NO_MESSAGE, summary as program_summary};
use crate::os::{procfs, spawn, timeouts};
use crate::services::common::unit::{supervised, unit};
use crate::visibility::{listeners, mount_namespace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::service::Control;
use webdyno_model::{Result, UserError};

/// Variables that shape how any program runs and hold no secrets: they are written down beside those of Apache. What else there is
/// [`super::environment`] knows.
const NEUTRAL_VARIABLES: [&str; 7] =
    ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "TMPDIR"];

/// The options of a command line that decide what is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `-f`.
    pub config_file: Option<String>,
    /// `-d`.
    pub server_root: Option<String>,
    /// `-D`.
    pub defines: Vec<String>,
    /// `-C`.
    pub before: Vec<String>,
    /// `-c`.
    pub after: Vec<String>,
    /// Whether it stays in the foreground.
    pub foreground: bool,
}

impl Options {
    /// Reads a command line; the first argument is the program's name. Knows `-f X`, `-fX`, and ignores the rest.
    pub fn parse(arguments: &[String]) -> Self {
        let mut options = Self::default();
        for (option, value) in pairs(arguments) {
            let value = || value.clone().unwrap_or_default();
            match option {
                'f' => options.config_file = Some(value()),
                'd' => options.server_root = Some(value()),
                'D' => options.defines.push(value()),
                'C' => options.before.push(value()),
                'c' => options.after.push(value()),
                'X' => {
                    options.foreground = true;
                    options.defines.push("DEBUG".into());
                }
                _ => {}
            }
        }
        let stays =
            |define: &String| ["FOREGROUND", "NO_DETACH", "ONE_PROCESS", "DEBUG"].contains(&define.as_str());
        options.foreground |= options.defines.iter().any(stays);
        options
    }

    /// The same options as arguments, without those that start or stop: for `-t` and `-V`.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add = |option: &str, values: &mut dyn Iterator<Item = &String>| {
            for value in values {
                arguments.extend([option.to_owned(), value.clone()]);
            }
        };
        add("-d", &mut self.server_root.iter());
        add("-f", &mut self.config_file.iter());
        add("-D", &mut self.defines.iter().filter(|define| *define != "DEBUG"));
        add("-C", &mut self.before.iter());
        add("-c", &mut self.after.iter());
        arguments
    }
}

/// Options with their values, as apr_getopt cuts `D:C:c:d:f:E:e:k:n:R:T` and flags.
fn pairs(arguments: &[String]) -> Vec<(char, Option<String>)> {
    let mut pairs = Vec::new();
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        let mut letters = argument.strip_prefix('-').unwrap_or_default().chars();
        while let Some(letter) = letters.next() {
            if "DCcdfEeknR".contains(letter) {
                let glued = letters.as_str();
                let value = if glued.is_empty() { rest.next().cloned() } else { Some(glued.to_owned()) };
                pairs.push((letter, value));
                break;
            }
            pairs.push((letter, None));
        }
    }
    pairs
}

/// An Apache as it can be examined: its control, its compiled defaults and its configuration on disk.
#[derive(Debug)]
pub struct Apache {
    /// How it was started.
    pub control: Control,
    /// What it says of itself.
    pub compiled: Compiled,
    /// Its configuration as it is on disk now.
    pub evaluation: Evaluation,
    /// Its main file.
    pub main_file: PathBuf,
}

impl Apache {
    /// Reads a running Apache.
    pub fn of_process(pid: u32) -> Result<Self> {
        let gone = || {
            UserError::cannot_run(format!("process {pid} does not run"))
                .hint("look for the server with: pgrep -a 'apache2|httpd'")
        };
        let stat = procfs::stat(pid).map_err(|_| gone())?;
        let (executable, _) = procfs::executable(pid)?;
        let arguments = procfs::arguments(pid)?;
        let environment = procfs::environment(pid)?;
        let unit = unit(pid);
        let control = Control {
            pid,
            start_ticks: stat.start_ticks,
            supervised: unit.is_none() && supervised(pid, stat.ppid, Options::parse(&arguments).foreground),
            directory: procfs::directory(pid)?,
            pid_file: None,
            executable,
            arguments,
            environment,
            unit,
            inherited: spawn::inherited(pid),
        };
        let mut apache = Self::of_control(control)?;
        let variables = &apache.evaluation.variables;
        apache.control.environment.retain(|name, _| keeps(name) || variables.contains(name));
        let pid_file = pid_file(&apache.evaluation, &apache.compiled);
        apache.control.pid_file = Some(pid_file.to_string_lossy().into_owned());
        Ok(apache)
    }

    /// Reads the configuration that a control names; the process need not live any more.
    pub fn of_control(control: Control) -> Result<Self> {
        Self::with_overlay(control, BTreeMap::new())
    }

    /// The same with contents that files would have, by path without links.
    pub fn with_overlay(control: Control, overlay: BTreeMap<PathBuf, String>) -> Result<Self> {
        Self::read(control, overlay, false)
    }

    /// The same with the sources kept, for who renders a copy.
    pub fn with_sources(control: Control, overlay: BTreeMap<PathBuf, String>) -> Result<Self> {
        Self::read(control, overlay, true)
    }

    fn read(control: Control, overlay: BTreeMap<PathBuf, String>, keeps_sources: bool) -> Result<Self> {
        let options = Options::parse(&control.arguments);
        let is_elsewhere = mount_namespace::has_other_root(control.pid);
        let compiled = match is_elsewhere {
            true => imprint::compiled(control.pid, &control.executable)?,
            false => program::compiled(&Invocation::of(&control, options.arguments()))?,
        };
        let root = options.server_root.clone().or_else(|| compiled.server_root.clone());
        let root = Path::new(&control.directory).join(root.unwrap_or_else(|| "/".into()));
        let file = options.config_file.clone().or_else(|| compiled.config_file.clone());
        let main_file = root.join(file.unwrap_or_else(|| "conf/httpd.conf".into()));
        let input = Input {
            main_file: main_file.clone(),
            server_root: root,
            defines: options.defines.clone(),
            environment: control.environment.clone(),
            static_modules: compiled.modules.clone(),
            version: compiled.version.as_deref().and_then(parse_version),
            before: options.before.clone(),
            after: options.after.clone(),
            overlay,
            is_isolated: false,
            keeps_sources,
        };
        let evaluation =
            mount_namespace::within(control.pid, || config::evaluate(input)).map_err(|error| {
                io_error("look into the container of process", control.pid, &error)
                    .hint(listeners::NEEDS_RIGHTS)
            })?;
        Ok(Self { control, compiled, evaluation, main_file })
    }
}

/// The file that holds the main process id: `PidFile`, or the compiled default.
pub fn pid_file(evaluation: &Evaluation, compiled: &Compiled) -> PathBuf {
    let name = pid_file_name(evaluation, compiled);
    let runtime = evaluation.global(&["DefaultRuntimeDir"]);
    let runtime = runtime.and_then(|placed| placed.words().into_iter().next());
    let in_runtime = runtime.map(|directory| evaluation.path(&directory).join(&name));
    in_runtime.filter(|path| path.exists()).unwrap_or_else(|| evaluation.path(&name))
}

/// The same as it is written, which may be relative.
pub fn pid_file_name(evaluation: &Evaluation, compiled: &Compiled) -> String {
    let configured = evaluation.global(&["PidFile"]).and_then(|placed| placed.words().into_iter().next());
    configured.or_else(|| compiled.pid_file.clone()).unwrap_or_else(|| "logs/httpd.pid".into())
}

/// Lets Apache test its configuration (`-t`). The error carries Apache's own words.
pub fn validate(control: &Control) -> Result<()> {
    let mut arguments = Options::parse(&control.arguments).arguments();
    arguments.push("-t".into());
    let tested = crate::os::program::run(&Invocation::of(control, arguments), timeouts::QUERY)?;
    if tested.success {
        return Ok(());
    }
    let said = stderr_summary(&tested.stderr);
    Err(UserError::cannot_run(format!("apache rejects its configuration: {said}"))
        .hint(format!("test it by hand: {} -t", control.executable)))
}

/// Apache's own messages in one line, bounded, without the reminder to set ServerName.
pub fn stderr_summary(stderr: &str) -> String {
    let lines: Vec<_> = stderr.lines().filter(|line| !line.contains("AH00558")).collect();
    program_summary(&lines.join("\n"))
}

/// What Apache says of a start that failed: on its terminal, or once it has left that, as errors in its log. Empty when
/// it said nothing.
pub fn start_failure(stderr: &str, log: &str) -> String {
    const LAST_COUNT: usize = 2;
    // `[time] [core:emerg] [pid 1] (2)No such file: AH00023: ..`
    let is_error = |line: &&str| {
        let level = line.split('[').nth(2).and_then(|field| field.split(']').next()).unwrap_or_default();
        ["emerg", "alert", "crit", "error"].iter().any(|name| level.ends_with(name))
    };
    let message = |line: &str| {
        let mut rest = line;
        while let Some((_, after)) = rest.strip_prefix('[').and_then(|field| field.split_once("] ")) {
            rest = after;
        }
        rest.to_owned()
    };
    let mut all: Vec<String> = stderr.lines().map(str::to_owned).collect();
    all.extend(log.lines().filter(is_error).map(message));
    if stderr_summary(&all.join("\n")) == NO_MESSAGE {
        // Its log may have a format of its own: what ended it stands last.
        all.extend(log.lines().rev().take(LAST_COUNT).map(message));
    }
    match stderr_summary(&all.join("\n")) {
        nothing if nothing == NO_MESSAGE => String::new(),
        summary => summary,
    }
}

/// Whether a variable is kept in the control whatever the configuration asks for.
fn keeps(name: &str) -> bool {
    name.starts_with("APACHE_") || NEUTRAL_VARIABLES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn command_lines_are_read_as_apache_reads_them() {
        for (text, file, root, defines, foreground) in [
            ("apache2 -k start", None, None, vec![], false),
            ("httpd -DFOREGROUND", None, None, vec!["FOREGROUND"], true),
            ("httpd -f /a.conf -d/srv -D A -DB", Some("/a.conf"), Some("/srv"), vec!["A", "B"], false),
            ("httpd -X", None, None, vec!["DEBUG"], true),
            ("httpd -k", None, None, vec![], false),
        ] {
            let options = Options::parse(&line(text));
            assert_eq!(options.config_file.as_deref(), file, "{text}");
            assert_eq!(options.server_root.as_deref(), root, "{text}");
            assert_eq!(options.defines, defines, "{text}");
            assert_eq!(options.foreground, foreground, "{text}");
        }
    }

    #[test]
    fn questions_carry_the_options_and_never_start_anything() {
        let options = Options::parse(&line("httpd -k start -f /a.conf -d /srv -D A -X -e debug"));
        assert_eq!(options.arguments(), line("-d /srv -f /a.conf -D A"));
    }

    #[test]
    fn secrets_of_the_environment_are_not_kept() {
        for (name, expected) in
            [("APACHE_RUN_USER", true), ("PATH", true), ("DB_PASSWORD", false), ("HOME", false)]
        {
            assert_eq!(keeps(name), expected, "{name}");
        }
    }

    #[test]
    fn a_failed_start_is_told_from_terminal_and_log() {
        let log = "[Sat Nov 21 23:40:12.1 2026] [mpm_event:notice] [pid 7:tid 8] AH00489: Apache configured\n\
                   [Sat Nov 21 23:40:12.2 2026] [core:emerg] [pid 7:tid 8] (2)No such file: AH00023: no [mutex] made\n";
        for (stderr, log, expected) in [
            ("AH00558: no ServerName\n", log, "(2)No such file: AH00023: no [mutex] made"),
            ("AH00015: Unable to open logs\n", "", "AH00015: Unable to open logs"),
            ("AH00558: no ServerName\n", "first\nemerg: AH00023\n[\n", "[; emerg: AH00023"),
            ("", "\n", ""),
        ] {
            assert_eq!(start_failure(stderr, log), expected);
        }
    }

    #[test]
    fn the_reminder_of_a_name_is_no_message() {
        let stderr = "AH00558: apache2: Could not reliably determine\nAH00526: Syntax error on line 3 of /x:\nInvalid command 'Foo'\n";
        assert_eq!(stderr_summary(stderr), "AH00526: Syntax error on line 3 of /x:; Invalid command 'Foo'");
    }
}
