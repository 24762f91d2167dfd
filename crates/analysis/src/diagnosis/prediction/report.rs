//! A prediction as `webdyno predict` reports it: the figures with their intervals, the model, and what it cannot tell.

use super::model::ServerModel;
use super::{Outcome, Supposition, memory, outcome, sizes};
use crate::facts::{FactId, Facts, facts};
use crate::limits::ceiling::{Resource, ResourceCeiling, rate_of_machine};
use crate::measurement::Measurement;
use crate::queueing::Load;
use crate::resources::setting_source;
use crate::run_report::run_report;
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::{ApplyClass, Change, SettingChange};
use webdyno_model::number::significant;
use webdyno_model::prediction::{Estimate, ModelStation, PredictReport, SCHEMA};
use webdyno_model::service::SettingValue;
use webdyno_model::{Result, UserError};

/// From this utilisation on a pool that refuses turns requests away.
const REFUSES_FRACTION: f64 = 0.98;

/// Predicts what comes of a supposition. An error when a supposition makes no sense for this recording; what the recording cannot tell
/// is no error, but `None` with a note.
pub fn predict(measurement: &Measurement, supposed: &Supposition) -> Result<PredictReport> {
    let mut facts = observed(measurement)?;
    let memory_to = supposed.changes.iter().find(|change| change.setting.name == "memory_bytes");
    let memory_to = memory_to.and_then(|change| change.to.number());
    let too_small = memory_to.filter(|bytes| memory::is_too_small(&facts, *bytes));
    if let Some(bytes) = memory_to {
        facts = memory::with_bytes(&facts, bytes);
    }
    let mut report = measured(&facts, supposed);
    if let Some(bytes) = too_small {
        report
            .notes
            .push(format!("Nothing is predicted: more than {} of memory was in use.", format_bytes(bytes)));
        return Ok(report);
    }
    let now = match ServerModel::of(&facts) {
        Ok(now) => now,
        Err(why) => {
            report.notes.push(format!("Nothing is predicted: {why}."));
            return Ok(report);
        }
    };
    let supposed = Supposition {
        changes: whole_processes(&facts, &supposed.changes, &mut report.notes),
        ..supposed.clone()
    };
    let found = match outcome(&facts, &now, &supposed) {
        Ok(found) => found,
        Err(why) => {
            report.notes.push(format!("Nothing is predicted: {why}."));
            return Ok(report);
        }
    };
    report.residual_fraction = Some(significant(now.residual, 3));
    write_figures(&mut report, &facts, &now, &found);
    report.stations = stations(&now, &found);
    report.next_limit = next_limit(&facts, &found).map(|(id, _)| id);
    report.next_limit_rate = next_limit(&facts, &found).map(|(_, rate)| significant(rate, 4));
    write_notes(&mut report, &facts, &now, &found);
    Ok(report)
}

/// The facts of a load whose server was observed.
///
/// # Errors
/// There is no load, or no server.
pub(crate) fn observed(measurement: &Measurement) -> Result<Facts> {
    if measurement.workload.is_none() || measurement.intervals.is_empty() {
        return Err(UserError::cannot_run("the recording has no load, and a prediction starts from one")
            .hint("record one: webdyno diagnose --server SERVER URL"));
    }
    if measurement.samples.is_empty() && measurement.service.is_none() {
        return Err(UserError::cannot_run(
            "no server was observed in this recording: what a request takes there is not known",
        )
        .hint("record the server, too: webdyno diagnose --server SERVER URL"));
    }
    facts(measurement, Some(&run_report(measurement)?))
}

/// What was measured, and what is supposed.
fn measured(facts: &Facts, supposed: &Supposition) -> PredictReport {
    let closed_users = facts.value(FactId::users).filter(|_| facts.value(FactId::offered_rate).is_none());
    PredictReport {
        schema: SCHEMA.into(),
        changes: supposed.changes.iter().map(|change| as_change(facts, change)).collect(),
        users: supposed.users.or(closed_users),
        offered_rate: supposed.rate.or(facts.value(FactId::offered_rate)),
        rate_now: facts.value(FactId::rate),
        response_time_mean_us_now: facts.value(FactId::response_time_mean_us),
        page_time_mean_us_now: facts.value(FactId::page_time_mean_us),
        memory_bytes_now: memory::now_bytes(facts).map(|bytes| significant(bytes, 4)),
        ..PredictReport::default()
    }
}

fn as_change(facts: &Facts, change: &SettingChange) -> Change {
    let (target, name) = (change.setting.target.name(), change.setting.name.as_str());
    let of_pool = change.setting.pool.clone().or_else(|| setting_source::pools(facts).into_iter().next());
    let source = setting_source::of(facts, target, name).or_else(|| {
        setting_source::pool_setting_source(facts, of_pool.as_deref().filter(|_| target == "php_fpm")?, name)
    });
    let class = match target {
        "hardware" => ApplyClass::Manual,
        "mariadb" => ApplyClass::Live,
        _ => ApplyClass::Reload,
    };
    let file = source.as_ref().and_then(|source| source.at.clone()).unwrap_or_default();
    let file = file.rsplit_once(':').map_or(file.clone(), |(path, _)| path.to_owned());
    let from = source.map(|source| source.value).or_else(|| hardware_now(facts, name));
    Change { setting: change.setting.clone(), from, to: change.to.clone(), file, class, server: None }
}

fn hardware_now(facts: &Facts, name: &str) -> Option<SettingValue> {
    let all = crate::limits::resource_ceilings(facts);
    let of = |resource| all.iter().find(|one| one.resource == resource).and_then(|one| one.ceiling.max);
    let value = match name {
        "cores" => of(Resource::Processors),
        "link_bits_per_s" => of(Resource::Link),
        _ => None,
    };
    value.map(|value| SettingValue::Integer(value as i64))
}

/// Apache rounds workers down to whole processes.
fn whole_processes(facts: &Facts, changes: &[SettingChange], notes: &mut Vec<String>) -> Vec<SettingChange> {
    let threads = facts.threads_per_process();
    let whole = |change: &SettingChange| {
        let is_workers = sizes::KnownSetting::of(change).is_some_and(|one| one.resource == Resource::Workers);
        let to = change.to.number().filter(|to| is_workers && to % threads != 0.0);
        let Some(to) = to else { return change.clone() };
        let whole = ((to / threads).floor() * threads).max(threads);
        notes.push(format!(
            "Apache has whole processes of {} threads: {} workers are {}.",
            format_number(threads),
            format_number(to),
            format_number(whole)
        ));
        SettingChange { to: SettingValue::Integer(whole as i64), ..change.clone() }
    };
    changes.iter().map(whole).collect()
}

fn estimate(value: f64, error: f64, most: f64) -> Estimate {
    let at = |sign: f64| significant((value * (1.0 + sign * error)).clamp(0.0, most), 3);
    Estimate { value: significant(value, 3), ci95: Some([at(-1.0), at(1.0)]) }
}

fn write_figures(report: &mut PredictReport, facts: &Facts, now: &ServerModel, found: &Outcome) {
    report.memory_bytes = memory::predicted_bytes(facts, now, found);
    if let Some(memory) = memory::exceeded(found) {
        report.notes.push(format!(
            "No rate is predicted: memory holds {} ({}), and more would be used; what swaps or is killed has no rate.",
            format_number(memory.ceiling.max.unwrap_or(0.0)),
            memory.ceiling.limit
        ));
        return;
    }
    if let Some(bytes) = memory::lacking_bytes(facts, now, found) {
        report.notes.push(format!(
            "No rate is predicted: the pools together would take {} more memory than there is; what swaps or is killed has no rate.",
            format_bytes(bytes)
        ));
        return;
    }
    report.rate = Some(estimate(found.rate, found.error, found.model.offered().unwrap_or(f64::INFINITY)));
    let time = response_us(now, found).map(|us| (us, time_error(found.model.load, found.error, us)));
    // Of a page the time is that of one part after the other.
    let pages_per_us = facts.value(FactId::pages_in_flight_mean).zip(facts.value(FactId::page_time_mean_us));
    let parts = pages_per_us.zip(facts.ended_per_s()).map(|((pages, us), ended)| ended * us / 1e6 / pages);
    let time = time.map(|(us, error)| estimate(us * parts.unwrap_or(1.0), error, f64::INFINITY));
    if parts.is_some() { report.page_time_mean_us = time } else { report.response_time_mean_us = time }
}

/// Half the 95% interval of a response time, as a share. Of a closed loop it is what is left of the cycle of a user: its error is that
/// of the cycle, many times the time itself where most of the cycle is thinking.
pub(super) fn time_error(load: Load, error: f64, us: f64) -> f64 {
    let cycle_us = match load {
        Load::Closed { think_us, .. } => us + think_us,
        Load::Open { .. } => us,
    };
    error * cycle_us / us.max(1.0)
}

/// The mean response time of successful requests.
fn response_us(now: &ServerModel, found: &Outcome) -> Option<f64> {
    let solved_us = found.solution.response_us?;
    if refuses(found) {
        // Nobody waits for a connection that is refused; how long the others take is known where some got through before.
        return now.refuses.then(|| found.model.network.hold_us(0) + found.model.network.outside_us);
    }
    let Load::Closed { users, think_us } = found.model.load else { return Some(solved_us) };
    // Where a limit beside the network binds, users wait there.
    let rate = found.rate / found.model.good_fraction;
    Some((users / rate * 1e6 - think_us).max(solved_us))
}

/// Whether the database would turn requests away.
fn refuses(found: &Outcome) -> bool {
    let pools = found.model.pools.iter().zip(&found.busy).zip(&found.model.network.pools);
    let mut database = pools.filter(|((ceiling, _), _)| ceiling.resource == Resource::DatabaseConnections);
    database.any(|((_, busy), pool)| *busy >= REFUSES_FRACTION * pool.places)
}

/// Everything that is part of the model, with where it saturates.
fn stations(now: &ServerModel, found: &Outcome) -> Vec<ModelStation> {
    let network = &found.model.network;
    let good = found.model.good_fraction;
    let used = |ceiling: &ResourceCeiling| {
        ceiling.ceiling.now.zip(ceiling.ceiling.max).map(|(now, max)| (now / max).min(1.0))
    };
    let rounded = |value: Option<f64>| value.map(|value| significant(value, 3));
    let mut all = vec![];
    for (index, pool) in network.pools.iter().enumerate() {
        let hold_us = network.hold_us(index);
        all.push(ModelStation {
            name: found.model.pools[index].ceiling.limit.clone(),
            servers: Some(pool.places),
            demand_us: significant(hold_us, 4),
            utilisation_now: rounded(used(&now.pools[index])),
            utilisation: rounded(Some((found.busy[index] / pool.places).min(1.0))),
            saturates_at_rate: Some(significant(good * pool.places * 1e6 / hold_us, 4)),
        });
    }
    let rate = found.solution.rate;
    if let Some(((servers, demand_us), ceiling)) = network.processors.zip(now.processors.as_ref()) {
        all.push(ModelStation {
            name: ceiling.ceiling.limit.clone(),
            servers: Some(significant(servers, 3)),
            demand_us: significant(demand_us, 4),
            utilisation_now: rounded(used(ceiling)),
            utilisation: rounded(Some((rate * demand_us / 1e6 / servers).min(1.0))),
            saturates_at_rate: Some(significant(good * servers * 1e6 / demand_us, 4)),
        });
    }
    if let Some((link_us, ceiling)) = network.link_us.zip(now.link.as_ref()) {
        all.push(ModelStation {
            name: ceiling.ceiling.limit.clone(),
            servers: None,
            demand_us: significant(link_us, 4),
            utilisation_now: rounded(used(ceiling)),
            utilisation: rounded(Some((rate * link_us / 1e6).min(1.0))),
            saturates_at_rate: Some(significant(good * 1e6 / link_us, 4)),
        });
    }
    all
}

/// The lowest of all ceilings with what is supposed, with its rate.
fn next_limit(facts: &Facts, found: &Outcome) -> Option<(String, f64)> {
    let model = &found.model;
    let network = &model.network;
    let good = model.good_fraction;
    let pools =
        model.pools.iter().enumerate().map(|(index, one)| {
            (one.finding, good * network.pools[index].places * 1e6 / network.hold_us(index))
        });
    let processors = model.processors.iter().zip(network.processors);
    let processors = processors.map(|(one, (servers, us))| (one.finding, good * servers * 1e6 / us));
    let link = model.link.iter().zip(network.link_us).map(|(one, us)| (one.finding, good * 1e6 / us));
    let machine = rate_of_machine(facts, &crate::limits::resource_ceilings(facts));
    let others = model.others.iter().filter(|one| one.fills.is_none() && !one.is_remote(machine));
    let others = others.filter_map(|one| Some((one.finding, one.ceiling.binds_at_rate?)));
    let all = pools.chain(processors).chain(link).chain(others);
    let known = all.filter_map(|(finding, rate)| Some((finding?, rate)));
    known.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(id, rate)| (id.into(), rate))
}

fn write_notes(report: &mut PredictReport, facts: &Facts, now: &ServerModel, found: &Outcome) {
    let notes = &mut report.notes;
    if now.residual >= 0.02 {
        notes.push(format!(
            "With the times that were read the model gives less than was measured: they were scaled by {:.0}%.",
            100.0 * now.residual
        ));
    }
    if refuses(found) {
        notes.push("The database turns away who finds no connection free: requests fail, and the rate is of those that do not.".into());
    }
    if found.solution.response_us.is_none() {
        notes.push(
            "More arrives than can be served: the response time grows as long as the load lasts.".into(),
        );
    }
    if let (Some(limit), Some(threads)) = (facts.setting("ServerLimit"), Some(facts.threads_per_process())) {
        let workers = found.model.pools.iter().find(|one| one.resource == Resource::Workers);
        let to = workers.and_then(|one| one.ceiling.max).filter(|to| *to > limit * threads);
        if let Some(to) = to {
            notes.push(format!(
                "ServerLimit is {}: {} workers need it raised, too, and a restart.",
                format_number(limit),
                format_number(to)
            ));
        }
    }
    if let Some(each) = facts.value(FactId::worker_private_mean_bytes) {
        notes.push(format!("A worker process takes {} of its own.", format_bytes(each)));
    }
    if facts.value(FactId::pages_in_flight_mean).is_some() {
        notes.push("The rate is of requests, the parts of pages; the time is that of whole pages.".into());
    }
}
