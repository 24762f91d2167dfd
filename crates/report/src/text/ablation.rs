//! The same pages with and without their resources.

use super::page::{ColumnAlign, TextPage};
use crate::phrases;
use webdyno_model::run::RunReport;

/// Both loads side by side, and what that says; nothing when there was one alone.
pub(super) fn write_ablation(page: &mut TextPage, run: &RunReport) {
    let Some(ablation) = &run.ablation else { return };
    page.heading(&phrases::ablation_headline(ablation));
    use ColumnAlign::{Number, Words};
    page.table(&[Words, Number, Number, Number, Number], &phrases::ablation_table(ablation));
    page.paragraph(&ablation.means);
    page.paragraph(phrases::ABLATION_MEANS);
}
