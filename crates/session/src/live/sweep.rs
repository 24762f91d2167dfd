//! The live target of a sweep: that of a tuning, with a load that is varied; or a load alone, of a server that nobody observes.

use super::capacity::{DRAIN_US_MAX, is_quiet, quiet_us};
use super::{LiveSession, LiveTarget, LoadLength};
use crate::live_traffic_policy;
use crate::sweep::SweepTarget;
use crate::tuning_target::{AppliedChange, LoadMeasurement, TuningTarget};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::os::page_cache::DroppedPages;
use webdyno_load::Prepared;
use webdyno_model::change::{Preparation, RenderedPlan, SettingChange};
use webdyno_model::environment::Environment;
use webdyno_model::event::EventBody;
use webdyno_model::purpose::Purpose;
use webdyno_model::sweep::{KnobValue, PageCache};
use webdyno_model::workload::{Arrival, RequestSpec, Stop, Workload};
use webdyno_model::{ErrorKind, Result, UserError};

/// So long a server that failed may take to answer again, and so often it is asked.
const WELL_US_MAX: u64 = 20_000_000;
const WELL_CHECK_S: f64 = 0.5;

/// Requests at once that warm a page cache: what is read is the same with more of them, and a disk is no faster.
const WARMING_CONNECTIONS: u32 = 8;

/// The load of a point.
pub type PointLoad<'a> = &'a dyn Fn(&[KnobValue]) -> Result<Workload>;

/// A real server that is measured at several points.
pub struct LiveSweep<'a> {
    /// Who makes the loads, and changes the server.
    pub side: LiveSide<'a>,
    /// What is sent at a point.
    pub load_of: PointLoad<'a>,
    /// The files of which a cold page cache holds nothing.
    pub page_cache_paths: Vec<PathBuf>,
    /// Whether it ends where others use the server.
    pub refuses_others: bool,
    /// Whether it was seen that nobody else used the server.
    pub was_alone: bool,
    /// What lone requests took at most before the first rate, microseconds; `None` before it, and `Some(None)` where that is not known.
    pub quiet_us: Option<Option<u64>>,
    /// Whether it was said that a cold page cache cannot be verified.
    pub was_unverified: bool,
}

/// Whether the server is observed.
pub enum LiveSide<'a> {
    /// By its agents, which change it, too.
    Observed(Box<LiveTarget<'a>>),
    /// By nobody.
    Unobserved(Box<UnobservedTarget<'a>>),
}

/// A load alone.
pub struct UnobservedTarget<'a> {
    /// Log and clock.
    pub session: &'a mut LiveSession,
    /// The engine's side of the workload.
    pub prepared: Prepared,
    /// What is sent.
    pub workload: Workload,
    /// How long each measurement takes.
    pub length: LoadLength,
}

impl LiveSweep<'_> {
    fn target(&mut self) -> Result<&mut dyn TuningTarget> {
        match &mut self.side {
            LiveSide::Observed(target) => Ok(target.as_mut()),
            LiveSide::Unobserved(_) => {
                Err(UserError::cannot_run("nobody is at the server who could change it"))
            }
        }
    }

    fn session(&mut self) -> &mut LiveSession {
        match &mut self.side {
            LiveSide::Observed(target) => target.session,
            LiveSide::Unobserved(target) => target.session,
        }
    }

    /// The load from now on, and its engine's side.
    fn load(&mut self) -> (&mut Workload, &mut Prepared) {
        match &mut self.side {
            LiveSide::Observed(target) => (&mut target.workload, &mut target.prepared),
            LiveSide::Unobserved(target) => (&mut target.workload, &mut target.prepared),
        }
    }

    /// Requests that a rate left behind are answered before the next one begins: lone ones take about as long as before the first.
    fn wait_until_drained(&mut self, ready: &mut Prepared) -> Result<()> {
        let quiet_us = *self.quiet_us.get_or_insert_with(|| quiet_us(ready.alone_us()));
        let until_us = self.elapsed_us() + DRAIN_US_MAX;
        while !is_quiet(ready, quiet_us) {
            if self.elapsed_us() >= until_us {
                let text = "a point began although lone requests still took longer than before the first one";
                return self.session().append(EventBody::Note { text: text.into() });
            }
            self.pause()?;
            webdyno_load::measure_alone(ready);
        }
        Ok(())
    }

    /// Requests each URL of the load once: a load of its own in the log, which is not measured.
    fn warm_page_cache(&mut self) -> Result<()> {
        let (workload, _) = self.load();
        let Some(reading) = page_cache_reader(workload)? else { return Ok(()) };
        let prepared = webdyno_load::prepare(&reading)?;
        let length = LoadLength::Fixed { warmup_s: Some(0.0) };
        let (session, servers) = match &mut self.side {
            LiveSide::Observed(target) => (&mut *target.session, Some(&mut *target.servers)),
            LiveSide::Unobserved(target) => (&mut *target.session, None),
        };
        match servers {
            Some(servers) => {
                session.load_or_recover(&prepared, &reading, Purpose::WarmCache, length, servers)
            }
            None => session.load(&prepared, &reading, Purpose::WarmCache, length, None),
        }
        .map(|_| ())
    }

    fn pause(&mut self) -> Result<()> {
        if let LiveSide::Observed(target) = &mut self.side {
            return target.session.observe_for(WELL_CHECK_S, target.servers);
        }
        std::thread::sleep(Duration::from_secs_f64(WELL_CHECK_S));
        if self.session().is_interrupted() { Err(UserError::interrupted()) } else { Ok(()) }
    }
}

/// What requests each URL of a load once, of those that are only read; `None` where there are none.
fn page_cache_reader(workload: &Workload) -> Result<Option<Workload>> {
    if workload.visits.is_some() {
        return Err(UserError::usage(
            "the page cache is warmed by requests, and this content has pages or users",
        )
        .hint("give it requests or a list of URLs with `connections`, or page_cache = \"as-is\""));
    }
    let is_read = |request: &RequestSpec| ["GET", "HEAD"].contains(&request.method.as_str());
    let mut reading = workload.clone();
    let count = match &mut reading.list {
        Some(list) => {
            let mut entries = list.entries.as_deref().cloned().unwrap_or_default();
            entries.weights.clear();
            entries.entries.retain(|entry| workload.requests.get(entry.kind as usize).is_some_and(is_read));
            (list.count, list.random, list.weighted) = (entries.entries.len() as u64, false, false);
            list.entries = Some(Arc::new(entries));
            list.count
        }
        None => {
            reading.requests.retain(is_read);
            reading.requests.iter_mut().for_each(|request| request.weight = 1.0);
            reading.requests.len() as u64
        }
    };
    // By weight some would be left out, and each thread takes them from another one on.
    reading.threads = Some(1);
    reading.arrival = Arrival::Closed;
    reading.connections = workload.connections.min(WARMING_CONNECTIONS);
    reading.stop = Stop { duration_us: None, requests: Some(count) };
    Ok((count > 0).then_some(reading))
}

/// Why a page cache is not cold.
fn not_cold(pages: &DroppedPages) -> Option<String> {
    let DroppedPages { files_count, unreadable_count, sample_count, kept_count, .. } = *pages;
    // What others read meanwhile is a file or two.
    (kept_count * 20 > sample_count || unreadable_count * 100 > files_count).then(|| {
        format!(
            "the page cache is not cold: {kept_count} of {sample_count} files are in memory, {unreadable_count} cannot be opened"
        )
    })
}

impl UnobservedTarget<'_> {
    fn measure(&mut self, purpose: Purpose) -> Result<LoadMeasurement> {
        if self.session.is_interrupted() {
            return Err(UserError::interrupted());
        }
        let load = self.session.load(&self.prepared, &self.workload, purpose, self.length, None)?;
        let recording = self.session.recording();
        let record =
            recording.load(load).ok_or_else(|| UserError::cannot_run("the load was not recorded"))?;
        Ok(LoadMeasurement { load, measurement: recording.measurement(record) })
    }
}

impl TuningTarget for LiveSweep<'_> {
    fn measure(&mut self, purpose: Purpose) -> Result<LoadMeasurement> {
        match &mut self.side {
            LiveSide::Observed(target) => target.measure(purpose),
            LiveSide::Unobserved(target) => target.measure(purpose),
        }
    }

    fn prepare(&mut self, changes: &[SettingChange]) -> Result<Preparation> {
        self.target()?.prepare(changes)
    }

    fn apply(&mut self, plan: &RenderedPlan, allow_restart: bool) -> Result<Option<AppliedChange>> {
        self.target()?.apply(plan, allow_restart)
    }

    fn revert(&mut self, mark: u64) -> Result<()> {
        self.target()?.revert(mark)
    }

    /// Nothing of a sweep stays.
    fn keep(&mut self) -> Result<()> {
        Err(UserError::cannot_run("a sweep keeps no change"))
    }

    fn record(&mut self, body: EventBody) -> Result<()> {
        self.session().append(body)
    }

    fn elapsed_us(&self) -> u64 {
        match &self.side {
            LiveSide::Observed(target) => target.elapsed_us(),
            LiveSide::Unobserved(target) => target.session.elapsed_us(),
        }
    }
}

impl SweepTarget for LiveSweep<'_> {
    fn offer(&mut self, values: &[KnobValue]) -> Result<()> {
        let next = (self.load_of)(values)?;
        let mut ready = webdyno_load::prepare(&next)?;
        webdyno_load::probe(&mut ready)?;
        webdyno_load::measure_alone(&mut ready);
        if matches!(next.arrival, Arrival::Open { .. }) {
            self.wait_until_drained(&mut ready)?;
        }
        let (workload, prepared) = self.load();
        (*workload, *prepared) = (next, ready);
        Ok(())
    }

    fn refuse_others(&mut self) -> Result<()> {
        if !self.refuses_others {
            return Ok(());
        }
        let traffic = self.session().recording().live_traffic();
        if let Some(refusal) = live_traffic_policy::sweep_refusal(traffic.as_ref(), !self.was_alone) {
            return Err(refusal);
        }
        self.was_alone = true;
        Ok(())
    }

    fn settle_page_cache(&mut self, state: PageCache) -> Result<Option<String>> {
        match (state, &mut self.side) {
            (PageCache::AsIs, _) => Ok(None),
            (PageCache::Warm, side) => {
                // Who reads the pages then is the service, whose memory they count as.
                if let (LiveSide::Observed(target), false) = (side, self.page_cache_paths.is_empty()) {
                    target.servers.front().agent().drop_pages(&self.page_cache_paths, false)?;
                }
                self.warm_page_cache().map(|()| None)
            }
            (PageCache::Cold, LiveSide::Observed(target)) => {
                let pages = target.servers.front().agent().drop_pages(&self.page_cache_paths, false)?;
                if pages.sample_count == 0 && !std::mem::replace(&mut self.was_unverified, true) {
                    let text = "the page cache was dropped, and whether it holds nothing cannot be seen on this file system";
                    target.session.append(EventBody::Note { text: text.into() })?;
                }
                Ok(not_cold(&pages))
            }
            (PageCache::Cold, LiveSide::Unobserved(_)) => {
                Err(UserError::cannot_run("nobody is at the server who could drop its page cache"))
            }
        }
    }

    fn wait_until_well(&mut self) -> Result<Option<String>> {
        let until_us = self.elapsed_us() + WELL_US_MAX;
        loop {
            let (workload, _) = self.load();
            let answered =
                webdyno_load::prepare(workload).and_then(|mut ready| webdyno_load::probe(&mut ready));
            match answered {
                Ok(_) => return Ok(None),
                Err(error) if error.kind == ErrorKind::Interrupted => return Err(error),
                Err(error) if self.elapsed_us() >= until_us => return Ok(Some(error.message)),
                Err(_) => self.pause()?,
            }
        }
    }

    fn environment(&self) -> Option<Environment> {
        match &self.side {
            LiveSide::Observed(target) => target.session.recording().server.clone(),
            LiveSide::Unobserved(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_cache_is_warmed_by_each_request_once() {
        let request = |method: &str, weight| RequestSpec {
            method: method.into(),
            url: "http://127.0.0.1:1/".into(),
            weight,
            ..RequestSpec::default()
        };
        let requests = vec![request("GET", 9.0), request("POST", 1.0), request("HEAD", 0.1)];
        let load = Workload { requests, threads: Some(4), ..Workload::default() };
        let reading = page_cache_reader(&load).unwrap().unwrap();
        assert_eq!((reading.threads, reading.stop.requests), (Some(1), Some(2)));
        let sent: Vec<_> =
            reading.requests.iter().map(|request| (request.method.as_str(), request.weight)).collect();
        assert_eq!(sent, [("GET", 1.0), ("HEAD", 1.0)]);
    }
}
