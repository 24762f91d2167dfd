//! Predictions: what a server would do with pools of other sizes, other hardware or another load, from one recording. One model
//! ([`model`]) serves `webdyno predict` and the forecasts of remedies, and its stations are the ceilings.
//!
//! Method: operational laws (Denning and Buzen, "The operational analysis of queueing network models", 1978) for what a request takes
//! of each resource, mean value analysis of the network of pools and stations for what comes of it ([`crate::queueing`]).

pub(crate) mod memory;
pub(crate) mod model;
mod report;
pub(crate) mod sizes;

pub(crate) use report::observed;
pub use report::predict;
pub use sizes::{KNOWN, KnownSetting};

use crate::facts::{FactId, Facts};
use crate::limits::ceiling::Resource;
use crate::queueing::{Load, Solution};
use model::ServerModel;
use webdyno_model::change::SettingChange;
use webdyno_model::diagnosis::Predicted;
use webdyno_model::number::significant;

/// What is supposed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Supposition {
    /// Settings of [`KNOWN`].
    pub changes: Vec<SettingChange>,
    /// Users, or connections of a load without users.
    pub users: Option<f64>,
    /// Requests per second.
    pub rate: Option<f64>,
}

/// Errors of the model on kept recordings (docs/predictions.md): where a pool or users bind, and where processors do.
pub(crate) const ERROR: f64 = 0.12;
pub(crate) const ERROR_PROCESSORS: f64 = 0.15;
/// From this utilisation on processors bind.
const BINDS_FRACTION: f64 = 0.9;

/// Less than this share of what is offered is a rounding error, and nothing that is not served.
const ALL_SERVED: f64 = 1e-6;

/// What comes of a supposition.
pub(crate) struct Outcome {
    /// The model with what is supposed.
    pub model: ServerModel,
    pub solution: Solution,
    /// Successful requests per second.
    pub rate: f64,
    /// Half the 95% interval, as a share.
    pub error: f64,
    /// How many hold a place of each pool.
    pub busy: Vec<f64>,
}

/// The model with these changes, and what it gives. An error says which of them the recording does not tell anything of.
pub(crate) fn outcome(facts: &Facts, now: &ServerModel, supposed: &Supposition) -> Result<Outcome, String> {
    let mut model = now.clone();
    for change in &supposed.changes {
        model.suppose(change)?;
    }
    model.load = supposed_load(facts, now.load, supposed)?;
    let solution = model.network.solve(model.load);
    if now.is_cpu_bound && shrinks(&model, now) {
        // What a place is held for contains waits for the processors, which fewer requests at once do not have: how long, is not known.
        let mut free = model.clone();
        free.network.pools.iter_mut().for_each(|pool| pool.own_us = 0.0);
        if free.network.solve(model.load).rate > (1.0 + ERROR_PROCESSORS) * solution.rate {
            return Err("the processors were full, and for how long a request holds a place without waiting for them was not seen".into());
        }
    }
    let cap = model.cap(now.rate).unwrap_or(f64::INFINITY);
    let rate = (solution.rate * model.good_fraction).min(cap);
    let busy = model.busy(solution.rate);
    let used = model.network.processors.map_or(0.0, |(servers, us)| solution.rate * us / 1e6 / servers);
    let base = if used >= BINDS_FRACTION { ERROR_PROCESSORS } else { ERROR };
    let error = base.hypot(facts.value(FactId::rate_ci95_fraction).unwrap_or(0.0)).hypot(now.residual / 2.0);
    // Beyond twice of what was seen each doubling adds the error once more: what a request costs there nobody saw.
    let doublings = (rate / now.rate).log2().abs().max(1.0);
    // Processors that serve more at once lose time to it: each doubling of a pool beyond the first counts as well.
    let pools = model.network.pools.iter().zip(&now.network.pools);
    let resized = pools.map(|(one, before)| (one.places / before.places).log2().abs()).fold(1.0, f64::max);
    let widened = if used >= BINDS_FRACTION { doublings.max(resized.sqrt()) } else { doublings };
    Ok(Outcome { model, solution, rate, error: error * widened, busy })
}

fn shrinks(model: &ServerModel, now: &ServerModel) -> bool {
    let mut pools = model.network.pools.iter().zip(&now.network.pools);
    pools.any(|(one, before)| one.places < before.places)
}

fn supposed_load(facts: &Facts, now: Load, supposed: &Supposition) -> Result<Load, String> {
    match (now, supposed.users, supposed.rate) {
        (Load::Closed { users, think_us }, Some(wanted), None) => {
            let were = facts.value(FactId::users).unwrap_or(users);
            let users = users * wanted / were;
            if users > model::USERS_MAX {
                return Err(format!("more than {} users are not reckoned with", model::USERS_MAX));
            }
            Ok(Load::Closed { users, think_us })
        }
        (Load::Open { connections, .. }, None, Some(rate)) => Ok(Load::Open { rate, connections }),
        (Load::Closed { .. }, _, Some(_)) => {
            Err("a rate is of an open loop, and the recorded load was a closed one".into())
        }
        (Load::Open { .. }, Some(_), _) => {
            Err("users are of a closed loop, and the recorded load came at a rate".into())
        }
        (now, None, None) => Ok(now),
    }
}

/// What is expected of changes that are sizes of pools, as findings say it; `None` where the model does not tell.
pub(crate) fn of_changes(facts: &Facts, changes: &[SettingChange]) -> Option<Predicted> {
    let is_pool = |change: &SettingChange| {
        let known = sizes::KnownSetting::of(change);
        known.is_some_and(|one| matches!(one.resource, Resource::Workers | Resource::PhpChildren))
    };
    changes.first().filter(|change| is_pool(change))?;
    let known = changes.iter().filter(|change| sizes::KnownSetting::of(change).is_some());
    let now = ServerModel::of(facts).ok()?;
    // A pool that the recording says nothing of does not limit what another one brings.
    let supposed = known.filter(|change| now.clone().suppose(change).is_ok()).cloned().collect();
    let supposed = Supposition { changes: supposed, ..Supposition::default() };
    supposed.changes.first().filter(|change| is_pool(change))?;
    let found = outcome(facts, &now, &supposed).ok()?;
    let most = facts.value(FactId::offered_rate).unwrap_or(f64::INFINITY);
    let at = |sign: f64| significant((found.rate * (1.0 + sign * found.error)).clamp(0.0, most), 3);
    Some(Predicted { rate: significant(found.rate, 3), ci95: [at(-1.0), at(1.0)] })
}

impl ServerModel {
    /// The same with this change.
    pub(crate) fn suppose(&mut self, change: &SettingChange) -> Result<(), String> {
        let name = change.setting.full_name();
        let known = sizes::KnownSetting::of(change).ok_or_else(|| format!("the model knows no {name}"))?;
        let to = change.to.number().ok_or_else(|| format!("{name} is a number, not {}", change.to))?;
        let is_its = |ceiling: &crate::limits::ceiling::ResourceCeiling| sizes::is_size_of(change, ceiling);
        let untold = || format!("the recording does not tell what a request takes of the {}", known.what);
        match known.resource {
            Resource::Processors => {
                let all = self.processors.as_mut().and_then(|one| one.ceiling.max.replace(to));
                let network = self.network.processors.as_mut();
                let (all, (servers, _)) = all.zip(network).ok_or_else(untold)?;
                // What others use of them stays as it is.
                *servers = (*servers + to - all).max(0.01);
            }
            Resource::Link => {
                let all = self.link.as_mut().and_then(|one| one.ceiling.max.replace(to));
                let (all, us) = all.zip(self.network.link_us.as_mut()).ok_or_else(untold)?;
                *us *= all / to;
            }
            Resource::Memory => {}
            _ => {
                let place = self.pools.iter().position(is_its).ok_or_else(untold)?;
                let shrinks = to < self.network.pools[place].places;
                if shrinks && known.resource == Resource::Workers && self.is_link_full() {
                    return Err("the link was full, and how long a request holds a worker that does not wait for it was not seen".into());
                }
                self.pools[place].ceiling.max = Some(to);
                self.network.pools[place].places = (to - self.pools[place].idle).max(1.0);
            }
        }
        Ok(())
    }

    /// How many requests hold a place of each pool at this rate, the outermost first.
    fn busy(&self, rate: f64) -> Vec<f64> {
        // Of a database that refuses, the rate is of those alone that get through.
        let is_overloaded = |offered: f64| !self.refuses && offered > rate * (1.0 + ALL_SERVED);
        let mut inside = match self.load {
            Load::Closed { users, think_us } => users - rate * (think_us + self.network.outside_us) / 1e6,
            // What comes beyond what is served queues up until nobody is let in any more.
            Load::Open { rate: offered, connections } if is_overloaded(offered) => connections,
            Load::Open { .. } => rate * self.network.hold_us(0) / 1e6,
        };
        let each = self.network.pools.iter().map(|pool| {
            let busy = inside.clamp(0.0, pool.places);
            inside = busy - rate * pool.own_us / 1e6;
            busy
        });
        each.collect()
    }

    /// The lowest rate at which a ceiling that is no part of the network binds, and that is not reached yet. A table of connections
    /// binds by time, and not by a rate.
    fn cap(&self, rate_now: f64) -> Option<f64> {
        let binding = self.others.iter().filter(|one| one.finding.is_some() && one.fills.is_none());
        let binding = binding.filter(|one| one.resource != Resource::Memory);
        let rates = binding.filter_map(|one| one.ceiling.binds_at_rate);
        rates.filter(|rate| *rate > rate_now).reduce(f64::min)
    }
}

#[cfg(test)]
mod tests;
