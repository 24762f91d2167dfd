//! Ceilings: limits before they are hit, with the rate at which each will bind.

use crate::facts::Facts;
use webdyno_model::diagnosis::Ceiling;
use webdyno_model::number::significant;

/// The limits that can be told from these facts.
pub fn ceilings(facts: &Facts) -> Vec<Ceiling> {
    [workers(facts), cpu(facts), memory(facts), accept_queue(facts)].into_iter().flatten().collect()
}

fn ceiling(
    limit: &str,
    now: Option<f64>,
    max: Option<f64>,
    binds_at_rate: Option<f64>,
    source: &str,
) -> Option<Ceiling> {
    // A limit whose size and use are both unknown says nothing.
    (now.is_some() || max.is_some()).then(|| Ceiling {
        limit: limit.into(),
        now: now.map(|value| significant(value, 4)),
        max: max.map(|value| significant(value, 6)),
        binds_at_rate: binds_at_rate.map(|value| significant(value, 4)),
        source: source.into(),
    })
}

/// Little's law: workers = rate x time a request holds one.
fn workers(facts: &Facts) -> Option<Ceiling> {
    // The scoreboard may have more slots than workers are allowed: those of processes that have ended.
    let shown = facts.value("workers_limit");
    let configured =
        facts.service.as_ref().and_then(|service| service.configured_number("MaxRequestWorkers"));
    let max =
        facts.value("workers_when_full").or_else(|| shown.into_iter().chain(configured).reduce(f64::min));
    let binds = max.zip(facts.value("worker_time_mean_us")).map(|(max, time_us)| max * 1e6 / time_us);
    ceiling("apache workers", facts.value("workers_busy_mean"), max, binds, "mod_status")
}

/// Utilisation law: CPU seconds per request are constant over load.
fn cpu(facts: &Facts) -> Option<Ceiling> {
    let (cores, busy) = (facts.value("cores")?, facts.value("cpu_busy_fraction")?);
    ceiling("processor cores", Some(busy * cores), Some(cores), rate_at_cpu(facts, 1.0), "/proc/stat")
}

/// The rate at which this share of the processors would be busy. Where it is known who uses them, only the service's
/// and the generator's time grows with the rate; what everybody else uses stays as it is.
pub(crate) fn rate_at_cpu(facts: &Facts, share: f64) -> Option<f64> {
    let busy = facts.value("cpu_busy_fraction").filter(|busy| *busy > 0.01)?;
    let ended_per_s = facts.ended_per_s()?;
    let own = || {
        let client = facts.value("client_cpu_cores").unwrap_or(0.0);
        let own = (facts.value("service_cpu_cores")? + client) / facts.value("cores")?;
        (own > 0.01).then_some(own)
    };
    let own = own().map_or(busy, |own| own.min(busy));
    let room = (share - (busy - own)).max(0.0);
    Some(ended_per_s * room / own)
}

/// How many workers memory holds: what is available, plus what the workers have, over what one more costs.
fn memory(facts: &Facts) -> Option<Ceiling> {
    let max = crate::rules::memory_exhausted::workers_that_fit(facts)?;
    let binds = facts.value("worker_time_mean_us").map(|time_us| max * 1e6 / time_us);
    ceiling("workers in memory", facts.value("workers_busy_mean"), Some(max), binds, "/proc/PID/smaps_rollup")
}

fn accept_queue(facts: &Facts) -> Option<Ceiling> {
    ceiling(
        "accept queue",
        facts.value("accept_queue_max"),
        facts.value("accept_queue_limit"),
        None,
        "ss -ltn",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    #[test]
    fn each_limit_says_where_it_binds() {
        let all = ceilings(&facts(
            &[
                ("workers_limit", 150.0),
                ("workers_busy_mean", 75.0),
                ("worker_time_mean_us", 200_000.0),
                ("cores", 2.0),
                ("cpu_busy_fraction", 0.25),
                ("rate", 375.0),
                ("accept_queue_max", 3.0),
                ("accept_queue_limit", 511.0),
            ],
            &[],
        ));
        let binds: Vec<_> =
            all.iter().map(|ceiling| (ceiling.limit.as_str(), ceiling.binds_at_rate)).collect();
        assert_eq!(
            binds,
            [("apache workers", Some(750.0)), ("processor cores", Some(1500.0)), ("accept queue", None)]
        );
    }

    #[test]
    fn what_others_use_is_not_charged_to_the_requests() {
        let seen = [("cpu_busy_fraction", 0.5), ("cores", 2.0), ("rate", 90.0), ("ended_per_s", 100.0)];
        let known = [("service_cpu_cores", 0.3), ("client_cpu_cores", 0.1)];
        for (values, at_full, at_most) in
            [(seen.to_vec(), 200.0, 190.0), ([&seen[..], &known[..]].concat(), 350.0, 325.0)]
        {
            let facts = facts(&values, &[]);
            let rates = [1.0, 0.95].map(|share| rate_at_cpu(&facts, share).unwrap().round());
            assert_eq!(rates, [at_full, at_most]);
        }
    }

    #[test]
    fn unknown_limits_are_left_out() {
        assert_eq!(ceilings(&facts(&[], &[])), []);
    }
}
