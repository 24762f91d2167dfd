//! When `generator-saturated` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::limits::network_saturated;
use crate::resources::time_breakdown::{keeps_up, noticed_queue};
use crate::resources::{concurrency, memory_evidence, processors};
use webdyno_model::diagnosis::Finding;
use webdyno_model::setting::SettingId;

/// Above this share of busy processors the server may have no room, idle workers or not,
const CPU_FRACTION_MAX: f64 = 0.90;
/// unless its group hardly ever waits for one: others fill them, with what is left over.
const CPU_WAIT_FRACTION_MAX: f64 = 0.3;
/// More failures than this, or periods in which a quota stops the server, are a reason of their own why connections stay in
/// use.
const FAILED_FRACTION_MAX: f64 = 0.001;
const THROTTLED_FRACTION_MAX: f64 = 0.1;
/// From this share of failures on that did not take long they are what keeps the generator busy.
const FAILED_EARLY_FRACTION_MIN: f64 = 0.5;
/// Where the server takes longer than this multiple of what it took before all connections were in use, it is what slows down.
const SLOWER_RATIO_MAX: f64 = 1.5;
const SLOWER_SPARE_US: f64 = 1000.0;
/// The scoreboard may be full in this share of its samples: workers are free most of the time.
const FULL_FRACTION_MAX: f64 = 0.2;

/// Fires when the run's own verdict says that its figures cannot be believed, or when too few connections kept the load
/// from a server that had room.
pub fn check(facts: &Facts) -> Option<Finding> {
    // Errors come as fast as they can be asked for: what fails the requests is what limits, however busy that keeps the generator.
    let is_server = is_server_full(facts) || concurrency::is_mostly_errors(facts) || fails_early(facts);
    if let Some(why) = facts.generator_fault.as_ref().filter(|_| !is_server) {
        let shares = may_share_processors(facts);
        let limit = if shares { "was late" } else { "is the bottleneck" };
        let summary = format!("The load generator {limit}: {why}. The figures are not valid for the server.");
        let advice = "use more threads (-t), another machine for the generator, or a lower load";
        let confidence = if shares { 0.5 } else { 0.95 };
        return Some(finding(facts, summary, confidence, ("threads or hosts", advice)));
    }
    let cap = too_few_connections(facts)?;
    let summary = format!(
        "The load generator is the bottleneck: all {} of its connections were in use, while the server had idle workers and no queue. Raise -c.",
        crate::wording::format_number(cap)
    );
    Some(finding(
        facts,
        summary,
        0.9,
        ("connections", "allow more connections (-c) than the requested rate needs"),
    ))
}

/// A generator that is late sends too little. A link that is full all the same, or processors that the server fills, and not
/// the generator beside it, are the limit all the same.
fn is_server_full(facts: &Facts) -> bool {
    let link = || network_saturated::finding::fullest_link(facts).is_some_and(|full| full.is_waited_for);
    let generator = facts.value(FactId::client_cpu_cores).unwrap_or(0.0);
    facts.generator_is_late && (link() || processors::are_filled_by_service(facts, generator))
}

/// Whether a generator that was only late may have waited for processors that the server fills: from outside nobody sees them.
fn may_share_processors(facts: &Facts) -> bool {
    facts.generator_is_late && facts.value(FactId::cpu_busy_fraction).is_none()
}

/// Whether most requests fail before their time is over: refused, reset, closed. Those come as fast as errors do.
fn fails_early(facts: &Facts) -> bool {
    facts.value(FactId::failed_early_fraction).is_some_and(|failed| failed >= FAILED_EARLY_FRACTION_MIN)
}

/// The number of connections, when they and not the server kept the offered rate from being reached.
fn too_few_connections(facts: &Facts) -> Option<f64> {
    let cap = facts.value(FactId::connections_cap)?;
    let missed = keeps_up(facts) == Some(false);
    let waits_here = facts.value(FactId::waiting_in_generator_mean)? > 0.0;
    let at_least = |name: FactId, min: f64| facts.value(name).is_some_and(|value| value >= min);
    let idle = at_least(FactId::workers_idle_mean, 1.0) || at_least(FactId::workers_startable_mean, 1.0);
    let at_most = |name: FactId, max: f64| facts.value(name).is_some_and(|value| value <= max);
    let processors = at_most(FactId::cpu_busy_fraction, CPU_FRACTION_MAX)
        || at_most(FactId::pressure_group_cpu_some_fraction, CPU_WAIT_FRACTION_MAX);
    let room = processors
        && at_most(FactId::scoreboard_full_fraction, FULL_FRACTION_MAX)
        && facts.value(FactId::accept_queue_mean).is_some()
        && noticed_queue(facts).is_none()
        && !memory_evidence::is_proven(facts);
    (missed && waits_here && idle && room && has_short_connections(facts)).then_some(cap)
}

/// Whether connections are in use for no longer than the server needs: it neither loses nor delays them.
fn has_short_connections(facts: &Facts) -> bool {
    let is_over = |name: FactId, max: f64| facts.value(name).is_some_and(|value| value > max);
    let times = facts.value(FactId::service_time_mean_us).zip(facts.value(FactId::service_time_first_us));
    let slower = times.is_some_and(|(usual, first)| usual > SLOWER_RATIO_MAX * first + SLOWER_SPARE_US);
    !(slower
        || is_over(FactId::failed_fraction, FAILED_FRACTION_MAX)
        || is_over(FactId::connect_timeouts, 0.0)
        || is_over(FactId::connect_time_max_us, crate::limits::healthy::response_time::CONNECT_US_MAX)
        || is_over(FactId::throttled_fraction, THROTTLED_FRACTION_MAX))
}

fn finding(facts: &Facts, summary: String, confidence: f64, (setting, why): (&str, &str)) -> Finding {
    Finding {
        id: LimitId::GeneratorSaturated.into(),
        summary,
        confidence,
        explains_fraction: None,
        facts: facts.cite(&fact_ids! {
            client_cpu_fraction_max_thread, client_delay_mean_us, client_delay_p90_us, response_time_mean_us,
            rate, offered_rate, connections_cap, waiting_in_generator_mean, workers_idle_mean,
            accept_queue_mean,
        }),
        remedies: vec![manual(SettingId::generator(setting), "none for the server", why)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, facts_of_several, scoped_setting};

    #[test]
    fn fires_only_on_a_fault() {
        let mut facts = facts(&[(FactId::client_cpu_fraction_max_thread, 0.9)], &[]);
        assert!(check(&facts).is_none());
        facts.generator_fault = Some("the busiest engine thread used 90% of a core".into());
        let finding = check(&facts).unwrap();
        assert!(finding.summary.contains("90% of a core"));
        assert!(finding.remedies[0].setting_changes().is_empty());
        for (failed, fires) in [(0.99, false), (0.2, true)] {
            let mut facts = crate::facts::testing::facts(&[(FactId::failed_early_fraction, failed)], &[]);
            facts.generator_fault = Some("the busiest engine thread used 90% of a core".into());
            assert_eq!(check(&facts).is_some(), fires, "{failed}");
        }
    }

    #[test]
    fn what_is_full_in_spite_of_a_late_generator_limits() {
        let processors = |own: f64, wait: f64| {
            let values = [
                (FactId::cores, 2.0),
                (FactId::cpu_busy_fraction, 0.98),
                (FactId::pressure_group_cpu_some_fraction, wait),
                (FactId::service_cpu_cores, own),
                (FactId::client_cpu_cores, 0.6),
            ];
            facts(&values, &[])
        };
        let link = |share: f64| {
            let several = [(FactId::nic_sent_fraction, "eth0", share)];
            facts_of_several(&[(FactId::response_time_inflation, 4.0)], &several)
        };
        for (mut facts, fires, what) in [
            (processors(1.3, 0.9), false, "the server fills the processors"),
            (processors(1.3, 0.45), false, "it fills them, and waits in half of the time"),
            (processors(0.5, 0.9), true, "the generator fills them"),
            (processors(1.3, 0.1), true, "no task waits for them"),
            (processors(1.3, 0.25), true, "it has most of them, and the generator, which is late, the rest"),
            (link(0.97), false, "the link is full"),
            (link(0.6), true, "the link has room"),
        ] {
            facts.generator_fault = Some("half of the responses waited".into());
            facts.generator_is_late = true;
            assert_eq!(check(&facts).is_some(), fires, "{what}");
            facts.generator_is_late = false;
            assert!(check(&facts).is_some(), "{what}: it was at its own limit");
        }
    }

    /// A server beside the generator may be what fills the processors it was late for.
    #[test]
    fn a_late_generator_is_half_sure_where_the_processors_are_not_seen() {
        for (busy, is_late, expected) in
            [(None, true, 0.5), (None, false, 0.95), (Some(0.4), true, 0.95), (Some(0.4), false, 0.95)]
        {
            let values = busy.map(|busy| (FactId::cpu_busy_fraction, busy));
            let mut facts = facts(values.as_slice(), &[]);
            facts.generator_fault = Some("half of the responses waited".into());
            facts.generator_is_late = is_late;
            let finding = check(&facts).unwrap();
            assert_eq!(finding.confidence, expected, "{busy:?} {is_late}");
            assert_eq!(finding.summary.contains("was late"), expected == 0.5, "{}", finding.summary);
        }
    }

    fn scoped(line: &str) -> webdyno_model::service::ScopedSetting {
        let (setting, value) = line.split_once(' ').unwrap();
        scoped_setting(setting, value, &[])
    }

    #[test]
    fn too_few_connections_are_named_only_when_the_server_has_room() {
        let own_cap = [
            (FactId::offered_rate, 1000.0),
            (FactId::connections_cap, 50.0),
            (FactId::waiting_in_generator_mean, 900.0),
            (FactId::in_flight_mean, 50.0),
            (FactId::rate, 250.0),
            (FactId::workers_idle_mean, 90.0),
            (FactId::scoreboard_full_fraction, 0.0),
            (FactId::accept_queue_mean, 0.0),
            (FactId::cpu_busy_fraction, 0.2),
            (FactId::connect_time_max_us, 400.0),
            (FactId::failed_fraction, 0.0),
            (FactId::service_time_first_us, 195_000.0),
            (FactId::service_time_mean_us, 200_000.0),
        ];
        let with = |changed: FactId, to: f64| {
            let values = own_cap.map(|(name, value)| (name, if name == changed { to } else { value }));
            let all = crate::diagnosis::ranking::findings(&facts(&values, &[]));
            (
                all[0].id == "generator-saturated",
                all[0].summary.contains("all 50 of its connections were in use"),
            )
        };
        assert_eq!(with(FactId::rate, 250.0), (true, true));
        // Each answer comes at the pace of a limit: that is why all are in use.
        let mut limited = facts(&own_cap, &[]);
        crate::facts::testing::set(&mut limited, FactId::request_bytes_per_s, 90_000.0);
        crate::facts::testing::set(&mut limited, FactId::first_byte_mean_us, 4_000.0);
        limited.service.as_mut().unwrap().scoped =
            ["SetOutputFilter RATE_LIMIT", "SetEnv rate-limit 80"].map(scoped).to_vec();
        let all = crate::diagnosis::ranking::findings(&limited);
        assert_eq!([0, 1].map(|at| all[at].id.as_str()), ["rate-limited", "generator-saturated"]);
        for (changed, to) in [
            (FactId::rate, 990.0),
            (FactId::waiting_in_generator_mean, 0.0),
            (FactId::workers_idle_mean, 0.0),
            (FactId::scoreboard_full_fraction, 1.0),
            (FactId::accept_queue_mean, 30.0),
            (FactId::cpu_busy_fraction, 0.99),
            (FactId::connect_time_max_us, 3_040_000.0),
            (FactId::failed_fraction, 0.02),
            (FactId::service_time_first_us, 20_000.0),
        ] {
            assert_eq!(with(changed, to), (false, false), "{changed}");
        }
    }
}
