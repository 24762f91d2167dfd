//! Who has the processors: the service and its backends, the load generator, other programs, a database that nobody asks.

use crate::facts::processor_time::is_behind_sites;
use crate::facts::{FactId, Facts};
use crate::resources::concurrency::share_of_full_processors;
use crate::resources::processors::{BUSY_FRACTION_MIN, MOST_FRACTION_MIN};
use crate::settings::backends;
use crate::wording::format_number;
use webdyno_model::service::ServiceSnapshot;

/// Databases, as the kernel names them.
pub(crate) const DATABASES: [&str; 3] = ["mariadbd", "mysqld", POSTGRES];
/// Programs behind the service whose processor time is read.
const READ_MAX: usize = 8;
/// The collector's name for two of them.
const MARIADB: &str = "mariadb";
/// That has a process for each connection.
pub(crate) const POSTGRES: &str = "postgres";

/// Cores that the service and its backends use together.
pub fn own_cores(facts: &Facts) -> Option<f64> {
    facts.value(FactId::service_cpu_cores).map(|service| service + backend_cores(facts))
}

fn backend_cores(facts: &Facts) -> f64 {
    facts.each(FactId::backend_cpu_cores).map(|(_, cores)| cores).sum()
}

/// Cores of those that the service may use which programs take that are neither its own, nor its backends', nor ours.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OtherProcesses {
    /// How many.
    pub cores: f64,
    /// The part of it whose programs are known.
    pub named_cores: f64,
    /// These programs, the one that takes most first.
    pub programs: Vec<(String, f64)>,
}

/// So much of what others take must have a name.
pub(crate) const NAMED_FRACTION_MIN: f64 = 0.5;
/// Programs that take less than this are not worth a name.
const NAMED_CORES_MIN: f64 = 0.02;

/// What other programs take; `None` where it is not known.
pub fn other_processes(facts: &Facts) -> Option<OtherProcesses> {
    let value = |name: FactId| facts.value(name).unwrap_or(0.0);
    // Where it is not known that the generator runs elsewhere it is taken off: what is left is surely others'.
    let generator = if facts.value(FactId::client_cpu_cores).is_some() {
        0.0
    } else {
        value(FactId::generator_cpu_cores)
    };
    let late = late_database(facts);
    let ours = backend_cores(facts)
        + value(FactId::agent_cpu_cores)
        + generator
        + late.map_or(0.0, |(_, cores)| cores);
    let everywhere = facts.value(FactId::foreign_cpu_cores)? - ours - value(FactId::kernel_threads_cpu_cores);
    let mut programs: Vec<(String, f64)> = facts
        .each(FactId::foreign_program_cpu_cores)
        .filter(|(name, cores)| *cores >= NAMED_CORES_MIN && late.is_none_or(|(late, _)| late != *name))
        .map(|(name, cores)| (name.to_owned(), cores))
        .collect();
    programs.sort_by(|a, b| b.1.total_cmp(&a.1));
    let named: f64 = programs.iter().map(|(_, cores)| cores).sum();
    let usable = facts.value(FactId::usable_cores).zip(facts.value(FactId::usable_busy_fraction));
    let here = usable.zip(facts.value(FactId::service_cpu_cores)).map(|((usable, busy), service)| {
        let interrupts = value(FactId::cpu_softirq_fraction) * facts.value(FactId::cores).unwrap_or(usable);
        let left = usable * busy - service - ours - interrupts.min(usable);
        left.max((named - busy_elsewhere(facts, usable * busy)).min(left + generator))
    });
    let cores = here.map_or(everywhere, |here| here.min(everywhere)).max(0.0);
    Some(OtherProcesses { cores, named_cores: named.min(cores), programs })
}

/// Busy cores that the service may not use: so much of what other programs take may lie there, and no more.
fn busy_elsewhere(facts: &Facts, busy_here: f64) -> f64 {
    let all = facts.value(FactId::cpu_busy_fraction).zip(facts.value(FactId::cores));
    all.map_or(f64::INFINITY, |(busy, cores)| (busy * cores - busy_here).max(0.0))
}

/// Who uses the processors, in words: `in cores: apache 0.4, mariadb 1.3`.
pub fn users(facts: &Facts) -> String {
    let worth_telling = |cores: &f64| *cores >= 0.05;
    let service = facts.service.as_ref().map_or("the service", |service| match service.service.as_str() {
        "unknown" => "the service",
        name => name,
    });
    let one = |fact: FactId, name: &str| facts.value(fact).map(|cores| (name.to_owned(), cores));
    let mut all: Vec<(String, f64)> = one(FactId::service_cpu_cores, service).into_iter().collect();
    let backend =
        |name: &str| if name == "unknown" { "the application server".to_owned() } else { name.to_owned() };
    all.extend(facts.each(FactId::backend_cpu_cores).map(|(name, cores)| (backend(name), cores)));
    all.extend(late_database(facts).map(|(program, cores)| (program.to_owned(), cores)));
    all.extend(one(FactId::client_cpu_cores, "the load generator"));
    all.retain(|(_, cores)| worth_telling(cores));
    if let Some(foreign) = other_processes(facts).filter(|foreign| worth_telling(&foreign.cores)) {
        let names: Vec<&str> = foreign.programs.iter().take(3).map(|(name, _)| name.as_str()).collect();
        let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        all.push((format!("other programs{names}"), foreign.cores));
    }
    let shares: Vec<String> =
        all.into_iter().map(|(name, cores)| format!("{name} {}", format_number(cores))).collect();
    if shares.is_empty() {
        "by unidentified programs".into()
    } else {
        format!("in cores: {}", shares.join(", "))
    }
}

/// What all known services use.
pub(crate) fn services_cores(facts: &Facts) -> Option<f64> {
    let backends: f64 = facts.each(FactId::ahead_backend_cpu_cores).map(|(_, cores)| cores).sum();
    Some(facts.value(FactId::service_cpu_cores)? + backends)
}

/// Whether it may be the service's own PHP or database that is taken for another program: which ones these are could not be seen.
pub(crate) fn may_be_own(facts: &Facts, others: &OtherProcesses) -> bool {
    let of_sites = others.programs.iter().filter(|(name, _)| is_behind_sites(name));
    let of_sites: f64 = of_sites.map(|(_, cores)| cores).sum();
    backends::are_unseen(facts.topology.as_ref()) && of_sites >= NAMED_FRACTION_MIN * others.named_cores
}

/// A database that is known to be behind the service, and of which no reading came in: on full processors it may be found when most of the
/// load is over. Its program, and the cores that it takes.
pub(crate) fn late_database(facts: &Facts) -> Option<(&str, f64)> {
    let topology = facts.topology.as_ref()?;
    // Of more than are read nobody knows which ones those are.
    if facts.value(FactId::db_cpu_cores).is_some() || topology.backends.len() > READ_MAX {
        return None;
    }
    let is_unread = |name: &str| facts.value_of(FactId::backend_cpu_cores, name).is_none();
    let late: Vec<&str> = backends::named(topology)
        .filter(|(name, _)| is_unread(name))
        .map(|(_, service)| backends::program_name(service))
        .collect();
    let is_late = |program: &str| {
        DATABASES.contains(&program)
            && late.iter().any(|late| *late == program || (*late == MARIADB && program != POSTGRES))
    };
    facts.each(FactId::foreign_program_cpu_cores).find(|(program, _)| is_late(program))
}

/// A database on this machine that takes most of full processors, and whose clients could not be seen, or not in time, or that does not
/// let webdyno in: whoever has a site beside it asks it. Its program, the cores that it takes, and their share.
pub(crate) fn unseen_database(facts: &Facts) -> Option<(&str, f64, f64)> {
    unseen_database_from(facts, MOST_FRACTION_MIN)
}

/// The same of one that takes at least this share.
pub(crate) fn unseen_database_from(facts: &Facts, share_min: f64) -> Option<(&str, f64, f64)> {
    let are_unseen =
        || backends::are_unseen(facts.topology.as_ref()) && facts.value(FactId::db_cpu_cores).is_none();
    let is_unseen = late_database(facts).is_some() || are_unseen();
    let mut programs = facts.each(FactId::foreign_program_cpu_cores).filter(|_| is_unseen);
    let unread = || Some((MARIADB, unread_mariadb_cores(facts)?));
    let (program, cores) = programs.find(|(name, _)| DATABASES.contains(name)).or_else(unread)?;
    let share = share_of_full_processors(facts, cores, BUSY_FRACTION_MIN)?;
    (share >= share_min).then_some((program, cores, share))
}

/// A database behind the service that no collector asks, such as PostgreSQL: the name of its facts, what it is called, and the cores
/// that it takes.
pub(crate) fn silent_database(facts: &Facts) -> Option<(String, &str, f64)> {
    let is_silent = |service: &ServiceSnapshot| {
        service.service == backends::UNKNOWN && DATABASES.contains(&backends::program_name(service))
    };
    backends::named(facts.topology.as_ref()?).filter(|(_, service)| is_silent(service)).find_map(
        |(name, service)| {
            let cores = facts.value_of(FactId::backend_cpu_cores, &name)?;
            Some((name, backends::program_name(service), cores))
        },
    )
}

/// Of a MariaDB or MySQL behind the service that does not let webdyno in: the cores that it takes. How many are connected to it, and what
/// the disks do, is seen besides. One that refuses webdyno as too many are connected has another limit.
pub(crate) fn unread_mariadb_cores(facts: &Facts) -> Option<f64> {
    let is_read = [FactId::db_statements_per_s, FactId::db_threads_running_mean];
    let is_read = is_read.iter().any(|fact| facts.value(*fact).is_some());
    let is_full = facts.value(FactId::db_own_connections_refused).is_some_and(|refused| refused >= 1.0);
    facts.value(FactId::db_cpu_cores).filter(|_| !is_read && !is_full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, set};
    use webdyno_model::topology::Topology;

    #[test]
    fn what_is_ours_is_not_foreign() {
        let mut seen = facts(
            &[
                (FactId::usable_busy_fraction, 1.0),
                (FactId::usable_cores, 2.0),
                (FactId::cores, 2.0),
                (FactId::service_cpu_cores, 0.2),
                (FactId::foreign_cpu_cores, 1.8),
                (FactId::generator_cpu_cores, 0.1),
                (FactId::agent_cpu_cores, 0.05),
            ],
            &[],
        );
        of_pool(&mut seen, "mariadb", &[(FactId::backend_cpu_cores, 0.9)]);
        of_pool(&mut seen, "gzip", &[(FactId::foreign_program_cpu_cores, 0.6)]);
        let others = other_processes(&seen).unwrap();
        assert!((others.cores - 0.75).abs() < 1e-9 && (others.named_cores - 0.6).abs() < 1e-9, "{others:?}");
        assert_eq!(users(&seen), "in cores: apache 0.2, mariadb 0.9, other programs (gzip) 0.75");
        // With one core of two, the generator is mostly on the other one: so much of gzip's time can only be here.
        let one_of_two = [
            (FactId::service_cpu_cores, 0.45),
            (FactId::cpu_busy_fraction, 0.6),
            (FactId::generator_cpu_cores, 0.3),
        ];
        let mut pinned = facts(&one_of_two, &[]);
        for (name, value) in [
            (FactId::usable_busy_fraction, 1.0),
            (FactId::usable_cores, 1.0),
            (FactId::cores, 2.0),
            (FactId::foreign_cpu_cores, 0.9),
        ] {
            set(&mut pinned, name, value);
        }
        assert!((other_processes(&pinned).unwrap().cores - 0.25).abs() < 1e-9);
        of_pool(&mut pinned, "gzip", &[(FactId::foreign_program_cpu_cores, 0.6)]);
        assert!((other_processes(&pinned).unwrap().cores - 0.4).abs() < 1e-9);
        set(&mut pinned, FactId::cpu_busy_fraction, 0.9);
        assert!((other_processes(&pinned).unwrap().cores - 0.25).abs() < 1e-9, "gzip may be elsewhere");
        // On cores of its own nobody else is.
        set(&mut seen, FactId::usable_cores, 1.0);
        set(&mut seen, FactId::service_cpu_cores, 0.97);
        assert_eq!(other_processes(&seen).unwrap().cores, 0.0);
    }

    #[test]
    fn a_database_that_was_found_late_is_no_other_program() {
        let topology = |service: &str| Topology {
            backends: vec![ServiceSnapshot {
                service: service.into(),
                pid: 65,
                ..ServiceSnapshot::default()
            }],
            ..Topology::default()
        };
        for (what, behind, is_read, findings) in [
            ("late", "mariadb", false, [true, false]),
            ("read", "mariadb", true, [false, true]),
            ("of somebody else", "php_fpm", false, [false, true]),
            ("another one is the site's", "postgres", false, [false, true]),
        ] {
            let mut seen = facts(
                &[
                    (FactId::usable_busy_fraction, 1.0),
                    (FactId::usable_cores, 1.0),
                    (FactId::cores, 1.0),
                    (FactId::service_cpu_cores, 0.03),
                    (FactId::foreign_cpu_cores, 0.95),
                    (FactId::pressure_group_cpu_some_fraction, 1.0),
                    (FactId::rate, 50.0),
                ],
                &[],
            );
            of_pool(&mut seen, "mariadbd", &[(FactId::foreign_program_cpu_cores, 0.85)]);
            if is_read {
                of_pool(&mut seen, "mariadb", &[(FactId::backend_cpu_cores, 0.05)]);
            }
            seen.topology = Some(topology(behind));
            let slow = crate::limits::db_slow_queries::finding::check(&seen);
            let foreign = crate::limits::foreign_load::finding::check(&seen);
            assert_eq!([slow.is_some(), foreign.is_some()], findings, "{what}");
            let says = "it was seen behind the service only when most of the load was over";
            assert!(slow.is_none_or(|slow| slow.summary.contains(says) && slow.confidence == 0.6));
            assert_eq!(users(&seen).contains("mariadbd 0.85, "), !is_read && behind == "mariadb", "{what}");
        }
    }
}
