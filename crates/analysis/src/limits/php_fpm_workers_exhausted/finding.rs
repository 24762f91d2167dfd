//! When `php-fpm-workers-exhausted` is found, what proves it, and what to change.

use super::ID;
use crate::facts::Facts;
use crate::limits::memory_exhausted;
use crate::resources::{concurrency, setting_source};
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;

/// A queue below this share of what is under way costs nobody anything.
const QUEUE_FRACTION_MIN: f64 = 0.05;
/// The limit must be seen in at least this share of the readings: a burst is over in a second.
const SEEN_FRACTION_MIN: f64 = 0.5;
/// So many of a pool's processes are at work where all are: one is between two requests at times.
const ACTIVE_FRACTION_MIN: f64 = 0.9;
/// A pool that still grows has not reached its limit. It may end an idle process now and then.
const STANDS_FRACTION_MIN: f64 = 0.5;

/// Fires when requests wait for a process of a pool that may start no more.
pub fn check(facts: &Facts) -> Option<Finding> {
    if concurrency::waits_for_processors(facts) || memory_exhausted::finding::is_proven(facts) {
        return None;
    }
    let pools = facts.each("fpm_queue_mean").filter_map(|(pool, queue)| Pool::full(facts, pool, queue));
    let pool = pools.max_by(|a, b| a.queue.total_cmp(&b.queue));
    let pool = pool.or_else(|| Pool::from_outside(facts))?;
    let wait = facts.value("response_time_mean_us").zip(pool.explains(facts));
    let wait = wait.map_or(String::new(), |(response_us, share)| {
        format!(
            ", {} of {} that a request takes",
            crate::wording::format_time(response_us * share),
            crate::wording::format_time(response_us)
        )
    });
    let summary = format!(
        "PHP-FPM has no free process{}{}: {}, while {} requests on average wait for one{wait}.",
        if pool.is_address { " at " } else { " in pool " },
        pool.name,
        pool.words(),
        format_number(pool.queue),
    );
    let summary = format!("{summary}{}", meanwhile(facts, &pool));
    let mut cited = facts.cite_of(OF_POOL, pool.name);
    cited.extend(facts.cite_of(&["backend_queue_mean", "backend_waiting_fraction"], pool.name));
    cited.extend(facts.cite(OF_ALL));
    Some(Finding {
        id: ID.into(),
        summary,
        confidence: pool.confidence,
        explains_fraction: pool.explains(facts).map(|share| significant(share, 3)),
        facts: cited,
        remedies: super::remedy::remedies(facts, &pool),
    })
}

/// Processes that use less of a processor than this each do not compute: they wait.
const WAITING_CORES_MAX: f64 = 0.2;

/// What the processes wait for themselves, in a sentence, where that is known.
fn meanwhile(facts: &Facts, pool: &Pool<'_>) -> String {
    let Some(processes) = pool.processes else { return String::new() };
    let cores = facts.value("fpm_cpu_cores").filter(|cores| *cores <= WAITING_CORES_MAX * processes);
    let what = cores.and_then(|cores| Some((cores, concurrency::waits_for(facts, processes)?)));
    what.map_or(String::new(), |(cores, what)| {
        format!(
            " The processes use {} of a processor together: they wait for something themselves ({what}).",
            format_number(cores)
        )
    })
}

const OF_POOL: &[&str] = &[
    "fpm_queue_mean",
    "fpm_waiting_fraction",
    "fpm_processes_max",
    "fpm_processes_busy_mean",
    "fpm_active_mean",
    "fpm_full_fraction",
    "fpm_limit_reached",
    "fpm_limit_logged",
    "fpm_process_memory_bytes",
];
const OF_ALL: &[&str] = &[
    "in_flight_mean",
    "response_time_mean_us",
    "rate",
    "offered_rate",
    "cpu_busy_fraction",
    "site_cpu_cores",
];

/// A pool that is full.
pub(crate) struct Pool<'a> {
    pub(crate) name: &'a str,
    /// The pool of its settings: that of this name, or the one that listens at this address.
    pub(crate) set_as: String,
    pub(crate) queue: f64,
    /// `None` where nobody could count them.
    pub(crate) processes: Option<f64>,
    /// `pm.max_children`, where it is known.
    pub(crate) limit: Option<f64>,
    pub(crate) confidence: f64,
    pub(crate) told: bool,
    /// Whether its name is where it listens, as nobody saw more of it.
    pub(crate) is_address: bool,
}

impl<'a> Pool<'a> {
    fn full(facts: &Facts, name: &'a str, queue: f64) -> Option<Self> {
        let of = |fact: &str| facts.value_of(fact, name);
        let at_once = concurrency::at_once(facts);
        let is_noticed = at_once.is_none_or(|at_once| queue >= QUEUE_FRACTION_MIN * at_once);
        if queue < 1.0
            || !is_noticed
            || of("fpm_waiting_fraction").is_some_and(|share| share < SEEN_FRACTION_MIN)
        {
            return None;
        }
        let processes = of("fpm_processes_max");
        let limit = limit_of(facts, name);
        let told = ["fpm_limit_reached", "fpm_limit_logged"]
            .iter()
            .any(|fact| of(fact).is_some_and(|times| times >= 1.0));
        let at_limit = processes.zip(limit).map(|(processes, limit)| processes >= limit);
        let stands = of("fpm_at_most_fraction").map(|share| share >= STANDS_FRACTION_MIN);
        if !told && at_limit.or(stands) == Some(false) {
            return None;
        }
        // A status page is only answered by a process that has come free: it tells of the others that they were not.
        let active = of("fpm_active_mean").zip(of("fpm_processes_mean"));
        let active = active.map(|(active, all)| active >= ACTIVE_FRACTION_MIN * all);
        let is_busy = of("fpm_full_fraction").map(|share| share >= SEEN_FRACTION_MIN).or(active);
        let confidence = match is_busy {
            Some(true) => 0.95,
            None if told || at_limit == Some(true) => 0.8,
            _ => 0.7,
        };
        let (processes, set_as) = (processes.or(limit), name.to_owned());
        Some(Self { name, set_as, queue, processes, limit, confidence, told, is_address: false })
    }

    /// The view from outside where the pools could not be read: what waits at a socket to which the server hands requests
    /// over in FastCGI. A free process would have taken it.
    fn from_outside(facts: &'a Facts) -> Option<Self> {
        if facts.each("fpm_queue_mean").next().is_some() {
            return None;
        }
        let targets = concurrency::targets(facts);
        let is_fastcgi = |at: &str| targets.iter().any(|(address, fastcgi)| *fastcgi && address == at);
        let queues = facts.each("backend_queue_mean").filter(|(at, _)| is_fastcgi(at));
        let (name, queue) = queues.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let at_once = concurrency::at_once(facts);
        let is_noticed = at_once.is_none_or(|at_once| queue >= QUEUE_FRACTION_MIN * at_once);
        let waits =
            facts.value_of("backend_waiting_fraction", name).is_some_and(|share| share >= SEEN_FRACTION_MIN);
        // One of them only leads the others.
        let processes = facts.value("fpm_program_processes").map(|all| all - 1.0).filter(|all| *all >= 1.0);
        let pool = setting_source::pool_at(facts, name);
        let limit = pool.as_ref().and_then(|pool| limit_of(facts, pool));
        let (processes, set_as) = (limit.or(processes), pool.unwrap_or_default());
        let (confidence, told, is_address) = (0.75, false, true);
        let found = Self { name, set_as, queue, processes, limit, confidence, told, is_address };
        (queue >= 1.0 && is_noticed && waits).then_some(found)
    }

    fn words(&self) -> String {
        let all = match (self.limit, self.processes) {
            (Some(limit), _) => format!("all {} that pm.max_children allows are busy", format_number(limit)),
            (None, Some(seen)) => format!("all {} are busy and no more are started", format_number(seen)),
            (None, None) => "none takes what waits at its socket".to_owned(),
        };
        format!("{all}{}", if self.told { " (its log says so, too)" } else { "" })
    }

    /// By Little's law what stands in the queue is the share of the time that is spent there.
    fn explains(&self, facts: &Facts) -> Option<f64> {
        concurrency::at_once(facts).map(|at_once| (self.queue / at_once).min(1.0))
    }
}

/// How many processes a pool may have, as its files say.
fn limit_of(facts: &Facts, pool: &str) -> Option<f64> {
    setting_source::of_pool(facts, pool, "pm.max_children")?.number()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool};
    use crate::resources::php_fpm::tests::behind;
    use webdyno_model::service::SettingValue;

    pub(crate) const FULL: &[(&str, f64)] = &[
        ("fpm_queue_mean", 35.0),
        ("fpm_waiting_fraction", 1.0),
        ("fpm_processes_max", 5.0),
        ("fpm_processes_mean", 5.0),
        ("fpm_processes_busy_mean", 5.0),
        ("fpm_full_fraction", 1.0),
        ("fpm_at_most_fraction", 1.0),
        ("fpm_process_memory_bytes", 3e6),
    ];
    pub(crate) const LOAD: &[(&str, f64)] = &[
        ("in_flight_mean", 40.0),
        ("rate", 33.0),
        ("response_time_mean_us", 1_200_000.0),
        ("cpu_busy_fraction", 0.2),
        ("cores", 2.0),
    ];

    pub(crate) fn with(changes: &[(&str, f64)], load: &[(&str, f64)]) -> Option<Finding> {
        let mut facts = facts(&merged(LOAD, load), &[]);
        of_pool(&mut facts, "www", &merged(FULL, changes));
        check(&facts)
    }

    pub(crate) fn merged<'a>(base: &[(&'a str, f64)], changes: &[(&'a str, f64)]) -> Vec<(&'a str, f64)> {
        let kept = base.iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        kept.chain(changes).filter(|(_, value)| value.is_finite()).copied().collect()
    }

    #[test]
    fn it_is_as_sure_as_what_is_seen() {
        let nan = f64::NAN;
        for (changes, sure) in [
            (vec![], Some(0.95)),
            (vec![("fpm_full_fraction", nan)], Some(0.7)),
            (vec![("fpm_full_fraction", nan), ("fpm_limit_logged", 1.0)], Some(0.8)),
            (
                vec![("fpm_full_fraction", nan), ("fpm_processes_max", nan), ("fpm_at_most_fraction", nan)],
                Some(0.7),
            ),
            (vec![("fpm_full_fraction", nan), ("fpm_active_mean", 4.8)], Some(0.95)),
            (vec![("fpm_at_most_fraction", 0.3)], None),
            (vec![("fpm_at_most_fraction", 0.3), ("fpm_limit_reached", 1.0)], Some(0.95)),
            (vec![("fpm_queue_mean", 0.4)], None),
            (vec![("fpm_queue_mean", 1.5)], None),
            (vec![("fpm_waiting_fraction", 0.2)], None),
        ] {
            let found = with(&changes, &[]).map(|finding| finding.confidence);
            assert_eq!(found, sure, "{changes:?}");
        }
    }

    #[test]
    fn processes_that_wait_for_a_core_or_for_memory_are_not_the_limit() {
        assert!(with(&[], &[("cpu_busy_fraction", 0.99), ("site_cpu_cores", 1.7)]).is_none());
        assert!(with(&[], &[("cpu_busy_fraction", 0.99), ("site_cpu_cores", 0.1)]).is_some());
        assert!(
            with(&[], &[("pressure_memory_full_fraction", 0.4), ("swapped_in_pages_per_s", 900.0)]).is_none()
        );
    }

    #[test]
    fn the_queue_of_its_socket_is_seen_from_outside() {
        let outside = |handler: &str, limit: Option<&str>| {
            let mut facts = facts(LOAD, &[]);
            if let Some(limit) = limit {
                behind(&mut facts, &[], &[("www", "pm.max_children", limit)]);
            }
            let handler = webdyno_model::service::ScopedSetting {
                setting: "SetHandler".into(),
                value: handler.into(),
                ..Default::default()
            };
            facts.service.as_mut().unwrap().scoped = vec![handler];
            let seen = [("backend_queue_mean", 35.0), ("backend_waiting_fraction", 1.0)];
            of_pool(&mut facts, "unix:/run/x.sock", &seen);
            check(&facts)
        };
        let finding = outside("unix:/run/x.sock|fcgi://localhost", None).unwrap();
        assert_eq!(finding.confidence, 0.75);
        assert!(finding.summary.contains("no free process at unix:/run/x.sock"), "{}", finding.summary);
        assert!(outside("unix:/run/x.sock|http://localhost", None).is_none());
        // Its files can be read where its processes cannot.
        let finding = outside("unix:/run/x.sock|fcgi://localhost", Some("5")).unwrap();
        assert!(finding.summary.contains("all 5 that pm.max_children allows"), "{}", finding.summary);
        assert_eq!(finding.remedies[0].from, Some(SettingValue::Integer(5)));
    }

    #[test]
    fn it_says_which_pool_and_how_long_the_wait_is() {
        let finding = with(&[], &[]).unwrap();
        assert_eq!(finding.explains_fraction, Some(0.875));
        for part in ["pool www", "all 5 are busy", "35 requests on average", "1.05 s of 1.2 s"] {
            assert!(finding.summary.contains(part), "{}", finding.summary);
        }
    }
}
