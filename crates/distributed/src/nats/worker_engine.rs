//! The engine of a worker, on threads of its own: what it reports comes through a channel.

use crate::admission::Limits;
use crate::worker::PreparedPlan;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use tokio::sync::mpsc::UnboundedSender;
use webdyno_load::{Control, Prepared};
use webdyno_model::interval::{EndReason, Interval, LoadEnd};
use webdyno_model::{Result, UserError};

/// What the engine has to say, of a load by its number; of one that may have been stopped also whose it is.
pub(super) enum EngineEvent {
    Prepared(String, u32, std::result::Result<(), String>),
    Interval(u32, Box<Interval>),
    Ended(u32, std::result::Result<LoadEnd, String>),
}

/// Where the engine's events go, with the number of the engine.
#[derive(Clone)]
pub(super) struct Events(pub(super) usize, pub(super) UnboundedSender<(usize, EngineEvent)>);

impl Events {
    fn send(&self, event: EngineEvent) {
        let _ = self.1.send((self.0, event));
    }
}

/// The load that is ready, or under way.
pub(super) struct WorkerEngine {
    limits: Limits,
    events: Events,
    until_ns: u64,
    control: Control,
    load: u32,
    from_s: u64,
    ready: Arc<Mutex<Option<Prepared>>>,
    began_reported: bool,
}

impl WorkerEngine {
    pub(super) fn new(limits: Limits, events: Events) -> Self {
        let (control, ready) = (Control::new(), Arc::default());
        Self { limits, events, until_ns: 0, control, load: 0, from_s: 0, ready, began_reported: false }
    }

    /// Resolves names, builds requests, and sends one of them: is there a server?
    pub(super) fn prepare(&mut self, plan: PreparedPlan) {
        (self.control, self.ready) = (Control::new(), Arc::default());
        (self.load, self.began_reported, self.from_s) = (plan.load, false, plan.from_s);
        self.control.keep_until(self.until_ns);
        let (limits, ready, events) = (self.limits.clone(), self.ready.clone(), self.events.clone());
        let (session, load) = (plan.session.clone(), plan.load);
        let prepare = move || {
            let prepared = make_ready(&plan, &limits);
            let result = prepared.map(|prepared| {
                *ready.lock().unwrap_or_else(PoisonError::into_inner) = Some(prepared);
            });
            let result = result.map_err(|error| error.message);
            events.send(EngineEvent::Prepared(plan.session, plan.load, result));
        };
        self.spawn("prepare", move |error| EngineEvent::Prepared(session, load, Err(error)), prepare);
    }

    pub(super) fn start(&mut self, at_ns: u64) {
        let prepared = self.ready.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (load, control, events, from_s) =
            (self.load, self.control.clone(), self.events.clone(), self.from_s as f64);
        let Some(prepared) = prepared else {
            events.send(EngineEvent::Ended(load, Err("the load was not ready".into())));
            return;
        };
        let run = move || {
            // The seconds before are those of another one.
            let mut sink = |interval: Interval| {
                if interval.t_s >= from_s {
                    events.send(EngineEvent::Interval(load, Box::new(interval)));
                }
            };
            let ended = webdyno_load::run_at(&prepared, &control, Some(at_ns), &mut sink);
            events.send(EngineEvent::Ended(load, ended.map_err(|error| error.message)));
        };
        self.spawn("merge", move |error| EngineEvent::Ended(load, Err(error)), run);
    }

    fn spawn(
        &self,
        name: &str,
        failed: impl FnOnce(String) -> EngineEvent,
        run: impl FnOnce() + Send + 'static,
    ) {
        if let Err(error) = thread::Builder::new().name(name.into()).spawn(run) {
            self.events.send(failed(format!("cannot start a thread: {error}")));
        }
    }

    /// Until when a load may go on.
    pub(super) fn keep_until(&mut self, until_ns: u64) {
        self.until_ns = until_ns;
        self.control.keep_until(until_ns);
    }

    /// Ends the load, also one that is not ready yet.
    pub(super) fn stop(&self, reason: EndReason) {
        self.control.stop(reason);
        drop(self.ready.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// When the load began, once.
    pub(super) fn began_ns(&mut self) -> Option<u64> {
        let began_ns = self.control.began_ns().filter(|_| !self.began_reported)?;
        self.began_reported = true;
        Some(began_ns)
    }
}

fn make_ready(plan: &PreparedPlan, limits: &Limits) -> Result<Prepared> {
    let mut prepared = webdyno_load::prepare_share(&plan.workload, Some(plan.share))?;
    prepared.take_over_from(plan.from_s);
    webdyno_load::probe(&mut prepared)?;
    // Redirects and pages may lead to other servers than the URLs name.
    for destination in prepared.destinations() {
        limits.check_server(&destination.host, destination.port).map_err(UserError::usage)?;
    }
    Ok(prepared)
}
