//! Sentences about an observation: what was watched, how each level went, how the readings went.

use super::{service, value};
use crate::human::{UNKNOWN, number, plural, quantity, rate, time_s, time_us};
use webdyno_model::observation::{CollectorState, Observation, ObservedFact, ObservedHost, ObservedIncident};
use webdyno_model::sample::MetricKind;
use webdyno_model::service::{ServiceSnapshot, SettingInForce};
use webdyno_session::view::Series;

/// A reading later than this is told: the others are what threads take to wake up on a busy machine.
const LATE_US: u64 = 100_000;
/// An observation that is shorter is one look: it has values and no course.
pub(crate) const SNAPSHOT_S_MAX: f64 = 5.0;
/// The layers of a host in the order in which they are shown, each with its collectors; what is not named here comes last.
const LAYERS: &[(&str, &[&str])] = &[
    ("Host", &["cpu", "memory", "pressure", "cgroup", "disk", "files", "process", "kernel_log", "foreign"]),
    ("Network", &["sockets", "nic", "qdisc", "softnet", "tcp", "conntrack", "ports", "syns", "clients"]),
    ("Web server", &["apache", "nginx", "lighttpd", "access_log", "workers", "worker_memory"]),
    ("PHP", &["php", "opcache"]),
    ("Database", &["mariadb", "mysql"]),
];

/// `observed for 60 s: apache on port 80, php_fpm, mariadb`.
pub(crate) fn observation_headline(seen: &Observation) -> String {
    let services = seen.observed.services.services().map(|service| match service.port {
        0 => service.service.clone(),
        port => format!("{} on port {port}", service.service),
    });
    let services: Vec<String> = services.collect();
    let what = if services.is_empty() { "no known service".into() } else { services.join(", ") };
    let others = match seen.others.len() {
        0 => String::new(),
        count => format!(", and {}", plural(count as u64, "other host")),
    };
    match seen.window_s {
        length_s if length_s < SNAPSHOT_S_MAX => format!("snapshot: {what}{others}"),
        length_s => format!("observed for {}: {what}{others}", time_s(length_s)),
    }
}

/// With a capital letter, as a title begins.
pub(crate) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// `title`, and of another host its role.
pub(crate) fn title_with_role(title: &str, host: &ObservedHost) -> String {
    host.role.as_ref().map_or_else(|| title.to_owned(), |role| format!("{title} ({role})"))
}

/// `02:12:04 UTC: connections turned away..`.
pub(crate) fn incident(incident: &ObservedIncident) -> String {
    let time = incident.at.split('T').nth(1).and_then(|time| time.get(..8)).unwrap_or(UNKNOWN);
    let role = incident.role.as_ref().map_or(String::new(), |role| format!("{role}: "));
    format!("{time} UTC: {role}{}", incident.what)
}

/// A service in a line, with its role and where it listens.
pub(crate) fn observed_service(seen: &ServiceSnapshot) -> String {
    let listens = match (seen.port, seen.listens.is_empty()) {
        (0, false) => format!(", listens on {}", seen.listens.join(", ")),
        _ => String::new(),
    };
    let role = seen.role.as_ref().map_or(String::new(), |role| format!(" ({role})"));
    match seen.port {
        0 => format!("{}{listens}{role}", service(seen).replace(", port 0", "")),
        _ => format!("{}{role}", service(seen)),
    }
}

/// Who talks to whom, a line each.
pub(crate) fn links(host: &ObservedHost) -> Vec<String> {
    let name = |pid: u32| {
        let known = host.services.services().find(|service| service.pid == pid);
        known.map_or_else(|| format!("process {pid}"), |service| service.service.clone())
    };
    let line = |link: &webdyno_model::topology::Link| {
        let to = link.to.clone().or(link.to_pid.map(name)).unwrap_or_else(|| UNKNOWN.into());
        let connections = match link.connections_count {
            Some(count) => plural(count, "connection"),
            None => "as its configuration says".into(),
        };
        format!("{} -> {to} by {} ({connections})", name(link.from_pid), link.by)
    };
    host.services.links.iter().map(line).collect()
}

/// Name, mean, least, most and last of a level.
pub(crate) fn level_row(series: &Series) -> Vec<String> {
    let values = || series.points.iter().map(|(_, value)| *value).filter(|value| value.is_finite());
    let displayed =
        |value: Option<f64>| value.map_or_else(|| UNKNOWN.into(), |value| level(value, &series.unit));
    let count = values().count().max(1) as f64;
    let mean = Some(values().sum::<f64>() / count).filter(|_| values().next().is_some());
    let extremes = [mean, values().reduce(f64::min), values().reduce(f64::max), values().next_back()];
    std::iter::once(series.name.clone()).chain(extremes.map(displayed)).collect()
}

/// Name and last value of a level.
pub(crate) fn current_level(series: &Series) -> Vec<String> {
    let last = series.points.iter().map(|(_, value)| *value).rfind(|value| value.is_finite());
    vec![series.name.clone(), last.map_or_else(|| UNKNOWN.into(), |value| level(value, &series.unit))]
}

/// A level as a table has it, whose first column says what is counted: `12%`, `1.5 MB/s`, `37/s`, `4`.
pub fn level(value: f64, unit: &str) -> String {
    match unit {
        "fraction" | "bytes" | "bytes/s" | "us" | "s" => quantity(value, unit),
        _ if unit.ends_with("/s") => rate(value),
        _ => number(value),
    }
}

/// The titles of [`level_row`].
pub(crate) const LEVEL_TITLES: [&str; 5] = ["", "mean", "least", "most", "last"];

/// Whether a fact says that nothing of the kind ever happened: a total that stands at zero.
fn is_zero_total(fact: &ObservedFact) -> bool {
    fact.kind == MetricKind::Counter && fact.value.is_some_and(|value| value.0 == 0.0)
}

/// How many totals stand at zero.
pub(crate) fn zero_total_count(host: &ObservedHost) -> usize {
    host.facts.iter().filter(|fact| is_zero_total(fact)).count()
}

/// The facts that have a value by layer, in the order of the catalogue, without totals that stand at zero.
pub(crate) fn layers(host: &ObservedHost) -> Vec<(&'static str, Vec<&ObservedFact>)> {
    let known = || host.facts.iter().filter(|fact| fact.value.is_some() && !is_zero_total(fact));
    let of = |names: &[&str]| known().filter(|fact| has_name_prefix(fact, names)).collect::<Vec<_>>();
    let rest = known().filter(|fact| !LAYERS.iter().any(|(_, names)| has_name_prefix(fact, names))).collect();
    let named = LAYERS.iter().map(|(layer, names)| (*layer, of(names)));
    named.chain([("Other", rest)]).filter(|(_, facts)| !facts.is_empty()).collect()
}

/// Whether a fact's first word is one of these, or begins with one and an underscore.
fn has_name_prefix(fact: &ObservedFact, names: &[&str]) -> bool {
    let first = fact.name.split('.').next().unwrap_or_default();
    names
        .iter()
        .any(|name| first.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')))
}

/// Name, value and rate of a fact.
pub(crate) fn fact_row(fact: &ObservedFact) -> Vec<String> {
    let value = fact.value.map_or_else(|| UNKNOWN.into(), |value| quantity_text(value.0, &fact.unit));
    let rate = match (fact.kind, fact.rate_per_s) {
        (MetricKind::Counter, Some(rate)) => match fact.unit.as_str() {
            // Seconds in a second are a share of time.
            "s" => format!("{} of a core", quantity(rate.0, "fraction")),
            "us" => format!("{} of the time", quantity(rate.0 / 1e6, "fraction")),
            unit => format!("{}/s", quantity_text(rate.0, unit)),
        },
        _ => String::new(),
    };
    vec![fact.name.clone(), value, rate]
}

fn quantity_text(value: f64, unit: &str) -> String {
    // Units of metrics; milliseconds are told as they are counted.
    match unit {
        "ms" => time_us(value * 1e3),
        "bits_per_s" => quantity(value, "bit/s"),
        "pages" => number(value),
        unit => quantity(value, unit),
    }
}

/// Collectors whose readings failed or came late, a line each.
pub(crate) fn collector_problems(host: &ObservedHost) -> Vec<String> {
    let line = |state: &CollectorState| {
        let late = state.late_us_max.filter(|late_us| *late_us > LATE_US);
        let late = late.map(|late_us| format!("a reading was {} late", time_us(late_us as f64)));
        let failed = match (state.readings, state.failed, &state.error) {
            // That nothing at all could be read stands with what is missing.
            _ if host.missing.iter().any(|missing| missing.signal == state.name) => None,
            (0, _, Some(error)) => Some(error.clone()),
            (_, 0, _) => None,
            (readings, failed, Some(error)) => Some(format!("{failed} of {readings} readings: {error}")),
            (_, _, None) => None,
        };
        let reported: Vec<String> = failed.into_iter().chain(late).collect();
        (!reported.is_empty()).then(|| format!("{}: {}", state.name, reported.join("; ")))
    };
    host.collectors.iter().filter_map(line).collect()
}

/// Name, readings, failures, last and longest duration, worst delay of a collector.
pub(crate) fn collector_row(state: &CollectorState) -> Vec<String> {
    let time = |us: Option<u64>| us.map_or_else(|| UNKNOWN.into(), |us| time_us(us as f64));
    vec![
        state.name.clone(),
        state.readings.to_string(),
        state.failed.to_string(),
        time(state.duration_us),
        time(state.duration_us_max),
        time(state.late_us_max),
    ]
}

/// The titles of [`collector_row`].
pub(crate) const COLLECTOR_TITLES: [&str; 6] =
    ["collector", "readings", "failed", "took", "at most", "late at most"];

/// A file as seen from the folder of the main configuration: paths from the root would fill the page.
fn below<'a>(service: &ServiceSnapshot, file: &'a str) -> &'a str {
    let folder =
        service.config_file.as_deref().and_then(|main| main.rsplit_once('/')).map(|(folder, _)| folder);
    let rest = folder.filter(|folder| !folder.is_empty()).and_then(|folder| file.strip_prefix(folder));
    rest.and_then(|rest| rest.strip_prefix('/')).unwrap_or(file)
}

/// Name, value and place of each setting of a service.
pub(crate) fn setting_rows(service: &ServiceSnapshot) -> Vec<Vec<String>> {
    let place = |file: &Option<String>, line: Option<u32>, otherwise: &str| match (file, line) {
        (Some(file), Some(line)) => format!("{}:{line}", below(service, file)),
        (Some(file), None) => below(service, file).to_owned(),
        (None, _) => otherwise.to_owned(),
    };
    let whole = service.settings.iter().map(|(name, setting): (&String, &SettingInForce)| {
        let in_force = setting.running.as_ref().or(setting.configured.as_ref()).or(setting.default.as_ref());
        let otherwise = if setting.default.is_some() { "default of the program" } else { UNKNOWN };
        vec![name.clone(), value(in_force), place(&setting.file, setting.line, otherwise)]
    });
    whole.collect()
}

/// The settings that were written for a part of the site, a sentence each.
pub(crate) fn scoped_settings(service: &ServiceSnapshot) -> Vec<String> {
    let written = service.scoped.iter().filter_map(|scoped| Some((scoped, scoped.file.as_ref()?)));
    let reported = written.map(|(scoped, file)| {
        let line = scoped.line.map_or(String::new(), |line| format!(":{line}"));
        let scope = match scoped.parts().join(", ") {
            scope if scope.is_empty() => "the whole server".into(),
            scope => scope,
        };
        let file = below(service, file);
        format!("{} {} in {scope} ({file}{line})", scoped.setting, scoped.value)
    });
    reported.collect()
}
