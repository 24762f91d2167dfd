//! `webdyno report DIR`: text, HTML, the change record and what other programs read again, from the recording alone.

use crate::cli::ReportArgs;
use crate::{exports, finish, terminal};
use webdyno_model::Result;
use webdyno_session::recording::Recording;
use webdyno_session::view::{Outcome, View};

/// Rebuilds the views of a session.
pub fn report(arguments: &ReportArgs) -> Result<u8> {
    let directory = &arguments.directory;
    let recording = Recording::read(directory)?;
    let view = View::of(&recording)?;
    if let Some(html) = &arguments.html {
        finish::write(html, &webdyno_report::html(&view))?;
    }
    if arguments.exports.given().next().is_some() {
        if view.outcome == Outcome::Nothing {
            return Err(finish::no_result_error(directory));
        }
        exports::write(&arguments.exports, &recording, &view)?;
        return Ok(0);
    }
    if arguments.html.is_none() {
        // A recording on a read-only medium is still worth its text.
        if let Err(error) = finish::write_reports(&view, directory) {
            terminal::print_status(&format!("webdyno: {error}"));
        }
    }
    finish::print(&view, directory, terminal::style(arguments.verbose, arguments.color))?;
    Ok(0)
}
