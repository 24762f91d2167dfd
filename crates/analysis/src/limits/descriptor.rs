//! What is registered of a limit: `LIMIT` in the `mod.rs` of its folder. What is left out has the value of [`Limit::of`].

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling};
use crate::limits::config_check::ConfigFinding;
use crate::limits::incident::IncidentRule;
use crate::limits::search_range::SearchRange;
use webdyno_model::diagnosis::Finding;
use webdyno_model::processor_time::ProcessorWork;

/// Everything that is known of a limit.
#[derive(Clone, Copy)]
pub struct Limit {
    /// Stable id.
    pub id: LimitId,
    /// What it is called, for people.
    pub title: &'static str,
    /// The source of its `mod.rs`; the manual's text is the `//!` head.
    pub(crate) source: &'static str,
    /// Facts that the code in its folder reads or cites; what computations that it shares with others read is not listed again.
    pub reads: &'static [&'static [FactId]],
    /// The finding, where these facts prove that it binds.
    pub check: fn(&Facts) -> Option<Finding>,
    /// Limits that bind because of this one: they are listed behind it, as they go with it.
    pub causes: &'static [LimitId],
    /// The rates at which it will bind.
    pub ceilings: &'static [fn(&Facts) -> Option<ResourceCeiling>],
    /// What the settings alone prove, without any load.
    pub config_checks: &'static [fn(&Facts) -> Option<ConfigFinding>],
    /// What shows it on a watched host.
    pub incidents: &'static [IncidentRule],
    /// Resources whose ceilings its remedy moves, so that these are not what binds next.
    pub relieves: &'static [Resource],
    /// Whether its remedies take memory back: then they may be tried after a load that had to be stopped for want of it.
    pub frees_memory: bool,
    /// Whether an answer holds its worker, connection and memory for as long as before when it is lifted, or for a time that is
    /// known. All others stretch answers, by how much nobody knows.
    pub keeps_hold_times: bool,
    /// Whether it is what the machine or its line can give: tuning ends there, and looks for no other limit behind it.
    pub ends_tuning: bool,
    /// Whether the rate may be past its peak while it binds: fewer requests at once may then be served faster, and a search tells.
    pub is_past_peak: bool,
    /// The number that bounds how much is served at once, where it does that now, as a search may vary it; `None` where what is
    /// limited is no such number.
    pub search: Option<fn(&Facts) -> Option<SearchRange>>,
    /// What the facts become when it is lifted, beyond its own.
    pub after_lifting: Option<fn(&mut Facts)>,
    /// How a load with one thing changed fares while it binds; `None` where that is not known.
    pub kind: Option<LimitKind>,
    /// What samples of the processors show of it where these are full; `None` where it is not about their work, or decides by
    /// samples itself.
    pub work: Option<LimitWork>,
    /// How the rate that is expected when it is lifted is computed; `None` where arithmetic does not give one.
    pub gain: Option<LimitGain>,
    /// Whether it explains why responses are errors.
    pub makes_errors: bool,
    /// Whether the figures of a run in which it is found cannot be believed.
    pub invalidates_run: bool,
    /// Whether something is wrong with the server or the load.
    pub is_fault: bool,
    /// What it means for the reader that it remains; `None` for the sentence that refers to the manual.
    pub meaning: Option<&'static str>,
}

/// Kinds of limits, by what they are a limit on: the experiments' table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// On new connections.
    Connections,
    /// On workers or slots that idle kept connections hold.
    IdleConnections,
    /// On bytes, or on the way to the client.
    Transfer,
    /// On what computes documents, and not on files beside them; it binds while many ask at once.
    Documents,
    /// On workers: how many requests are served at once, whatever they ask for.
    Workers,
    /// On how many requests are served at once, and on what they cost.
    Concurrency,
    /// A cost that each document has to itself, however few ask.
    DocumentCost,
    /// A cost of each request or connection, however few ask.
    RequestCost,
}

/// Kinds of work that a limit gives the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitWork {
    /// Of these all that is seen is its.
    pub certain: &'static [ProcessorWork],
    /// Of these some may be.
    pub possible: &'static [ProcessorWork],
}

/// What a limit costs, and so what is expected when it is lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitGain {
    /// Only that requests wait for a place, or for a connection: what they take when they have it stays.
    Waiting,
    /// Answers: those that fail would take as long as the good ones. Who waits for a connection meanwhile is a good answer that
    /// takes longer than it would.
    Failures,
    /// Workers that are held for as long as clients take: only the wait for a worker goes.
    SlowClients,
    /// The part of the response time that the finding explains; the rest stays, and no request is answered sooner than one that was
    /// alone. Where nobody knows how long that takes, nothing is expected.
    Explained,
    /// The same of what a request that is alone waits for as well: it is quicker then than alone now.
    ExplainedOfEach,
    /// A request costs something else afterwards: up to where that goes nobody knows, so that only what clients ask for is a
    /// bound.
    Cost,
}

impl Limit {
    /// A limit of which nothing is known but its finding; its chapter the list of all limits gives it.
    pub const fn of(id: LimitId, title: &'static str, check: fn(&Facts) -> Option<Finding>) -> Self {
        Self {
            id,
            title,
            source: "",
            reads: &[],
            check,
            causes: &[],
            ceilings: &[],
            config_checks: &[],
            incidents: &[],
            relieves: &[],
            frees_memory: false,
            keeps_hold_times: false,
            ends_tuning: false,
            is_past_peak: false,
            search: None,
            after_lifting: None,
            kind: None,
            work: None,
            gain: None,
            makes_errors: false,
            invalidates_run: false,
            is_fault: true,
            meaning: None,
        }
    }

    /// The manual's chapter.
    pub fn manual(&self) -> String {
        let lines = self.source.lines().take_while(|line| line.starts_with("//!"));
        let text: Vec<&str> = lines.map(|line| line[3..].strip_prefix(' ').unwrap_or(&line[3..])).collect();
        format!("{}\n", text.join("\n").trim_end())
    }
}
