//! A workload as it was written, by a file or by flags, before defaults are filled in: flags may still change what a
//! file says.

use crate::workload::urls::UrlList;
use std::collections::{BTreeMap, BTreeSet};
use url::Url;
use webdyno_model::objective::Objective;
use webdyno_model::transport::Transport;
use webdyno_model::workload::stage;
use webdyno_model::workload::stage::{StageDraft, Unit};
use webdyno_model::workload::visit::{
    CONNECTIONS_PER_HOST, PageSpec, RequestList, RowOrder, SessionSpec, StepSpec, Table, Think, Visits,
};
use webdyno_model::workload::{Arrival, Expectation, RequestSpec, StatusSet, Stop, Workload};
use webdyno_model::{Result, UserError};

/// Requests at once, and visitors, when none is set.
const CONCURRENCY_DEFAULT: u32 = 50;
/// Redirects in a row that visitors follow, when none is set. Browsers follow 20 (WHATWG Fetch, 4.4); a site that
/// needs more than 10 is broken.
pub const VISITOR_REDIRECTS_DEFAULT: u32 = 10;
/// Connections of a load of visitors at a given rate, when none is set.
const CONNECTIONS_OPEN_DEFAULT: u32 = 10_000;
/// Upper bound of the default number of connections.
const CONNECTIONS_MAX: u32 = 1_000_000;
/// Seconds of a load, when none is set.
const DURATION_US_DEFAULT: u64 = 10_000_000;

/// Settings of the load as a whole; `None` where a setting is not given.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)] // as in Workload and Visits
pub struct Settings {
    pub users: Option<u32>,
    /// Requests or sessions a second; with it the arrival is open.
    pub rate_per_s: Option<f64>,
    pub poisson: Option<bool>,
    pub duration_us: Option<u64>,
    /// Before the duration, from nothing to the full load.
    pub ramp_us: Option<u64>,
    /// After it, and down to nothing.
    pub ramp_down_us: Option<u64>,
    pub think: Option<Think>,
    pub seed: Option<u64>,
    pub timeout_us: Option<u64>,
    pub connections: Option<u32>,
    pub keepalive: Option<bool>,
    pub http2: Option<bool>,
    pub http3: Option<bool>,
    /// Requests in flight on each connection of HTTP/2 or HTTP/3.
    pub streams: Option<u32>,
    pub redirects_max: Option<u32>,
    pub cookies: Option<bool>,
    pub cache: Option<bool>,
    pub returning_fraction: Option<f64>,
    pub session_order: Option<RowOrder>,
    pub connections_per_host: Option<u32>,
    pub ok_status: Option<StatusSet>,
    pub expect: Vec<Expectation>,
    /// Instead of rate or users, duration and ramps.
    pub stages: Vec<StageDraft>,
    /// Connections that this machine's limit of open files has room for; only a default is lowered to it.
    pub connections_allowed: Option<u32>,
}

/// One of the things that are chosen between, each time something begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// What happens.
    pub session: SessionSpec,
    /// Whether it is a request alone, which needs no visitor.
    pub is_request: bool,
}

/// A workload without its defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    /// Settings of the load.
    pub settings: Settings,
    /// What must be met.
    pub objectives: Vec<Objective>,
    /// Where the first of these are defined, as FILE:LINE:COLUMN; those of flags have no place.
    pub objective_places: Vec<String>,
    /// All requests, each once.
    pub requests: Vec<RequestSpec>,
    /// What is chosen between.
    pub entries: Vec<Entry>,
    /// The value of each `${name}`.
    pub variables: BTreeMap<String, String>,
    /// Rows for sessions.
    pub tables: Vec<Table>,
    /// A list that requests are taken from; then `requests` are its kinds.
    pub list: Option<RequestList>,
}

impl Draft {
    /// Requests in turn, or pages: then each is loaded with its embedded resources.
    pub fn from_requests(requests: Vec<RequestSpec>, are_pages: bool) -> Self {
        let entry = |(index, request): (usize, &RequestSpec)| {
            let page = are_pages.then(PageSpec::default);
            let step = StepSpec { request: index, page, ..StepSpec::default() };
            let session = SessionSpec { name: request.name.clone(), weight: 1.0, steps: vec![step] };
            Entry { session, is_request: !are_pages }
        };
        let entries = requests.iter().enumerate().map(entry).collect();
        Self { requests, entries, ..Self::default() }
    }

    /// The requests of a list.
    pub fn from_list(list: UrlList, file: &str, headers: &[(String, String)], random: bool) -> Self {
        let mut workload = Workload::default();
        list.apply_to(&mut workload, file, headers, random);
        Self { requests: workload.requests, list: workload.list, ..Self::default() }
    }

    /// Whether it needs visitors: for sessions or pages, variables, think times, or other settings of visitors.
    pub fn has_visitors(&self) -> bool {
        let settings = &self.settings;
        let theirs = [
            settings.users.is_some(),
            settings.think.is_some(),
            settings.cookies.is_some(),
            settings.cache.is_some(),
            settings.returning_fraction.is_some(),
            settings.session_order.is_some(),
            settings.connections_per_host.is_some(),
            !self.tables.is_empty(),
        ];
        theirs.contains(&true)
            || self.entries.iter().any(|entry| !entry.is_request)
            || self.requests.iter().any(|request| request.has_variables)
    }

    /// The workload. `stop` is when it ends, without its ramps; stages define their own end. A usage error for what
    /// cannot be.
    pub fn workload(&self, stop: Stop) -> Result<Workload> {
        let settings = &self.settings;
        let visits = self.has_visitors().then(|| Box::new(self.visits()));
        self.check(stop, visits.is_some())?;
        let poisson = settings.poisson.unwrap_or(false);
        let requests = match &visits {
            _ if self.list.is_some() => self.requests.clone(),
            Some(_) => self.requests.clone(),
            None => self.entries.iter().map(|entry| self.weighted(entry)).collect(),
        };
        let redirects = if visits.is_some() { VISITOR_REDIRECTS_DEFAULT } else { 0 };
        let mut workload = Workload {
            requests,
            arrival: match settings.rate_per_s {
                Some(rate_per_s) => Arrival::Open { rate_per_s, poisson },
                // Stages of a rate put theirs in its place.
                None if poisson => Arrival::Open { rate_per_s: 1.0, poisson },
                None => Arrival::Closed,
            },
            stop,
            connections: settings.connections.unwrap_or(CONCURRENCY_DEFAULT),
            timeout_us: settings.timeout_us.unwrap_or(Workload::default().timeout_us),
            keepalive: settings.keepalive.unwrap_or(true),
            ok_status: settings.ok_status.clone().unwrap_or_default(),
            expect: settings.expect.clone(),
            seed: settings.seed.unwrap_or(1),
            redirects_max: settings.redirects_max.unwrap_or(redirects),
            visits,
            list: self.list.clone(),
            transport: Transport {
                http2_streams: (settings.http2 == Some(true)).then(|| settings.streams.unwrap_or(1)),
                http3_streams: (settings.http3 == Some(true)).then(|| settings.streams.unwrap_or(1)),
                ..Transport::default()
            },
            ..Workload::default()
        };
        if let Some(written) = self.stages(&workload)? {
            workload.set_stages(stage::check_stages(&written)?);
        }
        if let (Some(visits), None) = (&workload.visits, settings.connections) {
            let (connections, per_server) = self.connections_default(visits, workload.arrival);
            workload.connections = connections;
            if let Some(visits) = &mut workload.visits {
                visits.connections_per_server = per_server;
            }
        }
        Ok(workload)
    }

    /// The workload as the file alone describes it.
    pub fn workload_as_written(&self) -> Result<Workload> {
        let length = self.settings.duration_us.unwrap_or(DURATION_US_DEFAULT);
        let duration_us = self.settings.stages.is_empty().then_some(length);
        self.workload(Stop { duration_us, requests: None })
    }

    /// A user who goes from page to page is the same one. A session of several steps is begun by a new visitor, and so
    /// is what starts at a rate.
    fn returning_default(&self) -> f64 {
        let at_a_rate = match self.settings.stages.first() {
            Some(stage) => stage.unit == Unit::PerSecond,
            None => self.settings.rate_per_s.is_some(),
        };
        let one_step = self.entries.iter().all(|entry| entry.session.steps.len() == 1);
        if one_step && !at_a_rate { 1.0 } else { 0.0 }
    }

    fn weighted(&self, entry: &Entry) -> RequestSpec {
        let index = entry.session.steps.first().map_or(0, |step| step.request);
        let request = self.requests.get(index).cloned().unwrap_or_default();
        RequestSpec { weight: entry.session.weight, ..request }
    }

    fn visits(&self) -> Visits {
        let settings = &self.settings;
        Visits {
            sessions: self.entries.iter().map(|entry| entry.session.clone()).collect(),
            in_turn: settings.session_order == Some(RowOrder::InTurn),
            users: settings.users.unwrap_or(CONCURRENCY_DEFAULT).max(1),
            think: settings.think.unwrap_or_default(),
            cookies: settings.cookies.unwrap_or(true),
            cache: settings.cache.unwrap_or(false),
            returning_fraction: settings.returning_fraction.unwrap_or(self.returning_default()),
            connections_per_host: settings.connections_per_host.unwrap_or(CONNECTIONS_PER_HOST),
            connections_per_server: None,
            variables: self.variables.clone(),
            tables: self.tables.clone(),
        }
    }

    /// Refuses contradictory settings, from files or flags.
    fn check(&self, stop: Stop, has_visits: bool) -> Result<()> {
        let refuse = |message: &str, hint: &str| Err(UserError::usage(message).hint(hint));
        let settings = &self.settings;
        if self.list.is_some() && has_visits {
            return refuse(
                "a list holds requests, and none of them is a visitor's",
                "leave out the flags for users (--users, --think, --page), or write pages and sessions",
            );
        }
        if self.entries.is_empty() && self.list.is_none() {
            return refuse(
                "there is nothing to load",
                "write a request, a page or a session: docs/workload.md",
            );
        }
        if settings.streams.is_some() && ![settings.http2, settings.http3].contains(&Some(true)) {
            return refuse(
                "streams are of HTTP/2 and HTTP/3, and the load speaks HTTP/1.1",
                "give --http2 or --http3 with --streams, or write http2 = true",
            );
        }
        if settings.users.is_some() && settings.rate_per_s.is_some() {
            return refuse(
                "users and a rate are two ways to say how much is loaded",
                "give one of --users and --rate: at a rate each session is begun by somebody new",
            );
        }
        if has_visits && stop.requests.is_some() {
            return refuse(
                "a number of requests would end the load in the midst of pages and sessions",
                "give a time with -d instead of -n",
            );
        }
        let is_open = match settings.stages.first() {
            Some(stage) => stage.unit == Unit::PerSecond,
            None => settings.rate_per_s.is_some(),
        };
        if settings.poisson == Some(true) && !is_open {
            return refuse("exponential gaps (poisson) need a rate", "give it, as in --rate 100");
        }
        self.check_stages(stop, has_visits)
    }

    /// Stages define the whole load and its duration.
    fn check_stages(&self, stop: Stop, has_visits: bool) -> Result<()> {
        let settings = &self.settings;
        let Some(stage) = settings.stages.first() else { return Ok(()) };
        let others = [
            (settings.users.is_some(), "a number of users"),
            (settings.rate_per_s.is_some(), "a rate"),
            (stop.duration_us.is_some(), "a duration"),
            (stop.requests.is_some(), "a number of requests"),
            (settings.ramp_us.is_some() || settings.ramp_down_us.is_some(), "a ramp"),
            (
                settings.connections.is_some() && !has_visits && stage.unit != Unit::PerSecond,
                "a number of connections, which each user of these stages has one of",
            ),
        ];
        if has_visits && stage.unit == Unit::Connections {
            return Err(UserError::usage(
                "stages of connections are for requests alone, and these are visitors",
            )
            .hint("write the levels of the stages as users or a rate, as in --stage 5m@50users"));
        }
        match others.into_iter().find(|(is_there, _)| *is_there) {
            None => Ok(()),
            Some((_, what)) => Err(UserError::usage(format!(
                "the load has stages, which say how much is loaded and for how long, and also {what}"
            ))
            .hint("change the stages, or leave them out")),
        }
    }

    /// The stages, if the load changes.
    fn stages(&self, workload: &Workload) -> Result<Option<Vec<StageDraft>>> {
        let settings = &self.settings;
        if !settings.stages.is_empty() {
            return Ok(Some(settings.stages.clone()));
        }
        if settings.ramp_us.is_none() && settings.ramp_down_us.is_none() {
            return Ok(None);
        }
        let Some(duration_us) = workload.stop.duration_us else {
            return Err(UserError::usage(
                "a ramp is part of a load with a given length, and this one has none",
            )
            .hint("`webdyno run` with -d loads for a given time"));
        };
        let (level, unit) = match (workload.arrival, &workload.visits) {
            (Arrival::Open { rate_per_s, .. }, _) => (rate_per_s, Unit::PerSecond),
            (Arrival::Closed, Some(visits)) => (f64::from(visits.users), Unit::Users),
            (Arrival::Closed, None) => (f64::from(workload.connections), Unit::Connections),
        };
        let ramp = |time: Option<u64>| time.unwrap_or(0);
        let times = (ramp(settings.ramp_us), duration_us, ramp(settings.ramp_down_us));
        Ok(Some(stage::ramped(level, unit, times)))
    }

    /// Connections of visitors when none is set: as many as all of them could use at once, and of these to each
    /// server.
    fn connections_default(&self, visits: &Visits, arrival: Arrival) -> (u32, Option<u32>) {
        let per_server = match arrival {
            Arrival::Open { .. } => None,
            Arrival::Closed => {
                let has_page = |step: &StepSpec| step.page.is_some();
                let has_pages = visits.sessions.iter().any(|session| session.steps.iter().any(has_page));
                let each = if has_pages { visits.connections_per_host } else { 1 };
                Some(visits.users.saturating_mul(each).min(CONNECTIONS_MAX))
            }
        };
        let wanted = per_server.map_or(CONNECTIONS_OPEN_DEFAULT, |each| each.saturating_mul(self.hosts()));
        let allowed = self.settings.connections_allowed.unwrap_or(CONNECTIONS_MAX);
        (wanted.min(allowed).clamp(1, CONNECTIONS_MAX), per_server)
    }

    /// Servers that the URLs name.
    fn hosts(&self) -> u32 {
        let authority = |request: &RequestSpec| {
            Url::parse(&request.url).ok().map(|url| url[..url::Position::BeforePath].to_owned())
        };
        let hosts: BTreeSet<String> = self.requests.iter().filter_map(authority).collect();
        (hosts.len() as u32).max(1)
    }
}
