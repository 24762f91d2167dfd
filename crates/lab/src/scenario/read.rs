//! `scenario.toml` in, a scenario out; what is wrong is told with its line.

use super::Scenario;
use super::value_path::{SCHEMA_HINT, did_you_mean, wrong_at};
use std::path::Path;
use webdyno_model::Result;

/// Reads a description. `path` is what an error calls it. A usage error with file, line and column for a wrong one.
pub fn parse(text: &str, path: &Path) -> Result<Scenario> {
    toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        let message = error.message().trim_end().replace('\n', ", ");
        let reported = wrong_at(path, text, &span, &message);
        match unknown(&message) {
            Some((written, known)) => reported.hint(did_you_mean(written, known, SCHEMA_HINT)),
            None => reported,
        }
    })
}

/// The key or word that is not known, and those that are, of such a message of serde.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let is_unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    let mut quoted = message.split('`').skip(1).step_by(2);
    let written = quoted.next().filter(|_| is_unknown)?;
    Some((written, quoted.collect()))
}
