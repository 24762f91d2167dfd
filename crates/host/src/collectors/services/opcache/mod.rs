//! OPcache of PHP-FPM: whether it is on, how full it is, how often it had to begin anew.
//!
//! Facts: <https://www.php.net/manual/en/function.opcache-get-status.php>, ext/opcache/zend_accelerator_module.c of PHP 8.2.
//! The cache is memory that one FPM shares among its pools, and only a script that runs in there can tell about it. So a
//! script is put into a private temporary folder, a pool is asked for it, and it is removed again. It is dated in the
//! future: what is younger than opcache.file_update_protection is not cached, so that asking leaves nothing in the cache.
//!
//! It is not tried where it could not work or would run the site's own code, and not again where it was refused: that stands
//! in the site's error log.

use super::php_fpm::{pool_value, pools};
use crate::collectors::monotonic_counter::MonotonicCounter;
use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::probes::fastcgi::{Request, wait_for_any};
use crate::visibility::process_view::{self, Root};
use crate::visibility::scratch::Scratch;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use webdyno_model::service::{Endpoint, ServiceSnapshot};

mod refusal;
mod response;

use refusal::Refusal;
use response::OpcacheValues;

/// How long a reading waits for the pools to answer.
const WAIT: Duration = Duration::from_millis(1500);

/// Seconds between readings: each takes a child of the pool for a moment. What goes missing again and again shows only in
/// the difference of two, and a load may last for some seconds only.
const EVERY_S: u32 = 5;

/// The longest that connecting may take.
const CONNECT: Duration = Duration::from_millis(200);

/// After this a request is given up.
const GIVE_UP: Duration = Duration::from_secs(60);

/// The most pools that are asked.
const POOLS_MAX: usize = 8;

/// The script. Plain lines, as json may not be there.
const SCRIPT: &str = include_str!("status.php");

/// What is kept of one pool.
#[derive(Debug, Default)]
struct Pool {
    pending: Option<(Request, Scratch)>,
    refused: Option<Refusal>,
    /// It has no children, and being asked would start one.
    rests: bool,
    totals: [MonotonicCounter; response::TOTALS.len()],
}

/// The collector.
#[derive(Debug, Default)]
pub struct Opcache {
    pools: BTreeMap<(u32, String), Pool>,
}

impl Opcache {
    /// Sends the request, unless one is under way or it was refused.
    fn query(&mut self, service: &ServiceSnapshot, endpoint: &Endpoint) {
        let pool = self.pools.entry((service.pid, endpoint.name.clone())).or_default();
        let is_under_way = pool.pending.as_ref().is_some_and(|(request, _)| request.age() < GIVE_UP);
        if pool.refused.is_some() || is_under_way {
            return;
        }
        pool.pending = None;
        pool.refused = refusal::beforehand(service, &endpoint.name);
        pool.rests = is_idle(service, &endpoint.name);
        if pool.refused.is_some() || pool.rests {
            return;
        }
        let root = Root::of(service.pid);
        let name = refusal::script_name(pool_value(service, &endpoint.name, "security.limit_extensions"));
        let scratch = Scratch::create(&root)
            .and_then(|scratch| scratch.write(&name, SCRIPT.as_bytes()).map(|()| scratch));
        let scratch = match scratch {
            Ok(scratch) => scratch,
            Err(error) => return pool.refused = Some(refusal::no_folder(&error)),
        };
        let (folder, path) = (scratch.path(), format!("{}/{name}", scratch.path()));
        let parameters = [
            ("SCRIPT_FILENAME", path.as_str()),
            ("SCRIPT_NAME", path.as_str()),
            ("DOCUMENT_ROOT", folder.as_str()),
            ("REQUEST_METHOD", "GET"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_SOFTWARE", concat!("webdyno/", env!("CARGO_PKG_VERSION"))),
        ];
        let stream = process_view::connect(service.pid, &root, &endpoint.address, CONNECT);
        // One that cannot be connected to now may be asked later; php_fpm tells of it.
        pool.pending = stream
            .and_then(|stream| Request::send(stream, &parameters))
            .ok()
            .map(|request| (request, scratch));
    }

    /// Takes the answers that come before `deadline`.
    fn receive(&mut self, deadline: Instant) -> BTreeMap<(u32, String), OpcacheValues> {
        let mut answers = BTreeMap::new();
        loop {
            for (key, pool) in &mut self.pools {
                let Some((request, _)) = &mut pool.pending else { continue };
                match request.wait(Instant::now()) {
                    Ok(None) => continue,
                    Ok(Some(answer)) => match response::parse(&answer) {
                        Ok(message) => drop(answers.insert(key.clone(), message)),
                        Err(refused) => pool.refused = Some(refused),
                    },
                    // A reload: the next reading asks anew.
                    Err(_) => {}
                }
                pool.pending = None;
            }
            let waiting: Vec<&Request> =
                self.pools.values().filter_map(|pool| Some(&pool.pending.as_ref()?.0)).collect();
            let left = deadline.saturating_duration_since(Instant::now());
            if waiting.is_empty() || left.is_zero() || wait_for_any(waiting.into_iter(), left).is_err() {
                return answers;
            }
        }
    }

    /// Adds what one pool told, or why it did not.
    fn report(
        &mut self,
        key: &(u32, String),
        instance: &str,
        message: Option<OpcacheValues>,
        reading: &mut Reading,
    ) {
        let Some(pool) = self.pools.get_mut(key) else { return };
        match (message, &pool.refused) {
            (Some(message), _) => message.values(instance, &mut pool.totals, reading),
            (None, Some(refused)) => {
                reading.lacks(format!("opcache.{instance}"), refused.why.clone(), refused.how)
            }
            (None, None) if pool.rests => {
                let why = format!("the pool {} has no children, and a question would start one", key.1);
                reading.lacks(format!("opcache.{instance}"), why, "look again while the site is in use");
            }
            (None, None) => reading
                .problem(format!("the pool {} does not answer in time: all its children may be busy", key.1)),
        }
    }
}

/// Whether a pool has children only while it is asked for something, and none now.
fn is_idle(service: &ServiceSnapshot, pool: &str) -> bool {
    let is_of_pool = |child: u32| crate::services::php_fpm::pool_of(child).as_deref() == Some(pool);
    pool_value(service, pool, "pm") == Some("ondemand")
        && !crate::os::procfs::children_of(service.pid).into_iter().any(is_of_pool)
}

/// Why there is nothing to ask.
fn report_no_service(target: &Target, reading: &mut Reading) {
    let is_php = |module: &String| module.starts_with("php") && module.ends_with("_module");
    let front = target.service.as_deref();
    if front.is_some_and(|front| front.service == "apache" && front.modules.iter().any(is_php)) {
        reading.lacks(
            "opcache",
            "PHP runs inside of Apache (mod_php): its cache is seen from outside only; what it counts tells a page of the site itself",
            "look at opcache_get_status() in a page of the site, or let php-fpm run PHP",
        );
    } else {
        reading.lacks(
            "opcache",
            "no PHP-FPM was found behind the service",
            crate::visibility::listeners::to_find_it(),
        );
    }
}

impl Collector for Opcache {
    fn name(&self) -> &'static str {
        "opcache"
    }

    fn metrics(&self) -> Vec<Metric> {
        // ADDRESS is where the pool listens.
        let show = |keys: &str| {
            format!(
                "d=$(mktemp -d) && chmod 711 $d && echo '<?php echo +opcache_get_status(false){keys};' >$d/x.php && \
                 SCRIPT_NAME=/x.php SCRIPT_FILENAME=$d/x.php REQUEST_METHOD=GET cgi-fcgi -bind -connect ADDRESS | \
                 tail -n 1; rm -r $d"
            )
        };
        let key = |name: &str| {
            let keys = name.split('.').map(|part| format!("[\"{part}\"]")).collect::<String>();
            show(&keys)
        };
        let source = "opcache_get_status()";
        let name = |what: &str| format!("opcache.*.{what}");
        let levels = response::LEVELS.iter().map(|(what, field)| gauge(name(what), source, key(field)));
        let totals = response::TOTALS.iter().map(|(what, field)| counter(name(what), source, key(field)));
        levels.chain(totals).collect()
    }

    fn every_s(&self) -> u32 {
        EVERY_S
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let mut pools = pools(target);
        pools.truncate(POOLS_MAX);
        self.pools.retain(|(pid, name), _| {
            pools.iter().any(|(service, endpoint, _)| service.pid == *pid && endpoint.name == *name)
        });
        if pools.is_empty() {
            report_no_service(target, &mut reading);
            return reading;
        }
        for (service, endpoint, _) in &pools {
            self.query(service, endpoint);
        }
        let mut answers = self.receive(Instant::now() + WAIT);
        for (service, endpoint, instance) in &pools {
            let key = (service.pid, endpoint.name.clone());
            let message = answers.remove(&key);
            self.report(&key, instance, message, &mut reading);
        }
        reading
    }
}
