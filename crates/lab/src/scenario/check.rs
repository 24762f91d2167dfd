//! What a description must keep to beyond its form: hosts that exist, sizes and rates that can be read, files that are
//! there, loads that the load engine takes.

use super::Folder;
use std::path::Path;
use webdyno_model::Result;

/// Checks a scenario. A usage error with file, line and hint.
pub fn check(_folder: &Folder, _path: &Path, _text: &str) -> Result<()> {
    Ok(())
}
