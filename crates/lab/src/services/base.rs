//! The programs' files as Debian's packages lay them out and with Debian's values, in words of our own: one folder of
//! `crates/lab/base` each. See the README there.

use super::tree::HostFiles;
use rust_embed::RustEmbed;
use webdyno_model::Result;

/// The folder `base/` as it was when the program was built.
#[derive(RustEmbed)]
#[folder = "base"]
struct BaseFiles;

/// Writes one of the trees.
pub fn write_files(tree: &HostFiles, name: &str) -> Result<()> {
    for path in BaseFiles::iter() {
        let place = path.strip_prefix(name).filter(|place| place.starts_with('/'));
        if let (Some(place), Some(file)) = (place, BaseFiles::get(&path)) {
            tree.file(place, &file.data, 0o644)?;
        }
    }
    Ok(())
}
