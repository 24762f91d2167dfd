//! A study on one screen: the effects, the contents against each other, and what changes what. The points are in the files.

use super::page::{ColumnAlign, TextPage, Tone};
use crate::phrases::sweep::other_notes;
use crate::phrases::sweep::study::{content_table, effect_table, headline, interaction_table};
use webdyno_model::sweep::{StudyReport, SweepReport};

/// So many lines the tables have together; of more rows the first are shown.
const ROWS_MAX: usize = 30;
/// So many interactions are shown, when there is room for no more.
const INTERACTIONS: usize = 5;
/// And so many of the other two tables at least.
const ROWS_MIN: usize = 6;

/// What a study came to.
pub(super) fn write_study(page: &mut TextPage, sweep: &SweepReport, study: &StudyReport) {
    page.title(Tone::Good, &headline(sweep, study), "");
    let interactions = interaction_table(sweep, study, INTERACTIONS);
    let effects = effect_table(sweep, study);
    let room = (ROWS_MAX.saturating_sub(interactions.len() + effects.len())).max(ROWS_MIN);
    let mut hidden = 0;
    for (rows, most) in [
        (effects, ROWS_MAX - ROWS_MIN),
        (content_table(sweep, study), room),
        (interactions, INTERACTIONS + 1),
    ] {
        if rows.len() > 1 {
            page.gap();
            let shown = &rows[..rows.len().min(most)];
            hidden += rows.len() - shown.len();
            page.table(&aligned(&rows[0]), shown);
        }
    }
    let notes = other_notes(sweep);
    if hidden > 0 || !notes.is_empty() {
        page.gap();
    }
    if hidden > 0 {
        page.item("-", &format!("{hidden} more rows are in report.html and --json."));
    }
    notes.iter().for_each(|note| page.item("-", note));
}

fn aligned(titles: &[String]) -> Vec<ColumnAlign> {
    let align = |title: &String| match title.as_str() {
        "rate" | "by" | "95% interval" => ColumnAlign::Number,
        title if title.contains(" / ") => ColumnAlign::Number,
        _ => ColumnAlign::Words,
    };
    titles.iter().map(align).collect()
}
