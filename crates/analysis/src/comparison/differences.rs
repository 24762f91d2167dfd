//! What two loads differ in besides the server: then a figure that differs says little of it.

use super::Side;
use std::collections::BTreeSet;
use webdyno_model::compare::Difference;
use webdyno_model::environment::Environment;
use webdyno_model::interval::EndReason;
use webdyno_model::number::human::{UNKNOWN, bytes, number, plural};
use webdyno_model::workload::visit::Visits;
use webdyno_model::workload::{Arrival, RequestSpec, Workload};

/// More URLs than this are summed up.
const URLS_MAX: usize = 2;
/// What a load without a fault is.
const VALID: &str = "valid";

/// All of them. What is not known of one of the two is no difference.
pub(super) fn differences(a: &Side, b: &Side) -> Vec<Difference> {
    let loads = (a.measurement.workload.as_ref(), b.measurement.workload.as_ref());
    let mut found: Vec<Difference> = loads.0.zip(loads.1).and_then(|(a, b)| url(a, b)).into_iter().collect();
    let mut add = |what: &str, of: (Option<String>, Option<String>)| {
        if let (Some(a), Some(b)) = &of
            && a != b
        {
            found.push(Difference { what: what.into(), a: of.0, b: of.1 });
        }
    };
    if let (Some(a), Some(b)) = loads {
        add("concurrency", (Some(arrival(a)), Some(arrival(b))));
        add("keepalive", (Some(keepalive(a)), Some(keepalive(b))));
    }
    let (client_a, client_b) = (&a.measurement.client, &b.measurement.client);
    let generators = (Some(machine(client_a)), Some(machine(client_b)));
    let servers = (a.measurement.server.as_ref().map(machine), b.measurement.server.as_ref().map(machine));
    if generators != servers {
        add("generator", generators);
    }
    add("server", servers);
    // Also where both have the same fault.
    let (fault_a, fault_b) = (validity(a), validity(b));
    if fault_a != VALID || fault_b != VALID {
        found.push(Difference { what: "validity".into(), a: Some(fault_a), b: Some(fault_b) });
    }
    found.extend(loads.0.zip(loads.1).into_iter().flat_map(|(a, b)| without_values(a, b)));
    found
}

/// What cannot be told in a line.
fn without_values(a: &Workload, b: &Workload) -> Vec<Difference> {
    let conditions =
        |of: &Workload| (of.timeout_us, of.ok_status.clone(), of.expect.clone(), of.redirects_max, of.clock);
    let differs = [
        ("requests", requests(a) != requests(b) || a.list != b.list),
        ("sessions", sessions(a) != sessions(b)),
        ("stages", a.stages != b.stages),
        ("conditions", conditions(a) != conditions(b)),
        ("transport", a.transport != b.transport),
    ];
    let named = differs.into_iter().filter(|(_, differs)| *differs);
    named.map(|(what, _)| Difference { what: what.into(), a: None, b: None }).collect()
}

/// Without their URLs, and names, which follow from them.
fn requests(workload: &Workload) -> Vec<RequestSpec> {
    let bare =
        |request: &RequestSpec| RequestSpec { url: String::new(), name: String::new(), ..request.clone() };
    workload.requests.iter().map(bare).collect()
}

/// What visitors do, however many there are.
fn sessions(workload: &Workload) -> Option<Visits> {
    let alone = |visits: &Visits| Visits { users: 1, connections_per_server: None, ..visits.clone() };
    workload.visits.as_deref().map(alone)
}

fn url(a: &Workload, b: &Workload) -> Option<Difference> {
    let all = |of: &Workload| of.requests.iter().map(|request| request.url.clone()).collect();
    let (a, b): (BTreeSet<String>, BTreeSet<String>) = (all(a), all(b));
    (a != b).then(|| Difference { what: "url".into(), a: Some(urls(&a)), b: Some(urls(&b)) })
}

fn urls(all: &BTreeSet<String>) -> String {
    let first: Vec<&str> = all.iter().map(String::as_str).take(URLS_MAX).collect();
    match all.len().saturating_sub(URLS_MAX) {
        0 => first.join(", "),
        more => format!("{} and {}", first.join(", "), plural(more as u64, "other")),
    }
}

/// Concurrent requests or users, or the rate.
fn arrival(workload: &Workload) -> String {
    let connections = u64::from(workload.connections);
    match (workload.arrival, &workload.visits) {
        (Arrival::Closed, Some(visits)) => plural(u64::from(visits.users), "user"),
        (Arrival::Closed, None) => {
            format!("{}, closed loop", plural(u64::from(workload.concurrency()), "concurrent request"))
        }
        (Arrival::Open { rate_per_s, poisson }, _) => {
            let kind = if poisson { "random arrivals" } else { "constant rate" };
            format!("{kind} {} req/s, at most {}", number(rate_per_s), plural(connections, "connection"))
        }
    }
}

fn keepalive(workload: &Workload) -> String {
    if workload.keepalive { "keep-alive" } else { "a connection for each request" }.into()
}

fn machine(of: &Environment) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| UNKNOWN.into());
    let cores = of.cores.map_or_else(|| "cores unknown".into(), |cores| plural(u64::from(cores), "core"));
    let memory = of.memory_bytes.map_or_else(|| UNKNOWN.into(), |size| bytes(size as f64));
    format!("{} ({}, {cores}, {memory} of memory)", text(&of.hostname), text(&of.cpu_model))
}

/// [`VALID`], or why the figures of a load may not be believed.
fn validity(of: &Side) -> String {
    let (load, run) = (of.measurement, &of.run);
    if let Some(trip) = &load.harm_guard_trip {
        return format!("stopped by the harm guard: {}", trip.text);
    }
    if !run.client.valid {
        return format!(
            "invalid: {}",
            run.client.why.as_deref().unwrap_or("the load generator was saturated")
        );
    }
    if run.requests.completed == 0 {
        return "no request succeeded".into();
    }
    match &load.end {
        None => "cut off before its end".into(),
        Some(end) if end.reason == EndReason::Interrupted => "interrupted".into(),
        Some(_) => VALID.into(),
    }
}
