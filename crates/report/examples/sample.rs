//! Writes the sample sessions of the tests as text and HTML, to look at and for the tests of the page in a browser:
//! `cargo run --example sample -- DIRECTORY`.

#[path = "../tests/it/invented.rs"]
#[allow(dead_code)] // of the tests
mod invented;
#[path = "../tests/it/sample/mod.rs"]
mod sample;

use invented::{Leaves, replaced};
use std::path::PathBuf;
use webdyno_report::{ResultPaths, html, live_page, page_data, text};

/// What would run, load or break out, were a string of a recording markup; and what no line of a narrow screen holds.
const ATTACK: &str = "/a/path/that/is/longer/than/any/line/of/a/narrow/screen/and/has/no/place/to/break/at/all/but/slashes?id=\
                      0123456789012345678901234567890123456789012345678901234567890123456789 </script><img src=x onerror=\"document.title='broken'\"><b>bold</b> &lt; ' \" ]]> -->";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    std::fs::create_dir_all(&directory)?;
    let attack = Leaves { text: Some(ATTACK), whole: &[], decimals: &[] };
    let mut views: Vec<(String, _)> =
        vec![("ten_minutes".into(), sample::long::long(600)), ("an_hour".into(), sample::long::long(3600))];
    for (name, view) in sample::all() {
        views.push((format!("markup_in_{name}"), replaced(&view, &attack)?));
        views.push((name.into(), view));
    }
    for (name, view) in views {
        let text = text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL);
        std::fs::write(directory.join(format!("{name}.txt")), text)?;
        std::fs::write(directory.join(format!("{name}.html")), html(&view))?;
    }
    // A session that runs, and what its server gives for it.
    std::fs::write(directory.join("live.html"), live_page("session"))?;
    let data = serde_json::to_string(&page_data(&sample::tune_kept()))?;
    std::fs::write(directory.join("live.json"), data)?;
    println!("written to {}", directory.display());
    Ok(())
}
