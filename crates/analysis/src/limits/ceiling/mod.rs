//! Ceilings: limits before they are hit, with the rate at which each will bind. A kind of limit is a file.
//!
//! What a request uses of a limit is known from what all of them use now: a limit of 100 of which a rate of 50 requests/s
//! uses 20 binds at 250 requests/s (Little's law, or the utilisation law). Where use does not grow with the rate, or
//! it is not counted, the rate is unknown.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::resources::processors;
use crate::resources::utilisation::rate;
use webdyno_model::diagnosis::Ceiling;
use webdyno_model::number::significant;

/// The ceiling of a resource, and the finding that it becomes when it binds.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceCeiling {
    /// As it is shown.
    pub ceiling: Ceiling,
    /// Id of the finding; `None` for one whose overflow alone costs nothing.
    pub finding: Option<LimitId>,
    /// What it is a ceiling of.
    pub resource: Resource,
    /// What is used of it without any request, as part of today's use.
    pub idle: f64,
    /// Of a table whose entries stay long after their answer: how it fills.
    pub fills: Option<TableFill>,
}

impl ResourceCeiling {
    /// The rate at which it would bind if it were of this size.
    pub fn rate_at_size(&self, size: f64) -> Option<f64> {
        let before = self.ceiling.max? - self.idle;
        let room = size - self.idle;
        (before > 0.0 && room > 0.0).then(|| self.ceiling.binds_at_rate.map(|rate| rate * room / before))?
    }
}

/// Beyond this multiple of what the machine can serve a limit is no concern.
const REMOTE_RATIO: f64 = 10.0;

impl ResourceCeiling {
    /// Whether it saturates so far beyond what the machine can serve that it is no concern.
    pub fn is_remote(&self, machine_rate: Option<f64>) -> bool {
        let is_physical = matches!(self.resource, Resource::Processors | Resource::Link);
        let rates = self.ceiling.binds_at_rate.zip(machine_rate);
        !is_physical && rates.is_some_and(|(saturates, machine)| saturates > REMOTE_RATIO * machine)
    }
}

/// A ceiling less than so far below what is served is the measure of it that is off; one further below is of something else.
const BELOW_SERVED_MAX: f64 = 0.2;

impl ResourceCeiling {
    /// The same with a rate that is not below what is served already, which disproves it: then it saturates at what is served, or
    /// where it would be far below, at an unknown rate.
    pub fn not_below_served(mut self, facts: &Facts) -> Self {
        // A table that fills binds later at rates that are passed now.
        let Some(served) = rate(facts).filter(|_| self.fills.is_none()) else { return self };
        let Some(binds) = self.ceiling.binds_at_rate else { return self };
        let error = facts.value(FactId::rate_ci95_fraction).unwrap_or(0.0);
        let highest = self.ceiling.binds_at_ci95.map_or(binds, |ci95| ci95[1]);
        if highest >= served * (1.0 - error) {
            return self;
        }
        let is_near = binds >= served * (1.0 - BELOW_SERVED_MAX);
        let at = |factor: f64| significant(served * factor, 4);
        self.ceiling.binds_at_rate = is_near.then(|| at(1.0));
        self.ceiling.binds_at_ci95 =
            self.ceiling.binds_at_ci95.filter(|_| is_near).map(|_| [at(1.0 - error), at(1.0 + error)]);
        self
    }
}

/// The most that the processors and the link can serve, if a request costs what it costs now (utilisation law); `None` where
/// neither is known.
pub fn rate_of_machine(facts: &Facts, all: &[ResourceCeiling]) -> Option<f64> {
    let links = all.iter().filter(|one| one.resource == Resource::Link);
    let links = links.filter_map(|one| one.ceiling.binds_at_rate);
    let cores = facts.value(FactId::cores).zip(processors::own_cores(facts)).filter(|(_, own)| *own > 0.0);
    let processors = cores.zip(rate(facts)).map(|((cores, own), rate)| rate * cores / own);
    links.chain(processors).reduce(f64::min)
}

/// How a table fills whose entries stay for a minute or two after their answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableFill {
    /// Entries in it now.
    pub entries: f64,
    /// The most there can be.
    pub max: f64,
}

impl TableFill {
    /// Whether another load as long as the one that brought it to what it holds now fills it, if it is at so many times the
    /// rate.
    pub fn fills_at(&self, times: f64) -> bool {
        self.max - self.entries <= self.entries * times
    }
}

/// What ceilings are of, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Workers of Apache.
    Workers,
    /// Children of PHP-FPM.
    PhpChildren,
    /// Workers of an application server behind the front.
    ApplicationWorkers,
    /// Connections that the front may have to a backend.
    BackendConnections,
    /// Connections of the database.
    DatabaseConnections,
    /// Processors.
    Processors,
    /// One thread that does all the work of a program.
    Thread,
    /// Memory.
    Memory,
    /// What a network link carries.
    Link,
    /// Connections that a front of few processes may have.
    FrontConnections,
    /// Places in the accept queue.
    AcceptQueue,
    /// Entries of the packet filter's table.
    TrackedConnections,
    /// Sockets in TIME_WAIT.
    TimeWait,
    /// Local ports towards a backend.
    LocalPorts,
    /// Open files of a process.
    OpenFiles,
    /// Requests that a protection lets through.
    RequestLimit,
}

impl Resource {
    /// Whether it is held while an answer is made, so that its ceiling rises when that takes less time.
    pub fn is_held_by_requests(self) -> bool {
        matches!(
            self,
            Self::Workers
                | Self::PhpChildren
                | Self::ApplicationWorkers
                | Self::BackendConnections
                | Self::DatabaseConnections
                | Self::Memory
        )
    }
}

/// What is used of a resource.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResourceUsage {
    pub(crate) now: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) binds_at_rate: Option<f64>,
    /// Half the width of the 95% interval of that rate, as a share of it.
    pub(crate) error: Option<f64>,
    /// What is used without any request.
    pub(crate) idle: f64,
}

impl ResourceUsage {
    /// A limit that says something: one whose size and use are both unknown does not.
    pub(crate) fn ceiling(
        self,
        resource: Resource,
        name: &str,
        source: &str,
        finding: Option<LimitId>,
    ) -> Option<ResourceCeiling> {
        let interval = |rate: f64, error: f64| {
            [1.0 - error, 1.0 + error].map(|factor| significant((rate * factor).max(0.0), 4))
        };
        let error = self.error.filter(|error| error.is_finite() && *error < 1.0);
        let binds = self.binds_at_rate.filter(|rate| rate.is_finite() && *rate > 0.0);
        (self.now.is_some() || self.max.is_some()).then(|| ResourceCeiling {
            ceiling: Ceiling {
                limit: name.into(),
                now: self.now.map(|value| significant(value, 4)),
                max: self.max.map(|value| significant(value, 6)),
                binds_at_rate: binds.map(|value| significant(value, 4)),
                binds_at_ci95: binds.zip(error).map(|(rate, error)| interval(rate, error)),
                is_remote: false,
                source: source.into(),
            },
            finding,
            resource,
            idle: self.idle,
            fills: None,
        })
    }

    /// The same of a table whose entries stay after their answer.
    pub(crate) fn table(
        self,
        resource: Resource,
        name: &str,
        source: &str,
        finding: Option<LimitId>,
    ) -> Option<ResourceCeiling> {
        let fills = self.now.zip(self.max).map(|(entries, max)| TableFill { entries, max });
        self.ceiling(resource, name, source, finding).map(|ceiling| ResourceCeiling { fills, ..ceiling })
    }
}

#[cfg(test)]
mod tests;
