//! Writes the sample sessions of the tests as text and HTML, to look at: `cargo run --example sample -- DIRECTORY`.

#[path = "../tests/it/sample/mod.rs"]
mod sample;

use std::path::PathBuf;
use webdyno_report::{ResultPaths, html, text};

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    std::fs::create_dir_all(&directory)?;
    for (name, view) in sample::all() {
        std::fs::write(
            directory.join(format!("{name}.txt")),
            text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL),
        )?;
        std::fs::write(directory.join(format!("{name}.html")), html(&view))?;
    }
    println!("written to {}", directory.display());
    Ok(())
}
