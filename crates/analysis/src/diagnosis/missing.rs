//! Signals that were not there: what services and collectors could not give, and collectors that never spoke or fell
//! silent.

use crate::measurement::Measurement;
use crate::measurement::silent_collectors::{CADENCE_S_MAX, cadence_s, is_late, times};
use crate::wording::format_number;
use webdyno_model::sample::{MissingSignal, Sample};

/// All signals that were missing, each once: what is known of the service comes first.
pub fn missing(measurement: &Measurement) -> Vec<MissingSignal> {
    let mut all = measurement.service.as_ref().map_or_else(Vec::new, |service| service.missing.clone());
    all.extend(measurement.unwatched.iter().cloned());
    let observed = measurement.topology.iter();
    let beside = observed.flat_map(|observed| {
        observed.missing.iter().chain(observed.backends.iter().flat_map(|service| &service.missing))
    });
    for lack in beside.chain(&measurement.lacking) {
        if !all.iter().any(|known| known.signal == lack.signal) {
            all.push(lack.clone());
        }
    }
    for collector in &measurement.collectors {
        let named = all.iter().any(|missing| is_of(&missing.signal, &collector.name));
        if let Some((why, how)) = silence_reason(measurement, &collector.name).filter(|_| !named) {
            all.push(MissingSignal { signal: collector.name.clone(), why, how_to_enable: how.into() });
        }
    }
    all
}

/// Whether a signal that is lacking is all that a collector reads. The status page goes by the name of the module that
/// makes it.
fn is_of(signal: &str, collector: &str) -> bool {
    signal == collector || (collector == "apache_status" && signal == "mod_status")
}

/// Why a metric of a collector has no value, as the most telling of these signals says; `None` when none is about it.
pub fn missing_reason<'a>(
    missing: &'a [MissingSignal],
    collector: &str,
    metric: &str,
) -> Option<&'a MissingSignal> {
    let is_about = |signal: &str| {
        is_of(signal, collector)
            || metric == signal
            || metric.strip_prefix(signal).is_some_and(|rest| rest.starts_with(['.', '_']))
            || matches_template(metric, signal)
    };
    // The whole name says more than its beginning.
    missing.iter().filter(|missing| is_about(&missing.signal)).max_by_key(|missing| missing.signal.len())
}

/// Whether a signal names one of several: `php_fpm.www.status` of `php_fpm.*.active_count`.
fn matches_template(metric: &str, signal: &str) -> bool {
    metric
        .split_once('*')
        .is_some_and(|(before, _)| signal.strip_prefix(before).is_some_and(|rest| !rest.is_empty()))
}

/// Why a collector's signals are missing, and what helps; `None` when it spoke to the end.
fn silence_reason(measurement: &Measurement, name: &str) -> Option<(String, &'static str)> {
    const MESSAGE: &str = "see the message; some signals need root";
    const AGAIN: &str =
        "measure again; if it persists, check whether the agent on the server runs to the end";
    let times = times(measurement, name);
    let Some(last) = times.last() else {
        let why = "no sample received".to_owned();
        return (measurement.measured_to_s >= CADENCE_S_MAX).then_some((why, AGAIN));
    };
    let empty = readings(measurement, name).all(|sample| sample.values.is_empty());
    let error = readings(measurement, name).find_map(|sample| sample.error.clone()).filter(|_| empty);
    let stopped = is_late(measurement, cadence_s(&times), *last).then(|| {
        let (last, end) = (format_number(*last), format_number(measurement.measured_to_s));
        format!("its last sample ended at second {last}, the measured part at second {end}")
    });
    error.map(|error| (error, MESSAGE)).or(stopped.map(|why| (why, AGAIN)))
}

fn readings<'a>(measurement: &'a Measurement, name: &'a str) -> impl Iterator<Item = &'a Sample> {
    measurement.samples.iter().map(|timed| &timed.sample).filter(move |sample| sample.source == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{sample, with_harm_guard_trip};
    use crate::measurement::silent_collectors::all_stopped;
    use webdyno_model::interval::{EndReason, LoadEnd};
    use webdyno_model::sample::CollectorInfo;

    /// A measurement of this length, with the readings of collectors at these times; `lost` never spoke.
    fn measurement(to_s: f64, times: &[(&str, &[f64])]) -> Measurement {
        let samples =
            times.iter().flat_map(|(name, times)| times.iter().map(|t_s| sample(*t_s, name, &[("x", 1.0)])));
        let collector = |name: &str| CollectorInfo { name: name.into(), metrics: vec![] };
        Measurement {
            samples: samples.collect(),
            collectors: times.iter().map(|(name, _)| collector(name)).collect(),
            measured_to_s: to_s,
            ..Measurement::default()
        }
    }

    const EVERY_SECOND: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];

    #[test]
    fn silent_and_stopped_collectors_are_missing() {
        for (to_s, times, word) in [
            (10.0, EVERY_SECOND, None),
            (10.0, &[], Some("no sample")),
            (2.0, &[], None),
            (10.0, &EVERY_SECOND[..4], Some("second 3")),
            (10.0, &EVERY_SECOND[..8], Some("second 7")),
            (10.0, &EVERY_SECOND[..9], None),
            // Read every five seconds: the next reading is not due for long.
            (12.0, &[0.0, 5.0], None),
            (25.0, &[0.0, 5.0], Some("second 5")),
            // Slowed down by the load.
            (10.0, &[0.0, 1.0, 2.0, 5.0], None),
        ] {
            let all = missing(&measurement(to_s, &[("cpu", times)]));
            assert_eq!(all.len(), usize::from(word.is_some()), "{to_s} {times:?}: {all:?}");
            assert!(word.is_none_or(|word| all[0].why.contains(word)), "{all:?}");
        }
    }

    fn lack(signal: &str) -> MissingSignal {
        MissingSignal { signal: signal.into(), why: format!("why {signal}"), how_to_enable: "how".into() }
    }

    #[test]
    fn what_collectors_lack_is_told_once() {
        let mut measurement = measurement(10.0, &[("apache_status", &[]), ("php_fpm", &[])]);
        measurement.service = Some(crate::facts::testing::apache(&[]));
        measurement.service.as_mut().unwrap().missing = vec![lack("mod_status")];
        measurement.lacking = vec![lack("mod_status"), lack("php_fpm"), lack("php_fpm.www")];
        let signals: Vec<_> = missing(&measurement).into_iter().map(|missing| missing.signal).collect();
        assert_eq!(signals, ["mod_status", "php_fpm", "php_fpm.www"]);
    }

    #[test]
    fn a_metric_without_a_value_has_the_reason_that_says_most() {
        let all = ["mod_status", "php_fpm", "php_fpm.www", "pressure.group", "nic.eth0.speed"].map(lack);
        for (collector, metric, signal) in [
            ("apache_status", "apache.workers_busy_count", Some("mod_status")),
            ("php_fpm", "php_fpm.www.active_count", Some("php_fpm.www")),
            ("php_fpm", "php_fpm.api.active_count", Some("php_fpm")),
            ("php_fpm", "php_fpm.*.active_count", Some("php_fpm.www")),
            ("pressure", "pressure.group_memory_full_us", Some("pressure.group")),
            ("pressure", "pressure.grouped_count", None),
            ("nic", "nic.*.speed_bits_per_s", Some("nic.eth0.speed")),
            ("cpu", "cpu.idle_s", None),
        ] {
            let found = missing_reason(&all, collector, metric).map(|missing| missing.signal.as_str());
            assert_eq!(found, signal, "{metric}");
        }
    }

    #[test]
    fn only_all_of_them_say_that_the_agent_died() {
        let early = &EVERY_SECOND[..4];
        assert!(all_stopped(&measurement(10.0, &[("cpu", early), ("sockets", early), ("lost", &[])])));
        assert!(all_stopped(&measurement(10.0, &[("cpu", early), ("worker_memory", &[-2.0, 3.0])])));
        assert!(!all_stopped(&measurement(10.0, &[("cpu", early), ("sockets", EVERY_SECOND)])));
        assert!(!all_stopped(&measurement(10.0, &[])));
    }

    #[test]
    fn a_load_that_nothing_but_the_loss_of_the_agent_stopped_was_not_observed_to_its_end() {
        let ended = |reason, harm_guard_trip| Measurement {
            end: Some(LoadEnd { reason, ..LoadEnd::default() }),
            harm_guard_trip,
            ..Measurement::default()
        };
        assert!(all_stopped(&ended(EndReason::Braked, None)));
        assert!(!all_stopped(&ended(
            EndReason::Braked,
            Some(with_harm_guard_trip("process.oom_kills_count"))
        )));
        assert!(!all_stopped(&ended(EndReason::Duration, None)));
    }
}
