//! PHP-FPM's pools: what they say of themselves, and what is seen of them from outside.
//!
//! Facts: <https://www.php.net/manual/en/fpm.status.php>, sock_diag(7), proc_pid_smaps(5). A pool answers for its status with
//! one of its children, so when all are busy there is no answer: the queue of its socket, its processes and what they wait
//! for are then what can be seen. With `pm.status_listen` (PHP 8.0) it is asked there, and always answers.
//!
//! A request for the status counts as one of the accepted connections, and stands in the pool's access log.

use crate::collectors::monotonic_counter::MonotonicCounter;
use crate::collectors::services::scripts::{self, Running};
use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::visibility::process_view::{self, Root};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use webdyno_model::service::{Endpoint, ServiceSnapshot, SettingScope};

mod children;
mod log;
mod queue;
mod status;

use children::Children;
use queue::Queues;
use status::{PollResult, Status, StatusPoller};

/// How long a reading waits for the pools to answer.
const WAIT: Duration = Duration::from_millis(700);

/// The most pools that are read: some 20 values of each go to the event log every second.
const POOLS_MAX: usize = 8;

/// Of more processes the page is not asked in full: some 450 bytes of each.
const IN_FULL_MAX: u64 = 256;

const SCRIPTS: &str = "php_scripts.*.running_count";

/// Readings after which it is looked anew which pools have the most children.
const CHOSEN_FOR_COUNT: u64 = 60;

/// What is kept of one FPM.
#[derive(Debug)]
struct Master {
    root: Root,
    children: Children,
    log: log::Log,
    pools: BTreeMap<String, Pool>,
    chosen: BTreeSet<String>,
    readings_count: u64,
}

/// What is kept of one pool.
#[derive(Debug, Default)]
struct Pool {
    poller: StatusPoller,
    accepted: MonotonicCounter,
    max_children_reached: MonotonicCounter,
    slow_requests: MonotonicCounter,
}

/// The collector.
#[derive(Debug, Default)]
pub struct PhpFpm {
    masters: BTreeMap<u32, Master>,
    /// The scripts that are executed, and by how many processes, as far as the pools have answered.
    scripts: Running,
}

/// The value of a setting of a pool.
pub(crate) fn pool_value<'a>(snapshot: &'a ServiceSnapshot, pool: &str, setting: &str) -> Option<&'a str> {
    let scope = SettingScope::Pool(pool.to_owned());
    let mut found = snapshot.scoped.iter();
    let found = found.find(|scoped| scoped.setting == setting && scoped.scope.first() == Some(&scope))?;
    Some(found.value.as_str()).filter(|value| !value.is_empty())
}

/// The pools of all FPMs of a target with the names of their instances: the name of the pool, with the main process where
/// several FPMs have one of that name.
pub(crate) fn pools(target: &Target) -> Vec<(&ServiceSnapshot, &Endpoint, String)> {
    let all = || {
        target
            .services("php_fpm")
            .flat_map(|service| service.endpoints.iter().map(move |pool| (service, pool)))
    };
    let instance = |(service, pool): (&ServiceSnapshot, &Endpoint)| match all()
        .filter(|(_, other)| other.name == pool.name)
        .count()
    {
        1 => pool.name.clone(),
        _ => format!("{}@{}", pool.name, service.pid),
    };
    all().map(|(service, pool)| (service, pool, instance((service, pool)))).collect()
}

/// Whether the pool has children only while it is asked for something.
fn is_on_demand(snapshot: &ServiceSnapshot, pool: &Endpoint) -> bool {
    pool_value(snapshot, &pool.name, "pm") == Some("ondemand")
        && pool_value(snapshot, &pool.name, "pm.status_listen").is_none()
}

impl Master {
    fn new(pid: u32) -> Self {
        Self {
            root: Root::of(pid),
            children: Children::default(),
            log: log::Log::default(),
            pools: BTreeMap::new(),
            chosen: BTreeSet::new(),
            readings_count: 0,
        }
    }

    /// The pools with the most children; the same ones for a while.
    fn choose(&mut self, snapshot: &ServiceSnapshot) {
        if self.readings_count.is_multiple_of(CHOSEN_FOR_COUNT) {
            let counts = self.children.counts();
            let mut pools: Vec<&Endpoint> = snapshot.endpoints.iter().collect();
            pools.sort_by_key(|pool| std::cmp::Reverse(counts.get(pool.name.as_str()).copied()));
            self.chosen = pools.iter().take(POOLS_MAX).map(|pool| pool.name.clone()).collect();
        }
        self.readings_count += 1;
    }

    fn is_chosen(&self, pool: &Endpoint) -> bool {
        self.chosen.contains(&pool.name)
    }

    /// Sends requests to the chosen pools that have a status page.
    fn poll(&mut self, snapshot: &ServiceSnapshot) {
        for pool in snapshot.endpoints.iter().filter(|pool| self.chosen.contains(&pool.name)) {
            let Some(path) = &pool.path else { continue };
            // A request would start a child where there is none.
            if is_on_demand(snapshot, pool) && self.children.sums(&pool.name).count == 0 {
                continue;
            }
            let own = pool_value(snapshot, &pool.name, "pm.status_listen");
            let own = own.map(|listen| crate::services::php_fpm::pools::address("/usr", listen));
            let address = own.as_ref().unwrap_or(&pool.address);
            let in_full = self.children.sums(&pool.name).count <= IN_FULL_MAX;
            let poller = &mut self.pools.entry(pool.name.clone()).or_default().poller;
            poller.begin(snapshot.pid, &self.root, address, (path, in_full));
        }
    }
}

/// The names of one pool's values.
struct Named<'a> {
    instance: &'a str,
    reading: &'a mut Reading,
}

impl Named<'_> {
    fn push(&mut self, what: &str, value: Option<f64>) {
        self.reading.push_some(format!("php_fpm.{}.{what}", self.instance), value);
    }

    fn count(&mut self, what: &str, value: Option<u64>) {
        self.push(what, value.map(|value| value as f64));
    }

    /// Adds what a pool says of itself.
    fn status(&mut self, pool: &mut Pool, is_tcp: bool, status: &Status, waited: Duration) {
        let started = status.start_time.unwrap_or(0);
        let rising = |counter: &mut MonotonicCounter, value: Option<u64>| {
            value.map(|value| counter.update(started, value as f64))
        };
        self.push("accepted_count", rising(&mut pool.accepted, status.accepted_count));
        let reached = rising(&mut pool.max_children_reached, status.max_children_reached_count);
        self.push("max_children_reached_count", reached);
        self.push("slow_requests_count", rising(&mut pool.slow_requests, status.slow_requests_count));
        self.count("idle_count", status.idle_count);
        self.count("active_count", status.active_count);
        self.count("active_peak_count", status.active_peak_count);
        if is_tcp {
            self.count("status_queue_count", status.queue_count);
            self.count("status_queue_peak_count", status.queue_peak_count);
        }
        self.push("status_wait_us", Some(waited.as_micros() as f64));
    }
}

impl PhpFpm {
    /// Adds the queues of the sockets without what we put there; one look at each network namespace.
    fn queues(&self, pools: &[(&ServiceSnapshot, &Endpoint, String)], reading: &mut Reading) {
        let mut looked: BTreeMap<u32, Queues> = BTreeMap::new();
        for (service, pool, instance) in pools {
            let queues = looked.entry(service.pid).or_insert_with(|| {
                let is_unix = |pool: &Endpoint| pool.address.starts_with("unix:");
                let unix = service.endpoints.iter().any(is_unix);
                let tcp = service.endpoints.iter().any(|pool| !is_unix(pool));
                process_view::in_network_of(service.pid, || Queues::read(unix, tcp))
                    .unwrap_or_else(|error| Queues::unread(&error))
            });
            let error =
                if pool.address.starts_with("unix:") { &queues.unix_error } else { &queues.tcp_error };
            match (queues.get(&pool.address), error) {
                (Some((count, limit)), _) => {
                    let mut named = Named { instance, reading };
                    let own = u64::from(self.waits_at(service, pool));
                    named.count("listen_queue_count", Some(count.saturating_sub(own)));
                    named.count("listen_queue_max_count", limit);
                }
                (None, Some(error)) => reading.lacks(
                    format!("php_fpm.{instance}.listen_queue_count"),
                    format!("the kernel does not tell the queue of {}: {error}", pool.address),
                    "load the module unix_diag or tcp_diag, and run webdyno as root",
                ),
                (None, None) => reading.problem(format!("nobody listens on {}", pool.address)),
            }
        }
    }

    /// Adds what the pools of one FPM answer, and what is seen of its processes.
    fn pool(&mut self, service: &ServiceSnapshot, pool: &Endpoint, instance: &str, reading: &mut Reading) {
        let Some(master) = self.masters.get_mut(&service.pid) else { return };
        let state = master.pools.entry(pool.name.clone()).or_default();
        let rests = is_on_demand(service, pool) && master.children.sums(&pool.name).count == 0;
        let asked = match &pool.path {
            Some(_) if rests && !state.poller.is_waiting() => PollResult::Idle,
            Some(_) => state.poller.take(),
            None => {
                PollResult::Never("pm.status_path is not set".into(), crate::services::php_fpm::HOW_TO_ENABLE)
            }
        };
        let answered = matches!(asked, PollResult::Status(..));
        if !answered {
            master.children.read_work();
        }
        match asked {
            PollResult::Status(status, waited) => {
                let is_tcp = !pool.address.starts_with("unix:");
                Named { instance, reading }.status(state, is_tcp, &status, waited);
                let own = pool.path.as_deref().unwrap_or("-");
                let others = status.running_scripts().filter(|script| !script.ends_with(own));
                others.for_each(|script| scripts::add(Some(instance), script, &mut self.scripts));
            }
            PollResult::Idle => {
                let mut named = Named { instance, reading };
                named.count("idle_count", Some(0));
                named.count("active_count", Some(0));
            }
            PollResult::NotNow(why) => reading.problem(format!("the pool {} {why}", pool.name)),
            PollResult::Never(why, how) => {
                reading.lacks(format!("php_fpm.{instance}"), format!("pool {}: {why}", pool.name), how)
            }
        }
        let sums = master.children.sums(&pool.name);
        let log = master.log.counts(&pool.name);
        let mut named = Named { instance, reading };
        named.count("processes_count", Some(sums.count));
        named.count("processes_busy_count", sums.busy_count.filter(|_| !answered));
        named.push("pss_mean_bytes", sums.pss_mean_bytes);
        named.push("pss_max_bytes", sums.pss_max_bytes);
        named.push("swap_pss_mean_bytes", sums.swap_pss_mean_bytes);
        for ((what, _), count) in log::EVENTS.iter().zip(log.into_iter().flatten()) {
            named.count(what, Some(count));
        }
    }

    /// Looks at the processes and the log of one FPM.
    fn read_service(&mut self, service: &ServiceSnapshot, reading: &mut Reading) {
        let master = self.masters.entry(service.pid).or_insert_with(|| Master::new(service.pid));
        master.children.read(service.pid);
        master.choose(service);
        master.children.read_memory();
        if let Err((why, how)) = master.log.read(service, &master.root) {
            reading.lacks("php_fpm.log", why, how);
        }
    }

    /// Whether a request of ours waits in the queue that the pool itself accepts from.
    fn waits_at(&self, service: &ServiceSnapshot, pool: &Endpoint) -> bool {
        let state = self.masters.get(&service.pid).and_then(|master| master.pools.get(&pool.name));
        let of_its_own = pool_value(service, &pool.name, "pm.status_listen").is_some();
        !of_its_own && state.is_some_and(|state| state.poller.is_waiting())
    }
}

impl Collector for PhpFpm {
    fn name(&self) -> &'static str {
        "php_fpm"
    }

    fn metrics(&self) -> Vec<Metric> {
        metrics()
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let services: Vec<&ServiceSnapshot> = target.services("php_fpm").collect();
        self.masters.retain(|pid, _| services.iter().any(|service| service.pid == *pid));
        if services.is_empty() {
            reading.lacks(
                "php_fpm",
                "no PHP-FPM was found behind the service",
                crate::visibility::listeners::to_find_it(),
            );
            return reading;
        }
        for service in &services {
            // Of a process that is gone there are not none, but nothing is known.
            if crate::os::procfs::stat(service.pid).is_ok_and(|stat| !stat.has_ended()) {
                self.read_service(service, &mut reading);
            } else {
                self.masters.remove(&service.pid);
                reading.problem(format!("php-fpm, process {}, is gone", service.pid));
            }
        }
        let mut pools = pools(target);
        pools.retain(|(service, ..)| self.masters.contains_key(&service.pid));
        let all_count = pools.len();
        pools.retain(|(service, pool, _)| {
            self.masters.get(&service.pid).is_some_and(|master| master.is_chosen(pool))
        });
        pools.truncate(POOLS_MAX);
        if pools.len() < all_count {
            let why = format!("of {all_count} pools those {POOLS_MAX} with the most processes are read");
            reading.lacks("php_fpm.*", why, "`pm.status_path` of the other pools, by hand");
        }
        self.queues(&pools, &mut reading);
        for service in &services {
            if let Some(master) = self.masters.get_mut(&service.pid) {
                master.poll(service);
            }
        }
        let deadline = Instant::now() + WAIT;
        let states = self.masters.values_mut().flat_map(|master| master.pools.values_mut());
        status::wait_for(states.map(|state| &mut state.poller), deadline);
        for (service, pool, instance) in &pools {
            self.pool(service, pool, instance, &mut reading);
        }
        scripts::push(SCRIPTS, std::mem::take(&mut self.scripts), &mut reading);
        reading
    }
}

/// Metrics of each pool. ADDRESS is where it listens, STATUS the path of its status page, LOG php-fpm's error log.
fn metrics() -> Vec<Metric> {
    const PAGE: &str = "the status page of the pool";
    let name = |what: &str| format!("php_fpm.*.{what}");
    let page = |field: &str| {
        format!(
            "SCRIPT_NAME=STATUS SCRIPT_FILENAME=STATUS REQUEST_METHOD=GET QUERY_STRING=json cgi-fcgi -bind -connect ADDRESS \
             | sed -n 's/.*\"{field}\":\\([0-9]*\\).*/\\1/p'"
        )
    };
    let queue = |column: u8| format!("ss -lnH -x -t | awk '$5==\"ADDRESS\" {{print ${column}}}'");
    let children = "$(pgrep -P PID -f '^php-fpm: pool INSTANCE *$')";
    let mean = |key: &str| {
        format!(
            "cat $(printf '/proc/%s/smaps_rollup ' {children}) | awk '/^{key}:/ {{s+=$2; n++}} END {{print s*1024/n}}'"
        )
    };
    let largest = mean("Pss").replace("{s+=$2; n++} END {print s*1024/n}", "$2>m {m=$2} END {print m*1024}");
    let busy = format!(
        "cat $(printf '/proc/%s/syscall ' {children}) | grep -vcE '^({}|{}) '",
        nix::libc::SYS_accept,
        nix::libc::SYS_accept4
    );
    let rollup = "/proc/PID/smaps_rollup of the pool's processes";
    let mut metrics = vec![
        gauge(name("listen_queue_count"), "sock_diag(7), without the request for the status page", queue(3)),
        gauge(name("listen_queue_max_count"), "sock_diag(7)", queue(4)),
        gauge(
            name("processes_count"),
            "the titles of php-fpm's children",
            "pgrep -P PID -fc '^php-fpm: pool INSTANCE *$'",
        ),
        gauge(name("processes_busy_count"), "/proc/PID/syscall of the pool's processes", busy),
        gauge(name("pss_mean_bytes"), rollup, mean("Pss")),
        gauge(name("pss_max_bytes"), rollup, largest),
        gauge(name("swap_pss_mean_bytes"), rollup, mean("SwapPss")),
        counter(name("accepted_count"), PAGE, page("accepted conn")),
        counter(name("max_children_reached_count"), PAGE, page("max children reached")),
        counter(name("slow_requests_count"), PAGE, page("slow requests")),
        gauge(name("idle_count"), PAGE, page("idle processes")),
        gauge(name("active_count"), PAGE, page("active processes")),
        gauge(name("active_peak_count"), PAGE, page("max active processes")),
        gauge(name("status_queue_count"), PAGE, page("listen queue")),
        gauge(name("status_queue_peak_count"), PAGE, page("max listen queue")),
        gauge(
            name("status_wait_us"),
            "the request for the status page",
            format!("s=$(date +%s%N); {} >&2; echo $((($(date +%s%N)-s)/1000))", page("pool")),
        ),
    ];
    let by_log = |(what, words): &(&str, &str)| {
        let show = format!("grep 'pool INSTANCE\\]' LOG | grep -c '{words}'");
        counter(name(what), "php-fpm's error log, from the start of the observation", show)
    };
    metrics.extend(log::EVENTS.iter().map(by_log));
    let running = "SCRIPT_NAME=STATUS SCRIPT_FILENAME=STATUS REQUEST_METHOD=GET QUERY_STRING='json&full' cgi-fcgi -bind \
        -connect ADDRESS | grep -o '\"state\":\"Running\"[^}]*' | grep -c \"\\\"$(echo INSTANCE | cut -d: -f2-)\\\"\"";
    metrics.push(gauge(SCRIPTS, PAGE, running));
    metrics
}

#[cfg(test)]
mod tests;
