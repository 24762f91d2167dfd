//! A load of pages by users who think, with everything that can be told of it.

use super::{dist, load, quantile_us, run, view};
use webdyno_model::client::UsersReport;
use webdyno_model::distribution::PercentileNeed;
use webdyno_model::interval::ErrorCounts;
use webdyno_model::page::{
    FetchedBy, NamedPageReport, PageReport, PageTrace, PartTrace, TraceKind, VisitCounts,
};
use webdyno_model::purpose::Purpose;
use webdyno_model::run::NamedReport;
use webdyno_model::workload::visit::{PageSpec, SessionSpec, StepSpec, Think, Visits};
use webdyno_model::workload::{RequestSpec, Workload};
use webdyno_session::view::{Outcome, View};

const NAMES: [&str; 3] = ["/", "/shop", "login"];

fn workload() -> Workload {
    let request = |name: &&str| RequestSpec {
        name: (*name).into(),
        url: format!("http://127.0.0.1:8080/{}", name.trim_start_matches('/')),
        ..RequestSpec::default()
    };
    let page = |request| StepSpec { request, page: Some(PageSpec::default()), ..StepSpec::default() };
    let login = StepSpec { request: 2, think: Some(Think::None), ..StepSpec::default() };
    let session = |name: &str, weight, steps| SessionSpec { name: name.into(), weight, steps };
    let sessions = vec![
        session("look", 3.0, vec![page(0), page(1)]),
        session("buy", 1.0, vec![page(0), login, page(1)]),
    ];
    let think = Think::Uniform { min_us: 1_000_000, max_us: 3_000_000 };
    let visits =
        Visits { sessions, users: 400, think, cache: true, returning_fraction: 0.3, ..Visits::default() };
    Workload {
        requests: NAMES.iter().map(request).collect(),
        connections: 2400,
        visits: Some(Box::new(visits)),
        ..super::workload()
    }
}

/// A page of so many parts: the style sheets first, which name the images.
pub fn trace(kind: TraceKind, name: &str, parts: u64, unit_us: u64) -> PageTrace {
    let document = PartTrace {
        name: name.into(),
        known_us: 0,
        sent_us: Some(unit_us / 10),
        first_byte_us: Some(4 * unit_us),
        ended_us: 5 * unit_us,
        status: Some(200),
        bytes: 18_400,
        by: FetchedBy::NewConnection,
        failure: None,
    };
    let part = |number: u64| {
        let (row, column) = ((number - 1) / 6, (number - 1) % 6);
        let known_us = if number < 7 { 5 * unit_us } else { 8 * unit_us };
        let sent_us = known_us.max(5 * unit_us + row * 3 * unit_us) + column * unit_us / 20;
        let (first_byte_us, ended_us) = (sent_us + unit_us, sent_us + 2 * unit_us + number * unit_us / 40);
        let ending = if number < 3 { "css" } else { "jpg" };
        PartTrace {
            name: format!("/static/{ending}/article-{number}.{ending}"),
            known_us,
            sent_us: Some(sent_us),
            first_byte_us: Some(first_byte_us),
            ended_us,
            status: Some(200),
            bytes: 4_000 + number * 997,
            by: if number < 6 { FetchedBy::NewConnection } else { FetchedBy::KeptConnection },
            failure: None,
        }
    };
    let mut parts: Vec<PartTrace> = std::iter::once(document).chain((1..parts).map(part)).collect();
    if let Some(cached) = parts.get_mut(4) {
        (cached.by, cached.sent_us, cached.first_byte_us) = (FetchedBy::Cache, None, None);
        (cached.ended_us, cached.bytes) = (cached.known_us, 0);
    }
    let time_us = parts.iter().map(|part| part.ended_us).max().unwrap_or(0);
    PageTrace { kind, name: name.into(), time_us, failed: false, parts }
}

fn pages() -> PageReport {
    let named = |completed, failed, median_us| NamedPageReport {
        completed,
        failed,
        rate: Some(completed as f64 / 10.0),
        time_us: dist(completed, median_us),
    };
    let mut slowest = trace(TraceKind::Slowest, "/shop", 45, 90_000);
    slowest.failed = true;
    let broken = &mut slowest.parts[40];
    (broken.status, broken.failure) = (Some(503), Some("status".into()));
    let late = &mut slowest.parts[44];
    (late.status, late.first_byte_us, late.failure) = (None, None, Some("timeout".into()));
    let need = PercentileNeed { count: 10_000, seconds: 3, elapsed_s: 57.0 };
    PageReport {
        started: 1_799,
        completed: 1_760,
        failed: 9,
        in_flight_at_end: 30,
        rate: Some(176.0),
        time_us: dist(1_760, 212_000.0),
        unsupported_percentiles: vec!["p999".into()],
        percentiles_need: [("p999".to_owned(), need)].into(),
        by_name: [("/".to_owned(), named(900, 1, 180_000.0)), ("/shop".to_owned(), named(860, 8, 250_000.0))]
            .into(),
        median_page: Some(trace(TraceKind::Typical, "/", 20, 14_000)),
        slowest_page: Some(slowest),
    }
}

fn visits() -> VisitCounts {
    VisitCounts {
        sessions_started: 820,
        sessions_completed: 790,
        sessions_broken: 4,
        steps_skipped: 4,
        links_not_loaded: [].into(),
        captures_missed: [("login: csrf".to_owned(), 4)].into(),
        cache_hits: 3_120,
        cache_confirmed: 240,
        visitors: 400,
    }
}

/// Users who look at pages.
pub fn run_with_pages() -> View {
    let mut run = run(2_812.0, 21_000.0);
    run.workload = Some(workload());
    run.warmup_why = Some("users came one by one".into());
    run.ramp_down_s = 3.0;
    (run.requests.failed, run.requests.in_flight_at_end) = (9, 61);
    run.requests.started += 70;
    run.errors = ErrorCounts { timeout: 1, status: 8, ..ErrorCounts::default() };
    run.status.insert("503".into(), 8);
    run.failed_time_us = dist(8, 9_000.0);
    run.pages = Some(pages());
    run.visits = Some(visits());
    let named = |completed, failed, median_us| NamedReport {
        completed,
        failed,
        response_time_us: dist(completed, median_us),
    };
    run.requests_by_name = [
        ("/".to_owned(), named(900, 0, 60_000.0)),
        ("/shop".to_owned(), named(868, 0, 70_000.0)),
        ("/static/css/a-name-that-is-longer-than-its-column-can-be.css".to_owned(), named(9_000, 8, 9_000.0)),
        ("login".to_owned(), named(205, 0, 30_000.0)),
    ]
    .into();
    run.client.users =
        Some(UsersReport { mean: 400.0, by_law: 397.2, response_us: 229_000.0, think_us: 1_800_000.0 });
    let mut view = view("run", Outcome::Run(run.clone()));
    let mut load = load(1, Purpose::Run, None, 0.0, run);
    load.intervals.iter_mut().for_each(|interval| interval.page_rate = Some(interval.rate / 16.0));
    let points = (1..400).map(|step| f64::from(step) / 400.0).chain([0.999]);
    load.page_time_cumulative =
        points.map(|q| (quantile_us(212_000.0, q).round() as u64, if q > 0.998 { 1.0 } else { q })).collect();
    view.loads = vec![load];
    view
}

/// One page, and nothing that came whole.
pub fn run_of_failed_pages() -> View {
    let View { outcome, .. } = run_with_pages();
    let Outcome::Run(mut run) = outcome else { return run_with_pages() };
    let failed = PageReport { started: 12, failed: 12, rate: Some(0.0), ..PageReport::default() };
    run.pages = Some(failed);
    view("run", Outcome::Run(run))
}
