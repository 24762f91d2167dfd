//! A diagnosis as HTML: the answer, how we know, what to change, and everything else that was found.

use super::markup::Markup;
use super::parts::{self, Column, table};
use super::run;
use crate::{say, words};
use webdyno_model::diagnosis::Diagnosis;

/// The answer with its evidence and remedies, then the load.
pub(super) fn summary(m: &mut Markup, diagnosis: &Diagnosis) {
    let Some((answer, others)) = diagnosis.findings.split_first() else {
        m.leaf_with("p", &[("class", "answer")], "No rule could say anything about this recording.");
        return;
    };
    m.leaf_with("p", &[("class", "answer")], &answer.summary);
    let certainty = say::certainty(answer.confidence, answer.explains_fraction);
    m.leaf_with("p", &[("class", "quiet")], &format!("{}; {certainty}", answer.id));
    if answer.remedies.is_empty() {
        m.leaf("p", &words::limit_meaning(&answer.id));
    }
    if let Some(run) = &diagnosis.run {
        run::cards(m, run);
    }
    if !answer.facts.is_empty() {
        m.leaf("h2", "How we know");
        parts::facts(m, &answer.facts);
    }
    if !answer.remedies.is_empty() {
        m.leaf("h2", "What to change");
        parts::remedies(m, &answer.remedies);
    }
    if !others.is_empty() {
        m.leaf("h2", "Also found");
        others.iter().for_each(|finding| parts::finding(m, finding));
    }
    site(m, diagnosis);
    parts::breakdown(m, &diagnosis.time_breakdown_us);
    if let Some(next) = &diagnosis.next_limit {
        m.leaf("h2", "After that");
        m.leaf("p", &say::next_limit(next));
    }
}

/// What kind of site it is, as far as that could be told.
fn site(m: &mut Markup, diagnosis: &Diagnosis) {
    let lines = diagnosis.site.as_ref().map(say::site).unwrap_or_default();
    if !lines.is_empty() {
        m.leaf("h2", "What kind of site it is");
        let rows: Vec<_> = lines.into_iter().map(|(label, text)| vec![label, text]).collect();
        table(m, &[("of", Column::Words), ("what was told", Column::Words)], &rows);
    }
}

/// The load in full, and what could not be read.
pub(super) fn details(m: &mut Markup, diagnosis: &Diagnosis) {
    if let Some(run) = &diagnosis.run {
        m.leaf("h2", &format!("Under this load: {}", say::run_headline(run)));
        run::details(m, run);
    }
    if !diagnosis.experiments.is_empty() {
        m.leaf("h2", "What was tried to tell explanations apart");
        diagnosis.experiments.iter().for_each(|experiment| m.leaf("p", &say::experiment(experiment)));
    }
    if let Some(others) = say::live_traffic(diagnosis.live_traffic.as_ref()) {
        m.leaf("h2", "Other clients");
        m.leaf("p", &others);
        parts::facts(m, diagnosis.live_traffic.as_ref().map_or(&[], |traffic| &traffic.evidence));
    }
    if !diagnosis.missing.is_empty() {
        m.leaf("h2", "What could not be read");
        let missing = diagnosis.missing.iter();
        let rows: Vec<_> =
            missing.map(|m| vec![m.signal.clone(), m.why.clone(), m.how_to_enable.clone()]).collect();
        table(m, &[("signal", Column::Words), ("why", Column::Words), ("to have it", Column::Words)], &rows);
    }
}
