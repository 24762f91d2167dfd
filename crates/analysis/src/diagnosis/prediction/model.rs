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
use crate::resources::{memory_pressure, utilisation, workers};

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
    /// Whether requests wait for processors, and their own work fills these.
    pub is_cpu_bound: bool,
    /// By how much the times had to be scaled to give the measured rate, as a share; 0 where the fitted wait did.
    pub residual: f64,
    /// Requests per second that the model gives for what was measured, good ones.
    pub rate: f64,
    /// The mean response time that was measured; of a page the share of it for each of its parts.
    pub response_us: f64,
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
/// From this use on processors and the link are what requests wait for.
const BINDS_FRACTION: f64 = 0.9;
const LINK_FULL_FRACTION: f64 = 0.8;
/// Less than this share of them is not what fills them.
const OWN_FRACTION_MIN: f64 = 0.3;
/// A fit that is off by more is none.
pub(crate) const FIT_ERROR_MAX: f64 = 0.05;
/// Of what arrives so much has to be answered, or there is a queue that grows.
const KEEPS_UP_FRACTION: f64 = 0.97;
/// More workers busy than so many times the requests under way: a request holds several, or connections do.
const HELD_OTHERWISE_RATIO: f64 = 1.3;
/// Programs that stand still for want of memory in so much of the time.
const STALLED_FRACTION_MIN: f64 = 0.05;
/// A queue before a backend that is this share of the workers is what these wait for.
const BEHIND_FRACTION_MIN: f64 = 0.2;
/// From this share of its places on a table gives up entries for others.
const TABLE_FULL_FRACTION: f64 = 0.95;

/// Whether so much of it is in use.
fn is_used(ceiling: Option<&ResourceCeiling>, fraction: f64) -> bool {
    let used = ceiling.and_then(|one| one.ceiling.now.zip(one.ceiling.max));
    used.is_some_and(|(now, max)| now >= fraction * max)
}

/// What happened in a recording that no queue of the model stands for; `None` where nothing is known to have.
fn beyond_model(
    facts: &Facts,
    pools: &[ObservedPool],
    others: &[ResourceCeiling],
    refuses: bool,
) -> Option<&'static str> {
    let value = |name: FactId| facts.value(name);
    let fills = others.iter().filter_map(|one| one.fills);
    if fills.into_iter().any(|table| table.entries >= TABLE_FULL_FRACTION * table.max) {
        return Some("a table of connections was full, and what it drops has no queue");
    }
    let has_pages = value(FactId::page_time_mean_us).is_some();
    if has_pages && value(FactId::offered_rate).is_some() {
        return Some(
            "pages came at a rate, and how many of their parts are asked for at once then is not known",
        );
    }
    if refuses && has_pages {
        return Some("pages failed as the database turned requests away, and were left without their parts");
    }
    let is_stalled =
        memory_pressure::stalled_fraction(facts).is_some_and(|share| share >= STALLED_FRACTION_MIN);
    let kills = [FactId::oom_kills, FactId::group_oom_kills].map(value);
    if is_stalled || kills.into_iter().flatten().any(|kills| kills >= 1.0) {
        return Some(
            "memory was short, and what a request takes while it swaps says nothing of what it takes without",
        );
    }
    let workers = pools.iter().find(|held| held.ceiling.resource == Resource::Workers)?;
    let in_flight = value(FactId::in_flight_mean)?;
    let kept = value(FactId::workers_keepalive_mean).unwrap_or(0.0);
    let busy = value(FactId::workers_busy_mean).map_or(0.0, |busy| busy.min(workers.places) - 1.0 - kept);
    if busy > HELD_OTHERWISE_RATIO * in_flight + 2.0 || (workers.is_full && in_flight <= workers.places) {
        return Some("Apache's workers were held by something else than the requests under way");
    }
    let behind = [FactId::fpm_queue_behind_mean, FactId::backend_queue_mean].map(value);
    let behind = behind.into_iter().flatten().reduce(f64::max);
    let has_children = pools.iter().any(|held| held.ceiling.resource == Resource::PhpChildren);
    let waits = behind.is_some_and(|behind| behind >= BEHIND_FRACTION_MIN * workers.places);
    (waits && !has_children).then_some("workers waited in the queue of a backend whose size was not observed")
}

impl ServerModel {
    /// Of what was measured; an error says what the recording does not tell.
    pub fn of(facts: &Facts) -> Result<Self, &'static str> {
        let rate = utilisation::rate(facts).ok_or("no successful request was measured")?;
        let ended = facts.ended_per_s().filter(|_| facts.loaded).unwrap_or(rate);
        (facts.kernel_limit_total.is_none() && facts.generator_fault.is_none())
            .then_some(())
            .ok_or("the load generator limited this load, not the server")?;
        let failed = facts.value(FactId::failed_fraction).unwrap_or(0.0);
        let refused = facts.value(FactId::ahead_database_failed_per_s).is_some_and(|failed| failed > 0.0);
        let refuses = failed > FAILED_FRACTION_MAX && refused;
        let load = load(facts, ended).ok_or("how many requests were under way was not measured")?;
        // Requests that a database refuses are no part of what the others take.
        let good_us = facts.value(FactId::response_time_mean_us).filter(|_| refuses);
        let response_us =
            good_us.or(response_us(facts, ended, load)).ok_or("no response time was measured")?;
        let mut all = resource_ceilings(facts);
        let mut take = |resource| {
            let place = all.iter().position(|one| one.resource == resource)?;
            Some(all.remove(place))
        };
        let pools: Vec<_> = [Resource::Workers, Resource::PhpChildren, Resource::DatabaseConnections]
            .into_iter()
            .filter_map(|resource| ObservedPool::of(facts, take(resource)?, ended))
            .collect();
        let (processors, link) = (take(Resource::Processors), take(Resource::Link));
        if pools.is_empty() && processors.as_ref().is_none_or(|one| one.ceiling.binds_at_rate.is_none()) {
            return Err("no pool, and not what a request takes of the processors, was observed");
        }
        if let Some(why) = beyond_model(facts, &pools, &all, refuses) {
            return Err(why);
        }
        if processors.as_ref().is_some_and(|one| are_others_filling(facts, one, ended)) {
            return Err(
                "other programs filled the processors, and how much of them they leave to a server that needs more is not known",
            );
        }
        let last_hold_us = pools.last().map_or(0.0, |held| held.hold_us);
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
            is_cpu_bound: false,
            rate: 0.0,
            response_us,
        };
        model.place(facts, &pools, ended, response_us);
        model.pools = pools.into_iter().map(|held| held.ceiling).collect();
        model.fit(if refuses { rate } else { ended }, response_us, last_hold_us);
        let is_off = !refuses && (model.rate / rate - 1.0).abs() > FIT_ERROR_MAX;
        if is_off { Err("no network of these pools and stations gives what was measured") } else { Ok(model) }
    }

    /// What is known of the network: all but the fitted wait.
    fn place(&mut self, facts: &Facts, pools: &[ObservedPool], ended: f64, response_us: f64) {
        self.network.processors =
            self.processors.as_ref().and_then(|ceiling| processors(facts, ceiling, ended));
        let demand_us = self.network.processors.map_or(0.0, |(_, demand_us)| demand_us);
        let cores = self.processors.as_ref().and_then(|one| one.ceiling.max).unwrap_or(f64::INFINITY);
        self.is_cpu_bound = is_used(self.processors.as_ref(), BINDS_FRACTION)
            && ended * demand_us / 1e6 >= OWN_FRACTION_MIN * cores;
        let inside =
            |index: usize| pools.get(index).map_or(0.0, |held: &ObservedPool| held.wait_us + held.hold_us);
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
        let is_full = is_used(self.link.as_ref(), LINK_FULL_FRACTION);
        // Behind a full link what is left beside the pools is its queue.
        self.network.outside_us = if is_full { 0.0 } else { outside_us(facts, pools.first(), response_us) };
    }

    /// Finds the wait with which the model gives what was measured. Where processors or the link are full, what waits waits for
    /// these: then it is their capacity that is fitted. Where no wait is short enough, times are scaled.
    fn fit(&mut self, rate: f64, response_us: f64, last_hold_us: f64) {
        let base = self.network.clone();
        let with = |rest_us: f64| Network { rest_us, ..base.clone() };
        let is_slow = |network: &Network| self.is_slow(network, rate, response_us);
        let free = with(0.0);
        let network = if self.refuses {
            with(bisect((0.0, 2.0 * response_us), |rest_us| is_slow(&with(rest_us))))
        } else if self.is_cpu_bound {
            let times = bisect((0.5, 2.0), |times| is_slow(&free.with_processors(1.0 / times)));
            free.with_processors(1.0 / times)
        } else if let Some(us) = base.link_us.filter(|_| is_used(self.link.as_ref(), LINK_FULL_FRACTION)) {
            let demand_us = base.processors.map_or(0.0, |(_, demand_us)| demand_us);
            let held = with((last_hold_us - demand_us).max(0.0));
            let of = |times: f64| Network { link_us: Some(us * times), ..held.clone() };
            let found = of(bisect((0.5, 2.0), |times| is_slow(&of(times))));
            // Where what is held contains the wait for the link, the link is as full as it was read, and the rest is fitted.
            let is_off = (found.solve(self.load).rate / rate - 1.0).abs() > FIT_ERROR_MAX;
            let used =
                self.link.as_ref().and_then(|one| Some(one.ceiling.now? / one.ceiling.max?)).unwrap_or(1.0);
            let full = |rest_us: f64| Network {
                rest_us,
                link_us: Some(used.min(0.99) * 1e6 / rate),
                ..base.clone()
            };
            if is_off {
                full(bisect((0.0, 2.0 * response_us), |rest_us| is_slow(&full(rest_us))))
            } else {
                found
            }
        } else if is_slow(&free) {
            let times = bisect((0.05, 1.0), |times| is_slow(&free.scaled(times)));
            self.residual = 1.0 - times;
            free.scaled(times)
        } else {
            with(bisect((0.0, 2.0 * response_us.max(1.0)), |rest_us| is_slow(&with(rest_us))))
        };
        self.network = network;
        let given = self.network.solve(self.load).rate;
        self.rate = given * self.good_fraction;
        self.residual = self.residual.max(if self.refuses { 0.0 } else { (given / rate - 1.0).abs() });
        if self.refuses {
            self.rate = rate;
        }
    }

    /// Whether a network gives no more than was measured, or takes no less time where no more comes.
    fn is_slow(&self, network: &Network, rate: f64, response_us: f64) -> bool {
        // Of a database that refuses, those that get through are never slowed down by those that do not.
        if self.refuses {
            return network.hold_us(0) + network.outside_us >= response_us;
        }
        let solved = network.solve(self.load);
        let keeps_up = self.offered().is_some_and(|offered| rate >= KEEPS_UP_FRACTION * offered);
        match solved.response_us.filter(|_| keeps_up) {
            Some(us) => us >= response_us,
            None => keeps_up || solved.rate <= rate,
        }
    }

    /// Whether workers are known to be held by what waits for the link, too.
    pub fn is_link_full(&self) -> bool {
        is_used(self.link.as_ref(), LINK_FULL_FRACTION)
    }

    /// Requests per second that come; `None` in a closed loop.
    pub fn offered(&self) -> Option<f64> {
        match self.load {
            Load::Open { rate, .. } => Some(rate),
            Load::Closed { .. } => None,
        }
    }
}

/// The mean response time; of a page the share of it for each of its parts. In a closed loop by Little's law: the mean of those that
/// ended in a short load misses the slow ones that did not.
fn response_us(facts: &Facts, ended: f64, load: Load) -> Option<f64> {
    let measured = facts.value(FactId::response_time_mean_us)?;
    match load {
        Load::Closed { users, think_us } => Some(users / ended * 1e6 - think_us),
        Load::Open { .. } => Some(measured),
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
struct ObservedPool {
    ceiling: ResourceCeiling,
    places: f64,
    hold_us: f64,
    /// How long a request waits for a place, as far as that is held against the pool around it.
    wait_us: f64,
    is_full: bool,
}

impl ObservedPool {
    fn of(facts: &Facts, ceiling: ResourceCeiling, ended: f64) -> Option<Self> {
        let pool = ceiling.ceiling.limit.rsplit(' ').next().unwrap_or_default();
        // A pool that never let a request wait may be allowed more than ran: so many are no limit.
        let ran = facts
            .value_of(FactId::ahead_fpm_processes_max, pool)
            .filter(|_| ceiling.resource == Resource::PhpChildren);
        let places = ceiling.ceiling.max.or(ran)? - ceiling.idle;
        let used = ceiling.ceiling.now.filter(|_| ceiling.ceiling.max.is_none());
        let used = used.map(|now| now - utilisation::beyond_in_flight(facts, now)).filter(|used| *used > 0.0);
        let binds = ceiling.ceiling.binds_at_rate.or(used.map(|used| places * ended / used));
        let (is_full, queue) = match ceiling.resource {
            Resource::Workers => {
                let busy = facts.value(FactId::workers_busy_mean);
                let waits = facts.value(FactId::accept_queue_mean).is_none_or(|queue| queue >= 1.0);
                (
                    waits
                        && (busy.is_some_and(|busy| busy >= FULL_FRACTION * places)
                            || workers::is_limit_reached(facts)),
                    0.0,
                )
            }
            Resource::PhpChildren => {
                let queue = facts.value_of(FactId::ahead_fpm_queue_mean, pool).unwrap_or(0.0);
                let busy = facts.value_of(FactId::ahead_fpm_busy_mean, pool);
                (queue >= 1.0 && busy.is_none_or(|busy| busy >= FULL_FRACTION * places), queue)
            }
            _ => (false, 0.0),
        };
        let full_us = is_full.then(|| places / ended * 1e6);
        let hold_us = full_us.or(binds.map(|rate| places / rate * 1e6))?;
        (places >= 1.0 && hold_us > 0.0).then_some(Self {
            ceiling,
            places,
            hold_us,
            wait_us: queue / ended * 1e6,
            is_full,
        })
    }
}

/// What is asked: users and their pause, or arrivals. A visitor counts as one user, who asks for one part of a page after the other:
/// parts that are asked for at once wait at once, and in a pool that is full each of them takes its place all the same.
pub(crate) fn load(facts: &Facts, ended: f64) -> Option<Load> {
    let in_flight = facts.value(FactId::in_flight_mean)?;
    if let Some(rate) = facts.value(FactId::offered_rate) {
        return Some(Load::Open { rate, connections: facts.value(FactId::connections_cap)? });
    }
    let Some(users) = facts.value(FactId::users) else {
        return Some(Load::Closed { users: in_flight, think_us: 0.0 });
    };
    let pages_per_s = facts.value(FactId::pages_in_flight_mean).zip(facts.value(FactId::page_time_mean_us));
    let pages_per_s = pages_per_s.map(|(pages, us)| pages / us * 1e6);
    let thinking =
        facts.value(FactId::think_time_mean_us).zip(pages_per_s).map(|(us, per_s)| us / 1e6 * per_s);
    let under_way = thinking.map(|thinking| users - thinking).filter(|pages| *pages > 0.0);
    let under_way = under_way.or(facts.value(FactId::pages_in_flight_mean)).unwrap_or(in_flight);
    let users = users.max(under_way);
    Some(Load::Closed { users, think_us: (users - under_way) / ended * 1e6 })
}

/// Processors that the requests may use, and what one takes of them, microseconds.
fn processors(facts: &Facts, ceiling: &ResourceCeiling, ended: f64) -> Option<(f64, f64)> {
    let binds = ceiling.ceiling.binds_at_rate?;
    let is_group = facts
        .value(FactId::ahead_group_cores)
        .zip(facts.value(FactId::cores))
        .is_some_and(|(group, cores)| group < cores);
    let client = facts.value(FactId::client_cpu_cores).filter(|_| !is_group).unwrap_or(0.0);
    let now = ceiling.ceiling.now?;
    let own = services_cores(facts).map_or(now, |services| (services + client).min(now));
    let used = now / ceiling.ceiling.max?;
    let usable = used.clamp(PROCESSORS_USABLE, 1.0);
    let demand_us = own / ended * 1e6;
    Some((binds * usable * demand_us / 1e6, demand_us))
        .filter(|(servers, demand_us)| *servers > 0.0 && *demand_us > 0.0)
}

/// Whether others use most of processors that are full: they may be put aside when the server wants more, or not.
fn are_others_filling(facts: &Facts, ceiling: &ResourceCeiling, ended: f64) -> bool {
    let Some((_, demand_us)) = processors(facts, ceiling, ended) else { return false };
    let now = ceiling.ceiling.now.unwrap_or(0.0);
    is_used(Some(ceiling), BINDS_FRACTION) && 2.0 * ended * demand_us / 1e6 < now
}

/// What a response takes outside of all pools: on the way, and connecting. Where the outermost pool is full, what is left beside it
/// is its queue.
fn outside_us(facts: &Facts, outermost: Option<&ObservedPool>, response_us: f64) -> f64 {
    let Some(outermost) = outermost else { return 0.0 };
    let wait_us = accept_queue_wait_us(facts).unwrap_or(0.0);
    let left_us = (response_us - wait_us - outermost.hold_us).max(0.0);
    let parts = breakdown(facts);
    let known_us: f64 = [parts.network, parts.client].into_iter().flatten().sum();
    if outermost.is_full { known_us.min(left_us) } else { left_us }
}
