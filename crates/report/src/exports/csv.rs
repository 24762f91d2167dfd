//! A table as CSV (RFC 4180). Unknown is an empty field, never 0.

use super::Table;
use super::table::Cell;
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

/// The table, with a line of titles. An error when the recording has nothing for it, or when a histogram is damaged.
pub fn csv(recording: &Recording, table: Table) -> Result<String> {
    let wrong =
        |error: csv::Error| UserError::cannot_run(format!("cannot write the results as csv: {error}"));
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(vec![]);
    writer.write_record(table.columns(recording).iter().map(|column| &column.name)).map_err(wrong)?;
    table.rows(recording, "CSV", &mut |row| writer.write_record(row.iter().map(text)).map_err(wrong))?;
    let bytes = writer.into_inner().map_err(|error| wrong(error.into_error().into()))?;
    super::utf8_text(bytes, "csv")
}

fn text(cell: &Cell<'_>) -> String {
    match cell {
        Cell::Unknown => String::new(),
        Cell::Text(text) => (*text).to_owned(),
        Cell::Integer(count) => count.to_string(),
        Cell::Real(value) => value.to_string(),
    }
}
