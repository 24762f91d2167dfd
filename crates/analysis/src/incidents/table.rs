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

/// A row under the name that other crates know it by.
pub type Kind = Row;

const SHARE: What = What::Rate(1e-6);
const EACH: &str = "each one is a client or a request that got nothing";
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
    row("sockets.conntrack_count", What::ShareOf("sockets.conntrack_limit_count"), (0.9, 2), 0.8, "the table of connections that the firewall tracks is nearly full", "at its end packets of new connections are dropped; entries live for minutes, so that it falls slowly"),
    row("sockets.time_wait_overflows_count", What::Rate(1.0), (100.0, 5), 10.0, "sockets in TIME_WAIT beyond their limit", "it costs little; that many tell of connections that nobody keeps"),
    row("process.open_files_max_count", What::ShareOf("process.open_files_limit_count"), (0.9, 1), 0.8, "a process of the service has nearly all open files that it may have", "at the limit it accepts nothing any more"),
    row("kernel_log.*.messages_count", What::Rise, (1.0, 1), 1.0, "a message of the kernel's log", "the kernel says so little that each one of the kinds that are counted tells of a limit or a fault"),
    row("mariadb.connections_refused_count", What::Rise, (1.0, 1), 1.0, "connections refused by the database: too many", EACH),
    row("mariadb.threads_connected_count", What::ShareOf("mariadb.connections_limit_count"), (0.95, 5), 0.8, "the database has nearly all connections that it may have", "pools of applications hold many; from here on the next ones are refused"),
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
