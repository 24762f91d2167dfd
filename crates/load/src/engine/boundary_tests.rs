//! What is due just when an interval ends is sent then: neither a coarse timer nor the report stands in its way.

use super::Engine;
use super::simulation::*;
use crate::engine::control::Control;
use crate::plan::prepare;
use crate::plan::thread_share::ThreadShare;
use crate::results::recorder::Report;
use std::cell::Cell;
use webdyno_model::workload::Arrival;

const EACH_SECOND: Arrival = Arrival::Open { rate_per_s: 1.0, poisson: false };

#[test]
fn a_start_at_the_end_of_an_interval_is_woken_for_to_the_microsecond() {
    // epoll_wait(2) counts in milliseconds and is late by part of one.
    let mut sim = Sim::new(answering(MS));
    sim.coarse_ns = 900_000;
    let outcome = simulate_on(&workload(EACH_SECOND, 2, 4500), sim);
    let delay = outcome.merged(|interval| &interval.client_delay).dist();
    assert_eq!((delay.count, delay.max), (5, Some(0)));
}

#[test]
fn a_report_is_given_away_after_the_start_that_is_due_with_it() {
    let prepared = prepare(&workload(EACH_SECOND, 2, 3500)).unwrap();
    let sent = Cell::new(0);
    let server: Server<'_> = Box::new(|visit| match visit.request {
        0 => vec![(0, ServerAction::Accept)],
        _ => {
            sent.set(sent.get() + 1);
            vec![(MS, ServerAction::Send(OK.to_vec()))]
        }
    });
    let (mut started, mut sent_when_given) = (0, vec![]);
    let exchange = |full: Box<Report>| {
        started += full.started;
        sent_when_given.push((started, sent.get()));
        Some(Box::new(Report::new(&crate::results::recorder::Labels::default())))
    };
    let control = Control::new();
    let share = ThreadShare { thread: 0, threads: 1, unit: 1, budget: None };
    Engine::new(&prepared.plan, &control, &share, Sim::new(server), exchange).run();
    // The reports count the starts before their end; the one at their end is on its way when they are given.
    assert_eq!(sent_when_given, [(1, 2), (2, 3), (3, 4), (4, 4)]);
}
