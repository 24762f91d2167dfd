//! The number of a setting that bounds how much is served at once, and between which values a search may vary it.

use crate::facts::{FactId, Facts};
use crate::resources::processors;
use webdyno_model::setting::SettingId;

/// Fewer for each processor leave it idle while one waits for anything.
const PER_CORE_MIN: f64 = 2.0;
/// Who takes less than this of what the site takes of the processors does not do the work.
const OWN_FRACTION_MIN: f64 = 0.5;

/// A setting that a search may vary.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchRange {
    /// Which one.
    pub setting: SettingId,
    /// Its value.
    pub now: f64,
    /// The largest value: what memory holds, and what a reload reaches. `None` where the former is not known: then nothing above the
    /// value there is.
    pub most: Option<f64>,
    /// The smallest value.
    pub least: f64,
    /// Only whole multiples of this are values.
    pub step: f64,
}

impl SearchRange {
    /// Of a number that bounds the work now, where whoever it is the number of takes `cores` of the processors; `None` where others do
    /// the work.
    pub(crate) fn of(
        facts: &Facts,
        setting: SettingId,
        (now, most, step): (f64, Option<f64>, f64),
        cores: Option<f64>,
    ) -> Option<Self> {
        cores?.ge(&(OWN_FRACTION_MIN * processors::own_cores(facts)?)).then_some(())?;
        let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores))?;
        Some(Self { setting, now, most, least: PER_CORE_MIN * usable, step })
    }

    /// The value nearest to this one that is allowed and no other than those that were tried; `None` when there is none.
    pub fn value(&self, wanted: f64, tried: &[i64]) -> Option<i64> {
        let value = (wanted / self.step).round().max(1.0) * self.step;
        let is_allowed = value >= self.least && value <= self.most.unwrap_or(self.now).max(self.now);
        Some(value as i64).filter(|value| is_allowed && !tried.contains(value) && *value as f64 != self.now)
    }
}
