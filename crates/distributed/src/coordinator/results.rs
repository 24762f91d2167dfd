//! Puts the workers' seconds together: a second is given when every worker has sent its own, has ended, or is given up.

use super::part::{Part, Taken};
use super::{Action, Load, LoadOutcome, Stage};
use crate::merge::{Second, merge_ends, merge_second};
use crate::protocol::ReportKey;
use webdyno_model::Result;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{EndReason, Interval, LoadEnd};
use webdyno_model::worker::WorkerPart;

/// What is known of each worker goes into the log every so many seconds: what came since then is kept by the stream, or a load whose
/// coordinator dies would have no sums of its workers.
const PARTS_EVERY_S: u64 = 10;

/// The seconds that are complete, in order, and the end.
pub(super) fn merge_complete_seconds(load: &mut Load, session: &str) -> Vec<Action> {
    let mut actions = vec![];
    while load.parts.iter().all(|part| part.has(load.next_second)) {
        if load.parts.iter().all(Part::is_over) {
            load.stage = Stage::Over;
            for at in 0..load.parts.len() {
                let end_index = load.parts[at].end_index();
                let key = end_index.map(|index| key(load, session, (at, index)));
                // Behind all seconds: the end of the load is in the log by then.
                load.unlogged.extend(key.map(|key| (u64::MAX - 1, key)));
            }
            actions.push(match outcome(load) {
                Ok(outcome) => Action::Ended(Box::new(outcome)),
                Err(error) => Action::Failed(error),
            });
            return actions;
        }
        match next_second(load, session) {
            // The one before may have written it.
            Ok(interval) if load.next_second > load.logged_before => {
                actions.push(Action::Interval(Box::new(interval)));
            }
            Ok(_) => {}
            Err(error) => {
                load.stage = Stage::Over;
                actions.push(Action::Failed(error));
                return actions;
            }
        }
        if load.next_second.is_multiple_of(PARTS_EVERY_S) {
            actions.push(Action::Parts(parts(load)));
        }
    }
    actions
}

/// What each worker came to by now.
pub(super) fn parts(load: &Load) -> Vec<WorkerPart> {
    load.parts.iter().map(|part| part.outcome(load.start_at_ns)).collect()
}

fn key(load: &Load, session: &str, (part, index): (usize, u64)) -> ReportKey {
    let worker = load.parts[part].worker.clone();
    ReportKey { session: session.to_owned(), load: load.order.load, worker, index }
}

fn next_second(load: &mut Load, session: &str) -> Result<Interval> {
    let second = load.next_second;
    let mut response_time = TimeHistogram::new();
    let take = |part: &mut Part| part.take(second, &mut response_time);
    let taken: Vec<Taken> = load.parts.iter_mut().map(take).collect::<Result<_>>()?;
    for (at, taken) in taken.iter().enumerate() {
        if matches!(taken, Taken::Interval(_)) {
            let key = key(load, session, (at, second));
            load.unlogged.push_back((second, key));
        }
    }
    load.next_second += 1;
    let inputs: Vec<(Second<'_>, u32)> = taken
        .iter()
        .zip(&load.parts)
        .map(|(taken, part)| {
            let second = match taken {
                Taken::Interval(interval) => Second::Interval(interval),
                Taken::Over { in_flight, pages_in_flight, visitors } => Second::Over {
                    in_flight: *in_flight,
                    pages_in_flight: *pages_in_flight,
                    visitors: *visitors,
                },
            };
            (second, part.share.threads)
        })
        .collect();
    let mut merged = merge_second(&inputs)?;
    merged.t_s = second as f64;
    merged.response_time = response_time.encode();
    Ok(merged)
}

fn outcome(load: &Load) -> Result<LoadOutcome> {
    let ends: Vec<&LoadEnd> = load.parts.iter().filter_map(Part::end).collect();
    // The reason of a worker that was stopped outweighs that of one that ran out of requests.
    // Why a lost one stopped is no reason of the load's.
    let kept = load.parts.iter().filter(|part| part.lost_since_ns.is_none()).filter_map(Part::end);
    let own = kept.map(|end| end.reason).find(|reason| *reason != EndReason::Requests);
    let all_lost = load.parts.iter().all(|part| part.lost_since_ns.is_some());
    let otherwise = if all_lost { EndReason::WorkerLost } else { EndReason::Requests };
    let reason = load.stop.or(own).unwrap_or(otherwise);
    let lost_in_flight = load.parts.iter().map(Part::lost_in_flight).sum();
    let mut end = merge_ends(&ends, lost_in_flight, reason)?;
    end.elapsed_us = end.elapsed_us.max(load.parts.iter().map(Part::elapsed_us).max().unwrap_or(0));
    Ok(LoadOutcome { end, parts: parts(load) })
}
