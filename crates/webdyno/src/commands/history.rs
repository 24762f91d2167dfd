//! `webdyno history [DIR]`: the sessions below a directory, newest first.

use crate::cli::history::HistoryArgs;
use crate::{finish, terminal};
use webdyno_model::Result;
use webdyno_session::history::{HistoryReport, SCHEMA, history as read_history};

/// Reading more recordings than this may take a while.
const UNANNOUNCED_MAX: usize = 50;

/// Lists the sessions.
pub fn history(arguments: &HistoryArgs) -> Result<u8> {
    let history = read_history(&arguments.directory, |count| {
        if count > UNANNOUNCED_MAX {
            terminal::print_status(&format!("webdyno: reading {count} recordings for the index"));
        }
    })?;
    if let Some(error) = &history.index_error {
        terminal::print_status(&format!("webdyno: {error}; every list reads all recordings again"));
    }
    let directory = arguments.directory.display().to_string();
    let json = HistoryReport { schema: SCHEMA, directory: &directory, sessions: &history.sessions };
    let text = webdyno_report::history(&directory, &history.sessions);
    finish::show(arguments.json.as_deref(), serde_json::to_string_pretty(&json), &text)?;
    Ok(0)
}
