//! Diagnoses and the server that they are about.

use super::{load, machine, run, view};
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Ceiling, Diagnosis, Finding, NextLimit, Predicted, Remedy, TimeBreakdown};
use webdyno_model::fact::Fact;
use webdyno_model::purpose::Purpose;
use webdyno_model::run::RunReport;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::{ServiceSnapshot, SettingInForce, SettingValue};
use webdyno_model::setting::SettingId;
use webdyno_session::view::{Outcome, View};

pub fn fact(name: &str, value: f64, unit: &str, source: &str, reproduce: &str) -> Fact {
    Fact {
        name: name.into(),
        value,
        unit: unit.into(),
        from_s: 2.0,
        to_s: 12.0,
        source: source.into(),
        reproduce: reproduce.into(),
    }
}

pub fn exhausted() -> Finding {
    Finding {
        id: "apache-workers-exhausted".into(),
        summary: "All 20 workers of Apache are busy while 28.4 connections wait to be accepted: requests wait for a \
                  worker, not for the processor."
            .into(),
        confidence: 0.95,
        explains_fraction: Some(0.71),
        facts: vec![
            fact("busy_workers_mean", 20.0, "workers", "mod_status", "curl -s 'http://127.0.0.1:8080/server-status?auto' | grep Scoreboard"),
            fact("accept_queue_mean", 28.4, "connections", "sock_diag", "ss -ltn 'sport = :8080'"),
            fact("server_cpu_fraction", 0.34, "fraction", "/proc/stat", "vmstat 1 5"),
            fact("worker_time_mean_us", 26_300.0, "us", "mod_status", "curl -s 'http://127.0.0.1:8080/server-status?auto' | grep Duration"),
        ],
        remedies: vec![Remedy {
            setting: SettingId::of_service("apache", "MaxRequestWorkers"),
            from: Some(SettingValue::Integer(20)),
            to: Some(SettingValue::Integer(64)),
            class: ApplyClass::Restart,
            risk: "each worker needs about 6 MB; 64 fit into the free memory of 2.1 GB".into(),
            why: "50 requests are in flight at once; 1.3 times as many workers leave none waiting".into(),
            predicted: Some(Predicted { rate: 2100.0, ci95: [1800.0, 2300.0] }),
            together_with: vec![SettingChange { setting: SettingId::of_service("apache", "ServerLimit"), to: SettingValue::Integer(64) }],
        }],
    }
}

pub fn ceilings() -> Vec<Ceiling> {
    vec![
        Ceiling {
            is_remote: false,
            limit: "apache workers".into(),
            now: Some(20.0),
            max: Some(20.0),
            binds_at_rate: Some(750.0),
            binds_at_ci95: None,
            source: "MaxRequestWorkers".into(),
        },
        Ceiling {
            is_remote: false,
            limit: "accept queue".into(),
            now: Some(28.4),
            max: Some(511.0),
            binds_at_rate: None,
            binds_at_ci95: None,
            source: "ListenBacklog, net.core.somaxconn".into(),
        },
        Ceiling {
            is_remote: false,
            limit: "connection table (conntrack)".into(),
            now: Some(312.0),
            max: Some(65_536.0),
            binds_at_rate: Some(546.1),
            binds_at_ci95: None,
            source: "nf_conntrack_max / 120 s".into(),
        },
    ]
}

pub fn diagnosis(findings: Vec<Finding>, run: RunReport) -> Diagnosis {
    Diagnosis {
        schema: webdyno_model::diagnosis::SCHEMA.into(),
        bottleneck: findings.first().map(|finding| finding.id.clone()).unwrap_or_default(),
        findings,
        experiments: vec![],
        next_limit: None,
        ceilings: vec![],
        time_breakdown_us: TimeBreakdown::default(),
        processor_time: None,
        missing: vec![],
        run: Some(run),
        live_traffic: None,
        site: None,
        environment: machine(),
    }
}

pub fn diagnosis_exhausted() -> View {
    let run = run(750.2, 66_000.0);
    let also = Finding {
        id: "htaccess-lookups".into(),
        summary:
            "AllowOverride All is in force for /srv/www: every request looks for .htaccess in 3 directories."
                .into(),
        confidence: 0.6,
        ..Finding::default()
    };
    let mut diagnosis = diagnosis(vec![exhausted(), also], run.clone());
    diagnosis.next_limit = Some(NextLimit { id: "cpu-saturated".into(), rate: Some(2_230.0) });
    diagnosis.ceilings = ceilings();
    diagnosis.time_breakdown_us = TimeBreakdown {
        client: Some(14.0),
        connect: Some(0.8),
        accept_queue: Some(37_900.0),
        worker: Some(26_300.0),
        backend: None,
        network: None,
        unexplained: Some(4_400.0),
    };
    diagnosis.missing = vec![MissingSignal {
        signal: "mod_status durations".into(),
        why: "ExtendedStatus is Off".into(),
        how_to_enable: "set `ExtendedStatus On` in the Apache configuration and reload".into(),
    }];
    let mut view = view("diagnose", Outcome::Diagnosis(diagnosis));
    view.service = Some(service());
    view.server = Some(machine());
    view.loads = vec![load(1, Purpose::Diagnose, None, 1.0, run)];
    view.heat_map = super::long::heat_map(&view.loads);
    view.series = super::long::series(14.0);
    view
}

pub fn diagnosis_plain(id: &str, summary: &str) -> View {
    let finding = Finding {
        id: id.into(),
        summary: summary.into(),
        confidence: 0.9,
        facts: vec![fact(
            "good_rate",
            120.0,
            "req/s",
            "webdyno",
            "webdyno run http://127.0.0.1:8080/ -r 120",
        )],
        ..Finding::default()
    };
    view("diagnose", Outcome::Diagnosis(diagnosis(vec![finding], run(120.0, 1_200.0))))
}

pub fn service() -> ServiceSnapshot {
    let setting = |value: i64, line| SettingInForce {
        configured: Some(SettingValue::Integer(value)),
        default: None,
        running: None,
        file: Some("/tmp/quick/httpd.conf".into()),
        line: Some(line),
    };
    let default = SettingInForce { default: Some(SettingValue::Integer(511)), ..SettingInForce::default() };
    ServiceSnapshot {
        service: "apache".into(),
        pid: 4711,
        executable: Some("/usr/sbin/apache2".into()),
        version: Some("2.4.62".into()),
        port: 8080,
        mode: Some("prefork".into()),
        config_file: Some("/tmp/quick/httpd.conf".into()),
        status_url: Some("http://127.0.0.1:8080/server-status".into()),
        settings: [
            ("MaxRequestWorkers".to_owned(), setting(20, 12)),
            ("ServerLimit".to_owned(), setting(20, 11)),
            ("ListenBacklog".to_owned(), default),
        ]
        .into(),
        warnings: vec!["the error log is not readable: AH00161 cannot be seen".into()],
        ..ServiceSnapshot::default()
    }
}
