//! How many connections the database should allow: one for each worker of the application.

use crate::facts::{FactId, Facts};
use crate::limits::manual_remedy::manual;
use crate::resources::{concurrency, memory_pressure, setting_source};
use crate::wording::format_bytes;
use crate::wording::format_number;
use std::collections::BTreeSet;
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Room above the workers there are, and for other programs: cron jobs, a shell, the monitoring.
const HEADROOM: f64 = 1.1;
const OTHERS: f64 = 10.0;
/// Where the workers are not known: above what is wanted now.
const HEADROOM_OF_DEMAND: f64 = 1.3;
/// The share of the available memory that the buffers of more connections may take.
const MEMORY_FRACTION_MAX: f64 = 0.5;
/// All successful responses that were refused so far come then, if nothing else is in the way.
const PREDICTION_ERROR: f64 = 0.15;

pub(crate) fn remedies(facts: &Facts, limit: Option<f64>) -> Vec<Remedy> {
    let without_value = |why: String| {
        let setting = SettingId::of_service("mariadb", "max_connections");
        vec![manual(setting, "memory for the buffers of each connection", why)]
    };
    let (wanted, why, limit) = match (wanted(facts, limit), limit) {
        (Ok((wanted, why)), Some(limit)) => (wanted, why, limit),
        // What is allowed today may be more than that.
        (Ok((wanted, why)), None) => {
            return without_value(format!("at least {wanted:.0}, where it is less: {why}"));
        }
        (Err(why), _) => return without_value(why.into()),
    };
    let each = facts.value(FactId::db_connection_memory_bytes).filter(|bytes| *bytes > 0.0);
    let fits =
        each.zip(memory_pressure::room_bytes(facts, MEMORY_FRACTION_MAX)).map(|(each, room)| room / each);
    let fits = fits.map(|more| (limit + more).floor());
    let to = fits.map_or(wanted, |fits| wanted.min(fits));
    if to <= limit {
        let why =
            "no memory for the buffers of more connections: lower sort_buffer_size and join_buffer_size";
        return vec![manual(
            SettingId::of_service("mariadb", "sort_buffer_size"),
            "large sorts use temporary files",
            why,
        )];
    }
    let bound = if to < wanted { ", bounded by half of the available memory" } else { "" };
    let memory = each.map_or(String::new(), |each| {
        format!(
            "up to {} more memory if all of them sort and join at once; ",
            format_bytes(each * (to - limit))
        )
    });
    let of_all = facts.value(FactId::db_connections_limit);
    let is_of_user = limit_of_user(facts, of_all).is_some();
    // One user cannot have more than there are.
    let along = of_all.filter(|of_all| is_of_user && to > *of_all).map(|_| SettingChange {
        setting: SettingId::of_service("mariadb", "max_connections"),
        to: SettingValue::Integer(to as i64),
    });
    let name = if is_of_user { "max_user_connections" } else { "max_connections" };
    // In a closed load those who got errors came back at once, and would not have.
    let offered = facts.value(FactId::offered_rate);
    vec![Remedy {
        setting: SettingId::of_service("mariadb", name),
        from: Some(SettingValue::Integer(limit as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Live,
        risk: format!("{memory}more statements at once"),
        why: format!("{why}{bound}"),
        predicted: offered.map(|rate| concurrency::predicted(facts, rate, PREDICTION_ERROR)),
        together_with: along.into_iter().collect(),
    }]
}

const WHY_WORKERS: &str =
    "one connection for each worker of the application, plus 10%, plus ten for other programs";
const WHY_OTHERS: &str = "there are enough for the workers that are known: find who has the others (SHOW PROCESSLIST), another \
    application, or connections that are left open (wait_timeout)";

/// How many are wanted, and why; else what is to be done. Where there are enough for the workers that are known, somebody else has
/// some: what is asked for tells then.
fn wanted(facts: &Facts, limit: Option<f64>) -> Result<(f64, String), &'static str> {
    let of_workers = workers(facts).map(number_by_workers);
    let is_enough = |(wanted, _): &(f64, String)| limit.is_some_and(|limit| *wanted <= limit);
    if of_workers.as_ref().is_some_and(is_enough) {
        return number_by_demand(facts, limit).ok_or(WHY_OTHERS);
    }
    of_workers.or_else(|| number_by_demand(facts, limit)).ok_or(WHY_WORKERS)
}

/// How many connections one user may have, where that is less: a site mostly comes as one.
pub(crate) fn limit_of_user(facts: &Facts, of_all: Option<f64>) -> Option<f64> {
    let of_user = setting_source::of(facts, "mariadb", "max_user_connections")?.number()?;
    (of_user >= 1.0 && of_all.is_none_or(|of_all| of_user < of_all)).then_some(of_user)
}

fn number_by_workers(workers: f64) -> (f64, String) {
    let wanted = (workers * HEADROOM + OTHERS).ceil();
    (
        wanted,
        format!(
            "one connection for each of the application's {} workers, plus 10%, plus ten for other programs",
            format_number(workers)
        ),
    )
}

/// Of those who asked a share got a connection: so many more would have been connected at once. In a closed load whoever is refused
/// comes back at once, and few make many attempts: no more are wanted than all that were taken, and those that it has under way.
fn number_by_demand(facts: &Facts, limit: Option<f64>) -> Option<(f64, String)> {
    let connected = facts.value(FactId::db_connections_max).or(facts.value(FactId::db_connections_limit))?;
    let (requested, failed) =
        (facts.value(FactId::db_connections_per_s)?, facts.value(FactId::db_connections_failed_per_s)?);
    let demand = connected * requested / (requested - failed).max(0.05 * requested);
    let each = facts.ended_per_s().map_or(1.0, |ended| (requested / ended).max(1.0));
    let taken = connected.max(limit.unwrap_or(0.0));
    let more = most_under_way(facts).map(|requests| each * requests);
    if let Some(more) = more.filter(|more| taken + more < demand) {
        let why = format!(
            "{} are taken, and this load can want {} more at once, plus 10%, plus ten for other programs",
            format_number(taken),
            format_number(more)
        );
        return Some((((taken + more) * HEADROOM + OTHERS).ceil(), why));
    }
    let wanted = (HEADROOM_OF_DEMAND * demand + OTHERS).ceil();
    Some((
        wanted,
        format!(
            "{} connections are needed at once, plus 30% headroom, plus ten for other programs",
            format_number(demand)
        ),
    ))
}

/// The most requests that a closed load can have under way in the server: one for each user, unless they load pages with several at
/// once, and one for each worker of Apache.
fn most_under_way(facts: &Facts) -> Option<f64> {
    let users = facts.value(FactId::users)?;
    let has_pages = facts.value(FactId::pages_failed_per_s).is_some();
    let workers = facts.workers_configured().into_iter().chain(facts.value(FactId::workers_limit));
    Some(users).filter(|_| !has_pages).into_iter().chain(workers.reduce(f64::max)).reduce(f64::min)
}

/// The workers of the application: the processes that the pools of PHP-FPM may have, and Apache's own where PHP runs in
/// them. Pools that have no connection count as well: they cannot be told apart.
fn workers(facts: &Facts) -> Option<f64> {
    let observed = |pool: &str| facts.value_of(FactId::fpm_processes_max, pool);
    let limit = |pool: &str| setting_source::pool_setting_source(facts, pool, "pm.max_children")?.number();
    let of_files = setting_source::pools(facts);
    let only_seen = facts.each(FactId::fpm_processes_max).map(|(pool, _)| pool.to_owned());
    let pools: BTreeSet<String> = of_files.into_iter().chain(only_seen).collect();
    let most = |pool: String| [limit(&pool), observed(&pool)].into_iter().flatten().reduce(f64::max);
    let of_pools: Vec<f64> = pools.into_iter().filter_map(most).collect();
    let embeds = |service: &webdyno_model::service::ServiceSnapshot| {
        let is_program = |module: &String| {
            ["php", "perl", "wsgi", "passenger"].iter().any(|name| module.starts_with(name))
        };
        service.service == "apache" && service.modules.iter().any(is_program)
    };
    // Apache in front, or an application behind another server.
    let own = facts.service.iter().chain(facts.backends("apache")).find(|service| embeds(service));
    let own = own.and_then(|service| service.configured_number("MaxRequestWorkers"));
    let own =
        own.or(facts.value(FactId::workers_limit).filter(|_| facts.service.as_ref().is_some_and(embeds)));
    let all: Vec<f64> = of_pools.into_iter().chain(own).collect();
    (!all.is_empty()).then(|| all.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, set};
    use crate::limits::db_connections_exhausted::finding::tests::merged;
    use crate::resources::php_fpm::tests::add_fpm_backend;
    use webdyno_model::service::{ServiceSnapshot, SettingInForce};
    use webdyno_model::topology::Topology;

    #[test]
    fn the_files_of_the_pools_tell_how_many_may_come() {
        let mut facts = facts(&merged(&[]), &[]);
        of_pool(&mut facts, "www", &[(FactId::fpm_processes_max, 13.0)]);
        add_fpm_backend(
            &mut facts,
            &[],
            &[("www", "pm.max_children", "60"), ("api", "pm.max_children", "20")],
        );
        assert_eq!(to(&facts), Some(98.0));
    }

    fn to(facts: &Facts) -> Option<f64> {
        let remedy = crate::limits::db_connections_exhausted::finding::check(facts)?.remedies.remove(0);
        (remedy.setting.name == "max_connections").then(|| remedy.to.and_then(|to| to.number()))?
    }

    #[test]
    fn one_connection_for_each_worker() {
        let mut of_pools = facts(&merged(&[]), &[("MaxRequestWorkers", 150)]);
        of_pool(&mut of_pools, "www", &[(FactId::fpm_processes_max, 60.0)]);
        assert_eq!(to(&of_pools), Some(76.0));
        let mut embedded = facts(&merged(&[]), &[("MaxRequestWorkers", 150)]);
        embedded.service.as_mut().unwrap().modules = vec!["php_module".into()];
        assert_eq!(to(&embedded), Some(175.0));
        // The workers are unknown: 199 a second asked, 71 got one of 12.
        let requested = [(FactId::db_connections_per_s, 199.0)];
        assert_eq!(to(&facts(&merged(&requested), &[])), Some(54.0));
    }

    #[test]
    fn who_is_refused_and_comes_back_at_once_is_one_of_a_closed_load() {
        // 12 hold a connection, and the others get a quick error again and again.
        let quick = [
            (FactId::db_connections_per_s, 5680.0),
            (FactId::db_connections_failed_per_s, 5600.0),
            (FactId::ended_per_s, 5680.0),
        ];
        let with = |more: &[(FactId, f64)], settings: &[(&str, i64)]| {
            to(&facts(&merged(&[&quick[..], more].concat()), settings)).unwrap()
        };
        let users = (FactId::users, 40.0);
        assert_eq!(with(&[users], &[]), 68.0);
        assert_eq!(with(&[users], &[("MaxRequestWorkers", 20)]), 46.0);
        assert_eq!(with(&[users, (FactId::ended_per_s, 2840.0)], &[]), 112.0, "two for each request");
        let pages = vec![users, (FactId::pages_failed_per_s, 3.0)];
        for (what, more) in [("an open load", vec![]), ("pages with several requests at once", pages)] {
            assert!(with(&more, &[]) > 300.0, "{what}");
        }
    }

    #[test]
    fn a_limit_that_is_not_known_gets_no_value() {
        let unknown = [(FactId::db_connections_limit, f64::NAN), (FactId::db_refusals_logged_per_s, 128.0)];
        let mut facts = facts(&merged(&unknown), &[]);
        of_pool(&mut facts, "www", &[(FactId::fpm_processes_max, 60.0)]);
        let remedy =
            crate::limits::db_connections_exhausted::finding::check(&facts).unwrap().remedies.remove(0);
        assert_eq!((remedy.setting.name.as_str(), &remedy.to), ("max_connections", &None));
        assert!(remedy.why.starts_with("at least 76, where it is less"), "{}", remedy.why);
    }

    #[test]
    fn the_limit_of_one_user_is_raised_where_it_is_the_lower_one() {
        let with = |of_all: f64, of_user: &str| {
            let used = [(FactId::db_connections_limit, of_all)];
            let mut facts = facts(&merged(&used), &[]);
            of_pool(&mut facts, "www", &[(FactId::fpm_processes_max, 60.0)]);
            let setting =
                SettingInForce { running: Some(SettingValue::parse(of_user)), ..SettingInForce::default() };
            let settings = [("max_user_connections".to_owned(), setting)].into();
            let database =
                ServiceSnapshot { service: "mariadb".into(), settings, ..ServiceSnapshot::default() };
            facts.topology = Some(Topology { backends: vec![database], ..Topology::default() });
            let remedy = crate::limits::db_connections_exhausted::finding::check(&facts)?.remedies.remove(0);
            Some((remedy.setting.name.clone(), remedy.to.clone()?.number()?, remedy.together_with.len()))
        };
        let raised = |name: &str, along| Some((name.to_owned(), 76.0, along));
        assert_eq!(with(151.0, "12"), raised("max_user_connections", 0));
        assert_eq!(with(40.0, "12"), raised("max_user_connections", 1));
        assert_eq!(with(12.0, "0"), raised("max_connections", 0));
        assert_eq!(with(12.0, "100"), raised("max_connections", 0));
    }

    #[test]
    fn connections_of_many_users_say_nothing_of_the_limit_of_one() {
        for (connected, found) in [(13.0, true), (90.0, false)] {
            let observed = [
                (FactId::db_connections_limit, 500.0),
                (FactId::db_connections_max, connected),
                (FactId::db_connections_used_max, 100.0),
                (FactId::db_connections_failed_per_s, 1.0),
                (FactId::db_connections_refused, 0.0),
                (FactId::db_refusals_logged_per_s, f64::NAN),
            ];
            let mut facts = facts(&merged(&observed), &[]);
            let of_user =
                SettingInForce { running: Some(SettingValue::Integer(12)), ..SettingInForce::default() };
            let settings = [("max_user_connections".to_owned(), of_user)].into();
            let database =
                ServiceSnapshot { service: "mariadb".into(), settings, ..ServiceSnapshot::default() };
            facts.topology = Some(Topology { backends: vec![database], ..Topology::default() });
            let finding = crate::limits::db_connections_exhausted::finding::check(&facts);
            assert_eq!(finding.is_some(), found, "{connected}");
        }
    }

    #[test]
    fn connections_that_others_hold_are_no_lack_of_memory() {
        let full = [
            (FactId::db_connections_limit, 100.0),
            (FactId::db_connections_used_max, 101.0),
            (FactId::db_connections_max, 100.0),
        ];
        for (per_s, wanted) in [(199.0, Some(375.0)), (f64::NAN, None)] {
            let requested = [(FactId::db_connections_per_s, per_s)];
            let mut facts = facts(&merged(&[&full[..], &requested].concat()), &[]);
            of_pool(&mut facts, "www", &[(FactId::fpm_processes_max, 60.0)]);
            assert_eq!(to(&facts), wanted, "{per_s}");
            let finding = crate::limits::db_connections_exhausted::finding::check(&facts).unwrap();
            assert_eq!(finding.remedies[0].setting.name, "max_connections");
        }
    }

    #[test]
    fn memory_bounds_the_connections() {
        let memory = |available: f64| {
            let observed =
                [(FactId::db_connection_memory_bytes, 3e6), (FactId::memory_available_min_bytes, available)];
            let mut facts = facts(&merged(&observed), &[]);
            of_pool(&mut facts, "www", &[(FactId::fpm_processes_max, 60.0)]);
            facts
        };
        assert_eq!([to(&memory(1e9)), to(&memory(120e6)), to(&memory(1e6))], [Some(76.0), Some(32.0), None]);
        // Of the machine's memory there is enough, of the group's 60 MB beside its reserve.
        let mut group = memory(1e9);
        set(&mut group, FactId::memory_limit_bytes, 400e6);
        set(&mut group, FactId::memory_used_in_limit_max_bytes, 300e6);
        assert_eq!(to(&group), Some(28.0));
    }

    #[test]
    fn it_is_more_than_rate_times_hold_time() {
        // 300 a second want one of 12 that are held 0.1 s each: 30, of which 12 are let in.
        let wanted = [(FactId::db_connections_per_s, 300.0), (FactId::db_connections_failed_per_s, 180.0)];
        assert!(to(&facts(&merged(&wanted), &[])).unwrap() >= HEADROOM_OF_DEMAND * 300.0 * 0.1);
    }
}
