//! Whether the processors that a service may use are what limits it, and what a request costs it.
//!
//! A machine's own figures tell of neighbours, too: where the service lives in a control group or on some of the cores,
//! those of its group come first.

use crate::facts::{FactId, Facts};
use crate::resources::processors;
use crate::resources::syscall_cost::scaled_to_machine_us;

/// Somebody of the group waited for a processor this share of the time: there is no room.
const GROUP_WAITS_MIN: f64 = 0.5;
/// Processors of a machine that are busier have no room.
const BUSY_MIN: f64 = 0.95;
/// A core that is busier may be the one that the service waits for.
const CORE_BUSY_MAX: f64 = 0.85;
/// The service's own share of its processors from which it is the one that needs them.
const OWN_MIN: f64 = 0.4;
/// The same with all that stands behind it.
const ALL_MIN: f64 = 0.8;

/// Cores that a service may use are idle for a good part of the time, if they are no busier than this: tasks that are woken together
/// wait for each other, whatever limits.
const IDLE_BUSY_MAX: f64 = 0.75;

/// What an answer of a file costs Apache, at most, in processor time: 15 to 40 us were seen under full load on cores of
/// today, 100 to 180 us where each request wakes a sleeping one up, and cores of ten years ago are half as fast.
const FILE_US: f64 = 150.0;
/// The same on a machine whose calls into the kernel are slow: 190 us were seen where they took 3.7 times as long as on a good one.
const FILE_SCALED_US: f64 = 70.0;
/// A connection of its own, at most; 90 us were seen on that machine.
const CONNECTION_US: f64 = 100.0;
const CONNECTION_SCALED_US: f64 = 40.0;
/// A byte: read or mapped, and copied to the socket.
const BYTE_US: f64 = 0.001;
/// A byte that came compressed, with those that were compressed to it.
const COMPRESSED_BYTE_US: f64 = 0.1;

/// The work of a service whose processors are its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequestCost {
    /// Cores' worth of processor time that its own processes take.
    pub cores: f64,
    /// Processor time of its own processes for each request.
    pub request_us: f64,
    /// The most that a request would cost if a file of the same size were sent.
    pub file_us: f64,
    /// Whether it is known whose time it is: processes of others cannot be seen everywhere, and then it is all that the
    /// machine did.
    pub is_observed: bool,
}

/// What rests on all that a machine did, whoever did it, is no more than a suspicion.
pub const CONFIDENCE_MAX_UNSEEN: f64 = 0.5;

impl RequestCost {
    /// The share of the service's work that this many microseconds for each request are.
    pub fn share(&self, us: f64) -> f64 {
        (us / self.request_us).clamp(0.0, 1.0)
    }

    /// How sure a finding may be that would be this sure if it is known whose time it is.
    pub fn scaled_confidence(&self, confidence: f64) -> f64 {
        if self.is_observed { confidence } else { confidence.min(CONFIDENCE_MAX_UNSEEN) }
    }

    /// The share of a request's cost that sending a file does not explain.
    pub fn excess(&self) -> f64 {
        (1.0 - self.file_us / self.request_us).max(0.0)
    }
}

/// The service's work, if the processors that it may use are full, and mostly with that; `None` when they are not, or when
/// that cannot be told.
pub fn request_cost(facts: &Facts) -> Option<RequestCost> {
    let Some(cores) = facts.value(FactId::service_cpu_cores) else {
        return machine_request_cost(facts);
    };
    let request_us = facts.value(FactId::cpu_per_request_us).filter(|us| *us > 0.0)?;
    cost_of_full(facts, cores, request_us, OWN_MIN)
}

/// The same of the service with what stands behind it, where they fill the processors together and its own part is small: what it need
/// not do is missing behind it.
pub fn request_cost_with_backends(facts: &Facts) -> Option<RequestCost> {
    request_cost(facts).or_else(|| {
        let cores = processors::own_cores(facts)?;
        cost_of_full(facts, cores, cores / facts.ended_per_s()? * 1e6, ALL_MIN)
    })
}

fn cost_of_full(facts: &Facts, cores: f64, request_us: f64, own_min: f64) -> Option<RequestCost> {
    let limits = [FactId::service_cores_limit, FactId::usable_cores, FactId::cores];
    let cores_limit = limits.into_iter().filter_map(|name| facts.value(name)).reduce(f64::min)?;
    let waits = group_waits(facts) == Some(true);
    // One process on a core of its own waits for nobody.
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction));
    let busy = busy.is_some_and(|busy| busy >= BUSY_MIN);
    let own = cores / cores_limit;
    let full = own >= BUSY_MIN || ((waits || busy) && own >= own_min);
    full.then(|| RequestCost { cores, request_us, file_us: file_us(facts), is_observed: true })
}

/// Where the service's own time cannot be read: all that the machine did, if one of its cores is full, which may be the
/// one that the service runs on.
fn machine_request_cost(facts: &Facts) -> Option<RequestCost> {
    let cores = facts.value(FactId::cpu_busy_fraction)? * facts.value(FactId::cores)?;
    let fullest = facts.value(FactId::core_busy_fraction).or(facts.value(FactId::cpu_busy_fraction))?;
    let rate =
        facts.ended_per_s().or(facts.value(FactId::server_requests_per_s)).filter(|rate| *rate >= 5.0)?;
    let request_us = cores / rate * 1e6;
    let is_full = fullest >= BUSY_MIN;
    is_full.then(|| RequestCost { cores, request_us, file_us: file_us(facts), is_observed: false })
}

/// Whether the processors that a service may use have room, as far as that can be seen: its group does not wait for one, or
/// no core of the machine is nearly full.
pub fn has_room(facts: &Facts) -> Option<bool> {
    let waits = group_waits(facts).map(|waits| !waits);
    let cores = || facts.value(FactId::core_busy_fraction).or(facts.value(FactId::cpu_busy_fraction));
    waits.or_else(|| cores().map(|busy| busy < CORE_BUSY_MAX))
}

/// Whether somebody of the service's group waits for a processor most of the time, because there is none. What a quota holds back
/// waits beside cores that are idle.
fn group_waits(facts: &Facts) -> Option<bool> {
    let some = facts.value(FactId::pressure_group_cpu_some_fraction)?;
    let limit = facts.value(FactId::service_cores_limit);
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores));
    let is_held_back = limit.zip(usable).is_some_and(|(limit, usable)| limit < usable);
    let has_idle_cores = facts.value(FactId::usable_busy_fraction).is_some_and(|busy| busy <= IDLE_BUSY_MAX);
    Some(some >= GROUP_WAITS_MIN && (is_held_back || !has_idle_cores))
}

fn file_us(facts: &Facts) -> f64 {
    let compressed = facts.request_targets.iter().any(|requested| requested.compressed);
    file_us_with(facts, if compressed { COMPRESSED_BYTE_US } else { BYTE_US })
}

/// The most that a request would cost if the file were sent as it is.
pub fn plain_file_us(facts: &Facts) -> f64 {
    file_us_with(facts, BYTE_US)
}

fn file_us_with(facts: &Facts, byte_us: f64) -> f64 {
    let opened = crate::resources::site_profile::reused(facts).map_or(1.0, |reused| 1.0 - reused);
    let file_us = FILE_US.max(scaled_to_machine_us(facts, FILE_SCALED_US)) + connection_us(facts) * opened;
    file_us + byte_us * facts.value(FactId::answer_bytes_mean).unwrap_or(0.0)
}

/// What a connection of its own costs Apache, at most, in processor time.
pub fn connection_us(facts: &Facts) -> f64 {
    CONNECTION_US.max(scaled_to_machine_us(facts, CONNECTION_SCALED_US))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool};

    #[test]
    fn room_is_seen_by_the_group_or_by_cores() {
        for (values, room) in [
            (
                &[(FactId::pressure_group_cpu_some_fraction, 0.1), (FactId::core_busy_fraction, 1.0)][..],
                Some(true),
            ),
            (&[(FactId::pressure_group_cpu_some_fraction, 0.9)], Some(false)),
            (&[(FactId::core_busy_fraction, 0.99), (FactId::cpu_busy_fraction, 0.5)], Some(false)),
            (&[(FactId::core_busy_fraction, 0.3)], Some(true)),
            (&[], None),
        ] {
            assert_eq!(has_room(&facts(values, &[])), room, "{values:?}");
        }
    }

    fn of(values: &[(FactId, f64)]) -> Option<RequestCost> {
        let base = [
            (FactId::cores, 4.0),
            (FactId::cpu_per_request_us, 2000.0),
            (FactId::connections_reused_fraction, 1.0),
        ];
        request_cost(&facts(&[&base[..], values].concat(), &[]))
    }

    #[test]
    fn a_front_and_its_backend_fill_processors_together() {
        let values = [
            (FactId::usable_cores, 1.0),
            (FactId::usable_busy_fraction, 1.0),
            (FactId::pressure_group_cpu_some_fraction, 0.8),
            (FactId::service_cpu_cores, 0.35),
            (FactId::cpu_per_request_us, 400.0),
            (FactId::ended_per_s, 875.0),
        ];
        for (backend, cost) in [(0.6, Some(1086.0)), (0.2, None)] {
            let mut facts = facts(&values, &[]);
            of_pool(&mut facts, "unknown", &[(FactId::backend_cpu_cores, backend)]);
            assert_eq!(request_cost(&facts), None, "it has a third");
            let found = request_cost_with_backends(&facts).map(|work| work.request_us.round());
            assert_eq!(found, cost, "{backend}");
        }
    }

    #[test]
    fn processors_are_those_of_the_group() {
        let waits = (FactId::pressure_group_cpu_some_fraction, 0.9);
        let (idle, one_core) = ((FactId::usable_busy_fraction, 0.7), (FactId::usable_cores, 1.0));
        for (values, full) in [
            (&[(FactId::service_cpu_cores, 0.9), (FactId::service_cores_limit, 1.0), waits][..], true),
            // Others of the group take the time, or the machine has room.
            (&[(FactId::service_cpu_cores, 0.3), (FactId::service_cores_limit, 1.0), waits][..], false),
            (&[(FactId::service_cpu_cores, 0.9), (FactId::cpu_busy_fraction, 0.4)][..], false),
            (&[(FactId::service_cpu_cores, 2.0), (FactId::cpu_busy_fraction, 0.97)][..], true),
            (&[(FactId::service_cpu_cores, 3.9)][..], true),
            // One process on one core of four.
            (
                &[
                    (FactId::service_cpu_cores, 0.93),
                    (FactId::cpu_busy_fraction, 0.4),
                    one_core,
                    (FactId::usable_busy_fraction, 0.99),
                ][..],
                true,
            ),
            (&[waits][..], false),
            // Half of what it may use, with cores that are idle, or that a quota keeps from it.
            (
                &[
                    (FactId::service_cpu_cores, 0.5),
                    (FactId::service_cores_limit, 1.0),
                    idle,
                    one_core,
                    waits,
                ][..],
                false,
            ),
            (
                &[
                    (FactId::service_cpu_cores, 0.5),
                    (FactId::service_cores_limit, 0.6),
                    idle,
                    one_core,
                    waits,
                ][..],
                true,
            ),
        ] {
            assert_eq!(of(values).is_some(), full, "{values:?}");
        }
    }

    #[test]
    fn work_whose_time_is_not_seen_is_a_suspicion() {
        let unseen = [
            (FactId::cpu_busy_fraction, 0.3),
            (FactId::core_busy_fraction, 0.99),
            (FactId::ended_per_s, 400.0),
        ];
        let unseen = of(&unseen).unwrap();
        assert_eq!(
            (unseen.request_us, unseen.scaled_confidence(0.9), unseen.scaled_confidence(0.4)),
            (3000.0, 0.5, 0.4)
        );
        let work = of(&[(FactId::service_cpu_cores, 3.9), (FactId::answer_bytes_mean, 50_000.0)]).unwrap();
        assert_eq!((work.file_us, work.excess()), (200.0, 0.9));
    }
}
