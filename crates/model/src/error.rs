//! What a user is told when something cannot be done: one line, a hint, and the exit code that goes with it.
//!
//! The exit codes are those of docs/contract.md: 1 it could not run, 2 wrong usage (also of a file given),
//! 130 interrupted.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The result of anything that a user may have to hear about.
pub type Result<T> = std::result::Result<T, UserError>;

/// Why something was not done, which decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The machine, the network or the server did not let it happen: exit code 1.
    CannotRun,
    /// The command line or a file given was wrong: exit code 2.
    Usage,
    /// The user interrupted it: exit code 130.
    Interrupted,
}

/// An error as the user sees it: lower case, the object and both sides named, and a hint with the command that helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserError {
    /// Decides the exit code.
    pub kind: ErrorKind,
    /// One line without a full stop.
    pub message: String,
    /// What to do about it, often a command.
    pub hint: Option<String>,
}

impl UserError {
    /// It could not run: exit code 1.
    pub fn cannot_run(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::CannotRun, message: message.into(), hint: None }
    }

    /// The command line or a file given was wrong: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Usage, message: message.into(), hint: None }
    }

    /// The user interrupted it: exit code 130.
    pub fn interrupted() -> Self {
        Self { kind: ErrorKind::Interrupted, message: "interrupted".into(), hint: None }
    }

    /// The same error with the hint line that helps.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The exit code of docs/contract.md.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::CannotRun => 1,
            ErrorKind::Usage => 2,
            ErrorKind::Interrupted => 130,
        }
    }
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for UserError {}

/// An I/O error told with the object it happened to: `cannot read /etc/x: permission denied`.
pub fn io_error(action: &str, object: impl fmt::Display, error: &std::io::Error) -> UserError {
    let cause = match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::StorageFull => "no space left on the disk".to_owned(),
        std::io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        std::io::ErrorKind::NotADirectory => "a part of its path is no directory".to_owned(),
        std::io::ErrorKind::AlreadyExists => "it exists already".to_owned(),
        _ => error.to_string(),
    };
    let reported = UserError::cannot_run(format!("cannot {action} {object}: {cause}"));
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => reported.hint("run as the user that owns it, or with sudo"),
        std::io::ErrorKind::ReadOnlyFilesystem => {
            reported.hint("`findmnt -T PATH` shows the mount; remount it writable")
        }
        std::io::ErrorKind::StorageFull => {
            reported.hint("free space there, or choose another place with --out DIR")
        }
        _ => reported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_error_names_the_object_and_helps() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let reported = io_error("read", "/etc/shadow", &denied);
        assert_eq!(reported.to_string(), "cannot read /etc/shadow: permission denied");
        assert_eq!(reported.hint.as_deref(), Some("run as the user that owns it, or with sudo"));
        assert_eq!(reported.exit_code(), 1);
        let folder = std::fs::read_to_string("/").unwrap_err();
        assert_eq!(io_error("read", "/", &folder).to_string(), "cannot read /: it is a directory");
    }

    #[test]
    fn the_kind_decides_the_exit_code() {
        assert_eq!(UserError::usage("x").exit_code(), 2);
        assert_eq!(UserError::interrupted().exit_code(), 130);
    }
}
