//! Tables, bars and lists that several kinds of reports share.

use super::blocks::{Align, Bar, BarGroup, BarTone, Blocks, figure};
use crate::human::{UNKNOWN, number, percent_coarse, time_us};
use crate::phrases;
use webdyno_model::diagnosis::{Ceiling, Finding, Remedy, TimeBreakdown};
use webdyno_model::fact::Fact;
use webdyno_model::service::{ServiceSnapshot, SettingInForce};
use webdyno_session::view::View;

/// A finding's facts.
pub(super) fn facts(b: &mut Blocks, facts: &[Fact]) {
    use Align::{Command, Number, Words};
    let columns =
        [("what", Words), ("value", Number), ("when", Words), ("read from", Words), ("by hand", Command)];
    let row = |fact: &Fact| {
        let known = [phrases::fact_name(fact), phrases::fact_value(fact), phrases::fact_window(fact)];
        known.into_iter().chain([fact.source.clone(), fact.reproduce.clone()]).collect()
    };
    b.table("Evidence", &columns, facts.iter().map(row).collect());
}

/// What can be changed, the best first.
pub(super) fn remedies(b: &mut Blocks, remedies: &[Remedy]) {
    for remedy in remedies {
        b.strong(&phrases::remedy(remedy));
        let mut items: Vec<_> = phrases::how(remedy).map(|how| format!("how: {how}")).into_iter().collect();
        items.push(format!("why: {}", remedy.why));
        if !remedy.risk.is_empty() {
            items.push(format!("risk: {}", remedy.risk));
        }
        let expected = remedy.predicted.as_ref().map_or_else(|| UNKNOWN.into(), phrases::predicted);
        items.push(format!("expected: {expected}"));
        b.list(&items);
    }
}

/// A finding with all that belongs to it.
pub(super) fn finding(b: &mut Blocks, finding: &Finding) {
    b.heading(&phrases::limit_title(&finding.id));
    b.text(&finding.summary);
    let certainty = phrases::confidence_text(finding.confidence, finding.explains_fraction);
    b.quiet(&format!("{}; {certainty}", finding.id));
    facts(b, &finding.facts);
    remedies(b, &finding.remedies);
}

/// Where the mean response time goes.
pub(super) fn breakdown(b: &mut Blocks, time: &TimeBreakdown) {
    let parts = phrases::parts(time);
    let known: Vec<_> =
        parts.iter().filter_map(|&(name, us)| us.filter(|us| us.is_finite()).map(|us| (name, us))).collect();
    let total: f64 = known.iter().map(|(_, us)| us.max(0.0)).sum();
    if total <= 0.0 {
        return;
    }
    let bar = |&(name, us): &(&str, f64)| Bar {
        label: name.into(),
        value: figure(Some(us)),
        interval: None,
        text: format!("{}, {}", time_us(us), percent_coarse(us / total)),
        tone: BarTone::Plain,
    };
    let title = format!("Mean response time: {}", time_us(total));
    b.bars(
        "Where the time goes",
        vec![BarGroup { title, most: figure(Some(total)), rows: known.iter().map(bar).collect() }],
    );
    let unknown: Vec<_> = parts.iter().filter(|(_, us)| us.is_none()).map(|(name, _)| *name).collect();
    if !unknown.is_empty() {
        b.quiet(&format!("unknown: {}", unknown.join(", ")));
    }
}

/// Limits before they are hit: what is in use of each, the most used first.
pub(super) fn ceilings(b: &mut Blocks, ceilings: &[Ceiling]) {
    if ceilings.is_empty() {
        return;
    }
    let known = |value: Option<f64>| value.map_or_else(|| UNKNOWN.into(), number);
    let used =
        |ceiling: &Ceiling| ceiling.now.zip(ceiling.max.filter(|max| *max > 0.0)).map(|(now, max)| now / max);
    let mut order: Vec<&Ceiling> = ceilings.iter().collect();
    order.sort_by(|a, b| used(b).unwrap_or(-1.0).total_cmp(&used(a).unwrap_or(-1.0)));
    let bar = |ceiling: &&Ceiling| Bar {
        label: ceiling.limit.clone(),
        value: figure(used(ceiling)),
        interval: None,
        text: format!("{} of {}", known(ceiling.now), known(ceiling.max)),
        tone: if used(ceiling).is_some_and(|used| used >= 0.95) { BarTone::Bad } else { BarTone::Plain },
    };
    let rows = order.iter().map(bar).collect();
    b.bars(
        "Limits ahead",
        vec![BarGroup { title: "In use now, of the limit".into(), most: figure(Some(1.0)), rows }],
    );
    use Align::{Number, Words};
    let columns = [
        ("limit", Words),
        ("in use now", Number),
        ("most there can be", Number),
        ("saturates at", Number),
        ("source", Words),
    ];
    let row = |ceiling: &&Ceiling| {
        let figures = [known(ceiling.now), known(ceiling.max), phrases::saturation_rate_text(ceiling)];
        [ceiling.limit.clone()].into_iter().chain(figures).chain([ceiling.source.clone()]).collect()
    };
    b.fold("The rate at which each limit saturates", true, |b| {
        b.table("Limits ahead", &columns, order.iter().map(row).collect());
    });
}

/// The server's machine, service and settings.
pub(super) fn server(b: &mut Blocks, view: &View) {
    if let Some(machine) = &view.server {
        b.text(&phrases::machine(machine));
    }
    if let Some(service) = &view.service {
        b.text(&phrases::service(service));
        settings(b, service);
    }
}

fn settings(b: &mut Blocks, service: &ServiceSnapshot) {
    use Align::{Code, Words};
    let row = |(name, setting): (&String, &SettingInForce)| {
        let in_force = setting.running.as_ref().or(setting.configured.as_ref()).or(setting.default.as_ref());
        let place = match (&setting.file, setting.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file.clone(),
            (None, _) if setting.default.is_some() => "default of the program".into(),
            (None, _) => UNKNOWN.into(),
        };
        vec![name.clone(), phrases::value(in_force), place]
    };
    let title = format!("Settings in force at the last look ({})", service.settings.len());
    b.fold(&title, false, |b| {
        let columns = [("setting", Code), ("value", Words), ("from", Words)];
        b.table("Settings in force", &columns, service.settings.iter().map(row).collect());
    });
}

/// What a reader should know.
pub(super) fn notes(view: &View) -> Vec<String> {
    view.notes.iter().chain(view.service.iter().flat_map(|service| &service.warnings)).cloned().collect()
}
