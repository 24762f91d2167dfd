//! Whether processors are what the service lacks, and who has them: shared by several rules.
//!
//! Those count that the service may use, not the machine's. That they are busy proves nothing by itself: somebody else's work
//! of low priority fills them too. What proves it is that the service waits for one: pressure stall information of its
//! control group (Documentation/accounting/psi.rst), or more of its processes that want to run than do.

mod consumers;

pub(crate) use consumers::{
    DATABASES, NAMED_FRACTION_MIN, POSTGRES, late_database, may_be_own, services_cores, silent_database,
    unread_mariadb_cores, unseen_database, unseen_database_from,
};
pub use consumers::{OtherProcesses, other_processes, own_cores, users};

use crate::facts::{FactId, Facts, fact_ids};
use crate::resources::concurrency::{is_full_in_bursts, requests_in_flight, targets};
use crate::resources::time_breakdown::{keeps_up, noticed_queue};
use crate::resources::utilisation::rate;
use crate::settings::backends;

/// What takes so much of full processors is what they are full with.
pub(crate) const MOST_FRACTION_MIN: f64 = 0.6;
/// What is believed of others where a database takes most, and nobody sees for whom.
pub(crate) const CONFIDENCE_BEHIND_DATABASE: f64 = 0.4;

/// From this share on processors are full: between a process that ends its turn and the next one there are always gaps, and
/// where the generator shares the cores it is waited for at times.
const BUSY_FRACTION_MIN: f64 = 0.85;
/// In this share of the time somebody waits for a processor. Chance does that too: at random arrivals on two cores that are
/// 80% busy, in a little more than half of the time.
const WAIT_FRACTION_MIN: f64 = 0.5;
/// At rates that clients decide, processors that are this busy and keep up have little room, but have it.
const BUSY_FRACTION_KEPT_UP: f64 = 0.95;
/// This many more processes of the service want to run than do; of many that run, this share: readings that meet them differ by chance.
const RUNNABLE_SPARE: f64 = 1.0;
const RUNNABLE_SPARE_FRACTION: f64 = 0.1;
/// Where only the machine's figures are known, the service must use this share of the processors to be who waits.
const OWN_FRACTION_MIN: f64 = 0.5;

/// A service with less than this share of the processors leaves nearly all to others.
const OWN_FRACTION_SMALL: f64 = 0.25;
/// Answers that wait for a processor wait for whole turns of others: they take several times as long as those that do not.
const INFLATION_SMALL: f64 = 1.5;

/// That processors are short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuShortage {
    /// Cores that the service may use.
    pub usable: f64,
    /// How busy they were.
    pub busy: f64,
    /// In which share of the time somebody waited for one, where that is known.
    pub wait: Option<f64>,
    /// How sure it is.
    pub confidence: f64,
}

/// That the service waits for processors, all that it may use being busy; `None` when it does not, or it is not proven.
pub fn cpu_shortage(facts: &Facts) -> Option<CpuShortage> {
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction))?;
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores))?;
    let has_room = busy < BUSY_FRACTION_KEPT_UP && keeps_up(facts) == Some(true);
    let is_full = busy >= BUSY_FRACTION_MIN || is_full_in_bursts(facts);
    if !is_full || has_room || are_others_short(facts, usable) || do_requests_lack_more(facts, usable) {
        return None;
    }
    // A program with a thread for each processor queues its work itself: nobody waits for a processor then.
    let (wait, confidence) = waits(facts, usable)
        .or_else(|| is_filled_by_itself(facts, usable, busy).then_some((None, CONFIDENCE_FILLED)))?;
    Some(CpuShortage { usable, busy, wait, confidence })
}

/// Nearly all of the processors: what else runs has no use for more of them.
const OWN_FRACTION_ALL: f64 = 0.92;
/// Most of them, where the generator on the same machine has the rest; or half of them, where the service waits at times and the generator
/// is not late.
const OWN_FRACTION_MOST: f64 = 0.75;
const WAIT_FRACTION_SHARED: f64 = 0.2;
const CONFIDENCE_FILLED: f64 = 0.8;

/// The share of the time in which the service waits for a processor where it, and who waits beside it, fill all of them.
const WAIT_FRACTION_SOME: f64 = 0.3;

/// Whether the service fills the processors: they are short, or full by its work, and it waits for one in less than half of the time.
pub fn are_filled_by_service(facts: &Facts, generator_cores: f64) -> bool {
    let Some(own) = own_cores(facts).filter(|own| *own >= generator_cores) else { return false };
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores));
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction));
    let is_full = usable
        .zip(busy)
        .is_some_and(|(usable, busy)| busy >= BUSY_FRACTION_KEPT_UP && own >= OWN_FRACTION_MIN * usable);
    let waits = facts.value(FactId::pressure_group_cpu_some_fraction);
    are_short(facts) || (is_full && waits.is_some_and(|wait| wait >= WAIT_FRACTION_SOME))
}

/// Whether the service has nearly all of the processors (of full ones, of what they do), or most, and the generator on the same machine
/// has the rest.
fn is_filled_by_itself(facts: &Facts, usable: f64, busy: f64) -> bool {
    let Some(own) = own_cores(facts) else { return false };
    let usable = if busy >= BUSY_FRACTION_KEPT_UP { usable * busy.min(1.0) } else { usable };
    let generator = facts.value(FactId::client_cpu_cores);
    let waits = facts.value(FactId::pressure_group_cpu_some_fraction);
    let shares = waits.is_some_and(|waits| waits >= WAIT_FRACTION_SHARED)
        && own >= OWN_FRACTION_MIN * usable
        && !facts.generator_is_late;
    // One that is not seen from here may run elsewhere: then other programs, which are seen, would have the rest.
    let foreign = facts.value(FactId::foreign_cpu_cores);
    let unseen = facts
        .value(FactId::generator_cpu_cores)
        .filter(|_| shares && foreign.is_some_and(|foreign| foreign < OTHERS_FRACTION_MIN * usable));
    let with_generator = own + generator.or(unseen).unwrap_or(0.0);
    own >= OWN_FRACTION_ALL * usable
        || ((shares || own >= OWN_FRACTION_MOST * usable) && with_generator >= OWN_FRACTION_ALL * usable)
}

/// Whether others fill the processors and wait for each other, and not the service: it uses a small part of them, answers all
/// that clients ask for at their rate, and no answer takes much longer than the quick ones. Its control group may be theirs, too.
pub fn are_others_short(facts: &Facts, usable: f64) -> bool {
    let own = own_cores(facts).is_some_and(|own| own < OWN_FRACTION_SMALL * usable);
    let quick = facts.value(FactId::response_time_inflation).is_some_and(|ratio| ratio <= INFLATION_SMALL)
        && facts.value(FactId::failed_fraction) == Some(0.0);
    own && quick && keeps_up(facts) == Some(true)
}

/// Other programs with less than this share of the processors are not why the service lacks them;
pub(crate) const OTHERS_FRACTION_MIN: f64 = 0.2;
/// and where a request is at a processor, or waits for one, in less than this share of the time for which it holds a worker of an
/// exhausted pool, it is not processors that the pool lacks.
const AT_PROCESSORS_FRACTION_MIN: f64 = 0.3;

/// Where no pool is exhausted it is a smaller share, and for so many requests there is a task that could run, or fewer.
const AT_PROCESSORS_FRACTION_SMALL: f64 = 0.05;
const TASKS_FOR_EACH_REQUEST_MAX: f64 = 0.3;
const RUNNING_MAX: f64 = 0.5;

/// Whether other programs fill the processors, and requests mostly wait for something else: in workers that they queue for (with
/// so many of them some always wait for a processor, and each for a small part of its time), or in no queue.
pub(crate) fn do_requests_lack_more(facts: &Facts, usable: f64) -> bool {
    let Some(others) = other_processes(facts).filter(|others| others.cores >= OTHERS_FRACTION_MIN * usable)
    else {
        return false;
    };
    match held_of_exhausted_pool_us(facts) {
        Some(us) => at_processors_us(facts).is_some_and(|at| at / us < AT_PROCESSORS_FRACTION_MIN),
        None => are_hardly_at_processors(facts) && !may_be_own(facts, &others),
    }
}

/// Whether requests are hardly ever at a processor, nor wait for one: by their own time, and by who could run.
fn are_hardly_at_processors(facts: &Facts) -> bool {
    let is_below = |fact: FactId, most: f64| facts.value(fact).is_some_and(|value| value < most);
    let tasks = requests_in_flight(facts).map(|requests| TASKS_FOR_EACH_REQUEST_MAX * requests);
    share_at_processors(facts).is_some_and(|share| share < AT_PROCESSORS_FRACTION_SMALL)
        && tasks.is_some_and(|tasks| is_below(FactId::run_queue_mean, tasks))
        && is_below(FactId::service_running_mean, RUNNING_MAX)
}

/// The share of a request's time in a worker of an exhausted pool, or of its response time where no pool is, in which it is at a
/// processor or waits for one.
pub(crate) fn share_at_processors(facts: &Facts) -> Option<f64> {
    let whole_us = held_of_exhausted_pool_us(facts)
        .or(facts.value(FactId::response_time_mean_us))
        .filter(|us| *us > 0.0)?;
    at_processors_us(facts).map(|at| (at / whole_us).min(1.0))
}

/// What a request takes of processors, and as much longer as there are tasks for each: the kernel shares fairly. In microseconds.
fn at_processors_us(facts: &Facts) -> Option<f64> {
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores))?;
    let tasks_for_each = (facts.value(FactId::run_queue_mean)? / usable).max(1.0);
    Some(own_cores(facts)? / facts.ended_per_s()? * 1e6 * tasks_for_each)
}

/// For how long a request holds a worker of the pool that is exhausted, where it is known that the workers wait for each other in
/// nothing behind them that may itself lack a processor. In microseconds.
fn held_of_exhausted_pool_us(facts: &Facts) -> Option<f64> {
    let is_local = |at: &str| {
        let is_known = facts.topology.as_ref().is_some_and(|all| backends::listening_at(all, at).is_some());
        is_known || ["127.", "[::1]"].iter().any(|loopback| at.starts_with(loopback))
    };
    if facts.each(FactId::upstream_waiting_mean).any(|(at, waiting)| waiting >= 1.0 && is_local(at)) {
        return None;
    }
    let full = facts.each(FactId::fpm_queue_mean).filter(|(_, queue)| *queue >= 1.0);
    let busy = full.filter_map(|(pool, _)| facts.value_of(FactId::fpm_processes_busy_mean, pool));
    let children = busy.reduce(|all, of_pool| all + of_pool);
    let of_apache = || {
        let is_last = targets(facts).is_empty();
        facts.value(FactId::worker_time_mean_us).filter(|_| is_last && noticed_queue(facts).is_some())
    };
    match children {
        Some(busy) => Some(busy / facts.ended_per_s()? * 1e6),
        None => of_apache(),
    }
}

/// Tasks of the service that are ready beyond those that run, and cores that idle meanwhile; where there are many, shares of them: full
/// cores have gaps, too.
const HELD_TASKS_MIN: f64 = 1.5;
const HELD_TASKS_FRACTION_MIN: f64 = 0.25;
const HELD_IDLE_CORES_MIN: f64 = 0.4;
const HELD_IDLE_FRACTION_MIN: f64 = 0.05;

/// Whether tasks of the service are ready to run and do not, while cores are idle: a quota or a choice of cores holds them back
/// that cannot be read from here. How many are ready, and how many cores idle.
pub(crate) fn held_back(facts: &Facts) -> Option<(f64, f64)> {
    let is_read =
        [FactId::group_cpu_cores, FactId::cpu_quota_cores, FactId::pressure_group_cpu_some_fraction];
    let own = facts.value(FactId::service_cpu_cores)?;
    let held_min = HELD_TASKS_MIN.max(HELD_TASKS_FRACTION_MIN * own);
    let ready = facts.value(FactId::service_running_mean).filter(|ready| *ready >= own + held_min)?;
    // Of the cores that it is known to be bound to: that others are idle is no secret then.
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores))?;
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction))?;
    let idle = usable * (1.0 - busy);
    let waits =
        facts.value(FactId::pressure_cpu_some_fraction).is_none_or(|waits| waits >= WAIT_FRACTION_MIN);
    let is_hidden = is_read.into_iter().all(|fact| facts.value(fact).is_none());
    let idle_min = HELD_IDLE_CORES_MIN.max(HELD_IDLE_FRACTION_MIN * usable);
    (is_hidden && waits && idle >= idle_min).then_some((ready, idle))
}

/// A group that is stopped in so many of its periods, and uses so much of its quota, has used it up.
const STOPPED_FRACTION_MIN: f64 = 0.5;
const USED_UP_FRACTION_MIN: f64 = 0.8;

/// The quota of the service's group, in cores, where it is used up: what the group may use is full then, however idle the machine is.
pub(crate) fn used_up_quota(facts: &Facts) -> Option<f64> {
    let quota = facts.value(FactId::cpu_quota_cores).filter(|quota| *quota > 0.0)?;
    let is_stopped =
        facts.value(FactId::throttled_fraction).is_some_and(|share| share >= STOPPED_FRACTION_MIN);
    let used = facts.value(FactId::group_cpu_cores);
    (is_stopped && used.is_none_or(|used| used >= USED_UP_FRACTION_MIN * quota)).then_some(quota)
}

/// Whether processors are known to be what is short: nothing else that is full is then the limit.
pub fn are_short(facts: &Facts) -> bool {
    cpu_shortage(facts).is_some_and(|shortage| shortage.confidence > 0.5)
}

/// In which share of the time the service waits for a processor, and how sure that is.
fn waits(facts: &Facts, usable: f64) -> Option<(Option<f64>, f64)> {
    if let Some(wait) = facts.value(FactId::pressure_group_cpu_some_fraction) {
        return (wait >= WAIT_FRACTION_MIN).then_some((Some(wait), 0.9));
    }
    let running = facts.value(FactId::service_running_mean).zip(facts.value(FactId::service_cpu_cores));
    let runnable = running
        .is_some_and(|(running, own)| running >= own + RUNNABLE_SPARE.max(RUNNABLE_SPARE_FRACTION * own));
    // Figures of the whole machine: others may be who waits.
    let machine = facts.value(FactId::pressure_cpu_some_fraction);
    if machine.is_some_and(|wait| wait < WAIT_FRACTION_MIN) {
        return None;
    }
    let own = own_cores(facts).map(|own| own >= OWN_FRACTION_MIN * usable);
    let queued = facts.value(FactId::run_queue_mean).is_some_and(|queue| queue > usable + RUNNABLE_SPARE);
    match (machine, runnable, own) {
        (Some(_), true, _) | (Some(_), _, Some(true)) => Some((machine, 0.8)),
        (None, true, _) => Some((None, 0.7)),
        (None, false, Some(true)) if queued => Some((None, 0.6)),
        // Somebody waits: whether it is the service, nobody could see.
        (Some(_), false, None) => Some((machine, 0.5)),
        (None, false, None) if queued => Some((None, 0.5)),
        _ => None,
    }
}

/// The names of the facts that all this rests on.
pub const FACTS: [FactId; 16] = fact_ids! {
    usable_busy_fraction, usable_cores, cpu_busy_fraction, cores, pressure_group_cpu_some_fraction,
    pressure_cpu_some_fraction, service_running_mean, run_queue_mean, service_cpu_cores, backend_cpu_cores,
    client_cpu_cores, generator_cpu_cores, group_cpu_cores, foreign_cpu_cores, foreign_program_cpu_cores,
    cpu_steal_fraction,
};

/// Of less than this share nobody can say how it grows: a part of it is there without any request.
pub(crate) const USED_FRACTION_MIN: f64 = 0.05;

/// The rate at which this share of the processors would be busy. Where it is known who uses them, only the services'
/// and the generator's time grows with the rate; what everybody else uses stays as it is, and what runs at a low priority
/// gives way.
pub(crate) fn rate_at_cpu(facts: &Facts, share: f64) -> Option<f64> {
    let busy = facts.value(FactId::cpu_busy_fraction).filter(|busy| *busy >= USED_FRACTION_MIN)?;
    let cores = facts.value(FactId::cores);
    let per_s = facts.ended_per_s().or_else(|| rate(facts))?;
    let client = facts.value(FactId::client_cpu_cores).unwrap_or(0.0);
    let known = services_cores(facts).zip(cores).map(|(services, cores)| (services + client) / cores);
    // Where nobody knows whose time it is, all of it is charged to the requests.
    let own = known.map_or(busy, |own| own.min(busy));
    (own >= USED_FRACTION_MIN).then_some(())?;
    let yielding =
        facts.value(FactId::ahead_yielding_cpu_cores).zip(cores).map_or(0.0, |(nice, cores)| nice / cores);
    let others = (busy - own - yielding).max(0.0);
    let room = (share - others).max(0.0);
    Some(per_s * room / own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool};

    const BUSY: [(FactId, f64); 4] = [
        (FactId::usable_busy_fraction, 0.97),
        (FactId::usable_cores, 1.0),
        (FactId::cores, 2.0),
        (FactId::service_cpu_cores, 0.85),
    ];

    fn confidence(more: &[(FactId, f64)]) -> Option<f64> {
        let mut values: Vec<_> =
            BUSY.into_iter().filter(|(name, _)| more.iter().all(|(other, _)| other != name)).collect();
        values.extend(more);
        cpu_shortage(&facts(&values, &[])).map(|shortage| shortage.confidence)
    }

    /// The service has these cores, the generator those, and the service waits in this share of the time.
    fn shared(service: f64, generator: f64, waits: f64) -> [(FactId, f64); 3] {
        [
            (FactId::service_cpu_cores, service),
            (FactId::client_cpu_cores, generator),
            (FactId::pressure_group_cpu_some_fraction, waits),
        ]
    }

    /// The same with a generator that is not seen from here, and so much of others.
    fn shared_with_unseen(foreign: f64) -> [(FactId, f64); 5] {
        let [service, (_, generator), waits] = shared(0.55, 0.4, 0.25);
        // What a namespace hides is not in the count of others.
        let others = (FactId::foreign_cpu_cores, foreign);
        [service, (FactId::generator_cpu_cores, generator), waits, others, (FactId::cpu_busy_fraction, 0.97)]
    }

    #[test]
    fn the_service_must_wait_and_its_group_says_best_whether_it_does() {
        for (more, expected) in [
            (&[(FactId::pressure_group_cpu_some_fraction, 0.9)][..], Some(0.9)),
            (
                &[
                    (FactId::pressure_group_cpu_some_fraction, 0.08),
                    (FactId::pressure_cpu_some_fraction, 1.0),
                ],
                None,
            ),
            (&[(FactId::pressure_cpu_some_fraction, 0.9)], Some(0.8)),
            (&[(FactId::pressure_cpu_some_fraction, 0.9), (FactId::service_cpu_cores, 0.1)], None),
            (&[(FactId::pressure_cpu_some_fraction, 0.2), (FactId::service_running_mean, 9.0)], None),
            (&[(FactId::service_running_mean, 9.0)], Some(0.7)),
            (&[(FactId::service_running_mean, 1.0)], None),
            (&[(FactId::run_queue_mean, 9.0)], Some(0.6)),
            (&[(FactId::run_queue_mean, 9.0), (FactId::service_cpu_cores, 0.1)], None),
            (&[(FactId::usable_busy_fraction, 0.7), (FactId::pressure_group_cpu_some_fraction, 0.9)], None),
            (&[], None),
            (
                &[(FactId::pressure_group_cpu_some_fraction, 0.08), (FactId::service_cpu_cores, 0.95)],
                Some(0.8),
            ),
            // The generator has the rest.
            (&shared(0.55, 0.4, 0.25), Some(0.8)),
            (&shared(0.55, 0.4, 0.1), None),
            (&shared(0.8, 0.15, 0.1), Some(0.8)),
            (&shared(0.55, 0.3, 0.25), None),
            (&shared(0.45, 0.5, 0.25), None),
            (&shared_with_unseen(0.02), Some(0.8)),
            (&shared_with_unseen(0.8), None),
            // Nearly all of what a full core did.
            (
                &[(FactId::pressure_group_cpu_some_fraction, 0.08), (FactId::service_cpu_cores, 0.9)],
                Some(0.8),
            ),
        ] {
            assert_eq!(confidence(more), expected, "{more:?}");
        }
    }

    #[test]
    fn of_many_cores_a_task_that_waits_and_a_gap_are_chance() {
        let of = |running: f64, busy: f64| {
            let values = [
                (FactId::cores, 64.0),
                (FactId::cpu_busy_fraction, busy),
                (FactId::service_cpu_cores, 55.0),
                (FactId::service_running_mean, running),
            ];
            let facts = facts(&values, &[]);
            (cpu_shortage(&facts).is_some(), held_back(&facts).is_some())
        };
        assert_eq!(of(57.0, 0.87), (false, false), "one in sixty");
        assert_eq!(of(120.0, 0.99), (true, false), "full cores have gaps");
        assert!(of(120.0, 0.87).1);
    }

    #[test]
    fn a_server_that_answers_all_that_comes_has_room_up_to_the_end() {
        for (busy, rate, is_short) in [(0.9, 100.0, false), (0.9, 80.0, true), (0.99, 100.0, true)] {
            let seen = [
                (FactId::usable_busy_fraction, busy),
                (FactId::pressure_group_cpu_some_fraction, 0.8),
                (FactId::rate, rate),
                (FactId::offered_rate, 100.0),
            ];
            assert_eq!(confidence(&seen).is_some(), is_short, "{busy} at {rate}");
        }
    }

    #[test]
    fn workers_that_sleep_lack_no_processors_that_others_fill() {
        // 5 children for 150 ms each, 33 a second; a request takes 5 ms of processor time, and 4 tasks share each core.
        let seen = [
            (FactId::usable_busy_fraction, 1.0),
            (FactId::usable_cores, 2.0),
            (FactId::cores, 2.0),
            (FactId::pressure_group_cpu_some_fraction, 0.9),
            (FactId::service_cpu_cores, 0.165),
            (FactId::foreign_cpu_cores, 1.8),
            (FactId::run_queue_mean, 8.0),
            (FactId::rate, 33.0),
            (FactId::response_time_mean_us, 1_200_000.0),
        ];
        let with = |changes: &[(FactId, f64)], queue: f64, upstream: &str| {
            let mut seen = facts(&crate::facts::testing::with_changes(&seen, changes), &[]);
            let pool = [(FactId::fpm_queue_mean, queue), (FactId::fpm_processes_busy_mean, 5.0)];
            of_pool(&mut seen, "www", &pool);
            of_pool(&mut seen, upstream, &[(FactId::upstream_waiting_mean, 4.0)]);
            cpu_shortage(&seen).is_some()
        };
        const ELSEWHERE: &str = "10.0.0.7:80";
        assert!(!with(&[], 35.0, ELSEWHERE));
        for (name, changes, queue) in [
            ("no queue", vec![], 0.0),
            ("they compute", vec![(FactId::service_cpu_cores, 0.6)], 35.0),
            ("long turns of many", vec![(FactId::run_queue_mean, 26.0)], 35.0),
            ("it is their own work", vec![(FactId::foreign_cpu_cores, 0.1)], 35.0),
        ] {
            assert!(with(&changes, queue, ELSEWHERE), "{name}");
        }
        assert!(with(&[], 35.0, "127.0.0.1:8000"), "what they wait for may lack them");
    }

    #[test]
    fn answers_that_are_held_lack_no_processors_that_others_fill() {
        // 42 answers a second of a file that takes 0.7 ms, each held for a second.
        let seen = [
            (FactId::usable_busy_fraction, 1.0),
            (FactId::usable_cores, 2.0),
            (FactId::pressure_group_cpu_some_fraction, 0.54),
            (FactId::service_cpu_cores, 0.03),
            (FactId::service_running_mean, 0.0),
            (FactId::foreign_cpu_cores, 1.95),
            (FactId::run_queue_mean, 4.7),
            (FactId::in_flight_mean, 42.0),
            (FactId::rate, 42.0),
            (FactId::response_time_mean_us, 1_000_000.0),
        ];
        for (changes, is_short) in [
            (&[][..], false),
            (&[(FactId::service_running_mean, 3.0)], true),
            (&[(FactId::run_queue_mean, 40.0)], true),
            (&[(FactId::service_cpu_cores, 1.2)], true),
            (&[(FactId::response_time_mean_us, 20_000.0)], true),
        ] {
            let seen = facts(&crate::facts::testing::with_changes(&seen, changes), &[]);
            assert_eq!(cpu_shortage(&seen).is_some(), is_short, "{changes:?}");
        }
    }
}
