//! A run: its cards, and everything besides: conditions, times, failures, answers, connections.

use super::markup::Markup;
use super::pages;
use super::parts::{self, Column, list, table};
use crate::human::{count, rate_or_unknown, share, time};
use crate::{say, words};
use webdyno_model::run::RunReport;

/// The cards of a run.
pub(super) fn cards(m: &mut Markup, run: &RunReport) {
    if let Some(of_pages) = pages::cards(run) {
        return parts::cards(m, &of_pages);
    }
    let ended = run.requests.completed + run.requests.failed;
    parts::cards(
        m,
        &[
            ("good answers", rate_or_unknown(run.rate)),
            ("failed", share(run.requests.failed, ended)),
            ("half answered within", time(run.response_time_us.p50)),
            ("99% answered within", time(run.response_time_us.p99)),
        ],
    );
}

/// Everything about a run besides its cards: conditions, times, failures, answers, connections.
pub(super) fn details(m: &mut Markup, run: &RunReport) {
    let mut conditions: Vec<_> = run.workload.iter().flat_map(say::load).collect();
    conditions.extend([say::measured(run), say::generator(run)]);
    conditions.extend(say::generator_details(run));
    conditions.extend(say::own_tail(run));
    if run.response_time_us.count > 0 {
        conditions.push(say::clock(run));
    }
    conditions.extend(say::in_flight(run));
    list(m, &conditions);
    rates(m, run);
    times(m, run);
    failures(m, run);
    pages::details(m, run);
    by_name(m, run);
    answers(m, run);
}

/// What came about in a second, and in all.
fn rates(m: &mut Markup, run: &RunReport) {
    use Column::{Number, Words};
    let columns = [("", Words), ("a second", Number), ("in all", Number), ("", Number)];
    table(m, &columns, &say::rates(run));
}

fn times(m: &mut Markup, run: &RunReport) {
    use Column::{Number, Words};
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
    let named = say::times_of(run).into_iter().chain([failed]).filter(|(_, dist)| dist.count > 0);
    let rows: Vec<_> = named
        .map(|(name, dist)| {
            let times = say::percentiles(run, name, dist).into_iter().chain([time(dist.max)]);
            [name.to_owned(), count(dist.count)].into_iter().chain(times).collect()
        })
        .collect();
    if !rows.is_empty() {
        table(m, &columns, &rows);
        if let Some(short) = say::too_short(run, &rows) {
            m.leaf("p", &short);
        }
        if run.pages.is_some() {
            m.leaf_with("p", &[("class", "quiet")], say::PAGE_TIME_MEANS);
        }
        m.leaf_with("p", &[("class", "quiet")], say::TIMES_MEAN);
    }
}

fn failures(m: &mut Markup, run: &RunReport) {
    if run.errors.total() == 0 {
        return;
    }
    m.leaf("h3", &format!("What failed: {}", say::failures(run)));
    let named = run.errors.named().into_iter().filter(|(_, failed)| *failed > 0);
    let rows: Vec<_> = named
        .map(|(class, failed)| {
            let words = words::error(class);
            let part =
                |pick: fn(&words::ErrorWords) -> &'static str| words.as_ref().map_or("", pick).to_owned();
            vec![
                count(failed),
                format!("{} ({class})", part(|w| w.what)),
                part(|w| w.usually),
                part(|w| w.advice),
            ]
        })
        .collect();
    use Column::{Number, Words};
    table(
        m,
        &[("requests", Number), ("what", Words), ("usually because of", Words), ("what to do", Words)],
        &rows,
    );
}

fn by_name(m: &mut Markup, run: &RunReport) {
    if run.requests_by_name.is_empty() {
        return;
    }
    let rows: Vec<_> = say::requests_by_count(run)
        .into_iter()
        .map(|(name, named)| {
            let dist = &named.response_time_us;
            vec![name.clone(), count(named.completed), count(named.failed), time(dist.p50), time(dist.p99)]
        })
        .collect();
    use Column::{Code, Number};
    m.leaf("h3", "By request");
    table(
        m,
        &[("request", Code), ("good", Number), ("failed", Number), ("p50", Number), ("p99", Number)],
        &rows,
    );
}

fn answers(m: &mut Markup, run: &RunReport) {
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
        "connections: {} opened, {} requests on one that was used before, at most {} open at once, {} closed by the \
         server between requests (normal)",
        count(connections.opened),
        count(connections.reused),
        count(connections.peak),
        count(connections.quiet_closes)
    ));
    items.extend(say::sent_besides(run));
    items.extend(say::connect_peaks(run));
    items.push(format!("network: {}", say::network(run)));
    list(m, &items);
}
