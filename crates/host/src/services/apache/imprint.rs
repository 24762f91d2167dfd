//! What an Apache has compiled in, read from its program file: for one in a container, whose program is not run from
//! outside. It would run with our rights, and outside of what holds the container in.
//!
//! Facts: httpd's server/main.c: `show_compile_settings` prints literals such as ` -D HTTPD_ROOT="/etc/apache2"`, and each
//! module names itself by its source file (`STANDARD20_MODULE_STUFF` of include/http_config.h), as `-l` prints it.

use super::config::Module;
use super::config::condition::static_symbol;
use super::program::{Compiled, parse_defaults};
use crate::visibility::process_view::Root;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::Read;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The longest program that is read.
const PROGRAM_BYTES_MAX: u64 = 32 << 20;

/// The longest text in it that matters.
const TEXT_BYTES_MAX: usize = 512;

/// Reads the program of a process that has files of its own.
pub fn compiled(pid: u32, executable: &str) -> Result<Compiled> {
    let failed = |error: &std::io::Error| io_error("read", executable, error);
    let opened = Root::of(pid).open(executable, OFlags::RDONLY).map_err(|error| failed(&error))?;
    let mut bytes = vec![];
    File::from(opened).take(PROGRAM_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    let compiled = parse(&bytes);
    if compiled.server_root.is_none() && compiled.version.is_none() {
        return Err(UserError::cannot_run(format!("{executable} does not look as Apache's program does")));
    }
    Ok(compiled)
}

/// Finds the texts in a program.
fn parse(program: &[u8]) -> Compiled {
    let is_text = |text: &&[u8]| (4..TEXT_BYTES_MAX).contains(&text.len()) && text.iter().all(is_printed);
    let texts = program.split(|byte| matches!(byte, 0 | b'\n')).filter(is_text);
    let texts: Vec<&str> = texts.filter_map(|text| std::str::from_utf8(text).ok()).collect();
    let defines: Vec<&str> = texts.iter().copied().filter(|text| text.starts_with(" -D ")).collect();
    let version = texts.iter().find_map(|text| {
        let number = text.strip_prefix("Apache/")?.split(' ').next()?;
        (number.split('.').count() == 3).then(|| number.to_owned())
    });
    let mut sources: Vec<&str> = texts.iter().copied().filter(|text| is_module(text)).collect();
    sources.sort_unstable();
    sources.dedup();
    // The linker keeps it within `http_core.c` only.
    sources.insert(0, "core.c");
    let mpm =
        ["prefork", "worker", "event"].into_iter().find(|mpm| texts.contains(&format!("{mpm}.c").as_str()));
    let module = |source: &str| Module { symbol: static_symbol(source), source: source.into(), file: None };
    Compiled {
        version,
        mpm: mpm.map(str::to_owned),
        modules: sources.into_iter().map(module).collect(),
        ..parse_defaults(&defines.join("\n"))
    }
}

fn is_printed(byte: &u8) -> bool {
    byte.is_ascii_graphic() || *byte == b' '
}

fn is_module(text: &str) -> bool {
    let named = text.strip_suffix(".c").is_some_and(|name| {
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    });
    named && (text.starts_with("mod_") || text == "http_core.c")
}

#[cfg(test)]
mod tests {
    use super::super::program;
    use super::*;
    use proptest::prelude::*;

    /// What the program says when it is asked, and what stands in it, is the same.
    #[test]
    fn the_file_tells_what_the_program_does() {
        let executable = "/usr/sbin/apache2";
        if !std::path::Path::new(executable).exists() {
            eprintln!("SKIPPED: {executable} is missing; install apache2-bin");
            return;
        }
        let asked = crate::os::program::Invocation {
            executable,
            arguments: vec![],
            environment: None,
            directory: None,
        };
        let asked = program::compiled(&asked).unwrap();
        let read = compiled(std::process::id(), executable).unwrap();
        let names = |compiled: &Compiled| {
            let mut names: Vec<_> = compiled.modules.iter().map(|module| module.symbol.clone()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&read), names(&asked));
        assert_eq!(Compiled { modules: vec![], ..read }, Compiled { modules: vec![], mpm: None, ..asked });
        assert!(compiled(std::process::id(), "/bin/sh").unwrap_err().message.contains("/bin/sh"));
    }

    #[test]
    fn texts_are_found() {
        let found = parse(
            b"\x7fELF\x01\0 -D HTTPD_ROOT=\"/opt/httpd\"\0x\0Apache/2.4.62 (Unix)\0Apache/2.4\0prefork.c\0\
            mod_so.c\0log.c\0 -D SERVER_CONFIG_FILE=\"conf/httpd.conf\"\n\xff\xfe",
        );
        assert_eq!(
            (found.server_root.as_deref(), found.version.as_deref()),
            (Some("/opt/httpd"), Some("2.4.62"))
        );
        assert_eq!(
            (found.config_file.as_deref(), found.mpm.as_deref()),
            (Some("conf/httpd.conf"), Some("prefork"))
        );
        let names: Vec<_> = found.modules.iter().map(|module| module.symbol.as_str()).collect();
        assert_eq!(names, ["core_module", "so_module"]);
    }

    proptest! {
        // Any bytes: never a panic.
        #[test]
        fn any_program_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            parse(&bytes);
        }
    }
}
