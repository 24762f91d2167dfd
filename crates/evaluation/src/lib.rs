//! What the diagnosis is worth, and the pages of the guide that are generated: for development, no part of the program.
//!
//! [`judge`] diagnoses recordings of the lab's scenarios and compares with what these say, [`rivals`] has other advisers'
//! opinion of the same servers, [`drawn`] judges servers drawn at random, [`table`] and [`guide`] write pages of `docs/`, [`schemas`] the schemas of JSON outputs and their
//! reference.

pub mod drawn;
pub mod guide;
pub mod judge;
pub mod rivals;
pub mod schemas;
pub mod table;

/// Text within a table.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
