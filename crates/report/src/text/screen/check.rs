//! A check on one screen: what contradicts each other, then the limits.

use super::super::page::{TextPage, Tone};
use super::{Room, diagnosis};
use crate::phrases;
use webdyno_model::diagnosis::Diagnosis;

pub(super) fn write_check(page: &mut TextPage, check: &Diagnosis, room: Room) {
    let faults: Vec<_> = check.findings.iter().filter(|finding| finding.id != "healthy").collect();
    let tone = if faults.is_empty() { Tone::Good } else { Tone::Warning };
    page.title(tone, &phrases::check_headline(check), "");
    let shown = room.extras.max(2);
    for (index, finding) in faults.iter().take(shown).enumerate() {
        let text = format!("{} ({}): {}", phrases::limit_title(&finding.id), finding.id, finding.summary);
        page.short_item(&format!("{}.", index + 1), &text, room.text_lines + 1);
        if let Some(remedy) = finding.remedies.first() {
            page.short_item("   ->", &phrases::remedy(remedy), 2);
        }
    }
    if let Some(more) = faults.len().checked_sub(shown).filter(|more| *more > 0) {
        page.paragraph(&format!("and {more} more: -v shows them"));
    }
    diagnosis::ahead(page, &check.ceilings, room);
    if check.ceilings.iter().all(|ceiling| ceiling.binds_at_rate.is_none()) {
        page.paragraph(
            "Where they saturate is known with traffic only: webdyno diagnose --for 60s --port N, or webdyno diagnose URL.",
        );
    }
}
