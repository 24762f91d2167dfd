//! Finishing the recording of a session that was cut off while workers made its load: what its log has, and what was kept of the
//! results since.

use super::generator::GeneratorEvent;
use super::loading::SecondChecks;
use super::{LiveSession, LoadLength, monotonic_us};
use crate::log::writer::{EventLog, EventObserver};
use crate::recording::{LoadRecord, Recording};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use webdyno_load::Control;
use webdyno_model::client::ClientTables;
use webdyno_model::event::EventBody;
use webdyno_model::interval::{EndReason, LoadEnd};
use webdyno_model::purpose::Purpose;
use webdyno_model::worker::{WorkerPart, WorkersStart};
use webdyno_model::{Result, UserError};

/// A load whose recording has no end.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfinishedLoad {
    /// Its number.
    pub load: u32,
    /// Who was to make it.
    pub start: WorkersStart,
    /// The workers' parts, as they were written last: what they came to by then.
    pub parts: Vec<WorkerPart>,
    /// Seconds of it that are in the log.
    pub logged_seconds: u64,
    purpose: Purpose,
    length: LoadLength,
}

impl UnfinishedLoad {
    /// The load that a session was cut off in. An error when there is nothing to go on with.
    pub fn of(recording: &Recording, directory: &Path) -> Result<Self> {
        let nothing = |what: &str| {
            let report = format!("what it has is shown by: webdyno report {}", directory.display());
            Err(UserError::usage(format!("{} {what}", directory.display())).hint(report))
        };
        if recording.end.is_some() {
            return nothing("is finished: nothing is missing in it");
        }
        let Some(record) = recording.loads.last().filter(|record| record.end.is_none()) else {
            return nothing("was cut off, but not during a load: no results can be missing");
        };
        let Some(start) = record.workers_start.clone() else {
            return nothing(
                "was cut off in a load that its own process made: the results since then went with it",
            );
        };
        if record.workers.is_empty() {
            return nothing("was cut off before any worker had its part: nothing was sent");
        }
        if ["local:", "ssh:"].iter().any(|own| start.on.starts_with(own)) {
            return nothing(
                "had its own nats-server (--on local or ssh), which kept the results and ended with it",
            );
        }
        let LoadRecord { load, purpose, workers, intervals, .. } = record;
        let length = match start.measure_s {
            Some(measure_s) => LoadLength::Settled { measure_s, at_most_s: u32::MAX },
            None => LoadLength::Fixed { warmup_s: start.warmup_s },
        };
        let (load, purpose, parts) = (*load, *purpose, workers.clone());
        Ok(Self { load, start, parts, logged_seconds: intervals.len() as u64, purpose, length })
    }
}

impl LiveSession {
    /// Goes on with the recording of a session that was cut off. An error when it still runs.
    pub fn resume(
        directory: &Path,
        interrupted: Arc<AtomicBool>,
        watcher: EventObserver,
    ) -> Result<(Self, UnfinishedLoad)> {
        let (log, events) = EventLog::resume(directory)?;
        let until_us = events.iter().map(|event| event.t_us).max().unwrap_or(0);
        let seq = events.last().map_or(0, |event| event.seq + 1);
        let recording = Recording::of(events);
        let unfinished = UnfinishedLoad::of(&recording, directory)?;
        let session = Self {
            recording,
            seq,
            began_us: monotonic_us().saturating_sub(until_us),
            ..Self::on(log, interrupted, watcher)
        };
        Ok((session, unfinished))
    }

    /// Finishes its load with the results that `fetch` has; it is told how many seconds are in the log. Gives how the load ended.
    pub fn resume_load(
        &mut self,
        of: &UnfinishedLoad,
        fetch: impl FnOnce(Arc<AtomicU64>, &Control, &mut dyn FnMut(GeneratorEvent)) -> Result<LoadEnd> + Send,
    ) -> Result<EndReason> {
        // The time between is in no clock of the session.
        self.append(EventBody::Clock { wall: jiff::Timestamp::now().to_string() })?;
        let logged = Arc::new(AtomicU64::new(0));
        let mut lost = None;
        let checks = SecondChecks::of_results(logged.clone(), &mut lost);
        let seconds = logged.clone();
        // What has been sent has been sent: nothing ends it sooner.
        let length = LoadLength::Fixed { warmup_s: None };
        let end = self
            .generate((of.load, length), None, checks, move |control, sink| fetch(seconds, control, sink))?;
        let reason = end.reason;
        if reason == EndReason::Interrupted {
            let text = format!(
                "the command that ordered the load was gone: its workers stopped it by themselves after {:.0} s",
                end.elapsed_us as f64 / 1e6
            );
            self.append(EventBody::Note { text })?;
        }
        self.append_end((of.load, of.purpose, of.length), end, ClientTables::default())?;
        logged.store(u64::MAX, Ordering::Release);
        Ok(reason)
    }
}
