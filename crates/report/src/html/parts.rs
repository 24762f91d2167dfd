//! Tables and lists that several kinds of reports share.

use super::markup::Markup;
use crate::human::{UNKNOWN, number, percent_coarse, time_us};
use crate::phrases;
use webdyno_model::diagnosis::{Ceiling, Finding, Remedy, TimeBreakdown};
use webdyno_model::fact::Fact;
use webdyno_model::service::{ServiceSnapshot, SettingInForce};
use webdyno_session::view::View;

/// How a column of a table is set.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ColumnAlign {
    /// Words.
    Words,
    /// Numbers, set right.
    Number,
    /// Commands, paths, names of settings.
    Code,
}

/// A table that scrolls sideways on a narrow screen.
pub(super) fn table(m: &mut Markup, columns: &[(&str, ColumnAlign)], rows: &[Vec<String>]) {
    let class = |column: ColumnAlign| match column {
        ColumnAlign::Words => "words",
        ColumnAlign::Number => "number",
        ColumnAlign::Code => "code",
    };
    m.element("div", &[("class", "scroll")], |m| {
        m.element("table", &[], |m| {
            m.element("thead", &[], |m| {
                m.element("tr", &[], |m| {
                    for (title, column) in columns {
                        m.text_element_with("th", &[("scope", "col"), ("class", class(*column))], title);
                    }
                });
            });
            m.element("tbody", &[], |m| {
                for row in rows {
                    m.element("tr", &[], |m| {
                        for (cell, (_, column)) in row.iter().zip(columns) {
                            m.element("td", &[("class", class(*column))], |m| match column {
                                ColumnAlign::Code if !cell.is_empty() => m.text_element("code", cell),
                                _ => m.text(cell),
                            });
                        }
                    });
                }
            });
        });
    });
}

/// The few figures that matter most, as cards: `(what, figure)`.
pub(super) fn write_cards(m: &mut Markup, figures: &[(&str, String)]) {
    m.element("dl", &[("class", "cards")], |m| {
        for (what, figure) in figures {
            m.element("div", &[], |m| {
                m.text_element("dt", what);
                m.text_element("dd", figure);
            });
        }
    });
}

/// A list of sentences.
pub(super) fn list(m: &mut Markup, items: &[String]) {
    m.element("ul", &[], |m| items.iter().for_each(|item| m.text_element("li", item)));
}

/// A finding's facts.
pub(super) fn facts(m: &mut Markup, facts: &[Fact]) {
    if facts.is_empty() {
        return;
    }
    use ColumnAlign::{Code, Number, Words};
    let columns =
        [("what", Words), ("value", Number), ("when", Words), ("read from", Words), ("by hand", Code)];
    let row = |fact: &Fact| {
        let known = [phrases::fact_name(fact), phrases::fact_value(fact), phrases::fact_window(fact)];
        known.into_iter().chain([fact.source.clone(), fact.reproduce.clone()]).collect()
    };
    table(m, &columns, &facts.iter().map(row).collect::<Vec<_>>());
}

/// What can be changed, the best first.
pub(super) fn remedies(m: &mut Markup, remedies: &[Remedy]) {
    for remedy in remedies {
        m.element("p", &[], |m| {
            m.text_element("strong", &super::with_unicode_arrows(&phrases::remedy(remedy)))
        });
        let mut items = vec![
            format!("how: {}", phrases::apply_class_phrase(remedy.class)),
            format!("why: {}", remedy.why),
        ];
        if !remedy.risk.is_empty() {
            items.push(format!("risk: {}", remedy.risk));
        }
        let expected = remedy.predicted.as_ref().map_or_else(|| UNKNOWN.into(), phrases::predicted);
        items.push(format!("expected: {expected}"));
        list(m, &items);
    }
}

/// A finding with all that belongs to it.
pub(super) fn finding(m: &mut Markup, finding: &Finding) {
    m.text_element("h3", &finding.id);
    m.text_element("p", &finding.summary);
    m.text_element_with(
        "p",
        &[("class", "quiet")],
        &phrases::confidence_text(finding.confidence, finding.explains_fraction),
    );
    facts(m, &finding.facts);
    remedies(m, &finding.remedies);
}

/// Where the mean response time goes.
pub(super) fn breakdown(m: &mut Markup, time: &TimeBreakdown) {
    let parts = phrases::parts(time);
    let known: Vec<_> =
        parts.iter().filter_map(|&(name, us)| us.filter(|us| us.is_finite()).map(|us| (name, us))).collect();
    let total: f64 = known.iter().map(|(_, us)| us.max(0.0)).sum();
    if total <= 0.0 {
        return;
    }
    m.text_element("h2", &format!("Mean response time: {}", time_us(total)));
    m.element("div", &[("class", "scroll")], |m| {
        m.element("table", &[], |m| {
            m.element("tbody", &[], |m| {
                known.iter().for_each(|&(name, us)| breakdown_row(m, name, us, us / total))
            });
        });
    });
    let unknown: Vec<_> = parts.iter().filter(|(_, us)| us.is_none()).map(|(name, _)| *name).collect();
    if !unknown.is_empty() {
        m.text_element_with("p", &[("class", "quiet")], &format!("unknown: {}", unknown.join(", ")));
    }
}

fn breakdown_row(m: &mut Markup, name: &str, us: f64, share: f64) {
    m.element("tr", &[], |m| {
        m.text_element_with("th", &[("scope", "row")], name);
        m.text_element_with("td", &[("class", "number")], &time_us(us));
        m.text_element_with("td", &[("class", "number")], &percent_coarse(share));
        m.element("td", &[("class", "bar")], |m| {
            let frame = [("viewBox", "0 0 100 10"), ("preserveAspectRatio", "none"), ("aria-hidden", "true")];
            let width = super::plot::coordinate((share * 100.0).clamp(0.0, 100.0));
            m.element("svg", &frame, |m| {
                m.empty("rect", &[("class", "fill"), ("width", &width), ("height", "10")])
            });
        });
    });
}

/// Limits before they are hit.
pub(super) fn ceilings(m: &mut Markup, ceilings: &[Ceiling]) {
    if ceilings.is_empty() {
        return;
    }
    use ColumnAlign::{Number, Words};
    let known = |value: Option<f64>| value.map_or_else(|| UNKNOWN.into(), number);
    let columns = [
        ("limit", Words),
        ("in use now", Number),
        ("most there can be", Number),
        ("saturates at", Number),
        ("source", Words),
    ];
    let row = |ceiling: &Ceiling| {
        let figures = [known(ceiling.now), known(ceiling.max), phrases::saturation_rate_text(ceiling)];
        [ceiling.limit.clone()].into_iter().chain(figures).chain([ceiling.source.clone()]).collect()
    };
    m.text_element("h2", "Limits ahead");
    m.text_element_with("p", &[("class", "quiet")], "The rate at which each limit saturates.");
    table(m, &columns, &ceilings.iter().map(row).collect::<Vec<_>>());
}

/// The server's machine, service and settings.
pub(super) fn server(m: &mut Markup, view: &View) {
    if view.server.is_none() && view.service.is_none() {
        return;
    }
    m.text_element("h2", "The server");
    if let Some(machine) = &view.server {
        m.text_element("p", &phrases::machine(machine));
    }
    if let Some(service) = &view.service {
        service_and_settings(m, service);
    }
}

fn service_and_settings(m: &mut Markup, service: &ServiceSnapshot) {
    m.text_element("p", &phrases::service(service));
    if service.settings.is_empty() {
        return;
    }
    use ColumnAlign::{Code, Words};
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
    let rows: Vec<_> = service.settings.iter().map(row).collect();
    m.element("details", &[], |m| {
        m.text_element(
            "summary",
            &format!("Settings in force at the last look ({})", service.settings.len()),
        );
        table(m, &[("setting", Code), ("value", Words), ("from", Words)], &rows);
    });
}

/// What a reader should know.
pub(super) fn notes(m: &mut Markup, view: &View) {
    let warnings = view.service.iter().flat_map(|service| &service.warnings);
    let notes: Vec<_> = view.notes.iter().chain(warnings).cloned().collect();
    if !notes.is_empty() {
        m.text_element("h2", "Notes");
        list(m, &notes);
    }
}
