//! Results for other programs: each made from the recording, and written where its flag says.

use crate::cli::export::{ExportArgs, is_stdout};
use crate::terminal;
use std::path::Path;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};
use webdyno_report::{HdrFormat, Table};
use webdyno_session::recording::Recording;
use webdyno_session::view::View;

/// Makes and writes them all. What can be written is, whatever becomes of the others; the first error is the result.
pub fn write(exports: &ExportArgs, recording: &Recording, view: &View) -> Result<()> {
    write_table(exports, recording, view, Table::Seconds)
}

/// The same, with this table as CSV and Parquet.
pub fn write_table(exports: &ExportArgs, recording: &Recording, view: &View, table: Table) -> Result<()> {
    let written = exports.given().map(|(flag, path)| {
        let bytes = match flag {
            "--csv" => webdyno_report::csv(recording, table)?.into_bytes(),
            "--parquet" => webdyno_report::parquet(recording, table)?,
            "--hdr" => webdyno_report::hdr(recording, view, hdr_format(path))?.into_bytes(),
            "--junit" => webdyno_report::junit(view)?.into_bytes(),
            _ => webdyno_report::json(view)?.into_bytes(),
        };
        write_bytes(flag, path, &bytes)
    });
    // All of them, before the first error is looked for.
    let written: Vec<Result<()>> = written.collect();
    written.into_iter().collect()
}

/// Writes one of them where its flag says.
pub fn write_bytes(flag: &str, path: &Path, bytes: &[u8]) -> Result<()> {
    if is_stdout(path) { terminal::print_bytes(bytes) } else { write_file(flag, path, bytes) }
}

fn hdr_format(path: &Path) -> HdrFormat {
    let is_log = path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("hlog"));
    if is_log { HdrFormat::Log } else { HdrFormat::Percentiles }
}

/// Whatever happens to it, the recording is whole by then.
fn write_file(flag: &str, path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|error| {
        let reported = io_error("write", path.display(), &error);
        UserError { hint: None, ..reported }
            .hint(format!("what was measured is kept: `webdyno report DIR {flag} FILE` writes it elsewhere"))
    })
}
