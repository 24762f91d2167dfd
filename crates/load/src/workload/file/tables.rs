//! Tables of rows for sessions: CSV files, RFC 4180, read by the crate csv.

use super::captures::new_name;
use super::keys::{TableKeys, Value};
use super::scope::Scope;
use super::source_span::{FileError, FileResult, SourceSpan};
use std::sync::Arc;
use webdyno_model::error::io_error;
use webdyno_model::workload::visit::{RowOrder, Table};

/// Every key of a table.
pub(super) const TABLE_KEYS: &[&str] = &["file", "order", "columns", "delimiter"];

/// Reads a table and its file. Returns it with the place where its columns are named.
pub(super) fn read(scope: &Scope<'_>, keys: &TableKeys<'_>) -> FileResult<(SourceSpan, Table)> {
    let file = keys.required("file", "file = \"users.csv\"")?;
    let order = keys.read("order", order)?.unwrap_or_default();
    let given = keys.read("columns", Value::texts)?;
    let at = keys.get("columns").map_or(file.at, |value| value.at);
    let delimiter = keys.read("delimiter", delimiter)?.unwrap_or(b',');
    let path = scope.files.resolve_relative(file.at.file, file.non_empty_text()?);
    let bytes = (scope.fetch)(&path).map_err(|error| {
        let error = io_error("read the table", path.display(), &error);
        FileError::from_user_error(file.at, error, "paths are relative to the file that names them")
    })?;
    let in_table = |message: String| FileError::new(file.at, format!("{}: {message}", path.display()));
    let in_line =
        |line: u64, message: String| FileError::new(file.at, format!("{}:{line}: {message}", path.display()));
    let mut reader =
        csv::ReaderBuilder::new().has_headers(given.is_none()).delimiter(delimiter).from_reader(&bytes[..]);
    let mut columns: Vec<String> = match &given {
        Some(given) => given.iter().map(|(_, name)| (*name).to_owned()).collect(),
        None => {
            let header =
                reader.headers().map_err(|error| csv_error(&path.display().to_string(), file.at, &error))?;
            header.iter().map(|name| name.trim().to_owned()).collect()
        }
    };
    // Spreadsheets write a byte order mark before the first name.
    if let Some(first) = columns.first_mut() {
        *first = first.trim_start_matches('\u{feff}').to_owned();
    }
    if columns.iter().all(String::is_empty) {
        return Err(in_table("it has no columns".into()).hint("its first line names them, or `columns` does"));
    }
    for (index, name) in columns.iter().enumerate() {
        new_name(at, name)?;
        if columns[..index].contains(name) {
            return Err(FileError::new(at, format!("two columns are called `{name}`"))
                .hint("name them with `columns`, and leave the first line out"));
        }
    }
    let mut rows = vec![];
    for record in reader.records() {
        let record = record.map_err(|error| csv_error(&path.display().to_string(), file.at, &error))?;
        if record.len() != columns.len() {
            let line = record.position().map_or(1, csv::Position::line);
            return Err(in_line(
                line,
                format!("{}, and there are {}", fields(record.len() as u64), columns_text(columns.len())),
            )
            .hint("a comma within a field stands between double quotes"));
        }
        rows.push(record.iter().map(str::to_owned).collect());
    }
    if rows.is_empty() {
        return Err(
            in_table("it has no rows".into()).hint("without `columns` its first line names the columns")
        );
    }
    let row_count = rows.len() as u64;
    let file = path.display().to_string();
    Ok((at, Table { file, columns, order, rows: Arc::new(rows), row_count }))
}

fn fields(count: u64) -> String {
    if count == 1 { "1 field".into() } else { format!("{count} fields") }
}

fn columns_text(count: usize) -> String {
    if count == 1 { "1 column".into() } else { format!("{count} columns") }
}

/// An error of the reader, with the line of the file that it is about.
fn csv_error(path: &str, at: SourceSpan, error: &csv::Error) -> Box<FileError> {
    let line = error.position().map_or(1, csv::Position::line);
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => FileError::new(
            at,
            format!("{path}:{line}: {}, and the lines before have {expected_len}", fields(*len)),
        )
        .hint("a comma within a field stands between double quotes"),
        csv::ErrorKind::Utf8 { .. } => FileError::new(at, format!("{path}:{line}: this line is not UTF-8"))
            .hint("convert it: iconv -f latin1 -t utf-8 FILE"),
        _ => FileError::new(at, format!("{path}:{line}: {error}")),
    }
}

/// Whether rows or requests are taken in turn or drawn.
pub(super) fn order(value: &Value<'_>) -> FileResult<RowOrder> {
    match value.as_text() {
        Some("in turn") => Ok(RowOrder::InTurn),
        Some("random") => Ok(RowOrder::Random),
        _ => Err(value.type_error("\"in turn\" or \"random\"", "\"in turn\"")),
    }
}

fn delimiter(value: &Value<'_>) -> FileResult<u8> {
    match value.as_text().map(str::as_bytes) {
        Some([byte]) if byte.is_ascii() && !matches!(byte, b'"' | b'\r' | b'\n') => Ok(*byte),
        _ => Err(value.type_error("one character", "\";\"")),
    }
}
