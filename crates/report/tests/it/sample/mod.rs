//! Views made by hand: small ones for snapshots, one as large as a real session for a look at the HTML.
#![allow(dead_code)] // shared by the tests and the example

pub mod long;
pub mod pages;
mod server;
pub mod tuned;

pub use pages::{run_of_failed_pages, run_with_pages};
pub use server::{ceilings, diagnosis_exhausted, diagnosis_plain, exhausted, service};
pub use tuned::{
    interrupted, tune_applied, tune_braked, tune_kept, tune_planned, tune_proposed, tune_reverted,
};
use webdyno_model::distribution::Dist;
use webdyno_model::environment::Environment;
use webdyno_model::interval::{ConnectionCounts, ErrorCounts};
use webdyno_model::purpose::Purpose;
use webdyno_model::run::ObjectiveResult;
use webdyno_model::run::{
    ByteCounts, ClientReport, ClockReport, ConnectPeak, IntervalReport, RequestCounts, RunReport, TcpReport,
};
use webdyno_model::workload::{Clock, RequestSpec, Stop, Workload};
use webdyno_session::view::{LoadView, Outcome, SessionEnd, View};

pub fn view(command: &str, outcome: Outcome) -> View {
    View {
        command: command.into(),
        started_at: "2026-11-21T20:26:00Z".into(),
        webdyno_version: "0.1.0".into(),
        operator: Some("root (alice by sudo)".into()),
        directory: Some("/root/webdyno-runs/20261121T202600Z-tune".into()),
        outcome,
        reported_load: None,
        attempts: vec![],
        journal: None,
        other_journals: Default::default(),
        loads: vec![],
        heat_map: None,
        series: vec![],
        service: None,
        server: None,
        notes: vec![],
        end: SessionEnd::Done(0),
    }
}

pub fn machine() -> Environment {
    Environment {
        webdyno: "0.1.0".into(),
        os: Some("Debian GNU/Linux 12 (bookworm)".into()),
        kernel: Some("6.1.0-28-amd64".into()),
        file_call_us: None,
        path_part_us: None,
        cpu_model: Some("AMD EPYC 7B13".into()),
        cores: Some(2),
        memory_bytes: Some(4_000_000_000),
        syn_linear_timeouts: None,
        hostname: Some("w1".into()),
        clock_error_us: None,
    }
}

pub fn workload() -> Workload {
    Workload {
        requests: vec![RequestSpec {
            name: "/".into(),
            url: "http://127.0.0.1:8080/".into(),
            ..RequestSpec::default()
        }],
        stop: Stop { duration_us: Some(10_000_000), requests: None },
        ..Workload::default()
    }
}

/// A spread around a median as answers have it: the logistic distribution of the logarithm.
pub fn quantile_us(median_us: f64, quantile: f64) -> f64 {
    median_us * (0.25 * (quantile / (1.0 - quantile)).ln()).exp()
}

pub fn dist(count: u64, median_us: f64) -> Dist {
    let at = |quantile: f64| Some(quantile_us(median_us, quantile).round() as u64);
    Dist {
        count,
        min: at(0.0001),
        mean: Some(median_us * 1.04),
        stdev: Some(median_us * 0.4),
        p50: at(0.5),
        p75: at(0.75),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        max: at(0.9999),
    }
}

/// Ten seconds of good answers at a rate.
pub fn run(rate: f64, median_us: f64) -> RunReport {
    let completed = (rate * 10.0) as u64;
    RunReport {
        schema: webdyno_model::run::SCHEMA.into(),
        workload: Some(workload()),
        environment: machine(),
        elapsed_s: 10.0,
        warmup_s: 2.0,
        requests: RequestCounts { started: completed, completed, failed: 0, in_flight_at_end: 0 },
        rate: Some(rate),
        bytes: ByteCounts { received: completed * 12_345, sent: completed * 96 },
        status: [("200".to_owned(), completed)].into(),
        connections: ConnectionCounts {
            opened: 50,
            reused: completed,
            peak: 50,
            quiet_closes: 12,
            ..ConnectionCounts::default()
        },
        response_time_us: dist(completed, median_us),
        service_time_us: dist(completed, median_us * 0.99),
        connect_time_us: dist(50, 180.0),
        first_byte_us: dist(completed, median_us * 0.95),
        client_delay_us: dist(completed, 14.0),
        receive_delay_us: dist(completed / 12, 9.0),
        round_trip_us: dist(500, 130.0),
        tcp: TcpReport {
            readings: 500,
            segments_sent: Some(completed / 12),
            segments_retransmitted: Some(0),
            retransmitted_fraction: Some(0.0),
            round_trip_min_us: Some(96),
        },
        clock: ClockReport {
            ended_by: Some(Clock::Engine),
            connections_stamped: 4,
            answers_stamped: completed / 12,
            answers_without_stamp: 0,
        },
        client: ClientReport {
            cpu_s: Some(2.3),
            cpu_fraction_max_thread: Some(0.23),
            saturated: false,
            valid: true,
            ..ClientReport::default()
        },
        ..RunReport::default()
    }
}

fn objective(slo: &str, value: Option<f64>, met: bool) -> ObjectiveResult {
    ObjectiveResult { slo: slo.into(), value, met, ..ObjectiveResult::default() }
}

pub fn run_with_errors() -> View {
    let mut run = run(2190.4, 22_000.0);
    run.requests = RequestCounts { started: 22_036, completed: 21_904, failed: 120, in_flight_at_end: 12 };
    run.errors = ErrorCounts { connect_refused: 20, timeout: 3, status: 97, ..ErrorCounts::default() };
    run.status.insert("503".into(), 97);
    run.connect_peaks = vec![
        ConnectPeak { after_s: 1, lost_syns: 1, count: 37 },
        ConnectPeak { after_s: 3, lost_syns: 2, count: 1 },
    ];
    (run.tcp.segments_retransmitted, run.tcp.retransmitted_fraction) = (Some(9), Some(0.004_93));
    run.censored_time_us = dist(12, 900_000.0);
    run.failed_time_us = dist(117, 2_000.0);
    run.objectives = vec![
        objective("p99<200ms", Some(69_400.0), true),
        objective("errors<0.1%", Some(0.005_45), false),
        objective("rate>5000", None, false),
    ];
    let mut view = view("run", Outcome::Run(run.clone()));
    view.loads = vec![load(1, Purpose::Run, None, 0.0, run)];
    view.heat_map = long::heat_map(&view.loads);
    view.end = SessionEnd::Done(3);
    view
}

pub fn run_all_failed() -> View {
    let run = RunReport {
        workload: Some(workload()),
        elapsed_s: 0.4,
        requests: RequestCounts { started: 1000, completed: 0, failed: 1000, in_flight_at_end: 0 },
        rate: Some(0.0),
        errors: ErrorCounts { connect_refused: 1000, ..ErrorCounts::default() },
        failed_time_us: dist(1000, 90.0),
        client: ClientReport { valid: true, ..ClientReport::default() },
        ..RunReport::default()
    };
    view("run", Outcome::Run(run))
}

pub fn load(load: u32, purpose: Purpose, round: Option<u32>, begins_s: f64, report: RunReport) -> LoadView {
    let rate = report.rate.unwrap_or(0.0);
    let median = report.response_time_us.p50.unwrap_or(0) as f64;
    let intervals = (0..12)
        .map(|second| {
            let wave = 1.0 + 0.03 * (f64::from(second) * 1.7).sin();
            let warm = if second < 2 { 0.5 + 0.2 * f64::from(second) } else { wave };
            IntervalReport {
                t_s: f64::from(second),
                rate: rate * warm,
                page_rate: None,
                p50_us: Some(median as u64),
                p99_us: Some((median * 3.1) as u64),
                failed: if report.requests.failed > 0 { 10 } else { 0 },
                in_flight: 50,
            }
        })
        .collect();
    let points = (1..400).map(|step| f64::from(step) / 400.0).chain([0.999, 0.9999]);
    let mut cumulative: Vec<_> = points.map(|q| (quantile_us(median, q).round() as u64, q)).collect();
    if let Some(last) = cumulative.last_mut() {
        last.1 = 1.0;
    }
    LoadView {
        load,
        purpose,
        round,
        begins_s,
        measured_from_s: 2.0,
        intervals,
        page_time_cumulative: vec![],
        response_time_cumulative: if median > 0.0 { cumulative } else { vec![] },
        report,
    }
}

pub fn torn() -> View {
    let mut view = view("tune", Outcome::Nothing);
    view.loads = vec![load(1, Purpose::Baseline, None, 1.0, run(750.2, 66_000.0))];
    view.end = SessionEnd::Torn;
    view
}

/// Every kind of view with its name.
/// The published sweep of MaxClients, with intervals.
pub fn sweep() -> View {
    use webdyno_model::sweep::{Knob, SCHEMA, SweepPoint, SweepReport};
    let measured = [
        (100.0, 755.0),
        (125.0, 780.0),
        (150.0, 791.0),
        (175.0, 783.0),
        (200.0, 785.0),
        (225.0, 760.0),
        (250.0, 741.0),
    ];
    let point = |(value, rate): (f64, f64)| SweepPoint {
        value: Some(value),
        values: vec![webdyno_model::sweep::KnobValue::Number(value)],
        rate: Some(rate),
        ci95: Some([rate - 6.0, rate + 6.0]),
        p99_us: Some((value * 3000.0) as u64),
        errors: Some(0),
        memory_bytes: Some((value * 6e6) as u64),
        ..SweepPoint::default()
    };
    let points: Vec<SweepPoint> = measured.into_iter().map(point).collect();
    let found = webdyno_analysis::scaling::curve(&points);
    let report = SweepReport {
        schema: SCHEMA.into(),
        knob: "MaxRequestWorkers".into(),
        knobs: vec![Knob { name: "MaxRequestWorkers".into(), setting: None, unit: None }],
        points,
        plateau: found.plateau,
        choice: found.choice,
        unsure: found.unsure,
        usl: found.usl,
        notes: found.notes,
        environment: Some(machine()),
        ..SweepReport::default()
    };
    view("sweep", Outcome::Sweep(Box::new(report)))
}

pub fn all() -> Vec<(&'static str, View)> {
    vec![
        ("run_with_errors", run_with_errors()),
        ("run_all_failed", run_all_failed()),
        ("run_with_pages", run_with_pages()),
        ("run_of_failed_pages", run_of_failed_pages()),
        ("diagnosis_exhausted", diagnosis_exhausted()),
        (
            "diagnosis_healthy",
            diagnosis_plain("healthy", "The server answers all 120 requests a second; no limit was reached."),
        ),
        (
            "diagnosis_unknown",
            diagnosis_plain("unknown", "The rate stopped rising at 120/s and no rule explains it."),
        ),
        ("tune_applied", tune_applied()),
        ("tune_kept", tune_kept()),
        ("tune_planned", tune_planned()),
        ("tune_reverted", tune_reverted()),
        ("tune_proposed", tune_proposed()),
        ("interrupted", interrupted()),
        ("tune_braked", tune_braked()),
        ("torn", torn()),
        ("sweep", sweep()),
    ]
}
