//! A run: objectives, repeats, what was sent; and everything besides: times, failures, answers, connections.

use super::blocks::{Align, Blocks};
use super::{AddSection, pages};
use crate::human::{count, share, time};
use crate::{phrases, wording};
use webdyno_model::run::RunReport;

/// What stands before the plots.
pub(super) fn sections(run: &RunReport, section: &mut AddSection<'_>) {
    section("objectives", "Objectives", &|b| objectives(b, run));
    section("failures", "What failed", &|b| failures(b, run));
    section("repeats", "Repeats", &|b| repeats(b, run));
    section("workers", "Workers", &|b| workers(b, run));
    section("ablation", "With and without", &|b| ablation(b, run));
}

/// What stands behind them.
pub(super) fn details(run: &RunReport, section: &mut AddSection<'_>) {
    section("waterfall", "How a page goes", &|b| pages::waterfalls(b, run));
    section("load", "The load", &|b| write_details(b, run));
}

fn objectives(b: &mut Blocks, run: &RunReport) {
    let row = |objective: &webdyno_model::run::ObjectiveResult| {
        let met = if objective.met { "met" } else { "not met" };
        vec![objective.slo.clone(), phrases::objective_value(objective), met.into()]
    };
    let columns = [("objective", Align::Code), ("measured", Align::Number), ("", Align::Words)];
    b.table("Objectives", &columns, run.objectives.iter().map(row).collect());
    phrases::objectives_too_short(run).iter().for_each(|short| b.text(short));
}

fn repeats(b: &mut Blocks, run: &RunReport) {
    let Some(repeats) = &run.repeats else { return };
    b.text(&format!("{}: {}", phrases::repeats_headline(repeats), phrases::repeats_spread(repeats)));
    with_titles(b, "Repeats", phrases::repeats_table(repeats));
    phrases::repeats_invalid(repeats).iter().for_each(|reported| b.text(reported));
    b.quiet(phrases::REPEATS_MEAN);
}

/// The machines that made the load.
fn workers(b: &mut Blocks, run: &RunReport) {
    let Some(table) = phrases::workers_table(run) else { return };
    with_titles(b, "Workers", table);
    b.quiet(phrases::WORKERS_MEAN);
}

/// The same pages with and without their resources.
fn ablation(b: &mut Blocks, run: &RunReport) {
    let Some(ablation) = &run.ablation else { return };
    b.strong(&phrases::ablation_headline(ablation));
    b.text(&ablation.means);
    with_titles(b, "With and without", phrases::ablation_table(ablation));
    b.quiet(phrases::ABLATION_MEANS);
}

/// A table whose first row has the titles, and whose first column names.
fn with_titles(b: &mut Blocks, label: &str, mut rows: Vec<Vec<String>>) {
    let titles = rows.remove(0);
    let column = |(index, title)| (title, if index == 0 { Align::Words } else { Align::Number });
    let columns: Vec<(&str, Align)> = titles.iter().map(String::as_str).enumerate().map(column).collect();
    b.table(label, &columns, rows);
}

/// Everything about a run: conditions, times, failures, answers, connections.
pub(super) fn write_details(b: &mut Blocks, run: &RunReport) {
    let mut conditions: Vec<_> = run.workload.iter().flat_map(phrases::load).collect();
    conditions.extend([phrases::measured(run), phrases::generator(run)]);
    conditions.extend(phrases::generator_details(run));
    conditions.extend(phrases::generator_tail_note(run));
    if run.response_time_us.count > 0 {
        conditions.push(phrases::clock(run));
    }
    conditions.extend(phrases::in_flight(run));
    b.list(&conditions);
    use Align::{Number, Words};
    let columns = [("", Words), ("per second", Number), ("total", Number), ("", Number)];
    b.table("Rates", &columns, phrases::rates(run));
    times(b, run);
    pages::write_details(b, run);
    requests_by_name(b, run);
    responses(b, run);
}

fn times(b: &mut Blocks, run: &RunReport) {
    use Align::{Number, Words};
    let columns = [
        ("", Words),
        ("samples", Number),
        ("p50", Number),
        ("p90", Number),
        ("p99", Number),
        ("p99.9", Number),
        ("max", Number),
    ];
    let failed = ("failures", &run.failed_time_us);
    let named = phrases::times_of(run).into_iter().chain([failed]).filter(|(_, dist)| dist.count > 0);
    let rows: Vec<Vec<String>> = named
        .map(|(name, dist)| {
            let times = phrases::percentiles(run, name, dist).into_iter().chain([time(dist.max)]);
            [name.to_owned(), count(dist.count)].into_iter().chain(times).collect()
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let short = phrases::too_short_note(run, &rows);
    b.table("Times", &columns, rows);
    short.iter().for_each(|short| b.text(short));
    if run.pages.is_some() {
        b.quiet(phrases::PAGE_TIME_MEANS);
    }
    b.quiet(phrases::TIMES_MEAN);
}

/// What failed, why, and what to do about it.
pub(super) fn failures(b: &mut Blocks, run: &RunReport) {
    if run.errors.total() == 0 {
        return;
    }
    b.text(&phrases::failures(run));
    let named = run.errors.named().into_iter().filter(|(_, failed)| *failed > 0);
    let row = |(class, failed): (&str, u64)| {
        let words = wording::error(class);
        let part = |pick: fn(&wording::ErrorText) -> &'static str| words.as_ref().map_or("", pick).to_owned();
        let what = format!("{} ({class})", part(|w| w.what));
        vec![count(failed), what, part(|w| w.usually), part(|w| w.advice)]
    };
    use Align::{Number, Words};
    let columns = [("requests", Number), ("what", Words), ("usual cause", Words), ("remedy", Words)];
    b.table("What failed", &columns, named.map(row).collect());
}

fn requests_by_name(b: &mut Blocks, run: &RunReport) {
    if run.requests_by_name.is_empty() {
        return;
    }
    let row = |(name, named): (&String, &webdyno_model::run::NamedReport)| {
        let dist = &named.response_time_us;
        vec![name.clone(), count(named.completed), count(named.failed), time(dist.p50), time(dist.p99)]
    };
    use Align::{Code, Number};
    let columns = [("request", Code), ("good", Number), ("failed", Number), ("p50", Number), ("p99", Number)];
    b.heading("By request");
    b.table("By request", &columns, phrases::requests_by_count(run).into_iter().map(row).collect());
}

fn responses(b: &mut Blocks, run: &RunReport) {
    let total: u64 = run.status.values().sum();
    let status =
        |(code, number): (&String, &u64)| format!("{code}: {} ({})", count(*number), share(*number, total));
    let connections = &run.connections;
    let mut items = vec![];
    if total > 0 {
        items.push(format!("status codes: {}", run.status.iter().map(status).collect::<Vec<_>>().join(", ")));
    }
    items.push(format!(
        "connections: {} opened, {} requests on a reused connection, at most {} open at once, {} closed by the \
         server between requests (normal)",
        count(connections.opened),
        count(connections.reused),
        count(connections.peak),
        count(connections.quiet_closes)
    ));
    items.extend(phrases::extra_requests(run));
    items.extend(phrases::connect_peaks(run));
    items.push(format!("network: {}", phrases::network(run)));
    b.list(&items);
}
