//! The metrics that are exported while a session goes on: one table, from which both the text for Prometheus and the
//! instruments of OpenTelemetry are made.
//!
//! Names and units follow <https://prometheus.io/docs/practices/naming/>: base units, the unit last, `_total` for counters.
//! OpenTelemetry has the same name behind `webdyno.`, without unit and `_total`, which its collector adds for Prometheus.

use super::state::{State, Times};
use std::sync::LazyLock;
use webdyno_analysis::run_report::host_levels::{HostLevel, MAIN};

/// A value with its labels.
#[derive(Debug, PartialEq)]
pub struct Point {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// In base units.
    pub value: f64,
}

type Points = Box<dyn Fn(&State) -> Vec<Point> + Send + Sync>;

/// How the values of an instrument combine over time, and where they come from.
pub enum Values {
    /// Totals that only rise.
    Counter(Points),
    /// Levels; none where it is not known.
    Gauge(Points),
    /// Times by bucket, in seconds; `None` where there are none of this kind.
    Histogram(fn(&State) -> Option<&Times>),
}

/// One metric.
pub struct Instrument {
    /// Without `webdyno_`, the unit and `_total`.
    pub name: String,
    /// `seconds`, `bytes`, `ratio`; empty for what is counted.
    pub unit: &'static str,
    /// One sentence.
    pub help: String,
    /// Its values.
    pub values: Values,
}

/// All of them.
pub static ALL: LazyLock<Vec<Instrument>> = LazyLock::new(|| {
    let mut all = requests();
    all.extend(generator());
    all.extend(pages());
    all.extend(session());
    all.extend(MAIN.iter().map(host_level));
    all
});

fn requests() -> Vec<Instrument> {
    vec![
        counter(
            "requests_started",
            "",
            "Requests whose intended start has come.",
            |state| one(state.started),
        ),
        counter("requests_completed", "", "Requests that succeeded.", |state| one(state.completed)),
        counter("requests_failed", "", "Requests that failed, by class.", |state| {
            let classes = state.errors.named().into_iter();
            classes.map(|(class, count)| point([("class", class)], count as f64)).collect()
        }),
        histogram(
            "response_time",
            "From the intended start to the last byte: requests that succeeded, and timeouts at their bound.",
            |state| Some(&state.response_time),
        ),
        counter("responses", "", "Responses by status code, successful or not.", |state| {
            state.responses.iter().map(|(code, count)| point([("code", code)], *count as f64)).collect()
        }),
        counter("named_requests", "", "Ended requests by name, when the workload has several.", |state| {
            let named = state.named.iter();
            let outcomes = named.flat_map(|(name, (completed, failed))| {
                [("completed", completed), ("failed", failed)].map(|(outcome, count)| {
                    point([("request", name.as_str()), ("outcome", outcome)], *count as f64)
                })
            });
            outcomes.collect()
        }),
        gauge("requests_in_flight", "", "Requests started and not ended.", |state| level(state.in_flight)),
        counter("received", "bytes", "Responses, headers included.", |state| one(state.bytes_received)),
        counter("sent", "bytes", "Requests, headers included.", |state| one(state.bytes_sent)),
        counter("connections_opened", "", "Connections established.", |state| one(state.connections_opened)),
        gauge("connections_peak", "", "Most connections open at once in the last second.", |state| {
            level(state.connections_peak)
        }),
    ]
}

fn generator() -> Vec<Instrument> {
    vec![
        counter("generator_cpu", "seconds", "CPU time of the load generator's threads.", |state| {
            vec![point([], state.cpu_us as f64 / 1e6)]
        }),
        gauge(
            "generator_busiest_thread",
            "ratio",
            "CPU use of its busiest thread in the last second.",
            |state| state.busiest_thread.map(|share| point([], share)).into_iter().collect(),
        ),
    ]
}

fn pages() -> Vec<Instrument> {
    let count = |name: &str, help: &str, of: fn(&super::state::PageTotals) -> u64| {
        counter(name, "", help, move |state| state.pages.as_ref().map_or(vec![], |pages| one(of(pages))))
    };
    vec![
        count("pages_started", "Page loads begun.", |pages| pages.started),
        count("pages_completed", "Page loads that were whole.", |pages| pages.completed),
        count("pages_failed", "Page loads without a part.", |pages| pages.failed),
        histogram("page_time", "From the intended start to the last resource of a page.", |state| {
            state.pages.as_ref().map(|pages| &pages.time)
        }),
        gauge("visitors", "", "Virtual users.", |state| level(state.visitors)),
    ]
}

fn session() -> Vec<Instrument> {
    vec![
        gauge("session_info", "", "What runs; always 1.", |state| {
            let labels = state.session.iter();
            let version = env!("CARGO_PKG_VERSION");
            labels
                .map(|it| {
                    point([("command", &*it.command), ("target", &it.target), ("version", version)], 1.0)
                })
                .collect()
        }),
        gauge("load_number", "", "The load that goes on, or was made last, from 1.", |state| {
            state.load.map(|(load, purpose)| point([("purpose", purpose)], load.into())).into_iter().collect()
        }),
        gauge("tune_round", "", "The round of tuning that goes on, from 1.", |state| {
            level(state.round.map(u64::from))
        }),
        counter("tune_rounds", "", "Rounds of tuning that ended, by verdict.", |state| {
            let rounds = state.rounds.iter().map(|((verdict, kept), count)| {
                let kept = if *kept { "true" } else { "false" };
                point([("verdict", *verdict), ("kept", kept)], *count as f64)
            });
            rounds.collect()
        }),
        counter("incidents", "", "Incidents seen while observing, by host.", |state| {
            state.incidents.iter().map(|(host, count)| point([("host", host)], *count as f64)).collect()
        }),
    ]
}

/// A level of the observed hosts: `host_cpu_busy_ratio`. The host under load has no role.
fn host_level(level: &'static HostLevel) -> Instrument {
    let (suffix, unit) = match level.unit {
        "fraction" => ("", "ratio"),
        "bytes" => ("", "bytes"),
        "bytes/s" => ("_bytes_per_second", ""),
        "cores" => ("_cores", ""),
        other if other.ends_with("/s") => ("_per_second", ""),
        _ => ("", ""),
    };
    let words = format!("host {} {}", level.group, level.name).to_lowercase().replace('\'', "");
    let words = words.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("_") + suffix;
    let help = format!("{}: {}, {}, of an observed host.", level.group, level.name, level.unit);
    gauge(&name, unit, &help, move |state| {
        let hosts = state.levels.iter().flat_map(|(host, levels)| {
            let is_same = |other: &HostLevel| (other.group, other.name) == (level.group, level.name);
            let own = levels.iter().filter(move |(other, _)| is_same(other));
            own.map(|(_, value)| point([("host", host.as_deref().unwrap_or_default())], *value))
        });
        hosts.collect()
    })
}

fn counter(
    name: &str,
    unit: &'static str,
    help: &str,
    points: impl Fn(&State) -> Vec<Point> + Send + Sync + 'static,
) -> Instrument {
    Instrument { name: name.into(), unit, help: help.into(), values: Values::Counter(Box::new(points)) }
}

fn gauge(
    name: &str,
    unit: &'static str,
    help: &str,
    points: impl Fn(&State) -> Vec<Point> + Send + Sync + 'static,
) -> Instrument {
    Instrument { name: name.into(), unit, help: help.into(), values: Values::Gauge(Box::new(points)) }
}

fn histogram(name: &str, help: &str, times: fn(&State) -> Option<&Times>) -> Instrument {
    Instrument { name: name.into(), unit: "seconds", help: help.into(), values: Values::Histogram(times) }
}

fn point<const N: usize>(labels: [(&'static str, &str); N], value: f64) -> Point {
    Point { labels: labels.map(|(name, value)| (name, value.to_owned())).into(), value }
}

fn one(count: u64) -> Vec<Point> {
    vec![point([], count as f64)]
}

fn level(value: Option<u64>) -> Vec<Point> {
    value.map_or(vec![], one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_valid_and_differ() {
        let names: BTreeSet<&str> = ALL.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names.len(), ALL.len(), "two metrics of one name");
        for name in &names {
            let is_valid =
                |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
            assert!(name.chars().all(is_valid) && !name.contains("__"), "{name}");
        }
        for expected in
            ["host_cpu_busy", "host_memory_used_in_the_groups_limit", "host_requests_errors_5xx_per_second"]
        {
            assert!(names.contains(expected), "{expected} is none of {names:?}");
        }
        assert!(ALL.iter().all(|one| one.help.ends_with('.')));
    }
}
