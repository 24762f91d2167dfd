//! `webdyno report DIR`: text, JSON, HTML and the change record again, from the recording alone.

use crate::cli::ReportArgs;
use crate::finish;
use crate::terminal;
use webdyno_model::Result;
use webdyno_session::recording::Recording;
use webdyno_session::view::{Outcome, View};

/// Rebuilds the views of a session.
pub fn report(arguments: &ReportArgs) -> Result<u8> {
    let directory = &arguments.directory;
    let view = View::of(&Recording::read(directory)?)?;
    if let Some(html) = &arguments.html {
        finish::write(html, &webdyno_report::html(&view))?;
    }
    if let Some(path) = &arguments.json {
        if view.outcome == Outcome::Nothing {
            return Err(finish::nothing(directory));
        }
        finish::write_json(&view, path)?;
        return Ok(0);
    }
    if arguments.html.is_none() {
        // A recording on a read-only medium is still worth its text.
        if let Err(error) = finish::write_beside(&view, directory) {
            terminal::tell(&format!("webdyno: {error}"));
        }
    }
    terminal::print(&webdyno_report::text(&view, &finish::paths(&view, directory)))?;
    Ok(0)
}
