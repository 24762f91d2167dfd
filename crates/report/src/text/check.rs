//! A look without traffic: what contradicts each other, the worst first, then the limits ahead.

use super::diagnosis;
use super::page::Page;
use crate::say;
use webdyno_model::diagnosis::{Diagnosis, Finding};
use webdyno_session::view::View;

/// The whole check.
pub(super) fn whole(page: &mut Page, view: &View, check: &Diagnosis) {
    page.heading(&say::check_headline(check));
    for (index, finding) in check.findings.iter().enumerate() {
        match finding.id.as_str() {
            "healthy" => page.para(&finding.summary),
            _ => contradiction(page, index + 1, finding),
        }
    }
    diagnosis::ceilings(page, &check.ceilings);
    if check.ceilings.iter().all(|ceiling| ceiling.binds_at_rate.is_none()) {
        page.para(
            "Where they bind is not known without traffic: `webdyno diagnose --for 60s --port N` tells it from the \
             traffic that is there, and `webdyno diagnose URL` from a load.",
        );
    }
    diagnosis::missing(page, diagnosis::NOT_READ, &check.missing);
    diagnosis::server(page, view);
}

fn contradiction(page: &mut Page, number: usize, finding: &Finding) {
    page.gap();
    page.item(&format!("{number}."), &finding.summary);
    page.inner(&format!("({}, {} sure)", finding.id, say::sure(finding.confidence)));
    for remedy in &finding.remedies {
        page.inner_item("Change:", &say::remedy(remedy));
        page.inner_item("How:", say::class(remedy.class));
        page.inner_item("Why:", &remedy.why);
        if !remedy.risk.is_empty() {
            page.inner_item("Risk:", &remedy.risk);
        }
    }
}
