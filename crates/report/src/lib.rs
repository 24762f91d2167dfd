//! A session as text for people, JSON for programs and HTML to keep, and as CSV, Parquet, HdrHistogram and JUnit for other tools:
//! pure renderings of one [`View`], or of the recording that it was made from.
//!
//! Nothing here reads a file, a clock or the environment, so the same recording gives the same bytes. The words that
//! text and HTML share are in `phrases` and `wording`, the way numbers are written in `model::number::human`. The JSON is the schema of
//! docs/contract.md.

mod change_record;
mod chapters;
mod exports;
mod json;
mod page;
mod phrases;
mod plain;
mod text;
mod wording;

pub use chapters::CHAPTERS;
pub use exports::{CacheProgram, HdrFormat, Table, cache_config, csv, hdr, junit, parquet};
pub use page::{PageData, html, live_page, logs_html, page_data};

pub use change_record::record;
pub use json::json;
pub use phrases::level;
pub use plain::{ascii, sanitize};
pub use text::compare::{compare, compare_data};
pub use text::history::history;
pub use text::logs::logs;
pub use text::predict::predict;
pub use text::size::size;
pub use text::sweep::sweep;
pub use text::text;
use webdyno_model::number::human;
use webdyno_session::view::View;

/// How text is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextStyle {
    /// With evidence, commands and all tables, instead of one screen.
    pub is_verbose: bool,
    /// With the colours of the verdicts (ECMA-48).
    pub has_color: bool,
}

impl TextStyle {
    /// All of it, as plain text.
    pub const FULL: Self = Self { is_verbose: true, has_color: false };
}

/// Where the results lie and which commands act on them: the last lines of the text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResultPaths {
    /// The run directory.
    pub directory: Option<String>,
    /// The HTML report.
    pub html: Option<String>,
    /// The change record.
    pub record: Option<String>,
    /// The command that restores the original configuration; `None` when there is nothing to restore.
    pub rollback: Option<String>,
    /// The command that would apply the plan of a session that only planned.
    pub apply: Option<String>,
}

/// The command that restores the original configuration; `None` when there is nothing to restore. Quickstart's server
/// is its own and is gone.
pub fn rollback(view: &View) -> Option<String> {
    (may_have_changed_server(view) && view.command != "quickstart").then(|| change_record::rollback(view))
}

/// Whether this session left changes on the server, or may have.
fn may_have_changed_server(view: &View) -> bool {
    use webdyno_model::tune::TuneState;
    use webdyno_session::view::{Outcome, SessionEnd};
    match &view.outcome {
        Outcome::Tune(tune) if view.end != SessionEnd::Torn => tune.state == TuneState::Applied,
        // A tuning session that stopped in the middle may have been cut between a change and its verdict.
        _ => view.command == "tune" && view.end == SessionEnd::Torn,
    }
}
