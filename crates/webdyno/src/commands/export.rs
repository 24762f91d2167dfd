//! `webdyno export DIR`: what other programs read of a recorded session, and nothing else.

use crate::cli::export::ExportCommandArgs;
use crate::{exports, finish};
use webdyno_model::{Result, UserError};
use webdyno_report::Table;
use webdyno_session::recording::Recording;
use webdyno_session::view::{Outcome, View};

/// Writes what the flags ask for.
pub fn export(arguments: &ExportCommandArgs) -> Result<u8> {
    if arguments.exports.given().next().is_none() && arguments.cache_config.is_none() {
        return Err(UserError::usage("export wants to know what to write").hint(
            "give a file or - for stdout, as --parquet seconds.parquet, or --csv, --hdr, --json, --junit, --cache-config",
        ));
    }
    let takes_table = arguments.exports.csv.is_some() || arguments.exports.parquet.is_some();
    if arguments.table.is_some() && !takes_table {
        return Err(UserError::usage("--table is what --csv and --parquet hold, and neither is given")
            .hint("add one of them, as --csv seconds.csv, or leave --table out"));
    }
    let recording = Recording::read(&arguments.directory)?;
    let view = View::of(&recording)?;
    if view.outcome == Outcome::Nothing {
        return Err(finish::no_result_error(&arguments.directory));
    }
    let table = arguments.table.map_or_else(|| Table::of(&recording), Table::from);
    exports::write_table(&arguments.exports, &recording, &view, table)?;
    if let Some(path) = &arguments.cache_config {
        let config = webdyno_report::cache_config(&recording, arguments.cache_for.map(Into::into))?;
        exports::write_bytes("--cache-config", path, config.as_bytes())?;
    }
    Ok(0)
}
