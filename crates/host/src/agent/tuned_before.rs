//! Settings that were kept for a machine that has become another one since: told whenever the server is looked at.

use crate::change::action::Action;
use crate::change::journal::{self, history::History};
use crate::change::seams::Tools;
use crate::change::tuned_machine::{TunedMachine, TunedService};
use crate::collectors::processes::worker_memory::read_smaps;
use crate::os::procfs;
use std::collections::BTreeMap;
use webdyno_model::environment::Environment;
use webdyno_model::service::ServiceSnapshot;

/// So many workers of a service are read.
const WORKERS_COUNT_MAX: usize = 16;

/// A machine and its services as they are now.
pub fn machine<'a>(
    environment: &Environment,
    services: impl Iterator<Item = &'a ServiceSnapshot>,
) -> TunedMachine {
    TunedMachine {
        cores: environment.cores,
        memory_bytes: environment.memory_bytes,
        services: services.map(|service| (service.service.clone(), tuned_service(service))).collect(),
    }
}

fn tuned_service(service: &ServiceSnapshot) -> TunedService {
    let workers = procfs::children_of(service.pid).into_iter().take(WORKERS_COUNT_MAX);
    let held: Vec<u64> = workers.filter_map(|pid| Some(read_smaps(pid).ok()??.pss_bytes)).collect();
    let count = held.len() as u64;
    TunedService {
        version: service.version.clone(),
        worker_memory_bytes: (count > 0).then(|| held.iter().sum::<u64>() / count),
    }
}

/// What the last session that kept something made for a machine that is not this one any more, in a sentence; `None` where all
/// is as it was. A journal that cannot be read says nothing here: a rollback tells of it.
pub fn misfit(tools: &Tools, now: &TunedMachine) -> Option<String> {
    let journals = journal::read_here(tools).ok()?;
    let kept = journals.iter().rev().filter_map(|(_, read)| read.as_ref().ok());
    let last =
        kept.filter(|history| !kept_settings(history).is_empty()).find(|history| history.made_for.is_some());
    misfit_of(last?, now)
}

fn misfit_of(history: &History, now: &TunedMachine) -> Option<String> {
    let differences = history.made_for.as_ref()?.differences(now);
    let settings = kept_settings(history);
    if differences.is_empty() {
        return None;
    }
    let started_us = i64::try_from(history.header.as_ref()?.started_at_us).ok()?;
    let day = jiff::Timestamp::from_microsecond(started_us).ok()?.strftime("%Y-%m-%d");
    let were = if settings.len() == 1 { "was" } else { "were" };
    Some(format!(
        "{} {were} kept on {day}, and the machine has changed since: {}; tune again, or webdyno rollback",
        settings.join(", "),
        differences.join(", ")
    ))
}

/// The settings that are in force by what was kept, each with its last value.
fn kept_settings(history: &History) -> Vec<String> {
    let mut kept: BTreeMap<String, String> = BTreeMap::new();
    for entry in history.outstanding(1).filter(|entry| entry.n <= history.kept_through) {
        match &entry.action {
            Action::Activate(activate) => kept.extend(
                activate.changes.iter().map(|change| (change.setting.full_name(), change.to.to_string())),
            ),
            Action::WriteValue(write) => drop(kept.insert(write.name.clone(), write.after.clone())),
            Action::WriteFile(_) | Action::Launch(_) | Action::BootHook(_) => {}
        }
    }
    kept.into_iter().map(|(name, value)| format!("{name} {value}")).collect()
}
