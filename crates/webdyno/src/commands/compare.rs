//! `webdyno compare A B`: two recordings side by side, from the recordings alone.

use crate::cli::compare::CompareArgs;
use crate::{comparing, finish};
use webdyno_model::Result;

/// Compares, and tells by the exit code whether anything has become worse by more than is permitted.
pub fn compare(arguments: &CompareArgs) -> Result<u8> {
    let report = comparing::compare(&arguments.a, arguments.b.as_deref(), arguments.max_regression)?;
    let json = serde_json::to_string_pretty(&report);
    finish::show(arguments.json.as_deref(), json, &webdyno_report::compare(&report))?;
    Ok(if report.regressions.is_empty() { 0 } else { finish::NOT_MET })
}
