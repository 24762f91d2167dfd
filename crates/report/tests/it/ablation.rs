//! Pages with their resources and without, made in turns: what the report is of, and what it compares.

use crate::exports::{load, recording, second};
use webdyno_model::interval::{EndReason, Interval};
use webdyno_model::page::PageInterval;
use webdyno_model::purpose::Purpose;
use webdyno_report::{ResultPaths, Table, csv, html, json, text};
use webdyno_session::recording::LoadRecord;
use webdyno_session::view::{Outcome, View};

/// Six seconds of so many pages, each of so many requests.
fn pages(number: u32, purpose: Purpose, pages: u64, requests: u64) -> LoadRecord {
    let second = |t_s: u32| -> Interval {
        let times = vec![20_000 + u64::from(t_s); (pages * requests) as usize];
        let page = PageInterval {
            started: pages,
            completed: pages,
            time: second(t_s, &vec![50_000 * requests + u64::from(t_s); pages as usize]).response_time,
            ..PageInterval::default()
        };
        let started = times.len() as u64;
        let in_flight_us = started * 20_000;
        Interval {
            started,
            failed: 0,
            in_flight: 0,
            in_flight_us,
            pages: Some(Box::new(page)),
            ..second(t_s, &times)
        }
    };
    LoadRecord { purpose, ..load(number, crate::sample::workload(), (0..7).map(second).collect()) }
}

#[test]
fn the_report_is_of_the_pages_as_they_are() {
    let with = |number, count| pages(number, Purpose::Run, count, 10);
    let without = |number, count| pages(number, Purpose::WithoutResources, count, 1);
    let view = |loads| View::of(&recording(loads)).unwrap();
    let of = |view: &View| match &view.outcome {
        Outcome::Run(run) => {
            (view.reported_load, run.repeats.is_some(), run.ablation.as_ref().map(|both| both.runs))
        }
        _ => panic!(),
    };
    assert_eq!(of(&view(vec![with(1, 20)])), (Some(1), false, None));
    assert_eq!(of(&view(vec![with(1, 20), without(2, 80)])), (Some(1), false, Some(1)));
    let turns = vec![with(1, 20), without(2, 80), with(3, 22), without(4, 90)];
    assert_eq!(of(&view(turns)), (Some(1), true, Some(2)), "the lower one of two");
    let mut interrupted = without(2, 80);
    if let Some((end, _)) = &mut interrupted.end {
        end.reason = EndReason::Interrupted;
    }
    assert_eq!(of(&view(vec![with(1, 20), interrupted])), (Some(1), false, None));
}

#[test]
fn both_loads_stand_side_by_side() {
    let loads = vec![pages(1, Purpose::Run, 20, 10), pages(2, Purpose::WithoutResources, 80, 1)];
    let recording = recording(loads);
    let view = View::of(&recording).unwrap();
    let text = text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL);
    assert!(text.contains("Without resources: 80 pages/s, with them 20 pages/s: 4.0 times"), "{text}");
    let section = text.split("Without resources").nth(1).unwrap();
    assert!(section.contains("page time, p50") && section.contains("requests/s"), "{section}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let page = html(&view);
    assert!(
        page.contains("Without resources: 80 pages/s") && page.contains("connections opened/s"),
        "{page}"
    );
    let json = json(&view).unwrap();
    assert!(json.contains("\"without\": \"resources\"") && json.contains("\"means\":"), "{json}");
    let seconds = csv(&recording, Table::Seconds).unwrap();
    assert_eq!(seconds.matches(",without_resources,").count(), 7, "{seconds}");
}
