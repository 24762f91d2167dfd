//! A run: its cards, and everything besides: conditions, times, failures, answers, connections.

use super::markup::Markup;
use super::pages;
use super::parts::{self, ColumnAlign, list, table};
use crate::human::{count, rate_or_unknown, share, time};
use crate::{phrases, wording};
use webdyno_model::run::RunReport;

/// The cards of a run.
pub(super) fn write_cards(m: &mut Markup, run: &RunReport) {
    if let Some(of_pages) = pages::page_cards(run) {
        return parts::write_cards(m, &of_pages);
    }
    let ended = run.requests.completed + run.requests.failed;
    parts::write_cards(
        m,
        &[
            ("req/s", rate_or_unknown(run.rate)),
            ("failed", share(run.requests.failed, ended)),
            ("p50", time(run.response_time_us.p50)),
            ("p99", time(run.response_time_us.p99)),
        ],
    );
}

/// Everything about a run besides its cards: conditions, times, failures, answers, connections.
pub(super) fn write_details(m: &mut Markup, run: &RunReport) {
    let mut conditions: Vec<_> = run.workload.iter().flat_map(phrases::load).collect();
    conditions.extend([phrases::measured(run), phrases::generator(run)]);
    conditions.extend(phrases::generator_details(run));
    conditions.extend(phrases::generator_tail_note(run));
    if run.response_time_us.count > 0 {
        conditions.push(phrases::clock(run));
    }
    conditions.extend(phrases::in_flight(run));
    list(m, &conditions);
    rates(m, run);
    times(m, run);
    failures(m, run);
    pages::write_details(m, run);
    write_requests_by_name(m, run);
    write_responses(m, run);
}

/// What came about in a second, and in all.
fn rates(m: &mut Markup, run: &RunReport) {
    use ColumnAlign::{Number, Words};
    let columns = [("", Words), ("per second", Number), ("total", Number), ("", Number)];
    table(m, &columns, &phrases::rates(run));
}

fn times(m: &mut Markup, run: &RunReport) {
    use ColumnAlign::{Number, Words};
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
    let rows: Vec<_> = named
        .map(|(name, dist)| {
            let times = phrases::percentiles(run, name, dist).into_iter().chain([time(dist.max)]);
            [name.to_owned(), count(dist.count)].into_iter().chain(times).collect()
        })
        .collect();
    if !rows.is_empty() {
        table(m, &columns, &rows);
        if let Some(short) = phrases::too_short_note(run, &rows) {
            m.text_element("p", &short);
        }
        if run.pages.is_some() {
            m.text_element_with("p", &[("class", "quiet")], phrases::PAGE_TIME_MEANS);
        }
        m.text_element_with("p", &[("class", "quiet")], phrases::TIMES_MEAN);
    }
}

fn failures(m: &mut Markup, run: &RunReport) {
    if run.errors.total() == 0 {
        return;
    }
    m.text_element("h3", &format!("What failed: {}", phrases::failures(run)));
    let named = run.errors.named().into_iter().filter(|(_, failed)| *failed > 0);
    let rows: Vec<_> = named
        .map(|(class, failed)| {
            let words = wording::error(class);
            let part =
                |pick: fn(&wording::ErrorText) -> &'static str| words.as_ref().map_or("", pick).to_owned();
            vec![
                count(failed),
                format!("{} ({class})", part(|w| w.what)),
                part(|w| w.usually),
                part(|w| w.advice),
            ]
        })
        .collect();
    use ColumnAlign::{Number, Words};
    table(m, &[("requests", Number), ("what", Words), ("usual cause", Words), ("remedy", Words)], &rows);
}

fn write_requests_by_name(m: &mut Markup, run: &RunReport) {
    if run.requests_by_name.is_empty() {
        return;
    }
    let rows: Vec<_> = phrases::requests_by_count(run)
        .into_iter()
        .map(|(name, named)| {
            let dist = &named.response_time_us;
            vec![name.clone(), count(named.completed), count(named.failed), time(dist.p50), time(dist.p99)]
        })
        .collect();
    use ColumnAlign::{Code, Number};
    m.text_element("h3", "By request");
    table(
        m,
        &[("request", Code), ("good", Number), ("failed", Number), ("p50", Number), ("p99", Number)],
        &rows,
    );
}

fn write_responses(m: &mut Markup, run: &RunReport) {
    let total: u64 = run.status.values().sum();
    let statuses = run
        .status
        .iter()
        .map(|(code, number)| format!("{code}: {} ({})", count(*number), share(*number, total)));
    let connections = &run.connections;
    let mut items = vec![];
    if total > 0 {
        items.push(format!("status codes: {}", statuses.collect::<Vec<_>>().join(", ")));
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
    list(m, &items);
}
