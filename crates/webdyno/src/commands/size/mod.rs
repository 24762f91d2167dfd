//! `webdyno size DIR... --goal G`: which machines a goal needs, from recordings. In a terminal it asks for what is missing.

mod catalogue;
mod questions;

use crate::cli::size::SizeArgs;
use crate::finish;
use std::io::IsTerminal;
use std::path::Path;
use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::sizing::{SizeRequest, size as sized, validate};
use webdyno_model::error::io_error;
use webdyno_model::sizing::{MissRatioCurve, SizeGoal, SizeReport};
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;
use webdyno_session::sweep::recorded_report;
use webdyno_session::view::View;

/// Left free unless something else is wanted.
const HEADROOM: f64 = 0.3;
/// A goal that is not met, or not told.
const NOT_MET: u8 = 3;

/// Recommends, or says how well predictions hold. Exit 3 where nothing is recommended.
pub fn size(arguments: &SizeArgs) -> Result<u8> {
    let mut arguments = arguments.clone();
    let lacks_some =
        arguments.directory.is_empty() || (arguments.goal.is_none() && arguments.users.is_none());
    if !arguments.validate && lacks_some && std::io::stdin().is_terminal() {
        questions::complete(&mut arguments, &mut questions::on_terminal)?;
    }
    let report = report(&arguments)?;
    let json = serde_json::to_string_pretty(&report);
    finish::show(arguments.json.as_deref(), json, &webdyno_report::size(&report))?;
    Ok(if report.refused.is_some() { NOT_MET } else { 0 })
}

fn report(arguments: &SizeArgs) -> Result<SizeReport> {
    let request = if arguments.validate { None } else { Some(request(arguments)?) };
    if arguments.directory.is_empty() {
        return Err(UserError::usage("no recording is given: what a request takes is read from one")
            .hint("record one: webdyno diagnose --server SERVER URL; then webdyno size DIR --goal 500/s"));
    }
    let machines = catalogue::read(arguments.catalogue.as_deref())?;
    let mut recordings = vec![];
    for directory in &arguments.directory {
        let found = measurements(directory)?;
        if found.len() > 1 && !arguments.mix.is_empty() {
            return Err(UserError::usage(format!(
                "{} holds {} loads, and --mix is of one for each DIR",
                directory.display(),
                found.len()
            ))
            .hint("give run directories of one load, or leave out --mix"));
        }
        recordings.extend(found);
    }
    match request {
        Some(request) => sized(&recordings, &request, &machines),
        None => validate(&recordings, arguments.working_set.as_deref().map(curve).transpose()?.as_ref()),
    }
}

fn request(arguments: &SizeArgs) -> Result<SizeRequest> {
    let goal = arguments.goal.or(arguments.users.map(SizeGoal::Users));
    let goal = goal.ok_or_else(|| {
        UserError::usage("no goal is given")
            .hint("what has to be carried: --goal 500/s, '70 pages/s' or '2000 users'")
    })?;
    refuse_idle_figures(arguments, goal)?;
    if !arguments.mix.is_empty() && arguments.mix.len() != arguments.directory.len() {
        let (shares, directories) = (arguments.mix.len(), arguments.directory.len());
        return Err(UserError::usage(format!(
            "--mix has {shares} shares, and there are {directories} recordings"
        ))
        .hint("give one for each, in their order: webdyno size static php --mix 80,20 --goal 500/s"));
    }
    Ok(SizeRequest {
        goal,
        users: arguments.users,
        think_s: arguments.think,
        page_bytes: arguments.page_bytes,
        growth: arguments.growth.unwrap_or(0.0),
        years: arguments.years.unwrap_or(1.0),
        headroom: arguments.headroom.unwrap_or(HEADROOM),
        spare: arguments.spare.unwrap_or(0),
        mix: arguments.mix.clone(),
        misses: arguments.working_set.as_deref().map(curve).transpose()?,
    })
}

/// Figures of what is not there would be ignored without a word.
fn refuse_idle_figures(arguments: &SizeArgs, goal: SizeGoal) -> Result<()> {
    let has_users = arguments.users.is_some() || matches!(goal, SizeGoal::Users(_));
    if arguments.think.is_some() && !has_users {
        return Err(UserError::usage("--think is of users, and the goal has none")
            .hint("give the goal in users, as --goal '2000 users', or leave --think out"));
    }
    if arguments.years.is_some() && arguments.growth.is_none() {
        return Err(UserError::usage("--years is of a growth, and none is given")
            .hint("give it, as --growth 20%/year, or leave --years out"));
    }
    Ok(())
}

/// What a run directory tells: of a sweep each load that counts, of a tuning its best one.
fn measurements(directory: &Path) -> Result<Vec<Measurement>> {
    let recording = Recording::read(directory)?;
    let swept = recorded_report(&recording).into_iter().flat_map(|report| report.points);
    let loads = swept.flat_map(|point| point.loads).filter(|load| load.discarded.is_none());
    let loads: Vec<Measurement> =
        loads.filter_map(|load| Some(recording.measurement(recording.load(load.load?)?))).collect();
    if !loads.is_empty() {
        return Ok(loads);
    }
    let load = View::of(&recording)?.reported_load.and_then(|load| recording.load(load));
    let measurement = load.map(|load| recording.measurement(load)).or_else(|| recording.last_measurement());
    measurement.map(|one| vec![one]).ok_or_else(|| finish::no_result_error(directory))
}

/// The curve in what `webdyno logs --json` writes, or pairs of bytes and miss ratio in its place.
fn curve(path: &Path) -> Result<MissRatioCurve> {
    let text = std::fs::read_to_string(path).map_err(|error| io_error("read", path.display(), &error))?;
    let wrong = |why: &str| {
        UserError::usage(format!("{}: {why}", path.display()))
            .hint("it is what `webdyno logs access.log --json FILE` writes, with working_set.curve")
    };
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
    let found = json.pointer("/working_set/curve").and_then(serde_json::Value::as_array);
    let point = |one: &serde_json::Value| {
        let number = |name: &str, place: usize| one.get(name).or_else(|| one.get(place))?.as_f64();
        Some([number("cache_bytes", 0)?, number("byte_miss_fraction", 1)?])
    };
    let points: Option<Vec<[f64; 2]>> =
        found.ok_or_else(|| wrong("there is no working_set.curve in it"))?.iter().map(point).collect();
    let is_good = |points: &Vec<[f64; 2]>| {
        let rises = points.windows(2).all(|two| two[0][0] <= two[1][0]);
        let in_range = |[bytes, misses]: &[f64; 2]| *bytes >= 0.0 && (0.0..=1.0).contains(misses);
        rises && !points.is_empty() && points.iter().all(in_range)
    };
    let points = points.filter(is_good);
    points
        .map(MissRatioCurve)
        .ok_or_else(|| wrong("its curve has no rising bytes with miss ratios from 0 to 1"))
}
