//! When `db-thread-churn` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::syscall_cost::scaled_to_machine_us;
use crate::resources::{concurrency, processors, setting_source};
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Threads per connection: kept ones leave next to nothing to create.
const PER_CONNECTION_MIN: f64 = 0.5;
/// What the start and the end of a thread with its memory cost a core: 56 us were measured on a machine of today.
const THREAD_US: f64 = 50.0;
/// The share of the CPUs that it must take to be worth a word.
const SHARE_MIN: f64 = 0.1;
const BUSY_FRACTION_MIN: f64 = 0.85;
/// MariaDB's own default (since 10.2), unless fewer connections are allowed.
const DEFAULT_SIZE: f64 = 256.0;
/// The price of a thread is known to a third.
const PREDICTION_ERROR: f64 = 0.2;
/// From this share on that is more than all that is left.
const PREDICTED_SHARE_MAX: f64 = 0.8;

/// So many threads and processes begin on the machine for each request, and a second: a page that runs programs has few of them.
const PER_REQUEST_MIN: f64 = 3.0;
const PER_S_MIN: f64 = 1000.0;
/// What the database takes of full processors.
const UNSEEN_SHARE_MIN: f64 = 0.2;
const CONFIDENCE_UNSEEN: f64 = 0.6;
const RISK: &str = "some hundred kB of memory per cached thread";

/// Fires when threads are created for most connections, and that saturates the CPUs.
pub fn check(facts: &Facts) -> Option<Finding> {
    if facts.value(FactId::db_connections_per_s).is_some() { by_status(facts) } else { without_status(facts) }
}

/// Where nobody may see what the database does: by the threads and processes that begin on the machine, and are not workers.
fn without_status(facts: &Facts) -> Option<Finding> {
    let (program, cores, of_database) = processors::unseen_database_from(facts, UNSEEN_SHARE_MIN)?;
    let workers_per_s = facts.value(FactId::worker_processes_started_per_s).unwrap_or(0.0);
    let begun_per_s = facts.value(FactId::forks_per_s)? - workers_per_s;
    let threads_cores = begun_per_s * scaled_to_machine_us(facts, THREAD_US) / 1e6;
    let share = concurrency::share_of_full_processors(facts, threads_cores, BUSY_FRACTION_MIN)?;
    let share = share.min(of_database);
    let per_s_min = PER_S_MIN.max(PER_REQUEST_MIN * facts.ended_per_s()?);
    if program == processors::POSTGRES || begun_per_s < per_s_min || share < SHARE_MIN {
        return None;
    }
    let mut cited = facts.cite_of(&[FactId::foreign_program_cpu_cores], program);
    cited.extend(facts.cite(&fact_ids! {
        db_cpu_cores, forks_per_s, worker_processes_started_per_s, cpu_busy_fraction, usable_busy_fraction, cores, rate,
    }));
    let (confirmed_by, how) = match processors::late_database(facts) {
        Some(_) => ("It was found too late to count them.", "diagnose again, for longer"),
        None => {
            ("Only the database can confirm it.", "let webdyno into it (as root, or by --db-option-file)")
        }
    };
    Some(Finding {
        id: LimitId::DbThreadChurn.into(),
        summary: format!(
            "The machine starts {} threads and processes/s besides the server's own workers, and {program} uses {} cores: it probably creates a thread for each connection, about {:.0}% of CPU time used. {confirmed_by}",
            format_number(begun_per_s),
            format_number(cores),
            share * 100.0
        ),
        confidence: CONFIDENCE_UNSEEN,
        explains_fraction: Some(significant(share, 3)),
        facts: cited,
        remedies: vec![manual(
            SettingId::of_service("mariadb", "thread_cache_size"),
            RISK,
            format!(
                "{how}: it then counts the threads that the database creates; 256 of them in its cache are MariaDB's own default"
            ),
        )],
    })
}

fn by_status(facts: &Facts) -> Option<Finding> {
    let created_per_s = facts.value(FactId::db_threads_created_per_s)?;
    let opened_per_s = facts.value(FactId::db_connections_per_s).filter(|rate| *rate > 0.0)?;
    let threads_cores = created_per_s * scaled_to_machine_us(facts, THREAD_US) / 1e6;
    let share = concurrency::share_of_full_processors(facts, threads_cores, BUSY_FRACTION_MIN)?;
    // No more of the CPUs than the database takes of them.
    let of_database = facts
        .value(FactId::db_cpu_cores)
        .and_then(|cores| concurrency::share_of_full_processors(facts, cores, BUSY_FRACTION_MIN));
    let share = of_database.map_or(share, |most| share.min(most));
    if created_per_s < PER_CONNECTION_MIN * opened_per_s || share < SHARE_MIN {
        return None;
    }
    let cache = facts.value(FactId::db_thread_cache_limit).or_else(|| setting(facts, "thread_cache_size"));
    let kept = cache.map_or(String::new(), |kept| format!(" (thread_cache_size {})", format_number(kept)));
    Some(Finding {
        id: LimitId::DbThreadChurn.into(),
        summary: format!(
            "The database creates {} threads/s for {} connections/s{kept}: about {:.0}% of CPU time used.",
            format_number(created_per_s),
            format_number(opened_per_s),
            share * 100.0
        ),
        confidence: if cache.is_some() { 0.9 } else { 0.75 },
        explains_fraction: Some(significant(share, 3)),
        facts: facts.cite(&fact_ids! {
            db_threads_created_per_s, db_connections_per_s, db_thread_cache_limit, db_connections_used_max,
            db_cpu_cores, cpu_busy_fraction, cores, rate,
        }),
        remedies: remedy(facts, cache, share).into_iter().collect(),
    })
}

/// As the database told it when it was discovered.
fn setting(facts: &Facts, name: &str) -> Option<f64> {
    setting_source::of(facts, "mariadb", name)?.number()
}

fn remedy(facts: &Facts, cache: Option<f64>, share: f64) -> Option<Remedy> {
    let used = facts.value(FactId::db_connections_used_max);
    let most = facts.value(FactId::db_connections_limit).or_else(|| setting(facts, "max_connections"));
    let most = most.unwrap_or(f64::MAX);
    let to = DEFAULT_SIZE.max(used.unwrap_or(0.0)).min(most);
    let rate = facts.value(FactId::rate).filter(|_| share < PREDICTED_SHARE_MAX);
    let rate = rate.map(|rate| rate / (1.0 - share));
    let why = match used.map(format_number) {
        Some(used) if to > DEFAULT_SIZE => format!("{used} were connected at once: a thread for each"),
        Some(used) => format!("MariaDB's own default; at most {used} were connected at once"),
        None => "MariaDB's own default".to_owned(),
    };
    (cache.is_none_or(|cache| cache < to)).then(|| Remedy {
        setting: SettingId::of_service("mariadb", "thread_cache_size"),
        from: cache.map(|cache| SettingValue::Integer(cache as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Live,
        risk: RISK.into(),
        why,
        predicted: rate.map(|rate| concurrency::predicted(facts, rate, PREDICTION_ERROR)),
        together_with: vec![],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, facts_of_several, set, with_changes};
    use webdyno_model::sample::MissingSignal;
    use webdyno_model::topology::Topology;

    const CHURN: [(FactId, f64); 9] = [
        (FactId::db_threads_created_per_s, 13_200.0),
        (FactId::db_connections_per_s, 13_200.0),
        (FactId::db_thread_cache_limit, 0.0),
        (FactId::db_connections_used_max, 33.0),
        (FactId::db_connections_limit, 151.0),
        (FactId::db_cpu_cores, 1.2),
        (FactId::cpu_busy_fraction, 1.0),
        (FactId::cores, 2.0),
        (FactId::rate, 800.0),
    ];

    fn changed(changes: &[(FactId, f64)]) -> Option<Finding> {
        check(&facts(&with_changes(&CHURN, changes), &[]))
    }

    fn with(created: f64, opened: f64, busy: f64) -> Option<Finding> {
        changed(&[
            (FactId::db_threads_created_per_s, created),
            (FactId::db_connections_per_s, opened),
            (FactId::cpu_busy_fraction, busy),
        ])
    }

    #[test]
    fn without_root_the_threads_that_begin_tell_it() {
        let seen = [
            (FactId::forks_per_s, 6_000.0),
            (FactId::rate, 243.0),
            (FactId::usable_busy_fraction, 0.99),
            (FactId::usable_cores, 1.0),
            (FactId::cores, 2.0),
        ];
        let with = |changes: &[(FactId, f64)], program: &str, cores: f64| {
            let several = [(FactId::foreign_program_cpu_cores, program, cores)];
            let mut facts = facts_of_several(&with_changes(&seen, changes), &several);
            let [signal, why, how_to_enable] =
                ["topology", "permission denied", "run it as root"].map(Into::into);
            let missing = vec![MissingSignal { signal, why, how_to_enable }];
            facts.topology = Some(Topology { missing, ..Topology::default() });
            check(&facts)
        };
        let found = with(&[], "mariadbd", 0.45).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE_UNSEEN, Some(0.303)));
        assert!(
            found.summary.starts_with("The machine starts 6000 threads and processes/s besides"),
            "{}",
            found.summary
        );
        for (what, changes, program, cores) in [
            ("as many as requests", &[(FactId::rate, 5_000.0)][..], "mariadbd", 0.45),
            ("they are workers", &[(FactId::worker_processes_started_per_s, 5_900.0)], "mariadbd", 0.45),
            ("few", &[(FactId::forks_per_s, 900.0)], "mariadbd", 0.45),
            ("the processors have room", &[(FactId::usable_busy_fraction, 0.5)], "mariadbd", 0.45),
            ("the database does little", &[], "mariadbd", 0.1),
            ("a process for each", &[], "postgres", 0.45),
            ("another program's", &[], "make", 0.45),
            ("it is seen", &[(FactId::db_connections_per_s, 10.0)], "mariadbd", 0.45),
        ] {
            assert!(with(changes, program, cores).is_none(), "{what}");
        }
    }

    #[test]
    fn of_one_that_lets_nobody_in_they_tell_it_too() {
        let mut facts = facts(
            &[
                (FactId::forks_per_s, 6_000.0),
                (FactId::rate, 243.0),
                (FactId::usable_busy_fraction, 0.99),
                (FactId::usable_cores, 1.0),
                (FactId::db_cpu_cores, 0.45),
            ],
            &[],
        );
        let found = check(&facts).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE_UNSEEN, Some(0.303)));
        set(&mut facts, FactId::db_statements_per_s, 900.0);
        assert!(check(&facts).is_none(), "it tells what it does");
    }

    #[test]
    fn the_reason_is_what_is_known() {
        for (used, limit, to, why) in [
            (33.0, 151.0, 151, "MariaDB's own default; at most 33 were connected at once"),
            (f64::NAN, 151.0, 151, "MariaDB's own default"),
            (400.0, 1000.0, 400, "400 were connected at once: a thread for each"),
        ] {
            let changes = [(FactId::db_connections_used_max, used), (FactId::db_connections_limit, limit)];
            let remedy = changed(&changes).unwrap().remedies.remove(0);
            assert_eq!((remedy.to, remedy.why.as_str()), (Some(SettingValue::Integer(to)), why));
        }
    }

    #[test]
    fn no_gain_is_predicted_of_what_takes_nearly_all() {
        let nearly_all = [(FactId::db_threads_created_per_s, 40_000.0), (FactId::db_cpu_cores, 2.0)];
        let found = changed(&nearly_all).unwrap();
        assert_eq!((found.explains_fraction, &found.remedies[0].predicted), (Some(1.0), &None));
    }

    #[test]
    fn a_thread_for_each_connection_costs_processors() {
        let finding = with(13_200.0, 13_200.0, 1.0).unwrap();
        assert_eq!(finding.explains_fraction, Some(0.33));
        let remedy = &finding.remedies[0];
        assert_eq!((remedy.to.clone(), remedy.class), (Some(SettingValue::Integer(151)), ApplyClass::Live));
        assert_eq!(remedy.predicted.as_ref().unwrap().rate, 1190.0);
    }

    #[test]
    fn few_threads_kept_ones_or_idle_processors_are_no_limit() {
        for (created, opened, busy) in
            [(1.5, 20_000.0, 1.0), (300.0, 300.0, 1.0), (9000.0, 30_000.0, 1.0), (13_200.0, 13_200.0, 0.5)]
        {
            assert!(with(created, opened, busy).is_none(), "{created} of {opened} at {busy}");
        }
    }
}
