//! One visitor: where it is in its session, what it fetches just now, and its connections.

use super::embedded::{EmbeddedResources, Kind};
use crate::plan::script::cache::Cache;
use crate::plan::script::cookies::Jar;
use crate::plan::script::variables::Variables;
use crate::random::SplitMix;
use crate::results::failure::Failure;
use std::rc::Rc;
use url::Url;
use webdyno_model::page::FetchedBy;

/// What a visitor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// No visitor is present.
    #[default]
    Absent,
    /// It waits for its next session, or begins it.
    BeforeSession,
    /// It spends its think time.
    BeforeStep,
    Fetching,
}

/// A visitor; by default the place for one. Its memory is used again by the next one in its place.
#[derive(Debug, Default)]
pub(super) struct Visitor {
    pub(super) phase: Phase,
    /// Number of the visitor, the same whatever the number of threads.
    pub(super) number: u64,
    /// Number of its session among all sessions of the load.
    pub(super) session: u64,
    /// Draws of this session.
    pub(super) random: SplitMix,
    /// Which of the sessions of the workload.
    pub(super) spec: u32,
    /// When its session was to begin.
    pub(super) begun_ns: u64,
    /// The step that is due next, or in progress.
    pub(super) step: u32,
    /// When that was to begin.
    pub(super) due_ns: u64,
    /// Changes with every step, so that an outdated reference to a step is recognised.
    pub(super) serial: u32,
    /// Steps in a row for which no connection could be established.
    pub(super) failures: u8,
    /// A step was skipped.
    pub(super) incomplete: bool,
    /// It waits in the queue for a connection.
    pub(super) queued: bool,
    /// It is in the queue of visitors that can continue.
    pub(super) ready: bool,
    /// The document, or the required parts, of the page in progress failed.
    pub(super) page_failed: bool,
    /// What the step fetches, in the order in which it became known: the step's own request first.
    pub(super) fetches: Vec<Fetch>,
    /// Those of them that have not ended.
    pub(super) left: u32,
    /// No fetch before this one waits.
    pub(super) first_waiting: u32,
    /// Connections that it has, by server.
    pub(super) open: Vec<u16>,
    /// Of these, the ones that carry nothing, by their tokens.
    pub(super) idle: Vec<u64>,
    pub(super) jar: Jar,
    pub(super) cache: Cache,
    pub(super) variables: Variables,
    /// The URL of the step before, where links are followed.
    pub(super) url: Option<Box<Url>>,
}

impl Visitor {
    /// Adds a fetch, or a response from the cache.
    pub(super) fn add(&mut self, fetch: Fetch) {
        self.left += u32::from(fetch.state != State::Ended);
        self.first_waiting = self.first_waiting.min(self.fetches.len() as u32);
        self.fetches.push(fetch);
    }

    /// Whether the step has a fetch of this target already.
    pub(super) fn has_fetch(&self, target: u32) -> bool {
        self.fetches.iter().any(|fetch| fetch.first_target == target)
    }

    /// The first fetch that waits, from `from` on.
    pub(super) fn waiting_from(&self, from: u32) -> Option<u32> {
        let waits = |fetch: &Fetch| fetch.state == State::Waiting;
        let rest = self.fetches.get(from as usize..)?;
        rest.iter().position(waits).map(|index| from + index as u32)
    }

    /// How many connections it has to this server.
    pub(super) fn open_to(&self, origin: usize) -> u16 {
        self.open.get(origin).copied().unwrap_or(0)
    }

    /// It has one more connection to this server.
    pub(super) fn opened(&mut self, origin: usize) {
        if self.open.len() <= origin {
            self.open.resize(origin + 1, 0);
        }
        self.open[origin] += 1;
    }

    /// A connection of its is gone.
    pub(super) fn closed(&mut self, origin: usize, token: u64) {
        if let Some(open) = self.open.get_mut(origin) {
            *open = open.saturating_sub(1);
        }
        self.idle.retain(|kept| *kept != token);
    }
}

/// How far a fetch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The cache has it, and its parts were not looked for yet.
    Cached,
    /// Not sent yet.
    Waiting,
    /// It is on a connection.
    InProgress,
    /// It has its outcome.
    Ended,
}

/// One request of a visitor, and how it went.
#[derive(Debug, Clone)]
pub(super) struct Fetch {
    pub(super) state: State,
    pub(super) kind: Kind,
    /// The cache has it, and it is revalidated with the server.
    pub(super) confirms: bool,
    /// What it embeds, as far as that is known.
    pub(super) list: Option<Rc<EmbeddedResources>>,
    /// Its URL, when that has variables.
    pub(super) url: Option<Box<Url>>,
    /// Which of the thread's targets; a redirect changes it.
    pub(super) target: u32,
    /// The target that it began with.
    pub(super) first_target: u32,
    pub(super) origin: u32,
    /// The origin before any redirect.
    pub(super) first_origin: u32,
    /// Whether the page fails without it.
    pub(super) required: bool,
    /// When it was known.
    pub(super) discovered_ns: u64,
    /// Since when it could have been sent, but for connections.
    pub(super) sendable_ns: u64,
    /// When it times out; 0 before it had a connection.
    pub(super) deadline_ns: u64,
    /// Redirects that it has followed.
    pub(super) hops: u32,
    /// When its first request was sent; 0 when it never was.
    pub(super) sent_ns: u64,
    pub(super) first_byte_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) status: u16,
    pub(super) bytes: u64,
    pub(super) by: FetchedBy,
    pub(super) failure: Option<Failure>,
}

impl Fetch {
    /// A request to this target of this server, known since `discovered_ns`.
    pub(super) fn new(target: u32, origin: usize, discovered_ns: u64, sendable_ns: u64) -> Self {
        Self {
            state: State::Waiting,
            kind: Kind::Step,
            confirms: false,
            list: None,
            url: None,
            target,
            first_target: target,
            origin: origin as u32,
            first_origin: origin as u32,
            required: true,
            discovered_ns,
            sendable_ns,
            deadline_ns: 0,
            hops: 0,
            sent_ns: 0,
            first_byte_ns: 0,
            ended_ns: 0,
            status: 0,
            bytes: 0,
            by: FetchedBy::NewConnection,
            failure: None,
        }
    }
}

/// How a response, or its absence, ended a fetch.
#[derive(Debug)]
pub(in crate::engine) struct FetchEnd {
    pub(in crate::engine) failure: Option<Failure>,
    pub(in crate::engine) end_ns: u64,
    pub(in crate::engine) status: u16,
    pub(in crate::engine) sent_ns: Option<u64>,
    pub(in crate::engine) first_byte_ns: u64,
    pub(in crate::engine) bytes: u64,
    pub(in crate::engine) kept_connection: bool,
    /// The slot that carried it.
    pub(in crate::engine) slot: u32,
    /// The decoded content of the response, if it was to be kept.
    pub(in crate::engine) body: Option<Vec<u8>>,
}
