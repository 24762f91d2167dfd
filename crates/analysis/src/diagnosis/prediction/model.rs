//! The server of a recording as a network of queues. Its stations are the ceilings ([`crate::limits::resource_ceilings`]): what a
//! ceiling of so many saturates at tells how long a request uses one of them, so that where the model saturates is where the ceilings
//! say. What they do not tell, the time that a request waits for something without a queue here, is fitted: the model gives the rate
//! that was measured.

use crate::facts::{FactId, Facts};
use crate::limits::ceiling::{Resource, ResourceCeiling};
use crate::limits::resource_ceilings;
use crate::queueing::{Load, Network, Pool};
use crate::resources::processors::services_cores;
use crate::resources::time_breakdown::{accept_queue_wait_us, breakdown};
use crate::resources::{utilisation, workers};

/// A model, fitted to a recording.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerModel {
    pub network: Network,
    /// The ceilings that its pools are of, in their order.
    pub pools: Vec<ResourceCeiling>,
    pub processors: Option<ResourceCeiling>,
    pub link: Option<ResourceCeiling>,
    /// All other ceilings.
    pub others: Vec<ResourceCeiling>,
    pub load: Load,
    /// Of all that ends, what is successful.
    pub good_fraction: f64,
    /// Whether the database turns requests away; those that it does not are what is modelled.
    pub refuses: bool,
    /// By how much the times had to be scaled to give the measured rate, as a share; 0 where the fitted wait did.
    pub residual: f64,
    /// Requests per second that the model gives for what was measured, good ones.
    pub rate: f64,
}

/// The processors are never used to the last bit, unless they were seen to be.
const PROCESSORS_USABLE: f64 = 0.95;
/// From this use on a link is a station.
const LINK_USED_MIN: f64 = 0.05;
/// From this share of busy places on, with somebody waiting, a pool is full.
const FULL_FRACTION: f64 = 0.9;
/// From this share of failures on, with a database that refuses, only good requests are what is modelled.
const FAILED_FRACTION_MAX: f64 = 0.02;
/// More users than these are not reckoned with.
pub(crate) const USERS_MAX: f64 = 20_000.0;
const STEPS: usize = 40;

impl ServerModel {
    /// Of what was measured; an error says what the recording does not tell.
    pub fn of(facts: &Facts) -> Result<Self, &'static str> {
        let rate = utilisation::rate(facts).ok_or("no successful request was measured")?;
        let ended = facts.ended_per_s().filter(|_| facts.loaded).unwrap_or(rate);
        let response_us = facts.value(FactId::response_time_mean_us).ok_or("no response time was measured")?;
        (facts.kernel_limit_total.is_none() && facts.generator_fault.is_none())
            .then_some(())
            .ok_or("the load generator limited this load, not the server")?;
        let load = load(facts, ended).ok_or("how many requests were under way was not measured")?;
        let mut all = resource_ceilings(facts);
        let mut take = |resource| {
            let place = all.iter().position(|one| one.resource == resource)?;
            Some(all.remove(place))
        };
        let pools: Vec<_> = [Resource::Workers, Resource::PhpChildren, Resource::DatabaseConnections]
            .into_iter()
            .filter_map(|resource| Held::of(facts, take(resource)?, ended))
            .collect();
        let (processors, link) = (take(Resource::Processors), take(Resource::Link));
        if pools.is_empty() && processors.as_ref().is_none_or(|one| one.ceiling.binds_at_rate.is_none()) {
            return Err("no pool, and not what a request takes of the processors, was observed");
        }
        let failed = facts.value(FactId::failed_fraction).unwrap_or(0.0);
        let refused = facts.value(FactId::ahead_database_failed_per_s).is_some_and(|failed| failed > 0.0);
        let refuses = failed > FAILED_FRACTION_MAX && refused;
        let mut model = Self {
            network: Network::default(),
            pools: vec![],
            processors,
            link,
            others: all,
            load,
            good_fraction: if refuses { 1.0 } else { (rate / ended).min(1.0) },
            refuses,
            residual: 0.0,
            rate: 0.0,
        };
        model.place(facts, &pools, ended, response_us);
        model.pools = pools.into_iter().map(|held| held.ceiling).collect();
        model.fit(if refuses { rate } else { ended }, response_us);
        Ok(model)
    }

    /// What is known of the network: all but the fitted wait.
    fn place(&mut self, facts: &Facts, pools: &[Held], ended: f64, response_us: f64) {
        self.network.processors =
            self.processors.as_ref().and_then(|ceiling| processors(facts, ceiling, ended));
        let demand_us = self.network.processors.map_or(0.0, |(_, demand_us)| demand_us);
        let inside = |index: usize| pools.get(index).map_or(0.0, |held: &Held| held.wait_us + held.hold_us);
        self.network.pools = (0..pools.len())
            .map(|index| {
                // What the last one holds beside the processors is the fitted wait.
                let is_last = index + 1 == pools.len();
                let rest = pools[index].hold_us - inside(index + 1).max(demand_us);
                Pool { places: pools[index].places, own_us: if is_last { 0.0 } else { rest.max(0.0) } }
            })
            .collect();
        let link = self.link.as_ref().filter(|one| {
            one.ceiling.now.zip(one.ceiling.max).is_some_and(|(now, max)| now >= LINK_USED_MIN * max)
        });
        self.network.link_us = link.and_then(|one| one.ceiling.binds_at_rate).map(|rate| 1e6 / rate);
        self.network.outside_us = outside_us(facts, pools.first(), response_us);
    }

    /// Finds the wait with which the model gives what was measured; where none does, times are scaled.
    fn fit(&mut self, rate: f64, response_us: f64) {
        let base = self.network.clone();
        let with = |rest_us: f64| Network { rest_us, ..base.clone() };
        let is_slow = |network: &Network| match self.load {
            // Of a database that refuses, those that get through are never slowed down by those that do not.
            _ if self.refuses => network.hold_us(0) + network.outside_us >= response_us,
            Load::Closed { .. } => network.solve(self.load).rate <= rate,
            Load::Open { .. } => {
                let solved = network.solve(self.load);
                let keeps_up = self.offered().is_some_and(|offered| rate >= 0.97 * offered);
                match solved.response_us.filter(|_| keeps_up) {
                    Some(us) => us >= response_us,
                    None => keeps_up || solved.rate <= rate,
                }
            }
        };
        let free = with(0.0);
        if is_slow(&free) {
            let times = bisect((0.05, 1.0), |times| is_slow(&free.scaled(times)));
            (self.network, self.residual) = (free.scaled(times), 1.0 - times);
        } else {
            self.network = with(bisect((0.0, 2.0 * response_us.max(1.0)), |rest_us| is_slow(&with(rest_us))));
        }
        self.rate = self.network.solve(self.load).rate * self.good_fraction;
        if self.refuses {
            self.rate = rate;
        }
    }

    /// Requests per second that come; `None` in a closed loop.
    pub fn offered(&self) -> Option<f64> {
        match self.load {
            Load::Open { rate, .. } => Some(rate),
            Load::Closed { .. } => None,
        }
    }
}

/// The largest value for which it does not hold yet.
fn bisect((mut low, mut high): (f64, f64), holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if holds(middle) { high = middle } else { low = middle }
    }
    f64::midpoint(low, high)
}

/// A pool with what a request holds of it.
struct Held {
    ceiling: ResourceCeiling,
    places: f64,
    hold_us: f64,
    /// How long a request waits for a place, as far as that is held against the pool around it.
    wait_us: f64,
    is_full: bool,
}

impl Held {
    fn of(facts: &Facts, ceiling: ResourceCeiling, ended: f64) -> Option<Self> {
        let places = ceiling.ceiling.max? - ceiling.idle;
        let binds = ceiling.ceiling.binds_at_rate;
        let (is_full, queue) = match ceiling.resource {
            Resource::Workers => {
                let busy = facts.value(FactId::workers_busy_mean);
                let waits = facts.value(FactId::accept_queue_mean).is_none_or(|queue| queue >= 1.0);
                (waits && (busy.is_some_and(|busy| busy >= FULL_FRACTION * places) || workers::is_limit_reached(facts)), 0.0)
            }
            Resource::PhpChildren => {
                let pool = ceiling.ceiling.limit.rsplit(' ').next().unwrap_or_default();
                let queue = facts.value_of(FactId::ahead_fpm_queue_mean, pool).unwrap_or(0.0);
                let busy = facts.value_of(FactId::ahead_fpm_busy_mean, pool).unwrap_or(0.0);
                (queue >= 1.0 && busy >= FULL_FRACTION * places, queue)
            }
            _ => (false, 0.0),
        };
        let full_us = is_full.then(|| places / ended * 1e6);
        let hold_us = full_us.or(binds.map(|rate| places / rate * 1e6))?;
        (places >= 1.0 && hold_us > 0.0).then_some(Self { ceiling, places, hold_us, wait_us: queue / ended * 1e6, is_full })
    }
}

/// What is asked: users and their pause, or arrivals. Visitors whose pages are made of several requests at once count as so many
/// users, each of whom asks for a part of the page after the other (Little's law on pages and on requests).
fn load(facts: &Facts, ended: f64) -> Option<Load> {
    let in_flight = facts.value(FactId::in_flight_mean)?;
    if let Some(rate) = facts.value(FactId::offered_rate) {
        return Some(Load::Open { rate, connections: facts.value(FactId::connections_cap)? });
    }
    let Some(users) = facts.value(FactId::users) else {
        return Some(Load::Closed { users: in_flight, think_us: 0.0 });
    };
    let at_once = facts.value(FactId::pages_in_flight_mean).filter(|pages| *pages > 0.0);
    let at_once = at_once.map_or(1.0, |pages| (in_flight / pages.min(users)).max(0.05));
    let users = (users * at_once).max(in_flight);
    Some(Load::Closed { users, think_us: (users - in_flight) / ended * 1e6 })
}

/// Processors that the requests may use, and what one takes of them, microseconds.
fn processors(facts: &Facts, ceiling: &ResourceCeiling, ended: f64) -> Option<(f64, f64)> {
    let binds = ceiling.ceiling.binds_at_rate?;
    let is_group = facts.value(FactId::ahead_group_cores).zip(facts.value(FactId::cores)).is_some_and(|(group, cores)| group < cores);
    let client = facts.value(FactId::client_cpu_cores).filter(|_| !is_group).unwrap_or(0.0);
    let now = ceiling.ceiling.now?;
    let own = services_cores(facts).map_or(now, |services| (services + client).min(now));
    let used = now / ceiling.ceiling.max?;
    let usable = used.clamp(PROCESSORS_USABLE, 1.0);
    let demand_us = own / ended * 1e6;
    Some((binds * usable * demand_us / 1e6, demand_us)).filter(|(servers, demand_us)| *servers > 0.0 && *demand_us > 0.0)
}

/// What a response takes outside of all pools: on the way, and connecting. Where the outermost pool is full, what is left beside it
/// is its queue.
fn outside_us(facts: &Facts, outermost: Option<&Held>, response_us: f64) -> f64 {
    let Some(outermost) = outermost else { return 0.0 };
    let wait_us = accept_queue_wait_us(facts).unwrap_or(0.0);
    let left_us = (response_us - wait_us - outermost.hold_us).max(0.0);
    let parts = breakdown(facts);
    let known_us: f64 = [parts.network, parts.client].into_iter().flatten().sum();
    if outermost.is_full { known_us.min(left_us) } else { left_us }
}
