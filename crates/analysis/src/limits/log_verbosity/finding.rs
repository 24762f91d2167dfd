//! When `log-verbosity` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::{processor_time, request_cost};
use crate::settings::effective;
use crate::settings::effective::EffectiveSetting;
use crate::wording::format_bytes;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::processor_time::ProcessorWork;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// What a byte costs in processor time, at least: one core was seen to write 150 MB a second; with rewrite:trace8 it was three
/// times this. Bytes are counted, not lines: of a log that grows this fast only a part is read.
const BYTE_US: f64 = 0.0065;
/// The share of the service's work that must go into it, at least: less is not what limits.
const SHARE_MIN: f64 = 0.12;
/// The same by samples, which count the lines of the access log as well, beside so many bytes per second of this one.
const SAMPLED_SHARE_MIN: f64 = 0.2;
const SAMPLED_BYTES_MIN: f64 = 2e5;
/// A disk this busy is full.
const DISK_BUSY_MIN: f64 = 0.8;
/// Bytes per second that are a burden for a disk.
const DISK_BYTES_MIN: f64 = 1e6;
/// Where less of what is written to the disk is of this log, it works for somebody else.
const DISK_FRACTION_MIN: f64 = 0.1;
/// Levels that tell of what is no error, the less talkative ones left out: `info` has a line for a connection at most.
const TALKATIVE: [&str; 2] = ["debug", "trace"];

/// The processors are full, and what is written could not be seen: with so high a level of tracing it is most likely why.
const CONFIDENCE_SUSPECTED: f64 = 0.4;
const CONFIDENCE_LOUD: f64 = 0.7;
const LOUD_MIN: u8 = 4;

/// Fires when lines that are no errors are what the service works on.
pub fn check(facts: &Facts) -> Option<Finding> {
    let level = level(facts)?;
    let Some(bytes) = facts.value(FactId::error_log_bytes_per_s) else {
        return suspected_finding(facts, &level);
    };
    let work = request_cost::request_cost(facts);
    let by_bytes = work.map(|work| (bytes * BYTE_US / 1e6 / work.cores).min(0.95));
    // Where a line costs more than it does at least, samples tell it.
    let sampled = processor_time::share_of_all(facts, &[ProcessorWork::Logging])
        .filter(|share| work.is_some() && *share >= SAMPLED_SHARE_MIN && bytes >= SAMPLED_BYTES_MIN);
    let by_bytes = by_bytes.filter(|share| *share >= SHARE_MIN);
    let by_work = by_bytes.into_iter().chain(sampled).reduce(f64::max);
    let busy = facts.value(FactId::log_disk_busy_fraction).filter(|busy| *busy >= DISK_BUSY_MIN);
    let written = facts.value(FactId::log_disk_written_bytes_per_s);
    let is_of_log = written.is_none_or(|all| bytes >= DISK_FRACTION_MIN * all);
    let by_disk = busy.filter(|_| bytes >= DISK_BYTES_MIN && is_of_log);
    let share = by_work.or(by_disk)?;
    let burden = match by_work {
        Some(_) => "a large share of its CPU time",
        None => "more than its disk can write",
    };
    Some(Finding {
        id: LimitId::LogVerbosity.into(),
        summary: format!(
            "Apache writes {}/s to its error log, {burden}: LogLevel is `{}`{}.",
            format_bytes(bytes),
            level.value,
            location_text(&level)
        ),
        confidence: work.filter(|_| by_work.is_some()).map_or(0.75, |work| work.scaled_confidence(0.9)),
        explains_fraction: Some(significant(share, 3)),
        facts: facts.cite(&CITED),
        remedies: vec![remedy(&level)],
    })
}

const CITED: [FactId; 9] = fact_ids! {
    error_log_bytes_per_s, service_cpu_cores, service_cores_limit, cores, pressure_group_cpu_some_fraction,
    log_disk_busy_fraction, log_disk_written_bytes_per_s, cpu_per_request_us, rate,
};

/// Where the log cannot be followed: the processors are full, and this may be why.
fn suspected_finding(facts: &Facts, level: &EffectiveSetting) -> Option<Finding> {
    request_cost::request_cost(facts)?;
    Some(Finding {
        id: LimitId::LogVerbosity.into(),
        summary: format!(
            "LogLevel is `{}`{} while the CPU is saturated; the growth of the error log could not be seen.",
            level.value,
            location_text(level)
        ),
        confidence: if is_loud(&level.value) { CONFIDENCE_LOUD } else { CONFIDENCE_SUSPECTED },
        explains_fraction: None,
        facts: facts.cite(&CITED),
        remedies: vec![remedy(level)],
    })
}

/// Whether each request has dozens of lines: of trace4 and more all that is read and sent is told, byte by byte in the end.
fn is_loud(level: &str) -> bool {
    let mut numbers =
        level.split_whitespace().filter_map(|word| word.rsplit_once("trace")?.1.parse::<u8>().ok());
    numbers.any(|number| number >= LOUD_MIN)
}

/// The level in force where requests go, if it is a talkative one.
fn level(facts: &Facts) -> Option<EffectiveSetting> {
    let service = facts.service.as_ref().filter(|_| facts.is_service("apache"))?;
    let target = facts.request_targets.first();
    let of_server = || {
        let value = effective::of_host(service, "LogLevel", target)?;
        Some(EffectiveSetting { value, place: "the server".into(), written_at: None, part: "/".into() })
    };
    effective::value(service, "LogLevel", target).or_else(of_server).filter(|level| {
        level.value.split_whitespace().any(|word| {
            let word = word.rsplit(':').next().unwrap_or(word).to_ascii_lowercase();
            TALKATIVE.iter().any(|level| word.starts_with(level))
        })
    })
}

fn location_text(level: &EffectiveSetting) -> String {
    level.written_at.as_ref().map_or(String::new(), |place| format!(" ({place})"))
}

fn remedy(level: &EffectiveSetting) -> Remedy {
    Remedy {
        setting: SettingId::of_service("apache", "LogLevel"),
        from: Some(SettingValue::Text(level.value.clone())),
        to: Some(SettingValue::Text("warn".into())),
        class: ApplyClass::Reload,
        risk: "lines for debugging are missing".into(),
        why: "warn is Apache's default: problems are still logged, normal requests are not".into(),
        predicted: None,
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, scoped_setting, with_changes};

    const SITE: &[&str] = &["VirtualHost *:80", "DocumentRoot /srv/a/"];

    fn with(changes: &[(FactId, f64)], level: &str) -> Option<Finding> {
        let base = [
            (FactId::error_log_bytes_per_s, 150e6),
            (FactId::service_cpu_cores, 0.98),
            (FactId::service_cores_limit, 1.0),
            (FactId::cores, 2.0),
            (FactId::cpu_per_request_us, 2600.0),
        ];
        let values = with_changes(&base, changes);
        let mut facts = facts(&values, &[]);
        facts.service.as_mut().unwrap().scoped.push(scoped_setting("LogLevel", level, SITE));
        check(&facts)
    }

    #[test]
    fn only_a_talkative_level_that_costs_work_is_named() {
        for (changes, level, fires) in [
            (&[][..], "warn rewrite:trace8", true),
            (&[], "Debug", true),
            (&[], "warn", false),
            (&[], "info ssl:notice", false),
            (&[(FactId::error_log_bytes_per_s, 160e3)], "debug", false),
            // Room on the processors, and on the disk.
            (&[(FactId::service_cpu_cores, 0.3)], "debug", false),
            (&[(FactId::service_cpu_cores, 0.3), (FactId::log_disk_busy_fraction, 0.95)], "debug", true),
            // A database fills it.
            (
                &[
                    (FactId::service_cpu_cores, 0.3),
                    (FactId::log_disk_busy_fraction, 0.95),
                    (FactId::error_log_bytes_per_s, 2e6),
                    (FactId::log_disk_written_bytes_per_s, 200e6),
                ],
                "debug",
                false,
            ),
        ] {
            assert_eq!(with(changes, level).is_some(), fires, "{changes:?} {level}");
        }
        let finding = with(&[], "warn rewrite:trace8").unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.9, Some(0.95)));
        assert_eq!(finding.remedies[0].to, Some(SettingValue::Text("warn".into())));
        let unseen = [(FactId::error_log_bytes_per_s, f64::NAN)];
        for (level, confidence) in [("debug", 0.4), ("warn ssl:trace2", 0.4), ("warn rewrite:trace8", 0.7)] {
            assert_eq!(with(&unseen, level).unwrap().confidence, confidence, "{level}");
        }
    }

    // Half of the time goes into TLS, and a line costs three times of what it does at least.
    #[test]
    fn samples_tell_what_lines_cost_beside_other_work() {
        let with = |bytes: f64, logging: u64| {
            let mut facts = facts(
                &[
                    (FactId::error_log_bytes_per_s, bytes),
                    (FactId::service_cpu_cores, 0.98),
                    (FactId::cores, 1.0),
                    (FactId::cpu_per_request_us, 2600.0),
                ],
                &[],
            );
            facts.service.as_mut().unwrap().scoped.push(scoped_setting(
                "LogLevel",
                "warn rewrite:trace8",
                SITE,
            ));
            let places = [
                ("apache2;libapr-1.so.0;apr_vformatter", logging),
                ("apache2;libcrypto.so.3;BN_mod", 1000 - logging),
            ];
            crate::facts::testing::add_samples(&mut facts, &places);
            check(&facts).map(|finding| (finding.confidence, finding.explains_fraction))
        };
        assert_eq!(with(12e6, 300), Some((0.9, Some(0.3))));
        assert_eq!([with(12e6, 100), with(160e3, 300)], [None, None]);
    }
}
