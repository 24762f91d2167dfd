//! What must hold for every Apache configuration, whatever its bytes: shared by the fuzz target in `fuzz/` and by the test
//! that runs it for a short time on stable Rust.
//!
//! Reading is lossless, evaluation and all that is told of it end without a panic, and what is told is bounded and names
//! lines that exist.

use crate::services::apache::config::{Document, Evaluation, Input, Module, evaluate};
use crate::services::apache::in_force::scoped::{SCOPED_MAX, scoped};
use crate::services::apache::in_force::{Request, Site, in_force};
use crate::services::apache::logs::{LOGS_MAX, logs};
use std::path::PathBuf;

/// A path that is on no disk.
const MAIN: &str = "/webdyno-fuzzing/httpd.conf";

/// Longest value that a snapshot may hold.
const VALUE_CHARACTERS_MAX: usize = 200;

/// Checks the reader of configurations with these bytes. An error tells what does not hold.
pub fn configuration(bytes: &[u8]) -> Result<(), String> {
    let document = Document::parse(bytes);
    if document.render() != bytes {
        return Err("what was parsed renders to other bytes".into());
    }
    for line in document.lines.iter().take(50) {
        let mut changed = document.clone();
        if changed.set_arguments(line.number_last, "1") {
            let again = Document::parse(&changed.render());
            // A NUL byte hides what follows it, and a value has none.
            let others = |document: &Document| document.lines.len();
            if others(&again) != others(&document) {
                return Err(format!("a new value in line {} changes other lines", line.number_last));
            }
        }
    }
    let text = String::from_utf8_lossy(bytes).into_owned();
    let lines_count = text.split('\n').count() as u32;
    let module = |symbol: &str| Module { symbol: symbol.into(), source: String::new(), file: None };
    let evaluation = evaluate(Input {
        main_file: MAIN.into(),
        server_root: "/webdyno-fuzzing".into(),
        static_modules: ["core_module", "macro_module", "dir_module"].map(module).into(),
        version: Some([2, 4, 62]),
        overlay: [(PathBuf::from(MAIN), text)].into(),
        is_isolated: true,
        ..Input::default()
    });
    let placed = evaluation.directives.iter().find(|placed| placed.line > lines_count);
    if let Some(placed) = placed {
        return Err(format!("{} has only {lines_count} lines", placed.place()));
    }
    check_described(&evaluation)
}

/// Checks what is told of a configuration.
fn check_described(evaluation: &Evaluation) -> Result<(), String> {
    let site = Site::of(evaluation);
    for (host, path) in
        [(None, "/"), (Some("example.org:80"), "/a/b.php"), (Some("[::1]"), "/%41/../x"), (Some(""), "")]
    {
        let at = in_force(&site, &Request { address: Some([127, 0, 0, 1].into()), port: 80, host, path });
        for name in ["Options", "LogLevel", "DirectoryIndex", "AllowOverride", "KeepAliveTimeout", "NoSuch"] {
            let _ = (at.value(name), at.undetermined(name));
        }
        let _ = (at.htaccess_directories(), at.all(&["Require"]));
    }
    let scoped = scoped(&site, 80);
    if scoped.settings.len() > SCOPED_MAX {
        return Err(format!("{} values are told", scoped.settings.len()));
    }
    let long = scoped.settings.iter().find(|value| {
        let parts = value.parts().into_iter().chain([value.value.clone()]);
        parts.into_iter().any(|text| text.chars().count() > VALUE_CHARACTERS_MAX || text.contains('\n'))
    });
    if let Some(long) = long {
        return Err(format!("a value is too long or has a line end: {long:?}"));
    }
    if logs(&site, 80, Some("logs/error_log")).files.len() > LOGS_MAX {
        return Err("more logs than the bound are told".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
