//! `webdyno ab`, `webdyno siege` and `webdyno wrk`: the command lines of ab 2.4, siege 4 and wrk 4, and their reports, by webdyno's
//! own engine. A link that is named like the tool does the same. What differs on purpose is in docs/compatibility.md.
//!
//! Flags become those of `webdyno run` (docs/flags.md), so that both mean the same load; each tool words its report by itself. Their
//! forms are facts of what the programs print, seen side by side (`tests/it/other_tools.rs`).

mod ab;
mod ab_flags;
mod ab_report;
mod flags;
mod siege;
mod siege_config;
mod siege_report;
mod totals;
mod wrk;

use crate::terminal;
use std::ffi::OsString;
use std::path::Path;
use webdyno_model::Result;

/// Runs a tool with its words. Gives the exit code.
type Tool = fn(Vec<OsString>) -> Result<u8>;

/// The tools, and what each runs.
const TOOLS: [(&str, Tool); 3] = [("ab", ab::ab), ("siege", siege::siege), ("wrk", wrk::wrk)];

/// Runs one of the tools where the program's name or its first word is that of one. Gives the exit code; `None` where neither is.
pub fn run(words: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let words: Vec<OsString> = words.into_iter().collect();
    let name_of = |word: &OsString| Some(Path::new(word).file_name()?.to_str()?.to_owned());
    let tool = |name: &str| TOOLS.iter().find(|(known, _)| *known == name);
    let by_link = words.first().and_then(name_of).and_then(|name| tool(&name)).map(|tool| (tool, 1));
    let by_word = || Some((tool(words.get(1)?.to_str()?)?, 2));
    let ((_, run), skipped) = by_link.or_else(by_word)?;
    Some(run(words[skipped..].to_vec()).unwrap_or_else(|error| {
        terminal::print_error(&error);
        error.exit_code()
    }))
}
