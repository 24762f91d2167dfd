//! Puts the workers' seconds together: a second is given when every worker has sent its own, has ended, or is given up.

use super::part::{Part, Taken};
use super::{Action, Load, LoadOutcome, Stage};
use crate::merge::{Second, merge_ends, merge_second};
use crate::protocol::ReportKey;
use webdyno_model::Result;
use webdyno_model::interval::{EndReason, Interval, LoadEnd};

/// The seconds that are complete, in order, and the end.
pub(super) fn merge_complete_seconds(load: &mut Load, session: &str) -> Vec<Action> {
    let mut actions = vec![];
    while load.parts.iter().all(Part::has_next) {
        if load.parts.iter().all(Part::is_over) {
            load.stage = Stage::Over;
            for at in 0..load.parts.len() {
                let end_index = load.parts[at].end_index();
                let key = end_index.map(|index| key(load, session, (at, index)));
                // With the last second: what ends a load is in the log right behind it.
                load.unlogged.extend(key.map(|key| (load.next_second.saturating_sub(1), key)));
            }
            actions.push(match outcome(load) {
                Ok(outcome) => Action::Ended(Box::new(outcome)),
                Err(error) => Action::Failed(error),
            });
            return actions;
        }
        match next_second(load, session) {
            Ok(interval) => actions.push(Action::Interval(Box::new(interval))),
            Err(error) => {
                load.stage = Stage::Over;
                actions.push(Action::Failed(error));
                return actions;
            }
        }
    }
    actions
}

fn key(load: &Load, session: &str, (part, index): (usize, u64)) -> ReportKey {
    let worker = load.parts[part].worker.clone();
    ReportKey { session: session.to_owned(), load: load.order.load, worker, index }
}

fn next_second(load: &mut Load, session: &str) -> Result<Interval> {
    let second = load.next_second;
    let taken: Vec<Taken> = load.parts.iter_mut().map(Part::take).collect::<Result<_>>()?;
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
    Ok(merged)
}

fn outcome(load: &Load) -> Result<LoadOutcome> {
    let ends: Vec<&LoadEnd> = load.parts.iter().filter_map(Part::end).collect();
    // The reason of a worker that was stopped outweighs that of one that ran out of requests.
    let own = ends.iter().map(|end| end.reason).find(|reason| *reason != EndReason::Requests);
    let reason = load.stop.or(own).unwrap_or(EndReason::Requests);
    let lost_in_flight = load.parts.iter().map(Part::lost_in_flight).sum();
    let mut end = merge_ends(&ends, lost_in_flight, reason)?;
    end.elapsed_us =
        end.elapsed_us.max(load.parts.iter().map(|part| part.outcome(0).elapsed_us).max().unwrap_or(0));
    Ok(LoadOutcome { end, parts: load.parts.iter().map(|part| part.outcome(load.start_at_ns)).collect() })
}
