//! What is an incident: a metric, its threshold, and the reason for it.

/// What of a metric is looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    /// The level as it is.
    Level,
    /// By how much a counter rose since the reading before.
    Rise,
    /// A counter's rise per second, times a factor: 1e-6 makes a share of the time from microseconds.
    Rate(f64),
    /// The share of another metric of the same reading.
    ShareOf(&'static str),
}

/// One kind of incident.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The metric; a star for what there are several of.
    pub metric: &'static str,
    /// What of it.
    pub what: What,
    /// From here on,
    pub from: f64,
    /// for so many readings in a row, it is an incident.
    pub readings: u32,
    /// It is over only below this.
    pub until: f64,
    /// What goes wrong.
    pub words: &'static str,
    /// Why this threshold.
    pub why: &'static str,
}

impl Row {
    /// The metric that it is compared with, if it is a share of one.
    pub fn whole(&self) -> Option<&'static str> {
        match self.what {
            What::ShareOf(whole) => Some(whole),
            _ => None,
        }
    }
}

/// A row under the name that other crates know it by.
pub type Kind = Row;

const SHARE: What = What::Rate(1e-6);
const EACH: &str = "each one is a client or a request that got nothing";
const TRACKED: &str =
    "at its end packets of new connections are dropped; entries live for minutes, so that it falls slowly";
const LOGGED: &str = "the server says so once for many that it hits";
const KILLED: &str = "a process was ended in the midst of its work: one is enough";

/// All kinds, each a row.
#[rustfmt::skip] // a table, one row a line
pub const ALL: &[Row] = &[
    row("sockets.listen_overflows_count", What::Rate(1.0), (1.0, 1), 0.5, "connections turned away, as the accept queue is full", EACH),
    row("sockets.syn_queue_drops_count", What::Rate(1.0), (1.0, 1), 0.5, "connections turned away, as the SYN queue is full", EACH),
    row("sockets.accept_queue_count", What::ShareOf("sockets.accept_queue_max_count"), (0.9, 3), 0.5, "the accept queue is nearly full", "it fills in bursts; three seconds are no burst, and what comes next is turned away"),
    row("apache.workers_busy_count", What::ShareOf("apache.slots_count"), (1.0, 5), 0.9, "all workers of the web server are busy", "five seconds at the limit are a queue that grows"),
    row("memory.oom_kills_count", What::Rise, (1.0, 1), 1.0, "processes killed for memory on this machine", KILLED),
    row("memory.group_oom_kills_count", What::Rise, (1.0, 1), 1.0, "processes of the service's group killed for memory", KILLED),
    row("pressure.memory_full_us", SHARE, (0.1, 3), 0.02, "all work stands still for memory", "a tenth of the time is what users feel; a second of it may be a start"),
    row("pressure.group_memory_full_us", SHARE, (0.1, 3), 0.02, "all work of the service's group stands still for memory", "as of the whole machine"),
    row("pressure.io_full_us", SHARE, (0.4, 10), 0.2, "all work stands still for disks", "backups and logs do that for moments; ten seconds of nearly half the time hold requests up"),
    row("pressure.cpu_some_us", SHARE, (0.8, 30), 0.5, "work waits for a processor nearly all the time", "a full machine is no fault; half a minute of waiting is a queue"),
    row("conntrack.entries_count", What::ShareOf("conntrack.max_count"), (0.9, 2), 0.8, "the table of connections that the firewall tracks is nearly full", TRACKED),
    row("conntrack.service.entries_count", What::ShareOf("conntrack.service.max_count"), (0.9, 2), 0.8, "the table of tracked connections of the service's network is nearly full", TRACKED),
    row("conntrack.drop_count", What::Rate(1.0), (1.0, 1), 0.5, "packets dropped, as the table of tracked connections is full", EACH),
    row("sockets.time_wait_overflows_count", What::Rate(1.0), (100.0, 5), 10.0, "sockets in TIME_WAIT beyond their limit", "it costs little; that many tell of connections that nobody keeps"),
    row("process.open_files_max_count", What::ShareOf("process.open_files_limit_count"), (0.9, 1), 0.8, "a process of the service has nearly all open files that it may have", "at the limit it accepts nothing any more"),
    row("kernel_log.*.messages_count", What::Rise, (1.0, 1), 1.0, "a message of the kernel's log", "the kernel says so little that each one of the kinds that are counted tells of a limit or a fault"),
    row("mariadb.connections_refused_count", What::Rise, (1.0, 1), 1.0, "connections refused by the database: too many", EACH),
    row("mariadb.threads_connected_count", What::ShareOf("mariadb.connections_limit_count"), (0.95, 5), 0.8, "the database has nearly all connections that it may have", "pools of applications hold many; from here on the next ones are refused"),
    row("access_log.status_5xx_count", What::Rate(1.0), (1.0, 3), 0.2, "requests answered with an error of the server (5xx)", "a single one may be a visitor's; one each second is what users see"),
    row("apache_log.AH00161.messages_count", What::Rise, (1.0, 1), 1.0, "Apache reached MaxRequestWorkers (AH00161)", LOGGED),
    row("apache_log.AH00484.messages_count", What::Rise, (1.0, 1), 1.0, "Apache reached MaxRequestWorkers (AH00484)", LOGGED),
    row("apache_log.AH00288.messages_count", What::Rise, (1.0, 1), 1.0, "Apache's scoreboard is full (AH00288)", LOGGED),
    row("apache_log.AH00159.messages_count", What::Rise, (1.0, 1), 1.0, "Apache could not start a process (AH00159)", LOGGED),
    row("apache_log.AH02324.messages_count", What::Rise, (1.0, 1), 1.0, "Apache could not accept a connection (AH02324)", LOGGED),
    row("apache_log.AH00957.messages_count", What::Rise, (1.0, 1), 1.0, "a backend refused Apache's connection (AH00957)", EACH),
    row("apache_log.AH01079.messages_count", What::Rise, (1.0, 1), 1.0, "a backend refused Apache's connection (AH01079)", EACH),
    row("apache_log.AH01075.messages_count", What::Rise, (1.0, 1), 1.0, "a request to a backend failed (AH01075)", EACH),
    row("apache_log.database_refuses.messages_count", What::Rise, (1.0, 1), 1.0, "the application was refused by its database", EACH),
    row("apache_log.too_many_open_files.messages_count", What::Rise, (1.0, 1), 1.0, "Apache has no open files left", LOGGED),
    row("apache_log.no_processes_left.messages_count", What::Rise, (1.0, 1), 1.0, "Apache may start no more processes", LOGGED),
    row("apache_log.php_memory_limit.messages_count", What::Rise, (1.0, 1), 1.0, "PHP ran out of the memory that a script may use", EACH),
    row("php_fpm.*.listen_queue_count", What::Level, (1.0, 5), 1.0, "requests wait for a child of PHP-FPM", "it starts children at once while it may; five seconds are a queue that grows"),
    row("php_fpm.*.max_children_reached_count", What::Rise, (1.0, 1), 1.0, "PHP-FPM reached pm.max_children", LOGGED),
    row("opcache.*.oom_restarts_count", What::Rise, (1.0, 1), 1.0, "OPcache was emptied, as it was full", "every script is compiled anew after it"),
    row("cgroup.throttled_s", What::Rate(1.0), (0.1, 3), 0.02, "the service's group is held back by its processor quota (seconds)", "a tenth of the time is what users feel; quotas bite for moments at each burst"),
    row("cgroup.oom_kills_count", What::Rise, (1.0, 1), 1.0, "processes of the service's control group killed for memory", KILLED),
    row("cgroup.tasks_refused_count", What::Rise, (1.0, 1), 1.0, "the service's group may start no more processes", EACH),
    row("files.open_count", What::ShareOf("files.max_count"), (0.9, 1), 0.8, "the machine has nearly all open files that it may have", "at the limit nothing can be opened or accepted any more"),
    row("softnet.dropped_count", What::Rate(1.0), (1.0, 3), 0.2, "packets dropped before they were looked at", "the processors do not keep up with what comes in"),
];

const fn row(
    metric: &'static str,
    what: What,
    (from, readings): (f64, u32),
    until: f64,
    words: &'static str,
    why: &'static str,
) -> Row {
    Row { metric, what, from, readings, until, words, why }
}
