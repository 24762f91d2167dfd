//! Sentences about facts, findings and remedies.

use super::value;
use crate::human::{bytes, number, percent, plural, quantity, rate_interval, rate_or_unknown, time_s};
use webdyno_analysis::limits::LimitId;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Ceiling, Diagnosis, NextLimit, Predicted, Remedy, TimeBreakdown};
use webdyno_model::environment::Environment;
use webdyno_model::fact::Fact;
use webdyno_model::run::RunReport;
use webdyno_model::service::SettingValue;

/// A fact's name without underscores and without the unit that its value shows.
pub(crate) fn fact_name(fact: &Fact) -> String {
    const UNITS: [&str; 7] = ["_us", "_ms", "_per_s", "_s", "_bytes", "_count", "_fraction"];
    let name = UNITS.iter().find_map(|unit| fact.name.strip_suffix(unit)).unwrap_or(&fact.name);
    name.replace(['_', '.'], " ")
}

/// A fact's value with its unit.
pub(crate) fn fact_value(fact: &Fact) -> String {
    quantity(fact.value, &fact.unit)
}

/// `apache 2.4.71, prefork, port 80, process 123`.
pub(crate) fn service(service: &webdyno_model::service::ServiceSnapshot) -> String {
    let version = service.version.as_deref().unwrap_or("version unknown");
    let mode = service.mode.as_deref().map(|mode| format!(", {mode}")).unwrap_or_default();
    let process = match service.pid {
        0 => "its process cannot be seen without root".to_owned(),
        pid => format!("process {pid}"),
    };
    format!("{} {version}{mode}, port {}, {process}", service.service, service.port)
}

/// A fact's window.
pub(crate) fn fact_window(fact: &Fact) -> String {
    if fact.from_s == fact.to_s {
        return format!("at {}", time_s(fact.from_s));
    }
    format!("{} to {}", time_s(fact.from_s), time_s(fact.to_s))
}

/// `95% sure; it explains 80% of the lost time`.
pub(crate) fn confidence_text(confidence: f64, explains: Option<f64>) -> String {
    let sure = format!("confidence {}", percent(confidence));
    match explains {
        Some(explained) => format!("{sure}; accounts for {} of the added latency", percent(explained)),
        None => sure,
    }
}

/// `apache MaxRequestWorkers: 150 -> 400, with ServerLimit 400`.
pub(crate) fn remedy(remedy: &Remedy) -> String {
    let to = match (&remedy.from, &remedy.to) {
        (_, Some(to)) => to.to_string(),
        (Some(_), None) => "a value to be chosen".into(),
        // There is no value at all: an index, a wire.
        (None, None) => return format!("{}: manual change", remedy.setting.full_name()),
    };
    let with: Vec<_> =
        remedy.together_with.iter().map(|change| format!("{} {}", change.setting.name, change.to)).collect();
    let with = if with.is_empty() { String::new() } else { format!(", with {}", with.join(", ")) };
    let sizes = size_change(remedy).map_or(String::new(), |sizes| format!(" ({sizes})"));
    format!("{}: {} -> {to}{sizes}{with}", remedy.setting.full_name(), value(remedy.from.as_ref()))
}

/// Bytes of a size in units that are read at a glance: `184 MB -> 220 MB`.
fn size_change(remedy: &Remedy) -> Option<String> {
    const READ_AT_A_GLANCE: f64 = 100_000.0;
    let (target, setting) = (remedy.setting.target.name(), remedy.setting.name.as_str());
    let is_size = (target == "hardware" && setting == "memory")
        || (target == "mariadb" && setting.ends_with("_size") && setting != "thread_cache_size");
    let to = remedy.to.as_ref()?.number().filter(|to| is_size && *to >= READ_AT_A_GLANCE)?;
    let from = remedy.from.as_ref().and_then(SettingValue::number);
    Some(from.map_or_else(|| bytes(to), |from| format!("{} -> {}", bytes(from), bytes(to))))
}

/// How a remedy takes effect, where [`remedy`] does not say it.
pub(crate) fn how(remedy: &Remedy) -> Option<&'static str> {
    (remedy.from.is_some() || remedy.to.is_some()).then(|| apply_class_phrase(remedy.class))
}

/// How a change takes effect, as the end of a sentence.
pub(crate) fn apply_class_phrase(class: ApplyClass) -> &'static str {
    match class {
        ApplyClass::Live => "applied live, no downtime",
        ApplyClass::Reload => "applied by graceful reload, no downtime",
        ApplyClass::Restart => "applied by restart, with downtime",
        ApplyClass::Manual => "manual change",
    }
}

/// What is expected, with its interval.
pub(crate) fn predicted(predicted: &Predicted) -> String {
    format!("about {} req/s (95% interval {})", number(predicted.rate), rate_interval(predicted.ci95))
}

/// A machine in a line; what could not be read is left out.
pub(crate) fn machine(machine: &Environment) -> String {
    let memory = machine.memory_bytes.map(|size| format!("{} of memory", bytes(size as f64)));
    let parts = [
        machine.hostname.clone(),
        machine.cores.map(|cores| plural(u64::from(cores), "core")),
        memory,
        machine.cpu_model.clone(),
        machine.os.clone(),
        machine.kernel.as_ref().map(|kernel| format!("kernel {kernel}")),
    ];
    let known: Vec<_> = parts.into_iter().flatten().collect();
    if known.is_empty() { "machine unknown".into() } else { known.join(", ") }
}

/// The parts of the mean response time with their names, in the order of a request's way.
pub(crate) fn parts(time: &TimeBreakdown) -> [(&'static str, Option<f64>); 7] {
    [
        ("load generator", time.client),
        ("connect", time.connect),
        ("accept queue", time.accept_queue),
        ("worker", time.worker),
        ("backend", time.backend),
        ("network", time.network),
        ("unexplained", time.unexplained),
    ]
}

/// Where a limit binds, with its interval where that is known: `1,900/s (1,800 to 2,000)`.
pub(crate) fn saturation_rate_text(ceiling: &Ceiling) -> String {
    if ceiling.is_remote {
        return "not a concern".into();
    }
    let rate = rate_or_unknown(ceiling.binds_at_rate);
    match ceiling.binds_at_ci95 {
        Some([low, high]) => format!("{rate} ({} to {})", number(low), number(high)),
        None => rate,
    }
}

/// What a limit is called; the id of one that is not known here.
pub(crate) fn limit_title(id: &str) -> String {
    webdyno_analysis::limits::by_id(id).map_or(id, |limit| limit.title).to_owned()
}

/// Limits that drop the first packet of a connection, which its client sends again after 1 s, 3 s, 7 s (RFC 6298).
const DROPS_SYNS: [LimitId; 4] =
    [LimitId::AcceptQueueOverflow, LimitId::SynQueueOverflow, LimitId::ConntrackFull, LimitId::LostSyns];

/// Below this no SYN was sent again.
const RETRANSMIT_US_MIN: u64 = 900_000;

/// What makes the slow ones slow, where that is another limit than the one of the rate: connections that waited for a SYN retransmit.
pub(crate) fn slow_tail(run: &RunReport, diagnosis: &Diagnosis) -> Option<String> {
    let p99 = run.response_time_us.p99.filter(|us| *us >= RETRANSMIT_US_MIN)?;
    let waited = super::connect_peaks(run).into_iter().next()?;
    if DROPS_SYNS.iter().any(|id| diagnosis.bottleneck == *id) {
        return None;
    }
    let cause = diagnosis.findings.iter().find(|finding| DROPS_SYNS.iter().any(|id| finding.id == *id));
    let cause = match cause {
        Some(finding) => {
            let fix = finding.remedies.first().map(|first| format!("; {}", remedy(first)));
            format!("{} ({}){}", limit_title(&finding.id), finding.id, fix.unwrap_or_default())
        }
        None => "see webdyno explain lost-syns".into(),
    };
    Some(format!("p99 {}: {waited}: {cause}", super::time(Some(p99))))
}

/// How sure a finding is.
pub(crate) fn confidence_percent(confidence: f64) -> String {
    percent(confidence)
}

/// What a look without traffic came to.
pub(crate) fn check_headline(check: &Diagnosis) -> String {
    match check.findings.iter().filter(|finding| finding.id != "healthy").count() {
        0 => "Check: no contradictions between settings".into(),
        1 => "Check: 1 setting contradicts others".into(),
        count => format!("Check: {count} settings contradict others, worst first"),
    }
}

/// What would limit after the first limit is gone.
pub(crate) fn next_limit(next: &NextLimit) -> String {
    let at =
        next.rate.map_or_else(|| "an unknown rate".into(), |rate| format!("about {} req/s", number(rate)));
    format!("Next limit: {} ({}), at {at}.", limit_title(&next.id), next.id)
}
