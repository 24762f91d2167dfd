//! Workload files and lists that a command writes: new ones, never over something.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::{ErrorKind, Result, UserError};

/// Writes a new file, whole or not at all. A usage error when there is one of that name.
pub fn new_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let cannot = |error: &std::io::Error| io_error("write", path.display(), error);
    let file = File::create_new(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            UserError::usage(format!("{} exists already, and is not written over", path.display()))
                .hint("name another file with --output, or remove it")
        }
        _ => UserError { kind: ErrorKind::Usage, ..cannot(&error) },
    })?;
    let mut buffered = BufWriter::with_capacity(1 << 20, file);
    let written = write(&mut buffered).and_then(|()| buffered.flush());
    written.map_err(|error| {
        // A part of it would be taken for the whole.
        drop(std::fs::remove_file(path));
        cannot(&error)
    })
}

/// The path by which a workload file, whose paths are relative to itself, names another file.
pub fn relative_path(workload: &Path, file: &Path) -> PathBuf {
    let folder = workload.parent().unwrap_or(Path::new(""));
    match file.strip_prefix(folder) {
        Ok(rest) => rest.to_owned(),
        Err(_) => std::path::absolute(file).unwrap_or_else(|_| file.to_owned()),
    }
}

/// A text as TOML writes it.
pub fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.push_str(&format!("\\u{:04X}", letter as u32)),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_from_the_workload() {
        for (workload, file, named) in [
            ("w.toml", "w.urls", "w.urls"),
            ("a/w.toml", "a/w.urls", "w.urls"),
            ("/a/w.toml", "/a/b/c", "b/c"),
            ("/a/w.toml", "/b/c", "/b/c"),
        ] {
            assert_eq!(
                relative_path(Path::new(workload), Path::new(file)),
                Path::new(named),
                "{workload} {file}"
            );
        }
        assert!(relative_path(Path::new("a/w.toml"), Path::new("c")).is_absolute());
        assert_eq!(toml_string("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000A\"");
    }
}
