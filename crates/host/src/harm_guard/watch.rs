//! The thread that takes a reading every 200 ms, and reports harm once a load.
//!
//! Readings begin with the observation, before any load: what they show then is the base. They cost the machine next to
//! nothing (some ten small files of /proc and of the control group, and what was appended to the access logs); the site
//! is asked only while a load is on.
//!
//! Access logs may be on a file system that hangs. They are read without the lock of the state, so that nobody waits for
//! them: who needs them waits for [`LOGS_PATIENCE`] at most.

use super::decide::{History, WINDOW_US, decide, decide_with_varied_memory};
use super::others::OtherClientErrors;
use super::probe::{self, Probe};
use super::reading::{MemorySource, Reading};
use crate::collectors::Target;
use crate::logs::AccessLogs;
use crate::os::clock::clock_us;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use webdyno_model::harm_guard::{HarmGuardTrip, SiteUnderLoad};
use webdyno_model::sample::MissingSignal;
use webdyno_model::{Result, UserError};

/// How often readings are taken.
pub const READ_EVERY: Duration = Duration::from_millis(200);

/// The readings before a load that count as its base.
const BASE_US: u64 = 3_000_000;

/// So long must a server be quiet after a brake.
const QUIET_US: u64 = 2_000_000;

/// Within this time the site must answer to be well again.
const ANSWER: Duration = Duration::from_secs(2);

/// A site that answers nothing is told again after this time: whoever makes the load may have had answers meanwhile.
const SILENT_AGAIN_US: u64 = 500_000;

/// A look at the access logs takes moments; one that takes longer hangs.
const LOGS_PATIENCE: Duration = Duration::from_secs(1);

/// What is called with a brake. Must not wait for anybody.
pub type HarmHandler = Box<dyn Fn(HarmGuardTrip) + Send>;

/// Readings that go on until this is dropped.
#[derive(Debug)]
pub struct LoadWatch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Held while files are read. Never waited for with the state locked.
    others: Mutex<OtherClientErrors>,
    changed: Condvar,
    stop: AtomicBool,
}

#[derive(Debug)]
struct State {
    service_pid: Option<u32>,
    /// The last seconds before a load, or since it ended.
    base: VecDeque<Reading>,
    /// What was read before the last load: what another one that follows at once is compared with.
    earlier: Vec<Reading>,
    load: Option<Load>,
    /// The site of the last load.
    site: Option<SiteUnderLoad>,
}

#[derive(Debug)]
struct Load {
    probe: Option<Probe>,
    readings: Vec<Reading>,
    /// Whether the access logs are told which requests are the load's.
    others_known: bool,
    pulled: bool,
    silence_reported_us: u64,
}

impl LoadWatch {
    /// Begins to read. An error when the thread cannot be started.
    pub fn start(target: &Target, logs: AccessLogs, pull: HarmHandler) -> Result<Self> {
        let state = State {
            service_pid: target.service_pid,
            base: VecDeque::new(),
            earlier: vec![],
            load: None,
            site: None,
        };
        let others = OtherClientErrors::of(logs, target.status_url.as_deref().and_then(path));
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            others: Mutex::new(others),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let thread = Arc::clone(&shared);
        let started = std::thread::Builder::new().name("brake".into()).spawn(move || thread.run(&pull));
        started.map_err(|error| {
            UserError::cannot_run(format!("cannot start a thread for the load brake: {error}"))
                .hint("`ulimit -u` shows how many threads are allowed")
        })?;
        Ok(Self { shared })
    }

    /// The service may have another main process now, and another control group.
    pub fn set_target(&self, target: &Target) {
        let mut state = self.shared.state();
        if state.service_pid != target.service_pid {
            state.service_pid = target.service_pid;
            // Counters of another group would look as if they had jumped.
            let base = state.base.drain(..).collect::<Vec<_>>();
            if lasts_us(&base) >= WINDOW_US {
                state.earlier = base;
            }
        }
    }

    /// A load begins. Gives what cannot be watched of the harm that it may do.
    pub fn begin(&self, site: &SiteUnderLoad) -> Vec<MissingSignal> {
        let probe = Probe::start(site);
        let mut missing = vec![];
        let others_known = match self.shared.others_within(LOGS_PATIENCE) {
            Some(mut others) => {
                missing.extend(others.missing(site));
                others.begin(site);
                true
            }
            None => {
                let why = "reading the access logs hangs";
                let how = "the file system of the access logs must answer";
                missing.push(MissingSignal::new("errors of other clients", why, how));
                false
            }
        };
        if let Err(error) = &probe {
            let how = "the agent must reach the site at the address that is loaded";
            missing.push(MissingSignal::new("whether the site is reachable", &error.message, how));
        }
        let mut state = self.shared.state();
        state.site = Some(site.clone());
        let probe = probe.ok();
        state.load =
            Some(Load { probe, readings: vec![], others_known, pulled: false, silence_reported_us: 0 });
        missing
    }

    /// The load has ended: nothing is its doing any more.
    pub fn end(&self) {
        let mut state = self.shared.state();
        state.load = None;
        let base = state.base.drain(..).collect::<Vec<_>>();
        if lasts_us(&base) >= WINDOW_US {
            state.earlier = base;
        }
    }

    /// Why the server is not yet as quiet as it must be for another load; `None` when it is.
    pub fn disturbance(&self) -> Option<String> {
        let site = {
            let state = self.shared.state();
            let since: Vec<Reading> = state.base.iter().cloned().collect();
            if let Some(brake) = decide(History { base: &[], follows: true, load: &since }) {
                return Some(brake.text);
            }
            let ends = since.first().zip(since.last());
            let watched_us = ends.map_or(0, |(first, last)| last.at_us.saturating_sub(first.at_us));
            if watched_us < QUIET_US {
                return Some("it was not watched for long enough since the load".into());
            }
            state.site.clone()
        };
        let silent = site.is_some_and(|site| !probe::answers(&site, ANSWER));
        silent.then(|| format!("the site has answered nothing for {} s", ANSWER.as_secs()))
    }
}

impl Drop for LoadWatch {
    /// The thread ends by itself, after the reading that it is in, or the pause.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    /// A thread that panicked while it held the lock left at worst a reading out.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when a look at the logs takes longer than this.
    fn others_within(&self, at_most: Duration) -> Option<MutexGuard<'_, OtherClientErrors>> {
        let start = Instant::now();
        loop {
            match self.others.try_lock() {
                Ok(others) => return Some(others),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if start.elapsed() >= at_most => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn run(&self, pull: &HarmHandler) {
        let mut service_pid = self.state().service_pid;
        let mut memory = MemorySource::of(service_pid);
        let mut due = Instant::now();
        loop {
            let mut state = self.wait(due);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            if state.service_pid != service_pid {
                service_pid = state.service_pid;
                drop(state);
                memory = MemorySource::of(service_pid);
                continue;
            }
            // Without the lock: where memory is short, reading takes long, and a log may hang.
            drop(state);
            let (machine, group) = memory.read();
            let others_failed_count = self.others.lock().unwrap_or_else(PoisonError::into_inner).read_count();
            state = self.state();
            // What was read of another group meanwhile would look as if counters had jumped.
            if state.service_pid == service_pid {
                let reading = Reading { at_us: clock_us(), machine, group, others_failed_count, site: None };
                state.take(reading, pull);
            }
            drop(state);
            // Turns that were missed are not made up for.
            due = (due + READ_EVERY).max(Instant::now());
        }
    }

    fn wait(&self, due: Instant) -> MutexGuard<'_, State> {
        let mut state = self.state();
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stop.load(Ordering::SeqCst) {
                return state;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// Adds a reading, and pulls the brake when it shows harm. The lock is held meanwhile: what is said of a load is
    /// said before its end is answered.
    fn take(&mut self, mut reading: Reading, pull: &HarmHandler) {
        let Some(load) = &mut self.load else {
            let from_us = reading.at_us.saturating_sub(BASE_US);
            self.base.retain(|earlier| earlier.at_us >= from_us);
            self.base.push_back(reading);
            return;
        };
        reading.others_failed_count = reading.others_failed_count.filter(|_| load.others_known);
        reading.site = load.probe.as_ref().map(Probe::state);
        let at_us = reading.at_us;
        load.readings.push(reading);
        if load.pulled {
            return;
        }
        let base: &[Reading] = self.base.make_contiguous();
        // A load that follows at once has no seconds of its own before it: what was there before the last one counts.
        let follows = lasts_us(base) >= WINDOW_US || self.earlier.is_empty();
        let base = if follows { base } else { &self.earlier };
        let history = History { base, follows, load: &load.readings };
        let is_varied = self.site.as_ref().is_some_and(|site| site.varies_memory);
        let harm = if is_varied { decide_with_varied_memory(history) } else { decide(history) };
        let Some(brake) = harm else {
            load.forget_long_ago();
            return;
        };
        if brake.metric == HarmGuardTrip::SITE_SILENT {
            if at_us < load.silence_reported_us + SILENT_AGAIN_US {
                return;
            }
            load.silence_reported_us = at_us;
        } else {
            load.pulled = true;
        }
        pull(brake);
    }
}

impl Load {
    /// Rules look at the first reading and at those of the last second.
    fn forget_long_ago(&mut self) {
        const READINGS_COUNT_MAX: usize = 60;
        if self.readings.len() > READINGS_COUNT_MAX {
            self.readings.drain(1..READINGS_COUNT_MAX / 2);
        }
    }
}

/// The time from the first of these readings to the last.
fn lasts_us(readings: &[Reading]) -> u64 {
    readings.first().zip(readings.last()).map_or(0, |(first, last)| last.at_us.saturating_sub(first.at_us))
}

/// The path of a URL without a query.
fn path(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    Some(rest[rest.find('/')?..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lock of the logs is held as long as they are read, here: for ever.
    #[test]
    fn logs_that_hang_hold_up_nobody() {
        let watch = LoadWatch::start(&Target::default(), AccessLogs::default(), Box::new(|_| ())).unwrap();
        let shared = Arc::clone(&watch.shared);
        let hanging = shared.others.lock().unwrap();
        let site = SiteUnderLoad {
            addresses: vec!["127.0.0.1:1".parse().unwrap()],
            host: "localhost".into(),
            user_agents: vec![],
            generators: vec![],
            timeout_us: 1,
            varies_memory: false,
        };
        let missing = watch.begin(&site);
        assert!(missing.iter().any(|missing| missing.why == "reading the access logs hangs"), "{missing:?}");
        watch.set_target(&Target { service_pid: Some(1), ..Target::default() });
        watch.end();
        assert!(watch.disturbance().is_some());
        drop(watch);
        drop(hanging);
    }
}
