//! Sizing: from what a request takes ([`demands`]) to machines that carry a goal. Each machine of a catalogue is solved as a server of
//! the model that `predict` uses ([`server`]); the cheapest number of them that carries the goal with the wanted headroom is the
//! answer ([`choose`]). It goes no further than four times what was measured. [`validate`] holds loads at other sizes against it.

mod choose;
mod demands;
mod knee;
mod server;
mod settings;
mod validate;

pub use validate::validate;

use crate::measurement::Measurement;
use choose::Wanted;
use demands::{Demands, MeasuredLoad, range};
use server::{RANGE, Server, draws};
use webdyno_model::number::{human, significant};
use webdyno_model::sizing::{
    Machine, MachineCatalogue, MeasuredRange, MissRatioCurve, SCHEMA, SizeGoal, SizeReport,
};
use webdyno_model::{Result, UserError};

/// Loads shorter than these leave things out.
const SHORT_S: f64 = 20.0;
/// A machine of another relative speed than this was not measured.
const KNOWN_SPEED: f64 = 1.0;

/// What the operator wants, and knows.
#[derive(Debug, Clone, PartialEq)]
pub struct SizeRequest {
    /// What has to be carried now.
    pub goal: SizeGoal,
    /// Users who have to be carried as well.
    pub users: Option<f64>,
    /// Their mean think time, seconds; `None` for that of the recordings.
    pub think_s: Option<f64>,
    /// Bytes on the wire of a page, or a request without pages; `None` for what was measured.
    pub page_bytes: Option<f64>,
    /// What it grows a year: 0.2 is 20% more.
    pub growth: f64,
    /// For so many years.
    pub years: f64,
    /// The share that stays free at the goal, 0 to below 1.
    pub headroom: f64,
    /// Machines that may be missing.
    pub spare: u64,
    /// Shares of the recordings as classes of requests, in their order; empty for loads of one mix.
    pub mix: Vec<f64>,
    /// What the page cache misses, where an access log told.
    pub misses: Option<MissRatioCurve>,
}

/// Recommends machines. An error when no recording tells what a request takes, or the goal cannot be told from them; that it is beyond
/// what may be said is no error, but `refused`.
///
/// # Errors
/// Wrong usage, or nothing can be told from the recordings.
pub fn size(
    recordings: &[Measurement],
    request: &SizeRequest,
    catalogue: &MachineCatalogue,
) -> Result<SizeReport> {
    let (loads, notes) = loads(recordings, request.mix.len())?;
    sized(&loads, notes, request, catalogue)
}

fn sized(
    loads: &[MeasuredLoad],
    mut notes: Vec<String>,
    request: &SizeRequest,
    catalogue: &MachineCatalogue,
) -> Result<SizeReport> {
    let demands = demands_of(loads, request);
    let range = range(loads);
    let mut report = SizeReport {
        schema: SCHEMA.into(),
        goal: Some(request.goal),
        headroom: request.headroom,
        demands: demands.rows(),
        measured: range.clone(),
        currency: catalogue.currency.clone(),
        ..SizeReport::default()
    };
    write_notes(&mut notes, loads, &demands, request, catalogue);
    let of_measured = Machine { cores: range.cores, ..Machine::default() };
    let grown = (1.0 + request.growth).powf(request.years);
    let goal_rate = grown * goal_rate(&demands, request, &server(&demands, &of_measured, &range, request))?;
    report.goal_rate = Some(significant(goal_rate, 4));
    let goal_users = grown * users(request).unwrap_or(0.0);
    report.refused = beyond_range(&range, goal_rate, goal_users, demands.parts_per_page.is_some());
    if report.refused.is_none() {
        let wanted = Wanted { rate: goal_rate, headroom: request.headroom, spare: request.spare };
        let all_draws = draws();
        let of = |machine| server(&demands, machine, &range, request);
        let found = choose::choices(&of, &wanted, catalogue, &all_draws);
        match found.first() {
            None => report.refused = Some(choose::refusal(&of, &wanted, catalogue)),
            Some(best) => settings::write(&mut report, best, &of, catalogue, goal_rate, request.headroom),
        }
        report.choices = found;
    }
    if report.choices.iter().any(|one| one.rate.p10 >= one.rate.p90) {
        notes.insert(0, "No server is credited with more than four times the measured rate.".into());
    }
    report.notes = notes;
    Ok(report)
}

/// The loads that tell something, and why the others do not.
fn loads(recordings: &[Measurement], classes: usize) -> Result<(Vec<MeasuredLoad>, Vec<String>)> {
    let (mut loads, mut notes, mut last) = (vec![], vec![], None);
    for (index, recording) in recordings.iter().enumerate() {
        match MeasuredLoad::of(recording) {
            Ok(load) => loads.push(load),
            Err(error) if classes > 0 => return Err(error),
            Err(error) => {
                notes.push(format!(
                    "Load {} of {} is left out: {}.",
                    index + 1,
                    recordings.len(),
                    error.message
                ));
                last = Some(error);
            }
        }
    }
    match last {
        Some(error) if loads.is_empty() => Err(error),
        _ if loads.is_empty() => Err(UserError::cannot_run("there is no load in these recordings")
            .hint("record one: webdyno diagnose --server SERVER URL")),
        _ => Ok((loads, notes)),
    }
}

fn demands_of(loads: &[MeasuredLoad], request: &SizeRequest) -> Demands {
    let all: f64 = request.mix.iter().sum();
    let weight = |index: usize| request.mix.get(index).map_or(1.0 / loads.len() as f64, |share| share / all);
    let weighted: Vec<(f64, &Demands)> =
        loads.iter().enumerate().map(|(index, load)| (weight(index), &load.demands)).collect();
    let mut demands = Demands::combined(&weighted, !request.mix.is_empty());
    if let Some(bytes) = request.page_bytes {
        let value = bytes / demands.parts_per_page.unwrap_or(1.0);
        demands.link_bytes = Some(demands::Amount { value, error: 0.0 });
    }
    demands
}

fn server<'a>(
    demands: &'a Demands,
    machine: &'a Machine,
    range: &'a MeasuredRange,
    request: &'a SizeRequest,
) -> Server<'a> {
    Server { demands, machine, range, misses: request.misses.as_ref(), has_database: true }
}

fn users(request: &SizeRequest) -> Option<f64> {
    let of_goal = match request.goal {
        SizeGoal::Users(users) => Some(users),
        SizeGoal::Rate(_) | SizeGoal::Pages(_) => None,
    };
    of_goal.into_iter().chain(request.users).reduce(f64::max)
}

/// The goal as requests per second: users ask for a page, or a request, as often as their think time and its response let them.
fn goal_rate(demands: &Demands, request: &SizeRequest, measured: &Server<'_>) -> Result<f64> {
    let rate = match request.goal {
        SizeGoal::Rate(rate) => Some(rate),
        SizeGoal::Pages(pages) => {
            let no_pages = || {
                UserError::usage("a goal in pages needs recordings of pages, and these have none")
                    .hint("record them with --page, or give the goal as a rate: --goal 500/s")
            };
            Some(pages * demands.parts_per_page.ok_or_else(no_pages)?)
        }
        SizeGoal::Users(_) => None,
    };
    let of_users = users(request).map(|users| {
        let think_us = request.think_s.map(|s| s * 1e6).or(demands.think_us).ok_or_else(|| {
            UserError::usage("users have a think time, which the recordings do not tell")
                .hint("give it: --think 3s; or the goal as a rate: --goal 500/s")
        })?;
        let parts = demands.parts_per_page.unwrap_or(1.0);
        Ok(users * parts * 1e6 / (think_us + parts * measured.alone_us()))
    });
    let of_users: Option<f64> = of_users.transpose()?;
    Ok(rate.into_iter().chain(of_users).reduce(f64::max).unwrap_or(0.0))
}

/// Why nothing is said of a goal so far beyond what was measured.
fn beyond_range(range: &MeasuredRange, goal_rate: f64, goal_users: f64, has_pages: bool) -> Option<String> {
    let text = |what: &str, goal: f64, measured: f64, how: String| {
        format!(
            "The goal of {} {what} is more than four times what was measured ({}): what a request costs there nobody saw. Record a \
             load of at least {} {what} first: webdyno diagnose --server SERVER {how} URL, or run several generators at once.",
            human::number(goal),
            human::number(measured),
            human::number((goal / RANGE).ceil())
        )
    };
    if goal_rate > RANGE * range.rate {
        // Of pages a rate is one of pages, which tells nothing: as many more users.
        let users = range.users.filter(|_| has_pages && range.rate > 0.0);
        let how = match users {
            Some(users) => format!("--page --users {}", (users * goal_rate / RANGE / range.rate).ceil()),
            None => format!("--rate {}", (goal_rate / RANGE).ceil()),
        };
        return Some(text("req/s", goal_rate, range.rate, how));
    }
    let users = range.users.filter(|users| goal_users > RANGE * users)?;
    Some(text("users", goal_users, users, format!("--users {}", (goal_users / RANGE).ceil())))
}

fn write_notes(
    notes: &mut Vec<String>,
    loads: &[MeasuredLoad],
    demands: &Demands,
    request: &SizeRequest,
    catalogue: &MachineCatalogue,
) {
    let range = range(loads);
    if loads.len() == 1 {
        notes.push(
            "One load only: whether a request costs the same at another load is not known. Record a second one at about half of its \
             rate, and one near the goal."
                .into(),
        );
    }
    if range.shortest_s < SHORT_S {
        notes.push(format!(
            "The shortest load lasted {} s: caches that fill, memory that grows and work that comes rarely are not in it. Record 60 s.",
            human::number(range.shortest_s)
        ));
    }
    if demands.base_bytes.is_none() || demands.pools.iter().any(|pool| pool.bytes.is_none()) {
        notes.push(
            "What a worker takes of memory was not read (PSS needs the rights of its user, or root): memory is not checked. Record \
             with --sudo."
                .into(),
        );
    }
    if demands.link_bytes.is_none() {
        notes.push(
            "What a response takes of the link was not read: give --page-bytes. The link is not checked."
                .into(),
        );
    }
    if demands.link_bytes.is_some_and(|bytes| bytes.value > 0.0) && request.misses.is_none() {
        notes.push(
            "That memory holds the files that are asked for is taken for granted: disk reads are not in it."
                .into(),
        );
    }
    let lacks = |what: &str, is_lacking: &dyn Fn(&Machine) -> bool| {
        let count = catalogue.machines.iter().filter(|one| is_lacking(one)).count();
        (count > 0).then(|| {
            format!("{count} of {} machines of {} {what}.", catalogue.machines.len(), catalogue.source)
        })
    };
    notes.extend(lacks("name no memory: it is not checked", &|one| one.memory_bytes.is_none()));
    notes.extend(lacks("name no network: it is not checked", &|one| one.nic_bit_s.is_none()));
    notes.extend(lacks("have cores of another speed, which is taken as it stands there", &|one| {
        one.speed.is_some_and(|speed| speed != KNOWN_SPEED)
    }));
}

#[cfg(test)]
mod tests;
