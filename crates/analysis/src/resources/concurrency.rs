//! What several rules ask of the work under way: how much of it there is at once, and whether it waits for a processor.

use crate::facts::{FactId, Facts};
use crate::resources::php_functions;
use crate::settings::backends::{addresses, forwarding_settings, leads_to, listening_at, targets_of};
use webdyno_model::diagnosis::Predicted;
use webdyno_model::number::significant;
use webdyno_model::service::ScopedSetting;
use webdyno_model::topology::Link;
use webdyno_model::tune::Goal;

/// From this share on a processor has no room for what comes next.
const BUSY_FRACTION_MIN: f64 = 0.95;
/// A site that takes less than this share of the processors does not fill them: others do, or it hardly needs them.
const SITE_FRACTION_MIN: f64 = 0.3;

/// Requests that are under way at once, on the way and in queues too.
pub(crate) fn requests_in_flight(facts: &Facts) -> Option<f64> {
    let sum = |name: FactId| {
        let all: Vec<f64> = facts.each(name).map(|(_, value)| value).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>())
    };
    let of_pools = || {
        let busy = sum(FactId::fpm_processes_busy_mean).or(sum(FactId::fpm_active_mean))?;
        Some(busy + sum(FactId::fpm_queue_mean).unwrap_or(0.0))
    };
    let known = facts.value(FactId::in_flight_mean).or_else(of_pools);
    known.or(facts.value(FactId::requests_at_server_mean)).filter(|count| *count > 0.0)
}

/// Requests that queue at the server's socket, for PHP-FPM or for an application server. Who waits to be accepted by a database is
/// worked on.
pub(crate) fn requests_queued(facts: &Facts) -> f64 {
    let for_fpm: f64 = facts.each(FactId::fpm_queue_mean).map(|(_, queue)| queue).sum();
    let is_database = |at: &str| {
        let program = facts.topology.as_ref().and_then(|topology| listening_at(topology, at));
        program.is_some_and(|(_, service)| service.service == "mariadb")
    };
    // The sockets of PHP-FPM are among them.
    let behind = facts.each(FactId::backend_queue_mean).filter(|(at, _)| !is_database(at));
    let behind: f64 = behind.map(|(_, queue)| queue).sum();
    for_fpm.max(behind) + facts.value(FactId::accept_queue_mean).unwrap_or(0.0)
}

/// A queue that lasts stands there in at least this share of the samples.
const LASTING_FRACTION_MIN: f64 = 0.5;

/// Whether somebody waits at the socket of a program behind the server in most of the samples.
pub(crate) fn has_lasting_queue(facts: &Facts, listener: &str) -> bool {
    let share = facts.value_of(FactId::backend_waiting_fraction, listener);
    share.is_some_and(|share| share >= LASTING_FRACTION_MIN)
}

/// Requests that a worker or a process has begun: those in flight without those that queue for one. `None` where there are none.
pub(crate) fn requests_worked_on(facts: &Facts) -> Option<f64> {
    Some(requests_in_flight(facts)? - requests_queued(facts)).filter(|count| *count > 0.0)
}

/// The mean of a queue also counts requests that were given up: where it leaves less than this part of those that are counted elsewhere,
/// it is no measure of those that are worked on.
const WORKED_ON_FRACTION_MIN: f64 = 0.8;

/// The part that `count` requests are of those that are worked on, as those in a queue wait for these; where it is not known how many
/// that are, of those in flight, or in children of PHP-FPM for which others queue.
pub(crate) fn share_of_requests(facts: &Facts, count: f64) -> Option<f64> {
    let worked_on = requests_worked_on(facts).filter(|all| *all >= WORKED_ON_FRACTION_MIN * count);
    let at_most = || Some(requests_in_flight(facts)?.min(requests_in_children_max(facts)));
    Some((count / worked_on.or_else(at_most)?).min(1.0))
}

/// So many wait for children of PHP-FPM that all of these are busy.
const QUEUED_FOR_CHILDREN_MIN: f64 = 3.0;

/// Where requests queue for children of PHP-FPM, no more are worked on than these have: connections are counted at other times than the
/// queue. Infinite where none queues.
pub(crate) fn requests_in_children_max(facts: &Facts) -> f64 {
    let sum = |name: FactId| facts.each(name).map(|(_, value)| value).sum::<f64>();
    let (queue, busy) = (sum(FactId::fpm_queue_mean), sum(FactId::fpm_processes_busy_mean));
    if queue >= QUEUED_FOR_CHILDREN_MIN && busy > 0.0 { busy } else { f64::INFINITY }
}

/// Requests that the programs behind the server work on.
pub(crate) fn worked_on_behind(facts: &Facts) -> f64 {
    let asked = [FactId::upstream_waiting_mean, FactId::upstream_unsure_mean];
    let asked: f64 = asked.iter().flat_map(|name| facts.each(*name)).map(|(_, count)| count).sum();
    asked.max(facts.value(FactId::requests_behind_workers_mean).unwrap_or(0.0))
}

/// In which share of the time somebody waits for a disk: in the service's group, or on the machine, as a database has a group of its own.
pub(crate) fn disk_waits(facts: &Facts) -> Option<f64> {
    let pressure = [FactId::pressure_group_io_some_fraction, FactId::pressure_io_some_fraction];
    pressure.into_iter().filter_map(|fact| facts.value(fact)).reduce(f64::max)
}

/// How long a request takes alone, on average over all kinds of a load: what is measured is the slowest of several, and under load they
/// are as unlike as alone.
pub(crate) fn mean_time_alone_us(facts: &Facts) -> Option<f64> {
    let kinds =
        facts.value(FactId::response_time_mean_us).zip(facts.value(FactId::response_time_slowest_kind_us));
    let share = kinds.filter(|(_, slowest)| *slowest > 0.0).map_or(1.0, |(mean, slowest)| mean / slowest);
    facts.value(FactId::response_time_alone_us).map(|alone| alone * share.min(1.0))
}

/// Of all that ended, errors of the server: most of them.
const ERRORS_FRACTION_MIN: f64 = 0.5;

/// Whether most answers are errors that the server gives: whatever is full of making them is so because of what brings them
/// about.
pub(crate) fn is_mostly_errors(facts: &Facts) -> bool {
    errors_fraction(facts) >= ERRORS_FRACTION_MIN
}

/// The share of the answers that are errors of the server (429, 500, 502, 503), as far as they are known.
pub(crate) fn errors_fraction(facts: &Facts) -> f64 {
    let names =
        [FactId::server_error_fraction, FactId::bad_gateway_fraction, FactId::too_many_requests_fraction];
    let shares = names.map(|name| facts.value(name));
    shares.iter().flatten().sum::<f64>().min(1.0)
}

/// Whether most answers say that the backend was not to be had (502, 503): making those may fill the processors, and says
/// nothing of what the backend lacks.
pub(crate) fn is_mostly_refused(facts: &Facts) -> bool {
    facts.value(FactId::bad_gateway_fraction).is_some_and(|share| share >= ERRORS_FRACTION_MIN)
}

/// From this share of the full processors on what a program does with them decides what the finding is.
const MOST_FRACTION_MIN: f64 = 0.4;
/// Whether a program behind the server takes much of the processors and nobody saw what for: scans, threads, translating
/// scripts look like honest work from outside.
pub(crate) fn has_unexplained_cpu(facts: &Facts) -> bool {
    let takes_most = |cores: FactId| {
        let share = facts.value(cores).and_then(|cores| share_of_full_processors(facts, cores, 0.0));
        share.is_some_and(|share| share >= MOST_FRACTION_MIN)
    };
    let nobody_knows = facts.value(FactId::service_cpu_cores).is_none() && !targets(facts).is_empty();
    (takes_most(FactId::db_cpu_cores) && facts.value(FactId::db_rows_scanned_per_s).is_none())
        || (takes_most(FactId::fpm_cpu_cores) && facts.value(FactId::opcache_enabled).is_none())
        || nobody_knows
}

/// Where the configuration of the server says that it hands requests over: `unix:/run/php/fpm.sock`, `127.0.0.1:9000`, and
/// whether it speaks FastCGI there, as PHP-FPM does.
pub(crate) fn targets(facts: &Facts) -> Vec<(String, bool)> {
    facts.service.as_ref().map_or(vec![], targets_of)
}

/// Whether requests are handed over in FastCGI to who listens there.
pub(crate) fn is_fastcgi_target(facts: &Facts, listener: &str) -> bool {
    targets(facts).iter().any(|(at, is_fastcgi)| *is_fastcgi && leads_to(at, listener))
}

/// The setting that hands requests over to this address.
pub(crate) fn forwarding_setting<'a>(facts: &'a Facts, address: &str) -> Option<&'a ScopedSetting> {
    let mut all = facts.service.iter().flat_map(forwarding_settings);
    all.find(|setting| addresses(&setting.value).iter().any(|(at, _)| at == address))
}

/// Of these many who wait, so large a part must have a connection to what they may wait for.
const CONNECTED_FRACTION_MIN: f64 = 0.3;
/// More names than these say nothing.
const NAMED_MAX: usize = 3;

/// What so many workers or processes may be waiting for, as a part of a sentence: where the connections went that were open
/// when it was looked, and the functions in which PHP waits. Of a chain of programs its end.
pub(crate) fn wait_cause_text(facts: &Facts, waiting: f64) -> Option<String> {
    let links: Vec<&Link> = facts.topology.iter().flat_map(|topology| &topology.links).collect();
    let count = |link: &Link| link.connections_count.unwrap_or(0) as f64;
    let is_open = |link: &Link| count(link) >= CONNECTED_FRACTION_MIN * waiting && count(link) >= 1.0;
    let goes_on = |link: &Link| links.iter().any(|next| Some(next.from_pid) == link.to_pid && is_open(next));
    // A server that asks itself is told otherwise.
    let mut ends: Vec<&Link> = links.iter().copied().filter(|link| is_open(link) && !goes_on(link)).collect();
    ends.sort_by(|a, b| count(b).total_cmp(&count(a)).then(a.by.cmp(&b.by)));
    let name = |link: &&Link| {
        let name = link.to.as_ref().map_or(String::new(), |name| format!("{name} at "));
        format!("{} to {name}{}", count(link), link.by)
    };
    let named: Vec<String> = ends.iter().take(NAMED_MAX).map(name).collect();
    let connections = (!named.is_empty()).then(|| format!("open connections: {}", named.join(", ")));
    let functions =
        php_functions::text(facts, php_functions::WAITING).map(|told| format!("PHP waits: {told}"));
    let all: Vec<String> = connections.into_iter().chain(functions).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Workers that use a smaller part of a core each do not compute: they wait.
pub(crate) const WAITING_CORES_MAX: f64 = 0.2;
/// More failures: what workers did for clients that had gone is in no rate.
const FAILED_FRACTION_MAX: f64 = 0.05;
/// Workers that wait for nobody serve as many at once as there are; those that serve fewer than this share wait for each other.
const AT_ONCE_FRACTION_MIN: f64 = 0.5;

/// How many requests all workers serve at once, by a request that is alone (Little's law: rate times its time), where that is far
/// fewer than there are workers, all taken, and they do not compute: they wait for each other, or for something that serves
/// one after the other. More of them would wait for the same.
pub(crate) fn served_at_once_of_waiting(facts: &Facts, workers: f64, cores: Option<f64>) -> Option<f64> {
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction))?;
    let computes = cores.map_or(busy >= SITE_FRACTION_MIN, |cores| cores > WAITING_CORES_MAX * workers);
    let alone_us = facts.value(FactId::response_time_alone_us)?;
    let failed = facts.value(FactId::failed_fraction).is_none_or(|failed| failed > FAILED_FRACTION_MAX);
    let rate = facts.value(FactId::rate).filter(|_| facts.loaded && !computes && !failed)?;
    let at_once = rate * alone_us / 1e6;
    (workers >= 2.0 && at_once < AT_ONCE_FRACTION_MIN * workers).then_some(at_once)
}

/// A service that waits for a processor in less than this share of the time has what it needs of them,
const WAITS_FRACTION_MIN: f64 = 0.4;
/// as long as it does not fill most of them itself.
const MOST_OF_THEM: f64 = 0.6;

/// Whether the processors are full with the site's own work: then more of it at once only queues for a core. Where they
/// are full of other programs' work, those who hardly need one still get it.
pub(crate) fn is_cpu_bound(facts: &Facts) -> bool {
    let Some((busy, cores)) = processors(facts) else { return false };
    let share = facts.value(FactId::site_cpu_cores).zip(cores).map(|(site, cores)| site / cores);
    // Whether it waits for them says more, where it is known and the site's part is not most of it.
    let waits = facts.value(FactId::pressure_group_cpu_some_fraction);
    let hardly_waits = waits.is_some_and(|waits| waits < WAITS_FRACTION_MIN)
        && share.is_some_and(|share| share < MOST_OF_THEM);
    busy >= BUSY_FRACTION_MIN && share.is_none_or(|share| share >= SITE_FRACTION_MIN) && !hardly_waits
}

/// How busy the processors are that the service may use, and how many they are, where that is known.
fn processors(facts: &Facts) -> Option<(f64, Option<f64>)> {
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction))?;
    Some((
        busy,
        facts.value(FactId::usable_cores).or(facts.value(FactId::cores)).filter(|cores| *cores > 0.0),
    ))
}

/// The share of the busy processors that these cores are; `None` while the processors have room.
pub(crate) fn share_of_full_processors(facts: &Facts, cores_used: f64, busy_min: f64) -> Option<f64> {
    let is_full = |busy: f64| busy >= busy_min || is_full_in_bursts(facts);
    let (busy, cores) = processors(facts).filter(|(busy, _)| is_full(*busy))?;
    Some((cores_used / (busy * cores?)).min(1.0))
}

/// Of a mean in which processors that are full and processors that idle come to this, they are full most of the time.
const BUSY_IN_BURSTS_FRACTION_MIN: f64 = 0.65;
/// Somebody waits in so much of the time that it is busy, and so many at once, that no chance explains it (at random arrivals on
/// two cores that are 80% busy: in half of it, and two).
const WAIT_OF_BUSY_FRACTION_MIN: f64 = 0.9;
const RUN_QUEUE_PER_CORE_MIN: f64 = 4.0;
/// Where requests are known to take longer than alone, by so many times and so much, and queue nowhere else, less proves it (at
/// random arrivals on one core that is 65% busy somebody waits in two thirds of that). Whether the service waits only its group tells.
const BUSY_IN_STEP_FRACTION_MIN: f64 = 0.45;
const WAIT_OF_BUSY_IN_STEP_MIN: f64 = 0.8;
const SLOWER_IN_STEP_TIMES_MIN: f64 = 1.2;
const SLOWER_IN_STEP_US_MIN: f64 = 20_000.0;
const QUEUED_IN_STEP_MAX: f64 = 1.0;

/// Whether the processors are full whenever there is work, and work comes in bursts: users who share them are answered at
/// the same time, and then all pause together, or their pages do.
pub(crate) fn is_full_in_bursts(facts: &Facts) -> bool {
    let Some((busy, Some(cores))) = processors(facts) else { return false };
    let wait = facts
        .value(FactId::pressure_group_cpu_some_fraction)
        .or(facts.value(FactId::pressure_cpu_some_fraction));
    let waits_for = |share: f64| wait.is_some_and(|wait| wait >= share * busy);
    let is_crowded =
        facts.value(FactId::run_queue_mean).is_some_and(|queue| queue >= RUN_QUEUE_PER_CORE_MIN * cores);
    (busy >= BUSY_IN_BURSTS_FRACTION_MIN && waits_for(WAIT_OF_BUSY_FRACTION_MIN) && is_crowded)
        || is_slower_in_step(facts, busy)
}

/// Whether the users of a closed loop wait for each other at processors, and in no queue and for no lock: while those idle all pause at
/// once, for no longer than a request that is alone.
fn is_slower_in_step(facts: &Facts, busy: f64) -> bool {
    let waits = facts.value(FactId::pressure_group_cpu_some_fraction);
    let times = mean_time_alone_us(facts).zip(facts.value(FactId::response_time_mean_us));
    let locked = row_lock_waiting(facts).into_iter().chain(facts.value(FactId::lock_waiting_mean));
    facts.loaded
        && facts.value(FactId::offered_rate).is_none()
        && busy >= BUSY_IN_STEP_FRACTION_MIN
        && waits.is_some_and(|waits| waits >= WAIT_OF_BUSY_IN_STEP_MIN * busy)
        && requests_queued(facts) + locked.sum::<f64>() < QUEUED_IN_STEP_MAX
        && times.is_some_and(|(alone_us, usual_us)| {
            usual_us >= SLOWER_IN_STEP_TIMES_MIN * alone_us
                && usual_us - alone_us >= SLOWER_IN_STEP_US_MIN
                && alone_us >= (1.0 - busy) * usual_us
        })
}

/// The threads of the database that execute statements, without the one that answers this program's own question.
pub(crate) fn statements_running(facts: &Facts) -> Option<f64> {
    facts.value(FactId::db_threads_running_mean).map(|running| (running - 1.0).max(0.0))
}

/// Statements that wait for a row that another transaction holds: of the time that was waited, and of how many were seen
/// to wait, the larger. The time is counted when a wait ends, so that long ones show late.
pub(crate) fn row_lock_waiting(facts: &Facts) -> Option<f64> {
    let observed =
        [facts.value(FactId::db_row_lock_waiting_mean), facts.value(FactId::db_row_lock_time_fraction)];
    observed.into_iter().flatten().reduce(f64::max)
}

/// What the goal asks for, as a rate.
pub(crate) fn goal_rate(facts: &Facts) -> Option<f64> {
    facts.goal.and_then(|goal| match goal {
        Goal::Rate(rate) => Some(rate),
        _ => None,
    })
}

/// A rate with its 95% interval: the error of the arithmetic, and that of the measured rate that it starts from.
pub(crate) fn predicted(facts: &Facts, rate: f64, error: f64) -> Predicted {
    let rate = facts.value(FactId::offered_rate).map_or(rate, |offered| rate.min(offered));
    let error = error.hypot(facts.value(FactId::rate_ci95_fraction).unwrap_or(0.0));
    let bound = |sign: f64| significant((rate * (1.0 + sign * error)).max(0.0), 3);
    Predicted { rate: significant(rate, 3), ci95: [bound(-1.0), bound(1.0)] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, facts_of_several, of_pool, with_changes};
    use webdyno_model::service::ServiceSnapshot;
    use webdyno_model::topology::Topology;

    #[test]
    fn only_the_sites_own_work_fills_the_processors() {
        for (busy, site, full) in [(0.99, 1.6, true), (0.99, 0.2, false), (0.9, 1.6, false)] {
            let observed =
                [(FactId::cpu_busy_fraction, busy), (FactId::site_cpu_cores, site), (FactId::cores, 2.0)];
            assert_eq!(is_cpu_bound(&facts(&observed, &[])), full, "{busy} {site}");
        }
        assert!(is_cpu_bound(&facts(&[(FactId::cpu_busy_fraction, 0.99)], &[])));
    }

    #[test]
    fn no_more_are_worked_on_than_children_have_for_which_others_queue() {
        let share = |queue: f64| {
            let mut facts = facts(&[(FactId::in_flight_mean, 282.0)], &[]);
            let pool = [(FactId::fpm_queue_mean, queue), (FactId::fpm_processes_busy_mean, 48.0)];
            of_pool(&mut facts, "www", &pool);
            share_of_requests(&facts, 27.0)
        };
        assert_eq!(share(320.0), Some(27.0 / 48.0), "the queue counts those that were given up");
        assert_eq!(share(1.0), Some(27.0 / 281.0));
    }

    #[test]
    fn pages_that_pause_alike_wait_for_each_other_at_processors_that_idle_in_between() {
        let in_step = [
            (FactId::usable_busy_fraction, 0.58),
            (FactId::usable_cores, 2.0),
            (FactId::pressure_group_cpu_some_fraction, 0.5),
            (FactId::response_time_alone_us, 440_000.0),
            (FactId::response_time_mean_us, 650_000.0),
        ];
        let with = |changes: &[(FactId, f64)]| facts(&with_changes(&in_step, changes), &[]);
        assert_eq!(share_of_full_processors(&with(&[]), 0.87, 0.9), Some(0.75));
        let less = [
            (FactId::usable_busy_fraction, 0.5),
            (FactId::pressure_group_cpu_some_fraction, 0.43),
            (FactId::response_time_mean_us, 550_000.0),
        ];
        assert!(is_full_in_bursts(&with(&less)), "a quarter longer");
        for (what, changed) in [
            ("mostly idle", (FactId::usable_busy_fraction, 0.4)),
            ("waits by chance", (FactId::pressure_group_cpu_some_fraction, 0.35)),
            ("as alone", (FactId::response_time_mean_us, 500_000.0)),
            ("not known alone", (FactId::response_time_alone_us, f64::NAN)),
            ("a queue explains it", (FactId::accept_queue_mean, 5.0)),
            ("a lock", (FactId::lock_waiting_mean, 3.0)),
            ("a lock of rows", (FactId::db_row_lock_waiting_mean, 3.0)),
            ("more than all pauses while processors idle", (FactId::response_time_mean_us, 1_400_000.0)),
            ("a rate that clients decide", (FactId::offered_rate, 45.0)),
        ] {
            assert!(!is_full_in_bursts(&with(&[changed])), "{what}");
        }
        let few = [(FactId::response_time_alone_us, 1_000.0), (FactId::response_time_mean_us, 9_000.0)];
        assert!(!is_full_in_bursts(&with(&few)), "a few milliseconds");
        let mut watched = with(&[]);
        watched.loaded = false;
        assert!(!is_full_in_bursts(&watched));
    }

    #[test]
    fn what_queues_behind_the_server_is_counted_once_and_not_at_a_database() {
        let (fpm, app, database) = ("unix:/run/fpm.sock", "127.0.0.1:8000", "127.0.0.1:3306");
        for (fpm_queue, queues, expected) in [
            (0.0, &[(app, 30.0)][..], 34.0),
            (20.0, &[(fpm, 19.0)], 24.0),
            (20.0, &[(fpm, 20.0), (app, 5.0)], 29.0),
            (0.0, &[(database, 9.0)], 4.0),
        ] {
            let several: Vec<_> =
                queues.iter().map(|(at, queue)| (FactId::backend_queue_mean, *at, *queue)).collect();
            let several = [&several[..], &[(FactId::fpm_queue_mean, "www", fpm_queue)]].concat();
            let mut facts = facts_of_several(&[(FactId::accept_queue_mean, 4.0)], &several);
            let listens = |service: &str, at: &str| ServiceSnapshot {
                service: service.into(),
                pid: 7,
                listens: vec![at.into()],
                ..ServiceSnapshot::default()
            };
            let backends = vec![listens("mariadb", database), listens("unknown", app)];
            facts.topology = Some(Topology { backends, ..Topology::default() });
            assert_eq!(requests_queued(&facts), expected, "{fpm_queue} {queues:?}");
        }
    }

    #[test]
    fn what_is_waited_for_is_the_end_of_the_chain() {
        let link = |from_pid, to_pid: Option<u32>, to: &str, by: &str, count| Link {
            from_pid,
            to_pid,
            to: Some(to.to_owned()).filter(|to| !to.is_empty()),
            by: by.into(),
            connections_count: count,
        };
        let with = |links: &[Link], waiting| {
            let mut facts = facts(&[], &[]);
            facts.topology =
                Some(webdyno_model::topology::Topology { links: links.to_vec(), ..Default::default() });
            wait_cause_text(&facts, waiting)
        };
        let chain = [
            link(1, Some(2), "php_fpm", "unix:/run/x.sock", Some(25)),
            link(2, None, "", "10.0.0.2:80", Some(25)),
            link(2, Some(3), "mariadb", "unix:/run/d.sock", Some(1)),
        ];
        let open = "open connections: ";
        assert_eq!(with(&chain, 25.0), Some(format!("{open}25 to 10.0.0.2:80")));
        assert_eq!(with(&chain[..1], 25.0), Some(format!("{open}25 to php_fpm at unix:/run/x.sock")));
        assert_eq!(with(&chain[2..], 25.0), None, "one of them asks the database");
        assert_eq!(with(&[link(1, None, "", "10.0.0.2:80", None)], 25.0), None);
    }

    #[test]
    fn work_that_nobody_saw_is_not_taken_for_honest() {
        let observed =
            [(FactId::cpu_busy_fraction, 1.0), (FactId::cores, 2.0), (FactId::service_cpu_cores, 0.1)];
        let with = |more: &[(FactId, f64)]| has_unexplained_cpu(&facts(&[&observed[..], more].concat(), &[]));
        assert!(with(&[(FactId::db_cpu_cores, 1.5)]) && with(&[(FactId::fpm_cpu_cores, 1.5)]));
        assert!(!with(&[(FactId::db_cpu_cores, 1.5), (FactId::db_rows_scanned_per_s, 500.0)]));
        assert!(
            !with(&[(FactId::fpm_cpu_cores, 1.5), (FactId::opcache_enabled, 1.0)])
                && !with(&[(FactId::db_cpu_cores, 0.2)])
        );
    }

    #[test]
    fn the_own_question_is_no_work() {
        let running = |value| statements_running(&facts(&[(FactId::db_threads_running_mean, value)], &[]));
        assert_eq!([running(1.0), running(9.0), running(0.0)], [Some(0.0), Some(8.0), Some(0.0)]);
    }
}
