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
        Some(share) => format!("its busiest thread used {} of a core", percent(share)),
        None => "how much processor it used is unknown".into(),
    };
    let why = client.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    match (client.valid, client.saturated) {
        (true, false) if client.cpu_fraction_max_thread.is_none() => {
            format!("The generator kept up as far as can be told ({busiest}){why}")
        }
        (true, false) => format!("The generator kept up ({busiest}): the figures hold{why}"),
        (true, true) => format!("The generator was busy ({busiest}), but the figures hold{why}"),
        (false, _) if client.kernel_limit_total.is_some() => {
            format!("INVALID{why}. Discard the rate; what to do: webdyno explain kernel-limit-total")
        }
        (false, true) if run.errors.local_ports_exhausted + run.errors.no_descriptors > 0 => {
            format!("INVALID{why} ({busiest}). Do not read these figures as the server's")
        }
        (false, true) => format!(
            "INVALID: the generator was the bottleneck ({busiest}){why}. Do not read these figures as the server's; \
             give it a machine with free cores, or load less (-r, -c)"
        ),
        (false, false) => format!("INVALID{why} ({busiest}). Do not rely on these figures"),
    }
}

/// What the verdict rests on, a sentence each; nothing of what is not known.
pub(crate) fn generator_details(run: &RunReport) -> Vec<String> {
    let client = &run.client;
    let tables =
        [("open files", client.descriptors), ("local ports towards one address", client.local_ports)];
    let reported = tables.into_iter().filter_map(|(what, table)| Some(self::table(what, &table?)));
    threads(run).into_iter().chain(in_flight(run)).chain(super::pages::users(run)).chain(reported).collect()
}

fn threads(run: &RunReport) -> Option<String> {
    let shares: Vec<f64> = run.client.threads.iter().map(|thread| thread.cpu_fraction).collect();
    let listed = |shares: &[f64]| shares.iter().map(|share| percent(*share)).collect::<Vec<_>>().join(", ");
    match shares.len() {
        0 | 1 => None,
        2..=THREADS_MAX => {
            Some(format!("processor of each engine thread, as a share of a core: {}", listed(&shares)))
        }
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
        "requests in flight on the average: {} counted, {} by rate times time (Little's law){server}",
        number(counts.mean?),
        number(counts.by_law?)
    ))
}

fn table(what: &str, table: &TableReport) -> String {
    let of = table.limit.map_or(", without a limit".into(), |limit| format!(" of {}", count(limit)));
    format!("{what}: at most {} in use{of}; {} at the end", count(table.used_peak), count(table.used_at_end))
}
