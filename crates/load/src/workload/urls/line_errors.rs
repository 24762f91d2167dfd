//! What is wrong with lines of a list: the first ones are shown, the others counted.

use webdyno_model::{Result, UserError};

/// Wrong lines that are shown.
const SHOWN_MAX: usize = 5;

/// An error in a line, from this byte on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineError {
    pub(super) at: usize,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl LineError {
    /// Wrong from this byte on.
    pub(super) fn at_byte(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same in a text that has this many bytes before.
    pub(super) fn shifted(mut self, bytes: usize) -> Self {
        self.at += bytes;
        self
    }
}

impl From<UserError> for LineError {
    fn from(error: UserError) -> Self {
        Self { at: 0, message: error.message, hint: error.hint }
    }
}

/// The wrong lines of a list.
#[derive(Debug, Default)]
pub(super) struct LineErrors {
    /// Line, column in characters, and what is wrong.
    first: Vec<(u64, usize, String)>,
    hint: Option<String>,
    count: u64,
}

impl LineErrors {
    /// This line, whose text is `line`, is wrong.
    pub(super) fn add(&mut self, number: u64, line: &[u8], error: LineError) {
        self.count += 1;
        if self.first.len() < SHOWN_MAX {
            let before = &line[..error.at.min(line.len())];
            let column = String::from_utf8_lossy(before).chars().count() + 1;
            self.first.push((number, column, error.message));
            self.hint = self.hint.take().or(error.hint);
        }
    }

    /// A usage error, unless no line is wrong.
    pub(super) fn end(self, file: &str) -> Result<()> {
        let format_line =
            |(line, column, message): &(u64, usize, String)| format!("{file}:{line}:{column}: {message}");
        let lines: Vec<String> = self.first.iter().map(format_line).collect();
        let error = match lines.as_slice() {
            [] => return Ok(()),
            [only] if self.count == 1 => UserError::usage(only),
            some => {
                let others = self.count - some.len() as u64;
                let others = if others > 0 { format!("\n  and {others} more") } else { String::new() };
                let message =
                    format!("{file} has {} wrong lines\n  {}{others}", self.count, some.join("\n  "));
                UserError::usage(message)
            }
        };
        Err(match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        })
    }
}
