//! Sessions and steps of visitors, prepared for the engine: what each needs and keeps, and how it is counted.

use super::dynamic::{Dynamic, fixed_url};
use super::{OTHER_NAMES, Plan, Template, name_index};
use crate::plan::request_template::{RequestForm, parse_url};
use crate::plan::script::capture::Captures;
use crate::plan::script::rows::TableRows;
use crate::plan::script::variables::{Names, VariableId, Variables};
use crate::plan::script::weighted::Weighted;
use crate::random::SplitMix;
use crate::results::recorder::Labels;
use std::collections::BTreeSet;
use std::io::Write as _;
use url::Url;
use webdyno_model::workload::visit::{PageSpec, Resources, SessionSpec, StepSpec, Table, Think, Visits};
use webdyno_model::workload::{Arrival, RequestSpec, Workload};
use webdyno_model::{Result, UserError};

/// The codings that browsers accept, so that servers compress as they do for browsers.
const ACCEPT_ENCODING: (&str, &str) = ("Accept-Encoding", "gzip, deflate, br");

/// The value of `grpc-timeout` has at most eight digits.
const GRPC_TIMEOUT_MAX: u64 = 99_999_999;

/// The visits of a workload.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) sessions: Vec<SessionPlan>,
    /// Which of them is next.
    pub(crate) choice: SessionChoice,
    /// Visitors of a closed load.
    pub(crate) users: u32,
    pub(crate) cookies: bool,
    pub(crate) cache: bool,
    pub(crate) returning_fraction: f64,
    /// Most connections of a visitor to a server.
    pub(crate) connections_per_host: u32,
    /// Connections that all of them could have to one server, when that is the only bound.
    pub(crate) connections_per_server: Option<u32>,
    /// Names of pages.
    pub(crate) pages: Vec<String>,
    /// Captures, as `STEP: NAME`.
    pub(crate) captures: Vec<String>,
    /// By the requests of the workload: those with variables.
    pub(crate) dynamic: Vec<Option<Dynamic>>,
    /// The values of variables at the beginning of each session.
    pub(crate) variables: Vec<(VariableId, String)>,
    pub(crate) tables: Vec<TableRows>,
    /// Whether a URL is read as a link on the page before.
    pub(crate) has_links: bool,
    /// Whether documents are searched for what they embed.
    pub(crate) discovers: bool,
}

/// Requests that a visitor can have in flight to one server: over HTTP/2 and HTTP/3 they share a connection, and as many as are
/// asked for can.
fn lanes_per_host(workload: &Workload, visits: &Visits) -> u32 {
    let streams = workload.transport.multiplexed_streams().filter(|streams| *streams > 1);
    streams.unwrap_or(visits.connections_per_host)
}

/// Which session is next.
#[derive(Debug)]
pub(crate) enum SessionChoice {
    InTurn,
    Weighted(Weighted),
}

impl SessionChoice {
    fn from_visits(visits: &Visits) -> Self {
        match visits.in_turn {
            true => Self::InTurn,
            false => Self::Weighted(Weighted::from_weights(visits.sessions.iter().map(|one| one.weight))),
        }
    }
}

#[derive(Debug)]
pub(crate) struct SessionPlan {
    pub(crate) steps: Vec<StepPlan>,
}

#[derive(Debug)]
pub(crate) struct StepPlan {
    /// The request, or the page's document.
    pub(crate) request: u32,
    pub(crate) page: Option<PagePlan>,
    pub(crate) captures: Captures,
    /// The label of its first capture.
    pub(crate) first_label: usize,
    /// The variables that it requires.
    pub(crate) needs: Vec<VariableId>,
    /// Whether it can always be taken: its variables have values from the beginning.
    pub(crate) is_always_possible: bool,
    /// The time after it.
    pub(crate) think: Think,
    /// When it is due at the earliest, since its session began.
    pub(crate) at_ns: u64,
}

#[derive(Debug)]
pub(crate) struct PagePlan {
    /// Which of the names of pages.
    pub(crate) name: usize,
    pub(crate) resources: Resources,
}

impl Script {
    /// Reads the visits of a workload that was checked.
    pub(super) fn from_workload(workload: &Workload, requests: &[RequestSpec]) -> Result<Option<Self>> {
        let Some(visits) = &workload.visits else { return Ok(None) };
        let mut names = Names::default();
        let mut always_set = vec![VariableId::USER, VariableId::SESSION];
        let mut variables = vec![];
        for (name, value) in &visits.variables {
            let id = names.declare(name)?;
            always_set.push(id);
            variables.push((id, value.clone()));
        }
        let mut tables = vec![];
        for table in &visits.tables {
            tables.push(TableRows::from_table(table, &mut names)?);
            always_set.extend(complete_columns(table).filter_map(|name| names.find(name)));
        }
        let captures = |session: &SessionSpec| -> Vec<_> {
            let of = |step: &StepSpec| {
                Captures::compile(&step.captures, &mut names).map_err(|error| UserError {
                    message: format!("step `{}`: {}", requests[step.request].name, error.message),
                    ..error
                })
            };
            session.steps.iter().map(of).collect()
        };
        // All names are known before the texts that use them are read: a later session may not, but a step may be used
        // before the one that captures.
        let captures: Vec<Vec<Result<Captures>>> = visits.sessions.iter().map(captures).collect();
        let dynamic = requests.iter().map(|spec| {
            let read = || Dynamic::parse(spec, &names, RequestForm::of(workload));
            spec.has_variables.then(read).transpose()
        });
        let mut script = Self {
            sessions: vec![],
            choice: SessionChoice::from_visits(visits),
            users: visits.users,
            cookies: visits.cookies,
            cache: visits.cache,
            returning_fraction: visits.returning_fraction,
            connections_per_host: lanes_per_host(workload, visits),
            connections_per_server: visits.connections_per_server.map(|each| {
                each.saturating_mul(lanes_per_host(workload, visits)) / visits.connections_per_host.max(1)
            }),
            pages: vec![],
            captures: vec![],
            dynamic: dynamic.collect::<Result<_>>()?,
            variables,
            tables,
            has_links: false,
            discovers: visits.sessions.iter().flat_map(|session| &session.steps).any(discovers),
        };
        script.has_links = script.dynamic.iter().flatten().any(Dynamic::is_link);
        for (spec, captures) in visits.sessions.iter().zip(captures) {
            let steps = spec.steps.iter().zip(captures);
            let steps =
                steps.map(|(step, captures)| Ok(script.step(requests, visits, step, captures?, &always_set)));
            let steps = steps.collect::<Result<_>>()?;
            script.sessions.push(SessionPlan { steps });
        }
        Ok(Some(script))
    }

    /// Requests that all visitors can have in flight, by the connections that they may have over HTTP/1.1.
    pub(crate) fn lanes(&self, workload: &Workload) -> u32 {
        let per_host = workload.visits.as_ref().map_or(1, |visits| visits.connections_per_host).max(1);
        let lanes = u64::from(workload.connections) * u64::from(self.connections_per_host);
        u32::try_from(lanes.div_ceil(u64::from(per_host))).unwrap_or(u32::MAX)
    }

    fn step(
        &mut self,
        requests: &[RequestSpec],
        visits: &Visits,
        spec: &StepSpec,
        captures: Captures,
        always_set: &[VariableId],
    ) -> StepPlan {
        let name = &requests[spec.request].name;
        let page = spec.page.as_ref().map(|page| PagePlan {
            name: name_index(name, &mut self.pages),
            resources: page.resources.clone(),
        });
        let first_label = self.captures.len();
        self.captures.extend(spec.captures.iter().map(|capture| format!("{name}: {}", capture.name)));
        let dynamic = self.dynamic[spec.request].as_ref();
        let needs = dynamic.map(Dynamic::needs).unwrap_or_default();
        // A link may lead anywhere.
        let is_always_possible =
            !dynamic.is_some_and(Dynamic::is_link) && needs.iter().all(|id| always_set.contains(id));
        StepPlan {
            request: spec.request as u32,
            page,
            captures,
            first_label,
            needs,
            is_always_possible,
            think: spec.think.unwrap_or(visits.think),
            at_ns: spec.at_us.unwrap_or(0).saturating_mul(1000),
        }
    }

    /// Sets the values of variables at the beginning of a session. Numbers count from 0, and are reported from 1.
    pub(crate) fn set_variables(
        &self,
        visitor: u64,
        session: u64,
        random: &mut SplitMix,
        variables: &mut Variables,
    ) {
        if self.dynamic.iter().all(Option::is_none) {
            return;
        }
        variables.clear();
        for (id, number) in [(VariableId::USER, visitor), (VariableId::SESSION, session)] {
            // Writing to memory does not fail.
            let _ = write!(variables.begin(id), "{}", number + 1);
        }
        for (id, value) in &self.variables {
            variables.set(*id, value.as_bytes());
        }
        for rows in &self.tables {
            rows.assign_row(session, random, variables);
        }
    }

    /// The request of the workload with this number, if it has variables.
    #[inline]
    pub(crate) fn dynamic_at(&self, request: u32) -> Option<&Dynamic> {
        self.dynamic.get(request as usize).and_then(Option::as_ref)
    }

    /// Whether a target is a request of the workload, which defines its own headers.
    pub(crate) fn is_listed(&self, target: u32) -> bool {
        (target as usize) < self.dynamic.len()
    }

    /// Which session the one with this number is.
    pub(crate) fn spec_of(&self, session: u64, random: &mut SplitMix) -> u32 {
        match &self.choice {
            SessionChoice::InTurn => (session % self.sessions.len() as u64) as u32,
            SessionChoice::Weighted(weights) => weights.draw(random) as u32,
        }
    }

    #[inline]
    pub(crate) fn step_at(&self, session: u32, step: u32) -> &StepPlan {
        &self.sessions[session as usize].steps[step as usize]
    }
}

impl Plan {
    /// The hosts that the URLs of the workload name, and redirects from there.
    pub(crate) fn hosts(&self) -> BTreeSet<String> {
        let hosts = self.templates.iter().filter_map(|template| template.url().host_str());
        hosts.map(str::to_owned).collect()
    }

    /// The documents of the pages that are searched for what they embed.
    pub(crate) fn discovered_pages(&self) -> BTreeSet<usize> {
        let steps = self.script.iter().flat_map(|script| &script.sessions).flat_map(|session| &session.steps);
        let discovers = |step: &&StepPlan| {
            let page = step.page.as_ref();
            page.is_some_and(|page| page.resources == Resources::Found)
                && self.templates[step.request as usize].is_safe()
        };
        steps.filter(discovers).map(|step| step.request as usize).collect()
    }

    /// Whether a request has variables.
    pub(crate) fn is_dynamic(&self, number: usize) -> bool {
        self.script.as_ref().is_some_and(|script| script.dynamic_at(number as u32).is_some())
    }

    /// The first request of the load, and how it is built, if it is.
    pub(crate) fn first_request(&self) -> (usize, Option<Template>) {
        let script = self.script.as_ref();
        let number = script.map_or(0, |script| script.step_at(0, 0).request as usize);
        (number, self.with_first_values(number))
    }

    /// A request with the values of the first session. `None` when it has no variables, or needs some of a response.
    pub(crate) fn with_first_values(&self, number: usize) -> Option<Template> {
        let script = self.script.as_ref()?;
        let dynamic = script.dynamic_at(number as u32)?;
        let mut variables = Variables::default();
        script.set_variables(0, 0, &mut SplitMix::new(self.seed), &mut variables);
        let url = dynamic.url(&variables, None)?;
        let origin = self.origin_at(&url)?;
        let source = dynamic.source(url, &variables)?;
        Some(Template::new(source, origin, self.templates[number].name))
    }

    /// Registers a name of its own for a part of a page, if there is room for one more.
    pub(crate) fn register_part_name(&mut self, path: &str) {
        name_index(path, &mut self.names);
    }

    /// Under which name a part of a page counts: its path, if that was seen before the load.
    pub(crate) fn part_name(&self, path: &str) -> usize {
        let place = |name: &str| self.names.iter().position(|known| known == name);
        place(path).or_else(|| place(OTHER_NAMES)).unwrap_or(0)
    }

    /// What the figures of this load are named.
    pub(crate) fn labels(&self) -> Labels {
        let pages = self.script.as_ref().filter(|script| !script.pages.is_empty());
        Labels {
            requests: self.names.clone(),
            pages: pages.map(|script| script.pages.clone()),
            speaks_grpc: self.speaks_grpc,
            captures: self.script.as_ref().map(|script| script.captures.clone()).unwrap_or_default(),
        }
    }
}

/// Whether a step is a page that is searched for what it embeds.
fn discovers(step: &StepSpec) -> bool {
    matches!(step.page, Some(PageSpec { resources: Resources::Found }))
}

/// The columns that have a value in each row.
fn complete_columns(table: &Table) -> impl Iterator<Item = &String> {
    let shortest = table.rows.iter().map(Vec::len).min().unwrap_or(0);
    table.columns.iter().take(shortest)
}

/// The URL that a request is known by before variables have values: of one whose URL is a variable, the first that is
/// written out.
pub(super) fn representative_url(spec: &RequestSpec, requests: &[RequestSpec]) -> Result<Url> {
    if !spec.has_variables {
        return parse_url(&spec.url);
    }
    if let Some(url) = fixed_url(&spec.url)? {
        return Ok(url);
    }
    let others = requests.iter().filter(|other| !other.url.starts_with("${"));
    match others.map(|other| fixed_url(&other.url)).next() {
        Some(Ok(Some(url))) => Ok(url),
        Some(Err(error)) => Err(error),
        _ => Err(UserError::usage(format!("`{}` leads from no page, as there is none before it", spec.url))
            .hint("write the URL of the first step out")),
    }
}

/// The request as far as it is the same each time: what its redirects and the parts of its page are made from.
pub(super) fn fixed_part(spec: &RequestSpec) -> RequestSpec {
    let mut spec = spec.clone();
    if spec.has_variables {
        spec.headers.retain(|(_, value)| !value.contains("${"));
    }
    spec
}

/// The names of requests, and one for those that are found beyond them.
pub(super) fn add_other_name(names: &mut Vec<String>) {
    if !names.iter().any(|name| name == OTHER_NAMES) {
        names.push(OTHER_NAMES.to_owned());
    }
}

/// The requests as they are to be sent: pages and their parts as a browser requests them.
pub(super) fn with_browser_headers(workload: &Workload) -> Vec<RequestSpec> {
    let mut requests = workload.requests.clone();
    for headers in requests.iter_mut().filter(|spec| is_grpc(spec)).map(|spec| &mut spec.headers) {
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("grpc-timeout")) {
            let timeout_ms = (workload.timeout_us / 1000).clamp(1, GRPC_TIMEOUT_MAX);
            headers.push(("grpc-timeout".into(), format!("{timeout_ms}m")));
        }
    }
    let Some(visits) = &workload.visits else { return requests };
    let steps = visits.sessions.iter().flat_map(|session| &session.steps);
    for (step, page) in steps.filter_map(|step| Some((step, step.page.as_ref()?))) {
        let listed = match &page.resources {
            Resources::Listed(parts) => parts.as_slice(),
            _ => &[],
        };
        for place in listed.iter().map(|part| part.request).chain([step.request]) {
            let headers = &mut requests[place].headers;
            if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(ACCEPT_ENCODING.0)) {
                headers.push((ACCEPT_ENCODING.0.to_owned(), ACCEPT_ENCODING.1.to_owned()));
            }
        }
    }
    requests
}

/// Whether a request is a call of gRPC.
pub(super) fn is_grpc(spec: &RequestSpec) -> bool {
    let is_type = |(name, value): &(String, String)| {
        name.eq_ignore_ascii_case("content-type") && value.starts_with("application/grpc")
    };
    spec.headers.iter().any(is_type)
}

/// Refuses visits that cannot be meant.
pub(super) fn check(workload: &Workload) -> Result<()> {
    let Some(visits) = &workload.visits else { return Ok(()) };
    let refuse = |message: &str, hint: &str| Err(UserError::usage(message).hint(hint));
    if visits.sessions.is_empty() {
        return refuse("there is no session for the visitors", "give them a page or a step at least");
    }
    if workload.list.is_some() {
        return refuse(
            "visitors do what their steps say, and a list says it too",
            "give the one or the other",
        );
    }
    if visits.users == 0 && workload.arrival == Arrival::Closed {
        return refuse("0 users visit nothing", "give at least one user");
    }
    if visits.connections_per_host == 0 {
        return refuse("0 connections per host cannot carry a request", "browsers open 6: leave it out");
    }
    if !(0.0..=1.0).contains(&visits.returning_fraction) {
        let message = format!("{} is no share of visitors who come back", visits.returning_fraction);
        return refuse(&message, "give one from 0 to 1");
    }
    visits.sessions.iter().try_for_each(|session| check_session(workload, session))
}

fn check_session(workload: &Workload, session: &SessionSpec) -> Result<()> {
    let named = |what: &str| UserError::usage(format!("session `{}` {what}", session.name));
    if session.steps.is_empty() {
        return Err(named("has no steps").hint("give it a page or a request at least"));
    }
    if !(session.weight > 0.0 && session.weight.is_finite()) {
        return Err(named(&format!("has the weight {}", session.weight)).hint("give one above 0"));
    }
    for step in &session.steps {
        let parts = match step.page.as_ref().map(|page| &page.resources) {
            Some(Resources::Listed(parts)) => parts.as_slice(),
            _ => &[],
        };
        let count = workload.requests.len();
        let places = parts.iter().map(|part| part.request).chain([step.request]);
        if let Some(place) = places.into_iter().find(|place| *place >= count) {
            return Err(named(&format!("names request {place}, and there are {count}")));
        }
        if discovers(step) && workload.requests[step.request].method == "HEAD" {
            return Err(named("has a page that is asked for with HEAD, which brings nothing to be searched")
                .hint("ask for it with GET, or leave the page out and load the request alone"));
        }
    }
    Ok(())
}
