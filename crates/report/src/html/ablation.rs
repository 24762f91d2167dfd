//! The same pages with and without their resources.

use super::markup::Markup;
use super::parts::{Column, table};
use crate::say;
use webdyno_model::run::RunReport;

/// Both loads side by side, and what that says; nothing when there was one alone.
pub(super) fn whole(m: &mut Markup, run: &RunReport) {
    let Some(ablation) = &run.ablation else { return };
    m.leaf("h2", &say::ablation_headline(ablation));
    m.leaf("p", &ablation.means);
    use Column::{Number, Words};
    let columns = [("", Words), ("with", Number), ("without", Number), ("ratio", Number), ("95%", Number)];
    table(m, &columns, &say::ablation_table(ablation)[1..]);
    m.leaf_with("p", &[("class", "quiet")], say::ABLATION_MEANS);
}
