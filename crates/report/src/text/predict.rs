//! A prediction on one screen: what is expected first, then how that was found, then what cannot be told.

use super::page::{ColumnAlign, TextPage, Tone};
use crate::human::{UNKNOWN, bytes, number, percent_coarse, time_us};
use webdyno_model::prediction::{Estimate, ModelStation, PredictReport};

/// The prediction as text, with a final newline.
pub fn predict(report: &PredictReport) -> String {
    let mut page = TextPage::default();
    let tone = if report.rate.is_some() { Tone::Good } else { Tone::Warning };
    page.title(tone, &headline(report), "");
    page.gap();
    figures(&mut page, report);
    if let Some(limit) = &report.next_limit {
        let at = report.next_limit_rate.map_or(String::new(), |at| format!(", at {} req/s", number(at)));
        page.paragraph(&format!(
            "Limit that binds first then: {limit}{at}. `webdyno explain {limit}` says more."
        ));
    }
    if !report.stations.is_empty() {
        page.heading("How it was found");
        page.paragraph(
            "What a request takes of each resource was measured (utilisation law, Little's law); the network of pools around the \
             stations is solved by mean value analysis. It gives the measured rate with the settings that were in force.",
        );
        page.gap();
        stations(&mut page, &report.stations);
    }
    page.gap();
    report.notes.iter().for_each(|note| page.item("-", note));
    page.finish()
}

/// `Predicted with MaxRequestWorkers 20 -> 100: 400 req/s (360 to 440), now 95.5`.
fn headline(report: &PredictReport) -> String {
    let changes = report.changes.iter().map(|change| {
        let from = change.from.as_ref().map_or(String::new(), |from| format!("{from} -> "));
        let pool = change.setting.pool.as_ref().map_or(String::new(), |pool| format!(" of pool {pool}"));
        format!("{}{pool} {from}{}", change.setting.name, change.to)
    });
    let users =
        report.users.filter(|_| report.changes.is_empty()).map(|users| format!("{} users", number(users)));
    let offered = report.offered_rate.filter(|_| report.changes.is_empty());
    let offered = offered.map(|offered| format!("{} req/s arriving", number(offered)));
    let supposed: Vec<String> = changes.chain(users).chain(offered).collect();
    let predicted = report.rate.as_ref().map_or("nothing can be told".to_owned(), |one| {
        format!("{} successful req/s{}", number(one.value), interval(one, number))
    });
    let now = report.rate_now.map_or(String::new(), |now| format!("; measured {}", number(now)));
    format!("With {}: {predicted}{now}", supposed.join(", "))
}

fn interval(estimate: &Estimate, text: impl Fn(f64) -> String) -> String {
    estimate.ci95.map_or(String::new(), |[least, most]| format!(" ({} to {})", text(least), text(most)))
}

fn figures(page: &mut TextPage, report: &PredictReport) {
    let row = |name: &str, now: Option<f64>, then: &Option<Estimate>, text: fn(f64) -> String| {
        let shown = |value: Option<f64>| value.map_or(UNKNOWN.to_owned(), text);
        let bounds = then.as_ref().and_then(|one| one.ci95);
        let bounds =
            bounds.map_or(UNKNOWN.to_owned(), |[least, most]| format!("{} to {}", text(least), text(most)));
        vec![name.to_owned(), shown(now), shown(then.as_ref().map(|one| one.value)), bounds]
    };
    let rows = [
        ["", "measured", "predicted", "95% interval"].map(str::to_owned).to_vec(),
        row("successful req/s", report.rate_now, &report.rate, number),
        row("mean response time", report.response_time_mean_us_now, &report.response_time_mean_us, time_us),
        row("mean page time", report.page_time_mean_us_now, &report.page_time_mean_us, time_us),
        row("memory of its processes", report.memory_bytes_now, &report.memory_bytes, bytes),
    ];
    // A load has pages or it has not.
    let is_known = |row: &&Vec<String>| row[1..3].iter().any(|cell| cell != UNKNOWN);
    let rows: Vec<Vec<String>> = rows.iter().filter(is_known).cloned().collect();
    let number = ColumnAlign::Number;
    page.table(&[ColumnAlign::Words, number, number, number], &rows);
    page.gap();
}

fn stations(page: &mut TextPage, stations: &[ModelStation]) {
    let share = |value: Option<f64>| value.map_or(UNKNOWN.to_owned(), percent_coarse);
    let row = |one: &ModelStation| {
        vec![
            one.name.clone(),
            one.servers.map_or(UNKNOWN.to_owned(), number),
            time_us(one.demand_us),
            share(one.utilisation_now),
            share(one.utilisation),
            one.saturates_at_rate.map_or(UNKNOWN.to_owned(), number),
        ]
    };
    let head = ["", "places", "per request", "used", "then", "saturates at"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(stations.iter().map(row)).collect();
    let number = ColumnAlign::Number;
    page.table(&[ColumnAlign::Words, number, number, number, number, number], &rows);
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::change::{ApplyClass, Change};
    use webdyno_model::service::SettingValue;
    use webdyno_model::setting::SettingId;

    #[test]
    fn the_answer_comes_first_and_unknown_is_no_zero() {
        let change = Change {
            setting: SettingId::of_service("apache", "MaxRequestWorkers"),
            from: Some(SettingValue::Integer(20)),
            to: SettingValue::Integer(100),
            file: String::new(),
            class: ApplyClass::Reload,
            server: None,
        };
        let known = PredictReport {
            changes: vec![change],
            rate: Some(Estimate { value: 400.0, ci95: Some([360.0, 440.0]) }),
            rate_now: Some(95.5),
            ..PredictReport::default()
        };
        let words = |report: &PredictReport| predict(report).split_whitespace().collect::<Vec<_>>().join(" ");
        let text = words(&known);
        let answer = "With MaxRequestWorkers 20 -> 100: 400 successful req/s (360 to 440); measured 95.5";
        assert!(text.starts_with(answer), "{text}");
        assert!(!text.contains("response time"), "{text}");
        let untold = PredictReport { rate: None, notes: vec!["Nothing is predicted: x.".into()], ..known };
        assert!(words(&untold).contains("nothing can be told"));
    }
}
