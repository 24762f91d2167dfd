//! What an Apache program says of itself (`-V`, `-l`).
//!
//! Facts: https://httpd.apache.org/docs/2.4/programs/httpd.html. `-V` prints its compiled defaults even when the
//! configuration cannot be read.

use crate::os::program::{Invocation, run};
use crate::os::timeouts;
use crate::services::apache::config::Module;
use crate::services::apache::config::condition::static_symbol;
use webdyno_model::{Result, UserError};

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
        run(&asked, timeouts::QUERY)
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
}
