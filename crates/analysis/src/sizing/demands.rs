//! What a request takes of each resource, of one load or of several together: operational laws, by the model that `predict` fits
//! ([`ServerModel`]), with 95% intervals.

use crate::diagnosis::prediction::model::ServerModel;
use crate::diagnosis::prediction::{ERROR, memory, observed};
use crate::facts::{FactId, Facts};
use crate::limits::ceiling::Resource;
use crate::measurement::Measurement;
use crate::queueing::Load;
use crate::resources::processors::services_cores;
use webdyno_model::number::significant;
use webdyno_model::sizing::{Demand, MeasuredRange};
use webdyno_model::{Result, UserError};

/// Readings of processors and links are no better than this.
const READING_ERROR: f64 = 0.03;
/// What the rate of a load is sure to where its seconds do not tell.
const RATE_ERROR: f64 = 0.1;
/// Of what a client received so much more is on the wire: headers of TCP, IP and Ethernet.
const WIRE_RATIO: f64 = 1.05;
/// Fewer cores in use than these tell nothing of what a request takes.
const CORES_USED_MIN: f64 = 0.02;

/// A figure with half its 95% interval as a share of it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Amount {
    pub value: f64,
    pub error: f64,
}

/// A pool that each request holds a place of.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PoolDemand {
    pub resource: Resource,
    /// As its ceiling is called: `children of pool www`.
    pub name: String,
    /// For how long beside what is inside of the next one, microseconds.
    pub own_us: f64,
    /// Memory of a place in use: the least and the most.
    pub bytes: Option<[f64; 2]>,
}

/// What a request takes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Demands {
    /// Processors, without the database, microseconds.
    pub cpu: Amount,
    /// The database's processors, where it runs on the same machine.
    pub database_cpu: Option<Amount>,
    /// What is sent for it, bytes on the wire.
    pub link_bytes: Option<Amount>,
    /// What it waits for that has no queue, microseconds.
    pub wait: Amount,
    /// Outside of the server.
    pub outside_us: f64,
    /// The outermost first.
    pub pools: Vec<PoolDemand>,
    /// What the processes hold beside the places in use.
    pub base_bytes: Option<f64>,
    /// Of that the database.
    pub database_bytes: f64,
    /// Requests of a page; `None` without pages.
    pub parts_per_page: Option<f64>,
    /// Pause of a user between two pages, or requests without pages; `None` of a load without users.
    pub think_us: Option<f64>,
}

/// A load with its model.
#[derive(Debug, Clone)]
pub(super) struct MeasuredLoad {
    pub facts: Facts,
    pub model: ServerModel,
    pub demands: Demands,
    /// Cores that the server could use.
    pub cores: f64,
    pub lasted_s: f64,
}

impl MeasuredLoad {
    /// Of a recording. An error when there is no load or no server in it, or it does not tell what a request takes.
    pub fn of(measurement: &Measurement) -> Result<Self> {
        let lasted_s = (measurement.measured_to_s - measurement.measured_from_s).max(0.0);
        Self::of_facts(observed(measurement)?, lasted_s)
    }

    /// Of the facts of a load of this length.
    pub fn of_facts(facts: Facts, lasted_s: f64) -> Result<Self> {
        // Pages at a rate tell nothing: how many of their parts are asked for at once is not known.
        let has_pages = facts.value(FactId::page_time_mean_us).is_some();
        let load = if has_pages { "--page --users N" } else { "--rate R" };
        let untold = |why: &str| {
            UserError::cannot_run(format!("what a request takes cannot be told: {why}")).hint(format!(
                "record a load that the server keeps up with: webdyno diagnose --server SERVER {load} URL"
            ))
        };
        let model = ServerModel::of(&facts).map_err(untold)?;
        let cores = usable_cores(&facts).ok_or_else(|| untold("the processors were not read"))?;
        let demands = Demands::of(&facts, &model).ok_or_else(|| {
            untold("what the server uses of the processors was not read, or is next to nothing")
        })?;
        Ok(Self { facts, model, demands, cores, lasted_s })
    }

    /// Users, or requests at once of a load without users; `None` of one that came at a rate.
    pub fn users(&self) -> Option<f64> {
        match self.model.load {
            Load::Closed { users, .. } => Some(self.facts.value(FactId::users).unwrap_or(users)),
            Load::Open { .. } => None,
        }
    }
}

/// Cores that the kernel takes for what comes and goes over the network: it is in no process's time, and grows with the requests. No more
/// than the services take themselves: the rest of what a large machine takes is for its other tenants.
pub(super) fn softirq_cores(facts: &Facts) -> f64 {
    let known = facts.value(FactId::cpu_softirq_fraction).zip(facts.value(FactId::cores));
    let all = known.map_or(0.0, |(share, cores)| share * cores);
    services_cores(facts).map_or(all, |own| all.min(own))
}

/// Cores that the service may use.
pub(super) fn usable_cores(facts: &Facts) -> Option<f64> {
    let known = [FactId::cores, FactId::ahead_group_cores, FactId::ahead_group_quota_cores]
        .map(|name| facts.value(name));
    known.into_iter().flatten().filter(|cores| *cores > 0.0).reduce(f64::min)
}

impl Demands {
    fn of(facts: &Facts, model: &ServerModel) -> Option<Self> {
        let ended = facts.ended_per_s()?;
        let rate_error = facts.value(FactId::rate_ci95_fraction).unwrap_or(RATE_ERROR);
        let read = |value: f64| Amount { value, error: READING_ERROR.hypot(rate_error) };
        let cores = services_cores(facts).filter(|cores| *cores >= CORES_USED_MIN)?;
        let of_database = facts.value_of(FactId::ahead_backend_cpu_cores, "mariadb");
        let sent_bits = model.link.as_ref().and_then(|link| link.ceiling.now);
        let link_bytes = sent_bits.map(|bits| bits / 8.0 / ended);
        let received = facts.value(FactId::received_bytes_per_request).map(|bytes| bytes * WIRE_RATIO);
        let (pages, page_us) =
            (facts.value(FactId::pages_in_flight_mean), facts.value(FactId::page_time_mean_us));
        let parts_per_page = pages.zip(page_us).map(|(pages, us)| ended * us / 1e6 / pages);
        let think_us = match model.load {
            Load::Closed { think_us, .. } if facts.value(FactId::users).is_some() => {
                Some(think_us * parts_per_page.unwrap_or(1.0))
            }
            _ => None,
        };
        let pools = model.pools.iter().zip(&model.network.pools).map(|(ceiling, pool)| PoolDemand {
            resource: ceiling.resource,
            name: ceiling.ceiling.limit.clone(),
            own_us: pool.own_us,
            bytes: memory::each_bytes(facts, ceiling),
        });
        Some(Self {
            cpu: read((cores + softirq_cores(facts) - of_database.unwrap_or(0.0)).max(0.0) / ended * 1e6),
            database_cpu: of_database.map(|cores| read(cores / ended * 1e6)),
            link_bytes: link_bytes.or(received).map(read),
            wait: Amount { value: model.network.rest_us, error: ERROR.hypot(rate_error) },
            outside_us: model.network.outside_us,
            pools: pools.collect(),
            base_bytes: base_bytes(facts),
            database_bytes: facts.value(FactId::database_resident_max_bytes).unwrap_or(0.0),
            parts_per_page,
            think_us,
        })
    }

    /// Of several loads with these weights, whose sum is 1. Where they are loads of the same mix, what lies between them widens the
    /// intervals; of classes of requests it says nothing.
    pub fn combined(all: &[(f64, &Self)], are_classes: bool) -> Self {
        let amount = |of: &dyn Fn(&Self) -> Option<Amount>| {
            let known: Vec<(f64, Amount)> =
                all.iter().filter_map(|(weight, one)| Some((*weight, of(one)?))).collect();
            combined(&known, are_classes)
        };
        let mean = |of: &dyn Fn(&Self) -> Option<f64>| {
            amount(&|one: &Self| of(one).map(|value| Amount { value, error: 0.0 })).map(|found| found.value)
        };
        let most =
            |of: &dyn Fn(&Self) -> Option<f64>| all.iter().filter_map(|(_, one)| of(one)).reduce(f64::max);
        Self {
            cpu: amount(&|one| Some(one.cpu)).unwrap_or_default(),
            database_cpu: amount(&|one| one.database_cpu),
            link_bytes: amount(&|one| one.link_bytes),
            wait: amount(&|one| Some(one.wait)).unwrap_or_default(),
            outside_us: mean(&|one| Some(one.outside_us)).unwrap_or(0.0),
            pools: pools(all),
            base_bytes: most(&|one| one.base_bytes),
            database_bytes: most(&|one| Some(one.database_bytes)).unwrap_or(0.0),
            parts_per_page: mean(&|one| one.parts_per_page),
            think_us: mean(&|one| one.think_us),
        }
    }

    /// As reports show them.
    pub fn rows(&self) -> Vec<Demand> {
        let row = |resource: &str, unit: &str, amount: Amount| {
            let ends =
                [-1.0, 1.0].map(|sign| significant(amount.value * (1.0 + sign * amount.error).max(0.0), 3));
            let per_request = significant(amount.value, 3);
            Demand { resource: resource.into(), unit: unit.into(), per_request, ci95: Some(ends) }
        };
        let known = [
            Some(("cpu", "us", self.cpu)),
            self.database_cpu.map(|amount| ("database cpu", "us", amount)),
            self.link_bytes.map(|amount| ("link", "bytes", amount)),
            Some(("wait", "us", self.wait)).filter(|(_, _, wait)| wait.value >= 1.0),
        ];
        let of_pool = |pool: &PoolDemand| {
            let [least, most] = pool.bytes?;
            let name = match pool.resource {
                Resource::Workers => "worker memory",
                Resource::PhpChildren => "child memory",
                _ => "connection memory",
            };
            let value = f64::midpoint(least, most);
            (value > 0.0).then(|| row(name, "bytes", Amount { value, error: (most - least) / 2.0 / value }))
        };
        let first = known.into_iter().flatten().map(|(name, unit, amount)| row(name, unit, amount));
        first.chain(self.pools.iter().filter_map(of_pool)).collect()
    }
}

/// Weighted mean; the interval holds those of all of them, of loads of one mix also where they lie.
fn combined(known: &[(f64, Amount)], are_classes: bool) -> Option<Amount> {
    let weights: f64 = known.iter().map(|(weight, _)| weight).sum();
    (weights > 0.0).then_some(())?;
    // Of classes those without it take nothing of it; of loads of one mix it was not read.
    let of = if are_classes { 1.0 } else { weights };
    let value = known.iter().map(|(weight, one)| weight * one.value).sum::<f64>() / of;
    if value <= 0.0 {
        return Some(Amount { value: 0.0, error: 0.0 });
    }
    let own = known.iter().map(|(weight, one)| weight * one.value * one.error).sum::<f64>() / of / value;
    let apart = known.iter().map(|(_, one)| (one.value / value - 1.0).abs()).fold(0.0, f64::max);
    Some(Amount { value, error: if are_classes { own } else { own.hypot(apart) } })
}

/// The pools of all of them: of each the mean of what is held.
fn pools(all: &[(f64, &Demands)]) -> Vec<PoolDemand> {
    let resources = [Resource::Workers, Resource::PhpChildren, Resource::DatabaseConnections];
    let of = |resource| {
        let each = all.iter().filter_map(|(weight, one)| {
            Some((*weight, one.pools.iter().find(|pool| pool.resource == resource)?))
        });
        let each: Vec<(f64, &PoolDemand)> = each.collect();
        let own_us = each.iter().map(|(weight, pool)| weight * pool.own_us).sum();
        let bytes = each.iter().filter_map(|(_, pool)| pool.bytes);
        let bytes = bytes.reduce(|a, b| [a[0].min(b[0]), a[1].max(b[1])]);
        each.first().map(|(_, first)| PoolDemand { own_us, bytes, ..(*first).clone() })
    };
    resources.into_iter().filter_map(of).collect()
}

/// What is there beside the places in use: shared pages of the workers, the database.
fn base_bytes(facts: &Facts) -> Option<f64> {
    let held = memory::now_bytes(facts)?;
    let workers = facts.value(FactId::worker_count_mean).zip(facts.value(FactId::worker_private_mean_bytes));
    let children = memory::children_bytes(facts).unwrap_or(0.0);
    let in_use = workers.map_or(0.0, |(count, each)| count * each) + children;
    Some((held - in_use).max(0.0))
}

/// The range of all of them.
pub(super) fn range(all: &[MeasuredLoad]) -> MeasuredRange {
    let most = |of: &dyn Fn(&MeasuredLoad) -> Option<f64>| all.iter().filter_map(of).reduce(f64::max);
    MeasuredRange {
        loads: all.len() as u64,
        shortest_s: significant(all.iter().map(|one| one.lasted_s).fold(f64::INFINITY, f64::min), 3),
        rate: most(&|one| one.facts.value(FactId::rate)).unwrap_or(0.0),
        users: most(&MeasuredLoad::users),
        cores: most(&|one| Some(one.cores)).unwrap_or(0.0),
    }
}
