//! The same pages with and without their resources.

use super::page::{Column, Page};
use crate::say;
use webdyno_model::run::RunReport;

/// Both loads side by side, and what that says; nothing when there was one alone.
pub(super) fn whole(page: &mut Page, run: &RunReport) {
    let Some(ablation) = &run.ablation else { return };
    page.heading(&say::ablation_headline(ablation));
    let columns = [Column::Words, Column::Number, Column::Number, Column::Number, Column::Number];
    page.table(&columns, &say::ablation_table(ablation));
    page.para(&ablation.means);
    page.para(say::ABLATION_MEANS);
}
