//! Facts by hand, for the tests of rules.

use super::{FactId, Facts, facts as facts_of};
use crate::measurement::{Measurement, TimedSample};
use webdyno_model::fact::Fact;
use webdyno_model::harm_guard::{HarmCause, HarmGuardTrip};
use webdyno_model::number::Number;
use webdyno_model::sample::Sample;
use webdyno_model::service::{ScopedSetting, ServiceSnapshot, SettingInForce, SettingValue};

/// One fact.
fn fact(name: FactId, value: f64) -> Fact {
    Fact {
        name: name.as_str().into(),
        value,
        unit: "x".into(),
        from_s: 0.0,
        to_s: 10.0,
        source: "test".into(),
        reproduce: "true".into(),
    }
}

/// Facts with these values; the service is Apache prefork with these settings.
pub fn facts(values: &[(FactId, f64)], settings: &[(&str, i64)]) -> Facts {
    let mut facts = Facts { loaded: true, service: Some(apache(settings)), ..Facts::default() };
    for (name, value) in values {
        facts.insert(*name, fact(*name, *value));
    }
    facts
}

/// A fact of so many seconds.
pub fn over(facts: &mut Facts, name: FactId, value: f64, seconds: f64) {
    facts.insert(name, Fact { to_s: seconds, ..fact(name, value) });
}

/// Facts, and some that there are several of: `(name, what it is of, value)`.
pub fn facts_of_several(values: &[(FactId, f64)], several: &[(FactId, &str, f64)]) -> Facts {
    let mut all = facts(values, &[]);
    for (name, instance, value) in several {
        all.insert_of(instance, *name, fact(*name, *value));
    }
    all
}

/// These values with some changed or added; one that is not finite is unknown.
pub fn with_changes<N: Copy + PartialEq>(base: &[(N, f64)], changes: &[(N, f64)]) -> Vec<(N, f64)> {
    let kept = base.iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    kept.chain(changes).filter(|(_, value)| value.is_finite()).copied().collect()
}

/// Apache prefork with these settings.
pub fn apache(settings: &[(&str, i64)]) -> ServiceSnapshot {
    let setting = |(name, value): &(&str, i64)| {
        let configured = Some(SettingValue::Integer(*value));
        ((*name).to_owned(), SettingInForce { configured, ..SettingInForce::default() })
    };
    ServiceSnapshot {
        service: "apache".into(),
        pid: 1,
        port: 80,
        mode: Some("prefork".into()),
        settings: settings.iter().map(setting).collect(),
        ..ServiceSnapshot::default()
    }
}

/// A setting as a file has it, in these parts of the site, from the outside.
pub fn scoped_setting(setting: &str, value: &str, parts: &[&str]) -> ScopedSetting {
    let scope = parts.iter().map(|part| (*part).into()).collect();
    ScopedSetting { setting: setting.into(), value: value.into(), scope, ..ScopedSetting::default() }
}

/// A brake that was pulled because two processes were killed.
pub fn with_harm_guard_trip(metric: &str) -> HarmGuardTrip {
    HarmGuardTrip {
        cause: HarmCause::OutOfMemory,
        metric: metric.into(),
        value: Number(2.0),
        limit: Number(1.0),
        text: "the kernel killed 2 processes for want of memory".into(),
    }
}

/// A reading of one collector.
pub fn sample(t_s: f64, source: &str, values: &[(&str, f64)]) -> TimedSample {
    let values = values.iter().map(|(name, value)| ((*name).to_owned(), Number(*value))).collect();
    TimedSample { t_s, sample: Sample { source: source.into(), duration_us: 1, values, ..Sample::default() } }
}

/// The facts of these readings, in a window of ten seconds.
pub fn of(samples: Vec<TimedSample>, service: Option<ServiceSnapshot>) -> Facts {
    let measurement = Measurement { samples, service, measured_to_s: 10.0, ..Measurement::default() };
    facts_of(&measurement, None).unwrap()
}

/// Adds or replaces a fact.
pub fn set(facts: &mut Facts, name: FactId, value: f64) {
    facts.insert(name, fact(name, value));
}

/// Adds facts of one of several things, such as a pool.
pub fn of_pool(facts: &mut Facts, pool: &str, values: &[(FactId, f64)]) {
    for (name, value) in values {
        facts.insert_of(pool, *name, fact(*name, *value));
    }
}

/// What samples of the processors met: places with their counts.
pub(crate) fn add_samples(facts: &mut Facts, places: &[(&str, u64)]) {
    let places = places.iter().map(|(place, count)| ((*place).to_owned(), *count)).collect();
    facts.processor_time = super::processor_time::processor_time(places)
        .map(|time| webdyno_model::processor_time::ProcessorTime { with_kernel: true, ..time });
}
