//! The same pages with and without their resources.

use super::markup::Markup;
use super::parts::{ColumnAlign, table};
use crate::phrases;
use webdyno_model::run::RunReport;

/// Both loads side by side, and what that says; nothing when there was one alone.
pub(super) fn write_ablation(m: &mut Markup, run: &RunReport) {
    let Some(ablation) = &run.ablation else { return };
    m.text_element("h2", &phrases::ablation_headline(ablation));
    m.text_element("p", &ablation.means);
    use ColumnAlign::{Number, Words};
    let columns = [("", Words), ("with", Number), ("without", Number), ("ratio", Number), ("95%", Number)];
    table(m, &columns, &phrases::ablation_table(ablation)[1..]);
    m.text_element_with("p", &[("class", "quiet")], phrases::ABLATION_MEANS);
}
