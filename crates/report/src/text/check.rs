//! A look without traffic: what contradicts each other, the worst first, then the limits ahead.

use super::diagnosis;
use super::page::TextPage;
use crate::phrases;
use webdyno_model::diagnosis::{Diagnosis, Finding};
use webdyno_session::view::View;

/// The whole check.
pub(super) fn write_check(page: &mut TextPage, view: &View, check: &Diagnosis) {
    page.heading(&phrases::check_headline(check));
    for (index, finding) in check.findings.iter().enumerate() {
        match finding.id.as_str() {
            "healthy" => page.paragraph(&finding.summary),
            _ => write_config_finding(page, index + 1, finding),
        }
    }
    diagnosis::ceilings(page, &check.ceilings);
    if check.ceilings.iter().all(|ceiling| ceiling.binds_at_rate.is_none()) {
        page.paragraph(
            "Where they bind is not known without traffic: `webdyno diagnose --for 60s --port N` tells it from the \
             traffic that is there, and `webdyno diagnose URL` from a load.",
        );
    }
    diagnosis::missing(page, diagnosis::NOT_READ, &check.missing);
    diagnosis::server(page, view);
}

fn write_config_finding(page: &mut TextPage, number: usize, finding: &Finding) {
    page.gap();
    page.item(&format!("{number}."), &finding.summary);
    page.indented_paragraph(&format!(
        "({}, confidence {})",
        finding.id,
        phrases::confidence_percent(finding.confidence)
    ));
    for remedy in &finding.remedies {
        page.indented_item("Change:", &phrases::remedy(remedy));
        if let Some(how) = phrases::how(remedy) {
            page.indented_item("How:", how);
        }
        page.indented_item("Why:", &remedy.why);
        if !remedy.risk.is_empty() {
            page.indented_item("Risk:", &remedy.risk);
        }
    }
}
