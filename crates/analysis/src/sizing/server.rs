//! A machine of the catalogue as a server of the model ([`crate::queueing`]): what it carries, what limits it first, and how sure that
//! is, by Monte Carlo: demands are drawn from their intervals, log-normally, and each draw is solved as `predict` solves its model.

use super::demands::{Amount, Demands};
use crate::diagnosis::prediction::ERROR_PROCESSORS;
use crate::limits::LimitId;
use crate::limits::ceiling::Resource;
use crate::queueing::{Load, Network, Pool};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use webdyno_model::sizing::{Machine, MeasuredRange, MissRatioCurve, RateSpread};

/// Of processors, links and memory so much can be used: the shares that ceilings reckon with.
pub(super) const PROCESSORS_USABLE: f64 = 0.95;
pub(super) const LINK_USABLE: f64 = 0.9;
pub(super) const MEMORY_USABLE: f64 = 0.9;
/// The system beside the services: its kernel and its daemons.
pub(super) const SYSTEM_BYTES: f64 = 256e6;
/// Places of a pool over what is held on average, and a few more: what comes in bursts finds one.
pub(super) const BURST: f64 = 1.5;
const PLACES_MIN: f64 = 4.0;
/// Larger pools are as good as their bound, and take long to solve.
const EXACT_PLACES_MAX: f64 = 150.0;
/// A cache that leaves no more than this share of the misses that it could avoid.
const MISSES_LEFT: f64 = 0.01;
/// Predictions go no further than this from what was measured.
pub(super) const RANGE: f64 = 4.0;
/// The 10% point of so many is good to a tenth of the interval's width.
const DRAWS: usize = 200;
const SEED: u64 = 0x512e;
/// Half a 95% interval in standard deviations.
const Z_95: f64 = 1.96;

/// What is not known for sure, in standard deviations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Draw {
    cpu: f64,
    database: f64,
    link: f64,
    wait: f64,
    memory: f64,
    model: f64,
}

/// The draws, the same ones for every machine: what is compared differs by the machines alone.
pub(super) fn draws() -> Vec<Draw> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut one = || StandardNormal.sample(&mut random);
    let draw =
        |_| Draw { cpu: one(), database: one(), link: one(), wait: one(), memory: one(), model: one() };
    (0..DRAWS).map(draw).collect()
}

fn drawn(amount: Amount, deviations: f64) -> f64 {
    amount.value * (deviations * amount.error / Z_95).exp()
}

/// A machine with what a request takes there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Server<'a> {
    pub demands: &'a Demands,
    pub machine: &'a Machine,
    pub range: &'a MeasuredRange,
    /// Which part of what is served is read from the disk; `None` where nobody told.
    pub misses: Option<&'a MissRatioCurve>,
    /// Whether the database runs beside the web server.
    pub has_database: bool,
}

impl Server<'_> {
    /// Cores as fast as those measured.
    pub fn cores(&self) -> f64 {
        self.machine.cores * self.machine.speed.unwrap_or(1.0)
    }

    /// What a request takes of them, microseconds.
    pub fn cpu_us(&self, draw: Draw) -> f64 {
        let database = self.demands.database_cpu.filter(|_| self.has_database);
        drawn(self.demands.cpu, draw.cpu) + database.map_or(0.0, |one| drawn(one, draw.database))
    }

    /// The network without limits of its pools.
    fn network(&self, draw: Draw) -> Network {
        let demands = self.demands;
        let pool = |own_us: f64| Pool { places: f64::INFINITY, own_us };
        let bytes = demands.link_bytes.map(|bytes| drawn(bytes, draw.link)).filter(|bytes| *bytes > 0.0);
        let own =
            demands.database_cpu.filter(|_| !self.has_database).map_or(0.0, |one| drawn(one, draw.database));
        Network {
            pools: demands.pools.iter().map(|one| pool(one.own_us)).collect(),
            processors: Some((PROCESSORS_USABLE * self.cores(), self.cpu_us(draw))),
            link_us: bytes
                .zip(self.machine.nic_bit_s)
                .map(|(bytes, bits)| bytes * 8e6 / (LINK_USABLE * bits)),
            // A database elsewhere takes its time there.
            rest_us: drawn(demands.wait, draw.wait) + own,
            outside_us: demands.outside_us,
        }
    }

    /// Places of each pool that this rate needs.
    fn places(&self, network: &Network, rate: f64) -> Vec<f64> {
        let place = |index| (BURST * rate * network.hold_us(index) / 1e6 + PLACES_MIN).ceil();
        (0..network.pools.len()).map(place).collect()
    }

    /// Memory with so many places in use, bytes; `None` where the recordings do not tell.
    fn memory_bytes(&self, places: &[f64], draw: Draw) -> Option<f64> {
        let elsewhere = if self.has_database { 0.0 } else { self.demands.database_bytes };
        let base = self.demands.base_bytes? - elsewhere;
        let pools = self.demands.pools.iter().zip(places).filter(|(pool, _)| self.is_here(pool.resource));
        let each = pools.map(|(pool, places)| {
            // Between the least and the most, 95% of the draws.
            let [least, most] = pool.bytes?;
            let middle = f64::midpoint(least, most) + draw.memory / Z_95 * (most - least) / 2.0;
            Some(places * middle.max(0.0))
        });
        Some(SYSTEM_BYTES + base.max(0.0) + each.sum::<Option<f64>>()?)
    }

    fn is_here(&self, resource: Resource) -> bool {
        self.has_database || resource != Resource::DatabaseConnections
    }

    /// The rate at which each resource of the machine is full, the lowest first.
    pub fn limits(&self, draw: Draw) -> Vec<(LimitId, f64)> {
        let network = self.network(draw);
        let processors = network.processors.map(|(cores, us)| (LimitId::CpuSaturated, cores * 1e6 / us));
        let link = network.link_us.map(|us| (LimitId::NetworkSaturated, 1e6 / us));
        let mut all: Vec<(LimitId, f64)> = processors.into_iter().chain(link).collect();
        all.extend(self.memory_rate(&network, draw).map(|rate| (LimitId::MemoryExhausted, rate)));
        let rate = all.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
        all.extend(self.disk_rate(&network, rate, draw).map(|rate| (LimitId::WorkingSetExceedsMemory, rate)));
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        all
    }

    /// The rate whose places fill the memory.
    fn memory_rate(&self, network: &Network, draw: Draw) -> Option<f64> {
        let usable = MEMORY_USABLE * self.machine.memory_bytes?;
        let idle = self.memory_bytes(&self.places(network, 0.0), draw)?;
        // Places grow in proportion: what a million of requests a second would need more is enough to tell.
        let each = (self.memory_bytes(&self.places(network, 1e6), draw)? - idle) / 1e6;
        if idle >= usable {
            return Some(0.0);
        }
        (each > 0.0).then(|| (usable - idle) / each)
    }

    /// The rate at which what the page cache does not hold takes all that the disk reads.
    fn disk_rate(&self, network: &Network, rate: f64, draw: Draw) -> Option<f64> {
        let bytes = self.demands.link_bytes.map(|bytes| drawn(bytes, draw.link))?;
        let (all, disk) = self.machine.memory_bytes.zip(self.machine.disk_read_bytes_per_s)?;
        let held = self.memory_bytes(&self.places(network, rate), draw)?;
        let missed = self.misses?.miss_ratio((MEMORY_USABLE * all - held).max(0.0))?;
        (missed > 0.0).then(|| disk / (missed * bytes))
    }

    /// Page cache with which the disk does not limit this rate, a share of what it reads left free; where nobody told what it reads, with
    /// which it is hardly read. `None` without a curve, or where none is enough.
    pub fn cache_bytes(&self, rate: f64, headroom: f64) -> Option<f64> {
        let misses = self.misses?;
        let least = misses.0.last()?[1];
        let hardly = least + MISSES_LEFT * (1.0 - least);
        let sent = self.demands.link_bytes.map(|bytes| bytes.value * rate).filter(|sent| *sent > 0.0);
        let disk = self.machine.disk_read_bytes_per_s.zip(sent);
        misses.cache_bytes(disk.map_or(hardly, |(disk, sent)| ((1.0 - headroom) * disk / sent).min(1.0)))
    }

    /// The highest rate of a draw.
    pub fn rate(&self, draw: Draw) -> f64 {
        let bound = self.limits(draw).first().map_or(0.0, |(_, rate)| *rate);
        let mut network = self.network(draw);
        let places = self.places(&network, bound);
        let outermost = places.first().copied().unwrap_or_else(|| {
            let held_us = network.rest_us + network.processors.map_or(0.0, |(_, us)| us);
            (BURST * bound * held_us / 1e6 + PLACES_MIN).ceil()
        });
        let solved = if outermost <= EXACT_PLACES_MAX {
            network.pools.iter_mut().zip(&places).for_each(|(pool, places)| pool.places = *places);
            network.solve(Load::Open { rate: f64::INFINITY, connections: outermost }).rate.min(bound)
        } else {
            bound
        };
        // What nobody measured nearer than a factor of two is less sure, by each doubling.
        let doublings = |ratio: f64| if ratio > 0.0 { ratio.log2().abs() } else { 0.0 };
        let far =
            doublings(solved / self.range.rate).max(doublings(self.cores() / self.range.cores)).max(1.0);
        let model = drawn(Amount { value: solved, error: ERROR_PROCESSORS * far.min(RANGE) }, draw.model);
        model.min(RANGE * self.range.rate)
    }

    /// Percentiles of the highest rate.
    pub fn spread(&self, draws: &[Draw]) -> RateSpread {
        let mut rates: Vec<f64> = draws.iter().map(|draw| self.rate(*draw)).collect();
        rates.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (share * (rates.len() as f64 - 1.0)).round() as usize;
            rates.get(place).copied().unwrap_or(0.0)
        };
        RateSpread { p10: at(0.1), p50: at(0.5), p90: at(0.9) }
    }

    /// Places of each pool and memory at this rate, and the mean response time there.
    pub fn at(&self, rate: f64) -> (Vec<f64>, Option<f64>, Option<f64>) {
        let mut network = self.network(Draw::default());
        let places = self.places(&network, rate);
        let memory = self.memory_bytes(&places, Draw::default()).map(|bytes| bytes / MEMORY_USABLE);
        let bounded = |places: f64| places.min(EXACT_PLACES_MAX);
        network.pools.iter_mut().zip(&places).for_each(|(pool, places)| pool.places = bounded(*places));
        let is_exact = places.first().is_none_or(|places| *places <= EXACT_PLACES_MAX);
        let response_us = if is_exact {
            let connections = places.first().copied().unwrap_or(EXACT_PLACES_MAX);
            network.solve(Load::Open { rate, connections }).response_us
        } else {
            // So many in use that hardly anybody waits for a place.
            Some(network.hold_us(0) + network.outside_us)
        };
        (places, memory, response_us)
    }

    /// The response time of a request that waits for nobody, microseconds.
    pub fn alone_us(&self) -> f64 {
        let network = self.network(Draw::default());
        let held_us: f64 = network.pools.iter().map(|pool| pool.own_us).sum();
        held_us
            + self.cpu_us(Draw::default())
            + network.rest_us
            + network.outside_us
            + network.link_us.unwrap_or(0.0)
    }
}
