//! `unknown`: no rule can prove what limits.
//!
//! ## How it is recognised
//! No other rule fired. Either signals are missing (the list of missing signals says which and how to enable them),
//! or the limit is one that no rule knows.
//!
//! ## What to do
//! Enable the missing signals and measure again. The time breakdown shows where requests spend their time: in a
//! worker without CPU use points to what it waits for, behind the workers to PHP-FPM or the database, in no known place to
//! what no signal here shows: the way through the network, or queues that nobody counts.
//!
//! ## By hand
//! `strace -c -f -p PID` of a worker shows what it waits for; `ss -tnp` shows whom it talks to.

use super::say_us;
use crate::breakdown::breakdown;
use crate::facts::Facts;
use webdyno_model::diagnosis::Finding;

/// Stable id.
pub const ID: &str = "unknown";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &[];

/// Fires always: [`crate::diagnosis`] asks it only when no other rule fired.
pub fn check(facts: &Facts) -> Option<Finding> {
    let stopped =
        facts.brake.as_ref().map_or(String::new(), |brake| format!(" The load was stopped: {}.", brake.text));
    let failed = facts.value("failed_fraction").filter(|failed| *failed > 0.001);
    let errors =
        failed.map_or(String::new(), |failed| format!(" {:.1}% of the requests failed.", failed * 100.0));
    let parts = breakdown(facts);
    // The place, and what spending much time there points to.
    let named = [
        ("the accept queue", parts.accept_queue, "all workers were held, or the service was slow to accept"),
        ("a worker", parts.worker, "the program itself, or what it waits for"),
        ("what stands behind the workers", parts.backend, "PHP-FPM or the database"),
        ("connecting", parts.connect, "lost SYNs, full queues, or a long way"),
        ("the network", parts.network, "a long way, or a full link"),
        ("the load generator", parts.client, "requests that waited for one of its connections to come free"),
        ("no known place", parts.unexplained, "something that no signal here shows"),
    ];
    let largest = named
        .into_iter()
        .filter_map(|(place, us, points_to)| us.map(|us| (place, us, points_to)))
        .filter(|(_, us, _)| *us > 0.0)
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let time = largest.map_or(String::new(), |(place, us, points_to)| {
        format!(
            " Most of the response time is spent in {place} ({}), which points to {points_to}.",
            say_us(us)
        )
    });
    Some(Finding {
        id: ID.into(),
        summary: format!("What limits could not be proven.{stopped}{errors}{time}"),
        confidence: 0.3,
        explains_fraction: None,
        facts: facts.cite(&[
            "rate",
            "failed_fraction",
            "response_time_mean_us",
            "response_time_inflation",
            "cpu_busy_fraction",
            "accept_queue_mean",
            "scoreboard_full_fraction",
            "workers_busy_mean",
            "worker_time_mean_us",
            "backend_time_mean_us",
        ]),
        remedies: vec![],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    #[test]
    fn it_says_where_the_time_goes() {
        let finding = check(&facts(
            &[
                ("response_time_mean_us", 900_000.0),
                ("worker_time_mean_us", 880_000.0),
                ("rate", 10.0),
                ("failed_fraction", 0.05),
            ],
            &[],
        ))
        .unwrap();
        assert!(finding.summary.contains("spent in a worker (880 ms)"), "{}", finding.summary);
        assert!(finding.summary.contains("5.0% of the requests failed"));
        assert!(finding.confidence < 0.5);
    }
}
