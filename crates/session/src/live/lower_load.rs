//! Going on after a load that did harm: at half of it, when the server is quiet again.

use super::{LiveSession, LoadLength, Servers};
use webdyno_model::harm_guard::HarmGuardTrip;
use webdyno_model::number::significant;
use webdyno_model::workload::{Arrival, Workload};
use webdyno_model::{Result, UserError};

/// A load is halved so often at most: a sixteenth is another load, and what is measured at it is no answer.
pub const HALVINGS_COUNT_MAX: u32 = 4;

/// How long a server may take to be quiet again. Pages that went out to swap come back when they are needed, and a
/// service that lost processes starts new ones: both take seconds.
const QUIET_WAIT_US: u64 = 60_000_000;

/// How often it is asked whether it is.
pub(super) const CHECK_EVERY_S: f64 = 0.5;

/// Half of a load; `None` when there is no less of it. At a given rate the connections stay: they are only its bound.
pub fn half_load(workload: &Workload) -> Option<Workload> {
    let mut half = workload.clone();
    half.stages.iter_mut().for_each(|stage| stage.shape = stage.shape.scaled(0.5));
    match &mut half.arrival {
        Arrival::Closed => {
            let count = half.visits.as_mut().map_or(&mut half.connections, |visits| &mut visits.users);
            *count /= 2;
            (*count > 0).then_some(half)
        }
        Arrival::Open { rate_per_s, .. } => {
            *rate_per_s = significant(*rate_per_s / 2.0, 6);
            (*rate_per_s > 0.0).then_some(half)
        }
    }
}

/// What the log says of it.
pub fn lower_load_note(before: &Workload, half: &Workload, trip: &HarmGuardTrip) -> String {
    let amount = |workload: &Workload| match (&workload.arrival, &workload.visits) {
        (Arrival::Closed, None) => (f64::from(workload.connections), "connections"),
        (Arrival::Closed, Some(visits)) => (f64::from(visits.users), "users"),
        (Arrival::Open { rate_per_s, .. }, _) => (*rate_per_s, "req/s"),
    };
    let ((from, what), (to, _)) = (amount(before), amount(half));
    format!("the load was halved from {from} to {to} {what}: {}: {}", trip.cause.name(), trip.text)
}

/// The length of a load after so much time was spent on those before it: all of them together end as one would have, as
/// long as there is time to measure.
pub fn remaining_length(length: LoadLength, spent_us: u64) -> LoadLength {
    match length {
        LoadLength::Fixed { .. } => length,
        LoadLength::Settled { measure_s, at_most_s } => {
            let spent_s = u32::try_from(spent_us / 1_000_000).unwrap_or(u32::MAX);
            let floor_s = measure_s.min(at_most_s);
            LoadLength::Settled { measure_s, at_most_s: at_most_s.saturating_sub(spent_s).max(floor_s) }
        }
    }
}

/// Waits until the server is quiet again, a bounded time. Why it is not, if it is not by then.
pub fn wait_until_recovered(session: &mut LiveSession, servers: &mut Servers) -> Result<Option<String>> {
    let until_us = session.elapsed_us() + QUIET_WAIT_US;
    loop {
        session.observe_for(CHECK_EVERY_S, servers)?;
        let unrest = servers.front().agent().disturbance()?;
        if unrest.is_none() || session.elapsed_us() >= until_us {
            return Ok(unrest);
        }
    }
}

/// Nothing is loaded that still suffers from the load before.
pub fn not_recovered_error(why: &str) -> UserError {
    UserError::cannot_run(format!(
        "the server is not quiet {} s after a load that did harm: {why}",
        QUIET_WAIT_US / 1_000_000
    ))
    .hint("see what it is busy with (`vmstat 1`, `dmesg`), and load it with fewer connections (-c) or a lower rate (-r)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::harm_guard::HarmCause;
    use webdyno_model::number::Number;
    use webdyno_model::workload::visit::Visits;

    fn workload(arrival: Arrival, connections: u32) -> Workload {
        Workload { arrival, connections, timeout_us: 1, ..Workload::default() }
    }

    fn trip() -> HarmGuardTrip {
        HarmGuardTrip {
            cause: HarmCause::Swapping,
            metric: String::new(),
            value: Number(1.0),
            limit: Number(1.0),
            text: "memory is being swapped".into(),
        }
    }

    #[test]
    fn a_load_is_halved_down_to_one_connection() {
        let mut load = workload(Arrival::Closed, 450);
        let mut observed = vec![];
        while let Some(half) = half_load(&load) {
            observed.push(half.connections);
            load = half;
        }
        assert_eq!(observed, [225, 112, 56, 28, 14, 7, 3, 1]);
        let visits = |users| Visits { users, ..Default::default() };
        let of_users =
            |users| Workload { visits: Some(Box::new(visits(users))), ..workload(Arrival::Closed, 90) };
        assert_eq!(half_load(&of_users(45)), Some(of_users(22)));
        assert!(lower_load_note(&of_users(45), &of_users(22), &trip()).contains("from 45 to 22 users"));
        let open = |rate_per_s| workload(Arrival::Open { rate_per_s, poisson: true }, 200);
        assert_eq!(half_load(&open(75.0)), Some(open(37.5)));
    }

    #[test]
    fn the_note_names_both_loads_and_the_reason() {
        let load = workload(Arrival::Closed, 450);
        assert_eq!(
            lower_load_note(&load, &half_load(&load).unwrap(), &trip()),
            "the load was halved from 450 to 225 connections: swapping: memory is being swapped"
        );
        let load = workload(Arrival::Open { rate_per_s: 75.0, poisson: false }, 200);
        assert!(
            lower_load_note(&load, &half_load(&load).unwrap(), &trip()).contains("from 75 to 37.5 req/s")
        );
    }

    #[test]
    fn repeated_loads_take_the_time_of_one() {
        let length = |at_most_s| LoadLength::Settled { measure_s: 10, at_most_s };
        for (spent_s, at_most_s) in [(0, 34), (4, 30), (30, 10), (1000, 10)] {
            assert_eq!(remaining_length(length(34), spent_s * 1_000_000), length(at_most_s));
        }
        assert_eq!(remaining_length(length(3), 9_000_000), length(3));
    }
}
