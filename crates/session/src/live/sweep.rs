//! The live target of a sweep: that of a tuning, with a load that is varied; or a load alone, of a server that nobody observes.

use super::capacity::{DRAIN_US_MAX, is_quiet, quiet_us};
use super::{LiveSession, LiveTarget, LoadLength};
use crate::live_traffic_policy;
use crate::sweep::SweepTarget;
use crate::tuning_target::{AppliedChange, LoadMeasurement, TuningTarget};
use std::time::Duration;
use webdyno_load::Prepared;
use webdyno_model::change::{Preparation, RenderedPlan, SettingChange};
use webdyno_model::environment::Environment;
use webdyno_model::event::EventBody;
use webdyno_model::purpose::Purpose;
use webdyno_model::sweep::KnobValue;
use webdyno_model::workload::{Arrival, Workload};
use webdyno_model::{ErrorKind, Result, UserError};

/// So long a server that failed may take to answer again, and so often it is asked.
const WELL_US_MAX: u64 = 20_000_000;
const WELL_CHECK_S: f64 = 0.5;

/// The load of a point.
pub type PointLoad<'a> = &'a dyn Fn(&[KnobValue]) -> Result<Workload>;

/// A real server that is measured at several points.
pub struct LiveSweep<'a> {
    /// Who makes the loads, and changes the server.
    pub side: LiveSide<'a>,
    /// What is sent at a point.
    pub load_of: PointLoad<'a>,
    /// Whether it ends where others use the server.
    pub refuses_others: bool,
    /// Whether it was seen that nobody else used the server.
    pub was_alone: bool,
    /// What lone requests took at most before the first rate, microseconds; `None` before it, and `Some(None)` where that is not known.
    pub quiet_us: Option<Option<u64>>,
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

    fn pause(&mut self) -> Result<()> {
        if let LiveSide::Observed(target) = &mut self.side {
            return target.session.observe_for(WELL_CHECK_S, target.servers);
        }
        std::thread::sleep(Duration::from_secs_f64(WELL_CHECK_S));
        if self.session().is_interrupted() { Err(UserError::interrupted()) } else { Ok(()) }
    }
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
