//! A load test: how fast, how long answers took, what failed and why, and whether the figures may be believed.

use super::page::{ColumnAlign, TextPage};
use super::{ablation, histogram, pages};
use crate::human::{count, plural, share, time};
use crate::plain::shorten_middle;
use crate::{phrases, wording};
use webdyno_model::run::RunReport;
use webdyno_session::view::View;

/// More names or codes than this are summed up in a line.
const ROWS_MAX: usize = 20;

/// The whole report of a load test.
pub(super) fn write_run(page: &mut TextPage, view: &View, run: &RunReport) {
    page.heading(&format!("Load test: {}", phrases::run_headline(run)));
    conditions(page, run);
    rates(page, run);
    objectives(page, run);
    repeats(page, run);
    workers(page, run);
    ablation::write_ablation(page, run);
    latencies(page, run);
    histograms(page, view);
    pages::write_pages_by_name(page, run);
    write_requests_by_name(page, run);
    pages::write_waterfalls(page, run);
    failures(page, run);
    pages::visitors(page, run);
    write_responses_and_connections(page, run);
    write_validity(page, run);
}

/// What was sent, for how long, and (when it spoils the rest) that the figures are invalid.
pub(super) fn conditions(page: &mut TextPage, run: &RunReport) {
    if !run.client.valid {
        page.paragraph(&format!("{}.", phrases::generator(run)));
    }
    for line in run.workload.iter().flat_map(phrases::load) {
        page.paragraph(&line);
    }
    page.paragraph(&phrases::measured(run));
}

/// What came about in a second, and in all.
fn rates(page: &mut TextPage, run: &RunReport) {
    page.heading("Throughput");
    use ColumnAlign::{Number, Words};
    page.table(&[Words, Number, Number, Number], &phrases::rates(run));
    phrases::replay(run).iter().for_each(|text| page.paragraph(text));
}

fn objectives(page: &mut TextPage, run: &RunReport) {
    if run.objectives.is_empty() {
        return;
    }
    page.heading("Objectives");
    page.table(&[ColumnAlign::Words, ColumnAlign::Words, ColumnAlign::Words], &objective_rows(run));
    if let Some(short) = phrases::objectives_too_short(run) {
        page.paragraph(&short);
    }
}

/// Each objective, whether it is met, and the figure.
pub(super) fn objective_rows(run: &RunReport) -> Vec<Vec<String>> {
    let mut rows = vec![];
    for objective in &run.objectives {
        let verdict = if objective.met { "met" } else { "NOT met" };
        rows.push(vec![
            objective.slo.clone(),
            verdict.into(),
            match objective.value {
                Some(_) => format!("measured: {}", phrases::objective_value(objective)),
                None => phrases::objective_value(objective),
            },
        ]);
    }
    rows
}

/// The other runs of the same load, and how far they lie apart.
fn repeats(page: &mut TextPage, run: &RunReport) {
    let Some(repeats) = &run.repeats else { return };
    page.heading(&format!("{}: {}", phrases::repeats_headline(repeats), phrases::repeats_spread(repeats)));
    let table = phrases::repeats_table(repeats);
    let numbers = table.first().map_or(0, |titles| titles.len().saturating_sub(1));
    let columns: Vec<ColumnAlign> = std::iter::once(ColumnAlign::Words)
        .chain(std::iter::repeat_n(ColumnAlign::Number, numbers))
        .collect();
    page.table(&columns, &table);
    phrases::repeats_invalid(repeats).iter().for_each(|reported| page.paragraph(reported));
    page.paragraph(phrases::REPEATS_MEAN);
}

/// The machines that made the load.
fn workers(page: &mut TextPage, run: &RunReport) {
    let Some(table) = phrases::workers_table(run) else { return };
    page.heading("Workers");
    let numbers = table.first().map_or(0, |titles| titles.len().saturating_sub(2));
    let columns: Vec<ColumnAlign> = std::iter::once(ColumnAlign::Words)
        .chain(std::iter::repeat_n(ColumnAlign::Number, numbers))
        .chain([ColumnAlign::Words])
        .collect();
    page.table(&columns, &table);
    page.paragraph(phrases::WORKERS_MEAN);
}

/// The table of the five times; a heading alone where nothing was measured.
pub(super) fn latency_rows(run: &RunReport) -> Vec<Vec<String>> {
    let mut rows = vec![["", "p50", "p90", "p99", "p99.9", "max"].map(str::to_owned).to_vec()];
    let failed = Some(("failures", &run.failed_time_us));
    for (name, dist) in phrases::times_of(run).into_iter().chain(failed).filter(|(_, dist)| dist.count > 0) {
        rows.push(time_row(name, phrases::percentiles(run, name, dist), dist.max));
    }
    rows
}

/// The table of the five times, and what they mean.
pub(super) fn latencies(page: &mut TextPage, run: &RunReport) {
    page.heading("Latency");
    let rows = latency_rows(run);
    let times = phrases::times_of(run);
    let empty: Vec<_> = times.iter().filter(|(_, dist)| dist.count == 0).map(|(name, _)| *name).collect();
    if rows.len() > 1 {
        use ColumnAlign::{Number, Words};
        page.table(&[Words, Number, Number, Number, Number, Number], &rows);
    }
    if run.response_time_us.count == 0 {
        page.paragraph("No successful response, so there are no response times.");
        return;
    }
    page.paragraph("p99: 99% took at most this long.");
    if let Some(short) = phrases::too_short_note(run, &rows) {
        page.paragraph(&short);
    }
    if run.pages.is_some() {
        page.paragraph(phrases::PAGE_TIME_MEANS);
    }
    page.paragraph(phrases::TIMES_MEAN);
    if run.errors.timeout > 0 {
        let verb = if run.errors.timeout == 1 { "is" } else { "are" };
        page.paragraph(&format!(
            "{} {verb} included at the length of the timeout.",
            plural(run.errors.timeout, "timeout")
        ));
    }
    if !empty.is_empty() {
        page.paragraph(&format!("Not measured: {}.", empty.join(", ")));
    }
}

fn time_row(name: &str, percentiles: [String; 4], max: Option<u64>) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    row.extend(percentiles);
    row.push(time(max));
    row
}

fn histograms(page: &mut TextPage, view: &View) {
    let Some(load) = view.reported_load() else { return };
    histogram::write_histogram(page, "Page times", &load.page_time_cumulative);
    histogram::write_histogram(page, "Response times", &load.response_time_cumulative);
}

fn write_requests_by_name(page: &mut TextPage, run: &RunReport) {
    if run.requests_by_name.is_empty() {
        return;
    }
    page.heading("By request");
    let mut rows = vec![["request", "good", "failed", "p50", "p99"].map(str::to_owned).to_vec()];
    for (name, named) in phrases::requests_by_count(run).into_iter().take(ROWS_MAX) {
        let dist = &named.response_time_us;
        rows.push(vec![
            shorten_middle(name, pages::NAME_COLUMNS),
            count(named.completed),
            count(named.failed),
            time(dist.p50),
            time(dist.p99),
        ]);
    }
    use ColumnAlign::{Number, Words};
    page.table(&[Words, Number, Number, Number, Number], &rows);
    if let Some(more) = run.requests_by_name.len().checked_sub(ROWS_MAX).filter(|more| *more > 0) {
        page.paragraph(&format!("and {} more in the JSON", plural(more as u64, "request")));
    }
}

/// What failed, why that usually happens, and what to do.
pub(super) fn failures(page: &mut TextPage, run: &RunReport) {
    if run.errors.total() == 0 {
        return;
    }
    page.heading(&format!("What failed: {}", phrases::failures(run)));
    for (class, failed) in run.errors.named().into_iter().filter(|(_, failed)| *failed > 0) {
        let what = wording::error(class).map_or(class, |words| words.what);
        let codes = if class == "status" { phrases::error_statuses(run) } else { String::new() };
        page.item(&format!("{} x", count(failed)), &format!("{what} ({class}{codes})"));
        if let Some(words) = wording::error(class) {
            page.indented_item("Usual cause:", words.usually);
            page.indented_item("Remedy:", words.advice);
        }
    }
}

fn write_responses_and_connections(page: &mut TextPage, run: &RunReport) {
    page.heading("Responses and connections");
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
            "{} opened, {} on a reused connection, at most {} open at once",
            count(connections.opened),
            plural(connections.reused, "request"),
            count(connections.peak)
        ),
    );
    for peak in phrases::connect_peaks(run) {
        page.paragraph(&format!("{peak}."));
    }
    if connections.quiet_closes > 0 {
        let closed = plural(connections.quiet_closes, "kept connection");
        page.paragraph(&format!("{closed} closed by the server between requests (normal, not a failure)."));
    }
    for sentence in phrases::extra_requests(run) {
        page.paragraph(&format!("{sentence}."));
    }
    page.item("Network:", &phrases::network(run));
    if let Some(waiting) = phrases::in_flight(run) {
        page.item("At the end:", &format!("{waiting}."));
    }
}

fn write_validity(page: &mut TextPage, run: &RunReport) {
    page.heading("Validity");
    page.paragraph(&format!("{}.", phrases::generator(run)));
    phrases::generator_details(run).iter().for_each(|detail| page.item("-", detail));
    let delay = &run.client_delay_us;
    if let (Some(own), Some(all)) = (delay.p50, run.response_time_us.p50) {
        page.paragraph(&format!(
            "Added by the generator: {} of a response time of {} (medians).",
            time(Some(own)),
            time(Some(all))
        ));
    }
    if let Some(tail) = phrases::generator_tail_note(run) {
        page.paragraph(&format!("{tail}."));
    }
    if run.response_time_us.count > 0 {
        page.paragraph(&format!("{}.", phrases::clock(run)));
    }
}
