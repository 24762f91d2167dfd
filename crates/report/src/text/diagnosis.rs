//! A diagnosis: the answer first, then how we know, then what to change, then everything else worth knowing.

use super::page::{ColumnAlign, TextPage, bar};
use super::run;
use crate::human::{number, percent_coarse, time_us};
use crate::{phrases, wording};
use webdyno_model::diagnosis::{Ceiling, Diagnosis, Experiment, Finding, Remedy, TimeBreakdown};
use webdyno_model::fact::Fact;
use webdyno_model::sample::MissingSignal;
use webdyno_session::view::View;

const BAR_COLUMNS: usize = 30;
/// Above what is missing.
pub(super) const NOT_READ: &str = "Not measured";

/// The whole diagnosis.
pub(super) fn write_diagnosis(page: &mut TextPage, view: &View, diagnosis: &Diagnosis) {
    let (answer, others) = match diagnosis.findings.split_first() {
        Some((first, others)) => (Some(first), others),
        None => (None, [].as_slice()),
    };
    page.heading(title(&diagnosis.bottleneck));
    if let Some(trip) = diagnosis.run.as_ref().and_then(phrases::harm_guard_text) {
        page.paragraph(&format!("{trip}."));
        page.gap();
    }
    match answer {
        Some(finding) => write_main_finding(page, finding),
        None => page.paragraph("No rule applies to this recording."),
    }
    if let Some(run) = &diagnosis.run {
        load(page, run);
        if let Some(tail) = phrases::slow_tail(run, diagnosis) {
            page.item("Slow tail:", &tail);
        }
    }
    if let Some(finding) = answer {
        facts(page, "Evidence, with the command that shows it on the server", &finding.facts);
        remedies(page, &finding.remedies);
    }
    write_other_findings(page, others);
    experiments(page, &diagnosis.experiments);
    site(page, diagnosis);
    breakdown(page, &diagnosis.time_breakdown_us);
    ceilings(page, &diagnosis.ceilings);
    next_limit(page, diagnosis);
    if let Some(others) = phrases::live_traffic(diagnosis.live_traffic.as_ref()) {
        let evidence = diagnosis.live_traffic.as_ref().map_or(&[][..], |traffic| &traffic.evidence);
        facts(page, "Other clients", evidence);
        page.paragraph(&others);
    }
    missing(page, NOT_READ, &diagnosis.missing);
    server(page, view);
}

/// What kind of site it is, as far as that could be told.
fn site(page: &mut TextPage, diagnosis: &Diagnosis) {
    let lines = diagnosis.site.as_ref().map(phrases::site).unwrap_or_default();
    if !lines.is_empty() {
        page.heading("Workload profile");
        lines.iter().for_each(|(label, text)| page.item(label, text));
    }
}

fn title(bottleneck: &str) -> &'static str {
    match bottleneck {
        "healthy" => "No limit reached: the server kept up with the load",
        "unknown" => "Limit unknown",
        _ => "Diagnosis: this limits the server",
    }
}

fn write_main_finding(page: &mut TextPage, finding: &Finding) {
    page.paragraph(&finding.summary);
    page.gap();
    page.paragraph(&format!(
        "({}; {})",
        finding.id,
        phrases::confidence_text(finding.confidence, finding.explains_fraction)
    ));
    if matches!(finding.id.as_str(), "healthy" | "unknown") || finding.remedies.is_empty() {
        page.paragraph(&wording::limit_meaning(&finding.id));
    } else {
        page.paragraph(&format!("Details: webdyno explain {}", finding.id));
    }
}

fn load(page: &mut TextPage, run: &webdyno_model::run::RunReport) {
    page.heading(&format!("Load: {}", phrases::run_headline(run)));
    run::conditions(page, run);
    if run.response_time_us.count > 0 {
        page.paragraph(&phrases::percentile_phrase("response time", &run.response_time_us));
    }
    if let Some(waiting) = phrases::in_flight(run) {
        page.paragraph(&format!("{waiting}."));
    }
    if run.client.valid {
        page.paragraph(&format!("{}.", phrases::generator(run)));
    }
    run::failures(page, run);
}

fn facts(page: &mut TextPage, heading: &str, facts: &[Fact]) {
    if facts.is_empty() {
        return;
    }
    page.heading(heading);
    let row = |fact: &Fact| {
        vec![
            phrases::fact_name(fact),
            phrases::fact_value(fact),
            phrases::fact_window(fact),
            fact.source.clone(),
        ]
    };
    let rows: Vec<_> = facts.iter().map(row).collect();
    let commands: Vec<_> = facts.iter().map(|fact| fact.reproduce.as_str()).collect();
    page.table_with_commands(&[ColumnAlign::Words; 4], &rows, &commands);
}

/// What can be changed, the best first.
fn remedies(page: &mut TextPage, remedies: &[Remedy]) {
    if remedies.is_empty() {
        return;
    }
    page.heading("What to change");
    for (index, remedy) in remedies.iter().enumerate() {
        page.item(&format!("{}.", index + 1), &phrases::remedy(remedy));
        if let Some(how) = phrases::how(remedy) {
            page.indented_item("How:", how);
        }
        page.indented_item("Why:", &remedy.why);
        if !remedy.risk.is_empty() {
            page.indented_item("Risk:", &remedy.risk);
        }
        match &remedy.predicted {
            Some(predicted) => page.indented_item("Expected:", &phrases::predicted(predicted)),
            None => page.indented_item("Expected:", "gain unknown"),
        }
    }
}

/// What was tried to tell explanations apart.
fn experiments(page: &mut TextPage, experiments: &[Experiment]) {
    if experiments.is_empty() {
        return;
    }
    page.heading("Experiments");
    for experiment in experiments {
        page.item("-", &phrases::experiment(experiment));
    }
}

fn write_other_findings(page: &mut TextPage, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    page.heading("Also found");
    for finding in findings {
        let certainty = phrases::confidence_text(finding.confidence, finding.explains_fraction);
        page.item("-", &format!("{}: {} ({certainty})", finding.id, finding.summary));
        if let Some(remedy) = finding.remedies.first() {
            page.indented_paragraph(&phrases::remedy(remedy));
        }
    }
}

fn breakdown(page: &mut TextPage, time: &TimeBreakdown) {
    let parts = phrases::parts(time);
    let total: f64 =
        parts.iter().filter_map(|(_, us)| *us).filter(|us| us.is_finite()).map(|us| us.max(0.0)).sum();
    if total <= 0.0 {
        return;
    }
    page.heading(&format!("Mean response time: {}", time_us(total)));
    let known = parts.iter().filter_map(|&(name, us)| us.map(|us| (name, us)));
    let rows: Vec<_> = known
        .map(|(name, us)| {
            vec![name.into(), time_us(us), percent_coarse(us / total), bar(us / total, BAR_COLUMNS)]
        })
        .collect();
    page.table(&[ColumnAlign::Words, ColumnAlign::Number, ColumnAlign::Number, ColumnAlign::Words], &rows);
    let unknown: Vec<_> = parts.iter().filter(|(_, us)| us.is_none()).map(|(name, _)| *name).collect();
    if !unknown.is_empty() {
        page.paragraph(&format!("unknown: {}", unknown.join(", ")));
    }
}

/// Limits before they are hit.
pub(super) fn ceilings(page: &mut TextPage, ceilings: &[Ceiling]) {
    if ceilings.is_empty() {
        return;
    }
    page.heading("Limits ahead");
    let known = |value: Option<f64>| value.map_or_else(|| crate::human::UNKNOWN.into(), number);
    let mut rows = vec![["resource", "now", "limit", "saturates at", "source"].map(str::to_owned).to_vec()];
    for ceiling in ceilings {
        rows.push(vec![
            ceiling.limit.clone(),
            known(ceiling.now),
            known(ceiling.max),
            phrases::saturation_rate_text(ceiling),
            ceiling.source.clone(),
        ]);
    }
    use ColumnAlign::{Number, Words};
    page.table(&[Words, Number, Number, Number, Words], &rows);
}

fn next_limit(page: &mut TextPage, diagnosis: &Diagnosis) {
    let Some(next) = &diagnosis.next_limit else {
        return;
    };
    page.gap();
    page.paragraph(&phrases::next_limit(next));
}

/// Signals that were not there: first those that can be had.
pub(super) fn missing(page: &mut TextPage, heading: &str, all: &[MissingSignal]) {
    if all.is_empty() {
        return;
    }
    page.heading(heading);
    let (not_there, helped): (Vec<_>, Vec<_>) =
        all.iter().partition(|missing| missing.how_to_enable.starts_with("nothing"));
    for missing in helped {
        page.item("-", &format!("{}: {}", missing.signal, missing.why));
        if !missing.how_to_enable.is_empty() {
            page.indented_item("To enable:", &missing.how_to_enable);
        }
    }
    let named: Vec<String> =
        not_there.iter().map(|missing| format!("{} ({})", missing.signal, missing.why)).collect();
    if !named.is_empty() {
        page.item("-", &format!("no action needed: {}", named.join("; ")));
    }
}

/// The service and its machine.
pub(super) fn server(page: &mut TextPage, view: &View) {
    let Some(service) = &view.service else {
        return;
    };
    page.heading("The server");
    page.paragraph(&phrases::service(service));
    if let Some(machine) = &view.server {
        page.paragraph(&phrases::machine(machine));
    }
}
