//! `db-connection-memory`: the buffers that each connection to the database takes do not fit in memory.
//!
//! `sort_buffer_size`, `join_buffer_size`, `read_buffer_size` and `read_rnd_buffer_size` are not taken once but by each
//! connection that sorts, joins or reads: times `max_connections` they may be far more than the machine has. What was set
//! so that one report is quick takes the memory from everybody.
//!
//! ## How it is recognised
//! Memory is proven to be short (as for `memory-exhausted`), the database holds most of it, and it holds far more than its
//! caches: the buffers of the connections that were open explain it. All connections that are allowed together would need
//! more than there is.
//!
//! ## What to do
//! Lower the largest buffer to what fits for as many connections as were open, at most what MariaDB has by itself (2 MB for
//! sorts, 256 kB for joins): sorts then go over temporary files, which is hardly slower. It holds for new connections at
//! once, and is to be written to a file to stay. Fewer connections also do: the others wait, or are refused.
//!
//! ## By hand
//! `mariadb -e "SHOW VARIABLES LIKE '%buffer_size'; SHOW STATUS LIKE 'Max_used_connections'"`, `ps -o rss,vsz -C mariadbd`,
//! `grep VmSwap /proc/$(pidof mariadbd)/status`, `cat /proc/pressure/memory`.

pub(crate) mod finding;

/// Stable id.
pub const ID: &str = "db-connection-memory";
/// What it causes, and what is therefore not the cause where this one is found.
pub const CAUSES: &[&str] = &[
    "memory-exhausted",
    "worker-memory-growth",
    "working-set-exceeds-memory",
    "cpu-saturated",
    "apache-workers-exhausted",
    "apache-spawn-lag",
    "accept-queue-overflow",
    "syn-queue-overflow",
    "lost-syns",
    "php-fpm-workers-exhausted",
    "backend-refused",
    "db-connections-exhausted",
    "db-slow-queries",
    "db-cache-too-small",
    "db-lock-contention",
    "log-io",
    "foreign-load",
];
