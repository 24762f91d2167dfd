//! `scenario.toml` in, a scenario out; what is wrong is told with its line.

use super::Scenario;
use std::path::Path;
use webdyno_model::{Result, UserError};

/// Reads a description. `path` is what an error calls it. A usage error with file, line and column for a wrong one.
pub fn parse(text: &str, path: &Path) -> Result<Scenario> {
    toml::from_str(text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        UserError::usage(format!("{}:{line}: {}", path.display(), error.message()))
            .hint("docs/scenarios.md says what a scenario holds")
    })
}
