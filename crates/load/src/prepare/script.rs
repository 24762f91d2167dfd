//! What visitors do, in the engine's terms: sessions and steps, what each needs and keeps, and how it is counted.

use super::{Plan, name_of};
use crate::recorder::Labels;
use crate::script::choose::Weighted;
use webdyno_model::visit::{Resources, SessionSpec, StepSpec, Think, Visits};
use webdyno_model::workload::{Arrival, RequestSpec, Workload};
use webdyno_model::{Result, UserError};

/// What browsers ask for, so that servers compress as they do for them.
const ACCEPT_ENCODING: (&str, &str) = ("Accept-Encoding", "gzip, deflate, br");

/// The visits of a workload.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) sessions: Vec<Session>,
    /// Which of them is next.
    pub(crate) choice: Weighted,
    /// Visitors of a closed load.
    pub(crate) users: u32,
    pub(crate) cookies: bool,
    pub(crate) cache: bool,
    pub(crate) returning_fraction: f64,
    /// Most connections of a visitor to a server.
    pub(crate) connections_per_host: u32,
    /// Names of pages.
    pub(crate) pages: Vec<String>,
    /// Captures, as `STEP: NAME`.
    pub(crate) captures: Vec<String>,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) steps: Vec<Step>,
}

/// A step.
#[derive(Debug)]
pub(crate) struct Step {
    /// The request, or the page's document.
    pub(crate) request: u32,
    pub(crate) page: Option<Page>,
    /// The time after it.
    pub(crate) think: Think,
}

/// A page.
#[derive(Debug)]
pub(crate) struct Page {
    /// Which of the names of pages.
    pub(crate) name: usize,
    pub(crate) resources: Resources,
}

impl Script {
    /// Reads the visits of a workload that was checked.
    pub(super) fn of(workload: &Workload) -> Result<Option<Self>> {
        let Some(visits) = &workload.visits else { return Ok(None) };
        let mut script = Self {
            sessions: vec![],
            choice: Weighted::of(visits.sessions.iter().map(|session| session.weight)),
            users: visits.users,
            cookies: visits.cookies,
            cache: visits.cache,
            returning_fraction: visits.returning_fraction,
            connections_per_host: visits.connections_per_host,
            pages: vec![],
            captures: vec![],
        };
        for spec in &visits.sessions {
            let steps = spec.steps.iter().map(|step| script.step(workload, visits, step));
            let steps = steps.collect::<Result<_>>()?;
            script.sessions.push(Session { steps });
        }
        Ok(Some(script))
    }

    fn step(&mut self, workload: &Workload, visits: &Visits, spec: &StepSpec) -> Result<Step> {
        let name = &workload.requests[spec.request].name;
        let page = spec
            .page
            .as_ref()
            .map(|page| Page { name: name_of(name, &mut self.pages), resources: page.resources.clone() });
        let think = spec.think.unwrap_or(visits.think);
        Ok(Step { request: spec.request as u32, page, think })
    }

    /// The step of a session.
    #[inline]
    pub(crate) fn step_at(&self, session: u32, step: u32) -> &Step {
        &self.sessions[session as usize].steps[step as usize]
    }
}

impl Plan {
    /// What the figures of this load are named.
    pub(crate) fn labels(&self) -> Labels {
        let pages = self.script.as_ref().filter(|script| !script.pages.is_empty());
        Labels {
            requests: self.names.clone(),
            pages: pages.map(|script| script.pages.clone()),
            captures: self.script.as_ref().map(|script| script.captures.clone()).unwrap_or_default(),
        }
    }
}

/// The requests as they are to be sent: pages and their parts are asked for as a browser does.
pub(super) fn as_browsers_do(workload: &Workload) -> Vec<RequestSpec> {
    let mut requests = workload.requests.clone();
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

/// Refuses visits that cannot be meant.
pub(super) fn check(workload: &Workload) -> Result<()> {
    let Some(visits) = &workload.visits else { return Ok(()) };
    let wrong = |message: &str, hint: &str| Err(UserError::usage(message).hint(hint));
    if visits.sessions.is_empty() {
        return wrong("there is no session for the visitors", "give them a page or a step at least");
    }
    if visits.users == 0 && workload.arrival == Arrival::Closed {
        return wrong("0 users visit nothing", "give at least one user");
    }
    if visits.connections_per_host == 0 {
        return wrong("0 connections per host cannot carry a request", "browsers open 6: leave it out");
    }
    if !(0.0..=1.0).contains(&visits.returning_fraction) {
        let message = format!("{} is no share of visitors who come back", visits.returning_fraction);
        return wrong(&message, "give one from 0 to 1");
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
    }
    Ok(())
}
