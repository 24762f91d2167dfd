//! A load test: how fast, how long answers took, what failed and why, and whether the figures may be believed.

use super::page::{Column, Page};
use super::{ablation, histogram, pages};
use crate::human::{count, plural, share, time};
use crate::plain::shortened;
use crate::{say, words};
use webdyno_model::run::RunReport;
use webdyno_session::view::View;

/// More names or codes than this are summed up in a line.
const ROWS_MAX: usize = 20;

/// The whole report of a load test.
pub(super) fn whole(page: &mut Page, view: &View, run: &RunReport) {
    page.heading(&format!("Load test: {}", say::run_headline(run)));
    conditions(page, run);
    rates(page, run);
    objectives(page, run);
    repeats(page, run);
    ablation::whole(page, run);
    latencies(page, run);
    histograms(page, view);
    pages::by_name(page, run);
    by_name(page, run);
    pages::waterfalls(page, run);
    failures(page, run);
    pages::visitors(page, run);
    answers_and_connections(page, run);
    validity(page, run);
}

/// What was sent, for how long, and (when it spoils the rest) that the figures are invalid.
pub(super) fn conditions(page: &mut Page, run: &RunReport) {
    if !run.client.valid {
        page.para(&format!("{}.", say::generator(run)));
    }
    for line in run.workload.iter().flat_map(say::load) {
        page.para(&line);
    }
    page.para(&say::measured(run));
}

/// What came about in a second, and in all.
fn rates(page: &mut Page, run: &RunReport) {
    page.heading("How much");
    page.table(&[Column::Words, Column::Number, Column::Number, Column::Number], &say::rates(run));
}

fn objectives(page: &mut Page, run: &RunReport) {
    if run.objectives.is_empty() {
        return;
    }
    page.heading("Objectives");
    let mut rows = vec![];
    for objective in &run.objectives {
        let verdict = if objective.met { "met" } else { "NOT met" };
        rows.push(vec![
            objective.slo.clone(),
            verdict.into(),
            match objective.value {
                Some(_) => format!("measured: {}", say::objective_value(objective)),
                None => say::objective_value(objective),
            },
        ]);
    }
    page.table(&[Column::Words, Column::Words, Column::Words], &rows);
    if let Some(short) = say::objectives_too_short(run) {
        page.para(&short);
    }
}

/// The other runs of the same load, and how far they lie apart.
fn repeats(page: &mut Page, run: &RunReport) {
    let Some(repeats) = &run.repeats else { return };
    page.heading(&format!("{}: {}", say::repeats_headline(repeats), say::repeats_spread(repeats)));
    let table = say::repeats_table(repeats);
    let numbers = table.first().map_or(0, |titles| titles.len().saturating_sub(1));
    let columns: Vec<Column> =
        std::iter::once(Column::Words).chain(std::iter::repeat_n(Column::Number, numbers)).collect();
    page.table(&columns, &table);
    say::repeats_invalid(repeats).iter().for_each(|told| page.para(told));
    page.para(say::REPEATS_MEAN);
}

/// The table of the five times.
pub(super) fn latencies(page: &mut Page, run: &RunReport) {
    page.heading("How long it took");
    let head = ["", "p50", "p90", "p99", "p99.9", "max"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    let mut empty = vec![];
    for (name, dist) in say::times_of(run) {
        if dist.count == 0 {
            empty.push(name);
        } else {
            rows.push(time_row(name, say::percentiles(run, name, dist), dist.max));
        }
    }
    if run.failed_time_us.count > 0 {
        let failed = &run.failed_time_us;
        rows.push(time_row("failures", say::percentiles(run, "failures", failed), failed.max));
    }
    if rows.len() > 1 {
        use Column::{Number, Words};
        page.table(&[Words, Number, Number, Number, Number, Number], &rows);
    }
    if run.response_time_us.count == 0 {
        page.para("There was no good answer, so that there are no times of answers.");
        return;
    }
    page.para("p99: 99 of 100 took no longer than this; max: the longest one.");
    if let Some(short) = say::too_short(run, &rows) {
        page.para(&short);
    }
    if run.pages.is_some() {
        page.para(say::PAGE_TIME_MEANS);
    }
    page.para(say::TIMES_MEAN);
    if run.errors.timeout > 0 {
        let verb = if run.errors.timeout == 1 { "is" } else { "are" };
        page.para(&format!(
            "{} {verb} in it at the timeout's length.",
            plural(run.errors.timeout, "timeout")
        ));
    }
    if !empty.is_empty() {
        page.para(&format!("Nothing to measure in this part: {}.", empty.join(", ")));
    }
}

fn time_row(name: &str, percentiles: [String; 4], max: Option<u64>) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    row.extend(percentiles);
    row.push(time(max));
    row
}

fn histograms(page: &mut Page, view: &View) {
    let Some(load) = view.reported_load() else { return };
    histogram::draw(page, "Page times", &load.page_time_cumulative);
    histogram::draw(page, "Response times", &load.response_time_cumulative);
}

fn by_name(page: &mut Page, run: &RunReport) {
    if run.requests_by_name.is_empty() {
        return;
    }
    page.heading("By request");
    let mut rows = vec![["request", "good", "failed", "p50", "p99"].map(str::to_owned).to_vec()];
    for (name, named) in say::requests_by_count(run).into_iter().take(ROWS_MAX) {
        let dist = &named.response_time_us;
        rows.push(vec![
            shortened(name, pages::NAME_COLUMNS),
            count(named.completed),
            count(named.failed),
            time(dist.p50),
            time(dist.p99),
        ]);
    }
    page.table(&[Column::Words, Column::Number, Column::Number, Column::Number, Column::Number], &rows);
    if let Some(more) = run.requests_by_name.len().checked_sub(ROWS_MAX).filter(|more| *more > 0) {
        page.para(&format!("and {} more in the JSON", plural(more as u64, "request")));
    }
}

/// What failed, why that usually happens, and what to do.
pub(super) fn failures(page: &mut Page, run: &RunReport) {
    if run.errors.total() == 0 {
        return;
    }
    page.heading(&format!("What failed: {}", say::failures(run)));
    for (class, failed) in run.errors.named().into_iter().filter(|(_, failed)| *failed > 0) {
        let what = words::error(class).map_or(class, |words| words.what);
        let codes = if class == "status" { say::error_statuses(run) } else { String::new() };
        page.item(&format!("{} x", count(failed)), &format!("{what} ({class}{codes})"));
        if let Some(words) = words::error(class) {
            page.inner_item("Usually:", words.usually);
            page.inner_item("To do:", words.advice);
        }
    }
}

fn answers_and_connections(page: &mut Page, run: &RunReport) {
    page.heading("Answers and connections");
    if !run.status.is_empty() {
        let answers: u64 = run.status.values().sum();
        let list: Vec<_> = run
            .status
            .iter()
            .take(ROWS_MAX)
            .map(|(status, number)| format!("{status}: {} ({})", count(*number), share(*number, answers)))
            .collect();
        page.item("Status codes:", &list.join(", "));
    }
    let connections = &run.connections;
    page.item(
        "Connections:",
        &format!(
            "{} opened, {} sent on one that was used before, at most {} open at once",
            count(connections.opened),
            plural(connections.reused, "request"),
            count(connections.peak)
        ),
    );
    for peak in say::connect_peaks(run) {
        page.para(&format!("{peak}."));
    }
    if connections.quiet_closes > 0 {
        let closed = plural(connections.quiet_closes, "kept connection");
        page.para(&format!(
            "{closed} closed by the server with no answer begun: normal between requests, and not a failure."
        ));
    }
    for sentence in say::sent_besides(run) {
        page.para(&format!("{sentence}."));
    }
    page.item("Network:", &say::network(run));
    if let Some(waiting) = say::in_flight(run) {
        page.item("At the end:", &format!("{waiting}."));
    }
}

fn validity(page: &mut Page, run: &RunReport) {
    page.heading("Can the figures be believed?");
    page.para(&format!("{}.", say::generator(run)));
    say::generator_details(run).iter().for_each(|detail| page.item("-", detail));
    let delay = &run.client_delay_us;
    if let (Some(own), Some(all)) = (delay.p50, run.response_time_us.p50) {
        page.para(&format!(
            "It added {} to a response time of {} (medians).",
            time(Some(own)),
            time(Some(all))
        ));
    }
    if let Some(tail) = say::own_tail(run) {
        page.para(&format!("{tail}."));
    }
    if run.response_time_us.count > 0 {
        page.para(&format!("{}.", say::clock(run)));
    }
}
