//! A diagnosis as HTML: the answer, what to change, where the time goes; the evidence is folded.

use super::markup::Markup;
use super::parts::{self, ColumnAlign, table};
use super::run;
use crate::{phrases, wording};
use webdyno_model::diagnosis::Diagnosis;

/// The answer with its remedies, then the load and the evidence.
pub(super) fn summary(m: &mut Markup, diagnosis: &Diagnosis) {
    let Some((answer, others)) = diagnosis.findings.split_first() else {
        m.text_element_with("p", &[("class", "answer")], "No rule applies to this recording.");
        return;
    };
    m.text_element_with("p", &[("class", "answer")], &answer.summary);
    let certainty = phrases::confidence_text(answer.confidence, answer.explains_fraction);
    m.text_element_with("p", &[("class", "quiet")], &format!("{}; {certainty}", answer.id));
    if answer.remedies.is_empty() {
        m.text_element("p", &wording::limit_meaning(&answer.id));
    }
    if !answer.remedies.is_empty() {
        m.text_element("h2", "What to change");
        parts::remedies(m, &answer.remedies);
    }
    if let Some(run) = &diagnosis.run {
        run::write_cards(m, run);
        if let Some(tail) = phrases::slow_tail(run, diagnosis) {
            m.text_element("p", &format!("Slow tail: {tail}"));
        }
    }
    parts::breakdown(m, &diagnosis.time_breakdown_us);
    if let Some(next) = &diagnosis.next_limit {
        m.text_element("p", &phrases::next_limit(next));
    }
    if !others.is_empty() {
        m.text_element("h2", "Also found");
        others.iter().for_each(|finding| parts::finding(m, finding));
    }
    if !answer.facts.is_empty() {
        m.element("details", &[], |m| {
            m.text_element("summary", "Evidence, with the command that shows it");
            parts::facts(m, &answer.facts);
        });
    }
    site(m, diagnosis);
}

/// What kind of site it is, as far as that could be told.
fn site(m: &mut Markup, diagnosis: &Diagnosis) {
    let lines = diagnosis.site.as_ref().map(phrases::site).unwrap_or_default();
    if !lines.is_empty() {
        m.text_element("h2", "Workload profile");
        let rows: Vec<_> = lines.into_iter().map(|(label, text)| vec![label, text]).collect();
        table(m, &[("of", ColumnAlign::Words), ("observed", ColumnAlign::Words)], &rows);
    }
}

/// The load in full, and what could not be read.
pub(super) fn write_details(m: &mut Markup, diagnosis: &Diagnosis) {
    if let Some(run) = &diagnosis.run {
        m.text_element("h2", &format!("Load: {}", phrases::run_headline(run)));
        run::write_details(m, run);
    }
    if !diagnosis.experiments.is_empty() {
        m.text_element("h2", "Experiments");
        diagnosis
            .experiments
            .iter()
            .for_each(|experiment| m.text_element("p", &phrases::experiment(experiment)));
    }
    if let Some(others) = phrases::live_traffic(diagnosis.live_traffic.as_ref()) {
        m.text_element("h2", "Other clients");
        m.text_element("p", &others);
        parts::facts(m, diagnosis.live_traffic.as_ref().map_or(&[], |traffic| &traffic.evidence));
    }
    if !diagnosis.missing.is_empty() {
        m.text_element("h2", "Not measured");
        let missing = diagnosis.missing.iter();
        let rows: Vec<_> =
            missing.map(|m| vec![m.signal.clone(), m.why.clone(), m.how_to_enable.clone()]).collect();
        table(
            m,
            &[("signal", ColumnAlign::Words), ("why", ColumnAlign::Words), ("to enable", ColumnAlign::Words)],
            &rows,
        );
    }
}
