//! `webdyno predict DIR --set NAME=VALUE`: what a server would do with other settings or another load, from a recording alone.

use crate::cli::predict::PredictArgs;
use crate::finish;
use webdyno_analysis::diagnosis::prediction::{Supposition, predict as predicted};
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;
use webdyno_session::view::View;

/// Predicts, and shows how that was found.
pub fn predict(arguments: &PredictArgs) -> Result<u8> {
    let supposed =
        Supposition { changes: arguments.set.clone(), users: arguments.users, rate: arguments.rate };
    if supposed == Supposition::default() {
        return Err(UserError::usage("nothing is supposed").hint(format!(
            "webdyno predict {} --set MaxRequestWorkers=200, or --users 500",
            arguments.directory.display()
        )));
    }
    let recording = Recording::read(&arguments.directory)?;
    // Of a tuning its best load, and the settings that were in force in it.
    let load = View::of(&recording)?.reported_load.and_then(|load| recording.load(load));
    let measurement = load.map(|load| recording.measurement(load)).or_else(|| recording.last_measurement());
    let measurement = measurement.ok_or_else(|| finish::no_result_error(&arguments.directory))?;
    let report = predicted(&measurement, &supposed)?;
    let json = serde_json::to_string_pretty(&report);
    finish::show(arguments.json.as_deref(), json, &webdyno_report::predict(&report))?;
    Ok(0)
}
