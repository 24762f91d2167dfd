//! A diagnosis: what to change, where the time goes, what else was found; the evidence is folded.

use super::blocks::{Align, Blocks};
use super::{AddSection, flame, parts, run};
use crate::phrases;
use webdyno_model::diagnosis::Diagnosis;
use webdyno_model::sample::MissingSignal;

/// What stands before the plots.
pub(super) fn sections(diagnosis: &Diagnosis, section: &mut AddSection<'_>) {
    section("change", "What to change", &|b| {
        if let Some(first) = diagnosis.findings.first() {
            parts::remedies(b, &first.remedies);
            b.fold("Evidence, with the command that shows it", false, |b| parts::facts(b, &first.facts));
        }
    });
    section("time", "Where the time goes", &|b| {
        parts::breakdown(b, &diagnosis.time_breakdown_us);
        diagnosis.processor_time.iter().for_each(|time| flame::processor_time(b, time));
        let tail = diagnosis.run.as_ref().and_then(|run| phrases::slow_tail(run, diagnosis));
        tail.iter().for_each(|tail| b.text(&format!("Slow tail: {tail}")));
        diagnosis.next_limit.iter().for_each(|next| b.text(&phrases::next_limit(next)));
    });
    section("failures", "What failed", &|b| diagnosis.run.iter().for_each(|run| run::failures(b, run)));
}

/// What else was found, limits ahead, the load in full, and what could not be read.
pub(super) fn details(diagnosis: &Diagnosis, section: &mut AddSection<'_>) {
    section("ceilings", "Limits ahead", &|b| parts::ceilings(b, &diagnosis.ceilings));
    section("also", "Also found", &|b| {
        diagnosis.findings.iter().skip(1).for_each(|finding| parts::finding(b, finding));
    });
    section("experiments", "Experiments", &|b| {
        diagnosis.experiments.iter().for_each(|experiment| b.text(&phrases::experiment(experiment)));
    });
    section("clients", "Other clients", &|b| {
        if let Some(others) = phrases::live_traffic(diagnosis.live_traffic.as_ref()) {
            b.text(&others);
            parts::facts(b, diagnosis.live_traffic.as_ref().map_or(&[], |traffic| &traffic.evidence));
        }
    });
    section("profile", "Workload profile", &|b| {
        let lines = diagnosis.site.as_ref().map(phrases::site).unwrap_or_default();
        let rows = lines.into_iter().map(|(label, text)| vec![label, text]).collect();
        b.table("Workload profile", &[("of", Align::Words), ("observed", Align::Words)], rows);
    });
    section("load", "The load", &|b| {
        if let Some(load) = &diagnosis.run {
            b.text(&phrases::run_headline(load));
            b.fold("The measurement in full", false, |b| run::write_details(b, load));
        }
    });
    section("missing", "Not measured", &|b| missing(b, &diagnosis.missing));
}

/// What could not be read, why, and what helps.
pub(super) fn missing(b: &mut Blocks, missing: &[MissingSignal]) {
    let row = |m: &MissingSignal| vec![m.signal.clone(), m.why.clone(), m.how_to_enable.clone()];
    let columns = [("signal", Align::Words), ("why", Align::Words), ("to enable", Align::Words)];
    b.table("Not measured", &columns, missing.iter().map(row).collect());
}
