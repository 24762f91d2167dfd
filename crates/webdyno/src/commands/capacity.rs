//! `webdyno capacity`: the highest load that meets the objectives.

use crate::cli::capacity::CapacityArgs;
use crate::measuring::{self, BEFORE_S, MeasuredLoad, objectives, record_servers};
use crate::process::interrupt_flag;
use crate::{finish, progress};
use webdyno_analysis::capacity::{
    SearchOptions, check_objective, default_objectives, default_start, lone_capacity,
};
use webdyno_load::workload::file::Draft;
use webdyno_model::capacity::LoadUnit;
use webdyno_model::event::EventBody;
use webdyno_model::objective::Objective;
use webdyno_model::workload::{Stop, Workload};
use webdyno_model::{Result, UserError};
use webdyno_session::capacity::find_capacity;
use webdyno_session::live::{LiveCapacity, LiveSession, Servers};

/// Connections of requests at a rate, when nothing is said: as many as a thousand requests a second need that take a second.
const CONNECTIONS_DEFAULT: u32 = 1000;
/// What a search takes, usually, seconds.
const USUAL_S: f64 = 80.0;
const PATIENCE: &str = "each step of a search lasts as long as it takes to be sure";

/// Finds the capacity. Gives the exit code.
pub fn capacity(arguments: &CapacityArgs) -> Result<u8> {
    let draft = draft(arguments)?;
    let unit = unit(arguments, &draft)?;
    let draft = with_connections(draft, unit);
    let start = arguments.start.or(draft.settings.users.map(f64::from));
    check_bounds(start, arguments.max)?;
    let workload_of = |offered: f64, duration_us: u64| {
        let mut draft = draft.clone();
        let settings = &mut draft.settings;
        match unit {
            LoadUnit::Users => settings.users = Some(offered as u32),
            LoadUnit::RequestsPerSecond | LoadUnit::PagesPerSecond => settings.rate_per_s = Some(offered),
        }
        arguments.load.workload_until(&draft, Stop { duration_us: Some(duration_us), requests: None })
    };
    let first = workload_of(start.unwrap_or(1.0), 1_000_000)?;
    let (alone_us, measured) = probe_server(arguments, &draft, &first)?;
    let held = held_objectives(&draft, alone_us, !first.page_names().is_empty())?;
    let interrupted = interrupt_flag()?;
    let mut servers = measured.map(|load| load.connect()).transpose()?;
    let budget_s = arguments.budget as f64 / 1e6;
    let pace = progress::ProgressPlan { measure_s: budget_s.min(USUAL_S), settles: false, changes: false };
    let about = measuring::session_info("capacity", None, &held);
    let on = Some((&arguments.on, arguments.load.threads));
    let (_companions, mut session) = measuring::begin((about, pace), &arguments.output, on, interrupted)?;
    let think_us = (unit == LoadUnit::Users).then(|| think_mean_us(&first));
    let options = SearchOptions {
        start: start.unwrap_or_else(|| default_start(alone_us)),
        is_start_lowest: start.is_some(),
        max: arguments.max,
        lone_rate: lone_capacity(alone_us, think_us),
        is_whole: unit == LoadUnit::Users,
        budget_s,
    };
    let result = begin(&mut session, servers.as_mut(), draft.objectives.is_empty().then_some(&held));
    let result = result.and_then(|()| {
        let mut target = LiveCapacity {
            session: &mut session,
            servers: servers.as_mut(),
            workload_of: &workload_of,
            unit,
            objectives: &held,
            alone_us,
            quickest_us: None,
            lone_mean_us: None,
        };
        find_capacity(&mut target, &options, unit, &held).map(|_| ())
    });
    drop(servers);
    finish::finish(session, result, &arguments.output, false)
}

/// At a rate there are as many connections as are allowed, up to the default of a search.
fn with_connections(mut draft: Draft, unit: LoadUnit) -> Draft {
    if unit == LoadUnit::RequestsPerSecond && draft.settings.connections.is_none() {
        let allowed = draft.settings.connections_allowed.unwrap_or(CONNECTIONS_DEFAULT);
        draft.settings.connections = Some(CONNECTIONS_DEFAULT.min(allowed));
    }
    draft
}

fn think_mean_us(workload: &Workload) -> f64 {
    workload.visits.as_ref().map_or(0.0, |visits| visits.think.mean_us())
}

/// What is loaded, without what a search decides itself.
fn draft(arguments: &CapacityArgs) -> Result<Draft> {
    let load = &arguments.load;
    let refuse = |message: &str, hint: &str| Err(UserError::usage(message.to_owned()).hint(hint));
    if load.requests.is_some() {
        return refuse(
            "capacity does not end after a number of requests",
            &format!("{PATIENCE}: leave out -n"),
        );
    }
    if load.duration.is_some() || load.warmup.is_some() {
        let hint = format!("{PATIENCE}: leave out -d and --warmup; --budget bounds the whole");
        return refuse("capacity itself says how long a step lasts", &hint);
    }
    if load.rate.is_some() {
        return refuse(
            "capacity looks for the rate, and --rate names one",
            "--start is the first rate and --max the highest; `webdyno run -r` measures at one rate",
        );
    }
    let mut draft = load.draft()?;
    let settings = &mut draft.settings;
    if !settings.stages.is_empty() {
        return refuse(
            "capacity makes its own steps, and this load has stages",
            "leave them out of the workload",
        );
    }
    settings.rate_per_s = None;
    draft.objectives.iter().try_for_each(check_objective)?;
    Ok(draft)
}

/// What the load is counted in.
fn unit(arguments: &CapacityArgs, draft: &Draft) -> Result<LoadUnit> {
    if draft.settings.users.is_some() {
        return Ok(LoadUnit::Users);
    }
    let workload =
        arguments.load.workload_until(&at(draft, None), Stop { duration_us: Some(1), requests: None })?;
    let sessions = workload.visits.as_ref().map_or(&[][..], |visits| &visits.sessions);
    if sessions.iter().any(|session| session.steps.len() > 1) {
        return Err(UserError::usage("these sessions have several steps, and a rate would be of sessions")
            .hint("look for the number of users instead: --users N, the first number to try"));
    }
    let has_pages = !workload.page_names().is_empty();
    Ok(if has_pages { LoadUnit::PagesPerSecond } else { LoadUnit::RequestsPerSecond })
}

/// The same at a rate, or with its own users.
fn at(draft: &Draft, users: Option<u32>) -> Draft {
    let mut draft = draft.clone();
    draft.settings.users = users;
    draft.settings.rate_per_s = users.is_none().then_some(1.0);
    draft
}

fn check_bounds(start: Option<f64>, max: Option<f64>) -> Result<()> {
    match (start, max) {
        (Some(start), Some(max)) if start > max => {
            Err(UserError::usage(format!("the first load, {start}, is above the highest, {max}"))
                .hint("give a --start (or --users) not above --max"))
        }
        _ => Ok(()),
    }
}

/// Whether there is a server, how long a request takes alone, and who observes it.
fn probe_server(
    arguments: &CapacityArgs,
    draft: &Draft,
    first: &Workload,
) -> Result<(Option<u64>, Option<MeasuredLoad>)> {
    if let Some(server) = arguments.observed.server() {
        let load = MeasuredLoad::prepare(&arguments.load, &at(draft, draft.settings.users), &server)?;
        return Ok((load.prepared.alone_us(), Some(load)));
    }
    let mut prepared = webdyno_load::prepare(first)?;
    let (held, places) = (&draft.objectives, &draft.objective_places);
    objectives::check_before_probe(held, places, first, prepared.names())?;
    webdyno_load::probe(&mut prepared)?;
    objectives::check(held, places, first, prepared.names())?;
    webdyno_load::measure_alone(&mut prepared);
    Ok((prepared.alone_us(), None))
}

/// What loads have to meet: what was said, or what nobody has to say.
fn held_objectives(draft: &Draft, alone_us: Option<u64>, has_pages: bool) -> Result<Vec<Objective>> {
    if !draft.objectives.is_empty() {
        return Ok(draft.objectives.clone());
    }
    default_objectives(alone_us, has_pages).iter().map(|text| Objective::parse(text)).collect()
}

/// What is known before the first step. `own` are objectives that nobody named.
fn begin(
    session: &mut LiveSession,
    servers: Option<&mut Servers>,
    own: Option<&Vec<Objective>>,
) -> Result<()> {
    if let Some(servers) = servers {
        record_servers(session, servers, BEFORE_S)?;
    }
    let Some(own) = own else { return Ok(()) };
    let texts: Vec<&str> = own.iter().map(Objective::text).collect();
    let text = format!("no --slo was given: the capacity is the highest load with {}", texts.join(" and "));
    session.append(EventBody::Note { text })
}
