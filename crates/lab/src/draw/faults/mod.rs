//! What can be wrong with a server: one row each, with what it applies to, how it is set, and which findings are right. It is
//! removed by setting what was there before; whether it binds is measured.

mod database;
mod network;
mod servers;

use super::random::Random;
use super::server::{Arrival, Extra, Front, LogTarget, Pages, Server};

/// A fault.
pub struct Fault {
    /// Its name.
    pub id: &'static str,
    /// Ids of findings that are right: any of them. Some may be of a later version.
    pub findings: &'static [&'static str],
    /// Whether a server can have it.
    pub applies: fn(&Server) -> bool,
    /// What has to be there, and stays when it is removed.
    pub prepare: fn(&mut Server),
    /// Sets it. Gives how severe it is, in words.
    pub set: fn(&mut Server, &mut Random) -> String,
}

/// Faults that a setting lifts which may be changed without asking anybody. The others are for a person: certificates, protections,
/// rules and files of the site, programs, hardware.
pub const OF_SETTINGS: [&str; 23] = [
    "apache-workers",
    "apache-clamped",
    "worker-churn",
    "keepalive-holds",
    "event-connections",
    "keepalive-off",
    "hostname-lookups",
    "log-verbosity",
    "log-disk",
    "compression",
    "fpm-children",
    "spawn-lag",
    "fpm-spawn-lag",
    "opcache-off",
    "opcache-full",
    "db-connections",
    "db-threads",
    "db-cache",
    "nginx-connections",
    "nginx-files",
    "nginx-worker",
    "proxy-places",
    "accept-queue",
];

/// Nothing has to be there.
fn nothing(_: &mut Server) {}

/// What a look-up of a name takes, seconds.
const LOOK_UP_S: f64 = 0.5;
/// What a class takes to be compiled, milliseconds.
const COMPILE_MS: f64 = 0.2;
/// What a signature with a large key takes, milliseconds.
const SIGN_MS: f64 = 3.0;
/// Lines that the slow disk and the slow program take a second, and some more.
const DISK_LINES: f64 = 100.0;
const PROGRAM_LINES: f64 = 300.0;
/// Requests under way that make a pool worth being too small.
const DEMAND_MIN: f64 = 6.0;
/// Connections at once that make a short queue worth looking at.
const CROWD_MIN: u32 = 30;
/// Memory that a page holds, MB, what it takes of a core to fill that, milliseconds, and what a process takes besides.
const HELD_MB: u32 = 20;
const HOLD_MS: f64 = 15.0;
const PROCESS_MB: f64 = 6.0;
/// What the rest of a server takes, MB.
const REST_MB: f64 = 70.0;
/// Descriptors that a process of nginx has open without a connection, and a few.
const NGINX_FILES: f64 = 14.0;

/// A pool's size below what is under way at once.
fn too_few(server: &Server, random: &mut Random) -> u32 {
    (server.demand() * random.log(0.15, 0.55)).max(1.0) as u32
}

fn waits(server: &Server) -> bool {
    server.wait_ms > 0 && server.demand() >= DEMAND_MIN
}

fn compiles_too_much(server: &Server) -> bool {
    server.is_php() && server.classes > 0 && server.is_overloaded_by(f64::from(server.classes) * COMPILE_MS)
}

/// All that are known.
pub fn all() -> impl Iterator<Item = &'static Fault> {
    FAULTS.iter().chain(servers::FAULTS).chain(database::FAULTS).chain(network::FAULTS)
}

const FAULTS: &[Fault] = &[
    Fault {
        id: "apache-workers",
        findings: &["apache-workers-exhausted"],
        applies: |server| waits(server) && server.holds_workers(),
        prepare: nothing,
        set: |server, random| {
            server.settings.workers = too_few(server, random);
            format!("MaxRequestWorkers {} for {:.0} under way", server.settings.workers, server.demand())
        },
    },
    Fault {
        id: "apache-clamped",
        findings: &["apache-setting-clamped"],
        applies: |server| waits(server) && server.holds_workers() && server.demand() >= 12.0,
        prepare: nothing,
        set: |server, random| {
            let few = too_few(server, random).max(3);
            let is_prefork = server.front == Front::Prefork;
            let limit = if is_prefork { few } else { few.div_ceil(8) };
            server.settings.threads = if is_prefork { server.settings.threads } else { 8 };
            server.settings.server_limit = Some(limit);
            format!("ServerLimit {limit} below MaxRequestWorkers {}", server.settings.workers)
        },
    },
    Fault {
        id: "worker-churn",
        findings: &["apache-worker-churn"],
        applies: |server| server.front == Front::Prefork && !server.kept && server.rate() > 100.0,
        prepare: |server| server.settings.connections_per_child = 0,
        set: |server, random| {
            server.settings.connections_per_child = random.whole(1, 3) as u32;
            format!("MaxConnectionsPerChild {}", server.settings.connections_per_child)
        },
    },
    Fault {
        id: "keepalive-holds",
        findings: &["keepalive-holds-workers"],
        applies: |server| {
            let reads =
                matches!(server.arrival, Arrival::Users(users, think_ms) if users >= 25 && think_ms >= 900);
            reads
                && server.kept
                && !server.loads_resources
                && matches!(server.front, Front::Prefork | Front::Worker)
        },
        prepare: |server| {
            // So many can be served as long as none is kept while its user thinks.
            server.settings.keepalive_s = 0;
            server.settings.workers = (server.demand() * 3.0) as u32 + 6;
        },
        set: |server, random| {
            server.settings.keepalive_s = random.whole(15, 60) as u32;
            format!(
                "KeepAliveTimeout {} with {} workers",
                server.settings.keepalive_s, server.settings.workers
            )
        },
    },
    Fault {
        id: "event-connections",
        findings: &["apache-async-cap"],
        applies: |server| {
            let threads = server.settings.threads;
            let reads =
                matches!(server.arrival, Arrival::Users(users, ms) if users >= 4 * threads && ms >= 900);
            let suffice = server.demand() <= f64::from(threads) * 0.6;
            reads && suffice && server.front == Front::Event && server.kept && !server.loads_resources
        },
        prepare: |server| {
            // One process has threads for all requests, and connections for all users.
            server.settings.workers = server.settings.threads;
            (server.settings.keepalive_s, server.settings.async_factor) = (10, Some(40));
        },
        set: |server, _| {
            server.settings.async_factor = Some(1);
            format!("AsyncRequestWorkerFactor 1 with {} threads", server.settings.threads)
        },
    },
    Fault {
        id: "keepalive-off",
        findings: &["keepalive-ineffective", "tls-handshakes"],
        applies: |server| server.kept && server.is_full() && (server.tls || server.pages == Pages::Static),
        prepare: nothing,
        set: |server, _| {
            server.settings.keepalive_s = 0;
            "kept connections are refused".into()
        },
    },
    Fault {
        id: "htaccess",
        findings: &["htaccess-lookups"],
        applies: |server| server.is_apache() && server.pages == Pages::Static && server.is_full(),
        prepare: |server| server.extras.extend([Extra::Rules]),
        set: |server, _| {
            server.settings.overrides = true;
            "AllowOverride All, and 700 rules in .htaccess".into()
        },
    },
    Fault {
        id: "negotiation",
        findings: &["apache-negotiation"],
        applies: |server| server.is_apache() && server.pages == Pages::Static && server.is_full(),
        prepare: |server| server.extras.extend([Extra::Crowd]),
        set: |server, _| {
            server.settings.negotiates = true;
            "MultiViews in a folder of 9,000 files".into()
        },
    },
    Fault {
        id: "hostname-lookups",
        findings: &["hostname-lookups"],
        applies: |server| {
            let held = server.rate() * LOOK_UP_S;
            server.is_apache() && !server.kept && held > f64::from(server.settings.workers) * 1.5
        },
        prepare: |server| server.extras.extend([Extra::Resolver]),
        set: |server, _| {
            server.settings.lookups = true;
            "HostnameLookups On, and names take half a second".into()
        },
    },
    Fault {
        id: "log-verbosity",
        findings: &["log-verbosity"],
        applies: |server| server.is_apache() && server.is_full() && server.work_ms < 3.0,
        prepare: |server| server.extras.extend([Extra::Redirects]),
        set: |server, _| {
            server.settings.log_level = "warn rewrite:trace8";
            "LogLevel rewrite:trace8 with 400 rules".into()
        },
    },
    Fault {
        id: "log-disk",
        findings: &["log-io"],
        // lighttpd gathers lines for seconds.
        applies: |server| server.rate() > DISK_LINES && server.front != Front::Lighttpd,
        prepare: |server| server.extras.extend([Extra::SlowDisk]),
        set: |server, _| {
            server.settings.log = LogTarget::SlowDisk;
            "the access log is on a synchronous disk of 60 writes a second".into()
        },
    },
    Fault {
        id: "log-pipe",
        findings: &["log-io"],
        applies: |server| server.is_apache() && server.rate() > PROGRAM_LINES,
        prepare: |server| server.extras.extend([Extra::Receiver]),
        set: |server, _| {
            server.settings.log = LogTarget::Receiver;
            "the access log goes to a program that takes 12 ms for a line".into()
        },
    },
    Fault {
        id: "tls-key",
        findings: &["tls-handshakes"],
        applies: |server| server.tls && !server.kept && server.is_overloaded_by(SIGN_MS),
        prepare: |server| {
            server.settings.rsa_bits = 0;
            server.extras.insert(Extra::LargeKey);
        },
        set: |server, _| {
            (server.settings.rsa_bits, server.settings.resumes) = (4096, false);
            "a key of RSA 4096, and no session is resumed".into()
        },
    },
    Fault {
        id: "transfer-limit",
        findings: &["rate-limited"],
        applies: |server| {
            server.pages == Pages::Static && server.files_bytes.iter().all(|bytes| *bytes > 40_000)
        },
        prepare: nothing,
        set: |server, random| {
            let limit = random.log(40.0, 300.0) as u32;
            server.settings.limit_kib_s = Some(limit);
            format!("{limit} KiB/s for each connection")
        },
    },
    Fault {
        id: "request-limit",
        findings: &["rate-limited"],
        applies: |server| server.front == Front::Nginx && server.rate() > 20.0,
        prepare: nothing,
        set: |server, random| {
            let rate = (server.rate() * random.log(0.2, 0.6)).max(2.0) as u32;
            server.settings.limit_req = Some(rate);
            format!("limit_req {rate}r/s")
        },
    },
    Fault {
        id: "compression",
        findings: &["compression"],
        applies: |server| {
            let large = server.files_bytes.iter().any(|bytes| *bytes > 60_000) || server.answer_bytes > 8_000;
            large && server.is_full() && server.front != Front::Lighttpd
        },
        prepare: |server| server.extras.extend([Extra::Compressing]),
        set: |server, _| {
            server.settings.compression = Some(9);
            "texts are compressed at level 9".into()
        },
    },
    Fault {
        id: "cpu-quota",
        findings: &["cpu-throttled"],
        // A database is not up in time with so little.
        applies: |server| server.query.is_none(),
        prepare: nothing,
        set: |server, random| {
            let used = server.rate() * server.work_ms / 1000.0;
            server.settings.cpus = ((used * random.log(0.25, 0.7)).clamp(0.03, 0.7) * 100.0).round() / 100.0;
            format!("{} of a core", server.settings.cpus)
        },
    },
    Fault {
        id: "foreign-load",
        findings: &["foreign-load"],
        applies: |server| server.is_full(),
        prepare: nothing,
        set: |server, random| {
            server.settings.jobs = random.whole(2, 5) as u32;
            format!("{} other processes use the processors", server.settings.jobs)
        },
    },
    Fault {
        id: "fpm-children",
        findings: &["php-fpm-workers-exhausted"],
        applies: |server| waits(server) && server.has_fpm(),
        prepare: nothing,
        set: |server, random| {
            server.settings.children = too_few(server, random);
            format!("pm.max_children {} for {:.0} under way", server.settings.children, server.demand())
        },
    },
    Fault {
        id: "opcache-off",
        findings: &["opcache-off"],
        applies: compiles_too_much,
        prepare: nothing,
        set: |server, _| {
            server.settings.opcache = false;
            format!("opcache.enable 0, and {} classes for each page", server.classes)
        },
    },
    Fault {
        id: "opcache-full",
        findings: &["opcache-full"],
        applies: compiles_too_much,
        prepare: |server| server.classes = 160,
        set: |server, _| {
            server.settings.opcache_mb = 8;
            format!("opcache.memory_consumption 8 for {} classes", server.classes)
        },
    },
    Fault {
        id: "session-lock",
        findings: &["session-lock"],
        applies: |server| waits(server) && server.is_php() && server.query.is_none(),
        prepare: |server| server.extras.extend([Extra::Cookie]),
        set: |server, _| {
            server.settings.session = true;
            "all requests are of one session, which a page keeps open while it waits".into()
        },
    },
    Fault {
        id: "file-lock",
        findings: &["file-lock-contention"],
        applies: |server| waits(server) && server.is_php() && server.query.is_none(),
        prepare: nothing,
        set: |server, _| {
            server.settings.file_lock = true;
            "all requests lock one file, which a page keeps locked while it waits".into()
        },
    },
    Fault {
        id: "slow-names",
        findings: &["slow-upstream"],
        applies: |server| waits(server) && server.is_php(),
        prepare: |server| server.extras.extend([Extra::Resolver]),
        set: |server, _| {
            server.settings.resolves = true;
            "each page asks for a name, which takes half a second".into()
        },
    },
    Fault {
        id: "nginx-connections",
        findings: &["nginx-connections-exhausted"],
        applies: |server| server.front == Front::Nginx && waits(server) && server.pinned,
        prepare: nothing,
        set: |server, random| {
            let doubled = if server.pages == Pages::Static { 1.0 } else { 2.0 };
            let places = server.demand() * doubled * random.log(0.3, 0.6);
            server.settings.front_connections = (places as u32).max(10);
            format!(
                "worker_connections {} for {:.0} under way",
                server.settings.front_connections,
                server.demand()
            )
        },
    },
    Fault {
        id: "lighttpd-connections",
        findings: &["lighttpd-connections-exhausted"],
        applies: |server| server.front == Front::Lighttpd && waits(server),
        prepare: nothing,
        set: |server, random| {
            server.settings.front_connections = too_few(server, random);
            format!(
                "server.max-connections {} for {:.0} under way",
                server.settings.front_connections,
                server.demand()
            )
        },
    },
    Fault {
        id: "nginx-worker",
        findings: &["nginx-workers-saturated", "single-thread-saturated"],
        applies: |server| {
            let costly = server.tls || server.files_bytes.iter().any(|bytes| *bytes > 30_000);
            server.front == Front::Nginx
                && !server.pinned
                && server.pages == Pages::Static
                && costly
                && server.is_full()
        },
        prepare: |server| {
            server.extras.insert(Extra::Compressing);
            server.settings.compression = Some(5);
        },
        set: |server, _| {
            server.settings.nginx_workers = Some(1);
            "worker_processes 1 on several cores".into()
        },
    },
    Fault {
        id: "proxy-places",
        findings: &["proxy-pool-exhausted"],
        // lighttpd has no such limit.
        applies: |server| waits(server) && server.pages == Pages::Proxy && server.front != Front::Lighttpd,
        prepare: nothing,
        set: |server, random| {
            // Apache counts in each of its processes.
            let pools = if server.is_apache() { server.processes() } else { 1 };
            let places = (too_few(server, random) / pools).max(1);
            server.settings.proxy_places = Some(places);
            format!("{pools} times {places} connections for {:.0} under way", server.demand())
        },
    },
    Fault {
        id: "partner-slow",
        findings: &["slow-upstream"],
        applies: |server| waits(server) && server.is_php() && server.query.is_none(),
        prepare: |server| server.extras.extend([Extra::Partner]),
        set: |server, random| {
            server.settings.partner_workers = too_few(server, random);
            format!(
                "a service that pages ask answers {} at a time, for {:.0} under way",
                server.settings.partner_workers,
                server.demand()
            )
        },
    },
    Fault {
        id: "accept-queue",
        findings: &["accept-queue-overflow"],
        applies: |server| !server.kept && server.connections() >= CROWD_MIN,
        prepare: nothing,
        set: |server, random| {
            let places = random.whole(1, 8) as u32;
            server.settings.backlog = Some(places);
            format!("a backlog of {places} for {} connections", server.connections())
        },
    },
    Fault {
        id: "lost-syns",
        findings: &["lost-syns"],
        applies: |server| !server.kept && server.rate() > 10.0,
        prepare: |server| server.extras.extend([Extra::Firewall]),
        set: |server, random| {
            let one_in = random.whole(4, 12) as u32;
            server.settings.lost_one_in = Some(one_in);
            format!("a packet filter drops one in {one_in} of the packets that begin a connection")
        },
    },
    Fault {
        id: "nginx-files",
        findings: &["open-files-exhausted"],
        applies: |server| server.front == Front::Nginx && waits(server) && server.pinned,
        prepare: nothing,
        set: |server, random| {
            let each = if server.pages == Pages::Static { 1.0 } else { 2.0 };
            let files = (NGINX_FILES + server.demand() * each * random.log(0.3, 0.6)) as u32;
            server.settings.nginx_files = Some(files);
            format!("worker_rlimit_nofile {files} for {:.0} under way", server.demand())
        },
    },
    Fault {
        id: "memory",
        findings: &["memory-exhausted"],
        applies: |server| {
            waits(server)
                && server.is_php()
                && server.query.is_none()
                && (10.0..80.0).contains(&server.demand())
                && !server.is_overloaded_by(HOLD_MS * 1.5)
        },
        prepare: |server| server.page_mb = HELD_MB,
        set: |server, random| {
            let held = server.demand() * (f64::from(server.page_mb) + PROCESS_MB);
            server.settings.memory_mb = (REST_MB + held * random.log(0.25, 0.6)) as u32;
            format!("{} MB of memory where pages hold {held:.0}", server.settings.memory_mb)
        },
    },
];
