//! What the generator says of itself, in sentences.

use crate::human::{count, number, percent};
use webdyno_model::client::TableReport;
use webdyno_model::run::RunReport;

/// More threads than this are summed up.
const THREADS_MAX: usize = 8;

/// Whether the generator kept up. Starts with `INVALID` when the figures may not be believed.
pub(crate) fn generator(run: &RunReport) -> String {
    let client = &run.client;
    let busiest = match client.cpu_fraction_max_thread {
        Some(share) => format!("busiest thread {} of a core", percent(share)),
        None => "its CPU use is unknown".into(),
    };
    let why = client.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    match (client.valid, client.saturated) {
        _ if client.valid_for.rate && !client.valid_for.latency => {
            format!("Throughput and counts valid; latency not valid{why} ({busiest})")
        }
        (true, false) if client.cpu_fraction_max_thread.is_none() => {
            format!("Valid as far as known: the generator kept up ({busiest}){why}")
        }
        (true, false) => format!("Valid: the generator kept up ({busiest}){why}"),
        (true, true) => format!("Valid, though the generator was busy ({busiest}){why}"),
        (false, _) if client.kernel_limit_total.is_some() => {
            format!("INVALID{why}. Discard the rate; what to do: webdyno explain kernel-limit-total")
        }
        (false, true) if run.errors.local_ports_exhausted + run.errors.no_descriptors > 0 => {
            format!("INVALID{why} ({busiest}): these figures are not the server's")
        }
        (false, true) => format!(
            "INVALID: the generator was the bottleneck ({busiest}){why}. Use a machine with free cores, or less \
             load (-r, -c)"
        ),
        (false, false) => format!("INVALID{why} ({busiest})"),
    }
}

/// What the verdict rests on, a sentence each; nothing of what is not known.
pub(crate) fn generator_details(run: &RunReport) -> Vec<String> {
    let client = &run.client;
    let tables = [("open files", client.descriptors), ("local ports to one address", client.local_ports)];
    let reported = tables.into_iter().filter_map(|(what, table)| Some(self::table(what, &table?)));
    threads(run).into_iter().chain(in_flight(run)).chain(super::pages::users(run)).chain(reported).collect()
}

fn threads(run: &RunReport) -> Option<String> {
    let shares: Vec<f64> = run.client.threads.iter().map(|thread| thread.cpu_fraction).collect();
    let listed = |shares: &[f64]| shares.iter().map(|share| percent(*share)).collect::<Vec<_>>().join(", ");
    match shares.len() {
        0 | 1 => None,
        2..=THREADS_MAX => Some(format!("CPU of each engine thread, of a core: {}", listed(&shares))),
        many => {
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            let most = shares.iter().copied().fold(0.0, f64::max);
            Some(format!("{many} engine threads used {} to {} of a core each", percent(least), percent(most)))
        }
    }
}

fn in_flight(run: &RunReport) -> Option<String> {
    let counts = &run.client.in_flight;
    let server = counts.server.map_or(String::new(), |server| format!("; the server had {}", number(server)));
    Some(format!(
        "mean in flight: {} counted, {} by Little's law{server}",
        number(counts.mean?),
        number(counts.by_law?)
    ))
}

fn table(what: &str, table: &TableReport) -> String {
    let of = table.limit.map_or(", without a limit".into(), |limit| format!(" of {}", count(limit)));
    format!("{what}: at most {} in use{of}, {} at the end", count(table.used_peak), count(table.used_at_end))
}
