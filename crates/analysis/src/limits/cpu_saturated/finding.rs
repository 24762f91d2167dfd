//! When `cpu-saturated` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::cpu_saturated::{
    child_turnover, deflate, gzip, less_work, pinned, revalidation, table_cache,
};
use crate::limits::cpu_stolen;
use crate::resources::processors::CpuShortage;
use crate::resources::{concurrency, memory_evidence, php_functions, processor_time, processors, workers};
use crate::settings::backends;
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Predicted, Remedy};
use webdyno_model::number::significant;
use webdyno_model::processor_time::ProcessorWork;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// With more stolen time than this the machine is not what it claims to be.
const STEAL_FRACTION_MAX: f64 = 0.10;
/// Where a program that uses this share of what the service and its backends use does not tell what for (scans of a database,
/// scripts that are translated anew), that may be why the CPUs are saturated.
const CLOSED_FRACTION_MIN: f64 = 0.25;
const CONFIDENCE_CLOSED: f64 = 0.5;
/// Most requests fail, in whatever way: connections that are reset are no status.
const FAILED_FRACTION_MOST: f64 = 0.5;
/// An OPcache of this size holds the scripts of no large application; PHP's own value is 128.
const OPCACHE_SMALL_MB: f64 = 32.0;
/// What takes less of a core translates next to nothing.
const TRANSLATING_US_MIN: f64 = 1000.0;
/// New cores shall be so busy at the rate that is wanted: above it queues grow quickly.
const BUSY_FRACTION_WANTED: f64 = 0.7;

/// What scripts of PHP have the processors do.
const PHP_WORK: [ProcessorWork; 2] = [ProcessorWork::Php, ProcessorWork::PhpCompilation];

/// Fires when all cores that the service may use are busy, and it waits for one.
pub fn check(facts: &Facts) -> Option<Finding> {
    of_all_cores(facts).or_else(|| pinned::check(facts))
}

fn of_all_cores(facts: &Facts) -> Option<Finding> {
    let stolen = facts.value(FactId::cpu_steal_fraction).filter(|steal| *steal > STEAL_FRACTION_MAX);
    if stolen.is_some() && !cpu_stolen::finding::is_smaller_part(facts) {
        return None;
    }
    // What thrashes keeps the CPUs busy, too.
    let shortage = processors::cpu_shortage(facts).filter(|_| !memory_evidence::is_proven(facts))?;
    let closed = opaque_program(facts).map(backends::display_name);
    let makes_errors = is_serving_errors(facts);
    let wait = shortage.wait.map_or(String::new(), |wait| {
        format!("; tasks waited for CPU {:.0}% of the time (PSI)", wait * 100.0)
    });
    Some(Finding {
        id: LimitId::CpuSaturated.into(),
        summary: format!(
            "CPU saturated: {} {:.0}% busy{wait}. CPU use {}.{}{}{}{}{}",
            cores_text(facts, shortage.usable),
            shortage.busy * 100.0,
            processors::users(facts),
            processor_time::sentence(facts),
            processor_time::scripts_sentence(facts, &PHP_WORK),
            workers_note(facts),
            match closed {
                _ if makes_errors => " Most responses are errors, which clients repeat at once: fix their cause first.".to_owned(),
                Some(name) => format!(" What {name} uses its share for is unknown: it may be needless work."),
                None => String::new(),
            },
            stolen.map_or(String::new(), |steal| format!(
                " The host stole {:.0}% of the CPU time: without that the rate would be higher by about as much.",
                steal * 100.0
            )),
        ),
        confidence: if processors::unseen_database(facts).is_some() {
            shortage.confidence.min(processors::CONFIDENCE_BEHIND_DATABASE)
        } else if makes_errors || closed.is_some() || concurrency::has_unexplained_cpu(facts) {
            shortage.confidence.min(CONFIDENCE_CLOSED)
        } else {
            shortage.confidence
        },
        explains_fraction: explained_share(facts),
        facts: facts
            .cite(&[&processors::FACTS[..], &[FactId::rate, FactId::offered_rate, FactId::response_time_mean_us]].concat())
            .into_iter()
            .chain(processor_time::cite(facts, FactId::processor_time_fraction))
            .chain(facts.each(FactId::php_script_fraction).flat_map(|(script, _)| {
                facts.cite_of(&[FactId::php_script_fraction], script)
            }))
            .chain(php_functions::cite(facts, php_functions::COMPUTING))
            .collect(),
        remedies: deflate::remedy(facts)
            .into_iter()
            .chain(gzip::remedy(facts))
            .chain(revalidation::remedies(facts))
            .chain(child_turnover::remedy(facts))
            .chain(table_cache::remedy(facts))
            .chain([remedy(facts, shortage)])
            .collect(),
    })
}

/// Whether clients that wait for their answer are given errors as fast as the CPUs can make them.
fn is_serving_errors(facts: &Facts) -> bool {
    let sets_its_pace = facts.value(FactId::offered_rate).is_none();
    sets_its_pace
        && (concurrency::is_mostly_errors(facts)
            || facts.value(FactId::failed_fraction).is_some_and(|failed| failed >= FAILED_FRACTION_MOST)
            || crate::limits::db_connections_exhausted::finding::affects_most_pages(facts))
}

/// A program behind the front that uses much of the CPUs, and does not tell what for.
fn opaque_program(facts: &Facts) -> Option<&str> {
    let own = processors::own_cores(facts)?;
    if may_compile_scripts(facts) {
        return Some("PHP");
    }
    let is_silent = |name: &str| match name {
        "mariadb" => facts.value(FactId::db_statements_per_s).is_none(),
        "php_fpm" => facts.value(FactId::opcache_enabled).is_none(),
        _ => false,
    };
    let mut much =
        facts.each(FactId::backend_cpu_cores).filter(|(_, cores)| *cores >= CLOSED_FRACTION_MIN * own);
    let silent =
        processors::silent_database(facts).filter(|(_, _, cores)| *cores >= CLOSED_FRACTION_MIN * own);
    much.find(|(name, _)| is_silent(name)).map(|(name, _)| name).or(silent.map(|(_, program, _)| program))
}

/// Whether PHP in Apache's own workers may translate scripts anew: how full its cache is cannot be queried, but one that is
/// small, of what is no small script, may be full.
fn may_compile_scripts(facts: &Facts) -> bool {
    let size = facts.service.as_ref().and_then(|service| service.number("opcache.memory_consumption"));
    let pools = facts.each(FactId::fpm_queue_mean).next().is_some();
    size.is_some_and(|megabytes| megabytes <= OPCACHE_SMALL_MB)
        && !pools
        && facts.value(FactId::cpu_per_request_us).is_none_or(|us| us >= TRANSLATING_US_MIN)
}

/// Workers are all busy where they wait for a core: that is no reason to have more of them.
fn workers_note(facts: &Facts) -> &'static str {
    if workers::is_limit_reached(facts) {
        " All workers are busy because they wait for CPU: more of them would not help."
    } else {
        ""
    }
}

fn cores_text(facts: &Facts, usable: f64) -> String {
    let (plural, are) = if usable == 1.0 { ("", "is") } else { ("s", "are") };
    match facts.value(FactId::cores).filter(|cores| *cores > usable) {
        Some(cores) => {
            let which: Vec<&str> = facts.each(FactId::core_usable).map(|(core, _)| core).collect();
            let which = if which.is_empty() { String::new() } else { format!(" ({})", which.join(", ")) };
            format!(
                "of {} cores the service may use {}{which}, which {are}",
                format_number(cores),
                format_number(usable)
            )
        }
        None => format!("the {} core{plural} {are}", format_number(usable)),
    }
}

/// All of the response time but the CPUs' own time per request (the utilisation law: cores / rate): the rest is
/// waiting, for a core or for a worker that waits for one.
fn explained_share(facts: &Facts) -> Option<f64> {
    let work_us = processors::own_cores(facts)? / facts.ended_per_s()? * 1e6;
    let response_us = facts.value(FactId::response_time_mean_us).filter(|us| *us > 0.0)?;
    Some(significant((1.0 - work_us / response_us).clamp(0.0, 1.0), 3))
}

fn remedy(facts: &Facts, shortage: CpuShortage) -> Remedy {
    let (to, reason) = wanted_cores(facts, shortage.usable);
    let times = to / shortage.usable;
    Remedy {
        setting: SettingId::hardware("cores"),
        from: Some(SettingValue::Integer(shortage.usable as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Manual,
        risk: "none for the site; backends get more requests".into(),
        why: format!("{}{}{reason}", advice(facts, shortage.usable), less_work::advice(facts)),
        predicted: predicted(facts, times),
        together_with: vec![],
    }
}

/// How many cores are wanted, and why: twice as many where responses set the pace, those that the rate needs where it is known.
fn wanted_cores(facts: &Facts, usable: f64) -> (f64, String) {
    let wanted = match facts.goal {
        Some(webdyno_model::tune::Goal::Rate(rate)) => Some(rate),
        _ => None,
    };
    let wanted = facts.value(FactId::offered_rate).into_iter().chain(wanted).reduce(f64::max);
    let needed = || {
        let per_request = processors::own_cores(facts)? / facts.ended_per_s()?;
        Some((per_request, (wanted? * per_request / BUSY_FRACTION_WANTED).ceil()))
    };
    match needed().filter(|(_, needed)| *needed > usable) {
        Some((per_request, needed)) => {
            let text = format!(
                "; a request costs {} of CPU time, so {} req/s keep {} cores {:.0}% busy",
                crate::wording::format_time(per_request * 1e6),
                format_number(wanted.unwrap_or(0.0)),
                format_number(needed),
                BUSY_FRACTION_WANTED * 100.0
            );
            (needed, text)
        }
        None => (2.0 * usable, "; the rate grows with the cores: double them, and measure again".into()),
    }
}

/// The utilisation law is the most that there can be: at least half of what is added must show, or the work is not spread.
fn predicted(facts: &Facts, times: f64) -> Option<Predicted> {
    let rate = facts.value(FactId::rate).filter(|rate| *rate > 0.0)?;
    let most = facts.value(FactId::offered_rate).unwrap_or(f64::INFINITY);
    let at = |share: f64| significant((rate * (1.0 + share * (times - 1.0))).min(most.max(rate)), 3);
    (times > 1.0).then(|| Predicted { rate: at(0.8), ci95: [at(0.5), at(1.0)] })
}

/// So many cores beside those that the service may use must be idle to be worth a word.
const IDLE_BESIDE_MIN: f64 = 1.0;

/// Whether cores idle that the service may not use: those cost nothing.
fn idles_beside(facts: &Facts, usable: f64) -> bool {
    let known = facts
        .value(FactId::cores)
        .filter(|cores| *cores > usable)
        .zip(facts.value(FactId::cpu_busy_fraction));
    known.is_some_and(|(cores, busy)| cores * (1.0 - busy) >= IDLE_BESIDE_MIN)
}

fn advice(facts: &Facts, usable: f64) -> &'static str {
    let share = |name: FactId| facts.value(name).map_or(0.0, |part| part / usable);
    let foreign = processors::other_processes(facts);
    let foreign = foreign.filter(|foreign| foreign.cores / usable > 0.3);
    if idles_beside(facts, usable) {
        "let the service run on the machine's other cores, which idle (CPUAffinity= or AllowedCPUs= of its unit, the cpuset of its container); else less work per request, or more or faster cores"
    } else if foreign.as_ref().is_some_and(|foreign| processors::may_be_own(facts, foreign)) {
        "run webdyno as root, which shows what the other programs do, and for whom; then less work per request, or more or faster cores"
    } else if foreign.is_some() {
        "other programs use much of the CPU: move them first; then less work per request, or more or faster cores"
    } else if share(FactId::client_cpu_cores) > 0.2 {
        "the generator shares the machine: measure from another one before buying; then less work per request, or more cores"
    } else {
        "less work per request, or more or faster cores"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, with_changes};

    const FULL: [(FactId, f64); 6] = [
        (FactId::cpu_busy_fraction, 0.99),
        (FactId::cores, 2.0),
        (FactId::pressure_cpu_some_fraction, 0.6),
        (FactId::service_cpu_cores, 1.4),
        (FactId::client_cpu_cores, 0.5),
        (FactId::rate, 100.0),
    ];

    fn check_with(changes: &[(FactId, f64)]) -> Option<Finding> {
        let values = with_changes(&FULL, changes);
        check(&facts(&values, &[]))
    }

    #[test]
    fn it_says_who_uses_the_cores() {
        let finding = check_with(&[]).unwrap();
        assert_eq!(
            finding.summary,
            "CPU saturated: the 2 cores are 99% busy; tasks waited for CPU 60% of the time (PSI). CPU use in cores: apache \
             1.4, the load generator 0.5."
        );
        assert!(finding.remedies[0].why.contains("generator shares the machine"));
        assert!(
            check_with(&[(FactId::foreign_cpu_cores, 0.9)]).unwrap().remedies[0]
                .why
                .contains("other programs")
        );
        let some =
            check_with(&[(FactId::usable_cores, 1.0), (FactId::usable_busy_fraction, 0.98)]).unwrap().summary;
        assert!(some.contains("of 2 cores the service may use 1, which is 98% busy"), "{some}");
        for (busy, others) in [(0.5, true), (0.99, false)] {
            let bound = [
                (FactId::usable_cores, 1.0),
                (FactId::usable_busy_fraction, 0.98),
                (FactId::cpu_busy_fraction, busy),
            ];
            let why = check_with(&bound).unwrap().remedies.remove(0).why;
            assert_eq!(why.starts_with("let the service run on the machine's other cores"), others, "{why}");
        }
    }

    #[test]
    fn a_database_that_tells_nothing_may_be_why() {
        for (statements, confidence) in [(None, CONFIDENCE_CLOSED), (Some(900.0), 0.8)] {
            let statements = statements.map(|value| (FactId::db_statements_per_s, value));
            let values: Vec<_> = FULL.into_iter().chain(statements).collect();
            let mut facts = facts(&values, &[]);
            of_pool(&mut facts, "mariadb", &[(FactId::backend_cpu_cores, 1.1)]);
            of_pool(&mut facts, "nginx", &[(FactId::backend_cpu_cores, 1.1)]);
            let finding = check(&facts).unwrap();
            assert_eq!(finding.confidence, confidence, "{statements:?}");
            assert_eq!(finding.summary.contains("What MariaDB uses its share for"), statements.is_none());
        }
    }

    #[test]
    fn so_may_one_that_nobody_asks() {
        let confidence = |program: &str| {
            let mut facts = facts(&FULL, &[]);
            of_pool(&mut facts, "unknown", &[(FactId::backend_cpu_cores, 1.1)]);
            let backend = webdyno_model::service::ServiceSnapshot {
                service: "unknown".into(),
                pid: 3,
                executable: Some(format!("/usr/bin/{program}")),
                ..Default::default()
            };
            let backends = vec![backend];
            facts.topology = Some(webdyno_model::topology::Topology { backends, ..Default::default() });
            check(&facts).unwrap().confidence
        };
        assert_eq!(["postgres", "node"].map(confidence), [CONFIDENCE_CLOSED, 0.8]);
    }

    #[test]
    fn processors_full_of_error_pages_are_an_effect() {
        for (changes, confidence) in [
            (vec![(FactId::bad_gateway_fraction, 0.98)], CONFIDENCE_CLOSED),
            (vec![(FactId::bad_gateway_fraction, 0.98), (FactId::offered_rate, 500.0)], 0.8),
            (vec![(FactId::server_error_fraction, 0.2)], 0.8),
            (vec![(FactId::failed_fraction, 0.96)], CONFIDENCE_CLOSED),
        ] {
            let finding = check_with(&changes).unwrap();
            assert_eq!(finding.confidence, confidence, "{changes:?}");
            assert_eq!(finding.summary.contains("Most responses are errors"), confidence < 0.8);
        }
    }

    #[test]
    fn more_workers_are_advised_against() {
        let full = [
            (FactId::scoreboard_full_fraction, 1.0),
            (FactId::workers_limit, 100.0),
            (FactId::accept_queue_mean, 200.0),
        ];
        assert!(check_with(&full).unwrap().summary.contains("more of them would not help"));
        let all = crate::diagnosis::ranking::findings(&facts(&[&full[..], &FULL].concat(), &[]));
        assert_eq!((all.len(), all[0].id.as_str()), (1, "cpu-saturated"));
    }

    #[test]
    fn busy_alone_is_not_enough() {
        for (name, value) in [
            (FactId::cpu_busy_fraction, 0.8),
            (FactId::pressure_cpu_some_fraction, 0.01),
            (FactId::cpu_steal_fraction, 0.3),
            (FactId::cpu_busy_fraction, f64::NAN),
        ] {
            assert!(check_with(&[(name, value)]).is_none(), "{name} = {value}");
        }
    }

    #[test]
    fn the_scripts_that_php_executes_are_told() {
        let mut facts = facts(&FULL, &[]);
        of_pool(&mut facts, "/srv/a.php", &[(FactId::php_script_fraction, 0.72)]);
        of_pool(&mut facts, "/srv/b.php", &[(FactId::php_script_fraction, 0.2)]);
        of_pool(&mut facts, "Shop::prices;md5", &[(FactId::php_computing_fraction, 0.61)]);
        let finding = check(&facts).unwrap();
        let words = " Of PHP's processes at work 72% executed /srv/a.php, 20% executed /srv/b.php. \
            PHP's CPU time: 61% in md5, called by Shop::prices.";
        assert!(finding.summary.contains(words), "{}", finding.summary);
        assert_eq!(finding.facts.iter().filter(|fact| fact.name == "php_script_fraction").count(), 2);
        crate::facts::testing::add_samples(
            &mut facts,
            &[("apache2;libz.so.1", 900), ("php-fpm;php-fpm", 100)],
        );
        assert!(!check(&facts).unwrap().summary.contains("executed"), "PHP is no good part of it");
    }

    /// Forty users who pause 250 ms each, all answered at the same time (recorded with OPcache off).
    #[test]
    fn bursts_fill_the_processors_at_times() {
        let bursts = [
            (FactId::cpu_busy_fraction, 0.83),
            (FactId::pressure_cpu_some_fraction, 0.85),
            (FactId::run_queue_mean, 20.0),
        ];
        assert!(check_with(&bursts).is_some());
        // Chance does not: two wait in half of the time.
        assert!(check_with(&[bursts[0], (FactId::pressure_cpu_some_fraction, 0.55), bursts[2]]).is_none());
        assert!(check_with(&[bursts[0], bursts[1], (FactId::run_queue_mean, 4.0)]).is_none());
    }

    #[test]
    fn it_explains_all_that_is_not_work() {
        // 14 ms of a core each, and responses after 140 ms.
        assert_eq!(
            check_with(&[(FactId::response_time_mean_us, 140_000.0)]).unwrap().explains_fraction,
            Some(0.9)
        );
        assert_eq!(check_with(&[]).unwrap().explains_fraction, None);
    }

    #[test]
    fn cores_follow_from_the_rate_that_is_wanted() {
        for (offered, cores, predicted) in [
            (f64::NAN, 4, Some((180.0, [150.0, 200.0]))),
            // 250 x 14 ms are 3.5 cores, 70% of 5.
            (250.0, 5, Some((220.0, [175.0, 250.0]))),
        ] {
            let remedy = check_with(&[(FactId::offered_rate, offered)]).unwrap().remedies.remove(0);
            assert_eq!(remedy.to, Some(SettingValue::Integer(cores)), "{}", remedy.why);
            assert_eq!(remedy.predicted.map(|one| (one.rate, one.ci95)), predicted);
        }
    }
}
