//! Visitors in the simulated world: page times against exact delays, connections, think times, counts.

use super::simulation::*;
use webdyno_model::visit::{PageSpec, Part, Resources, SessionSpec, StepSpec, Think, Visits};
use webdyno_model::workload::{Arrival, Workload};

/// A page whose document is request 0 and whose parts are all others, loaded by so many users.
fn page(parts: usize, users: u32, duration_ms: u64) -> Workload {
    let mut load = workload(Arrival::Closed, 1000, duration_ms);
    load.requests.extend((0..parts).map(|number| get(&format!("/{number}"))));
    let parts = (1..=parts).map(|request| Part { request, required: true }).collect();
    let page = PageSpec { resources: Resources::Listed(parts) };
    let step = StepSpec { page: Some(page), ..StepSpec::default() };
    let session = SessionSpec { name: "page".into(), weight: 1.0, steps: vec![step] };
    load.visits = Some(Box::new(Visits { sessions: vec![session], users, ..Visits::default() }));
    load
}

fn visits(load: &mut Workload) -> &mut Visits {
    load.visits.as_mut().unwrap()
}

/// Completed and failed pages, and those in flight at the end.
fn page_counts(outcome: &Outcome) -> (u64, u64, u64) {
    let pages = || outcome.intervals.iter().filter_map(|interval| interval.pages.as_deref());
    let sum = |of: fn(&webdyno_model::page::PageInterval) -> u64| pages().map(of).sum::<u64>();
    let in_flight = pages().last().map_or(0, |pages| pages.in_flight);
    assert_eq!(sum(|p| p.started), sum(|p| p.completed) + sum(|p| p.failed) + in_flight);
    (sum(|p| p.completed), sum(|p| p.failed), in_flight)
}

#[test]
fn a_page_is_its_document_and_then_its_parts_six_at_a_time() {
    // 0.1 ms to connect, 1 ms an answer: the document, then 19 parts in waves of six, of which five connect anew.
    let mut load = page(19, 1, 1000);
    visits(&mut load).think = Think::Fixed { time_us: 50_000 };
    let outcome = simulate(&load, answering(MS));
    let (completed, failed, _) = page_counts(&outcome);
    // One each 50 + 5.1 ms.
    assert_eq!((completed, failed), (19, 0));
    let time = outcome.merged(|interval| &interval.pages.as_ref().unwrap().time).dist();
    // The first part goes where the document came; it is that connection's fourth part that ends the page.
    assert_eq!((time.count, time.min, time.max), (19, Some(5100), Some(5100)));
    // Somebody new makes each session.
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 6 * 19);
    assert_eq!(outcome.sum(|interval| interval.visits.sessions_completed), 19);
}
