//! `webdyno history [DIR]`: the sessions below a directory, newest first.

use crate::cli::history::HistoryArgs;
use crate::{finish, terminal};
use webdyno_model::Result;
use webdyno_session::history::{HistoryReport, SCHEMA, history as read_history};

/// Lists the sessions.
pub fn history(arguments: &HistoryArgs) -> Result<u8> {
    let history = read_history(&arguments.directory, terminal::print_reading)?;
    if let Some(error) = &history.index_error {
        terminal::print_status(&format!("webdyno: {error}; every list reads all recordings again"));
    }
    let directory = arguments.directory.display().to_string();
    let json = HistoryReport { schema: SCHEMA, directory: &directory, sessions: &history.sessions };
    let text = webdyno_report::history(&directory, &history.sessions);
    finish::show(arguments.json.as_deref(), serde_json::to_string_pretty(&json), &text)?;
    Ok(0)
}
