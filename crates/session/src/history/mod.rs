//! The sessions below a directory: what each came to, newest first. Reading a recording takes its time, so what was read is kept in
//! an index beside them ([`index`]), which is no more than that: it is made anew from the recordings, and a session is read again
//! when the size or the time of its event log has changed.

mod index;

use crate::log::{FILE_NAME, ring};
use crate::recording::Recording;
use crate::view::{Outcome, SessionEnd, View};
use index::IndexEntry;
pub use index::LogStamp;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use webdyno_analysis::limits;
use webdyno_model::error::io_error;
use webdyno_model::run::RunReport;
use webdyno_model::tune::TuneState;
use webdyno_model::{Result, UserError};

/// Sessions lie so many folders deep at most.
const DEPTH_MAX: usize = 4;
/// The exit code of a session that somebody interrupted.
const INTERRUPTED: u8 = 130;
/// The exit code of one that ended in order, and whose results could not be written.
const UNWRITTEN: u8 = 1;
/// The exit code of one whose goal or objectives were not met.
const NOT_MET: u8 = 3;

/// The schema of [`HistoryReport`].
pub const SCHEMA: &str = "webdyno/history/v1";

/// The sessions below a directory.
#[derive(Debug, Serialize)]
pub struct HistoryReport<'a> {
    /// [`SCHEMA`].
    pub schema: &'a str,
    /// The directory.
    pub directory: &'a str,
    /// The newest first; what cannot be read last.
    pub sessions: &'a [SessionSummary],
}

/// What a session came to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Its run directory.
    pub directory: String,
    /// Wall clock, RFC 3339; empty where its recording cannot be read.
    pub started_at: String,
    /// `run`, `diagnose`, `tune`, ...
    pub command: String,
    /// What was loaded or watched.
    pub target: Option<String>,
    /// `done`, `not met`, `invalid`, `planned`, `applied`, `reverted`, `failed`, `interrupted`, `unfinished` (it was killed, or it still
    /// runs), `damaged`.
    pub state: String,
    /// Successful requests per second, of a tuning those of the best load.
    pub rate: Option<f64>,
    /// Their 99th percentile.
    pub p99_us: Option<u64>,
    /// The id of what limits.
    pub limit: Option<String>,
    /// Its title.
    pub limit_title: Option<String>,
    /// Why it failed, or cannot be read.
    pub error: Option<String>,
}

/// What lies below a directory.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// The newest first; what cannot be read last.
    pub sessions: Vec<SessionSummary>,
    /// Why the index could not be written: then the next list takes as long as this one.
    pub index_error: Option<UserError>,
}

/// Lists the sessions below a directory. `before_reading` gets to know how many recordings are new or have changed. A recording that
/// cannot be read is listed as such; an error when the directory cannot be read, or is itself that of a session.
pub fn history(directory: &Path, before_reading: impl FnOnce(usize)) -> Result<History> {
    if log_stamp(directory).is_some() {
        return Err(UserError::usage(format!("{} is one session", directory.display()))
            .hint("`webdyno report DIR` shows it; give history the directory that it lies in"));
    }
    let known = index::read(directory);
    let found = session_directories(directory)?;
    let is_known =
        |(name, stamp): &(String, LogStamp)| known.get(name).is_some_and(|entry| entry.stamp == *stamp);
    let new_count = found.iter().filter(|session| !is_known(session)).count();
    let is_up_to_date = new_count == 0 && found.len() == known.len();
    before_reading(new_count);
    let entry =
        |(name, stamp): (String, LogStamp)| match known.get(&name).filter(|entry| entry.stamp == stamp) {
            Some(entry) => entry.clone(),
            None => IndexEntry { stamp, summary: summary(&directory.join(&name), name) },
        };
    let entries: Vec<IndexEntry> = found.into_iter().map(entry).collect();
    let index_error = if is_up_to_date { None } else { index::write(directory, &entries).err() };
    let mut sessions: Vec<SessionSummary> = entries.into_iter().map(|entry| entry.summary).collect();
    sessions.sort_by(|a, b| (&b.started_at, &b.directory).cmp(&(&a.started_at, &a.directory)));
    for session in &mut sessions {
        session.directory = directory.join(&session.directory).display().to_string();
    }
    Ok(History { sessions, index_error })
}

/// The run directory of this name below a directory. A name that is none of those that are found leads nowhere.
pub fn directory_of(root: &Path, name: &str) -> Result<Option<PathBuf>> {
    Ok(session_directories(root)?
        .into_iter()
        .find(|(found, _)| found == name)
        .map(|(found, _)| root.join(found)))
}

/// The directories of sessions by their names below this one. A link is not followed, and what cannot be read is left out.
fn session_directories(root: &Path) -> Result<Vec<(String, LogStamp)>> {
    let listed = |folder: &Path| -> std::io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(folder)?.filter_map(|entry| entry.ok());
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        Ok(folders.map(|entry| entry.path()).collect())
    };
    let first = listed(root).map_err(|error| {
        io_error("read", root.display(), &error)
            .hint("give the directory that run directories lie in; `webdyno run URL` makes the first one")
    })?;
    let mut found = vec![];
    let mut folders: Vec<(PathBuf, usize)> = first.into_iter().map(|folder| (folder, 1)).collect();
    while let Some((folder, depth)) = folders.pop() {
        if let Some(stamp) = log_stamp(&folder) {
            let name = folder.strip_prefix(root).unwrap_or(&folder).to_string_lossy().into_owned();
            found.push((name, stamp));
        } else if depth < DEPTH_MAX {
            folders.extend(listed(&folder).unwrap_or_default().into_iter().map(|inner| (inner, depth + 1)));
        }
    }
    Ok(found)
}

/// Size and time of the event log in a directory, of a ring those of all its segments; `None` where there is none.
pub fn log_stamp(directory: &Path) -> Option<LogStamp> {
    let log = directory.join(FILE_NAME);
    if log.exists() {
        return LogStamp::of(&[log]);
    }
    LogStamp::of(&ring::segments(directory)?)
}

/// What one session came to.
fn summary(directory: &Path, name: String) -> SessionSummary {
    let recorded = Recording::read(directory).and_then(|recording| Ok((View::of(&recording)?, recording)));
    match recorded {
        Ok((view, recording)) => SessionSummary { directory: name, ..of_view(&view, &recording) },
        Err(error) => SessionSummary {
            directory: name,
            state: "damaged".into(),
            error: Some(error.message),
            ..SessionSummary::default()
        },
    }
}

fn of_view(view: &View, recording: &Recording) -> SessionSummary {
    let (run, limit) = match &view.outcome {
        Outcome::Run(run) => (Some(run), None),
        Outcome::Diagnosis(diagnosis) => (diagnosis.run.as_ref(), Some(diagnosis.bottleneck.clone())),
        Outcome::Tune(tune) => (Some(&tune.best), tune.limit.clone()),
        Outcome::Capacity(found) => (view.reported_load().map(|load| &load.report), found.bottleneck.clone()),
        Outcome::Observation(_) | Outcome::Sweep(_) | Outcome::Nothing => (None, None),
    };
    let title = limit.as_deref().and_then(limits::by_id).map(|limit| limit.title.to_owned());
    let error = match &view.end {
        SessionEnd::Failed(_, error) => Some(error.clone()),
        // Its last note says which results are missing.
        SessionEnd::Done(UNWRITTEN) => view.notes.last().cloned(),
        _ => None,
    };
    SessionSummary {
        started_at: view.started_at.clone(),
        command: view.command.clone(),
        target: target(view, recording),
        state: state(view, run).into(),
        rate: run.and_then(|run| run.rate),
        p99_us: run.and_then(|run| run.response_time_us.p99),
        limit,
        limit_title: title,
        error,
        ..SessionSummary::default()
    }
}

fn state(view: &View, run: Option<&RunReport>) -> &'static str {
    match (&view.end, &view.outcome) {
        (SessionEnd::Torn, _) => "unfinished",
        (SessionEnd::Failed(INTERRUPTED, _), _) => "interrupted",
        (SessionEnd::Failed(..), _) => "failed",
        // What a tuning did to the server counts more.
        (SessionEnd::Done(UNWRITTEN), outcome) if !matches!(outcome, Outcome::Tune(_)) => "failed",
        _ if run.is_some_and(|run| !run.client.valid) => "invalid",
        (_, Outcome::Tune(tune)) => match tune.state {
            TuneState::Planned => "planned",
            TuneState::Applied => "applied",
            TuneState::Reverted => "reverted",
        },
        (_, Outcome::Capacity(found)) if found.generator.is_some() => "invalid",
        (SessionEnd::Done(NOT_MET), _) => "not met",
        _ => "done",
    }
}

/// The first URL of the load; else the service that was watched, or its host.
fn target(view: &View, recording: &Recording) -> Option<String> {
    let workload = recording.loads.first().map(|load| &load.workload);
    if let Some(list) = workload.and_then(|workload| workload.list.as_ref()) {
        return Some(list.file.clone());
    }
    if let Some((first, others)) = workload.and_then(|workload| workload.requests.split_first()) {
        let more = if others.is_empty() { String::new() } else { format!(" +{}", others.len()) };
        return Some(format!("{}{more}", first.url));
    }
    let service = view.service.as_ref().map(|service| format!("{}:{}", service.service, service.port));
    service.or_else(|| view.server.as_ref()?.hostname.clone())
}

#[cfg(test)]
mod tests;
