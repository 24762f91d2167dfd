//! A diagnosis: the answer first, then how we know, then what to change, then everything else worth knowing.

use super::page::{Column, Page, bar};
use super::run;
use crate::human::{number, percent_coarse, time_us};
use crate::{say, words};
use webdyno_model::diagnosis::{Ceiling, Diagnosis, Experiment, Finding, Remedy, TimeBreakdown};
use webdyno_model::fact::Fact;
use webdyno_model::sample::MissingSignal;
use webdyno_session::view::View;

const BAR_COLUMNS: usize = 30;
/// Above what is missing.
pub(super) const NOT_READ: &str = "What could not be read";

/// The whole diagnosis.
pub(super) fn whole(page: &mut Page, view: &View, diagnosis: &Diagnosis) {
    let (answer, others) = match diagnosis.findings.split_first() {
        Some((first, others)) => (Some(first), others),
        None => (None, [].as_slice()),
    };
    page.heading(title(&diagnosis.bottleneck));
    if let Some(brake) = diagnosis.run.as_ref().and_then(say::brake) {
        page.para(&format!("{brake}."));
        page.gap();
    }
    match answer {
        Some(finding) => answer_of(page, finding),
        None => page.para("No rule could say anything about this recording."),
    }
    if let Some(run) = &diagnosis.run {
        load(page, run);
    }
    if let Some(finding) = answer {
        facts(page, "How we know (and how to see it by hand, on the server)", &finding.facts);
        remedies(page, &finding.remedies);
    }
    other_findings(page, others);
    experiments(page, &diagnosis.experiments);
    site(page, diagnosis);
    breakdown(page, &diagnosis.time_breakdown_us);
    ceilings(page, &diagnosis.ceilings);
    next_limit(page, diagnosis);
    if let Some(others) = say::live_traffic(diagnosis.live_traffic.as_ref()) {
        let evidence = diagnosis.live_traffic.as_ref().map_or(&[][..], |traffic| &traffic.evidence);
        facts(page, "Other clients", evidence);
        page.para(&others);
    }
    missing(page, NOT_READ, &diagnosis.missing);
    server(page, view);
}

/// What kind of site it is, as far as that could be told.
fn site(page: &mut Page, diagnosis: &Diagnosis) {
    let lines = diagnosis.site.as_ref().map(say::site).unwrap_or_default();
    if !lines.is_empty() {
        page.heading("What kind of site it is");
        lines.iter().for_each(|(label, text)| page.item(label, text));
    }
}

fn title(bottleneck: &str) -> &'static str {
    match bottleneck {
        "healthy" => "Diagnosis: healthy, no limit was reached",
        "unknown" => "Diagnosis: the limit is not known",
        _ => "Diagnosis: this limits the server",
    }
}

fn answer_of(page: &mut Page, finding: &Finding) {
    page.para(&finding.summary);
    page.gap();
    page.para(&format!(
        "({}; {})",
        finding.id,
        say::certainty(finding.confidence, finding.explains_fraction)
    ));
    if matches!(finding.id.as_str(), "healthy" | "unknown") || finding.remedies.is_empty() {
        page.para(&words::limit_meaning(&finding.id));
    } else {
        page.para(&format!("More about it: webdyno explain {}", finding.id));
    }
}

fn load(page: &mut Page, run: &webdyno_model::run::RunReport) {
    page.heading(&format!("Under this load: {}", say::run_headline(run)));
    run::conditions(page, run);
    if run.response_time_us.count > 0 {
        page.para(&say::within("answers", &run.response_time_us));
    }
    if let Some(waiting) = say::in_flight(run) {
        page.para(&format!("{waiting}."));
    }
    if run.client.valid {
        page.para(&format!("{}.", say::generator(run)));
    }
    run::failures(page, run);
}

fn facts(page: &mut Page, heading: &str, facts: &[Fact]) {
    if facts.is_empty() {
        return;
    }
    page.heading(heading);
    let row = |fact: &Fact| {
        vec![say::fact_name(fact), say::fact_value(fact), say::fact_window(fact), fact.source.clone()]
    };
    let rows: Vec<_> = facts.iter().map(row).collect();
    let commands: Vec<_> = facts.iter().map(|fact| fact.reproduce.as_str()).collect();
    page.table_with_commands(&[Column::Words; 4], &rows, &commands);
}

/// What can be changed, the best first.
fn remedies(page: &mut Page, remedies: &[Remedy]) {
    if remedies.is_empty() {
        return;
    }
    page.heading("What to change");
    for (index, remedy) in remedies.iter().enumerate() {
        page.item(&format!("{}.", index + 1), &say::remedy(remedy));
        page.inner_item("How:", say::class(remedy.class));
        page.inner_item("Why:", &remedy.why);
        if !remedy.risk.is_empty() {
            page.inner_item("Risk:", &remedy.risk);
        }
        match &remedy.predicted {
            Some(predicted) => page.inner_item("Expected:", &say::predicted(predicted)),
            None => page.inner_item("Expected:", "how much it brings is unknown"),
        }
    }
}

/// What was tried to tell explanations apart.
fn experiments(page: &mut Page, experiments: &[Experiment]) {
    if experiments.is_empty() {
        return;
    }
    page.heading("What was tried to tell them apart");
    for experiment in experiments {
        page.item("-", &say::experiment(experiment));
    }
}

fn other_findings(page: &mut Page, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    page.heading("Also found");
    for finding in findings {
        let certainty = say::certainty(finding.confidence, finding.explains_fraction);
        page.item("-", &format!("{}: {} ({certainty})", finding.id, finding.summary));
        if let Some(remedy) = finding.remedies.first() {
            page.inner(&say::remedy(remedy));
        }
    }
}

fn breakdown(page: &mut Page, time: &TimeBreakdown) {
    let parts = say::parts(time);
    let total: f64 =
        parts.iter().filter_map(|(_, us)| *us).filter(|us| us.is_finite()).map(|us| us.max(0.0)).sum();
    if total <= 0.0 {
        return;
    }
    page.heading(&format!("Where the mean response time goes ({} in all)", time_us(total)));
    let known = parts.iter().filter_map(|&(name, us)| us.map(|us| (name, us)));
    let rows: Vec<_> = known
        .map(|(name, us)| {
            vec![name.into(), time_us(us), percent_coarse(us / total), bar(us / total, BAR_COLUMNS)]
        })
        .collect();
    page.table(&[Column::Words, Column::Number, Column::Number, Column::Words], &rows);
    let unknown: Vec<_> = parts.iter().filter(|(_, us)| us.is_none()).map(|(name, _)| *name).collect();
    if !unknown.is_empty() {
        page.para(&format!("unknown: {}", unknown.join(", ")));
    }
}

/// Limits before they are hit.
pub(super) fn ceilings(page: &mut Page, ceilings: &[Ceiling]) {
    if ceilings.is_empty() {
        return;
    }
    page.heading("Limits ahead: in use now, the most there can be, and when they bind");
    let known = |value: Option<f64>| value.map_or_else(|| crate::human::UNKNOWN.into(), number);
    let mut rows = vec![["limit", "now", "most", "binds at", "source"].map(str::to_owned).to_vec()];
    for ceiling in ceilings {
        rows.push(vec![
            ceiling.limit.clone(),
            known(ceiling.now),
            known(ceiling.max),
            say::binds_at(ceiling),
            ceiling.source.clone(),
        ]);
    }
    page.table(&[Column::Words, Column::Number, Column::Number, Column::Number, Column::Words], &rows);
}

fn next_limit(page: &mut Page, diagnosis: &Diagnosis) {
    let Some(next) = &diagnosis.next_limit else {
        return;
    };
    page.heading("After that");
    page.para(&say::next_limit(next));
}

/// Signals that were not there: first those that can be had.
pub(super) fn missing(page: &mut Page, heading: &str, all: &[MissingSignal]) {
    if all.is_empty() {
        return;
    }
    page.heading(heading);
    let (not_there, helped): (Vec<_>, Vec<_>) =
        all.iter().partition(|missing| missing.how_to_enable.starts_with("nothing"));
    for missing in helped {
        page.item("-", &format!("{}: {}", missing.signal, missing.why));
        if !missing.how_to_enable.is_empty() {
            page.inner_item("To have it:", &missing.how_to_enable);
        }
    }
    let named: Vec<String> =
        not_there.iter().map(|missing| format!("{} ({})", missing.signal, missing.why)).collect();
    if !named.is_empty() {
        page.item("-", &format!("nothing has to be done, or helps: {}", named.join("; ")));
    }
}

/// The service and its machine.
pub(super) fn server(page: &mut Page, view: &View) {
    let Some(service) = &view.service else {
        return;
    };
    page.heading("The server");
    page.para(&say::service(service));
    if let Some(machine) = &view.server {
        page.para(&say::machine(machine));
    }
}
