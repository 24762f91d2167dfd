//! What the program writes to stdout and stderr. A closed pipe ends output, never the program.

use std::io::{IsTerminal, Write};
use webdyno_model::UserError;
use webdyno_model::error::io_error;

/// Writes to stdout. A reader that went away is no error; a full disk is.
pub fn print(text: &str) -> webdyno_model::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(io_error("write to", "stdout", &error))
        }
        _ => Ok(()),
    }
}

/// Writes one line to stderr.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// An error in one line, and its hint in the next.
pub fn tell_error(error: &UserError) {
    tell(&format!("webdyno: {}", error.message));
    if let Some(hint) = &error.hint {
        tell(&format!("  hint: {hint}"));
    }
}

/// Whether somebody watches stderr.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}
