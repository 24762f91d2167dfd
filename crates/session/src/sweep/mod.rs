//! A sweep: a server is measured at one point after the other, and has its original settings again at the end, however that comes.
//! Over a trait, so that whole sweeps run against a simulated server.
//!
//! A setting is changed as tuning changes it: through the journal of the agent, whose guardian puts the original back where the tool is
//! gone. What a load came to is in the log before the next one begins: a session that goes on with this one measures no point twice.

mod carried;
mod settings;

pub use carried::{carried_loads, recorded_report};
pub use settings::{Companion, SettingKnob, check_values};

use crate::tuning_target::TuningTarget;
use settings::AppliedSettings;
use webdyno_analysis::sweep::{
    NextPoint, Planner, PointSpec, SweepEnd, SweepOptions, load_point, sweep_report,
};
use webdyno_model::environment::Environment;
use webdyno_model::event::EventBody;
use webdyno_model::purpose::Purpose;
use webdyno_model::sweep::{KnobValue, PageCache, SweepLoad, SweepPlan, SweepPoint, SweepReport};
use webdyno_model::{ErrorKind, Result, UserError};

/// A server that is measured at several points.
pub trait SweepTarget: TuningTarget {
    /// From now on the load is that of these values, a value of each knob. Called where a knob is of the load.
    fn offer(&mut self, values: &[KnobValue]) -> Result<()>;
    /// An error where others use the server by now, who would have to bear what a sweep does.
    fn refuse_others(&mut self) -> Result<()>;
    /// Brings the page cache into this state for the load that was offered last. Why it could not be, if it could not.
    fn settle_page_cache(&mut self, state: PageCache) -> Result<Option<String>>;
    /// Waits a while until the server answers, after it failed. Why it does not, if it does not.
    fn wait_until_well(&mut self) -> Result<Option<String>>;
    /// The machine of the server, where it is observed.
    fn environment(&self) -> Option<Environment>;
}

/// What a knob varies.
#[derive(Debug, Clone, PartialEq)]
pub enum SweepKnob {
    /// A setting of the server.
    Setting(Box<SettingKnob>),
    /// The load.
    Load,
    /// What the page cache holds when the load begins.
    PageCache,
}

/// What a sweep is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepOrder {
    /// What it is about.
    pub plan: SweepPlan,
    /// What each knob varies.
    pub knobs: Vec<SweepKnob>,
    /// Which points are measured.
    pub options: SweepOptions,
    /// Whether a restart is acceptable.
    pub allow_restart: bool,
    /// What the session that this one goes on with has measured.
    pub carried: Vec<SweepPoint>,
}

/// Sweeps, and records what it came to. After an error in the middle, what was found until then is recorded before it is returned.
pub fn sweep(target: &mut impl SweepTarget, order: SweepOrder) -> Result<SweepReport> {
    let began_us = target.elapsed_us();
    target.record(EventBody::SweepStart { plan: Box::new(order.plan.clone()) })?;
    let mut sweeping = Sweeping {
        planner: Planner::new(order.options.clone()),
        settings: AppliedSettings::new(order.allow_restart),
        order,
    };
    for point in sweeping.order.carried.clone() {
        sweeping.take(target, point)?;
    }
    let ended = sweeping.measure_all(target, began_us);
    // Whatever came before: what could not be put back counts most.
    let restored = sweeping.settings.restore(target);
    let end = ended.as_ref().map_or_else(|error| SweepEnd::Failed(error.message.clone()), Clone::clone);
    let loads = sweeping.planner.loads();
    let mut report = sweep_report(&sweeping.order.plan, loads, &end);
    report.environment = target.environment();
    if !loads.is_empty() {
        target.record(EventBody::SweepEnd { report: Box::new(report.clone()) })?;
    }
    restored.and(ended).map(|_| report)
}

struct Sweeping {
    order: SweepOrder,
    planner: Planner,
    settings: AppliedSettings,
}

impl Sweeping {
    fn measure_all(&mut self, target: &mut impl SweepTarget, began_us: u64) -> Result<SweepEnd> {
        loop {
            let elapsed_s = target.elapsed_us().saturating_sub(began_us) as f64 / 1e6;
            let spec = match self.planner.next(elapsed_s) {
                NextPoint::Done(end) => return Ok(end),
                NextPoint::Measure(spec) => spec,
            };
            let PointSpec { values, repeat, n, expected } = spec;
            target.refuse_others()?;
            target.record(EventBody::SweepPointStart { values: values.clone(), repeat, n, expected })?;
            let point = match self.measure(target, &values) {
                Err(error) if error.kind == ErrorKind::Interrupted => return Err(error),
                Ok(point) => point,
                Err(error) => {
                    // The hint may say that something could not be put back, or was left to the operator.
                    let hint = error
                        .hint
                        .as_deref()
                        .map(|hint| format!("; {}", hint.replace('\n', "; ")))
                        .unwrap_or_default();
                    target
                        .record(EventBody::Note { text: format!("not measured: {}{hint}", error.message) })?;
                    failed(&values, error)
                }
            };
            let has_failed = point.failed.is_some();
            self.take(target, point)?;
            if has_failed {
                self.settings.restore(target)?;
                if let Some(why) = target.wait_until_well()? {
                    return Ok(SweepEnd::ServerFailed(why));
                }
            }
        }
    }

    /// One load at these values, as a point.
    fn measure(&mut self, target: &mut impl SweepTarget, values: &[KnobValue]) -> Result<SweepPoint> {
        self.settings.set(target, &settings::changes(&self.order.knobs, values))?;
        if self.order.knobs.contains(&SweepKnob::Load) {
            target.offer(values)?;
        }
        if let Some(state) = page_cache(&self.order.knobs, values)
            && let Some(why) = target.settle_page_cache(state)?
        {
            return Ok(not_settled(values, why));
        }
        let measured = target.measure(Purpose::Sweep)?;
        load_point(values, measured.load, &measured.measurement, self.planner.loads())
    }

    fn take(&mut self, target: &mut impl SweepTarget, point: SweepPoint) -> Result<()> {
        target.record(EventBody::SweepPointEnd { point: Box::new(point.clone()) })?;
        self.planner.add(point);
        Ok(())
    }
}

/// The state of the page cache at a point, where it is one of the knobs.
fn page_cache(knobs: &[SweepKnob], values: &[KnobValue]) -> Option<PageCache> {
    let at = knobs.iter().position(|knob| *knob == SweepKnob::PageCache)?;
    match values.get(at)? {
        KnobValue::Word(word) => PageCache::parse(word),
        KnobValue::Number(_) => None,
    }
}

/// A load that was not made: it would not have been what its point says.
fn not_settled(values: &[KnobValue], why: String) -> SweepPoint {
    let load = SweepLoad { discarded: Some(why), ..SweepLoad::default() };
    let value = values.first().and_then(KnobValue::number);
    SweepPoint { value, values: values.to_vec(), loads: vec![load], ..SweepPoint::default() }
}

fn failed(values: &[KnobValue], error: UserError) -> SweepPoint {
    SweepPoint {
        value: values.first().and_then(KnobValue::number),
        values: values.to_vec(),
        failed: Some(error.message),
        ..SweepPoint::default()
    }
}
