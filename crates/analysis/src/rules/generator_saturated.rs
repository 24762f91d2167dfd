//! `generator-saturated`: the load generator was the bottleneck, not the server.
//!
//! ## How it is recognised
//! The busiest engine thread used more than 70% of a core, or the generator itself added more than a tenth of the
//! response time, or Little's law does not hold between the requests in flight and rate times response time.
//!
//! ## What to do
//! Discard the run. Use more engine threads (`-t`), another machine for the generator, or a lower rate. On one
//! machine generator and server take the cores from each other: the server looks slower than it is.
//!
//! ## By hand
//! `top -H` on the generator's machine while the load runs: a thread near 100% is a generator that measures itself.

use crate::facts::Facts;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};

/// Stable id.
pub const ID: &str = "generator-saturated";

/// Fires when the run's own verdict says that its figures cannot be believed.
pub fn check(facts: &Facts) -> Option<Finding> {
    let why = facts.generator_fault.as_ref()?;
    Some(Finding {
        id: ID.into(),
        summary: format!("The load generator limits, so these figures say nothing about the server: {why}."),
        confidence: 0.95,
        explains_fraction: None,
        facts: facts.cite(&[
            "client_cpu_fraction_max_thread",
            "client_delay_mean_us",
            "response_time_mean_us",
            "rate",
        ]),
        remedies: vec![Remedy {
            service: "generator".into(),
            setting: "threads or hosts".into(),
            from: None,
            to: None,
            class: ApplyClass::Manual,
            risk: "none for the server".into(),
            why: "more threads (-t), another machine for the generator, or a lower load".into(),
            predicted: None,
            together_with: vec![],
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    #[test]
    fn fires_only_on_a_fault() {
        let mut facts = facts(&[("client_cpu_fraction_max_thread", 0.9)], &[]);
        assert!(check(&facts).is_none());
        facts.generator_fault = Some("the busiest engine thread used 90% of a core".into());
        let finding = check(&facts).unwrap();
        assert!(finding.summary.contains("90% of a core"));
        assert!(finding.remedies[0].wishes().is_empty());
    }
}
